-- What a post would become, without writing a row of it: the same normal form, routing, rendering and judging as the enqueue.

-- The post as the enqueue would find it: of a post that came before, the first seen tags and files count.
create or replace function autopost.as_stored(p_workspace_id text, p_raw jsonb, p_now timestamptz) returns autopost.stored
language sql stable as $$
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

-- Every channel of the workspace: what it would get and when, or why it would not. Raises VP001 when the shape is wrong.
create or replace function autopost.preview_post(p_workspace_id text, p_raw_payload_json jsonb, p_now timestamptz default now())
returns table (channel_id text, title text, platform text, target_id text, settings jsonb, matches boolean, reason text,
               rendered_text text, render_meta jsonb, template_version text, media jsonb, error jsonb, duplicate text,
               media_pending boolean, goes_at timestamptz, warnings text[], matching bigint, total bigint)
language plpgsql as $$
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

create or replace function autopost.preview_warnings(
    p_workspace_id text, p_channel autopost.channels, p_at timestamptz, p_goes boolean, p_minimum interval, p_now timestamptz) returns text[]
language sql stable as $$
    select array_remove(array[
        case when p_channel.paused_until = 'infinity' then 'the channel is paused'
             when p_channel.paused_until > p_at
             then format('the channel is paused until %s', to_char(p_channel.paused_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI UTC')) end,
        case when near.apart < p_minimum
             then 'closer to another post than the channel''s minimum gap: ' || autopost.gap_in_words(near.apart, p_minimum) end], null)
    from (select case when p_goes and p_minimum is not null
                      then autopost.nearest_post(p_workspace_id, p_channel, p_at, p_minimum, null, p_now) end as apart) near
$$;

-- What a push would say of the post as a whole.
create or replace function autopost.preview_post_warnings(
    p_workspace_id text, p_raw_payload_json jsonb, p_now timestamptz default now()) returns text[]
language sql stable as $$
    select array_remove(array[
        (select 'the workspace is paused: nothing goes out until it is active'
         from core.workspaces w where w.workspace_id = p_workspace_id and w.status = 'paused'),
        autopost.tags_warning(s, t.tags), autopost.only_warning(p_workspace_id, s), autopost.past_warning(s, p_now)], null)
    from autopost.as_stored(p_workspace_id, p_raw_payload_json, p_now) s,
         lateral (select autopost.normalize_tags(autopost.array_of(p_raw_payload_json, 'tags'), s.payload ->> 'text') as tags) t
$$;

-- Why a channel does not get a post, in words.
create or replace function autopost.unwanted_reason(p_channel autopost.channels, p_post autopost.stored) returns text
language sql stable as $$
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
