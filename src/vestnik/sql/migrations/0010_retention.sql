-- How long what is kept, and how far its removal has come.

-- A rule is a kind of rows that is removed when it is old. The rows of workspace '*' are the defaults, which hold wherever a
-- workspace says nothing (keep is null, or there is no row): a capability registers a rule by its row here and its Rule in the code.
create table ops.retention (
    workspace_id text        not null,
    rule         text        not null check (rule ~ '^[a-z][a-z0-9_]{0,63}$'),
    keep         interval    check (keep between '1 hour' and '36500 days'),
    options      jsonb       not null default '{}' check (jsonb_typeof(options) = 'object'),
    updated_at   timestamptz not null default now(),
    primary key (workspace_id, rule)
);
insert into ops.retention (workspace_id, rule, keep, options) values
    ('*', 'events', '30 days', '{"archive": false}'),
    ('*', 'deliveries', '90 days', '{}'),
    ('*', 'messages', '90 days', '{}'),
    ('*', 'ingest_runs', '90 days', '{}'),
    ('*', 'jobs', '14 days', '{}'),
    ('*', 'media', '30 days', '{}'),
    ('*', 'large_videos', '7 days', '{"from_bytes": 52428800}');

-- place: where the next page begins, null at the beginning; written with the removal of the page, so a run that was killed
-- goes on where it was. gone_before: nothing that is younger was ever removed.
create table ops.retention_progress (
    workspace_id text        not null,
    rule         text        not null,
    place     text,
    gone_before  timestamptz,
    removed      bigint      not null default 0,
    passed_at    timestamptz,
    last_error   text,
    updated_at   timestamptz not null default now(),
    primary key (workspace_id, rule)
) with (fillfactor = 50);

-- A message goes when no delivery refers to it: its foreign key asks that for every one that is removed.
create index deliveries_by_message on autopost.deliveries (message_id);

-- Which messages name a file. Only those with media have an entry.
create index messages_by_media on autopost.messages
    using gin ((jsonb_path_query_array(payload, '$.media[*].blob_ref')) jsonb_path_ops) where payload ? 'media';

-- Days of events that lie in the object store.
create table autopost.event_archives (
    workspace_id text        not null references core.workspaces,
    day          date        not null,
    path         text        not null,
    events       bigint      not null,
    archived_at  timestamptz not null default now(),
    primary key (workspace_id, day)
);

-- What the clock showed when it was last believed, and since when it shows something that is not (retention_clock).
create table ops.clock_checks (
    workspace_id text        primary key,
    believed_at  timestamptz not null,
    odd_since    timestamptz,
    odd_at       timestamptz
);
