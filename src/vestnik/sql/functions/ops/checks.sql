-- Checks of what lies below every capability. Each returns what is wrong as (alert, subject, severity, summary, details).

-- Jobs that died within a day, by kind. What a webhook could not be told has a check of its own.
create or replace function ops.check_jobs(p_workspace_id text, p_now timestamptz default now())
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    select 'jobs_dead', j.kind, 'warning', format('%s jobs %s are dead', count(*), j.kind),
           jsonb_strip_nulls(jsonb_build_object('kind', j.kind, 'count', count(*), 'since', min(j.finished_at),
               'code', mode() within group (order by coalesce(j.last_error ->> 'code', j.last_error ->> 'type'))))
    from ops.jobs j
    where j.workspace_id = p_workspace_id and j.status = 'dead' and j.finished_at > p_now - interval '1 day'
      and j.kind <> 'webhook.send'
    group by j.kind
$$;

-- Those who are to be told and cannot be: told to the others, and shown by vestnik alerts.
create or replace function ops.check_ways_out(p_workspace_id text, p_now timestamptz default now())
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    select 'alert_target', t.target_id, 'critical', format('alert target %s cannot be told', t.target_id),
           jsonb_strip_nulls(jsonb_build_object('target_id', t.target_id, 'kind', t.kind, 'since', t.failing_since,
               'failures', t.failures, 'code', t.last_error -> 'code'))
    from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.enabled and t.failures >= 3
    union all
    select 'webhook', w.webhook_id, 'warning', format('webhook %s cannot be told', w.webhook_id),
           jsonb_strip_nulls(jsonb_build_object('webhook_id', w.webhook_id, 'since', w.failing_since, 'failures', w.failures,
               'code', w.last_error -> 'code', 'count', nullif(dead.n, 0)))
    from ops.webhooks w,
    lateral (select count(*) as n from ops.jobs j
             where j.workspace_id = p_workspace_id and j.status = 'dead' and j.kind = 'webhook.send'
               and j.finished_at > p_now - interval '1 day' and j.payload ->> 'webhook_id' = w.webhook_id) dead
    where w.workspace_id = p_workspace_id and (w.enabled and w.failures >= 3 or dead.n > 0 or not w.enabled and w.last_error ->> 'code' = 'gone')
$$;

-- The database as a whole: an old transaction keeps every table from being cleaned. Sessions of other roles show nothing here.
create or replace function ops.check_database(p_workspace_id text default '*', p_now timestamptz default now())
returns table (alert text, subject text, severity text, summary text, details jsonb)
language sql stable as $$
    with policy as (
        select coalesce((select p.oldest_xmin from ops.alert_policies p where p.workspace_id = p_workspace_id), '1 hour') as longest
    ), oldest as (
        select a.pid, a.application_name, a.state, a.xact_start as since from pg_stat_activity a
        where a.datname = current_database() and (a.backend_xmin is not null or a.backend_xid is not null)
        union all
        select null, p.gid, 'prepared', p.prepared from pg_prepared_xacts p where p.database = current_database()
    )
    select 'oldest_xmin', '', 'warning', format('a transaction has been open since %s', o.since),
           jsonb_strip_nulls(jsonb_build_object('since', o.since, 'pid', o.pid, 'application', left(o.application_name, 100),
                                                'state', o.state))
    from policy, lateral (select * from oldest o where o.since is not null order by o.since limit 1) o
    where o.since < p_now - policy.longest
$$;
