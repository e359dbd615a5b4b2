-- What a post can be beyond text, when it goes, and where it comes from.

-- upload_policy: which media a platform may fetch by address itself; null values of media_max_bytes mean the platform's own
-- limits (media_limit). min_gap: two posts of one channel closer than this are a conflict that is told, not prevented.
alter table autopost.policies
    add column upload_policy   jsonb not null default '{}' check (jsonb_typeof(upload_policy) = 'object'),
    add column media_max_bytes jsonb not null default '{}' check (jsonb_typeof(media_max_bytes) = 'object'),
    add column min_gap         interval check (min_gap > '0');
-- How long a platform may work on a file that it was given.
alter table autopost.policies
    add column not_ready_patience interval not null default '15 minutes' check (not_ready_patience between '0' and '1 day');
alter table autopost.channels add column min_gap interval check (min_gap > '0' and min_gap <= '365 days');

-- Bounds of every duration: what is beyond all dates, or before now, would fail each call of its workspace.
update autopost.policies set
    claim_horizon          = least(greatest(claim_horizon, '0'), '1 day'),
    backoff_factor         = least(backoff_factor, 100),
    backoff_base           = least(greatest(backoff_base, '0'), '365 days'),
    backoff_max            = least(greatest(backoff_max, '0'), '365 days'),
    not_ready_backoff      = least(greatest(not_ready_backoff, '0'), '1 day'),
    not_ready_backoff_max  = least(greatest(not_ready_backoff_max, '0'), '1 day'),
    pause_on_permanent_for = least(greatest(pause_on_permanent_for, '0'), '365 days'),
    platform_cooldown_for  = least(greatest(platform_cooldown_for, '0'), '365 days'),
    sending_lease          = least(greatest(sending_lease, '1 millisecond'), '7 days'),
    claimed_lease          = least(greatest(claimed_lease, '1 millisecond'), '7 days'),
    expired_send_backoff   = least(greatest(expired_send_backoff, '0'), '365 days'),
    receipt_ttl            = least(greatest(receipt_ttl, '0'), '3650 days');
alter table autopost.policies
    add check (claim_horizon between '0' and '1 day'),
    add check (backoff_factor <= 100),
    add check (backoff_base between '0' and '365 days'),
    add check (backoff_max between '0' and '365 days'),
    add check (not_ready_backoff between '0' and '1 day'),
    add check (not_ready_backoff_max between '0' and '1 day'),
    add check (pause_on_permanent_for between '0' and '365 days'),
    add check (platform_cooldown_for between '0' and '365 days'),
    add check (sending_lease between '1 millisecond' and '7 days'),
    add check (claimed_lease between '1 millisecond' and '7 days'),
    add check (expired_send_backoff between '0' and '365 days'),
    add check (receipt_ttl between '0' and '3650 days'),
    add check (min_gap <= '365 days');

alter table autopost.media_origin
    add column file_name  text,
    add column meta       jsonb not null default '{}',
    add column deleted_at timestamptz;

-- sent_as: a photo's handle is none of a document. taken_by, taken_until: whose it is to upload now; the others wait.
alter table autopost.media_blobs
    add column sent_as     text not null default '',
    add column taken_by    uuid,
    add column taken_until timestamptz,
    drop constraint media_blobs_pkey,
    add primary key (workspace_id, blob_ref, provider, auth_ref, sent_as);

-- Deliveries that wait for media to be fetched: not_before is infinity, so no claim ever looks at them.
create index deliveries_media_pending on autopost.deliveries (workspace_id, message_id)
    where status = 'queued' and not_before = 'infinity';

alter table autopost.events drop constraint events_action_check;
alter table autopost.events add constraint events_action_check check (action in (
    'enqueue', 'validation_failed', 'send_attempt', 'sent', 'retry_scheduled', 'dedup_suppressed',
    'failed_permanent', 'dead_letter', 'channel_paused', 'channel_disabled', 'channel_enabled',
    'message_tag_mismatch', 'sending_lease_expired', 'claimed_lease_expired', 'manual_requeue',
    'auth_rotated', 'ingress_rate_limited', 'ingress_payload_rejected', 'ingress_dedup_dropped',
    -- beyond the specification:
    'claim_released', 'late_result', 'held', 'confirmed', 'cancelled', 'rescheduled'));

-- every or cron, in the source's own time zone; backlog: how many of the items that are already there are taken the first
-- time, null for all.
alter table autopost.pull_sources
    add column every      interval check (every between '10 seconds' and '365 days'),
    add column cron       text,
    add column timezone   text not null default 'UTC',
    add column backlog    integer check (backlog >= 0),
    add column failures   integer not null default 0,
    add column last_error jsonb,
    add column last_run_at timestamptz,
    add column updated_at timestamptz not null default now(),
    add constraint pull_sources_rhythm check (every is null or cron is null);

-- Which items of a source were taken. Kept for good: a feed that answers "unchanged" for months shows nothing, and what is
-- forgotten would be posted again. last_seen_at moves once a day while the source shows the item.
create table autopost.pull_items (
    workspace_id text        not null,
    source_id    text        not null,
    item_hash    text        not null,
    message_id   uuid,
    outcome      text        not null,
    first_seen_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    primary key (workspace_id, source_id, item_hash),
    foreign key (workspace_id, source_id) references autopost.pull_sources on delete cascade
);

-- What became of one item of a source.
create type autopost.pulled as (
    key           text,
    outcome       text,
    message_id    uuid,
    enqueued      integer,
    suppressed    integer,
    failed        integer,
    media_pending integer,
    problem       text
);

-- One message as one kind of channel gets it: rendered and judged once, with the channels of that kind.
create type autopost.form as (
    item             integer,
    message_id       uuid,
    is_new           boolean,
    payload          jsonb,
    content_hash     text,
    trace_id         uuid,
    created_at       timestamptz,
    platform         text,
    parse_mode       text,
    text             text,
    template_version text,
    meta             jsonb,
    error            jsonb,
    media_pending    boolean,
    scheduled_for    timestamptz,
    not_before       timestamptz,
    channels         text[],
    ttls             integer[]
);

alter type autopost.stored add attribute scheduled_for timestamptz, add attribute source jsonb;
