-- Integrity: rows that refer to nothing, and rows in a state that no sweep and no claim ever looks at. A round through everything
-- of a workspace is made of pages and may stop after each.

-- When an id of the time-ordered kind was made; null for any other.
create or replace function autopost.uuid_time(p_id uuid) returns timestamptz
language sql immutable strict parallel safe as $$
    select case when substr(p_id::text, 15, 1) = '7'
                then to_timestamp(('x' || translate(left(p_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0) end
$$;

-- The next page of a workspace's round, p_limit rows of one stage. pass_ended: this was the last one; what earlier rounds had
-- found and this one did not is mended, and forgotten. What is older than retention has reached (or than p_kept) may be gone.
create or replace function autopost.check_page(
    p_workspace_id text, p_limit integer default 5000, p_kept interval default null, p_now timestamptz default now())
returns table (stage text, rows_seen bigint, troubles jsonb, pass_ended boolean)
language plpgsql as $$
declare
    stages constant text[] := '{events,deliveries,handles,items}';
    gone_before constant timestamptz := coalesce(p_now - p_kept, greatest(ops.gone_before(p_workspace_id, 'deliveries'),
                                                                          ops.gone_before(p_workspace_id, 'messages')));
    kept jsonb;
    began timestamptz;
    turn integer;
    page record;
begin
    insert into autopost.checks (workspace_id, source) values (p_workspace_id, 'integrity') on conflict do nothing;
    select c.place, c.pass_began_at into kept, began from autopost.checks c
    where c.workspace_id = p_workspace_id and c.source = 'integrity' for no key update;
    turn := coalesce((kept ->> 'stage')::integer, 1);
    if turn = 1 and not kept ? 'after' then
        began := p_now;
    end if;
    stage := stages[turn];
    case stage
        when 'events' then select * into page from autopost.stray_events(p_workspace_id, kept -> 'after', began, p_limit, gone_before);
        when 'deliveries' then select * into page from autopost.broken_deliveries(p_workspace_id, kept -> 'after', p_limit, p_now);
        when 'handles' then select * into page from autopost.stray_handles(p_workspace_id, kept -> 'after', p_limit);
        else select * into page from autopost.stray_items(p_workspace_id, kept -> 'after', p_limit, gone_before);
    end case;
    perform autopost.note_findings(p_workspace_id, 'integrity', page.troubles, p_now);

    pass_ended := page.after is null and turn = cardinality(stages);
    update autopost.checks c
    set place = case when page.after is not null then jsonb_build_object('stage', turn, 'after', page.after)
                     when pass_ended then '{}' else jsonb_build_object('stage', turn + 1) end,
        pass_began_at = began, pass_ended_at = case when pass_ended then p_now else c.pass_ended_at end, updated_at = p_now
    where c.workspace_id = p_workspace_id and c.source = 'integrity';
    if pass_ended then
        delete from autopost.findings f where f.workspace_id = p_workspace_id and f.source = 'integrity' and f.last_seen_at < began;
    end if;
    rows_seen := page.seen;
    troubles := page.troubles;
    return next;
end $$;

-- Each stage: how many rows the page had, what is wrong in it, and where the next one begins; null after the last.

-- Events up to the beginning of the round. A channel that was removed by a person is on record.
create or replace function autopost.stray_events(
    p_workspace_id text, p_after jsonb, p_until timestamptz, p_limit integer, p_gone_before timestamptz)
returns table (seen bigint, troubles jsonb, after jsonb)
language sql stable as $$
    with page as materialized (
        select e.id, e.ts, e.action, e.delivery_id, e.message_id, e.channel_id from autopost.events e
        where e.workspace_id = p_workspace_id and e.ts <= p_until
          and (e.ts, e.id) > (coalesce((p_after ->> 0)::timestamptz, '-infinity'), coalesce((p_after ->> 1)::uuid, '00000000-0000-0000-0000-000000000000'))
        order by e.ts, e.id limit p_limit
    ), stray as (
        select p.id, p.action, r.kind, r.subject
        from page p, lateral (values
            ('event_without_delivery', p.delivery_id::text, p.delivery_id is not null and not exists (
                select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = p.delivery_id)
                and coalesce(autopost.uuid_time(p.delivery_id) >= p_gone_before, true)),
            ('event_without_message', p.message_id::text, p.message_id is not null and not exists (
                select from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = p.message_id)
                and coalesce(autopost.uuid_time(p.message_id) >= p_gone_before, true)),
            ('event_without_channel', p.channel_id, p.channel_id is not null and not exists (
                select from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p.channel_id)
                and not exists (select from core.changes x where x.workspace_id = p_workspace_id and x.action = 'removed'
                                and x.subject = 'channel ' || p.channel_id))
        ) r (kind, subject, is_stray)
        where r.is_stray
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', s.kind, 'subject', s.subject, 'details', jsonb_build_object('event', s.id),
                       'says', format('an event %s tells of it, and it is not there', s.action)) order by s.kind, s.subject), '[]') from stray s),
           (select jsonb_build_array(p.ts, p.id) from page p order by p.ts, p.id offset p_limit - 1)
$$;

-- Deliveries that contradict their events, refer to nothing, or are where nobody looks for them.
create or replace function autopost.broken_deliveries(p_workspace_id text, p_after jsonb, p_limit integer, p_now timestamptz)
returns table (seen bigint, troubles jsonb, after jsonb)
language sql stable as $$
    with page as materialized (
        select d.* from autopost.deliveries d
        where d.workspace_id = p_workspace_id
          and d.delivery_id > coalesce((p_after #>> '{}')::uuid, '00000000-0000-0000-0000-000000000000')
        order by d.delivery_id limit p_limit
    ), broken as (
        select p.delivery_id, r.kind, r.says
        from page p
        left join autopost.messages m on m.workspace_id = p_workspace_id and m.message_id = p.message_id
        left join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = p.channel_id,
        lateral (values
            ('delivery_without_message', m.message_id is null, format('its message %s is not there', p.message_id)),
            ('delivery_without_channel', c.channel_id is null, format('its channel %s is not there', p.channel_id)),
            ('wrong_hash', m.content_hash <> p.content_hash, 'its hash is not that of its message'),
            ('unseen_by_sweeps', autopost.hidden_from_sweeps(p, m.payload ? 'media') is not null,
                autopost.hidden_from_sweeps(p, m.payload ? 'media')),
            ('sent_without_time', p.status = 'sent' and p.sent_at is null, 'it is sent, and no moment is kept'),
            ('media_without_origin', p.status in ('queued', 'claimed', 'retry') and p.not_before < 'infinity' and exists (
                    select from jsonb_array_elements(case when jsonb_typeof(m.payload -> 'media') = 'array' then m.payload -> 'media' end) i (item)
                    where i.item ? 'blob_ref' and not exists (
                        select from autopost.media_origin o
                        where o.workspace_id = p_workspace_id and o.blob_ref = i.item ->> 'blob_ref' and o.deleted_at is null)),
                'a file of its post is not there any more')
        ) r (kind, is_broken, says)
        where r.is_broken
        union all
        select x.delivery_id, x.kind, x.says
        from autopost.contradictions(p_workspace_id, array(select p.delivery_id from page p), p_now) x
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', b.kind, 'subject', b.delivery_id, 'says', b.says)
                                      order by b.kind, b.delivery_id), '[]') from broken b),
           (select to_jsonb(p.delivery_id) from page p order by p.delivery_id offset p_limit - 1)
$$;

-- Why no sweep and no claim will ever find this row; null when one will, or when it is at its end.
create or replace function autopost.hidden_from_sweeps(p_row autopost.deliveries, p_has_media boolean) returns text
language sql immutable as $$
    select case
        when p_row.status = 'sending' and p_row.sending_started_at is null then 'it is sending, and since when is not kept: its lease never ends'
        when p_row.status = 'claimed' and p_row.not_before = 'infinity' then 'it is claimed for a slot that never comes'
        when p_row.status = 'retry' and p_row.next_retry_at is null then 'it waits for another try, and no moment is kept'
        when p_row.status = 'retry' and p_row.next_retry_at = 'infinity' and p_row.held_at is null then 'it waits for ever, and nobody holds it'
        when p_row.status = 'retry' and p_row.not_before = 'infinity' then 'it waits for ever, and not for its files'
        when p_row.status = 'queued' and p_row.not_before = 'infinity' and not coalesce(p_has_media, false)
            then 'it waits for files, and its post has none'
        when p_row.held_at is not null and (p_row.status <> 'retry' or p_row.next_retry_at is distinct from 'infinity')
            then 'it is held, and yet it is not' end
$$;

-- Platforms' handles of files that are not kept (any more) by us.
create or replace function autopost.stray_handles(p_workspace_id text, p_after jsonb, p_limit integer)
returns table (seen bigint, troubles jsonb, after jsonb)
language sql stable as $$
    with page as materialized (
        select b.blob_ref, b.provider, b.auth_ref, b.sent_as from autopost.media_blobs b
        where b.workspace_id = p_workspace_id and (b.blob_ref, b.provider, b.auth_ref, b.sent_as) > (
            coalesce(p_after ->> 0, ''), coalesce(p_after ->> 1, ''), coalesce(p_after ->> 2, ''), coalesce(p_after ->> 3, ''))
        order by b.blob_ref, b.provider, b.auth_ref, b.sent_as limit p_limit
    ), stray as (
        select distinct p.blob_ref from page p
        where not exists (select from autopost.media_origin o where o.workspace_id = p_workspace_id and o.blob_ref = p.blob_ref)
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', 'handle_without_file', 'subject', s.blob_ref,
                       'says', 'a platform has a handle of it, and we have no such file') order by s.blob_ref), '[]') from stray s),
           (select jsonb_build_array(p.blob_ref, p.provider, p.auth_ref, p.sent_as) from page p
            order by p.blob_ref, p.provider, p.auth_ref, p.sent_as offset p_limit - 1)
$$;

-- Items of sources whose posts are not there, though they are not old enough to be gone.
create or replace function autopost.stray_items(p_workspace_id text, p_after jsonb, p_limit integer, p_gone_before timestamptz)
returns table (seen bigint, troubles jsonb, after jsonb)
language sql stable as $$
    with page as materialized (
        select i.source_id, i.item_hash, i.message_id from autopost.pull_items i
        where i.workspace_id = p_workspace_id and (i.source_id, i.item_hash) > (coalesce(p_after ->> 0, ''), coalesce(p_after ->> 1, ''))
        order by i.source_id, i.item_hash limit p_limit
    ), stray as (
        select p.* from page p
        where p.message_id is not null and coalesce(autopost.uuid_time(p.message_id) >= p_gone_before, true) and not exists (
            select from autopost.messages m where m.workspace_id = p_workspace_id and m.message_id = p.message_id)
    )
    select (select count(*) from page),
           (select coalesce(jsonb_agg(jsonb_build_object('kind', 'item_without_post', 'subject', s.message_id,
                       'says', format('source %s brought it, and it is not there', s.source_id)) order by s.source_id, s.item_hash), '[]') from stray s),
           (select jsonb_build_array(p.source_id, p.item_hash) from page p order by p.source_id, p.item_hash offset p_limit - 1)
$$;
