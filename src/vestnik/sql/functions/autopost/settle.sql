-- Settle: what the platform said becomes the state of the delivery, its event, and the gates that follow from it,
-- in one transaction. A result counts when its lease is the row's newest; anything older is noted and changes no row.

-- 'current': this result settles the row. 'repeat': it did already. 'late': a newer begin, or somebody else, decided.
-- 'illegal': there was nothing to settle. Without a lease a result counts only while the row has never lost one.
create or replace function autopost.judge_result(p_delivery autopost.deliveries, p_lease integer, p_success boolean) returns text
language sql immutable as $$
    select case
        when p_delivery.lease = 0 or p_lease > p_delivery.lease then 'illegal'
        when p_delivery.settled_lease = p_delivery.lease and coalesce(p_lease, p_delivery.lease) = p_delivery.lease
             and p_delivery.status <> 'sending' then
            case when p_success and p_delivery.status = 'sent' then 'repeat' when p_lease is null then 'illegal' else 'late' end
        when p_lease is null and (p_delivery.lost_leases > 0 or p_delivery.status <> 'sending') then 'late'
        when coalesce(p_lease, p_delivery.lease) < p_delivery.lease then 'late'
        when p_delivery.status = 'sending' then 'current'
        -- The sweep took the row back, then the success arrives after all: sending it again would be a knowing duplicate.
        when p_success and p_delivery.status in ('retry', 'queued', 'claimed') then 'current'
        else 'late' end
$$;

-- Many results at once: [{delivery_id, lease, provider_message_id, sent_at?, meta?} or {delivery_id, lease, error, next_retry_at?}].
-- Everything that a result may move is locked first, in the order of claim.sql: two calls may bring results of the same
-- deliveries. Nearly every success settles a row that still waits for it: one update. What is left is judged one by one.
create or replace function autopost.settle_deliveries(p_workspace_id text, p_results jsonb, p_now timestamptz default now())
returns table (delivery_id uuid, outcome text)
language plpgsql as $$
#variable_conflict use_column
declare
    settled uuid[];
    locked text[] := array(
        select distinct d.channel_id from jsonb_to_recordset(p_results) r (delivery_id uuid, error jsonb)
        join autopost.deliveries d on d.workspace_id = p_workspace_id and d.delivery_id = r.delivery_id
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where r.error is not null or c.error_streak > 0);
begin
    perform autopost.lock_channels(p_workspace_id, locked);
    perform from autopost.deliveries d
    where d.workspace_id = p_workspace_id
      and d.delivery_id in (select r.delivery_id from jsonb_to_recordset(p_results) r (delivery_id uuid))
    order by d.delivery_id for no key update;

    settled := autopost.settle_awaited(p_workspace_id, p_results, locked, p_now);
    return query select unnest(settled), 'sent';
    if cardinality(settled) = jsonb_array_length(p_results) then
        return;
    end if;
    return query
    select r.delivery_id, case when r.error is null
        then autopost.settle_unawaited(p_workspace_id, r.delivery_id, r.lease, r.provider_message_id, r.sent_at, r.meta, locked, p_now)
        else autopost.settle_error(p_workspace_id, r.delivery_id, r.lease, r.error, r.next_retry_at, p_now) end
    from (select * from jsonb_to_recordset(p_results) x (delivery_id uuid, lease integer, provider_message_id text,
              sent_at timestamptz, meta jsonb, error jsonb, next_retry_at timestamptz)
          -- A late result beside the current one of the same delivery is still to be judged.
          where x.delivery_id <> all (settled) or x.lease < (
              select d.lease from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = x.delivery_id)
          order by x.delivery_id) r
    where exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = r.delivery_id);
end $$;

-- "status || ''" keeps the planner off the partial indexes on status, here and in begin.sql: a row is found by its id, and
-- what the statistics say of a status that rows pass through in milliseconds is always wrong.
-- Only locked channels are forgiven: refusals that came in the meantime count after this success.
create or replace function autopost.settle_awaited(
    p_workspace_id text, p_results jsonb, p_locked_channels text[], p_now timestamptz) returns uuid[]
language sql volatile as $$
    with ids as materialized (
        select core.uuid7(p_now) as base
    ), settled as (
        update autopost.deliveries d
        set status = 'sent', sent_at = coalesce(r.sent_at, p_now), provider_message_id = r.provider_message_id,
            settled_lease = d.lease, last_error = null, next_retry_at = null, held_at = null,
            claimed_at = null, claim_token = null, sending_started_at = null, updated_at = p_now
        from jsonb_to_recordset(p_results) r
            (delivery_id uuid, lease integer, provider_message_id text, sent_at timestamptz, meta jsonb, error jsonb)
        where r.error is null and d.workspace_id = p_workspace_id and d.delivery_id = r.delivery_id
          and d.status || '' = 'sending' and d.lease = coalesce(r.lease, case when d.lost_leases = 0 then d.lease end)
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, r.provider_message_id, r.meta
    ), forgiven as (
        update autopost.channels c set error_streak = 0, updated_at = p_now
        where c.workspace_id = p_workspace_id and c.channel_id = any (p_locked_channels) and c.error_streak > 0
          and c.channel_id in (select s.channel_id from settled s)
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.nth_uuid(ids.base, row_number() over ()), s.delivery_id, s.message_id, s.channel_id, p_now,
               'sent', s.attempt,
               jsonb_build_object('trace_id', s.trace_id, 'provider_message_id', s.provider_message_id,
                                  'raw', autopost.redacted_answer(s.meta))
        from settled s, ids
    )
    select coalesce(array_agg(s.delivery_id), '{}') from settled s
$$;

-- A success that its row does not wait for: swept meanwhile, settled before, or overtaken.
create or replace function autopost.settle_unawaited(
    p_workspace_id text, p_delivery_id uuid, p_lease integer, p_provider_message_id text, p_sent_at timestamptz,
    p_meta jsonb, p_locked_channels text[], p_now timestamptz) returns text
language plpgsql as $$
declare
    row autopost.deliveries;
    verdict text;
begin
    select * into row from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id for no key update;
    verdict := autopost.judge_result(row, p_lease, true);
    if verdict = 'current' then
        update autopost.deliveries d
        set status = 'sent', sent_at = coalesce(p_sent_at, p_now), provider_message_id = p_provider_message_id,
            settled_lease = d.lease, last_error = null, next_retry_at = null, held_at = null,
            claimed_at = null, claim_token = null, sending_started_at = null, updated_at = p_now
        where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id;
        update autopost.channels c set error_streak = 0, updated_at = p_now
        where c.workspace_id = p_workspace_id and c.channel_id = row.channel_id and c.channel_id = any (p_locked_channels)
          and c.error_streak > 0;
    end if;
    if verdict in ('current', 'late') then
        perform autopost.note_delivery(row, case verdict when 'current' then 'sent' else 'late_result' end, null,
            jsonb_build_object('provider_message_id', p_provider_message_id, 'raw', p_meta, 'lease', p_lease,
                               'from_status', row.status), p_now);
    end if;
    return case verdict when 'current' then 'sent' when 'repeat' then 'duplicate' else verdict end;
end $$;

create or replace function autopost.mark_sent(
    p_workspace_id text, p_delivery_id uuid, p_provider_message_id text, p_sent_at timestamptz default null,
    p_raw_meta_json jsonb default null, p_lease integer default null, p_now timestamptz default now()) returns text
language sql volatile as $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease, 'provider_message_id', p_provider_message_id,
            'sent_at', p_sent_at, 'meta', p_raw_meta_json)), p_now) s))
$$;

create or replace function autopost.require_legal(p_workspace_id text, p_delivery_id uuid, p_outcome text) returns text
language plpgsql as $$
begin
    if p_outcome is null then
        raise exception 'no delivery % in workspace %', p_delivery_id, p_workspace_id using errcode = 'VN001';
    elsif p_outcome = 'illegal' then
        raise exception 'illegal move of delivery %: nothing of it is being sent', p_delivery_id using errcode = 'VM001';
    end if;
    return p_outcome;
end $$;

-- One normalised error, redacted, then cut to what an audit needs: half a token is still half a token.
create or replace function autopost.normal_error(p_error jsonb, p_category text) returns jsonb
language sql immutable as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'category', p_category,
        'scope', case when p_error ->> 'scope' in ('delivery', 'channel', 'platform') then p_error ->> 'scope' else 'delivery' end,
        'code', left(core.redact_text(left(coalesce(p_error ->> 'code', 'unknown'), 20000)), 100),
        'message', left(core.redact_text(left(p_error ->> 'message', 20000)), 500),
        'retry_after_ms', case when jsonb_typeof(p_error -> 'retry_after_ms') = 'number'
                          then least((p_error ->> 'retry_after_ms')::numeric, 1e12) end,
        'scope_named', case when p_error -> 'scope_named' = 'true' then p_error -> 'scope_named' end,
        'outcome', core.redact(p_error #> '{raw,outcome}'),
        'raw', left(nullif(case when length(p_error ->> 'raw') <= 20000 then core.redact(p_error -> 'raw') #>> '{}'
                                else core.redact_text(left(p_error ->> 'raw', 20000)) end, '{}'), 500)))
$$;

-- The tries that count: those since the last progress of a series, less those that a file was not ready for.
create or replace function autopost.tries_of(p_delivery autopost.deliveries) returns integer
language sql immutable as $$
    select p_delivery.attempt - coalesce((p_delivery.render_meta #>> '{series_progress,attempt}')::integer - 1, 0)
         - coalesce((p_delivery.render_meta ->> 'not_ready_attempts')::integer, 0)
$$;

-- A platform still works on a file of the delivery: it is asked again for a while, and such tries do not count. Null: that is
-- not the error, or the patience is over.
create or replace function autopost.patience_of(
    p_delivery autopost.deliveries, p_error jsonb, p_policy autopost.policies, p_now timestamptz) returns jsonb
language sql stable as $$
    select jsonb_build_object('not_ready_since', since,
                              'not_ready_attempts', coalesce((p_delivery.render_meta ->> 'not_ready_attempts')::integer, 0) + 1)
    from (select coalesce((p_delivery.render_meta ->> 'not_ready_since')::timestamptz, p_now)) first (since)
    where p_error ->> 'code' = 'attachment.not.ready' and p_now < since + p_policy.not_ready_patience
$$;

-- How long to wait before the next try: the platform's word if it gave one, else exponential backoff; jitter on both.
-- p_chance is a random number of the caller's: SQL that moves rows calls nothing volatile (ARCHITECTURE, Scale).
create or replace function autopost.retry_delay(
    p_policy autopost.policies, p_attempt integer, p_error jsonb, p_chance double precision) returns interval
language sql immutable as $$
    select (1 + p_policy.backoff_jitter * p_chance) * case
        when (p_error ->> 'retry_after_ms')::double precision > 0
            then make_interval(secs => least((p_error ->> 'retry_after_ms')::double precision / 1000, 86400))
        when p_error ->> 'code' = 'attachment.not.ready'
            then least(p_policy.not_ready_backoff * greatest(p_attempt, 1), p_policy.not_ready_backoff_max)
        else least(p_policy.backoff_base * least(power(p_policy.backoff_factor, least(greatest(p_attempt - 1, 0), 30)), 1e6),
                   p_policy.backoff_max)
    end
$$;

-- One failure; its group and channel are locked by the caller.
create or replace function autopost.settle_error(
    p_workspace_id text, p_delivery_id uuid, p_lease integer, p_error jsonb, p_next_retry_at timestamptz,
    p_now timestamptz) returns text
language plpgsql as $$
declare
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
    row autopost.deliveries;
    permanent constant boolean := p_error ->> 'category' = 'PERMANENT';
    error constant jsonb := autopost.normal_error(p_error, case when permanent then 'PERMANENT' else 'TRANSIENT' end);
    verdict text;
    chance constant double precision := random();
    patience jsonb;
    delay interval;
    outcome text;
begin
    select * into row from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id for no key update;
    if not found then
        return null;
    end if;
    verdict := autopost.judge_result(row, p_lease, false);
    if verdict = 'illegal' then
        return verdict;
    end if;
    patience := autopost.patience_of(row, error, policy, p_now);
    delay := autopost.retry_delay(policy, coalesce((patience ->> 'not_ready_attempts')::integer, autopost.tries_of(row)), error, chance);
    perform autopost.feed_gates(row, error, delay, verdict = 'late', policy, p_now);
    if verdict = 'late' then
        perform autopost.note_delivery(row, 'late_result', error, autopost.named_payload(p_error), p_now);
        return 'late';
    end if;

    outcome := case when permanent then 'failed_permanent' when autopost.must_hold(row, error) then 'held'
                    when patience is null and autopost.tries_of(row) >= policy.max_attempts then 'dead' else 'retry' end;
    update autopost.deliveries d
    set status = case outcome when 'held' then 'retry' else outcome end, held_at = case outcome when 'held' then p_now end, last_error = error, settled_lease = d.lease, claimed_at = null, claim_token = null,
        sending_started_at = null, updated_at = p_now,
        render_meta = case when patience is null then d.render_meta else d.render_meta || patience end,
        next_retry_at = case outcome when 'held' then 'infinity'
                                     when 'retry' then greatest(p_next_retry_at, case when p_next_retry_at is null then p_now + delay end) end
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
    returning * into row;
    perform autopost.note_delivery(row,
        case outcome when 'retry' then 'retry_scheduled' when 'dead' then 'dead_letter' else outcome end, error,
        jsonb_strip_nulls(jsonb_build_object('next_retry_at', row.next_retry_at, 'lease', row.lease))
            || autopost.named_payload(p_error), p_now);
    return outcome;
end $$;

-- The platform may have taken the post, and this channel would rather miss one than show it twice.
create or replace function autopost.must_hold(p_row autopost.deliveries, p_error jsonb) returns boolean
language sql stable as $$
    select coalesce(p_error ->> 'outcome' = 'unknown', false) and exists (
        select from autopost.channels c
        where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id and c.on_unknown = 'hold')
$$;

create or replace function autopost.note_delivery(
    p_row autopost.deliveries, p_action text, p_error jsonb, p_meta jsonb, p_now timestamptz) returns void
language sql volatile as $$
    insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
    values (p_row.workspace_id, core.uuid7(p_now), p_row.delivery_id, p_row.message_id, p_row.channel_id, p_now, p_action,
            p_row.attempt, case when p_error is null then 'ok' else 'error' end, p_error,
            p_meta ->> 'payload_ref', jsonb_build_object('trace_id', p_row.trace_id) || core.redact(p_meta - 'payload_ref'))
$$;

-- What is kept of a yes. On nearly all that the platforms say there is nothing to search: ids and moments, under names we know.
create or replace function autopost.redacted_answer(p_answer jsonb) returns jsonb
language sql immutable parallel safe as $$
    select case when p_answer - '{message_id,chat_id,date,media_group_id,mid,seq,timestamp,message_ids}'::text[] = '{}' then p_answer
                else core.redact(p_answer) end
$$;

-- Where the full answer lies, or why nowhere: the sender has stored it before it came here.
create or replace function autopost.named_payload(p_error jsonb) returns jsonb
language sql immutable parallel safe as $$
    select jsonb_strip_nulls(jsonb_build_object('payload_ref', left(p_error ->> 'payload_ref', 100),
                                                'payload_not_kept', left(p_error ->> 'payload_not_kept', 100)))
$$;

-- What a caller calls an error, whatever its JSON is, as one of a category.
create or replace function autopost.error_of(p_error jsonb, p_category text) returns jsonb
language sql immutable as $$
    select case when jsonb_typeof(p_error) = 'object' then p_error
                else jsonb_strip_nulls(jsonb_build_object('message', p_error #>> '{}')) end
        || jsonb_build_object('category', p_category)
$$;

create or replace function autopost.schedule_retry(
    p_workspace_id text, p_delivery_id uuid, p_next_retry_at timestamptz, p_error_json jsonb,
    p_lease integer default null, p_now timestamptz default now()) returns text
language sql volatile as $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease, 'next_retry_at', p_next_retry_at,
            'error', autopost.error_of(p_error_json, 'TRANSIENT'))), p_now) s))
$$;

create or replace function autopost.fail_permanent(
    p_workspace_id text, p_delivery_id uuid, p_error_json jsonb,
    p_lease integer default null, p_now timestamptz default now()) returns text
language sql volatile as $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease,
            'error', autopost.error_of(p_error_json, 'PERMANENT'))), p_now) s))
$$;
