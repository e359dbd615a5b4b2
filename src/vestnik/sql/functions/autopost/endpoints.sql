-- Endpoints over their life.

-- A new row with the new secret first, then the old one is shut: there is no moment without an open door, and the old row
-- stays for the record.
create or replace function autopost.rotate_endpoint(
    p_workspace_id text, p_endpoint_id text, p_secret_hash text, p_now timestamptz default now()) returns text
language plpgsql as $$
declare
    old autopost.workspace_endpoints;
    new_id text;
    n integer := 2;
begin
    select * into old from autopost.workspace_endpoints e
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id for no key update;
    if not found or not old.enabled then
        raise exception 'no enabled endpoint % in workspace %', p_endpoint_id, p_workspace_id using errcode = 'VN001';
    end if;
    loop
        new_id := regexp_replace(p_endpoint_id, '-v[0-9]+$', '') || '-v' || n;
        exit when not exists (select from autopost.workspace_endpoints e
                              where e.workspace_id = p_workspace_id and e.endpoint_id = new_id);
        n := n + 1;
    end loop;
    insert into autopost.workspace_endpoints (workspace_id, endpoint_id, kind, secret_hash, ingress_rps, max_payload_bytes,
        hash_drop_window_sec, meta, created_at, updated_at)
    values (p_workspace_id, new_id, old.kind, p_secret_hash, old.ingress_rps, old.max_payload_bytes,
        old.hash_drop_window_sec, old.meta || jsonb_build_object('rotated_from', p_endpoint_id), p_now, p_now);
    update autopost.workspace_endpoints e set enabled = false, updated_at = p_now
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id;
    return new_id;
end $$;
