-- Posting windows: when a channel is open, by the clock on the wall of its zone.
-- A window that begins in an hour which the clock skips opens at the first moment after it; in an hour that comes twice it is
-- open both times. Every answer follows from one question, whether the time that the wall shows lies in a window.

-- Null when the window can be kept, else what is wrong with it or with the zone, in words for a person.
create or replace function autopost.window_problem(p_window jsonb, p_timezone text) returns text
language sql stable as $$
    select coalesce(
        case when p_window is null then 'posting_window: a windowed channel needs one'
             when jsonb_typeof(p_window) <> 'object'
             then 'posting_window: must name days and their windows, as {"mon": [["09:00", "18:00"]]}'
             else coalesce(autopost.window_names_problem(p_window), autopost.window_times_problem(p_window)) end,
        autopost.timezone_problem(p_timezone))
$$;

-- An unreadable window or zone is a closed one: window_problem says why, and no claim dies of it.
create or replace function autopost.window_open(p_window jsonb, p_timezone text, p_at timestamptz) returns boolean
language plpgsql stable as $$
declare
    wall timestamp;
begin
    wall := p_at at time zone coalesce(p_timezone, 'UTC');
    return coalesce(autopost.open_hours(p_window, wall::date - 1, wall::date) @> wall, false);
exception when data_exception then
    return false;
end $$;

-- The first moment from p_at on at which it is open; null when there is none within 400 days.
create or replace function autopost.next_open(p_window jsonb, p_timezone text, p_at timestamptz) returns timestamptz
language sql stable as $$
    select case when autopost.window_open(p_window, p_timezone, p_at) then p_at
                else autopost.window_change(p_window, p_timezone, p_at, true) end
$$;

-- When the window that is open at p_at closes: null when none is, infinity when it stays open for the next 400 days.
create or replace function autopost.window_closes(p_window jsonb, p_timezone text, p_at timestamptz) returns timestamptz
language sql stable as $$
    select case when autopost.window_open(p_window, p_timezone, p_at)
                then coalesce(autopost.window_change(p_window, p_timezone, p_at, false), 'infinity') end
$$;

-- The first moment from p_at on at which it is open (p_open), or at which it is not.
create or replace function autopost.window_change(p_window jsonb, p_timezone text, p_at timestamptz, p_open boolean)
returns timestamptz
language plpgsql stable as $$
declare
    zone constant text := coalesce(p_timezone, 'UTC');
    at timestamptz := p_at;
    steady_until timestamptz;
    wall timestamp;
    stretch tsmultirange;
    hours tsmultirange;
begin
    while isfinite(at) and at < p_at + interval '9600 hours' loop
        steady_until := autopost.clock_steady_until(zone, at);
        wall := at at time zone zone;
        stretch := tsmultirange(tsrange(wall, wall + (steady_until - at)));
        hours := autopost.open_hours(p_window, wall::date - 1, wall::date + 1);
        stretch := case when p_open then stretch * hours else stretch - hours end;
        if not isempty(stretch) then
            return at + (lower(stretch) - wall);
        end if;
        -- Two weeks have shown all that comes again, skipped hours or not: what is left are the days that have a date.
        at := case when at < p_at + interval '360 hours' then steady_until
                   else greatest(steady_until, autopost.before_dated_day(p_window, wall::date - 2)) end;
    end loop;
    return null;
exception when data_exception then
    return null;
end $$;

-- How long the clock runs without a jump, a day at most. Hours, because a day of the session's zone may be longer.
create or replace function autopost.clock_steady_until(p_zone text, p_at timestamptz) returns timestamptz
language plpgsql stable as $$
declare
    shift constant interval := (p_at at time zone p_zone) - (p_at at time zone 'UTC');
    early timestamptz := p_at;
    late timestamptz := p_at + interval '24 hours';
    middle timestamptz;
begin
    if (late at time zone p_zone) - (late at time zone 'UTC') = shift then
        return late;
    end if;
    while late - early > interval '1 microsecond' loop
        middle := early + (late - early) / 2;
        if (middle at time zone p_zone) - (middle at time zone 'UTC') = shift then
            early := middle;
        else
            late := middle;
        end if;
    end loop;
    return late;
end $$;

-- Two days before the first day from p_day on that is named by its date, infinity when there is none.
create or replace function autopost.before_dated_day(p_window jsonb, p_day date) returns timestamptz
language sql stable as $$
    select coalesce(min(d.day)::date::timestamp at time zone 'UTC' - interval '48 hours', 'infinity')
    from jsonb_object_keys(coalesce(p_window -> 'except', '{}')) d (day)
    where d.day >= to_char(p_day, 'YYYY-MM-DD')
$$;

-- The windows that begin on these days. A day that is named by its date has its own and no other: what would reach into it
-- from the day before ends at midnight.
create or replace function autopost.open_hours(p_window jsonb, p_from date, p_to date) returns tsmultirange
language sql stable as $$
    select coalesce(range_agg(tsrange(d.day + w.opens, least(
               d.day + w.closes + case when w.closes <= w.opens then interval '24 hours' else interval '0' end,
               case when p_window -> 'except' ? to_char(d.day + 1, 'YYYY-MM-DD') then (d.day + 1)::timestamp end))), '{}')
    from (select p_from + n as day from generate_series(0, p_to - p_from) n) d,
         lateral (select (w ->> 0)::time as opens, (w ->> 1)::time as closes
                  from jsonb_array_elements(autopost.windows_of_day(p_window, d.day)) w) w
    -- A range without an end would be open for ever.
    where w.opens is not null and w.closes is not null
$$;

create or replace function autopost.windows_of_day(p_window jsonb, p_day date) returns jsonb
language sql stable as $$
    select coalesce(p_window -> 'except' -> to_char(p_day, 'YYYY-MM-DD'),
                    p_window -> ('{mon,tue,wed,thu,fri,sat,sun}'::text[])[extract(isodow from p_day)::integer],
                    p_window -> case when extract(isodow from p_day) < 6 then 'weekdays' else 'weekend' end,
                    p_window -> 'daily', '[]')
$$;

-- Are the days ones that there are?
create or replace function autopost.window_names_problem(p_window jsonb) returns text
language sql stable as $$
    select coalesce(
        (select format('posting_window: unknown day %s; known are mon, tue, wed, thu, fri, sat, sun, weekdays, weekend, daily, except',
                       to_json(left(min(d.day), 32)))
         from jsonb_object_keys(p_window) d (day)
         where d.day <> all ('{mon,tue,wed,thu,fri,sat,sun,weekdays,weekend,daily,except}')
         having count(*) > 0),
        case when not p_window ? 'except' then null
             when jsonb_typeof(p_window -> 'except') <> 'object'
             then 'posting_window.except: must name dates and their windows, as {"2027-01-01": []}'
             else (select case when count(*) > 1000 then 'posting_window.except: at most 1000 dates'
                               else 'posting_window.except: ' || to_json(left(min(d.day) filter (where not autopost.is_date(d.day)), 32))
                                    || ' is not a date; write it as 2027-01-31' end
                   from jsonb_object_keys(p_window -> 'except') d (day)) end)
$$;

create or replace function autopost.is_date(p_text text) returns boolean
language sql stable as $$
    select p_text ~ '^\d{4}-\d\d-\d\d$' and pg_input_is_valid(p_text, 'date')
$$;

-- The days are known; is there a time to be open, and can it be read?
create or replace function autopost.window_times_problem(p_window jsonb) returns text
language sql stable as $$
    select coalesce(
        (select format('posting_window.%s: %s', d.place, t.problem)
         from (select key as place, value from jsonb_each(p_window - 'except')
               union all
               select 'except.' || key, value from jsonb_each(coalesce(p_window -> 'except', '{}'))) d,
              lateral (select autopost.day_problem(d.value) as problem offset 0) t
         where t.problem is not null order by d.place limit 1),
        case when not exists (select from generate_series(0, 6) n
                              where autopost.windows_of_day(p_window - 'except', date '2027-01-04' + n) <> '[]')
              and not jsonb_path_exists(p_window, '$.except.*[*]')
             then 'posting_window: never opens' end)
$$;

create or replace function autopost.day_problem(p_windows jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when jsonb_typeof(p_windows) <> 'array' then 'must be a list of windows, as [["09:00", "18:00"]]'
        when jsonb_array_length(p_windows) > 48 then 'at most 48 windows a day'
        else (select autopost.one_window_problem(w) from jsonb_array_elements(p_windows) with ordinality x (w, n)
              where autopost.one_window_problem(w) is not null order by n limit 1) end
$$;

create or replace function autopost.one_window_problem(p_window jsonb) returns text
language sql immutable parallel safe as $$
    select case
        when jsonb_path_exists(p_window, '$[*] ? (@.type() == "number")')
            then format('%s is a number, not a time; put times in quotes, as "12:30"',
                        left(jsonb_path_query_first(p_window, '$[*] ? (@.type() == "number")')::text, 32))
        when jsonb_typeof(p_window) <> 'array' or jsonb_array_length(p_window) <> 2
            then 'each window is a list of its own, from and to, as [["09:00", "18:00"]]'
        when p_window ->> 0 !~ '^([01]\d|2[0-3]):[0-5]\d$' or jsonb_typeof(p_window -> 0) <> 'string'
            then format('%s is not a time to open; write it as "09:00"', left((p_window -> 0)::text, 32))
        when p_window ->> 1 !~ '^(([01]\d|2[0-3]):[0-5]\d|24:00)$' or jsonb_typeof(p_window -> 1) <> 'string'
            then format('%s is not a time to close; write it as "18:00"', left((p_window -> 1)::text, 32))
        when p_window -> 0 = p_window -> 1
            then format('opens and closes at %s; the whole day is ["00:00", "24:00"]', p_window ->> 0) end
$$;

-- Only full names: an abbreviation means several zones or half a year, and of a made-up name PostgreSQL makes a zone of its own.
create or replace function autopost.timezone_problem(p_timezone text) returns text
language sql stable as $$
    select case when p_timezone is null or p_timezone in ('UTC', 'GMT') then null else (
        select case when bool_or(z.name = p_timezone) then null else format('timezone: %s is not a zone of the IANA database; %s',
                   to_json(left(p_timezone, 64)), coalesce('did you mean ' || min(z.name) || '?', 'write it as Europe/Moscow')) end
        from pg_catalog.pg_timezone_names z
        where z.name like '%/%' and z.name !~ '^(posix|right)/'
          and lower(replace(p_timezone, ' ', '_')) in (lower(z.name), lower(regexp_replace(z.name, '^.*/', '')))) end
$$;
