-- The monitor: what is stuck comes back, and what needs a person becomes an alert. One call does it all for a workspace.
-- A check is a function that returns what is wrong as (alert, subject, severity, summary, details); what it does not return
-- is right again.

-- The guards, every check, and the alerts that follow. Returns what is on. Whoever calls it asks needs_kick after it.
create or replace function autopost.monitor_workspace(p_workspace_id text, p_now timestamptz default now())
returns table (alert text, subject text, severity text, summary text, details jsonb, raised_at timestamptz, is_new boolean)
language plpgsql as $$
begin
    perform autopost.require_workspace(p_workspace_id);
    perform autopost.sweep_sending(p_workspace_id, p_now => p_now), autopost.sweep_claimed(p_workspace_id, p_now => p_now);
    return query select * from ops.put_alerts(p_workspace_id, autopost.alerts_of_monitor(), (
        select coalesce(jsonb_agg(to_jsonb(f)), '[]') from autopost.failing_checks(p_workspace_id, p_now) f), p_now);
end $$;

-- What monitor_workspace puts and clears; nobody else does.
create or replace function autopost.alerts_of_monitor() returns text[]
language sql immutable as $$
    select '{dead,failed_permanent,paused_channels,channel_disabled,waiting,source,jobs_dead,alert_target,webhook}'::text[]
$$;

create or replace function autopost.failing_checks(p_workspace_id text, p_now timestamptz default now())
returns table (alert text, subject text, severity text, summary text, details jsonb)
language plpgsql as $$
declare
    policy constant ops.alert_policies := ops.alert_policy_of(p_workspace_id);
begin
    return query
    select * from autopost.check_failed(p_workspace_id, policy, p_now)
    union all select * from autopost.check_channels(p_workspace_id, policy, p_now)
    union all select * from autopost.check_waiting(p_workspace_id, policy, p_now)
    union all select * from autopost.check_sources(p_workspace_id, policy, p_now)
    union all select * from ops.check_jobs(p_workspace_id, p_now)
    union all select * from ops.check_ways_out(p_workspace_id, p_now);
end $$;

-- Dead deliveries, whenever they died; refused ones only when they are many at once. What somebody cancelled is neither.
create or replace function autopost.check_failed(p_workspace_id text, p_policy ops.alert_policies, p_now timestamptz)
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    with dead as (
        select count(*) as n, min(d.updated_at) as since, mode() within group (order by d.last_error ->> 'code') as code,
               count(distinct d.channel_id) as channels
        from autopost.deliveries d where d.workspace_id = p_workspace_id and d.status = 'dead'
    ), refused as (
        select count(*) as n, mode() within group (order by d.last_error ->> 'code') as code,
               count(distinct d.channel_id) as channels
        from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.status = 'failed_permanent'
          and d.updated_at > p_now - p_policy.failed_permanent_within and d.last_error ->> 'code' is distinct from 'cancelled'
    )
    select 'dead', '', 'critical', format('%s dead, mostly with %s', n, code),
           jsonb_build_object('count', n, 'since', since, 'code', code, 'channels', channels)
    from dead where n > 0
    union all
    select 'failed_permanent', '', 'warning', format('%s refused for good within %s, mostly with %s', n,
               p_policy.failed_permanent_within, code),
           jsonb_build_object('count', n, 'code', code, 'channels', channels, 'limit', p_policy.failed_permanent_max,
                              'within', extract(epoch from p_policy.failed_permanent_within))
    from refused where n > p_policy.failed_permanent_max
$$;

-- Many that are paused at once, and each that refusals have switched off.
create or replace function autopost.check_channels(p_workspace_id text, p_policy ops.alert_policies, p_now timestamptz)
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    with paused as (
        select count(*) as n, (array_agg(c.channel_id order by c.channel_id))[1:10] as channels, max(c.paused_until) as until
        from autopost.channels c where c.workspace_id = p_workspace_id and c.enabled and c.paused_until > p_now
    )
    select 'paused_channels', '', 'warning', format('%s channels are paused', n),
           jsonb_build_object('count', n, 'channels', channels, 'until', until, 'limit', p_policy.paused_channels_max)
    from paused where n > p_policy.paused_channels_max
    union all
    select 'channel_disabled', c.channel_id, 'critical',
           format('channel %s is disabled: refused %s times in a row', c.channel_id, c.error_streak),
           jsonb_build_object('channel_id', c.channel_id, 'platform', c.platform, 'error_streak', c.error_streak)
    from autopost.channels c
    where c.workspace_id = p_workspace_id and not c.enabled
      and c.error_streak >= (select p.disable_after_permanent_streak from autopost.policies p where p.workspace_id = p_workspace_id)
$$;

-- What should have gone long ago, in channels where nothing is in the way and nothing has moved: most likely no dispatcher runs.
create or replace function autopost.check_waiting(p_workspace_id text, p_policy ops.alert_policies, p_now timestamptz)
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    with stuck as (
        select s.channel_id, s.since from autopost.stuck_channels(p_workspace_id, p_now - p_policy.waiting_longest, p_now) s
    )
    select 'waiting', '', 'critical', format('%s channels do not move', count(*)),
           jsonb_build_object('count', count(*), 'since', min(s.since),
                              'channels', (array_agg(s.channel_id order by s.since, s.channel_id))[1:10])
    from stuck s having count(*) > 0
$$;

-- Channels with something due before p_before that no gate explains: open now and then, none of their own or their group's
-- sends begun since, and not changed since.
create or replace function autopost.stuck_channels(p_workspace_id text, p_before timestamptz, p_now timestamptz default now())
returns table (channel_id text, since timestamptz)
language sql stable as $$
    select x.channel_id, x.since
    from (select due.*, c as channel, g as grp from autopost.due_since(p_workspace_id, p_before) due
          join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = due.channel_id
          left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform
              and g.rate_group = c.rate_group
          offset 0) x
    where autopost.is_active(p_workspace_id)
      and autopost.is_open(x.channel, x.grp, p_now) and autopost.is_open(x.channel, x.grp, p_before)
      and (x.channel).updated_at <= p_before
      and coalesce((x.channel).last_begin_at + autopost.step_of((x.channel).rate_rps), '-infinity') <= p_before
      and coalesce((x.grp).last_begin_at + autopost.step_of((x.grp).rate_rps), '-infinity') <= p_before
      and not exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = x.channel_id
                      and d.status = 'sending' and d.sending_started_at > p_before)
      and not exists (select from autopost.events e where e.workspace_id = p_workspace_id and e.channel_id = x.channel_id
                      and e.ts > p_before and e.action = 'send_attempt')
$$;

-- Sources that fail again and again, or that nobody reads. How often one with cron is read, its schedule knows: its tick is over.
create or replace function autopost.check_sources(p_workspace_id text, p_policy ops.alert_policies, p_now timestamptz)
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    select 'source', s.source_id, 'warning',
           case when s.failures >= p_policy.missed_intervals then format('source %s failed %s times in a row', s.source_id, s.failures)
                else format('source %s was not read since %s', s.source_id, coalesce(s.last_run_at, s.created_at)) end,
           jsonb_strip_nulls(jsonb_build_object('source_id', s.source_id, 'failures', s.failures, 'last_run_at', s.last_run_at,
               'code', coalesce(s.last_error ->> 'code', s.last_error ->> 'type')))
    from autopost.pull_sources s
    left join ops.schedules x on x.workspace_id = s.workspace_id and x.schedule_id = 'source:' || s.source_id
    where s.workspace_id = p_workspace_id and s.enabled and autopost.is_active(p_workspace_id)
      and (s.failures >= p_policy.missed_intervals
           or greatest(s.last_run_at, s.created_at, s.updated_at)
              < p_now - s.every * p_policy.missed_intervals - interval '1 minute'
           or s.cron is not null and x.next_at < p_now - p_policy.waiting_longest)
$$;

-- Something is due and may go: wake the dispatcher (pg_notify 'vestnik_wake'), should it have missed its own call.
create or replace function autopost.needs_kick(p_workspace_id text, p_now timestamptz default now()) returns boolean
language sql stable as $$
    select autopost.is_active(p_workspace_id)
       and (exists (select from autopost.ready_channels(p_workspace_id, '', 1, p_now))
            or exists (select from autopost.channels_with_due_claims(p_workspace_id, p_now)))
$$;

-- The same for the service itself: its jobs, the database, the event log. Alerts on disks of machines that no longer tell are over.
create or replace function autopost.monitor_service(p_now timestamptz default now())
returns table (alert text, subject text, severity text, summary text, details jsonb, raised_at timestamptz, is_new boolean)
language plpgsql as $$
begin
    perform ops.clear_alert('*', a.alert, a.subject, p_now) from ops.alerts a
    where a.workspace_id = '*' and a.alert = 'disk' and a.cleared_at is null and a.last_seen_at < p_now - interval '1 hour';
    return query select * from ops.put_alerts('*', '{jobs_dead,alert_target,webhook,oldest_xmin,default_partition}', (
        select coalesce(jsonb_agg(to_jsonb(f)), '[]') from (
            select * from ops.check_jobs('*', p_now)
            union all select * from ops.check_ways_out('*', p_now)
            union all select * from ops.check_database('*', p_now)
            union all select * from autopost.check_partitions()) f), p_now);
end $$;

-- Days that no partition was ready for: nothing is lost, but retention cannot drop them.
create or replace function autopost.check_partitions()
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    select 'default_partition', '', 'warning', 'events lie in the default partition', '{}'::jsonb
    where exists (select from autopost.events_default)
$$;
