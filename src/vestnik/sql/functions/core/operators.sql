-- Operators: who they are, what each may do where, and how a guesser of passwords is slowed down.

-- What an operator may do in a workspace ('*': in the service itself); empty where there is no such workspace. A role on '*'
-- counts everywhere.
create or replace function core.roles_of(p_workspace_id text, p_login text) returns text[]
language sql stable as $$
    select coalesce(array_agg(distinct r.role order by r.role), '{}')
    from core.operator_roles r
    join core.operators o on o.login = r.login and o.disabled_at is null
    where r.login = p_login and r.workspace_id in (p_workspace_id, '*')
      and (p_workspace_id = '*' or exists (select from core.workspaces w where w.workspace_id = p_workspace_id))
$$;

-- One rank a workspace: the new one takes the old one's place. security stands beside it.
create or replace function core.grant_role(
    p_workspace_id text, p_actor text, p_login text, p_role text, p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    perform core.require_operator(p_workspace_id, p_login);
    if exists (select from core.operator_roles r
               where r.workspace_id = p_workspace_id and r.login = p_login and r.role = p_role) then
        return false;
    end if;
    delete from core.operator_roles r
    where r.workspace_id = p_workspace_id and r.login = p_login and p_role <> 'security' and r.role <> 'security';
    insert into core.operator_roles (workspace_id, login, role, granted_at) values (p_workspace_id, p_login, p_role, p_now);
    perform core.note_change(p_workspace_id, p_actor, 'role_granted', 'operator ' || p_login, jsonb_build_object('role', p_role), p_now);
    return true;
end $$;

create or replace function core.take_role(
    p_workspace_id text, p_actor text, p_login text, p_role text, p_now timestamptz default now()) returns boolean
language plpgsql as $$
begin
    perform core.require_operator(p_workspace_id, p_login);
    delete from core.operator_roles r where r.workspace_id = p_workspace_id and r.login = p_login and r.role = p_role;
    if found then
        perform core.note_change(p_workspace_id, p_actor, 'role_taken', 'operator ' || p_login, jsonb_build_object('role', p_role), p_now);
    end if;
    return found;
end $$;

-- Locks the operator: two grants at once come one after the other.
create or replace function core.require_operator(p_workspace_id text, p_login text) returns void
language plpgsql as $$
begin
    perform from core.operators o where o.login = p_login for no key update;
    if not found then
        raise exception 'no operator %', p_login using errcode = 'VN001';
    end if;
    if p_workspace_id <> '*' and not exists (select from core.workspaces w where w.workspace_id = p_workspace_id) then
        raise exception 'no workspace %', p_workspace_id using errcode = 'VN001';
    end if;
end $$;

-- Shut out, or let in again. Who is shut out loses all sessions.
create or replace function core.set_operator_enabled(p_actor text, p_login text, p_enabled boolean, p_now timestamptz default now())
returns boolean
language plpgsql as $$
declare
    changed boolean;
begin
    perform core.require_operator('*', p_login);
    update core.operators o set disabled_at = case when not p_enabled then p_now end, updated_at = p_now
    where o.login = p_login and (o.disabled_at is null) is distinct from p_enabled;
    changed := found;
    if changed and not p_enabled then
        delete from core.operator_sessions s where s.login = p_login;
    end if;
    if changed then
        perform core.note_change('*', p_actor, case when p_enabled then 'operator_enabled' else 'operator_disabled' end,
            'operator ' || p_login, '{}', p_now);
    end if;
    return changed;
end $$;

-- Every session ends with the password that it was begun with.
create or replace function core.set_password(p_actor text, p_login text, p_hash text, p_now timestamptz default now()) returns void
language plpgsql as $$
begin
    perform core.require_operator('*', p_login);
    update core.operators o set password_hash = p_hash, updated_at = p_now where o.login = p_login;
    delete from core.operator_sessions s where s.login = p_login;
    perform core.note_change('*', p_actor, 'password_set', 'operator ' || p_login, '{}', p_now);
end $$;

-- How long a gate stays shut after so many failures: not at all up to what is free, then twice as long each time.
create or replace function core.lock_out(p_failures integer, p_free integer, p_most interval) returns interval
language sql immutable strict parallel safe as $$
    select case when p_failures < p_free then '0'::interval
                else least(make_interval(secs => 2.0 ^ least(p_failures - p_free, 30)), p_most) end
$$;

-- One more try on all of these subjects, each with its own patience. It counts as a failure until pass_gates says otherwise,
-- so that a thousand tries at once are a thousand. Returns when the last shut gate opens: then nothing was counted. After a
-- quiet hour everything is forgotten. Who was let in at this place of late is asked about the first subject alone: strangers
-- who guess elsewhere, or from behind the same address, must not shut out whom they guess at.
create or replace function core.try_gates(
    p_subjects text[], p_free integer[], p_most interval[], p_now timestamptz default now()) returns timestamptz
language plpgsql as $$
declare
    shut_until timestamptz;
begin
    if core.was_let_in(p_subjects[1], p_now) then
        p_subjects := p_subjects[:1];
        p_free := p_free[:1];
        p_most := p_most[:1];
    end if;
    perform from core.sign_in_gates g where g.subject = any (p_subjects) order by g.subject for no key update;
    select max(g.locked_until) into shut_until from core.sign_in_gates g
    where g.subject = any (p_subjects) and g.locked_until > p_now and g.last_at > p_now - interval '1 hour';
    if shut_until is not null then
        return shut_until;
    end if;
    insert into core.sign_in_gates as g (subject, failures, last_at, locked_until)
    select s.subject, 1, p_now, p_now + core.lock_out(1, s.free, s.most)
    from unnest(p_subjects, p_free, p_most) s (subject, free, most) order by s.subject
    on conflict (subject) do update
    set failures = case when g.last_at > p_now - interval '1 hour' then g.failures + 1 else 1 end, last_at = p_now;
    update core.sign_in_gates g set locked_until = p_now + core.lock_out(g.failures, s.free, s.most)
    from unnest(p_subjects, p_free, p_most) s (subject, free, most)
    where g.subject = s.subject;
    return null;
end $$;

create or replace function core.was_let_in(p_subject text, p_now timestamptz default now()) returns boolean
language sql stable as $$
    select exists (select from core.sign_in_gates g where g.subject = p_subject and g.passed_at > p_now - interval '30 days')
$$;

-- The try was no failure. The first subject is the person at this place: all is forgiven there. The others stand for many, and
-- only a try that counted there is taken back.
create or replace function core.pass_gates(p_subjects text[]) returns void
language plpgsql as $$
begin
    perform from core.sign_in_gates g where g.subject = any (p_subjects) order by g.subject for no key update;
    if not core.was_let_in(p_subjects[1]) then
        update core.sign_in_gates g set failures = greatest(g.failures - 1, 0), locked_until = null
        where g.subject = any (p_subjects[2:]);
    end if;
    update core.sign_in_gates g set failures = 0, locked_until = null, passed_at = now() where g.subject = p_subjects[1];
end $$;

-- What nobody asks for any more; at most so many rows of each.
create or replace function core.prune_sign_ins(p_limit integer default 1000, p_now timestamptz default now()) returns integer
language sql volatile as $$
    with sessions as (
        delete from core.operator_sessions s where s.token_hash in (
            select x.token_hash from core.operator_sessions x where x.expires_at < p_now limit p_limit)
        returning 1
    ), gates as (
        delete from core.sign_in_gates g where g.subject in (
            select x.subject from core.sign_in_gates x
            where x.last_at < p_now - interval '1 day' and (x.passed_at < p_now - interval '30 days') is not false limit p_limit)
        returning 1
    )
    select ((select count(*) from sessions) + (select count(*) from gates))::integer
$$;
