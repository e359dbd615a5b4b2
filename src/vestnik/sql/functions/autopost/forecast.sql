-- When would it leave? What waits is drained in thought, at today's rates: each channel at its own, all of a group together at
-- the group's, and each only while it is open. What nobody knows beforehand is left out: errors, how long a send takes, what is
-- pushed later. Nothing is kept.

-- Every channel of the workspace, as preview_post lists them; leaves_at is when its send would begin. "never": it is meant for
-- this channel, which is switched off. ahead: what waits in the channel and goes before it.
create or replace function autopost.forecast(p_workspace_id text, p_raw_payload_json jsonb, p_now timestamptz default now())
returns table (channel_id text, title text, platform text, rate_group text, outcome text, reason text, ahead bigint, goes_at timestamptz,
               leaves_at timestamptz, media_pending boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    shown jsonb;
    post autopost.stored;
    idle text := (select format('the workspace is %s', w.status) from core.workspaces w
                  where w.workspace_id = p_workspace_id and w.status <> 'active');
    leaving jsonb;
begin
    select jsonb_agg(jsonb_build_object('channel_id', x.channel_id, 'goes_at', x.goes_at, 'media_pending', x.media_pending,
               'outcome', case when not x.matches then 'not_routed' when x.error is not null then 'refused'
                               when x.duplicate is not null then 'suppressed' else 'enqueued' end,
               'reason', coalesce(x.reason, x.error ->> 'message', case x.duplicate
                   when 'in_flight' then 'the same post is on its way into this channel'
                   when 'sent_within_ttl' then 'the same post went into this channel within its dedup window' end)))
    into shown from autopost.preview_post(p_workspace_id, p_raw_payload_json, p_now) x;
    post := autopost.as_stored(p_workspace_id, p_raw_payload_json, p_now);
    leaving := case when idle is null then autopost.leaving_times(p_workspace_id, (
        select jsonb_object_agg(s ->> 'channel_id', s -> 'goes_at') from jsonb_array_elements(shown) s where s ->> 'outcome' = 'enqueued'), p_now) end;
    return query
    select c.channel_id, c.title, c.platform, c.rate_group, case when e.never is null then s ->> 'outcome' else 'never' end,
           coalesce(e.never, s ->> 'reason', case when s ->> 'outcome' = 'enqueued' and l.one ->> 'leaves_at' is null
                                                  then 'later than can be told' end),
           (l.one ->> 'ahead')::bigint, case when s ->> 'outcome' = 'enqueued' then (s ->> 'goes_at')::timestamptz end,
           case when e.never is null then (l.one ->> 'leaves_at')::timestamptz end, coalesce((s ->> 'media_pending')::boolean, false)
    from jsonb_array_elements(shown) s
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = s ->> 'channel_id',
    lateral (select leaving -> c.channel_id as one) l,
    lateral (select case
        when s ->> 'outcome' = 'enqueued' then coalesce(idle, case when c.paused_until = 'infinity' then 'the channel is paused until somebody resumes it' end)
        when not c.enabled and autopost.routes_to(c.route_filter, post.tags, to_jsonb(post.tags))
             and c.channel_id = any (coalesce(post.only_channels, array[c.channel_id])) then 'the channel is disabled' end as never) e
    order by s ->> 'outcome' <> 'enqueued', e.never is not null, c.channel_id;
end $$;

-- {channel: {leaves_at, ahead}} for a post that may go into each channel from the moment in p_goes_at on.
create or replace function autopost.leaving_times(p_workspace_id text, p_goes_at jsonb, p_now timestamptz) returns jsonb
language sql stable as $$
    with wanted as materialized (
        select distinct c.platform, c.rate_group from autopost.channels c
        where c.workspace_id = p_workspace_id and p_goes_at ? c.channel_id
    ), drained as (
        select w.platform, w.rate_group, d.* from wanted w, lateral autopost.drain_group(p_workspace_id, w.platform, w.rate_group, p_goes_at, p_now) d
    )
    select jsonb_object_agg(d.channel_id, jsonb_build_object('ahead', d.ahead, 'leaves_at', case when d.leaves_at is not null then greatest(
               d.leaves_at, case when c.rate_rps > 0 then greatest(c.next_allowed_at, c.last_begin_at + autopost.step_of(c.rate_rps)) end,
               case when g.rate_rps > 0 then greatest(g.next_allowed_at, g.last_begin_at + autopost.step_of(g.rate_rps)) end) end))
    from drained d
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = d.channel_id
    left join autopost.platform_limits g on g.workspace_id = p_workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
$$;

-- The channels of one group that have something to send, this post included: alike ones are one class. Of very many classes
-- backlogs are rounded up to two digits. Channels for which there is no ceiling but their own drain as if alone.
create or replace function autopost.drain_group(
    p_workspace_id text, p_platform text, p_rate_group text, p_goes_at jsonb, p_now timestamptz)
returns table (channel_id text, leaves_at timestamptz, ahead bigint)
language sql stable as $$
    with channel as materialized (
        select c.channel_id, autopost.step_of(c.rate_rps) as step, autopost.calendar_of(c) as calendar,
               nullif(greatest(c.paused_until, c.cooldown_until, g.cooldown_until, p_now), p_now) as gate,
               autopost.seconds_until((p_goes_at ->> c.channel_id)::timestamptz, p_now) as ours,
               autopost.step_of(g.rate_rps) as group_step
        from autopost.channels c
        left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        where c.workspace_id = p_workspace_id and c.platform = p_platform and c.rate_group = p_rate_group
          and (p_goes_at ? c.channel_id or c.enabled and g.rate_rps > 0) and coalesce(c.paused_until < 'infinity', true)
    ), waiting as materialized (
        select c.channel_id, w.at, sum(w.n) as n
        from channel c, lateral (
            select case when d.not_before <= p_now then 0 else extract(epoch from date_bin(
                       case when d.not_before < p_now + interval '1 day' then interval '1 second' else '1 minute' end, d.not_before, p_now) - p_now)::float8 end as at,
                   count(*) as n
            from autopost.deliveries d
            where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'queued' and d.not_before < 'infinity'
            group by 1
            union all
            select 0, count(*) from autopost.deliveries d
            where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'claimed' having count(*) > 0
            union all
            select greatest(autopost.seconds_until(greatest(d.next_retry_at, d.not_before), p_now), 0), count(*)
            from autopost.deliveries d
            where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
              and d.next_retry_at < 'infinity' and d.not_before < 'infinity'
            group by 1) w
        group by 1, 2
    ), loaded as materialized (
        select c.*, coalesce(q.n, 0) as due, coalesce(q.later, '[]') as later, coalesce(q.ahead, 0) as ahead
        from channel c left join (
            select w.channel_id, coalesce(sum(w.n) filter (where w.at = 0), 0)::bigint as n, sum(w.n) filter (where w.at <= c.ours)::bigint as ahead,
                   coalesce(jsonb_agg(jsonb_build_array(w.at, w.n) order by w.at) filter (where w.at > 0), '[]') as later
            from waiting w join channel c on c.channel_id = w.channel_id group by 1) q on q.channel_id = c.channel_id
        where c.ours is not null or q.channel_id is not null
    ), spread as (
        select count(distinct (l.step, l.calendar, l.gate, l.ours, l.due, l.later)) > 200 as is_wide from loaded l
    ), classed as materialized (
        -- Numbered in the order of their channels: posts of one moment go in it.
        select x.*, dense_rank() over (order by x.eldest)::integer as class from (
        select l.*, r.due as rounded, min(l.channel_id) over (partition by l.step, l.calendar, l.gate, l.ours, r.due, l.later) as eldest
        from loaded l, spread s, lateral (select case when s.is_wide and l.due > 100
            then ceil(l.due / power(10, floor(log(l.due)) - 1)) * power(10, floor(log(l.due)) - 1) else l.due end::float8 as due) r) x
    ), class as (
        select k.class, jsonb_strip_nulls(jsonb_build_object('n', count(*), 'step', extract(epoch from k.step), 'calendar', k.calendar, 'gate', k.gate,
                   'ours', k.ours, 'due', k.rounded, 'later', k.later)) as one
        from classed k group by k.class, k.step, k.calendar, k.gate, k.ours, k.rounded, k.later
    ), drained as (
        select d.* from autopost.drain_classes(array(select k.one from class k order by k.class),
            (select extract(epoch from max(k.group_step))::float8 from classed k), p_now) d
    ), ranked as (
        select k.channel_id, k.class, k.ahead, row_number() over w - 1 as place, count(*) over (partition by k.class) as n
        from classed k where k.ours is not null window w as (partition by k.class order by k.channel_id)
    )
    select r.channel_id, p_now + make_interval(secs => d.first + greatest(d.last - d.first, 0) * r.place / greatest(r.n - 1, 1)), r.ahead
    from ranked r left join drained d on d.class = r.class
$$;

-- A fluid drain. Each class has n channels alike; of each, "due" posts wait now, "later" [seconds, posts] come, "ours" is one more
-- at that second. A ceiling is shared out evenly among what waits, and what one channel cannot use, because its own rate is
-- lower, goes to the others. This post is the newest of all, and a group begins the oldest first: it goes when all that is before
-- it in its channel has gone, and the others leave something of the ceiling. first and last, in seconds: of the class's channels.
create or replace function autopost.drain_classes(p_classes jsonb[], p_group_step double precision, p_now timestamptz)
returns table (class integer, first double precision, last double precision)
language plpgsql stable as $$
declare
    total constant integer := cardinality(p_classes);
    never constant float8 := 'infinity';
    a_bit constant float8 := 1e-7;
    ceiling constant float8 := coalesce(1 / nullif(p_group_step, 0), 1e9);
    -- Without any limit all goes at once, nearly.
    cap constant float8[] := array(select coalesce(1 / nullif((c ->> 'step')::float8, 0), 1e9) from unnest(p_classes) with ordinality x (c, n) order by n);
    size constant float8[] := array(select (c ->> 'n')::float8 from unnest(p_classes) with ordinality x (c, n) order by n);
    by_cap constant integer[] := array(select n from unnest(p_classes) with ordinality x (c, n) order by coalesce((c ->> 'step')::float8, 0) desc, n);
    ours constant float8[] := array(select (c ->> 'ours')::float8 from unnest(p_classes) with ordinality x (c, n) order by n);
    waits float8[] := array(select (c ->> 'due')::float8 from unnest(p_classes) with ordinality x (c, n) order by n);
    opens float8[] := array_fill(0::float8, array[total]);
    closes float8[] := array_fill(never, array[total]);
    ahead float8[] := array_fill(null::float8, array[total]);   -- of ours, once its moment has come
    units float8[] := array_fill(null::float8, array[total]);   -- of ours, once they are the next
    began float8[] := array_fill(null::float8, array[total]);
    rate float8[] := array_fill(0::float8, array[total]);
    next_later integer[] := array_fill(0, array[total]);
    left_over integer := (select count(*) from unnest(p_classes) c where c ->> 'ours' is not null);
    hours record;
    coming float8;
    at float8 := 0;
    pause float8;
    room float8;
    busy float8;
    served integer;
    k integer;
begin
    for k in 1 .. total loop
        select * into hours from autopost.hours_from(p_classes[k] -> 'calendar',
            coalesce(autopost.seconds_until((p_classes[k] ->> 'gate')::timestamptz, p_now), 0), p_now);
        opens[k] := hours.opens;
        closes[k] := hours.closes;
    end loop;
    for round in 1 .. 20000 loop
        exit when left_over = 0 or at = never;
        -- What comes now, and who may go.
        busy := 0;
        pause := never;
        for k in 1 .. total loop
            while at >= closes[k] - a_bit loop
                select * into hours from autopost.hours_from(p_classes[k] -> 'calendar', closes[k], p_now);
                opens[k] := hours.opens;
                closes[k] := hours.closes;
            end loop;
            loop
                coming := (p_classes[k] #>> array['later', next_later[k]::text, '0'])::float8;
                exit when coming is null or coming > at + a_bit;
                waits[k] := waits[k] + (p_classes[k] #>> array['later', next_later[k]::text, '1'])::float8;
                next_later[k] := next_later[k] + 1;
            end loop;
            if ahead[k] is null and ours[k] <= at + a_bit then
                ahead[k] := waits[k];
            end if;
            if units[k] is null and ahead[k] <= a_bit then
                units[k] := size[k];
            end if;
            rate[k] := case when waits[k] > a_bit and opens[k] <= at + a_bit then 1 else 0 end;
            busy := busy + rate[k] * size[k];
            pause := least(pause, coming - at, case when ahead[k] is null then ours[k] - at end,
                           case when opens[k] > at + a_bit and (waits[k] > a_bit or units[k] > 0) then opens[k] - at else closes[k] - at end);
        end loop;

        -- What waited before shares the ceiling; those of low rates first, so that the others get what they leave.
        room := ceiling;
        foreach k in array by_cap loop
            if rate[k] > 0 then
                rate[k] := least(cap[k], greatest(room, 0) / busy);
                room := room - rate[k] * size[k];
                busy := busy - size[k];
                pause := least(pause, waits[k] / nullif(rate[k], 0), case when ahead[k] > a_bit then ahead[k] / nullif(rate[k], 0) end);
            end if;
        end loop;

        -- What is left of it is this post's, class by class.
        room := case when room > ceiling * a_bit then room else 0 end;
        served := null;
        for k in 1 .. total loop
            if room > 0 and served is null and units[k] > 0 and opens[k] <= at + a_bit then
                served := k;
                began[k] := coalesce(began[k], at);
                pause := least(pause, units[k] / room);
            end if;
        end loop;
        pause := greatest(pause, 0);
        for k in 1 .. total loop
            if k = served then
                units[k] := greatest(units[k] - room * pause, 0);
                if units[k] <= a_bit * size[k] then
                    class := k;
                    last := at + pause - 1 / room;
                    first := case when size[k] > 1 then began[k] else last end;
                    return next;
                    units[k] := 0;
                    left_over := left_over - 1;
                end if;
            end if;
            if rate[k] > 0 then
                waits[k] := greatest(waits[k] - rate[k] * pause, 0);
                ahead[k] := case when ahead[k] is not null then greatest(ahead[k] - rate[k] * pause, 0) end;
            end if;
        end loop;
        at := at + pause;
    end loop;
end $$;

-- Seconds from p_now: the first opening from p_at on, and when that closes.
create or replace function autopost.hours_from(p_calendar jsonb, p_at double precision, p_now timestamptz)
returns table (opens double precision, closes double precision)
language sql stable as $$
    select coalesce(autopost.seconds_until(h.at, p_now), 'infinity'),
           case when p_calendar is null or h.at is null then 'infinity'
                else autopost.seconds_until(autopost.window_closes(p_calendar -> 'window', p_calendar ->> 'timezone', h.at), p_now) end
    from (select case when p_at = 'infinity' then null
                      else autopost.first_moment(p_calendar, p_now + make_interval(secs => p_at), p_now) end as at) h
$$;

-- Also to a moment that never comes, or that always was: PostgreSQL 16 cannot subtract from those.
create or replace function autopost.seconds_until(p_at timestamptz, p_now timestamptz) returns double precision
language sql immutable parallel safe as $$
    select (extract(epoch from p_at) - extract(epoch from p_now))::double precision
$$;
