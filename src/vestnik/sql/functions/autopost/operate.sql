-- What an operator does by hand, as the specification's runbook says it: rows and event in one transaction, with its very keys.
-- Who calls wakes the dispatcher. Locks are those of claim.sql, in its order.

create or replace function autopost.queue_snapshot(p_workspace_id text)
returns table (workspace_id text, status text, count bigint, oldest timestamptz)
language sql stable as $$
    select d.workspace_id, d.status, count(*), min(d.created_at)
    from autopost.deliveries d where d.workspace_id = p_workspace_id group by d.workspace_id, d.status order by d.status
$$;

create or replace function autopost.recent_errors(
    p_workspace_id text, p_limit integer default 200, p_for interval default '30 minutes', p_now timestamptz default now())
returns table (ts timestamptz, action text, result text, channel_id text, delivery_id uuid, attempt integer, error jsonb, meta jsonb)
language sql stable as $$
    select e.ts, e.action, e.result, e.channel_id, e.delivery_id, e.attempt, e.error, e.meta
    from autopost.events e
    where e.workspace_id = p_workspace_id and e.ts >= p_now - p_for and e.result = 'error'
    order by e.ts desc, e.id desc limit p_limit
$$;

-- Where the channel or the platform was refused, sending the post again mends nothing.
create or replace function autopost.may_requeue(p_status text, p_error jsonb) returns boolean
language sql immutable parallel safe as $$
    select p_status = 'dead' or p_status = 'failed_permanent' and coalesce(p_error ->> 'scope', 'delivery') = 'delivery'
$$;

create or replace function autopost.requeue_problem(p_delivery autopost.deliveries) returns text
language sql immutable as $$
    select case
        when autopost.may_requeue(p_delivery.status, p_delivery.last_error) then null
        when p_delivery.status <> 'failed_permanent' then format('it is %s', p_delivery.status)
        else format('its %s was refused (%s), not the post: put that right and push it again',
                    p_delivery.last_error ->> 'scope', coalesce(p_delivery.last_error ->> 'code', 'unknown')) end
$$;

-- One more try for what is dead, or failed for what is in the post itself; attempts are counted at the next begin, and nothing
-- declares a delivery dead before that. The rows are locked by a statement of their own: what the next one reads is final. Without
-- p_now the time is taken then, too, here and wherever an operator changes something: of two who meet, the second one's event is the later.
create or replace function autopost.requeue_deliveries(
    p_workspace_id text, p_operator text, p_reason text, p_delivery_ids uuid[], p_now timestamptz default null)
returns table (delivery_id uuid, channel_id text, outcome text, detail text)
language plpgsql as $$
#variable_conflict use_column
declare
    moment timestamptz;
begin
    -- A push of the same post holds its message, and has judged by what it saw: either sees what the other leaves.
    perform from autopost.messages m
    where m.workspace_id = p_workspace_id and m.message_id in (
        select d.message_id from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids))
    order by m.content_hash for no key update;
    perform from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids) order by d.delivery_id for no key update;
    moment := coalesce(p_now, clock_timestamp());
    return query
    with asked as materialized (
        select d.delivery_id, d.channel_id, d.status, autopost.requeue_problem(d) as problem
        from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
    ), moved as (
        update autopost.deliveries d
        set status = 'retry', next_retry_at = moment, claimed_at = null, claim_token = null, sending_started_at = null, updated_at = moment
        from asked a
        where d.workspace_id = p_workspace_id and d.delivery_id = a.delivery_id and a.problem is null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, a.status as from_status
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(moment), m.delivery_id, m.message_id, m.channel_id, moment, 'manual_requeue', m.attempt,
               jsonb_build_object('operator', p_operator, 'reason', core.redact_text(p_reason), 'from_status', m.from_status)
        from moved m
    )
    select x.delivery_id, a.channel_id, case when m.delivery_id is null then 'refused' else 'requeued' end,
           case when a.delivery_id is null then 'there is no such delivery' else a.problem end
    from (select distinct x from unnest(p_delivery_ids) x) x (delivery_id)
    left join asked a on a.delivery_id = x.delivery_id
    left join moved m on m.delivery_id = x.delivery_id
    order by x.delivery_id;
end $$;

-- The deliveries of one status that all of these hold for: what a bulk operation counts first, and then moves page by page.
-- What failed is asked for by when it did, what waits by when it came. What somebody withdrew is meant only by its code.
create or replace function autopost.select_deliveries(
    p_workspace_id text, p_status text, p_channel_ids text[] default null, p_platform text default null, p_rate_group text default null,
    p_code text default null, p_category text default null, p_tag text default null,
    p_since timestamptz default null, p_until timestamptz default null) returns setof autopost.deliveries
language sql stable as $$
    select d.* from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.status = p_status
      and (p_channel_ids is null or d.channel_id = any (p_channel_ids))
      and ((p_platform is null and p_rate_group is null) or exists (
          select from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = d.channel_id
          and c.platform = coalesce(p_platform, c.platform) and c.rate_group = coalesce(p_rate_group, c.rate_group)))
      and case when p_code is null then d.last_error ->> 'code' is distinct from 'cancelled' else d.last_error ->> 'code' = p_code end
      and (p_category is null or d.last_error ->> 'category' = p_category)
      and (p_tag is null or exists (
          select from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = d.message_id and p_tag = any (m.tags)))
      and (p_since is null or case when p_status in ('dead', 'failed_permanent') then d.updated_at else d.created_at end >= p_since)
      and (p_until is null or case when p_status in ('dead', 'failed_permanent') then d.updated_at else d.created_at end <= p_until)
$$;

-- What a dead dispatcher, or one that hangs, has left behind; the sweeps do the same by the policy's leases. Whether a send
-- arrived is not known: a channel that would rather miss a post than show it twice holds it.
create or replace function autopost.release_stuck(
    p_workspace_id text, p_operator text, p_older_than interval default '10 minutes', p_limit integer default 1000,
    p_now timestamptz default now())
returns table (delivery_id uuid, channel_id text, from_status text, outcome text)
language sql volatile as $$
    with stuck as (
        select d.delivery_id, d.status, d.status = 'sending' and c.on_unknown = 'hold' as hold
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.status in ('claimed', 'sending')
          and coalesce(d.sending_started_at, d.claimed_at) < p_now - p_older_than
        order by d.delivery_id limit p_limit
        for no key update of d skip locked
    ), moved as (
        update autopost.deliveries d
        set status = 'retry', next_retry_at = case when s.hold then 'infinity' else p_now + interval '15 seconds' end,
            held_at = case when s.hold then p_now end,
            claimed_at = null, claim_token = null, sending_started_at = null, updated_at = p_now
        from stuck s
        where d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, s.status as from_status, s.hold
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, a.action, m.attempt,
               jsonb_build_object('operator', p_operator, 'reason', 'manual_stuck_release')
        from moved m, lateral (values ('manual_requeue'), (case when m.hold then 'held' end)) a (action)
        where a.action is not null
    )
    select m.delivery_id, m.channel_id, m.from_status, case when m.hold then 'held' else 'retry' end
    from moved m order by m.channel_id, m.delivery_id
$$;
