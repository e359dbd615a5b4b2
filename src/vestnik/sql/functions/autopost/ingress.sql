-- The gates before a payload is looked at: whose door, how fast, seen before?

-- Which enabled endpoint a secret opens. No workspace is known yet: endpoints and workspaces are small tables.
create or replace function autopost.resolve_endpoint(p_kind text, p_secret_hash text)
returns table (workspace_id text, endpoint_id text, max_payload_bytes integer)
language sql stable as $$
    select e.workspace_id, e.endpoint_id, e.max_payload_bytes
    from autopost.workspace_endpoints e
    join core.workspaces w on w.workspace_id = e.workspace_id and w.status <> 'disabled'
    where e.kind = p_kind and e.secret_hash = p_secret_hash and e.enabled
$$;

-- How many of p_count requests may pass now. Committed on its own, before the enqueue, so that pushes to one
-- endpoint wait for this row only as long as it takes to move it. Losing it in a crash costs nothing.
create or replace function autopost.ingress_admit(
    p_workspace_id text, p_endpoint_id text, p_count integer, p_now timestamptz default now()) returns integer
language plpgsql as $$
declare
    step interval;
    burst double precision;
    used interval;
    admitted integer;
begin
    perform set_config('synchronous_commit', 'off', true);
    select autopost.step_of(e.ingress_rps), greatest(e.ingress_rps, 1) into step, burst
    from autopost.workspace_endpoints e
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id;
    if not found then
        raise exception 'no endpoint % in workspace %', p_endpoint_id, p_workspace_id using errcode = 'VN001';
    end if;

    insert into autopost.ingress_gates (workspace_id, endpoint_id, full_until)
    values (p_workspace_id, p_endpoint_id, p_now) on conflict do nothing;
    select greatest(g.full_until - p_now, '0') into used from autopost.ingress_gates g
    where g.workspace_id = p_workspace_id and g.endpoint_id = p_endpoint_id for no key update;

    if step = '0' then
        return p_count; -- an infinite rate
    end if;
    -- Half a microsecond-step of slack: intervals are whole microseconds, the division is not.
    admitted := least(p_count, floor(burst - extract(epoch from used) / extract(epoch from step) + 1e-4))::integer;
    if admitted <= 0 then
        return 0;
    end if;
    update autopost.ingress_gates g set full_until = p_now + used + admitted * step
    where g.workspace_id = p_workspace_id and g.endpoint_id = p_endpoint_id;
    return admitted;
end $$;

-- When the next request would pass.
create or replace function autopost.ingress_retry_after(
    p_workspace_id text, p_endpoint_id text, p_now timestamptz default now()) returns interval
language sql stable as $$
    select greatest(g.full_until - p_now - (greatest(e.ingress_rps, 1) - 1) * autopost.step_of(e.ingress_rps), '0')
    from autopost.workspace_endpoints e
    join autopost.ingress_gates g on g.workspace_id = e.workspace_id and g.endpoint_id = e.endpoint_id
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id
$$;

-- What was turned away stays visible, at the price of one row per endpoint, second and reason.
create or replace function autopost.record_refusals(
    p_workspace_id text, p_endpoint_id text, p_action text, p_reason text, p_count integer,
    p_now timestamptz default now(), p_payload_ref text default null) returns void
language plpgsql as $$
declare
    second timestamptz := date_trunc('second', p_now);
    counter text := case p_action when 'ingress_rate_limited' then 'rate_limited'
                                  when 'ingress_payload_rejected' then 'payload_rejected'
                                  else 'dedup_dropped' end;
    event uuid := md5(concat_ws('|', p_endpoint_id, p_action, p_reason, second))::uuid;
    run uuid := md5(concat_ws('|', p_endpoint_id, 'refused', second))::uuid;
begin
    insert into autopost.events as e (workspace_id, id, ts, action, attempt, result, payload_ref, meta)
    values (p_workspace_id, event, second, p_action, 0,
            case p_action when 'ingress_dedup_dropped' then 'ok' else 'error' end, p_payload_ref,
            jsonb_build_object('endpoint_id', p_endpoint_id, 'reason', core.redact_text(p_reason), 'count', p_count))
    on conflict (workspace_id, ts, id) do update
    set meta = jsonb_set(e.meta, '{count}', to_jsonb((e.meta ->> 'count')::bigint + p_count)),
        payload_ref = coalesce(e.payload_ref, excluded.payload_ref);

    insert into autopost.ingest_runs as r (workspace_id, run_id, kind, started_at, finished_at, stats_json)
    values (p_workspace_id, run, 'push', second, p_now,
            jsonb_build_object('endpoint_id', p_endpoint_id, counter, p_count))
    on conflict (workspace_id, run_id) do update
    set finished_at = p_now,
        stats_json = r.stats_json
            || jsonb_build_object(counter, coalesce((r.stats_json ->> counter)::bigint, 0) + p_count);
end $$;

-- The items that were not seen before, each with its receipt written. Runs in the transaction of the enqueue: a
-- receipt without its message would turn the sender's retry away and lose the post.
-- Locks: hashes in their order, then source_refs in theirs.
create or replace function autopost.take_receipts(
    p_workspace_id text, p_endpoint_id text, p_kind text, p_posts autopost.incoming[], p_now timestamptz)
returns setof integer
language plpgsql as $$
declare
    lifetime interval := (autopost.policy_of(p_workspace_id)).receipt_ttl;
    drop_window interval;
begin
    select make_interval(secs => e.hash_drop_window_sec) into drop_window
    from autopost.workspace_endpoints e
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id;

    perform pg_advisory_xact_lock(hashtextextended(concat_ws('|', p_workspace_id, p_endpoint_id, h.hash), 7))
    from (select distinct autopost.inbound_hash(p.raw) as hash
          from unnest(p_posts) p where p.raw ->> 'source_ref' is null order by 1) h;

    -- OFFSET 0 keeps the look for an older receipt a probe for each item: joined to a table that was small when the plan
    -- was made, it would read all of it.
    return query
    with seen as materialized (
        select distinct on (h.hash) p.item, p.trace_id, h.hash
        from unnest(p_posts) p, lateral (select autopost.inbound_hash(p.raw) as hash offset 0) h
        where p.raw ->> 'source_ref' is null order by h.hash, p.item
    ), taken as (
        insert into autopost.ingress_receipts
            (workspace_id, endpoint_id, endpoint_kind, payload_hash, received_at, expires_at, receipt_id)
        select p_workspace_id, p_endpoint_id, p_kind, s.hash, p_now, p_now + lifetime, s.trace_id
        from seen s
        where not exists (
            select from autopost.ingress_receipts r
            where r.workspace_id = p_workspace_id and r.endpoint_id = p_endpoint_id and r.payload_hash = s.hash
              and r.source_ref is null and r.received_at > p_now - drop_window offset 0)
        returning receipt_id
    )
    select s.item from seen s where s.trace_id in (select t.receipt_id from taken t);

    return query
    with first as materialized (
        select distinct on (p.raw ->> 'source_ref') p.raw ->> 'source_ref' as ref, p.item, p.trace_id,
               autopost.inbound_hash(p.raw) as hash
        from unnest(p_posts) p where p.raw ->> 'source_ref' is not null order by 1, p.item
    ), taken as (
        insert into autopost.ingress_receipts as r
            (workspace_id, endpoint_id, endpoint_kind, source_ref, payload_hash, received_at, expires_at, receipt_id)
        select p_workspace_id, p_endpoint_id, p_kind, f.ref, f.hash, p_now, p_now + lifetime, f.trace_id
        from first f order by f.ref
        on conflict (workspace_id, endpoint_id, source_ref) where source_ref is not null do update
        set payload_hash = excluded.payload_hash, received_at = excluded.received_at,
            expires_at = excluded.expires_at, receipt_id = excluded.receipt_id
        where r.expires_at <= p_now
        returning receipt_id
    )
    select f.item from first f where f.trace_id in (select t.receipt_id from taken t);
end $$;
