-- People who operate the service, what each may do where, and what was changed by whom.

-- Of the service: small, reference tables when sharded. A password is kept as its argon2id hash alone.
create table core.operators (
    login         text        primary key check (login ~ '^[a-z0-9][a-z0-9_.@-]{0,63}$'),
    name          text        not null default '',
    language      text        not null default 'en' check (language in ('en', 'ru')),
    password_hash text        not null,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    disabled_at   timestamptz
);

-- Workspace '*' is every workspace, and the service itself: hence no foreign key to it here. Of owner, editor and viewer an
-- operator is one in a workspace; security stands beside.
create table core.operator_roles (
    workspace_id text        not null,
    login        text        not null references core.operators on delete cascade,
    role         text        not null check (role in ('owner', 'editor', 'viewer', 'security')),
    granted_at   timestamptz not null default now(),
    primary key (workspace_id, login, role)
);
create unique index operator_roles_one_rank on core.operator_roles (workspace_id, login) where role <> 'security';

create table core.operator_sessions (
    token_hash   text        primary key,
    login        text        not null references core.operators on delete cascade,
    created_at   timestamptz not null default now(),
    last_used_at timestamptz,
    expires_at   timestamptz not null
);

-- How often somebody was refused of late, and when they were last let in. A subject is a hash: people type passwords into the
-- wrong field.
create table core.sign_in_gates (
    subject      text        primary key,
    failures     integer     not null default 0,
    last_at      timestamptz not null default now(),
    locked_until timestamptz,
    passed_at    timestamptz
);

-- What was changed in a workspace ('*': in the service) by whom, where no event of a delivery or a channel says it.
create table core.changes (
    workspace_id text        not null,
    change_id    uuid        not null,
    ts           timestamptz not null default now(),
    actor        text        not null,
    action       text        not null,
    subject      text        not null,
    details      jsonb       not null default '{}',
    primary key (workspace_id, change_id)
);

-- What an adapter answered to a call over HTTP, so that the same call again is not sent again. answer: null while it is
-- under way; taken_until: when whoever sent it is taken for dead.
create table autopost.adapter_answers (
    workspace_id    text        not null references core.workspaces,
    idempotency_key text        not null,
    taken_until     timestamptz not null,
    answer          jsonb,
    created_at      timestamptz not null default now(),
    primary key (workspace_id, idempotency_key)
);
create index adapter_answers_by_time on autopost.adapter_answers (workspace_id, created_at);
create index changes_by_time on core.changes (workspace_id, ts);
