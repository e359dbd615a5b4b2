-- Alerts: what needs a person. A trouble is put as long as it is there and cleared when it is over; who is told of it, and
-- when, follows from the rows (notices.sql). Workspace '*' is the service.

-- Put a trouble, or put it again. True: it is a new one. One that was over for less than its quiet time goes on as the same,
-- so that what flaps is told once. Summaries and details carry no text of a post and no secret.
create or replace function ops.put_alert(
    p_workspace_id text, p_alert text, p_subject text, p_severity text, p_summary text, p_details jsonb,
    p_now timestamptz default now())
returns boolean
language plpgsql as $$
declare
    about constant text := left(coalesce(p_subject, ''), 200);
    words constant text := coalesce(ops.short_text(p_summary, 300), p_alert);
    facts constant jsonb := coalesce(p_details, '{}');
    policy constant ops.alert_policies := ops.alert_policy_of(p_workspace_id);
    known ops.alerts;
    is_new boolean;
begin
    insert into ops.alerts (workspace_id, alert, subject, severity, summary, details, raised_at, last_seen_at)
    values (p_workspace_id, p_alert, about, p_severity, words, facts, p_now, p_now)
    on conflict (workspace_id, alert, subject) do nothing;
    if found then
        return true;
    end if;

    select * into known from ops.alerts a
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.subject = about for no key update;
    is_new := coalesce(ops.is_quiet(known.cleared_at, policy, known.flaps, p_now), false);
    update ops.alerts a
    set severity = p_severity, summary = words, details = facts, last_seen_at = p_now,
        raises = a.raises + (a.cleared_at is not null)::integer, cleared_at = null, episode = a.episode + is_new::integer,
        raised_at = case when is_new then p_now else a.raised_at end,
        flaps = case when not is_new then a.flaps when a.raised_at > p_now - interval '1 hour' then a.flaps + 1 else 1 end,
        acked_at = case when not is_new then a.acked_at end, acked_by = case when not is_new then a.acked_by end,
        acked_count = case when not is_new then a.acked_count end
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.subject = about;
    return is_new;
end $$;

-- It is over. False: it was not on.
create or replace function ops.clear_alert(
    p_workspace_id text, p_alert text, p_subject text, p_now timestamptz default now())
returns boolean
language plpgsql as $$
begin
    update ops.alerts a set cleared_at = p_now
    where a.workspace_id = p_workspace_id and a.alert = p_alert and a.subject = left(coalesce(p_subject, ''), 200)
      and a.cleared_at is null;
    return found;
end $$;

-- How long a trouble must be over until that is told, and until it would be another one. The more often it came back within
-- an hour, the longer.
create or replace function ops.quiet_time(p_policy ops.alert_policies, p_flaps integer) returns interval
language sql immutable as $$
    select p_policy.clear_after * least(power(2, least(p_flaps, 10) - 1), 12)
$$;

-- What was cleared by a clock that was ahead is over, too: it must not wait for that moment to come.
create or replace function ops.is_quiet(p_cleared_at timestamptz, p_policy ops.alert_policies, p_flaps integer, p_now timestamptz)
returns boolean
language sql immutable as $$
    select p_cleared_at <= p_now - ops.quiet_time(p_policy, p_flaps) or p_cleared_at > p_now + interval '1 hour'
$$;

-- The rules of a workspace, or of the service: one row, made when it is first asked for.
create or replace function ops.alert_policy_of(p_workspace_id text) returns ops.alert_policies
language plpgsql as $$
declare
    policy ops.alert_policies;
begin
    select * into policy from ops.alert_policies p where p.workspace_id = p_workspace_id;
    if not found then
        perform ops.must_be_workspace(p_workspace_id);
        insert into ops.alert_policies (workspace_id) values (p_workspace_id) on conflict do nothing;
        select * into policy from ops.alert_policies p where p.workspace_id = p_workspace_id;
    end if;
    return policy;
end $$;

-- What a round of checks found, all at once: [{alert, subject?, severity, summary, details?}]. Troubles of the names in
-- p_owned that it did not find are over. Returns what is on of them.
create or replace function ops.put_alerts(
    p_workspace_id text, p_owned text[], p_found jsonb, p_now timestamptz default now())
returns table (alert text, subject text, severity text, summary text, details jsonb, raised_at timestamptz, is_new boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    put jsonb;
begin
    -- Two rounds at once come one after the other: what one of them clears, the other one may put.
    perform ops.alert_policy_of(p_workspace_id);
    perform from ops.alert_policies p where p.workspace_id = p_workspace_id for no key update;
    update ops.alerts a set cleared_at = p_now
    where a.workspace_id = p_workspace_id and a.cleared_at is null and a.alert = any (p_owned)
      and not exists (select from jsonb_array_elements(p_found) f (one)
                      where f.one ->> 'alert' = a.alert and left(coalesce(f.one ->> 'subject', ''), 200) = a.subject);
    select jsonb_agg(jsonb_build_object('alert', f.alert, 'subject', f.subject, 'is_new', ops.put_alert(
        p_workspace_id, f.alert, f.subject, f.severity, f.summary, f.details, p_now)))
    into put
    from (select x.alert, left(coalesce(x.subject, ''), 200) as subject, x.severity, x.summary, x.details
          from jsonb_to_recordset(p_found) x (alert text, subject text, severity text, summary text, details jsonb)
          order by 1, 2 offset 0) f;
    -- A statement of its own: one that puts does not see what it has put.
    return query
    select a.alert, a.subject, a.severity, a.summary, a.details, a.raised_at, p.is_new
    from jsonb_to_recordset(coalesce(put, '[]')) p (alert text, subject text, is_new boolean)
    join ops.alerts a on a.workspace_id = p_workspace_id and a.alert = p.alert and a.subject = p.subject
    order by a.severity, a.raised_at, a.alert, a.subject;
end $$;
