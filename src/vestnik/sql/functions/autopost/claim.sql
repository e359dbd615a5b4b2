-- Allocate: reserve the next slots of ready channels.
-- Lock order, here and everywhere: platform_limits by (platform, rate_group), channels by channel_id, deliveries by
-- delivery_id; who does not keep it does not wait (skip locked).
-- All are NO KEY UPDATE: a foreign key's KEY SHARE must never wait for a slot being given out.

-- Channels after p_after that have something due and nothing in the way, found by hopping along the queue's indexes:
-- a channel with 100,000 waiting rows costs one hop.
create or replace function autopost.ready_channels(
    p_workspace_id text, p_after text, p_limit integer, p_now timestamptz) returns setof text
language sql stable as $$
    with recursive hop as (
        select p_after as channel_id
        union all
        select least(
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'queued' order by d.channel_id limit 1),
            (select d.channel_id from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id > h.channel_id and d.status = 'retry' order by d.channel_id limit 1))
        from hop h where h.channel_id is not null
    )
    select h.channel_id
    from hop h,
    -- One channel at a time, in the order of the hops, and no further than p_limit of them.
    lateral (select c as channel, g as grp
             from autopost.channels c
             left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform
                 and g.rate_group = c.rate_group
             where c.workspace_id = p_workspace_id and c.channel_id = h.channel_id
             offset 0) x
    where h.channel_id > p_after and autopost.is_open(x.channel, x.grp, p_now)
      and least(
          (select d.not_before from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
           and d.status = 'queued' order by d.not_before limit 1),
          (select d.next_retry_at from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = h.channel_id
           and d.status = 'retry' and d.not_before <= p_now order by d.next_retry_at limit 1)) <= p_now
    limit p_limit
$$;

-- Nothing in the way of a channel: not switched off, not paused, within its window, not cooling, nor its group.
create or replace function autopost.is_open(p_channel autopost.channels, p_group autopost.platform_limits, p_now timestamptz)
returns boolean
language sql stable as $$
    select p_channel.enabled
       and coalesce(p_channel.paused_until, '-infinity') <= p_now
       and case p_channel.window_mode when 'windowed'
               then autopost.window_open(p_channel.posting_window, p_channel.timezone, p_now) else true end
       and coalesce(p_channel.cooldown_until, '-infinity') <= p_now
       and coalesce(p_group.cooldown_until, '-infinity') <= p_now
$$;

create or replace function autopost.is_paced(p_channel autopost.channels, p_group autopost.platform_limits) returns boolean
language sql immutable as $$
    select coalesce(p_channel.rate_rps, 0) > 0 or coalesce(p_group.rate_rps, 0) > 0
$$;

-- The channels whose turn it is: as few as can fill p_limit, for each costs looks and locks; as many as p_limit when none of
-- them can give more than one. A sample of the first tells which.
create or replace function autopost.take_turn(p_workspace_id text, p_limit integer, p_now timestamptz) returns text[]
language plpgsql as $$
declare
    sample constant integer := ceil(p_limit / 10.0);
    turn text[] := autopost.next_in_turn(p_workspace_id, sample, p_now);
    wanted integer;
begin
    if sample > 0 and cardinality(turn) = sample then
        wanted := ceil(p_limit::numeric * sample
                       / greatest(sample, autopost.free_and_due(p_workspace_id, turn, ceil(p_limit / 50.0)::integer, p_now)));
        if wanted > sample then
            turn := autopost.next_in_turn(p_workspace_id, wanted, p_now);
        end if;
    end if;
    return turn;
end $$;

-- Ready channels from where the last call stopped, then from the beginning.
create or replace function autopost.next_in_turn(p_workspace_id text, p_limit integer, p_now timestamptz) returns text[]
language plpgsql as $$
declare
    place text := coalesce((select s.channel_id_last from autopost.dispatcher_state s
                            where s.workspace_id = p_workspace_id), '');
    ready text[];
begin
    ready := array(select autopost.ready_channels(p_workspace_id, place, p_limit, p_now));
    if cardinality(ready) < p_limit and place <> '' then
        ready := ready || array(select r from autopost.ready_channels(p_workspace_id, '', p_limit - cardinality(ready), p_now) r
                                where r <> all (ready));
    end if;
    return ready;
end $$;

-- About how many sends these channels could begin now, each at most p_each. Looked at without locks: it decides nothing
-- but how many channels are looked at.
create or replace function autopost.free_and_due(p_workspace_id text, p_channel_ids text[], p_each integer, p_now timestamptz)
returns integer
language sql stable as $$
    select coalesce(sum(case when autopost.is_paced(c, g) then 1 else least(due.n, greatest(c.max_parallel - busy.n, 0)) end), 0)::integer
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform
        and g.rate_group = c.rate_group,
    lateral (select count(*) as n from autopost.deliveries d where d.workspace_id = p_workspace_id
             and d.channel_id = c.channel_id and d.status = 'sending') busy,
    lateral (select count(*) as n from (
                 select from autopost.deliveries d where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id
                 and d.status = 'queued' and d.not_before <= p_now limit p_each) queued) due
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
$$;

create or replace function autopost.remember_turn(p_workspace_id text, p_channel_id text, p_now timestamptz) returns void
language sql volatile as $$
    insert into autopost.dispatcher_state as s (workspace_id, channel_id_last, updated_at)
    select p_workspace_id, p_channel_id, p_now where p_channel_id is not null
    on conflict (workspace_id) do update set channel_id_last = excluded.channel_id_last, updated_at = excluded.updated_at
    where s.channel_id_last <> excluded.channel_id_last
$$;

-- Groups get their row with their first channel, so that the lock always exists; then both kinds of lock, in order. Who changes
-- the group of a channel holds its row: with that locked too, the group is final. One that a channel came into meanwhile is out of
-- order by then, so nobody waits for it: when it is taken, the caller starts over (40001).
create or replace function autopost.lock_channels(p_workspace_id text, p_channel_ids text[]) returns void
language plpgsql as $$
declare
    locked text[];
    wanted text[];
begin
    insert into autopost.platform_limits (workspace_id, platform, rate_group)
    select distinct c.workspace_id, c.platform, c.rate_group
    from autopost.channels c
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
      and not exists (select from autopost.platform_limits g where g.workspace_id = p_workspace_id
                      and g.platform = c.platform and g.rate_group = c.rate_group)
    order by 2, 3
    on conflict do nothing;

    select array_agg(x.grp) into locked from (
        select g.platform || '/' || g.rate_group as grp from autopost.platform_limits g
        where g.workspace_id = p_workspace_id and (g.platform, g.rate_group) in (
            select c.platform, c.rate_group from autopost.channels c
            where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids))
        order by g.platform, g.rate_group for no key update) x;

    select array_agg(distinct x.grp) into wanted from (
        select c.platform || '/' || c.rate_group as grp from autopost.channels c
        where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids)
        order by c.channel_id for no key update) x;

    if not wanted <@ locked then
        locked := locked || array(
            select g.platform || '/' || g.rate_group from autopost.platform_limits g
            where g.workspace_id = p_workspace_id and g.platform || '/' || g.rate_group = any (wanted) for no key update skip locked);
        if not wanted <@ coalesce(locked, '{}') then
            raise exception 'a channel came into another group meanwhile' using errcode = '40001';
        end if;
    end if;
end $$;

-- The oldest due rows of the locked channels, for each channel as many as its place in p_counts says.
create or replace function autopost.due_deliveries(
    p_workspace_id text, p_channel_ids text[], p_counts integer[], p_now timestamptz) returns uuid[]
language sql volatile as $$
    select coalesce(array_agg(due.delivery_id order by due.created_at), '{}')
    from unnest(p_channel_ids, p_counts) c (channel_id, n),
    lateral (
        (select d.delivery_id, d.created_at from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'queued' and d.not_before <= p_now
         order by d.not_before, d.created_at limit c.n)
        union all
        (select d.delivery_id, d.created_at from autopost.deliveries d
         where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id and d.status = 'retry'
           and d.next_retry_at <= p_now and d.not_before <= p_now
         order by d.next_retry_at limit c.n)
        order by created_at limit c.n
    ) due
$$;

-- A row that comes back (tried before, or refused at the door and put back by an operator) may have been overtaken by the
-- same content: it must not go out a second time. It gives way to a row under way, to one that never left the queue (which
-- is not looked at here), and of two that come back to the older.
create or replace function autopost.drop_overtaken(p_workspace_id text, p_delivery_ids uuid[], p_now timestamptz) returns void
language sql volatile as $$
    with overtaken as (
        select d.delivery_id, case when sent.found then 'sent_within_ttl' else 'in_flight' end as reason
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id,
        lateral (select exists (
            select from autopost.deliveries o where o.workspace_id = d.workspace_id and o.channel_id = d.channel_id
              and o.content_hash = d.content_hash and o.hash_version = d.hash_version and o.status = 'sent'
              and o.sent_at >= p_now - autopost.dedup_window(coalesce(c.dedup_ttl_hours,
                    (autopost.policy_of(p_workspace_id)).dedup_ttl_hours))) as found) sent,
        lateral (select exists (
            select from autopost.deliveries o where o.workspace_id = d.workspace_id and o.channel_id = d.channel_id
              and o.content_hash = d.content_hash and o.hash_version = d.hash_version
              and o.status in ('queued', 'claimed', 'sending', 'retry') and o.delivery_id <> d.delivery_id
              and (o.status in ('claimed', 'sending') or (o.attempt = 0 and o.last_error is null)
                   or o.delivery_id < d.delivery_id)) as found) other
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids)
          and (d.attempt > 0 or d.last_error is not null) and d.status || '' in ('queued', 'retry')
          and (sent.found or other.found)
        for no key update of d skip locked
    ), dropped as (
        update autopost.deliveries d set status = 'deduped', next_retry_at = null, updated_at = p_now
        from overtaken o where d.workspace_id = p_workspace_id and d.delivery_id = o.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, o.reason
    )
    insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
    select p_workspace_id, core.uuid7(p_now), x.delivery_id, x.message_id, x.channel_id, p_now, 'dedup_suppressed', x.attempt,
           jsonb_build_object('trace_id', x.trace_id, 'reason', x.reason)
    from dropped x
$$;

-- Reserve slots. Only slots within the policy's horizon are given out: what lies further ahead stays in the queue, where
-- a pause or a cooldown costs nothing. next_allowed_at is this function's own cursor, never a gate (begin.sql is the gate).
-- Without p_now the time is taken under the locks: after a long wait for them, the time of asking would book slots
-- and begins in the past, and the next ones right behind them.
create or replace function autopost.claim_deliveries(
    p_workspace_id text, p_run_id text, p_limit integer default 100, p_now timestamptz default null)
returns table (delivery_id uuid, channel_id text, not_before timestamptz)
language plpgsql as $$
declare
    turn text[];
    started timestamptz;
begin
    if not autopost.is_active(p_workspace_id) then
        return;
    end if;
    turn := autopost.take_turn(p_workspace_id, p_limit, coalesce(p_now, now()));
    perform autopost.lock_channels(p_workspace_id, turn);
    started := coalesce(p_now, clock_timestamp());
    return query select * from autopost.claim_slots(p_workspace_id, p_run_id, turn, p_limit, started);
    perform autopost.remember_turn(p_workspace_id, turn[cardinality(turn)], started);
end $$;

-- p_turn is locked by the caller.
create or replace function autopost.claim_slots(
    p_workspace_id text, p_run_id text, p_turn text[], p_limit integer, p_now timestamptz)
returns table (delivery_id uuid, channel_id text, not_before timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
    policy autopost.policies;
    turn text[];
    room integer[];
    due uuid[];
begin
    if p_turn = '{}' then
        return;
    end if;
    policy := autopost.policy_of(p_workspace_id);

    -- Under the locks: what was ready may not be any more, and what is claimed counts against the policy's K.
    select array_agg(r.channel_id order by r.channel_id),
           array_agg(least(r.room, greatest(1, ceil(p_limit::numeric / cardinality(p_turn))))::integer order by r.channel_id)
    into turn, room
    from (select c.channel_id, policy.claim_per_channel - (
                     select count(*) from autopost.deliveries d where d.workspace_id = p_workspace_id
                     and d.channel_id = c.channel_id and d.status = 'claimed') as room
          from autopost.channels c
          join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
          where c.workspace_id = p_workspace_id and c.channel_id = any (p_turn) and autopost.is_open(c, g, p_now)) r
    where r.room > 0;
    due := autopost.due_deliveries(p_workspace_id, turn, room, p_now);
    perform autopost.drop_overtaken(p_workspace_id, due, p_now);
    return query select * from autopost.assign_slots(
        p_workspace_id, p_run_id, due, p_limit, p_now, p_now + policy.claim_horizon);
end $$;

-- Those of the channels that keep a pace, their own or their group's.
create or replace function autopost.paced_of(p_workspace_id text, p_channel_ids text[]) returns text[]
language sql stable as $$
    select coalesce(array_agg(c.channel_id), '{}')
    from autopost.channels c
    left join autopost.platform_limits g on g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids) and autopost.is_paced(c, g)
$$;

create or replace function autopost.is_active(p_workspace_id text) returns boolean
language sql stable as $$
    select exists (select from core.workspaces w where w.workspace_id = p_workspace_id and w.status = 'active')
$$;

-- slot = base + (i-1)*step of the channel, then greatest with the group's own; both cursors move by what was given out.
-- Every cut takes the latest slots of a channel, so what remains of a channel is a prefix of its queue.
create or replace function autopost.assign_slots(
    p_workspace_id text, p_run_id text, p_delivery_ids uuid[], p_limit integer, p_now timestamptz, p_horizon timestamptz)
returns table (delivery_id uuid, channel_id text, not_before timestamptz)
language sql volatile as $$
    with due as (
        select d.delivery_id, d.channel_id, d.created_at,
               row_number() over (partition by d.channel_id order by d.created_at, d.delivery_id) as i
        from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.delivery_id = any (p_delivery_ids) and d.status || '' in ('queued', 'retry')
    ), channel_slot as (
        select due.*, c.platform, c.rate_group, autopost.step_of(c.rate_rps) as step, autopost.step_of(g.rate_rps) as group_step,
               case when c.rate_rps > 0
                    then greatest(p_now, c.next_allowed_at) + (due.i - 1) * autopost.step_of(c.rate_rps) else p_now end as slot,
               greatest(p_now, g.next_allowed_at) as group_base
        from due
        join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = due.channel_id
        join autopost.platform_limits g on g.workspace_id = p_workspace_id and g.platform = c.platform and g.rate_group = c.rate_group
    ), within as (
        select * from channel_slot where slot <= p_horizon order by i, channel_id limit p_limit
    ), group_slot as (
        select w.*, case when w.group_step is not null
                    then w.group_base + (row_number() over (partition by w.platform, w.rate_group order by w.slot, w.created_at, w.delivery_id) - 1)
                         * w.group_step else w.slot end as shared_slot
        from within w
    ), slotted as materialized (
        select s.delivery_id, s.channel_id, s.platform, s.rate_group, s.step, s.group_step, greatest(s.slot, s.shared_slot) as not_before
        from group_slot s
        join autopost.deliveries d on d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
        where s.shared_slot <= p_horizon and d.status || '' in ('queued', 'retry')
        for no key update of d skip locked
    ), channel_cursor as (
        update autopost.channels c set next_allowed_at = greatest(p_now, c.next_allowed_at) + s.n * s.step, updated_at = p_now
        from (select channel_id, step, count(*) as n from slotted where step is not null group by 1, 2) s
        where c.workspace_id = p_workspace_id and c.channel_id = s.channel_id
    ), group_cursor as (
        update autopost.platform_limits g set next_allowed_at = greatest(p_now, g.next_allowed_at) + s.n * s.group_step, updated_at = p_now
        from (select platform, rate_group, group_step, count(*) as n from slotted where group_step is not null group by 1, 2, 3) s
        where g.workspace_id = p_workspace_id and g.platform = s.platform and g.rate_group = s.rate_group
    )
    update autopost.deliveries d
    set status = 'claimed', claimed_at = p_now, claim_token = p_run_id, not_before = s.not_before, next_retry_at = null, updated_at = p_now
    from slotted s
    where d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
    returning d.delivery_id, d.channel_id, d.not_before
$$;

-- Claims that wait behind a gate go back, to their old place in the queue; but those that somebody else decides about just now.
create or replace function autopost.release_claims(
    p_workspace_id text, p_channel_ids text[], p_reason text, p_now timestamptz) returns integer
language sql volatile as $$
    with claimed as (
        select d.delivery_id from autopost.deliveries d
        where d.workspace_id = p_workspace_id and d.channel_id = any (p_channel_ids) and d.status = 'claimed'
        for no key update skip locked
    ), released as (
        update autopost.deliveries d
        set status = 'queued', not_before = coalesce(d.scheduled_for, d.created_at), claimed_at = null, claim_token = null, updated_at = p_now
        from claimed c
        where d.workspace_id = p_workspace_id and d.delivery_id = c.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, meta)
        select p_workspace_id, core.uuid7(p_now), r.delivery_id, r.message_id, r.channel_id, p_now, 'claim_released', r.attempt,
               jsonb_build_object('trace_id', r.trace_id, 'reason', p_reason)
        from released r
    )
    select count(*)::integer from released
$$;
