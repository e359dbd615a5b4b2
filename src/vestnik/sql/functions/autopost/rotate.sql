-- Another credential for a channel (the specification's runbook, 9). Sends under way end with the old one, and none begins
-- between the last of them and the switch: drain_channel while something is being sent, switch_auth until it is done,
-- end_drain when it is given up. Nothing under way needs no drain.

create or replace function autopost.auth_of(p_channel autopost.channels) returns text
language sql stable as $$
    select coalesce((select a.auth_ref from autopost.channel_auth a
                     where a.workspace_id = p_channel.workspace_id and a.channel_id = p_channel.channel_id), p_channel.auth_ref)
$$;

create or replace function autopost.channels_with_auth(p_workspace_id text, p_auth_ref text, p_platform text default null) returns setof text
language sql stable as $$
    select c.channel_id from autopost.channels c
    where c.workspace_id = p_workspace_id and autopost.auth_of(c) = p_auth_ref and (p_platform is null or c.platform = p_platform)
    order by c.channel_id
$$;

-- A pause that ends by itself, should nobody come back to end it. A channel that is paused for longer stays as it is:
-- then drained_until is null, for there is nothing to end.
create or replace function autopost.drain_channel(
    p_workspace_id text, p_operator text, p_channel_id text, p_for interval default '2 minutes', p_now timestamptz default null,
    out drained_until timestamptz, out paused_before timestamptz)
language plpgsql as $$
declare
    moment timestamptz;
begin
    select c.paused_until into paused_before from autopost.channels c
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    perform autopost.require_channels(found, format('no channel %s', p_channel_id), p_workspace_id);
    moment := coalesce(p_now, clock_timestamp());
    if coalesce(paused_before, '-infinity') < moment + p_for then
        drained_until := autopost.pause_channel(p_workspace_id, p_operator, 'its credential is being rotated', p_channel_id, p_for, moment);
    end if;
end $$;

-- Ends the pause that drain_channel made, and no other: an earlier one that is not over goes on.
create or replace function autopost.end_drain(
    p_workspace_id text, p_operator text, p_channel_id text, p_drained_until timestamptz, p_paused_before timestamptz default null,
    p_now timestamptz default null) returns boolean
language plpgsql as $$
declare
    moment timestamptz;
begin
    perform from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    moment := coalesce(p_now, clock_timestamp());
    update autopost.channels c
    set paused_until = case when p_paused_before > moment then p_paused_before end, updated_at = moment
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id and c.paused_until = p_drained_until;
    if not found then
        return false;
    end if;
    perform autopost.note_channels(p_workspace_id, array[p_channel_id], 'channel_enabled', jsonb_build_object(
        'operator', p_operator, 'reason', 'its credential is no longer being rotated', 'manual', true), moment);
    return true;
end $$;

-- 'rotated', 'unchanged' (it has that credential), or 'sending': refused, and how many are under way. A begin holds the row of
-- the channel, so under its lock their number is final. What the old credential was refused for does not hold the channel
-- back any more, as when it is declared anew. A new group throttles as the old one did until somebody says otherwise.
create or replace function autopost.switch_auth(
    p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_new_auth_ref text, p_new_rate_group text default null,
    p_drained_until timestamptz default null, p_paused_before timestamptz default null, p_now timestamptz default null,
    out outcome text, out old_auth_ref text, out sending integer)
language plpgsql as $$
declare
    channel autopost.channels := autopost.lock_for_rotation(p_workspace_id, p_channel_id, p_new_auth_ref, p_new_rate_group);
    moment constant timestamptz := coalesce(p_now, clock_timestamp());
begin
    old_auth_ref := autopost.auth_of(channel);
    select count(*) into sending from autopost.deliveries d
    where d.workspace_id = p_workspace_id and d.channel_id = p_channel_id and d.status = 'sending';
    if sending > 0 then
        outcome := 'sending';
        return;
    end if;
    outcome := case when old_auth_ref = p_new_auth_ref and channel.rate_group = coalesce(p_new_rate_group, channel.rate_group)
                    then 'unchanged' else 'rotated' end;
    if outcome = 'rotated' then
        insert into autopost.channel_auth as a (workspace_id, channel_id, auth_ref, rotated_at, updated_at)
        values (p_workspace_id, p_channel_id, p_new_auth_ref, moment, moment)
        on conflict (workspace_id, channel_id)
        do update set auth_ref = excluded.auth_ref, rotated_at = excluded.rotated_at, updated_at = excluded.updated_at;
        update autopost.channels c
        set auth_ref = p_new_auth_ref, rate_group = coalesce(p_new_rate_group, c.rate_group), updated_at = moment
        where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
        perform autopost.note_channels(p_workspace_id, array[p_channel_id], 'auth_rotated', jsonb_strip_nulls(jsonb_build_object(
            'operator', p_operator, 'reason', core.redact_text(p_reason), 'old_auth_ref', old_auth_ref, 'new_auth_ref', p_new_auth_ref,
            'rate_group', p_new_rate_group)), moment);
    end if;
    perform autopost.end_drain(p_workspace_id, p_operator, p_channel_id, p_drained_until, p_paused_before, moment);
    if outcome = 'rotated' then
        perform autopost.forgive_channels(p_workspace_id, p_operator, 'another auth_ref', array[p_channel_id], moment, moment);
    end if;
end $$;

-- Both groups, then the channel: a claim that has begun with the old ones is waited for.
create or replace function autopost.lock_for_rotation(
    p_workspace_id text, p_channel_id text, p_new_auth_ref text, p_new_rate_group text) returns autopost.channels
language plpgsql as $$
declare
    channel autopost.channels;
begin
    select * into channel from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
    perform autopost.require_channels(found, format('no channel %s', p_channel_id), p_workspace_id);
    insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps)
    select p_workspace_id, channel.platform, p_new_rate_group, (
        select g.rate_rps from autopost.platform_limits g where g.workspace_id = p_workspace_id and g.platform = channel.platform
        and g.rate_group = channel.rate_group)
    where p_new_rate_group is not null
    on conflict do nothing;
    perform from autopost.platform_limits g
    where g.workspace_id = p_workspace_id and g.platform = channel.platform and g.rate_group in (channel.rate_group, p_new_rate_group)
    order by g.platform, g.rate_group for no key update;
    select * into channel from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    perform autopost.require_credential(p_workspace_id, array[p_channel_id], p_new_auth_ref);
    return channel;
end $$;

-- That there are all these channels, and for each of them this credential.
create or replace function autopost.require_credential(p_workspace_id text, p_channel_ids text[], p_auth_ref text) returns void
language plpgsql stable as $$
declare
    missing text;
begin
    select case when c.channel_id is null then format('no channel %s', x) else format('no %s credential %s', c.platform, p_auth_ref) end
    into missing
    from unnest(p_channel_ids) x
    left join autopost.channels c on c.workspace_id = p_workspace_id and c.channel_id = x
    left join core.credential_bindings b on b.workspace_id = p_workspace_id and b.platform = c.platform
        and b.auth_ref = p_auth_ref and b.secret is not null
    where b.auth_ref is null order by x limit 1;
    perform autopost.require_channels(missing is null, missing, p_workspace_id);
end $$;
