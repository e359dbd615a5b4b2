-- Files that nobody needs any more. A row goes first, under its lock, then the object that it named: every copy of a file has an
-- object of its own, so what is written while a row goes is never what is deleted. A crash between the two leaves an object
-- without a row, which unknown_objects finds.

create or replace function autopost.ref_count(p_workspace_id text, p_blob_ref text) returns bigint
language sql stable as $$
    select count(*) from autopost.messages m
    where m.workspace_id = p_workspace_id and m.payload ? 'media'
      and jsonb_path_query_array(m.payload, '$.media[*].blob_ref') @> jsonb_build_array(p_blob_ref)
$$;

-- media_origin.ref_count is what it was at the last pass: for people to see. What decides is asked anew.
create or replace function autopost.reconcile_refs(
    p_workspace_id text, p_limit integer default 500, p_now timestamptz default now(), out removed bigint, out more boolean)
language plpgsql as $$
declare
    page constant text[] := array(
        select o.blob_ref from autopost.media_origin o
        where o.workspace_id = p_workspace_id and o.blob_ref > coalesce(ops.retention_place(p_workspace_id, 'media_refs'), '')
        order by o.blob_ref limit p_limit);
begin
    with wrong as materialized (
        select o.blob_ref, n.refs from autopost.media_origin o, lateral (select autopost.ref_count(p_workspace_id, o.blob_ref) as refs) n
        where o.workspace_id = p_workspace_id and o.blob_ref = any (page) and o.ref_count <> n.refs
        for no key update of o skip locked
    )
    update autopost.media_origin o set ref_count = w.refs
    from wrong w where o.workspace_id = p_workspace_id and o.blob_ref = w.blob_ref;
    get diagnostics removed = row_count;
    more := cardinality(page) = p_limit;
    perform ops.note_retention(p_workspace_id, 'media_refs', removed, case when more then page[p_limit] end, null, p_now);
end $$;

-- A large video is needed for as long as a delivery of a post that names it can still go out; any other file for as long as
-- there is such a post.
create or replace function autopost.file_is_needed(p_workspace_id text, p_blob_ref text, p_large boolean) returns boolean
language sql stable as $$
    select exists (
        select from autopost.messages m
        where m.workspace_id = p_workspace_id and m.payload ? 'media'
          and jsonb_path_query_array(m.payload, '$.media[*].blob_ref') @> jsonb_build_array(p_blob_ref)
          and (not p_large or exists (
              select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.message_id = m.message_id
                and d.status || '' in ('queued', 'claimed', 'sending', 'retry'))))
$$;

create or replace function autopost.is_large_video(p_file autopost.media_origin, p_from_bytes bigint) returns boolean
language sql immutable parallel safe as $$
    select coalesce(p_file.content_type like 'video/%' and p_file.size_bytes >= p_from_bytes, false)
$$;

-- Those of some files that were not seen for as long as they are kept, and that nobody needs.
create or replace function autopost.files_over(p_workspace_id text, p_blob_refs text[], p_keep interval, p_now timestamptz)
returns setof autopost.media_origin
language sql stable as $$
    select o.*
    from (select (ops.retention_options(p_workspace_id, 'large_videos') ->> 'from_bytes')::bigint as from_bytes,
                 ops.keep_of(p_workspace_id, 'large_videos') as keep) large,
         autopost.media_origin o, lateral (select autopost.is_large_video(o, large.from_bytes) as large) is_it
    where o.workspace_id = p_workspace_id and o.blob_ref = any (p_blob_refs)
      and o.last_seen_at < p_now - case when is_it.large then large.keep else p_keep end
      and not autopost.file_is_needed(p_workspace_id, o.blob_ref, is_it.large)
$$;

create or replace function autopost.files_after(p_workspace_id text, p_after text, p_limit integer) returns text[]
language sql stable as $$
    select array(select o.blob_ref from autopost.media_origin o
                 where o.workspace_id = p_workspace_id and o.blob_ref > coalesce(p_after, '') order by o.blob_ref limit p_limit)
$$;

create or replace function autopost.look_at_files(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz default now(),
    out going bigint, out place text, out oldest timestamptz, out bytes bigint)
language plpgsql as $$
declare
    page constant text[] := autopost.files_after(p_workspace_id, p_after, p_limit);
begin
    select count(*), min(o.last_seen_at), coalesce(sum(o.size_bytes), 0) into going, oldest, bytes
    from autopost.files_over(p_workspace_id, page, p_keep, p_now) o;
    place := case when cardinality(page) = p_limit then page[p_limit] end;
end $$;

-- The rows of the next page's files go; the caller deletes the objects, once this is committed. A post that names a file locks
-- its row (media_seen), and so does a copy that comes in (store_origin): whoever comes first is seen under the lock here, and
-- who comes later finds no row, and makes it anew or says that the file is gone.
create or replace function autopost.forget_files(
    p_workspace_id text, p_keep interval, p_limit integer default 100, p_now timestamptz default now(),
    out removed bigint, out more boolean, out paths text[], out bytes bigint)
language plpgsql as $$
declare
    page constant text[] := autopost.files_after(p_workspace_id, ops.retention_place(p_workspace_id, 'media'), p_limit);
    free text[];
begin
    free := array(select o.blob_ref from autopost.media_origin o
                  where o.workspace_id = p_workspace_id
                    and o.blob_ref in (select f.blob_ref from autopost.files_over(p_workspace_id, page, p_keep, p_now) f)
                  for no key update of o skip locked);
    with gone as (
        delete from autopost.media_origin o
        where o.workspace_id = p_workspace_id
          and o.blob_ref in (select f.blob_ref from autopost.files_over(p_workspace_id, free, p_keep, p_now) f)
        returning o.blob_ref, o.origin_url, o.size_bytes
    ), handles as (
        delete from autopost.media_blobs b using gone g where b.workspace_id = p_workspace_id and b.blob_ref = g.blob_ref
    )
    select count(*), coalesce(array_agg(g.origin_url), '{}'), coalesce(sum(g.size_bytes), 0) into removed, paths, bytes from gone g;
    more := cardinality(page) = p_limit;
    perform ops.note_retention(p_workspace_id, 'media', removed, case when more then page[p_limit] end, null, p_now);
end $$;

-- Handles that a platform knows no more, and uploads that never came about.
create or replace function autopost.prune_handles(
    p_workspace_id text, p_limit integer default 500, p_now timestamptz default now(), out removed bigint, out more boolean)
language plpgsql as $$
declare
    page constant text[] := array(
        select distinct b.blob_ref from autopost.media_blobs b
        where b.workspace_id = p_workspace_id and b.blob_ref > coalesce(ops.retention_place(p_workspace_id, 'handles'), '')
        order by b.blob_ref limit p_limit);
begin
    with over as materialized (
        select b.blob_ref, b.provider, b.auth_ref, b.sent_as from autopost.media_blobs b
        where b.workspace_id = p_workspace_id and b.blob_ref = any (page) and autopost.handle_is_over(b, p_now)
        for no key update skip locked
    )
    delete from autopost.media_blobs b using over o
    where b.workspace_id = p_workspace_id and b.blob_ref = o.blob_ref and b.provider = o.provider and b.auth_ref = o.auth_ref
      and b.sent_as = o.sent_as;
    get diagnostics removed = row_count;
    more := cardinality(page) = p_limit;
    perform ops.note_retention(p_workspace_id, 'handles', removed, case when more then page[p_limit] end, null, p_now);
end $$;

create or replace function autopost.handle_is_over(p_handle autopost.media_blobs, p_now timestamptz) returns boolean
language sql stable parallel safe as $$
    select coalesce(p_handle.taken_until < p_now - interval '1 day', true) and p_handle.updated_at < p_now - interval '1 day'
       and (p_handle.file_id is null and p_handle.url is null or coalesce(p_handle.expires_at < p_now - interval '1 day', false))
$$;

create or replace function autopost.look_at_handles(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz default now(),
    out going bigint, out place text, out oldest timestamptz)
language sql stable as $$
    with page as materialized (
        select distinct b.blob_ref from autopost.media_blobs b
        where b.workspace_id = p_workspace_id and b.blob_ref > coalesce(p_after, '') order by b.blob_ref limit p_limit
    )
    select count(*) filter (where autopost.handle_is_over(b, p_now)),
           (select max(p.blob_ref) from page p having count(*) = p_limit),
           min(b.updated_at) filter (where autopost.handle_is_over(b, p_now))
    from autopost.media_blobs b where b.workspace_id = p_workspace_id and b.blob_ref in (select p.blob_ref from page p)
$$;

-- Those of some objects in the store that no row names. The name of an object begins with the hash by which its row is found.
create or replace function autopost.unknown_objects(p_workspace_id text, p_paths text[]) returns setof text
language sql stable as $$
    select p.path from unnest(p_paths) p (path)
    where not exists (select from autopost.media_origin o
                      where o.workspace_id = p_workspace_id
                        and o.blob_ref = 'sha256:' || substring(p.path from '/([0-9a-f]{64})[^/]*$') and o.origin_url = p.path)
$$;

-- A copy came in of a file that was there, but whose object is lost: the copy takes its place, unless another one did.
create or replace function autopost.replace_origin(
    p_workspace_id text, p_blob_ref text, p_lost_path text, p_new_path text, p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    update autopost.media_origin o set origin_url = p_new_path, last_seen_at = greatest(o.last_seen_at, p_now)
    where o.workspace_id = p_workspace_id and o.blob_ref = p_blob_ref and o.origin_url = p_lost_path;
    return found;
end $$;
