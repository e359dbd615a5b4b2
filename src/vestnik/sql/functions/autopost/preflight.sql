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
                 lateral (select case when p_parse_mode = 'HTML' then autopost.escape_html(link)
                                      when p_parse_mode = 'Markdown' and link ~ '[][*_`~\\&!]' then '<' || link || '>'
                                      else link end) y (shown)
            where position(shown in coalesce(p_payload ->> 'text', '')) = 0
              and position(link in coalesce(p_payload ->> 'text', '')) = 0))
    end
$$;

-- Characters as the platforms count them: UTF-16 units.
create or replace function autopost.utf16_length(p_text text) returns integer
language sql immutable strict parallel safe as $$
    select char_length(p_text) + regexp_count(p_text, '[\U00010000-\U0010FFFF]')
$$;

-- What is left of a text once its markup is read. Of HTML exactly, but for the numbers and indentation of lists and the addresses
-- that cannot be links; of Markdown no more than what is left. The adapter's plan counts exactly, and it decides: what is refused
-- here would be refused there.
create or replace function autopost.visible_text(p_text text, p_parse_mode text) returns text
language sql immutable strict parallel safe as $$
    select case p_parse_mode when 'HTML' then autopost.without_entities(autopost.without_tags(p_text))
                             when 'Markdown' then autopost.without_entities(autopost.without_marks(p_text))
                             else p_text end
$$;

create or replace function autopost.without_entities(p_text text) returns text
language sql immutable strict parallel safe as $$
    select case when position('&' in p_text) = 0 then p_text
                else regexp_replace(p_text, '&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});', '.', 'g') end
$$;

-- \x01 stands where a line has to end, \x02 where a paragraph has to, \x03 before an item, \x04 and \x05 around what keeps no
-- white space at its edges, \x06 behind a title. White space around all of them is theirs.
create or replace function autopost.without_tags(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
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

-- Whatever may be a mark goes, with the addresses of links, the words behind a fence, and all white space but one of a kind.
create or replace function autopost.without_marks(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
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
end $$;

-- HTML as MAX gets it, which counts the tags and entities too.
create or replace function autopost.max_html_length(p_text text) returns integer
language sql immutable strict parallel safe as $$
    select autopost.utf16_length(autopost.without_entities(t)) + autopost.max_tags_length(p_text)
         + 4 * regexp_count(t, '&amp;') + 3 * regexp_count(t, '&[lg]t;')
         + 4 * regexp_count(t, '&(?!#\d{1,7};|#[xX][0-9a-fA-F]{1,6};|[A-Za-z][A-Za-z0-9]{1,31};)') + 3 * regexp_count(t, '>')
    from (select autopost.without_tags(p_text)) x (t)
$$;

-- The tags that MAX knows, in their shortest form: only around a word, and none inside its like or inside code.
create or replace function autopost.max_tags_length(p_text text) returns integer
language plpgsql immutable strict parallel safe as $$
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

create or replace function autopost.max_address_length(p_value text) returns integer
language sql immutable parallel safe as $$
    select case when address ~ '^([Hh][Tt][Tt][Pp][Ss]?://[^\s/?#]*\.|[Mm][Aa][Xx]://)\S+$'
                then 15 + char_length(autopost.without_entities(address)) + 4 * regexp_count(address, '&') else 0 end
    from (select replace(btrim(p_value, '"'' '), '&amp;', '&')) v (address)
$$;

-- The text and its links, at least.
create or replace function autopost.max_markdown_length(p_text text) returns integer
language sql immutable strict parallel safe as $$
    select autopost.utf16_length(autopost.visible_text(p_text, 'Markdown')) + coalesce((
        select sum(3 + char_length(replace(autopost.without_entities(m[1]), '\', '')))
        from regexp_matches(p_text, '\]\(<?(https?://[^\s()<>]+)', 'g') m), 0)::integer
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
    select case when p_platform = 'max' and p_parse_mode = 'HTML' then autopost.max_html_length(p_text)
                when p_platform = 'max' and p_parse_mode = 'Markdown' then autopost.max_markdown_length(p_text)
                else autopost.utf16_length(autopost.visible_text(p_text, p_parse_mode)) end
$$;

-- The adapter breaks a row of more than three link buttons into several, as MAX wants them; how many rows come of it counts.
create or replace function autopost.buttons_problem(p_platform text, p_buttons jsonb) returns text
language sql immutable parallel safe as $$
    select case when p_platform = 'max' and sum(ceil(jsonb_array_length(line) / 3.0)) > 30
                then 'MAX takes at most 30 rows of 3 link buttons' end
    from jsonb_array_elements(p_buttons) line
$$;

-- Null when the platform should take it, else the reason. Text may be missing where there are media. What is too long is cut
-- into parts or shortened by the adapter where the channel says so (long_text).
create or replace function autopost.preflight_problem(
    p_platform text, p_text text, p_parse_mode text, p_payload jsonb,
    p_long_text text default 'refuse', p_more_link text default null) returns text
language plpgsql immutable parallel safe as $$
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

create or replace function autopost.send_mode_problem(p_send_mode text, p_payload jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when p_send_mode = 'media' and p_payload ->> 'type' = 'text' then 'this channel takes media only, and the post is text'
        when p_send_mode = 'text' and p_payload ? 'media' then 'this channel takes text only, and the post has media' end
$$;

create or replace function autopost.validation_error(p_reason text) returns jsonb
language sql immutable parallel safe as $$
    select case when p_reason is not null then jsonb_build_object(
        'category', 'PERMANENT', 'scope', 'delivery', 'code', 'validation_failed', 'message', core.redact_text(p_reason)) end
$$;
