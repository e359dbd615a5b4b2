-- A workspace at a glance: how many deliveries stand where, what goes wrong most, what is shut, and which alerts are on.

create or replace function autopost.health_snapshot(p_workspace_id text, p_now timestamptz default now()) returns jsonb
language plpgsql as $$
begin
    perform autopost.require_workspace(p_workspace_id);
    return jsonb_build_object(
        'workspace_id', p_workspace_id, 'at', p_now,
        'status', (select w.status from core.workspaces w where w.workspace_id = p_workspace_id),
        'deliveries', (select coalesce(jsonb_object_agg(s.status, s.n), '{}') from (
            select d.status, count(*) as n from autopost.deliveries d where d.workspace_id = p_workspace_id group by 1) s),
        'oldest_due', (select min(due.since) from autopost.due_since(p_workspace_id, p_now) due),
        'top_errors', autopost.top_errors(p_workspace_id, p_now - interval '1 hour', p_now),
        'channels', autopost.channels_at_a_glance(p_workspace_id, p_now),
        'sources', (select jsonb_build_object('enabled', count(*) filter (where s.enabled),
                                              'failing', count(*) filter (where s.enabled and s.failures > 0))
                    from autopost.pull_sources s where s.workspace_id = p_workspace_id),
        'jobs_dead', (select count(*) from ops.jobs j where j.workspace_id = p_workspace_id and j.status = 'dead'),
        'alerts', (select coalesce(jsonb_agg(jsonb_build_object('alert', a.alert, 'subject', a.subject, 'severity', a.severity,
                                                'summary', a.summary, 'raised_at', a.raised_at, 'acked_by', a.acked_by)
                                             order by a.severity, a.raised_at), '[]')
                   from ops.alerts a where a.workspace_id = p_workspace_id and a.cleared_at is null));
end $$;

-- Since when the oldest of each channel is due, whatever keeps it.
create or replace function autopost.due_since(p_workspace_id text, p_now timestamptz default now())
returns table (channel_id text, since timestamptz)
language sql stable as $$
    with recursive hop as (
        select '' as channel_id
        union all
        select least(
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'queued' order by d.channel_id limit 1),
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'retry' order by d.channel_id limit 1))
        from hop h where h.channel_id is not null
    ), due as (
        select h.channel_id, least(
            (select d.not_before from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
             and d.status = 'queued' order by d.not_before limit 1),
            (select greatest(d.not_before, d.next_retry_at) from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
               and d.status = 'retry' and d.not_before <= p_now order by d.next_retry_at limit 1)) as since
        from hop h where h.channel_id <> ''
    )
    select due.channel_id, due.since from due where due.since <= p_now
$$;

-- What went wrong most often since then. The first word on each is the newest.
create or replace function autopost.top_errors(p_workspace_id text, p_since timestamptz, p_now timestamptz default now())
returns jsonb
language sql stable as $$
    select coalesce(jsonb_agg(to_jsonb(t)), '[]') from (
        select e.action, e.error ->> 'code' as code, e.error ->> 'category' as category, e.error ->> 'scope' as scope,
               count(*) as count, count(distinct e.channel_id) as channels, max(e.ts) as last_at,
               (array_agg(e.error ->> 'message' order by e.ts desc))[1] as message
        from autopost.events e
        where e.workspace_id = p_workspace_id and e.result = 'error' and e.ts >= p_since and e.ts <= p_now
        group by 1, 2, 3, 4 order by count(*) desc, max(e.ts) desc limit 10) t
$$;

create or replace function autopost.channels_at_a_glance(p_workspace_id text, p_now timestamptz default now()) returns jsonb
language sql stable as $$
    select jsonb_build_object('total', count(*),
        'paused', count(*) filter (where c.enabled and c.paused_until > p_now), 'disabled', count(*) filter (where not c.enabled),
        'paused_first', coalesce((array_agg(c.channel_id order by c.channel_id)
                                  filter (where c.enabled and c.paused_until > p_now))[1:20], '{}'),
        'disabled_first', coalesce((array_agg(c.channel_id order by c.channel_id) filter (where not c.enabled))[1:20], '{}'))
    from autopost.channels c where c.workspace_id = p_workspace_id
$$;
