-- Channels and groups, by hand (the specification's runbook, 5 to 8). What is claimed goes back at once: the begin would refuse it.

-- For a while: nothing of it begins, pushes go on filling its queue.
create or replace function autopost.pause_channel(
    p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_for interval, p_now timestamptz default null)
returns timestamptz
language plpgsql as $$
declare
    moment timestamptz;
begin
    perform from autopost.channels c where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id for no key update;
    perform autopost.require_channels(found, format('no channel %s', p_channel_id), p_workspace_id);
    moment := coalesce(p_now, clock_timestamp());
    update autopost.channels c set paused_until = moment + p_for, updated_at = moment
    where c.workspace_id = p_workspace_id and c.channel_id = p_channel_id;
    perform autopost.release_claims(p_workspace_id, array[p_channel_id], 'channel_paused', moment);
    perform autopost.note_channels(p_workspace_id, array[p_channel_id], 'channel_paused',
        jsonb_build_object('operator', p_operator, 'reason', core.redact_text(p_reason), 'manual', true), moment);
    return moment + p_for;
end $$;

-- Whatever stopped it, a person or its refusals, is over.
create or replace function autopost.resume_channel(
    p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_now timestamptz default null) returns setof text
language sql volatile as $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, p_channel_id, null, null, true, p_now)
$$;

-- Until somebody resumes it; posts pass it by.
create or replace function autopost.disable_channel(
    p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_now timestamptz default null) returns setof text
language sql volatile as $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, p_channel_id, null, null, false, p_now)
$$;

-- All channels of a rate group, of every platform that has one of this name unless p_platform says which.
create or replace function autopost.disable_group(
    p_workspace_id text, p_operator text, p_reason text, p_rate_group text, p_platform text default null, p_now timestamptz default null)
returns setof text
language sql volatile as $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, null, p_rate_group, p_platform, false, p_now)
$$;

create or replace function autopost.enable_group(
    p_workspace_id text, p_operator text, p_reason text, p_rate_group text, p_platform text default null, p_now timestamptz default null)
returns setof text
language sql volatile as $$
    select autopost.switch_channels(p_workspace_id, p_operator, p_reason, null, p_rate_group, p_platform, true, p_now)
$$;

-- One channel, or those of a group, on or off; returns which.
create or replace function autopost.switch_channels(
    p_workspace_id text, p_operator text, p_reason text, p_channel_id text, p_rate_group text, p_platform text, p_on boolean,
    p_now timestamptz) returns setof text
language plpgsql as $$
declare
    chosen constant text[] := array(
        select c.channel_id from autopost.channels c
        where c.workspace_id = p_workspace_id and (p_channel_id is null or c.channel_id = p_channel_id)
          and (p_rate_group is null or c.rate_group = p_rate_group) and (p_platform is null or c.platform = p_platform)
        order by c.channel_id for no key update);
    moment constant timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform autopost.require_channels(chosen <> '{}', case
        when p_channel_id is null then format('no channel of group %s', p_rate_group) else format('no channel %s', p_channel_id) end,
        p_workspace_id);
    update autopost.channels c
    set enabled = p_on, updated_at = moment,
        paused_until = case when p_on then null else c.paused_until end, error_streak = case when p_on then 0 else c.error_streak end
    where c.workspace_id = p_workspace_id and c.channel_id = any (chosen);
    if not p_on then
        perform autopost.release_claims(p_workspace_id, chosen, 'channel_disabled', moment);
    end if;
    perform autopost.note_channels(p_workspace_id, chosen, case when p_on then 'channel_enabled' else 'channel_disabled' end,
        jsonb_strip_nulls(jsonb_build_object('operator', p_operator, 'reason', core.redact_text(p_reason), 'rate_group', p_rate_group, 'manual', true)), moment);
    return query select unnest(chosen);
end $$;

create or replace function autopost.require_channels(p_found boolean, p_what text, p_workspace_id text) returns void
language plpgsql immutable as $$
begin
    if not p_found then
        raise exception '% in workspace %', p_what, p_workspace_id using errcode = 'VN001';
    end if;
end $$;

create or replace function autopost.note_channels(
    p_workspace_id text, p_channel_ids text[], p_action text, p_meta jsonb, p_now timestamptz) returns void
language sql volatile as $$
    insert into autopost.events (workspace_id, id, channel_id, ts, action, meta)
    select p_workspace_id, core.uuid7(p_now), c, p_now, p_action, p_meta from unnest(p_channel_ids) c
$$;
