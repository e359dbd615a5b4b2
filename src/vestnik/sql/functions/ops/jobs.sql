-- Jobs from their enqueue to the row of a finished run. Whoever calls these functions, the runner, another SQL function or
-- psql, gets the same guarantees.
-- Lock order: job_kinds by kind, then jobs. All are NO KEY UPDATE.

-- Many at once: [{kind, payload?, unique_key?, run_at?, priority?, max_attempts?, trace_id?, schedule_id?, tick?}], for other
-- functions' transactions too. One answer per item, in their order. Of one key only one job is unfinished at a time; who
-- asks for another gets that one. Nothing is woken here: that is the caller's statement (pg_notify 'vestnik_jobs').
create or replace function ops.enqueue_jobs(p_workspace_id text, p_jobs jsonb, p_now timestamptz default now())
returns table (item integer, job_id uuid, is_new boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    ids uuid[] := '{}';
    fresh integer[] := '{}';
    more record;
begin
    perform ops.refuse_wrong_jobs(p_workspace_id, p_jobs);
    for attempt in 1 .. 100 loop
        select x.ids, x.fresh into more from ops.insert_jobs(p_workspace_id, p_jobs, ids, p_now) x;
        ids := more.ids;
        fresh := fresh || more.fresh;
        -- One that was in the way may have finished between two statements: then its key is free again.
        exit when array_position(ids, null) is null;
    end loop;
    if array_position(ids, null) is not null then
        raise exception 'the unique keys are taken and given back too fast' using errcode = '40001';
    end if;
    return query select n::integer, ids[n], n = any (fresh) from generate_series(1, jsonb_array_length(p_jobs)) n;
end $$;

-- The shape that casts and checks would refuse without a word of help.
create or replace function ops.refuse_wrong_jobs(p_workspace_id text, p_jobs jsonb) returns void
language plpgsql as $$
declare
    problems jsonb;
begin
    perform ops.must_be_workspace(p_workspace_id);
    if jsonb_typeof(p_jobs) is distinct from 'array' then
        raise exception 'jobs come as an array' using errcode = 'VP001';
    end if;
    select jsonb_agg(format('job %s: %s', x.n, x.problem) order by x.n) into problems
    from (select j.n, ops.job_problem(j.job) as problem from jsonb_array_elements(p_jobs) with ordinality j (job, n)) x
    where x.problem is not null;
    if problems is not null then
        raise exception 'a job is not right' using errcode = 'VP001', detail = problems::text;
    end if;
end $$;

create or replace function ops.must_be_workspace(p_workspace_id text) returns void
language plpgsql as $$
begin
    if p_workspace_id is distinct from '*' and not exists (
        select from core.workspaces w where w.workspace_id = p_workspace_id) then
        raise exception 'no workspace %', p_workspace_id using errcode = 'VN001';
    end if;
end $$;

-- A payload names what its job is about. What is large lies elsewhere, or every move of the row would carry it along.
create or replace function ops.job_problem(p_job jsonb) returns text
language sql stable as $$
    select case
        when jsonb_typeof(p_job) <> 'object' then 'a job is an object'
        when coalesce(p_job ->> 'kind', '') !~ '^[a-z][a-z0-9_.]{0,63}$'
            then 'kind is a word of small letters, digits, dots and underscores'
        when coalesce(jsonb_typeof(p_job -> 'payload'), 'null') not in ('object', 'null') then 'payload is an object'
        when pg_column_size(p_job -> 'payload') > 262144 then 'payload is larger than 256 KiB'
        when not ops.is_moment(p_job -> 'run_at') then 'run_at is a moment, like 2027-03-01T09:00:00Z'
        when not ops.is_moment(p_job -> 'tick') then 'tick is a moment, like 2027-03-01T09:00:00Z'
        when length(p_job ->> 'unique_key') not between 1 and 200 then 'unique_key has 1 to 200 letters'
        when length(p_job ->> 'trace_id') > 100 then 'trace_id has at most 100 letters'
        when jsonb_typeof(coalesce(p_job -> 'priority', 'null')) not in ('number', 'null')
             or (p_job ->> 'priority') !~ '^(-?\d{1,2}|-?100)$' then 'priority is a whole number from -100 to 100'
        when jsonb_typeof(coalesce(p_job -> 'max_attempts', 'null')) not in ('number', 'null')
             or (p_job ->> 'max_attempts') !~ '^[1-9]\d{0,3}$' then 'max_attempts is a whole number from 1 to 9999'
    end
$$;

-- One that every client can read: neither infinite nor before or after the years that clients know.
create or replace function ops.is_moment(p_value jsonb) returns boolean
language sql stable as $$
    select case
        when coalesce(jsonb_typeof(p_value), 'null') = 'null' then true
        when jsonb_typeof(p_value) <> 'string' or not pg_input_is_valid(p_value #>> '{}', 'timestamptz') then false
        else (p_value #>> '{}')::timestamptz between '1970-01-01Z' and '9999-01-01Z' end
$$;

-- Inserts what has no id in p_ids yet, or finds who holds its key. Keys are taken in one order, so that two crossing batches
-- wait for each other and do not lock each other out; and two statements, because the holder of a key may be one whose
-- commit this insert has waited for (engine rule: an upsert and the look after it).
create or replace function ops.insert_jobs(
    p_workspace_id text, p_jobs jsonb, p_ids uuid[], p_now timestamptz, out ids uuid[], out fresh integer[])
language plpgsql as $$
begin
    with base as materialized (
        select core.uuid7(p_now) as id
    ), given as materialized (
        select g.item, core.nth_uuid(base.id, g.item) as job_id, j.*
        from base, jsonb_array_elements(p_jobs) with ordinality g (job, item), jsonb_to_record(g.job) j
            (kind text, payload jsonb, unique_key text, run_at timestamptz, priority smallint, max_attempts smallint,
             trace_id text, schedule_id text, tick timestamptz)
        where p_ids[g.item] is null
    ), inserted as (
        insert into ops.jobs (workspace_id, job_id, kind, unique_key, payload, schedule_id, tick, trace_id, created_at,
                              priority, max_attempts, run_at)
        select p_workspace_id, g.job_id, g.kind, g.unique_key, coalesce(g.payload, '{}'), g.schedule_id, g.tick, g.trace_id,
               p_now, coalesce(g.priority, 0), g.max_attempts, coalesce(g.run_at, p_now)
        from given g order by g.kind, g.unique_key, g.item
        on conflict (workspace_id, kind, unique_key) where unique_key is not null and status in ('waiting', 'retry', 'running')
        do nothing
        returning job_id
    )
    select array_agg(coalesce(p_ids[n], i.job_id) order by n), array_agg(g.item::integer) filter (where i.job_id is not null)
    into ids, fresh
    from generate_series(1, jsonb_array_length(p_jobs)) n
    left join given g on g.item = n
    left join inserted i on i.job_id = g.job_id;
    if array_position(ids, null) is null then
        return;
    end if;

    select array_agg(coalesce(ids[g.item], holder.job_id) order by g.item) into ids
    from jsonb_array_elements(p_jobs) with ordinality g (job, item)
    left join ops.jobs holder on ids[g.item] is null and holder.workspace_id = p_workspace_id
        and holder.kind = g.job ->> 'kind' and holder.unique_key = g.job ->> 'unique_key'
        and holder.status in ('waiting', 'retry', 'running');
end $$;

create or replace function ops.enqueue_job(
    p_workspace_id text, p_kind text, p_payload jsonb default '{}', p_unique_key text default null,
    p_run_at timestamptz default null, p_priority integer default 0, p_max_attempts integer default null,
    p_now timestamptz default now())
returns table (job_id uuid, is_new boolean)
language sql volatile as $$
    select e.job_id, e.is_new
    from ops.enqueue_jobs(p_workspace_id, jsonb_build_array(jsonb_build_object(
        'kind', p_kind, 'payload', p_payload, 'unique_key', p_unique_key, 'run_at', p_run_at, 'priority', p_priority,
        'max_attempts', p_max_attempts)), p_now) e
$$;

-- Each kind's lines among p_kinds, paused kinds left out, found by hopping: a line with 100,000 jobs costs one hop.
create or replace function ops.job_lines(p_workspace_id text, p_kinds text[]) returns table (kind text, priority smallint)
language sql stable as $$
    with recursive hop as (
        select k.kind, (select j.priority from ops.jobs j
                        where j.workspace_id = p_workspace_id and j.kind = k.kind and j.status in ('waiting', 'retry')
                        order by j.priority desc limit 1) as priority
        from unnest(p_kinds) k (kind)
        where not exists (select from ops.job_kinds x where x.workspace_id = p_workspace_id and x.kind = k.kind
                          and x.paused_at is not null)
        union all
        select h.kind, (select j.priority from ops.jobs j
                        where j.workspace_id = p_workspace_id and j.kind = h.kind and j.status in ('waiting', 'retry')
                          and j.priority < h.priority
                        order by j.priority desc limit 1)
        from hop h where h.priority is not null
    )
    select h.kind, h.priority from hop h where h.priority is not null
$$;

-- Active workspaces where a job of these kinds is due, the service's own ('*') among them, beginning after p_after. Asked
-- without a lock.
create or replace function ops.workspaces_with_jobs(
    p_kinds text[], p_after text default '', p_limit integer default 1000, p_now timestamptz default now())
returns setof text
language sql stable as $$
    select w.workspace_id
    from (select c.workspace_id from core.workspaces c where c.status = 'active' union all select '*') w
    where exists (
        select from ops.job_lines(w.workspace_id, p_kinds) l,
        lateral (select from ops.jobs j where j.workspace_id = w.workspace_id and j.kind = l.kind and j.priority = l.priority
                 and j.status in ('waiting', 'retry') and j.run_at <= p_now order by j.run_at limit 1) due)
    order by w.workspace_id <= p_after, w.workspace_id
    limit p_limit
$$;

-- Take what is due: higher priorities first, then by run_at, then by id. Each job gets a new lease and one more attempt.
-- The limit of a kind holds over all runners of a workspace: who counts its places holds its row, and has waited for who
-- counted before. A job whose lease is lost gives its place back when the sweep finds it, whatever its old runner still does.
-- Without p_now the time is taken under the locks.
create or replace function ops.claim_jobs(
    p_workspace_id text, p_worker text, p_kinds text[], p_limit integer default 100,
    p_lease interval default '60 seconds', p_now timestamptz default null)
returns table (job_id uuid, lease integer, kind text, attempt integer, payload jsonb, tick timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
    locked text[];
    kinds text[];
    room integer[];
    chosen uuid[];
    started timestamptz;
begin
    if p_workspace_id <> '*' and not exists (
        select from core.workspaces w where w.workspace_id = p_workspace_id and w.status = 'active') then
        return;
    end if;
    locked := array(
        select k.kind from ops.job_kinds k
        where k.workspace_id = p_workspace_id and k.kind = any (p_kinds) and k.concurrency is not null
          and exists (select from ops.jobs j where j.workspace_id = k.workspace_id and j.kind = k.kind and j.status in ('waiting', 'retry'))
        order by k.kind for no key update);
    started := coalesce(p_now, clock_timestamp());

    select array_agg(r.kind), array_agg(r.room) into kinds, room
    from ops.free_places(p_workspace_id, p_kinds, locked, p_limit) r where r.room > 0;
    chosen := ops.due_jobs(p_workspace_id, kinds, room, p_limit, started);
    return query
    update ops.jobs j
    set status = 'running', attempt = j.attempt + 1, lease = j.lease + 1, worker = p_worker, started_at = started,
        lease_until = started + p_lease, progress = null
    where j.workspace_id = p_workspace_id and j.job_id = any (chosen) and j.status || '' in ('waiting', 'retry')
    returning j.job_id, j.lease, j.kind, j.attempt, j.payload, j.tick;
end $$;

-- How many jobs of each kind may begin. Places are counted of what the caller has locked; another kind with a limit had
-- nothing to do a moment ago, and if it has by now, so it has at the next claim.
create or replace function ops.free_places(p_workspace_id text, p_kinds text[], p_locked text[], p_limit integer)
returns table (kind text, room integer)
language sql stable as $$
    select w.kind, case when k.concurrency is null then p_limit when w.kind <> all (p_locked) then 0 else least(p_limit, k.concurrency - (
        select count(*) from ops.jobs j
        where j.workspace_id = p_workspace_id and j.kind = w.kind and j.status = 'running'))::integer end
    from unnest(p_kinds) w (kind)
    left join ops.job_kinds k on k.workspace_id = p_workspace_id and k.kind = w.kind
$$;

-- "status || ''" keeps the planner off the partial indexes on status wherever a row is found by its id: what the statistics
-- say of a status that rows pass through in milliseconds is always wrong.
create or replace function ops.due_jobs(
    p_workspace_id text, p_kinds text[], p_room integer[], p_limit integer, p_now timestamptz) returns uuid[]
language sql volatile as $$
    with due as (
        select x.job_id, l.kind, l.priority, x.run_at, k.room,
               row_number() over (partition by l.kind order by l.priority desc, x.run_at, x.job_id) as place
        from ops.job_lines(p_workspace_id, p_kinds) l
        join unnest(p_kinds, p_room) k (kind, room) on k.kind = l.kind,
        lateral (select j.job_id, j.run_at from ops.jobs j
                 where j.workspace_id = p_workspace_id and j.kind = l.kind and j.priority = l.priority
                   and j.status in ('waiting', 'retry') and j.run_at <= p_now
                 order by j.run_at, j.job_id limit k.room
                 for no key update skip locked) x
    )
    select array(select d.job_id from due d where d.place <= d.room
                 order by d.priority desc, d.run_at, d.job_id limit p_limit)
$$;

-- Signs of life: [{job_id, lease, progress?}]. Returns those that their runner must let go: 'lost' to a sweep or to a newer
-- run, or 'cancelled' by somebody (which stays the runner's until it says that it has ended). They wait for nobody: what
-- somebody else has in hand at this moment is left to the next beat.
create or replace function ops.heartbeat_jobs(
    p_workspace_id text, p_beats jsonb, p_lease interval default '60 seconds', p_now timestamptz default now())
returns table (job_id uuid, lease integer, state text)
language sql volatile as $$
    with given as materialized (
        select * from jsonb_to_recordset(p_beats) b (job_id uuid, lease integer, progress jsonb)
    ), held as (
        select j.job_id, j.lease from ops.jobs j
        where j.workspace_id = p_workspace_id and j.job_id in (select g.job_id from given g) and j.status || '' = 'running'
        for no key update skip locked
    ), alive as (
        update ops.jobs j
        set lease_until = greatest(j.lease_until, p_now + p_lease), progress = coalesce(g.progress, j.progress)
        from given g join held h on h.job_id = g.job_id and h.lease = g.lease
        where j.workspace_id = p_workspace_id and j.job_id = g.job_id
    )
    select g.job_id, g.lease, case when j.cancel_requested_at is null then 'lost' else 'cancelled' end
    from given g
    left join ops.jobs j on j.workspace_id = p_workspace_id and j.job_id = g.job_id and j.lease = g.lease
        and j.status || '' = 'running'
    where j.job_id is null or j.cancel_requested_at is not null
$$;

-- The newest job of a key, finished or not: for a rare question, so no index serves it.
create or replace function ops.latest_job(p_workspace_id text, p_kind text, p_unique_key text)
returns table (job_id uuid, status text, last_error jsonb)
language sql stable as $$
    select j.job_id, j.status, j.last_error from ops.jobs j
    where j.workspace_id = p_workspace_id and j.kind = p_kind and j.unique_key = p_unique_key
    order by j.job_id desc limit 1
$$;
