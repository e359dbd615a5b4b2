-- A post in its template, once, at enqueue: pure functions of the template, the post and the channel. No clock, no chance.

-- In which markup the result is written; null when the post's and the template's cannot be combined.
create or replace function autopost.template_mode(p_template_mode text, p_text_mode text) returns text
language sql immutable parallel safe as $$
    select case when p_template_mode = 'None' then coalesce(p_text_mode, 'None')
                when coalesce(p_text_mode, 'None') in ('None', p_template_mode) then p_template_mode end
$$;

-- What a template can name of a post, and of the channel that it goes to.
create or replace function autopost.template_values(p_payload jsonb, p_tags text[], p_source jsonb, p_channel jsonb default '{}')
returns jsonb
language sql immutable parallel safe as $$
    select jsonb_build_object('text', p_payload -> 'text', 'links', autopost.array_of(p_payload, 'links'),
                              'tags', coalesce(to_jsonb(p_tags), '[]'), 'source', p_source, 'channel', p_channel)
$$;

create or replace function autopost.channel_values(p_channel_id text, p_title text, p_target text, p_settings jsonb) returns jsonb
language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_settings -> 'vars') = 'object' then p_settings -> 'vars' else '{}' end
           || jsonb_build_object('id', p_channel_id, 'title', p_title, 'target', p_target)
$$;

-- The text of a post comes in as the markup that it is, and as plain text where the result has markup and the post has none.
-- Links that the template gives no place of their own follow the text. Null when the modes cannot be combined.
create or replace function autopost.render_template(
    p_body text, p_defaults jsonb, p_template_mode text, p_values jsonb, p_text_mode text) returns text
language plpgsql immutable parallel safe as $$
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

-- Plain text, empty when there is none. Not for the text of the post, which has markup.
create or replace function autopost.template_value(p_name text, p_values jsonb, p_defaults jsonb) returns text
language plpgsql immutable parallel safe as $$
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

create or replace function autopost.shown_value(p_value jsonb) returns text
language plpgsql immutable strict parallel safe as $$
begin
    return case jsonb_typeof(p_value)
        when 'array' then (select string_agg(e #>> '{}', ', ' order by n)
                           from jsonb_array_elements(p_value) with ordinality x (e, n)
                           where jsonb_typeof(e) in ('string', 'number'))
        when 'object' then null
        else nullif(p_value, 'false') #>> '{}' end;
end $$;

-- Whether what follows this piece of the skeleton stands in a tag of HTML, or in the address of a Markdown link.
create or replace function autopost.stays_inside(p_piece text, p_inside boolean, p_mode text) returns boolean
language sql immutable parallel safe as $$
    select case p_mode
        when 'HTML' then p_piece ~ '<[^<>]*$' or p_inside and position('>' in p_piece) = 0
        when 'Markdown' then p_piece ~ '\]\(<?[^()<>\s]*$' or p_inside and p_piece !~ '[)>\s]'
        else false end
$$;

create or replace function autopost.escape_value(p_text text, p_mode text, p_inside boolean) returns text
language sql immutable strict parallel safe as $$
    select case p_mode
        when 'HTML' then case when p_inside then replace(replace(autopost.escape_html(p_text), '"', '&quot;'), '''', '&#39;')
                              else autopost.escape_html(p_text) end
        when 'Markdown' then case when p_inside then autopost.escape_address(p_text) else autopost.escape_markdown(p_text) end
        else p_text end
$$;

-- Only what Markdown would read as markup where it stands: names_like_this and addresses stay as they are.
create or replace function autopost.escape_markdown(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
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

create or replace function autopost.escape_address(p_text text) returns text
language sql immutable strict parallel safe as $$
    select replace(replace(replace(replace(replace(replace(regexp_replace(p_text, '\s+', '%20', 'g'),
        '(', '%28'), ')', '%29'), '<', '%3C'), '>', '%3E'), '\', '%5C'), '`', '%60')
$$;
