-- What is old goes: deliveries, then the messages that no delivery refers to, events, runs. Page by page, each with the
-- place of the next in one transaction. Rows that somebody works on are passed by: the next pass meets them again.

-- What waits is never over, and what was sent stays for as long as its channel looks back for it (a day longer, for those whose
-- clock is behind).
create or replace function autopost.delivery_is_over(
    p_delivery autopost.deliveries, p_ttl_hours integer, p_keep interval, p_now timestamptz) returns boolean
language sql stable parallel safe as $$
    select p_delivery.status || '' in ('sent', 'deduped', 'failed_permanent', 'dead') and p_delivery.updated_at < p_now - p_keep
       and not coalesce(p_delivery.status || '' = 'sent'
                        and p_delivery.sent_at >= p_now - interval '1 day' - autopost.dedup_window(p_ttl_hours), false)
$$;

-- The ids of the next deliveries that were made before a moment, in their order. Their ids carry the time: it costs no index.
create or replace function autopost.old_deliveries(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz) returns uuid[]
language sql stable as $$
    select array(select d.delivery_id from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.delivery_id < ops.first_id(p_now - p_keep)
                   and d.delivery_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')::uuid
                 order by d.delivery_id limit p_limit)
$$;

-- What would go of the next page, and where the one after it begins.
create or replace function autopost.look_at_deliveries(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz default now(),
    out going bigint, out place text, out oldest timestamptz)
language plpgsql stable as $$
declare
    page constant uuid[] := autopost.old_deliveries(p_workspace_id, p_keep, p_after, p_limit, p_now);
    policy constant autopost.policies := (select p from autopost.policies p where p.workspace_id = p_workspace_id);
begin
    select count(*), min(d.updated_at) into going, oldest
    from autopost.deliveries d
    join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
    where d.workspace_id = p_workspace_id and d.delivery_id = any (page)
      and autopost.delivery_is_over(d, coalesce(c.dedup_ttl_hours, policy.dedup_ttl_hours, 168), p_keep, p_now);
    place := case when cardinality(page) = p_limit then page[p_limit] end;
end $$;

create or replace function autopost.prune_deliveries(
    p_workspace_id text, p_keep interval, p_limit integer default 500, p_now timestamptz default now(),
    out removed bigint, out more boolean)
language plpgsql as $$
declare
    page constant uuid[] := autopost.old_deliveries(
        p_workspace_id, p_keep, ops.retention_place(p_workspace_id, 'deliveries'), p_limit, p_now);
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
begin
    -- Judged and locked in one step: a row that changes before its lock is judged again as it is then.
    with going as materialized (
        select d.delivery_id
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.delivery_id = any (page)
          and autopost.delivery_is_over(d, coalesce(c.dedup_ttl_hours, policy.dedup_ttl_hours), p_keep, p_now)
        for no key update of d skip locked
    ), gone as (
        delete from autopost.deliveries d using going g
        where d.workspace_id = p_workspace_id and d.delivery_id = g.delivery_id returning 1
    )
    select count(*) into removed from gone;
    more := cardinality(page) = p_limit;
    perform ops.note_retention(p_workspace_id, 'deliveries', removed, case when more then page[p_limit]::text end, p_now - p_keep, p_now);
end $$;

create or replace function autopost.old_messages(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz) returns uuid[]
language sql stable as $$
    select array(select m.message_id from autopost.messages m
                 where m.workspace_id = p_workspace_id and m.message_id < ops.first_id(p_now - p_keep)
                   and m.message_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')::uuid
                 order by m.message_id limit p_limit)
$$;

create or replace function autopost.look_at_messages(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz default now(),
    out going bigint, out place text, out oldest timestamptz)
language plpgsql stable as $$
declare
    page constant uuid[] := autopost.old_messages(p_workspace_id, p_keep, p_after, p_limit, p_now);
begin
    select count(*), min(m.last_seen_at) into going, oldest from autopost.messages m
    where m.workspace_id = p_workspace_id and m.message_id = any (page) and m.last_seen_at < p_now - p_keep
      and not exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.message_id = m.message_id);
    place := case when cardinality(page) = p_limit then page[p_limit] end;
end $$;

-- An ingest that sees a message again holds its row until its deliveries are written. One that came first is passed by, or has
-- committed: then the look under the lock, a statement of its own, finds them. One that comes later waits, and makes the
-- message anew: it is never without one.
create or replace function autopost.prune_messages(
    p_workspace_id text, p_keep interval, p_limit integer default 500, p_now timestamptz default now(),
    out removed bigint, out more boolean)
language plpgsql as $$
declare
    page constant uuid[] := autopost.old_messages(
        p_workspace_id, p_keep, ops.retention_place(p_workspace_id, 'messages'), p_limit, p_now);
    unused uuid[];
begin
    unused := array(
        select m.message_id from autopost.messages m
        where m.workspace_id = p_workspace_id and m.message_id = any (page) and m.last_seen_at < p_now - p_keep
          and not exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.message_id = m.message_id)
        for no key update of m skip locked);
    delete from autopost.messages m
    where m.workspace_id = p_workspace_id and m.message_id = any (unused) and m.last_seen_at < p_now - p_keep
      and not exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.message_id = m.message_id);
    get diagnostics removed = row_count;
    more := cardinality(page) = p_limit;
    perform ops.note_retention(p_workspace_id, 'messages', removed, case when more then page[p_limit]::text end, p_now - p_keep, p_now);
end $$;

create or replace function autopost.look_at_runs(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz default now(),
    out going bigint, out place text, out oldest timestamptz)
language sql stable as $$
    with page as materialized (
        select r.started_at, r.run_id from autopost.ingest_runs r
        where r.workspace_id = p_workspace_id and r.started_at < p_now - p_keep
          and (r.started_at, r.run_id) > (coalesce(split_part(p_after, '|', 1)::timestamptz, '-infinity'),
                                          coalesce(split_part(p_after, '|', 2), '00000000-0000-0000-0000-000000000000')::uuid)
        order by r.started_at, r.run_id limit p_limit
    )
    select count(*), case when count(*) = p_limit then
               (select p.started_at || '|' || p.run_id from page p order by p.started_at desc, p.run_id desc limit 1) end,
           min(p.started_at)
    from page p
$$;

create or replace function autopost.prune_runs(
    p_workspace_id text, p_keep interval, p_limit integer default 500, p_now timestamptz default now(),
    out removed bigint, out more boolean)
language plpgsql as $$
begin
    delete from autopost.ingest_runs r
    where r.workspace_id = p_workspace_id and r.run_id = any (array(
        select x.run_id from autopost.ingest_runs x
        where x.workspace_id = p_workspace_id and x.started_at < p_now - p_keep
        order by x.started_at limit p_limit for no key update skip locked));
    get diagnostics removed = row_count;
    more := removed = p_limit;
    perform ops.note_retention(p_workspace_id, 'ingest_runs', removed, null, p_now - p_keep, p_now);
end $$;

-- Where the kept days of events begin: days are everybody's, so those go that nobody keeps any more.
create or replace function autopost.event_horizon(p_now timestamptz default now()) returns timestamptz
language sql stable as $$
    select date_trunc('day', p_now - greatest(ops.keep_of('*', 'events'), max(ops.keep_of(w.workspace_id, 'events'))), 'UTC')
    from core.workspaces w
$$;

-- The days that may be dropped whole, the oldest first.
create or replace function autopost.old_event_days(p_now timestamptz default now()) returns setof date
language sql stable as $$
    select d.day
    from (select to_date(right(c.relname, 8), 'YYYYMMDD') as day
          from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
          where i.inhparent = 'autopost.events'::regclass and c.relname ~ '^events_[0-9]{8}$') d
    where (d.day + 1)::timestamp at time zone 'UTC' <= autopost.event_horizon(p_now)
    order by d.day
$$;

-- The caller sets lock_timeout and tries again: whoever wants to write waits behind the lock that this one waits for. Returns
-- how many bytes are free again.
create or replace function autopost.drop_event_day(p_day date, p_now timestamptz default now()) returns bigint
language plpgsql as $$
declare
    name constant text := format('autopost.events_%s', to_char(p_day, 'YYYYMMDD'));
    size constant bigint := pg_total_relation_size(to_regclass(name));
begin
    if not exists (select from autopost.old_event_days(p_now) d where d = p_day) then
        raise exception 'the events of % are kept, or are not there', p_day using errcode = 'VM001';
    end if;
    execute 'drop table ' || name;
    perform ops.note_retention('*', 'events', 1, null, autopost.event_horizon(p_now), p_now);
    return size;
end $$;

-- Events of days that are over for this workspace.
create or replace function autopost.look_at_events(
    p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamptz default now(),
    out going bigint, out place text, out oldest timestamptz)
language sql stable as $$
    with page as materialized (
        select e.ts, e.id from autopost.events e
        where e.workspace_id = p_workspace_id and e.ts < date_trunc('day', p_now - p_keep, 'UTC')
          and e.ts >= coalesce(split_part(p_after, '|', 1)::timestamptz, '-infinity')
          and (e.ts, e.id) > (coalesce(split_part(p_after, '|', 1)::timestamptz, '-infinity'),
                              coalesce(split_part(p_after, '|', 2), '00000000-0000-0000-0000-000000000000')::uuid)
        order by e.ts, e.id limit p_limit
    )
    select count(*), case when count(*) = p_limit then
               (select p.ts || '|' || p.id from page p order by p.ts desc, p.id desc limit 1) end,
           min(p.ts)
    from page p
$$;

-- Where a workspace's own days are over and others keep theirs, its rows go, the oldest first; and whatever lies in the default
-- partition, which is never dropped. Days that will be dropped whole are left to that. p_before: no later than that.
create or replace function autopost.prune_events(
    p_workspace_id text, p_keep interval, p_limit integer default 500, p_now timestamptz default now(),
    p_before timestamptz default null, out removed bigint, out more boolean)
language plpgsql as $$
declare
    horizon constant timestamptz := autopost.event_horizon(p_now);
    own constant timestamptz := date_trunc('day', p_now - p_keep, 'UTC');
    upto constant timestamptz := least(own, p_before);
    last record;
    part bigint;
begin
    -- Up to the last row of a page: a range, which an index serves whatever the planner thinks of the numbers.
    select x.ts, x.id into last
    from (select e.ts, e.id from autopost.events_default e
          where e.workspace_id = p_workspace_id and e.ts < upto order by e.ts, e.id limit p_limit) x
    order by x.ts desc, x.id desc limit 1;
    delete from autopost.events_default e
    where e.workspace_id = p_workspace_id and e.ts <= last.ts and (e.ts, e.id) <= (last.ts, last.id);
    get diagnostics removed = row_count;

    select x.ts, x.id into last
    from (select e.ts, e.id from autopost.events e
          where e.workspace_id = p_workspace_id and e.ts >= horizon and e.ts < upto
          order by e.ts, e.id limit p_limit - removed) x
    order by x.ts desc, x.id desc limit 1;
    delete from autopost.events e
    where e.workspace_id = p_workspace_id and e.ts >= horizon and e.ts <= last.ts and (e.ts, e.id) <= (last.ts, last.id);
    get diagnostics part = row_count;
    removed := removed + part;
    more := removed = p_limit;
    perform ops.note_retention(p_workspace_id, 'events', removed, null, own, p_now);
end $$;

-- The oldest day of which a workspace has rows that prune_events would remove; null when there is none.
create or replace function autopost.oldest_event_day(p_workspace_id text, p_keep interval, p_now timestamptz default now()) returns date
language sql stable as $$
    select (least(
        (select min(e.ts) from autopost.events_default e
         where e.workspace_id = p_workspace_id and e.ts < date_trunc('day', p_now - p_keep, 'UTC')),
        (select min(e.ts) from autopost.events e
         where e.workspace_id = p_workspace_id and e.ts < date_trunc('day', p_now - p_keep, 'UTC')
           and e.ts >= autopost.event_horizon(p_now))) at time zone 'UTC')::date
$$;

-- A day of a workspace as lines of JSON, a page at a time.
create or replace function autopost.event_lines(p_workspace_id text, p_day date, p_after text default null, p_limit integer default 1000)
returns table (line text, place text)
language sql stable as $$
    select to_jsonb(e)::text, e.ts || '|' || e.id
    from autopost.events e
    where e.workspace_id = p_workspace_id and e.ts < (p_day + 1)::timestamp at time zone 'UTC'
      and e.ts >= coalesce(split_part(p_after, '|', 1)::timestamptz, p_day::timestamp at time zone 'UTC')
      and (p_after is null or (e.ts, e.id) > (split_part(p_after, '|', 1)::timestamptz, split_part(p_after, '|', 2)::uuid))
    order by e.ts, e.id limit p_limit
$$;

-- The workspaces that want a day of the log kept, have something in it, and have it not kept yet.
create or replace function autopost.days_to_archive(p_day date) returns setof text
language sql stable as $$
    select w.workspace_id from core.workspaces w
    where ops.retention_options(w.workspace_id, 'events') -> 'archive' = 'true'
      and not exists (select from autopost.event_archives a where a.workspace_id = w.workspace_id and a.day = p_day)
      and exists (select from autopost.events e where e.workspace_id = w.workspace_id
                  and e.ts >= p_day::timestamp at time zone 'UTC' and e.ts < (p_day + 1)::timestamp at time zone 'UTC')
    order by 1
$$;

create or replace function autopost.note_archive(
    p_workspace_id text, p_day date, p_path text, p_events bigint, p_now timestamptz default now()) returns void
language sql volatile as $$
    insert into autopost.event_archives (workspace_id, day, path, events, archived_at)
    values (p_workspace_id, p_day, p_path, p_events, p_now)
    on conflict (workspace_id, day) do update set path = excluded.path, events = excluded.events, archived_at = excluded.archived_at
$$;
