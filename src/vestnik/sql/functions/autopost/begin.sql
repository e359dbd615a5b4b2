-- Begin: the last look before a send. Here the gates are, here the pace is kept, here the attempt is counted.

-- Channels with a claim whose slot has come.
create or replace function autopost.channels_with_due_claims(p_workspace_id text, p_now timestamptz) returns setof text
language sql stable as $$
    with recursive hop as (
        (select d.channel_id from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.status = 'claimed' order by d.channel_id limit 1)
        union all
        select (select d.channel_id from autopost.deliveries d
                where d.workspace_id = p_workspace_id and d.status = 'claimed' and d.channel_id > h.channel_id
                order by d.channel_id limit 1)
        from hop h where h.channel_id is not null
    )
    select h.channel_id from hop h
    where exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
                  and d.status = 'claimed' and d.not_before <= p_now)
$$;

-- How many sends each locked channel may begin now. A paced channel or group begins one at a time, a step apart:
-- that is what makes "at most rate*W + 1 in any window W" true.
create or replace function autopost.free_begins(p_workspace_id text, p_channel_ids text[], p_now timestamptz)
returns table (channel_id text, platform text, rate_group text, free integer, group_free integer, group_paced boolean, paced boolean)
language sql volatile as $$
    select c.channel_id, c.platform, c.rate_group,
           least(c.max_parallel - busy.n, case when c.rate_rps > 0 then 1 end)::integer,
           case when g.rate_rps > 0 then 1 end, coalesce(g.rate_rps > 0, false), autopost.is_paced(c, g)
    from autopost.channels c
    join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group,
    lateral (select count(*) as n from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id = c.channel_id and d.status = 'sending') busy
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids) and autopost.is_open(c, g, p_now)
      and coalesce(c.last_begin_at + autopost.step_of(c.rate_rps), '-infinity') <= p_now
      and coalesce(g.last_begin_at + autopost.step_of(g.rate_rps), '-infinity') <= p_now
      and busy.n < c.max_parallel
$$;

-- Move claims whose slot has come to sending; each gets a new lease, one more attempt and its send_attempt event.
-- Any claim may be begun by any run: what a dead dispatcher had reserved goes out without waiting for a sweep.
create or replace function autopost.begin_sending(
    p_workspace_id text, p_run_id text, p_limit integer default 100, p_now timestamptz default null)
returns table (delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text,
               target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
language plpgsql as $$
declare
    turn text[];
begin
    turn := array(select autopost.channels_with_due_claims(p_workspace_id, coalesce(p_now, now())));
    if turn = '{}' or not autopost.is_active(p_workspace_id) then
        return;
    end if;
    perform autopost.lock_channels(p_workspace_id, turn);
    return query select * from autopost.begin_claimed(p_workspace_id, p_run_id, turn, p_limit, coalesce(p_now, clock_timestamp()));
end $$;

-- p_turn is locked by the caller.
create or replace function autopost.begin_claimed(
    p_workspace_id text, p_run_id text, p_turn text[], p_limit integer, p_now timestamptz)
returns table (delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text,
               target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
language plpgsql as $$
#variable_conflict use_column
declare
    chosen uuid[];
begin
    if p_turn = '{}' or p_limit < 1 then
        return;
    end if;
    with candidate as (
        select f.*, due.delivery_id, due.not_before, due.created_at,
               row_number() over (partition by f.platform, f.rate_group order by due.not_before, due.created_at) as place
        from autopost.free_begins(p_workspace_id, p_turn, p_now) f,
        lateral (select d.delivery_id, d.not_before, d.created_at from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.channel_id = f.channel_id and d.status = 'claimed' and d.not_before <= p_now
                 order by d.not_before, d.created_at limit f.free
                 for no key update skip locked) due
    )
    select coalesce(array_agg(x.delivery_id), '{}') into chosen from (
        select c.delivery_id from candidate c where not c.group_paced or c.place <= c.group_free
        order by c.not_before, c.created_at limit p_limit) x;

    return query select * from autopost.start_sends(p_workspace_id, p_run_id, chosen, p_now);
end $$;

create or replace function autopost.start_sends(p_workspace_id text, p_run_id text, p_delivery_ids uuid[], p_now timestamptz)
returns table (delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text,
               target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
language sql volatile as $$
    with ids as materialized (
        select core.uuid7(p_now) as base
    ), started as (
        update autopost.deliveries d
        set status = 'sending', attempt = d.attempt + 1, lease = d.lease + 1,
            lost_leases = d.lost_leases + (d.lease <> d.settled_lease)::integer,
            claim_token = p_run_id, claimed_at = case d.status when 'claimed' then coalesce(d.claimed_at, p_now) else p_now end,
            sending_started_at = p_now,
            next_retry_at = null, held_at = null, updated_at = p_now
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
          and d.status || '' in ('claimed', 'queued', 'retry')
        returning d.delivery_id, d.message_id, d.channel_id, d.trace_id, d.attempt, d.lease, d.not_before, d.created_at, d.rendered_text, d.render_meta
    ), channel_pace as (
        update autopost.channels c set last_begin_at = p_now
        where c.workspace_id = p_workspace_id and c.rate_rps > 0 and c.channel_id in (select s.channel_id from started s)
    ), group_pace as (
        update autopost.platform_limits g set last_begin_at = p_now
        where g.workspace_id = p_workspace_id and g.rate_rps > 0 and (g.platform, g.rate_group) in (
            select c.platform, c.rate_group from started s
            join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = s.channel_id)
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.nth_uuid(ids.base, row_number() over ()), s.delivery_id, s.message_id, s.channel_id, p_now,
               'send_attempt', s.attempt, jsonb_build_object('trace_id', s.trace_id, 'run_id', p_run_id, 'idempotency_key', s.delivery_id)
        from started s, ids
    )
    select s.delivery_id, s.lease, s.attempt, s.message_id, s.trace_id, c.channel_id, c.platform, c.target_id,
           coalesce(a.auth_ref, c.auth_ref), c.rate_group, c.settings, s.rendered_text, s.render_meta, m.payload
    from started s
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = s.channel_id
    join autopost.messages m on m.workspace_id = p_workspace_id and m.message_id = s.message_id
    left join autopost.channel_auth a on a.workspace_id = p_workspace_id and a.channel_id = s.channel_id
    order by s.not_before, s.created_at
$$;

-- A channel without a rate, in a group without one, has no slots to wait for: claim and begin are one step, one row
-- version instead of two. The guard lets a queued row pass only with everything that both steps write.
-- p_turn is locked by the caller.
create or replace function autopost.begin_unpaced(
    p_workspace_id text, p_run_id text, p_turn text[], p_limit integer, p_now timestamptz)
returns table (delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text,
               target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
language plpgsql as $$
#variable_conflict use_column
declare
    turn text[];
    room integer[];
    due uuid[];
begin
    select coalesce(array_agg(f.channel_id order by f.channel_id), '{}'),
           array_agg(least(f.free, greatest(1, ceil(p_limit::numeric / cardinality(p_turn))))::integer order by f.channel_id)
    into turn, room
    from autopost.free_begins(p_workspace_id, p_turn, p_now) f
    where not f.paced;

    due := autopost.due_deliveries(p_workspace_id, turn, room, p_now);
    perform autopost.drop_overtaken(p_workspace_id, due, p_now);
    due := array(select d.delivery_id from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.delivery_id = any (due[:p_limit]) and d.status || '' in ('queued', 'retry')
                 for no key update skip locked);
    return query select * from autopost.start_sends(p_workspace_id, p_run_id, due, p_now);
end $$;

-- Everything that may go out now, in one round trip: what the dispatcher calls. All locks are taken at once: taken step by
-- step they would come out of order.
create or replace function autopost.claim_and_begin(
    p_workspace_id text, p_run_id text, p_limit integer, p_now timestamptz default null)
returns table (delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text,
               target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
language plpgsql as $$
declare
    asked constant timestamptz := coalesce(p_now, now());
    started timestamptz;
    turn text[];
    claimed text[];
    paced text[];
    begun integer;
begin
    if not autopost.is_active(p_workspace_id) then
        return;
    end if;
    turn := autopost.take_turn(p_workspace_id, p_limit, asked);
    claimed := array(select autopost.channels_with_due_claims(p_workspace_id, asked));
    if turn = '{}' and claimed = '{}' then
        return;
    end if;
    perform autopost.lock_channels(p_workspace_id, turn || claimed);
    started := coalesce(p_now, clock_timestamp());

    paced := autopost.paced_of(p_workspace_id, turn);
    perform autopost.claim_slots(p_workspace_id, p_run_id, paced, p_limit, started);
    return query select * from autopost.begin_claimed(p_workspace_id, p_run_id, claimed || paced, p_limit, started);
    get diagnostics begun = row_count;
    if cardinality(turn) > cardinality(paced) and p_limit > begun then
        return query select * from autopost.begin_unpaced(p_workspace_id, p_run_id,
            array(select t from unnest(turn) t where t <> all (paced)), p_limit - begun, started);
    end if;
    perform autopost.remember_turn(p_workspace_id, turn[cardinality(turn)], started);
end $$;

-- The next moment at which begin_sending may have something to do, or null: how long a dispatcher may sleep.
create or replace function autopost.next_begin_at(p_workspace_id text, p_now timestamptz default now()) returns timestamptz
language sql stable as $$
    with recursive hop as (
        (select d.channel_id, d.not_before from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.status = 'claimed' order by d.channel_id, d.not_before limit 1)
        union all
        select n.channel_id, n.not_before from hop h,
        lateral (select d.channel_id, d.not_before from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.status = 'claimed' and d.channel_id > h.channel_id
                 order by d.channel_id, d.not_before limit 1) n
    )
    select nullif(min(greatest(h.not_before, c.last_begin_at + autopost.step_of(c.rate_rps),
               g.last_begin_at + autopost.step_of(g.rate_rps), c.cooldown_until, g.cooldown_until, c.paused_until)), 'infinity')
    from hop h
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = h.channel_id and c.enabled
    left join autopost.platform_limits g on g.workspace_id = p_workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    where (select count(*) from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
           and d.status = 'sending') < c.max_parallel
      and case c.window_mode when 'windowed' then autopost.window_open(c.posting_window, c.timezone, p_now) else true end
$$;
