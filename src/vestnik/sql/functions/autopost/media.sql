-- Media of a post: their shape, their normal form, what is known of them, and what a platform would refuse.

-- The first fault, by the number of its item; null when every item names one thing to send.
create or replace function autopost.media_problem(p_media jsonb) returns text
language sql immutable parallel safe as $$
    select case when jsonb_array_length(p_media) > 100 then 'media: at most 100 items' else (
        select format('media: item %s %s', i.n, autopost.media_item_problem(i.item))
        from jsonb_array_elements(p_media) with ordinality i (item, n)
        where autopost.media_item_problem(i.item) is not null order by i.n limit 1) end
$$;

create or replace function autopost.media_item_problem(p_item jsonb) returns text
language plpgsql immutable parallel safe as $$
declare
    named constant text[] := '{url,blob_ref,file_id,attachment_token,upload}';
    item jsonb;
begin
    if jsonb_typeof(p_item) <> 'object' then
        return 'must be an object with a type and a url';
    end if;
    item := jsonb_strip_nulls(p_item);
    if item - named - 'type' - 'caption' <> '{}' then
        return format('has an unknown key: %s', left((select min(k) from jsonb_object_keys(item - named - 'type' - 'caption') k), 64));
    elsif exists (select from jsonb_each(item) e where jsonb_typeof(e.value) <> 'string') then
        return 'takes strings only';
    elsif coalesce(item ->> 'type' not in ('image', 'video', 'audio', 'file', 'animation'), true) then
        return 'needs a type: image, video, audio, file or animation';
    elsif (select count(*) from jsonb_object_keys(item) k where k = any (named)) <> 1 then
        return 'needs exactly one of url, blob_ref, file_id, attachment_token, upload';
    elsif item ? 'upload' then
        return 'names an upload that did not come along: send multipart/form-data with a part of that name';
    elsif char_length(item ->> 'caption') > 4096 then
        return 'has a caption of more than 4096 characters';
    elsif item ? 'url' and (char_length(item ->> 'url') > 2048 or item ->> 'url' !~* '^https?://[^\s/?#<>]+[^\s<>]*$') then
        return 'has a url that is not an http or https address';
    elsif (select char_length(e.value) not between 1 and 2048 from jsonb_each_text(item) e where e.key = any (named)) then
        return 'refers to nothing, or to a name of more than 2048 characters';
    end if;
    return null;
end $$;

-- In the author's order, which counts: another order is another post. Null when there are none.
create or replace function autopost.normalize_media(p_media jsonb) returns jsonb
language sql immutable parallel safe as $$
    select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
        'type', i.item ->> 'type', 'url', autopost.canonical_url(i.item ->> 'url'), 'blob_ref', i.item ->> 'blob_ref',
        'file_id', i.item ->> 'file_id', 'attachment_token', i.item ->> 'attachment_token',
        'caption', nullif(autopost.normalize_text(i.item ->> 'caption'), ''))) order by i.n)
    from jsonb_array_elements(p_media) with ordinality i (item, n)
$$;

-- A message's media with what is known of their files. "gone": the file that was there is not any more.
create or replace function autopost.media_of(p_workspace_id text, p_media jsonb) returns jsonb
language sql stable as $$
    select jsonb_agg(i.item || jsonb_strip_nulls(jsonb_build_object(
        'content_type', o.content_type, 'size_bytes', o.size_bytes, 'file_name', o.file_name,
        'width', o.meta -> 'width', 'height', o.meta -> 'height',
        'gone', case when i.item ? 'blob_ref' and o.blob_ref is null then true end)) order by i.n)
    from jsonb_array_elements(p_media) with ordinality i (item, n)
    left join autopost.media_origin o on o.workspace_id = p_workspace_id and o.blob_ref = i.item ->> 'blob_ref'
        and o.deleted_at is null
$$;

-- Does a platform fetch this item by its address itself? Only MAX offers it, and only for pictures.
create or replace function autopost.goes_by_url(p_platform text, p_item jsonb, p_upload_policy jsonb) returns boolean
language sql immutable parallel safe as $$
    select p_platform = 'max' and p_item ->> 'type' = 'image' and p_item ? 'url'
       and coalesce(p_upload_policy ->> 'image' = 'url_allowed', false)
$$;

-- Items that must be fetched before this platform can have them.
create or replace function autopost.media_is_pending(p_platform text, p_media jsonb, p_upload_policy jsonb) returns boolean
language sql immutable parallel safe as $$
    select coalesce(bool_or(i.item ? 'url' and (not i.item ? 'blob_ref' or i.item ? 'gone')
                            and not autopost.goes_by_url(p_platform, i.item, p_upload_policy)), false)
    from jsonb_array_elements(p_media) i (item)
$$;

-- What a platform takes of one kind, in bytes; a workspace with a server of its own may know better (policies.media_max_bytes).
create or replace function autopost.media_limit(p_platform text, p_type text, p_own jsonb) returns bigint
language sql immutable parallel safe as $$
    select coalesce((p_own -> p_platform ->> p_type)::bigint, case p_platform
        when 'telegram' then case p_type when 'image' then 10 else 50 end * 1048576::bigint
        when 'max' then case p_type when 'image' then 50 when 'animation' then 50 when 'video' then 250 when 'audio' then 256
                                    else 4096 end * 1048576::bigint end)
$$;

-- What an item goes as: what is no photo to Telegram as a file, where the channel wants that; MAX knows no animations.
create or replace function autopost.sent_as(p_platform text, p_item jsonb, p_settings jsonb, p_own jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when p_platform = 'telegram' and p_item ->> 'type' = 'image' and p_settings ->> 'large_image' = 'document'
             and autopost.photo_problem(p_item, p_own) is not null then 'file'
        when p_platform = 'max' and p_item ->> 'type' = 'animation' then
            case when coalesce(p_item ->> 'content_type' = 'image/gif',
                               coalesce(p_item ->> 'file_name', split_part(p_item ->> 'url', '?', 1), '') !~* '[.](mp4|webm|mov)$')
                 then 'image' else 'video' end
        else p_item ->> 'type' end
$$;

-- Null when the platform should take all of it, else the normalised error. p_media is what media_of knows; what is not known
-- yet (an address that was not fetched) is judged when it is. The adapters' plans judge alike.
create or replace function autopost.media_error(
    p_platform text, p_media jsonb, p_parse_mode text, p_text text, p_payload jsonb, p_settings jsonb, p_policy autopost.policies)
returns jsonb
language plpgsql immutable parallel safe as $$
declare
    own constant jsonb := p_policy.media_max_bytes;
    kinds text[];
    item jsonb;
    place bigint;
    problem text;
begin
    for item, place in select i.item, i.n from jsonb_array_elements(p_media) with ordinality i (item, n) order by i.n loop
        if item ? 'gone' and not item ? 'url' then
            return autopost.validation_error(format('item %s: there is no file %s (any more)', place, left(item ->> 'blob_ref', 80)))
                || '{"code": "media_missing_origin"}';
        end if;
        kinds[place] := autopost.sent_as(p_platform, item, p_settings, own);
        problem := coalesce(autopost.item_reference_problem(p_platform, item),
                            autopost.item_picture_problem(p_platform, item, kinds[place], own),
                            autopost.item_size_problem(p_platform, item, kinds[place], own),
                            autopost.item_caption_problem(p_platform, item, p_parse_mode));
        if problem is not null then
            return autopost.validation_error(format('item %s: %s', place, problem));
        end if;
    end loop;
    return autopost.validation_error(coalesce(autopost.album_problem(p_platform, kinds, p_text, p_payload),
                                              autopost.captions_problem(p_platform, p_media, kinds, p_parse_mode)));
end $$;

create or replace function autopost.item_reference_problem(p_platform text, p_item jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when p_item ? 'file_id' and p_platform <> 'telegram' then 'a file_id is of Telegram, and this channel is not'
        -- A server of one's own would read "file:///…" from its disk.
        when p_item ->> 'file_id' !~ '^[A-Za-z0-9_-]+$' then 'that is no file_id: letters, digits, - and _'
        when p_item ? 'attachment_token' and p_platform <> 'max' then 'an attachment_token is of MAX, and this channel is not' end
$$;

create or replace function autopost.item_size_problem(p_platform text, p_item jsonb, p_kind text, p_own jsonb) returns text
language sql immutable parallel safe as $$
    select case when (p_item ->> 'size_bytes')::bigint > allowed
                then format('%s MB are too many: %s takes %s MB of this kind', round((p_item ->> 'size_bytes')::numeric / 1048576, 1),
                            case p_platform when 'telegram' then 'Telegram' when 'max' then 'MAX' else p_platform end,
                            round(allowed / 1048576.0, 1)) end
    from (select autopost.media_limit(p_platform, p_kind, p_own)) l (allowed)
$$;

-- What a platform does not show as a picture. As a file everything goes.
create or replace function autopost.item_picture_problem(p_platform text, p_item jsonb, p_kind text, p_own jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when p_kind <> 'image' then null
        when p_platform = 'telegram' then autopost.photo_problem(p_item, p_own) || '; send it as a file, or set large_image: document'
        when p_platform = 'max' and p_item ->> 'content_type' = 'image/webp' then 'MAX shows no WebP pictures; send it as a file'
        when p_platform = 'max' and greatest((p_item ->> 'width')::bigint, (p_item ->> 'height')::bigint) > 7680
            then format('MAX takes pictures of up to 7680 points a side, not %s x %s', p_item ->> 'width', p_item ->> 'height')
    end
$$;

-- Why a picture is no photo to Telegram.
create or replace function autopost.photo_problem(p_item jsonb, p_own jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when p_item ->> 'content_type' in ('image/heic', 'image/tiff') then 'Telegram shows no HEIC or TIFF pictures'
        when width + height > 10000 or greatest(width, height) > 20 * least(width, height)
            then format('Telegram shows no picture of %s x %s points', width, height)
        else autopost.item_size_problem('telegram', p_item, 'image', p_own) end
    from (select (p_item ->> 'width')::bigint, (p_item ->> 'height')::bigint) side (width, height)
$$;

-- MAX has no captions: there they are a part of the text, see captions_problem.
create or replace function autopost.item_caption_problem(p_platform text, p_item jsonb, p_parse_mode text) returns text
language sql immutable parallel safe as $$
    select case
        when p_platform = 'telegram' and autopost.text_length('telegram', p_item ->> 'caption', p_parse_mode) > 1024
            then format('its caption is too long: %s of 1024 characters',
                        autopost.text_length('telegram', p_item ->> 'caption', p_parse_mode))
        when p_parse_mode = 'HTML' then 'its caption: ' || autopost.html_problem(p_item ->> 'caption') end
$$;

-- Buttons hang on a message that can carry them: with Telegram no album, with MAX neither audio nor a file.
create or replace function autopost.album_problem(p_platform text, p_kinds text[], p_text text, p_payload jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when not p_payload ? 'buttons' or coalesce(p_text, '') !~ '^\s*$' then null
        when p_platform = 'telegram' and p_kinds[2] is not null and p_kinds[1] <> 'animation'
             and replace(p_kinds[1], 'video', 'image') = replace(p_kinds[2], 'video', 'image')
            then 'an album has no buttons: they go under the text, and this post has none'
        when p_platform = 'max' and p_kinds[1] in ('audio', 'file')
            then format('MAX puts no buttons under %s: they go under the text, and this post has none',
                        case p_kinds[1] when 'audio' then 'audio' else 'a file' end) end
$$;

-- MAX shows the captions of a message's items as its text, when the post's own text leaves no room as a message after that.
create or replace function autopost.captions_problem(p_platform text, p_media jsonb, p_kinds text[], p_parse_mode text) returns text
language sql immutable parallel safe as $$
    select format('the captions from item %s on are too long together: %s of 4000 characters', m.first, m.length)
    from (
        select min(i.n) as first, autopost.text_length('max',
            string_agg(i.item ->> 'caption', case p_parse_mode when 'Markdown' then E'\n\n' else E'\n' end order by i.n), p_parse_mode) as length
        from jsonb_array_elements(p_media) with ordinality i (item, n)
        join autopost.max_messages(p_kinds) g on g.place = i.n
        where p_platform = 'max' and i.item ? 'caption'
        group by g.message
    ) m
    where m.length > 4000 order by m.first limit 1
$$;

-- Which message of MAX carries which item: neighbours that are pictures or films go together, ten at most, shared out evenly.
create or replace function autopost.max_messages(p_kinds text[]) returns table (place bigint, message text)
language sql immutable parallel safe as $$
    with item as (
        select k.n, k.kind in ('image', 'video') as seen,
               k.n - row_number() over (partition by k.kind in ('image', 'video') order by k.n) as run
        from unnest(p_kinds) with ordinality k (kind, n)
    ), counted as (
        select n, seen, run, row_number() over r - 1 as i, count(*) over (partition by seen, run) as size from item
        window r as (partition by seen, run order by n)
    ), shared as (
        select *, size / parts as least, size % parts as more
        from counted, lateral (select (size + 9) / 10 as parts) p
    )
    select n, case when not seen then n || ' alone'
                   else run || ':' || case when i < more * (least + 1) then i / (least + 1)
                                           else more + (i - more * (least + 1)) / least end end
    from shared
$$;
