-- Work that is done aside: what waits, what ran, what went wrong, and what comes round by the clock.
-- A job of the service itself has workspace '*', which is no row of core.workspaces: hence no foreign key to it here.

create schema ops;

-- What never or seldom changes comes first: an update logs only what follows the first byte that differs. What enqueue_jobs
-- refuses is not checked again here, for a check is made at every move of a row: it cost a seventh of the drain.
create table ops.jobs (
    workspace_id        text        not null,
    job_id              uuid        not null,
    kind                text        not null,
    unique_key          text,
    payload             jsonb       not null default '{}',
    schedule_id         text,
    tick                timestamptz,
    trace_id            text,
    created_at          timestamptz not null default now(),
    priority            smallint    not null default 0,
    max_attempts        smallint,
    run_at              timestamptz not null default now(),
    status              text        not null default 'waiting' check (status in
                            ('waiting', 'running', 'retry', 'done', 'dead', 'cancelled')),
    attempt             integer     not null default 0,
    lease               integer     not null default 0,
    worker              text,
    started_at          timestamptz,
    lease_until         timestamptz,
    cancel_requested_at timestamptz,
    finished_at         timestamptz,
    progress            jsonb,
    last_error          jsonb,
    primary key (workspace_id, job_id)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

-- A line is what waits of one kind at one priority; a claim hops from line to line, past whatever is not due yet.
create index jobs_waiting on ops.jobs (workspace_id, kind, priority desc, run_at, job_id)
    where status in ('waiting', 'retry');
create index jobs_running on ops.jobs (workspace_id, kind) where status = 'running';
create unique index jobs_unfinished_key on ops.jobs (workspace_id, kind, unique_key)
    where unique_key is not null and status in ('waiting', 'retry', 'running');
create index jobs_dead on ops.jobs (workspace_id, job_id) where status = 'dead';

-- One row per run, written when it ends. A lease is a job's own count of its runs.
create table ops.job_runs (
    workspace_id text        not null,
    job_id       uuid        not null,
    lease        integer     not null,
    kind         text        not null,
    attempt      integer     not null,
    worker       text,
    started_at   timestamptz not null,
    finished_at  timestamptz not null,
    outcome      text        not null check (outcome in
                     ('done', 'retry', 'dead', 'snoozed', 'released', 'lost', 'cancelled')),
    error        jsonb,
    stats        jsonb,
    primary key (workspace_id, job_id, lease)
);

-- How a workspace runs a kind: what the code declares of it, and whether somebody paused it. The row is the lock under
-- which the places of a kind with a limit are counted.
create table ops.job_kinds (
    workspace_id   text             not null,
    kind           text             not null,
    concurrency    integer          check (concurrency > 0),
    max_attempts   smallint         not null default 5 check (max_attempts > 0),
    backoff_base   interval         not null default '2 seconds' check (backoff_base >= '0 seconds'),
    backoff_factor double precision not null default 2 check (backoff_factor between 1 and 100),
    backoff_max    interval         not null default '10 minutes' check (backoff_max >= '0 seconds'),
    backoff_jitter double precision not null default 0.2 check (backoff_jitter between 0 and 1),
    paused_at      timestamptz,
    updated_at     timestamptz      not null default now(),
    primary key (workspace_id, kind)
) with (fillfactor = 50);

create table ops.schedules (
    workspace_id text        not null,
    schedule_id  text        not null check (schedule_id ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$'),
    kind         text        not null check (kind ~ '^[a-z][a-z0-9_.]{0,63}$'),
    payload      jsonb       not null default '{}' check (jsonb_typeof(payload) = 'object'),
    priority     smallint    not null default 0 check (priority between -100 and 100),
    cron         text,
    every        interval    check (every between '1 second' and '3650 days'),
    timezone     text        not null default 'UTC',
    missed       text        not null default 'once' check (missed in ('skip', 'once', 'all')),
    overlap      boolean     not null default true,
    enabled      boolean     not null default true,
    next_at      timestamptz not null,
    last_at      timestamptz,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    primary key (workspace_id, schedule_id),
    check (num_nonnulls(cron, every) = 1)
) with (fillfactor = 50);

create table ops.errors (
    workspace_id text        not null,
    error_id     uuid        not null,
    ts           timestamptz not null default now(),
    workflow     text,
    node         text,
    op           text,
    job_id       uuid,
    trace_id     text,
    status_code  integer     not null default 500,
    kind         text        not null default 'unknown' check (kind in ('db', 'upstream', 'auth', 'rate_limit', 'unknown')),
    retryable    boolean     not null default false,
    message      text        not null,
    details      text,
    primary key (workspace_id, error_id)
);
