-- Why has it not gone out? Every gate that stands in the way, the one that opens last, and when that will be; of what has ended,
-- why and by whom; and what a person can do about it.

-- earliest: not a moment sooner, and at that moment, unless others of its group are before it (forecast.sql looks at those too).
-- ahead: how many of its channel go before it.
create or replace function autopost.why_delivery(p_workspace_id text, p_delivery_id uuid, p_now timestamptz default now())
returns table (status text, gate text, earliest timestamptz, detail text, gates jsonb, ahead bigint, remedy text)
language sql stable as $$
    with d as (
        select d.*, d as delivery, c, g, w.status as workspace_status, p.sending_lease, a.claims, a.due, a.later,
               a.claims + a.due + a.later as ahead, busy.n as sending,
               greatest(autopost.step_of(c.rate_rps), autopost.step_of(g.rate_rps)) as step,
               greatest(c.last_begin_at + autopost.step_of(c.rate_rps), g.last_begin_at + autopost.step_of(g.rate_rps)) as paced_until,
               greatest(p_now, c.paused_until, c.cooldown_until, g.cooldown_until) as gated_until,
               autopost.shut_window_opens(c, greatest(p_now, d.scheduled_for),
                   case when d.status = 'queued' and d.not_before < 'infinity' then d.not_before end) as shut_until
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        join core.workspaces w on w.workspace_id = d.workspace_id
        left join autopost.platform_limits g on g.workspace_id = d.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        left join autopost.policies p on p.workspace_id = d.workspace_id,
        lateral autopost.ahead_of(p_workspace_id, d, p_now) a,
        lateral (select count(*) as n from autopost.deliveries s
                 where s.workspace_id = d.workspace_id and s.channel_id = d.channel_id and s.status = 'sending') busy
        where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
    ), found as (
        select gate.* from d, lateral (values
            ('workspace', d.workspace_status <> 'active', 'infinity'::timestamptz, 'the workspace is ' || d.workspace_status),
            ('disabled', not (d.c).enabled, 'infinity',
                format('channel %s is disabled%s', d.channel_id,
                       case when not (d.c).enabled then autopost.gate_cause(p_workspace_id, d.c, 'channel_disabled') end)),
            ('held', d.held_at is not null, 'infinity', 'its outcome is unknown: confirm it or send it again'),
            ('paused', (d.c).paused_until > p_now, (d.c).paused_until,
                format('channel %s is paused%s', d.channel_id,
                       case when (d.c).paused_until > p_now then autopost.gate_cause(p_workspace_id, d.c, 'channel_paused') end)),
            ('cooldown', (d.c).cooldown_until > p_now, (d.c).cooldown_until, 'the platform asked this channel to wait'),
            ('group_cooldown', (d.g).cooldown_until > p_now, (d.g).cooldown_until, format('the platform asked group %s to wait', (d.c).rate_group)),
            ('retry', d.status = 'retry' and d.next_retry_at > p_now and d.held_at is null, d.next_retry_at,
                format('attempt %s failed: %s', d.attempt, coalesce(d.last_error ->> 'message', d.last_error ->> 'code'))),
            ('media_pending', d.status = 'queued' and d.not_before = 'infinity', 'infinity', 'its media are being fetched'),
            ('schedule', d.status in ('queued', 'retry') and d.not_before > p_now and d.not_before < 'infinity'
                    and (d.shut_until is null or d.scheduled_for > p_now),
                case when d.shut_until is null then d.not_before else d.scheduled_for end, 'it is scheduled for later'),
            ('window', d.status <> 'sending' and d.shut_until is not null, d.shut_until,
                format('the posting window of channel %s is closed', d.channel_id)),
            ('slot', d.status = 'claimed' and d.not_before > p_now, d.not_before, 'its slot has not come'),
            ('pace', d.status in ('queued', 'claimed', 'retry') and d.paced_until > p_now, d.paced_until,
                'the last send of its channel or group began only just now'),
            ('max_parallel', d.status in ('queued', 'claimed', 'retry')
                    and d.sending + case when d.step is null then d.due else 0 end >= (d.c).max_parallel, p_now,
                case when d.sending >= (d.c).max_parallel
                     then format('%s sends of this channel are under way, as many as it may have', (d.c).max_parallel)
                     else format('%s are before it, and the channel may have %s at once', d.due, (d.c).max_parallel) end),
            ('rate', d.status in ('queued', 'retry') and (d.c).rate_rps > 0 and (d.c).next_allowed_at > p_now, (d.c).next_allowed_at,
                format('channel %s takes %s a second', d.channel_id, (d.c).rate_rps)),
            ('group_rate', d.status in ('queued', 'retry') and (d.g).rate_rps > 0 and (d.g).next_allowed_at > p_now, (d.g).next_allowed_at,
                format('group %s takes %s a second', (d.c).rate_group, (d.g).rate_rps)),
            ('queue', d.status in ('queued', 'claimed') and d.ahead > 0 and d.step is not null and (d.c).enabled and d.not_before < 'infinity',
                case when d.ahead > 0 and d.step is not null then autopost.queue_until(d.delivery, d.c, d.g, d.claims, d.due, d.later, d.gated_until, p_now) end,
                format('%s of channel %s go before it, one every %s', d.ahead, d.channel_id, d.step)),
            ('lease', d.status = 'sending', d.sending_started_at + coalesce(d.sending_lease, '300 seconds'),
                'it is being sent; its lease ends then')
        ) as gate (gate, shut, opens, detail)
        where gate.shut and d.status in ('queued', 'claimed', 'sending', 'retry')
    ), last as (
        select * from found f order by f.opens desc, f.gate = 'window' desc limit 1
    ), final as (
        -- A gate may open while the window is closed: then the window is what it waits for after all.
        select coalesce(last.opens, p_now) as opens, last.gate, last.detail,
               case when (d.c).window_mode = 'windowed' and coalesce(last.opens, p_now) < 'infinity'
                    then autopost.next_open((d.c).posting_window, (d.c).timezone, coalesce(last.opens, p_now)) end as window_opens
        from d left join last on true
    ), named as (
        select f.*, case when d.status not in ('queued', 'claimed', 'retry') then coalesce(f.gate, autopost.end_of(d.delivery))
                         when f.window_opens > f.opens then 'window' else coalesce(f.gate, 'none') end as name
        from d, final f
    )
    select d.status, n.name,
           case when d.status in ('queued', 'claimed', 'sending', 'retry') then nullif(greatest(n.opens, n.window_opens), 'infinity') end,
           case when n.name = 'window' and n.window_opens > n.opens
                then format('the posting window of channel %s is closed then', d.channel_id)
                when n.name = 'none' then 'nothing is in its way: it goes with the next round of the dispatcher'
                else coalesce(n.detail, autopost.how_it_ended(d.delivery)) end,
           (select coalesce(jsonb_agg(jsonb_build_object('gate', f.gate, 'opens', nullif(f.opens, 'infinity'), 'detail', f.detail)
                                      order by f.opens desc), '[]') from found f),
           d.ahead, autopost.remedy_for(n.name, d.delivery, d.c)
    from d, named n
$$;

-- What of its channel surely goes before it. claims: with a slot, those before its own. due: waiting now, and older by both orders,
-- that of their moments and that of their ages. later: older, and due by its
-- own moment, which is yet to come.
create or replace function autopost.ahead_of(p_workspace_id text, p_delivery autopost.deliveries, p_now timestamptz)
returns table (claims bigint, due bigint, later bigint)
language sql stable as $$
    select case when p_delivery.status in ('queued', 'claimed') then (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'claimed'
                 and (p_delivery.status = 'queued' or o.not_before <= p_now
                      and (o.not_before, o.created_at) < (p_delivery.not_before, p_delivery.created_at))) else 0 end,
           case when p_delivery.status = 'queued' then (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'queued'
                 and o.not_before <= least(p_now, p_delivery.not_before) and o.created_at < p_delivery.created_at) + (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'retry'
                 and o.next_retry_at <= p_now and o.not_before <= p_now and o.created_at < p_delivery.created_at
                 -- Retries come by their moments: one that is younger hides those behind it.
                 and o.next_retry_at < coalesce((
                     select min(y.next_retry_at) from autopost.deliveries y
                     where y.workspace_id = p_workspace_id and y.channel_id = p_delivery.channel_id and y.status = 'retry'
                       and y.created_at >= p_delivery.created_at), 'infinity')) else 0 end,
           case when p_delivery.status = 'queued' and p_delivery.not_before > p_now and p_delivery.not_before < 'infinity' then (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'queued'
                 and o.not_before > p_now and o.not_before <= p_delivery.not_before and o.created_at < p_delivery.created_at) else 0 end
$$;

-- When all before it have gone, a step apart, from p_gated_until on and none before its own moment. Those that are claimed have
-- moved the cursors already; where they are late, the cursors are too.
create or replace function autopost.queue_until(
    p_delivery autopost.deliveries, p_channel autopost.channels, p_group autopost.platform_limits, p_claims bigint, p_due bigint,
    p_later bigint, p_gated_until timestamptz, p_now timestamptz) returns timestamptz
language sql stable as $$
    select greatest(
        autopost.nth_begin(calendar, greatest(p_gated_until, pace.until), p_claims + p_due + p_later, pace.step),
        case when p_delivery.status = 'queued' then autopost.nth_begin(calendar, greatest(p_gated_until, pace.until,
            case when p_channel.rate_rps > 0 then p_channel.next_allowed_at end,
            case when p_group.rate_rps > 0 then p_group.next_allowed_at end), p_due + p_later, pace.step) end,
        case when p_later > 0 then (
            select max(autopost.nth_begin(calendar, greatest(p_gated_until, pace.until, w.at), w.n::bigint, pace.step))
            from (select o.not_before as at, sum(count(*)) over (order by o.not_before desc) as n from autopost.deliveries o
                  where o.workspace_id = p_delivery.workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'queued'
                    and o.not_before > p_now and o.not_before <= p_delivery.not_before and o.created_at < p_delivery.created_at
                  group by o.not_before order by o.not_before desc limit 100) w) end)
    from (select autopost.calendar_of(p_channel)) c (calendar),
         (select greatest(autopost.step_of(p_channel.rate_rps), autopost.step_of(p_group.rate_rps)),
                 greatest(p_channel.last_begin_at + autopost.step_of(p_channel.rate_rps),
                          p_group.last_begin_at + autopost.step_of(p_group.rate_rps))) pace (step, until)
$$;

-- When the one behind p_n others begins, each a step after the one before it and none while the window is closed.
create or replace function autopost.nth_begin(p_calendar jsonb, p_from timestamptz, p_n bigint, p_step interval) returns timestamptz
language plpgsql stable as $$
declare
    step constant double precision := extract(epoch from p_step);
    at timestamptz := autopost.first_moment(p_calendar, p_from, p_from);
    behind bigint := p_n;
    closes timestamptz;
    room bigint;
begin
    for stretch in 1 .. 1000 loop
        exit when at is null or at = 'infinity';
        closes := case when p_calendar is not null
                       then autopost.window_closes(p_calendar -> 'window', p_calendar ->> 'timezone', at) else 'infinity' end;
        room := case when closes = 'infinity' then behind + 1 else ceil(extract(epoch from closes - at) / step) end;
        if behind < room then
            return at + behind * p_step;
        end if;
        behind := behind - room;
        at := autopost.first_moment(p_calendar, greatest(closes, at + room * p_step), closes);
    end loop;
    return 'infinity';
end $$;

create or replace function autopost.end_of(p_delivery autopost.deliveries) returns text
language sql immutable as $$
    select case when p_delivery.status = 'failed_permanent' and p_delivery.last_error ->> 'code' = 'cancelled' then 'cancelled'
                else p_delivery.status end
$$;

-- How a delivery came to its end, and who said so.
create or replace function autopost.how_it_ended(p_delivery autopost.deliveries) returns text
language sql stable as $$
    select case autopost.end_of(p_delivery)
        when 'sent' then format('sent at %s', p_delivery.sent_at)
            || coalesce(format('; %s confirmed it: %s', e.meta ->> 'operator', e.meta ->> 'reason'), '')
        when 'deduped' then case when e.meta ->> 'reason' = 'in_flight' then 'the same content was on its way into this channel'
                                 else 'the same content went into this channel before' end
        when 'cancelled' then concat_ws(', ', 'cancelled: ' || (p_delivery.last_error ->> 'message'), 'by ' || (e.meta ->> 'operator'))
        when 'failed_permanent' then coalesce(p_delivery.last_error ->> 'message', p_delivery.last_error ->> 'code')
        when 'dead' then format('given up after %s attempts: %s', p_delivery.attempt,
                                coalesce(p_delivery.last_error ->> 'message', p_delivery.last_error ->> 'code')) end
    from (select) one
    left join lateral (
        select e.meta from autopost.events e
        where e.delivery_id = p_delivery.delivery_id and e.workspace_id = p_delivery.workspace_id
          and e.action = case p_delivery.status when 'sent' then 'confirmed' when 'deduped' then 'dedup_suppressed' when 'failed_permanent' then 'cancelled' end
        order by e.ts desc limit 1) e on true
$$;

-- What a person can do about it; null where there is nothing to do but to wait.
create or replace function autopost.remedy_for(p_gate text, p_delivery autopost.deliveries, p_channel autopost.channels) returns text
language sql stable as $$
    select case
        when p_gate = 'workspace' then 'status: active in its declaration'
        when p_gate = 'disabled' and autopost.disabled_with_group(p_channel)
            then format('vestnik enable-group %s %s', autopost.shell_word(p_channel.workspace_id), autopost.shell_word(p_channel.rate_group))
        when p_gate in ('disabled', 'paused')
            then format('vestnik resume %s %s', autopost.shell_word(p_channel.workspace_id), autopost.shell_word(p_channel.channel_id))
        when p_gate = 'held' then format('vestnik unknown confirm %s, or vestnik unknown resend %s', p_delivery.delivery_id, p_delivery.delivery_id)
        when p_gate in ('dead', 'cancelled') or p_gate = 'failed_permanent' and coalesce(p_delivery.last_error ->> 'scope', 'delivery') = 'delivery'
            then format('vestnik requeue %s', p_delivery.delivery_id)
        when p_gate = 'failed_permanent' then 'put right what the platform refused, then push the post again'
        when p_gate = 'deduped' then 'push it again once the dedup window of the channel is over' end
$$;

-- Was it the whole group that was switched off when the channel was, the last time?
create or replace function autopost.disabled_with_group(p_channel autopost.channels) returns boolean
language sql stable as $$
    select coalesce((
        select e.meta ->> 'rate_group' = p_channel.rate_group from autopost.events e
        where e.workspace_id = p_channel.workspace_id and e.channel_id = p_channel.channel_id and e.action = 'channel_disabled'
          and e.action not in ('enqueue', 'send_attempt', 'sent')
        order by e.ts desc limit 1), false)
$$;

create or replace function autopost.shell_word(p_text text) returns text
language sql immutable strict parallel safe as $$
    select case when p_text ~ '^[A-Za-z0-9_@%+=:,./-]+$' then p_text else '''' || replace(p_text, '''', '''\''''') || '''' end
$$;

-- When the window of a channel that is closed at p_at opens, not before p_planned: null when it is open, infinity when it never is.
create or replace function autopost.shut_window_opens(p_channel autopost.channels, p_at timestamptz, p_planned timestamptz)
returns timestamptz
language sql stable as $$
    select case when p_channel.window_mode = 'windowed' and not autopost.window_open(p_channel.posting_window, p_channel.timezone, p_at)
                then coalesce(autopost.next_open(p_channel.posting_window, p_channel.timezone, greatest(p_at, p_planned)), 'infinity') end
$$;

-- What the platform said when it had the channel paused or disabled, or who did that by hand; null when its events do not
-- tell. The actions of every delivery are named for the index that leaves them out.
create or replace function autopost.gate_cause(p_workspace_id text, p_channel autopost.channels, p_action text) returns text
language sql stable as $$
    select ': ' || case when e.action = 'channel_enabled' then 'it goes on with ' || (e.meta ->> 'reason')
                        when e.result = 'ok' then concat_ws(', ', e.meta ->> 'reason', 'by ' || (e.meta ->> 'operator'))
                        when p_channel.error_streak > 0 then coalesce(e.error ->> 'message', e.error ->> 'code') end
    from (select * from autopost.events e
          where e.workspace_id = p_workspace_id and e.channel_id = p_channel.channel_id
            and e.action in (p_action, 'channel_enabled') and e.action not in ('enqueue', 'send_attempt', 'sent')
          order by e.ts desc limit 1) e
    where e.action = p_action or (e.meta ->> 'paused_until')::timestamptz = p_channel.paused_until and p_action = 'channel_paused'
$$;
