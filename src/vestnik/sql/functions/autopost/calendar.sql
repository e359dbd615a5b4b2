-- What is planned: moved, withdrawn, replaced while nobody has claimed it; and posts that come too close to each other.

create or replace function autopost.calendar_of(p_channel autopost.channels) returns jsonb
language sql immutable as $$
    select case when p_channel.window_mode = 'windowed'
                then jsonb_build_object('window', p_channel.posting_window, 'timezone', p_channel.timezone) end
$$;

-- When a delivery that waits goes at the earliest: its own row's word, and its channel's window. What waits for its media
-- may go at any moment from its schedule on.
create or replace function autopost.goes_at(p_delivery autopost.deliveries, p_channel autopost.channels, p_now timestamptz)
returns timestamptz
language sql stable as $$
    select coalesce(autopost.first_moment(autopost.calendar_of(p_channel), own.at, p_now), own.at)
    from (select greatest(case when p_delivery.not_before < 'infinity' then p_delivery.not_before end, p_delivery.scheduled_for,
                          case when p_delivery.status = 'retry' then p_delivery.next_retry_at end, p_now)) own (at)
$$;

-- What is not yet sent of one message, or of the deliveries named; of some channels, or all. Locked in channel order, like
-- every other path, and by a statement of its own: what the caller reads next is what it keeps. A message's are found by
-- channel and content: no index on the message makes every send dearer for the sake of a rare question.
create or replace function autopost.lock_unsent(
    p_workspace_id text, p_message_id uuid, p_delivery_ids uuid[], p_channel_ids text[]) returns setof uuid
language plpgsql as $$
declare
    asked uuid[] := p_delivery_ids;
begin
    if p_message_id is not null then
        asked := array(
            select d.delivery_id from autopost.messages m
            join autopost.channels c on c.workspace_id = m.workspace_id,
            lateral (select d.delivery_id from autopost.deliveries d
                     where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.content_hash = m.content_hash
                       and d.status in ('queued', 'claimed', 'sending', 'retry') and d.message_id = m.message_id offset 0) d
            where m.workspace_id = p_workspace_id and m.message_id = p_message_id
              and (p_delivery_ids is null or d.delivery_id = any (p_delivery_ids)));
    end if;
    return query
    select d.delivery_id from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
      and (p_channel_ids is null or d.channel_id = any (p_channel_ids))
      and d.status || '' in ('queued', 'claimed', 'sending', 'retry')
    order by d.delivery_id for no key update;
end $$;

-- Withdraw. What is claimed or being sent is too late for it, and is told apart.
create or replace function autopost.cancel_deliveries(
    p_workspace_id text, p_operator text, p_reason text, p_message_id uuid default null, p_delivery_ids uuid[] default null,
    p_channel_ids text[] default null, p_now timestamptz default now())
returns table (delivery_id uuid, channel_id text, outcome text)
language plpgsql as $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_unsent(p_workspace_id, p_message_id, p_delivery_ids, p_channel_ids));
begin
    return query
    with unsent as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d
        set status = 'failed_permanent', next_retry_at = null, held_at = null, updated_at = p_now,
            not_before = case when d.not_before = 'infinity' then p_now else d.not_before end,
            last_error = jsonb_build_object('category', 'PERMANENT', 'scope', 'delivery', 'code', 'cancelled', 'message', left(core.redact_text(p_reason), 500))
        from unsent u
        where d.workspace_id = p_workspace_id and d.delivery_id = u.delivery_id and u.status in ('queued', 'retry')
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, u.status as from_status
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'cancelled', m.attempt,
               jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason), 'from_status', m.from_status)
        from moved m
    )
    select u.delivery_id, u.channel_id, case when m.delivery_id is null then 'too_late' else 'cancelled' end
    from unsent u left join moved m on m.delivery_id = u.delivery_id
    order by u.channel_id, u.delivery_id;
end $$;

-- Another moment; null: as soon as may be. A channel's window still counts, and so does the pause after a failed attempt.
-- What is held waits for a person's word on its last attempt, not for a moment.
create or replace function autopost.reschedule_deliveries(
    p_workspace_id text, p_operator text, p_reason text, p_scheduled_for timestamptz, p_message_id uuid default null,
    p_delivery_ids uuid[] default null, p_channel_ids text[] default null, p_now timestamptz default now())
returns table (delivery_id uuid, channel_id text, outcome text, goes_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_unsent(p_workspace_id, p_message_id, p_delivery_ids, p_channel_ids));
begin
    return query
    with unsent as materialized (
        select d.*, coalesce(autopost.first_moment(autopost.calendar_of(c), p_scheduled_for, p_now), d.not_before) as moved_to
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d
        set scheduled_for = p_scheduled_for, updated_at = p_now,
            not_before = case when d.not_before = 'infinity' then d.not_before else u.moved_to end
        from unsent u
        where d.workspace_id = p_workspace_id and d.delivery_id = u.delivery_id
          and u.status in ('queued', 'retry') and u.held_at is null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, u.scheduled_for as from_moment,
                  nullif(greatest(d.not_before, d.next_retry_at), 'infinity') as goes_at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'rescheduled', m.attempt,
               jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason), 'from', m.from_moment,
                                  'to', p_scheduled_for)
        from moved m
    )
    select u.delivery_id, u.channel_id,
           case when m.delivery_id is not null then 'rescheduled' when u.held_at is not null then 'held' else 'too_late' end, m.goes_at
    from unsent u left join moved m on m.delivery_id = u.delivery_id
    order by u.channel_id, u.delivery_id;
end $$;

-- The hours of a channel have changed: what waits for an hour gets the one that counts now. What is due already keeps its
-- place, and the gate holds it or lets it go. Returns how many were moved.
create or replace function autopost.replan_channel(
    p_workspace_id text, p_channel_id text, p_operator text, p_now timestamptz default now()) returns integer
language sql volatile as $$
    with waiting as materialized (
        select d.delivery_id, d.not_before, autopost.first_moment(autopost.calendar_of(c), d.scheduled_for, p_now) as at
        from autopost.channels c
        join autopost.deliveries d on d.workspace_id = c.workspace_id and d.channel_id = c.channel_id
        where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id
          and d.status in ('queued', 'retry') and d.held_at is null and d.not_before > p_now and d.not_before < 'infinity'
        order by d.delivery_id for no key update of d
    ), moved as (
        update autopost.deliveries d set not_before = w.at, updated_at = p_now
        from waiting w
        where d.workspace_id = p_workspace_id and d.delivery_id = w.delivery_id and d.status || '' in ('queued', 'retry') and w.at <> w.not_before
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, w.not_before, w.at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'rescheduled', m.attempt,
               jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', 'the hours of the channel changed',
                                  'from', m.not_before, 'to', m.at)
        from moved m
    )
    select count(*)::integer from moved
$$;

-- What waits, in the order in which it goes. A moment that is null depends on a person, or on files that are being fetched.
-- The first of every channel come by its index, and the hours are judged once for all channels that share them: only a retry,
-- whose pause may end outside them, is looked at by itself.
create or replace function autopost.planned_deliveries(
    p_workspace_id text, p_channel_id text default null, p_limit integer default 200, p_now timestamptz default now())
returns table (goes_at timestamptz, channel_id text, status text, message_id uuid, delivery_id uuid, scheduled_for timestamptz, shows text)
language sql stable as $$
    with channel as materialized (
        select c.channel_id, autopost.calendar_of(c) as calendar from autopost.channels c
        where c.workspace_id = p_workspace_id and (p_channel_id is null or c.channel_id = p_channel_id)
    ), opening as materialized (
        select x.calendar, autopost.first_moment(x.calendar, p_now, p_now) as at from (select distinct c.calendar from channel c) x
    ), soonest as (
        select w.*, o.at as opens
        from channel c
        join opening o on o.calendar is not distinct from c.calendar,
        lateral (
            (select d.delivery_id, d.channel_id, d.created_at, d.not_before as due from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'queued'
             order by d.not_before, d.created_at limit p_limit)
            union all
            (select d.delivery_id, d.channel_id, d.created_at, d.not_before from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'claimed'
             order by d.not_before, d.created_at limit p_limit)
            union all
            (select d.delivery_id, d.channel_id, d.created_at, greatest(d.next_retry_at, d.not_before) from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
             order by greatest(d.next_retry_at, d.not_before), d.created_at limit p_limit)) w
        order by greatest(w.due, o.at), w.due, w.created_at, w.channel_id limit p_limit
    )
    select x.at, d.channel_id, d.status, d.message_id, d.delivery_id, d.scheduled_for,
           left(regexp_replace(case when d.render_meta ->> 'parse_mode' = 'HTML' then autopost.without_tags(d.rendered_text)
                                    else d.rendered_text end, '\s+', ' ', 'g'), 80)
    from soonest w
    join autopost.deliveries d on d.workspace_id = p_workspace_id and d.delivery_id = w.delivery_id
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = d.channel_id,
    lateral (select case when d.held_at is not null or d.not_before = 'infinity' then null
                         when d.status = 'retry' then autopost.goes_at(d, c, p_now)
                         else greatest(d.not_before, w.opens, p_now) end as at offset 0) x
    order by x.at, w.due, w.created_at, w.channel_id
$$;

create or replace function autopost.without_tags(p_text text) returns text
language sql immutable strict parallel safe as $$
    select replace(replace(replace(replace(regexp_replace(p_text, '<[^<>]*>', '', 'g'), '&lt;', '<'), '&gt;', '>'), '&quot;', '"'), '&amp;', '&')
$$;
