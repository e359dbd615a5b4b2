-- Failure webhooks: every failure that a webhook asked for becomes one job that tells it (webhook.send), at least once. The
-- failure is noted by its own transaction (autopost.note_failure), so none is lost.

-- Turn what was noted into jobs, for each webhook that asked for it. Returns how many jobs; wake the runners then
-- (pg_notify 'vestnik_jobs').
create or replace function ops.collect_failures(
    p_workspace_id text, p_limit integer default 500, p_now timestamptz default now())
returns table (failures integer, jobs integer)
language plpgsql as $$
#variable_conflict use_column
declare
    taken jsonb;
    wanted jsonb;
begin
    with next as (
        select f.event_id from ops.failures f where f.workspace_id = p_workspace_id
        order by f.event_id limit p_limit for no key update skip locked
    ), gone as (
        delete from ops.failures f using next where f.workspace_id = p_workspace_id and f.event_id = next.event_id returning f.*
    )
    select coalesce(jsonb_agg(to_jsonb(g) order by g.event_id), '[]') into taken from gone g;

    select jsonb_agg(jsonb_build_object(
        'kind', 'webhook.send', 'unique_key', w.webhook_id || ':' || (f.one ->> 'event_id'),
        'trace_id', f.one #>> '{data,trace_id}', 'payload', jsonb_build_object(
            'webhook_id', w.webhook_id, 'message_id', 'msg_' || (f.one ->> 'event_id'), 'noted_at', p_now,
            'body', jsonb_build_object('type', f.one -> 'type', 'timestamp', f.one -> 'ts', 'data', f.one -> 'data'))))
    into wanted
    from jsonb_array_elements(taken) f (one)
    join ops.webhooks w on w.workspace_id = p_workspace_id and w.enabled and f.one ->> 'type' = any (w.events);
    return query select jsonb_array_length(taken),
        (select count(*)::integer from ops.enqueue_jobs(p_workspace_id, coalesce(wanted, '[]'), p_now) e where e.is_new);
end $$;

-- What came of a call. p_error: {code, message, retry_after?}; with gone, the other side wants no more: it is switched off.
-- Returns when the webhook may be called again, null when at once.
create or replace function ops.note_webhook(
    p_workspace_id text, p_webhook_id text, p_error jsonb default null, p_gone boolean default false,
    p_now timestamptz default now())
returns timestamptz
language plpgsql as $$
declare
    again timestamptz;
begin
    update ops.webhooks w
    set last_sent_at = case when p_error is null then p_now else w.last_sent_at end,
        -- Many messages fail at once: that is one failure, and one pause.
        failures = case when p_error is null then 0 when ops.is_soon(w.next_try_at, p_now) then w.failures else w.failures + 1 end,
        failing_since = case when p_error is not null then coalesce(w.failing_since, p_now) end,
        last_error = case when p_error is not null then ops.normal_error(p_error) end,
        next_try_at = case when p_error is not null then greatest(
            case when ops.is_soon(w.next_try_at, p_now) then w.next_try_at end,
            p_now + ops.pause_after(w.failures + (not ops.is_soon(w.next_try_at, p_now))::integer, p_error, 3600)) end,
        enabled = w.enabled and not p_gone, updated_at = case when p_gone then p_now else w.updated_at end
    where w.workspace_id = p_workspace_id and w.webhook_id = p_webhook_id
    returning w.next_try_at into again;
    return again;
end $$;

-- A new secret signs from now on; those before it sign beside it for p_overlap, so that the other side can change over.
create or replace function ops.put_webhook_secret(
    p_workspace_id text, p_owner text, p_secret bytea, p_overlap interval default '0', p_now timestamptz default now())
returns void
language plpgsql as $$
declare
    new_id constant uuid := core.uuid7(p_now);
begin
    delete from ops.webhook_secrets s where s.workspace_id = p_workspace_id and s.owner = p_owner and s.ends_at <= p_now;
    update ops.webhook_secrets s set ends_at = least(s.ends_at, p_now + p_overlap)
    where s.workspace_id = p_workspace_id and s.owner = p_owner;
    insert into ops.webhook_secrets (workspace_id, owner, secret_id, secret, created_at)
    values (p_workspace_id, p_owner, new_id, p_secret, p_now);
end $$;

-- Those that sign now, the newest first.
create or replace function ops.webhook_secrets_of(p_workspace_id text, p_owner text, p_now timestamptz default now())
returns setof bytea
language sql stable as $$
    select s.secret from ops.webhook_secrets s
    where s.workspace_id = p_workspace_id and s.owner = p_owner and coalesce(s.ends_at > p_now, true)
    order by s.created_at desc, s.secret_id desc
$$;
