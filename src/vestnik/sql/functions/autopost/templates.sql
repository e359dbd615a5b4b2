-- Templates: internal markup with places for values, {{ name }} or {{#name}} only when there is one {{/name}}, {{{{ for braces.
-- What is put in is escaped for the place where it stands, so it is enough to check the words around it, once, at save.

-- A new version when anything changed, else the newest as it is. Two that save at once make two versions.
create or replace function autopost.save_template(
    p_workspace_id text, p_template_id text, p_body text, p_defaults jsonb default '{}', p_parse_mode text default 'None',
    p_now timestamptz default now()) returns integer
language plpgsql as $$
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
end $$;

-- Null when posts can be rendered with it, else what is wrong, in words for a person.
create or replace function autopost.template_problem(p_body text, p_defaults jsonb, p_parse_mode text) returns text
language sql immutable parallel safe as $$
    select case
        when p_parse_mode is null or p_parse_mode not in ('HTML', 'Markdown', 'None')
            then 'parse_mode: must be HTML, Markdown or None'
        when octet_length(p_body) > 16384 then format('body: has %s bytes, at most 16384 are allowed', octet_length(p_body))
        when p_body ~ '[\x01-\x08]' then 'body: contains control characters'
        else coalesce(autopost.defaults_problem(coalesce(p_defaults, '{}')),
                      'body: ' || coalesce(autopost.names_problem(coalesce(p_body, ''), coalesce(p_defaults, '{}')),
                                           autopost.skeleton_problem(p_body, p_parse_mode))) end
$$;

create or replace function autopost.template_variables(p_body text) returns text[]
language sql immutable strict parallel safe as $$
    select coalesce(array_agg(distinct p.piece order by p.piece), '{}')
    from autopost.template_pieces(p_body) p where p.kind in ('value', 'open', 'close')
$$;

-- Whether every channel gets a text of its own.
create or replace function autopost.uses_channel(p_body text) returns boolean
language sql immutable strict parallel safe as $$
    select exists (select from unnest(autopost.template_variables(p_body)) v where v like 'channel.%')
$$;

-- The pieces of a body in their order: literal, value, open and close (of a section); fault is braces that name nothing.
create or replace function autopost.template_pieces(p_body text) returns table (kind text, piece text)
language plpgsql immutable strict parallel safe as $$
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
end $$;

create or replace function autopost.defaults_problem(p_defaults jsonb) returns text
language sql immutable strict parallel safe as $$
    select case when jsonb_typeof(p_defaults) <> 'object' then 'defaults: must name values' else (
        select format('defaults.%s: %s', left(key, 64), case when jsonb_typeof(value) <> 'string' then 'must be a string'
                          else 'no such name; a name of your own has letters, digits, "_" and "-"' end)
        from jsonb_each(p_defaults)
        where jsonb_typeof(value) <> 'string' or key !~ '^((source|channel)\.[\w-]+|[\w-]+)$' order by key limit 1) end
$$;

-- Are the placeholders and sections well formed, and does each name something?
create or replace function autopost.names_problem(p_body text, p_defaults jsonb) returns text
language sql immutable strict parallel safe as $$
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
$$;

-- Are sections closed in order, and is the markup sound with and without each of them?
-- In the words that are checked, \x01 stands for a value of one line, \x02 for one of many, \x03 for the edge of a section.
create or replace function autopost.skeleton_problem(p_body text, p_parse_mode text) returns text
language plpgsql immutable strict parallel safe as $$
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

create or replace function autopost.markup_problem(p_words text, p_parse_mode text) returns text
language sql immutable strict parallel safe as $$
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
