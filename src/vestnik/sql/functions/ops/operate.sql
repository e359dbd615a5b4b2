-- What people do with jobs and kinds, and what the code says of a kind.

-- How a workspace runs a kind; its row is made with the defaults when it is first asked for.
create or replace function ops.kind_of(p_workspace_id text, p_kind text) returns ops.job_kinds
language plpgsql as $$
declare
    found_kind ops.job_kinds;
begin
    select * into found_kind from ops.job_kinds k where k.workspace_id = p_workspace_id and k.kind = p_kind;
    if not found then
        insert into ops.job_kinds (workspace_id, kind) values (p_workspace_id, p_kind) on conflict do nothing;
        select * into found_kind from ops.job_kinds k where k.workspace_id = p_workspace_id and k.kind = p_kind;
    end if;
    return found_kind;
end $$;

-- What the code says of its kinds: [{kind, concurrency, max_attempts, backoff_base, backoff_factor, backoff_max,
-- backoff_jitter}], seconds as numbers. A runner calls it when it first meets a workspace. What is as it was is not written.
create or replace function ops.declare_kinds(p_workspace_id text, p_kinds jsonb, p_now timestamptz default now()) returns void
language sql volatile as $$
    insert into ops.job_kinds as k (workspace_id, kind, concurrency, max_attempts, backoff_base, backoff_factor, backoff_max,
                                    backoff_jitter, updated_at)
    select p_workspace_id, d.kind, d.concurrency, d.max_attempts, make_interval(secs => d.backoff_base), d.backoff_factor,
           make_interval(secs => d.backoff_max), d.backoff_jitter, p_now
    from jsonb_to_recordset(p_kinds) d (kind text, concurrency integer, max_attempts smallint, backoff_base double precision,
        backoff_factor double precision, backoff_max double precision, backoff_jitter double precision)
    order by d.kind
    on conflict (workspace_id, kind) do update
        set concurrency = excluded.concurrency, max_attempts = excluded.max_attempts, backoff_base = excluded.backoff_base,
            backoff_factor = excluded.backoff_factor, backoff_max = excluded.backoff_max,
            backoff_jitter = excluded.backoff_jitter, updated_at = excluded.updated_at
        where (k.concurrency, k.max_attempts, k.backoff_base, k.backoff_factor, k.backoff_max, k.backoff_jitter)
            is distinct from (excluded.concurrency, excluded.max_attempts, excluded.backoff_base, excluded.backoff_factor,
                              excluded.backoff_max, excluded.backoff_jitter)
$$;

-- Nothing of a paused kind begins any more; what runs may finish. Both say whether that was new.
create or replace function ops.pause_kind(p_workspace_id text, p_kind text, p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    perform ops.must_be_kind(p_workspace_id, p_kind);
    perform ops.kind_of(p_workspace_id, p_kind);
    update ops.job_kinds k set paused_at = p_now, updated_at = p_now
    where k.workspace_id = p_workspace_id and k.kind = p_kind and k.paused_at is null;
    return found;
end $$;

create or replace function ops.resume_kind(p_workspace_id text, p_kind text, p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    perform ops.must_be_kind(p_workspace_id, p_kind);
    update ops.job_kinds k set paused_at = null, updated_at = p_now
    where k.workspace_id = p_workspace_id and k.kind = p_kind and k.paused_at is not null;
    return found;
end $$;

-- A misspelt name would pause nothing, and say that it did.
create or replace function ops.must_be_kind(p_workspace_id text, p_kind text) returns void
language plpgsql as $$
begin
    perform ops.must_be_workspace(p_workspace_id);
    if not exists (select from ops.job_kinds k where k.workspace_id = p_workspace_id and k.kind = p_kind)
       and not exists (select from ops.schedules s where s.workspace_id = p_workspace_id and s.kind = p_kind)
       and not exists (select from ops.jobs j where j.workspace_id = p_workspace_id and j.kind = p_kind) then
        raise exception 'no job of the kind % was ever seen in workspace %', p_kind, p_workspace_id using errcode = 'VN001';
    end if;
end $$;

-- A job that has ended badly, or was cancelled, goes again: at once, and with one more try if it had used them up.
create or replace function ops.retry_job(p_workspace_id text, p_job_id uuid, p_now timestamptz default now()) returns void
language plpgsql as $$
declare
    job constant ops.jobs := ops.locked_job(p_workspace_id, p_job_id);
    rules constant ops.job_kinds := ops.kind_of(p_workspace_id, job.kind);
begin
    if job.status not in ('dead', 'cancelled') then
        raise exception 'job % is %: only a dead or cancelled one can be retried', p_job_id, job.status using errcode = 'VM001';
    end if;
    update ops.jobs j
    set status = case when j.attempt > 0 then 'retry' else 'waiting' end, run_at = p_now, finished_at = null,
        max_attempts = case when j.attempt >= coalesce(j.max_attempts, rules.max_attempts) then j.attempt + 1 else j.max_attempts end
    where j.workspace_id = p_workspace_id and j.job_id = p_job_id;
exception when unique_violation then
    raise exception 'job % stays as it is: another one with its unique key is not finished', p_job_id using errcode = 'VM001';
end $$;

-- One that waits is cancelled at once; of one that runs its runner is told at its next heartbeat. Returns the status.
create or replace function ops.cancel_job(p_workspace_id text, p_job_id uuid, p_now timestamptz default now()) returns text
language plpgsql as $$
declare
    job constant ops.jobs := ops.locked_job(p_workspace_id, p_job_id);
begin
    if job.status = 'running' then
        update ops.jobs j set cancel_requested_at = coalesce(j.cancel_requested_at, p_now)
        where j.workspace_id = p_workspace_id and j.job_id = p_job_id;
    elsif job.status in ('waiting', 'retry') then
        update ops.jobs j set status = 'cancelled', finished_at = p_now
        where j.workspace_id = p_workspace_id and j.job_id = p_job_id;
        return 'cancelled';
    elsif job.status <> 'cancelled' then
        raise exception 'job % is %: there is nothing to cancel', p_job_id, job.status using errcode = 'VM001';
    end if;
    return job.status;
end $$;

create or replace function ops.run_job_now(p_workspace_id text, p_job_id uuid, p_now timestamptz default now()) returns void
language plpgsql as $$
declare
    job constant ops.jobs := ops.locked_job(p_workspace_id, p_job_id);
begin
    if job.status not in ('waiting', 'retry') then
        raise exception 'job % is %: only one that waits can be run now', p_job_id, job.status using errcode = 'VM001';
    end if;
    update ops.jobs j set run_at = p_now where j.workspace_id = p_workspace_id and j.job_id = p_job_id and j.run_at > p_now;
end $$;

create or replace function ops.locked_job(p_workspace_id text, p_job_id uuid) returns ops.jobs
language plpgsql as $$
declare
    job ops.jobs;
begin
    select * into job from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = p_job_id for no key update;
    if not found then
        raise exception 'no job % in workspace %', p_job_id, p_workspace_id using errcode = 'VN001';
    end if;
    return job;
end $$;

-- Forget what is long over, with its runs: the dead are kept four times as long. Jobs are found by the time in their ids, so
-- it costs no index. Returns how many are gone.
create or replace function ops.prune_jobs(
    p_workspace_id text, p_keep interval default '14 days', p_limit integer default 1000, p_now timestamptz default now())
returns integer
language sql volatile as $$
    with old as (
        select j.job_id from ops.jobs j
        where j.workspace_id = p_workspace_id and j.job_id < ops.first_id(p_now - p_keep)
          and j.finished_at < p_now - p_keep * case j.status when 'dead' then 4 else 1 end
        order by j.job_id limit p_limit
        for no key update skip locked
    ), runs as (
        delete from ops.job_runs r using old where r.workspace_id = p_workspace_id and r.job_id = old.job_id
    ), errors as (
        delete from ops.errors e where e.workspace_id = p_workspace_id and e.error_id < ops.first_id(p_now - p_keep * 4)
    ), gone as (
        delete from ops.jobs j using old where j.workspace_id = p_workspace_id and j.job_id = old.job_id returning 1
    )
    select count(*)::integer from gone
$$;

-- The lowest time-ordered id of a moment.
create or replace function ops.first_id(p_ts timestamptz) returns uuid
language sql immutable strict parallel safe as $$
    select rpad(lpad(to_hex((extract(epoch from p_ts) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;
