-- The transition guard: any move of a delivery that is in neither table is an error, whoever asks for it.
-- Not installed where deliveries is distributed; there the functions alone keep the rule (ARCHITECTURE, Scale).

create or replace function autopost.forbid_move() returns trigger
language plpgsql as $$
begin
    raise exception 'illegal move of delivery %: % -> %', old.delivery_id, old.status, new.status
        using errcode = 'VM001', hint = 'docs/reference/delivery-states.md lists the moves there are';
end $$;

-- AFTER, because a BEFORE trigger locks each row once more before it is updated, and logs that.
create or replace trigger deliveries_guard after update of status on autopost.deliveries
for each row when (
    old.status is distinct from new.status
    and (old.status || '>' || new.status) <> all (array[
        -- the specification's
        'queued>claimed', 'retry>claimed', 'claimed>sending', 'sending>sent', 'claimed>queued', 'claimed>retry',
        'sending>retry', 'queued>failed_permanent', 'retry>failed_permanent', 'sending>failed_permanent',
        'queued>deduped', 'retry>deduped',
        'queued>dead', 'claimed>dead', 'sending>dead', 'retry>dead', 'sent>dead', 'deduped>dead', 'failed_permanent>dead',
        -- an operator's: requeue
        'dead>retry', 'failed_permanent>retry'])
    -- claim and begin in one step (begin_unpaced): only with everything that both write
    and not (new.status = 'sending' and old.status in ('queued', 'retry')
             and new.attempt = old.attempt + 1 and new.lease = old.lease + 1
             and coalesce(new.claimed_at = new.sending_started_at, false) and new.claim_token is not null)
    -- a success that comes after its lease was swept, or an operator's confirmation of a held row
    and not (new.status = 'sent' and old.status in ('retry', 'queued', 'claimed')
             and old.attempt > 0 and new.sent_at is not null)
)
execute function autopost.forbid_move();
