-- What each kind of channel would get of a post: routed, rendered, judged. The enqueue writes it down, the preview shows it;
-- both ask here.

-- A form is one message as one kind of channel gets it. Channels are of one kind when nothing that shows differs: then
-- rendering and judging are done once, however many there are. What few channels have (a template, UTM parameters, a policy
-- for long texts) is one column, null for all others.
create or replace function autopost.plan_forms(p_workspace_id text, p_stored autopost.stored[], p_now timestamptz)
returns setof autopost.form
language sql volatile as $$
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

-- What makes a channel's posts look other than everybody's. Values that stand for the channel are filled in here, so that
-- only channels which really differ are of different kinds.
create or replace function autopost.style_of(p_workspace_id text, p_channel autopost.channels) returns jsonb
language sql stable as $$
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

-- The text as internal markup, and its mode. more_link: where the whole of a shortened text is to be found.
create or replace function autopost.render_post(
    p_payload jsonb, p_tags text[], p_source jsonb, p_parse_mode text, p_style jsonb,
    out text text, out parse_mode text, out more_link text, out problem text)
language plpgsql immutable as $$
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

-- Null: every host is meant.
create or replace function autopost.only_hosts(p_style jsonb) returns text[]
language sql immutable parallel safe as $$
    select case jsonb_typeof(p_style -> 'only_hosts') when 'array' then array(select jsonb_array_elements_text(p_style -> 'only_hosts'))
                                                      when 'string' then array[p_style ->> 'only_hosts'] end
$$;

create or replace function autopost.buttons_of(p_buttons jsonb, p_style jsonb) returns jsonb
language sql immutable as $$
    select case when p_buttons is null or not coalesce(p_style ? 'utm', false) then p_buttons else (
        select jsonb_agg((select jsonb_agg(b || jsonb_build_object('url', autopost.with_utm(
                              b ->> 'url', p_style -> 'utm', autopost.only_hosts(p_style))) order by i)
                          from jsonb_array_elements(line) with ordinality y (b, i)) order by n)
        from jsonb_array_elements(p_buttons) with ordinality x (line, n)) end
$$;

-- When it can go at the earliest: not before its schedule, and only while the channel's window is open. Null: never.
create or replace function autopost.first_moment(p_calendar jsonb, p_scheduled_for timestamptz, p_now timestamptz)
returns timestamptz
language sql stable as $$
    select case when p_calendar is null then greatest(p_scheduled_for, p_now)
                else autopost.next_open(p_calendar -> 'window', p_calendar ->> 'timezone', greatest(p_scheduled_for, p_now)) end
$$;
