-- The rules of a workspace: one row, with the specification's defaults, made when it is first asked for.

create or replace function autopost.policy_of(p_workspace_id text) returns autopost.policies
language plpgsql as $$
declare
    policy autopost.policies;
begin
    select * into policy from autopost.policies p where p.workspace_id = p_workspace_id;
    if not found then
        insert into autopost.policies (workspace_id) values (p_workspace_id) on conflict do nothing;
        select * into policy from autopost.policies p where p.workspace_id = p_workspace_id;
    end if;
    return policy;
end $$;

-- 1/rate as an interval; null where the rate is null or 0, which means: no limit. Rounded up: an interval has whole
-- microseconds, and four begins at 3 a second must not fit into 0.999999 s. A century is as good as never, and no date is
-- too far away for it.
create or replace function autopost.step_of(p_rate_rps double precision) returns interval
language sql immutable parallel safe as $$
    select case when p_rate_rps > 0 then make_interval(secs => least(ceil(1e6 / p_rate_rps) / 1e6, 3155760000)) end
$$;

-- How far back a channel looks for what it has sent. "For ever" is written as any large number; a century will do.
create or replace function autopost.dedup_window(p_hours integer) returns interval
language sql immutable strict parallel safe as $$
    select make_interval(hours => least(p_hours, 876600))
$$;
