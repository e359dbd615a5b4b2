-- The schema of Vestnik, written by `make db-dump` from the migrations and functions; do not edit.
-- The partitions of autopost.events are made by autopost.ensure_event_partitions().

CREATE SCHEMA autopost;

CREATE SCHEMA core;

CREATE TYPE autopost.incoming AS (
	item integer,
	raw jsonb,
	payload jsonb,
	content_hash text,
	tags text[],
	trace_id uuid,
	created_at timestamp with time zone,
	round integer
);

CREATE TYPE autopost.stored AS (
	item integer,
	message_id uuid,
	is_new boolean,
	payload jsonb,
	content_hash text,
	tags text[],
	trace_id uuid,
	created_at timestamp with time zone,
	only_channels text[]
);

CREATE FUNCTION autopost.array_of(p_raw jsonb, p_key text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when jsonb_typeof(p_raw -> p_key) = 'array' then p_raw -> p_key else '[]' end
$$;

CREATE FUNCTION autopost.assign_slots(p_workspace_id text, p_run_id text, p_delivery_ids uuid[], p_limit integer, p_now timestamp with time zone, p_horizon timestamp with time zone) RETURNS TABLE(delivery_id uuid, channel_id text, not_before timestamp with time zone)
    LANGUAGE sql
    AS $$
    with due as (
        select d.delivery_id, d.channel_id, d.created_at,
               row_number() over (partition by d.channel_id order by d.created_at, d.delivery_id) as i
        from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids) and d.status || '' in ('queued', 'retry')
    ), channel_slot as (
        select due.*, c.platform, c.rate_group, autopost.step_of(c.rate_rps) as step, autopost.step_of(g.rate_rps) as group_step,
               case when c.rate_rps > 0
                    then greatest(p_now, c.next_allowed_at) + (due.i - 1) * autopost.step_of(c.rate_rps) else p_now end as slot,
               greatest(p_now, g.next_allowed_at) as group_base
        from due
        join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = due.channel_id
        join autopost.platform_limits g on g.workspace_id = p_workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    ), within as (
        select * from channel_slot where slot <= p_horizon order by i, channel_id limit p_limit
    ), group_slot as (
        select w.*, case when w.group_step is not null
                    then w.group_base + (row_number() over (partition by w.platform, w.rate_group order by w.slot, w.created_at, w.delivery_id) - 1)
                         * w.group_step else w.slot end as shared_slot
        from within w
    ), slotted as materialized (
        select s.delivery_id, s.channel_id, s.platform, s.rate_group, s.step, s.group_step, greatest(s.slot, s.shared_slot) as not_before
        from group_slot s
        join autopost.deliveries d on d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
        where s.shared_slot <= p_horizon and d.status || '' in ('queued', 'retry')
        for no key update of d skip locked
    ), channel_cursor as (
        update autopost.channels c set next_allowed_at = greatest(p_now, c.next_allowed_at) + s.n * s.step, updated_at = p_now
        from (select channel_id, step, count(*) as n from slotted where step is not null group by 1, 2) s
        where c.workspace_id = p_workspace_id and c.channel_id = s.channel_id
    ), group_cursor as (
        update autopost.platform_limits g set next_allowed_at = greatest(p_now, g.next_allowed_at) + s.n * s.group_step, updated_at = p_now
        from (select platform, rate_group, group_step, count(*) as n from slotted where group_step is not null group by 1, 2, 3) s
        where g.workspace_id = p_workspace_id and g.platform = s.platform and g.rate_group = s.rate_group
    )
    update autopost.deliveries d
    set status = 'claimed', claimed_at = p_now, claim_token = p_run_id, not_before = s.not_before, next_retry_at = null, updated_at = p_now
    from slotted s
    where d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
    returning d.delivery_id, d.channel_id, d.not_before
$$;

CREATE FUNCTION autopost.begin_claimed(p_workspace_id text, p_run_id text, p_turn text[], p_limit integer, p_now timestamp with time zone) RETURNS TABLE(delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text, target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    chosen uuid[];
begin
    if p_turn = '{}' or p_limit < 1 then
        return;
    end if;
    with candidate as (
        select f.*, due.delivery_id, due.not_before, due.created_at,
               row_number() over (partition by f.platform, f.rate_group order by due.not_before, due.created_at) as place
        from autopost.free_begins(p_workspace_id, p_turn, p_now) f,
        lateral (select d.delivery_id, d.not_before, d.created_at from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.channel_id = f.channel_id and d.status = 'claimed' and d.not_before <= p_now
                 order by d.not_before, d.created_at limit f.free
                 for no key update skip locked) due
    )
    select coalesce(array_agg(x.delivery_id), '{}') into chosen from (
        select c.delivery_id from candidate c where not c.group_paced or c.place <= c.group_free
        order by c.not_before, c.created_at limit p_limit) x;

    return query select * from autopost.start_sends(p_workspace_id, p_run_id, chosen, p_now);
end $$;

CREATE FUNCTION autopost.begin_sending(p_workspace_id text, p_run_id text, p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text, target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
    LANGUAGE plpgsql
    AS $$
declare
    turn text[];
begin
    turn := array(select autopost.channels_with_due_claims(p_workspace_id, coalesce(p_now, now())));
    if turn = '{}' or not autopost.is_active(p_workspace_id) then
        return;
    end if;
    perform autopost.lock_channels(p_workspace_id, turn);
    return query select * from autopost.begin_claimed(p_workspace_id, p_run_id, turn, p_limit, coalesce(p_now, clock_timestamp()));
end $$;

CREATE FUNCTION autopost.begin_unpaced(p_workspace_id text, p_run_id text, p_turn text[], p_limit integer, p_now timestamp with time zone) RETURNS TABLE(delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text, target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    turn text[];
    room integer[];
    due uuid[];
begin
    select coalesce(array_agg(f.channel_id order by f.channel_id), '{}'),
           array_agg(least(f.free, greatest(1, ceil(p_limit::numeric / cardinality(p_turn))))::integer order by f.channel_id)
    into turn, room
    from autopost.free_begins(p_workspace_id, p_turn, p_now) f
    where not f.paced;

    due := autopost.due_deliveries(p_workspace_id, turn, room, p_now);
    perform autopost.drop_overtaken(p_workspace_id, due, p_now);
    due := array(select d.delivery_id from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.delivery_id = any (due[:p_limit]) and d.status || '' in ('queued', 'retry')
                 for no key update skip locked);
    return query select * from autopost.start_sends(p_workspace_id, p_run_id, due, p_now);
end $$;

CREATE FUNCTION autopost.button_problem(p_buttons jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case
        when jsonb_array_length(p_buttons) > 30 then 'buttons: at most 30 rows'
        when jsonb_path_exists(p_buttons, 'strict $[*] ? (@.type() != "array")') then 'buttons: must be rows of buttons'
        when jsonb_path_exists(p_buttons, 'strict $[*] ? (@.size() == 0 || @.size() > 8)')
            then 'buttons: each row has 1 to 8 buttons'
        when jsonb_path_exists(p_buttons, 'strict $[*][*] ? (@.type() != "object")')
            then 'buttons: each must be an object with text and url'
        when exists (select from jsonb_path_query(p_buttons, '$[*][*]') b
                     where b - 'text' - 'url' <> '{}' or jsonb_typeof(b -> 'text') is distinct from 'string'
                        or jsonb_typeof(b -> 'url') is distinct from 'string')
            then 'buttons: each has text and url, both strings, and nothing else'
        when jsonb_path_exists(p_buttons, '$[*][*] ? (@.text like_regex "^\\s*$" || @.text like_regex "^.{65}" flag "s")')
            then 'buttons: text has 1 to 64 characters'
        when jsonb_path_exists(p_buttons, '$[*][*] ? (!(@.url like_regex "^(https?|tg|max)://[^\\s<>]+$" flag "i"))')
            then 'buttons: url must be an http, https, tg or max address'
    end
$_$;

CREATE FUNCTION autopost.buttons_problem(p_platform text, p_buttons jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_platform = 'max' and sum(ceil(jsonb_array_length(line) / 3.0)) > 30
                then 'MAX takes at most 30 rows of 3 link buttons' end
    from jsonb_array_elements(p_buttons) line
$$;

CREATE FUNCTION autopost.canonical_url(p_url text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    select case when part is null then btrim(p_url) else
        lower(part[1]) || '://' || coalesce(part[2], '')
        || regexp_replace(lower(part[3]),
               case lower(part[1]) when 'http' then ':80$' when 'https' then ':443$' else ':$' end, '')
        || case when part[4] ~ '^/' or lower(part[1]) not in ('http', 'https') then '' else '/' end
        || regexp_replace(regexp_replace(part[4], '^([^#]*)#$', '\1'), '^([^?#]*)\?(#.*)?$', '\1\2')
    end
    from (select regexp_match(btrim(p_url), '^([A-Za-z][A-Za-z0-9+.-]*)://([^@/?#]*@)?([^/?#]*)(.*)$') as part) m
$_$;

CREATE FUNCTION autopost.channels_with_due_claims(p_workspace_id text, p_now timestamp with time zone) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    with recursive hop as (
        (select d.channel_id from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.status = 'claimed' order by d.channel_id limit 1)
        union all
        select (select d.channel_id from autopost.deliveries d
                where d.workspace_id = p_workspace_id and d.status = 'claimed' and d.channel_id > h.channel_id
                order by d.channel_id limit 1)
        from hop h where h.channel_id is not null
    )
    select h.channel_id from hop h
    where exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
                  and d.status = 'claimed' and d.not_before <= p_now)
$$;

CREATE FUNCTION autopost.claim_and_begin(p_workspace_id text, p_run_id text, p_limit integer, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text, target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
    LANGUAGE plpgsql
    AS $$
declare
    asked constant timestamptz := coalesce(p_now, now());
    started timestamptz;
    turn text[];
    claimed text[];
    paced text[];
    begun integer;
begin
    if not autopost.is_active(p_workspace_id) then
        return;
    end if;
    turn := autopost.take_turn(p_workspace_id, p_limit, asked);
    claimed := array(select autopost.channels_with_due_claims(p_workspace_id, asked));
    if turn = '{}' and claimed = '{}' then
        return;
    end if;
    perform autopost.lock_channels(p_workspace_id, turn || claimed);
    started := coalesce(p_now, clock_timestamp());

    paced := autopost.paced_of(p_workspace_id, turn);
    perform autopost.claim_slots(p_workspace_id, p_run_id, paced, p_limit, started);
    return query select * from autopost.begin_claimed(p_workspace_id, p_run_id, claimed || paced, p_limit, started);
    get diagnostics begun = row_count;
    if cardinality(turn) > cardinality(paced) and p_limit > begun then
        return query select * from autopost.begin_unpaced(p_workspace_id, p_run_id,
            array(select t from unnest(turn) t where t <> all (paced)), p_limit - begun, started);
    end if;
    perform autopost.remember_turn(p_workspace_id, turn[cardinality(turn)], started);
end $$;

CREATE FUNCTION autopost.claim_deliveries(p_workspace_id text, p_run_id text, p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(delivery_id uuid, channel_id text, not_before timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
declare
    turn text[];
    started timestamptz;
begin
    if not autopost.is_active(p_workspace_id) then
        return;
    end if;
    turn := autopost.take_turn(p_workspace_id, p_limit, coalesce(p_now, now()));
    perform autopost.lock_channels(p_workspace_id, turn);
    started := coalesce(p_now, clock_timestamp());
    return query select * from autopost.claim_slots(p_workspace_id, p_run_id, turn, p_limit, started);
    perform autopost.remember_turn(p_workspace_id, turn[cardinality(turn)], started);
end $$;

CREATE FUNCTION autopost.claim_slots(p_workspace_id text, p_run_id text, p_turn text[], p_limit integer, p_now timestamp with time zone) RETURNS TABLE(delivery_id uuid, channel_id text, not_before timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    policy autopost.policies;
    turn text[];
    room integer[];
    due uuid[];
begin
    if p_turn = '{}' then
        return;
    end if;
    policy := autopost.policy_of(p_workspace_id);

    -- Under the locks: what was ready may not be any more, and what is claimed counts against the policy's K.
    select array_agg(r.channel_id order by r.channel_id),
           array_agg(least(r.room, greatest(1, ceil(p_limit::numeric / cardinality(p_turn))))::integer order by r.channel_id)
    into turn, room
    from (select c.channel_id, policy.claim_per_channel - (
                     select count(*) from autopost.deliveries d where d.workspace_id = p_workspace_id
                     and d.channel_id = c.channel_id and d.status = 'claimed') as room
          from autopost.channels c
          join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
          where c.workspace_id = p_workspace_id and c.channel_id = any (p_turn) and autopost.is_open(c, g, p_now)) r
    where r.room > 0;
    due := autopost.due_deliveries(p_workspace_id, turn, room, p_now);
    perform autopost.drop_overtaken(p_workspace_id, due, p_now);
    return query select * from autopost.assign_slots(
        p_workspace_id, p_run_id, due, p_limit, p_now, p_now + policy.claim_horizon);
end $$;

CREATE FUNCTION autopost.content_hash(p_payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select left(core.sha256_hex((p_payload - 'type')::text), 32)
$$;

CREATE TABLE autopost.deliveries (
    workspace_id text NOT NULL,
    delivery_id uuid NOT NULL,
    message_id uuid NOT NULL,
    channel_id text NOT NULL,
    hash_version integer DEFAULT 1 NOT NULL,
    content_hash text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    scheduled_for timestamp with time zone,
    trace_id uuid,
    enqueue_batch_id uuid,
    template_version text,
    rendered_text text,
    render_meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    not_before timestamp with time zone DEFAULT now() NOT NULL,
    next_retry_at timestamp with time zone,
    held_at timestamp with time zone,
    lost_leases integer DEFAULT 0 NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    lease integer DEFAULT 0 NOT NULL,
    settled_lease integer DEFAULT 0 NOT NULL,
    claimed_at timestamp with time zone,
    sending_started_at timestamp with time zone,
    sent_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    claim_token text,
    provider_message_id text,
    last_error jsonb,
    CONSTRAINT deliveries_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'claimed'::text, 'sending'::text, 'sent'::text, 'retry'::text, 'deduped'::text, 'failed_permanent'::text, 'dead'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='1');

CREATE FUNCTION autopost.cool_channel(p_row autopost.deliveries, p_whole_group boolean, p_until timestamp with time zone, p_now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    grp autopost.platform_limits;
begin
    update autopost.channels c set cooldown_until = greatest(c.cooldown_until, p_until), updated_at = p_now
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id;
    perform autopost.release_claims(p_row.workspace_id, array[p_row.channel_id], 'channel_cooldown', p_now);

    select g.* into grp from autopost.platform_limits g
    join autopost.channels c on c.workspace_id = g.workspace_id and c.platform = g.platform and c.rate_group = g.rate_group
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id;
    if p_whole_group or (grp.limited_until > p_now and grp.limited_channel_id <> p_row.channel_id) then
        perform autopost.cool_group(p_row, greatest(p_until, grp.limited_until), p_now);
    end if;
    if grp.limited_until is null or grp.limited_until <= p_now or grp.limited_channel_id = p_row.channel_id then
        update autopost.platform_limits g set limited_channel_id = p_row.channel_id, limited_until = p_until, updated_at = p_now
        where g.workspace_id = grp.workspace_id and g.platform = grp.platform and g.rate_group = grp.rate_group;
    end if;
end $$;

CREATE FUNCTION autopost.cool_group(p_row autopost.deliveries, p_until timestamp with time zone, p_now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    members text[];
begin
    update autopost.platform_limits g
    set cooldown_until = greatest(g.cooldown_until, p_until), next_allowed_at = greatest(g.next_allowed_at, p_until), updated_at = p_now
    from autopost.channels c
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id
      and g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group;

    members := array(
        select m.channel_id from autopost.channels c
        join autopost.channels m on m.workspace_id = c.workspace_id and m.platform = c.platform and m.rate_group = c.rate_group
        where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id);
    perform autopost.release_claims(p_row.workspace_id, members, 'group_cooldown', p_now);
end $$;

CREATE FUNCTION autopost.dedup_window(p_hours integer) RETURNS interval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select make_interval(hours => least(p_hours, 876600))
$$;

CREATE FUNCTION autopost.drain_default_partition() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    day date;
    name text;
    moved bigint := 0;
    n bigint;
begin
    for day in select distinct (e.ts at time zone 'UTC')::date from autopost.events_default e loop
        name := format('events_%s', to_char(day, 'YYYYMMDD'));
        execute format('create table autopost.%I (like autopost.events including defaults including constraints)', name);
        execute format('with gone as (delete from autopost.events_default where ts >= %L and ts < %L returning *)
                        insert into autopost.%I select * from gone',
                       day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC', name);
        get diagnostics n = row_count;
        moved := moved + n;
        execute format('alter table autopost.events attach partition autopost.%I for values from (%L) to (%L)',
                       name, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
    end loop;
    return moved;
end $$;

CREATE FUNCTION autopost.drop_overtaken(p_workspace_id text, p_delivery_ids uuid[], p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    with overtaken as (
        select d.delivery_id, case when sent.found then 'sent_within_ttl' else 'in_flight' end as reason
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id,
        lateral (select exists (
            select from autopost.deliveries o where o.workspace_id = d.workspace_id and o.channel_id = d.channel_id
              and o.content_hash = d.content_hash and o.hash_version = d.hash_version and o.status = 'sent'
              and o.sent_at >= p_now - autopost.dedup_window(coalesce(c.dedup_ttl_hours,
                    (autopost.policy_of(p_workspace_id)).dedup_ttl_hours))) as found) sent,
        lateral (select exists (
            select from autopost.deliveries o where o.workspace_id = d.workspace_id and o.channel_id = d.channel_id
              and o.content_hash = d.content_hash and o.hash_version = d.hash_version
              and o.status in ('queued', 'claimed', 'sending', 'retry') and o.delivery_id <> d.delivery_id
              and (o.status in ('claimed', 'sending') or (o.attempt = 0 and o.last_error is null)
                   or o.delivery_id < d.delivery_id)) as found) other
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
          and (d.attempt > 0 or d.last_error is not null) and d.status || '' in ('queued', 'retry')
          and (sent.found or other.found)
        for no key update of d skip locked
    ), dropped as (
        update autopost.deliveries d set status = 'deduped', next_retry_at = null, updated_at = p_now
        from overtaken o where d.workspace_id = p_workspace_id and d.delivery_id = o.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, o.reason
    )
    insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
    select p_workspace_id, core.uuid7(p_now), x.delivery_id, x.message_id, x.channel_id, p_now, 'dedup_suppressed', x.attempt,
           jsonb_build_object('trace_id', x.trace_id, 'reason', x.reason)
    from dropped x
$$;

CREATE FUNCTION autopost.due_deliveries(p_workspace_id text, p_channel_ids text[], p_counts integer[], p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE sql
    AS $$
    select coalesce(array_agg(due.delivery_id order by due.created_at), '{}')
    from unnest(p_channel_ids, p_counts) c (channel_id, n),
    lateral (
        (select d.delivery_id, d.created_at from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'queued' and d.not_before <= p_now
         order by d.not_before, d.created_at limit c.n)
        union all
        (select d.delivery_id, d.created_at from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
           and d.next_retry_at <= p_now and d.not_before <= p_now
         order by d.next_retry_at limit c.n)
        order by created_at limit c.n
    ) due
$$;

CREATE FUNCTION autopost.duplicate_reason(p_workspace_id text, p_channel_id text, p_content_hash text, p_sent_after timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION autopost.enqueue_batch(p_workspace_id text, p_endpoint_id text, p_kind text, p_raws jsonb[], p_now timestamp with time zone DEFAULT now(), p_run_id uuid DEFAULT NULL::uuid, p_gated boolean DEFAULT false) RETURNS TABLE(item integer, outcome text, message_id uuid, trace_id uuid, run_id uuid, enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[], problems text[])
    LANGUAGE plpgsql
    AS $$
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
        select r.n::integer, 'invalid', null::uuid, null::uuid, run, 0, 0, 0, null::text[], null::text[], x.problems
        from unnest(p_raws) with ordinality r (raw, n), lateral autopost.payload_problems(r.raw) x (problems)
        where x.problems <> '{}';
    end if;
    if p_gated and posts <> '{}' then
        fresh := array(select autopost.take_receipts(p_workspace_id, p_endpoint_id, p_kind, posts, p_now));
        return query
        select p.item, 'duplicate', null::uuid, p.trace_id, run, 0, 0, 0, null::text[], null::text[], null::text[]
        from unnest(posts) p where p.item <> all (fresh);
        posts := autopost.with_rounds(array(select p from unnest(posts) p where p.item = any (fresh)));
    end if;

    -- Equal payloads in one call meet the first of them as a stored message: one round per occurrence.
    for r in 1 .. coalesce((select max(p.round) from unnest(posts) p), 0) loop
        return query
        select o.item, 'accepted', o.message_id, o.trace_id, run, o.enqueued, o.suppressed, o.failed,
               o.routed_by_tags, o.warnings, null::text[]
        from autopost.enqueue_round(p_workspace_id, array(select p from unnest(posts) p where p.round = r), run, p_now) o;
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

CREATE FUNCTION autopost.enqueue_messages_and_deliveries(p_workspace_id text, p_endpoint_id text, p_kind text, p_raw_payload_json jsonb, p_now timestamp with time zone DEFAULT now(), p_run_id uuid DEFAULT NULL::uuid) RETURNS TABLE(outcome text, message_id uuid, trace_id uuid, run_id uuid, enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[])
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    problems text[] := autopost.payload_problems(p_raw_payload_json);
begin
    if problems <> '{}' then
        raise exception 'invalid payload: %', array_to_string(problems, '; ')
            using errcode = 'VP001', detail = to_json(problems)::text;
    end if;
    return query
    select b.outcome, b.message_id, b.trace_id, b.run_id, b.enqueued, b.suppressed, b.failed, b.routed_by_tags, b.warnings
    from autopost.enqueue_batch(p_workspace_id, p_endpoint_id, p_kind, array[p_raw_payload_json], p_now, p_run_id) b;
end $$;

CREATE FUNCTION autopost.enqueue_round(p_workspace_id text, p_posts autopost.incoming[], p_run_id uuid, p_now timestamp with time zone) RETURNS TABLE(item integer, message_id uuid, trace_id uuid, enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[])
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    stored autopost.stored[];
begin
    stored := autopost.upsert_messages(p_workspace_id, p_posts, p_run_id, p_now);

    insert into autopost.events (workspace_id, id, message_id, ts, action, meta)
    select p_workspace_id, core.uuid7(p_now), s.message_id, p_now, 'message_tag_mismatch',
           jsonb_build_object('trace_id', p.trace_id, 'run_id', p_run_id, 'first_seen', s.tags, 'now', p.tags)
    from unnest(stored) s join unnest(p_posts) p on p.item = s.item
    where s.tags <> p.tags;

    return query
    select s.item, s.message_id, s.trace_id, coalesce(f.enqueued, 0), coalesce(f.suppressed, 0), coalesce(f.failed, 0),
           case when s.tags <> p.tags then s.tags end,
           array_remove(array[
               case when s.tags <> p.tags then 'the same post came before with other tags; it is routed by those' end,
               case when s.only_channels is not null then autopost.unknown_channels(p_workspace_id, s.only_channels) end], null)
    from unnest(stored) s
    join unnest(p_posts) p on p.item = s.item
    left join autopost.fan_out(p_workspace_id, stored, p_run_id, p_now) f on f.item = s.item;
end $$;

CREATE FUNCTION autopost.ensure_event_partitions(p_now timestamp with time zone DEFAULT now(), p_ahead integer DEFAULT 14) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    today constant date := (p_now at time zone 'UTC')::date;
    day date;
    made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('autopost.ensure_event_partitions', 7)) then
        return 0;
    end if;
    for day in select generate_series(today - 1, today + p_ahead, interval '1 day')::date loop
        if to_regclass(format('autopost.events_%s', to_char(day, 'YYYYMMDD'))) is null
           and not exists (select from autopost.events_default e
                           where e.ts >= day::timestamp at time zone 'UTC' and e.ts < (day + 1)::timestamp at time zone 'UTC') then
            execute format('create table autopost.events_%s partition of autopost.events for values from (%L) to (%L)',
                to_char(day, 'YYYYMMDD'), day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
            made := made + 1;
        end if;
    end loop;
    return made;
end $$;

CREATE FUNCTION autopost.error_of(p_error jsonb, p_category text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when jsonb_typeof(p_error) = 'object' then p_error
                else jsonb_strip_nulls(jsonb_build_object('message', p_error #>> '{}')) end
        || jsonb_build_object('category', p_category)
$$;

CREATE FUNCTION autopost.escape_html(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select replace(replace(replace(p_text, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')
$$;

CREATE FUNCTION autopost.fail_permanent(p_workspace_id text, p_delivery_id uuid, p_error_json jsonb, p_lease integer DEFAULT NULL::integer, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease,
            'error', autopost.error_of(p_error_json, 'PERMANENT'))), p_now) s))
$$;

CREATE FUNCTION autopost.fan_out(p_workspace_id text, p_stored autopost.stored[], p_run_id uuid, p_now timestamp with time zone) RETURNS TABLE(item integer, enqueued integer, suppressed integer, failed integer)
    LANGUAGE sql
    AS $$
    with given as materialized (
        select core.uuid7(p_now) as delivery_base, core.uuid7(p_now) as event_base,
               (autopost.policy_of(p_workspace_id)).dedup_ttl_hours as ttl
    ), message as materialized (
        select s.*, to_jsonb(s.tags) as tags_json,
               jsonb_build_object('trace_id', s.trace_id, 'run_id', p_run_id) as event_meta
        from unnest(p_stored) s
    ), kind as (
        select m.item, c.platform, c.send_mode,
               coalesce(m.payload ->> 'parse_mode', c.settings ->> 'parse_mode', 'None') as parse_mode,
               coalesce(m.payload -> 'disable_preview', c.settings -> 'disable_preview', 'false') as disable_preview,
               array_agg(c.channel_id) as channels, array_agg(c.dedup_ttl_hours) as ttls
        from message m
        join autopost.channels c on c.workspace_id = p_workspace_id and c.enabled
            and autopost.routes_to(c.route_filter, m.tags, m.tags_json)
            and case when m.only_channels is null then true else c.channel_id = any (m.only_channels) end
        group by 1, 2, 3, 4, 5
    ), form as materialized (
        select row_number() over () as form, k.channels, k.ttls, m.item, m.message_id, m.is_new, m.content_hash, m.trace_id,
               m.created_at, m.event_meta, r.text,
               autopost.validation_error(coalesce(
                   autopost.send_mode_problem(k.send_mode, m.payload),
                   autopost.preflight_problem(k.platform, r.text, k.parse_mode, m.payload))) as error,
               jsonb_strip_nulls(jsonb_build_object('converter', 1, 'parse_mode', k.parse_mode,
                   'disable_preview', k.disable_preview, 'buttons', m.payload -> 'buttons')) as meta
        from kind k join message m on m.item = k.item,
        lateral (select autopost.render_text(m.payload, k.parse_mode) as text offset 0) r
    ), planned as materialized (
        select f.form, f.item, x.channel_id, f.error is not null as failed,
               core.nth_uuid(g.delivery_base, row_number() over w) as delivery_id,
               core.nth_uuid(g.event_base, row_number() over w) as event_id,
               case when not f.is_new and f.error is null then
                   autopost.duplicate_reason(p_workspace_id, x.channel_id, f.content_hash,
                                             p_now - autopost.dedup_window(coalesce(x.ttl, g.ttl))) end as duplicate
        from form f, unnest(f.channels, f.ttls) x (channel_id, ttl), given g
        window w as (order by x.channel_id, f.item)
    ), deliveries as (
        insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, hash_version, content_hash,
            not_before, status, last_error, rendered_text, render_meta, template_version, trace_id, enqueue_batch_id,
            created_at, updated_at)
        select p_workspace_id, p.delivery_id, f.message_id, p.channel_id, autopost.hash_version(), f.content_hash, p_now,
               case when p.failed then 'failed_permanent' when p.duplicate is not null then 'deduped' else 'queued' end,
               f.error, f.text, f.meta, null, f.trace_id, p_run_id, f.created_at, p_now
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
           count(p.duplicate)::integer, count(*) filter (where p.failed)::integer
    from planned p group by p.item
$$;

CREATE TABLE autopost.policies (
    workspace_id text NOT NULL,
    claim_per_channel integer DEFAULT 20 NOT NULL,
    claim_horizon interval DEFAULT '00:00:05'::interval NOT NULL,
    max_attempts integer DEFAULT 5 NOT NULL,
    backoff_base interval DEFAULT '00:00:02'::interval NOT NULL,
    backoff_factor double precision DEFAULT 2 NOT NULL,
    backoff_max interval DEFAULT '00:05:00'::interval NOT NULL,
    backoff_jitter double precision DEFAULT 0.2 NOT NULL,
    not_ready_backoff interval DEFAULT '00:00:01'::interval NOT NULL,
    not_ready_backoff_max interval DEFAULT '00:00:05'::interval NOT NULL,
    pause_on_permanent_for interval DEFAULT '01:00:00'::interval NOT NULL,
    disable_after_permanent_streak integer DEFAULT 3 NOT NULL,
    platform_cooldown_for interval DEFAULT '00:05:00'::interval NOT NULL,
    sending_lease interval DEFAULT '00:05:00'::interval NOT NULL,
    claimed_lease interval DEFAULT '00:05:00'::interval NOT NULL,
    expired_send_backoff interval DEFAULT '00:00:15'::interval NOT NULL,
    dedup_ttl_hours integer DEFAULT 168 NOT NULL,
    receipt_ttl interval DEFAULT '2 days'::interval NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT policies_backoff_factor_check CHECK ((backoff_factor >= (1)::double precision)),
    CONSTRAINT policies_backoff_jitter_check CHECK (((backoff_jitter >= (0)::double precision) AND (backoff_jitter <= (1)::double precision))),
    CONSTRAINT policies_claim_per_channel_check CHECK ((claim_per_channel > 0)),
    CONSTRAINT policies_dedup_ttl_hours_check CHECK ((dedup_ttl_hours >= 0)),
    CONSTRAINT policies_disable_after_permanent_streak_check CHECK ((disable_after_permanent_streak > 0)),
    CONSTRAINT policies_max_attempts_check CHECK ((max_attempts > 0))
);

CREATE FUNCTION autopost.feed_gates(p_row autopost.deliveries, p_error jsonb, p_delay interval, p_late boolean, p_policy autopost.policies, p_now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if p_error ->> 'category' = 'TRANSIENT' then
        if p_error ->> 'code' = '429' or p_error ? 'retry_after_ms' then
            perform autopost.cool_channel(p_row, coalesce((p_error -> 'scope_named')::boolean, false), p_now + p_delay, p_now);
        end if;
    elsif p_error ->> 'scope' = 'platform' then
        perform autopost.cool_group(p_row, p_now + p_policy.platform_cooldown_for, p_now);
    elsif p_error ->> 'scope' = 'channel' and not p_late then
        perform autopost.punish_channel(p_row, p_error, p_policy, p_now);
    end if;
end $$;

CREATE FUNCTION autopost.forbid_move() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'illegal move of delivery %: % -> %', old.delivery_id, old.status, new.status
        using errcode = 'VM001', hint = 'docs/reference/delivery-states.md lists the moves there are';
end $$;

CREATE FUNCTION autopost.free_and_due(p_workspace_id text, p_channel_ids text[], p_each integer, p_now timestamp with time zone) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
    select coalesce(sum(case when autopost.is_paced(c, g) then 1 else least(due.n, greatest(c.max_parallel - busy.n, 0)) end), 0)::integer
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform
        and g.rate_group = c.rate_group,
    lateral (select count(*) as n from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id = c.channel_id and d.status = 'sending') busy,
    lateral (select count(*) as n from (
                 select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id
                 and d.status = 'queued' and d.not_before <= p_now limit p_each) queued) due
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
$$;

CREATE FUNCTION autopost.free_begins(p_workspace_id text, p_channel_ids text[], p_now timestamp with time zone) RETURNS TABLE(channel_id text, platform text, rate_group text, free integer, group_free integer, group_paced boolean, paced boolean)
    LANGUAGE sql
    AS $$
    select c.channel_id, c.platform, c.rate_group,
           least(c.max_parallel - busy.n, case when c.rate_rps > 0 then 1 end)::integer,
           case when g.rate_rps > 0 then 1 end, coalesce(g.rate_rps > 0, false), autopost.is_paced(c, g)
    from autopost.channels c
    join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group,
    lateral (select count(*) as n from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id = c.channel_id and d.status = 'sending') busy
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids) and autopost.is_open(c, g, p_now)
      and coalesce(c.last_begin_at + autopost.step_of(c.rate_rps), '-infinity') <= p_now
      and coalesce(g.last_begin_at + autopost.step_of(g.rate_rps), '-infinity') <= p_now
      and busy.n < c.max_parallel
$$;

CREATE FUNCTION autopost.hash_version() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select 1 $$;

CREATE FUNCTION autopost.html_problem(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
declare
    known constant text[] := autopost.html_tags();
    open_tags text[] := '{}';
    m text[];
    tag text;
begin
    if position('<' in p_text) = 0 and position('>' in p_text) = 0 then
        return null;
    end if;
    for m in select regexp_matches(p_text, '<(/?)([A-Za-z][A-Za-z0-9-]*)((?:\s+[A-Za-z-]+(?:\s*=\s*(?:"[^"<>]*"|''[^''<>]*''|[^\s"''<>=]+))?)*)\s*/?>|<', 'g')
    loop
        tag := lower(m[2]);
        if tag is null then
            return 'a "<" opens no tag; write &lt; for the character itself';
        elsif tag <> all (known) then
            return format('unknown tag <%s>', left(tag, 32));
        elsif tag = 'br' then
            continue;
        elsif m[1] = '' then
            if tag = 'a' and m[3] !~* '\shref\s*=' then
                return 'a link <a> has no href';
            end if;
            open_tags := open_tags || tag;
        elsif open_tags = '{}' then
            return format('</%s> closes nothing', tag);
        elsif open_tags[cardinality(open_tags)] <> tag then
            return format('</%s> comes while <%s> is open', tag, open_tags[cardinality(open_tags)]);
        else
            open_tags := trim_array(open_tags, 1);
        end if;
        if cardinality(open_tags) > 32 then
            return 'tags are nested more than 32 deep';
        end if;
    end loop;
    return case when open_tags <> '{}' then format('<%s> is never closed', open_tags[cardinality(open_tags)]) end;
end $$;

CREATE FUNCTION autopost.html_tags() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select '{a,b,blockquote,br,code,del,em,h1,h2,h3,h4,h5,h6,i,ins,li,mark,ol,p,pre,s,span,strike,strong,tg-spoiler,u,ul}'::text[]
$$;

CREATE FUNCTION autopost.inbound_hash(p_raw jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select left(core.sha256_hex((p_raw - 'workspace_id' - 'meta' - 'source')::text), 32)
$$;

CREATE FUNCTION autopost.incoming_posts(p_raws jsonb[], p_now timestamp with time zone) RETURNS autopost.incoming[]
    LANGUAGE sql
    AS $$
    select autopost.with_rounds(array(
        select (r.n, r.raw, n.payload, autopost.content_hash(n.payload),
                autopost.normalize_tags(autopost.array_of(r.raw, 'tags'), n.payload ->> 'text'),
                core.uuid7(p_now), p_now - (cardinality(p_raws) - r.n) * interval '1 microsecond', 1)::autopost.incoming
        from unnest(p_raws) with ordinality r (raw, n),
             lateral (select autopost.normalize_payload(r.raw) as payload offset 0) n
        where autopost.payload_problems(r.raw) = '{}'
        order by r.n))
$$;

CREATE FUNCTION autopost.ingress_admit(p_workspace_id text, p_endpoint_id text, p_count integer, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.ingress_retry_after(p_workspace_id text, p_endpoint_id text, p_now timestamp with time zone DEFAULT now()) RETURNS interval
    LANGUAGE sql STABLE
    AS $$
    select greatest(g.full_until - p_now - (greatest(e.ingress_rps, 1) - 1) * autopost.step_of(e.ingress_rps), '0')
    from autopost.workspace_endpoints e
    join autopost.ingress_gates g on g.workspace_id = e.workspace_id and g.endpoint_id = e.endpoint_id
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id
$$;

CREATE FUNCTION autopost.is_active(p_workspace_id text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select exists (select from core.workspaces w where w.workspace_id = p_workspace_id and w.status = 'active')
$$;

CREATE TABLE autopost.channels (
    workspace_id text NOT NULL,
    channel_id text NOT NULL,
    platform text NOT NULL,
    target_id text NOT NULL,
    auth_ref text NOT NULL,
    rate_group text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    title text,
    send_mode text DEFAULT 'mixed'::text NOT NULL,
    rate_rps double precision DEFAULT 1,
    max_parallel integer DEFAULT 1 NOT NULL,
    next_allowed_at timestamp with time zone,
    cooldown_until timestamp with time zone,
    last_begin_at timestamp with time zone,
    paused_until timestamp with time zone,
    penalized_at timestamp with time zone,
    timezone text,
    window_mode text DEFAULT 'immediate'::text NOT NULL,
    posting_window jsonb,
    dedup_ttl_hours integer DEFAULT 168,
    error_streak integer DEFAULT 0 NOT NULL,
    on_unknown text DEFAULT 'resend'::text NOT NULL,
    settings jsonb DEFAULT '{}'::jsonb NOT NULL,
    tags text[],
    route_filter jsonb,
    template_ref text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT channels_channel_id_check CHECK ((channel_id <> ''::text)),
    CONSTRAINT channels_dedup_ttl_hours_check CHECK ((dedup_ttl_hours >= 0)),
    CONSTRAINT channels_max_parallel_check CHECK ((max_parallel >= 1)),
    CONSTRAINT channels_on_unknown_check CHECK ((on_unknown = ANY (ARRAY['resend'::text, 'hold'::text]))),
    CONSTRAINT channels_rate_rps_check CHECK ((rate_rps >= (0)::double precision)),
    CONSTRAINT channels_route_filter_shape CHECK (((route_filter IS NULL) OR ((jsonb_typeof(route_filter) = 'object'::text) AND ((((route_filter - 'include_any'::text) - 'include_all'::text) - 'exclude'::text) = '{}'::jsonb) AND (NOT jsonb_path_exists(route_filter, 'strict $.*?(@.type() != "array")'::jsonpath)) AND (NOT jsonb_path_exists(route_filter, 'strict $.*[*]?(@.type() != "string")'::jsonpath, silent => true)) AND ((route_filter)::text = lower((route_filter)::text))))),
    CONSTRAINT channels_send_mode_check CHECK ((send_mode = ANY (ARRAY['text'::text, 'media'::text, 'mixed'::text]))),
    CONSTRAINT channels_settings_check CHECK ((jsonb_typeof(settings) = 'object'::text)),
    CONSTRAINT channels_tags_check CHECK (((tags)::text = lower((tags)::text))),
    CONSTRAINT channels_target_id_check CHECK ((target_id <> ''::text)),
    CONSTRAINT channels_window_mode_check CHECK ((window_mode = ANY (ARRAY['immediate'::text, 'windowed'::text])))
);

CREATE TABLE autopost.platform_limits (
    workspace_id text NOT NULL,
    platform text NOT NULL,
    rate_group text NOT NULL,
    rate_rps double precision,
    next_allowed_at timestamp with time zone,
    cooldown_until timestamp with time zone,
    last_begin_at timestamp with time zone,
    limited_channel_id text,
    limited_until timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT platform_limits_rate_rps_check CHECK ((rate_rps >= (0)::double precision))
);

CREATE FUNCTION autopost.is_open(p_channel autopost.channels, p_group autopost.platform_limits, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_channel.enabled
       and coalesce(p_channel.paused_until, '-infinity') <= p_now
       and coalesce(p_channel.cooldown_until, '-infinity') <= p_now
       and coalesce(p_group.cooldown_until, '-infinity') <= p_now
$$;

CREATE FUNCTION autopost.is_paced(p_channel autopost.channels, p_group autopost.platform_limits) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select coalesce(p_channel.rate_rps, 0) > 0 or coalesce(p_group.rate_rps, 0) > 0
$$;

CREATE FUNCTION autopost.judge_result(p_delivery autopost.deliveries, p_lease integer, p_success boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
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

CREATE FUNCTION autopost.lock_channels(p_workspace_id text, p_channel_ids text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    insert into autopost.platform_limits (workspace_id, platform, rate_group)
    select distinct c.workspace_id, c.platform, c.rate_group
    from autopost.channels c
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
      and not exists (select from autopost.platform_limits g where g.workspace_id = p_workspace_id
                      and g.platform = c.platform and g.rate_group = c.rate_group)
    order by 2, 3
    on conflict do nothing;

    perform from autopost.platform_limits g
    where g.workspace_id = p_workspace_id and (g.platform, g.rate_group) in (
        select c.platform, c.rate_group from autopost.channels c
        where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids))
    order by g.platform, g.rate_group for no key update;

    perform from autopost.channels c
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
    order by c.channel_id for no key update;
end $$;

CREATE FUNCTION autopost.mark_sent(p_workspace_id text, p_delivery_id uuid, p_provider_message_id text, p_sent_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_raw_meta_json jsonb DEFAULT NULL::jsonb, p_lease integer DEFAULT NULL::integer, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease, 'provider_message_id', p_provider_message_id,
            'sent_at', p_sent_at, 'meta', p_raw_meta_json)), p_now) s))
$$;

CREATE FUNCTION autopost.must_hold(p_row autopost.deliveries, p_error jsonb) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select coalesce(p_error ->> 'outcome' = 'unknown', false) and exists (
        select from autopost.channels c
        where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id and c.on_unknown = 'hold')
$$;

CREATE FUNCTION autopost.next_begin_at(p_workspace_id text) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    with recursive hop as (
        (select d.channel_id, d.not_before from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.status = 'claimed' order by d.channel_id, d.not_before limit 1)
        union all
        select n.channel_id, n.not_before from hop h,
        lateral (select d.channel_id, d.not_before from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.status = 'claimed' and d.channel_id > h.channel_id
                 order by d.channel_id, d.not_before limit 1) n
    )
    select nullif(min(greatest(h.not_before, c.last_begin_at + autopost.step_of(c.rate_rps),
               g.last_begin_at + autopost.step_of(g.rate_rps), c.cooldown_until, g.cooldown_until, c.paused_until)), 'infinity')
    from hop h
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = h.channel_id and c.enabled
    left join autopost.platform_limits g on g.workspace_id = p_workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    where (select count(*) from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
           and d.status = 'sending') < c.max_parallel
$$;

CREATE FUNCTION autopost.next_in_turn(p_workspace_id text, p_limit integer, p_now timestamp with time zone) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    place text := coalesce((select s.channel_id_last from autopost.dispatcher_state s
                            where s.workspace_id = p_workspace_id), '');
    ready text[];
begin
    ready := array(select autopost.ready_channels(p_workspace_id, place, p_limit, p_now));
    if cardinality(ready) < p_limit and place <> '' then
        ready := ready || array(select r from autopost.ready_channels(p_workspace_id, '', p_limit - cardinality(ready), p_now) r
                                where r <> all (ready));
    end if;
    return ready;
end $$;

CREATE FUNCTION autopost.normal_error(p_error jsonb, p_category text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object(
        'category', p_category,
        'scope', case when p_error ->> 'scope' in ('delivery', 'channel', 'platform') then p_error ->> 'scope' else 'delivery' end,
        'code', left(coalesce(p_error ->> 'code', 'unknown'), 100),
        'message', left(p_error ->> 'message', 500),
        'retry_after_ms', case when jsonb_typeof(p_error -> 'retry_after_ms') = 'number'
                          then least((p_error ->> 'retry_after_ms')::numeric, 1e12) end,
        'scope_named', case when p_error -> 'scope_named' = 'true' then p_error -> 'scope_named' end,
        'outcome', p_error #> '{raw,outcome}',
        'raw', left(nullif(p_error ->> 'raw', '{}'), 500)))
$$;

CREATE FUNCTION autopost.normalize_payload(p_raw jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object(
        'type', 'text',
        'text', nullif(autopost.normalize_text(p_raw ->> 'text'), ''),
        'parse_mode', p_raw ->> 'parse_mode',
        'links', nullif((select jsonb_agg(autopost.canonical_url(l) order by n)
                         from jsonb_array_elements_text(autopost.array_of(p_raw, 'links')) with ordinality x (l, n)), '[]'),
        'buttons', nullif((select jsonb_agg((select jsonb_agg(jsonb_build_object(
                                     'text', autopost.normalize_text(b ->> 'text'),
                                     'url', autopost.canonical_url(b ->> 'url')) order by i)
                                  from jsonb_array_elements(line) with ordinality y (b, i)) order by n)
                           from jsonb_array_elements(autopost.array_of(p_raw, 'buttons')) with ordinality x (line, n)), '[]'),
        'disable_preview', case when jsonb_typeof(p_raw -> 'disable_preview') = 'boolean' then p_raw -> 'disable_preview' end
    ))
$$;

CREATE FUNCTION autopost.normalize_tags(p_tags jsonb, p_text text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select coalesce(array_agg(tag order by tag), '{}') from (
        select distinct lower(normalize(btrim(t), nfc)) as tag from (
            select jsonb_array_elements_text(p_tags)
            union all
            select m[1] from regexp_matches(coalesce(p_text, ''), '(?:^|[^\w&/#="''])#(\w{1,64})(?!\w)', 'g') m
            where m[1] ~ '[^0-9_]'
        ) as all_tags (t)
        where btrim(t) <> ''
        order by 1 limit 64
    ) kept
$$;

CREATE FUNCTION autopost.normalize_text(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
declare
    t text := p_text;
begin
    if t !~ '^[\x20-\x7e]*$' then
        t := normalize(replace(replace(t, E'\r\n', E'\n'), E'\r', E'\n'), nfc);
    end if;
    if t ~ '[ \t\u00a0]{2}|[\t\u00a0]' and t !~* '<(pre|code)\y|```|`' then
        t := regexp_replace(t, '[ \t\u00a0]+', ' ', 'g');
    end if;
    if t ~ '[ \t]\n|\n{3}' then
        t := regexp_replace(regexp_replace(t, '[ \t]+\n', E'\n', 'g'), '\n{3,}', E'\n\n', 'g');
    end if;
    return btrim(t, E' \t\n');
end $_$;

CREATE FUNCTION autopost.note_delivery(p_row autopost.deliveries, p_action text, p_error jsonb, p_meta jsonb, p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, meta)
    values (p_row.workspace_id, core.uuid7(p_now), p_row.delivery_id, p_row.message_id, p_row.channel_id, p_now, p_action,
            p_row.attempt, case when p_error is null then 'ok' else 'error' end, p_error,
            jsonb_build_object('trace_id', p_row.trace_id) || p_meta)
$$;

CREATE FUNCTION autopost.paced_of(p_workspace_id text, p_channel_ids text[]) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    select coalesce(array_agg(c.channel_id), '{}')
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids) and autopost.is_paced(c, g)
$$;

CREATE FUNCTION autopost.payload_problems(p_raw jsonb) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    problems text[];
begin
    if p_raw is null or jsonb_typeof(p_raw) <> 'object' then
        return array['payload: must be a JSON object'];
    end if;
    select coalesce(array_agg(case when known.key is null then given.key || ': unknown key'
                                   else format('%s: must be %s, not %s', given.key, known.type, jsonb_typeof(given.value)) end
                              order by known.place nulls first, given.key), '{}') into problems
    from jsonb_each(p_raw) given
    left join (values (1, 'text', 'string'), (2, 'parse_mode', 'string'), (3, 'media', 'array'), (4, 'links', 'array'),
                      (5, 'buttons', 'array'), (6, 'disable_preview', 'boolean'), (7, 'tags', 'array'),
                      (8, 'source_ref', 'string'), (9, 'scheduled_for', 'string'), (10, 'channels', 'array'),
                      (11, 'source', 'object'), (12, 'meta', 'object'), (13, 'workspace_id', null)
              ) known (place, key, type) on known.key = given.key
    where known.key is null or jsonb_typeof(given.value) not in ('null', known.type);
    if cardinality(problems) > 20 then
        return problems[:20] || format('and %s more', cardinality(problems) - 20);
    elsif problems <> '{}' then
        return problems;
    end if;
    return autopost.value_problems(p_raw);
end $$;

CREATE FUNCTION autopost.policy_of(p_workspace_id text) RETURNS autopost.policies
    LANGUAGE plpgsql
    AS $$
declare
    policy autopost.policies;
begin
    select * into policy from autopost.policies p where p.workspace_id = p_workspace_id;
    if not found then
        insert into autopost.policies (workspace_id) values (p_workspace_id) on conflict do nothing;
        select * into policy from autopost.policies p where p.workspace_id = p_workspace_id;
    end if;
    return policy;
end $$;

CREATE FUNCTION autopost.preflight_problem(p_platform text, p_text text, p_parse_mode text, p_payload jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    allowed constant integer := autopost.text_limit(p_platform);
    measured integer;
    problem text;
begin
    if p_parse_mode not in ('HTML', 'Markdown', 'None') then
        return format('unknown parse mode %s', left(p_parse_mode, 32));
    end if;
    -- Markup cannot bring a text this long under any limit, and looking for its tags would take seconds.
    if char_length(p_text) > 65536 then
        return format('text is too long: %s characters before its markup is read', char_length(p_text));
    end if;
    if p_parse_mode = 'HTML' then
        problem := autopost.html_problem(p_text);
        if problem is not null then
            return problem;
        end if;
    end if;
    measured := autopost.text_length(p_platform, p_text, p_parse_mode);
    if measured > allowed then
        return format('text is too long: %s of %s characters', measured, allowed);
    elsif btrim(autopost.visible_text(p_text, p_parse_mode), E' \t\n') = '' then
        return 'nothing is left of the text once its markup is taken away';
    end if;
    return autopost.buttons_problem(p_platform, p_payload -> 'buttons');
end $$;

CREATE FUNCTION autopost.punish_channel(p_row autopost.deliveries, p_error jsonb, p_policy autopost.policies, p_now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    streak integer;
    disable boolean;
begin
    update autopost.channels c
    set error_streak = c.error_streak + 1, penalized_at = p_now, updated_at = p_now,
        paused_until = greatest(c.paused_until, p_now + p_policy.pause_on_permanent_for),
        enabled = c.enabled and c.error_streak + 1 < p_policy.disable_after_permanent_streak
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id
      and coalesce(c.penalized_at, '-infinity') < coalesce(p_row.sending_started_at, p_now)
    returning c.error_streak, not c.enabled and c.error_streak >= p_policy.disable_after_permanent_streak into streak, disable;
    if not found then
        return;
    end if;
    perform autopost.release_claims(p_row.workspace_id, array[p_row.channel_id], 'channel_paused', p_now);
    insert into autopost.events (workspace_id, id, channel_id, ts, action, result, error, meta)
    select p_row.workspace_id, core.uuid7(p_now), p_row.channel_id, p_now, a.action, 'error', p_error,
           jsonb_build_object('error_streak', streak, 'delivery_id', p_row.delivery_id, 'trace_id', p_row.trace_id)
    from unnest(array['channel_paused', case when disable then 'channel_disabled' end]) a (action)
    where a.action is not null;
end $$;

CREATE FUNCTION autopost.ready_channels(p_workspace_id text, p_after text, p_limit integer, p_now timestamp with time zone) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    with recursive hop as (
        select p_after as channel_id
        union all
        select least(
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'queued' order by d.channel_id limit 1),
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'retry' order by d.channel_id limit 1))
        from hop h where h.channel_id is not null
    )
    select h.channel_id
    from hop h,
    -- One channel at a time, in the order of the hops, and no further than p_limit of them.
    lateral (select c as channel, g as grp
             from autopost.channels c
             left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform
                 and g.rate_group = c.rate_group
             where c.workspace_id = p_workspace_id and c.channel_id = h.channel_id
             offset 0) x
    where h.channel_id > p_after and autopost.is_open(x.channel, x.grp, p_now)
      and least(
          (select d.not_before from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
           and d.status = 'queued' order by d.not_before limit 1),
          (select d.next_retry_at from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
           and d.status = 'retry' order by d.next_retry_at limit 1)) <= p_now
    limit p_limit
$$;

CREATE FUNCTION autopost.record_refusals(p_workspace_id text, p_endpoint_id text, p_action text, p_reason text, p_count integer, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    second timestamptz := date_trunc('second', p_now);
    counter text := case p_action when 'ingress_rate_limited' then 'rate_limited'
                                  when 'ingress_payload_rejected' then 'payload_rejected'
                                  else 'dedup_dropped' end;
    event uuid := md5(concat_ws('|', p_endpoint_id, p_action, p_reason, second))::uuid;
    run uuid := md5(concat_ws('|', p_endpoint_id, 'refused', second))::uuid;
begin
    insert into autopost.events as e (workspace_id, id, ts, action, attempt, result, meta)
    values (p_workspace_id, event, second, p_action, 0,
            case p_action when 'ingress_dedup_dropped' then 'ok' else 'error' end,
            jsonb_build_object('endpoint_id', p_endpoint_id, 'reason', p_reason, 'count', p_count))
    on conflict (workspace_id, ts, id) do update
    set meta = jsonb_set(e.meta, '{count}', to_jsonb((e.meta ->> 'count')::bigint + p_count));

    insert into autopost.ingest_runs as r (workspace_id, run_id, kind, started_at, finished_at, stats_json)
    values (p_workspace_id, run, 'push', second, p_now,
            jsonb_build_object('endpoint_id', p_endpoint_id, counter, p_count))
    on conflict (workspace_id, run_id) do update
    set finished_at = p_now,
        stats_json = r.stats_json
            || jsonb_build_object(counter, coalesce((r.stats_json ->> counter)::bigint, 0) + p_count);
end $$;

CREATE FUNCTION autopost.release_claims(p_workspace_id text, p_channel_ids text[], p_reason text, p_now timestamp with time zone) RETURNS integer
    LANGUAGE sql
    AS $$
    with released as (
        update autopost.deliveries d
        set status = 'queued', not_before = coalesce(d.scheduled_for, d.created_at), claimed_at = null, claim_token = null, updated_at = p_now
        where d.workspace_id = p_workspace_id and d.channel_id = any (p_channel_ids) and d.status = 'claimed'
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), r.delivery_id, r.message_id, r.channel_id, p_now, 'claim_released', r.attempt,
               jsonb_build_object('trace_id', r.trace_id, 'reason', p_reason)
        from released r
    )
    select count(*)::integer from released
$$;

CREATE FUNCTION autopost.remember_turn(p_workspace_id text, p_channel_id text, p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.dispatcher_state as s (workspace_id, channel_id_last, updated_at)
    select p_workspace_id, p_channel_id, p_now where p_channel_id is not null
    on conflict (workspace_id) do update set channel_id_last = excluded.channel_id_last, updated_at = excluded.updated_at
    where s.channel_id_last <> excluded.channel_id_last
$$;

CREATE FUNCTION autopost.remember_workspace(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.dispatcher_state as s (workspace_id, workspace_id_last, updated_at) values ('*', p_workspace_id, p_now)
    on conflict (workspace_id) do update set workspace_id_last = excluded.workspace_id_last, updated_at = excluded.updated_at
$$;

CREATE FUNCTION autopost.render_text(p_payload jsonb, p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when not p_payload ? 'links' then p_payload ->> 'text' else
        concat_ws(E'\n\n', p_payload ->> 'text', (
            select string_agg(shown, E'\n' order by n)
            from jsonb_array_elements_text(p_payload -> 'links') with ordinality x (link, n),
                 lateral (select case p_parse_mode when 'HTML' then autopost.escape_html(link) else link end) y (shown)
            where position(shown in coalesce(p_payload ->> 'text', '')) = 0))
    end
$$;

CREATE FUNCTION autopost.require_legal(p_workspace_id text, p_delivery_id uuid, p_outcome text) RETURNS text
    LANGUAGE plpgsql
    AS $$
begin
    if p_outcome is null then
        raise exception 'no delivery % in workspace %', p_delivery_id, p_workspace_id using errcode = 'VN001';
    elsif p_outcome = 'illegal' then
        raise exception 'illegal move of delivery %: nothing of it is being sent', p_delivery_id using errcode = 'VM001';
    end if;
    return p_outcome;
end $$;

CREATE FUNCTION autopost.require_workspace(p_workspace_id text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
    perform from core.workspaces w where w.workspace_id = p_workspace_id and w.status <> 'disabled';
    if not found then
        raise exception 'no workspace %, or it is disabled', p_workspace_id using errcode = 'VN001';
    end if;
end $$;

CREATE FUNCTION autopost.resolve_endpoint(p_kind text, p_secret_hash text) RETURNS TABLE(workspace_id text, endpoint_id text, max_payload_bytes integer)
    LANGUAGE sql STABLE
    AS $$
    select e.workspace_id, e.endpoint_id, e.max_payload_bytes
    from autopost.workspace_endpoints e
    join core.workspaces w on w.workspace_id = e.workspace_id and w.status <> 'disabled'
    where e.kind = p_kind and e.secret_hash = p_secret_hash and e.enabled
$$;

CREATE FUNCTION autopost.retry_delay(p_policy autopost.policies, p_attempt integer, p_error jsonb, p_chance double precision) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$
    select (1 + p_policy.backoff_jitter * p_chance) * case
        when (p_error ->> 'retry_after_ms')::double precision > 0
            then make_interval(secs => least((p_error ->> 'retry_after_ms')::double precision / 1000, 86400))
        when p_error ->> 'code' = 'attachment.not.ready'
            then least(p_policy.not_ready_backoff * greatest(p_attempt, 1), p_policy.not_ready_backoff_max)
        else least(p_policy.backoff_base * least(power(p_policy.backoff_factor, least(greatest(p_attempt - 1, 0), 30)), 1e6),
                   p_policy.backoff_max)
    end
$$;

CREATE FUNCTION autopost.rotate_endpoint(p_workspace_id text, p_endpoint_id text, p_secret_hash text, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE plpgsql
    AS $_$
declare
    old autopost.workspace_endpoints;
    new_id text;
    n integer := 2;
begin
    select * into old from autopost.workspace_endpoints e
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id for no key update;
    if not found or not old.enabled then
        raise exception 'no enabled endpoint % in workspace %', p_endpoint_id, p_workspace_id using errcode = 'VN001';
    end if;
    loop
        new_id := regexp_replace(p_endpoint_id, '-v[0-9]+$', '') || '-v' || n;
        exit when not exists (select from autopost.workspace_endpoints e
                              where e.workspace_id = p_workspace_id and e.endpoint_id = new_id);
        n := n + 1;
    end loop;
    insert into autopost.workspace_endpoints (workspace_id, endpoint_id, kind, secret_hash, ingress_rps, max_payload_bytes,
        hash_drop_window_sec, meta, created_at, updated_at)
    values (p_workspace_id, new_id, old.kind, p_secret_hash, old.ingress_rps, old.max_payload_bytes,
        old.hash_drop_window_sec, old.meta || jsonb_build_object('rotated_from', p_endpoint_id), p_now, p_now);
    update autopost.workspace_endpoints e set enabled = false, updated_at = p_now
    where e.workspace_id = p_workspace_id and e.endpoint_id = p_endpoint_id;
    return new_id;
end $_$;

CREATE FUNCTION autopost.routes_to(p_filter jsonb, p_tags text[], p_tags_json jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_filter is null then true else
        coalesce((p_filter -> 'include_any') ?| p_tags or p_filter -> 'include_any' = '[]', true)
        and coalesce(p_tags_json @> (p_filter -> 'include_all'), true)
        and not coalesce((p_filter -> 'exclude') ?| p_tags, false) end
$$;

CREATE FUNCTION autopost.schedule_retry(p_workspace_id text, p_delivery_id uuid, p_next_retry_at timestamp with time zone, p_error_json jsonb, p_lease integer DEFAULT NULL::integer, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease, 'next_retry_at', p_next_retry_at,
            'error', autopost.error_of(p_error_json, 'TRANSIENT'))), p_now) s))
$$;

CREATE FUNCTION autopost.send_mode_problem(p_send_mode text, p_payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_send_mode = 'media' and p_payload ->> 'type' = 'text' then 'this channel takes media only, and the post is text'
        when p_send_mode = 'text' and p_payload ->> 'type' = 'media' then 'this channel takes text only, and the post has media' end
$$;

CREATE FUNCTION autopost.settle_awaited(p_workspace_id text, p_results jsonb, p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE sql
    AS $$
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
        where c.workspace_id = p_workspace_id and c.error_streak > 0 and c.channel_id in (select s.channel_id from settled s)
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.nth_uuid(ids.base, row_number() over ()), s.delivery_id, s.message_id, s.channel_id, p_now,
               'sent', s.attempt,
               jsonb_build_object('trace_id', s.trace_id, 'provider_message_id', s.provider_message_id, 'raw', s.meta)
        from settled s, ids
    )
    select coalesce(array_agg(s.delivery_id), '{}') from settled s
$$;

CREATE FUNCTION autopost.settle_deliveries(p_workspace_id text, p_results jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, outcome text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    settled uuid[];
begin
    perform autopost.lock_channels(p_workspace_id, array(
        select distinct d.channel_id from jsonb_to_recordset(p_results) r (delivery_id uuid, error jsonb)
        join autopost.deliveries d on d.workspace_id = p_workspace_id and d.delivery_id = r.delivery_id
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where r.error is not null or c.error_streak > 0));

    settled := autopost.settle_awaited(p_workspace_id, p_results, p_now);
    return query select unnest(settled), 'sent';
    if cardinality(settled) = jsonb_array_length(p_results) then
        return;
    end if;
    return query
    select r.delivery_id, case when r.error is null
        then autopost.settle_unawaited(p_workspace_id, r.delivery_id, r.lease, r.provider_message_id, r.sent_at, r.meta, p_now)
        else autopost.settle_error(p_workspace_id, r.delivery_id, r.lease, r.error, r.next_retry_at, p_now) end
    from (select * from jsonb_to_recordset(p_results) x (delivery_id uuid, lease integer, provider_message_id text,
              sent_at timestamptz, meta jsonb, error jsonb, next_retry_at timestamptz)
          -- A late result beside the current one of the same delivery is still to be judged.
          where x.delivery_id <> all (settled) or x.lease < (
              select d.lease from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = x.delivery_id)
          order by x.delivery_id) r
    where exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = r.delivery_id);
end $$;

CREATE FUNCTION autopost.settle_error(p_workspace_id text, p_delivery_id uuid, p_lease integer, p_error jsonb, p_next_retry_at timestamp with time zone, p_now timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
    row autopost.deliveries;
    permanent constant boolean := p_error ->> 'category' = 'PERMANENT';
    error constant jsonb := autopost.normal_error(p_error, case when permanent then 'PERMANENT' else 'TRANSIENT' end);
    verdict text;
    chance constant double precision := random();
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
    delay := autopost.retry_delay(policy, row.attempt, error, chance);
    perform autopost.feed_gates(row, error, delay, verdict = 'late', policy, p_now);
    if verdict = 'late' then
        perform autopost.note_delivery(row, 'late_result', error, '{}', p_now);
        return 'late';
    end if;

    outcome := case when permanent then 'failed_permanent' when autopost.must_hold(row, error) then 'held'
                    when row.attempt >= policy.max_attempts then 'dead' else 'retry' end;
    update autopost.deliveries d
    set status = case outcome when 'held' then 'retry' else outcome end, held_at = case outcome when 'held' then p_now end, last_error = error, settled_lease = d.lease, claimed_at = null, claim_token = null,
        sending_started_at = null, updated_at = p_now,
        next_retry_at = case outcome when 'held' then 'infinity'
                                     when 'retry' then greatest(p_next_retry_at, case when p_next_retry_at is null then p_now + delay end) end
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
    returning * into row;
    perform autopost.note_delivery(row,
        case outcome when 'retry' then 'retry_scheduled' when 'dead' then 'dead_letter' else outcome end, error,
        jsonb_strip_nulls(jsonb_build_object('next_retry_at', row.next_retry_at, 'lease', row.lease)), p_now);
    return outcome;
end $$;

CREATE FUNCTION autopost.settle_unawaited(p_workspace_id text, p_delivery_id uuid, p_lease integer, p_provider_message_id text, p_sent_at timestamp with time zone, p_meta jsonb, p_now timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    AS $$
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
        where c.workspace_id = p_workspace_id and c.channel_id = row.channel_id and c.error_streak > 0;
    end if;
    if verdict in ('current', 'late') then
        perform autopost.note_delivery(row, case verdict when 'current' then 'sent' else 'late_result' end, null,
            jsonb_build_object('provider_message_id', p_provider_message_id, 'raw', p_meta, 'lease', p_lease,
                               'from_status', row.status), p_now);
    end if;
    return case verdict when 'current' then 'sent' when 'repeat' then 'duplicate' else verdict end;
end $$;

CREATE FUNCTION autopost.start_sends(p_workspace_id text, p_run_id text, p_delivery_ids uuid[], p_now timestamp with time zone) RETURNS TABLE(delivery_id uuid, lease integer, attempt integer, message_id uuid, trace_id uuid, channel_id text, platform text, target_id text, auth_ref text, rate_group text, settings jsonb, rendered_text text, render_meta jsonb, payload jsonb)
    LANGUAGE sql
    AS $$
    with ids as materialized (
        select core.uuid7(p_now) as base
    ), started as (
        update autopost.deliveries d
        set status = 'sending', attempt = d.attempt + 1, lease = d.lease + 1,
            lost_leases = d.lost_leases + (d.lease <> d.settled_lease)::integer,
            claim_token = p_run_id, claimed_at = case d.status when 'claimed' then coalesce(d.claimed_at, p_now) else p_now end,
            sending_started_at = p_now,
            next_retry_at = null, held_at = null, updated_at = p_now
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
          and d.status || '' in ('claimed', 'queued', 'retry')
        returning d.delivery_id, d.message_id, d.channel_id, d.trace_id, d.attempt, d.lease, d.not_before, d.created_at, d.rendered_text, d.render_meta
    ), channel_pace as (
        update autopost.channels c set last_begin_at = p_now
        where c.workspace_id = p_workspace_id and c.rate_rps > 0 and c.channel_id in (select s.channel_id from started s)
    ), group_pace as (
        update autopost.platform_limits g set last_begin_at = p_now
        where g.workspace_id = p_workspace_id and g.rate_rps > 0 and (g.platform, g.rate_group) in (
            select c.platform, c.rate_group from started s
            join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = s.channel_id)
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.nth_uuid(ids.base, row_number() over ()), s.delivery_id, s.message_id, s.channel_id, p_now,
               'send_attempt', s.attempt, jsonb_build_object('trace_id', s.trace_id, 'run_id', p_run_id, 'idempotency_key', s.delivery_id)
        from started s, ids
    )
    select s.delivery_id, s.lease, s.attempt, s.message_id, s.trace_id, c.channel_id, c.platform, c.target_id,
           coalesce(a.auth_ref, c.auth_ref), c.rate_group, c.settings, s.rendered_text, s.render_meta, m.payload
    from started s
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = s.channel_id
    join autopost.messages m on m.workspace_id = p_workspace_id and m.message_id = s.message_id
    left join autopost.channel_auth a on a.workspace_id = p_workspace_id and a.channel_id = s.channel_id
    order by s.not_before, s.created_at
$$;

CREATE FUNCTION autopost.step_of(p_rate_rps double precision) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_rate_rps > 0 then make_interval(secs => least(ceil(1e6 / p_rate_rps) / 1e6, 3155760000)) end
$$;

CREATE FUNCTION autopost.sweep_claimed(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
    swept integer;
begin
    with stale as (
        select d.delivery_id, c.enabled and coalesce(c.paused_until, '-infinity') <= p_now as open
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.status = 'claimed'
          and (not c.enabled or c.paused_until > p_now
               or (d.not_before <= p_now and d.claimed_at < p_now - policy.claimed_lease
                   and not (select count(*) >= c.max_parallel and max(s.sending_started_at) >= p_now - policy.sending_lease
                            from autopost.deliveries s where s.workspace_id = d.workspace_id
                              and s.channel_id = d.channel_id and s.status = 'sending')))
        order by d.delivery_id limit p_limit
        for no key update of d skip locked
    ), moved as (
        update autopost.deliveries d
        set status = 'queued', not_before = coalesce(d.scheduled_for, d.created_at), claimed_at = null, claim_token = null, updated_at = p_now
        from stale s
        where d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, s.open
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now,
               case when m.open then 'claimed_lease_expired' else 'claim_released' end, m.attempt,
               case when m.open then 'error' else 'ok' end, jsonb_build_object('trace_id', m.trace_id)
        from moved m
    )
    select count(*) into swept from moved;
    return swept;
end $$;

CREATE FUNCTION autopost.sweep_receipts(p_workspace_id text, p_limit integer DEFAULT 1000, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE sql
    AS $$
    with gone as (
        delete from autopost.ingress_receipts r
        where r.workspace_id = p_workspace_id and r.receipt_id in (
            select x.receipt_id from autopost.ingress_receipts x
            where x.workspace_id = p_workspace_id and x.expires_at < p_now order by x.expires_at limit p_limit
            for update skip locked)
          and r.expires_at < p_now
        returning 1
    )
    select count(*)::integer from gone
$$;

CREATE FUNCTION autopost.sweep_sending(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
    error constant jsonb := jsonb_build_object('category', 'TRANSIENT', 'scope', 'delivery', 'code', 'lease_expired',
        'message', 'the sender fell silent: whether the platform took the post is not known', 'outcome', 'unknown');
    swept integer;
begin
    with expired as (
        select d.delivery_id,
               case when c.on_unknown = 'hold' then 'held' when d.attempt >= policy.max_attempts then 'dead' else 'retry' end as fate
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.status = 'sending' and d.sending_started_at < p_now - policy.sending_lease
        order by d.delivery_id limit p_limit
        for no key update of d skip locked
    ), moved as (
        update autopost.deliveries d
        set status = case e.fate when 'dead' then 'dead' else 'retry' end,
            next_retry_at = case e.fate when 'held' then 'infinity' when 'retry' then p_now + policy.expired_send_backoff end,
            held_at = case e.fate when 'held' then p_now end,
            last_error = error, claimed_at = null, claim_token = null, sending_started_at = null, updated_at = p_now
        from expired e
        where d.workspace_id = p_workspace_id and d.delivery_id = e.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, d.lease, e.fate
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, a.action, m.attempt, 'error', error,
               jsonb_build_object('trace_id', m.trace_id, 'lease', m.lease)
        from moved m, lateral (values ('sending_lease_expired'),
            (case m.fate when 'dead' then 'dead_letter' when 'held' then 'held' end)) a (action)
        where a.action is not null
    )
    select count(*) into swept from moved;
    return swept;
end $$;

CREATE FUNCTION autopost.take_receipts(p_workspace_id text, p_endpoint_id text, p_kind text, p_posts autopost.incoming[], p_now timestamp with time zone) RETURNS SETOF integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.take_turn(p_workspace_id text, p_limit integer, p_now timestamp with time zone) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    sample constant integer := ceil(p_limit / 10.0);
    turn text[] := autopost.next_in_turn(p_workspace_id, sample, p_now);
    wanted integer;
begin
    if sample > 0 and cardinality(turn) = sample then
        wanted := ceil(p_limit::numeric * sample
                       / greatest(sample, autopost.free_and_due(p_workspace_id, turn, ceil(p_limit / 50.0)::integer, p_now)));
        if wanted > sample then
            turn := autopost.next_in_turn(p_workspace_id, wanted, p_now);
        end if;
    end if;
    return turn;
end $$;

CREATE FUNCTION autopost.text_length(p_platform text, p_text text, p_parse_mode text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select autopost.utf16_length(
        case p_platform when 'max' then p_text else autopost.visible_text(p_text, p_parse_mode) end)
$$;

CREATE FUNCTION autopost.text_limit(p_platform text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case p_platform when 'telegram' then 4096 when 'max' then 4000 end
$$;

CREATE FUNCTION autopost.unknown_channels(p_workspace_id text, p_only text[]) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select 'no such channel: ' || string_agg(o.id, ', ' order by o.id)
    from unnest(p_only) o (id)
    where not exists (select from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = o.id)
$$;

CREATE FUNCTION autopost.upsert_messages(p_workspace_id text, p_posts autopost.incoming[], p_run_id uuid, p_now timestamp with time zone) RETURNS autopost.stored[]
    LANGUAGE sql
    AS $$
    with upserted as (
        insert into autopost.messages as m (workspace_id, message_id, hash_version, content_hash, payload, tags, source,
            source_ref, first_seen_trace_id, first_ingest_run_id, last_seen_at, last_ingest_run_id, created_at)
        select p_workspace_id, core.uuid7(p_now), autopost.hash_version(), p.content_hash, p.payload, p.tags,
               p.raw -> 'source', p.raw ->> 'source_ref', p.trace_id, p_run_id, p_now, p_run_id, p_now
        from unnest(p_posts) p order by p.content_hash
        on conflict (workspace_id, hash_version, content_hash) do update
        set last_seen_at = excluded.last_seen_at, last_ingest_run_id = excluded.last_ingest_run_id,
            seen_count = m.seen_count + 1
        returning m.message_id, m.content_hash, m.tags, m.xmax = 0 as is_new
    )
    select coalesce(array_agg((p.item, u.message_id, u.is_new, p.payload, p.content_hash, u.tags, p.trace_id, p.created_at,
        case when jsonb_typeof(p.raw -> 'channels') = 'array'
             then array(select jsonb_array_elements_text(p.raw -> 'channels')) end)::autopost.stored order by p.item), '{}')
    from upserted u join unnest(p_posts) p on p.content_hash = u.content_hash
$$;

CREATE FUNCTION autopost.utf16_length(p_text text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select char_length(p_text) + regexp_count(p_text, '[\U00010000-\U0010FFFF]')
$$;

CREATE FUNCTION autopost.validation_error(p_reason text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_reason is not null then jsonb_build_object(
        'category', 'PERMANENT', 'scope', 'delivery', 'code', 'validation_failed', 'message', p_reason) end
$$;

CREATE FUNCTION autopost.value_problems(p_raw jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select array_remove(array[
        case when p_raw ->> 'parse_mode' not in ('HTML', 'Markdown', 'None')
             then 'parse_mode: must be HTML, Markdown or None' end,
        case when p_raw ->> 'source_ref' = '' or char_length(p_raw ->> 'source_ref') > 256
             then 'source_ref: must have 1 to 256 characters' end,
        case when jsonb_array_length(autopost.array_of(p_raw, 'tags')) > 64 then 'tags: at most 64'
             when jsonb_path_exists(autopost.array_of(p_raw, 'tags'), 'strict $[*] ? (@.type() != "string")')
             then 'tags: each must be a string'
             when jsonb_path_exists(autopost.array_of(p_raw, 'tags'), 'strict $[*] ? (@ like_regex "^.{65}" flag "s")')
             then 'tags: each at most 64 characters' end,
        case when jsonb_array_length(autopost.array_of(p_raw, 'channels')) > 10000 then 'channels: at most 10000'
             when jsonb_path_exists(autopost.array_of(p_raw, 'channels'), 'strict $[*] ? (@.type() != "string")')
             then 'channels: each must be a string' end,
        case when jsonb_array_length(autopost.array_of(p_raw, 'links')) > 20 then 'links: at most 20'
             when jsonb_path_exists(autopost.array_of(p_raw, 'links'),
                      'strict $[*] ? (@.type() != "string" || !(@ like_regex "^https?://[^\\s/?#<>]+[^\\s<>]*$" flag "i"))')
             then 'links: each must be an http or https address' end,
        case when autopost.array_of(p_raw, 'buttons') <> '[]'
             then autopost.button_problem(autopost.array_of(p_raw, 'buttons')) end,
        case when jsonb_array_length(autopost.array_of(p_raw, 'media')) > 0
             then 'media: not supported yet' end,
        case when p_raw ->> 'scheduled_for' is not null then 'scheduled_for: not supported yet' end,
        case when coalesce(btrim(p_raw ->> 'text', E' \t\r\n\u00a0'), '') = ''
                  and jsonb_array_length(autopost.array_of(p_raw, 'links')) = 0
             then 'text: a post needs text or links' end
    ], null)
$_$;

CREATE FUNCTION autopost.visible_text(p_text text, p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select case p_parse_mode
        when 'HTML' then regexp_replace(regexp_replace(p_text, '<[^<>]*>', '', 'g'),
                             '&(?:[A-Za-z]+|#[0-9]+|#[xX][0-9A-Fa-f]+);', '.', 'g')
        when 'Markdown' then regexp_replace(regexp_replace(p_text, '\[([^][]*)\]\([^()\s]*\)', '\1', 'g'),
                             '\*\*|__|~~|\+\+|\^\^|`+', '', 'g')
        else p_text end
$$;

CREATE FUNCTION autopost.why_delivery(p_workspace_id text, p_delivery_id uuid, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(status text, gate text, earliest timestamp with time zone, detail text, gates jsonb)
    LANGUAGE sql STABLE
    AS $$
    with d as (
        select d.*, c, g, w.status as workspace_status, p.sending_lease,
               greatest(c.last_begin_at + autopost.step_of(c.rate_rps), g.last_begin_at + autopost.step_of(g.rate_rps)) as paced_until
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        join core.workspaces w on w.workspace_id = d.workspace_id
        left join autopost.platform_limits g on g.workspace_id = d.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        left join autopost.policies p on p.workspace_id = d.workspace_id
        where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
    ), found as (
        select gate.* from d, lateral (values
            ('workspace', d.workspace_status <> 'active', 'infinity'::timestamptz, 'the workspace is ' || d.workspace_status),
            ('disabled', not (d.c).enabled, 'infinity', format('channel %s is disabled', d.channel_id)),
            ('held', d.held_at is not null, 'infinity', 'its outcome is unknown: confirm it or send it again'),
            ('paused', (d.c).paused_until > p_now, (d.c).paused_until, format('channel %s is paused', d.channel_id)),
            ('cooldown', (d.c).cooldown_until > p_now, (d.c).cooldown_until, 'the platform asked this channel to wait'),
            ('group_cooldown', (d.g).cooldown_until > p_now, (d.g).cooldown_until, format('the platform asked group %s to wait', (d.c).rate_group)),
            ('retry', d.status = 'retry' and d.next_retry_at > p_now and d.held_at is null, d.next_retry_at,
                format('attempt %s failed: %s', d.attempt, coalesce(d.last_error ->> 'message', d.last_error ->> 'code'))),
            ('schedule', d.status in ('queued', 'retry') and d.not_before > p_now, d.not_before, 'it is scheduled for later'),
            ('slot', d.status = 'claimed' and d.not_before > p_now, d.not_before, 'its slot has not come'),
            ('pace', d.status = 'claimed' and d.paced_until > p_now, d.paced_until, 'the last send of its channel or group began only just now'),
            ('max_parallel', d.status in ('queued', 'claimed', 'retry') and (
                    select count(*) from autopost.deliveries s where s.workspace_id = d.workspace_id
                    and s.channel_id = d.channel_id and s.status = 'sending') >= (d.c).max_parallel,
                p_now, format('%s sends of this channel are under way, as many as it may have', (d.c).max_parallel)),
            ('rate', d.status in ('queued', 'retry') and (d.c).rate_rps > 0 and (d.c).next_allowed_at > p_now, (d.c).next_allowed_at,
                format('channel %s takes %s a second', d.channel_id, (d.c).rate_rps)),
            ('group_rate', d.status in ('queued', 'retry') and (d.g).rate_rps > 0 and (d.g).next_allowed_at > p_now, (d.g).next_allowed_at,
                format('group %s takes %s a second', (d.c).rate_group, (d.g).rate_rps)),
            ('lease', d.status = 'sending', d.sending_started_at + coalesce(d.sending_lease, '300 seconds'),
                'it is being sent; its lease ends then')
        ) as gate (gate, shut, opens, detail)
        where gate.shut and d.status in ('queued', 'claimed', 'sending', 'retry')
    ), last as (
        select * from found f order by f.opens desc limit 1
    )
    select d.status, coalesce(last.gate, case when d.status in ('queued', 'claimed', 'retry') then 'none' else d.status end),
           case when d.status in ('queued', 'claimed', 'sending', 'retry') then nullif(coalesce(last.opens, p_now), 'infinity') end,
           coalesce(last.detail, case d.status
               when 'sent' then format('sent at %s', d.sent_at)
               when 'deduped' then 'the same content went into this channel before'
               when 'failed_permanent' then d.last_error ->> 'message'
               when 'dead' then format('given up after %s attempts: %s', d.attempt, d.last_error ->> 'message')
               else 'nothing is in its way: it goes with the next round of the dispatcher' end),
           (select coalesce(jsonb_agg(jsonb_build_object('gate', f.gate, 'opens', nullif(f.opens, 'infinity'), 'detail', f.detail)
                                      order by f.opens desc), '[]') from found f)
    from d left join last on true
$$;

CREATE FUNCTION autopost.with_rounds(p_posts autopost.incoming[]) RETURNS autopost.incoming[]
    LANGUAGE sql IMMUTABLE
    AS $$
    select coalesce(array_agg((p.item, p.raw, p.payload, p.content_hash, p.tags, p.trace_id, p.created_at, p.nth)::autopost.incoming
                              order by p.item), '{}')
    from (select *, row_number() over (partition by content_hash order by item)::integer as nth from unnest(p_posts)) p
$$;

CREATE FUNCTION autopost.workspace_place() RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select coalesce((select s.workspace_id_last from autopost.dispatcher_state s where s.workspace_id = '*'), '')
$$;

CREATE FUNCTION autopost.workspaces_with_work(p_after text, p_limit integer DEFAULT 1000) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    select w.workspace_id from core.workspaces w
    where w.status = 'active'
      and (exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'queued')
        or exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'retry')
        or exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'claimed')
        or exists (select from autopost.deliveries d where d.workspace_id = w.workspace_id and d.status = 'sending'))
    order by w.workspace_id <= p_after, w.workspace_id
    limit p_limit
$$;

CREATE FUNCTION core.nth_uuid(p_base uuid, p_n bigint) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select encode(overlay(uuid_send(p_base) placing int4send(p_n::integer) from 13), 'hex')::uuid
$$;

CREATE FUNCTION core.sha256_hex(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
begin
    -- Not inlined either way (convert_to is only stable), and an expression of plpgsql starts no executor.
    return encode(sha256(convert_to(p_text, 'UTF8')), 'hex');
end $$;

CREATE FUNCTION core.uuid7(p_ts timestamp with time zone) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$ select uuidv7(p_ts - clock_timestamp()) $$;

CREATE TABLE autopost.channel_auth (
    workspace_id text NOT NULL,
    channel_id text NOT NULL,
    auth_ref text NOT NULL,
    rotated_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.dispatcher_state (
    workspace_id text NOT NULL,
    channel_id_last text DEFAULT ''::text NOT NULL,
    workspace_id_last text DEFAULT ''::text NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.events (
    workspace_id text NOT NULL,
    id uuid NOT NULL,
    delivery_id uuid,
    message_id uuid,
    channel_id text,
    ts timestamp with time zone DEFAULT now() NOT NULL,
    action text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    result text DEFAULT 'ok'::text NOT NULL,
    error jsonb,
    payload_ref text,
    meta jsonb,
    CONSTRAINT events_action_check CHECK ((action = ANY (ARRAY['enqueue'::text, 'validation_failed'::text, 'send_attempt'::text, 'sent'::text, 'retry_scheduled'::text, 'dedup_suppressed'::text, 'failed_permanent'::text, 'dead_letter'::text, 'channel_paused'::text, 'channel_disabled'::text, 'channel_enabled'::text, 'message_tag_mismatch'::text, 'sending_lease_expired'::text, 'claimed_lease_expired'::text, 'manual_requeue'::text, 'auth_rotated'::text, 'ingress_rate_limited'::text, 'ingress_payload_rejected'::text, 'ingress_dedup_dropped'::text, 'claim_released'::text, 'late_result'::text, 'held'::text, 'confirmed'::text, 'cancelled'::text]))),
    CONSTRAINT events_result_check CHECK ((result = ANY (ARRAY['ok'::text, 'error'::text])))
)
PARTITION BY RANGE (ts);

CREATE TABLE autopost.events_default (
    workspace_id text CONSTRAINT events_workspace_id_not_null NOT NULL,
    id uuid CONSTRAINT events_id_not_null NOT NULL,
    delivery_id uuid,
    message_id uuid,
    channel_id text,
    ts timestamp with time zone DEFAULT now() CONSTRAINT events_ts_not_null NOT NULL,
    action text CONSTRAINT events_action_not_null NOT NULL,
    attempt integer DEFAULT 0 CONSTRAINT events_attempt_not_null NOT NULL,
    result text DEFAULT 'ok'::text CONSTRAINT events_result_not_null NOT NULL,
    error jsonb,
    payload_ref text,
    meta jsonb,
    CONSTRAINT events_action_check CHECK ((action = ANY (ARRAY['enqueue'::text, 'validation_failed'::text, 'send_attempt'::text, 'sent'::text, 'retry_scheduled'::text, 'dedup_suppressed'::text, 'failed_permanent'::text, 'dead_letter'::text, 'channel_paused'::text, 'channel_disabled'::text, 'channel_enabled'::text, 'message_tag_mismatch'::text, 'sending_lease_expired'::text, 'claimed_lease_expired'::text, 'manual_requeue'::text, 'auth_rotated'::text, 'ingress_rate_limited'::text, 'ingress_payload_rejected'::text, 'ingress_dedup_dropped'::text, 'claim_released'::text, 'late_result'::text, 'held'::text, 'confirmed'::text, 'cancelled'::text]))),
    CONSTRAINT events_result_check CHECK ((result = ANY (ARRAY['ok'::text, 'error'::text])))
);

CREATE TABLE autopost.ingest_runs (
    workspace_id text NOT NULL,
    run_id uuid NOT NULL,
    kind text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    stats_json jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ingest_runs_kind_check CHECK ((kind = ANY (ARRAY['push'::text, 'pull'::text])))
);

CREATE TABLE autopost.ingress_gates (
    workspace_id text NOT NULL,
    endpoint_id text NOT NULL,
    full_until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE autopost.ingress_receipts (
    workspace_id text NOT NULL,
    endpoint_id text NOT NULL,
    endpoint_kind text NOT NULL,
    source_ref text,
    payload_hash text NOT NULL,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    receipt_id uuid NOT NULL,
    CONSTRAINT ingress_receipts_endpoint_kind_check CHECK ((endpoint_kind = ANY (ARRAY['webhook_push'::text, 'bot_webhook'::text])))
);

CREATE TABLE autopost.media_blobs (
    workspace_id text NOT NULL,
    blob_ref text NOT NULL,
    provider text NOT NULL,
    auth_ref text DEFAULT ''::text NOT NULL,
    file_id text,
    url text,
    expires_at timestamp with time zone,
    meta jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.media_origin (
    workspace_id text NOT NULL,
    blob_ref text NOT NULL,
    origin_url text NOT NULL,
    sha256 text,
    content_type text,
    size_bytes bigint,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    ref_count bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.messages (
    workspace_id text NOT NULL,
    message_id uuid NOT NULL,
    hash_version integer DEFAULT 1 NOT NULL,
    content_hash text NOT NULL,
    normalization_version integer DEFAULT 1 NOT NULL,
    payload jsonb NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    source jsonb,
    source_ref text,
    first_seen_trace_id uuid NOT NULL,
    first_ingest_run_id uuid NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    last_ingest_run_id uuid NOT NULL,
    seen_count bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='85');

CREATE TABLE autopost.pull_cursors (
    workspace_id text NOT NULL,
    source_id text NOT NULL,
    cursor_json jsonb DEFAULT '{}'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.pull_sources (
    workspace_id text NOT NULL,
    source_id text NOT NULL,
    kind text NOT NULL,
    config_json jsonb DEFAULT '{}'::jsonb NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.templates (
    workspace_id text NOT NULL,
    template_id text NOT NULL,
    version integer NOT NULL,
    body text NOT NULL,
    defaults jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.workspace_endpoints (
    workspace_id text NOT NULL,
    endpoint_id text NOT NULL,
    kind text NOT NULL,
    secret_hash text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    ingress_rps double precision DEFAULT 5 NOT NULL,
    max_payload_bytes integer DEFAULT 262144 NOT NULL,
    hash_drop_window_sec integer DEFAULT 10 NOT NULL,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT workspace_endpoints_hash_drop_window_sec_check CHECK ((hash_drop_window_sec >= 0)),
    CONSTRAINT workspace_endpoints_ingress_rps_check CHECK ((ingress_rps > (0)::double precision)),
    CONSTRAINT workspace_endpoints_kind_check CHECK ((kind = ANY (ARRAY['webhook_push'::text, 'bot_webhook'::text]))),
    CONSTRAINT workspace_endpoints_max_payload_bytes_check CHECK ((max_payload_bytes > 0))
);

CREATE TABLE core.api_keys (
    key_id uuid NOT NULL,
    workspace_id text NOT NULL,
    name text NOT NULL,
    key_hash text NOT NULL,
    access text DEFAULT 'read'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_keys_access_check CHECK ((access = ANY (ARRAY['read'::text, 'full'::text])))
);

CREATE TABLE core.credential_bindings (
    workspace_id text NOT NULL,
    platform text NOT NULL,
    auth_ref text NOT NULL,
    secret_ref text DEFAULT 'stored'::text NOT NULL,
    secret bytea,
    rotated_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT credential_bindings_auth_ref_check CHECK ((auth_ref <> ''::text)),
    CONSTRAINT credential_bindings_check CHECK (((secret_ref <> 'stored'::text) OR (secret IS NOT NULL)))
);

CREATE TABLE core.schema_functions (
    path text NOT NULL,
    sha256 text NOT NULL
);

CREATE TABLE core.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE core.workspaces (
    workspace_id text NOT NULL,
    name text NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT workspaces_status_check CHECK ((status = ANY (ARRAY['active'::text, 'paused'::text, 'disabled'::text]))),
    CONSTRAINT workspaces_workspace_id_check CHECK ((workspace_id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text))
);

ALTER TABLE ONLY autopost.events ATTACH PARTITION autopost.events_default DEFAULT;

ALTER TABLE ONLY autopost.channel_auth
    ADD CONSTRAINT channel_auth_pkey PRIMARY KEY (workspace_id, channel_id);

ALTER TABLE ONLY autopost.channels
    ADD CONSTRAINT channels_pkey PRIMARY KEY (workspace_id, channel_id);

ALTER TABLE ONLY autopost.channels
    ADD CONSTRAINT channels_workspace_id_platform_target_id_key UNIQUE (workspace_id, platform, target_id);

ALTER TABLE ONLY autopost.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (workspace_id, delivery_id);

ALTER TABLE ONLY autopost.dispatcher_state
    ADD CONSTRAINT dispatcher_state_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY autopost.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (workspace_id, ts, id);

ALTER TABLE ONLY autopost.events_default
    ADD CONSTRAINT events_default_pkey PRIMARY KEY (workspace_id, ts, id);

ALTER TABLE ONLY autopost.ingest_runs
    ADD CONSTRAINT ingest_runs_pkey PRIMARY KEY (workspace_id, run_id);

ALTER TABLE ONLY autopost.ingress_gates
    ADD CONSTRAINT ingress_gates_pkey PRIMARY KEY (workspace_id, endpoint_id);

ALTER TABLE ONLY autopost.ingress_receipts
    ADD CONSTRAINT ingress_receipts_pkey PRIMARY KEY (workspace_id, endpoint_id, payload_hash, received_at, receipt_id);

ALTER TABLE ONLY autopost.media_blobs
    ADD CONSTRAINT media_blobs_pkey PRIMARY KEY (workspace_id, blob_ref, provider, auth_ref);

ALTER TABLE ONLY autopost.media_origin
    ADD CONSTRAINT media_origin_pkey PRIMARY KEY (workspace_id, blob_ref);

ALTER TABLE ONLY autopost.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (workspace_id, message_id);

ALTER TABLE ONLY autopost.messages
    ADD CONSTRAINT messages_workspace_id_hash_version_content_hash_key UNIQUE (workspace_id, hash_version, content_hash);

ALTER TABLE ONLY autopost.platform_limits
    ADD CONSTRAINT platform_limits_pkey PRIMARY KEY (workspace_id, platform, rate_group);

ALTER TABLE ONLY autopost.policies
    ADD CONSTRAINT policies_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY autopost.pull_cursors
    ADD CONSTRAINT pull_cursors_pkey PRIMARY KEY (workspace_id, source_id);

ALTER TABLE ONLY autopost.pull_sources
    ADD CONSTRAINT pull_sources_pkey PRIMARY KEY (workspace_id, source_id);

ALTER TABLE ONLY autopost.templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (workspace_id, template_id, version);

ALTER TABLE ONLY autopost.workspace_endpoints
    ADD CONSTRAINT workspace_endpoints_pkey PRIMARY KEY (workspace_id, endpoint_id);

ALTER TABLE ONLY core.api_keys
    ADD CONSTRAINT api_keys_key_hash_key UNIQUE (key_hash);

ALTER TABLE ONLY core.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);

ALTER TABLE ONLY core.credential_bindings
    ADD CONSTRAINT credential_bindings_pkey PRIMARY KEY (workspace_id, platform, auth_ref);

ALTER TABLE ONLY core.schema_functions
    ADD CONSTRAINT schema_functions_pkey PRIMARY KEY (path);

ALTER TABLE ONLY core.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY core.workspaces
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY (workspace_id);

CREATE INDEX channels_by_group ON autopost.channels USING btree (workspace_id, platform, rate_group);

CREATE INDEX channels_by_tags ON autopost.channels USING gin (tags);

CREATE INDEX deliveries_claimed ON autopost.deliveries USING btree (workspace_id, channel_id, not_before, created_at) WHERE (status = 'claimed'::text);

CREATE INDEX deliveries_failed ON autopost.deliveries USING btree (workspace_id, status, updated_at) WHERE (status = ANY (ARRAY['failed_permanent'::text, 'dead'::text]));

CREATE INDEX deliveries_in_flight ON autopost.deliveries USING btree (workspace_id, channel_id, content_hash) WHERE (status = ANY (ARRAY['queued'::text, 'claimed'::text, 'sending'::text, 'retry'::text]));

CREATE INDEX deliveries_queued ON autopost.deliveries USING btree (workspace_id, channel_id, not_before, created_at) WHERE (status = 'queued'::text);

CREATE INDEX deliveries_retry ON autopost.deliveries USING btree (workspace_id, channel_id, next_retry_at) WHERE (status = 'retry'::text);

CREATE INDEX deliveries_sending ON autopost.deliveries USING btree (workspace_id, channel_id, sending_started_at) WHERE (status = 'sending'::text);

CREATE INDEX deliveries_went ON autopost.deliveries USING btree (workspace_id, channel_id, content_hash) WHERE (status = ANY (ARRAY['sent'::text, 'deduped'::text]));

CREATE INDEX events_by_channel ON ONLY autopost.events USING btree (workspace_id, channel_id, ts) WHERE (channel_id IS NOT NULL);

CREATE INDEX events_by_delivery ON ONLY autopost.events USING btree (delivery_id) WHERE (delivery_id IS NOT NULL);

CREATE INDEX events_by_message ON ONLY autopost.events USING brin (message_id uuid_minmax_multi_ops) WITH (pages_per_range='16', autosummarize='on');

CREATE INDEX events_default_delivery_id_idx ON autopost.events_default USING btree (delivery_id) WHERE (delivery_id IS NOT NULL);

CREATE INDEX events_default_message_id_idx ON autopost.events_default USING brin (message_id uuid_minmax_multi_ops) WITH (pages_per_range='16', autosummarize='on');

CREATE INDEX events_rare ON ONLY autopost.events USING btree (workspace_id, action, ts) WHERE (action <> ALL (ARRAY['enqueue'::text, 'send_attempt'::text, 'sent'::text]));

CREATE INDEX events_default_workspace_id_action_ts_idx ON autopost.events_default USING btree (workspace_id, action, ts) WHERE (action <> ALL (ARRAY['enqueue'::text, 'send_attempt'::text, 'sent'::text]));

CREATE INDEX events_default_workspace_id_channel_id_ts_idx ON autopost.events_default USING btree (workspace_id, channel_id, ts) WHERE (channel_id IS NOT NULL);

CREATE INDEX events_errors ON ONLY autopost.events USING btree (workspace_id, ts) WHERE (result = 'error'::text);

CREATE INDEX events_default_workspace_id_ts_idx ON autopost.events_default USING btree (workspace_id, ts) WHERE (result = 'error'::text);

CREATE INDEX ingest_runs_by_time ON autopost.ingest_runs USING btree (workspace_id, started_at);

CREATE UNIQUE INDEX ingress_receipts_by_source ON autopost.ingress_receipts USING btree (workspace_id, endpoint_id, source_ref) WHERE (source_ref IS NOT NULL);

CREATE INDEX ingress_receipts_expired ON autopost.ingress_receipts USING btree (expires_at);

CREATE INDEX messages_by_tags ON autopost.messages USING gin (tags);

CREATE INDEX messages_by_time ON autopost.messages USING btree (workspace_id, created_at);

CREATE UNIQUE INDEX workspace_endpoints_active_secret ON autopost.workspace_endpoints USING btree (kind, secret_hash) WHERE enabled;

CREATE INDEX api_keys_by_workspace ON core.api_keys USING btree (workspace_id);

ALTER INDEX autopost.events_by_delivery ATTACH PARTITION autopost.events_default_delivery_id_idx;

ALTER INDEX autopost.events_by_message ATTACH PARTITION autopost.events_default_message_id_idx;

ALTER INDEX autopost.events_pkey ATTACH PARTITION autopost.events_default_pkey;

ALTER INDEX autopost.events_rare ATTACH PARTITION autopost.events_default_workspace_id_action_ts_idx;

ALTER INDEX autopost.events_by_channel ATTACH PARTITION autopost.events_default_workspace_id_channel_id_ts_idx;

ALTER INDEX autopost.events_errors ATTACH PARTITION autopost.events_default_workspace_id_ts_idx;

CREATE TRIGGER deliveries_guard AFTER UPDATE OF status ON autopost.deliveries FOR EACH ROW WHEN (((old.status IS DISTINCT FROM new.status) AND (((old.status || '>'::text) || new.status) <> ALL (ARRAY['queued>claimed'::text, 'retry>claimed'::text, 'claimed>sending'::text, 'sending>sent'::text, 'claimed>queued'::text, 'claimed>retry'::text, 'sending>retry'::text, 'queued>failed_permanent'::text, 'retry>failed_permanent'::text, 'sending>failed_permanent'::text, 'queued>deduped'::text, 'retry>deduped'::text, 'queued>dead'::text, 'claimed>dead'::text, 'sending>dead'::text, 'retry>dead'::text, 'sent>dead'::text, 'deduped>dead'::text, 'failed_permanent>dead'::text, 'dead>retry'::text, 'failed_permanent>retry'::text])) AND (NOT ((new.status = 'sending'::text) AND (old.status = ANY (ARRAY['queued'::text, 'retry'::text])) AND (new.attempt = (old.attempt + 1)) AND (new.lease = (old.lease + 1)) AND COALESCE((new.claimed_at = new.sending_started_at), false) AND (new.claim_token IS NOT NULL))) AND (NOT ((new.status = 'sent'::text) AND (old.status = ANY (ARRAY['retry'::text, 'queued'::text, 'claimed'::text])) AND (old.attempt > 0) AND (new.sent_at IS NOT NULL))))) EXECUTE FUNCTION autopost.forbid_move();

ALTER TABLE ONLY autopost.channel_auth
    ADD CONSTRAINT channel_auth_workspace_id_channel_id_fkey FOREIGN KEY (workspace_id, channel_id) REFERENCES autopost.channels(workspace_id, channel_id) ON DELETE CASCADE;

ALTER TABLE ONLY autopost.channels
    ADD CONSTRAINT channels_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.deliveries
    ADD CONSTRAINT deliveries_workspace_id_channel_id_fkey FOREIGN KEY (workspace_id, channel_id) REFERENCES autopost.channels(workspace_id, channel_id);

ALTER TABLE ONLY autopost.deliveries
    ADD CONSTRAINT deliveries_workspace_id_message_id_fkey FOREIGN KEY (workspace_id, message_id) REFERENCES autopost.messages(workspace_id, message_id);

ALTER TABLE ONLY autopost.media_blobs
    ADD CONSTRAINT media_blobs_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.media_origin
    ADD CONSTRAINT media_origin_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.messages
    ADD CONSTRAINT messages_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.platform_limits
    ADD CONSTRAINT platform_limits_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.policies
    ADD CONSTRAINT policies_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.pull_cursors
    ADD CONSTRAINT pull_cursors_workspace_id_source_id_fkey FOREIGN KEY (workspace_id, source_id) REFERENCES autopost.pull_sources(workspace_id, source_id) ON DELETE CASCADE;

ALTER TABLE ONLY autopost.pull_sources
    ADD CONSTRAINT pull_sources_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.templates
    ADD CONSTRAINT templates_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.workspace_endpoints
    ADD CONSTRAINT workspace_endpoints_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY core.api_keys
    ADD CONSTRAINT api_keys_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY core.credential_bindings
    ADD CONSTRAINT credential_bindings_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);
