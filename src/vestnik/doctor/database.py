"""Checks of the database as a server: its version, its settings, its room, what holds up its vacuum."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping

from vestnik.db.migrate import OLDEST_SERVER, SEARCH_PATH
from vestnik.doctor.findings import Check, Finding, Looked, Patient, counted, fail, ok, skipped, warn

CONNECTIONS_OF_A_PROCESS = 40  # two pools of 16, and who listens
SMALLEST_BUFFERS = 64 * 1024 * 1024
DAYS_AHEAD = 3
LONG_TRANSACTION, ENDLESS_TRANSACTION = 600, 3600  # seconds
DEAD_ROWS, DEAD_SHARE = 50_000, 0.3
OLD_IDS, WORN_OUT_IDS = 1_000_000_000, 1_800_000_000  # of the two thousand million that there are
SKEW, WILD_SKEW = 1.0, 30.0  # seconds between two clocks


async def version(patient: Patient) -> Looked:
    number = int(await patient.value("select current_setting('server_version_num')"))
    name = await patient.value("select current_setting('server_version')")
    if number < OLDEST_SERVER:
        return fail(f"PostgreSQL {name}; Vestnik needs 16 or newer", "upgrade it, or use the embedded server")
    embedded = await patient.value("select current_setting('vestnik.embedded', true) = 'on'")
    return ok(f"PostgreSQL {name}{', the embedded server' if embedded else ''}")


async def settings(patient: Patient) -> Looked:
    rows = await patient.rows(
        "select name, setting, unit from pg_settings where name = any (%s)",
        [
            *_DURABLE,
            "autovacuum",
            "track_counts",
            "shared_buffers",
            *_LIMITS,
            "TimeZone",
            "default_transaction_read_only",
        ],
    )
    found = list(_wrong_settings({row["name"]: row["setting"] for row in rows}))
    return found or ok("durable, with autovacuum, with limits")


_DURABLE = {
    "fsync": "a crash of the machine may destroy the database",
    "full_page_writes": "a crash of the machine may destroy the database",
    "synchronous_commit": "a post that was acknowledged may be lost in a crash",
}
_LIMITS = ("statement_timeout", "idle_in_transaction_session_timeout")


def _wrong_settings(setting: Mapping[str, str]) -> Iterator[Finding]:
    for name, harm in _DURABLE.items():
        if setting[name] == "off":
            yield fail(f"{name} is off: {harm}", f"alter system set {name} = on, then pg_reload_conf()", subject=name)
    if setting["autovacuum"] == "off" or setting["track_counts"] == "off":
        fix = "alter system set autovacuum = on; alter system set track_counts = on, then pg_reload_conf()"
        yield fail("autovacuum is off: the queue gets slower by the hour", fix, subject="autovacuum")
    if int(setting["shared_buffers"]) * 8192 < SMALLEST_BUFFERS:
        megabytes = int(setting["shared_buffers"]) * 8192 / 2**20
        fix = "alter system set shared_buffers = '256MB', then restart it"
        yield warn(f"shared_buffers is {megabytes:g} MB, too little for a busy queue", fix, subject="shared_buffers")
    for name in _LIMITS:
        if setting[name] == "0":
            fix = f"take {name} out of the options in VESTNIK_DATABASE_URL"
            yield warn(f"{name} is 0: a call that hangs would hang for ever", fix, subject=name)
    if setting["TimeZone"] not in ("UTC", "Etc/UTC", "GMT"):
        fix = "take timezone out of the options in VESTNIK_DATABASE_URL"
        yield warn(f"connections have the timezone {setting['TimeZone']}, not UTC", fix, subject="timezone")
    if setting["default_transaction_read_only"] == "on":
        fix = "alter database … reset default_transaction_read_only; of several hosts: target_session_attrs=read-write"
        yield fail("the database takes no writes by default", fix, subject="default_transaction_read_only")


async def writable(patient: Patient) -> Looked:
    if await patient.value("select pg_is_in_recovery()"):
        fix = "name the primary in VESTNIK_DATABASE_URL, or add target_session_attrs=read-write"
        return fail("this server is a standby", fix)
    return ok("a primary")


async def connections(patient: Patient) -> Looked:
    row = (await patient.rows(
        """select current_setting('max_connections')::integer
                  - current_setting('superuser_reserved_connections')::integer
                  - coalesce(current_setting('reserved_connections', true), '0')::integer as most,
                  (select count(*) from pg_stat_activity where backend_type = 'client backend')::integer as used"""
    ))[0]  # fmt: skip
    left, said = row["most"] - row["used"], f"{row['used']} of {row['most']} connections are in use"
    fix = "alter system set max_connections = 100, then restart it; or fewer processes"
    if left < 3:
        return fail(said, fix)
    if left < CONNECTIONS_OF_A_PROCESS:
        return warn(f"{said}; a process of Vestnik takes up to {CONNECTIONS_OF_A_PROCESS}", fix)
    return ok(said)


async def text(patient: Patient) -> Looked:
    encoding = await patient.value("select getdatabaseencoding()")
    if encoding != "UTF8":
        return fail(f"the encoding is {encoding}", "make a database with encoding 'UTF8' and restore into it")
    if await patient.value("select lower('Ж') <> 'ж' or upper('ё') <> 'Ё'"):
        fix = "make a database with a locale such as C.UTF-8 (template0), and restore into it"
        return fail("lower() does not know Cyrillic: tags would not match", fix)
    return ok("UTF-8, and lower() knows Cyrillic")


async def search_path(patient: Patient) -> Looked:
    found = await patient.value("select current_schemas(false)::text[]")
    if missing := [schema for schema in SEARCH_PATH[:3] if schema not in found]:
        return warn(f"names without a schema do not find {', '.join(missing)}", "vestnik migrate")
    return ok(", ".join(found))


async def partitions(patient: Patient) -> Looked:
    row = (await patient.rows(
        """select (select count(*) from generate_series(1, 30) n where to_regclass(format('autopost.events_%%s',
                      to_char((now() at time zone 'UTC')::date + n::integer, 'YYYYMMDD'))) is not null)::integer as ahead,
                  exists (select from autopost.events_default) as astray"""
    ))[0]  # fmt: skip
    if row["astray"]:
        fix = "vestnik db psql, then: select autopost.drain_default_partition()"
        return warn("events lie in the default partition, where retention does not see them", fix)
    if row["ahead"] < DAYS_AHEAD:
        return warn(
            f"partitions of events are made for {row['ahead']} days ahead", "any role that runs makes them: vestnik up"
        )
    return ok(f"events have their days, {row['ahead']} ahead")


async def clock(patient: Patient) -> Looked:
    skew = min([await _skew(patient) for _ in range(3)], key=abs)
    said = f"the database's clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    if abs(skew) > WILD_SKEW:
        return fail(said, "set up NTP on both")
    return warn(said, "set up NTP on both") if abs(skew) > SKEW else ok("the database's clock and this machine's agree")


async def _skew(patient: Patient) -> float:
    before = time.time()
    told = float(await patient.value("select extract(epoch from clock_timestamp())::float8"))
    return told - (before + time.time()) / 2


async def transactions(patient: Patient) -> Looked:
    """What keeps vacuum from cleaning up: somebody still sees the old rows."""
    rows = await patient.rows(
        """select pid, extract(epoch from clock_timestamp() - xact_start)::integer as seconds,
                  state, coalesce(nullif(application_name, ''), 'no name') as name
           from pg_stat_activity
           where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid()
             and xact_start < clock_timestamp() - make_interval(secs => %s)
           order by xact_start limit 5""",
        LONG_TRANSACTION,
    )
    found = []
    for row in rows:
        said = f"a transaction of {row['name']} (pid {row['pid']}, {row['state']}) is open for {row['seconds'] // 60} minutes"
        worst = fail if row["seconds"] >= ENDLESS_TRANSACTION else warn
        found.append(worst(said, f"end it: select pg_terminate_backend({row['pid']})", subject=f"pid {row['pid']}"))
    return found or ok("no transaction is open for long")


async def xmin(patient: Patient) -> Looked:
    row = (await patient.rows(
        """select age(datfrozenxid)::bigint as age,
                  (select count(*) from pg_prepared_xacts where prepared < now() - interval '10 minutes')::integer as prepared,
                  (select string_agg(slot_name, ', ') from pg_replication_slots where not active) as idle,
                  (select max(greatest(age(xmin), age(catalog_xmin))) from pg_replication_slots)::bigint as held
           from pg_database where datname = current_database()"""
    ))[0]  # fmt: skip
    found = []
    if row["prepared"]:
        fix = "select * from pg_prepared_xacts; then rollback prepared '…'"
        found.append(warn(f"{counted(row['prepared'], 'prepared transaction')} held for more than 10 minutes", fix))
    if row["idle"]:
        fix = "connect its standby again, or: select pg_drop_replication_slot('…')"
        found.append(warn(f"replication slots that nobody reads keep the log and old rows: {row['idle']}", fix))
    if row["age"] > OLD_IDS:
        worst = fail if row["age"] > WORN_OUT_IDS else warn
        found.append(worst(f"transaction ids are {row['age']:,} old; at 2,100,000,000 writes stop", "vacuum (freeze)"))
    held = f", slots hold {row['held']:,} back" if row["held"] else ""
    return found or ok(f"the oldest transaction id is {row['age']:,} back{held}")


async def bloat(patient: Patient) -> Looked:
    rows = await patient.rows(
        """select relname, n_dead_tup as dead, n_live_tup as live, coalesce(last_autovacuum, last_vacuum) as vacuumed
           from pg_stat_user_tables where schemaname in ('autopost', 'ops', 'core')
             and n_dead_tup > %s and n_dead_tup > %s * greatest(n_live_tup, 1) order by n_dead_tup desc limit 10""",
        DEAD_ROWS,
        DEAD_SHARE,
    )
    return [
        warn(
            f"{row['relname']} has {row['dead']:,} dead rows beside {row['live']:,}, vacuumed last"
            f" {row['vacuumed'].strftime('%Y-%m-%d %H:%M') if row['vacuumed'] else 'never'}",
            "is a transaction open for long? Else: vacuum (analyze) it, and give autovacuum more to do at once",
            subject=row["relname"],
        )
        for row in rows
    ] or ok("no table is full of dead rows")


async def statistics(patient: Patient) -> Looked:
    """A table that was filled and never analyzed has bad plans."""
    rows = await patient.rows(
        """select s.relname from pg_stat_user_tables s
           where s.schemaname in ('autopost', 'ops', 'core') and s.n_live_tup > 10000
             and s.last_analyze is null and s.last_autoanalyze is null order by 1 limit 10"""
    )
    if rows:
        names = ", ".join(row["relname"] for row in rows)
        return warn(f"never analyzed: {names}", "vestnik db psql, then: analyze")
    return ok("every table that is filled was analyzed")


async def sizes(patient: Patient) -> Looked:
    query = "select pg_size_pretty(pg_database_size(current_database()))"
    try:
        async with asyncio.timeout(5):
            return ok(f"the database takes {await patient.value(query)}")
    except TimeoutError:
        return skipped("the database has too many files to be counted quickly")


DATABASE = (
    Check("database.version", version),
    Check("database.writable", writable),
    Check("database.settings", settings),
    Check("database.connections", connections),
    Check("database.text", text),
    Check("database.search_path", search_path),
    Check("database.partitions", partitions),
    Check("database.clock", clock),
    Check("database.transactions", transactions),
    Check("database.xmin", xmin),
    Check("database.bloat", bloat),
    Check("database.statistics", statistics),
    Check("database.size", sizes),
)
