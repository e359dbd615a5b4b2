-- Posts of one channel that come too close to each other: told, not prevented. The minimum is the channel's, else the workspace's.

-- How far the next post of this channel is from p_at: of those that wait, and of those that went within the minimum.
create or replace function autopost.nearest_post(
    p_workspace_id text, p_channel autopost.channels, p_at timestamptz, p_minimum interval, p_but uuid, p_now timestamptz)
returns interval
language sql stable as $$
    select min(greatest(o.at - p_at, p_at - o.at)) from (
        select autopost.goes_at(d, p_channel, p_now) as at from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.channel_id = p_channel.channel_id and d.delivery_id is distinct from p_but
          and d.status in ('queued', 'claimed', 'sending', 'retry') and d.held_at is null
        union all
        select e.ts from autopost.events e
        where e.workspace_id = p_workspace_id and e.channel_id = p_channel.channel_id and e.action = 'sent'
          and e.ts > p_now - p_minimum) o
$$;

-- Pairs of neighbours in one channel closer than its minimum gap (or p_gap); the second of them can still be moved.
create or replace function autopost.schedule_conflicts(
    p_workspace_id text, p_gap interval default null, p_now timestamptz default now())
returns table (channel_id text, first_delivery_id uuid, first_message_id uuid, first_at timestamptz, second_delivery_id uuid,
               second_message_id uuid, second_at timestamptz, gap interval, minimum interval)
language sql stable as $$
    with usual as materialized (
        select (select p.min_gap from autopost.policies p where p.workspace_id = p_workspace_id) as min_gap
    ), channel as materialized (
        select c as row, c.channel_id, coalesce(p_gap, c.min_gap, usual.min_gap) as minimum
        from autopost.channels c, usual
        where c.workspace_id = p_workspace_id and coalesce(p_gap, c.min_gap, usual.min_gap) is not null
    ), post as (
        select d.channel_id, d.delivery_id, d.message_id, autopost.goes_at(d, c.row, p_now) as at, c.minimum, true as waits
        from channel c
        join autopost.deliveries d on d.workspace_id = p_workspace_id and d.channel_id = c.channel_id
        where d.status in ('queued', 'claimed', 'retry') and d.held_at is null
        union all
        select e.channel_id, e.delivery_id, e.message_id, e.ts, c.minimum, false
        from channel c
        join autopost.events e on e.workspace_id = p_workspace_id and e.channel_id = c.channel_id
        where e.action = 'sent' and e.ts > p_now - c.minimum
    ), neighbours as (
        select p.*, lag(p.delivery_id) over w as before_id, lag(p.message_id) over w as before_message_id, lag(p.at) over w as before_at
        from post p window w as (partition by p.channel_id order by p.at, p.delivery_id)
    )
    select n.channel_id, n.before_id, n.before_message_id, n.before_at, n.delivery_id, n.message_id, n.at, n.at - n.before_at, n.minimum
    from neighbours n where n.waits and n.at - n.before_at < n.minimum
    order by n.at, n.channel_id, n.delivery_id
$$;

-- The same for one post on its way in, in words. Volatile, because it looks at what the fan-out has just written.
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
        lateral (select autopost.nearest_post(p_workspace_id, c, autopost.goes_at(d, c, p_now), coalesce(c.min_gap, usual),
                                              d.delivery_id, p_now) as apart offset 0) near
        where c.workspace_id = p_workspace_id and coalesce(c.min_gap, usual) is not null
          and d.message_id = p_stored.message_id and d.trace_id = p_stored.trace_id and near.apart < coalesce(c.min_gap, usual)
        order by c.channel_id limit 5) x;
    return 'closer to another post than the channel''s minimum gap: ' || close;
end $$;

create or replace function autopost.gap_in_words(p_apart interval, p_minimum interval) returns text
language sql immutable as $$
    select format('%s apart, at least %s', date_trunc('second', p_apart), p_minimum)
$$;
