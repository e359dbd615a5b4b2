-- What the dispatcher asks across workspaces: small reads without a lock, and its own place among them.

-- Active workspaces with something to send or to sweep, beginning after the one that was served last.
create or replace function autopost.workspaces_with_work(p_after text, p_limit integer default 1000) returns setof text
language sql stable as $$
    select w.workspace_id from core.workspaces w
    where w.status = 'active'
      and (exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'queued')
        or exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'retry')
        or exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'claimed')
        or exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'sending'))
    order by w.workspace_id <= p_after, w.workspace_id
    limit p_limit
$$;

create or replace function autopost.workspace_place() returns text
language sql stable as $$
    select coalesce((select s.workspace_id_last from autopost.dispatcher_state s where s.workspace_id = '*'), '')
$$;

create or replace function autopost.remember_workspace(p_workspace_id text, p_now timestamptz default now()) returns void
language sql volatile as $$
    insert into autopost.dispatcher_state as s (workspace_id, workspace_id_last, updated_at) values ('*', p_workspace_id, p_now)
    on conflict (workspace_id) do update set workspace_id_last = excluded.workspace_id_last, updated_at = excluded.updated_at
$$;
