-- The files behind a post's media: stored, asked for, arrived or failed; and the platforms' own handles for them.

-- A file lies in the object store; from now on posts may name it. p_blob is what the program knows of it. Of a file that is
-- known the first copy stays: it may be read just now. The caller removes the other one, see media_gc.sql.
create or replace function autopost.store_origin(p_workspace_id text, p_blob jsonb, p_now timestamptz default now()) returns text
language sql volatile as $$
    insert into autopost.media_origin as o
        (workspace_id, blob_ref, origin_url, sha256, content_type, size_bytes, file_name, meta, last_seen_at, created_at)
    values (p_workspace_id, p_blob ->> 'blob_ref', p_blob ->> 'origin_url', p_blob ->> 'sha256', p_blob ->> 'content_type',
            (p_blob ->> 'size_bytes')::bigint, p_blob ->> 'file_name',
            jsonb_strip_nulls(jsonb_build_object('width', p_blob -> 'width', 'height', p_blob -> 'height')), p_now, p_now)
    on conflict (workspace_id, blob_ref) do update
    set origin_url = case when o.deleted_at is null then o.origin_url else excluded.origin_url end,
        content_type = excluded.content_type, size_bytes = excluded.size_bytes,
        file_name = coalesce(o.file_name, excluded.file_name), meta = excluded.meta,
        last_seen_at = greatest(o.last_seen_at, p_now), deleted_at = null
    returning o.blob_ref
$$;

-- A post names files: they are in use. In the order of their names, so that two batches lock alike.
create or replace function autopost.media_seen(p_workspace_id text, p_stored autopost.stored[], p_now timestamptz) returns void
language plpgsql as $$
declare
    named text[];
begin
    select array_agg(distinct i.item ->> 'blob_ref') into named
    from unnest(p_stored) s, jsonb_array_elements(s.payload -> 'media') i (item)
    where s.payload ? 'media' and i.item ? 'blob_ref';
    if named is not null then
        perform from autopost.media_origin o where o.workspace_id = p_workspace_id and o.blob_ref = any (named)
        order by o.blob_ref for no key update;
        update autopost.media_origin o set last_seen_at = greatest(o.last_seen_at, p_now)
        where o.workspace_id = p_workspace_id and o.blob_ref = any (named);
    end if;
end $$;

create or replace function autopost.fetch_key(p_message_id uuid) returns text
language sql immutable strict parallel safe as $$ select 'media ' || p_message_id $$;

-- One job for each of these messages that has deliveries waiting for its media. The job's key makes a second call harmless.
create or replace function autopost.ask_for_media(p_workspace_id text, p_message_ids uuid[], p_now timestamptz default now()) returns integer
language plpgsql as $$
declare
    waiting uuid[];
begin
    if p_message_ids = '{}' then
        return 0;
    end if;
    waiting := array(select m.id from unnest(p_message_ids) m (id)
                     where exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.message_id = m.id
                                   and d.status = 'queued' and d.not_before = 'infinity') order by 1);
    perform ops.enqueue_job(p_workspace_id, 'media.fetch', jsonb_build_object('message_id', m.id), autopost.fetch_key(m.id), p_now => p_now)
    from unnest(waiting) m (id);
    return cardinality(waiting);
end $$;

-- What is still to be fetched of a message: the places of its items, from 0, and their addresses.
create or replace function autopost.media_to_fetch(p_workspace_id text, p_message_id uuid)
returns table (place integer, type text, url text)
language sql stable as $$
    select (i.n - 1)::integer, i.item ->> 'type', i.item ->> 'url'
    from autopost.messages m, jsonb_array_elements(autopost.media_of(p_workspace_id, m.payload -> 'media')) with ordinality i (item, n)
    where m.workspace_id = p_workspace_id and m.message_id = p_message_id
      and i.item ? 'url' and (not i.item ? 'blob_ref' or i.item ? 'gone')
    order by i.n
$$;

-- Some items were fetched: the message learns its blob_refs, and when nothing more is to come, its deliveries are judged again,
-- now that sizes and kinds are known, and may go. The message's row lock is the one of the enqueue: whoever of the two comes
-- second sees what the first has done.
create or replace function autopost.media_arrived(
    p_workspace_id text, p_message_id uuid, p_blobs jsonb, p_now timestamptz default now()) returns integer
language plpgsql as $$
declare
    message autopost.messages;
begin
    select * into message from autopost.messages m
    where m.workspace_id = p_workspace_id and m.message_id = p_message_id for no key update;
    if not found then
        return 0;
    end if;
    perform autopost.store_origin(p_workspace_id, b.blob, p_now)
    from jsonb_array_elements(p_blobs) b (blob) order by b.blob ->> 'blob_ref';
    update autopost.messages m
    set payload = jsonb_set(m.payload, '{media}', (
        select jsonb_agg(i.item || coalesce((select jsonb_build_object('blob_ref', b.blob -> 'blob_ref')
                                             from jsonb_array_elements(p_blobs) b (blob)
                                             where (b.blob ->> 'place')::integer = i.n - 1), '{}') order by i.n)
        from jsonb_array_elements(m.payload -> 'media') with ordinality i (item, n)))
    where m.workspace_id = p_workspace_id and m.message_id = p_message_id
    returning * into message;
    if exists (select from autopost.media_to_fetch(p_workspace_id, p_message_id)) then
        return 0;
    end if;
    return autopost.release_media(p_workspace_id, message, p_now);
end $$;

create or replace function autopost.release_media(p_workspace_id text, p_message autopost.messages, p_now timestamptz) returns integer
language sql volatile as $$
    with media as materialized (
        select autopost.media_of(p_workspace_id, p_message.payload -> 'media') as media, autopost.policy_of(p_workspace_id) as policy
    ), judged as materialized (
        select d.delivery_id, d.channel_id, d.trace_id,
               autopost.media_error(c.platform, x.media, d.render_meta ->> 'parse_mode', d.rendered_text, p_message.payload, c.settings, x.policy) as error,
               coalesce(autopost.first_moment(case when c.window_mode = 'windowed' then jsonb_build_object('window', c.posting_window,
                   'timezone', c.timezone) end, d.scheduled_for, p_now), p_now) as goes_at
        from media x, autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.message_id = p_message.message_id and d.status = 'queued' and d.not_before = 'infinity'
        order by d.delivery_id for no key update of d
    ), moved as (
        update autopost.deliveries d
        set status = case when j.error is null then 'queued' else 'failed_permanent' end, last_error = j.error,
            not_before = j.goes_at, updated_at = p_now
        from judged j where d.workspace_id = p_workspace_id and d.delivery_id = j.delivery_id
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, result, error, meta)
        select p_workspace_id, core.uuid7(p_now), j.delivery_id, p_message.message_id, j.channel_id, p_now, 'validation_failed', 'error',
               j.error, jsonb_build_object('trace_id', j.trace_id)
        from judged j where j.error is not null
    )
    select count(*)::integer from judged j where j.error is null
$$;

-- They will never come: what waits for them fails, each delivery with the reason.
create or replace function autopost.media_failed(
    p_workspace_id text, p_message_id uuid, p_reason text, p_now timestamptz default now()) returns integer
language plpgsql as $$
declare
    error constant jsonb := jsonb_build_object('category', 'PERMANENT', 'scope', 'delivery', 'code', 'media_missing_origin',
        'message', left(core.redact_text(p_reason), 500));
    failed integer;
begin
    perform from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = p_message_id for no key update;
    with moved as (
        update autopost.deliveries d
        set status = 'failed_permanent', last_error = error, not_before = p_now, updated_at = p_now
        where d.workspace_id = p_workspace_id and d.message_id = p_message_id and d.status = 'queued' and d.not_before = 'infinity'
        returning d.delivery_id, d.channel_id, d.trace_id
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, result, error, meta)
        select p_workspace_id, core.uuid7(p_now), f.delivery_id, p_message_id, f.channel_id, p_now, 'failed_permanent', 'error', error,
               jsonb_build_object('trace_id', f.trace_id)
        from moved f
    )
    select count(*) into failed from moved;
    return failed;
end $$;

-- Deliveries that wait for a fetch that is not under way any more: its job was killed as often as a job may be, or somebody
-- cancelled it. A dead job's deliveries fail; without any job the fetch is asked for again.
create or replace function autopost.sweep_media(p_workspace_id text, p_limit integer default 500, p_now timestamptz default now()) returns integer
language plpgsql as $$
declare
    orphan record;
    swept integer := 0;
begin
    for orphan in
        select w.message_id, j.status, j.last_error
        from (select distinct d.message_id from autopost.deliveries d
              where d.workspace_id = p_workspace_id and d.status = 'queued' and d.not_before = 'infinity'
                and not exists (select from ops.jobs u where u.workspace_id = p_workspace_id and u.kind = 'media.fetch'
                                and u.unique_key = autopost.fetch_key(d.message_id) and u.status in ('waiting', 'retry', 'running'))
              limit p_limit) w
        left join lateral ops.latest_job(p_workspace_id, 'media.fetch', autopost.fetch_key(w.message_id)) j on true
    loop
        if orphan.status in ('dead', 'cancelled') then
            swept := swept + autopost.media_failed(p_workspace_id, orphan.message_id,
                coalesce('the media could not be fetched: ' || (orphan.last_error ->> 'message'), 'the fetch of the media was given up'), p_now);
        else
            swept := swept + autopost.ask_for_media(p_workspace_id, array[orphan.message_id], p_now);
        end if;
    end loop;
    return swept;
end $$;

-- Whose is it to upload this file to a platform, with this credential? 'ready': the handle is known. 'yours': until the lease
-- ends, nobody else does it. 'wait': somebody does. A sender that dies loses its place when its lease ends. p_sent_as: a photo's
-- handle is none of a document. A handle whose upload began before the credential's last rotation, or so soon after it that a
-- sender may still have had the old token, may belong to another bot: it counts as none. So updated_at is when the upload began.
create or replace function autopost.take_upload(
    p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_token uuid, p_lease interval,
    p_now timestamptz default now(), out state text, out handle text)
language plpgsql as $$
declare
    known autopost.media_blobs;
begin
    insert into autopost.media_blobs (workspace_id, blob_ref, provider, auth_ref, sent_as, created_at, updated_at)
    values (p_workspace_id, p_blob_ref, p_provider, p_auth_ref, p_sent_as, p_now, p_now) on conflict do nothing;
    select * into known from autopost.media_blobs b
    where b.workspace_id = p_workspace_id and b.blob_ref = p_blob_ref and b.provider = p_provider and b.auth_ref = p_auth_ref and b.sent_as = p_sent_as
    for no key update;
    handle := case when known.expires_at > p_now or known.expires_at is null then known.file_id end;
    if exists (select from core.credential_bindings c where c.workspace_id = p_workspace_id and c.platform = p_provider
               and c.auth_ref = p_auth_ref and c.rotated_at + autopost.token_grace() >= known.updated_at) then
        handle := null;
    end if;
    state := case when handle is not null then 'ready'
                  when known.taken_until > p_now and known.taken_by <> p_token then 'wait' else 'yours' end;
    if state = 'yours' then
        update autopost.media_blobs b
        set taken_by = p_token, taken_until = p_now + p_lease, file_id = null, expires_at = null,
            updated_at = case when known.taken_by = p_token then known.updated_at else p_now end
        where b.workspace_id = p_workspace_id and b.blob_ref = p_blob_ref and b.provider = p_provider and b.auth_ref = p_auth_ref and b.sent_as = p_sent_as;
    end if;
end $$;

-- Longer than any sender keeps a credential that it has read.
create or replace function autopost.token_grace() returns interval
language sql immutable parallel safe as $$ select interval '10 seconds' $$;

-- The platform has it: kept for the next sender. With p_token only while the upload is that sender's: one that came back after it
-- had lost its place may bring the handle of a bot that was rotated away meanwhile.
create or replace function autopost.put_upload(
    p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_handle text, p_expires_at timestamptz,
    p_token uuid default null, p_now timestamptz default now()) returns void
language sql volatile as $$
    insert into autopost.media_blobs as b (workspace_id, blob_ref, provider, auth_ref, sent_as, file_id, expires_at, created_at, updated_at)
    values (p_workspace_id, p_blob_ref, p_provider, p_auth_ref, p_sent_as, p_handle, p_expires_at, p_now, p_now)
    on conflict (workspace_id, blob_ref, provider, auth_ref, sent_as) do update
    set file_id = excluded.file_id, expires_at = excluded.expires_at, taken_by = null, taken_until = null
    where p_token is null or b.taken_by = p_token
$$;

-- The upload did not come about: the next one who waits may try.
create or replace function autopost.drop_upload(
    p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_token uuid, p_now timestamptz default now()) returns void
language sql volatile as $$
    update autopost.media_blobs b set taken_by = null, taken_until = null, updated_at = p_now
    where b.workspace_id = p_workspace_id and b.blob_ref = p_blob_ref and b.provider = p_provider and b.auth_ref = p_auth_ref and b.sent_as = p_sent_as
      and b.taken_by = p_token
$$;

-- The platform knows a handle no more. Only that one is forgotten: somebody may have brought a newer one meanwhile.
create or replace function autopost.forget_upload(
    p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_handle text, p_now timestamptz default now()) returns void
language sql volatile as $$
    update autopost.media_blobs b set file_id = null, expires_at = null, updated_at = p_now
    where b.workspace_id = p_workspace_id and b.blob_ref = p_blob_ref and b.provider = p_provider and b.auth_ref = p_auth_ref and b.sent_as = p_sent_as
      and b.file_id = p_handle
$$;
