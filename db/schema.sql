-- The schema of Vestnik, written by `make db-dump` from the migrations and functions; do not edit.
-- The partitions of autopost.events are made by autopost.ensure_event_partitions().

CREATE SCHEMA autopost;

CREATE SCHEMA core;

CREATE SCHEMA ops;

CREATE TYPE autopost.form AS (
	item integer,
	message_id uuid,
	is_new boolean,
	payload jsonb,
	content_hash text,
	trace_id uuid,
	created_at timestamp with time zone,
	platform text,
	parse_mode text,
	text text,
	template_version text,
	meta jsonb,
	error jsonb,
	media_pending boolean,
	scheduled_for timestamp with time zone,
	not_before timestamp with time zone,
	channels text[],
	ttls integer[]
);

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

CREATE TYPE autopost.pulled AS (
	key text,
	outcome text,
	message_id uuid,
	enqueued integer,
	suppressed integer,
	failed integer,
	media_pending integer,
	problem text
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
	only_channels text[],
	scheduled_for timestamp with time zone,
	source jsonb
);

CREATE FUNCTION autopost.added_up(p_before jsonb, p_more jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    select coalesce(jsonb_object_agg(m.key, coalesce((p_before ->> m.key)::bigint, 0) + m.value::bigint), '{}') from jsonb_each_text(p_more) m
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

CREATE FUNCTION autopost.ahead_of(p_workspace_id text, p_delivery autopost.deliveries, p_now timestamp with time zone) RETURNS TABLE(claims bigint, due bigint, later bigint)
    LANGUAGE sql STABLE
    AS $$
    select case when p_delivery.status in ('queued', 'claimed') then (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'claimed'
                 and (p_delivery.status = 'queued' or o.not_before <= p_now
                      and (o.not_before, o.created_at) < (p_delivery.not_before, p_delivery.created_at))) else 0 end,
           case when p_delivery.status = 'queued' then (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'queued'
                 and o.not_before <= least(p_now, p_delivery.not_before) and o.created_at < p_delivery.created_at) + (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'retry'
                 and o.next_retry_at <= p_now and o.not_before <= p_now and o.created_at < p_delivery.created_at
                 -- Retries come by their moments: one that is younger hides those behind it.
                 and o.next_retry_at < coalesce((
                     select min(y.next_retry_at) from autopost.deliveries y
                     where y.workspace_id = p_workspace_id and y.channel_id = p_delivery.channel_id and y.status = 'retry'
                       and y.created_at >= p_delivery.created_at), 'infinity')) else 0 end,
           case when p_delivery.status = 'queued' and p_delivery.not_before > p_now and p_delivery.not_before < 'infinity' then (
               select count(*) from autopost.deliveries o
               where o.workspace_id = p_workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'queued'
                 and o.not_before > p_now and o.not_before <= p_delivery.not_before and o.created_at < p_delivery.created_at) else 0 end
$$;

CREATE FUNCTION autopost.album_problem(p_platform text, p_kinds text[], p_text text, p_payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case
        when not p_payload ? 'buttons' or coalesce(p_text, '') !~ '^\s*$' then null
        when p_platform = 'telegram' and p_kinds[2] is not null and p_kinds[1] <> 'animation'
             and replace(p_kinds[1], 'video', 'image') = replace(p_kinds[2], 'video', 'image')
            then 'an album has no buttons: they go under the text, and this post has none'
        when p_platform = 'max' and p_kinds[1] in ('audio', 'file')
            then format('MAX puts no buttons under %s: they go under the text, and this post has none',
                        case p_kinds[1] when 'audio' then 'audio' else 'a file' end) end
$_$;

CREATE FUNCTION autopost.alerts_of_monitor() RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
    select '{dead,failed_permanent,paused_channels,channel_disabled,waiting,source,jobs_dead,alert_target,webhook}'::text[]
$$;

CREATE FUNCTION autopost.array_of(p_raw jsonb, p_key text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when jsonb_typeof(p_raw -> p_key) = 'array' then p_raw -> p_key else '[]' end
$$;

CREATE FUNCTION autopost.as_stored(p_workspace_id text, p_raw jsonb, p_now timestamp with time zone) RETURNS autopost.stored
    LANGUAGE sql STABLE
    AS $$
    select (1, coalesce(m.message_id, '00000000-0000-0000-0000-000000000000'), m.message_id is null, coalesce(m.payload, n.payload),
            autopost.content_hash(n.payload),
            coalesce(m.tags, autopost.normalize_tags(autopost.array_of(p_raw, 'tags'), n.payload ->> 'text')),
            '00000000-0000-0000-0000-000000000000', p_now,
            case when jsonb_typeof(p_raw -> 'channels') = 'array' then array(select jsonb_array_elements_text(p_raw -> 'channels')) end,
            (p_raw ->> 'scheduled_for')::timestamptz, coalesce(m.source, p_raw -> 'source'))::autopost.stored
    from (select autopost.normalize_payload(p_raw)) n (payload)
    left join autopost.messages m on m.workspace_id = p_workspace_id and m.hash_version = autopost.hash_version()
        and m.content_hash = autopost.content_hash(n.payload)
$$;

CREATE FUNCTION autopost.ask_for_media(p_workspace_id text, p_message_ids uuid[], p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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
    min_gap interval,
    CONSTRAINT channels_channel_id_check CHECK ((channel_id <> ''::text)),
    CONSTRAINT channels_dedup_ttl_hours_check CHECK ((dedup_ttl_hours >= 0)),
    CONSTRAINT channels_max_parallel_check CHECK ((max_parallel >= 1)),
    CONSTRAINT channels_min_gap_check CHECK (((min_gap > '00:00:00'::interval) AND (min_gap <= '365 days'::interval))),
    CONSTRAINT channels_on_unknown_check CHECK ((on_unknown = ANY (ARRAY['resend'::text, 'hold'::text]))),
    CONSTRAINT channels_rate_rps_check CHECK ((rate_rps >= (0)::double precision)),
    CONSTRAINT channels_route_filter_shape CHECK (((route_filter IS NULL) OR ((jsonb_typeof(route_filter) = 'object'::text) AND ((((route_filter - 'include_any'::text) - 'include_all'::text) - 'exclude'::text) = '{}'::jsonb) AND (NOT jsonb_path_exists(route_filter, 'strict $.*?(@.type() != "array")'::jsonpath)) AND (NOT jsonb_path_exists(route_filter, 'strict $.*[*]?(@.type() != "string")'::jsonpath, silent => true)) AND ((route_filter)::text = lower((route_filter)::text))))),
    CONSTRAINT channels_send_mode_check CHECK ((send_mode = ANY (ARRAY['text'::text, 'media'::text, 'mixed'::text]))),
    CONSTRAINT channels_settings_check CHECK ((jsonb_typeof(settings) = 'object'::text)),
    CONSTRAINT channels_tags_check CHECK (((tags)::text = lower((tags)::text))),
    CONSTRAINT channels_target_id_check CHECK ((target_id <> ''::text)),
    CONSTRAINT channels_window_mode_check CHECK ((window_mode = ANY (ARRAY['immediate'::text, 'windowed'::text])))
);

CREATE FUNCTION autopost.auth_of(p_channel autopost.channels) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select coalesce((select a.auth_ref from autopost.channel_auth a
                     where a.workspace_id = p_channel.workspace_id and a.channel_id = p_channel.channel_id), p_channel.auth_ref)
$$;

CREATE FUNCTION autopost.bare_url(p_url text, p_parameters text[], p_hosts text[], p_amp text, p_marks text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select autopost.tagged_url(left(p_url, size), p_parameters, p_hosts, p_amp) || substr(p_url, size + 1)
    from (select char_length(regexp_replace(p_url, '(?:&#?\w+;|[].,;:!?''…»“”’' || p_marks || '])+$', '')) as size) body
$_$;

CREATE FUNCTION autopost.before_dated_day(p_window jsonb, p_day date) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select coalesce(min(d.day)::date::timestamp at time zone 'UTC' - interval '48 hours', 'infinity')
    from jsonb_object_keys(coalesce(p_window -> 'except', '{}')) d (day)
    where d.day >= to_char(p_day, 'YYYY-MM-DD')
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

CREATE FUNCTION autopost.begin_pull(p_workspace_id text, p_source_id text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(run_id uuid, kind text, config jsonb, backlog integer, cursor jsonb, channels integer)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.broken_deliveries(p_workspace_id text, p_after jsonb, p_limit integer, p_now timestamp with time zone) RETURNS TABLE(seen bigint, troubles jsonb, after jsonb)
    LANGUAGE sql STABLE
    AS $$
    with page as materialized (
        select d.* from autopost.deliveries d
        where d.workspace_id = p_workspace_id
          and d.delivery_id > coalesce((p_after #>> '{}')::uuid, '00000000-0000-0000-0000-000000000000')
        order by d.delivery_id limit p_limit
    ), broken as (
        select p.delivery_id, r.kind, r.says
        from page p
        left join autopost.messages m on m.workspace_id = p_workspace_id and m.message_id = p.message_id
        left join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = p.channel_id,
        lateral (values
            ('delivery_without_message', m.message_id is null, format('its message %s is not there', p.message_id)),
            ('delivery_without_channel', c.channel_id is null, format('its channel %s is not there', p.channel_id)),
            ('wrong_hash', m.content_hash <> p.content_hash, 'its hash is not that of its message'),
            ('unseen_by_sweeps', autopost.hidden_from_sweeps(p, m.payload ? 'media') is not null,
                autopost.hidden_from_sweeps(p, m.payload ? 'media')),
            ('sent_without_time', p.status = 'sent' and p.sent_at is null, 'it is sent, and no moment is kept'),
            ('media_without_origin', p.status in ('queued', 'claimed', 'retry') and p.not_before < 'infinity' and exists (
                    select from jsonb_array_elements(case when jsonb_typeof(m.payload -> 'media') = 'array' then m.payload -> 'media' end) i (item)
                    where i.item ? 'blob_ref' and not exists (
                        select from autopost.media_origin o
                        where o.workspace_id = p_workspace_id and o.blob_ref = i.item ->> 'blob_ref' and o.deleted_at is null)),
                'a file of its post is not there any more')
        ) r (kind, is_broken, says)
        where r.is_broken
        union all
        select x.delivery_id, x.kind, x.says
        from autopost.contradictions(p_workspace_id, array(select p.delivery_id from page p), p_now) x
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', b.kind, 'subject', b.delivery_id, 'says', b.says)
                                      order by b.kind, b.delivery_id), '[]') from broken b),
           (select to_jsonb(p.delivery_id) from page p order by p.delivery_id offset p_limit - 1)
$$;

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

CREATE FUNCTION autopost.buttons_of(p_buttons jsonb, p_style jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_buttons is null or not coalesce(p_style ? 'utm', false) then p_buttons else (
        select jsonb_agg((select jsonb_agg(b || jsonb_build_object('url', autopost.with_utm(
                              b ->> 'url', p_style -> 'utm', autopost.only_hosts(p_style))) order by i)
                          from jsonb_array_elements(line) with ordinality y (b, i)) order by n)
        from jsonb_array_elements(p_buttons) with ordinality x (line, n)) end
$$;

CREATE FUNCTION autopost.buttons_problem(p_platform text, p_buttons jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_platform = 'max' and sum(ceil(jsonb_array_length(line) / 3.0)) > 30
                then 'MAX takes at most 30 rows of 3 link buttons' end
    from jsonb_array_elements(p_buttons) line
$$;

CREATE FUNCTION autopost.calendar_of(p_channel autopost.channels) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_channel.window_mode = 'windowed'
                then jsonb_build_object('window', p_channel.posting_window, 'timezone', p_channel.timezone) end
$$;

CREATE FUNCTION autopost.cancel_deliveries(p_workspace_id text, p_operator text, p_reason text, p_message_id uuid DEFAULT NULL::uuid, p_delivery_ids uuid[] DEFAULT NULL::uuid[], p_channel_ids text[] DEFAULT NULL::text[], p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, channel_id text, outcome text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_unsent(p_workspace_id, p_message_id, p_delivery_ids, p_channel_ids));
begin
    return query
    with unsent as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d
        set status = 'failed_permanent', next_retry_at = null, held_at = null, updated_at = p_now,
            not_before = case when d.not_before = 'infinity' then p_now else d.not_before end,
            last_error = jsonb_build_object('category', 'PERMANENT', 'scope', 'delivery', 'code', 'cancelled', 'message', left(core.redact_text(p_reason), 500))
        from unsent u
        where d.workspace_id = p_workspace_id and d.delivery_id = u.delivery_id and u.status in ('queued', 'retry')
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, u.status as from_status
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'cancelled', m.attempt,
               jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason), 'from_status', m.from_status)
        from moved m
    )
    select u.delivery_id, u.channel_id, case when m.delivery_id is null then 'too_late' else 'cancelled' end
    from unsent u left join moved m on m.delivery_id = u.delivery_id
    order by u.channel_id, u.delivery_id;
end $$;

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

CREATE FUNCTION autopost.captions_problem(p_platform text, p_media jsonb, p_kinds text[], p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select format('the captions from item %s on are too long together: %s of 4000 characters', m.first, m.length)
    from (
        select min(i.n) as first, autopost.text_length('max',
            string_agg(i.item ->> 'caption', case p_parse_mode when 'Markdown' then E'\n\n' else E'\n' end order by i.n), p_parse_mode) as length
        from jsonb_array_elements(p_media) with ordinality i (item, n)
        join autopost.max_messages(p_kinds) g on g.place = i.n
        where p_platform = 'max' and i.item ? 'caption'
        group by g.message
    ) m
    where m.length > 4000 order by m.first limit 1
$$;

CREATE FUNCTION autopost.channel_values(p_channel_id text, p_title text, p_target text, p_settings jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when jsonb_typeof(p_settings -> 'vars') = 'object' then p_settings -> 'vars' else '{}' end
           || jsonb_build_object('id', p_channel_id, 'title', p_title, 'target', p_target)
$$;

CREATE FUNCTION autopost.channels_at_a_glance(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select jsonb_build_object('total', count(*),
        'paused', count(*) filter (where c.enabled and c.paused_until > p_now), 'disabled', count(*) filter (where not c.enabled),
        'paused_first', coalesce((array_agg(c.channel_id order by c.channel_id)
                                  filter (where c.enabled and c.paused_until > p_now))[1:20], '{}'),
        'disabled_first', coalesce((array_agg(c.channel_id order by c.channel_id) filter (where not c.enabled))[1:20], '{}'))
    from autopost.channels c where c.workspace_id = p_workspace_id
$$;

CREATE FUNCTION autopost.channels_with_auth(p_workspace_id text, p_auth_ref text, p_platform text DEFAULT NULL::text) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    select c.channel_id from autopost.channels c
    where c.workspace_id = p_workspace_id and autopost.auth_of(c) = p_auth_ref and (p_platform is null or c.platform = p_platform)
    order by c.channel_id
$$;

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

CREATE TABLE ops.alert_policies (
    workspace_id text NOT NULL,
    failed_permanent_max integer DEFAULT 10 NOT NULL,
    failed_permanent_within interval DEFAULT '00:10:00'::interval NOT NULL,
    paused_channels_max integer DEFAULT 3 NOT NULL,
    waiting_longest interval DEFAULT '00:10:00'::interval NOT NULL,
    missed_intervals integer DEFAULT 3 NOT NULL,
    oldest_xmin interval DEFAULT '01:00:00'::interval NOT NULL,
    disk_free_percent double precision DEFAULT 10 NOT NULL,
    repeat_every interval DEFAULT '04:00:00'::interval NOT NULL,
    clear_after interval DEFAULT '00:05:00'::interval NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT alert_policies_clear_after_check CHECK (((clear_after >= '00:00:00'::interval) AND (clear_after <= '1 day'::interval))),
    CONSTRAINT alert_policies_disk_free_percent_check CHECK (((disk_free_percent >= (0)::double precision) AND (disk_free_percent <= (100)::double precision))),
    CONSTRAINT alert_policies_failed_permanent_max_check CHECK ((failed_permanent_max >= 0)),
    CONSTRAINT alert_policies_failed_permanent_within_check CHECK (((failed_permanent_within >= '00:00:01'::interval) AND (failed_permanent_within <= '30 days'::interval))),
    CONSTRAINT alert_policies_missed_intervals_check CHECK (((missed_intervals >= 1) AND (missed_intervals <= 1000))),
    CONSTRAINT alert_policies_oldest_xmin_check CHECK (((oldest_xmin >= '00:00:01'::interval) AND (oldest_xmin <= '365 days'::interval))),
    CONSTRAINT alert_policies_paused_channels_max_check CHECK ((paused_channels_max >= 0)),
    CONSTRAINT alert_policies_repeat_every_check CHECK (((repeat_every >= '00:01:00'::interval) AND (repeat_every <= '365 days'::interval))),
    CONSTRAINT alert_policies_waiting_longest_check CHECK (((waiting_longest >= '00:00:01'::interval) AND (waiting_longest <= '365 days'::interval)))
);

CREATE FUNCTION autopost.check_channels(p_workspace_id text, p_policy ops.alert_policies, p_now timestamp with time zone) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    with paused as (
        select count(*) as n, (array_agg(c.channel_id order by c.channel_id))[1:10] as channels, max(c.paused_until) as until
        from autopost.channels c where c.workspace_id = p_workspace_id and c.enabled and c.paused_until > p_now
    )
    select 'paused_channels', '', 'warning', format('%s channels are paused', n),
           jsonb_build_object('count', n, 'channels', channels, 'until', until, 'limit', p_policy.paused_channels_max)
    from paused where n > p_policy.paused_channels_max
    union all
    select 'channel_disabled', c.channel_id, 'critical',
           format('channel %s is disabled: refused %s times in a row', c.channel_id, c.error_streak),
           jsonb_build_object('channel_id', c.channel_id, 'platform', c.platform, 'error_streak', c.error_streak)
    from autopost.channels c
    where c.workspace_id = p_workspace_id and not c.enabled
      and c.error_streak >= (select p.disable_after_permanent_streak from autopost.policies p where p.workspace_id = p_workspace_id)
$$;

CREATE FUNCTION autopost.check_failed(p_workspace_id text, p_policy ops.alert_policies, p_now timestamp with time zone) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    with dead as (
        select count(*) as n, min(d.updated_at) as since, mode() within group (order by d.last_error ->> 'code') as code,
               count(distinct d.channel_id) as channels
        from autopost.deliveries d where d.workspace_id = p_workspace_id and d.status = 'dead'
    ), refused as (
        select count(*) as n, mode() within group (order by d.last_error ->> 'code') as code,
               count(distinct d.channel_id) as channels
        from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.status = 'failed_permanent'
          and d.updated_at > p_now - p_policy.failed_permanent_within and d.last_error ->> 'code' is distinct from 'cancelled'
    )
    select 'dead', '', 'critical', format('%s dead, mostly with %s', n, code),
           jsonb_build_object('count', n, 'since', since, 'code', code, 'channels', channels)
    from dead where n > 0
    union all
    select 'failed_permanent', '', 'warning', format('%s refused for good within %s, mostly with %s', n,
               p_policy.failed_permanent_within, code),
           jsonb_build_object('count', n, 'code', code, 'channels', channels, 'limit', p_policy.failed_permanent_max,
                              'within', extract(epoch from p_policy.failed_permanent_within))
    from refused where n > p_policy.failed_permanent_max
$$;

CREATE FUNCTION autopost.check_page(p_workspace_id text, p_limit integer DEFAULT 5000, p_kept interval DEFAULT NULL::interval, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(stage text, rows_seen bigint, troubles jsonb, pass_ended boolean)
    LANGUAGE plpgsql
    AS $$
declare
    stages constant text[] := '{events,deliveries,handles,items}';
    gone_before constant timestamptz := coalesce(p_now - p_kept, greatest(ops.gone_before(p_workspace_id, 'deliveries'),
                                                                          ops.gone_before(p_workspace_id, 'messages')));
    kept jsonb;
    began timestamptz;
    turn integer;
    page record;
begin
    insert into autopost.checks (workspace_id, source) values (p_workspace_id, 'integrity') on conflict do nothing;
    select c.place, c.pass_began_at into kept, began from autopost.checks c
    where c.workspace_id = p_workspace_id and c.source = 'integrity' for no key update;
    turn := coalesce((kept ->> 'stage')::integer, 1);
    if turn = 1 and not kept ? 'after' then
        began := p_now;
    end if;
    stage := stages[turn];
    case stage
        when 'events' then select * into page from autopost.stray_events(p_workspace_id, kept -> 'after', began, p_limit, gone_before);
        when 'deliveries' then select * into page from autopost.broken_deliveries(p_workspace_id, kept -> 'after', p_limit, p_now);
        when 'handles' then select * into page from autopost.stray_handles(p_workspace_id, kept -> 'after', p_limit);
        else select * into page from autopost.stray_items(p_workspace_id, kept -> 'after', p_limit, gone_before);
    end case;
    perform autopost.note_findings(p_workspace_id, 'integrity', page.troubles, p_now);

    pass_ended := page.after is null and turn = cardinality(stages);
    update autopost.checks c
    set place = case when page.after is not null then jsonb_build_object('stage', turn, 'after', page.after)
                     when pass_ended then '{}' else jsonb_build_object('stage', turn + 1) end,
        pass_began_at = began, pass_ended_at = case when pass_ended then p_now else c.pass_ended_at end, updated_at = p_now
    where c.workspace_id = p_workspace_id and c.source = 'integrity';
    if pass_ended then
        delete from autopost.findings f where f.workspace_id = p_workspace_id and f.source = 'integrity' and f.last_seen_at < began;
    end if;
    rows_seen := page.seen;
    troubles := page.troubles;
    return next;
end $$;

CREATE FUNCTION autopost.check_partitions() RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    select 'default_partition', '', 'warning', 'events lie in the default partition', '{}'::jsonb
    where exists (select from autopost.events_default)
$$;

CREATE FUNCTION autopost.check_sources(p_workspace_id text, p_policy ops.alert_policies, p_now timestamp with time zone) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    select 'source', s.source_id, 'warning',
           case when s.failures >= p_policy.missed_intervals then format('source %s failed %s times in a row', s.source_id, s.failures)
                else format('source %s was not read since %s', s.source_id, coalesce(s.last_run_at, s.created_at)) end,
           jsonb_strip_nulls(jsonb_build_object('source_id', s.source_id, 'failures', s.failures, 'last_run_at', s.last_run_at,
               'code', coalesce(s.last_error ->> 'code', s.last_error ->> 'type')))
    from autopost.pull_sources s
    left join ops.schedules x on x.workspace_id = s.workspace_id and x.schedule_id = 'source:' || s.source_id
    where s.workspace_id = p_workspace_id and s.enabled and autopost.is_active(p_workspace_id)
      and (s.failures >= p_policy.missed_intervals
           or greatest(s.last_run_at, s.created_at, s.updated_at)
              < p_now - s.every * p_policy.missed_intervals - interval '1 minute'
           or s.cron is not null and x.next_at < p_now - p_policy.waiting_longest)
$$;

CREATE FUNCTION autopost.check_waiting(p_workspace_id text, p_policy ops.alert_policies, p_now timestamp with time zone) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    with stuck as (
        select s.channel_id, s.since from autopost.stuck_channels(p_workspace_id, p_now - p_policy.waiting_longest, p_now) s
    )
    select 'waiting', '', 'critical', format('%s channels do not move', count(*)),
           jsonb_build_object('count', count(*), 'since', min(s.since),
                              'channels', (array_agg(s.channel_id order by s.since, s.channel_id))[1:10])
    from stuck s having count(*) > 0
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

CREATE FUNCTION autopost.clock_steady_until(p_zone text, p_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
declare
    shift constant interval := (p_at at time zone p_zone) - (p_at at time zone 'UTC');
    early timestamptz := p_at;
    late timestamptz := p_at + interval '24 hours';
    middle timestamptz;
begin
    if (late at time zone p_zone) - (late at time zone 'UTC') = shift then
        return late;
    end if;
    while late - early > interval '1 microsecond' loop
        middle := early + (late - early) / 2;
        if (middle at time zone p_zone) - (middle at time zone 'UTC') = shift then
            early := middle;
        else
            late := middle;
        end if;
    end loop;
    return late;
end $$;

CREATE FUNCTION autopost.commit_pull(p_workspace_id text, p_source_id text, p_run_id uuid, p_items jsonb, p_cursor jsonb, p_notes jsonb DEFAULT '[]'::jsonb, p_now timestamp with time zone DEFAULT now(), p_first boolean DEFAULT false) RETURNS TABLE(key text, outcome text, message_id uuid, enqueued integer, suppressed integer, failed integer, media_pending integer, problem text)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.confirm_deliveries(p_workspace_id text, p_operator text, p_reason text, p_delivery_ids uuid[] DEFAULT NULL::uuid[], p_channel_id text DEFAULT NULL::text, p_until timestamp with time zone DEFAULT NULL::timestamp with time zone, p_limit integer DEFAULT 500, p_provider_message_id text DEFAULT NULL::text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, channel_id text, outcome text, status text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_held(p_workspace_id, p_delivery_ids, p_channel_id, coalesce(p_until, p_now), p_limit));
begin
    return query
    with held as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d
        set status = 'sent', sent_at = least(h.held_at, p_now), settled_lease = d.lease, last_error = null, next_retry_at = null,
            held_at = null, updated_at = p_now,
            provider_message_id = coalesce(p_provider_message_id, h.render_meta #>> '{series_progress,provider_message_ids,0}')
        from held h
        where d.workspace_id = p_workspace_id and d.delivery_id = h.delivery_id and h.status || '' = 'retry' and h.held_at is not null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, d.lease, d.provider_message_id, h.held_at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, a.action, m.attempt,
               jsonb_strip_nulls(jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason),
                   'provider_message_id', m.provider_message_id, 'lease', m.lease, 'held_at', m.held_at, 'from_status', 'retry'))
        from moved m, unnest('{confirmed,sent}'::text[]) a (action)
    )
    select h.delivery_id, h.channel_id, case when m.delivery_id is null then 'not_held' else 'confirmed' end,
           case when m.delivery_id is null then h.status else 'sent' end
    from held h left join moved m on m.delivery_id = h.delivery_id
    order by h.channel_id, h.delivery_id;
end $$;

CREATE FUNCTION autopost.confirm_delivery(p_workspace_id text, p_operator text, p_reason text, p_delivery_id uuid, p_provider_message_id text DEFAULT NULL::text, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_held(p_workspace_id, p_delivery_id, max(x.outcome), max(x.status))
    from autopost.confirm_deliveries(p_workspace_id, p_operator, p_reason, array[p_delivery_id],
                                     p_provider_message_id => p_provider_message_id, p_now => p_now) x
$$;

CREATE FUNCTION autopost.content_hash(p_payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select left(core.sha256_hex((p_payload - 'type')::text), 32)
$$;

CREATE FUNCTION autopost.contradictions(p_workspace_id text, p_delivery_ids uuid[], p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, kind text, says text, first_event uuid, second_event uuid)
    LANGUAGE sql STABLE
    AS $$
    with edge as materialized (
        -- What is older went with its partition.
        select min(e.ts) as at from autopost.events e where e.workspace_id = p_workspace_id
    ), subject as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
    ), told as materialized (
        select e.delivery_id, e.id, e.ts, e.action, e.attempt, t.from_statuses, t.to_status, t.place, min(e.ts) over one as first_ts,
               e.attempt = 0 and (e.action = 'enqueue' or e.action in ('validation_failed', 'dedup_suppressed') and e.ts = min(e.ts) over one
                                  and not bool_or(e.action = 'enqueue') over one) as is_birth
        from autopost.events e join autopost.told_moves() t on t.action = e.action
        where e.delivery_id = any (p_delivery_ids) and e.workspace_id = p_workspace_id
        window one as (partition by e.delivery_id)
    ), step as materialized (
        select t.*, lag(t.to_status) over w as before, lag(t.id) over w as before_id, lag(t.action) over w as before_action,
               row_number() over w as n, lead(t.id) over w is null as is_last,
               -- Where another order of what is close in time may mend it: before a begin, that of the attempt before.
               case t.action when 'send_attempt' then lag(t.attempt) over w else t.attempt end as suspect_attempt
        from told t
        window w as (partition by t.delivery_id order by t.attempt, not t.is_birth and t.place > 1, t.ts, t.place, t.id)
    ), history as materialized (
        select s.delivery_id, count(s.id) filter (where s.action = 'send_attempt') as begins,
               count(distinct s.attempt) filter (where s.action = 'send_attempt') as numbered,
               max(s.attempt) as newest, count(*) filter (where s.action = 'sent') as sents,
               min(s.id::text) filter (where s.action = 'sent') as a_sent, max(s.id::text) filter (where s.action = 'sent') as another_sent,
               bool_or(s.is_birth or s.attempt = 0 and s.action in ('validation_failed', 'dedup_suppressed')
                                     and s.ts - s.first_ts <= autopost.side_by_side()) as is_born
        from step s group by s.delivery_id
    ), said as (
        select s.delivery_id, 'impossible_move' as kind,
               format('%s cannot follow %s', s.action, s.before_action) as says, s.before_id as first_event, s.id as second_event
        from step s
        join subject d on d.delivery_id = s.delivery_id
        where s.n > 1 and s.before <> all (s.from_statuses)
          and not autopost.has_another_way(array(
              select row_to_json(o)::jsonb from (select x.action, x.attempt, x.ts, x.before, x.n from step x
              where x.delivery_id = s.delivery_id and x.attempt = s.suspect_attempt
                order by x.n) o),
              coalesce((select f.from_statuses from step f where f.delivery_id = s.delivery_id and f.n = 1 + (
                  select max(x.n) from step x where x.delivery_id = s.delivery_id and x.attempt = s.suspect_attempt)),
                  autopost.told_as(d.status)))
        union all
        select s.delivery_id, 'status', format('the last event is %s, and it is %s', s.action, d.status), s.id, null
        from step s
        join subject d on d.delivery_id = s.delivery_id
        where s.is_last and s.to_status <> all (autopost.told_as(d.status))
          and not autopost.has_another_way(array(
              select row_to_json(o)::jsonb from (select x.action, x.attempt, x.ts, x.before, x.n from step x
              where x.delivery_id = s.delivery_id and x.attempt = s.attempt
                order by x.n) o),
              autopost.told_as(d.status))
        union all
        select d.delivery_id, 'begins', format('attempt %s, lease %s, settled %s, and %s events of a begin%s', d.attempt, d.lease,
                   d.settled_lease, coalesce(h.begins, 0), case when h.numbered < h.begins then ', two of one attempt' else '' end), null, null
        from subject d left join history h on h.delivery_id = d.delivery_id
        where d.lease <> d.attempt or d.settled_lease > d.lease or h.newest > d.attempt or h.numbered < h.begins
           or h.is_born and h.begins <> d.attempt
        union all
        select d.delivery_id, 'sent_events', format('it is %s, and %s events say that it was sent', d.status, coalesce(h.sents, 0)),
               h.a_sent::uuid, nullif(h.another_sent, h.a_sent)::uuid
        from subject d cross join edge
        left join history h on h.delivery_id = d.delivery_id
        where h.sents > 1 or d.status = 'sent' and coalesce(h.sents, 0) = 0 and d.sent_at > edge.at and d.updated_at > edge.at
        union all
        select d.delivery_id, 'no_beginning', 'no event tells how it came into being', null, null
        from subject d cross join edge
        left join history h on h.delivery_id = d.delivery_id
        where not coalesce(h.is_born, false) and d.created_at > edge.at
    )
    select s.* from said s order by s.delivery_id, s.kind
$$;

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

CREATE FUNCTION autopost.count_call(p_workspace_id text, p_delivery_id uuid, p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    update autopost.platform_limits g set last_begin_at = greatest(g.last_begin_at, p_now)
    from autopost.deliveries d
    join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
      and g.workspace_id = d.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group and g.rate_rps > 0;
    update autopost.channels c set last_begin_at = greatest(c.last_begin_at, p_now)
    from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
      and c.workspace_id = d.workspace_id and c.channel_id = d.channel_id and c.rate_rps > 0
$$;

CREATE FUNCTION autopost.crowded_begins(p_workspace_id text, p_after timestamp with time zone, p_until timestamp with time zone) RETURNS TABLE(delivery_id uuid, channel_id text, kind text, says text, first_event uuid, second_event uuid)
    LANGUAGE sql STABLE
    AS $$
    with seen as materialized (
        select distinct e.delivery_id from autopost.events e
        where e.workspace_id = p_workspace_id and e.ts > p_after and e.ts <= p_until and e.delivery_id is not null and e.action <> 'enqueue'
        union
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.status = 'sending' and d.claimed_at <= p_after
    ), begun as materialized (
        select e.id, e.delivery_id, e.channel_id, e.ts, (
                   select min(x.ts) from autopost.events x
                   where x.delivery_id = e.delivery_id and x.workspace_id = p_workspace_id and x.attempt = e.attempt and x.action in (
                       'sent', 'retry_scheduled', 'failed_permanent', 'dead_letter', 'sending_lease_expired', 'held', 'manual_requeue')) as ended
        from autopost.events e
        where e.workspace_id = p_workspace_id and e.delivery_id in (select s.delivery_id from seen s) and e.action = 'send_attempt'
          and e.ts <= p_until
    ), change as (
        -- What ended within a second takes no place of another one, but its own.
        select b.id, b.delivery_id, b.channel_id, b.ts, 1 as n, coalesce(b.ended - interval '1 second' <= b.ts, false)::integer as own from begun b
        union all
        select b.id, b.delivery_id, b.channel_id, greatest(b.ended - interval '1 second', b.ts), -1, 0 from begun b where b.ended is not null
    ), counted as (
        select c.*, c.own + sum(c.n) over w as under_way, lag(c.id) over w as before_id
        from change c window w as (partition by c.channel_id order by c.ts, c.n, c.id rows unbounded preceding)
    )
    select c.delivery_id, c.channel_id, 'too_many', format('%s sends of channel %s were under way, it may have %s', c.under_way, c.channel_id, l.max_parallel),
           c.before_id, c.id
    from counted c
    join autopost.channels l on l.workspace_id = p_workspace_id and l.channel_id = c.channel_id
    join autopost.steady_channels(p_workspace_id, p_after) x on x.channel_id = c.channel_id
    where c.n = 1 and c.ts > p_after and c.ts >= x.since and c.under_way > l.max_parallel
$$;

CREATE FUNCTION autopost.current_paces(p_workspace_id text) RETURNS TABLE(channel_id text, pace text)
    LANGUAGE sql STABLE
    AS $$
    select c.channel_id, concat_ws('/', c.platform, c.rate_group, coalesce(c.rate_rps, 0), coalesce(g.rate_rps, 0), c.max_parallel,
                                   coalesce(c.dedup_ttl_hours, p.dedup_ttl_hours))
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    left join autopost.policies p on p.workspace_id = c.workspace_id
    where c.workspace_id = p_workspace_id
$$;

CREATE FUNCTION autopost.day_problem(p_windows jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when jsonb_typeof(p_windows) <> 'array' then 'must be a list of windows, as [["09:00", "18:00"]]'
        when jsonb_array_length(p_windows) > 48 then 'at most 48 windows a day'
        else (select autopost.one_window_problem(w) from jsonb_array_elements(p_windows) with ordinality x (w, n)
              where autopost.one_window_problem(w) is not null order by n limit 1) end
$$;

CREATE FUNCTION autopost.days_to_archive(p_day date) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    select w.workspace_id from core.workspaces w
    where ops.retention_options(w.workspace_id, 'events') -> 'archive' = 'true'
      and not exists (select from autopost.event_archives a where a.workspace_id = w.workspace_id and a.day = p_day)
      and exists (select from autopost.events e where e.workspace_id = w.workspace_id
                  and e.ts >= p_day::timestamp at time zone 'UTC' and e.ts < (p_day + 1)::timestamp at time zone 'UTC')
    order by 1
$$;

CREATE FUNCTION autopost.dedup_window(p_hours integer) RETURNS interval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select make_interval(hours => least(p_hours, 876600))
$$;

CREATE FUNCTION autopost.defaults_problem(p_defaults jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    select case when jsonb_typeof(p_defaults) <> 'object' then 'defaults: must name values' else (
        select format('defaults.%s: %s', left(key, 64), case when jsonb_typeof(value) <> 'string' then 'must be a string'
                          else 'no such name; a name of your own has letters, digits, "_" and "-"' end)
        from jsonb_each(p_defaults)
        where jsonb_typeof(value) <> 'string' or key !~ '^((source|channel)\.[\w-]+|[\w-]+)$' order by key limit 1) end
$_$;

CREATE FUNCTION autopost.delivery_is_over(p_delivery autopost.deliveries, p_ttl_hours integer, p_keep interval, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    select p_delivery.status || '' in ('sent', 'deduped', 'failed_permanent', 'dead') and p_delivery.updated_at < p_now - p_keep
       and not coalesce(p_delivery.status || '' = 'sent'
                        and p_delivery.sent_at >= p_now - interval '1 day' - autopost.dedup_window(p_ttl_hours), false)
$$;

CREATE FUNCTION autopost.disable_channel(p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS SETOF text
    LANGUAGE sql
    AS $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, p_channel_id, null, null, false, p_now)
$$;

CREATE FUNCTION autopost.disable_group(p_workspace_id text, p_operator text, p_reason text, p_rate_group text, p_platform text DEFAULT NULL::text, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS SETOF text
    LANGUAGE sql
    AS $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, null, p_rate_group, p_platform, false, p_now)
$$;

CREATE FUNCTION autopost.disabled_with_group(p_channel autopost.channels) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select coalesce((
        select e.meta ->> 'rate_group' = p_channel.rate_group from autopost.events e
        where e.workspace_id = p_channel.workspace_id and e.channel_id = p_channel.channel_id and e.action = 'channel_disabled'
          and e.action not in ('enqueue', 'send_attempt', 'sent')
        order by e.ts desc limit 1), false)
$$;

CREATE FUNCTION autopost.doubled_posts(p_workspace_id text, p_delivery_ids uuid[], p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, kind text, says text, other_id uuid)
    LANGUAGE sql STABLE
    AS $$
    select d.delivery_id, 'sent_twice', format('delivery %s had brought the same into channel %s at %s', o.delivery_id, d.channel_id,
               to_char(o.sent_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC')), o.delivery_id
    from autopost.deliveries d
    join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
    left join autopost.policies p on p.workspace_id = d.workspace_id
    join autopost.steady_channels(p_workspace_id, p_now - interval '1 hour') x on x.channel_id = d.channel_id,
    lateral (select o.* from autopost.deliveries o
             where o.workspace_id = p_workspace_id and o.channel_id = d.channel_id and o.content_hash = d.content_hash
               and o.hash_version = d.hash_version and o.status = 'sent' and o.delivery_id <> d.delivery_id
               and o.created_at <= d.created_at
               and o.sent_at > d.created_at - autopost.dedup_window(coalesce(c.dedup_ttl_hours, p.dedup_ttl_hours, 168)) + autopost.side_by_side()
               -- One that was requeued may go when the other has left the window.
               and greatest(o.sent_at, d.sent_at)
                   < least(o.sent_at, d.sent_at) + autopost.dedup_window(coalesce(c.dedup_ttl_hours, p.dedup_ttl_hours, 168))
               and o.lost_leases = 0 and o.lease = o.settled_lease
             order by o.sent_at desc limit 1) o
    where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids) and d.status || '' = 'sent'
      and d.lost_leases = 0 and d.lease = d.settled_lease and d.created_at >= x.since
      and (o.created_at, o.delivery_id) < (d.created_at, d.delivery_id)
$$;

CREATE FUNCTION autopost.drain_channel(p_workspace_id text, p_operator text, p_channel_id text, p_for interval DEFAULT '00:02:00'::interval, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone, OUT drained_until timestamp with time zone, OUT paused_before timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    moment timestamptz;
begin
    select c.paused_until into paused_before from autopost.channels c
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    perform autopost.require_channels(found, format('no channel %s', p_channel_id), p_workspace_id);
    moment := coalesce(p_now, clock_timestamp());
    if coalesce(paused_before, '-infinity') < moment + p_for then
        drained_until := autopost.pause_channel(p_workspace_id, p_operator, 'its credential is being rotated', p_channel_id, p_for, moment);
    end if;
end $$;

CREATE FUNCTION autopost.drain_classes(p_classes jsonb[], p_group_step double precision, p_now timestamp with time zone) RETURNS TABLE(class integer, first double precision, last double precision)
    LANGUAGE plpgsql STABLE
    AS $$
declare
    total constant integer := cardinality(p_classes);
    never constant float8 := 'infinity';
    a_bit constant float8 := 1e-7;
    ceiling constant float8 := coalesce(1 / nullif(p_group_step, 0), 1e9);
    -- Without any limit all goes at once, nearly.
    cap constant float8[] := array(select coalesce(1 / nullif((c ->> 'step')::float8, 0), 1e9) from unnest(p_classes) with ordinality x (c, n) order by n);
    size constant float8[] := array(select (c ->> 'n')::float8 from unnest(p_classes) with ordinality x (c, n) order by n);
    by_cap constant integer[] := array(select n from unnest(p_classes) with ordinality x (c, n) order by coalesce((c ->> 'step')::float8, 0) desc, n);
    ours constant float8[] := array(select (c ->> 'ours')::float8 from unnest(p_classes) with ordinality x (c, n) order by n);
    waits float8[] := array(select (c ->> 'due')::float8 from unnest(p_classes) with ordinality x (c, n) order by n);
    opens float8[] := array_fill(0::float8, array[total]);
    closes float8[] := array_fill(never, array[total]);
    ahead float8[] := array_fill(null::float8, array[total]);   -- of ours, once its moment has come
    units float8[] := array_fill(null::float8, array[total]);   -- of ours, once they are the next
    began float8[] := array_fill(null::float8, array[total]);
    rate float8[] := array_fill(0::float8, array[total]);
    next_later integer[] := array_fill(0, array[total]);
    left_over integer := (select count(*) from unnest(p_classes) c where c ->> 'ours' is not null);
    hours record;
    coming float8;
    at float8 := 0;
    pause float8;
    room float8;
    busy float8;
    served integer;
    k integer;
begin
    for k in 1 .. total loop
        select * into hours from autopost.hours_from(p_classes[k] -> 'calendar',
            coalesce(autopost.seconds_until((p_classes[k] ->> 'gate')::timestamptz, p_now), 0), p_now);
        opens[k] := hours.opens;
        closes[k] := hours.closes;
    end loop;
    for round in 1 .. 20000 loop
        exit when left_over = 0 or at = never;
        -- What comes now, and who may go.
        busy := 0;
        pause := never;
        for k in 1 .. total loop
            while at >= closes[k] - a_bit loop
                select * into hours from autopost.hours_from(p_classes[k] -> 'calendar', closes[k], p_now);
                opens[k] := hours.opens;
                closes[k] := hours.closes;
            end loop;
            loop
                coming := (p_classes[k] #>> array['later', next_later[k]::text, '0'])::float8;
                exit when coming is null or coming > at + a_bit;
                waits[k] := waits[k] + (p_classes[k] #>> array['later', next_later[k]::text, '1'])::float8;
                next_later[k] := next_later[k] + 1;
            end loop;
            if ahead[k] is null and ours[k] <= at + a_bit then
                ahead[k] := waits[k];
            end if;
            if units[k] is null and ahead[k] <= a_bit then
                units[k] := size[k];
            end if;
            rate[k] := case when waits[k] > a_bit and opens[k] <= at + a_bit then 1 else 0 end;
            busy := busy + rate[k] * size[k];
            pause := least(pause, coming - at, case when ahead[k] is null then ours[k] - at end,
                           case when opens[k] > at + a_bit and (waits[k] > a_bit or units[k] > 0) then opens[k] - at else closes[k] - at end);
        end loop;

        -- What waited before shares the ceiling; those of low rates first, so that the others get what they leave.
        room := ceiling;
        foreach k in array by_cap loop
            if rate[k] > 0 then
                rate[k] := least(cap[k], greatest(room, 0) / busy);
                room := room - rate[k] * size[k];
                busy := busy - size[k];
                pause := least(pause, waits[k] / nullif(rate[k], 0), case when ahead[k] > a_bit then ahead[k] / nullif(rate[k], 0) end);
            end if;
        end loop;

        -- What is left of it is this post's, class by class.
        room := case when room > ceiling * a_bit then room else 0 end;
        served := null;
        for k in 1 .. total loop
            if room > 0 and served is null and units[k] > 0 and opens[k] <= at + a_bit then
                served := k;
                began[k] := coalesce(began[k], at);
                pause := least(pause, units[k] / room);
            end if;
        end loop;
        pause := greatest(pause, 0);
        for k in 1 .. total loop
            if k = served then
                units[k] := greatest(units[k] - room * pause, 0);
                if units[k] <= a_bit * size[k] then
                    class := k;
                    last := at + pause - 1 / room;
                    first := case when size[k] > 1 then began[k] else last end;
                    return next;
                    units[k] := 0;
                    left_over := left_over - 1;
                end if;
            end if;
            if rate[k] > 0 then
                waits[k] := greatest(waits[k] - rate[k] * pause, 0);
                ahead[k] := case when ahead[k] is not null then greatest(ahead[k] - rate[k] * pause, 0) end;
            end if;
        end loop;
        at := at + pause;
    end loop;
end $$;

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

CREATE FUNCTION autopost.drain_group(p_workspace_id text, p_platform text, p_rate_group text, p_goes_at jsonb, p_now timestamp with time zone) RETURNS TABLE(channel_id text, leaves_at timestamp with time zone, ahead bigint)
    LANGUAGE sql STABLE
    AS $$
    with channel as materialized (
        select c.channel_id, autopost.step_of(c.rate_rps) as step, autopost.calendar_of(c) as calendar,
               nullif(greatest(c.paused_until, c.cooldown_until, g.cooldown_until, p_now), p_now) as gate,
               autopost.seconds_until((p_goes_at ->> c.channel_id)::timestamptz, p_now) as ours,
               autopost.step_of(g.rate_rps) as group_step
        from autopost.channels c
        left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        where c.workspace_id = p_workspace_id and c.platform = p_platform and c.rate_group = p_rate_group
          and (p_goes_at ? c.channel_id or c.enabled and g.rate_rps > 0) and coalesce(c.paused_until < 'infinity', true)
    ), waiting as materialized (
        select c.channel_id, w.at, sum(w.n) as n
        from channel c, lateral (
            select case when d.not_before <= p_now then 0 else extract(epoch from date_bin(
                       case when d.not_before < p_now + interval '1 day' then interval '1 second' else '1 minute' end, d.not_before, p_now) - p_now)::float8 end as at,
                   count(*) as n
            from autopost.deliveries d
            where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'queued' and d.not_before < 'infinity'
            group by 1
            union all
            select 0, count(*) from autopost.deliveries d
            where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'claimed' having count(*) > 0
            union all
            select greatest(autopost.seconds_until(greatest(d.next_retry_at, d.not_before), p_now), 0), count(*)
            from autopost.deliveries d
            where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
              and d.next_retry_at < 'infinity' and d.not_before < 'infinity'
            group by 1) w
        group by 1, 2
    ), loaded as materialized (
        select c.*, coalesce(q.n, 0) as due, coalesce(q.later, '[]') as later, coalesce(q.ahead, 0) as ahead
        from channel c left join (
            select w.channel_id, coalesce(sum(w.n) filter (where w.at = 0), 0)::bigint as n, sum(w.n) filter (where w.at <= c.ours)::bigint as ahead,
                   coalesce(jsonb_agg(jsonb_build_array(w.at, w.n) order by w.at) filter (where w.at > 0), '[]') as later
            from waiting w join channel c on c.channel_id = w.channel_id group by 1) q on q.channel_id = c.channel_id
        where c.ours is not null or q.channel_id is not null
    ), spread as (
        select count(distinct (l.step, l.calendar, l.gate, l.ours, l.due, l.later)) > 200 as is_wide from loaded l
    ), classed as materialized (
        -- Numbered in the order of their channels: posts of one moment go in it.
        select x.*, dense_rank() over (order by x.eldest)::integer as class from (
        select l.*, r.due as rounded, min(l.channel_id) over (partition by l.step, l.calendar, l.gate, l.ours, r.due, l.later) as eldest
        from loaded l, spread s, lateral (select case when s.is_wide and l.due > 100
            then ceil(l.due / power(10, floor(log(l.due)) - 1)) * power(10, floor(log(l.due)) - 1) else l.due end::float8 as due) r) x
    ), class as (
        select k.class, jsonb_strip_nulls(jsonb_build_object('n', count(*), 'step', extract(epoch from k.step), 'calendar', k.calendar, 'gate', k.gate,
                   'ours', k.ours, 'due', k.rounded, 'later', k.later)) as one
        from classed k group by k.class, k.step, k.calendar, k.gate, k.ours, k.rounded, k.later
    ), drained as (
        select d.* from autopost.drain_classes(array(select k.one from class k order by k.class),
            (select extract(epoch from max(k.group_step))::float8 from classed k), p_now) d
    ), ranked as (
        select k.channel_id, k.class, k.ahead, row_number() over w - 1 as place, count(*) over (partition by k.class) as n
        from classed k where k.ours is not null window w as (partition by k.class order by k.channel_id)
    )
    select r.channel_id, p_now + make_interval(secs => d.first + greatest(d.last - d.first, 0) * r.place / greatest(r.n - 1, 1)), r.ahead
    from ranked r left join drained d on d.class = r.class
$$;

CREATE FUNCTION autopost.drop_event_day(p_day date, p_now timestamp with time zone DEFAULT now()) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.drop_upload(p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_token uuid, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    update autopost.media_blobs b set taken_by = null, taken_until = null, updated_at = p_now
    where b.workspace_id = p_workspace_id and b.blob_ref = p_blob_ref and b.provider = p_provider and b.auth_ref = p_auth_ref and b.sent_as = p_sent_as
      and b.taken_by = p_token
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

CREATE FUNCTION autopost.due_since(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(channel_id text, since timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    with recursive hop as (
        select '' as channel_id
        union all
        select least(
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'queued' order by d.channel_id limit 1),
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'retry' order by d.channel_id limit 1))
        from hop h where h.channel_id is not null
    ), due as (
        select h.channel_id, least(
            (select d.not_before from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
             and d.status = 'queued' order by d.not_before limit 1),
            (select greatest(d.not_before, d.next_retry_at) from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
               and d.status = 'retry' and d.not_before <= p_now order by d.next_retry_at limit 1)) as since
        from hop h where h.channel_id <> ''
    )
    select due.channel_id, due.since from due where due.since <= p_now
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

CREATE FUNCTION autopost.enable_group(p_workspace_id text, p_operator text, p_reason text, p_rate_group text, p_platform text DEFAULT NULL::text, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS SETOF text
    LANGUAGE sql
    AS $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, null, p_rate_group, p_platform, true, p_now)
$$;

CREATE FUNCTION autopost.end_drain(p_workspace_id text, p_operator text, p_channel_id text, p_drained_until timestamp with time zone, p_paused_before timestamp with time zone DEFAULT NULL::timestamp with time zone, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    moment timestamptz;
begin
    perform from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    moment := coalesce(p_now, clock_timestamp());
    update autopost.channels c
    set paused_until = case when p_paused_before > moment then p_paused_before end, updated_at = moment
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id and c.paused_until = p_drained_until;
    if not found then
        return false;
    end if;
    perform autopost.note_channels(p_workspace_id, array[p_channel_id], 'channel_enabled', jsonb_build_object(
        'operator', p_operator, 'reason', 'its credential is no longer being rotated', 'manual', true), moment);
    return true;
end $$;

CREATE FUNCTION autopost.end_of(p_delivery autopost.deliveries) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_delivery.status = 'failed_permanent' and p_delivery.last_error ->> 'code' = 'cancelled' then 'cancelled'
                else p_delivery.status end
$$;

CREATE FUNCTION autopost.end_pull(p_workspace_id text, p_source_id text, p_run_id uuid, p_outcome text DEFAULT 'ok'::text, p_error jsonb DEFAULT NULL::jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.enqueue_batch(p_workspace_id text, p_endpoint_id text, p_kind text, p_raws jsonb[], p_now timestamp with time zone DEFAULT now(), p_run_id uuid DEFAULT NULL::uuid, p_gated boolean DEFAULT false) RETURNS TABLE(item integer, outcome text, message_id uuid, trace_id uuid, run_id uuid, enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[], problems text[], media_pending integer)
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

CREATE FUNCTION autopost.enqueue_messages_and_deliveries(p_workspace_id text, p_endpoint_id text, p_kind text, p_raw_payload_json jsonb, p_now timestamp with time zone DEFAULT now(), p_run_id uuid DEFAULT NULL::uuid) RETURNS TABLE(outcome text, message_id uuid, trace_id uuid, run_id uuid, enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[], media_pending integer)
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
    select b.outcome, b.message_id, b.trace_id, b.run_id, b.enqueued, b.suppressed, b.failed, b.routed_by_tags, b.warnings,
           b.media_pending
    from autopost.enqueue_batch(p_workspace_id, p_endpoint_id, p_kind, array[p_raw_payload_json], p_now, p_run_id) b;
end $$;

CREATE FUNCTION autopost.enqueue_round(p_workspace_id text, p_posts autopost.incoming[], p_run_id uuid, p_now timestamp with time zone, p_warned boolean DEFAULT true) RETURNS TABLE(item integer, message_id uuid, trace_id uuid, enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[], media_pending integer)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.escape_address(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select replace(replace(replace(replace(replace(replace(regexp_replace(p_text, '\s+', '%20', 'g'),
        '(', '%28'), ')', '%29'), '<', '%3C'), '>', '%3E'), '\', '%5C'), '`', '%60')
$$;

CREATE FUNCTION autopost.escape_html(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select replace(replace(replace(p_text, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')
$$;

CREATE FUNCTION autopost.escape_markdown(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
declare
    t text := p_text;
begin
    if t !~ '[][\\`*<~_&\n]|^[ \t]*[-+=>#\d]|^[ \t]' then
        return t;
    end if;
    t := regexp_replace(t, '([\\`*<~]|\[|\]|(?<!\w)_|_(?!\w))', '\\\1', 'g');
    t := regexp_replace(t, '&(?=#?\w+;)', '&amp;', 'g');
    t := regexp_replace(t, '(^|\n)([ \t]*)([-+=>]|#(?!\w))', '\1\2\\\3', 'g');
    t := regexp_replace(t, '(^|\n)([ \t]*\d{1,9})([.)])', '\1\2\\\3', 'g');
    -- A line that begins with blanks would lose them, or be taken for code.
    t := replace(replace(t, E'\n ', E'\n&#32;'), E'\n\t', E'\n&#9;');
    return regexp_replace(regexp_replace(t, '^ (?=[ \t])', '&#32;'), '^\t', '&#9;');
end $$;

CREATE FUNCTION autopost.escape_value(p_text text, p_mode text, p_inside boolean) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select case p_mode
        when 'HTML' then case when p_inside then replace(replace(autopost.escape_html(p_text), '"', '&quot;'), '''', '&#39;')
                              else autopost.escape_html(p_text) end
        when 'Markdown' then case when p_inside then autopost.escape_address(p_text) else autopost.escape_markdown(p_text) end
        else p_text end
$$;

CREATE FUNCTION autopost.event_horizon(p_now timestamp with time zone DEFAULT now()) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select date_trunc('day', p_now - greatest(ops.keep_of('*', 'events'), max(ops.keep_of(w.workspace_id, 'events'))), 'UTC')
    from core.workspaces w
$$;

CREATE FUNCTION autopost.event_lines(p_workspace_id text, p_day date, p_after text DEFAULT NULL::text, p_limit integer DEFAULT 1000) RETURNS TABLE(line text, place text)
    LANGUAGE sql STABLE
    AS $$
    select to_jsonb(e)::text, e.ts || '|' || e.id
    from autopost.events e
    where e.workspace_id = p_workspace_id and e.ts < (p_day + 1)::timestamp at time zone 'UTC'
      and e.ts >= coalesce(split_part(p_after, '|', 1)::timestamptz, p_day::timestamp at time zone 'UTC')
      and (p_after is null or (e.ts, e.id) > (split_part(p_after, '|', 1)::timestamptz, split_part(p_after, '|', 2)::uuid))
    order by e.ts, e.id limit p_limit
$$;

CREATE FUNCTION autopost.extend_sending(p_workspace_id text, p_delivery_id uuid, p_lease integer, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    update autopost.deliveries d set sending_started_at = p_now, updated_at = p_now
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id and d.status || '' = 'sending' and d.lease = p_lease;
    return found;
end $$;

CREATE FUNCTION autopost.fail_permanent(p_workspace_id text, p_delivery_id uuid, p_error_json jsonb, p_lease integer DEFAULT NULL::integer, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease,
            'error', autopost.error_of(p_error_json, 'PERMANENT'))), p_now) s))
$$;

CREATE FUNCTION autopost.failing_checks(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE plpgsql
    AS $$
declare
    policy constant ops.alert_policies := ops.alert_policy_of(p_workspace_id);
begin
    return query
    select * from autopost.check_failed(p_workspace_id, policy, p_now)
    union all select * from autopost.check_channels(p_workspace_id, policy, p_now)
    union all select * from autopost.check_waiting(p_workspace_id, policy, p_now)
    union all select * from autopost.check_sources(p_workspace_id, policy, p_now)
    union all select * from ops.check_jobs(p_workspace_id, p_now)
    union all select * from ops.check_ways_out(p_workspace_id, p_now);
end $$;

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
    CONSTRAINT events_action_check CHECK ((action = ANY (ARRAY['enqueue'::text, 'validation_failed'::text, 'send_attempt'::text, 'sent'::text, 'retry_scheduled'::text, 'dedup_suppressed'::text, 'failed_permanent'::text, 'dead_letter'::text, 'channel_paused'::text, 'channel_disabled'::text, 'channel_enabled'::text, 'message_tag_mismatch'::text, 'sending_lease_expired'::text, 'claimed_lease_expired'::text, 'manual_requeue'::text, 'auth_rotated'::text, 'ingress_rate_limited'::text, 'ingress_payload_rejected'::text, 'ingress_dedup_dropped'::text, 'claim_released'::text, 'late_result'::text, 'held'::text, 'confirmed'::text, 'cancelled'::text, 'rescheduled'::text]))),
    CONSTRAINT events_result_check CHECK ((result = ANY (ARRAY['ok'::text, 'error'::text])))
)
PARTITION BY RANGE (ts);

CREATE FUNCTION autopost.failure_data(p_event autopost.events) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object(
        'workspace_id', p_event.workspace_id, 'event_id', p_event.id, 'delivery_id', p_event.delivery_id,
        'message_id', p_event.message_id, 'channel_id', p_event.channel_id, 'platform', (
            select c.platform from autopost.channels c
            where c.workspace_id = p_event.workspace_id and c.channel_id = p_event.channel_id),
        'attempt', case when p_event.delivery_id is not null then p_event.attempt end,
        'error', nullif(jsonb_strip_nulls(jsonb_build_object(
            'category', p_event.error -> 'category', 'code', p_event.error -> 'code', 'scope', p_event.error -> 'scope')), '{}'),
        'manual', p_event.meta -> 'manual', 'trace_id', p_event.meta -> 'trace_id'))
$$;

CREATE FUNCTION autopost.fan_out(p_workspace_id text, p_stored autopost.stored[], p_run_id uuid, p_now timestamp with time zone) RETURNS TABLE(item integer, enqueued integer, suppressed integer, failed integer, media_pending integer)
    LANGUAGE sql
    AS $$
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
    upload_policy jsonb DEFAULT '{}'::jsonb NOT NULL,
    media_max_bytes jsonb DEFAULT '{}'::jsonb NOT NULL,
    min_gap interval,
    not_ready_patience interval DEFAULT '00:15:00'::interval NOT NULL,
    CONSTRAINT policies_backoff_base_check CHECK (((backoff_base >= '00:00:00'::interval) AND (backoff_base <= '365 days'::interval))),
    CONSTRAINT policies_backoff_factor_check CHECK ((backoff_factor >= (1)::double precision)),
    CONSTRAINT policies_backoff_factor_check1 CHECK ((backoff_factor <= (100)::double precision)),
    CONSTRAINT policies_backoff_jitter_check CHECK (((backoff_jitter >= (0)::double precision) AND (backoff_jitter <= (1)::double precision))),
    CONSTRAINT policies_backoff_max_check CHECK (((backoff_max >= '00:00:00'::interval) AND (backoff_max <= '365 days'::interval))),
    CONSTRAINT policies_claim_horizon_check CHECK (((claim_horizon >= '00:00:00'::interval) AND (claim_horizon <= '1 day'::interval))),
    CONSTRAINT policies_claim_per_channel_check CHECK ((claim_per_channel > 0)),
    CONSTRAINT policies_claimed_lease_check CHECK (((claimed_lease >= '00:00:00.001'::interval) AND (claimed_lease <= '7 days'::interval))),
    CONSTRAINT policies_dedup_ttl_hours_check CHECK ((dedup_ttl_hours >= 0)),
    CONSTRAINT policies_disable_after_permanent_streak_check CHECK ((disable_after_permanent_streak > 0)),
    CONSTRAINT policies_expired_send_backoff_check CHECK (((expired_send_backoff >= '00:00:00'::interval) AND (expired_send_backoff <= '365 days'::interval))),
    CONSTRAINT policies_max_attempts_check CHECK ((max_attempts > 0)),
    CONSTRAINT policies_media_max_bytes_check CHECK ((jsonb_typeof(media_max_bytes) = 'object'::text)),
    CONSTRAINT policies_min_gap_check CHECK ((min_gap > '00:00:00'::interval)),
    CONSTRAINT policies_min_gap_check1 CHECK ((min_gap <= '365 days'::interval)),
    CONSTRAINT policies_not_ready_backoff_check CHECK (((not_ready_backoff >= '00:00:00'::interval) AND (not_ready_backoff <= '1 day'::interval))),
    CONSTRAINT policies_not_ready_backoff_max_check CHECK (((not_ready_backoff_max >= '00:00:00'::interval) AND (not_ready_backoff_max <= '1 day'::interval))),
    CONSTRAINT policies_not_ready_patience_check CHECK (((not_ready_patience >= '00:00:00'::interval) AND (not_ready_patience <= '1 day'::interval))),
    CONSTRAINT policies_pause_on_permanent_for_check CHECK (((pause_on_permanent_for >= '00:00:00'::interval) AND (pause_on_permanent_for <= '365 days'::interval))),
    CONSTRAINT policies_platform_cooldown_for_check CHECK (((platform_cooldown_for >= '00:00:00'::interval) AND (platform_cooldown_for <= '365 days'::interval))),
    CONSTRAINT policies_receipt_ttl_check CHECK (((receipt_ttl >= '00:00:00'::interval) AND (receipt_ttl <= '3650 days'::interval))),
    CONSTRAINT policies_sending_lease_check CHECK (((sending_lease >= '00:00:00.001'::interval) AND (sending_lease <= '7 days'::interval))),
    CONSTRAINT policies_upload_policy_check CHECK ((jsonb_typeof(upload_policy) = 'object'::text))
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

CREATE FUNCTION autopost.fetch_key(p_message_id uuid) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ select 'media ' || p_message_id $$;

CREATE FUNCTION autopost.file_is_needed(p_workspace_id text, p_blob_ref text, p_large boolean) RETURNS boolean
    LANGUAGE sql STABLE
    AS $_$
    select exists (
        select from autopost.messages m
        where m.workspace_id = p_workspace_id and m.payload ? 'media'
          and jsonb_path_query_array(m.payload, '$.media[*].blob_ref') @> jsonb_build_array(p_blob_ref)
          and (not p_large or exists (
              select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.message_id = m.message_id
                and d.status || '' in ('queued', 'claimed', 'sending', 'retry'))))
$_$;

CREATE FUNCTION autopost.files_after(p_workspace_id text, p_after text, p_limit integer) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    select array(select o.blob_ref from autopost.media_origin o
                 where o.workspace_id = p_workspace_id and o.blob_ref > coalesce(p_after, '') order by o.blob_ref limit p_limit)
$$;

CREATE TABLE autopost.media_origin (
    workspace_id text NOT NULL,
    blob_ref text NOT NULL,
    origin_url text NOT NULL,
    sha256 text,
    content_type text,
    size_bytes bigint,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    ref_count bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    file_name text,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    deleted_at timestamp with time zone
);

CREATE FUNCTION autopost.files_over(p_workspace_id text, p_blob_refs text[], p_keep interval, p_now timestamp with time zone) RETURNS SETOF autopost.media_origin
    LANGUAGE sql STABLE
    AS $$
    select o.*
    from (select (ops.retention_options(p_workspace_id, 'large_videos') ->> 'from_bytes')::bigint as from_bytes,
                 ops.keep_of(p_workspace_id, 'large_videos') as keep) large,
         autopost.media_origin o, lateral (select autopost.is_large_video(o, large.from_bytes) as large) is_it
    where o.workspace_id = p_workspace_id and o.blob_ref = any (p_blob_refs)
      and o.last_seen_at < p_now - case when is_it.large then large.keep else p_keep end
      and not autopost.file_is_needed(p_workspace_id, o.blob_ref, is_it.large)
$$;

CREATE FUNCTION autopost.first_moment(p_calendar jsonb, p_scheduled_for timestamp with time zone, p_now timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select case when p_calendar is null then greatest(p_scheduled_for, p_now)
                else autopost.next_open(p_calendar -> 'window', p_calendar ->> 'timezone', greatest(p_scheduled_for, p_now)) end
$$;

CREATE FUNCTION autopost.forbid_move() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'illegal move of delivery %: % -> %', old.delivery_id, old.status, new.status
        using errcode = 'VM001', hint = 'docs/reference/delivery-states.md lists the moves there are';
end $$;

CREATE FUNCTION autopost.forecast(p_workspace_id text, p_raw_payload_json jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(channel_id text, title text, platform text, rate_group text, outcome text, reason text, ahead bigint, goes_at timestamp with time zone, leaves_at timestamp with time zone, media_pending boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    shown jsonb;
    post autopost.stored;
    idle text := (select format('the workspace is %s', w.status) from core.workspaces w
                  where w.workspace_id = p_workspace_id and w.status <> 'active');
    leaving jsonb;
begin
    select jsonb_agg(jsonb_build_object('channel_id', x.channel_id, 'goes_at', x.goes_at, 'media_pending', x.media_pending,
               'outcome', case when not x.matches then 'not_routed' when x.error is not null then 'refused'
                               when x.duplicate is not null then 'suppressed' else 'enqueued' end,
               'reason', coalesce(x.reason, x.error ->> 'message', case x.duplicate
                   when 'in_flight' then 'the same post is on its way into this channel'
                   when 'sent_within_ttl' then 'the same post went into this channel within its dedup window' end)))
    into shown from autopost.preview_post(p_workspace_id, p_raw_payload_json, p_now) x;
    post := autopost.as_stored(p_workspace_id, p_raw_payload_json, p_now);
    leaving := case when idle is null then autopost.leaving_times(p_workspace_id, (
        select jsonb_object_agg(s ->> 'channel_id', s -> 'goes_at') from jsonb_array_elements(shown) s where s ->> 'outcome' = 'enqueued'), p_now) end;
    return query
    select c.channel_id, c.title, c.platform, c.rate_group, case when e.never is null then s ->> 'outcome' else 'never' end,
           coalesce(e.never, s ->> 'reason', case when s ->> 'outcome' = 'enqueued' and l.one ->> 'leaves_at' is null
                                                  then 'later than can be told' end),
           (l.one ->> 'ahead')::bigint, case when s ->> 'outcome' = 'enqueued' then (s ->> 'goes_at')::timestamptz end,
           case when e.never is null then (l.one ->> 'leaves_at')::timestamptz end, coalesce((s ->> 'media_pending')::boolean, false)
    from jsonb_array_elements(shown) s
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = s ->> 'channel_id',
    lateral (select leaving -> c.channel_id as one) l,
    lateral (select case
        when s ->> 'outcome' = 'enqueued' then coalesce(idle, case when c.paused_until = 'infinity' then 'the channel is paused until somebody resumes it' end)
        when not c.enabled and autopost.routes_to(c.route_filter, post.tags, to_jsonb(post.tags))
             and c.channel_id = any (coalesce(post.only_channels, array[c.channel_id])) then 'the channel is disabled' end as never) e
    order by s ->> 'outcome' <> 'enqueued', e.never is not null, c.channel_id;
end $$;

CREATE FUNCTION autopost.forget_files(p_workspace_id text, p_keep interval, p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT now(), OUT removed bigint, OUT more boolean, OUT paths text[], OUT bytes bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.forget_upload(p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_handle text, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    update autopost.media_blobs b set file_id = null, expires_at = null, updated_at = p_now
    where b.workspace_id = p_workspace_id and b.blob_ref = p_blob_ref and b.provider = p_provider and b.auth_ref = p_auth_ref and b.sent_as = p_sent_as
      and b.file_id = p_handle
$$;

CREATE FUNCTION autopost.forgive_channels(p_workspace_id text, p_operator text, p_reason text, p_channel_ids text[], p_from timestamp with time zone, p_now timestamp with time zone DEFAULT now()) RETURNS SETOF text
    LANGUAGE sql
    AS $$
    with refused as materialized (
        select c.channel_id, c.error_streak from autopost.channels c
        where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids) and c.enabled and c.error_streak > 0
        order by c.channel_id for no key update
    ), forgiven as (
        update autopost.channels c
        set error_streak = 0, penalized_at = greatest(c.penalized_at, p_from),
            paused_until = nullif(least(c.paused_until, p_from), p_now), updated_at = p_now
        from refused r
        where c.workspace_id = p_workspace_id and c.channel_id = r.channel_id
        returning c.channel_id, c.paused_until, r.error_streak
    ), noted as (
        insert into autopost.events (workspace_id, id, channel_id, ts, action, meta)
        select p_workspace_id, core.uuid7(p_now), f.channel_id, p_now, 'channel_enabled', jsonb_strip_nulls(jsonb_build_object(
            'operator', p_operator, 'reason', core.redact_text(p_reason), 'error_streak', f.error_streak, 'paused_until', f.paused_until))
        from forgiven f
    )
    select f.channel_id from forgiven f order by 1
$$;

CREATE FUNCTION autopost.forgive_credential(p_workspace_id text, p_operator text, p_platform text, p_auth_ref text, p_now timestamp with time zone DEFAULT now()) RETURNS SETOF text
    LANGUAGE sql
    AS $$
    select autopost.forgive_channels(p_workspace_id, p_operator, 'a new token', array(
        select c.channel_id from autopost.channels c
        left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
        where c.workspace_id = p_workspace_id and c.platform = p_platform and coalesce(a.auth_ref, c.auth_ref) = p_auth_ref),
        p_now + autopost.token_grace(), p_now)
$$;

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

CREATE FUNCTION autopost.free_moves() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select array[
        -- the specification's
        'queued>claimed', 'retry>claimed', 'claimed>sending', 'sending>sent', 'claimed>queued', 'claimed>retry',
        'sending>retry', 'queued>failed_permanent', 'retry>failed_permanent', 'sending>failed_permanent',
        'queued>deduped', 'retry>deduped',
        'queued>dead', 'claimed>dead', 'sending>dead', 'retry>dead', 'sent>dead', 'deduped>dead', 'failed_permanent>dead',
        -- an operator's: requeue
        'dead>retry', 'failed_permanent>retry']
$$;

CREATE FUNCTION autopost.gap_in_words(p_apart interval, p_minimum interval) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select format('%s apart, at least %s', date_trunc('second', p_apart), p_minimum)
$$;

CREATE FUNCTION autopost.gap_warning(p_workspace_id text, p_stored autopost.stored, p_now timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    usual constant interval := (select p.min_gap from autopost.policies p where p.workspace_id = p_workspace_id);
    close text;
begin
    if usual is null and not exists (select from autopost.channels c where c.workspace_id = p_workspace_id and c.min_gap is not null) then
        return null;
    end if;
    select string_agg(format('%s (%s)', x.channel_id, autopost.gap_in_words(x.apart, x.minimum)), ', ' order by x.channel_id)
    into close from (
        select c.channel_id, coalesce(c.min_gap, usual) as minimum, near.apart
        from autopost.channels c
        join autopost.deliveries d on d.workspace_id = c.workspace_id and d.channel_id = c.channel_id
            and d.content_hash = p_stored.content_hash and d.status in ('queued', 'claimed', 'sending', 'retry'),
        lateral (select autopost.nearest_post(p_workspace_id, c,
                            case when d.not_before < 'infinity' then d.not_before else autopost.goes_at(d, c, p_now) end,
                            coalesce(c.min_gap, usual), d.delivery_id, p_now) as apart offset 0) near
        where c.workspace_id = p_workspace_id and coalesce(c.min_gap, usual) is not null
          and d.message_id = p_stored.message_id and d.trace_id = p_stored.trace_id and near.apart < coalesce(c.min_gap, usual)
        order by c.channel_id limit 5) x;
    return 'closer to another post than the channel''s minimum gap: ' || close;
exception when others then
    raise warning 'the minimum gap was not looked at: %', sqlerrm;
    return null;
end $$;

CREATE FUNCTION autopost.gate_cause(p_workspace_id text, p_channel autopost.channels, p_action text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select ': ' || case when e.action = 'channel_enabled' then 'it goes on with ' || (e.meta ->> 'reason')
                        when e.result = 'ok' then concat_ws(', ', e.meta ->> 'reason', 'by ' || (e.meta ->> 'operator'))
                        when p_channel.error_streak > 0 then coalesce(e.error ->> 'message', e.error ->> 'code') end
    from (select * from autopost.events e
          where e.workspace_id = p_workspace_id and e.channel_id = p_channel.channel_id
            and e.action in (p_action, 'channel_enabled') and e.action not in ('enqueue', 'send_attempt', 'sent')
          order by e.ts desc limit 1) e
    where e.action = p_action or (e.meta ->> 'paused_until')::timestamptz = p_channel.paused_until and p_action = 'channel_paused'
$$;

CREATE FUNCTION autopost.goes_at(p_delivery autopost.deliveries, p_channel autopost.channels, p_now timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select coalesce(autopost.first_moment(autopost.calendar_of(p_channel), own.at, p_now), own.at)
    from (select greatest(case when p_delivery.not_before < 'infinity' then p_delivery.not_before end, p_delivery.scheduled_for,
                          case when p_delivery.status = 'retry' then p_delivery.next_retry_at end, p_now)) own (at)
$$;

CREATE FUNCTION autopost.goes_by_url(p_platform text, p_item jsonb, p_upload_policy jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select p_platform = 'max' and p_item ->> 'type' = 'image' and p_item ? 'url'
       and coalesce(p_upload_policy ->> 'image' = 'url_allowed', false)
$$;

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
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    sent_as text DEFAULT ''::text NOT NULL,
    taken_by uuid,
    taken_until timestamp with time zone
);

CREATE FUNCTION autopost.handle_is_over(p_handle autopost.media_blobs, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    select coalesce(p_handle.taken_until < p_now - interval '1 day', true) and p_handle.updated_at < p_now - interval '1 day'
       and (p_handle.file_id is null and p_handle.url is null or coalesce(p_handle.expires_at < p_now - interval '1 day', false))
$$;

CREATE FUNCTION autopost.has_another_way(p_events jsonb[], p_ends text[]) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    select case when cardinality(p_events) > 10 then true else autopost.leads_to(p_events[1] ->> 'before', p_events, p_ends) end
$$;

CREATE FUNCTION autopost.hash_version() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select 1 $$;

CREATE FUNCTION autopost.hasty_begins(p_workspace_id text, p_after timestamp with time zone, p_until timestamp with time zone) RETURNS TABLE(delivery_id uuid, channel_id text, kind text, says text, first_event uuid, second_event uuid)
    LANGUAGE sql STABLE
    AS $$
    with measure as materialized (
        select c.channel_id, c.platform, c.rate_group, autopost.step_of(c.rate_rps) as step, autopost.step_of(g.rate_rps) as group_step, x.since
        from autopost.channels c
        join autopost.steady_channels(p_workspace_id, p_after) x on x.channel_id = c.channel_id
        left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        where c.workspace_id = p_workspace_id and autopost.is_paced(c, g)
    ), begun as materialized (
        select e.id, e.delivery_id, e.channel_id, e.ts, m.platform, m.rate_group, m.step, m.group_step, m.since
        from autopost.events e join measure m on m.channel_id = e.channel_id
        where e.workspace_id = p_workspace_id and e.ts > p_after and e.ts <= p_until and e.action = 'send_attempt'
        union all
        -- The last one before: of the channel for its step, of the group's other channels for the group's.
        select e.id, e.delivery_id, e.channel_id, e.ts, m.platform, m.rate_group, m.step, m.group_step, m.since
        from measure m, lateral (
            select e.* from autopost.events e
            where e.workspace_id = p_workspace_id and e.channel_id = m.channel_id and e.action = 'send_attempt'
              and e.ts <= p_after and e.ts > p_after - least(greatest(m.step, m.group_step), interval '1 day')
            order by e.ts desc limit 1) e
    ), pair as (
        select b.*, lag(b.ts) over own as own_ts, lag(b.id) over own as own_id, lag(b.ts) over shared as shared_ts, lag(b.id) over shared as shared_id
        from begun b
        window own as (partition by b.channel_id order by b.ts, b.id), shared as (partition by b.platform, b.rate_group order by b.ts, b.id)
    )
    select p.delivery_id, p.channel_id, 'too_fast', format('channel %s began again after %s, its step is %s', p.channel_id, p.ts - p.own_ts, p.step),
           p.own_id, p.id
    from pair p where p.ts > p_after and p.own_ts >= p.since and p.ts - p.own_ts < p.step - interval '1 microsecond'
    union all
    select p.delivery_id, p.channel_id, 'group_too_fast',
           format('group %s began again after %s, its step is %s', p.rate_group, p.ts - p.shared_ts, p.group_step), p.shared_id, p.id
    from pair p where p.ts > p_after and p.shared_ts >= p.since and p.ts - p.shared_ts < p.group_step - interval '1 microsecond'
$$;

CREATE FUNCTION autopost.health_snapshot(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
begin
    perform autopost.require_workspace(p_workspace_id);
    return jsonb_build_object(
        'workspace_id', p_workspace_id, 'at', p_now,
        'status', (select w.status from core.workspaces w where w.workspace_id = p_workspace_id),
        'deliveries', (select coalesce(jsonb_object_agg(s.status, s.n), '{}') from (
            select d.status, count(*) as n from autopost.deliveries d where d.workspace_id = p_workspace_id group by 1) s),
        'oldest_due', (select min(due.since) from autopost.due_since(p_workspace_id, p_now) due),
        'top_errors', autopost.top_errors(p_workspace_id, p_now - interval '1 hour', p_now),
        'channels', autopost.channels_at_a_glance(p_workspace_id, p_now),
        'sources', (select jsonb_build_object('enabled', count(*) filter (where s.enabled),
                                              'failing', count(*) filter (where s.enabled and s.failures > 0))
                    from autopost.pull_sources s where s.workspace_id = p_workspace_id),
        'jobs_dead', (select count(*) from ops.jobs j where j.workspace_id = p_workspace_id and j.status = 'dead'),
        'alerts', (select coalesce(jsonb_agg(jsonb_build_object('alert', a.alert, 'subject', a.subject, 'severity', a.severity,
                                                'summary', a.summary, 'raised_at', a.raised_at, 'acked_by', a.acked_by)
                                             order by a.severity, a.raised_at), '[]')
                   from ops.alerts a where a.workspace_id = p_workspace_id and a.cleared_at is null));
end $$;

CREATE FUNCTION autopost.hidden_from_sweeps(p_row autopost.deliveries, p_has_media boolean) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case
        when p_row.status = 'sending' and p_row.sending_started_at is null then 'it is sending, and since when is not kept: its lease never ends'
        when p_row.status = 'claimed' and p_row.not_before = 'infinity' then 'it is claimed for a slot that never comes'
        when p_row.status = 'retry' and p_row.next_retry_at is null then 'it waits for another try, and no moment is kept'
        when p_row.status = 'retry' and p_row.next_retry_at = 'infinity' and p_row.held_at is null then 'it waits for ever, and nobody holds it'
        when p_row.status = 'retry' and p_row.not_before = 'infinity' then 'it waits for ever, and not for its files'
        when p_row.status = 'queued' and p_row.not_before = 'infinity' and not coalesce(p_has_media, false)
            then 'it waits for files, and its post has none'
        when p_row.held_at is not null and (p_row.status <> 'retry' or p_row.next_retry_at is distinct from 'infinity')
            then 'it is held, and yet it is not' end
$$;

CREATE FUNCTION autopost.host_names(p_hosts text[]) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select coalesce(array_agg(lower(ltrim(btrim(h), '*.'))), '{}') from unnest(p_hosts) h
$$;

CREATE FUNCTION autopost.hours_from(p_calendar jsonb, p_at double precision, p_now timestamp with time zone) RETURNS TABLE(opens double precision, closes double precision)
    LANGUAGE sql STABLE
    AS $$
    select coalesce(autopost.seconds_until(h.at, p_now), 'infinity'),
           case when p_calendar is null or h.at is null then 'infinity'
                else autopost.seconds_until(autopost.window_closes(p_calendar -> 'window', p_calendar ->> 'timezone', h.at), p_now) end
    from (select case when p_at = 'infinity' then null
                      else autopost.first_moment(p_calendar, p_now + make_interval(secs => p_at), p_now) end as at) h
$$;

CREATE FUNCTION autopost.how_it_ended(p_delivery autopost.deliveries) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select case autopost.end_of(p_delivery)
        when 'sent' then format('sent at %s', p_delivery.sent_at)
            || coalesce(format('; %s confirmed it: %s', e.meta ->> 'operator', e.meta ->> 'reason'), '')
        when 'deduped' then case when e.meta ->> 'reason' = 'in_flight' then 'the same content was on its way into this channel'
                                 else 'the same content went into this channel before' end
        when 'cancelled' then concat_ws(', ', 'cancelled: ' || (p_delivery.last_error ->> 'message'), 'by ' || (e.meta ->> 'operator'))
        when 'failed_permanent' then coalesce(p_delivery.last_error ->> 'message', p_delivery.last_error ->> 'code')
        when 'dead' then format('given up after %s attempts: %s', p_delivery.attempt,
                                coalesce(p_delivery.last_error ->> 'message', p_delivery.last_error ->> 'code')) end
    from (select) one
    left join lateral (
        select e.meta from autopost.events e
        where e.delivery_id = p_delivery.delivery_id and e.workspace_id = p_delivery.workspace_id
          and e.action = case p_delivery.status when 'sent' then 'confirmed' when 'deduped' then 'dedup_suppressed' when 'failed_permanent' then 'cancelled' end
        order by e.ts desc limit 1) e on true
$$;

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

CREATE FUNCTION autopost.is_date(p_text text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $_$
    select p_text ~ '^\d{4}-\d\d-\d\d$' and pg_input_is_valid(p_text, 'date')
$_$;

CREATE FUNCTION autopost.is_host_of(p_base text, p_hosts text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    select exists (select from unnest(p_hosts) h where host = h or right(host, char_length(h) + 1) = '.' || h)
    from (select lower(regexp_replace(regexp_replace(substring(p_base from '//([^/]*)'), '^.*@', ''), ':[0-9]*$', ''))) x (host)
$_$;

CREATE FUNCTION autopost.is_large_video(p_file autopost.media_origin, p_from_bytes bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select coalesce(p_file.content_type like 'video/%' and p_file.size_bytes >= p_from_bytes, false)
$$;

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
    LANGUAGE sql STABLE
    AS $$
    select p_channel.enabled
       and coalesce(p_channel.paused_until, '-infinity') <= p_now
       and case p_channel.window_mode when 'windowed'
               then autopost.window_open(p_channel.posting_window, p_channel.timezone, p_now) else true end
       and coalesce(p_channel.cooldown_until, '-infinity') <= p_now
       and coalesce(p_group.cooldown_until, '-infinity') <= p_now
$$;

CREATE FUNCTION autopost.is_paced(p_channel autopost.channels, p_group autopost.platform_limits) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select coalesce(p_channel.rate_rps, 0) > 0 or coalesce(p_group.rate_rps, 0) > 0
$$;

CREATE FUNCTION autopost.item_caption_problem(p_platform text, p_item jsonb, p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_platform = 'telegram' and autopost.text_length('telegram', p_item ->> 'caption', p_parse_mode) > 1024
            then format('its caption is too long: %s of 1024 characters',
                        autopost.text_length('telegram', p_item ->> 'caption', p_parse_mode))
        when p_parse_mode = 'HTML' then 'its caption: ' || autopost.html_problem(p_item ->> 'caption') end
$$;

CREATE FUNCTION autopost.item_picture_problem(p_platform text, p_item jsonb, p_kind text, p_own jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_kind <> 'image' then null
        when p_platform = 'telegram' then autopost.photo_problem(p_item, p_own) || '; send it as a file, or set large_image: document'
        when p_platform = 'max' and p_item ->> 'content_type' = 'image/webp' then 'MAX shows no WebP pictures; send it as a file'
        when p_platform = 'max' and greatest((p_item ->> 'width')::bigint, (p_item ->> 'height')::bigint) > 7680
            then format('MAX takes pictures of up to 7680 points a side, not %s x %s', p_item ->> 'width', p_item ->> 'height')
    end
$$;

CREATE FUNCTION autopost.item_reference_problem(p_platform text, p_item jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case
        when p_item ? 'file_id' and p_platform <> 'telegram' then 'a file_id is of Telegram, and this channel is not'
        -- A server of one's own would read "file:///…" from its disk.
        when p_item ->> 'file_id' !~ '^[A-Za-z0-9_-]+$' then 'that is no file_id: letters, digits, - and _'
        when p_item ? 'attachment_token' and p_platform <> 'max' then 'an attachment_token is of MAX, and this channel is not' end
$_$;

CREATE FUNCTION autopost.item_size_problem(p_platform text, p_item jsonb, p_kind text, p_own jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when (p_item ->> 'size_bytes')::bigint > allowed
                then format('%s MB are too many: %s takes %s MB of this kind', round((p_item ->> 'size_bytes')::numeric / 1048576, 1),
                            case p_platform when 'telegram' then 'Telegram' when 'max' then 'MAX' else p_platform end,
                            round(allowed / 1048576.0, 1)) end
    from (select autopost.media_limit(p_platform, p_kind, p_own)) l (allowed)
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

CREATE FUNCTION autopost.keep_moments(p_workspace_id text, p_operator text, p_message_id uuid, p_channels text[], p_moments timestamp with time zone[], p_raw jsonb, p_now timestamp with time zone) RETURNS bigint
    LANGUAGE sql
    AS $$
    select count(r.delivery_id)
    from (select w.at, array_agg(w.channel_id) as channels from unnest(p_channels, p_moments) w (channel_id, at) group by w.at) x,
         lateral autopost.reschedule_deliveries(p_workspace_id, p_operator, 'at the moment of the post that it replaces', nullif(x.at, p_now),
             p_message_id, null, x.channels, p_now) r
    where p_raw ->> 'scheduled_for' is null and x.at < (select max(m) from unnest(p_moments) m)
$$;

CREATE FUNCTION autopost.keeps_payloads(p_workspace_id text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select coalesce(ops.retention_options(p_workspace_id, 'payloads') ->> 'raw_payloads', 'errors') <> 'off'
$$;

CREATE FUNCTION autopost.late_moves() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select array['retry>sent', 'queued>sent', 'claimed>sent'] $$;

CREATE FUNCTION autopost.leads_to(p_status text, p_events jsonb[], p_ends text[]) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
declare
    move record;
begin
    if cardinality(p_events) = 0 then
        return p_status = any (p_ends);
    end if;
    for move in
        select min(x.n) as n, t.to_status
        from unnest(p_events) with ordinality x (event, n)
        join autopost.told_moves() t on t.action = x.event ->> 'action'
        where (p_status = any (t.from_statuses) or p_status is null) and (x.n = 1 or t.place > 1 and p_events[1] ->> 'action' <> 'send_attempt')
          and (x.event ->> 'ts')::timestamptz <= (select min((y ->> 'ts')::timestamptz) from unnest(p_events) y) + autopost.side_by_side()
        group by t.action, t.to_status order by 1
    loop
        if autopost.leads_to(move.to_status, p_events[:move.n - 1] || p_events[move.n + 1:], p_ends) then
            return true;
        end if;
    end loop;
    return false;
end $$;

CREATE FUNCTION autopost.leaving_times(p_workspace_id text, p_goes_at jsonb, p_now timestamp with time zone) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    with wanted as materialized (
        select distinct c.platform, c.rate_group from autopost.channels c
        where c.workspace_id = p_workspace_id and p_goes_at ? c.channel_id
    ), drained as (
        select w.platform, w.rate_group, d.* from wanted w, lateral autopost.drain_group(p_workspace_id, w.platform, w.rate_group, p_goes_at, p_now) d
    )
    select jsonb_object_agg(d.channel_id, jsonb_build_object('ahead', d.ahead, 'leaves_at', case when d.leaves_at is not null then greatest(
               d.leaves_at, case when c.rate_rps > 0 then greatest(c.next_allowed_at, c.last_begin_at + autopost.step_of(c.rate_rps)) end,
               case when g.rate_rps > 0 then greatest(g.next_allowed_at, g.last_begin_at + autopost.step_of(g.rate_rps)) end) end))
    from drained d
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = d.channel_id
    left join autopost.platform_limits g on g.workspace_id = p_workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
$$;

CREATE FUNCTION autopost.link_pattern(p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case p_parse_mode
        when 'HTML' then '<[^<>]*>|https?://(?:[^\s<>()"&]|&(?!#?\w+;)|&amp;|\((?:[^\s<>()"&]|&(?!#?\w+;)|&amp;)*\))+'
        when 'Markdown' then '\\[!-/:-@[-`{-~]|`+|\n~~~+|\[[^][\n]*\]\((?:<[^<>\n]*>)?|https?://(?:[^\s<>()"`]|\([^\s<>()"`]*\))+'
        else 'https?://(?:[^\s<>()"`]|\([^\s<>()"`]*\))+' end
$$;

CREATE FUNCTION autopost.list_findings(p_workspace_id text, p_limit integer DEFAULT 200) RETURNS TABLE(source text, kind text, subject text, says text, details jsonb, found_at timestamp with time zone, last_seen_at timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    select f.source, f.kind, f.subject, f.says, f.details, f.found_at, f.last_seen_at from autopost.findings f
    where f.workspace_id = p_workspace_id order by f.found_at desc, f.source, f.kind, f.subject limit p_limit
$$;

CREATE TABLE core.payload_reads (
    workspace_id text NOT NULL,
    read_id uuid NOT NULL,
    ts timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    via text NOT NULL,
    action text NOT NULL,
    payload_ref text NOT NULL,
    reason text NOT NULL,
    outcome text NOT NULL,
    link_id uuid,
    CONSTRAINT payload_reads_action_check CHECK ((action = ANY (ARRAY['link'::text, 'read'::text]))),
    CONSTRAINT payload_reads_outcome_check CHECK ((outcome = ANY (ARRAY['granted'::text, 'refused'::text, 'expired'::text, 'not_found'::text, 'unreadable'::text, 'store_away'::text]))),
    CONSTRAINT payload_reads_via_check CHECK ((via = ANY (ARRAY['api'::text, 'link'::text, 'machine'::text])))
);

CREATE FUNCTION autopost.list_payload_reads(p_workspace_id text, p_since interval DEFAULT '30 days'::interval, p_limit integer DEFAULT 200, p_now timestamp with time zone DEFAULT now()) RETURNS SETOF core.payload_reads
    LANGUAGE sql STABLE
    AS $$
    select r.* from core.payload_reads r
    where r.workspace_id = p_workspace_id and r.ts >= p_now - p_since order by r.ts desc, r.read_id desc limit p_limit
$$;

CREATE FUNCTION autopost.list_payloads(p_workspace_id text, p_since interval DEFAULT '14 days'::interval, p_delivery_id uuid DEFAULT NULL::uuid, p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(ts timestamp with time zone, payload_ref text, action text, delivery_id uuid, message_id uuid, channel_id text, code text)
    LANGUAGE sql STABLE
    AS $$
    select e.ts, e.payload_ref, e.action, e.delivery_id, e.message_id, e.channel_id, coalesce(e.error ->> 'code', e.meta ->> 'reason')
    from autopost.events e
    where e.workspace_id = p_workspace_id and e.result = 'error' and e.payload_ref is not null and e.ts >= p_now - p_since
      and (p_delivery_id is null or e.delivery_id = p_delivery_id)
    order by e.ts desc limit p_limit
$$;

CREATE FUNCTION autopost.lock_channels(p_workspace_id text, p_channel_ids text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    locked text[];
    wanted text[];
begin
    insert into autopost.platform_limits (workspace_id, platform, rate_group)
    select distinct c.workspace_id, c.platform, c.rate_group
    from autopost.channels c
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
      and not exists (select from autopost.platform_limits g where g.workspace_id = p_workspace_id
                      and g.platform = c.platform and g.rate_group = c.rate_group)
    order by 2, 3
    on conflict do nothing;

    select array_agg(x.grp) into locked from (
        select g.platform || '/' || g.rate_group as grp from autopost.platform_limits g
        where g.workspace_id = p_workspace_id and (g.platform, g.rate_group) in (
            select c.platform, c.rate_group from autopost.channels c
            where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids))
        order by g.platform, g.rate_group for no key update) x;

    select array_agg(distinct x.grp) into wanted from (
        select c.platform || '/' || c.rate_group as grp from autopost.channels c
        where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
        order by c.channel_id for no key update) x;

    if not wanted <@ locked then
        locked := locked || array(
            select g.platform || '/' || g.rate_group from autopost.platform_limits g
            where g.workspace_id = p_workspace_id and g.platform || '/' || g.rate_group = any (wanted) for no key update skip locked);
        if not wanted <@ coalesce(locked, '{}') then
            raise exception 'a channel came into another group meanwhile' using errcode = '40001';
        end if;
    end if;
end $$;

CREATE FUNCTION autopost.lock_for_rotation(p_workspace_id text, p_channel_id text, p_new_auth_ref text, p_new_rate_group text) RETURNS autopost.channels
    LANGUAGE plpgsql
    AS $$
declare
    channel autopost.channels;
begin
    select * into channel from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
    perform autopost.require_channels(found, format('no channel %s', p_channel_id), p_workspace_id);
    insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps)
    select p_workspace_id, channel.platform, p_new_rate_group, (
        select g.rate_rps from autopost.platform_limits g where g.workspace_id = p_workspace_id and g.platform = channel.platform
        and g.rate_group = channel.rate_group)
    where p_new_rate_group is not null
    on conflict do nothing;
    perform from autopost.platform_limits g
    where g.workspace_id = p_workspace_id and g.platform = channel.platform and g.rate_group in (channel.rate_group, p_new_rate_group)
    order by g.platform, g.rate_group for no key update;
    select * into channel from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    perform autopost.require_credential(p_workspace_id, array[p_channel_id], p_new_auth_ref);
    return channel;
end $$;

CREATE FUNCTION autopost.lock_held(p_workspace_id text, p_delivery_ids uuid[], p_channel_id text, p_until timestamp with time zone, p_limit integer) RETURNS SETOF uuid
    LANGUAGE plpgsql
    AS $$
begin
    if p_delivery_ids is not null then
        return query
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
        order by d.delivery_id for no key update;
    else
        return query
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'retry'
          and d.next_retry_at = 'infinity' and d.held_at <= p_until
        order by d.delivery_id limit p_limit for no key update;
    end if;
end $$;

CREATE FUNCTION autopost.lock_unsent(p_workspace_id text, p_message_id uuid, p_delivery_ids uuid[], p_channel_ids text[]) RETURNS SETOF uuid
    LANGUAGE plpgsql
    AS $$
declare
    asked uuid[] := p_delivery_ids;
begin
    if p_message_id is not null then
        asked := array(
            select d.delivery_id from autopost.messages m
            join autopost.channels c on c.workspace_id = m.workspace_id,
            lateral (select d.delivery_id from autopost.deliveries d
                     where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.content_hash = m.content_hash
                       and d.status in ('queued', 'claimed', 'sending', 'retry') and d.message_id = m.message_id offset 0) d
            where m.workspace_id = p_workspace_id and m.message_id = p_message_id
              and (p_delivery_ids is null or d.delivery_id = any (p_delivery_ids)));
    end if;
    return query
    select d.delivery_id from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
      and (p_channel_ids is null or d.channel_id = any (p_channel_ids))
      and d.status || '' in ('queued', 'claimed', 'sending', 'retry')
    order by d.delivery_id for no key update;
end $$;

CREATE FUNCTION autopost.look_at_deliveries(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone DEFAULT now(), OUT going bigint, OUT place text, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
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

CREATE FUNCTION autopost.look_at_events(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone DEFAULT now(), OUT going bigint, OUT place text, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION autopost.look_at_files(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone DEFAULT now(), OUT going bigint, OUT place text, OUT oldest timestamp with time zone, OUT bytes bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    page constant text[] := autopost.files_after(p_workspace_id, p_after, p_limit);
begin
    select count(*), min(o.last_seen_at), coalesce(sum(o.size_bytes), 0) into going, oldest, bytes
    from autopost.files_over(p_workspace_id, page, p_keep, p_now) o;
    place := case when cardinality(page) = p_limit then page[p_limit] end;
end $$;

CREATE FUNCTION autopost.look_at_handles(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone DEFAULT now(), OUT going bigint, OUT place text, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE sql STABLE
    AS $$
    with page as materialized (
        select distinct b.blob_ref from autopost.media_blobs b
        where b.workspace_id = p_workspace_id and b.blob_ref > coalesce(p_after, '') order by b.blob_ref limit p_limit
    )
    select count(*) filter (where autopost.handle_is_over(b, p_now)),
           (select max(p.blob_ref) from page p having count(*) = p_limit),
           min(b.updated_at) filter (where autopost.handle_is_over(b, p_now))
    from autopost.media_blobs b where b.workspace_id = p_workspace_id and b.blob_ref in (select p.blob_ref from page p)
$$;

CREATE FUNCTION autopost.look_at_messages(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone DEFAULT now(), OUT going bigint, OUT place text, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
declare
    page constant uuid[] := autopost.old_messages(p_workspace_id, p_keep, p_after, p_limit, p_now);
begin
    select count(*), min(m.last_seen_at) into going, oldest from autopost.messages m
    where m.workspace_id = p_workspace_id and m.message_id = any (page) and m.last_seen_at < p_now - p_keep
      and not exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.message_id = m.message_id);
    place := case when cardinality(page) = p_limit then page[p_limit] end;
end $$;

CREATE FUNCTION autopost.look_at_runs(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone DEFAULT now(), OUT going bigint, OUT place text, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION autopost.mark_sent(p_workspace_id text, p_delivery_id uuid, p_provider_message_id text, p_sent_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_raw_meta_json jsonb DEFAULT NULL::jsonb, p_lease integer DEFAULT NULL::integer, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease, 'provider_message_id', p_provider_message_id,
            'sent_at', p_sent_at, 'meta', p_raw_meta_json)), p_now) s))
$$;

CREATE FUNCTION autopost.markup_problem(p_words text, p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select case
        when p_parse_mode = 'HTML' then case
            when p_words ~ '<[^<>]*\x03' then 'a section cannot begin or end inside a tag'
            when p_words ~ '<[^<>]*\x02' then 'text, links and tags cannot stand inside a tag'
            when regexp_replace(p_words, '(\s(?:href|class)\s*=\s*)("[^"<>]*"|''[^''<>]*'')', '\1""', 'gi') ~ '<[^<>]*\x01'
                then 'inside a tag a placeholder stands only between the quotes of href or class'
            else autopost.html_problem(translate(p_words, E'\x01\x02\x03', 'x')) end
        when p_parse_mode = 'Markdown' then case
            when p_words ~ '\]\([^()\s]*[\x02\x03]' then 'text, links, tags and sections cannot stand in an address'
            when exists (select from regexp_matches(p_words, '\\.|(`+[^`]*`+)', 'g') m where m[1] ~ '[\x01\x02]')
                then 'a placeholder cannot stand in code: its escapes would show'
            end
        end
$$;

CREATE FUNCTION autopost.max_address_length(p_value text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case when address ~ '^([Hh][Tt][Tt][Pp][Ss]?://[^\s/?#]*\.|[Mm][Aa][Xx]://)\S+$'
                then 15 + char_length(autopost.without_entities(address)) + 4 * regexp_count(address, '&') else 0 end
    from (select replace(btrim(p_value, '"'' '), '&amp;', '&')) v (address)
$_$;

CREATE FUNCTION autopost.max_html_length(p_text text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select autopost.utf16_length(autopost.without_entities(t)) + autopost.max_tags_length(p_text)
         + 4 * regexp_count(t, '&amp;') + 3 * regexp_count(t, '&[lg]t;')
         + 4 * regexp_count(t, '&(?!#\d{1,7};|#[xX][0-9a-fA-F]{1,6};|[A-Za-z][A-Za-z0-9]{1,31};)') + 3 * regexp_count(t, '>')
    from (select autopost.without_tags(p_text)) x (t)
$$;

CREATE FUNCTION autopost.max_markdown_length(p_text text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select autopost.utf16_length(autopost.visible_text(p_text, 'Markdown')) + coalesce((
        select sum(3 + char_length(replace(autopost.without_entities(m[1]), '\', '')))
        from regexp_matches(p_text, '\]\(<?(https?://[^\s()<>]+)', 'g') m), 0)::integer
$$;

CREATE FUNCTION autopost.max_messages(p_kinds text[]) RETURNS TABLE(place bigint, message text)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    with item as (
        select k.n, k.kind in ('image', 'video') as seen,
               k.n - row_number() over (partition by k.kind in ('image', 'video') order by k.n) as run
        from unnest(p_kinds) with ordinality k (kind, n)
    ), counted as (
        select n, seen, run, row_number() over r - 1 as i, count(*) over (partition by seen, run) as size from item
        window r as (partition by seen, run order by n)
    ), shared as (
        select *, size / parts as least, size % parts as more
        from counted, lateral (select (size + 9) / 10 as parts) p
    )
    select n, case when not seen then n || ' alone'
                   else run || ':' || case when i < more * (least + 1) then i / (least + 1)
                                           else more + (i - more * (least + 1)) / least end end
    from shared
$$;

CREATE FUNCTION autopost.max_tags_length(p_text text) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
declare
    total integer := 0;
    waiting integer := 0;  -- for a word
    names text[] := '{}';
    costs integer[] := '{}';
    m text[];
    tag text;
    cost integer;
begin
    for m in select regexp_matches(p_text, '<(/?)([A-Za-z][A-Za-z0-9-]*)([^<>]*)>([^<]*)', 'g') loop
        tag := lower(m[2]);
        tag := case when tag in ('strong', 'h2', 'h3', 'h4', 'h5', 'h6') or tag = 'h1' and 'li' = any (names) then 'b'
                    when tag = 'em' then 'i' when tag = 'ins' then 'u' when tag in ('strike', 'del') then 's' else tag end;
        if m[1] = '/' then
            waiting := waiting - coalesce(costs[cardinality(costs)], 0);
            names := trim_array(names, least(1, cardinality(names)));
            costs := trim_array(costs, least(1, cardinality(costs)));
        elsif tag <> 'br' then
            cost := case when tag = any (names) or names && '{code,pre}' or tag = 'code' and 'a' = any (names) then 0
                         when tag = 'a' then autopost.max_address_length(
                             substring(m[3] from '\s[Hh][Rr][Ee][Ff]\s*=\s*("[^"]*"|''[^'']*''|[^\s"'']+)'))
                         when tag in ('b', 'i', 'u', 's', 'h1', 'mark', 'code', 'pre', 'blockquote') then 2 * char_length(tag) + 5
                         else 0 end;
            names := names || tag;
            costs := costs || cost;
            waiting := waiting + cost;
        end if;
        if waiting > 0 and m[4] ~ '[^ \t\n]' then
            total := total + waiting;
            waiting := 0;
            costs := array_fill(0, array[cardinality(costs)]);
        end if;
    end loop;
    return total;
end $$;

CREATE FUNCTION autopost.may_requeue(p_status text, p_error jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select p_status = 'dead' or p_status = 'failed_permanent' and coalesce(p_error ->> 'scope', 'delivery') = 'delivery'
$$;

CREATE FUNCTION autopost.media_arrived(p_workspace_id text, p_message_id uuid, p_blobs jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.media_error(p_platform text, p_media jsonb, p_parse_mode text, p_text text, p_payload jsonb, p_settings jsonb, p_policy autopost.policies) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    own constant jsonb := p_policy.media_max_bytes;
    kinds text[];
    item jsonb;
    place bigint;
    problem text;
begin
    for item, place in select i.item, i.n from jsonb_array_elements(p_media) with ordinality i (item, n) order by i.n loop
        if item ? 'gone' and not item ? 'url' then
            return autopost.validation_error(format('item %s: there is no file %s (any more)', place, left(item ->> 'blob_ref', 80)))
                || '{"code": "media_missing_origin"}';
        end if;
        kinds[place] := autopost.sent_as(p_platform, item, p_settings, own);
        problem := coalesce(autopost.item_reference_problem(p_platform, item),
                            autopost.item_picture_problem(p_platform, item, kinds[place], own),
                            autopost.item_size_problem(p_platform, item, kinds[place], own),
                            autopost.item_caption_problem(p_platform, item, p_parse_mode));
        if problem is not null then
            return autopost.validation_error(format('item %s: %s', place, problem));
        end if;
    end loop;
    return autopost.validation_error(coalesce(autopost.album_problem(p_platform, kinds, p_text, p_payload),
                                              autopost.captions_problem(p_platform, p_media, kinds, p_parse_mode)));
end $$;

CREATE FUNCTION autopost.media_failed(p_workspace_id text, p_message_id uuid, p_reason text, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.media_is_pending(p_platform text, p_media jsonb, p_upload_policy jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select coalesce(bool_or(i.item ? 'url' and (not i.item ? 'blob_ref' or i.item ? 'gone')
                            and not autopost.goes_by_url(p_platform, i.item, p_upload_policy)), false)
    from jsonb_array_elements(p_media) i (item)
$$;

CREATE FUNCTION autopost.media_item_problem(p_item jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
declare
    named constant text[] := '{url,blob_ref,file_id,attachment_token,upload}';
    item jsonb;
begin
    if jsonb_typeof(p_item) <> 'object' then
        return 'must be an object with a type and a url';
    end if;
    item := jsonb_strip_nulls(p_item);
    if item - named - 'type' - 'caption' <> '{}' then
        return format('has an unknown key: %s', left((select min(k) from jsonb_object_keys(item - named - 'type' - 'caption') k), 64));
    elsif exists (select from jsonb_each(item) e where jsonb_typeof(e.value) <> 'string') then
        return 'takes strings only';
    elsif coalesce(item ->> 'type' not in ('image', 'video', 'audio', 'file', 'animation'), true) then
        return 'needs a type: image, video, audio, file or animation';
    elsif (select count(*) from jsonb_object_keys(item) k where k = any (named)) <> 1 then
        return 'needs exactly one of url, blob_ref, file_id, attachment_token, upload';
    elsif item ? 'upload' then
        return 'names an upload that did not come along: send multipart/form-data with a part of that name';
    elsif char_length(item ->> 'caption') > 4096 then
        return 'has a caption of more than 4096 characters';
    elsif item ? 'url' and (char_length(item ->> 'url') > 2048 or item ->> 'url' !~* '^https?://[^\s/?#<>]+[^\s<>]*$') then
        return 'has a url that is not an http or https address';
    elsif (select char_length(e.value) not between 1 and 2048 from jsonb_each_text(item) e where e.key = any (named)) then
        return 'refers to nothing, or to a name of more than 2048 characters';
    end if;
    return null;
end $_$;

CREATE FUNCTION autopost.media_limit(p_platform text, p_type text, p_own jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select coalesce((p_own -> p_platform ->> p_type)::bigint, case p_platform
        when 'telegram' then case p_type when 'image' then 10 else 50 end * 1048576::bigint
        when 'max' then case p_type when 'image' then 50 when 'animation' then 50 when 'video' then 250 when 'audio' then 256
                                    else 4096 end * 1048576::bigint end)
$$;

CREATE FUNCTION autopost.media_of(p_workspace_id text, p_media jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select jsonb_agg(i.item || jsonb_strip_nulls(jsonb_build_object(
        'content_type', o.content_type, 'size_bytes', o.size_bytes, 'file_name', o.file_name,
        'width', o.meta -> 'width', 'height', o.meta -> 'height',
        'gone', case when i.item ? 'blob_ref' and o.blob_ref is null then true end)) order by i.n)
    from jsonb_array_elements(p_media) with ordinality i (item, n)
    left join autopost.media_origin o on o.workspace_id = p_workspace_id and o.blob_ref = i.item ->> 'blob_ref'
        and o.deleted_at is null
$$;

CREATE FUNCTION autopost.media_problem(p_media jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when jsonb_array_length(p_media) > 100 then 'media: at most 100 items' else (
        select format('media: item %s %s', i.n, autopost.media_item_problem(i.item))
        from jsonb_array_elements(p_media) with ordinality i (item, n)
        where autopost.media_item_problem(i.item) is not null order by i.n limit 1) end
$$;

CREATE FUNCTION autopost.media_seen(p_workspace_id text, p_stored autopost.stored[], p_now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.media_to_fetch(p_workspace_id text, p_message_id uuid) RETURNS TABLE(place integer, type text, url text)
    LANGUAGE sql STABLE
    AS $$
    select (i.n - 1)::integer, i.item ->> 'type', i.item ->> 'url'
    from autopost.messages m, jsonb_array_elements(autopost.media_of(p_workspace_id, m.payload -> 'media')) with ordinality i (item, n)
    where m.workspace_id = p_workspace_id and m.message_id = p_message_id
      and i.item ? 'url' and (not i.item ? 'blob_ref' or i.item ? 'gone')
    order by i.n
$$;

CREATE FUNCTION autopost.monitor_service(p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb, raised_at timestamp with time zone, is_new boolean)
    LANGUAGE plpgsql
    AS $$
begin
    perform ops.clear_alert('*', a.alert, a.subject, p_now) from ops.alerts a
    where a.workspace_id = '*' and a.alert = 'disk' and a.cleared_at is null and a.last_seen_at < p_now - interval '1 hour';
    return query select * from ops.put_alerts('*', '{jobs_dead,alert_target,webhook,oldest_xmin,default_partition}', (
        select coalesce(jsonb_agg(to_jsonb(f)), '[]') from (
            select * from ops.check_jobs('*', p_now)
            union all select * from ops.check_ways_out('*', p_now)
            union all select * from ops.check_database('*', p_now)
            union all select * from autopost.check_partitions()) f), p_now);
end $$;

CREATE FUNCTION autopost.monitor_workspace(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb, raised_at timestamp with time zone, is_new boolean)
    LANGUAGE plpgsql
    AS $$
begin
    perform autopost.require_workspace(p_workspace_id);
    perform autopost.sweep_sending(p_workspace_id, p_now => p_now), autopost.sweep_claimed(p_workspace_id, p_now => p_now);
    return query select * from ops.put_alerts(p_workspace_id, autopost.alerts_of_monitor(), (
        select coalesce(jsonb_agg(to_jsonb(f)), '[]') from autopost.failing_checks(p_workspace_id, p_now) f), p_now);
end $$;

CREATE FUNCTION autopost.moves_at_once() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select array['queued>sending', 'retry>sending'] $$;

CREATE FUNCTION autopost.must_hold(p_row autopost.deliveries, p_error jsonb) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select coalesce(p_error ->> 'outcome' = 'unknown', false) and exists (
        select from autopost.channels c
        where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id and c.on_unknown = 'hold')
$$;

CREATE FUNCTION autopost.named_payload(p_error jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object('payload_ref', left(p_error ->> 'payload_ref', 100),
                                                'payload_not_kept', left(p_error ->> 'payload_not_kept', 100)))
$$;

CREATE FUNCTION autopost.names_problem(p_body text, p_defaults jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    with pieces as materialized (select * from autopost.template_pieces(p_body) with ordinality p (kind, piece, n))
    select coalesce(
        (select case when piece like '%}}' then format('"%s" is not a placeholder; braces themselves are written {{{{', piece)
                     else format('"%s" is never closed; braces themselves are written {{{{', btrim(piece)) end
         from pieces where kind = 'fault' order by n limit 1),
        (select format('unknown variable %s; known are text, links, link, tags, source.<key>, channel.<key>%s',
                       string_agg(distinct piece, ', '), (select string_agg(', ' || key, '' order by key)
                           from jsonb_object_keys(p_defaults) key where key !~ '^((source|channel)\..*|text|links?|tags)$'))
         from pieces where kind <> 'literal' and not p_defaults ? piece
                       and piece !~ '^((source|channel)\.[\w-]+|text|links?|tags)$' having count(*) > 0),
        (select 'has more than 200 placeholders' from pieces where kind in ('value', 'open') having count(*) > 200),
        case when not exists (select from pieces where kind = 'value' or kind = 'literal' and piece ~ '\S') then 'shows nothing' end)
$_$;

CREATE FUNCTION autopost.nearest_post(p_workspace_id text, p_channel autopost.channels, p_at timestamp with time zone, p_minimum interval, p_but uuid, p_now timestamp with time zone) RETURNS interval
    LANGUAGE plpgsql STABLE
    AS $$
declare
    before timestamptz;
    after timestamptz;
    near interval;
begin
    select max(o.at) filter (where o.at <= p_at), min(o.at) filter (where o.at > p_at) into before, after
    from autopost.waiting_around(p_workspace_id, p_channel.channel_id, p_at, p_but, p_now) o (at);
    if before < p_at then
        before := autopost.first_moment(autopost.calendar_of(p_channel), before, p_now);
    end if;
    if after - p_at < p_minimum then
        after := autopost.first_moment(autopost.calendar_of(p_channel), after, p_now);
    end if;
    near := least(p_at - before, after - p_at);
    if p_at - p_now < least(near, p_minimum) then
        near := least(near, p_at - (
            select e.ts from autopost.events e
            where e.workspace_id = p_workspace_id and e.channel_id = p_channel.channel_id and e.action = 'sent'
              and e.ts > p_now - p_minimum
            order by e.ts desc limit 1));
    end if;
    return near;
end $$;

CREATE FUNCTION autopost.needs_kick(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select autopost.is_active(p_workspace_id)
       and (exists (select from autopost.ready_channels(p_workspace_id, '', 1, p_now))
            or exists (select from autopost.channels_with_due_claims(p_workspace_id, p_now)))
$$;

CREATE FUNCTION autopost.next_begin_at(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS timestamp with time zone
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
      and case c.window_mode when 'windowed' then autopost.window_open(c.posting_window, c.timezone, p_now) else true end
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

CREATE FUNCTION autopost.next_open(p_window jsonb, p_timezone text, p_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select case when autopost.window_open(p_window, p_timezone, p_at) then p_at
                else autopost.window_change(p_window, p_timezone, p_at, true) end
$$;

CREATE FUNCTION autopost.nobody_warning(p_workspace_id text, p_stored autopost.stored) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
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

CREATE FUNCTION autopost.normal_error(p_error jsonb, p_category text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
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

CREATE FUNCTION autopost.normalize_media(p_media jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
        'type', i.item ->> 'type', 'url', autopost.canonical_url(i.item ->> 'url'), 'blob_ref', i.item ->> 'blob_ref',
        'file_id', i.item ->> 'file_id', 'attachment_token', i.item ->> 'attachment_token',
        'caption', nullif(autopost.normalize_text(i.item ->> 'caption'), ''))) order by i.n)
    from jsonb_array_elements(p_media) with ordinality i (item, n)
$$;

CREATE FUNCTION autopost.normalize_payload(p_raw jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object(
        'type', case when autopost.array_of(p_raw, 'media') = '[]' then 'text'
                     when coalesce(autopost.normalize_text(p_raw ->> 'text'), '') = ''
                          and autopost.array_of(p_raw, 'links') = '[]' then 'media'
                     else 'mixed' end,
        'text', nullif(autopost.normalize_text(p_raw ->> 'text'), ''),
        'parse_mode', p_raw ->> 'parse_mode',
        'media', autopost.normalize_media(autopost.array_of(p_raw, 'media')),
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

CREATE FUNCTION autopost.not_replaced(p_workspace_id text, p_post jsonb, p_run_id uuid, p_channels text[], p_now timestamp with time zone) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    with refusal as materialized (
        select e.channel_id, coalesce(e.error ->> 'message', case e.meta ->> 'reason'
                   when 'in_flight' then 'the same post is on its way into this channel'
                   else 'the same post went into this channel within its dedup window' end) as reason
        from autopost.events e
        where e.workspace_id = p_workspace_id and e.ts = p_now and e.action in ('validation_failed', 'dedup_suppressed')
          and e.meta ->> 'run_id' = p_run_id::text
    )
    select jsonb_object_agg(c.channel_id, coalesce(r.reason, autopost.unwanted_reason(c, s)))
    from autopost.as_stored(p_workspace_id, p_post, p_now) s
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = any (p_channels)
    left join refusal r on r.channel_id = c.channel_id
    where r.channel_id is not null or not (c.enabled and autopost.routes_to(c.route_filter, s.tags, to_jsonb(s.tags)))
$$;

CREATE FUNCTION autopost.note_archive(p_workspace_id text, p_day date, p_path text, p_events bigint, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.event_archives (workspace_id, day, path, events, archived_at)
    values (p_workspace_id, p_day, p_path, p_events, p_now)
    on conflict (workspace_id, day) do update set path = excluded.path, events = excluded.events, archived_at = excluded.archived_at
$$;

CREATE FUNCTION autopost.note_channels(p_workspace_id text, p_channel_ids text[], p_action text, p_meta jsonb, p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.events (workspace_id, id, channel_id, ts, action, meta)
    select p_workspace_id, core.uuid7(p_now), c, p_now, p_action, p_meta from unnest(p_channel_ids) c
$$;

CREATE FUNCTION autopost.note_delivery(p_row autopost.deliveries, p_action text, p_error jsonb, p_meta jsonb, p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, payload_ref, meta)
    values (p_row.workspace_id, core.uuid7(p_now), p_row.delivery_id, p_row.message_id, p_row.channel_id, p_now, p_action,
            p_row.attempt, case when p_error is null then 'ok' else 'error' end, p_error,
            p_meta ->> 'payload_ref', jsonb_build_object('trace_id', p_row.trace_id) || core.redact(p_meta - 'payload_ref'))
$$;

CREATE FUNCTION autopost.note_failure() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
    kind constant text := case new.action when 'dead_letter' then 'delivery.dead' when 'channel_disabled' then 'channel.disabled'
                                          else 'delivery.failed_permanent' end;
begin
    insert into ops.failures (workspace_id, event_id, ts, type, data)
    select new.workspace_id, new.id, new.ts, kind, autopost.failure_data(new)
    where exists (select from ops.webhooks w
                  where w.workspace_id = new.workspace_id and w.enabled and kind = any (w.events));
    return null;
end $$;

CREATE FUNCTION autopost.note_findings(p_workspace_id text, p_source text, p_found jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.findings as f (workspace_id, source, kind, subject, says, details, found_at, last_seen_at)
    select p_workspace_id, p_source, x.kind, x.subject, left(min(x.says), 500), coalesce((array_agg(x.details))[1], '{}'), p_now, p_now
    from jsonb_to_recordset(p_found) x (kind text, subject text, says text, details jsonb)
    group by x.kind, x.subject order by x.kind, x.subject limit 1000
    on conflict (workspace_id, source, kind, subject) do update
    set says = excluded.says, details = excluded.details, last_seen_at = excluded.last_seen_at
$$;

CREATE FUNCTION autopost.note_paces(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS bigint
    LANGUAGE sql
    AS $$
    with noted as (
        insert into autopost.channel_paces as x (workspace_id, channel_id, pace, since)
        select p_workspace_id, n.channel_id, n.pace, p_now from autopost.current_paces(p_workspace_id) n
        left join autopost.channel_paces k on k.workspace_id = p_workspace_id and k.channel_id = n.channel_id
        where k.pace is distinct from n.pace
        order by n.channel_id
        on conflict (workspace_id, channel_id) do update set pace = excluded.pace, since = excluded.since
        returning 1
    )
    select count(*) from noted
$$;

CREATE FUNCTION autopost.note_payload_read(p_workspace_id text, p_actor text, p_via text, p_action text, p_payload_ref text, p_reason text, p_outcome text, p_link_id uuid DEFAULT NULL::uuid, p_now timestamp with time zone DEFAULT now()) RETURNS uuid
    LANGUAGE sql
    AS $$
    insert into core.payload_reads (workspace_id, read_id, ts, actor, via, action, payload_ref, reason, outcome, link_id)
    values (p_workspace_id, core.uuid7(p_now), p_now, left(p_actor, 200), p_via, p_action, left(p_payload_ref, 100),
            left(core.redact_text(p_reason), 500), p_outcome, p_link_id)
    returning read_id
$$;

CREATE FUNCTION autopost.note_pull(p_workspace_id text, p_source_id text, p_run_id uuid, p_read integer, p_fresh autopost.pulled[], p_notes jsonb, p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $_$
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
$_$;

CREATE FUNCTION autopost.nth_begin(p_calendar jsonb, p_from timestamp with time zone, p_n bigint, p_step interval) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
declare
    step constant double precision := extract(epoch from p_step);
    at timestamptz := autopost.first_moment(p_calendar, p_from, p_from);
    behind bigint := p_n;
    closes timestamptz;
    room bigint;
begin
    for stretch in 1 .. 1000 loop
        exit when at is null or at = 'infinity';
        closes := case when p_calendar is not null
                       then autopost.window_closes(p_calendar -> 'window', p_calendar ->> 'timezone', at) else 'infinity' end;
        room := case when closes = 'infinity' then behind + 1 else ceil(extract(epoch from closes - at) / step) end;
        if behind < room then
            return at + behind * p_step;
        end if;
        behind := behind - room;
        at := autopost.first_moment(p_calendar, greatest(closes, at + room * p_step), closes);
    end loop;
    return 'infinity';
end $$;

CREATE FUNCTION autopost.old_deliveries(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE sql STABLE
    AS $$
    select array(select d.delivery_id from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.delivery_id < ops.first_id(p_now - p_keep)
                   and d.delivery_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')::uuid
                 order by d.delivery_id limit p_limit)
$$;

CREATE FUNCTION autopost.old_event_days(p_now timestamp with time zone DEFAULT now()) RETURNS SETOF date
    LANGUAGE sql STABLE
    AS $_$
    select d.day
    from (select to_date(right(c.relname, 8), 'YYYYMMDD') as day
          from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
          where i.inhparent = 'autopost.events'::regclass and c.relname ~ '^events_[0-9]{8}$') d
    where (d.day + 1)::timestamp at time zone 'UTC' <= autopost.event_horizon(p_now)
    order by d.day
$_$;

CREATE FUNCTION autopost.old_messages(p_workspace_id text, p_keep interval, p_after text, p_limit integer, p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE sql STABLE
    AS $$
    select array(select m.message_id from autopost.messages m
                 where m.workspace_id = p_workspace_id and m.message_id < ops.first_id(p_now - p_keep)
                   and m.message_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')::uuid
                 order by m.message_id limit p_limit)
$$;

CREATE FUNCTION autopost.oldest_event_day(p_workspace_id text, p_keep interval, p_now timestamp with time zone DEFAULT now()) RETURNS date
    LANGUAGE sql STABLE
    AS $$
    select (least(
        (select min(e.ts) from autopost.events_default e
         where e.workspace_id = p_workspace_id and e.ts < date_trunc('day', p_now - p_keep, 'UTC')),
        (select min(e.ts) from autopost.events e
         where e.workspace_id = p_workspace_id and e.ts < date_trunc('day', p_now - p_keep, 'UTC')
           and e.ts >= autopost.event_horizon(p_now))) at time zone 'UTC')::date
$$;

CREATE FUNCTION autopost.one_window_problem(p_window jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case
        when jsonb_path_exists(p_window, '$[*] ? (@.type() == "number")')
            then format('%s is a number, not a time; put times in quotes, as "12:30"',
                        left(jsonb_path_query_first(p_window, '$[*] ? (@.type() == "number")')::text, 32))
        when jsonb_typeof(p_window) <> 'array' or jsonb_array_length(p_window) <> 2
            then 'each window is a list of its own, from and to, as [["09:00", "18:00"]]'
        when p_window ->> 0 !~ '^([01]\d|2[0-3]):[0-5]\d$' or jsonb_typeof(p_window -> 0) <> 'string'
            then format('%s is not a time to open; write it as "09:00"', left((p_window -> 0)::text, 32))
        when p_window ->> 1 !~ '^(([01]\d|2[0-3]):[0-5]\d|24:00)$' or jsonb_typeof(p_window -> 1) <> 'string'
            then format('%s is not a time to close; write it as "18:00"', left((p_window -> 1)::text, 32))
        when p_window -> 0 = p_window -> 1
            then format('opens and closes at %s; the whole day is ["00:00", "24:00"]', p_window ->> 0) end
$_$;

CREATE FUNCTION autopost.only_channels(p_raw jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when jsonb_typeof(p_raw -> 'channels') = 'array'
                then array(select jsonb_array_elements_text(p_raw -> 'channels')) end
$$;

CREATE FUNCTION autopost.only_hosts(p_style jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case jsonb_typeof(p_style -> 'only_hosts') when 'array' then array(select jsonb_array_elements_text(p_style -> 'only_hosts'))
                                                      when 'string' then array[p_style ->> 'only_hosts'] end
$$;

CREATE FUNCTION autopost.only_warning(p_workspace_id text, p_stored autopost.stored) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select case when p_stored.only_channels is not null then autopost.unknown_channels(p_workspace_id, p_stored.only_channels) end
$$;

CREATE FUNCTION autopost.open_hours(p_window jsonb, p_from date, p_to date) RETURNS tsmultirange
    LANGUAGE sql STABLE
    AS $$
    select coalesce(range_agg(tsrange(d.day + w.opens, least(
               d.day + w.closes + case when w.closes <= w.opens then interval '24 hours' else interval '0' end,
               case when p_window -> 'except' ? to_char(d.day + 1, 'YYYY-MM-DD') then (d.day + 1)::timestamp end))), '{}')
    from (select p_from + n as day from generate_series(0, p_to - p_from) n) d,
         lateral (select (w ->> 0)::time as opens, (w ->> 1)::time as closes
                  from jsonb_array_elements(autopost.windows_of_day(p_window, d.day)) w) w
    -- A range without an end would be open for ever.
    where w.opens is not null and w.closes is not null
$$;

CREATE FUNCTION autopost.paced_of(p_workspace_id text, p_channel_ids text[]) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    select coalesce(array_agg(c.channel_id), '{}')
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids) and autopost.is_paced(c, g)
$$;

CREATE FUNCTION autopost.past_warning(p_stored autopost.stored, p_now timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_stored.scheduled_for < p_now - interval '1 minute' then 'scheduled_for is in the past: it goes at once' end
$$;

CREATE FUNCTION autopost.patience_of(p_delivery autopost.deliveries, p_error jsonb, p_policy autopost.policies, p_now timestamp with time zone) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select jsonb_build_object('not_ready_since', since,
                              'not_ready_attempts', coalesce((p_delivery.render_meta ->> 'not_ready_attempts')::integer, 0) + 1)
    from (select coalesce((p_delivery.render_meta ->> 'not_ready_since')::timestamptz, p_now)) first (since)
    where p_error ->> 'code' = 'attachment.not.ready' and p_now < since + p_policy.not_ready_patience
$$;

CREATE FUNCTION autopost.pause_channel(p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_for interval, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
declare
    moment timestamptz;
begin
    perform from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    perform autopost.require_channels(found, format('no channel %s', p_channel_id), p_workspace_id);
    moment := coalesce(p_now, clock_timestamp());
    update autopost.channels c set paused_until = moment + p_for, updated_at = moment
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
    perform autopost.release_claims(p_workspace_id, array[p_channel_id], 'channel_paused', moment);
    perform autopost.note_channels(p_workspace_id, array[p_channel_id], 'channel_paused',
        jsonb_build_object('operator', p_operator, 'reason', core.redact_text(p_reason), 'manual', true), moment);
    return moment + p_for;
end $$;

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

CREATE FUNCTION autopost.payloads_keep(p_workspace_id text) RETURNS interval
    LANGUAGE sql STABLE
    AS $$
    select case when ops.retention_options(p_workspace_id, 'payloads') -> 'may_outlive_deliveries' = 'true'
                then ops.keep_of(p_workspace_id, 'payloads')
                else least(ops.keep_of(p_workspace_id, 'payloads'), ops.keep_of(p_workspace_id, 'deliveries')) end
$$;

CREATE FUNCTION autopost.photo_problem(p_item jsonb, p_own jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_item ->> 'content_type' in ('image/heic', 'image/tiff') then 'Telegram shows no HEIC or TIFF pictures'
        when width + height > 10000 or greatest(width, height) > 20 * least(width, height)
            then format('Telegram shows no picture of %s x %s points', width, height)
        else autopost.item_size_problem('telegram', p_item, 'image', p_own) end
    from (select (p_item ->> 'width')::bigint, (p_item ->> 'height')::bigint) side (width, height)
$$;

CREATE FUNCTION autopost.plan_forms(p_workspace_id text, p_stored autopost.stored[], p_now timestamp with time zone) RETURNS SETOF autopost.form
    LANGUAGE sql
    AS $$
    with policy as materialized (
        select p from autopost.policy_of(p_workspace_id) p
    ), message as materialized (
        select s.*, to_jsonb(s.tags) as tags_json,
               case when s.payload ? 'media' then autopost.media_of(p_workspace_id, s.payload -> 'media') end as media
        from unnest(p_stored) s
    ), kind as (
        select m.item, c.platform, c.send_mode,
               coalesce(m.payload ->> 'parse_mode', c.settings ->> 'parse_mode', 'None') as parse_mode,
               coalesce(m.payload -> 'disable_preview', c.settings -> 'disable_preview', 'false') as disable_preview,
               case when c.template_ref is null and not c.settings ?| '{utm,long_text,large_image}' then null
                    else autopost.style_of(p_workspace_id, c) end as style,
               case when c.window_mode = 'windowed'
                    then jsonb_build_object('window', c.posting_window, 'timezone', c.timezone) end as calendar,
               array_agg(c.channel_id) as channels, array_agg(c.dedup_ttl_hours) as ttls
        from message m
        join autopost.channels c on c.workspace_id = p_workspace_id and c.enabled
            and autopost.routes_to(c.route_filter, m.tags, m.tags_json)
            and case when m.only_channels is null then true else c.channel_id = any (m.only_channels) end
        group by 1, 2, 3, 4, 5, 6, 7
    )
    select m.item, m.message_id, m.is_new, m.payload, m.content_hash, m.trace_id, m.created_at, k.platform, r.parse_mode, r.text,
           k.style ->> 'template_version',
           jsonb_strip_nulls(jsonb_build_object('converter', 1, 'parse_mode', r.parse_mode, 'disable_preview', k.disable_preview,
               'buttons', autopost.buttons_of(m.payload -> 'buttons', k.style), 'long_text', k.style -> 'long_text',
               'more_link', case when k.style ? 'long_text' then r.more_link end,
               'upload_policy', case when k.platform = 'max' and m.media is not null and (policy.p).upload_policy <> '{}'
                                     then (policy.p).upload_policy end,
               'largest', case when m.media is not null then (policy.p).media_max_bytes -> k.platform end)),
           coalesce(
               autopost.validation_error(coalesce(
                   autopost.send_mode_problem(k.send_mode, m.payload), r.problem,
                   autopost.preflight_problem(k.platform, r.text, r.parse_mode, m.payload, coalesce(k.style ->> 'long_text', 'refuse'), r.more_link),
                   case when moment.at is null then 'the posting window of this channel never opens' end)),
               case when m.media is not null
                    then autopost.media_error(k.platform, m.media, r.parse_mode, r.text, m.payload, k.style, policy.p) end),
           m.media is not null and autopost.media_is_pending(k.platform, m.media, (policy.p).upload_policy),
           m.scheduled_for, coalesce(moment.at, p_now), k.channels, k.ttls
    from kind k
    join message m on m.item = k.item
    cross join policy,
    lateral (select * from autopost.render_post(m.payload, m.tags, m.source, k.parse_mode, k.style) offset 0) r,
    lateral (select autopost.first_moment(k.calendar, m.scheduled_for, p_now) as at offset 0) moment
$$;

CREATE FUNCTION autopost.planned_deliveries(p_workspace_id text, p_channel_id text DEFAULT NULL::text, p_limit integer DEFAULT 200, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(goes_at timestamp with time zone, channel_id text, status text, message_id uuid, delivery_id uuid, scheduled_for timestamp with time zone, shows text)
    LANGUAGE sql STABLE
    AS $$
    with channel as materialized (
        select c.channel_id, autopost.calendar_of(c) as calendar from autopost.channels c
        where c.workspace_id = p_workspace_id and (p_channel_id is null or c.channel_id = p_channel_id)
    ), opening as materialized (
        select x.calendar, autopost.first_moment(x.calendar, p_now, p_now) as at from (select distinct c.calendar from channel c) x
    ), soonest as (
        select w.*, o.at as opens
        from channel c
        join opening o on o.calendar is not distinct from c.calendar,
        lateral (
            (select d.delivery_id, d.channel_id, d.created_at, d.not_before as due from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'queued'
             order by d.not_before, d.created_at limit p_limit)
            union all
            (select d.delivery_id, d.channel_id, d.created_at, d.not_before from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'claimed'
             order by d.not_before, d.created_at limit p_limit)
            union all
            (select d.delivery_id, d.channel_id, d.created_at, greatest(d.next_retry_at, d.not_before) from autopost.deliveries d
             where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
             order by greatest(d.next_retry_at, d.not_before), d.created_at limit p_limit)) w
        order by greatest(w.due, o.at), w.due, w.created_at, w.channel_id limit p_limit
    )
    select x.at, d.channel_id, d.status, d.message_id, d.delivery_id, d.scheduled_for,
           left(regexp_replace(case when d.render_meta ->> 'parse_mode' = 'HTML' then autopost.without_tags(d.rendered_text)
                                    else d.rendered_text end, '\s+', ' ', 'g'), 80)
    from soonest w
    join autopost.deliveries d on d.workspace_id = p_workspace_id and d.delivery_id = w.delivery_id
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = d.channel_id,
    lateral (select case when d.held_at is not null or d.not_before = 'infinity' then null
                         when d.status = 'retry' then autopost.goes_at(d, c, p_now)
                         else greatest(d.not_before, w.opens, p_now) end as at offset 0) x
    order by x.at, w.due, w.created_at, w.channel_id
$$;

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

CREATE FUNCTION autopost.preflight_problem(p_platform text, p_text text, p_parse_mode text, p_payload jsonb, p_long_text text DEFAULT 'refuse'::text, p_more_link text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    allowed constant integer := autopost.text_limit(p_platform);
    measured integer;
    problem text;
begin
    if p_parse_mode not in ('HTML', 'Markdown', 'None') then
        return format('unknown parse mode %s', left(p_parse_mode, 32));
    elsif p_long_text not in ('refuse', 'split', 'truncate_with_link') then
        return format('unknown long_text %s: refuse, split or truncate_with_link', left(p_long_text, 32));
    elsif p_text is null and p_payload ? 'media' then
        return autopost.buttons_problem(p_platform, p_payload -> 'buttons');
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
    if measured > allowed and p_long_text = 'refuse' then
        return format('text is too long: %s of %s characters', measured, allowed);
    elsif measured > allowed and p_long_text = 'truncate_with_link' and p_more_link is null then
        return format('text is too long (%s of %s characters), and there is no link to the whole of it', measured, allowed);
    elsif p_parse_mode <> 'Markdown' and btrim(autopost.visible_text(p_text, p_parse_mode), E' \t\n') = '' then
        return 'nothing is left of the text once its markup is taken away';
    end if;
    return autopost.buttons_problem(p_platform, p_payload -> 'buttons');
end $$;

CREATE FUNCTION autopost.preview_post(p_workspace_id text, p_raw_payload_json jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(channel_id text, title text, platform text, target_id text, settings jsonb, matches boolean, reason text, rendered_text text, render_meta jsonb, template_version text, media jsonb, error jsonb, duplicate text, media_pending boolean, goes_at timestamp with time zone, warnings text[], matching bigint, total bigint)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    problems constant text[] := autopost.payload_problems(p_raw_payload_json);
    post autopost.stored;
    policy autopost.policies;
begin
    if problems <> '{}' then
        raise exception 'invalid payload: %', array_to_string(problems, '; ')
            using errcode = 'VP001', detail = to_json(problems)::text;
    end if;
    perform autopost.require_workspace(p_workspace_id);
    post := autopost.as_stored(p_workspace_id, p_raw_payload_json, p_now);
    policy := autopost.policy_of(p_workspace_id);
    return query
    with form as materialized (
        select f.*, u.id from autopost.plan_forms(p_workspace_id, array[post], p_now) f, unnest(f.channels) u (id)
    )
    select c.channel_id, c.title, c.platform, c.target_id, c.settings, f.id is not null,
           case when f.id is null then autopost.unwanted_reason(c, post) end,
           f.text, f.meta, f.template_version,
           case when post.payload ? 'media' and f.id is not null then autopost.media_of(p_workspace_id, post.payload -> 'media') end,
           f.error,
           case when f.id is not null and not post.is_new then autopost.duplicate_reason(p_workspace_id, c.channel_id, post.content_hash,
                p_now - autopost.dedup_window(coalesce(c.dedup_ttl_hours, policy.dedup_ttl_hours))) end,
           f.media_pending, f.not_before,
           case when f.id is not null then autopost.preview_warnings(
               p_workspace_id, c, f.not_before, f.error is null, coalesce(c.min_gap, policy.min_gap), p_now) end,
           count(f.id) over (), count(*) over ()
    from autopost.channels c left join form f on f.id = c.channel_id
    where c.workspace_id = p_workspace_id
    order by f.id is null, c.channel_id;
end $$;

CREATE FUNCTION autopost.preview_post_warnings(p_workspace_id text, p_raw_payload_json jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    select array_remove(array[
        (select 'the workspace is paused: nothing goes out until it is active'
         from core.workspaces w where w.workspace_id = p_workspace_id and w.status = 'paused'),
        autopost.tags_warning(s, t.tags), autopost.only_warning(p_workspace_id, s), autopost.past_warning(s, p_now)], null)
    from autopost.as_stored(p_workspace_id, p_raw_payload_json, p_now) s,
         lateral (select autopost.normalize_tags(autopost.array_of(p_raw_payload_json, 'tags'), s.payload ->> 'text') as tags) t
$$;

CREATE FUNCTION autopost.preview_warnings(p_workspace_id text, p_channel autopost.channels, p_at timestamp with time zone, p_goes boolean, p_minimum interval, p_now timestamp with time zone) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    select array_remove(array[
        case when p_channel.paused_until = 'infinity' then 'the channel is paused'
             when p_channel.paused_until > p_at
             then format('the channel is paused until %s', to_char(p_channel.paused_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI UTC')) end,
        case when near.apart < p_minimum
             then 'closer to another post than the channel''s minimum gap: ' || autopost.gap_in_words(near.apart, p_minimum) end], null)
    from (select case when p_goes and p_minimum is not null
                      then autopost.nearest_post(p_workspace_id, p_channel, p_at, p_minimum, null, p_now) end as apart) near
$$;

CREATE FUNCTION autopost.prove_page(p_workspace_id text, p_limit integer DEFAULT 5000, p_longest interval DEFAULT '06:00:00'::interval, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(events bigint, troubles jsonb, skipped interval, is_last boolean)
    LANGUAGE plpgsql
    AS $$
declare
    kept jsonb;
    after timestamptz;
    until timestamptz;
    asked uuid[];
    seen bigint;
begin
    insert into autopost.checks (workspace_id, source, pass_began_at) values (p_workspace_id, 'proof', p_now) on conflict do nothing;
    select c.place into kept from autopost.checks c where c.workspace_id = p_workspace_id and c.source = 'proof' for no key update;
    after := coalesce((kept ->> 'proven_until')::timestamptz, p_now - interval '20 minutes');
    skipped := greatest(p_now - p_longest - after, '0');
    after := least(greatest(after, p_now - p_longest), p_now);
    perform autopost.note_paces(p_workspace_id, p_now);

    select max(e.ts), count(*) into until, seen
    from (select e.ts from autopost.events e
          where e.workspace_id = p_workspace_id and e.ts > after and e.ts <= p_now order by e.ts limit p_limit) e;
    is_last := seen < p_limit;
    until := case when is_last then p_now else until end;
    asked := array(select distinct e.delivery_id from autopost.events e
                   where e.workspace_id = p_workspace_id and e.ts > after and e.ts <= until and e.delivery_id is not null);
    troubles := autopost.troubles_of(p_workspace_id, asked, after, until, p_now);
    perform autopost.note_findings(p_workspace_id, 'proof', troubles, p_now);

    -- Events of transactions that are still under way come behind those that are seen: the last minute is looked at once more.
    update autopost.checks c
    set place = jsonb_build_object('proven_until', case when is_last then p_now - autopost.side_by_side() else until end),
        pass_ended_at = case when is_last then p_now else c.pass_ended_at end, updated_at = p_now
    where c.workspace_id = p_workspace_id and c.source = 'proof';
    events := seen;
    return next;
end $$;

CREATE FUNCTION autopost.prune_deliveries(p_workspace_id text, p_keep interval, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now(), OUT removed bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.prune_events(p_workspace_id text, p_keep interval, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now(), p_before timestamp with time zone DEFAULT NULL::timestamp with time zone, OUT removed bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.prune_handles(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now(), OUT removed bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.prune_messages(p_workspace_id text, p_keep interval, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now(), OUT removed bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.prune_runs(p_workspace_id text, p_keep interval, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now(), OUT removed bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.pull_cursor(p_workspace_id text, p_source_id text) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select coalesce((select c.cursor_json from autopost.pull_cursors c
                     where c.workspace_id = p_workspace_id and c.source_id = p_source_id), '{}')
$$;

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
      and coalesce(c.penalized_at, '-infinity') < coalesce(p_row.claimed_at, p_row.sending_started_at, p_now)
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

CREATE FUNCTION autopost.put_call(p_workspace_id text, p_idempotency_key text, p_taken_until timestamp with time zone, p_answer jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    if p_answer is null then
        delete from autopost.adapter_answers a where a.workspace_id = p_workspace_id and a.idempotency_key = p_idempotency_key
          and a.taken_until = p_taken_until and a.answer is null;
    else
        update autopost.adapter_answers a set answer = p_answer
        where a.workspace_id = p_workspace_id and a.idempotency_key = p_idempotency_key and a.answer is null;
    end if;
    return found;
end $$;

CREATE FUNCTION autopost.put_upload(p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_handle text, p_expires_at timestamp with time zone, p_token uuid DEFAULT NULL::uuid, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into autopost.media_blobs as b (workspace_id, blob_ref, provider, auth_ref, sent_as, file_id, expires_at, created_at, updated_at)
    values (p_workspace_id, p_blob_ref, p_provider, p_auth_ref, p_sent_as, p_handle, p_expires_at, p_now, p_now)
    on conflict (workspace_id, blob_ref, provider, auth_ref, sent_as) do update
    set file_id = excluded.file_id, expires_at = excluded.expires_at, taken_by = null, taken_until = null
    where p_token is null or b.taken_by = p_token
$$;

CREATE FUNCTION autopost.queue_snapshot(p_workspace_id text) RETURNS TABLE(workspace_id text, status text, count bigint, oldest timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    select d.workspace_id, d.status, count(*), min(d.created_at)
    from autopost.deliveries d where d.workspace_id = p_workspace_id group by d.workspace_id, d.status order by d.status
$$;

CREATE FUNCTION autopost.queue_until(p_delivery autopost.deliveries, p_channel autopost.channels, p_group autopost.platform_limits, p_claims bigint, p_due bigint, p_later bigint, p_gated_until timestamp with time zone, p_now timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select greatest(
        autopost.nth_begin(calendar, greatest(p_gated_until, pace.until), p_claims + p_due + p_later, pace.step),
        case when p_delivery.status = 'queued' then autopost.nth_begin(calendar, greatest(p_gated_until, pace.until,
            case when p_channel.rate_rps > 0 then p_channel.next_allowed_at end,
            case when p_group.rate_rps > 0 then p_group.next_allowed_at end), p_due + p_later, pace.step) end,
        case when p_later > 0 then (
            select max(autopost.nth_begin(calendar, greatest(p_gated_until, pace.until, w.at), w.n::bigint, pace.step))
            from (select o.not_before as at, sum(count(*)) over (order by o.not_before desc) as n from autopost.deliveries o
                  where o.workspace_id = p_delivery.workspace_id and o.channel_id = p_delivery.channel_id and o.status = 'queued'
                    and o.not_before > p_now and o.not_before <= p_delivery.not_before and o.created_at < p_delivery.created_at
                  group by o.not_before order by o.not_before desc limit 100) w) end)
    from (select autopost.calendar_of(p_channel)) c (calendar),
         (select greatest(autopost.step_of(p_channel.rate_rps), autopost.step_of(p_group.rate_rps)),
                 greatest(p_channel.last_begin_at + autopost.step_of(p_channel.rate_rps),
                          p_group.last_begin_at + autopost.step_of(p_group.rate_rps))) pace (step, until)
$$;

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
           and d.status = 'retry' and d.not_before <= p_now order by d.next_retry_at limit 1)) <= p_now
    limit p_limit
$$;

CREATE FUNCTION autopost.recent_errors(p_workspace_id text, p_limit integer DEFAULT 200, p_for interval DEFAULT '00:30:00'::interval, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(ts timestamp with time zone, action text, result text, channel_id text, delivery_id uuid, attempt integer, error jsonb, meta jsonb)
    LANGUAGE sql STABLE
    AS $$
    select e.ts, e.action, e.result, e.channel_id, e.delivery_id, e.attempt, e.error, e.meta
    from autopost.events e
    where e.workspace_id = p_workspace_id and e.ts >= p_now - p_for and e.result = 'error'
    order by e.ts desc, e.id desc limit p_limit
$$;

CREATE FUNCTION autopost.reconcile_refs(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now(), OUT removed bigint, OUT more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.record_progress(p_workspace_id text, p_delivery_id uuid, p_lease integer, p_calls integer, p_message_ids text[], p_items integer[], p_plan jsonb DEFAULT NULL::jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform autopost.count_call(p_workspace_id, p_delivery_id, p_now);
    update autopost.deliveries d
    set render_meta = case when (d.render_meta #>> '{series_progress,calls}')::integer >= p_calls then d.render_meta else
            jsonb_strip_nulls(jsonb_build_object('series_plan', p_plan))
            || (d.render_meta - '{not_ready_since,not_ready_attempts}'::text[])
            || jsonb_build_object('series_progress', jsonb_build_object(
                'calls', p_calls, 'attempt', d.attempt,
                'sent_items', coalesce(d.render_meta #> '{series_progress,sent_items}', '[]') || to_jsonb(p_items),
                'provider_message_ids', coalesce(d.render_meta #> '{series_progress,provider_message_ids}', '[]') || to_jsonb(p_message_ids))) end,
        sending_started_at = p_now, updated_at = p_now
    where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id and d.status || '' = 'sending' and d.lease = p_lease;
    return found;
end $$;

CREATE FUNCTION autopost.record_refusals(p_workspace_id text, p_endpoint_id text, p_action text, p_reason text, p_count integer, p_now timestamp with time zone DEFAULT now(), p_payload_ref text DEFAULT NULL::text) RETURNS void
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

CREATE FUNCTION autopost.redacted_answer(p_answer jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_answer - '{message_id,chat_id,date,media_group_id,mid,seq,timestamp,message_ids}'::text[] = '{}' then p_answer
                else core.redact(p_answer) end
$$;

CREATE FUNCTION autopost.ref_count(p_workspace_id text, p_blob_ref text) RETURNS bigint
    LANGUAGE sql STABLE
    AS $_$
    select count(*) from autopost.messages m
    where m.workspace_id = p_workspace_id and m.payload ? 'media'
      and jsonb_path_query_array(m.payload, '$.media[*].blob_ref') @> jsonb_build_array(p_blob_ref)
$_$;

CREATE FUNCTION autopost.refuse_replacement(p_message_id uuid, p_stays jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    problems constant text[] := array(
        select format('the old post stays in %s%s: %s', array_to_string((array_agg(k.key order by k.key))[:5], ', '),
                      case when count(*) > 5 then format(' and %s more', count(*) - 5) end, k.value)
        from jsonb_each_text(p_stays) k group by k.value order by min(k.key));
begin
    if problems = '{}' then
        raise exception 'nothing of message % waits to be sent', p_message_id using errcode = 'VN001';
    end if;
    raise exception 'nothing is replaced: %', array_to_string(problems, '; ') using errcode = 'VP001', detail = to_json(problems)::text;
end $$;

CREATE FUNCTION autopost.release_claims(p_workspace_id text, p_channel_ids text[], p_reason text, p_now timestamp with time zone) RETURNS integer
    LANGUAGE sql
    AS $$
    with claimed as (
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.channel_id = any (p_channel_ids) and d.status = 'claimed'
        for no key update skip locked
    ), released as (
        update autopost.deliveries d
        set status = 'queued', not_before = coalesce(d.scheduled_for, d.created_at), claimed_at = null, claim_token = null, updated_at = p_now
        from claimed c
        where d.workspace_id = p_workspace_id and d.delivery_id = c.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), r.delivery_id, r.message_id, r.channel_id, p_now, 'claim_released', r.attempt,
               jsonb_build_object('trace_id', r.trace_id, 'reason', p_reason)
        from released r
    )
    select count(*)::integer from released
$$;

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

CREATE FUNCTION autopost.release_media(p_workspace_id text, p_message autopost.messages, p_now timestamp with time zone) RETURNS integer
    LANGUAGE sql
    AS $$
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

CREATE FUNCTION autopost.release_stuck(p_workspace_id text, p_operator text, p_older_than interval DEFAULT '00:10:00'::interval, p_limit integer DEFAULT 1000, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, channel_id text, from_status text, outcome text)
    LANGUAGE sql
    AS $$
    with stuck as (
        select d.delivery_id, d.status, d.status = 'sending' and c.on_unknown = 'hold' as hold
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.status in ('claimed', 'sending')
          and coalesce(d.sending_started_at, d.claimed_at) < p_now - p_older_than
        order by d.delivery_id limit p_limit
        for no key update of d skip locked
    ), moved as (
        update autopost.deliveries d
        set status = 'retry', next_retry_at = case when s.hold then 'infinity' else p_now + interval '15 seconds' end,
            held_at = case when s.hold then p_now end,
            claimed_at = null, claim_token = null, sending_started_at = null, updated_at = p_now
        from stuck s
        where d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, s.status as from_status, s.hold
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, a.action, m.attempt,
               jsonb_build_object('operator', p_operator, 'reason', 'manual_stuck_release')
        from moved m, lateral (values ('manual_requeue'), (case when m.hold then 'held' end)) a (action)
        where a.action is not null
    )
    select m.delivery_id, m.channel_id, m.from_status, case when m.hold then 'held' else 'retry' end
    from moved m order by m.channel_id, m.delivery_id
$$;

CREATE FUNCTION autopost.remedy_for(p_gate text, p_delivery autopost.deliveries, p_channel autopost.channels) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select case
        when p_gate = 'workspace' then 'status: active in its declaration'
        when p_gate = 'disabled' and autopost.disabled_with_group(p_channel)
            then format('vestnik enable-group %s %s', autopost.shell_word(p_channel.workspace_id), autopost.shell_word(p_channel.rate_group))
        when p_gate in ('disabled', 'paused')
            then format('vestnik resume %s %s', autopost.shell_word(p_channel.workspace_id), autopost.shell_word(p_channel.channel_id))
        when p_gate = 'held' then format('vestnik unknown confirm %s, or vestnik unknown resend %s', p_delivery.delivery_id, p_delivery.delivery_id)
        when p_gate in ('dead', 'cancelled') or p_gate = 'failed_permanent' and coalesce(p_delivery.last_error ->> 'scope', 'delivery') = 'delivery'
            then format('vestnik requeue %s', p_delivery.delivery_id)
        when p_gate = 'failed_permanent' then 'put right what the platform refused, then push the post again'
        when p_gate = 'deduped' then 'push it again once the dedup window of the channel is over' end
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

CREATE FUNCTION autopost.remove_channel(p_workspace_id text, p_actor text, p_channel_id text, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    if not found then
        raise exception 'no channel % in workspace %', p_channel_id, p_workspace_id using errcode = 'VN001';
    end if;
    if exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id) then
        raise exception 'channel % has deliveries, which refer to it; disable it instead', p_channel_id using errcode = 'VM001';
    end if;
    delete from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
    perform core.note_change(p_workspace_id, p_actor, 'removed', 'channel ' || p_channel_id, '{}', p_now);
end $$;

CREATE FUNCTION autopost.remove_credential(p_workspace_id text, p_actor text, p_platform text, p_auth_ref text, p_although_used boolean, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    used bigint;
begin
    select count(*) into used from autopost.channels c
    left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
    where c.workspace_id = p_workspace_id and c.platform = p_platform and coalesce(a.auth_ref, c.auth_ref) = p_auth_ref;
    if used > 0 and not p_although_used then
        raise exception '% channels send with credential %/%', used, p_platform, p_auth_ref using errcode = 'VM001';
    end if;
    delete from core.credential_bindings b
    where b.workspace_id = p_workspace_id and b.platform = p_platform and b.auth_ref = p_auth_ref;
    if not found then
        raise exception 'no credential %/% in workspace %', p_platform, p_auth_ref, p_workspace_id using errcode = 'VN001';
    end if;
    perform core.note_change(p_workspace_id, p_actor, 'removed', 'credential ' || p_platform || '/' || p_auth_ref,
        jsonb_build_object('channels', used), p_now);
end $$;

CREATE FUNCTION autopost.remove_source(p_workspace_id text, p_source_id text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform ops.remove_schedule(p_workspace_id, 'source:' || p_source_id);
    delete from autopost.pull_sources s where s.workspace_id = p_workspace_id and s.source_id = p_source_id;
    return found;
end $$;

CREATE FUNCTION autopost.render_post(p_payload jsonb, p_tags text[], p_source jsonb, p_parse_mode text, p_style jsonb, OUT text text, OUT parse_mode text, OUT more_link text, OUT problem text) RETURNS record
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
    hosts text[];
begin
    parse_mode := p_parse_mode;
    if p_style is null then
        text := autopost.render_text(p_payload, p_parse_mode);
        return;
    end if;
    if p_style ? 'template' then
        if not p_style ? 'body' then
            problem := format('there is no template %s', p_style ->> 'template');
            return;
        end if;
        parse_mode := autopost.template_mode(p_style ->> 'template_mode', p_parse_mode);
        if parse_mode is null then
            parse_mode := p_parse_mode;
            problem := format('template %s is %s, and the post is %s: they cannot be combined',
                              p_style ->> 'template', p_style ->> 'template_mode', p_parse_mode);
            return;
        end if;
        text := autopost.render_template(p_style ->> 'body', p_style -> 'defaults', p_style ->> 'template_mode',
            autopost.template_values(p_payload, p_tags, p_source, coalesce(p_style -> 'channel', '{}')), p_parse_mode);
    else
        text := autopost.render_text(p_payload, p_parse_mode);
    end if;
    more_link := p_payload #>> '{links,0}';
    if p_style ? 'utm' then
        hosts := autopost.only_hosts(p_style);
        text := autopost.rewrite_links(text, parse_mode, p_style -> 'utm', hosts);
        more_link := autopost.with_utm(more_link, p_style -> 'utm', hosts);
    end if;
end $$;

CREATE FUNCTION autopost.render_template(p_body text, p_defaults jsonb, p_template_mode text, p_values jsonb, p_text_mode text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    mode constant text := autopost.template_mode(p_template_mode, p_text_mode);
    kinds text[];
    pieces text[];
    post_text text := p_values ->> 'text';
    result text := '';
    hidden integer := 0;
    inside boolean := false;
    value text;
    p record;
begin
    if mode is null then
        return null;
    end if;
    select array_agg(t.kind), array_agg(t.piece) into kinds, pieces from autopost.template_pieces(p_body) t;
    if not exists (select from unnest(kinds, pieces) t (kind, piece) where t.kind = 'value' and t.piece in ('link', 'links')) then
        post_text := autopost.render_text(jsonb_strip_nulls(p_values), p_text_mode);
    end if;
    for p in select * from unnest(kinds, pieces) t (kind, piece) loop
        if hidden > 0 and p.kind in ('open', 'close') then
            hidden := hidden + case p.kind when 'open' then 1 else -1 end;
        elsif hidden > 0 or p.kind = 'close' then
            continue;
        elsif p.kind = 'literal' then
            inside := autopost.stays_inside(p.piece, inside, p_template_mode);
            result := result || case when p_template_mode = mode then p.piece else autopost.escape_value(p.piece, mode, false) end;
        elsif p.piece = 'text' and post_text <> '' then
            result := result || case when p.kind = 'open' then '' when coalesce(p_text_mode, 'None') = mode then post_text
                                     else autopost.escape_value(post_text, mode, inside) end;
        else
            value := autopost.template_value(p.piece, p_values, p_defaults);
            hidden := case when p.kind = 'open' and value = '' then 1 else 0 end;
            result := result || case when p.kind = 'open' then '' else autopost.escape_value(value, mode, inside) end;
        end if;
    end loop;
    -- What had no value leaves no hole.
    return btrim(regexp_replace(regexp_replace(result, '[ \t]+\n', E'\n', 'g'), '\n{3,}', E'\n\n', 'g'), E' \t\n');
end $$;

CREATE FUNCTION autopost.render_text(p_payload jsonb, p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when not p_payload ? 'links' then p_payload ->> 'text' else
        concat_ws(E'\n\n', p_payload ->> 'text', (
            select string_agg(shown, E'\n' order by n)
            from jsonb_array_elements_text(p_payload -> 'links') with ordinality x (link, n),
                 lateral (select case when p_parse_mode = 'HTML' then autopost.escape_html(link)
                                      when p_parse_mode = 'Markdown' and link ~ '[][*_`~\\&!]' then '<' || link || '>'
                                      else link end) y (shown)
            where position(shown in coalesce(p_payload ->> 'text', '')) = 0
              and position(link in coalesce(p_payload ->> 'text', '')) = 0))
    end
$$;

CREATE FUNCTION autopost.replace_message(p_workspace_id text, p_operator text, p_message_id uuid, p_raw_payload_json jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(outcome text, message_id uuid, trace_id uuid, run_id uuid, enqueued integer, suppressed integer, failed integer, routed_by_tags text[], warnings text[], media_pending integer, too_late text[], kept jsonb)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_unsent(p_workspace_id, p_message_id, null, autopost.only_channels(p_raw_payload_json)));
    stays jsonb := '{}';
    refused jsonb;
    waiting uuid[];
    channels text[];
    moments timestamptz[];
    late text[];
    post jsonb;
    done record;
begin
    loop
        select coalesce(array_agg(d.delivery_id order by d.channel_id) filter (where w.waits), '{}'),
               coalesce(array_agg(d.channel_id order by d.channel_id) filter (where w.waits), '{}'),
               coalesce(array_agg(greatest(d.scheduled_for, p_now) order by d.channel_id) filter (where w.waits), '{}'),
               coalesce(array_agg(d.channel_id order by d.channel_id) filter (where not w.waits), '{}')
        into waiting, channels, moments, late
        from autopost.deliveries d, lateral (values (d.status || '' in ('queued', 'retry') and d.held_at is null
                                                     and not d.render_meta ? 'series_progress')) w (waits)
        where d.workspace_id = p_workspace_id and d.delivery_id = any (asked) and not stays ? d.channel_id;
        if waiting = '{}' then
            perform autopost.refuse_replacement(p_message_id, stays);
        end if;
        begin
            post := autopost.replacement(p_workspace_id, p_message_id, p_raw_payload_json, channels, moments, p_now);
            perform autopost.cancel_deliveries(p_workspace_id, p_operator, 'replaced by an edited post', null, waiting, null, p_now);
            select * into done from autopost.enqueue_messages_and_deliveries(p_workspace_id, null, 'webhook_push', post, p_now);
            if done.enqueued = cardinality(channels) then
                perform autopost.keep_moments(p_workspace_id, p_operator, done.message_id, channels, moments, p_raw_payload_json, p_now);
                return query select done.outcome, done.message_id, done.trace_id, done.run_id, done.enqueued, done.suppressed, done.failed,
                                    done.routed_by_tags, done.warnings, done.media_pending, late, stays;
                return;
            end if;
            refused := autopost.not_replaced(p_workspace_id, post, done.run_id, channels, p_now);
            if coalesce(refused, '{}') = '{}' then
                raise exception 'message % is not replaced in %, and nothing says why', p_message_id, array_to_string(channels, ', ');
            end if;
            raise exception 'not everywhere' using errcode = 'VR001';
        exception when sqlstate 'VR001' then
            stays := stays || refused;
        end;
    end loop;
end $$;

CREATE FUNCTION autopost.replace_origin(p_workspace_id text, p_blob_ref text, p_lost_path text, p_new_path text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    update autopost.media_origin o set origin_url = p_new_path, last_seen_at = greatest(o.last_seen_at, p_now)
    where o.workspace_id = p_workspace_id and o.blob_ref = p_blob_ref and o.origin_url = p_lost_path;
    return found;
end $$;

CREATE FUNCTION autopost.replacement(p_workspace_id text, p_message_id uuid, p_raw jsonb, p_channels text[], p_moments timestamp with time zone[], p_now timestamp with time zone) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object(
               'tags', (select to_jsonb(m.tags[:64]) from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = p_message_id),
               'scheduled_for', (select to_char(max(at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') from unnest(p_moments) at
                                 having max(at) > p_now)))
           || case when jsonb_typeof(p_raw) = 'object' then jsonb_strip_nulls(p_raw) else p_raw end
           || jsonb_build_object('channels', to_jsonb(p_channels))
$$;

CREATE FUNCTION autopost.replan_channel(p_workspace_id text, p_channel_id text, p_operator text, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE sql
    AS $$
    with waiting as materialized (
        select d.delivery_id, d.not_before, autopost.first_moment(autopost.calendar_of(c), d.scheduled_for, p_now) as at
        from autopost.channels c
        join autopost.deliveries d on d.workspace_id = c.workspace_id and d.channel_id = c.channel_id
        where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id
          and d.status in ('queued', 'retry') and d.held_at is null and d.not_before > p_now and d.not_before < 'infinity'
        order by d.delivery_id for no key update of d
    ), moved as (
        update autopost.deliveries d set not_before = w.at, updated_at = p_now
        from waiting w
        where d.workspace_id = p_workspace_id and d.delivery_id = w.delivery_id and d.status || '' in ('queued', 'retry') and w.at <> w.not_before
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, w.not_before, w.at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'rescheduled', m.attempt,
               jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', 'the hours of the channel changed',
                                  'from', m.not_before, 'to', m.at)
        from moved m
    )
    select count(*)::integer from moved
$$;

CREATE FUNCTION autopost.requeue_deliveries(p_workspace_id text, p_operator text, p_reason text, p_delivery_ids uuid[], p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(delivery_id uuid, channel_id text, outcome text, detail text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    moment timestamptz;
begin
    -- A push of the same post holds its message, and has judged by what it saw: either sees what the other leaves.
    perform from autopost.messages m
    where m.workspace_id = p_workspace_id and m.message_id in (
        select d.message_id from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids))
    order by m.content_hash for no key update;
    perform from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids) order by d.delivery_id for no key update;
    moment := coalesce(p_now, clock_timestamp());
    return query
    with asked as materialized (
        select d.delivery_id, d.channel_id, d.status, autopost.requeue_problem(d) as problem
        from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
    ), moved as (
        update autopost.deliveries d
        set status = 'retry', next_retry_at = moment, claimed_at = null, claim_token = null, sending_started_at = null, updated_at = moment
        from asked a
        where d.workspace_id = p_workspace_id and d.delivery_id = a.delivery_id and a.problem is null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, a.status as from_status
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(moment), m.delivery_id, m.message_id, m.channel_id, moment, 'manual_requeue', m.attempt,
               jsonb_build_object('operator', p_operator, 'reason', core.redact_text(p_reason), 'from_status', m.from_status)
        from moved m
    )
    select x.delivery_id, a.channel_id, case when m.delivery_id is null then 'refused' else 'requeued' end,
           case when a.delivery_id is null then 'there is no such delivery' else a.problem end
    from (select distinct x from unnest(p_delivery_ids) x) x (delivery_id)
    left join asked a on a.delivery_id = x.delivery_id
    left join moved m on m.delivery_id = x.delivery_id
    order by x.delivery_id;
end $$;

CREATE FUNCTION autopost.requeue_problem(p_delivery autopost.deliveries) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case
        when autopost.may_requeue(p_delivery.status, p_delivery.last_error) then null
        when p_delivery.status <> 'failed_permanent' then format('it is %s', p_delivery.status)
        else format('its %s was refused (%s), not the post: put that right and push it again',
                    p_delivery.last_error ->> 'scope', coalesce(p_delivery.last_error ->> 'code', 'unknown')) end
$$;

CREATE FUNCTION autopost.require_channels(p_found boolean, p_what text, p_workspace_id text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    if not p_found then
        raise exception '% in workspace %', p_what, p_workspace_id using errcode = 'VN001';
    end if;
end $$;

CREATE FUNCTION autopost.require_credential(p_workspace_id text, p_channel_ids text[], p_auth_ref text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
declare
    missing text;
begin
    select case when c.channel_id is null then format('no channel %s', x) else format('no %s credential %s', c.platform, p_auth_ref) end
    into missing
    from unnest(p_channel_ids) x
    left join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = x
    left join core.credential_bindings b on b.workspace_id = p_workspace_id and b.platform = c.platform
        and b.auth_ref = p_auth_ref and b.secret is not null
    where b.auth_ref is null order by x limit 1;
    perform autopost.require_channels(missing is null, missing, p_workspace_id);
end $$;

CREATE FUNCTION autopost.require_held(p_workspace_id text, p_delivery_id uuid, p_outcome text, p_status text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    if p_outcome is null then
        raise exception 'no delivery % in workspace %', p_delivery_id, p_workspace_id using errcode = 'VN001';
    elsif p_outcome = 'not_held' then
        raise exception 'delivery % is not held: it is %', p_delivery_id, p_status using errcode = 'VM001';
    end if;
    return p_outcome;
end $$;

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

CREATE TABLE autopost.pull_sources (
    workspace_id text NOT NULL,
    source_id text NOT NULL,
    kind text NOT NULL,
    config_json jsonb DEFAULT '{}'::jsonb NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    every interval,
    cron text,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    backlog integer,
    failures integer DEFAULT 0 NOT NULL,
    last_error jsonb,
    last_run_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pull_sources_backlog_check CHECK ((backlog >= 0)),
    CONSTRAINT pull_sources_every_check CHECK (((every >= '00:00:10'::interval) AND (every <= '365 days'::interval))),
    CONSTRAINT pull_sources_rhythm CHECK (((every IS NULL) OR (cron IS NULL)))
);

CREATE FUNCTION autopost.require_source(p_workspace_id text, p_source_id text) RETURNS autopost.pull_sources
    LANGUAGE plpgsql STABLE
    AS $$
declare
    source autopost.pull_sources;
begin
    select * into source from autopost.pull_sources s where s.workspace_id = p_workspace_id and s.source_id = p_source_id;
    if not found then
        raise exception 'no source % in workspace %', p_source_id, p_workspace_id using errcode = 'VN001';
    end if;
    return source;
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

CREATE FUNCTION autopost.reschedule_deliveries(p_workspace_id text, p_operator text, p_reason text, p_scheduled_for timestamp with time zone, p_message_id uuid DEFAULT NULL::uuid, p_delivery_ids uuid[] DEFAULT NULL::uuid[], p_channel_ids text[] DEFAULT NULL::text[], p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, channel_id text, outcome text, goes_at timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_unsent(p_workspace_id, p_message_id, p_delivery_ids, p_channel_ids));
begin
    return query
    with unsent as materialized (
        select d.*, coalesce(autopost.first_moment(autopost.calendar_of(c), p_scheduled_for, p_now), d.not_before) as moved_to
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d
        set scheduled_for = p_scheduled_for, updated_at = p_now,
            not_before = case when d.not_before = 'infinity' then d.not_before else u.moved_to end
        from unsent u
        where d.workspace_id = p_workspace_id and d.delivery_id = u.delivery_id
          and u.status in ('queued', 'retry') and u.held_at is null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, u.scheduled_for as from_moment,
                  nullif(greatest(d.not_before, d.next_retry_at), 'infinity') as goes_at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'rescheduled', m.attempt,
               jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason), 'from', m.from_moment,
                                  'to', p_scheduled_for)
        from moved m
    )
    select u.delivery_id, u.channel_id,
           case when m.delivery_id is not null then 'rescheduled' when u.held_at is not null then 'held' else 'too_late' end, m.goes_at
    from unsent u left join moved m on m.delivery_id = u.delivery_id
    order by u.channel_id, u.delivery_id;
end $$;

CREATE FUNCTION autopost.resend_deliveries(p_workspace_id text, p_operator text, p_reason text, p_delivery_ids uuid[] DEFAULT NULL::uuid[], p_channel_id text DEFAULT NULL::text, p_until timestamp with time zone DEFAULT NULL::timestamp with time zone, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, channel_id text, outcome text, status text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_held(p_workspace_id, p_delivery_ids, p_channel_id, coalesce(p_until, p_now), p_limit));
begin
    return query
    with held as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (asked)
    ), moved as (
        update autopost.deliveries d set next_retry_at = p_now, held_at = null, updated_at = p_now
        from held h
        where d.workspace_id = p_workspace_id and d.delivery_id = h.delivery_id and h.status || '' = 'retry' and h.held_at is not null
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, h.held_at
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, 'manual_requeue', m.attempt,
               jsonb_strip_nulls(jsonb_build_object('trace_id', m.trace_id, 'operator', p_operator, 'reason', core.redact_text(p_reason),
                   'held_at', m.held_at, 'from_status', 'retry'))
        from moved m
    )
    select h.delivery_id, h.channel_id, case when m.delivery_id is null then 'not_held' else 'resent' end,
           case when m.delivery_id is null then h.status else 'retry' end
    from held h left join moved m on m.delivery_id = h.delivery_id
    order by h.channel_id, h.delivery_id;
end $$;

CREATE FUNCTION autopost.resend_delivery(p_workspace_id text, p_operator text, p_reason text, p_delivery_id uuid, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_held(p_workspace_id, p_delivery_id, max(x.outcome), max(x.status))
    from autopost.resend_deliveries(p_workspace_id, p_operator, p_reason, array[p_delivery_id], p_now => p_now) x
$$;

CREATE FUNCTION autopost.resolve_endpoint(p_kind text, p_secret_hash text) RETURNS TABLE(workspace_id text, endpoint_id text, max_payload_bytes integer)
    LANGUAGE sql STABLE
    AS $$
    select e.workspace_id, e.endpoint_id, e.max_payload_bytes
    from autopost.workspace_endpoints e
    join core.workspaces w on w.workspace_id = e.workspace_id and w.status <> 'disabled'
    where e.kind = p_kind and e.secret_hash = p_secret_hash and e.enabled
$$;

CREATE FUNCTION autopost.resume_channel(p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS SETOF text
    LANGUAGE sql
    AS $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, p_channel_id, null, null, true, p_now)
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

CREATE FUNCTION autopost.rewrite_links(p_text text, p_parse_mode text, p_utm jsonb, p_only_hosts text[] DEFAULT NULL::text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    parameters constant text[] := autopost.utm_parameters(p_utm);
    hosts constant text[] := autopost.host_names(p_only_hosts);
    edge constant text := case when p_text !~* 'https?://' then null else autopost.unused_character(p_text) end;
    pieces text[];
begin
    if edge is null or parameters is null or parameters = '{}' then
        return p_text;
    end if;
    -- Every second piece is what the pattern found.
    pieces := string_to_array(regexp_replace(p_text, autopost.link_pattern(p_parse_mode), edge || '\&' || edge, 'gi'), edge);
    return array_to_string(case p_parse_mode when 'HTML' then autopost.rewritten_html(pieces, parameters, hosts)
                           else autopost.rewritten_text(pieces, parameters, hosts, p_parse_mode = 'Markdown') end, '');
end $$;

CREATE FUNCTION autopost.rewritten_html(p_pieces text[], p_parameters text[], p_hosts text[]) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    pieces text[] := p_pieces;
    code integer := 0;
    in_link boolean := false;
    href text;
    quote text;
begin
    for i in 2 .. cardinality(pieces) by 2 loop
        if left(pieces[i], 1) <> '<' then
            if code = 0 and not in_link then
                pieces[i] := autopost.bare_url(pieces[i], p_parameters, p_hosts, '&amp;', '');
            end if;
        elsif pieces[i] ~* '^</?(?:pre|code)[\s/>]' then
            code := greatest(0, code + case when left(pieces[i], 2) = '</' then -1 else 1 end);
        elsif pieces[i] ~* '^</a[\s>]' then
            in_link := false;
        elsif pieces[i] ~* '^<a\s' then
            in_link := true;
            href := case when code = 0 then substring(pieces[i] from '\s[Hh][Rr][Ee][Ff]\s*=\s*("[^"]*"|''[^'']*''|[^\s"''>]+)') end;
            if href is not null then
                quote := case left(href, 1) when '''' then '''' else '"' end;
                pieces[i] := overlay(pieces[i] placing
                    quote || autopost.tagged_url(btrim(btrim(href, quote), E' \t\n'), p_parameters, p_hosts, '&amp;') || quote
                    from position(href in pieces[i]) for char_length(href));
            end if;
        end if;
    end loop;
    return pieces;
end $$;

CREATE FUNCTION autopost.rewritten_text(p_pieces text[], p_parameters text[], p_hosts text[], p_markdown boolean) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
declare
    pieces text[] := p_pieces;
    fence text;
    target text[];
begin
    for i in 2 .. cardinality(pieces) by 2 loop
        if left(pieces[i], 4) ~* 'http' then
            if fence is null then
                pieces[i] := autopost.bare_url(pieces[i], p_parameters, p_hosts, '&',
                    case when p_markdown then coalesce(substring(pieces[i - 1] from '[*_~]+$'), '') || '\\' else '' end);
            end if;
        elsif pieces[i] = fence then
            fence := null;
        elsif fence is null and (left(pieces[i], 1) = '`' or left(pieces[i], 1) = E'\n')
              and array_position(pieces, pieces[i], i + 1) is not null then
            fence := pieces[i];
        elsif fence is null and pieces[i] ~ '^\[.*>$' then
            target := regexp_match(pieces[i], '^(.*\(<)([^<>]*)>$');
            pieces[i] := target[1] || autopost.tagged_url(target[2], p_parameters, p_hosts, '&') || '>';
        end if;
    end loop;
    return pieces;
end $_$;

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

CREATE FUNCTION autopost.save_template(p_workspace_id text, p_template_id text, p_body text, p_defaults jsonb DEFAULT '{}'::jsonb, p_parse_mode text DEFAULT 'None'::text, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $_$
declare
    problem constant text := case when coalesce(p_template_id, '') !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'
        then 'id: must have 1 to 64 letters, digits, "_", "." or "-"'
        else autopost.template_problem(p_body, coalesce(p_defaults, '{}'), p_parse_mode) end;
    newest autopost.templates;
begin
    if problem is not null then
        raise exception 'invalid template %: %', p_template_id, problem
            using errcode = 'VP001', detail = json_build_array(problem)::text;
    elsif not exists (select from core.workspaces w where w.workspace_id = p_workspace_id) then
        raise exception 'no workspace %', p_workspace_id using errcode = 'VN001';
    end if;
    loop
        select t.* into newest from autopost.templates t
        where t.workspace_id = p_workspace_id and t.template_id = p_template_id
        order by t.version desc limit 1;
        if (newest.body, newest.defaults, newest.parse_mode) = (p_body, coalesce(p_defaults, '{}'), p_parse_mode) then
            return newest.version;
        end if;
        -- Somebody else's version may have come since: then this one is compared with it and comes after it.
        insert into autopost.templates as t (workspace_id, template_id, version, body, defaults, created_at, parse_mode)
        values (p_workspace_id, p_template_id, coalesce(newest.version, 0) + 1, p_body, coalesce(p_defaults, '{}'), p_now, p_parse_mode)
        on conflict (workspace_id, template_id, version) do nothing
        returning t.version into newest.version;
        if found then
            return newest.version;
        end if;
    end loop;
end $_$;

CREATE FUNCTION autopost.schedule_conflicts(p_workspace_id text, p_gap interval DEFAULT NULL::interval, p_now timestamp with time zone DEFAULT now(), p_limit integer DEFAULT NULL::integer) RETURNS TABLE(channel_id text, first_delivery_id uuid, first_message_id uuid, first_at timestamp with time zone, second_delivery_id uuid, second_message_id uuid, second_at timestamp with time zone, gap interval, minimum interval)
    LANGUAGE sql STABLE
    AS $$
    with usual as materialized (
        select (select p.min_gap from autopost.policies p where p.workspace_id = p_workspace_id) as min_gap
    ), channel as materialized (
        select c as row, c.channel_id, coalesce(p_gap, c.min_gap, usual.min_gap) as minimum,
               coalesce(autopost.first_moment(autopost.calendar_of(c), p_now, p_now), p_now) as opens
        from autopost.channels c, usual
        where c.workspace_id = p_workspace_id and coalesce(p_gap, c.min_gap, usual.min_gap) is not null
    ), post as (
        select d.channel_id, d.delivery_id, d.message_id, c.minimum, true as waits,
               case when d.status <> 'retry' and d.not_before < 'infinity' then greatest(d.not_before, c.opens)
                    else autopost.goes_at(d, c.row, p_now) end as at
        from channel c
        join autopost.deliveries d on d.workspace_id = p_workspace_id and d.channel_id = c.channel_id
        where d.status in ('queued', 'claimed', 'retry') and d.held_at is null
        union all
        select e.channel_id, e.delivery_id, e.message_id, c.minimum, false, e.ts
        from channel c, lateral (
            select e.* from autopost.events e
            where e.workspace_id = p_workspace_id and e.channel_id = c.channel_id and e.action = 'sent' and e.ts > p_now - c.minimum
            order by e.ts desc limit 1) e
    ), neighbours as (
        select p.*, lag(p.delivery_id) over w as before_id, lag(p.message_id) over w as before_message_id, lag(p.at) over w as before_at
        from post p window w as (partition by p.channel_id order by p.at, p.delivery_id)
    )
    select n.channel_id, n.before_id, n.before_message_id, n.before_at, n.delivery_id, n.message_id, n.at, n.at - n.before_at, n.minimum
    from neighbours n where n.waits and n.at - n.before_at < n.minimum
    order by n.at, n.channel_id, n.delivery_id limit p_limit
$$;

CREATE FUNCTION autopost.schedule_retry(p_workspace_id text, p_delivery_id uuid, p_next_retry_at timestamp with time zone, p_error_json jsonb, p_lease integer DEFAULT NULL::integer, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
    select autopost.require_legal(p_workspace_id, p_delivery_id, (
        select s.outcome from autopost.settle_deliveries(p_workspace_id, jsonb_build_array(jsonb_build_object(
            'delivery_id', p_delivery_id, 'lease', p_lease, 'next_retry_at', p_next_retry_at,
            'error', autopost.error_of(p_error_json, 'TRANSIENT'))), p_now) s))
$$;

CREATE FUNCTION autopost.seconds_until(p_at timestamp with time zone, p_now timestamp with time zone) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select (extract(epoch from p_at) - extract(epoch from p_now))::double precision
$$;

CREATE FUNCTION autopost.select_deliveries(p_workspace_id text, p_status text, p_channel_ids text[] DEFAULT NULL::text[], p_platform text DEFAULT NULL::text, p_rate_group text DEFAULT NULL::text, p_code text DEFAULT NULL::text, p_category text DEFAULT NULL::text, p_tag text DEFAULT NULL::text, p_since timestamp with time zone DEFAULT NULL::timestamp with time zone, p_until timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS SETOF autopost.deliveries
    LANGUAGE sql STABLE
    AS $$
    select d.* from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.status = p_status
      and (p_channel_ids is null or d.channel_id = any (p_channel_ids))
      and ((p_platform is null and p_rate_group is null) or exists (
          select from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = d.channel_id
          and c.platform = coalesce(p_platform, c.platform) and c.rate_group = coalesce(p_rate_group, c.rate_group)))
      and case when p_code is null then d.last_error ->> 'code' is distinct from 'cancelled' else d.last_error ->> 'code' = p_code end
      and (p_category is null or d.last_error ->> 'category' = p_category)
      and (p_tag is null or exists (
          select from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = d.message_id and p_tag = any (m.tags)))
      and (p_since is null or case when p_status in ('dead', 'failed_permanent') then d.updated_at else d.created_at end >= p_since)
      and (p_until is null or case when p_status in ('dead', 'failed_permanent') then d.updated_at else d.created_at end <= p_until)
$$;

CREATE FUNCTION autopost.send_mode_problem(p_send_mode text, p_payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_send_mode = 'media' and p_payload ->> 'type' = 'text' then 'this channel takes media only, and the post is text'
        when p_send_mode = 'text' and p_payload ? 'media' then 'this channel takes text only, and the post has media' end
$$;

CREATE FUNCTION autopost.sent_as(p_platform text, p_item jsonb, p_settings jsonb, p_own jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case
        when p_platform = 'telegram' and p_item ->> 'type' = 'image' and p_settings ->> 'large_image' = 'document'
             and autopost.photo_problem(p_item, p_own) is not null then 'file'
        when p_platform = 'max' and p_item ->> 'type' = 'animation' then
            case when coalesce(p_item ->> 'content_type' = 'image/gif',
                               coalesce(p_item ->> 'file_name', split_part(p_item ->> 'url', '?', 1), '') !~* '[.](mp4|webm|mov)$')
                 then 'image' else 'video' end
        else p_item ->> 'type' end
$_$;

CREATE FUNCTION autopost.series_pace(p_workspace_id text, p_channel_id text) RETURNS double precision
    LANGUAGE sql STABLE
    AS $$
    select extract(epoch from greatest(autopost.step_of(c.rate_rps), autopost.step_of(g.rate_rps)))::double precision
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id
$$;

CREATE FUNCTION autopost.settle_awaited(p_workspace_id text, p_results jsonb, p_locked_channels text[], p_now timestamp with time zone) RETURNS uuid[]
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

CREATE FUNCTION autopost.settle_deliveries(p_workspace_id text, p_results jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(delivery_id uuid, outcome text)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.settle_unawaited(p_workspace_id text, p_delivery_id uuid, p_lease integer, p_provider_message_id text, p_sent_at timestamp with time zone, p_meta jsonb, p_locked_channels text[], p_now timestamp with time zone) RETURNS text
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

CREATE FUNCTION autopost.shell_word(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    select case when p_text ~ '^[A-Za-z0-9_@%+=:,./-]+$' then p_text else '''' || replace(p_text, '''', '''\''''') || '''' end
$_$;

CREATE FUNCTION autopost.shown_value(p_value jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
begin
    return case jsonb_typeof(p_value)
        when 'array' then (select string_agg(e #>> '{}', ', ' order by n)
                           from jsonb_array_elements(p_value) with ordinality x (e, n)
                           where jsonb_typeof(e) in ('string', 'number'))
        when 'object' then null
        else nullif(p_value, 'false') #>> '{}' end;
end $$;

CREATE FUNCTION autopost.shut_window_opens(p_channel autopost.channels, p_at timestamp with time zone, p_planned timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select case when p_channel.window_mode = 'windowed' and not autopost.window_open(p_channel.posting_window, p_channel.timezone, p_at)
                then coalesce(autopost.next_open(p_channel.posting_window, p_channel.timezone, greatest(p_at, p_planned)), 'infinity') end
$$;

CREATE FUNCTION autopost.side_by_side() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select interval '1 minute' $$;

CREATE FUNCTION autopost.skeleton_problem(p_body text, p_parse_mode text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
declare
    names text[] := '{}';
    texts text[] := '{""}';
    problem text;
    p record;
begin
    for p in select kind, piece from autopost.template_pieces(p_body) loop
        if p.kind = 'open' then
            names := names || p.piece;
            texts := texts || E'\x03'::text;
        elsif p.kind = 'close' then
            if p.piece is distinct from names[cardinality(names)] then
                return format('{{/%s}} closes nothing', p.piece)
                       || coalesce('; {{#' || names[cardinality(names)] || '}} is open', '');
            end if;
            problem := autopost.markup_problem(texts[cardinality(texts)], p_parse_mode);
            if problem is not null then
                return format('in the section %s: %s', p.piece, problem);
            end if;
            names := trim_array(names, 1);
            texts := trim_array(texts, 2) || (texts[cardinality(texts) - 1] || texts[cardinality(texts)] || E'\x03');
        else
            texts[cardinality(texts)] := texts[cardinality(texts)] || case when p.kind = 'literal' then p.piece
                when p.piece in ('text', 'links', 'tags') then E'\x02' else E'\x01' end;
        end if;
        if cardinality(names) > 8 then
            return 'sections are nested more than 8 deep';
        end if;
    end loop;
    return coalesce('{{#' || names[cardinality(names)] || '}} is never closed',
                    autopost.markup_problem(texts[1], p_parse_mode));
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

CREATE FUNCTION autopost.stays_inside(p_piece text, p_inside boolean, p_mode text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    select case p_mode
        when 'HTML' then p_piece ~ '<[^<>]*$' or p_inside and position('>' in p_piece) = 0
        when 'Markdown' then p_piece ~ '\]\(<?[^()<>\s]*$' or p_inside and p_piece !~ '[)>\s]'
        else false end
$_$;

CREATE FUNCTION autopost.steady_channels(p_workspace_id text, p_after timestamp with time zone) RETURNS TABLE(channel_id text, since timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    with touched as materialized (
        select h.subject, max(h.ts) + autopost.side_by_side() as until from core.changes h
        where h.workspace_id = p_workspace_id and h.ts > p_after - autopost.side_by_side() group by h.subject
    )
    select x.channel_id, greatest(x.since, (select max(t.until) from touched t
                                            where t.subject = 'channel ' || x.channel_id or t.subject ~ '^(limit|policy) '))
    from autopost.channel_paces x
    join autopost.current_paces(p_workspace_id) n on n.channel_id = x.channel_id and n.pace = x.pace
    where x.workspace_id = p_workspace_id
$$;

CREATE FUNCTION autopost.step_of(p_rate_rps double precision) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_rate_rps > 0 then make_interval(secs => least(ceil(1e6 / p_rate_rps) / 1e6, 3155760000)) end
$$;

CREATE FUNCTION autopost.store_origin(p_workspace_id text, p_blob jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE sql
    AS $$
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

CREATE FUNCTION autopost.stray_events(p_workspace_id text, p_after jsonb, p_until timestamp with time zone, p_limit integer, p_gone_before timestamp with time zone) RETURNS TABLE(seen bigint, troubles jsonb, after jsonb)
    LANGUAGE sql STABLE
    AS $$
    with page as materialized (
        select e.id, e.ts, e.action, e.delivery_id, e.message_id, e.channel_id from autopost.events e
        where e.workspace_id = p_workspace_id and e.ts <= p_until
          and (e.ts, e.id) > (coalesce((p_after ->> 0)::timestamptz, '-infinity'), coalesce((p_after ->> 1)::uuid, '00000000-0000-0000-0000-000000000000'))
        order by e.ts, e.id limit p_limit
    ), stray as (
        select p.id, p.action, r.kind, r.subject
        from page p, lateral (values
            ('event_without_delivery', p.delivery_id::text, p.delivery_id is not null and not exists (
                select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = p.delivery_id)
                and coalesce(autopost.uuid_time(p.delivery_id) >= p_gone_before, true)),
            ('event_without_message', p.message_id::text, p.message_id is not null and not exists (
                select from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = p.message_id)
                and coalesce(autopost.uuid_time(p.message_id) >= p_gone_before, true)),
            ('event_without_channel', p.channel_id, p.channel_id is not null and not exists (
                select from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p.channel_id)
                and not exists (select from core.changes x where x.workspace_id = p_workspace_id and x.action = 'removed'
                                and x.subject = 'channel ' || p.channel_id))
        ) r (kind, subject, is_stray)
        where r.is_stray
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', s.kind, 'subject', s.subject, 'details', jsonb_build_object('event', s.id),
                       'says', format('an event %s tells of it, and it is not there', s.action)) order by s.kind, s.subject), '[]') from stray s),
           (select jsonb_build_array(p.ts, p.id) from page p order by p.ts, p.id offset p_limit - 1)
$$;

CREATE FUNCTION autopost.stray_handles(p_workspace_id text, p_after jsonb, p_limit integer) RETURNS TABLE(seen bigint, troubles jsonb, after jsonb)
    LANGUAGE sql STABLE
    AS $$
    with page as materialized (
        select b.blob_ref, b.provider, b.auth_ref, b.sent_as from autopost.media_blobs b
        where b.workspace_id = p_workspace_id and (b.blob_ref, b.provider, b.auth_ref, b.sent_as) > (
            coalesce(p_after ->> 0, ''), coalesce(p_after ->> 1, ''), coalesce(p_after ->> 2, ''), coalesce(p_after ->> 3, ''))
        order by b.blob_ref, b.provider, b.auth_ref, b.sent_as limit p_limit
    ), stray as (
        select distinct p.blob_ref from page p
        where not exists (select from autopost.media_origin o where o.workspace_id = p_workspace_id and o.blob_ref = p.blob_ref)
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', 'handle_without_file', 'subject', s.blob_ref,
                       'says', 'a platform has a handle of it, and we have no such file') order by s.blob_ref), '[]') from stray s),
           (select jsonb_build_array(p.blob_ref, p.provider, p.auth_ref, p.sent_as) from page p
            order by p.blob_ref, p.provider, p.auth_ref, p.sent_as offset p_limit - 1)
$$;

CREATE FUNCTION autopost.stray_items(p_workspace_id text, p_after jsonb, p_limit integer, p_gone_before timestamp with time zone) RETURNS TABLE(seen bigint, troubles jsonb, after jsonb)
    LANGUAGE sql STABLE
    AS $$
    with page as materialized (
        select i.source_id, i.item_hash, i.message_id from autopost.pull_items i
        where i.workspace_id = p_workspace_id and (i.source_id, i.item_hash) > (coalesce(p_after ->> 0, ''), coalesce(p_after ->> 1, ''))
        order by i.source_id, i.item_hash limit p_limit
    ), stray as (
        select p.* from page p
        where p.message_id is not null and coalesce(autopost.uuid_time(p.message_id) >= p_gone_before, true) and not exists (
            select from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = p.message_id)
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', 'item_without_post', 'subject', s.message_id,
                       'says', format('source %s brought it, and it is not there', s.source_id)) order by s.source_id, s.item_hash), '[]') from stray s),
           (select jsonb_build_array(p.source_id, p.item_hash) from page p order by p.source_id, p.item_hash offset p_limit - 1)
$$;

CREATE FUNCTION autopost.stuck_channels(p_workspace_id text, p_before timestamp with time zone, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(channel_id text, since timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    select x.channel_id, x.since
    from (select due.*, c as channel, g as grp from autopost.due_since(p_workspace_id, p_before) due
          join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = due.channel_id
          left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform
              and g.rate_group = c.rate_group
          offset 0) x
    where autopost.is_active(p_workspace_id)
      and autopost.is_open(x.channel, x.grp, p_now) and autopost.is_open(x.channel, x.grp, p_before)
      and (x.channel).updated_at <= p_before
      and coalesce((x.channel).last_begin_at + autopost.step_of((x.channel).rate_rps), '-infinity') <= p_before
      and coalesce((x.grp).last_begin_at + autopost.step_of((x.grp).rate_rps), '-infinity') <= p_before
      and not exists (select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = x.channel_id
                      and d.status = 'sending' and d.sending_started_at > p_before)
      and not exists (select from autopost.events e where e.workspace_id = p_workspace_id and e.channel_id = x.channel_id
                      and e.ts > p_before and e.action = 'send_attempt')
$$;

CREATE FUNCTION autopost.style_of(p_workspace_id text, p_channel autopost.channels) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object(
        'long_text', nullif(p_channel.settings ->> 'long_text', 'refuse'),
        'large_image', p_channel.settings -> 'large_image',
        'utm', case when jsonb_typeof(p_channel.settings -> 'utm') = 'object' then (
            select jsonb_object_agg(u.key, replace(replace(u.value, '{channel}', p_channel.channel_id), '{platform}', p_channel.platform))
            from jsonb_each_text((p_channel.settings -> 'utm') - 'only_hosts') u where u.value <> '') end,
        'only_hosts', p_channel.settings #> '{utm,only_hosts}',
        'template', p_channel.template_ref, 'template_version', p_channel.template_ref || '@' || t.version,
        'body', t.body, 'defaults', t.defaults, 'template_mode', t.parse_mode,
        'channel', case when autopost.uses_channel(t.body) then autopost.channel_values(
            p_channel.channel_id, p_channel.title, p_channel.target_id, p_channel.settings) end))
    from (select) one
    left join lateral (
        select t.* from autopost.templates t
        where t.workspace_id = p_workspace_id and t.template_id = p_channel.template_ref order by t.version desc limit 1) t on true
$$;

CREATE FUNCTION autopost.sweep_claimed(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
    swept integer;
begin
    with stale as (
        select d.delivery_id, shut.reason
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id,
        lateral (select case when not c.enabled then 'channel_disabled' when c.paused_until > p_now then 'channel_paused'
                             when c.window_mode <> 'windowed' then null
                             when not autopost.window_open(c.posting_window, c.timezone, p_now) then 'window_closed' end as reason
                 offset 0) shut
        where d.workspace_id = p_workspace_id and d.status = 'claimed'
          and (shut.reason is not null
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
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, s.reason
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now,
               case when m.reason is null then 'claimed_lease_expired' else 'claim_released' end, m.attempt,
               case when m.reason is null then 'error' else 'ok' end,
               jsonb_strip_nulls(jsonb_build_object('trace_id', m.trace_id, 'reason', m.reason))
        from moved m
    )
    select count(*) into swept from moved;
    return swept;
end $$;

CREATE FUNCTION autopost.sweep_media(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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
               case when c.on_unknown = 'hold' then 'held' when autopost.tries_of(d) >= policy.max_attempts then 'dead' else 'retry' end as fate
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

CREATE FUNCTION autopost.sweep_windows(p_workspace_id text, p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE sql
    AS $$
    select coalesce(sum(autopost.replan_channel(p_workspace_id, open.channel_id, 'sweep', p_now)), 0)::integer
    from (select c.channel_id from autopost.channels c
          where c.workspace_id = p_workspace_id and c.posting_window is not null
            and exists (select from autopost.deliveries d
                        where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id
                          and d.status in ('queued', 'retry') and d.held_at is null
                          and d.not_before > p_now and d.not_before < 'infinity' and coalesce(d.scheduled_for, p_now) <= p_now)
            and case c.window_mode when 'windowed' then autopost.window_open(c.posting_window, c.timezone, p_now) else true end
          order by c.channel_id limit p_limit) open
$$;

CREATE FUNCTION autopost.switch_auth(p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_new_auth_ref text, p_new_rate_group text DEFAULT NULL::text, p_drained_until timestamp with time zone DEFAULT NULL::timestamp with time zone, p_paused_before timestamp with time zone DEFAULT NULL::timestamp with time zone, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone, OUT outcome text, OUT old_auth_ref text, OUT sending integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    channel autopost.channels := autopost.lock_for_rotation(p_workspace_id, p_channel_id, p_new_auth_ref, p_new_rate_group);
    moment constant timestamptz := coalesce(p_now, clock_timestamp());
begin
    old_auth_ref := autopost.auth_of(channel);
    select count(*) into sending from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'sending';
    if sending > 0 then
        outcome := 'sending';
        return;
    end if;
    outcome := case when old_auth_ref = p_new_auth_ref and channel.rate_group = coalesce(p_new_rate_group, channel.rate_group)
                    then 'unchanged' else 'rotated' end;
    if outcome = 'rotated' then
        insert into autopost.channel_auth as a (workspace_id, channel_id, auth_ref, rotated_at, updated_at)
        values (p_workspace_id, p_channel_id, p_new_auth_ref, moment, moment)
        on conflict (workspace_id, channel_id)
        do update set auth_ref = excluded.auth_ref, rotated_at = excluded.rotated_at, updated_at = excluded.updated_at;
        update autopost.channels c
        set auth_ref = p_new_auth_ref, rate_group = coalesce(p_new_rate_group, c.rate_group), updated_at = moment
        where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
        perform autopost.note_channels(p_workspace_id, array[p_channel_id], 'auth_rotated', jsonb_strip_nulls(jsonb_build_object(
            'operator', p_operator, 'reason', core.redact_text(p_reason), 'old_auth_ref', old_auth_ref, 'new_auth_ref', p_new_auth_ref,
            'rate_group', p_new_rate_group)), moment);
    end if;
    perform autopost.end_drain(p_workspace_id, p_operator, p_channel_id, p_drained_until, p_paused_before, moment);
    if outcome = 'rotated' then
        perform autopost.forgive_channels(p_workspace_id, p_operator, 'another auth_ref', array[p_channel_id], moment, moment);
    end if;
end $$;

CREATE FUNCTION autopost.switch_channels(p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_rate_group text, p_platform text, p_on boolean, p_now timestamp with time zone) RETURNS SETOF text
    LANGUAGE plpgsql
    AS $$
declare
    chosen constant text[] := array(
        select c.channel_id from autopost.channels c
        where c.workspace_id = p_workspace_id and (p_channel_id is null or c.channel_id = p_channel_id)
          and (p_rate_group is null or c.rate_group = p_rate_group) and (p_platform is null or c.platform = p_platform)
        order by c.channel_id for no key update);
    moment constant timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform autopost.require_channels(chosen <> '{}', case
        when p_channel_id is null then format('no channel of group %s', p_rate_group) else format('no channel %s', p_channel_id) end,
        p_workspace_id);
    update autopost.channels c
    set enabled = p_on, updated_at = moment,
        paused_until = case when p_on then null else c.paused_until end, error_streak = case when p_on then 0 else c.error_streak end
    where c.workspace_id = p_workspace_id and c.channel_id = any (chosen);
    if not p_on then
        perform autopost.release_claims(p_workspace_id, chosen, 'channel_disabled', moment);
    end if;
    perform autopost.note_channels(p_workspace_id, chosen, case when p_on then 'channel_enabled' else 'channel_disabled' end,
        jsonb_strip_nulls(jsonb_build_object('operator', p_operator, 'reason', core.redact_text(p_reason), 'rate_group', p_rate_group, 'manual', true)), moment);
    return query select unnest(chosen);
end $$;

CREATE FUNCTION autopost.tagged_url(p_url text, p_parameters text[], p_hosts text[], p_amp text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    fragment integer := position('#' in p_url);
    base text;
    query text;
    parameter text;
begin
    if p_url is null or p_parameters is null or p_parameters = '{}' or p_url !~* '^https?://[^/?#]' then
        return p_url;
    end if;
    if fragment > 0 and p_amp <> '&' and position('&#' in p_url) > 0 then
        fragment := (char_length(substring(p_url from '^(?:[^#]|&#(?=x?[0-9A-Fa-f]+;)|&#(?=X[0-9A-Fa-f]+;))*')) + 1) % (char_length(p_url) + 1);
    end if;
    base := case when fragment > 0 then left(p_url, fragment - 1) else p_url end;
    if position('?' in base) > 0 then
        query := substr(base, position('?' in base));
        base := left(base, position('?' in base) - 1);
    end if;
    if p_hosts is not null and not autopost.is_host_of(base, p_hosts) then
        return p_url;
    end if;
    foreach parameter in array p_parameters loop
        if position('utm_' in lower(query)) > 0 and query ~* ('[?&;]' || split_part(parameter, '=', 1) || '(?![A-Za-z0-9_.~%-])') then
            continue;
        end if;
        query := case when query is null then '?' when right(query, 1) in ('?', '&') or right(query, 5) = '&amp;' then query
                      else query || p_amp end || parameter;
    end loop;
    return base || case when query <> '' and position('/' in substr(base, 9)) = 0 then '/' else '' end
           || coalesce(query, '') || case when fragment > 0 then substr(p_url, fragment) else '' end;
end $$;

CREATE FUNCTION autopost.tags_warning(p_stored autopost.stored, p_tags text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_stored.tags <> p_tags then 'the same post came before with other tags; it is routed by those' end
$$;

CREATE FUNCTION autopost.take_call(p_workspace_id text, p_idempotency_key text, p_lease interval, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(state text, answer jsonb, taken_until timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
begin
    delete from autopost.adapter_answers a where (a.workspace_id, a.idempotency_key) in (
        select x.workspace_id, x.idempotency_key from autopost.adapter_answers x
        where x.workspace_id = p_workspace_id and x.created_at < p_now - interval '2 days'
        order by x.created_at limit 10 for no key update skip locked);
    loop
        return query
        insert into autopost.adapter_answers as a (workspace_id, idempotency_key, taken_until, created_at)
        values (p_workspace_id, p_idempotency_key, p_now + p_lease, p_now)
        on conflict (workspace_id, idempotency_key) do update set taken_until = excluded.taken_until, created_at = excluded.created_at
        where a.answer is null and a.taken_until <= p_now
        returning 'yours', a.answer, a.taken_until;
        exit when found;
        return query
        select case when a.answer is null then 'under_way' else 'answered' end, a.answer, a.taken_until
        from autopost.adapter_answers a
        where a.workspace_id = p_workspace_id and a.idempotency_key = p_idempotency_key;
        exit when found;  -- else the call that was under way has failed just now: nobody has it any more
    end loop;
end $$;

CREATE FUNCTION autopost.take_items(p_workspace_id text, p_source_id text, p_run_id uuid, p_items jsonb, p_now timestamp with time zone) RETURNS autopost.pulled[]
    LANGUAGE sql
    AS $$
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

CREATE FUNCTION autopost.take_upload(p_workspace_id text, p_blob_ref text, p_provider text, p_auth_ref text, p_sent_as text, p_token uuid, p_lease interval, p_now timestamp with time zone DEFAULT now(), OUT state text, OUT handle text) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION autopost.tell_findings(p_workspace_id text, p_source text, p_now timestamp with time zone DEFAULT now()) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    alert constant text := 'autopost.' || p_source;
    count bigint;
    sample jsonb;
begin
    delete from autopost.findings f
    where f.workspace_id = p_workspace_id and f.source = 'proof' and p_source = 'proof' and f.last_seen_at < p_now - interval '30 days';
    select count(*), jsonb_agg(x.one) filter (where x.n <= 5) into count, sample
    from (select jsonb_build_object('kind', f.kind, 'subject', f.subject, 'says', f.says) || f.details as one,
                 row_number() over (order by f.found_at desc, f.kind, f.subject) as n
          from autopost.findings f
          where f.workspace_id = p_workspace_id and f.source = p_source
            and (p_source = 'integrity' or f.last_seen_at > p_now - interval '1 day')) x;
    if count = 0 then
        perform ops.clear_alert(p_workspace_id, alert, '', p_now);
    else
        perform ops.put_alert(p_workspace_id, alert, '', 'critical', format(case p_source
                when 'proof' then '%s contradictions between what happened and what the rows say'
                else '%s rows that do not hold together' end || '; vestnik findings %s lists them', count, p_workspace_id),
            jsonb_build_object('count', count, 'findings', sample), p_now);
    end if;
    return count;
end $$;

CREATE FUNCTION autopost.template_mode(p_template_mode text, p_text_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_template_mode = 'None' then coalesce(p_text_mode, 'None')
                when coalesce(p_text_mode, 'None') in ('None', p_template_mode) then p_template_mode end
$$;

CREATE FUNCTION autopost.template_pieces(p_body text) RETURNS TABLE(kind text, piece text)
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
declare
    parts constant text[] := string_to_array(p_body, '{{');
    left_over integer := cardinality(parts);
    as_it_is boolean := true;  -- what stands before the first braces, and behind doubled ones
    closed integer;
    part text;
    inner_text text;
begin
    foreach part in array parts loop
        left_over := left_over - 1;
        closed := position('}}' in part);
        inner_text := case when closed > 0 and not as_it_is then btrim(left(part, closed - 1), E' \t\n') end;
        if as_it_is then
            kind := 'literal';
            piece := part;
            as_it_is := false;
        elsif inner_text ~ '^[#/]?[ \t\n]*[\w.-]+$' then
            kind := case left(inner_text, 1) when '#' then 'open' when '/' then 'close' else 'value' end;
            piece := ltrim(inner_text, E'#/ \t\n');
            return next;
            kind := 'literal';
            piece := substr(part, closed + 2);
        elsif part = '' and left_over > 0 then
            kind := 'literal';
            piece := '{{';
            as_it_is := true;
        else
            kind := 'fault';
            piece := '{{' || substring(part from '^[^{}\n]{0,40}(?:\}\})?');
        end if;
        if piece <> '' then
            return next;
        end if;
    end loop;
end $_$;

CREATE FUNCTION autopost.template_problem(p_body text, p_defaults jsonb, p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_parse_mode is null or p_parse_mode not in ('HTML', 'Markdown', 'None')
            then 'parse_mode: must be HTML, Markdown or None'
        when octet_length(p_body) > 16384 then format('body: has %s bytes, at most 16384 are allowed', octet_length(p_body))
        when p_body ~ '[\x01-\x08]' then 'body: contains control characters'
        else coalesce(autopost.defaults_problem(coalesce(p_defaults, '{}')),
                      'body: ' || coalesce(autopost.names_problem(coalesce(p_body, ''), coalesce(p_defaults, '{}')),
                                           autopost.skeleton_problem(p_body, p_parse_mode))) end
$$;

CREATE FUNCTION autopost.template_value(p_name text, p_values jsonb, p_defaults jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
declare
    value text;
begin
    if p_name = 'link' then
        value := p_values -> 'links' ->> 0;
    elsif p_name = 'links' then
        value := (select string_agg(link, E'\n' order by n)
                  from jsonb_array_elements_text(autopost.array_of(p_values, 'links')) with ordinality x (link, n));
    elsif p_name = 'tags' then
        value := (select string_agg('#' || regexp_replace(tag, '\W+', '_', 'g'), ' ' order by n)
                  from jsonb_array_elements_text(autopost.array_of(p_values, 'tags')) with ordinality x (tag, n));
    elsif p_name <> 'text' then
        value := autopost.shown_value(p_values -> split_part(p_name, '.', 1) -> split_part(p_name, '.', 2));
    end if;
    value := coalesce(autopost.normalize_text(value), '');
    return case when value <> '' then value else coalesce(autopost.normalize_text(p_defaults ->> p_name), '') end;
end $$;

CREATE FUNCTION autopost.template_values(p_payload jsonb, p_tags text[], p_source jsonb, p_channel jsonb DEFAULT '{}'::jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select jsonb_build_object('text', p_payload -> 'text', 'links', autopost.array_of(p_payload, 'links'),
                              'tags', coalesce(to_jsonb(p_tags), '[]'), 'source', p_source, 'channel', p_channel)
$$;

CREATE FUNCTION autopost.template_variables(p_body text) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select coalesce(array_agg(distinct p.piece order by p.piece), '{}')
    from autopost.template_pieces(p_body) p where p.kind in ('value', 'open', 'close')
$$;

CREATE FUNCTION autopost.text_length(p_platform text, p_text text, p_parse_mode text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_platform = 'max' and p_parse_mode = 'HTML' then autopost.max_html_length(p_text)
                when p_platform = 'max' and p_parse_mode = 'Markdown' then autopost.max_markdown_length(p_text)
                else autopost.utf16_length(autopost.visible_text(p_text, p_parse_mode)) end
$$;

CREATE FUNCTION autopost.text_limit(p_platform text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case p_platform when 'telegram' then 4096 when 'max' then 4000 end
$$;

CREATE FUNCTION autopost.timezone_problem(p_timezone text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select case when p_timezone is null or p_timezone in ('UTC', 'GMT') then null else (
        select case when bool_or(z.name = p_timezone) then null else format('timezone: %s is not a zone of the IANA database; %s',
                   to_json(left(p_timezone, 64)), coalesce('did you mean ' || min(z.name) || '?', 'write it as Europe/Moscow')) end
        from pg_catalog.pg_timezone_names z
        where z.name like '%/%' and z.name !~ '^(posix|right)/'
          and lower(replace(p_timezone, ' ', '_')) in (lower(z.name), lower(regexp_replace(z.name, '^.*/', '')))) end
$$;

CREATE FUNCTION autopost.token_grace() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select interval '10 seconds' $$;

CREATE FUNCTION autopost.told_as(p_status text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case p_status when 'claimed' then '{queued,retry}'::text[] else array[p_status] end
$$;

CREATE FUNCTION autopost.told_moves() RETURNS TABLE(action text, from_statuses text[], to_status text, place integer)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    values ('enqueue', '{}'::text[], 'queued', 0),
           ('send_attempt', '{queued,retry}', 'sending', 1),
           ('sending_lease_expired', '{sending}', 'retry', 2),
           ('confirmed', '{retry}', 'retry', 3),
           ('held', '{sending,retry}', 'retry', 4),
           ('retry_scheduled', '{sending}', 'retry', 4),
           ('claim_released', '{queued,retry}', 'queued', 4),
           ('claimed_lease_expired', '{queued,retry}', 'queued', 4),
           ('manual_requeue', '{queued,retry,sending,dead,failed_permanent}', 'retry', 4),
           ('sent', '{sending,retry,queued}', 'sent', 5),
           ('failed_permanent', '{sending,queued}', 'failed_permanent', 5),
           ('validation_failed', '{queued,retry}', 'failed_permanent', 5),
           ('cancelled', '{queued,retry}', 'failed_permanent', 5),
           ('dedup_suppressed', '{queued,retry}', 'deduped', 5),
           ('dead_letter', '{queued,sending,retry,sent,deduped,failed_permanent}', 'dead', 6)
$$;

CREATE FUNCTION autopost.top_errors(p_workspace_id text, p_since timestamp with time zone, p_now timestamp with time zone DEFAULT now()) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select coalesce(jsonb_agg(to_jsonb(t)), '[]') from (
        select e.action, e.error ->> 'code' as code, e.error ->> 'category' as category, e.error ->> 'scope' as scope,
               count(*) as count, count(distinct e.channel_id) as channels, max(e.ts) as last_at,
               (array_agg(e.error ->> 'message' order by e.ts desc))[1] as message
        from autopost.events e
        where e.workspace_id = p_workspace_id and e.result = 'error' and e.ts >= p_since and e.ts <= p_now
        group by 1, 2, 3, 4 order by count(*) desc, max(e.ts) desc limit 10) t
$$;

CREATE FUNCTION autopost.tries_of(p_delivery autopost.deliveries) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_delivery.attempt - coalesce((p_delivery.render_meta #>> '{series_progress,attempt}')::integer - 1, 0)
         - coalesce((p_delivery.render_meta ->> 'not_ready_attempts')::integer, 0)
$$;

CREATE FUNCTION autopost.troubles_of(p_workspace_id text, p_delivery_ids uuid[], p_after timestamp with time zone, p_until timestamp with time zone, p_now timestamp with time zone) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    with trouble as (
        select c.kind, c.delivery_id, c.says, jsonb_build_object('first_event', c.first_event, 'second_event', c.second_event) as more
        from autopost.contradictions(p_workspace_id, p_delivery_ids, p_now) c
        union all
        select t.kind, t.delivery_id, t.says, jsonb_build_object('other_delivery', t.other_id)
        from autopost.doubled_posts(p_workspace_id, p_delivery_ids, p_now) t
        union all
        select b.kind, b.delivery_id, b.says, jsonb_build_object('channel_id', b.channel_id, 'first_event', b.first_event, 'second_event', b.second_event)
        from autopost.hasty_begins(p_workspace_id, p_after, p_until) b
        union all
        select b.kind, b.delivery_id, b.says, jsonb_build_object('channel_id', b.channel_id, 'first_event', b.first_event, 'second_event', b.second_event)
        from autopost.crowded_begins(p_workspace_id, p_after, p_until) b
    )
    select coalesce(jsonb_agg(jsonb_build_object('kind', t.kind, 'subject', t.delivery_id, 'says', t.says, 'details', jsonb_strip_nulls(t.more))
                              order by t.kind, t.delivery_id), '[]')
    from trouble t
$$;

CREATE FUNCTION autopost.unknown_channels(p_workspace_id text, p_only text[]) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select 'no such channel: ' || string_agg(o.id, ', ' order by o.id)
    from unnest(p_only) o (id)
    where not exists (select from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = o.id)
$$;

CREATE FUNCTION autopost.unknown_deliveries(p_workspace_id text, p_channel_id text DEFAULT NULL::text, p_limit integer DEFAULT 200, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(held_at timestamp with time zone, channel_id text, delivery_id uuid, message_id uuid, attempt integer, began_at timestamp with time zone, code text, message text, parts integer, shows text, total bigint)
    LANGUAGE sql STABLE
    AS $$
    with held as materialized (
        select d.*, count(*) over () as total
        from autopost.channels c,
        lateral (select d.* from autopost.deliveries d
                 where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
                   and d.next_retry_at = 'infinity' and d.held_at <= p_now offset 0) d
        where c.workspace_id = p_workspace_id and (p_channel_id is null or c.channel_id = p_channel_id)
        order by d.held_at, d.delivery_id limit p_limit
    )
    select h.held_at, h.channel_id, h.delivery_id, h.message_id, h.attempt,
           (select max(e.ts) from autopost.events e
            where e.delivery_id = h.delivery_id and e.workspace_id = p_workspace_id and e.action = 'send_attempt' and e.ts <= h.held_at),
           h.last_error ->> 'code', h.last_error ->> 'message',
           coalesce(jsonb_array_length(h.render_meta #> '{series_progress,provider_message_ids}'), 0),
           left(regexp_replace(case when h.render_meta ->> 'parse_mode' = 'HTML' then autopost.without_tags(h.rendered_text)
                                    else h.rendered_text end, '\s+', ' ', 'g'), 80),
           h.total
    from held h order by h.held_at, h.delivery_id
$$;

CREATE FUNCTION autopost.unknown_objects(p_workspace_id text, p_paths text[]) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $_$
    select p.path from unnest(p_paths) p (path)
    where not exists (select from autopost.media_origin o
                      where o.workspace_id = p_workspace_id
                        and o.blob_ref = 'sha256:' || substring(p.path from '/([0-9a-f]{64})[^/]*$') and o.origin_url = p.path)
$_$;

CREATE FUNCTION autopost.unseen_items(p_workspace_id text, p_source_id text, p_keys text[]) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    select k.key from unnest(p_keys) k (key)
    where not exists (select from autopost.pull_items i where i.workspace_id = p_workspace_id and i.source_id = p_source_id
                      and i.item_hash = core.sha256_hex(k.key))
$$;

CREATE FUNCTION autopost.unused_character(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select chr(n) from generate_series(1, 31) n where position(chr(n) in p_text) = 0 order by n limit 1
$$;

CREATE FUNCTION autopost.unwanted_reason(p_channel autopost.channels, p_post autopost.stored) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select case
        when not p_channel.enabled then 'the channel is disabled'
        when p_channel.channel_id <> all (coalesce(p_post.only_channels, array[p_channel.channel_id])) then 'the post names other channels'
        when (p_channel.route_filter -> 'exclude') ?| p_post.tags
            then format('its route_filter excludes %s', (select string_agg(t, ', ' order by t) from unnest(p_post.tags) t
                                                          where p_channel.route_filter -> 'exclude' ? t))
        else format('its route_filter wants %s %s, and the post has %s',
                    case when not coalesce(to_jsonb(p_post.tags) @> (p_channel.route_filter -> 'include_all'), true) then 'all of' else 'one of' end,
                    (select string_agg(t, ', ') from jsonb_array_elements_text(p_channel.route_filter -> case
                        when not coalesce(to_jsonb(p_post.tags) @> (p_channel.route_filter -> 'include_all'), true)
                        then 'include_all' else 'include_any' end) t),
                    coalesce(nullif(array_to_string(p_post.tags, ', '), ''), 'no tags'))
    end
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
        returning m.message_id, m.content_hash, m.tags, m.payload, m.source, m.xmax = 0 as is_new
    )
    select coalesce(array_agg((p.item, u.message_id, u.is_new, u.payload, p.content_hash, u.tags, p.trace_id, p.created_at,
        case when jsonb_typeof(p.raw -> 'channels') = 'array'
             then array(select jsonb_array_elements_text(p.raw -> 'channels')) end,
        (p.raw ->> 'scheduled_for')::timestamptz, u.source)::autopost.stored order by p.item), '{}')
    from upserted u join unnest(p_posts) p on p.content_hash = u.content_hash
$$;

CREATE FUNCTION autopost.url_encode(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    select case when p_text ~ '^[A-Za-z0-9_.-]*$' then regexp_replace(p_text, '\.$', '%2E') else (
        select regexp_replace(string_agg(case when chr(b) ~ '[A-Za-z0-9_.-]' and b < 128 then chr(b)
                   else '%' || upper(lpad(to_hex(b), 2, '0')) end, '' order by i), '\.$', '%2E')
        from (select i, get_byte(convert_to(p_text, 'UTF8'), i) as b
              from generate_series(0, octet_length(p_text) - 1) i) bytes) end
$_$;

CREATE FUNCTION autopost.uses_channel(p_body text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select exists (select from unnest(autopost.template_variables(p_body)) v where v like 'channel.%')
$$;

CREATE FUNCTION autopost.utf16_length(p_text text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select char_length(p_text) + regexp_count(p_text, '[\U00010000-\U0010FFFF]')
$$;

CREATE FUNCTION autopost.utm_parameters(p_utm jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    select coalesce(array_agg(name || '=' || autopost.url_encode(value)
               order by array_position('{utm_source,utm_medium,utm_campaign,utm_term,utm_content}', name), name), '{}')
    from (select case when key like 'utm\_%' then key else 'utm_' || key end as name, value
          from jsonb_each_text(case jsonb_typeof(p_utm) when 'object' then p_utm else '{}' end)
          where key <> 'only_hosts' and key ~ '^\w+$' and value <> '') u
$_$;

CREATE FUNCTION autopost.uuid_time(p_id uuid) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select case when substr(p_id::text, 15, 1) = '7'
                then to_timestamp(('x' || translate(left(p_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0) end
$$;

CREATE FUNCTION autopost.validation_error(p_reason text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when p_reason is not null then jsonb_build_object(
        'category', 'PERMANENT', 'scope', 'delivery', 'code', 'validation_failed', 'message', core.redact_text(p_reason)) end
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
        case when autopost.array_of(p_raw, 'media') <> '[]'
             then autopost.media_problem(autopost.array_of(p_raw, 'media')) end,
        -- A moment with its offset is the same one whatever the session's time zone is.
        case when p_raw ->> 'scheduled_for' !~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)$'
                  or not pg_input_is_valid(p_raw ->> 'scheduled_for', 'timestamptz')
             then 'scheduled_for: must be a moment with its offset, like 2027-01-31T09:00:00+03:00' end,
        case when coalesce(btrim(p_raw ->> 'text', E' \t\r\n\u00a0'), '') = ''
                  and jsonb_array_length(autopost.array_of(p_raw, 'links')) = 0
                  and jsonb_array_length(autopost.array_of(p_raw, 'media')) = 0
             then 'text: a post needs text, links or media' end
    ], null)
$_$;

CREATE FUNCTION autopost.visible_text(p_text text, p_parse_mode text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select case p_parse_mode when 'HTML' then autopost.without_entities(autopost.without_tags(p_text))
                             when 'Markdown' then autopost.without_entities(autopost.without_marks(p_text))
                             else p_text end
$$;

CREATE FUNCTION autopost.waiting_around(p_workspace_id text, p_channel_id text, p_at timestamp with time zone, p_but uuid, p_now timestamp with time zone) RETURNS SETOF timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
begin
    return query
    (select d.not_before from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'queued' and d.not_before <= p_at
       and d.delivery_id is distinct from p_but order by d.not_before desc limit 1)
    union all
    (select d.not_before from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'queued' and d.not_before > p_at
       and d.not_before < 'infinity' and d.delivery_id is distinct from p_but order by d.not_before limit 1)
    union all
    (select greatest(d.scheduled_for, p_now) from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'queued' and d.not_before = 'infinity'
       and d.delivery_id is distinct from p_but order by d.created_at desc limit 100)
    union all
    (select d.not_before from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'claimed' limit 100)
    union all
    (select p_now from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'sending' limit 1)
    union all
    (select greatest(d.next_retry_at, d.not_before) from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'retry' and d.next_retry_at <= p_at
     order by d.next_retry_at desc limit 20)
    union all
    (select greatest(d.next_retry_at, d.not_before) from autopost.deliveries d
     where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'retry' and d.next_retry_at > p_at
       and d.held_at is null order by d.next_retry_at limit 1);
end $$;

CREATE FUNCTION autopost.warnings_of(p_workspace_id text, p_stored autopost.stored, p_tags text[], p_now timestamp with time zone) RETURNS text[]
    LANGUAGE sql
    AS $$
    select array_remove(array[
        autopost.tags_warning(p_stored, p_tags), autopost.only_warning(p_workspace_id, p_stored),
        autopost.past_warning(p_stored, p_now), autopost.gap_warning(p_workspace_id, p_stored, p_now)], null)
$$;

CREATE FUNCTION autopost.why_delivery(p_workspace_id text, p_delivery_id uuid, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(status text, gate text, earliest timestamp with time zone, detail text, gates jsonb, ahead bigint, remedy text)
    LANGUAGE sql STABLE
    AS $$
    with d as (
        select d.*, d as delivery, c, g, w.status as workspace_status, p.sending_lease, a.claims, a.due, a.later,
               a.claims + a.due + a.later as ahead, busy.n as sending,
               greatest(autopost.step_of(c.rate_rps), autopost.step_of(g.rate_rps)) as step,
               greatest(c.last_begin_at + autopost.step_of(c.rate_rps), g.last_begin_at + autopost.step_of(g.rate_rps)) as paced_until,
               greatest(p_now, c.paused_until, c.cooldown_until, g.cooldown_until) as gated_until,
               autopost.shut_window_opens(c, greatest(p_now, d.scheduled_for),
                   case when d.status = 'queued' and d.not_before < 'infinity' then d.not_before end) as shut_until
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        join core.workspaces w on w.workspace_id = d.workspace_id
        left join autopost.platform_limits g on g.workspace_id = d.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        left join autopost.policies p on p.workspace_id = d.workspace_id,
        lateral autopost.ahead_of(p_workspace_id, d, p_now) a,
        lateral (select count(*) as n from autopost.deliveries s
                 where s.workspace_id = d.workspace_id and s.channel_id = d.channel_id and s.status = 'sending') busy
        where d.workspace_id = p_workspace_id and d.delivery_id = p_delivery_id
    ), found as (
        select gate.* from d, lateral (values
            ('workspace', d.workspace_status <> 'active', 'infinity'::timestamptz, 'the workspace is ' || d.workspace_status),
            ('disabled', not (d.c).enabled, 'infinity',
                format('channel %s is disabled%s', d.channel_id,
                       case when not (d.c).enabled then autopost.gate_cause(p_workspace_id, d.c, 'channel_disabled') end)),
            ('held', d.held_at is not null, 'infinity', 'its outcome is unknown: confirm it or send it again'),
            ('paused', (d.c).paused_until > p_now, (d.c).paused_until,
                format('channel %s is paused%s', d.channel_id,
                       case when (d.c).paused_until > p_now then autopost.gate_cause(p_workspace_id, d.c, 'channel_paused') end)),
            ('cooldown', (d.c).cooldown_until > p_now, (d.c).cooldown_until, 'the platform asked this channel to wait'),
            ('group_cooldown', (d.g).cooldown_until > p_now, (d.g).cooldown_until, format('the platform asked group %s to wait', (d.c).rate_group)),
            ('retry', d.status = 'retry' and d.next_retry_at > p_now and d.held_at is null, d.next_retry_at,
                format('attempt %s failed: %s', d.attempt, coalesce(d.last_error ->> 'message', d.last_error ->> 'code'))),
            ('media_pending', d.status = 'queued' and d.not_before = 'infinity', 'infinity', 'its media are being fetched'),
            ('schedule', d.status in ('queued', 'retry') and d.not_before > p_now and d.not_before < 'infinity'
                    and (d.shut_until is null or d.scheduled_for > p_now),
                case when d.shut_until is null then d.not_before else d.scheduled_for end, 'it is scheduled for later'),
            ('window', d.status <> 'sending' and d.shut_until is not null, d.shut_until,
                format('the posting window of channel %s is closed', d.channel_id)),
            ('slot', d.status = 'claimed' and d.not_before > p_now, d.not_before, 'its slot has not come'),
            ('pace', d.status in ('queued', 'claimed', 'retry') and d.paced_until > p_now, d.paced_until,
                'the last send of its channel or group began only just now'),
            ('max_parallel', d.status in ('queued', 'claimed', 'retry')
                    and d.sending + case when d.step is null then d.due else 0 end >= (d.c).max_parallel, p_now,
                case when d.sending >= (d.c).max_parallel
                     then format('%s sends of this channel are under way, as many as it may have', (d.c).max_parallel)
                     else format('%s are before it, and the channel may have %s at once', d.due, (d.c).max_parallel) end),
            ('rate', d.status in ('queued', 'retry') and (d.c).rate_rps > 0 and (d.c).next_allowed_at > p_now, (d.c).next_allowed_at,
                format('channel %s takes %s a second', d.channel_id, (d.c).rate_rps)),
            ('group_rate', d.status in ('queued', 'retry') and (d.g).rate_rps > 0 and (d.g).next_allowed_at > p_now, (d.g).next_allowed_at,
                format('group %s takes %s a second', (d.c).rate_group, (d.g).rate_rps)),
            ('queue', d.status in ('queued', 'claimed') and d.ahead > 0 and d.step is not null and (d.c).enabled and d.not_before < 'infinity',
                case when d.ahead > 0 and d.step is not null then autopost.queue_until(d.delivery, d.c, d.g, d.claims, d.due, d.later, d.gated_until, p_now) end,
                format('%s of channel %s go before it, one every %s', d.ahead, d.channel_id, d.step)),
            ('lease', d.status = 'sending', d.sending_started_at + coalesce(d.sending_lease, '300 seconds'),
                'it is being sent; its lease ends then')
        ) as gate (gate, shut, opens, detail)
        where gate.shut and d.status in ('queued', 'claimed', 'sending', 'retry')
    ), last as (
        select * from found f order by f.opens desc, f.gate = 'window' desc limit 1
    ), final as (
        -- A gate may open while the window is closed: then the window is what it waits for after all.
        select coalesce(last.opens, p_now) as opens, last.gate, last.detail,
               case when (d.c).window_mode = 'windowed' and coalesce(last.opens, p_now) < 'infinity'
                    then autopost.next_open((d.c).posting_window, (d.c).timezone, coalesce(last.opens, p_now)) end as window_opens
        from d left join last on true
    ), named as (
        select f.*, case when d.status not in ('queued', 'claimed', 'retry') then coalesce(f.gate, autopost.end_of(d.delivery))
                         when f.window_opens > f.opens then 'window' else coalesce(f.gate, 'none') end as name
        from d, final f
    )
    select d.status, n.name,
           case when d.status in ('queued', 'claimed', 'sending', 'retry') then nullif(greatest(n.opens, n.window_opens), 'infinity') end,
           case when n.name = 'window' and n.window_opens > n.opens
                then format('the posting window of channel %s is closed then', d.channel_id)
                when n.name = 'none' then 'nothing is in its way: it goes with the next round of the dispatcher'
                else coalesce(n.detail, autopost.how_it_ended(d.delivery)) end,
           (select coalesce(jsonb_agg(jsonb_build_object('gate', f.gate, 'opens', nullif(f.opens, 'infinity'), 'detail', f.detail)
                                      order by f.opens desc), '[]') from found f),
           d.ahead, autopost.remedy_for(n.name, d.delivery, d.c)
    from d, named n
$$;

CREATE FUNCTION autopost.window_change(p_window jsonb, p_timezone text, p_at timestamp with time zone, p_open boolean) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
declare
    zone constant text := coalesce(p_timezone, 'UTC');
    at timestamptz := p_at;
    steady_until timestamptz;
    wall timestamp;
    stretch tsmultirange;
    hours tsmultirange;
begin
    while isfinite(at) and at < p_at + interval '9600 hours' loop
        steady_until := autopost.clock_steady_until(zone, at);
        wall := at at time zone zone;
        stretch := tsmultirange(tsrange(wall, wall + (steady_until - at)));
        hours := autopost.open_hours(p_window, wall::date - 1, wall::date + 1);
        stretch := case when p_open then stretch * hours else stretch - hours end;
        if not isempty(stretch) then
            return at + (lower(stretch) - wall);
        end if;
        -- Two weeks have shown all that comes again, skipped hours or not: what is left are the days that have a date.
        at := case when at < p_at + interval '360 hours' then steady_until
                   else greatest(steady_until, autopost.before_dated_day(p_window, wall::date - 2)) end;
    end loop;
    return null;
exception when data_exception then
    return null;
end $$;

CREATE FUNCTION autopost.window_closes(p_window jsonb, p_timezone text, p_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select case when autopost.window_open(p_window, p_timezone, p_at)
                then coalesce(autopost.window_change(p_window, p_timezone, p_at, false), 'infinity') end
$$;

CREATE FUNCTION autopost.window_names_problem(p_window jsonb) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select coalesce(
        (select format('posting_window: unknown day %s; known are mon, tue, wed, thu, fri, sat, sun, weekdays, weekend, daily, except',
                       to_json(left(min(d.day), 32)))
         from jsonb_object_keys(p_window) d (day)
         where d.day <> all ('{mon,tue,wed,thu,fri,sat,sun,weekdays,weekend,daily,except}')
         having count(*) > 0),
        case when not p_window ? 'except' then null
             when jsonb_typeof(p_window -> 'except') <> 'object'
             then 'posting_window.except: must name dates and their windows, as {"2027-01-01": []}'
             else (select case when count(*) > 1000 then 'posting_window.except: at most 1000 dates'
                               else 'posting_window.except: ' || to_json(left(min(d.day) filter (where not autopost.is_date(d.day)), 32))
                                    || ' is not a date; write it as 2027-01-31' end
                   from jsonb_object_keys(p_window -> 'except') d (day)) end)
$$;

CREATE FUNCTION autopost.window_open(p_window jsonb, p_timezone text, p_at timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
declare
    wall timestamp;
begin
    wall := p_at at time zone coalesce(p_timezone, 'UTC');
    return coalesce(autopost.open_hours(p_window, wall::date - 1, wall::date) @> wall, false);
exception when data_exception then
    return false;
end $$;

CREATE FUNCTION autopost.window_problem(p_window jsonb, p_timezone text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select coalesce(
        case when p_window is null then 'posting_window: a windowed channel needs one'
             when jsonb_typeof(p_window) <> 'object'
             then 'posting_window: must name days and their windows, as {"mon": [["09:00", "18:00"]]}'
             else coalesce(autopost.window_names_problem(p_window), autopost.window_times_problem(p_window)) end,
        autopost.timezone_problem(p_timezone))
$$;

CREATE FUNCTION autopost.window_times_problem(p_window jsonb) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    select coalesce(
        (select format('posting_window.%s: %s', d.place, t.problem)
         from (select key as place, value from jsonb_each(p_window - 'except')
               union all
               select 'except.' || key, value from jsonb_each(coalesce(p_window -> 'except', '{}'))) d,
              lateral (select autopost.day_problem(d.value) as problem offset 0) t
         where t.problem is not null order by d.place limit 1),
        case when not exists (select from generate_series(0, 6) n
                              where autopost.windows_of_day(p_window - 'except', date '2027-01-04' + n) <> '[]')
              and not jsonb_path_exists(p_window, '$.except.*[*]')
             then 'posting_window: never opens' end)
$_$;

CREATE FUNCTION autopost.windows_of_day(p_window jsonb, p_day date) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select coalesce(p_window -> 'except' -> to_char(p_day, 'YYYY-MM-DD'),
                    p_window -> ('{mon,tue,wed,thu,fri,sat,sun}'::text[])[extract(isodow from p_day)::integer],
                    p_window -> case when extract(isodow from p_day) < 6 then 'weekdays' else 'weekend' end,
                    p_window -> 'daily', '[]')
$$;

CREATE FUNCTION autopost.with_rounds(p_posts autopost.incoming[]) RETURNS autopost.incoming[]
    LANGUAGE sql IMMUTABLE
    AS $$
    select coalesce(array_agg((p.item, p.raw, p.payload, p.content_hash, p.tags, p.trace_id, p.created_at, p.nth)::autopost.incoming
                              order by p.item), '{}')
    from (select *, row_number() over (partition by content_hash order by item)::integer as nth from unnest(p_posts)) p
$$;

CREATE FUNCTION autopost.with_utm(p_url text, p_utm jsonb, p_only_hosts text[] DEFAULT NULL::text[]) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select autopost.tagged_url(p_url, autopost.utm_parameters(p_utm), autopost.host_names(p_only_hosts), '&')
$$;

CREATE FUNCTION autopost.without_entities(p_text text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select case when position('&' in p_text) = 0 then p_text
                else regexp_replace(p_text, '&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});', '.', 'g') end
$$;

CREATE FUNCTION autopost.without_marks(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
declare
    t text := p_text;
begin
    if t ~ '[]`~<>#=\\]|[*_]|^[ \t-]|\n' then
        t := regexp_replace(t, '\]\((?:[^()\n]|\([^()\n]*\))*\)|\]\[[^][]*\]', '', 'g');
        t := regexp_replace(t, '(^|\n)[ \t>]*\[[^][]*\]:[^\n]*(\n[ \t]+["''(][^\n]*)?|(^|\n)[ \t>]*(```|~~~)[^\n]*|(^|\n)[ \t>]*(=+|-+)[ \t]*(?=\n|$)', E'\n', 'g');
        t := regexp_replace(t, '(^|\n)([ \t>#+*-]|\d{1,9}[.)][ \t])*', E'\n', 'g');
        t := regexp_replace(t, '[][*_`~\\<>#]+', '', 'g');
        t := regexp_replace(regexp_replace(t, '\s*\n\s*', E'\n', 'g'), '[ \t]+', ' ', 'g');
    end if;
    return btrim(t, E' \t\n');
end $_$;

CREATE FUNCTION autopost.without_tags(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
declare
    t text := p_text;
begin
    if position('<' in t) = 0 then
        return btrim(t, E' \t\n');
    end if;
    t := translate(t, E'\x01\x02\x03\x04\x05\x06', '......');
    t := regexp_replace(t, '<br\s*/?>((?:<(?!br)[^<>]*>)*)\n?', E'\n\\1', 'gi');
    if t !~* '<(p|h[1-6]|ul|ol|li|blockquote|pre)[\s>]' then
        return btrim(regexp_replace(t, '<[^<>]*>', '', 'g'), E' \t\n');
    end if;
    t := regexp_replace(t, '<(?:/?p|h[1-6])(?:\s[^<>]*)?>', E'\x02', 'gi');
    t := regexp_replace(t, '<li(?:\s[^<>]*)?>', E'\x03', 'gi');
    t := regexp_replace(t, '<(?:blockquote|pre)(?:\s[^<>]*)?>', E'\x04', 'gi');
    t := regexp_replace(t, '</(?:blockquote|pre)\s*>', E'\x05', 'gi');
    t := regexp_replace(t, '</h[1-6]\s*>', E'\x06', 'gi');
    t := regexp_replace(t, '</?(?:ul|ol|li)(?:\s[^<>]*)?>', E'\x01', 'gi');
    t := regexp_replace(t, '<[^<>]*>', '', 'g');
    t := regexp_replace(t, '[ \t\n]*\x06', E'\x01', 'g');
    t := regexp_replace(regexp_replace(t, '\x04[ \t\n\x01\x02\x04]*', E'\x01', 'g'), '[ \t\n\x01\x02]*\x05', E'\x01', 'g');
    -- An item without a word shows nothing; the dot of another stands behind the newlines.
    t := regexp_replace(t, '\x03([ \t\n\x01\x02]*)(?=[^ \t\n\x01-\x03])', E'\x01\\1• ', 'g');
    t := regexp_replace(t, '[ \t\n\x01\x03]*\x02[ \t\n\x01-\x03]*', E'\n\n', 'g');
    t := regexp_replace(t, '[ \t\n\x01\x03]*\n[ \t]*\n[ \t\n]*[\x01\x03][ \t\n\x01\x03]*|[ \t\n]*[\x01\x03][ \t\n\x01\x03]*\n[ \t]*\n[ \t\n\x01\x03]*', E'\n\n', 'g');
    t := regexp_replace(t, '[ \t\n]*[\x01\x03][ \t\n\x01\x03]*', E'\n', 'g');
    return btrim(t, E' \t\n');
end $$;

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

CREATE FUNCTION core.forbid_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'the record of who has looked is never changed' using errcode = 'VM001';
end $$;

CREATE FUNCTION core.grant_role(p_workspace_id text, p_actor text, p_login text, p_role text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform core.require_operator(p_workspace_id, p_login);
    if exists (select from core.operator_roles r
               where r.workspace_id = p_workspace_id and r.login = p_login and r.role = p_role) then
        return false;
    end if;
    delete from core.operator_roles r
    where r.workspace_id = p_workspace_id and r.login = p_login and p_role <> 'security' and r.role <> 'security';
    insert into core.operator_roles (workspace_id, login, role, granted_at) values (p_workspace_id, p_login, p_role, p_now);
    perform core.note_change(p_workspace_id, p_actor, 'role_granted', 'operator ' || p_login, jsonb_build_object('role', p_role), p_now);
    return true;
end $$;

CREATE FUNCTION core.lock_out(p_failures integer, p_free integer, p_most interval) RETURNS interval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select case when p_failures < p_free then '0'::interval
                else least(make_interval(secs => 2.0 ^ least(p_failures - p_free, 30)), p_most) end
$$;

CREATE FUNCTION core.names_secret(p_name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
    select p_name ~* ($re$pass(?:word|wd|phrase)|(?:^|[_-])pass\Z|pwd|secret(?!ar[iy])|token(?!s)|api[_-]?key|(?:access|private|signing)[_-]?key$re$
        || $re$|authorization|signature|credential|cookie|sess(?:ion)?[_-]?(?:id|key)|phone|e-?mail|[Пп]арол|[Тт]окен|[Сс]екрет$re$
        || $re$|[Тт]елефон|[Пп]очта$re$)
$_$;

CREATE FUNCTION core.note_change(p_workspace_id text, p_actor text, p_action text, p_subject text, p_details jsonb DEFAULT '{}'::jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into core.changes (workspace_id, change_id, ts, actor, action, subject, details)
    values (p_workspace_id, core.uuid7(p_now), p_now, p_actor, p_action, p_subject, coalesce(p_details, '{}'))
$$;

CREATE FUNCTION core.nth_uuid(p_base uuid, p_n bigint) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select encode(overlay(uuid_send(p_base) placing int4send(p_n::integer) from 13), 'hex')::uuid
$$;

CREATE FUNCTION core.pass_gates(p_subjects text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform from core.sign_in_gates g where g.subject = any (p_subjects) order by g.subject for no key update;
    if not core.was_let_in(p_subjects[1]) then
        update core.sign_in_gates g set failures = greatest(g.failures - 1, 0), locked_until = null
        where g.subject = any (p_subjects[2:]);
    end if;
    update core.sign_in_gates g set failures = 0, locked_until = null, passed_at = now() where g.subject = p_subjects[1];
end $$;

CREATE FUNCTION core.plain_signs(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
begin
    if p_text !~ ($re$[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f\ufeff\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u3000\u3002\ufe62\ufe6b\uff01-\uff5e\U0001d7ce-\U0001d7ff]$re$) then
        return p_text;
    end if;
    return translate(
        regexp_replace(p_text, '[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f\ufeff]', '', 'g'),
        $signs$！＂＃＄％＆＇（）＊＋，－．／０１２３４５６７８９：；＜＝＞？＠ＡＢＣＤＥＦＧＨＩＪＫＬＭＮＯＰＱＲＳＴＵＶＷＸＹＺ［＼］＾＿｀ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ｛｜｝～٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗𝟘𝟙𝟚𝟛𝟜𝟝𝟞𝟟𝟠𝟡𝟢𝟣𝟤𝟥𝟦𝟧𝟨𝟩𝟪𝟫𝟬𝟭𝟮𝟯𝟰𝟱𝟲𝟳𝟴𝟵𝟶𝟷𝟸𝟹𝟺𝟻𝟼𝟽𝟾𝟿　。﹢﹫$signs$,
        $signs$!"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqrstuvwxyz{|}~01234567890123456789012345678901234567890123456789012345678901234567890123456789 .+@$signs$);
end $_$;

CREATE FUNCTION core.prune_sign_ins(p_limit integer DEFAULT 1000, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE sql
    AS $$
    with sessions as (
        delete from core.operator_sessions s where s.token_hash in (
            select x.token_hash from core.operator_sessions x where x.expires_at < p_now limit p_limit)
        returning 1
    ), gates as (
        delete from core.sign_in_gates g where g.subject in (
            select x.subject from core.sign_in_gates x
            where x.last_at < p_now - interval '1 day' and (x.passed_at < p_now - interval '30 days') is not false limit p_limit)
        returning 1
    )
    select ((select count(*) from sessions) + (select count(*) from gates))::integer
$$;

CREATE FUNCTION core.redact(p_value jsonb, p_depth integer DEFAULT 0) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
begin
    case jsonb_typeof(p_value)
    when 'string' then
        return to_jsonb(core.redact_text(p_value #>> '{}'));
    when 'object', 'array' then
        if p_depth >= 32 then
            return '"***"';
        end if;
    else
        return p_value;
    end case;
    if jsonb_typeof(p_value) = 'array' then
        return (select coalesce(jsonb_agg(core.redact(x.item, p_depth + 1) order by x.n), '[]')
                from jsonb_array_elements(p_value) with ordinality x (item, n));
    end if;
    -- The list form of headers and cookies: {"name": "Cookie", "value": "…"}.
    return (select coalesce(jsonb_object_agg(core.redact_text(x.name),
                case when x.item not in ('null', 'true', 'false', '""')
                          and (core.names_secret(x.name)
                               or (x.name = 'value' and jsonb_typeof(p_value -> 'name') = 'string' and core.names_secret(p_value ->> 'name')))
                     then '"***"' else core.redact(x.item, p_depth + 1) end), '{}')
            from jsonb_each(p_value) x (name, item));
end $$;

CREATE FUNCTION core.redact_text(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
declare
    plain text;
    found text;
begin
    if p_text !~* ($re$[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f\ufeff\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u3000\u3002\ufe62\ufe6b$re$
        || $re$\uff01-\uff5e\U0001d7ce-\U0001d7ff]|[@=+]|%[24]|&#|&commat|u00[234]|x40|[\[(](?:at|[сС][оО][бБ]|[2-9][0-9]{2}[)])$re$
        || $re$|private|auth|cookie|pass|pwd|secret|token|key|signature|credential|sess|[пП][аА][рР][оО]|[тТ][оО][кК]|[сС][еЕ][кК]$re$
        || $re$|bearer|basic|[0-9]{5}(?::|%3)|(?:push|sess|link)_|whsec_|eyj|sk-|gh[oprsu]_|k_live|k_test|npm_|glsa|sg[.]$re$
        || $re$|aqvn|asia|hooks|webhooks|-u |_pat_|glpat|xox|aiza|ya29|y0_|vk1|hf_|akia|tel|phone|mobile|whats|[тТ]ел|[мМ]об$re$
        || $re$|(?<![0-9.])9[0-9]{2}[ -]|[0-9]{4}[ -][0-9]{4}[ -]|[a-z][\u0400-\u04ff]|[\u0400-\u04ff][a-z]|(?<![0-9])(?:00[ -]?)?[78]$re$
        || $re$(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[(]?[3-9]|[ -][0-9][ -])$re$) then
        return p_text;
    end if;
    plain := core.plain_signs(p_text);
    found := plain;
    -- A private key.
    found := regexp_replace(found,
        $re$-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-[^-])*(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?$re$,
        '***', 'g');
    -- Name and password in an address.
    found := regexp_replace(found,
        $re$://(?:[^/:@ \t\r\n"'<>]*:(?![0-9]{1,5}/)[^/ \t\r\n"'<>]*(?:/[^/@ \t\r\n"'<>]*){0,3}|[^/ \t\r\n"'<>]*)@$re$,
        '://***@', 'g');
    -- Headers.
    found := regexp_replace(found,
        $re$((?:authorization|x-auth[a-z-]{0,20})\\*["']?[ \t]*[=:][ \t]*)(?:(\\+")(?:[^"\\]|\\+[^"\\])*|(")(?:[^"\\]$re$
        || $re$|\\.)*|(')[^']*|digest[^\r\n]*|(?:[a-z][a-z0-9-]*[ \t]+)?[^ \t\r\n"',;&}]+)$re$,
        '\1\2\3\4***', 'gi');
    found := regexp_replace(found,
        $re$(cookie2?\\*["']?[ \t]*[=:][ \t]*)(?:(\\+")(?:[^"\\]|\\+[^"\\])*|(")(?:[^"\\]|\\.)*|(')[^']*|[^ \t\r\n"'{}\[\]][^\r\n"'{}\[\]]*)$re$,
        '\1\2\3\4***', 'gi');
    -- Whatever is named like a secret.
    found := regexp_replace(found,
        $re$((?:[pрР][aаА][sѕЅ]{2}(?:w[oоО]rd|wd|[pрР]hr[aаА][sѕЅ][eеЕ])|(?<![a-z])(?:pass|auth)(?=\\*[\"']|=)|pwd|[sѕЅ][eеЕ][cсС]r[eеЕ]t$re$
        || $re$(?!ar[iy])|t[oоО][kкК][eеЕ]n(?!s)|api[._-]?key|(?:access|private|signing|auth)[_-]?key|signature|credential$re$
        || $re$|sess(?:ion)?[_-]?(?:id|key)|[Пп][Ааa][Ррp][Ооo][Лл][ЬьЯяЮю]|[Ттt][Ооo][Ккk][Ееe][Нн]|[Ссc][Ееe][Ккk][Ррp][Ееe][Ттt]$re$
        || $re$(?![Аа][Рр]))[a-z0-9_-]{0,30}\\*["']?[ \t\r\n]*(?:=>?|:|%(?:25){0,2}3[da]|\\{1,8}u003[da])[ \t\r\n]*)(?:(\\+")$re$
        || $re$(?:[^"\\]|\\+[^"\\])*|(")(?:[^"\\]|\\.)*|(')[^']*|«[^»]*»?|(?!(?:null|none|true|false)(?:[ \t\r\n"'&,;{}\[\]$re$
        || $re$()<>]|\Z))(?:(?:bearer|basic)[ \t]+)?[^« \t\r\n"'&,;{}\[\]()<>][^ \t\r\n"'&,;{}\[\]()<>]*)$re$,
        '\1\2\3\4***', 'gi');
    -- Said to a program, put into an element, or the end of an address that is a key by itself.
    found := regexp_replace(found,
        $re$((?:^|[ \t"'])(?:(?:-u|--user|--proxy-user)[ =]["']?[^ \t\r\n"':=]{1,64}:|--[a-z-]{0,30}(?:password|passwd$re$
        || $re$|token|secret|api-?key)[a-z-]{0,20}[ ]["']?)|hooks[.]slack[.]com/services/|discord(?:app)?[.]com/api/webhooks/)[^ \t\r\n"'<>]+$re$
        || $re$|(<[a-z:_-]{0,30}(?:password|passwd|token(?!s)|secret|api-?key)[a-z_-]{0,20}>)[^<>]+$re$,
        '\1\2***', 'gi');
    -- Credentials behind their scheme.
    found := regexp_replace(found,
        $re$((?:[Bb]earer|BEARER|[Bb]asic|BASIC)(?:[ \t\r\n]|%(?:25){0,2}20)+)(?!realm=)(?:(?=[A-Za-z0-9._~+/:-]*(?:[0-9=_]$re$
        || $re$|[a-z][A-Z]|[.][A-Za-z]))(?:[A-Za-z0-9._~+/=:-]{6,}|[A-Za-z0-9._~+/=:-]{1,5}\Z)|[A-Za-z0-9._~+/=:-]{16,})$re$,
        '\1***', 'g');
    -- Tokens that show by their form: bots, our own, JWT, well-known services.
    found := regexp_replace(found,
        $re$[0-9]{5,20}(?::|%(?:25){0,2}3[Aa]|\\{1,8}u003[Aa])[A-Za-z0-9_-]{20,}|[0-9]{6,20}(?::|%(?:25){0,2}3[Aa]|\\{1,8}u003[Aa])$re$
        || $re$(?:AA[A-Za-z0-9_-]*|A[A-Za-z0-9_-]?\Z)|v(?:key|push|sess|link)_(?:[A-Za-z0-9_-]{6,}|[A-Za-z0-9_-]*\Z)|whsec_$re$
        || $re$(?:[A-Za-z0-9+/=_-]{6,}|[A-Za-z0-9+/=_-]*\Z)|eyJ[A-Za-z0-9_-]{6,}(?:[.][A-Za-z0-9_-]*){0,4}|eyJ[A-Za-z0-9_-]*\Z$re$
        || $re$|(^|[^A-Za-z0-9])(?:(?:sk-|[prs]k_(?:live|test)_|gh[oprsu]_|github_pat_|glpat-|glsa_|npm_|xox[abeprs]-|AIza$re$
        || $re$|AQVN|ya29[.]|y0_|vk1[.]a[.]|hf_|SG[.][A-Za-z0-9_-]{16,32}[.])[A-Za-z0-9_-]{16,}|A[KS]IA[0-9A-Z]{12,})$re$,
        '\1***', 'g');
    -- Long random values behind a "=", and short ones in a query.
    found := regexp_replace(found,
        $re$((?:^|[^A-Za-z0-9_=-])(?![A-Za-z0-9_-]*(?:hash|sha256|sha1|md5|etag|id|ref|cursor)=)[A-Za-z0-9_-]*=["']?)$re$
        || $re$(?![0-9a-fA-F]{8}-[0-9a-fA-F]{4}-)(?=[A-Za-z0-9+_-]*[0-9])[A-Za-z0-9+_-]{32,}[A-Za-z0-9+/_=-]*|([?&](?:key$re$
        || $re$|sig|sign|auth|hash|code)=)[^& \t\r\n\u00a0"'<>#]{8,}$re$,
        '\1\2***', 'g');
    -- Addresses of people; at the end of a text also half of one.
    found := regexp_replace(found,
        $re$(^|[^A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-])(?:[A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+@$re$
        || $re$(?:[A-Za-z\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff][.A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]*)?\Z$re$
        || $re$|(?:[A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+|"[^"@\\<>]{1,64}")(?:@(?![1-4]x[.])|%(?:25){0,2}40$re$
        || $re$|&(?:#(?:0{0,5}64|[xX]0{0,5}40)|commat);|\\{1,8}(?:u00|x)40| ?[\[(](?:at|AT|собака)[\])] ?)(?:[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+$re$
        || $re$(?:(?:[.]| ?[\[(](?:dot|DOT|точка)[\])] ?)[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+)*(?:[.]| ?[\[$re$
        || $re$(](?:dot|DOT|точка)[\])] ?)[A-Za-z\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff][A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+$re$
        || $re$|\[[0-9A-Fa-f.:]{3,45}\])(?:[A-Za-z0-9_.+%!#$^~\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]*(?:@(?![1-4]x[.])$re$
        || $re$|%(?:25){0,2}40|&(?:#(?:0{0,5}64|[xX]0{0,5}40)|commat);|\\{1,8}(?:u00|x)40| ?[\[(](?:at|AT|собака)[\])] ?)$re$
        || $re$(?:[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+(?:(?:[.]| ?[\[(](?:dot|DOT|точка)[\])] ?)[A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+)*$re$
        || $re$(?:[.]| ?[\[(](?:dot|DOT|точка)[\])] ?)[A-Za-z\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff][A-Za-z0-9\u00c0-\u1fff\u2c00-\u2fef\u3040-\ud7ff-]+$re$
        || $re$|\[[0-9A-Fa-f.:]{3,45}\]))*)$re$,
        '\1***', 'g');
    -- Phones: international, at home, and whatever is called one.
    found := regexp_replace(found,
        $re$(?:\+|%2[Bb]|\\{1,8}u002[Bb])[ (]{0,2}(?![0-9]{4} [0-9]{4}-)(?:[1-9](?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){5,13}\Z$re$
        || $re$|7(?:(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){10}(?![0-9])|[0-9]{11,14}$re$
        || $re$(?![0-9]))|[1-689](?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){7,14}(?![0-9]))$re$
        || $re$|(?<![0-9A-Fa-f-])[2-6][0-9]{3}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{4}(?![0-9A-Fa-f])$re$,
        '***', 'g');
    found := regexp_replace(found,
        $re$(^|[^0-9.-]|(?:^|[^0-9])[.]|[0-9A-Za-zА-Яа-яЁё]-)(?:00)?[78][3489][0-9]{9}(?![0-9A-Za-z_])(?![.][0-9])|(^$re$
        || $re$|[^0-9.]|(?:^|[^0-9])[.])(?:[78][ -]?[(][3-9][0-9]{0,4}[)]?(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){0,9}\Z$re$
        || $re$|(?:00[ -]?)?(?![78][0-9]{10})(?:[78][ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[(]?[347-9][0-9]{2}[)]?$re$
        || $re$(?:[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]){7}|[78](?:[ -][0-9]){10}(?![ -][0-9]))$re$
        || $re$(?![0-9A-Za-z_])|9[0-9]{2}[ -][0-9]{3}[ -][0-9]{2}[ -][0-9]{2}(?![0-9A-Za-z_])|[(][3489][0-9]{2}[)][ \t\r\n$re$
        || $re$().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]{3}[ \t\r\n().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]{2}[ \t\r\n$re$
        || $re$().\u00a0\u2000-\u200a\u202f\u2010-\u2015\u2212/_~-]{0,3}[0-9]{2}(?![0-9])|[(][2-9][0-9]{2}[)][ -]?[0-9]{3}-[0-9]{4}$re$
        || $re$(?![0-9]))$re$,
        '\1\2***', 'g');
    found := regexp_replace(found,
        $re$((?:(?:^|[^A-Za-z])(?:[Tt]el(?:ephone)?|[Pp]hone|PHONE|[Mm]obile|[Ww]hats[Aa]pp)|_phone|[Тт]ел(?:ефон[а-я]{0,3})?$re$
        || $re$|[Мм]об)(?:[ _]?n(?:umber|um|r|o))?[ "'.:=№\\]{1,6})[0-9(](?:[ ().-]{0,2}[0-9]){6,14}$re$,
        '\1***', 'g');
    return case when found = plain then p_text else found end;
end $_$;

CREATE FUNCTION core.require_operator(p_workspace_id text, p_login text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform from core.operators o where o.login = p_login for no key update;
    if not found then
        raise exception 'no operator %', p_login using errcode = 'VN001';
    end if;
    if p_workspace_id <> '*' and not exists (select from core.workspaces w where w.workspace_id = p_workspace_id) then
        raise exception 'no workspace %', p_workspace_id using errcode = 'VN001';
    end if;
end $$;

CREATE FUNCTION core.roles_of(p_workspace_id text, p_login text) RETURNS text[]
    LANGUAGE sql STABLE
    AS $$
    select coalesce(array_agg(distinct r.role order by r.role), '{}')
    from core.operator_roles r
    join core.operators o on o.login = r.login and o.disabled_at is null
    where r.login = p_login and r.workspace_id in (p_workspace_id, '*')
      and (p_workspace_id = '*' or exists (select from core.workspaces w where w.workspace_id = p_workspace_id))
$$;

CREATE FUNCTION core.set_operator_enabled(p_actor text, p_login text, p_enabled boolean, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    changed boolean;
begin
    perform core.require_operator('*', p_login);
    update core.operators o set disabled_at = case when not p_enabled then p_now end, updated_at = p_now
    where o.login = p_login and (o.disabled_at is null) is distinct from p_enabled;
    changed := found;
    if changed and not p_enabled then
        delete from core.operator_sessions s where s.login = p_login;
    end if;
    if changed then
        perform core.note_change('*', p_actor, case when p_enabled then 'operator_enabled' else 'operator_disabled' end,
            'operator ' || p_login, '{}', p_now);
    end if;
    return changed;
end $$;

CREATE FUNCTION core.set_password(p_actor text, p_login text, p_hash text, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform core.require_operator('*', p_login);
    update core.operators o set password_hash = p_hash, updated_at = p_now where o.login = p_login;
    delete from core.operator_sessions s where s.login = p_login;
    perform core.note_change('*', p_actor, 'password_set', 'operator ' || p_login, '{}', p_now);
end $$;

CREATE FUNCTION core.sha256_hex(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
begin
    -- Not inlined either way (convert_to is only stable), and an expression of plpgsql starts no executor.
    return encode(sha256(convert_to(p_text, 'UTF8')), 'hex');
end $$;

CREATE FUNCTION core.take_role(p_workspace_id text, p_actor text, p_login text, p_role text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform core.require_operator(p_workspace_id, p_login);
    delete from core.operator_roles r where r.workspace_id = p_workspace_id and r.login = p_login and r.role = p_role;
    if found then
        perform core.note_change(p_workspace_id, p_actor, 'role_taken', 'operator ' || p_login, jsonb_build_object('role', p_role), p_now);
    end if;
    return found;
end $$;

CREATE FUNCTION core.try_gates(p_subjects text[], p_free integer[], p_most interval[], p_now timestamp with time zone DEFAULT now()) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
declare
    shut_until timestamptz;
begin
    if core.was_let_in(p_subjects[1], p_now) then
        p_subjects := p_subjects[:1];
        p_free := p_free[:1];
        p_most := p_most[:1];
    end if;
    perform from core.sign_in_gates g where g.subject = any (p_subjects) order by g.subject for no key update;
    select max(g.locked_until) into shut_until from core.sign_in_gates g
    where g.subject = any (p_subjects) and g.locked_until > p_now and g.last_at > p_now - interval '1 hour';
    if shut_until is not null then
        return shut_until;
    end if;
    insert into core.sign_in_gates as g (subject, failures, last_at, locked_until)
    select s.subject, 1, p_now, p_now + core.lock_out(1, s.free, s.most)
    from unnest(p_subjects, p_free, p_most) s (subject, free, most) order by s.subject
    on conflict (subject) do update
    set failures = case when g.last_at > p_now - interval '1 hour' then g.failures + 1 else 1 end, last_at = p_now;
    update core.sign_in_gates g set locked_until = p_now + core.lock_out(g.failures, s.free, s.most)
    from unnest(p_subjects, p_free, p_most) s (subject, free, most)
    where g.subject = s.subject;
    return null;
end $$;

CREATE FUNCTION core.uuid7(p_ts timestamp with time zone) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$ select uuidv7(p_ts - clock_timestamp()) $$;

CREATE FUNCTION core.was_let_in(p_subject text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select exists (select from core.sign_in_gates g where g.subject = p_subject and g.passed_at > p_now - interval '30 days')
$$;

CREATE FUNCTION ops.ack_alerts(p_workspace_id text, p_actor text, p_alert text, p_subject text DEFAULT NULL::text, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    acked integer;
begin
    update ops.alerts a set acked_at = p_now, acked_by = left(p_actor, 200), acked_count = ops.count_in(a.details)
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.cleared_at is null
      and coalesce(a.subject = p_subject, true);
    get diagnostics acked = row_count;
    if acked > 0 then
        perform core.note_change(p_workspace_id, left(p_actor, 200), 'alert_acked', concat_ws(' ', p_alert, p_subject), '{}', p_now);
    end if;
    return acked;
end $$;

CREATE FUNCTION ops.alert_policy_of(p_workspace_id text) RETURNS ops.alert_policies
    LANGUAGE plpgsql
    AS $$
declare
    policy ops.alert_policies;
begin
    select * into policy from ops.alert_policies p where p.workspace_id = p_workspace_id;
    if not found then
        perform ops.must_be_workspace(p_workspace_id);
        insert into ops.alert_policies (workspace_id) values (p_workspace_id) on conflict do nothing;
        select * into policy from ops.alert_policies p where p.workspace_id = p_workspace_id;
    end if;
    return policy;
end $$;

CREATE TABLE ops.job_kinds (
    workspace_id text NOT NULL,
    kind text NOT NULL,
    concurrency integer,
    max_attempts smallint DEFAULT 5 NOT NULL,
    backoff_base interval DEFAULT '00:00:02'::interval NOT NULL,
    backoff_factor double precision DEFAULT 2 NOT NULL,
    backoff_max interval DEFAULT '00:10:00'::interval NOT NULL,
    backoff_jitter double precision DEFAULT 0.2 NOT NULL,
    paused_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT job_kinds_backoff_base_check CHECK ((backoff_base >= '00:00:00'::interval)),
    CONSTRAINT job_kinds_backoff_factor_check CHECK (((backoff_factor >= (1)::double precision) AND (backoff_factor <= (100)::double precision))),
    CONSTRAINT job_kinds_backoff_jitter_check CHECK (((backoff_jitter >= (0)::double precision) AND (backoff_jitter <= (1)::double precision))),
    CONSTRAINT job_kinds_backoff_max_check CHECK ((backoff_max >= '00:00:00'::interval)),
    CONSTRAINT job_kinds_concurrency_check CHECK ((concurrency > 0)),
    CONSTRAINT job_kinds_max_attempts_check CHECK ((max_attempts > 0))
)
WITH (fillfactor='50');

CREATE FUNCTION ops.backoff(p_rules ops.job_kinds, p_attempt integer, p_chance double precision) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$
    select (1 + p_rules.backoff_jitter * p_chance) * make_interval(secs => least(
        extract(epoch from p_rules.backoff_max)::double precision,
        extract(epoch from p_rules.backoff_base)::double precision * power(p_rules.backoff_factor, least(p_attempt, 100) - 1)))
$$;

CREATE FUNCTION ops.believed_now(p_workspace_id text DEFAULT '*'::text, p_now timestamp with time zone DEFAULT now()) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
declare
    leap constant interval := '2 days';
    known ops.clock_checks;
begin
    insert into ops.clock_checks (workspace_id, believed_at) values (p_workspace_id, p_now) on conflict do nothing;
    select * into known from ops.clock_checks c where c.workspace_id = p_workspace_id for no key update;
    if p_now > known.believed_at + leap then
        -- What it shows is odd; a jump within the odd time begins that anew.
        if known.odd_since is null or p_now not between known.odd_at and known.odd_at + leap then
            known.odd_since := p_now;
        end if;
        if p_now < known.odd_since + interval '1 day' then
            update ops.clock_checks c set odd_since = known.odd_since, odd_at = p_now where c.workspace_id = p_workspace_id;
            perform ops.put_alert(p_workspace_id, 'clock', '', 'warning', format('the clock went on from %s to %s: nothing old is removed',
                known.believed_at, known.odd_since), jsonb_build_object('from', known.believed_at, 'to', known.odd_since,
                'until', known.odd_since + interval '1 day'), p_now);
            return null;
        end if;
    end if;
    update ops.clock_checks c set believed_at = p_now, odd_since = null, odd_at = null where c.workspace_id = p_workspace_id;
    perform ops.clear_alert(p_workspace_id, 'clock', '', p_now);
    return p_now;
end $$;

CREATE FUNCTION ops.cancel_job(p_workspace_id text, p_job_id uuid, p_now timestamp with time zone DEFAULT now()) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    job constant ops.jobs := ops.locked_job(p_workspace_id, p_job_id);
begin
    if job.status = 'running' then
        update ops.jobs j set cancel_requested_at = coalesce(j.cancel_requested_at, p_now)
        where j.workspace_id = p_workspace_id and j.job_id = p_job_id;
    elsif job.status in ('waiting', 'retry') then
        update ops.jobs j set status = 'cancelled', finished_at = p_now
        where j.workspace_id = p_workspace_id and j.job_id = p_job_id;
        return 'cancelled';
    elsif job.status <> 'cancelled' then
        raise exception 'job % is %: there is nothing to cancel', p_job_id, job.status using errcode = 'VM001';
    end if;
    return job.status;
end $$;

CREATE FUNCTION ops.check_database(p_workspace_id text DEFAULT '*'::text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    with policy as (
        select coalesce((select p.oldest_xmin from ops.alert_policies p where p.workspace_id = p_workspace_id), '1 hour') as longest
    ), oldest as (
        select a.pid, a.application_name, a.state, a.xact_start as since from pg_stat_activity a
        where a.datname = current_database() and (a.backend_xmin is not null or a.backend_xid is not null)
        union all
        select null, p.gid, 'prepared', p.prepared from pg_prepared_xacts p where p.database = current_database()
    )
    select 'oldest_xmin', '', 'warning', format('a transaction has been open since %s', o.since),
           jsonb_strip_nulls(jsonb_build_object('since', o.since, 'pid', o.pid, 'application', left(o.application_name, 100),
                                                'state', o.state))
    from policy, lateral (select * from oldest o where o.since is not null order by o.since limit 1) o
    where o.since < p_now - policy.longest
$$;

CREATE FUNCTION ops.check_jobs(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    select 'jobs_dead', j.kind, 'warning', format('%s jobs %s are dead', count(*), j.kind),
           jsonb_strip_nulls(jsonb_build_object('kind', j.kind, 'count', count(*), 'since', min(j.finished_at),
               'code', mode() within group (order by coalesce(j.last_error ->> 'code', j.last_error ->> 'type'))))
    from ops.jobs j
    where j.workspace_id = p_workspace_id and j.status = 'dead' and j.finished_at > p_now - interval '1 day'
      and j.kind <> 'webhook.send'
    group by j.kind
$$;

CREATE FUNCTION ops.check_ways_out(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb)
    LANGUAGE sql STABLE
    AS $$
    select 'alert_target', t.target_id, 'critical', format('alert target %s cannot be told', t.target_id),
           jsonb_strip_nulls(jsonb_build_object('target_id', t.target_id, 'kind', t.kind, 'since', t.failing_since,
               'failures', t.failures, 'code', t.last_error -> 'code'))
    from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.enabled and t.failures >= 3
    union all
    select 'webhook', w.webhook_id, 'warning', format('webhook %s cannot be told', w.webhook_id),
           jsonb_strip_nulls(jsonb_build_object('webhook_id', w.webhook_id, 'since', w.failing_since, 'failures', w.failures,
               'code', w.last_error -> 'code', 'count', nullif(dead.n, 0)))
    from ops.webhooks w,
    lateral (select count(*) as n from ops.jobs j
             where j.workspace_id = p_workspace_id and j.status = 'dead' and j.kind = 'webhook.send'
               and j.finished_at > p_now - interval '1 day' and j.payload ->> 'webhook_id' = w.webhook_id) dead
    where w.workspace_id = p_workspace_id and (w.enabled and w.failures >= 3 or dead.n > 0 or not w.enabled and w.last_error ->> 'code' = 'gone')
$$;

CREATE FUNCTION ops.claim_jobs(p_workspace_id text, p_worker text, p_kinds text[], p_limit integer DEFAULT 100, p_lease interval DEFAULT '00:01:00'::interval, p_now timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(job_id uuid, lease integer, kind text, attempt integer, payload jsonb, tick timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    locked text[];
    kinds text[];
    room integer[];
    chosen uuid[];
    started timestamptz;
begin
    if p_workspace_id <> '*' and not exists (
        select from core.workspaces w where w.workspace_id = p_workspace_id and w.status = 'active') then
        return;
    end if;
    locked := array(
        select k.kind from ops.job_kinds k
        where k.workspace_id = p_workspace_id and k.kind = any (p_kinds) and k.concurrency is not null
          and exists (select from ops.jobs j where j.workspace_id = k.workspace_id and j.kind = k.kind and j.status in ('waiting', 'retry'))
        order by k.kind for no key update);
    started := coalesce(p_now, clock_timestamp());

    select array_agg(r.kind), array_agg(r.room) into kinds, room
    from ops.free_places(p_workspace_id, p_kinds, locked, p_limit) r where r.room > 0;
    chosen := ops.due_jobs(p_workspace_id, kinds, room, p_limit, started);
    return query
    update ops.jobs j
    set status = 'running', attempt = j.attempt + 1, lease = j.lease + 1, worker = p_worker, started_at = started,
        lease_until = started + p_lease, progress = null
    where j.workspace_id = p_workspace_id and j.job_id = any (chosen) and j.status || '' in ('waiting', 'retry')
    returning j.job_id, j.lease, j.kind, j.attempt, j.payload, j.tick;
end $$;

CREATE FUNCTION ops.clear_alert(p_workspace_id text, p_alert text, p_subject text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    update ops.alerts a set cleared_at = p_now
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.subject = left(coalesce(p_subject, ''), 200)
      and a.cleared_at is null;
    return found;
end $$;

CREATE FUNCTION ops.collect_failures(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(failures integer, jobs integer)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION ops.count_in(p_details jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when jsonb_typeof(p_details -> 'count') = 'number' and abs((p_details ->> 'count')::numeric) < 1e15
                then (p_details ->> 'count')::numeric::bigint end
$$;

CREATE FUNCTION ops.declare_kinds(p_workspace_id text, p_kinds jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into ops.job_kinds as k (workspace_id, kind, concurrency, max_attempts, backoff_base, backoff_factor, backoff_max,
                                    backoff_jitter, updated_at)
    select p_workspace_id, d.kind, d.concurrency, d.max_attempts, make_interval(secs => d.backoff_base), d.backoff_factor,
           make_interval(secs => d.backoff_max), d.backoff_jitter, p_now
    from jsonb_to_recordset(p_kinds) d (kind text, concurrency integer, max_attempts smallint, backoff_base double precision,
        backoff_factor double precision, backoff_max double precision, backoff_jitter double precision)
    order by d.kind
    on conflict (workspace_id, kind) do update
        set concurrency = excluded.concurrency, max_attempts = excluded.max_attempts, backoff_base = excluded.backoff_base,
            backoff_factor = excluded.backoff_factor, backoff_max = excluded.backoff_max,
            backoff_jitter = excluded.backoff_jitter, updated_at = excluded.updated_at
        where (k.concurrency, k.max_attempts, k.backoff_base, k.backoff_factor, k.backoff_max, k.backoff_jitter)
            is distinct from (excluded.concurrency, excluded.max_attempts, excluded.backoff_base, excluded.backoff_factor,
                              excluded.backoff_max, excluded.backoff_jitter)
$$;

CREATE FUNCTION ops.due_jobs(p_workspace_id text, p_kinds text[], p_room integer[], p_limit integer, p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE sql
    AS $$
    with due as (
        select x.job_id, l.kind, l.priority, x.run_at, k.room,
               row_number() over (partition by l.kind order by l.priority desc, x.run_at, x.job_id) as place
        from ops.job_lines(p_workspace_id, p_kinds) l
        join unnest(p_kinds, p_room) k (kind, room) on k.kind = l.kind,
        lateral (select j.job_id, j.run_at from ops.jobs j
                 where j.workspace_id = p_workspace_id and j.kind = l.kind and j.priority = l.priority
                   and j.status in ('waiting', 'retry') and j.run_at <= p_now
                 order by j.run_at, j.job_id limit k.room
                 for no key update skip locked) x
    )
    select array(select d.job_id from due d where d.place <= d.room
                 order by d.priority desc, d.run_at, d.job_id limit p_limit)
$$;

CREATE FUNCTION ops.due_schedules(p_limit integer DEFAULT 1000, p_now timestamp with time zone DEFAULT now(), p_after_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, p_after_workspace_id text DEFAULT ''::text, p_after_schedule_id text DEFAULT ''::text) RETURNS TABLE(workspace_id text, schedule_id text, cron text, every interval, timezone text, missed text, next_at timestamp with time zone, asked_at timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    select s.workspace_id, s.schedule_id, s.cron, s.every, s.timezone, s.missed, s.next_at, p_now
    from ops.schedules s
    where s.enabled and s.next_at <= p_now
      and (s.next_at, s.workspace_id, s.schedule_id) > (p_after_at, p_after_workspace_id, p_after_schedule_id)
      and (s.workspace_id = '*' or exists (
          select from core.workspaces w where w.workspace_id = s.workspace_id and w.status = 'active'))
    order by s.next_at, s.workspace_id, s.schedule_id
    limit p_limit
$$;

CREATE TABLE ops.jobs (
    workspace_id text NOT NULL,
    job_id uuid NOT NULL,
    kind text NOT NULL,
    unique_key text,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    schedule_id text,
    tick timestamp with time zone,
    trace_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    max_attempts smallint,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    status text DEFAULT 'waiting'::text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    lease integer DEFAULT 0 NOT NULL,
    worker text,
    started_at timestamp with time zone,
    lease_until timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    finished_at timestamp with time zone,
    progress jsonb,
    last_error jsonb,
    CONSTRAINT jobs_status_check CHECK ((status = ANY (ARRAY['waiting'::text, 'running'::text, 'retry'::text, 'done'::text, 'dead'::text, 'cancelled'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='1');

CREATE FUNCTION ops.end_run(p_job ops.jobs, p_fate text, p_pause interval, p_error jsonb, p_stats jsonb, p_now timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    error constant jsonb := ops.normal_error(p_error);
    counted constant integer := p_job.attempt - (p_fate in ('snoozed', 'released'))::integer;
begin
    update ops.jobs j
    set status = case when p_fate in ('done', 'dead', 'cancelled') then p_fate when counted > 0 then 'retry' else 'waiting' end,
        attempt = counted,
        run_at = case when p_fate in ('done', 'dead', 'cancelled') then j.run_at else p_now + p_pause end,
        finished_at = case when p_fate in ('done', 'dead', 'cancelled') then p_now end,
        lease_until = null, cancel_requested_at = null, last_error = case when p_fate <> 'done' then coalesce(error, j.last_error) end
    where j.workspace_id = p_job.workspace_id and j.job_id = p_job.job_id;

    insert into ops.job_runs as r (workspace_id, job_id, lease, kind, attempt, worker, started_at, finished_at, outcome, error, stats)
    values (p_job.workspace_id, p_job.job_id, p_job.lease, p_job.kind, p_job.attempt, p_job.worker, p_job.started_at, p_now,
            p_fate, error, p_stats)
    on conflict (workspace_id, job_id, lease) do update
        set outcome = excluded.outcome, finished_at = excluded.finished_at, error = excluded.error, stats = excluded.stats;
    if p_fate = 'dead' then
        perform ops.note_dead(p_job, error, p_now);
    end if;
end $$;

CREATE FUNCTION ops.enqueue_job(p_workspace_id text, p_kind text, p_payload jsonb DEFAULT '{}'::jsonb, p_unique_key text DEFAULT NULL::text, p_run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_priority integer DEFAULT 0, p_max_attempts integer DEFAULT NULL::integer, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(job_id uuid, is_new boolean)
    LANGUAGE sql
    AS $$
    select e.job_id, e.is_new
    from ops.enqueue_jobs(p_workspace_id, jsonb_build_array(jsonb_build_object(
        'kind', p_kind, 'payload', p_payload, 'unique_key', p_unique_key, 'run_at', p_run_at, 'priority', p_priority,
        'max_attempts', p_max_attempts)), p_now) e
$$;

CREATE FUNCTION ops.enqueue_jobs(p_workspace_id text, p_jobs jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(item integer, job_id uuid, is_new boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    ids uuid[] := '{}';
    fresh integer[] := '{}';
    more record;
begin
    perform ops.refuse_wrong_jobs(p_workspace_id, p_jobs);
    for attempt in 1 .. 100 loop
        select x.ids, x.fresh into more from ops.insert_jobs(p_workspace_id, p_jobs, ids, p_now) x;
        ids := more.ids;
        fresh := fresh || more.fresh;
        -- One that was in the way may have finished between two statements: then its key is free again.
        exit when array_position(ids, null) is null;
    end loop;
    if array_position(ids, null) is not null then
        raise exception 'the unique keys are taken and given back too fast' using errcode = '40001';
    end if;
    return query select n::integer, ids[n], n = any (fresh) from generate_series(1, jsonb_array_length(p_jobs)) n;
end $$;

CREATE FUNCTION ops.fate_of(p_job ops.jobs, p_rules ops.job_kinds, p_outcome text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    select case
        when p_outcome = 'done' then 'done'
        when p_outcome = 'failed' then 'dead'
        when p_outcome = 'cancelled' or p_job.cancel_requested_at is not null then 'cancelled'
        when p_outcome = 'retry' and p_job.attempt >= coalesce(p_job.max_attempts, p_rules.max_attempts) then 'dead'
        else p_outcome end
$$;

CREATE FUNCTION ops.fire_schedule(p_workspace_id text, p_schedule_id text, p_expected_next_at timestamp with time zone, p_new_next_at timestamp with time zone, p_ticks timestamp with time zone[], p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    schedule ops.schedules;
    due jsonb;
begin
    if not coalesce(p_new_next_at > p_expected_next_at, false) then
        raise exception 'schedule %: the next tick lies after this one', p_schedule_id using errcode = 'VM001';
    end if;
    update ops.schedules s
    set next_at = p_new_next_at, last_at = coalesce(p_ticks[cardinality(p_ticks)], s.last_at), updated_at = p_now
    where s.workspace_id = p_workspace_id and s.schedule_id = p_schedule_id and s.enabled and s.next_at = p_expected_next_at
    returning * into schedule;
    if not found then
        return null;
    end if;
    select jsonb_agg(jsonb_build_object(
        'kind', schedule.kind, 'payload', schedule.payload, 'priority', schedule.priority, 'schedule_id', schedule.schedule_id,
        'tick', t, 'unique_key', 'schedule:' || schedule.schedule_id || case when schedule.overlap then '@' || extract(epoch from t) else '' end))
    into due from unnest(p_ticks) t;
    return (select count(*) from ops.enqueue_jobs(p_workspace_id, coalesce(due, '[]'), p_now) e where e.is_new);
end $$;

CREATE FUNCTION ops.first_id(p_ts timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    select rpad(lpad(to_hex((extract(epoch from p_ts) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

CREATE FUNCTION ops.free_places(p_workspace_id text, p_kinds text[], p_locked text[], p_limit integer) RETURNS TABLE(kind text, room integer)
    LANGUAGE sql STABLE
    AS $$
    select w.kind, case when k.concurrency is null then p_limit when w.kind <> all (p_locked) then 0 else least(p_limit, k.concurrency - (
        select count(*) from ops.jobs j
        where j.workspace_id = p_workspace_id and j.kind = w.kind and j.status = 'running'))::integer end
    from unnest(p_kinds) w (kind)
    left join ops.job_kinds k on k.workspace_id = p_workspace_id and k.kind = w.kind
$$;

CREATE FUNCTION ops.gone_before(p_workspace_id text, p_rule text) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    select p.gone_before from ops.retention_progress p where p.workspace_id = p_workspace_id and p.rule = p_rule
$$;

CREATE FUNCTION ops.heartbeat_jobs(p_workspace_id text, p_beats jsonb, p_lease interval DEFAULT '00:01:00'::interval, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(job_id uuid, lease integer, state text)
    LANGUAGE sql
    AS $$
    with given as materialized (
        select * from jsonb_to_recordset(p_beats) b (job_id uuid, lease integer, progress jsonb)
    ), held as (
        select j.job_id, j.lease from ops.jobs j
        where j.workspace_id = p_workspace_id and j.job_id in (select g.job_id from given g) and j.status || '' = 'running'
        for no key update skip locked
    ), alive as (
        update ops.jobs j
        set lease_until = greatest(j.lease_until, p_now + p_lease), progress = coalesce(g.progress, j.progress)
        from given g join held h on h.job_id = g.job_id and h.lease = g.lease
        where j.workspace_id = p_workspace_id and j.job_id = g.job_id
    )
    select g.job_id, g.lease, case when j.cancel_requested_at is null then 'lost' else 'cancelled' end
    from given g
    left join ops.jobs j on j.workspace_id = p_workspace_id and j.job_id = g.job_id and j.lease = g.lease
        and j.status || '' = 'running'
    where j.job_id is null or j.cancel_requested_at is not null
$$;

CREATE FUNCTION ops.insert_jobs(p_workspace_id text, p_jobs jsonb, p_ids uuid[], p_now timestamp with time zone, OUT ids uuid[], OUT fresh integer[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
begin
    with base as materialized (
        select core.uuid7(p_now) as id
    ), given as materialized (
        select g.item, core.nth_uuid(base.id, g.item) as job_id, j.*
        from base, jsonb_array_elements(p_jobs) with ordinality g (job, item), jsonb_to_record(g.job) j
            (kind text, payload jsonb, unique_key text, run_at timestamptz, priority smallint, max_attempts smallint,
             trace_id text, schedule_id text, tick timestamptz)
        where p_ids[g.item] is null
    ), inserted as (
        insert into ops.jobs (workspace_id, job_id, kind, unique_key, payload, schedule_id, tick, trace_id, created_at,
                              priority, max_attempts, run_at)
        select p_workspace_id, g.job_id, g.kind, g.unique_key, coalesce(g.payload, '{}'), g.schedule_id, g.tick, g.trace_id,
               p_now, coalesce(g.priority, 0), g.max_attempts, coalesce(g.run_at, p_now)
        from given g order by g.kind, g.unique_key, g.item
        on conflict (workspace_id, kind, unique_key) where unique_key is not null and status in ('waiting', 'retry', 'running')
        do nothing
        returning job_id
    )
    select array_agg(coalesce(p_ids[n], i.job_id) order by n), array_agg(g.item::integer) filter (where i.job_id is not null)
    into ids, fresh
    from generate_series(1, jsonb_array_length(p_jobs)) n
    left join given g on g.item = n
    left join inserted i on i.job_id = g.job_id;
    if array_position(ids, null) is null then
        return;
    end if;

    select array_agg(coalesce(ids[g.item], holder.job_id) order by g.item) into ids
    from jsonb_array_elements(p_jobs) with ordinality g (job, item)
    left join ops.jobs holder on ids[g.item] is null and holder.workspace_id = p_workspace_id
        and holder.kind = g.job ->> 'kind' and holder.unique_key = g.job ->> 'unique_key'
        and holder.status in ('waiting', 'retry', 'running');
end $$;

CREATE FUNCTION ops.is_moment(p_value jsonb) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select case
        when coalesce(jsonb_typeof(p_value), 'null') = 'null' then true
        when jsonb_typeof(p_value) <> 'string' or not pg_input_is_valid(p_value #>> '{}', 'timestamptz') then false
        else (p_value #>> '{}')::timestamptz between '1970-01-01Z' and '9999-01-01Z' end
$$;

CREATE FUNCTION ops.is_quiet(p_cleared_at timestamp with time zone, p_policy ops.alert_policies, p_flaps integer, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_cleared_at <= p_now - ops.quiet_time(p_policy, p_flaps) or p_cleared_at > p_now + interval '1 hour'
$$;

CREATE FUNCTION ops.is_soon(p_moment timestamp with time zone, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select coalesce(p_moment > p_now and p_moment <= p_now + interval '2 hours', false)
$$;

CREATE FUNCTION ops.job_lines(p_workspace_id text, p_kinds text[]) RETURNS TABLE(kind text, priority smallint)
    LANGUAGE sql STABLE
    AS $$
    with recursive hop as (
        select k.kind, (select j.priority from ops.jobs j
                        where j.workspace_id = p_workspace_id and j.kind = k.kind and j.status in ('waiting', 'retry')
                        order by j.priority desc limit 1) as priority
        from unnest(p_kinds) k (kind)
        where not exists (select from ops.job_kinds x where x.workspace_id = p_workspace_id and x.kind = k.kind
                          and x.paused_at is not null)
        union all
        select h.kind, (select j.priority from ops.jobs j
                        where j.workspace_id = p_workspace_id and j.kind = h.kind and j.status in ('waiting', 'retry')
                          and j.priority < h.priority
                        order by j.priority desc limit 1)
        from hop h where h.priority is not null
    )
    select h.kind, h.priority from hop h where h.priority is not null
$$;

CREATE FUNCTION ops.job_problem(p_job jsonb) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    select case
        when jsonb_typeof(p_job) <> 'object' then 'a job is an object'
        when coalesce(p_job ->> 'kind', '') !~ '^[a-z][a-z0-9_.]{0,63}$'
            then 'kind is a word of small letters, digits, dots and underscores'
        when coalesce(jsonb_typeof(p_job -> 'payload'), 'null') not in ('object', 'null') then 'payload is an object'
        when pg_column_size(p_job -> 'payload') > 262144 then 'payload is larger than 256 KiB'
        when not ops.is_moment(p_job -> 'run_at') then 'run_at is a moment, like 2027-03-01T09:00:00Z'
        when not ops.is_moment(p_job -> 'tick') then 'tick is a moment, like 2027-03-01T09:00:00Z'
        when length(p_job ->> 'unique_key') not between 1 and 200 then 'unique_key has 1 to 200 letters'
        when length(p_job ->> 'trace_id') > 100 then 'trace_id has at most 100 letters'
        when jsonb_typeof(coalesce(p_job -> 'priority', 'null')) not in ('number', 'null')
             or (p_job ->> 'priority') !~ '^(-?\d{1,2}|-?100)$' then 'priority is a whole number from -100 to 100'
        when jsonb_typeof(coalesce(p_job -> 'max_attempts', 'null')) not in ('number', 'null')
             or (p_job ->> 'max_attempts') !~ '^[1-9]\d{0,3}$' then 'max_attempts is a whole number from 1 to 9999'
    end
$_$;

CREATE FUNCTION ops.keep_of(p_workspace_id text, p_rule text) RETURNS interval
    LANGUAGE sql STABLE
    AS $$
    select coalesce((select r.keep from ops.retention r where r.workspace_id = p_workspace_id and r.rule = p_rule),
                    (select r.keep from ops.retention r where r.workspace_id = '*' and r.rule = p_rule))
$$;

CREATE FUNCTION ops.kind_of(p_workspace_id text, p_kind text) RETURNS ops.job_kinds
    LANGUAGE plpgsql
    AS $$
declare
    found_kind ops.job_kinds;
begin
    select * into found_kind from ops.job_kinds k where k.workspace_id = p_workspace_id and k.kind = p_kind;
    if not found then
        insert into ops.job_kinds (workspace_id, kind) values (p_workspace_id, p_kind) on conflict do nothing;
        select * into found_kind from ops.job_kinds k where k.workspace_id = p_workspace_id and k.kind = p_kind;
    end if;
    return found_kind;
end $$;

CREATE FUNCTION ops.latest_job(p_workspace_id text, p_kind text, p_unique_key text) RETURNS TABLE(job_id uuid, status text, last_error jsonb)
    LANGUAGE sql STABLE
    AS $$
    select j.job_id, j.status, j.last_error from ops.jobs j
    where j.workspace_id = p_workspace_id and j.kind = p_kind and j.unique_key = p_unique_key
    order by j.job_id desc limit 1
$$;

CREATE FUNCTION ops.locked_job(p_workspace_id text, p_job_id uuid) RETURNS ops.jobs
    LANGUAGE plpgsql
    AS $$
declare
    job ops.jobs;
begin
    select * into job from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = p_job_id for no key update;
    if not found then
        raise exception 'no job % in workspace %', p_job_id, p_workspace_id using errcode = 'VN001';
    end if;
    return job;
end $$;

CREATE FUNCTION ops.must_be_kind(p_workspace_id text, p_kind text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform ops.must_be_workspace(p_workspace_id);
    if not exists (select from ops.job_kinds k where k.workspace_id = p_workspace_id and k.kind = p_kind)
       and not exists (select from ops.schedules s where s.workspace_id = p_workspace_id and s.kind = p_kind)
       and not exists (select from ops.jobs j where j.workspace_id = p_workspace_id and j.kind = p_kind) then
        raise exception 'no job of the kind % was ever seen in workspace %', p_kind, p_workspace_id using errcode = 'VN001';
    end if;
end $$;

CREATE FUNCTION ops.must_be_workspace(p_workspace_id text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    if p_workspace_id is distinct from '*' and not exists (
        select from core.workspaces w where w.workspace_id = p_workspace_id) then
        raise exception 'no workspace %', p_workspace_id using errcode = 'VN001';
    end if;
end $$;

CREATE FUNCTION ops.normal_error(p_error jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$
    select jsonb_strip_nulls(jsonb_build_object(
        'type', left(coalesce(p_error ->> 'type', 'unknown'), 100), 'code', left(p_error ->> 'code', 100),
        'message', ops.short_text(p_error ->> 'message', 500)))
    where jsonb_typeof(p_error) = 'object'
$$;

CREATE FUNCTION ops.note_dead(p_job ops.jobs, p_error jsonb, p_now timestamp with time zone) RETURNS void
    LANGUAGE sql
    AS $$
    select ops.record_error(p_job.workspace_id,
        jsonb_build_object('workflow', p_job.kind, 'node', 'job', 'op', 'run', 'job_id', p_job.job_id, 'trace_id', p_job.trace_id),
        coalesce(p_error ->> 'message', 'the job failed'), null, p_error, p_now)
$$;

CREATE FUNCTION ops.note_retention(p_workspace_id text, p_rule text, p_removed bigint, p_place text DEFAULT NULL::text, p_gone_before timestamp with time zone DEFAULT NULL::timestamp with time zone, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into ops.retention_progress as p (workspace_id, rule, place, gone_before, removed, passed_at, updated_at)
    values (p_workspace_id, p_rule, p_place, p_gone_before, p_removed, case when p_place is null then p_now end, p_now)
    on conflict (workspace_id, rule) do update
    set place = excluded.place, gone_before = greatest(p.gone_before, excluded.gone_before),
        removed = p.removed + excluded.removed, passed_at = coalesce(excluded.passed_at, p.passed_at), last_error = null,
        updated_at = excluded.updated_at
$$;

CREATE FUNCTION ops.note_retention_error(p_workspace_id text, p_rule text, p_error text, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE sql
    AS $$
    insert into ops.retention_progress as p (workspace_id, rule, last_error, updated_at)
    values (p_workspace_id, p_rule, left(p_error, 300), p_now)
    on conflict (workspace_id, rule) do update set last_error = excluded.last_error, updated_at = excluded.updated_at
$$;

CREATE FUNCTION ops.note_webhook(p_workspace_id text, p_webhook_id text, p_error jsonb DEFAULT NULL::jsonb, p_gone boolean DEFAULT false, p_now timestamp with time zone DEFAULT now()) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION ops.pause_after(p_failures integer, p_error jsonb, p_longest double precision) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$
    select make_interval(secs => greatest(least(10 * power(2, least(p_failures, 20) - 1), p_longest),
        case when jsonb_typeof(p_error -> 'retry_after') = 'number' then least((p_error ->> 'retry_after')::double precision, 3600) end))
$$;

CREATE FUNCTION ops.pause_kind(p_workspace_id text, p_kind text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform ops.must_be_kind(p_workspace_id, p_kind);
    perform ops.kind_of(p_workspace_id, p_kind);
    update ops.job_kinds k set paused_at = p_now, updated_at = p_now
    where k.workspace_id = p_workspace_id and k.kind = p_kind and k.paused_at is null;
    return found;
end $$;

CREATE FUNCTION ops.prune_alerts(p_workspace_id text, p_keep interval DEFAULT '90 days'::interval, p_limit integer DEFAULT 1000, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE sql
    AS $$
    with gone as (
        delete from ops.alerts a
        where a.workspace_id = p_workspace_id and (a.alert, a.subject) in (
            select x.alert, x.subject from ops.alerts x
            where x.workspace_id = p_workspace_id and x.cleared_at < p_now - p_keep order by x.cleared_at limit p_limit)
          and a.cleared_at < p_now - p_keep
        returning a.alert, a.subject
    ), told as (
        delete from ops.alert_told k using gone g
        where k.workspace_id = p_workspace_id and k.alert = g.alert and k.subject = g.subject
    )
    select count(*)::integer from gone
$$;

CREATE FUNCTION ops.prune_jobs(p_workspace_id text, p_keep interval DEFAULT '14 days'::interval, p_limit integer DEFAULT 1000, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE sql
    AS $$
    with old as (
        select j.job_id from ops.jobs j
        where j.workspace_id = p_workspace_id and j.job_id < ops.first_id(p_now - p_keep)
          and j.finished_at < p_now - p_keep * case j.status when 'dead' then 4 else 1 end
        order by j.job_id limit p_limit
        for no key update skip locked
    ), runs as (
        delete from ops.job_runs r using old where r.workspace_id = p_workspace_id and r.job_id = old.job_id
    ), errors as (
        delete from ops.errors e where e.workspace_id = p_workspace_id and e.error_id < ops.first_id(p_now - p_keep * 4)
    ), gone as (
        delete from ops.jobs j using old where j.workspace_id = p_workspace_id and j.job_id = old.job_id returning 1
    )
    select count(*)::integer from gone
$$;

CREATE FUNCTION ops.put_alert(p_workspace_id text, p_alert text, p_subject text, p_severity text, p_summary text, p_details jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    about constant text := left(coalesce(p_subject, ''), 200);
    words constant text := coalesce(ops.short_text(p_summary, 300), p_alert);
    facts constant jsonb := coalesce(p_details, '{}');
    policy constant ops.alert_policies := ops.alert_policy_of(p_workspace_id);
    known ops.alerts;
    is_new boolean;
begin
    insert into ops.alerts (workspace_id, alert, subject, severity, summary, details, raised_at, last_seen_at)
    values (p_workspace_id, p_alert, about, p_severity, words, facts, p_now, p_now)
    on conflict (workspace_id, alert, subject) do nothing;
    if found then
        return true;
    end if;

    select * into known from ops.alerts a
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.subject = about for no key update;
    is_new := coalesce(ops.is_quiet(known.cleared_at, policy, known.flaps, p_now), false);
    update ops.alerts a
    set severity = p_severity, summary = words, details = facts, last_seen_at = p_now,
        raises = a.raises + (a.cleared_at is not null)::integer, cleared_at = null, episode = a.episode + is_new::integer,
        raised_at = case when is_new then p_now else a.raised_at end,
        flaps = case when not is_new then a.flaps when a.raised_at > p_now - interval '1 hour' then a.flaps + 1 else 1 end,
        acked_at = case when not is_new then a.acked_at end, acked_by = case when not is_new then a.acked_by end,
        acked_count = case when not is_new then a.acked_count end
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.subject = about;
    return is_new;
end $$;

CREATE FUNCTION ops.put_alerts(p_workspace_id text, p_owned text[], p_found jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, severity text, summary text, details jsonb, raised_at timestamp with time zone, is_new boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    put jsonb;
begin
    -- Two rounds at once come one after the other: what one of them clears, the other one may put.
    perform ops.alert_policy_of(p_workspace_id);
    perform from ops.alert_policies p where p.workspace_id = p_workspace_id for no key update;
    update ops.alerts a set cleared_at = p_now
    where a.workspace_id = p_workspace_id and a.cleared_at is null and a.alert = any (p_owned)
      and not exists (select from jsonb_array_elements(p_found) f (one)
                      where f.one ->> 'alert' = a.alert and left(coalesce(f.one ->> 'subject', ''), 200) = a.subject);
    select jsonb_agg(jsonb_build_object('alert', f.alert, 'subject', f.subject, 'is_new', ops.put_alert(
        p_workspace_id, f.alert, f.subject, f.severity, f.summary, f.details, p_now)))
    into put
    from (select x.alert, left(coalesce(x.subject, ''), 200) as subject, x.severity, x.summary, x.details
          from jsonb_to_recordset(p_found) x (alert text, subject text, severity text, summary text, details jsonb)
          order by 1, 2 offset 0) f;
    -- A statement of its own: one that puts does not see what it has put.
    return query
    select a.alert, a.subject, a.severity, a.summary, a.details, a.raised_at, p.is_new
    from jsonb_to_recordset(coalesce(put, '[]')) p (alert text, subject text, is_new boolean)
    join ops.alerts a on a.workspace_id = p_workspace_id and a.alert = p.alert and a.subject = p.subject
    order by a.severity, a.raised_at, a.alert, a.subject;
end $$;

CREATE FUNCTION ops.put_schedule(p_workspace_id text, p_schedule_id text, p_definition jsonb, p_next_at timestamp with time zone, p_now timestamp with time zone DEFAULT now()) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
declare
    problem constant text := ops.schedule_problem(p_schedule_id, p_definition);
    next_at timestamptz;
begin
    perform ops.must_be_workspace(p_workspace_id);
    if problem is not null then
        raise exception 'a schedule is not right' using errcode = 'VP001',
            detail = json_build_array(format('schedule %s: %s', p_schedule_id, problem))::text;
    end if;
    insert into ops.schedules as s (workspace_id, schedule_id, kind, payload, priority, cron, every, timezone, missed, overlap,
                                    enabled, next_at, created_at, updated_at)
    select p_workspace_id, p_schedule_id, d.kind, coalesce(d.payload, '{}'), coalesce(d.priority, 0), d.cron,
           make_interval(secs => d.every), coalesce(d.timezone, 'UTC'), coalesce(d.missed, 'once'), coalesce(d.overlap, true),
           coalesce(d.enabled, true), p_next_at, p_now, p_now
    from jsonb_to_record(p_definition) d (kind text, payload jsonb, priority smallint, cron text, every double precision,
        timezone text, missed text, overlap boolean, enabled boolean)
    on conflict (workspace_id, schedule_id) do update
        set kind = excluded.kind, payload = excluded.payload, priority = excluded.priority, cron = excluded.cron,
            every = excluded.every, timezone = excluded.timezone, missed = excluded.missed, overlap = excluded.overlap,
            enabled = excluded.enabled, updated_at = excluded.updated_at,
            -- What passed while it was switched off was not missed.
            next_at = case when (s.cron, s.every, s.timezone, s.enabled)
                                is not distinct from (excluded.cron, excluded.every, excluded.timezone, excluded.enabled)
                           then s.next_at else excluded.next_at end
    returning s.next_at into next_at;
    return next_at;
end $$;

CREATE FUNCTION ops.put_webhook_secret(p_workspace_id text, p_owner text, p_secret bytea, p_overlap interval DEFAULT '00:00:00'::interval, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    new_id constant uuid := core.uuid7(p_now);
begin
    delete from ops.webhook_secrets s where s.workspace_id = p_workspace_id and s.owner = p_owner and s.ends_at <= p_now;
    update ops.webhook_secrets s set ends_at = least(s.ends_at, p_now + p_overlap)
    where s.workspace_id = p_workspace_id and s.owner = p_owner;
    insert into ops.webhook_secrets (workspace_id, owner, secret_id, secret, created_at)
    values (p_workspace_id, p_owner, new_id, p_secret, p_now);
end $$;

CREATE FUNCTION ops.quiet_time(p_policy ops.alert_policies, p_flaps integer) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_policy.clear_after * least(power(2, least(p_flaps, 10) - 1), 12)
$$;

CREATE FUNCTION ops.record_error(p_workspace_id text, p_ctx jsonb, p_message text, p_status_code integer DEFAULT NULL::integer, p_error jsonb DEFAULT NULL::jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS uuid
    LANGUAGE sql
    AS $_$
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
$_$;

CREATE FUNCTION ops.refuse_wrong_jobs(p_workspace_id text, p_jobs jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    problems jsonb;
begin
    perform ops.must_be_workspace(p_workspace_id);
    if jsonb_typeof(p_jobs) is distinct from 'array' then
        raise exception 'jobs come as an array' using errcode = 'VP001';
    end if;
    select jsonb_agg(format('job %s: %s', x.n, x.problem) order by x.n) into problems
    from (select j.n, ops.job_problem(j.job) as problem from jsonb_array_elements(p_jobs) with ordinality j (job, n)) x
    where x.problem is not null;
    if problems is not null then
        raise exception 'a job is not right' using errcode = 'VP001', detail = problems::text;
    end if;
end $$;

CREATE FUNCTION ops.remove_schedule(p_workspace_id text, p_schedule_id text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    delete from ops.schedules s where s.workspace_id = p_workspace_id and s.schedule_id = p_schedule_id;
    return found;
end $$;

CREATE FUNCTION ops.resume_kind(p_workspace_id text, p_kind text, p_now timestamp with time zone DEFAULT now()) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    perform ops.must_be_kind(p_workspace_id, p_kind);
    update ops.job_kinds k set paused_at = null, updated_at = p_now
    where k.workspace_id = p_workspace_id and k.kind = p_kind and k.paused_at is not null;
    return found;
end $$;

CREATE FUNCTION ops.retention_options(p_workspace_id text, p_rule text) RETURNS jsonb
    LANGUAGE sql STABLE
    AS $$
    select coalesce((select r.options from ops.retention r where r.workspace_id = '*' and r.rule = p_rule), '{}')
        || coalesce((select r.options from ops.retention r where r.workspace_id = p_workspace_id and r.rule = p_rule), '{}')
$$;

CREATE FUNCTION ops.retention_place(p_workspace_id text, p_rule text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select p.place from ops.retention_progress p where p.workspace_id = p_workspace_id and p.rule = p_rule
$$;

CREATE FUNCTION ops.retry_job(p_workspace_id text, p_job_id uuid, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    job constant ops.jobs := ops.locked_job(p_workspace_id, p_job_id);
    rules constant ops.job_kinds := ops.kind_of(p_workspace_id, job.kind);
begin
    if job.status not in ('dead', 'cancelled') then
        raise exception 'job % is %: only a dead or cancelled one can be retried', p_job_id, job.status using errcode = 'VM001';
    end if;
    update ops.jobs j
    set status = case when j.attempt > 0 then 'retry' else 'waiting' end, run_at = p_now, finished_at = null,
        max_attempts = case when j.attempt >= coalesce(j.max_attempts, rules.max_attempts) then j.attempt + 1 else j.max_attempts end
    where j.workspace_id = p_workspace_id and j.job_id = p_job_id;
exception when unique_violation then
    raise exception 'job % stays as it is: another one with its unique key is not finished', p_job_id using errcode = 'VM001';
end $$;

CREATE FUNCTION ops.run_job_now(p_workspace_id text, p_job_id uuid, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    job constant ops.jobs := ops.locked_job(p_workspace_id, p_job_id);
begin
    if job.status not in ('waiting', 'retry') then
        raise exception 'job % is %: only one that waits can be run now', p_job_id, job.status using errcode = 'VM001';
    end if;
    update ops.jobs j set run_at = p_now where j.workspace_id = p_workspace_id and j.job_id = p_job_id and j.run_at > p_now;
end $$;

CREATE FUNCTION ops.schedule_problem(p_schedule_id text, p_definition jsonb) RETURNS text
    LANGUAGE sql STABLE
    AS $_$
    select case
        when coalesce(p_schedule_id, '') !~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$'
            then 'its id has 1 to 128 letters, digits and _ . : / -, and begins with a letter or a digit'
        when jsonb_typeof(p_definition) is distinct from 'object' then 'its definition is an object'
        when num_nonnulls(p_definition ->> 'cron', p_definition ->> 'every') <> 1 then 'it has either cron or every'
        when p_definition ->> 'every' is not null
             and (jsonb_typeof(p_definition -> 'every') <> 'number' or p_definition -> 'every' not between '1' and '316224000')
            then 'every is a number of seconds from 1 to ten years'
        when coalesce(p_definition ->> 'missed', 'once') not in ('skip', 'once', 'all') then 'missed is skip, once or all'
        when exists (select from (values ('overlap'), ('enabled')) f (name)
                     where jsonb_typeof(coalesce(p_definition -> f.name, 'null')) not in ('boolean', 'null'))
            then 'overlap and enabled are true or false'
        else ops.job_problem(jsonb_build_object('kind', p_definition -> 'kind', 'payload', p_definition -> 'payload',
                                                'priority', p_definition -> 'priority')) end
$_$;

CREATE FUNCTION ops.settle_done(p_workspace_id text, p_results jsonb, p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE sql
    AS $$
    with settled as (
        update ops.jobs j
        set status = 'done', finished_at = p_now, lease_until = null, cancel_requested_at = null, last_error = null
        from (select x.* from jsonb_to_recordset(p_results) x (job_id uuid, lease integer, outcome text, stats jsonb)
              order by x.job_id) r
        where r.outcome = 'done' and j.workspace_id = p_workspace_id and j.job_id = r.job_id
          and j.status || '' = 'running' and j.lease = r.lease
        returning j.job_id, j.lease, j.kind, j.attempt, j.worker, j.started_at, r.stats
    ), noted as (
        insert into ops.job_runs (workspace_id, job_id, lease, kind, attempt, worker, started_at, finished_at, outcome, stats)
        select p_workspace_id, s.job_id, s.lease, s.kind, s.attempt, s.worker, s.started_at, p_now, 'done', s.stats
        from settled s
    )
    select coalesce(array_agg(s.job_id), '{}') from settled s
$$;

CREATE FUNCTION ops.settle_jobs(p_workspace_id text, p_results jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(job_id uuid, outcome text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    settled uuid[] := ops.settle_done(p_workspace_id, p_results, p_now);
begin
    return query select unnest(settled), 'done';
    if cardinality(settled) = jsonb_array_length(p_results) then
        return;
    end if;
    return query
    select r.job_id, ops.settle_other(p_workspace_id, r.job_id, r.lease, r.outcome, r.stats, r.error, r.after, p_now)
    from (select x.* from jsonb_to_recordset(p_results) x
              (job_id uuid, lease integer, outcome text, stats jsonb, error jsonb, after double precision)
          where x.job_id <> all (settled) or x.lease < (
              select j.lease from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = x.job_id)
          order by x.job_id, x.lease) r
    where exists (select from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = r.job_id);
end $$;

CREATE FUNCTION ops.settle_notices(p_workspace_id text, p_target_id text, p_lease integer, p_notices jsonb, p_error jsonb DEFAULT NULL::jsonb, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    target ops.alert_targets;
begin
    select * into target from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id for no key update;
    if not found then
        return 0;
    end if;
    if p_error is null then
        insert into ops.alert_told as k (workspace_id, target_id, alert, subject, episode, state, severity, told_at)
        select p_workspace_id, p_target_id, n.alert, n.subject, n.episode,
               case n.news when 'cleared' then 'cleared' else 'raised' end, n.severity, p_now
        from jsonb_to_recordset(p_notices) n (alert text, subject text, news text, severity text, episode integer)
        on conflict (workspace_id, target_id, alert, subject) do update
            set episode = excluded.episode, state = excluded.state, severity = excluded.severity, told_at = p_now
            where k.episode <= excluded.episode;
    elsif target.lease <> p_lease or target.lease_until is null then
        return target.failures;
    end if;
    update ops.alert_targets t
    set lease_until = case when t.lease = p_lease then null else t.lease_until end,
        last_sent_at = case when p_error is null then p_now else t.last_sent_at end,
        failures = case when p_error is null then 0 else t.failures + 1 end,
        failing_since = case when p_error is not null then coalesce(t.failing_since, p_now) end,
        last_error = case when p_error is not null then ops.normal_error(p_error) end,
        next_try_at = case when p_error is not null then p_now + ops.pause_after(t.failures + 1, p_error, 900) end
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id
    returning * into target;
    return target.failures;
end $$;

CREATE FUNCTION ops.settle_other(p_workspace_id text, p_job_id uuid, p_lease integer, p_outcome text, p_stats jsonb, p_error jsonb, p_after double precision, p_now timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    job ops.jobs;
    known text;
    rules ops.job_kinds;
    fate text;
    chance constant double precision := random();
    pause interval;
begin
    if p_outcome is null or p_outcome not in ('done', 'retry', 'failed', 'snoozed', 'released', 'cancelled') then
        raise exception 'a run does not come to "%"', p_outcome using errcode = 'VM001';
    end if;
    select * into job from ops.jobs j where j.workspace_id = p_workspace_id and j.job_id = p_job_id for no key update;
    select r.outcome into known from ops.job_runs r
    where r.workspace_id = p_workspace_id and r.job_id = p_job_id and r.lease = p_lease;
    -- The sweep took the job back, then the success arrives after all and nobody has begun anew: to do it again would be
    -- knowing double work.
    if not coalesce(job.lease = p_lease and (job.status = 'running' or (known = 'lost' and p_outcome = 'done'
                                                                        and job.status in ('waiting', 'retry'))), false) then
        return case when known = 'dead' and p_outcome in ('failed', 'retry') or known = p_outcome then 'repeat' else 'late' end;
    end if;

    rules := ops.kind_of(p_workspace_id, job.kind);
    fate := ops.fate_of(job, rules, p_outcome);
    pause := case when fate = 'retry' and p_after is null then ops.backoff(rules, job.attempt, chance)
                  else make_interval(secs => least(greatest(coalesce(p_after, 0), 0), 3155760000)) end;
    perform ops.end_run(job, fate, pause, p_error, p_stats, p_now);
    return fate;
end $$;

CREATE FUNCTION ops.short_text(p_text text, p_length integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
    select left(btrim(regexp_replace(core.redact_text(left(p_text, 20000)), '[[:cntrl:][:space:]]+', ' ', 'g')), p_length)
$$;

CREATE FUNCTION ops.silence_alert(p_workspace_id text, p_actor text, p_alert text, p_subject text, p_until timestamp with time zone, p_reason text, p_now timestamp with time zone DEFAULT now()) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform ops.must_be_workspace(p_workspace_id);
    insert into ops.alert_silences as s (workspace_id, alert, subject, until, actor, reason, created_at)
    values (p_workspace_id, p_alert, coalesce(p_subject, ''), p_until, left(p_actor, 200),
            coalesce(ops.short_text(p_reason, 300), ''), p_now)
    on conflict (workspace_id, alert, subject) do update
        set until = excluded.until, actor = excluded.actor, reason = excluded.reason, created_at = excluded.created_at;
    delete from ops.alert_silences s where s.workspace_id = p_workspace_id and s.until <= p_now;
    perform core.note_change(p_workspace_id, left(p_actor, 200), 'alert_silenced', concat_ws(' ', p_alert, p_subject),
                             jsonb_build_object('until', p_until, 'reason', ops.short_text(p_reason, 300)), p_now);
end $$;

CREATE FUNCTION ops.sweep_jobs(p_workspace_id text, p_limit integer DEFAULT 500, p_now timestamp with time zone DEFAULT now()) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
    error constant jsonb := jsonb_build_object('type', 'LeaseLost', 'message', 'the runner fell silent: how far the job got is not known');
    swept integer;
    dead ops.jobs[];
begin
    with expired as materialized (
        select j as job, case
                   when j.cancel_requested_at is not null then 'cancelled'
                   when j.attempt >= coalesce(j.max_attempts, k.max_attempts, 5) then 'dead' else 'retry' end as fate
        from ops.jobs j
        left join ops.job_kinds k on k.workspace_id = j.workspace_id and k.kind = j.kind
        where j.workspace_id = p_workspace_id and j.status = 'running' and j.lease_until < p_now
        order by j.job_id limit p_limit
        for no key update of j skip locked
    ), moved as (
        update ops.jobs j
        set status = e.fate, run_at = case e.fate when 'retry' then p_now else j.run_at end, lease_until = null,
            cancel_requested_at = null, finished_at = case when e.fate <> 'retry' then p_now end, last_error = error
        from expired e
        where j.workspace_id = p_workspace_id and j.job_id = (e.job).job_id
    ), noted as (
        insert into ops.job_runs (workspace_id, job_id, lease, kind, attempt, worker, started_at, finished_at, outcome, error)
        select p_workspace_id, (e.job).job_id, (e.job).lease, (e.job).kind, (e.job).attempt, (e.job).worker,
               (e.job).started_at, p_now, 'lost', error
        from expired e
    )
    select count(*), array_agg(e.job) filter (where e.fate = 'dead') into swept, dead from expired e;
    perform ops.note_dead(d, error, p_now) from unnest(dead) d;
    return swept;
end $$;

CREATE TABLE ops.alert_targets (
    workspace_id text NOT NULL,
    target_id text NOT NULL,
    kind text NOT NULL,
    address text NOT NULL,
    auth_ref text,
    credential_workspace text,
    language text DEFAULT 'en'::text NOT NULL,
    min_severity text DEFAULT 'warning'::text NOT NULL,
    alerts text[],
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    next_try_at timestamp with time zone,
    last_error jsonb,
    last_sent_at timestamp with time zone,
    lease integer DEFAULT 0 NOT NULL,
    lease_until timestamp with time zone,
    CONSTRAINT alert_targets_address_check CHECK ((address <> ''::text)),
    CONSTRAINT alert_targets_check CHECK (((kind <> ALL (ARRAY['telegram'::text, 'max'::text])) OR (auth_ref IS NOT NULL))),
    CONSTRAINT alert_targets_kind_check CHECK ((kind = ANY (ARRAY['telegram'::text, 'max'::text, 'email'::text, 'webhook'::text]))),
    CONSTRAINT alert_targets_language_check CHECK ((language = ANY (ARRAY['en'::text, 'ru'::text]))),
    CONSTRAINT alert_targets_min_severity_check CHECK ((min_severity = ANY (ARRAY['warning'::text, 'critical'::text]))),
    CONSTRAINT alert_targets_target_id_check CHECK ((target_id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text))
);

CREATE FUNCTION ops.take_notices(p_workspace_id text, p_target_id text, p_lease interval DEFAULT '00:02:00'::interval, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(target ops.alert_targets, notices jsonb)
    LANGUAGE plpgsql
    AS $$
declare
    way text;
    found_notices jsonb;
begin
    select t.kind into way from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id and t.enabled
      and not ops.is_soon(t.next_try_at, p_now) and not ops.is_soon(t.lease_until, p_now)
    for no key update;
    if not found then
        return;
    end if;
    -- Read after the lock: what another one has told meanwhile is known by now.
    select jsonb_agg(to_jsonb(u)) into found_notices
    from (select * from ops.unheard(p_workspace_id, p_target_id, p_now) limit case way when 'webhook' then 500 end) u;
    if found_notices is null then
        return;
    end if;
    return query
    update ops.alert_targets t set lease = t.lease + 1, lease_until = p_now + p_lease
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id
    returning t, found_notices;
end $$;

CREATE FUNCTION ops.targets_to_tell(p_workspace_id text, p_now timestamp with time zone DEFAULT now()) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    select t.target_id from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.enabled and not ops.is_soon(t.next_try_at, p_now) and not ops.is_soon(t.lease_until, p_now)
      and exists (select from ops.unheard(p_workspace_id, t.target_id, p_now))
    order by t.target_id
$$;

CREATE FUNCTION ops.unheard(p_workspace_id text, p_target_id text, p_now timestamp with time zone DEFAULT now()) RETURNS TABLE(alert text, subject text, news text, severity text, summary text, details jsonb, episode integer, raised_at timestamp with time zone, cleared_at timestamp with time zone, raises integer)
    LANGUAGE sql STABLE
    AS $$
    with rules as materialized (
        select p.* from ops.alert_policies p where p.workspace_id = p_workspace_id
    ), heard as (
        select a.*, k.state, k.told_at, k.episode as told_episode, k.severity as told_severity,
               a.acked_at is not null and coalesce(ops.count_in(a.details) <= a.acked_count, true) as acked,
               exists (select from ops.alert_silences s
                       where s.workspace_id = p_workspace_id and s.alert = a.alert and s.subject in ('', a.subject)
                         and s.until > p_now) as silent
        from ops.alert_targets t
        join ops.alerts a on a.workspace_id = t.workspace_id and (t.alerts is null or a.alert = any (t.alerts))
            and (t.min_severity = 'warning' or a.severity = 'critical')
            and (a.alert, a.subject) <> ('alert_target', t.target_id)
        left join ops.alert_told k on k.workspace_id = t.workspace_id and k.target_id = t.target_id
            and k.alert = a.alert and k.subject = a.subject
        where t.workspace_id = p_workspace_id and t.target_id = p_target_id and t.enabled
    )
    select h.alert, h.subject, n.news, h.severity, h.summary, h.details, h.episode, h.raised_at, h.cleared_at, h.raises
    from heard h, rules r, lateral (select case
        when h.cleared_at is not null then
            case when h.state = 'raised' and ops.is_quiet(h.cleared_at, r, h.flaps, p_now) then 'cleared' end
        when h.silent or h.acked then null
        when h.state is distinct from 'raised' or h.told_episode <> h.episode
             or (h.told_severity, h.severity) = ('warning', 'critical') then 'raised'
        when h.told_at <= p_now - r.repeat_every or h.told_at > p_now + interval '1 hour' then 'repeated' end as news) n
    where n.news is not null
    order by n.news = 'cleared', h.severity, h.raised_at, h.alert, h.subject
$$;

CREATE FUNCTION ops.webhook_secrets_of(p_workspace_id text, p_owner text, p_now timestamp with time zone DEFAULT now()) RETURNS SETOF bytea
    LANGUAGE sql STABLE
    AS $$
    select s.secret from ops.webhook_secrets s
    where s.workspace_id = p_workspace_id and s.owner = p_owner and coalesce(s.ends_at > p_now, true)
    order by s.created_at desc, s.secret_id desc
$$;

CREATE FUNCTION ops.workspaces_with_jobs(p_kinds text[], p_after text DEFAULT ''::text, p_limit integer DEFAULT 1000, p_now timestamp with time zone DEFAULT now()) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
    select w.workspace_id
    from (select c.workspace_id from core.workspaces c where c.status = 'active' union all select '*') w
    where exists (
        select from ops.job_lines(w.workspace_id, p_kinds) l,
        lateral (select from ops.jobs j where j.workspace_id = w.workspace_id and j.kind = l.kind and j.priority = l.priority
                 and j.status in ('waiting', 'retry') and j.run_at <= p_now order by j.run_at limit 1) due)
    order by w.workspace_id <= p_after, w.workspace_id
    limit p_limit
$$;

CREATE TABLE autopost.adapter_answers (
    workspace_id text NOT NULL,
    idempotency_key text NOT NULL,
    taken_until timestamp with time zone NOT NULL,
    answer jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.channel_auth (
    workspace_id text NOT NULL,
    channel_id text NOT NULL,
    auth_ref text NOT NULL,
    rotated_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.channel_paces (
    workspace_id text NOT NULL,
    channel_id text NOT NULL,
    pace text NOT NULL,
    since timestamp with time zone NOT NULL
);

CREATE TABLE autopost.checks (
    workspace_id text NOT NULL,
    source text NOT NULL,
    place jsonb DEFAULT '{}'::jsonb NOT NULL,
    pass_began_at timestamp with time zone,
    pass_ended_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT checks_source_check CHECK ((source = ANY (ARRAY['integrity'::text, 'proof'::text])))
);

CREATE TABLE autopost.dispatcher_state (
    workspace_id text NOT NULL,
    channel_id_last text DEFAULT ''::text NOT NULL,
    workspace_id_last text DEFAULT ''::text NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.event_archives (
    workspace_id text NOT NULL,
    day date NOT NULL,
    path text NOT NULL,
    events bigint NOT NULL,
    archived_at timestamp with time zone DEFAULT now() NOT NULL
);

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
    CONSTRAINT events_action_check CHECK ((action = ANY (ARRAY['enqueue'::text, 'validation_failed'::text, 'send_attempt'::text, 'sent'::text, 'retry_scheduled'::text, 'dedup_suppressed'::text, 'failed_permanent'::text, 'dead_letter'::text, 'channel_paused'::text, 'channel_disabled'::text, 'channel_enabled'::text, 'message_tag_mismatch'::text, 'sending_lease_expired'::text, 'claimed_lease_expired'::text, 'manual_requeue'::text, 'auth_rotated'::text, 'ingress_rate_limited'::text, 'ingress_payload_rejected'::text, 'ingress_dedup_dropped'::text, 'claim_released'::text, 'late_result'::text, 'held'::text, 'confirmed'::text, 'cancelled'::text, 'rescheduled'::text]))),
    CONSTRAINT events_result_check CHECK ((result = ANY (ARRAY['ok'::text, 'error'::text])))
);

CREATE TABLE autopost.findings (
    workspace_id text NOT NULL,
    source text NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    says text NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    found_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    CONSTRAINT findings_source_check CHECK ((source = ANY (ARRAY['integrity'::text, 'proof'::text])))
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

CREATE TABLE autopost.pull_cursors (
    workspace_id text NOT NULL,
    source_id text NOT NULL,
    cursor_json jsonb DEFAULT '{}'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.pull_items (
    workspace_id text NOT NULL,
    source_id text NOT NULL,
    item_hash text NOT NULL,
    message_id uuid,
    outcome text NOT NULL,
    first_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE autopost.templates (
    workspace_id text NOT NULL,
    template_id text NOT NULL,
    version integer NOT NULL,
    body text NOT NULL,
    defaults jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    parse_mode text DEFAULT 'None'::text NOT NULL,
    CONSTRAINT templates_parse_mode_check CHECK ((parse_mode = ANY (ARRAY['HTML'::text, 'Markdown'::text, 'None'::text])))
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

CREATE TABLE core.changes (
    workspace_id text NOT NULL,
    change_id uuid NOT NULL,
    ts timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL
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

CREATE TABLE core.operator_roles (
    workspace_id text NOT NULL,
    login text NOT NULL,
    role text NOT NULL,
    granted_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT operator_roles_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'editor'::text, 'viewer'::text, 'security'::text])))
);

CREATE TABLE core.operator_sessions (
    token_hash text NOT NULL,
    login text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_used_at timestamp with time zone,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE core.operators (
    login text NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    language text DEFAULT 'en'::text NOT NULL,
    password_hash text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    disabled_at timestamp with time zone,
    CONSTRAINT operators_language_check CHECK ((language = ANY (ARRAY['en'::text, 'ru'::text]))),
    CONSTRAINT operators_login_check CHECK ((login ~ '^[a-z0-9][a-z0-9_.@-]{0,63}$'::text))
);

CREATE TABLE core.schema_functions (
    path text NOT NULL,
    sha256 text NOT NULL,
    release text DEFAULT '0'::text NOT NULL
);

CREATE TABLE core.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE core.sign_in_gates (
    subject text NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    locked_until timestamp with time zone,
    passed_at timestamp with time zone
);

CREATE TABLE core.workspaces (
    workspace_id text NOT NULL,
    name text NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT workspaces_status_check CHECK ((status = ANY (ARRAY['active'::text, 'paused'::text, 'disabled'::text]))),
    CONSTRAINT workspaces_workspace_id_check CHECK ((workspace_id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text))
);

CREATE TABLE ops.alert_silences (
    workspace_id text NOT NULL,
    alert text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    until timestamp with time zone NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE ops.alert_told (
    workspace_id text NOT NULL,
    target_id text NOT NULL,
    alert text NOT NULL,
    subject text NOT NULL,
    episode integer NOT NULL,
    state text NOT NULL,
    severity text NOT NULL,
    told_at timestamp with time zone NOT NULL,
    CONSTRAINT alert_told_state_check CHECK ((state = ANY (ARRAY['raised'::text, 'cleared'::text])))
);

CREATE TABLE ops.alerts (
    workspace_id text NOT NULL,
    alert text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    severity text NOT NULL,
    summary text NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    episode integer DEFAULT 1 NOT NULL,
    raises integer DEFAULT 1 NOT NULL,
    flaps integer DEFAULT 1 NOT NULL,
    raised_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    cleared_at timestamp with time zone,
    acked_at timestamp with time zone,
    acked_by text,
    acked_count bigint,
    CONSTRAINT alerts_alert_check CHECK ((alert ~ '^[a-z][a-z0-9_.]{0,63}$'::text)),
    CONSTRAINT alerts_severity_check CHECK ((severity = ANY (ARRAY['warning'::text, 'critical'::text])))
);

CREATE TABLE ops.clock_checks (
    workspace_id text NOT NULL,
    believed_at timestamp with time zone NOT NULL,
    odd_since timestamp with time zone,
    odd_at timestamp with time zone
);

CREATE TABLE ops.errors (
    workspace_id text NOT NULL,
    error_id uuid NOT NULL,
    ts timestamp with time zone DEFAULT now() NOT NULL,
    workflow text,
    node text,
    op text,
    job_id uuid,
    trace_id text,
    status_code integer DEFAULT 500 NOT NULL,
    kind text DEFAULT 'unknown'::text NOT NULL,
    retryable boolean DEFAULT false NOT NULL,
    message text NOT NULL,
    details text,
    CONSTRAINT errors_kind_check CHECK ((kind = ANY (ARRAY['db'::text, 'upstream'::text, 'auth'::text, 'rate_limit'::text, 'unknown'::text])))
);

CREATE TABLE ops.failures (
    workspace_id text NOT NULL,
    event_id uuid NOT NULL,
    ts timestamp with time zone NOT NULL,
    type text NOT NULL,
    data jsonb NOT NULL
);

CREATE TABLE ops.job_runs (
    workspace_id text NOT NULL,
    job_id uuid NOT NULL,
    lease integer NOT NULL,
    kind text NOT NULL,
    attempt integer NOT NULL,
    worker text,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    error jsonb,
    stats jsonb,
    CONSTRAINT job_runs_outcome_check CHECK ((outcome = ANY (ARRAY['done'::text, 'retry'::text, 'dead'::text, 'snoozed'::text, 'released'::text, 'lost'::text, 'cancelled'::text])))
);

CREATE TABLE ops.retention (
    workspace_id text NOT NULL,
    rule text NOT NULL,
    keep interval,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT retention_keep_check CHECK (((keep >= '01:00:00'::interval) AND (keep <= '36500 days'::interval))),
    CONSTRAINT retention_options_check CHECK ((jsonb_typeof(options) = 'object'::text)),
    CONSTRAINT retention_rule_check CHECK ((rule ~ '^[a-z][a-z0-9_]{0,63}$'::text))
);

CREATE TABLE ops.retention_progress (
    workspace_id text NOT NULL,
    rule text NOT NULL,
    place text,
    gone_before timestamp with time zone,
    removed bigint DEFAULT 0 NOT NULL,
    passed_at timestamp with time zone,
    last_error text,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE ops.schedules (
    workspace_id text NOT NULL,
    schedule_id text NOT NULL,
    kind text NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    cron text,
    every interval,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    missed text DEFAULT 'once'::text NOT NULL,
    overlap boolean DEFAULT true NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    next_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT schedules_check CHECK ((num_nonnulls(cron, every) = 1)),
    CONSTRAINT schedules_every_check CHECK (((every >= '00:00:01'::interval) AND (every <= '3650 days'::interval))),
    CONSTRAINT schedules_kind_check CHECK ((kind ~ '^[a-z][a-z0-9_.]{0,63}$'::text)),
    CONSTRAINT schedules_missed_check CHECK ((missed = ANY (ARRAY['skip'::text, 'once'::text, 'all'::text]))),
    CONSTRAINT schedules_payload_check CHECK ((jsonb_typeof(payload) = 'object'::text)),
    CONSTRAINT schedules_priority_check CHECK (((priority >= '-100'::integer) AND (priority <= 100))),
    CONSTRAINT schedules_schedule_id_check CHECK ((schedule_id ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$'::text))
)
WITH (fillfactor='50');

CREATE TABLE ops.webhook_secrets (
    workspace_id text NOT NULL,
    owner text NOT NULL,
    secret_id uuid NOT NULL,
    secret bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ends_at timestamp with time zone,
    CONSTRAINT webhook_secrets_owner_check CHECK ((owner ~ '^(webhook|target):.'::text))
);

CREATE TABLE ops.webhooks (
    workspace_id text NOT NULL,
    webhook_id text NOT NULL,
    url text NOT NULL,
    events text[] NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    next_try_at timestamp with time zone,
    last_error jsonb,
    last_sent_at timestamp with time zone,
    CONSTRAINT webhooks_events_check CHECK ((cardinality(events) > 0)),
    CONSTRAINT webhooks_url_check CHECK ((url ~ '^https?://'::text)),
    CONSTRAINT webhooks_webhook_id_check CHECK ((webhook_id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text))
);

ALTER TABLE ONLY autopost.events ATTACH PARTITION autopost.events_default DEFAULT;

ALTER TABLE ONLY autopost.adapter_answers
    ADD CONSTRAINT adapter_answers_pkey PRIMARY KEY (workspace_id, idempotency_key);

ALTER TABLE ONLY autopost.channel_auth
    ADD CONSTRAINT channel_auth_pkey PRIMARY KEY (workspace_id, channel_id);

ALTER TABLE ONLY autopost.channel_paces
    ADD CONSTRAINT channel_paces_pkey PRIMARY KEY (workspace_id, channel_id);

ALTER TABLE ONLY autopost.channels
    ADD CONSTRAINT channels_pkey PRIMARY KEY (workspace_id, channel_id);

ALTER TABLE ONLY autopost.channels
    ADD CONSTRAINT channels_workspace_id_platform_target_id_key UNIQUE (workspace_id, platform, target_id);

ALTER TABLE ONLY autopost.checks
    ADD CONSTRAINT checks_pkey PRIMARY KEY (workspace_id, source);

ALTER TABLE ONLY autopost.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (workspace_id, delivery_id);

ALTER TABLE ONLY autopost.dispatcher_state
    ADD CONSTRAINT dispatcher_state_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY autopost.event_archives
    ADD CONSTRAINT event_archives_pkey PRIMARY KEY (workspace_id, day);

ALTER TABLE ONLY autopost.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (workspace_id, ts, id);

ALTER TABLE ONLY autopost.events_default
    ADD CONSTRAINT events_default_pkey PRIMARY KEY (workspace_id, ts, id);

ALTER TABLE ONLY autopost.findings
    ADD CONSTRAINT findings_pkey PRIMARY KEY (workspace_id, source, kind, subject);

ALTER TABLE ONLY autopost.ingest_runs
    ADD CONSTRAINT ingest_runs_pkey PRIMARY KEY (workspace_id, run_id);

ALTER TABLE ONLY autopost.ingress_gates
    ADD CONSTRAINT ingress_gates_pkey PRIMARY KEY (workspace_id, endpoint_id);

ALTER TABLE ONLY autopost.ingress_receipts
    ADD CONSTRAINT ingress_receipts_pkey PRIMARY KEY (workspace_id, endpoint_id, payload_hash, received_at, receipt_id);

ALTER TABLE ONLY autopost.media_blobs
    ADD CONSTRAINT media_blobs_pkey PRIMARY KEY (workspace_id, blob_ref, provider, auth_ref, sent_as);

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

ALTER TABLE ONLY autopost.pull_items
    ADD CONSTRAINT pull_items_pkey PRIMARY KEY (workspace_id, source_id, item_hash);

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

ALTER TABLE ONLY core.changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (workspace_id, change_id);

ALTER TABLE ONLY core.credential_bindings
    ADD CONSTRAINT credential_bindings_pkey PRIMARY KEY (workspace_id, platform, auth_ref);

ALTER TABLE ONLY core.operator_roles
    ADD CONSTRAINT operator_roles_pkey PRIMARY KEY (workspace_id, login, role);

ALTER TABLE ONLY core.operator_sessions
    ADD CONSTRAINT operator_sessions_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY core.operators
    ADD CONSTRAINT operators_pkey PRIMARY KEY (login);

ALTER TABLE ONLY core.payload_reads
    ADD CONSTRAINT payload_reads_pkey PRIMARY KEY (workspace_id, read_id);

ALTER TABLE ONLY core.schema_functions
    ADD CONSTRAINT schema_functions_pkey PRIMARY KEY (path);

ALTER TABLE ONLY core.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY core.sign_in_gates
    ADD CONSTRAINT sign_in_gates_pkey PRIMARY KEY (subject);

ALTER TABLE ONLY core.workspaces
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY ops.alert_policies
    ADD CONSTRAINT alert_policies_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY ops.alert_silences
    ADD CONSTRAINT alert_silences_pkey PRIMARY KEY (workspace_id, alert, subject);

ALTER TABLE ONLY ops.alert_targets
    ADD CONSTRAINT alert_targets_pkey PRIMARY KEY (workspace_id, target_id);

ALTER TABLE ONLY ops.alert_told
    ADD CONSTRAINT alert_told_pkey PRIMARY KEY (workspace_id, target_id, alert, subject);

ALTER TABLE ONLY ops.alerts
    ADD CONSTRAINT alerts_pkey PRIMARY KEY (workspace_id, alert, subject);

ALTER TABLE ONLY ops.clock_checks
    ADD CONSTRAINT clock_checks_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY ops.errors
    ADD CONSTRAINT errors_pkey PRIMARY KEY (workspace_id, error_id);

ALTER TABLE ONLY ops.failures
    ADD CONSTRAINT failures_pkey PRIMARY KEY (workspace_id, event_id);

ALTER TABLE ONLY ops.job_kinds
    ADD CONSTRAINT job_kinds_pkey PRIMARY KEY (workspace_id, kind);

ALTER TABLE ONLY ops.job_runs
    ADD CONSTRAINT job_runs_pkey PRIMARY KEY (workspace_id, job_id, lease);

ALTER TABLE ONLY ops.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (workspace_id, job_id);

ALTER TABLE ONLY ops.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (workspace_id, rule);

ALTER TABLE ONLY ops.retention_progress
    ADD CONSTRAINT retention_progress_pkey PRIMARY KEY (workspace_id, rule);

ALTER TABLE ONLY ops.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (workspace_id, schedule_id);

ALTER TABLE ONLY ops.webhook_secrets
    ADD CONSTRAINT webhook_secrets_pkey PRIMARY KEY (workspace_id, owner, secret_id);

ALTER TABLE ONLY ops.webhooks
    ADD CONSTRAINT webhooks_pkey PRIMARY KEY (workspace_id, webhook_id);

CREATE INDEX adapter_answers_by_time ON autopost.adapter_answers USING btree (workspace_id, created_at);

CREATE INDEX channels_by_group ON autopost.channels USING btree (workspace_id, platform, rate_group);

CREATE INDEX channels_by_tags ON autopost.channels USING gin (tags);

CREATE INDEX deliveries_by_message ON autopost.deliveries USING btree (message_id);

CREATE INDEX deliveries_claimed ON autopost.deliveries USING btree (workspace_id, channel_id, not_before, created_at) WHERE (status = 'claimed'::text);

CREATE INDEX deliveries_failed ON autopost.deliveries USING btree (workspace_id, status, updated_at) WHERE (status = ANY (ARRAY['failed_permanent'::text, 'dead'::text]));

CREATE INDEX deliveries_in_flight ON autopost.deliveries USING btree (workspace_id, channel_id, content_hash) WHERE (status = ANY (ARRAY['queued'::text, 'claimed'::text, 'sending'::text, 'retry'::text]));

CREATE INDEX deliveries_media_pending ON autopost.deliveries USING btree (workspace_id, message_id) WHERE ((status = 'queued'::text) AND (not_before = 'infinity'::timestamp with time zone));

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

CREATE INDEX messages_by_media ON autopost.messages USING gin (jsonb_path_query_array(payload, '$."media"[*]."blob_ref"'::jsonpath) jsonb_path_ops) WHERE (payload ? 'media'::text);

CREATE INDEX messages_by_tags ON autopost.messages USING gin (tags);

CREATE INDEX messages_by_time ON autopost.messages USING btree (workspace_id, created_at);

CREATE UNIQUE INDEX workspace_endpoints_active_secret ON autopost.workspace_endpoints USING btree (kind, secret_hash) WHERE enabled;

CREATE INDEX api_keys_by_workspace ON core.api_keys USING btree (workspace_id);

CREATE INDEX changes_by_time ON core.changes USING btree (workspace_id, ts);

CREATE UNIQUE INDEX operator_roles_one_rank ON core.operator_roles USING btree (workspace_id, login) WHERE (role <> 'security'::text);

CREATE INDEX payload_reads_by_time ON core.payload_reads USING btree (workspace_id, ts);

CREATE INDEX alerts_on ON ops.alerts USING btree (workspace_id, raised_at) WHERE (cleared_at IS NULL);

CREATE INDEX jobs_dead ON ops.jobs USING btree (workspace_id, job_id) WHERE (status = 'dead'::text);

CREATE INDEX jobs_running ON ops.jobs USING btree (workspace_id, kind) WHERE (status = 'running'::text);

CREATE UNIQUE INDEX jobs_unfinished_key ON ops.jobs USING btree (workspace_id, kind, unique_key) WHERE ((unique_key IS NOT NULL) AND (status = ANY (ARRAY['waiting'::text, 'retry'::text, 'running'::text])));

CREATE INDEX jobs_waiting ON ops.jobs USING btree (workspace_id, kind, priority DESC, run_at, job_id) WHERE (status = ANY (ARRAY['waiting'::text, 'retry'::text]));

ALTER INDEX autopost.events_by_delivery ATTACH PARTITION autopost.events_default_delivery_id_idx;

ALTER INDEX autopost.events_by_message ATTACH PARTITION autopost.events_default_message_id_idx;

ALTER INDEX autopost.events_pkey ATTACH PARTITION autopost.events_default_pkey;

ALTER INDEX autopost.events_rare ATTACH PARTITION autopost.events_default_workspace_id_action_ts_idx;

ALTER INDEX autopost.events_by_channel ATTACH PARTITION autopost.events_default_workspace_id_channel_id_ts_idx;

ALTER INDEX autopost.events_errors ATTACH PARTITION autopost.events_default_workspace_id_ts_idx;

CREATE TRIGGER deliveries_guard AFTER UPDATE OF status ON autopost.deliveries FOR EACH ROW WHEN (((old.status IS DISTINCT FROM new.status) AND (((old.status || '>'::text) || new.status) <> ALL ('{queued>claimed,retry>claimed,claimed>sending,sending>sent,claimed>queued,claimed>retry,sending>retry,queued>failed_permanent,retry>failed_permanent,sending>failed_permanent,queued>deduped,retry>deduped,queued>dead,claimed>dead,sending>dead,retry>dead,sent>dead,deduped>dead,failed_permanent>dead,dead>retry,failed_permanent>retry}'::text[])) AND (NOT ((((old.status || '>'::text) || new.status) = ANY ('{queued>sending,retry>sending}'::text[])) AND (new.attempt = (old.attempt + 1)) AND (new.lease = (old.lease + 1)) AND COALESCE((new.claimed_at = new.sending_started_at), false) AND (new.claim_token IS NOT NULL))) AND (NOT ((((old.status || '>'::text) || new.status) = ANY ('{retry>sent,queued>sent,claimed>sent}'::text[])) AND (old.attempt > 0) AND (new.sent_at IS NOT NULL))))) EXECUTE FUNCTION autopost.forbid_move();

CREATE TRIGGER events_failures AFTER INSERT ON autopost.events FOR EACH ROW WHEN ((new.action = ANY (ARRAY['dead_letter'::text, 'failed_permanent'::text, 'validation_failed'::text, 'channel_disabled'::text]))) EXECUTE FUNCTION autopost.note_failure();

CREATE TRIGGER payload_reads_stay BEFORE DELETE OR UPDATE ON core.payload_reads FOR EACH ROW EXECUTE FUNCTION core.forbid_change();

ALTER TABLE ONLY autopost.adapter_answers
    ADD CONSTRAINT adapter_answers_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.channel_auth
    ADD CONSTRAINT channel_auth_workspace_id_channel_id_fkey FOREIGN KEY (workspace_id, channel_id) REFERENCES autopost.channels(workspace_id, channel_id) ON DELETE CASCADE;

ALTER TABLE ONLY autopost.channel_paces
    ADD CONSTRAINT channel_paces_workspace_id_channel_id_fkey FOREIGN KEY (workspace_id, channel_id) REFERENCES autopost.channels(workspace_id, channel_id) ON DELETE CASCADE;

ALTER TABLE ONLY autopost.channels
    ADD CONSTRAINT channels_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.checks
    ADD CONSTRAINT checks_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.deliveries
    ADD CONSTRAINT deliveries_workspace_id_channel_id_fkey FOREIGN KEY (workspace_id, channel_id) REFERENCES autopost.channels(workspace_id, channel_id);

ALTER TABLE ONLY autopost.deliveries
    ADD CONSTRAINT deliveries_workspace_id_message_id_fkey FOREIGN KEY (workspace_id, message_id) REFERENCES autopost.messages(workspace_id, message_id);

ALTER TABLE ONLY autopost.event_archives
    ADD CONSTRAINT event_archives_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY autopost.findings
    ADD CONSTRAINT findings_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

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

ALTER TABLE ONLY autopost.pull_items
    ADD CONSTRAINT pull_items_workspace_id_source_id_fkey FOREIGN KEY (workspace_id, source_id) REFERENCES autopost.pull_sources(workspace_id, source_id) ON DELETE CASCADE;

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

ALTER TABLE ONLY core.operator_roles
    ADD CONSTRAINT operator_roles_login_fkey FOREIGN KEY (login) REFERENCES core.operators(login) ON DELETE CASCADE;

ALTER TABLE ONLY core.operator_sessions
    ADD CONSTRAINT operator_sessions_login_fkey FOREIGN KEY (login) REFERENCES core.operators(login) ON DELETE CASCADE;

ALTER TABLE ONLY core.payload_reads
    ADD CONSTRAINT payload_reads_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES core.workspaces(workspace_id);

ALTER TABLE ONLY ops.alert_told
    ADD CONSTRAINT alert_told_workspace_id_target_id_fkey FOREIGN KEY (workspace_id, target_id) REFERENCES ops.alert_targets(workspace_id, target_id) ON DELETE CASCADE;
