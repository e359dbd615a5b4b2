-- Events by day. The default partition takes what no day is ready for, so no write can ever fail for lack of one.

-- Make the days from yesterday to p_ahead days on. Several processes may call at once: one works, the others leave.
-- Returns how many were made. The caller sets lock_timeout and tries again: a long reader must not hold up the writers.
create or replace function autopost.ensure_event_partitions(p_now timestamptz default now(), p_ahead integer default 14) returns integer
language plpgsql as $$
declare
    today constant date := (p_now at time zone 'UTC')::date;
    day date;
    made integer := 0;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('autopost.ensure_event_partitions', 7)) then
        return 0;
    end if;
    for day in select generate_series(today - 1, today + p_ahead, interval '1 day')::date loop
        if to_regclass(format('autopost.events_%s', to_char(day, 'YYYYMMDD'))) is null
           and not exists (select from autopost.events_default e
                           where e.ts >= day::timestamp at time zone 'UTC' and e.ts < (day + 1)::timestamp at time zone 'UTC') then
            execute format('create table autopost.events_%s partition of autopost.events for values from (%L) to (%L)',
                to_char(day, 'YYYYMMDD'), day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
            made := made + 1;
        end if;
    end loop;
    return made;
end $$;

-- Give each day that sits in the default partition a partition of its own. For a person to call: it moves rows.
create or replace function autopost.drain_default_partition() returns bigint
language plpgsql as $$
declare
    day date;
    name text;
    moved bigint := 0;
    n bigint;
begin
    for day in select distinct (e.ts at time zone 'UTC')::date from autopost.events_default e loop
        name := format('events_%s', to_char(day, 'YYYYMMDD'));
        execute format('create table autopost.%I (like autopost.events including defaults including constraints)', name);
        execute format('with gone as (delete from autopost.events_default where ts >= %L and ts < %L returning *)
                        insert into autopost.%I select * from gone',
                       day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC', name);
        get diagnostics n = row_count;
        moved := moved + n;
        execute format('alter table autopost.events attach partition autopost.%I for values from (%L) to (%L)',
                       name, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
    end loop;
    return moved;
end $$;
