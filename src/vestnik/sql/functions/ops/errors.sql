-- Errors worth a row: in one form, short, and without what must stay secret.

-- p_ctx: {workflow, node, op, job_id, trace_id, kind, retryable}, all of them optional. To record an error must never be a
-- second one: whatever does not fit is left out.
create or replace function ops.record_error(
    p_workspace_id text, p_ctx jsonb, p_message text, p_status_code integer default null, p_error jsonb default null,
    p_now timestamptz default now())
returns uuid
language sql volatile as $$
    insert into ops.errors (workspace_id, error_id, ts, workflow, node, op, job_id, trace_id, status_code, kind, retryable,
                            message, details)
    select p_workspace_id, core.uuid7(p_now), p_now, left(p_ctx ->> 'workflow', 100), left(p_ctx ->> 'node', 100),
           left(p_ctx ->> 'op', 100),
           substring(lower(p_ctx ->> 'job_id') from '^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$')::uuid,
           left(p_ctx ->> 'trace_id', 100), case when p_status_code between 100 and 599 then p_status_code else 500 end,
           case when p_ctx ->> 'kind' in ('db', 'upstream', 'auth', 'rate_limit') then p_ctx ->> 'kind'
                when p_status_code = 429 then 'rate_limit' when p_status_code in (401, 403) then 'auth' else 'unknown' end,
           coalesce(p_ctx -> 'retryable' = 'true', false), coalesce(ops.short_text(p_message, 500), 'unknown error'),
           ops.short_text(nullif(core.redact(p_error)::text, '{}'), 2000)
    returning error_id
$$;

-- What a run says of its failure, as it is kept: a type, a code if it has one, and a short text.
create or replace function ops.normal_error(p_error jsonb) returns jsonb
language sql immutable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'type', left(coalesce(p_error ->> 'type', 'unknown'), 100), 'code', left(p_error ->> 'code', 100),
        'message', ops.short_text(p_error ->> 'message', 500)))
    where jsonb_typeof(p_error) = 'object'
$$;

-- Redacted before it is cut: half a token is still half a token.
create or replace function ops.short_text(p_text text, p_length integer) returns text
language sql immutable strict as $$
    select left(btrim(regexp_replace(core.redact_text(left(p_text, 20000)), '[[:cntrl:][:space:]]+', ' ', 'g')), p_length)
$$;
