-- What a platform's answer does to the channel and its group. Callers hold both rows (claim.sql, lock_channels).

-- A late answer still tells how the platform feels, so it may cool; it never punishes.
create or replace function autopost.feed_gates(
    p_row autopost.deliveries, p_error jsonb, p_delay interval, p_late boolean, p_policy autopost.policies, p_now timestamptz) returns void
language plpgsql as $$
begin
    if p_error ->> 'category' = 'TRANSIENT' then
        if p_error ->> 'code' = '429' or p_error ? 'retry_after_ms' then
            perform autopost.cool_channel(p_row, coalesce((p_error -> 'scope_named')::boolean, false), p_now + p_delay, p_now);
        end if;
    elsif p_error ->> 'scope' = 'platform' then
        perform autopost.cool_group(p_row, p_now + p_policy.platform_cooldown_for, p_now);
    elsif p_error ->> 'scope' = 'channel' and not p_late then
        perform autopost.punish_channel(p_row, p_error, p_policy, p_now);
    end if;
end $$;

-- "Too many requests" cools the channel that heard it. The group cools when the platform says that the whole credential
-- is meant, or when a second channel of the group hears it within the first one's wait.
create or replace function autopost.cool_channel(
    p_row autopost.deliveries, p_whole_group boolean, p_until timestamptz, p_now timestamptz) returns void
language plpgsql as $$
declare
    grp autopost.platform_limits;
begin
    update autopost.channels c set cooldown_until = greatest(c.cooldown_until, p_until), updated_at = p_now
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id;
    perform autopost.release_claims(p_row.workspace_id, array[p_row.channel_id], 'channel_cooldown', p_now);

    select g.* into grp from autopost.platform_limits g
    join autopost.channels c on c.workspace_id = g.workspace_id and c.platform = g.platform and c.rate_group = g.rate_group
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id;
    if p_whole_group or (grp.limited_until > p_now and grp.limited_channel_id <> p_row.channel_id) then
        perform autopost.cool_group(p_row, greatest(p_until, grp.limited_until), p_now);
    end if;
    if grp.limited_until is null or grp.limited_until <= p_now or grp.limited_channel_id = p_row.channel_id then
        update autopost.platform_limits g set limited_channel_id = p_row.channel_id, limited_until = p_until, updated_at = p_now
        where g.workspace_id = grp.workspace_id and g.platform = grp.platform and g.rate_group = grp.rate_group;
    end if;
end $$;

create or replace function autopost.cool_group(p_row autopost.deliveries, p_until timestamptz, p_now timestamptz) returns void
language plpgsql as $$
declare
    members text[];
begin
    update autopost.platform_limits g
    set cooldown_until = greatest(g.cooldown_until, p_until), next_allowed_at = greatest(g.next_allowed_at, p_until), updated_at = p_now
    from autopost.channels c
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id
      and g.workspace_id = c.workspace_id and g.platform = c.platform and g.rate_group = c.rate_group;

    members := array(
        select m.channel_id from autopost.channels c
        join autopost.channels m on m.workspace_id = c.workspace_id and m.platform = c.platform and m.rate_group = c.rate_group
        where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id);
    perform autopost.release_claims(p_row.workspace_id, members, 'group_cooldown', p_now);
end $$;

-- A channel that refuses us is paused, and disabled after so many refusals in a row. Sends that began before the current
-- penalty are the same incident: they do not count again. When a send began its claim tells: a send that shows signs of life
-- moves sending_started_at.
create or replace function autopost.punish_channel(
    p_row autopost.deliveries, p_error jsonb, p_policy autopost.policies, p_now timestamptz) returns void
language plpgsql as $$
declare
    streak integer;
    disable boolean;
begin
    update autopost.channels c
    set error_streak = c.error_streak + 1, penalized_at = p_now, updated_at = p_now,
        paused_until = greatest(c.paused_until, p_now + p_policy.pause_on_permanent_for),
        enabled = c.enabled and c.error_streak + 1 < p_policy.disable_after_permanent_streak
    where c.workspace_id = p_row.workspace_id and c.channel_id = p_row.channel_id
      and coalesce(c.penalized_at, '-infinity') < coalesce(p_row.claimed_at, p_row.sending_started_at, p_now)
    returning c.error_streak, not c.enabled and c.error_streak >= p_policy.disable_after_permanent_streak into streak, disable;
    if not found then
        return;
    end if;
    perform autopost.release_claims(p_row.workspace_id, array[p_row.channel_id], 'channel_paused', p_now);
    insert into autopost.events (workspace_id, id, channel_id, ts, action, result, error, meta)
    select p_row.workspace_id, core.uuid7(p_now), p_row.channel_id, p_now, a.action, 'error', p_error,
           jsonb_build_object('error_streak', streak, 'delivery_id', p_row.delivery_id, 'trace_id', p_row.trace_id)
    from unnest(array['channel_paused', case when disable then 'channel_disabled' end]) a (action)
    where a.action is not null;
end $$;

-- What these channels were refused for is mended: their pauses end at p_from, and refusals count anew from there. A channel that
-- is disabled stays so, and so does a pause that no refusal made.
create or replace function autopost.forgive_channels(
    p_workspace_id text, p_operator text, p_reason text, p_channel_ids text[], p_from timestamptz, p_now timestamptz default now())
returns setof text
language sql volatile as $$
    with refused as materialized (
        select c.channel_id, c.error_streak from autopost.channels c
        where c.workspace_id = p_workspace_id and c.channel_id = any (p_channel_ids) and c.enabled and c.error_streak > 0
        order by c.channel_id for no key update
    ), forgiven as (
        update autopost.channels c
        set error_streak = 0, penalized_at = greatest(c.penalized_at, p_from),
            paused_until = nullif(least(c.paused_until, p_from), p_now), updated_at = p_now
        from refused r
        where c.workspace_id = p_workspace_id and c.channel_id = r.channel_id
        returning c.channel_id, c.paused_until, r.error_streak
    ), noted as (
        insert into autopost.events (workspace_id, id, channel_id, ts, action, meta)
        select p_workspace_id, core.uuid7(p_now), f.channel_id, p_now, 'channel_enabled', jsonb_strip_nulls(jsonb_build_object(
            'operator', p_operator, 'reason', core.redact_text(p_reason), 'error_streak', f.error_streak, 'paused_until', f.paused_until))
        from forgiven f
    )
    select f.channel_id from forgiven f order by 1
$$;

-- The channels of a credential whose token is new. For a moment dispatchers still know the old one: until it is over, sends would
-- only be refused again.
create or replace function autopost.forgive_credential(
    p_workspace_id text, p_operator text, p_platform text, p_auth_ref text, p_now timestamptz default now())
returns setof text
language sql volatile as $$
    select autopost.forgive_channels(p_workspace_id, p_operator, 'a new token', array(
        select c.channel_id from autopost.channels c
        left join autopost.channel_auth a on a.workspace_id = c.workspace_id and a.channel_id = c.channel_id
        where c.workspace_id = p_workspace_id and c.platform = p_platform and coalesce(a.auth_ref, c.auth_ref) = p_auth_ref),
        p_now + autopost.token_grace(), p_now)
$$;
