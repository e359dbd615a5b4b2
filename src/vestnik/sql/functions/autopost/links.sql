-- Parameters that tell whoever counts visits where a reader came from, on every link that a reader could follow.
-- Nothing of an address is decoded: what is added stands before its fragment, all else stays as it was written. So a second
-- time changes nothing.

-- An http or https address with the parameters that it does not have yet; others, and other hosts, as they are.
create or replace function autopost.with_utm(p_url text, p_utm jsonb, p_only_hosts text[] default null) returns text
language sql immutable parallel safe as $$
    select autopost.tagged_url(p_url, autopost.utm_parameters(p_utm), autopost.host_names(p_only_hosts), '&')
$$;

-- "utm_source=…", in one order. A short name stands for the long one.
create or replace function autopost.utm_parameters(p_utm jsonb) returns text[]
language sql immutable strict parallel safe as $$
    select coalesce(array_agg(name || '=' || autopost.url_encode(value)
               order by array_position('{utm_source,utm_medium,utm_campaign,utm_term,utm_content}', name), name), '{}')
    from (select case when key like 'utm\_%' then key else 'utm_' || key end as name, value
          from jsonb_each_text(case jsonb_typeof(p_utm) when 'object' then p_utm else '{}' end)
          where key <> 'only_hosts' and key ~ '^\w+$' and value <> '') u
$$;

-- Everything but letters, digits, "-", "_" and "."; a point at the end, which would not be taken for a part of the address, too.
create or replace function autopost.url_encode(p_text text) returns text
language sql immutable strict parallel safe as $$
    select case when p_text ~ '^[A-Za-z0-9_.-]*$' then regexp_replace(p_text, '\.$', '%2E') else (
        select regexp_replace(string_agg(case when chr(b) ~ '[A-Za-z0-9_.-]' and b < 128 then chr(b)
                   else '%' || upper(lpad(to_hex(b), 2, '0')) end, '' order by i), '\.$', '%2E')
        from (select i, get_byte(convert_to(p_text, 'UTF8'), i) as b
              from generate_series(0, octet_length(p_text) - 1) i) bytes) end
$$;

create or replace function autopost.host_names(p_hosts text[]) returns text[]
language sql immutable strict parallel safe as $$
    select coalesce(array_agg(lower(ltrim(btrim(h), '*.'))), '{}') from unnest(p_hosts) h
$$;

-- p_amp is how this text writes the "&" of an address: in HTML it is &amp;, and a "#" may be part of an entity.
create or replace function autopost.tagged_url(p_url text, p_parameters text[], p_hosts text[], p_amp text) returns text
language plpgsql immutable parallel safe as $$
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

create or replace function autopost.is_host_of(p_base text, p_hosts text[]) returns boolean
language sql immutable strict parallel safe as $$
    select exists (select from unnest(p_hosts) h where host = h or right(host, char_length(h) + 1) = '.' || h)
    from (select lower(regexp_replace(regexp_replace(substring(p_base from '//([^/]*)'), '^.*@', ''), ':[0-9]*$', ''))) x (host)
$$;

-- Every link of a text: what href and [](…) lead to, and bare addresses, which platforms make links of. Code stays as it is, and
-- so does what a link shows.
create or replace function autopost.rewrite_links(p_text text, p_parse_mode text, p_utm jsonb, p_only_hosts text[] default null)
returns text
language plpgsql immutable parallel safe as $$
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

create or replace function autopost.unused_character(p_text text) returns text
language sql immutable strict parallel safe as $$
    select chr(n) from generate_series(1, 31) n where position(chr(n) in p_text) = 0 order by n limit 1
$$;

-- Addresses, and what decides whether they are links: in HTML tags, in Markdown escapes, code and the text of links.
-- An address ends before a bracket that was not opened in it.
create or replace function autopost.link_pattern(p_parse_mode text) returns text
language sql immutable parallel safe as $$
    select case p_parse_mode
        when 'HTML' then '<[^<>]*>|https?://(?:[^\s<>()"&]|&(?!#?\w+;)|&amp;|\((?:[^\s<>()"&]|&(?!#?\w+;)|&amp;)*\))+'
        when 'Markdown' then '\\[!-/:-@[-`{-~]|`+|\n~~~+|\[[^][\n]*\]\((?:<[^<>\n]*>)?|https?://(?:[^\s<>()"`]|\([^\s<>()"`]*\))+'
        else 'https?://(?:[^\s<>()"`]|\([^\s<>()"`]*\))+' end
$$;

create or replace function autopost.rewritten_html(p_pieces text[], p_parameters text[], p_hosts text[]) returns text[]
language plpgsql immutable parallel safe as $$
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

-- Plain text, and Markdown: there an address may stand between marks, and behind a run of backticks that is closed is code.
create or replace function autopost.rewritten_text(p_pieces text[], p_parameters text[], p_hosts text[], p_markdown boolean)
returns text[]
language plpgsql immutable parallel safe as $$
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
end $$;

-- What ends a sentence behind an address is not part of it, and neither is an entity; nor are, in Markdown, the marks that were
-- opened before it.
create or replace function autopost.bare_url(p_url text, p_parameters text[], p_hosts text[], p_amp text, p_marks text) returns text
language sql immutable parallel safe as $$
    select autopost.tagged_url(left(p_url, size), p_parameters, p_hosts, p_amp) || substr(p_url, size + 1)
    from (select char_length(regexp_replace(p_url, '(?:&#?\w+;|[].,;:!?''…»“”’' || p_marks || '])+$', '')) as size) body
$$;
