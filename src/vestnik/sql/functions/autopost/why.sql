-- Why has it not gone out? Every gate that stands in the way, the one that opens last, and when that will be.

create or replace function autopost.why_delivery(p_workspace_id text, p_delivery_id uuid, p_now timestamptz default now())
returns table (status text, gate text, earliest timestamptz, detail text, gates jsonb)
language sql stable as $$
    with d as (
        select d.*, c, g, w.status as workspace_status, p.sending_lease,
               greatest(c.last_begin_at + autopost.step_of(c.rate_rps), g.last_begin_at + autopost.step_of(g.rate_rps)) as paced_until,
               autopost.shut_window_opens(c, greatest(p_now, d.scheduled_for),
                   case when d.status = 'queued' and d.not_before < 'infinity' then d.not_before end) as shut_until
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        join core.workspaces w on w.workspace_id = d.workspace_id
        left join autopost.platform_limits g on g.workspace_id = d.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        left join autopost.policies p on p.workspace_id = d.workspace_id
        where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
    ), found as (
        select gate.* from d, lateral (values
            ('workspace', d.workspace_status <> 'active', 'infinity'::timestamptz, 'the workspace is ' || d.workspace_status),
            ('disabled', not (d.c).enabled, 'infinity',
                format('channel %s is disabled%s; enabled: true in its declaration brings it back', d.channel_id,
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
            ('pace', d.status = 'claimed' and d.paced_until > p_now, d.paced_until, 'the last send of its channel or group began only just now'),
            ('max_parallel', d.status in ('queued', 'claimed', 'retry') and (
                    select count(*) from autopost.deliveries s where s.workspace_id = d.workspace_id
                    and s.channel_id = d.channel_id and s.status = 'sending') >= (d.c).max_parallel,
                p_now, format('%s sends of this channel are under way, as many as it may have', (d.c).max_parallel)),
            ('rate', d.status in ('queued', 'retry') and (d.c).rate_rps > 0 and (d.c).next_allowed_at > p_now, (d.c).next_allowed_at,
                format('channel %s takes %s a second', d.channel_id, (d.c).rate_rps)),
            ('group_rate', d.status in ('queued', 'retry') and (d.g).rate_rps > 0 and (d.g).next_allowed_at > p_now, (d.g).next_allowed_at,
                format('group %s takes %s a second', (d.c).rate_group, (d.g).rate_rps)),
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
    )
    select d.status,
           case when d.status in ('queued', 'claimed', 'retry') and f.window_opens > f.opens then 'window'
                else coalesce(f.gate, case when d.status in ('queued', 'claimed', 'retry') then 'none' else d.status end) end,
           case when d.status in ('queued', 'claimed', 'sending', 'retry') then nullif(greatest(f.opens, f.window_opens), 'infinity') end,
           case when d.status in ('queued', 'claimed', 'retry') and f.window_opens > f.opens
                then format('the posting window of channel %s is closed then', d.channel_id)
                else coalesce(f.detail, case d.status
               when 'sent' then format('sent at %s', d.sent_at)
               when 'deduped' then 'the same content went into this channel before'
               when 'failed_permanent' then d.last_error ->> 'message'
               when 'dead' then format('given up after %s attempts: %s', d.attempt, d.last_error ->> 'message')
               else 'nothing is in its way: it goes with the next round of the dispatcher' end) end,
           (select coalesce(jsonb_agg(jsonb_build_object('gate', f.gate, 'opens', nullif(f.opens, 'infinity'), 'detail', f.detail)
                                      order by f.opens desc), '[]') from found f)
    from d, final f
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
