-- What is looked at again and again, whether it still holds together: how far a look has got, and what it found.

-- place: where the next run goes on. pass_began_at: of the round through everything that is under way.
create table autopost.checks (
    workspace_id  text        not null references core.workspaces,
    source        text        not null check (source in ('integrity', 'proof')),
    place         jsonb       not null default '{}',
    pass_began_at timestamptz,
    pass_ended_at timestamptz,
    updated_at    timestamptz not null default now(),
    primary key (workspace_id, source)
);

-- One row per trouble: subject is what it is about, a delivery most often. It goes when a later look finds it mended.
create table autopost.findings (
    workspace_id text        not null references core.workspaces,
    source       text        not null check (source in ('integrity', 'proof')),
    kind         text        not null,
    subject      text        not null,
    says         text        not null,
    details      jsonb       not null default '{}',
    found_at     timestamptz not null,
    last_seen_at timestamptz not null,
    primary key (workspace_id, source, kind, subject)
);

-- What each channel's begins are held against, and since when it is so: a rate that was changed does not judge the past.
create table autopost.channel_paces (
    workspace_id text        not null,
    channel_id   text        not null,
    pace         text        not null,
    since        timestamptz not null,
    primary key (workspace_id, channel_id),
    foreign key (workspace_id, channel_id) references autopost.channels on delete cascade
);
