-- Who may push, where posts go, how fast, and by which rules.

create schema autopost;

-- Found by secret before the workspace is known: small, a reference table when sharded.
create table autopost.workspace_endpoints (
    workspace_id         text        not null references core.workspaces,
    endpoint_id          text        not null,
    kind                 text        not null check (kind in ('webhook_push', 'bot_webhook')),
    secret_hash          text        not null,
    enabled              boolean     not null default true,
    ingress_rps          double precision not null default 5 check (ingress_rps > 0),
    max_payload_bytes    integer     not null default 262144 check (max_payload_bytes > 0),
    hash_drop_window_sec integer     not null default 10 check (hash_drop_window_sec >= 0),
    meta                 jsonb       not null default '{}',
    created_at           timestamptz not null default now(),
    updated_at           timestamptz not null default now(),
    primary key (workspace_id, endpoint_id)
);
create unique index workspace_endpoints_active_secret
    on autopost.workspace_endpoints (kind, secret_hash) where enabled;

create table autopost.channels (
    workspace_id     text        not null references core.workspaces,
    channel_id       text        not null check (channel_id <> ''),
    platform         text        not null,
    target_id        text        not null check (target_id <> ''),
    auth_ref         text        not null,
    rate_group       text        not null,
    enabled          boolean     not null default true,
    title            text,
    send_mode        text        not null default 'mixed' check (send_mode in ('text', 'media', 'mixed')),
    rate_rps         double precision default 1 check (rate_rps >= 0),
    max_parallel     integer     not null default 1 check (max_parallel >= 1),
    next_allowed_at  timestamptz,
    cooldown_until   timestamptz,
    last_begin_at    timestamptz,
    paused_until     timestamptz,
    penalized_at     timestamptz,
    timezone         text,
    window_mode      text        not null default 'immediate' check (window_mode in ('immediate', 'windowed')),
    posting_window   jsonb,
    dedup_ttl_hours  integer     default 168 check (dedup_ttl_hours >= 0),
    error_streak     integer     not null default 0,
    on_unknown       text        not null default 'resend' check (on_unknown in ('resend', 'hold')),
    settings         jsonb       not null default '{}' check (jsonb_typeof(settings) = 'object'),
    tags             text[]      check (tags::text = lower(tags::text)),
    route_filter     jsonb,
    template_ref     text,
    created_at       timestamptz not null default now(),
    updated_at       timestamptz not null default now(),
    unique (workspace_id, platform, target_id),
    constraint channels_route_filter_shape check (
        route_filter is null
        or (jsonb_typeof(route_filter) = 'object'
            and route_filter - 'include_any' - 'include_all' - 'exclude' = '{}'
            and not jsonb_path_exists(route_filter, 'strict $.* ? (@.type() != "array")')
            and not jsonb_path_exists(route_filter, 'strict $.*[*] ? (@.type() != "string")', silent => true)
            and route_filter::text = lower(route_filter::text))
    )
);
create index channels_by_tags on autopost.channels using gin (tags);
create index channels_by_group on autopost.channels (workspace_id, platform, rate_group);
-- The key comes last: as long as a table has no statistics, indexes that begin alike cost the same, and the planner takes the
-- newest. A foreign key's check keeps the plan of its first day, and would read a whole workspace for each row.
alter table autopost.channels add primary key (workspace_id, channel_id);

create table autopost.channel_auth (
    workspace_id text        not null,
    channel_id   text        not null,
    auth_ref     text        not null,
    rotated_at   timestamptz,
    updated_at   timestamptz not null default now(),
    primary key (workspace_id, channel_id),
    foreign key (workspace_id, channel_id) references autopost.channels on delete cascade
);

-- One row per credential group: the shared ceiling, and the lock that allocation takes first.
create table autopost.platform_limits (
    workspace_id       text        not null references core.workspaces,
    platform           text        not null,
    rate_group         text        not null,
    rate_rps           double precision check (rate_rps >= 0),
    next_allowed_at    timestamptz,
    cooldown_until     timestamptz,
    last_begin_at      timestamptz,
    limited_channel_id text,
    limited_until      timestamptz,
    updated_at         timestamptz not null default now(),
    primary key (workspace_id, platform, rate_group)
);

create table autopost.policies (
    workspace_id                   text             primary key references core.workspaces,
    claim_per_channel              integer          not null default 20 check (claim_per_channel > 0),
    claim_horizon                  interval         not null default '5 seconds',
    max_attempts                   integer          not null default 5 check (max_attempts > 0),
    backoff_base                   interval         not null default '2 seconds',
    backoff_factor                 double precision not null default 2 check (backoff_factor >= 1),
    backoff_max                    interval         not null default '5 minutes',
    backoff_jitter                 double precision not null default 0.2 check (backoff_jitter between 0 and 1),
    not_ready_backoff              interval         not null default '1 second',
    not_ready_backoff_max          interval         not null default '5 seconds',
    pause_on_permanent_for         interval         not null default '1 hour',
    disable_after_permanent_streak integer          not null default 3 check (disable_after_permanent_streak > 0),
    platform_cooldown_for          interval         not null default '5 minutes',
    sending_lease                  interval         not null default '300 seconds',
    claimed_lease                  interval         not null default '300 seconds',
    expired_send_backoff           interval         not null default '15 seconds',
    dedup_ttl_hours                integer          not null default 168 check (dedup_ttl_hours >= 0),
    receipt_ttl                    interval         not null default '2 days',
    updated_at                     timestamptz      not null default now()
);

create table autopost.templates (
    workspace_id text        not null references core.workspaces,
    template_id  text        not null,
    version      integer     not null,
    body         text        not null,
    defaults     jsonb       not null default '{}',
    created_at   timestamptz not null default now(),
    primary key (workspace_id, template_id, version)
);

-- The dispatcher's place in each workspace's channels (row workspace_id), and among the workspaces (row '*').
create table autopost.dispatcher_state (
    workspace_id      text        primary key,
    channel_id_last   text        not null default '',
    workspace_id_last text        not null default '',
    updated_at        timestamptz not null default now()
);
