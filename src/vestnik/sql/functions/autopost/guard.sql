-- The transition guard: any move of a delivery that is in neither table is an error, whoever asks for it.
-- Not installed where deliveries is distributed; there the functions keep the rule, and the live proof (proof.sql), which reads
-- the same tables.

-- The moves that need nothing but a new status.
create or replace function autopost.free_moves() returns text[]
language sql immutable parallel safe as $$
    select array[
        -- the specification's
        'queued>claimed', 'retry>claimed', 'claimed>sending', 'sending>sent', 'claimed>queued', 'claimed>retry',
        'sending>retry', 'queued>failed_permanent', 'retry>failed_permanent', 'sending>failed_permanent',
        'queued>deduped', 'retry>deduped',
        'queued>dead', 'claimed>dead', 'sending>dead', 'retry>dead', 'sent>dead', 'deduped>dead', 'failed_permanent>dead',
        -- an operator's: requeue
        'dead>retry', 'failed_permanent>retry']
$$;

-- Claim and begin in one step (begin_unpaced): only with everything that both write.
create or replace function autopost.moves_at_once() returns text[]
language sql immutable parallel safe as $$ select array['queued>sending', 'retry>sending'] $$;

-- A success that comes after its lease was swept, or an operator's confirmation of a held row: only of what was begun.
create or replace function autopost.late_moves() returns text[]
language sql immutable parallel safe as $$ select array['retry>sent', 'queued>sent', 'claimed>sent'] $$;

-- Which event tells of which move, and of those of one moment which comes first. What is claimed shows in no event, so it
-- stands here as queued or retry; null: it tells of no move. test_states.py holds this table against the moves above.
create or replace function autopost.told_moves()
returns table (action text, from_statuses text[], to_status text, place integer)
language sql immutable parallel safe as $$
    values ('enqueue', '{}'::text[], 'queued', 0),
           ('send_attempt', '{queued,retry}', 'sending', 1),
           ('sending_lease_expired', '{sending}', 'retry', 2),
           ('confirmed', '{retry}', 'retry', 3),
           ('held', '{sending,retry}', 'retry', 4),
           ('retry_scheduled', '{sending}', 'retry', 4),
           ('claim_released', '{queued,retry}', 'queued', 4),
           ('claimed_lease_expired', '{queued,retry}', 'queued', 4),
           ('manual_requeue', '{queued,retry,sending,dead,failed_permanent}', 'retry', 4),
           ('sent', '{sending,retry,queued}', 'sent', 5),
           ('failed_permanent', '{sending,queued}', 'failed_permanent', 5),
           ('validation_failed', '{queued,retry}', 'failed_permanent', 5),
           ('cancelled', '{queued,retry}', 'failed_permanent', 5),
           ('dedup_suppressed', '{queued,retry}', 'deduped', 5),
           ('dead_letter', '{queued,sending,retry,sent,deduped,failed_permanent}', 'dead', 6)
$$;

create or replace function autopost.forbid_move() returns trigger
language plpgsql as $$
begin
    raise exception 'illegal move of delivery %: % -> %', old.delivery_id, old.status, new.status
        using errcode = 'VM001', hint = 'docs/reference/delivery-states.md lists the moves there are';
end $$;

-- AFTER, because a BEFORE trigger locks each row once more before it is updated, and logs that. The tables are written into the
-- condition: it depends on no function, so that these can be dropped and made anew.
do $do$
begin
    execute format($guard$
        create or replace trigger deliveries_guard after update of status on autopost.deliveries
        for each row when (
            old.status is distinct from new.status
            and (old.status || '>' || new.status) <> all (%L::text[])
            and not ((old.status || '>' || new.status) = any (%L::text[])
                     and new.attempt = old.attempt + 1 and new.lease = old.lease + 1
                     and coalesce(new.claimed_at = new.sending_started_at, false) and new.claim_token is not null)
            and not ((old.status || '>' || new.status) = any (%L::text[])
                     and old.attempt > 0 and new.sent_at is not null)
        )
        execute function autopost.forbid_move()$guard$,
        autopost.free_moves(), autopost.moves_at_once(), autopost.late_moves());
end $do$;
