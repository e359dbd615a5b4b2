-- Ground that every capability stands on.

-- Time-ordered ids keep inserts at the right edge of every index. PostgreSQL 18 makes them itself, ten times faster.
do $do$
begin
    if current_setting('server_version_num')::integer >= 180000 then
        create or replace function core.uuid7(p_ts timestamptz) returns uuid
        language sql volatile parallel safe as $$ select uuidv7(p_ts - clock_timestamp()) $$;
    else
        create or replace function core.uuid7(p_ts timestamptz) returns uuid
        language sql volatile parallel safe as $$
            select encode(set_byte(overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from p_ts) * 1000)::bigint) from 3) from 1 for 6),
                6, 112 + floor(random() * 16)::integer), 'hex')::uuid $$;
    end if;
end $do$;

-- Ids for the rows of one statement: one random base, and the row's number in its last 32 bits. A strong random number per
-- row would cost more than writing the row.
create or replace function core.nth_uuid(p_base uuid, p_n bigint) returns uuid
language sql immutable strict parallel safe as $$
    select encode(overlay(uuid_send(p_base) placing int4send(p_n::integer) from 13), 'hex')::uuid
$$;

create or replace function core.sha256_hex(p_text text) returns text
language plpgsql immutable strict parallel safe as $$
begin
    -- Not inlined either way (convert_to is only stable), and an expression of plpgsql starts no executor.
    return encode(sha256(convert_to(p_text, 'UTF8')), 'hex');
end $$;
