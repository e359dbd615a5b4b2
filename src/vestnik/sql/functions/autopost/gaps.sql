-- Posts of one channel that come too close to each other: told, not prevented. The minimum is the channel's, else the workspace's.

-- How far the next post of this channel is from p_at. Asked at every push, so only the neighbours on both sides are looked at: an
-- opening never changes the order of two moments, and two judgements of the window are enough however many wait. Of what waits
-- for its files the newest count, of what went the latest: it was before p_now, so it matters only where nothing is nearer.
create or replace function autopost.nearest_post(
    p_workspace_id text, p_channel autopost.channels, p_at timestamptz, p_minimum interval, p_but uuid, p_now timestamptz)
returns interval
language plpgsql stable as $$
declare
    before timestamptz;
    after timestamptz;
    near interval;
begin
    select max(o.at) filter (where o.at <= p_at), min(o.at) filter (where o.at > p_at) into before, after
    from autopost.waiting_around(p_workspace_id, p_channel.channel_id, p_at, p_but, p_now) o (at);
    if before < p_at then
        before := autopost.first_moment(autopost.calendar_of(p_channel), before, p_now);
    end if;
    if after - p_at < p_minimum then
        after := autopost.first_moment(autopost.calendar_of(p_channel), after, p_now);
    end if;
    near := least(p_at - before, after - p_at);
    if p_at - p_now < least(near, p_minimum) then
        near := least(near, p_at - (
            select e.ts from autopost.events e
            where e.workspace_id = p_workspace_id and e.channel_id = p_channel.channel_id and e.action = 'sent'
              and e.ts > p_now - p_minimum
            order by e.ts desc limit 1));
    end if;
    return near;
end $$;

-- Moments of what waits in a channel, the nearest to p_at on either side among them; opening hours are not looked at.
create or replace function autopost.waiting_around(
    p_workspace_id text, p_channel_id text, p_at timestamptz, p_but uuid, p_now timestamptz) returns setof timestamptz
language plpgsql stable as $$
begin
    return query
    (select d.not_before from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'queued' and d.not_before <= p_at
       and d.delivery_id is distinct from p_but order by d.not_before desc limit 1)
    union all
    (select d.not_before from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'queued' and d.not_before > p_at
       and d.not_before < 'infinity' and d.delivery_id is distinct from p_but order by d.not_before limit 1)
    union all
    (select greatest(d.scheduled_for, p_now) from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'queued' and d.not_before = 'infinity'
       and d.delivery_id is distinct from p_but order by d.created_at desc limit 100)
    union all
    (select d.not_before from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'claimed' limit 100)
    union all
    (select p_now from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'sending' limit 1)
    union all
    (select greatest(d.next_retry_at, d.not_before) from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'retry' and d.next_retry_at <= p_at
     order by d.next_retry_at desc limit 20)
    union all
    (select greatest(d.next_retry_at, d.not_before) from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'retry' and d.next_retry_at > p_at
       and d.held_at is null order by d.next_retry_at limit 1);
end $$;

-- Pairs of neighbours in one channel closer than its minimum gap (or p_gap), the first p_limit of them; the second of a pair can
-- still be moved. What has waited for its moment goes when the channel opens, which is judged once for all of it; only what
-- has no moment within the hours yet is judged by itself. Of what went the latest is a neighbour.
create or replace function autopost.schedule_conflicts(
    p_workspace_id text, p_gap interval default null, p_now timestamptz default now(), p_limit integer default null)
returns table (channel_id text, first_delivery_id uuid, first_message_id uuid, first_at timestamptz, second_delivery_id uuid,
               second_message_id uuid, second_at timestamptz, gap interval, minimum interval)
language sql stable as $$
    with usual as materialized (
        select (select p.min_gap from autopost.policies p where p.workspace_id = p_workspace_id) as min_gap
    ), channel as materialized (
        select c as row, c.channel_id, coalesce(p_gap, c.min_gap, usual.min_gap) as minimum,
               coalesce(autopost.first_moment(autopost.calendar_of(c), p_now, p_now), p_now) as opens
        from autopost.channels c, usual
        where c.workspace_id = p_workspace_id and coalesce(p_gap, c.min_gap, usual.min_gap) is not null
    ), post as (
        select d.channel_id, d.delivery_id, d.message_id, c.minimum, true as waits,
               case when d.status <> 'retry' and d.not_before < 'infinity' then greatest(d.not_before, c.opens)
                    else autopost.goes_at(d, c.row, p_now) end as at
        from channel c
        join autopost.deliveries d on d.workspace_id = p_workspace_id and d.channel_id = c.channel_id
        where d.status in ('queued', 'claimed', 'retry') and d.held_at is null
        union all
        select e.channel_id, e.delivery_id, e.message_id, c.minimum, false, e.ts
        from channel c, lateral (
            select e.* from autopost.events e
            where e.workspace_id = p_workspace_id and e.channel_id = c.channel_id and e.action = 'sent' and e.ts > p_now - c.minimum
            order by e.ts desc limit 1) e
    ), neighbours as (
        select p.*, lag(p.delivery_id) over w as before_id, lag(p.message_id) over w as before_message_id, lag(p.at) over w as before_at
        from post p window w as (partition by p.channel_id order by p.at, p.delivery_id)
    )
    select n.channel_id, n.before_id, n.before_message_id, n.before_at, n.delivery_id, n.message_id, n.at, n.at - n.before_at, n.minimum
    from neighbours n where n.waits and n.at - n.before_at < n.minimum
    order by n.at, n.channel_id, n.delivery_id limit p_limit
$$;

-- The same for one post on its way in, in words. Volatile, because it looks at what the fan-out has just written. It is only a
-- courtesy: whatever goes wrong here, the post goes in.
create or replace function autopost.gap_warning(p_workspace_id text, p_stored autopost.stored, p_now timestamptz) returns text
language plpgsql volatile as $$
declare
    usual constant interval := (select p.min_gap from autopost.policies p where p.workspace_id = p_workspace_id);
    close text;
begin
    if usual is null and not exists (select from autopost.channels c where c.workspace_id = p_workspace_id and c.min_gap is not null) then
        return null;
    end if;
    select string_agg(format('%s (%s)', x.channel_id, autopost.gap_in_words(x.apart, x.minimum)), ', ' order by x.channel_id)
    into close from (
        select c.channel_id, coalesce(c.min_gap, usual) as minimum, near.apart
        from autopost.channels c
        join autopost.deliveries d on d.workspace_id = c.workspace_id and d.channel_id = c.channel_id
            and d.content_hash = p_stored.content_hash and d.status in ('queued', 'claimed', 'sending', 'retry'),
        lateral (select autopost.nearest_post(p_workspace_id, c,
                            case when d.not_before < 'infinity' then d.not_before else autopost.goes_at(d, c, p_now) end,
                            coalesce(c.min_gap, usual), d.delivery_id, p_now) as apart offset 0) near
        where c.workspace_id = p_workspace_id and coalesce(c.min_gap, usual) is not null
          and d.message_id = p_stored.message_id and d.trace_id = p_stored.trace_id and near.apart < coalesce(c.min_gap, usual)
        order by c.channel_id limit 5) x;
    return 'closer to another post than the channel''s minimum gap: ' || close;
exception when others then
    raise warning 'the minimum gap was not looked at: %', sqlerrm;
    return null;
end $$;

create or replace function autopost.gap_in_words(p_apart interval, p_minimum interval) returns text
language sql immutable as $$
    select format('%s apart, at least %s', date_trunc('second', p_apart), p_minimum)
$$;
