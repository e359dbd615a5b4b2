-- Settle: what a run came to becomes the state of its job and a row of job_runs, in one transaction. A result counts when
-- its lease is the job's newest; anything older changes nothing.

-- Many results at once: [{job_id, lease, outcome, stats?, error?, after?}]. outcome: 'done', 'retry' (after: seconds,
-- instead of the kind's backoff), 'failed' (for good), 'snoozed' (after: seconds; no attempt is counted), 'released' (the
-- runner stops; none either), 'cancelled'. Nearly all are the success of a job that still runs: one update for those.
create or replace function ops.settle_jobs(p_workspace_id text, p_results jsonb, p_now timestamptz default now())
returns table (job_id uuid, outcome text)
language plpgsql as $$
#variable_conflict use_column
declare
    settled uuid[] := ops.settle_done(p_workspace_id, p_results, p_now);
begin
    return query select unnest(settled), 'done';
    if cardinality(settled) = jsonb_array_length(p_results) then
        return;
    end if;
    return query
    select r.job_id, ops.settle_other(p_workspace_id, r.job_id, r.lease, r.outcome, r.stats, r.error, r.after, p_now)
    from (select x.* from jsonb_to_recordset(p_results) x
              (job_id uuid, lease integer, outcome text, stats jsonb, error jsonb, after double precision)
          where x.job_id <> all (settled) or x.lease < (
              select j.lease from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = x.job_id)
          order by x.job_id, x.lease) r
    where exists (select from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = r.job_id);
end $$;

-- In the order of the ids, so that two batches which name the same jobs wait for each other.
create or replace function ops.settle_done(p_workspace_id text, p_results jsonb, p_now timestamptz) returns uuid[]
language sql volatile as $$
    with settled as (
        update ops.jobs j
        set status = 'done', finished_at = p_now, lease_until = null, cancel_requested_at = null, last_error = null
        from (select x.* from jsonb_to_recordset(p_results) x (job_id uuid, lease integer, outcome text, stats jsonb)
              order by x.job_id) r
        where r.outcome = 'done' and j.workspace_id = p_workspace_id and j.job_id = r.job_id
          and j.status || '' = 'running' and j.lease = r.lease
        returning j.job_id, j.lease, j.kind, j.attempt, j.worker, j.started_at, r.stats
    ), noted as (
        insert into ops.job_runs (workspace_id, job_id, lease, kind, attempt, worker, started_at, finished_at, outcome, stats)
        select p_workspace_id, s.job_id, s.lease, s.kind, s.attempt, s.worker, s.started_at, p_now, 'done', s.stats
        from settled s
    )
    select coalesce(array_agg(s.job_id), '{}') from settled s
$$;

-- One result that is not the plain success of a running job.
create or replace function ops.settle_other(
    p_workspace_id text, p_job_id uuid, p_lease integer, p_outcome text, p_stats jsonb, p_error jsonb,
    p_after double precision, p_now timestamptz) returns text
language plpgsql as $$
declare
    job ops.jobs;
    known text;
    rules ops.job_kinds;
    fate text;
    chance constant double precision := random();
    pause interval;
begin
    if p_outcome is null or p_outcome not in ('done', 'retry', 'failed', 'snoozed', 'released', 'cancelled') then
        raise exception 'a run does not come to "%"', p_outcome using errcode = 'VM001';
    end if;
    select * into job from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = p_job_id for no key update;
    select r.outcome into known from ops.job_runs r
    where r.workspace_id = p_workspace_id and r.job_id = p_job_id and r.lease = p_lease;
    -- The sweep took the job back, then the success arrives after all and nobody has begun anew: to do it again would be
    -- knowing double work.
    if not coalesce(job.lease = p_lease and (job.status = 'running' or (known = 'lost' and p_outcome = 'done'
                                                                        and job.status in ('waiting', 'retry'))), false) then
        return case when known = 'dead' and p_outcome in ('failed', 'retry') or known = p_outcome then 'repeat' else 'late' end;
    end if;

    rules := ops.kind_of(p_workspace_id, job.kind);
    fate := ops.fate_of(job, rules, p_outcome);
    pause := case when fate = 'retry' and p_after is null then ops.backoff(rules, job.attempt, chance)
                  else make_interval(secs => least(greatest(coalesce(p_after, 0), 0), 3155760000)) end;
    perform ops.end_run(job, fate, pause, p_error, p_stats, p_now);
    return fate;
end $$;

-- What becomes of a run: its outcome, unless somebody wanted the job cancelled, or it was the last try.
create or replace function ops.fate_of(p_job ops.jobs, p_rules ops.job_kinds, p_outcome text) returns text
language sql immutable as $$
    select case
        when p_outcome = 'done' then 'done'
        when p_outcome = 'failed' then 'dead'
        when p_outcome = 'cancelled' or p_job.cancel_requested_at is not null then 'cancelled'
        when p_outcome = 'retry' and p_job.attempt >= coalesce(p_job.max_attempts, p_rules.max_attempts) then 'dead'
        else p_outcome end
$$;

-- How long to wait before the next try. p_chance is a random number of the caller's.
create or replace function ops.backoff(p_rules ops.job_kinds, p_attempt integer, p_chance double precision) returns interval
language sql immutable as $$
    select (1 + p_rules.backoff_jitter * p_chance) * make_interval(secs => least(
        extract(epoch from p_rules.backoff_max)::double precision,
        extract(epoch from p_rules.backoff_base)::double precision * power(p_rules.backoff_factor, least(p_attempt, 100) - 1)))
$$;

-- p_job is locked by the caller. A dead letter is told of in ops.errors.
create or replace function ops.end_run(
    p_job ops.jobs, p_fate text, p_pause interval, p_error jsonb, p_stats jsonb, p_now timestamptz) returns void
language plpgsql as $$
declare
    error constant jsonb := ops.normal_error(p_error);
    counted constant integer := p_job.attempt - (p_fate in ('snoozed', 'released'))::integer;
begin
    update ops.jobs j
    set status = case when p_fate in ('done', 'dead', 'cancelled') then p_fate when counted > 0 then 'retry' else 'waiting' end,
        attempt = counted,
        run_at = case when p_fate in ('done', 'dead', 'cancelled') then j.run_at else p_now + p_pause end,
        finished_at = case when p_fate in ('done', 'dead', 'cancelled') then p_now end,
        lease_until = null, cancel_requested_at = null, last_error = case when p_fate <> 'done' then coalesce(error, j.last_error) end
    where j.workspace_id = p_job.workspace_id and j.job_id = p_job.job_id;

    insert into ops.job_runs as r (workspace_id, job_id, lease, kind, attempt, worker, started_at, finished_at, outcome, error, stats)
    values (p_job.workspace_id, p_job.job_id, p_job.lease, p_job.kind, p_job.attempt, p_job.worker, p_job.started_at, p_now,
            p_fate, error, p_stats)
    on conflict (workspace_id, job_id, lease) do update
        set outcome = excluded.outcome, finished_at = excluded.finished_at, error = excluded.error, stats = excluded.stats;
    if p_fate = 'dead' then
        perform ops.note_dead(p_job, error, p_now);
    end if;
end $$;

create or replace function ops.note_dead(p_job ops.jobs, p_error jsonb, p_now timestamptz) returns void
language sql volatile as $$
    select ops.record_error(p_job.workspace_id,
        jsonb_build_object('workflow', p_job.kind, 'node', 'job', 'op', 'run', 'job_id', p_job.job_id, 'trace_id', p_job.trace_id),
        coalesce(p_error ->> 'message', 'the job failed'), null, p_error, p_now)
$$;

-- Jobs whose runner fell silent come back at once, or die when that was their last try. Bounded per call. A place in a kind
-- with a limit is free again, so this goes by no gate.
create or replace function ops.sweep_jobs(p_workspace_id text, p_limit integer default 500, p_now timestamptz default now())
returns integer
language plpgsql as $$
declare
    error constant jsonb := jsonb_build_object('type', 'LeaseLost', 'message', 'the runner fell silent: how far the job got is not known');
    swept integer;
    dead ops.jobs[];
begin
    with expired as materialized (
        select j as job, case
                   when j.cancel_requested_at is not null then 'cancelled'
                   when j.attempt >= coalesce(j.max_attempts, k.max_attempts, 5) then 'dead' else 'retry' end as fate
        from ops.jobs j
        left join ops.job_kinds k on k.workspace_id = j.workspace_id and k.kind = j.kind
        where j.workspace_id = p_workspace_id and j.status = 'running' and j.lease_until < p_now
        order by j.job_id limit p_limit
        for no key update of j skip locked
    ), moved as (
        update ops.jobs j
        set status = e.fate, run_at = case e.fate when 'retry' then p_now else j.run_at end, lease_until = null,
            cancel_requested_at = null, finished_at = case when e.fate <> 'retry' then p_now end, last_error = error
        from expired e
        where j.workspace_id = p_workspace_id and j.job_id = (e.job).job_id
    ), noted as (
        insert into ops.job_runs (workspace_id, job_id, lease, kind, attempt, worker, started_at, finished_at, outcome, error)
        select p_workspace_id, (e.job).job_id, (e.job).lease, (e.job).kind, (e.job).attempt, (e.job).worker,
               (e.job).started_at, p_now, 'lost', error
        from expired e
    )
    select count(*), array_agg(e.job) filter (where e.fate = 'dead') into swept, dead from expired e;
    perform ops.note_dead(d, error, p_now) from unnest(dead) d;
    return swept;
end $$;
