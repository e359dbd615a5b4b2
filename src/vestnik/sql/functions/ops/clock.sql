-- The clock by which what is old is removed: what a wrong one takes does not come back.

-- The time, when it can be believed: it went on by less than two days since it was last believed, or has been as it is
-- for a day, asked about again and again. Null: it jumped, or nobody asked for long; somebody is told meanwhile. Whoever
-- removes asks once and works by what it was told, so a clock that jumps while he works takes nothing either.
create or replace function ops.believed_now(p_workspace_id text default '*', p_now timestamptz default now()) returns timestamptz
language plpgsql as $$
declare
    leap constant interval := '2 days';
    known ops.clock_checks;
begin
    insert into ops.clock_checks (workspace_id, believed_at) values (p_workspace_id, p_now) on conflict do nothing;
    select * into known from ops.clock_checks c where c.workspace_id = p_workspace_id for no key update;
    if p_now > known.believed_at + leap then
        -- What it shows is odd; a jump within the odd time begins that anew.
        if known.odd_since is null or p_now not between known.odd_at and known.odd_at + leap then
            known.odd_since := p_now;
        end if;
        if p_now < known.odd_since + interval '1 day' then
            update ops.clock_checks c set odd_since = known.odd_since, odd_at = p_now where c.workspace_id = p_workspace_id;
            perform ops.put_alert(p_workspace_id, 'clock', '', 'warning', format('the clock went on from %s to %s: nothing old is removed',
                known.believed_at, known.odd_since), jsonb_build_object('from', known.believed_at, 'to', known.odd_since,
                'until', known.odd_since + interval '1 day'), p_now);
            return null;
        end if;
    end if;
    update ops.clock_checks c set believed_at = p_now, odd_since = null, odd_at = null where c.workspace_id = p_workspace_id;
    perform ops.clear_alert(p_workspace_id, 'clock', '', p_now);
    return p_now;
end $$;
