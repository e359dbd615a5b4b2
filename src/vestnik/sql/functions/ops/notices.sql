-- Notices: what a target does not know yet. It is the difference between what is (alerts) and what it was told (alert_told):
-- a target that was away for a day hears what is so now, once, and not what was.

-- p_now comes from the caller; what lies behind repeat_every is told again, unless somebody acknowledged it.
create or replace function ops.unheard(p_workspace_id text, p_target_id text, p_now timestamptz default now())
returns table (alert text, subject text, news text, severity text, summary text, details jsonb, episode integer,
               raised_at timestamptz, cleared_at timestamptz, raises integer)
language sql stable as $$
    with rules as materialized (
        select p.* from ops.alert_policies p where p.workspace_id = p_workspace_id
    ), heard as (
        select a.*, k.state, k.told_at, k.episode as told_episode, k.severity as told_severity,
               a.acked_at is not null and coalesce(ops.count_in(a.details) <= a.acked_count, true) as acked,
               exists (select from ops.alert_silences s
                       where s.workspace_id = p_workspace_id and s.alert = a.alert and s.subject in ('', a.subject)
                         and s.until > p_now) as silent
        from ops.alert_targets t
        join ops.alerts a on a.workspace_id = t.workspace_id and (t.alerts is null or a.alert = any (t.alerts))
            and (t.min_severity = 'warning' or a.severity = 'critical')
            and (a.alert, a.subject) <> ('alert_target', t.target_id)
        left join ops.alert_told k on k.workspace_id = t.workspace_id and k.target_id = t.target_id
            and k.alert = a.alert and k.subject = a.subject
        where t.workspace_id = p_workspace_id and t.target_id = p_target_id and t.enabled
    )
    select h.alert, h.subject, n.news, h.severity, h.summary, h.details, h.episode, h.raised_at, h.cleared_at, h.raises
    from heard h, rules r, lateral (select case
        when h.cleared_at is not null then
            case when h.state = 'raised' and ops.is_quiet(h.cleared_at, r, h.flaps, p_now) then 'cleared' end
        when h.silent or h.acked then null
        when h.state is distinct from 'raised' or h.told_episode <> h.episode
             or (h.told_severity, h.severity) = ('warning', 'critical') then 'raised'
        when h.told_at <= p_now - r.repeat_every or h.told_at > p_now + interval '1 hour' then 'repeated' end as news) n
    where n.news is not null
    order by n.news = 'cleared', h.severity, h.raised_at, h.alert, h.subject
$$;

-- Targets that somebody may tell something now: a notifier each.
create or replace function ops.targets_to_tell(p_workspace_id text, p_now timestamptz default now()) returns setof text
language sql stable as $$
    select t.target_id from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.enabled and not ops.is_soon(t.next_try_at, p_now) and not ops.is_soon(t.lease_until, p_now)
      and exists (select from ops.unheard(p_workspace_id, t.target_id, p_now))
    order by t.target_id
$$;

-- A target with everything that it has not heard, for one notifier at a time. Nothing: there is nothing to tell, or another
-- one is at it, or it is too early after a failure. A program is told all of it in messages of a size that it can take; people
-- read the first few in any case.
create or replace function ops.take_notices(
    p_workspace_id text, p_target_id text, p_lease interval default '2 minutes', p_now timestamptz default now())
returns table (target ops.alert_targets, notices jsonb)
language plpgsql as $$
declare
    way text;
    found_notices jsonb;
begin
    select t.kind into way from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id and t.enabled
      and not ops.is_soon(t.next_try_at, p_now) and not ops.is_soon(t.lease_until, p_now)
    for no key update;
    if not found then
        return;
    end if;
    -- Read after the lock: what another one has told meanwhile is known by now.
    select jsonb_agg(to_jsonb(u)) into found_notices
    from (select * from ops.unheard(p_workspace_id, p_target_id, p_now) limit case way when 'webhook' then 500 end) u;
    if found_notices is null then
        return;
    end if;
    return query
    update ops.alert_targets t set lease = t.lease + 1, lease_until = p_now + p_lease
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id
    returning t, found_notices;
end $$;

-- What came of it: without p_error the target acknowledged these notices, and is not told of them again, however late that
-- is known. A failure counts for the newest lease only. Returns how many failures in a row there are.
create or replace function ops.settle_notices(
    p_workspace_id text, p_target_id text, p_lease integer, p_notices jsonb, p_error jsonb default null,
    p_now timestamptz default now())
returns integer
language plpgsql as $$
declare
    target ops.alert_targets;
begin
    select * into target from ops.alert_targets t
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id for no key update;
    if not found then
        return 0;
    end if;
    if p_error is null then
        insert into ops.alert_told as k (workspace_id, target_id, alert, subject, episode, state, severity, told_at)
        select p_workspace_id, p_target_id, n.alert, n.subject, n.episode,
               case n.news when 'cleared' then 'cleared' else 'raised' end, n.severity, p_now
        from jsonb_to_recordset(p_notices) n (alert text, subject text, news text, severity text, episode integer)
        on conflict (workspace_id, target_id, alert, subject) do update
            set episode = excluded.episode, state = excluded.state, severity = excluded.severity, told_at = p_now
            where k.episode <= excluded.episode;
    elsif target.lease <> p_lease or target.lease_until is null then
        return target.failures;
    end if;
    update ops.alert_targets t
    set lease_until = case when t.lease = p_lease then null else t.lease_until end,
        last_sent_at = case when p_error is null then p_now else t.last_sent_at end,
        failures = case when p_error is null then 0 else t.failures + 1 end,
        failing_since = case when p_error is not null then coalesce(t.failing_since, p_now) end,
        last_error = case when p_error is not null then ops.normal_error(p_error) end,
        next_try_at = case when p_error is not null then p_now + ops.pause_after(t.failures + 1, p_error, 900) end
    where t.workspace_id = p_workspace_id and t.target_id = p_target_id
    returning * into target;
    return target.failures;
end $$;

-- Worth waiting for: no pause and no lease lies further ahead, unless the clock did when it was written.
create or replace function ops.is_soon(p_moment timestamptz, p_now timestamptz) returns boolean
language sql immutable as $$
    select coalesce(p_moment > p_now and p_moment <= p_now + interval '2 hours', false)
$$;

-- 10 seconds, doubled at each failure, at most p_longest; longer when the other side asked for it.
create or replace function ops.pause_after(p_failures integer, p_error jsonb, p_longest double precision) returns interval
language sql immutable as $$
    select make_interval(secs => greatest(least(10 * power(2, least(p_failures, 20) - 1), p_longest),
        case when jsonb_typeof(p_error -> 'retry_after') = 'number' then least((p_error ->> 'retry_after')::double precision, 3600) end))
$$;

-- Somebody has seen it: it is not repeated until it grows, or comes back another time. Returns how many that are.
create or replace function ops.ack_alerts(
    p_workspace_id text, p_actor text, p_alert text, p_subject text default null, p_now timestamptz default now())
returns integer
language plpgsql as $$
declare
    acked integer;
begin
    update ops.alerts a set acked_at = p_now, acked_by = left(p_actor, 200), acked_count = ops.count_in(a.details)
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.cleared_at is null
      and coalesce(a.subject = p_subject, true);
    get diagnostics acked = row_count;
    if acked > 0 then
        perform core.note_change(p_workspace_id, left(p_actor, 200), 'alert_acked', concat_ws(' ', p_alert, p_subject), '{}', p_now);
    end if;
    return acked;
end $$;

-- How much of it there is, where its details say so.
create or replace function ops.count_in(p_details jsonb) returns bigint
language sql immutable as $$
    select case when jsonb_typeof(p_details -> 'count') = 'number' and abs((p_details ->> 'count')::numeric) < 1e15
                then (p_details ->> 'count')::numeric::bigint end
$$;

-- Nobody is told of it until then; a moment that has passed ends the silence.
create or replace function ops.silence_alert(
    p_workspace_id text, p_actor text, p_alert text, p_subject text, p_until timestamptz, p_reason text,
    p_now timestamptz default now())
returns void
language plpgsql as $$
begin
    perform ops.must_be_workspace(p_workspace_id);
    insert into ops.alert_silences as s (workspace_id, alert, subject, until, actor, reason, created_at)
    values (p_workspace_id, p_alert, coalesce(p_subject, ''), p_until, left(p_actor, 200),
            coalesce(ops.short_text(p_reason, 300), ''), p_now)
    on conflict (workspace_id, alert, subject) do update
        set until = excluded.until, actor = excluded.actor, reason = excluded.reason, created_at = excluded.created_at;
    delete from ops.alert_silences s where s.workspace_id = p_workspace_id and s.until <= p_now;
    perform core.note_change(p_workspace_id, left(p_actor, 200), 'alert_silenced', concat_ws(' ', p_alert, p_subject),
                             jsonb_build_object('until', p_until, 'reason', ops.short_text(p_reason, 300)), p_now);
end $$;

-- Forget what has been over for long. Returns how many.
create or replace function ops.prune_alerts(
    p_workspace_id text, p_keep interval default '90 days', p_limit integer default 1000, p_now timestamptz default now())
returns integer
language sql volatile as $$
    with gone as (
        delete from ops.alerts a
        where a.workspace_id = p_workspace_id and (a.alert, a.subject) in (
            select x.alert, x.subject from ops.alerts x
            where x.workspace_id = p_workspace_id and x.cleared_at < p_now - p_keep order by x.cleared_at limit p_limit)
          and a.cleared_at < p_now - p_keep
        returning a.alert, a.subject
    ), told as (
        delete from ops.alert_told k using gone g
        where k.workspace_id = p_workspace_id and k.alert = g.alert and k.subject = g.subject
    )
    select count(*)::integer from gone
$$;
