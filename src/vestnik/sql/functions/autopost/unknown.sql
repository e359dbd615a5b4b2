-- Unknown outcomes: what a channel with on_unknown = hold keeps back until somebody has looked. Whoever saw the post confirms
-- it; whoever saw that it is not there has it sent again. Only deliveries are locked here, in their order.

-- What is held, the oldest first. "parts" counts what of a series is known to be shown.
create or replace function autopost.unknown_deliveries(
    p_workspace_id text, p_channel_id text default null, p_limit integer default 200, p_now timestamptz default now())
returns table (held_at timestamptz, channel_id text, delivery_id uuid, message_id uuid, attempt integer, began_at timestamptz,
               code text, message text, parts integer, shows text, total bigint)
language sql stable as $$
    with held as materialized (
        select d.*, count(*) over () as total
        from autopost.channels c,
        lateral (select d.* from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
                   and d.next_retry_at = 'infinity' and d.held_at <= p_now offset 0) d
        where c.workspace_id = p_workspace_id and (p_channel_id is null or c.channel_id = p_channel_id)
        order by d.held_at, d.delivery_id limit p_limit
    )
    select h.held_at, h.channel_id, h.delivery_id, h.message_id, h.attempt,
           (select max(e.ts) from autopost.events e
            where e.delivery_id = h.delivery_id and e.workspace_id = p_workspace_id and e.action = 'send_attempt' and e.ts <= h.held_at),
           h.last_error ->> 'code', h.last_error ->> 'message',
           coalesce(jsonb_array_length(h.render_meta #> '{series_progress,provider_message_ids}'), 0),
           left(regexp_replace(case when h.render_meta ->> 'parse_mode' = 'HTML' then autopost.without_tags(h.rendered_text)
                                    else h.rendered_text end, '\s+', ' ', 'g'), 80),
           h.total
    from held h order by h.held_at, h.delivery_id
$$;

-- Held ones, locked by a statement of its own: what the caller reads next is what it keeps. A late success or another operator
-- may have been first.
create or replace function autopost.lock_held(
    p_workspace_id text, p_delivery_ids uuid[], p_channel_id text, p_until timestamptz, p_limit integer) returns setof uuid
language plpgsql as $$
begin
    if p_delivery_ids is not null then
        return query
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
        order by d.delivery_id for no key update;
    else
        return query
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'retry'
          and d.next_retry_at = 'infinity' and d.held_at <= p_until
        order by d.delivery_id limit p_limit for no key update;
    end if;
end $$;

-- Somebody saw the post. It counts as sent from the moment it was held: no later can it have arrived. Its last send is settled
-- by this, so what is still heard of it changes nothing. Outcome "not_held": somebody was first; the status says how it ended.
create or replace function autopost.confirm_deliveries(
    p_workspace_id text, p_operator text, p_reason text, p_delivery_ids uuid[] default null, p_channel_id text default null,
    p_until timestamptz default null, p_limit integer default 500, p_provider_message_id text default null,
    p_now timestamptz default now())
returns table (delivery_id uuid, channel_id text, outcome text, status text)
language plpgsql as $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_held(p_workspace_id, p_delivery_ids, p_channel_id, coalesce(p_until, p_now), p_limit));
begin
    return query
    with held as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d
        set status = 'sent', sent_at = least(h.held_at, p_now), settled_lease = d.lease, last_error = null, next_retry_at = null,
            held_at = null, updated_at = p_now,
            provider_message_id = coalesce(p_provider_message_id, h.render_meta #>> '{series_progress,provider_message_ids,0}')
        from held h
        where d.workspace_id = p_workspace_id and d.delivery_id = h.delivery_id and h.status || '' = 'retry' and h.held_at is not null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, d.lease, d.provider_message_id, h.held_at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, a.action, m.attempt,
               jsonb_strip_nulls(jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason),
                   'provider_message_id', m.provider_message_id, 'lease', m.lease, 'held_at', m.held_at, 'from_status', 'retry'))
        from moved m, unnest('{confirmed,sent}'::text[]) a (action)
    )
    select h.delivery_id, h.channel_id, case when m.delivery_id is null then 'not_held' else 'confirmed' end,
           case when m.delivery_id is null then h.status else 'sent' end
    from held h left join moved m on m.delivery_id = h.delivery_id
    order by h.channel_id, h.delivery_id;
end $$;

-- Somebody saw that it is not there, or would rather have it twice: it goes again as soon as its gates let it. Of a series only
-- what is not known to be shown.
create or replace function autopost.resend_deliveries(
    p_workspace_id text, p_operator text, p_reason text, p_delivery_ids uuid[] default null, p_channel_id text default null,
    p_until timestamptz default null, p_limit integer default 500, p_now timestamptz default now())
returns table (delivery_id uuid, channel_id text, outcome text, status text)
language plpgsql as $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_held(p_workspace_id, p_delivery_ids, p_channel_id, coalesce(p_until, p_now), p_limit));
begin
    return query
    with held as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d set next_retry_at = p_now, held_at = null, updated_at = p_now
        from held h
        where d.workspace_id = p_workspace_id and d.delivery_id = h.delivery_id and h.status || '' = 'retry' and h.held_at is not null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, h.held_at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'manual_requeue', m.attempt,
               jsonb_strip_nulls(jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason),
                   'held_at', m.held_at, 'from_status', 'retry'))
        from moved m
    )
    select h.delivery_id, h.channel_id, case when m.delivery_id is null then 'not_held' else 'resent' end,
           case when m.delivery_id is null then h.status else 'retry' end
    from held h left join moved m on m.delivery_id = h.delivery_id
    order by h.channel_id, h.delivery_id;
end $$;

-- One of them. VN001 when there is no such delivery, VM001 when it is not held (any more): the text says how it stands.
create or replace function autopost.confirm_delivery(
    p_workspace_id text, p_operator text, p_reason text, p_delivery_id uuid, p_provider_message_id text default null,
    p_now timestamptz default now()) returns text
language sql volatile as $$
    select autopost.require_held(p_workspace_id, p_delivery_id, max(x.outcome), max(x.status))
    from autopost.confirm_deliveries(p_workspace_id, p_operator, p_reason, array[p_delivery_id],
                                     p_provider_message_id => p_provider_message_id, p_now => p_now) x
$$;

create or replace function autopost.resend_delivery(
    p_workspace_id text, p_operator text, p_reason text, p_delivery_id uuid, p_now timestamptz default now()) returns text
language sql volatile as $$
    select autopost.require_held(p_workspace_id, p_delivery_id, max(x.outcome), max(x.status))
    from autopost.resend_deliveries(p_workspace_id, p_operator, p_reason, array[p_delivery_id], p_now => p_now) x
$$;

create or replace function autopost.require_held(p_workspace_id text, p_delivery_id uuid, p_outcome text, p_status text) returns text
language plpgsql immutable as $$
begin
    if p_outcome is null then
        raise exception 'no delivery % in workspace %', p_delivery_id, p_workspace_id using errcode = 'VN001';
    elsif p_outcome = 'not_held' then
        raise exception 'delivery % is not held: it is %', p_delivery_id, p_status using errcode = 'VM001';
    end if;
    return p_outcome;
end $$;
