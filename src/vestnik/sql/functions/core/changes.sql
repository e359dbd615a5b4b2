-- The record of changes: who, what, when, in the transaction of the change itself.

create or replace function core.note_change(
    p_workspace_id text, p_actor text, p_action text, p_subject text, p_details jsonb default '{}', p_now timestamptz default now())
returns void
language sql volatile as $$
    insert into core.changes (workspace_id, change_id, ts, actor, action, subject, details)
    values (p_workspace_id, core.uuid7(p_now), p_now, p_actor, p_action, p_subject, coalesce(p_details, '{}'))
$$;
