-- Another text for what has not gone out.

-- The old deliveries are withdrawn, and the new post goes to their channels, each at its own moment unless the post names
-- one; its tags are the old ones unless it names others. Nothing is changed where all of it is under way already. Held
-- deliveries stay: whether the old text was shown there is not known.
create or replace function autopost.replace_message(
    p_workspace_id text, p_operator text, p_message_id uuid, p_raw_payload_json jsonb, p_now timestamptz default now())
returns table (outcome text, message_id uuid, trace_id uuid, run_id uuid, enqueued integer, suppressed integer, failed integer,
               routed_by_tags text[], warnings text[], media_pending integer, too_late text[])
language plpgsql as $$
#variable_conflict use_column
declare
    asked constant uuid[] := array(select autopost.lock_unsent(p_workspace_id, p_message_id, null, autopost.only_channels(p_raw_payload_json)));
    waiting uuid[];
    channels text[];
    moments timestamptz[];
    late text[];
    post jsonb;
begin
    select coalesce(array_agg(d.delivery_id order by d.channel_id) filter (where w.waits), '{}'),
           coalesce(array_agg(d.channel_id order by d.channel_id) filter (where w.waits), '{}'),
           coalesce(array_agg(greatest(d.scheduled_for, p_now) order by d.channel_id) filter (where w.waits), '{}'),
           coalesce(array_agg(d.channel_id order by d.channel_id) filter (where not w.waits), '{}')
    into waiting, channels, moments, late
    from autopost.deliveries d, lateral (values (d.status || '' in ('queued', 'retry') and d.held_at is null)) w (waits)
    where d.workspace_id = p_workspace_id and d.delivery_id = any (asked);
    if waiting = '{}' then
        raise exception 'nothing of message % waits to be sent', p_message_id using errcode = 'VN001';
    end if;
    post := autopost.replacement(p_workspace_id, p_message_id, p_raw_payload_json, channels, moments, p_now);
    perform autopost.cancel_deliveries(p_workspace_id, p_operator, 'replaced by an edited post', null, waiting, null, p_now);
    return query
    with done as materialized (
        select * from autopost.enqueue_messages_and_deliveries(p_workspace_id, null, 'webhook_push', post, p_now)
    )
    select e.outcome, e.message_id, e.trace_id, e.run_id, e.enqueued, e.suppressed, e.failed, e.routed_by_tags,
           e.warnings || autopost.unwanted_warning(p_workspace_id, post, p_now), e.media_pending, late
    from done e, lateral (select autopost.keep_moments(p_workspace_id, p_operator, e.message_id, channels, moments,
                                 p_raw_payload_json, p_now) offset 0) kept;
end $$;

create or replace function autopost.only_channels(p_raw jsonb) returns text[]
language sql immutable as $$
    select case when jsonb_typeof(p_raw -> 'channels') = 'array'
                then array(select jsonb_array_elements_text(p_raw -> 'channels')) end
$$;

create or replace function autopost.replacement(
    p_workspace_id text, p_message_id uuid, p_raw jsonb, p_channels text[], p_moments timestamptz[], p_now timestamptz) returns jsonb
language sql stable as $$
    select jsonb_strip_nulls(jsonb_build_object(
               'tags', (select to_jsonb(m.tags[:64]) from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = p_message_id),
               'scheduled_for', (select to_char(max(at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') from unnest(p_moments) at
                                 having max(at) > p_now)))
           || case when jsonb_typeof(p_raw) = 'object' then jsonb_strip_nulls(p_raw) else p_raw end
           || jsonb_build_object('channels', to_jsonb(p_channels))
$$;

-- One post has one moment; channels that had another one get it back.
create or replace function autopost.keep_moments(
    p_workspace_id text, p_operator text, p_message_id uuid, p_channels text[], p_moments timestamptz[], p_raw jsonb, p_now timestamptz)
returns bigint
language sql volatile as $$
    select count(r.delivery_id)
    from (select w.at, array_agg(w.channel_id) as channels from unnest(p_channels, p_moments) w (channel_id, at) group by w.at) x,
         lateral autopost.reschedule_deliveries(p_workspace_id, p_operator, 'at the moment of the post that it replaces', nullif(x.at, p_now),
             p_message_id, null, x.channels, p_now) r
    where p_raw ->> 'scheduled_for' is null and x.at < (select max(m) from unnest(p_moments) m)
$$;

-- Channels of the old post that do not want the new one: they would go without either, so it is said.
create or replace function autopost.unwanted_warning(p_workspace_id text, p_raw jsonb, p_now timestamptz) returns text[]
language sql stable as $$
    select case when count(*) > 0 then array['not for ' || string_agg(c.channel_id || ': ' || autopost.unwanted_reason(c, s), '; ' order by c.channel_id)]
                else '{}' end
    from autopost.as_stored(p_workspace_id, p_raw, p_now) s
    join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = any (s.only_channels)
    where not (c.enabled and autopost.routes_to(c.route_filter, s.tags, to_jsonb(s.tags)))
$$;
