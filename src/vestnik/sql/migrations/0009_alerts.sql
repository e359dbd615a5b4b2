-- What needs a person, who is told of it, and what is told to other programs. Workspace '*' is the service itself, which is no
-- row of core.workspaces: hence no foreign key to it here.

-- One row per trouble. episode: a trouble that comes back after it was over for long is a new one. An acknowledgement holds
-- for its episode, as long as the trouble does not grow (acked_count).
create table ops.alerts (
    workspace_id   text        not null,
    alert          text        not null check (alert ~ '^[a-z][a-z0-9_.]{0,63}$'),
    subject        text        not null default '',
    severity       text        not null check (severity in ('warning', 'critical')),
    summary        text        not null,
    details        jsonb       not null default '{}',
    episode        integer     not null default 1,
    raises         integer     not null default 1,
    flaps          integer     not null default 1,
    raised_at      timestamptz not null,
    last_seen_at   timestamptz not null,
    cleared_at     timestamptz,
    acked_at       timestamptz,
    acked_by       text,
    acked_count    bigint,
    primary key (workspace_id, alert, subject)
);
create index alerts_on on ops.alerts (workspace_id, raised_at) where cleared_at is null;

-- Until when nobody is told of it; subject '' is any.
create table ops.alert_silences (
    workspace_id text        not null,
    alert        text        not null,
    subject      text        not null default '',
    until        timestamptz not null,
    actor        text        not null,
    reason       text        not null,
    created_at   timestamptz not null default now(),
    primary key (workspace_id, alert, subject)
);

create table ops.alert_policies (
    workspace_id             text        primary key,
    failed_permanent_max     integer     not null default 10 check (failed_permanent_max >= 0),
    failed_permanent_within  interval    not null default '10 minutes'
                                         check (failed_permanent_within between '1 second' and '30 days'),
    paused_channels_max      integer     not null default 3 check (paused_channels_max >= 0),
    waiting_longest          interval    not null default '10 minutes' check (waiting_longest between '1 second' and '365 days'),
    missed_intervals         integer     not null default 3 check (missed_intervals between 1 and 1000),
    oldest_xmin              interval    not null default '1 hour' check (oldest_xmin between '1 second' and '365 days'),
    disk_free_percent        double precision not null default 10 check (disk_free_percent between 0 and 100),
    repeat_every             interval    not null default '4 hours' check (repeat_every between '1 minute' and '365 days'),
    clear_after              interval    not null default '5 minutes' check (clear_after between '0' and '1 day'),
    updated_at               timestamptz not null default now()
);

-- Where alerts are told. credential_workspace: whose credential a target of the service uses.
create table ops.alert_targets (
    workspace_id         text        not null,
    target_id            text        not null check (target_id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
    kind                 text        not null check (kind in ('telegram', 'max', 'email', 'webhook')),
    address              text        not null check (address <> ''),
    auth_ref             text,
    credential_workspace text,
    language             text        not null default 'en' check (language in ('en', 'ru')),
    min_severity         text        not null default 'warning' check (min_severity in ('warning', 'critical')),
    alerts               text[],
    enabled              boolean     not null default true,
    created_at           timestamptz not null default now(),
    updated_at           timestamptz not null default now(),
    failures             integer     not null default 0,
    failing_since        timestamptz,
    next_try_at          timestamptz,
    last_error           jsonb,
    last_sent_at         timestamptz,
    lease                integer     not null default 0,
    lease_until          timestamptz,
    primary key (workspace_id, target_id),
    check (kind not in ('telegram', 'max') or auth_ref is not null)
);

-- What a target knows: the newest that it was told of each trouble. What it does not know yet is the difference to
-- ops.alerts, however long it was away.
create table ops.alert_told (
    workspace_id text        not null,
    target_id    text        not null,
    alert        text        not null,
    subject      text        not null,
    episode      integer     not null,
    state        text        not null check (state in ('raised', 'cleared')),
    severity     text        not null,
    told_at      timestamptz not null,
    primary key (workspace_id, target_id, alert, subject),
    foreign key (workspace_id, target_id) references ops.alert_targets on delete cascade
);

-- Programs that want to hear of failures, one message each.
create table ops.webhooks (
    workspace_id  text        not null,
    webhook_id    text        not null check (webhook_id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
    url           text        not null check (url ~ '^https?://'),
    events        text[]      not null check (cardinality(events) > 0),
    enabled       boolean     not null default true,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    failures      integer     not null default 0,
    failing_since timestamptz,
    next_try_at   timestamptz,
    last_error    jsonb,
    last_sent_at  timestamptz,
    primary key (workspace_id, webhook_id)
);

-- What a webhook, or an alert target that is one, signs with: ciphertext. The newest that is not over signs first; an older
-- one beside it, until it ends.
create table ops.webhook_secrets (
    workspace_id text        not null,
    owner        text        not null check (owner ~ '^(webhook|target):.'),
    secret_id    uuid        not null,
    secret       bytea       not null,
    created_at   timestamptz not null default now(),
    ends_at      timestamptz,
    primary key (workspace_id, owner, secret_id)
);

-- Failures that webhooks have not been asked about yet. Written by the transaction in which the failure is.
create table ops.failures (
    workspace_id text        not null,
    event_id     uuid        not null,
    ts           timestamptz not null,
    type         text        not null,
    data         jsonb       not null,
    primary key (workspace_id, event_id)
);
