-- Workspaces and what opens their doors. Every table of a workspace carries workspace_id in its keys (ARCHITECTURE, Scale).

create schema if not exists core;

create table core.workspaces (
    workspace_id text        primary key check (workspace_id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
    name         text        not null,
    status       text        not null default 'active' check (status in ('active', 'paused', 'disabled')),
    created_at   timestamptz not null default now()
);

-- secret is ciphertext made by the program (Fernet); secret_ref says where the secret is kept.
create table core.credential_bindings (
    workspace_id text        not null references core.workspaces,
    platform     text        not null,
    auth_ref     text        not null check (auth_ref <> ''),
    secret_ref   text        not null default 'stored',
    secret       bytea,
    rotated_at   timestamptz,
    updated_at   timestamptz not null default now(),
    primary key (workspace_id, platform, auth_ref),
    check (secret_ref <> 'stored' or secret is not null)
);

-- Looked up by hash before the workspace is known: small, a reference table when sharded.
create table core.api_keys (
    key_id       uuid        primary key,
    workspace_id text        not null references core.workspaces,
    name         text        not null,
    key_hash     text        not null unique,
    access       text        not null default 'read' check (access in ('read', 'full')),
    created_at   timestamptz not null default now(),
    last_used_at timestamptz,
    revoked_at   timestamptz
);
create index api_keys_by_workspace on core.api_keys (workspace_id);
