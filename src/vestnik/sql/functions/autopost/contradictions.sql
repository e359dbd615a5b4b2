-- Events against state: is what the events tell a way that the transition tables (guard.sql) allow, and does it lead to what the
-- rows say? Read from the tables alone, in one snapshot: whoever moved the rows, and whatever they believed.

-- Within one attempt events are in the order of their times, save those so close that their transactions ran side by side: their
-- times are those of the beginnings, and any order of them that is a way will do.
create or replace function autopost.side_by_side() returns interval
language sql immutable parallel safe as $$ select interval '1 minute' $$;

-- first_event and second_event are the two that do not go together; null where it is an event and the row.
create or replace function autopost.contradictions(p_workspace_id text, p_delivery_ids uuid[], p_now timestamptz default now())
returns table (delivery_id uuid, kind text, says text, first_event uuid, second_event uuid)
language sql stable as $$
    with edge as materialized (
        -- What is older went with its partition.
        select min(e.ts) as at from autopost.events e where e.workspace_id = p_workspace_id
    ), subject as materialized (
        select d.* from autopost.deliveries d where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
    ), told as materialized (
        select e.delivery_id, e.id, e.ts, e.action, e.attempt, t.from_statuses, t.to_status, t.place, min(e.ts) over one as first_ts,
               e.attempt = 0 and (e.action = 'enqueue' or e.action in ('validation_failed', 'dedup_suppressed') and e.ts = min(e.ts) over one
                                  and not bool_or(e.action = 'enqueue') over one) as is_birth
        from autopost.events e join autopost.told_moves() t on t.action = e.action
        where e.delivery_id = any (p_delivery_ids) and e.workspace_id = p_workspace_id
        window one as (partition by e.delivery_id)
    ), step as materialized (
        select t.*, lag(t.to_status) over w as before, lag(t.id) over w as before_id, lag(t.action) over w as before_action,
               row_number() over w as n, lead(t.id) over w is null as is_last,
               -- Where another order of what is close in time may mend it: before a begin, that of the attempt before.
               case t.action when 'send_attempt' then lag(t.attempt) over w else t.attempt end as suspect_attempt
        from told t
        window w as (partition by t.delivery_id order by t.attempt, not t.is_birth and t.place > 1, t.ts, t.place, t.id)
    ), history as materialized (
        select s.delivery_id, count(s.id) filter (where s.action = 'send_attempt') as begins,
               count(distinct s.attempt) filter (where s.action = 'send_attempt') as numbered,
               max(s.attempt) as newest, count(*) filter (where s.action = 'sent') as sents,
               min(s.id::text) filter (where s.action = 'sent') as a_sent, max(s.id::text) filter (where s.action = 'sent') as another_sent,
               bool_or(s.is_birth or s.attempt = 0 and s.action in ('validation_failed', 'dedup_suppressed')
                                     and s.ts - s.first_ts <= autopost.side_by_side()) as is_born
        from step s group by s.delivery_id
    ), said as (
        select s.delivery_id, 'impossible_move' as kind,
               format('%s cannot follow %s', s.action, s.before_action) as says, s.before_id as first_event, s.id as second_event
        from step s
        join subject d on d.delivery_id = s.delivery_id
        where s.n > 1 and s.before <> all (s.from_statuses)
          and not autopost.has_another_way(array(
              select row_to_json(o)::jsonb from (select x.action, x.attempt, x.ts, x.before, x.n from step x
              where x.delivery_id = s.delivery_id and x.attempt = s.suspect_attempt
                order by x.n) o),
              coalesce((select f.from_statuses from step f where f.delivery_id = s.delivery_id and f.n = 1 + (
                  select max(x.n) from step x where x.delivery_id = s.delivery_id and x.attempt = s.suspect_attempt)),
                  autopost.told_as(d.status)))
        union all
        select s.delivery_id, 'status', format('the last event is %s, and it is %s', s.action, d.status), s.id, null
        from step s
        join subject d on d.delivery_id = s.delivery_id
        where s.is_last and s.to_status <> all (autopost.told_as(d.status))
          and not autopost.has_another_way(array(
              select row_to_json(o)::jsonb from (select x.action, x.attempt, x.ts, x.before, x.n from step x
              where x.delivery_id = s.delivery_id and x.attempt = s.attempt
                order by x.n) o),
              autopost.told_as(d.status))
        union all
        select d.delivery_id, 'begins', format('attempt %s, lease %s, settled %s, and %s events of a begin%s', d.attempt, d.lease,
                   d.settled_lease, coalesce(h.begins, 0), case when h.numbered < h.begins then ', two of one attempt' else '' end), null, null
        from subject d left join history h on h.delivery_id = d.delivery_id
        where d.lease <> d.attempt or d.settled_lease > d.lease or h.newest > d.attempt or h.numbered < h.begins
           or h.is_born and h.begins <> d.attempt
        union all
        select d.delivery_id, 'sent_events', format('it is %s, and %s events say that it was sent', d.status, coalesce(h.sents, 0)),
               h.a_sent::uuid, nullif(h.another_sent, h.a_sent)::uuid
        from subject d cross join edge
        left join history h on h.delivery_id = d.delivery_id
        where h.sents > 1 or d.status = 'sent' and coalesce(h.sents, 0) = 0 and d.sent_at > edge.at and d.updated_at > edge.at
        union all
        select d.delivery_id, 'no_beginning', 'no event tells how it came into being', null, null
        from subject d cross join edge
        left join history h on h.delivery_id = d.delivery_id
        where not coalesce(h.is_born, false) and d.created_at > edge.at
    )
    select s.* from said s order by s.delivery_id, s.kind
$$;

-- What the events know of a row in this status: a claim leaves none.
create or replace function autopost.told_as(p_status text) returns text[]
language sql immutable parallel safe as $$
    select case p_status when 'claimed' then '{queued,retry}'::text[] else array[p_status] end
$$;

-- Some order of the events of one attempt is a way that ends in one of p_ends. They come in the order of their times, and only
-- what is close in time changes places; a begin stays where it is. Of very many no one can tell.
create or replace function autopost.has_another_way(p_events jsonb[], p_ends text[]) returns boolean
language sql stable parallel safe as $$
    select case when cardinality(p_events) > 10 then true else autopost.leads_to(p_events[1] ->> 'before', p_events, p_ends) end
$$;

create or replace function autopost.leads_to(p_status text, p_events jsonb[], p_ends text[]) returns boolean
language plpgsql stable parallel safe as $$
declare
    move record;
begin
    if cardinality(p_events) = 0 then
        return p_status = any (p_ends);
    end if;
    for move in
        select min(x.n) as n, t.to_status
        from unnest(p_events) with ordinality x (event, n)
        join autopost.told_moves() t on t.action = x.event ->> 'action'
        where (p_status = any (t.from_statuses) or p_status is null) and (x.n = 1 or t.place > 1 and p_events[1] ->> 'action' <> 'send_attempt')
          and (x.event ->> 'ts')::timestamptz <= (select min((y ->> 'ts')::timestamptz) from unnest(p_events) y) + autopost.side_by_side()
        group by t.action, t.to_status order by 1
    loop
        if autopost.leads_to(move.to_status, p_events[:move.n - 1] || p_events[move.n + 1:], p_ends) then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- Posts that came into one channel twice within its dedup window, although neither ever lost a lease: a second one is
-- suppressed at the door, or dropped when it is claimed.
create or replace function autopost.doubled_posts(p_workspace_id text, p_delivery_ids uuid[], p_now timestamptz default now())
returns table (delivery_id uuid, kind text, says text, other_id uuid)
language sql stable as $$
    select d.delivery_id, 'sent_twice', format('delivery %s had brought the same into channel %s at %s', o.delivery_id, d.channel_id,
               to_char(o.sent_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS UTC')), o.delivery_id
    from autopost.deliveries d
    join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
    left join autopost.policies p on p.workspace_id = d.workspace_id
    join autopost.steady_channels(p_workspace_id, p_now - interval '1 hour') x on x.channel_id = d.channel_id,
    lateral (select o.* from autopost.deliveries o
             where o.workspace_id = p_workspace_id and o.channel_id = d.channel_id and o.content_hash = d.content_hash
               and o.hash_version = d.hash_version and o.status = 'sent' and o.delivery_id <> d.delivery_id
               and o.created_at <= d.created_at
               and o.sent_at > d.created_at - autopost.dedup_window(coalesce(c.dedup_ttl_hours, p.dedup_ttl_hours, 168)) + autopost.side_by_side()
               -- One that was requeued may go when the other has left the window.
               and greatest(o.sent_at, d.sent_at)
                   < least(o.sent_at, d.sent_at) + autopost.dedup_window(coalesce(c.dedup_ttl_hours, p.dedup_ttl_hours, 168))
               and o.lost_leases = 0 and o.lease = o.settled_lease
             order by o.sent_at desc limit 1) o
    where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids) and d.status || '' = 'sent'
      and d.lost_leases = 0 and d.lease = d.settled_lease and d.created_at >= x.since
      and (o.created_at, o.delivery_id) < (d.created_at, d.delivery_id)
$$;
