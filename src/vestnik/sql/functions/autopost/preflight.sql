-- Rendering, and what a platform would refuse. Done once per (message, platform, parse mode), never per channel.

create or replace function autopost.html_tags() returns text[]
language sql immutable parallel safe as $$
    select '{a,b,blockquote,br,code,del,em,h1,h2,h3,h4,h5,h6,i,ins,li,mark,ol,p,pre,s,span,strike,strong,tg-spoiler,u,ul}'::text[]
$$;

create or replace function autopost.escape_html(p_text text) returns text
language sql immutable strict parallel safe as $$
    select replace(replace(replace(p_text, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')
$$;

-- Internal markup: the text, then each link that the text does not already show.
create or replace function autopost.render_text(p_payload jsonb, p_parse_mode text) returns text
language sql immutable parallel safe as $$
    select case when not p_payload ? 'links' then p_payload ->> 'text' else
        concat_ws(E'\n\n', p_payload ->> 'text', (
            select string_agg(shown, E'\n' order by n)
            from jsonb_array_elements_text(p_payload -> 'links') with ordinality x (link, n),
                 lateral (select case p_parse_mode when 'HTML' then autopost.escape_html(link) else link end) y (shown)
            where position(shown in coalesce(p_payload ->> 'text', '')) = 0))
    end
$$;

-- Characters as the platforms count them: UTF-16 units.
create or replace function autopost.utf16_length(p_text text) returns integer
language sql immutable strict parallel safe as $$
    select char_length(p_text) + regexp_count(p_text, '[\U00010000-\U0010FFFF]')
$$;

-- The text without its markup, as Telegram counts it (after its entities are parsed).
create or replace function autopost.visible_text(p_text text, p_parse_mode text) returns text
language sql immutable strict parallel safe as $$
    select case p_parse_mode
        when 'HTML' then regexp_replace(regexp_replace(p_text, '<[^<>]*>', '', 'g'),
                             '&(?:[A-Za-z]+|#[0-9]+|#[xX][0-9A-Fa-f]+);', '.', 'g')
        when 'Markdown' then regexp_replace(regexp_replace(p_text, '\[([^][]*)\]\([^()\s]*\)', '\1', 'g'),
                             '\*\*|__|~~|\+\+|\^\^|`+', '', 'g')
        else p_text end
$$;

-- Null when every tag is known and closed in order; else the first fault, in words for a person.
create or replace function autopost.html_problem(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
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

-- What each platform takes; a platform that is not named here has no limit that we know.
create or replace function autopost.text_limit(p_platform text) returns integer
language sql immutable parallel safe as $$
    select case p_platform when 'telegram' then 4096 when 'max' then 4000 end
$$;

create or replace function autopost.text_length(p_platform text, p_text text, p_parse_mode text) returns integer
language sql immutable parallel safe as $$
    select autopost.utf16_length(
        case p_platform when 'max' then p_text else autopost.visible_text(p_text, p_parse_mode) end)
$$;

-- The adapter breaks a row of more than three link buttons into several, as MAX wants them; how many rows come of it counts.
create or replace function autopost.buttons_problem(p_platform text, p_buttons jsonb) returns text
language sql immutable parallel safe as $$
    select case when p_platform = 'max' and sum(ceil(jsonb_array_length(line) / 3.0)) > 30
                then 'MAX takes at most 30 rows of 3 link buttons' end
    from jsonb_array_elements(p_buttons) line
$$;

-- Null when the platform should take it, else the reason.
create or replace function autopost.preflight_problem(
    p_platform text, p_text text, p_parse_mode text, p_payload jsonb) returns text
language plpgsql immutable parallel safe as $$
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

create or replace function autopost.send_mode_problem(p_send_mode text, p_payload jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when p_send_mode = 'media' and p_payload ->> 'type' = 'text' then 'this channel takes media only, and the post is text'
        when p_send_mode = 'text' and p_payload ->> 'type' = 'media' then 'this channel takes text only, and the post has media' end
$$;

create or replace function autopost.validation_error(p_reason text) returns jsonb
language sql immutable parallel safe as $$
    select case when p_reason is not null then jsonb_build_object(
        'category', 'PERMANENT', 'scope', 'delivery', 'code', 'validation_failed', 'message', p_reason) end
$$;
