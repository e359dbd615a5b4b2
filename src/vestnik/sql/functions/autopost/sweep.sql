-- Sweeps: what a dead or hanging dispatcher has left behind comes back. Bounded per call; they pass by every gate, for a
-- gate that leaked rows fill would never let them go. Attempts are not counted here.

-- A send whose lease ran out: its outcome is unknown.
create or replace function autopost.sweep_sending(p_workspace_id text, p_limit integer default 500, p_now timestamptz default now())
returns integer
language plpgsql as $$
declare
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
    error constant jsonb := jsonb_build_object('category', 'TRANSIENT', 'scope', 'delivery', 'code', 'lease_expired',
        'message', 'the sender fell silent: whether the platform took the post is not known', 'outcome', 'unknown');
    swept integer;
begin
    with expired as (
        select d.delivery_id,
               case when c.on_unknown = 'hold' then 'held' when autopost.tries_of(d) >= policy.max_attempts then 'dead' else 'retry' end as fate
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id
        where d.workspace_id = p_workspace_id and d.status = 'sending' and d.sending_started_at < p_now - policy.sending_lease
        order by d.delivery_id limit p_limit
        for no key update of d skip locked
    ), moved as (
        update autopost.deliveries d
        set status = case e.fate when 'dead' then 'dead' else 'retry' end,
            next_retry_at = case e.fate when 'held' then 'infinity' when 'retry' then p_now + policy.expired_send_backoff end,
            held_at = case e.fate when 'held' then p_now end,
            last_error = error, claimed_at = null, claim_token = null, sending_started_at = null, updated_at = p_now
        from expired e
        where d.workspace_id = p_workspace_id and d.delivery_id = e.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, d.lease, e.fate
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, error, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now, a.action, m.attempt, 'error', error,
               jsonb_build_object('trace_id', m.trace_id, 'lease', m.lease)
        from moved m, lateral (values ('sending_lease_expired'),
            (case m.fate when 'dead' then 'dead_letter' when 'held' then 'held' end)) a (action)
        where a.action is not null
    )
    select count(*) into swept from moved;
    return swept;
end $$;

-- Claims that nobody began, and claims of channels that somebody paused or disabled by hand, or whose window has closed: they
-- say which. A channel whose places are all taken and whose sends are alive is only slow: its claims stay.
create or replace function autopost.sweep_claimed(p_workspace_id text, p_limit integer default 500, p_now timestamptz default now())
returns integer
language plpgsql as $$
declare
    policy constant autopost.policies := autopost.policy_of(p_workspace_id);
    swept integer;
begin
    with stale as (
        select d.delivery_id, shut.reason
        from autopost.deliveries d
        join autopost.channels c on c.workspace_id = d.workspace_id and c.channel_id = d.channel_id,
        lateral (select case when not c.enabled then 'channel_disabled' when c.paused_until > p_now then 'channel_paused'
                             when c.window_mode <> 'windowed' then null
                             when not autopost.window_open(c.posting_window, c.timezone, p_now) then 'window_closed' end as reason
                 offset 0) shut
        where d.workspace_id = p_workspace_id and d.status = 'claimed'
          and (shut.reason is not null
               or (d.not_before <= p_now and d.claimed_at < p_now - policy.claimed_lease
                   and not (select count(*) >= c.max_parallel and max(s.sending_started_at) >= p_now - policy.sending_lease
                            from autopost.deliveries s where s.workspace_id = d.workspace_id
                              and s.channel_id = d.channel_id and s.status = 'sending')))
        order by d.delivery_id limit p_limit
        for no key update of d skip locked
    ), moved as (
        update autopost.deliveries d
        set status = 'queued', not_before = coalesce(d.scheduled_for, d.created_at), claimed_at = null, claim_token = null, updated_at = p_now
        from stale s
        where d.workspace_id = p_workspace_id and d.delivery_id = s.delivery_id
        returning d.delivery_id, d.message_id, d.channel_id, d.attempt, d.trace_id, s.reason
    ), noted as (
        insert into autopost.events (workspace_id, id, delivery_id, message_id, channel_id, ts, action, attempt, result, meta)
        select p_workspace_id, core.uuid7(p_now), m.delivery_id, m.message_id, m.channel_id, p_now,
               case when m.reason is null then 'claimed_lease_expired' else 'claim_released' end, m.attempt,
               case when m.reason is null then 'error' else 'ok' end,
               jsonb_strip_nulls(jsonb_build_object('trace_id', m.trace_id, 'reason', m.reason))
        from moved m
    )
    select count(*) into swept from moved;
    return swept;
end $$;

-- Hours that were changed behind our back (apply replans by itself), or while a post came in: what waits for an hour that
-- counts no more goes now that its channel is open.
create or replace function autopost.sweep_windows(p_workspace_id text, p_limit integer default 100, p_now timestamptz default now())
returns integer
language sql volatile as $$
    select coalesce(sum(autopost.replan_channel(p_workspace_id, open.channel_id, 'sweep', p_now)), 0)::integer
    from (select c.channel_id from autopost.channels c
          where c.workspace_id = p_workspace_id and c.posting_window is not null
            and exists (select from autopost.deliveries d
                        where d.workspace_id = p_workspace_id and d.channel_id = c.channel_id
                          and d.status in ('queued', 'retry') and d.held_at is null
                          and d.not_before > p_now and d.not_before < 'infinity' and coalesce(d.scheduled_for, p_now) <= p_now)
            and case c.window_mode when 'windowed' then autopost.window_open(c.posting_window, c.timezone, p_now) else true end
          order by c.channel_id limit p_limit) open
$$;

create or replace function autopost.sweep_receipts(p_workspace_id text, p_limit integer default 1000, p_now timestamptz default now())
returns integer
language sql volatile as $$
    with gone as (
        delete from autopost.ingress_receipts r
        where r.workspace_id = p_workspace_id and r.receipt_id in (
            select x.receipt_id from autopost.ingress_receipts x
            where x.workspace_id = p_workspace_id and x.expires_at < p_now order by x.expires_at limit p_limit
            for update skip locked)
          and r.expires_at < p_now
        returning 1
    )
    select count(*)::integer from gone
$$;
