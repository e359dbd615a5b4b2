-- From what somebody pushed to what Vestnik keeps: shape, normal form, hash, tags.
-- Everything here is a pure function of the payload: no clock, no source, no context.

create or replace function autopost.hash_version() returns integer
language sql immutable parallel safe as $$ select 1 $$;

-- Everything wrong with the shape, each fault by its name. Platform limits are not shape: see preflight.sql.
create or replace function autopost.payload_problems(p_raw jsonb) returns text[]
language plpgsql immutable parallel safe as $$
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

-- The types are right; are the values?
create or replace function autopost.value_problems(p_raw jsonb) returns text[]
language sql immutable parallel safe as $$
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
$$;

create or replace function autopost.array_of(p_raw jsonb, p_key text) returns jsonb
language sql immutable parallel safe as $$
    select case when jsonb_typeof(p_raw -> p_key) = 'array' then p_raw -> p_key else '[]' end
$$;

create or replace function autopost.button_problem(p_buttons jsonb) returns text
language sql immutable parallel safe as $$
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
$$;

-- Scheme and host in lower case, no default port, no empty query or fragment, for the web a path. What a query says stays.
create or replace function autopost.canonical_url(p_url text) returns text
language sql immutable strict parallel safe as $$
    select case when part is null then btrim(p_url) else
        lower(part[1]) || '://' || coalesce(part[2], '')
        || regexp_replace(lower(part[3]),
               case lower(part[1]) when 'http' then ':80$' when 'https' then ':443$' else ':$' end, '')
        || case when part[4] ~ '^/' or lower(part[1]) not in ('http', 'https') then '' else '/' end
        || regexp_replace(regexp_replace(part[4], '^([^#]*)#$', '\1'), '^([^?#]*)\?(#.*)?$', '\1\2')
    end
    from (select regexp_match(btrim(p_url), '^([A-Za-z][A-Za-z0-9+.-]*)://([^@/?#]*@)?([^/?#]*)(.*)$') as part) m
$$;

-- One form of line ends, letters and blanks. Blanks inside code are the author's and stay as they are.
create or replace function autopost.normalize_text(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
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
end $$;

create or replace function autopost.normalize_tags(p_tags jsonb, p_text text) returns text[]
language sql immutable parallel safe as $$
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

-- What is stored in messages.payload: only what the reader sees, in one form whoever sent it.
create or replace function autopost.normalize_payload(p_raw jsonb) returns jsonb
language sql immutable parallel safe as $$
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

-- 128 bits of SHA-256 over the normal form; jsonb prints its keys in one order.
create or replace function autopost.content_hash(p_payload jsonb) returns text
language sql immutable parallel safe as $$
    select left(core.sha256_hex((p_payload - 'type')::text), 32)
$$;

-- The gate's hash of what came in: hints that change nothing do not make it another request.
create or replace function autopost.inbound_hash(p_raw jsonb) returns text
language sql immutable parallel safe as $$
    select left(core.sha256_hex((p_raw - 'workspace_id' - 'meta' - 'source')::text), 32)
$$;
