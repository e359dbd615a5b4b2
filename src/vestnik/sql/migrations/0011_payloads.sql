-- Full payloads lie in the object store. Here is how long, and who has looked at them.

insert into ops.retention (workspace_id, rule, keep, options) values
    ('*', 'payloads', '14 days', '{"raw_payloads": "errors", "may_outlive_deliveries": false}');

-- Each link that was asked for, given or not, and each look at a payload. Nothing here is ever changed.
create table core.payload_reads (
    workspace_id text        not null references core.workspaces,
    read_id      uuid        not null,
    ts           timestamptz not null default now(),
    actor        text        not null,
    via          text        not null check (via in ('api', 'link', 'machine')),
    action       text        not null check (action in ('link', 'read')),
    payload_ref  text        not null,
    reason       text        not null,
    outcome      text        not null check (outcome in
                     ('granted', 'refused', 'expired', 'not_found', 'unreadable', 'store_away')),
    link_id      uuid,
    primary key (workspace_id, read_id)
);
create index payload_reads_by_time on core.payload_reads (workspace_id, ts);
