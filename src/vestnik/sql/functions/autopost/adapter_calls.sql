-- Calls of an adapter over HTTP: the same call again gets the answer of the first, and is not sent again.

-- 'yours': send it, and say what came of it before taken_until; 'under_way': somebody does; 'answered': it was sent. What is
-- older than two days is forgotten as others come.
create or replace function autopost.take_call(
    p_workspace_id text, p_idempotency_key text, p_lease interval, p_now timestamptz default now())
returns table (state text, answer jsonb, taken_until timestamptz)
language plpgsql as $$
#variable_conflict use_column
begin
    delete from autopost.adapter_answers a where (a.workspace_id, a.idempotency_key) in (
        select x.workspace_id, x.idempotency_key from autopost.adapter_answers x
        where x.workspace_id = p_workspace_id and x.created_at < p_now - interval '2 days'
        order by x.created_at limit 10 for no key update skip locked);
    loop
        return query
        insert into autopost.adapter_answers as a (workspace_id, idempotency_key, taken_until, created_at)
        values (p_workspace_id, p_idempotency_key, p_now + p_lease, p_now)
        on conflict (workspace_id, idempotency_key) do update set taken_until = excluded.taken_until, created_at = excluded.created_at
        where a.answer is null and a.taken_until <= p_now
        returning 'yours', a.answer, a.taken_until;
        exit when found;
        return query
        select case when a.answer is null then 'under_way' else 'answered' end, a.answer, a.taken_until
        from autopost.adapter_answers a
        where a.workspace_id = p_workspace_id and a.idempotency_key = p_idempotency_key;
        exit when found;  -- else the call that was under way has failed just now: nobody has it any more
    end loop;
end $$;

-- p_answer null: it did not go out, and may be tried again.
create or replace function autopost.put_call(
    p_workspace_id text, p_idempotency_key text, p_taken_until timestamptz, p_answer jsonb) returns boolean
language plpgsql as $$
begin
    if p_answer is null then
        delete from autopost.adapter_answers a where a.workspace_id = p_workspace_id and a.idempotency_key = p_idempotency_key
          and a.taken_until = p_taken_until and a.answer is null;
    else
        update autopost.adapter_answers a set answer = p_answer
        where a.workspace_id = p_workspace_id and a.idempotency_key = p_idempotency_key and a.answer is null;
    end if;
    return found;
end $$;
