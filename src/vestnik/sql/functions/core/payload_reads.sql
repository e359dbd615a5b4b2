-- Who looked stays on record. Not installed where the table is distributed.
create or replace function core.forbid_change() returns trigger
language plpgsql as $$
begin
    raise exception 'the record of who has looked is never changed' using errcode = 'VM001';
end $$;

create or replace trigger payload_reads_stay before update or delete on core.payload_reads
for each row execute function core.forbid_change();
