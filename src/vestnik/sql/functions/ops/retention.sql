-- How long a workspace keeps what, and how far the removal of it has come.

-- Null for a rule that nobody registered.
create or replace function ops.keep_of(p_workspace_id text, p_rule text) returns interval
language sql stable as $$
    select coalesce((select r.keep from ops.retention r where r.workspace_id = p_workspace_id and r.rule = p_rule),
                    (select r.keep from ops.retention r where r.workspace_id = '*' and r.rule = p_rule))
$$;

-- What else a rule wants to know: the defaults, and over them what the workspace says.
create or replace function ops.retention_options(p_workspace_id text, p_rule text) returns jsonb
language sql stable as $$
    select coalesce((select r.options from ops.retention r where r.workspace_id = '*' and r.rule = p_rule), '{}')
        || coalesce((select r.options from ops.retention r where r.workspace_id = p_workspace_id and r.rule = p_rule), '{}')
$$;

-- What is younger than this was not removed by a rule, whatever the workspace kept when: where something is missing that is
-- younger, it was lost in another way. Null: nothing was removed yet.
create or replace function ops.gone_before(p_workspace_id text, p_rule text) returns timestamptz
language sql stable as $$
    select p.gone_before from ops.retention_progress p where p.workspace_id = p_workspace_id and p.rule = p_rule
$$;

create or replace function ops.retention_place(p_workspace_id text, p_rule text) returns text
language sql stable as $$
    select p.place from ops.retention_progress p where p.workspace_id = p_workspace_id and p.rule = p_rule
$$;

-- One page is done, in the transaction of its removal. Without a place the pass has come to its end.
create or replace function ops.note_retention(
    p_workspace_id text, p_rule text, p_removed bigint, p_place text default null, p_gone_before timestamptz default null,
    p_now timestamptz default now()) returns void
language sql volatile as $$
    insert into ops.retention_progress as p (workspace_id, rule, place, gone_before, removed, passed_at, updated_at)
    values (p_workspace_id, p_rule, p_place, p_gone_before, p_removed, case when p_place is null then p_now end, p_now)
    on conflict (workspace_id, rule) do update
    set place = excluded.place, gone_before = greatest(p.gone_before, excluded.gone_before),
        removed = p.removed + excluded.removed, passed_at = coalesce(excluded.passed_at, p.passed_at), last_error = null,
        updated_at = excluded.updated_at
$$;

create or replace function ops.note_retention_error(
    p_workspace_id text, p_rule text, p_error text, p_now timestamptz default now()) returns void
language sql volatile as $$
    insert into ops.retention_progress as p (workspace_id, rule, last_error, updated_at)
    values (p_workspace_id, p_rule, left(p_error, 300), p_now)
    on conflict (workspace_id, rule) do update set last_error = excluded.last_error, updated_at = excluded.updated_at
$$;
