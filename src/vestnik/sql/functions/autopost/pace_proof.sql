-- Did the begins keep the pace and the places, as their events tell?

create or replace function autopost.current_paces(p_workspace_id text) returns table (channel_id text, pace text)
language sql stable as $$
    select c.channel_id, concat_ws('/', c.platform, c.rate_group, coalesce(c.rate_rps, 0), coalesce(g.rate_rps, 0), c.max_parallel,
                                   coalesce(c.dedup_ttl_hours, p.dedup_ttl_hours))
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    left join autopost.policies p on p.workspace_id = c.workspace_id
    where c.workspace_id = p_workspace_id
$$;

-- The measures of each channel as they are now; one that has changed counts from now on. Returns how many have.
create or replace function autopost.note_paces(p_workspace_id text, p_now timestamptz default now()) returns bigint
language sql volatile as $$
    with noted as (
        insert into autopost.channel_paces as x (workspace_id, channel_id, pace, since)
        select p_workspace_id, n.channel_id, n.pace, p_now from autopost.current_paces(p_workspace_id) n
        left join autopost.channel_paces k on k.workspace_id = p_workspace_id and k.channel_id = n.channel_id
        where k.pace is distinct from n.pace
        order by n.channel_id
        on conflict (workspace_id, channel_id) do update set pace = excluded.pace, since = excluded.since
        returning 1
    )
    select count(*) from noted
$$;

-- Since when a channel has kept to the measures that this very snapshot shows: one that was changed after they were noted is not
-- there. What was changed lately, and perhaps back before anybody looked, is on record; its transaction may have taken a while.
create or replace function autopost.steady_channels(p_workspace_id text, p_after timestamptz)
returns table (channel_id text, since timestamptz)
language sql stable as $$
    with touched as materialized (
        select h.subject, max(h.ts) + autopost.side_by_side() as until from core.changes h
        where h.workspace_id = p_workspace_id and h.ts > p_after - autopost.side_by_side() group by h.subject
    )
    select x.channel_id, greatest(x.since, (select max(t.until) from touched t
                                            where t.subject = 'channel ' || x.channel_id or t.subject ~ '^(limit|policy) '))
    from autopost.channel_paces x
    join autopost.current_paces(p_workspace_id) n on n.channel_id = x.channel_id and n.pace = x.pace
    where x.workspace_id = p_workspace_id
$$;

-- Two begins of a channel, or of a group, closer than its step. In any window W at most rate * W + 1, therefore.
create or replace function autopost.hasty_begins(p_workspace_id text, p_after timestamptz, p_until timestamptz)
returns table (delivery_id uuid, channel_id text, kind text, says text, first_event uuid, second_event uuid)
language sql stable as $$
    with measure as materialized (
        select c.channel_id, c.platform, c.rate_group, autopost.step_of(c.rate_rps) as step, autopost.step_of(g.rate_rps) as group_step, x.since
        from autopost.channels c
        join autopost.steady_channels(p_workspace_id, p_after) x on x.channel_id = c.channel_id
        left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
        where c.workspace_id = p_workspace_id and autopost.is_paced(c, g)
    ), begun as materialized (
        select e.id, e.delivery_id, e.channel_id, e.ts, m.platform, m.rate_group, m.step, m.group_step, m.since
        from autopost.events e join measure m on m.channel_id = e.channel_id
        where e.workspace_id = p_workspace_id and e.ts > p_after and e.ts <= p_until and e.action = 'send_attempt'
        union all
        -- The last one before: of the channel for its step, of the group's other channels for the group's.
        select e.id, e.delivery_id, e.channel_id, e.ts, m.platform, m.rate_group, m.step, m.group_step, m.since
        from measure m, lateral (
            select e.* from autopost.events e
            where e.workspace_id = p_workspace_id and e.channel_id = m.channel_id and e.action = 'send_attempt'
              and e.ts <= p_after and e.ts > p_after - least(greatest(m.step, m.group_step), interval '1 day')
            order by e.ts desc limit 1) e
    ), pair as (
        select b.*, lag(b.ts) over own as own_ts, lag(b.id) over own as own_id, lag(b.ts) over shared as shared_ts, lag(b.id) over shared as shared_id
        from begun b
        window own as (partition by b.channel_id order by b.ts, b.id), shared as (partition by b.platform, b.rate_group order by b.ts, b.id)
    )
    select p.delivery_id, p.channel_id, 'too_fast', format('channel %s began again after %s, its step is %s', p.channel_id, p.ts - p.own_ts, p.step),
           p.own_id, p.id
    from pair p where p.ts > p_after and p.own_ts >= p.since and p.ts - p.own_ts < p.step - interval '1 microsecond'
    union all
    select p.delivery_id, p.channel_id, 'group_too_fast',
           format('group %s began again after %s, its step is %s', p.rate_group, p.ts - p.shared_ts, p.group_step), p.shared_id, p.id
    from pair p where p.ts > p_after and p.shared_ts >= p.since and p.ts - p.shared_ts < p.group_step - interval '1 microsecond'
$$;

-- Begins at which more sends of a channel were under way than it may have. An end is told with the time at which its transaction
-- began, which may be a little after somebody took its place: a second is taken off. What began before p_after and has no event
-- since is known only while it is still being sent.
create or replace function autopost.crowded_begins(p_workspace_id text, p_after timestamptz, p_until timestamptz)
returns table (delivery_id uuid, channel_id text, kind text, says text, first_event uuid, second_event uuid)
language sql stable as $$
    with seen as materialized (
        select distinct e.delivery_id from autopost.events e
        where e.workspace_id = p_workspace_id and e.ts > p_after and e.ts <= p_until and e.delivery_id is not null and e.action <> 'enqueue'
        union
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.status = 'sending' and d.claimed_at <= p_after
    ), begun as materialized (
        select e.id, e.delivery_id, e.channel_id, e.ts, (
                   select min(x.ts) from autopost.events x
                   where x.delivery_id = e.delivery_id and x.workspace_id = p_workspace_id and x.attempt = e.attempt and x.action in (
                       'sent', 'retry_scheduled', 'failed_permanent', 'dead_letter', 'sending_lease_expired', 'held', 'manual_requeue')) as ended
        from autopost.events e
        where e.workspace_id = p_workspace_id and e.delivery_id in (select s.delivery_id from seen s) and e.action = 'send_attempt'
          and e.ts <= p_until
    ), change as (
        -- What ended within a second takes no place of another one, but its own.
        select b.id, b.delivery_id, b.channel_id, b.ts, 1 as n, coalesce(b.ended - interval '1 second' <= b.ts, false)::integer as own from begun b
        union all
        select b.id, b.delivery_id, b.channel_id, greatest(b.ended - interval '1 second', b.ts), -1, 0 from begun b where b.ended is not null
    ), counted as (
        select c.*, c.own + sum(c.n) over w as under_way, lag(c.id) over w as before_id
        from change c window w as (partition by c.channel_id order by c.ts, c.n, c.id rows unbounded preceding)
    )
    select c.delivery_id, c.channel_id, 'too_many', format('%s sends of channel %s were under way, it may have %s', c.under_way, c.channel_id, l.max_parallel),
           c.before_id, c.id
    from counted c
    join autopost.channels l on l.workspace_id = p_workspace_id and l.channel_id = c.channel_id
    join autopost.steady_channels(p_workspace_id, p_after) x on x.channel_id = c.channel_id
    where c.n = 1 and c.ts > p_after and c.ts >= x.since and c.under_way > l.max_parallel
$$;
