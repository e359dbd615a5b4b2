-- Pull sources: what was read becomes posts, and the place in the source moves, in one transaction or not at all.

-- A run begins. Its row is there from now on, so that one that nobody lived to end can be seen. Only an enabled source is read: for
-- another one this returns nothing. channels: how many may get each item, which bounds what one transaction can take.
create or replace function autopost.begin_pull(p_workspace_id text, p_source_id text, p_now timestamptz default now())
returns table (run_id uuid, kind text, config jsonb, backlog integer, cursor jsonb, channels integer)
language plpgsql as $$
#variable_conflict use_column
declare
    source constant autopost.pull_sources := autopost.require_source(p_workspace_id, p_source_id);
    run constant uuid := core.uuid7(p_now);
begin
    perform autopost.require_workspace(p_workspace_id);
    if not source.enabled then
        return;
    end if;
    insert into autopost.ingest_runs (workspace_id, run_id, kind, started_at, stats_json)
    values (p_workspace_id, run, 'pull', p_now, jsonb_build_object('source_id', p_source_id, 'outcome', 'running'));
    return query
    select run, source.kind, source.config_json, source.backlog, autopost.pull_cursor(p_workspace_id, p_source_id),
           (select count(*)::integer from autopost.channels c where c.workspace_id = p_workspace_id and c.enabled);
end $$;

-- The next reading begins where the last committed one ended.
create or replace function autopost.pull_cursor(p_workspace_id text, p_source_id text) returns jsonb
language sql stable as $$
    select coalesce((select c.cursor_json from autopost.pull_cursors c
                     where c.workspace_id = p_workspace_id and c.source_id = p_source_id), '{}')
$$;

-- Which of these items were never taken.
create or replace function autopost.unseen_items(p_workspace_id text, p_source_id text, p_keys text[]) returns setof text
language sql stable as $$
    select k.key from unnest(p_keys) k (key)
    where not exists (select from autopost.pull_items i where i.workspace_id = p_workspace_id and i.source_id = p_source_id
                      and i.item_hash = core.sha256_hex(k.key))
$$;

create or replace function autopost.require_source(p_workspace_id text, p_source_id text) returns autopost.pull_sources
language plpgsql stable as $$
declare
    source autopost.pull_sources;
begin
    select * into source from autopost.pull_sources s where s.workspace_id = p_workspace_id and s.source_id = p_source_id;
    if not found then
        raise exception 'no source % in workspace %', p_source_id, p_workspace_id using errcode = 'VN001';
    end if;
    return source;
end $$;

-- One page of a source: [{key, payload?, skip?: why it is not taken, problem?: why it cannot be}] in the order of the source.
-- Each key becomes a post once, whatever the source shows again; what is skipped or faulty is noted and never looked at again. The
-- cursor moves with them; without p_cursor they are only a part of a page, and it stays. Its lock comes first: a run that read the
-- same page waits here, and finds the items taken. p_first: what is skipped is so because nothing was ever read; when
-- another run has read meanwhile, that is not true any more, and nothing is done.
create or replace function autopost.commit_pull(
    p_workspace_id text, p_source_id text, p_run_id uuid, p_items jsonb, p_cursor jsonb,
    p_notes jsonb default '[]', p_now timestamptz default now(), p_first boolean default false)
returns table (key text, outcome text, message_id uuid, enqueued integer, suppressed integer, failed integer,
               media_pending integer, problem text)
language plpgsql as $$
#variable_conflict use_column
declare
    fresh autopost.pulled[];
    stands_at jsonb;
begin
    perform autopost.require_source(p_workspace_id, p_source_id);
    insert into autopost.pull_cursors (workspace_id, source_id, updated_at) values (p_workspace_id, p_source_id, p_now) on conflict do nothing;
    select c.cursor_json into stands_at from autopost.pull_cursors c
    where c.workspace_id = p_workspace_id and c.source_id = p_source_id for no key update;
    if p_first and stands_at <> '{}' then
        return;
    end if;

    update autopost.pull_items p set last_seen_at = p_now
    where p.workspace_id = p_workspace_id and p.source_id = p_source_id and p.last_seen_at < p_now - interval '1 day'
      and p.item_hash = any (array(select core.sha256_hex(i ->> 'key') from jsonb_array_elements(p_items) i));
    fresh := autopost.take_items(p_workspace_id, p_source_id, p_run_id, p_items, p_now);
    insert into autopost.pull_items (workspace_id, source_id, item_hash, message_id, outcome, first_seen_at, last_seen_at)
    select p_workspace_id, p_source_id, core.sha256_hex(f.key), f.message_id, f.outcome, p_now, p_now from unnest(fresh) f;
    perform autopost.note_pull(p_workspace_id, p_source_id, p_run_id, jsonb_array_length(p_items), fresh, p_notes, p_now);
    update autopost.pull_cursors c set cursor_json = coalesce(p_cursor, c.cursor_json), updated_at = p_now
    where c.workspace_id = p_workspace_id and c.source_id = p_source_id;

    return query select f.key, f.outcome, f.message_id, f.enqueued, f.suppressed, f.failed, f.media_pending, f.problem from unnest(fresh) f;
end $$;

-- What is new of a page goes the way of a push; what became of each item.
create or replace function autopost.take_items(
    p_workspace_id text, p_source_id text, p_run_id uuid, p_items jsonb, p_now timestamptz) returns autopost.pulled[]
language sql volatile as $$
    with item as (
        select distinct on (i.item ->> 'key') i.item, i.n from jsonb_array_elements(p_items) with ordinality i (item, n)
        order by i.item ->> 'key', i.n
    ), fresh as materialized (
        select i.item, i.n, case when i.item ? 'problem' then 'invalid' when i.item ? 'skip' then 'skipped' else 'taken' end as outcome
        from item i
        where not exists (select from autopost.pull_items p where p.workspace_id = p_workspace_id and p.source_id = p_source_id
                          and p.item_hash = core.sha256_hex(i.item ->> 'key'))
    ), post as materialized (
        select f.n, row_number() over (order by f.n)::integer as place, f.item -> 'payload' as payload from fresh f where f.outcome = 'taken'
    ), done as materialized (
        select b.* from autopost.enqueue_batch(p_workspace_id, null, 'pull', array(select p.payload from post p order by p.place),
                                               p_now, p_run_id) b
    )
    select coalesce(array_agg((f.item ->> 'key', case when d.outcome = 'invalid' then 'invalid' else f.outcome end, d.message_id,
        coalesce(d.enqueued, 0), coalesce(d.suppressed, 0), coalesce(d.failed, 0), coalesce(d.media_pending, 0),
        coalesce(f.item ->> 'problem', f.item ->> 'skip', array_to_string(d.problems, '; ')))::autopost.pulled order by f.n), '{}')
    from fresh f left join post p on p.n = f.n left join done d on d.item = p.place
$$;

-- The run's row: counts that add up over its pages, why items were skipped, and the first reasons why others could not be taken.
create or replace function autopost.note_pull(
    p_workspace_id text, p_source_id text, p_run_id uuid, p_read integer, p_fresh autopost.pulled[], p_notes jsonb, p_now timestamptz)
returns void
language sql volatile as $$
    insert into autopost.ingest_runs as r (workspace_id, run_id, kind, started_at, stats_json)
    values (p_workspace_id, p_run_id, 'pull', p_now, '{"outcome": "running"}') on conflict (workspace_id, run_id) do nothing;
    with count as (
        select jsonb_build_object('read', p_read, 'new', count(*), 'taken', count(*) filter (where f.outcome = 'taken'),
            'skipped', count(*) filter (where f.outcome = 'skipped'), 'invalid', count(*) filter (where f.outcome = 'invalid'),
            'enqueued', coalesce(sum(f.enqueued), 0), 'suppressed', coalesce(sum(f.suppressed), 0),
            'failed', coalesce(sum(f.failed), 0)) as counts
        from unnest(p_fresh) f
    ), skip as (
        select coalesce(jsonb_object_agg(s.problem, s.n), '{}') as counts
        from (select left(f.problem, 100) as problem, count(*) as n from unnest(p_fresh) f where f.outcome = 'skipped' group by 1) s
    ), reason as (
        select coalesce(jsonb_agg(x.reason), '[]') as reasons from (
            select jsonb_build_object('reason', left(core.redact_text(n #>> '{}'), 300)) as reason from jsonb_array_elements(p_notes) n
            union all
            select jsonb_build_object('key', left(f.key, 200), 'reason', left(core.redact_text(f.problem), 300)) from unnest(p_fresh) f where f.outcome = 'invalid'
            limit 50) x
    )
    update autopost.ingest_runs r
    set stats_json = r.stats_json || jsonb_build_object('source_id', p_source_id)
        || autopost.added_up(r.stats_json, count.counts)
        || jsonb_strip_nulls(jsonb_build_object(
            'why_skipped', nullif(coalesce(r.stats_json -> 'why_skipped', '{}')
                || autopost.added_up(coalesce(r.stats_json -> 'why_skipped', '{}'), skip.counts), '{}'),
            'reasons', nullif(jsonb_path_query_array(coalesce(r.stats_json -> 'reasons', '[]') || reason.reasons, '$[0 to 49]'), '[]')))
    from count, skip, reason
    where r.workspace_id = p_workspace_id and r.run_id = p_run_id;
$$;

-- The counts of p_more, each with what there was of it before.
create or replace function autopost.added_up(p_before jsonb, p_more jsonb) returns jsonb
language sql immutable as $$
    select coalesce(jsonb_object_agg(m.key, coalesce((p_before ->> m.key)::bigint, 0) + m.value::bigint), '{}') from jsonb_each_text(p_more) m
$$;

-- A run has ended: the source knows when and how. With an error, its run says why; the next one comes at its time.
create or replace function autopost.end_pull(
    p_workspace_id text, p_source_id text, p_run_id uuid, p_outcome text default 'ok', p_error jsonb default null, p_now timestamptz default now())
returns jsonb
language plpgsql as $$
declare
    stats jsonb;
begin
    update autopost.ingest_runs r
    set finished_at = p_now, stats_json = r.stats_json || jsonb_strip_nulls(jsonb_build_object('outcome', p_outcome, 'error', core.redact(p_error)))
    where r.workspace_id = p_workspace_id and r.run_id = p_run_id
    returning r.stats_json into stats;
    update autopost.pull_sources s
    set last_run_at = p_now, last_error = core.redact(p_error), failures = case when p_error is null then 0 else s.failures + 1 end
    where s.workspace_id = p_workspace_id and s.source_id = p_source_id;
    return stats;
end $$;

-- Nothing is left of a source but the posts that it brought and the rows of its runs. False when there was none.
create or replace function autopost.remove_source(p_workspace_id text, p_source_id text) returns boolean
language plpgsql as $$
begin
    perform ops.remove_schedule(p_workspace_id, 'source:' || p_source_id);
    delete from autopost.pull_sources s where s.workspace_id = p_workspace_id and s.source_id = p_source_id;
    return found;
end $$;
