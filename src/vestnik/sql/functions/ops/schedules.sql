-- What comes round by the clock. When the next tick is, Python knows (cron, time zones, DST); that it fires once, these do.

-- Make or change a schedule. Its next tick stays as long as its rule stays: an apply that repeats itself moves nothing.
-- p_definition: {kind, payload?, priority?, cron | every (seconds), timezone?, missed?, overlap?, enabled?}. Returns next_at.
create or replace function ops.put_schedule(
    p_workspace_id text, p_schedule_id text, p_definition jsonb, p_next_at timestamptz, p_now timestamptz default now())
returns timestamptz
language plpgsql as $$
declare
    problem constant text := ops.schedule_problem(p_schedule_id, p_definition);
    next_at timestamptz;
begin
    perform ops.must_be_workspace(p_workspace_id);
    if problem is not null then
        raise exception 'a schedule is not right' using errcode = 'VP001',
            detail = json_build_array(format('schedule %s: %s', p_schedule_id, problem))::text;
    end if;
    insert into ops.schedules as s (workspace_id, schedule_id, kind, payload, priority, cron, every, timezone, missed, overlap,
                                    enabled, next_at, created_at, updated_at)
    select p_workspace_id, p_schedule_id, d.kind, coalesce(d.payload, '{}'), coalesce(d.priority, 0), d.cron,
           make_interval(secs => d.every), coalesce(d.timezone, 'UTC'), coalesce(d.missed, 'once'), coalesce(d.overlap, true),
           coalesce(d.enabled, true), p_next_at, p_now, p_now
    from jsonb_to_record(p_definition) d (kind text, payload jsonb, priority smallint, cron text, every double precision,
        timezone text, missed text, overlap boolean, enabled boolean)
    on conflict (workspace_id, schedule_id) do update
        set kind = excluded.kind, payload = excluded.payload, priority = excluded.priority, cron = excluded.cron,
            every = excluded.every, timezone = excluded.timezone, missed = excluded.missed, overlap = excluded.overlap,
            enabled = excluded.enabled, updated_at = excluded.updated_at,
            -- What passed while it was switched off was not missed.
            next_at = case when (s.cron, s.every, s.timezone, s.enabled)
                                is not distinct from (excluded.cron, excluded.every, excluded.timezone, excluded.enabled)
                           then s.next_at else excluded.next_at end
    returning s.next_at into next_at;
    return next_at;
end $$;

-- The shape that casts and checks would refuse without a word of help. What a job of it would be is asked like a job's.
create or replace function ops.schedule_problem(p_schedule_id text, p_definition jsonb) returns text
language sql stable as $$
    select case
        when coalesce(p_schedule_id, '') !~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$'
            then 'its id has 1 to 128 letters, digits and _ . : / -, and begins with a letter or a digit'
        when jsonb_typeof(p_definition) is distinct from 'object' then 'its definition is an object'
        when num_nonnulls(p_definition ->> 'cron', p_definition ->> 'every') <> 1 then 'it has either cron or every'
        when p_definition ->> 'every' is not null
             and (jsonb_typeof(p_definition -> 'every') <> 'number' or p_definition -> 'every' not between '1' and '316224000')
            then 'every is a number of seconds from 1 to ten years'
        when coalesce(p_definition ->> 'missed', 'once') not in ('skip', 'once', 'all') then 'missed is skip, once or all'
        when exists (select from (values ('overlap'), ('enabled')) f (name)
                     where jsonb_typeof(coalesce(p_definition -> f.name, 'null')) not in ('boolean', 'null'))
            then 'overlap and enabled are true or false'
        else ops.job_problem(jsonb_build_object('kind', p_definition -> 'kind', 'payload', p_definition -> 'payload',
                                                'priority', p_definition -> 'priority')) end
$$;

create or replace function ops.remove_schedule(p_workspace_id text, p_schedule_id text) returns boolean
language plpgsql as $$
begin
    delete from ops.schedules s where s.workspace_id = p_workspace_id and s.schedule_id = p_schedule_id;
    return found;
end $$;

-- Schedules of active workspaces whose tick has come, the longest waiting first, with the moment of asking. No locks. Those that
-- cannot fire stay due, so what comes after the last one of a page is asked for by its place.
create or replace function ops.due_schedules(
    p_limit integer default 1000, p_now timestamptz default now(), p_after_at timestamptz default '-infinity',
    p_after_workspace_id text default '', p_after_schedule_id text default '')
returns table (workspace_id text, schedule_id text, cron text, every interval, timezone text, missed text,
               next_at timestamptz, asked_at timestamptz)
language sql stable as $$
    select s.workspace_id, s.schedule_id, s.cron, s.every, s.timezone, s.missed, s.next_at, p_now
    from ops.schedules s
    where s.enabled and s.next_at <= p_now
      and (s.next_at, s.workspace_id, s.schedule_id) > (p_after_at, p_after_workspace_id, p_after_schedule_id)
      and (s.workspace_id = '*' or exists (
          select from core.workspaces w where w.workspace_id = s.workspace_id and w.status = 'active'))
    order by s.next_at, s.workspace_id, s.schedule_id
    limit p_limit
$$;

-- Fire: move the schedule from the tick that the caller saw to the next one, and enqueue a job for each of p_ticks (none,
-- when all were missed and may be). Of many who saw the same tick one moves it; for the others this returns null.
create or replace function ops.fire_schedule(
    p_workspace_id text, p_schedule_id text, p_expected_next_at timestamptz, p_new_next_at timestamptz,
    p_ticks timestamptz[], p_now timestamptz default now())
returns integer
language plpgsql as $$
declare
    schedule ops.schedules;
    due jsonb;
begin
    if not coalesce(p_new_next_at > p_expected_next_at, false) then
        raise exception 'schedule %: the next tick lies after this one', p_schedule_id using errcode = 'VM001';
    end if;
    update ops.schedules s
    set next_at = p_new_next_at, last_at = coalesce(p_ticks[cardinality(p_ticks)], s.last_at), updated_at = p_now
    where s.workspace_id = p_workspace_id and s.schedule_id = p_schedule_id and s.enabled and s.next_at = p_expected_next_at
    returning * into schedule;
    if not found then
        return null;
    end if;
    select jsonb_agg(jsonb_build_object(
        'kind', schedule.kind, 'payload', schedule.payload, 'priority', schedule.priority, 'schedule_id', schedule.schedule_id,
        'tick', t, 'unique_key', 'schedule:' || schedule.schedule_id || case when schedule.overlap then '@' || extract(epoch from t) else '' end))
    into due from unnest(p_ticks) t;
    return (select count(*) from ops.enqueue_jobs(p_workspace_id, coalesce(due, '[]'), p_now) e where e.is_new);
end $$;
