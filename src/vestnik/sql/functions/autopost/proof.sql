-- The live proof: what happened lately is replayed, page by page, from where the last run stopped.

-- One page of a workspace's events: up to p_limit of them, and all of one moment. Returns how many, what was found, and whether
-- this was the last page. A run that fell behind by more than p_longest goes on from there, and says what it left out.
create or replace function autopost.prove_page(
    p_workspace_id text, p_limit integer default 5000, p_longest interval default '6 hours', p_now timestamptz default now())
returns table (events bigint, troubles jsonb, skipped interval, is_last boolean)
language plpgsql as $$
declare
    kept jsonb;
    after timestamptz;
    until timestamptz;
    asked uuid[];
    seen bigint;
begin
    insert into autopost.checks (workspace_id, source, pass_began_at) values (p_workspace_id, 'proof', p_now) on conflict do nothing;
    select c.place into kept from autopost.checks c where c.workspace_id = p_workspace_id and c.source = 'proof' for no key update;
    after := coalesce((kept ->> 'proven_until')::timestamptz, p_now - interval '20 minutes');
    skipped := greatest(p_now - p_longest - after, '0');
    after := least(greatest(after, p_now - p_longest), p_now);
    perform autopost.note_paces(p_workspace_id, p_now);

    select max(e.ts), count(*) into until, seen
    from (select e.ts from autopost.events e
          where e.workspace_id = p_workspace_id and e.ts > after and e.ts <= p_now order by e.ts limit p_limit) e;
    is_last := seen < p_limit;
    until := case when is_last then p_now else until end;
    asked := array(select distinct e.delivery_id from autopost.events e
                   where e.workspace_id = p_workspace_id and e.ts > after and e.ts <= until and e.delivery_id is not null);
    troubles := autopost.troubles_of(p_workspace_id, asked, after, until, p_now);
    perform autopost.note_findings(p_workspace_id, 'proof', troubles, p_now);

    -- Events of transactions that are still under way come behind those that are seen: the last minute is looked at once more.
    update autopost.checks c
    set place = jsonb_build_object('proven_until', case when is_last then p_now - autopost.side_by_side() else until end),
        pass_ended_at = case when is_last then p_now else c.pass_ended_at end, updated_at = p_now
    where c.workspace_id = p_workspace_id and c.source = 'proof';
    events := seen;
    return next;
end $$;

create or replace function autopost.troubles_of(
    p_workspace_id text, p_delivery_ids uuid[], p_after timestamptz, p_until timestamptz, p_now timestamptz) returns jsonb
language sql stable as $$
    with trouble as (
        select c.kind, c.delivery_id, c.says, jsonb_build_object('first_event', c.first_event, 'second_event', c.second_event) as more
        from autopost.contradictions(p_workspace_id, p_delivery_ids, p_now) c
        union all
        select t.kind, t.delivery_id, t.says, jsonb_build_object('other_delivery', t.other_id)
        from autopost.doubled_posts(p_workspace_id, p_delivery_ids, p_now) t
        union all
        select b.kind, b.delivery_id, b.says, jsonb_build_object('channel_id', b.channel_id, 'first_event', b.first_event, 'second_event', b.second_event)
        from autopost.hasty_begins(p_workspace_id, p_after, p_until) b
        union all
        select b.kind, b.delivery_id, b.says, jsonb_build_object('channel_id', b.channel_id, 'first_event', b.first_event, 'second_event', b.second_event)
        from autopost.crowded_begins(p_workspace_id, p_after, p_until) b
    )
    select coalesce(jsonb_agg(jsonb_build_object('kind', t.kind, 'subject', t.delivery_id, 'says', t.says, 'details', jsonb_strip_nulls(t.more))
                              order by t.kind, t.delivery_id), '[]')
    from trouble t
$$;

-- [{kind, subject, says, details}]; at most a thousand of one call are kept. What was known is seen again.
create or replace function autopost.note_findings(p_workspace_id text, p_source text, p_found jsonb, p_now timestamptz default now()) returns void
language sql volatile as $$
    insert into autopost.findings as f (workspace_id, source, kind, subject, says, details, found_at, last_seen_at)
    select p_workspace_id, p_source, x.kind, x.subject, left(min(x.says), 500), coalesce((array_agg(x.details))[1], '{}'), p_now, p_now
    from jsonb_to_recordset(p_found) x (kind text, subject text, says text, details jsonb)
    group by x.kind, x.subject order by x.kind, x.subject limit 1000
    on conflict (workspace_id, source, kind, subject) do update
    set says = excluded.says, details = excluded.details, last_seen_at = excluded.last_seen_at
$$;

-- The alert of a check is on while there is a finding; those of the proof count for a day, for what is past cannot be mended,
-- and are kept for a month. Returns how many count.
create or replace function autopost.tell_findings(p_workspace_id text, p_source text, p_now timestamptz default now()) returns bigint
language plpgsql as $$
declare
    alert constant text := 'autopost.' || p_source;
    count bigint;
    sample jsonb;
begin
    delete from autopost.findings f
    where f.workspace_id = p_workspace_id and f.source = 'proof' and p_source = 'proof' and f.last_seen_at < p_now - interval '30 days';
    select count(*), jsonb_agg(x.one) filter (where x.n <= 5) into count, sample
    from (select jsonb_build_object('kind', f.kind, 'subject', f.subject, 'says', f.says) || f.details as one,
                 row_number() over (order by f.found_at desc, f.kind, f.subject) as n
          from autopost.findings f
          where f.workspace_id = p_workspace_id and f.source = p_source
            and (p_source = 'integrity' or f.last_seen_at > p_now - interval '1 day')) x;
    if count = 0 then
        perform ops.clear_alert(p_workspace_id, alert, '', p_now);
    else
        perform ops.put_alert(p_workspace_id, alert, '', 'critical', format(case p_source
                when 'proof' then '%s contradictions between what happened and what the rows say'
                else '%s rows that do not hold together' end || '; vestnik findings %s lists them', count, p_workspace_id),
            jsonb_build_object('count', count, 'findings', sample), p_now);
    end if;
    return count;
end $$;

create or replace function autopost.list_findings(p_workspace_id text, p_limit integer default 200)
returns table (source text, kind text, subject text, says text, details jsonb, found_at timestamptz, last_seen_at timestamptz)
language sql stable as $$
    select f.source, f.kind, f.subject, f.says, f.details, f.found_at, f.last_seen_at from autopost.findings f
    where f.workspace_id = p_workspace_id order by f.found_at desc, f.source, f.kind, f.subject limit p_limit
$$;
