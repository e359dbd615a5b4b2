-- Another text for what has not gone out.

-- The old deliveries are withdrawn, and the new post goes to their channels, each at its own moment unless the post names
-- one; its tags are the old ones unless it names others. A channel that would not get the new post keeps the old one: whether
-- it would is known once it is done, so it is done, and taken back and done again without the channels that stay. Held
-- deliveries stay too: whether the old text was shown there is not known; and so does what was shown in part.
create or replace function autopost.replace_message(
    p_workspace_id text, p_operator text, p_message_id uuid, p_raw_payload_json jsonb, p_now timestamptz default now())
returns table (outcome text, message_id uuid, trace_id uuid, run_id uuid, enqueued integer, suppressed integer, failed integer,
               routed_by_tags text[], warnings text[], media_pending integer, too_late text[], kept jsonb)
language plpgsql as $$
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

-- Why these channels did not get the post of a run, by channel.
create or replace function autopost.not_replaced(
    p_workspace_id text, p_post jsonb, p_run_id uuid, p_channels text[], p_now timestamptz) returns jsonb
language sql stable as $$
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

-- Nothing at all would be replaced: nothing waits, or the new post goes nowhere.
create or replace function autopost.refuse_replacement(p_message_id uuid, p_stays jsonb) returns void
language plpgsql immutable as $$
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
