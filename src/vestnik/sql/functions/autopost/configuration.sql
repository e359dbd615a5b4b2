-- What was declared by mistake, or is over, is taken back.

-- Only a channel that never had a delivery: what it sent must stay explicable.
create or replace function autopost.remove_channel(
    p_workspace_id text, p_actor text, p_channel_id text, p_now timestamptz default now()) returns void
language plpgsql as $$
begin
    perform from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    if not found then
        raise exception 'no channel % in workspace %', p_channel_id, p_workspace_id using errcode = 'VN001';
    end if;
    if exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id) then
        raise exception 'channel % has deliveries, which refer to it; disable it instead', p_channel_id using errcode = 'VM001';
    end if;
    delete from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
    perform core.note_change(p_workspace_id, p_actor, 'removed', 'channel ' || p_channel_id, '{}', p_now);
end $$;

-- A credential that leaked goes at once, when p_although_used says so; its channels then fail until they have another.
create or replace function autopost.remove_credential(
    p_workspace_id text, p_actor text, p_platform text, p_auth_ref text, p_although_used boolean, p_now timestamptz default now())
returns void
language plpgsql as $$
declare
    used bigint;
begin
    select count(*) into used from autopost.channels c
    left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
    where c.workspace_id = p_workspace_id and c.platform = p_platform and coalesce(a.auth_ref, c.auth_ref) = p_auth_ref;
    if used > 0 and not p_although_used then
        raise exception '% channels send with credential %/%', used, p_platform, p_auth_ref using errcode = 'VM001';
    end if;
    delete from core.credential_bindings b
    where b.workspace_id = p_workspace_id and b.platform = p_platform and b.auth_ref = p_auth_ref;
    if not found then
        raise exception 'no credential %/% in workspace %', p_platform, p_auth_ref, p_workspace_id using errcode = 'VN001';
    end if;
    perform core.note_change(p_workspace_id, p_actor, 'removed', 'credential ' || p_platform || '/' || p_auth_ref,
        jsonb_build_object('channels', used), p_now);
end $$;
