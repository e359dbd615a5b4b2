-- What is sent, to whom, how far it has got, and what happened.

create table autopost.messages (
    workspace_id          text        not null references core.workspaces,
    message_id            uuid        not null,
    hash_version          integer     not null default 1,
    content_hash          text        not null,
    normalization_version integer     not null default 1,
    payload               jsonb       not null,
    tags                  text[]      not null default '{}',
    source                jsonb,
    source_ref            text,
    first_seen_trace_id   uuid        not null,
    first_ingest_run_id   uuid        not null,
    last_seen_at          timestamptz not null,
    last_ingest_run_id    uuid        not null,
    seen_count            bigint      not null default 1,
    created_at            timestamptz not null default now(),
    unique (workspace_id, hash_version, content_hash)
) with (fillfactor = 85);
create index messages_by_time on autopost.messages (workspace_id, created_at);
create index messages_by_tags on autopost.messages using gin (tags);
alter table autopost.messages add primary key (workspace_id, message_id); -- last, as that of the channels

create table autopost.media_origin (
    workspace_id text        not null references core.workspaces,
    blob_ref     text        not null,
    origin_url   text        not null,
    sha256       text,
    content_type text,
    size_bytes   bigint,
    last_seen_at timestamptz not null default now(),
    ref_count    bigint      not null default 0,
    created_at   timestamptz not null default now(),
    primary key (workspace_id, blob_ref)
);

-- auth_ref: a provider's file id belongs to one credential; '' where the provider does not care.
create table autopost.media_blobs (
    workspace_id text        not null references core.workspaces,
    blob_ref     text        not null,
    provider     text        not null,
    auth_ref     text        not null default '',
    file_id      text,
    url          text,
    expires_at   timestamptz,
    meta         jsonb,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    primary key (workspace_id, blob_ref, provider, auth_ref)
);

-- What never or seldom changes comes first: an update logs only what follows the first byte that differs.
create table autopost.deliveries (
    workspace_id        text        not null,
    delivery_id         uuid        not null,
    message_id          uuid        not null,
    channel_id          text        not null,
    hash_version        integer     not null default 1,
    content_hash        text        not null,
    created_at          timestamptz not null default now(),
    scheduled_for       timestamptz,
    trace_id            uuid,
    enqueue_batch_id    uuid,
    template_version    text,
    rendered_text       text,
    render_meta         jsonb       not null default '{}',
    not_before          timestamptz not null default now(),
    next_retry_at       timestamptz,
    held_at             timestamptz,
    lost_leases         integer     not null default 0,
    status              text        not null default 'queued' check (status in
                            ('queued', 'claimed', 'sending', 'sent', 'retry', 'deduped', 'failed_permanent', 'dead')),
    attempt             integer     not null default 0,
    lease               integer     not null default 0,
    settled_lease       integer     not null default 0,
    claimed_at          timestamptz,
    sending_started_at  timestamptz,
    sent_at             timestamptz,
    updated_at          timestamptz not null default now(),
    claim_token         text,
    provider_message_id text,
    last_error          jsonb,
    primary key (workspace_id, delivery_id),
    foreign key (workspace_id, channel_id) references autopost.channels,
    foreign key (workspace_id, message_id) references autopost.messages
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

-- Which index serves which query, and which index of the specification each stands for: docs/decisions/0002-indexes.md.
create index deliveries_queued on autopost.deliveries (workspace_id, channel_id, not_before, created_at)
    where status = 'queued';
create index deliveries_retry on autopost.deliveries (workspace_id, channel_id, next_retry_at)
    where status = 'retry';
create index deliveries_claimed on autopost.deliveries (workspace_id, channel_id, not_before, created_at)
    where status = 'claimed';
create index deliveries_sending on autopost.deliveries (workspace_id, channel_id, sending_started_at)
    where status = 'sending';
create index deliveries_in_flight on autopost.deliveries (workspace_id, channel_id, content_hash)
    where status in ('queued', 'claimed', 'sending', 'retry');
create index deliveries_went on autopost.deliveries (workspace_id, channel_id, content_hash)
    where status in ('sent', 'deduped');
create index deliveries_failed on autopost.deliveries (workspace_id, status, updated_at)
    where status in ('failed_permanent', 'dead');

create table autopost.events (
    workspace_id text        not null,
    id           uuid        not null,
    delivery_id  uuid,
    message_id   uuid,
    channel_id   text,
    ts           timestamptz not null default now(),
    action       text        not null check (action in (
        'enqueue', 'validation_failed', 'send_attempt', 'sent', 'retry_scheduled', 'dedup_suppressed',
        'failed_permanent', 'dead_letter', 'channel_paused', 'channel_disabled', 'channel_enabled',
        'message_tag_mismatch', 'sending_lease_expired', 'claimed_lease_expired', 'manual_requeue',
        'auth_rotated', 'ingress_rate_limited', 'ingress_payload_rejected', 'ingress_dedup_dropped',
        -- beyond the specification:
        'claim_released', 'late_result', 'held', 'confirmed', 'cancelled')),
    attempt      integer     not null default 0,
    result       text        not null default 'ok' check (result in ('ok', 'error')),
    error        jsonb,
    payload_ref  text,
    meta         jsonb,
    primary key (workspace_id, ts, id)
) partition by range (ts);
create table autopost.events_default partition of autopost.events default;

create index events_by_delivery on autopost.events (delivery_id) where delivery_id is not null;
create index events_by_channel on autopost.events (workspace_id, channel_id, ts) where channel_id is not null;
create index events_by_message on autopost.events using brin (message_id uuid_minmax_multi_ops)
    with (pages_per_range = 16, autosummarize = on);
create index events_rare on autopost.events (workspace_id, action, ts)
    where action not in ('enqueue', 'send_attempt', 'sent');
create index events_errors on autopost.events (workspace_id, ts) where result = 'error';

create table autopost.pull_sources (
    workspace_id text        not null references core.workspaces,
    source_id    text        not null,
    kind         text        not null,
    config_json  jsonb       not null default '{}',
    enabled      boolean     not null default true,
    created_at   timestamptz not null default now(),
    primary key (workspace_id, source_id)
);

create table autopost.pull_cursors (
    workspace_id text        not null,
    source_id    text        not null,
    cursor_json  jsonb       not null default '{}',
    updated_at   timestamptz not null default now(),
    primary key (workspace_id, source_id),
    foreign key (workspace_id, source_id) references autopost.pull_sources on delete cascade
);

create table autopost.ingest_runs (
    workspace_id text        not null,
    run_id       uuid        not null,
    kind         text        not null check (kind in ('push', 'pull')),
    started_at   timestamptz not null default now(),
    finished_at  timestamptz,
    stats_json   jsonb       not null default '{}',
    primary key (workspace_id, run_id)
);
create index ingest_runs_by_time on autopost.ingest_runs (workspace_id, started_at);

-- The rate gate of an endpoint: the moment at which its bucket is empty again (GCRA).
create table autopost.ingress_gates (
    workspace_id text        not null,
    endpoint_id  text        not null,
    full_until   timestamptz not null,
    primary key (workspace_id, endpoint_id)
) with (fillfactor = 50);

create table autopost.ingress_receipts (
    workspace_id  text        not null,
    endpoint_id   text        not null,
    endpoint_kind text        not null check (endpoint_kind in ('webhook_push', 'bot_webhook')),
    source_ref    text,
    payload_hash  text        not null,
    received_at   timestamptz not null default now(),
    expires_at    timestamptz not null,
    receipt_id    uuid        not null,
    primary key (workspace_id, endpoint_id, payload_hash, received_at, receipt_id)
);
create unique index ingress_receipts_by_source on autopost.ingress_receipts (workspace_id, endpoint_id, source_ref)
    where source_ref is not null;
create index ingress_receipts_expired on autopost.ingress_receipts (expires_at);

-- A payload on its way in, and the message it became.
create type autopost.incoming as (
    item         integer,
    raw          jsonb,
    payload      jsonb,
    content_hash text,
    tags         text[],
    trace_id     uuid,
    created_at   timestamptz,
    round        integer
);
create type autopost.stored as (
    item          integer,
    message_id    uuid,
    is_new        boolean,
    payload       jsonb,
    content_hash  text,
    tags          text[],
    trace_id      uuid,
    created_at    timestamptz,
    only_channels text[]
);
