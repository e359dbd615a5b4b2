-- A post goes in: normal form, one message, one delivery per channel that wants it.
-- Statements are apart on purpose: the upsert takes the message's row lock, and the duplicate check that follows must
-- see what the one who held it before has committed.

-- Many payloads, one call. With p_gated the receipts of the endpoint are taken in the same transaction.
create or replace function autopost.enqueue_batch(
    p_workspace_id text, p_endpoint_id text, p_kind text, p_raws jsonb[],
    p_now timestamptz default now(), p_run_id uuid default null, p_gated boolean default false)
returns table (item integer, outcome text, message_id uuid, trace_id uuid, run_id uuid,
               enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[], problems text[],
               media_pending integer)
language plpgsql as $$
#variable_conflict use_column
declare
    run constant uuid := coalesce(p_run_id, core.uuid7(p_now));
    posts autopost.incoming[];
    fresh integer[];
begin
    perform autopost.require_workspace(p_workspace_id);

    posts := autopost.incoming_posts(p_raws, p_now);
    if cardinality(posts) < cardinality(p_raws) then
        return query
        select r.n::integer, 'invalid', null::uuid, null::uuid, run, 0, 0, 0, null::text[], null::text[], x.problems, 0
        from unnest(p_raws) with ordinality r (raw, n), lateral autopost.payload_problems(r.raw) x (problems)
        where x.problems <> '{}';
    end if;
    if p_gated and posts <> '{}' then
        fresh := array(select autopost.take_receipts(p_workspace_id, p_endpoint_id, p_kind, posts, p_now));
        return query
        select p.item, 'duplicate', null::uuid, p.trace_id, run, 0, 0, 0, null::text[], null::text[], null::text[], 0
        from unnest(posts) p where p.item <> all (fresh);
        posts := autopost.with_rounds(array(select p from unnest(posts) p where p.item = any (fresh)));
    end if;

    -- Equal payloads in one call meet the first of them as a stored message: one round per occurrence.
    for r in 1 .. coalesce((select max(p.round) from unnest(posts) p), 0) loop
        return query
        select o.item, 'accepted', o.message_id, o.trace_id, run, o.enqueued, o.suppressed, o.failed,
               o.routed_by_tags, o.warnings, null::text[], o.media_pending
        from autopost.enqueue_round(p_workspace_id, array(select p from unnest(posts) p where p.round = r), run, p_now, p_kind <> 'pull') o;
    end loop;

    if posts <> '{}' then
        insert into autopost.ingest_runs as i (workspace_id, run_id, kind, started_at, finished_at, stats_json)
        values (p_workspace_id, run, case p_kind when 'pull' then 'pull' else 'push' end, p_now, p_now,
                jsonb_build_object('endpoint_id', p_endpoint_id, 'accepted', cardinality(posts)))
        on conflict (workspace_id, run_id) do update
        set finished_at = p_now, stats_json = i.stats_json || jsonb_build_object(
            'accepted', coalesce((i.stats_json ->> 'accepted')::bigint, 0) + cardinality(posts));
    end if;
end $$;

-- One payload. Raises VP001 when its shape is wrong.
create or replace function autopost.enqueue_messages_and_deliveries(
    p_workspace_id text, p_endpoint_id text, p_kind text, p_raw_payload_json jsonb,
    p_now timestamptz default now(), p_run_id uuid default null)
returns table (outcome text, message_id uuid, trace_id uuid, run_id uuid,
               enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[], media_pending integer)
language plpgsql as $$
#variable_conflict use_column
declare
    problems text[] := autopost.payload_problems(p_raw_payload_json);
begin
    if problems <> '{}' then
        raise exception 'invalid payload: %', array_to_string(problems, '; ')
            using errcode = 'VP001', detail = to_json(problems)::text;
    end if;
    return query
    select b.outcome, b.message_id, b.trace_id, b.run_id, b.enqueued, b.suppressed, b.failed, b.routed_by_tags, b.warnings,
           b.media_pending
    from autopost.enqueue_batch(p_workspace_id, p_endpoint_id, p_kind, array[p_raw_payload_json], p_now, p_run_id) b;
end $$;

create or replace function autopost.require_workspace(p_workspace_id text) returns void
language plpgsql stable as $$
begin
    perform from core.workspaces w where w.workspace_id = p_workspace_id and w.status <> 'disabled';
    if not found then
        raise exception 'no workspace %, or it is disabled', p_workspace_id using errcode = 'VN001';
    end if;
end $$;

-- The order of a call is kept in created_at: the last post was made now, each one before it a microsecond earlier. None is made
-- later than now, so each can go at once.
create or replace function autopost.incoming_posts(p_raws jsonb[], p_now timestamptz) returns autopost.incoming[]
language sql volatile as $$
    select autopost.with_rounds(array(
        select (r.n, r.raw, n.payload, autopost.content_hash(n.payload),
                autopost.normalize_tags(autopost.array_of(r.raw, 'tags'), n.payload ->> 'text'),
                core.uuid7(p_now), p_now - (cardinality(p_raws) - r.n) * interval '1 microsecond', 1)::autopost.incoming
        from unnest(p_raws) with ordinality r (raw, n),
             lateral (select autopost.normalize_payload(r.raw) as payload offset 0) n
        where autopost.payload_problems(r.raw) = '{}'
        order by r.n))
$$;

create or replace function autopost.with_rounds(p_posts autopost.incoming[]) returns autopost.incoming[]
language sql immutable as $$
    select coalesce(array_agg((p.item, p.raw, p.payload, p.content_hash, p.tags, p.trace_id, p.created_at, p.nth)::autopost.incoming
                              order by p.item), '{}')
    from (select *, row_number() over (partition by content_hash order by item)::integer as nth from unnest(p_posts)) p
$$;

-- Every content hash at most once in p_posts. Nobody reads the warnings of what was pulled.
create or replace function autopost.enqueue_round(
    p_workspace_id text, p_posts autopost.incoming[], p_run_id uuid, p_now timestamptz, p_warned boolean default true)
returns table (item integer, message_id uuid, trace_id uuid, enqueued integer, suppressed integer, failed integer,
               routed_by_tags text[], warnings text[], media_pending integer)
language plpgsql as $$
#variable_conflict use_column
declare
    stored autopost.stored[];
begin
    stored := autopost.upsert_messages(p_workspace_id, p_posts, p_run_id, p_now);
    perform autopost.media_seen(p_workspace_id, stored, p_now);

    insert into autopost.events (workspace_id, id, message_id, ts, action, meta)
    select p_workspace_id, core.uuid7(p_now), s.message_id, p_now, 'message_tag_mismatch',
           jsonb_build_object('trace_id', p.trace_id, 'run_id', p_run_id, 'first_seen', core.redact(to_jsonb(s.tags)),
                              'now', core.redact(to_jsonb(p.tags)))
    from unnest(stored) s join unnest(p_posts) p on p.item = s.item
    where s.tags <> p.tags;

    return query
    with planned as materialized (
        select * from autopost.fan_out(p_workspace_id, stored, p_run_id, p_now)
    )
    select s.item, s.message_id, s.trace_id, coalesce(f.enqueued, 0), coalesce(f.suppressed, 0), coalesce(f.failed, 0),
           case when s.tags <> p.tags then s.tags end,
           case when p_warned then autopost.warnings_of(p_workspace_id, s, p.tags, p_now)
               || case when f.item is null then autopost.nobody_warning(p_workspace_id, s) else '{}' end
               else '{}' end,
           coalesce(f.media_pending, 0)
    from unnest(stored) s
    join unnest(p_posts) p on p.item = s.item
    left join planned f on f.item = s.item;

    -- One fetch for a message, however many pushes wait for it.
    perform autopost.ask_for_media(p_workspace_id, array(select s.message_id from unnest(stored) s where s.payload ? 'media'), p_now);
end $$;

-- Volatile, because it looks at what the fan-out has just written.
create or replace function autopost.warnings_of(
    p_workspace_id text, p_stored autopost.stored, p_tags text[], p_now timestamptz) returns text[]
language sql volatile as $$
    select array_remove(array[
        autopost.tags_warning(p_stored, p_tags), autopost.only_warning(p_workspace_id, p_stored),
        autopost.past_warning(p_stored, p_now), autopost.gap_warning(p_workspace_id, p_stored, p_now)], null)
$$;

-- Nobody gets it: the first channels that it was meant for, and why not. That the post names unknown ones is said already.
create or replace function autopost.nobody_warning(p_workspace_id text, p_stored autopost.stored) returns text[]
language sql stable as $$
    with meant as materialized (
        select c.channel_id as id, row_number() over (order by c.channel_id) as place, count(*) over () as total
        from autopost.channels c
        where c.workspace_id = p_workspace_id and c.channel_id = any (coalesce(p_stored.only_channels, array[c.channel_id]))
    ), reason as (
        select string_agg(m.id || ': ' || autopost.unwanted_reason(c, p_stored), '; ' order by m.place)
               || case when max(m.total) > 3 then format('; and %s more', max(m.total) - 3) else '' end as said
        from meant m join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = m.id
        where m.place <= 3
    )
    select array_remove(array['no channel wants it: ' || coalesce(r.said, case
        when p_stored.only_channels is null then 'the workspace has none'
        when p_stored.only_channels = '{}' then 'the post names none' end)], null)
    from reason r
$$;

create or replace function autopost.tags_warning(p_stored autopost.stored, p_tags text[]) returns text
language sql immutable as $$
    select case when p_stored.tags <> p_tags then 'the same post came before with other tags; it is routed by those' end
$$;

create or replace function autopost.past_warning(p_stored autopost.stored, p_now timestamptz) returns text
language sql immutable as $$
    select case when p_stored.scheduled_for < p_now - interval '1 minute' then 'scheduled_for is in the past: it goes at once' end
$$;

create or replace function autopost.only_warning(p_workspace_id text, p_stored autopost.stored) returns text
language sql stable as $$
    select case when p_stored.only_channels is not null then autopost.unknown_channels(p_workspace_id, p_stored.only_channels) end
$$;

-- Content, origin and tags stay as first seen; in hash order, so that two batches lock alike.
create or replace function autopost.upsert_messages(
    p_workspace_id text, p_posts autopost.incoming[], p_run_id uuid, p_now timestamptz) returns autopost.stored[]
language sql volatile as $$
    with upserted as (
        insert into autopost.messages as m (workspace_id, message_id, hash_version, content_hash, payload, tags, source,
            source_ref, first_seen_trace_id, first_ingest_run_id, last_seen_at, last_ingest_run_id, created_at)
        select p_workspace_id, core.uuid7(p_now), autopost.hash_version(), p.content_hash, p.payload, p.tags,
               p.raw -> 'source', p.raw ->> 'source_ref', p.trace_id, p_run_id, p_now, p_run_id, p_now
        from unnest(p_posts) p order by p.content_hash
        on conflict (workspace_id, hash_version, content_hash) do update
        set last_seen_at = excluded.last_seen_at, last_ingest_run_id = excluded.last_ingest_run_id,
            seen_count = m.seen_count + 1
        returning m.message_id, m.content_hash, m.tags, m.payload, m.source, m.xmax = 0 as is_new
    )
    select coalesce(array_agg((p.item, u.message_id, u.is_new, u.payload, p.content_hash, u.tags, p.trace_id, p.created_at,
        case when jsonb_typeof(p.raw -> 'channels') = 'array'
             then array(select jsonb_array_elements_text(p.raw -> 'channels')) end,
        (p.raw ->> 'scheduled_for')::timestamptz, u.source)::autopost.stored order by p.item), '{}')
    from upserted u join unnest(p_posts) p on p.content_hash = u.content_hash
$$;

create or replace function autopost.unknown_channels(p_workspace_id text, p_only text[]) returns text
language sql stable as $$
    select 'no such channel: ' || string_agg(o.id, ', ' order by o.id)
    from unnest(p_only) o (id)
    where not exists (select from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = o.id)
$$;

-- A CASE, because the planner guesses next to nothing of what jsonb operators let through, and half of a CASE: it then
-- prepares for many channels.
create or replace function autopost.routes_to(p_filter jsonb, p_tags text[], p_tags_json jsonb) returns boolean
language sql immutable parallel safe as $$
    select case when p_filter is null then true else
        coalesce((p_filter -> 'include_any') ?| p_tags or p_filter -> 'include_any' = '[]', true)
        and coalesce(p_tags_json @> (p_filter -> 'include_all'), true)
        and not coalesce((p_filter -> 'exclude') ?| p_tags, false) end
$$;

-- Why this content may not go into this channel now; null when it may.
create or replace function autopost.duplicate_reason(
    p_workspace_id text, p_channel_id text, p_content_hash text, p_sent_after timestamptz) returns text
language sql stable as $$
    select case
        when exists (select from autopost.deliveries d
                     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id
                       and d.content_hash = p_content_hash and d.hash_version = autopost.hash_version()
                       and d.status in ('queued', 'claimed', 'sending', 'retry')) then 'in_flight'
        when exists (select from autopost.deliveries d
                     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id
                       and d.content_hash = p_content_hash and d.hash_version = autopost.hash_version()
                       and d.status = 'sent' and d.sent_at is not null and d.sent_at >= p_sent_after) then 'sent_within_ttl'
    end
$$;

-- One row per channel that wants the message, in channel order (as every other lock of channels), each with its event.
-- A message that is new here cannot have a delivery yet: its channels skip the duplicate check.
create or replace function autopost.fan_out(
    p_workspace_id text, p_stored autopost.stored[], p_run_id uuid, p_now timestamptz)
returns table (item integer, enqueued integer, suppressed integer, failed integer, media_pending integer)
language sql volatile as $$
    with given as materialized (
        select core.uuid7(p_now) as delivery_base, core.uuid7(p_now) as event_base,
               (autopost.policy_of(p_workspace_id)).dedup_ttl_hours as ttl
    ), form as materialized (
        select row_number() over () as form, f.*,
               jsonb_build_object('trace_id', f.trace_id, 'run_id', p_run_id) as event_meta,
               case when f.media_pending then 'infinity' else f.not_before end as goes_at
        from autopost.plan_forms(p_workspace_id, p_stored, p_now) f
    ), planned as materialized (
        select f.form, f.item, x.channel_id, f.error is not null as failed, f.media_pending,
               core.nth_uuid(g.delivery_base, row_number() over w) as delivery_id,
               core.nth_uuid(g.event_base, row_number() over w) as event_id,
               case when not f.is_new and f.error is null then
                   autopost.duplicate_reason(p_workspace_id, x.channel_id, f.content_hash,
                                             p_now - autopost.dedup_window(coalesce(x.ttl, g.ttl))) end as duplicate
        from form f, unnest(f.channels, f.ttls) x (channel_id, ttl), given g
        window w as (order by x.channel_id, f.item)
    ), deliveries as (
        insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, hash_version, content_hash,
            not_before, scheduled_for, status, last_error, rendered_text, render_meta, template_version, trace_id,
            enqueue_batch_id, created_at, updated_at)
        select p_workspace_id, p.delivery_id, f.message_id, p.channel_id, autopost.hash_version(), f.content_hash, f.goes_at,
               f.scheduled_for,
               case when p.failed then 'failed_permanent' when p.duplicate is not null then 'deduped' else 'queued' end,
               f.error, f.text, f.meta, f.template_version, f.trace_id, p_run_id, f.created_at, p_now
        from planned p join form f on f.form = p.form
    ), events as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, result, error, meta)
        select p_workspace_id, p.event_id, p.delivery_id, f.message_id, p.channel_id, p_now,
               case when p.failed then 'validation_failed' when p.duplicate is not null then 'dedup_suppressed' else 'enqueue' end,
               case when p.failed then 'error' else 'ok' end, f.error,
               case when p.duplicate is null then f.event_meta else f.event_meta || jsonb_build_object('reason', p.duplicate) end
        from planned p join form f on f.form = p.form
    )
    select p.item, count(*) filter (where not p.failed and p.duplicate is null)::integer,
           count(p.duplicate)::integer, count(*) filter (where p.failed)::integer,
           count(*) filter (where not p.failed and p.duplicate is null and p.media_pending)::integer
    from planned p group by p.item
$$;
