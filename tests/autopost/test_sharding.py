"""The schema stays one that can be distributed by workspace (ARCHITECTURE, Scale): by the catalog, and by the function texts.

An exception is named here, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from psycopg import AsyncConnection
from psycopg.rows import DictRow

from sql_text import Function, clauses, functions
from vestnik.db.schema_files import read_functions

pytestmark = pytest.mark.pg16

NO_WORKSPACE = {
    "core.schema_migrations": "bookkeeping of the database itself",
    "core.schema_functions": "bookkeeping of the database itself",
    "core.operators": "people, who may work in many workspaces; a reference table when sharded",
    "core.operator_sessions": "of operators",
    "core.sign_in_gates": "of operators, and of those who would be",
}
# Unique without a workspace: small tables that are looked into before the workspace is known; reference tables when sharded.
UNIQUE_EVERYWHERE = {
    "core.api_keys_pkey": "a key is named by its id",
    "core.api_keys_key_hash_key": "a key is found by its hash",
    "autopost.workspace_endpoints_active_secret": "an endpoint is found by its secret",
    "core.operators_pkey": "an operator is named by the login",
    "core.operator_sessions_pkey": "a session is found by its hash",
    "core.sign_in_gates_pkey": "a gate is found by the hash of its subject",
}
TO_REFERENCE_TABLES = {"operator_roles_login_fkey", "operator_sessions_login_fkey"}
NOT_LED_BY_WORKSPACE = {
    "autopost.messages_by_tags": "GIN",
    "autopost.channels_by_tags": "GIN",
    "autopost.messages_by_media": "GIN",
    "autopost.deliveries_by_message": "a message's id is unique everywhere, and a shorter key makes a smaller index",
    "autopost.events_by_delivery": "a delivery's id is unique everywhere, and a shorter key makes a smaller index",
    "autopost.events_by_message": "BRIN: it costs nothing, and a message id is unique everywhere",
    "autopost.ingress_receipts_expired": "the cleanup goes by time; each shard cleans its own",
}
# Functions that move or read rows, and do not begin with the workspace.
OTHER_FIRST_ARGUMENT = {
    "autopost.resolve_endpoint": "finds the workspace",
    "autopost.workspaces_with_work": "asks across workspaces, without a lock",
    "autopost.workspace_place": "the dispatcher's place among the workspaces",
    "autopost.ensure_event_partitions": "makes partitions",
    "autopost.drain_default_partition": "makes partitions",
    "autopost.event_horizon": "asks all workspaces: the days of the log are everybody's",
    "autopost.old_event_days": "names partitions",
    "autopost.drop_event_day": "drops a partition",
    "autopost.days_to_archive": "asks across workspaces, without a lock",
    "autopost.delivery_is_over": "its first argument is a row of the workspace",
    "autopost.handle_is_over": "its first argument is a row of the workspace",
    "autopost.forbid_move": "the guard; not installed on a distributed table",
    "core.forbid_change": "a trigger; not installed on a distributed table",
    "autopost.incoming_posts": "touches no row",
    "core.uuid7": "touches no row",
    "autopost.feed_gates": "its first argument is a row of the workspace",
    "autopost.cool_channel": "its first argument is a row of the workspace",
    "autopost.cool_group": "its first argument is a row of the workspace",
    "autopost.punish_channel": "its first argument is a row of the workspace",
    "autopost.note_delivery": "its first argument is a row of the workspace",
    "autopost.must_hold": "its first argument is a row of the workspace",
    "autopost.patience_of": "its first argument is a row of the workspace",
    "autopost.goes_at": "its first arguments are rows of the workspace",
    "autopost.auth_of": "its first argument is a row of the workspace",
    "autopost.shut_window_opens": "its first argument is a row of the workspace",
    "autopost.how_it_ended": "its first argument is a row of the workspace",
    "autopost.queue_until": "its first argument is a row of the workspace",
    "autopost.disabled_with_group": "its first argument is a row of the workspace",
    "autopost.remedy_for": "touches one workspace: its arguments are rows of it",
} | dict.fromkeys(
    [
        f"autopost.{name}"
        for name in (
            "window_problem", "window_open", "next_open", "window_closes", "window_change", "clock_steady_until",
            "before_dated_day", "open_hours", "windows_of_day", "window_names_problem", "window_times_problem", "is_date",
            "timezone_problem", "is_open", "first_moment",
            "nth_begin", "hours_from", "drain_classes", "has_another_way", "leads_to",
        )
    ],
    "touches no row: stable, because the zones are",
) | {
    "autopost.unwanted_reason": "its first argument is a row of the workspace",
    "ops.end_run": "its first argument is a row of the workspace",
    "ops.note_dead": "its first argument is a row of the workspace",
    "ops.job_problem": "touches no row: stable, because moments are read in the session's time zone",
    "ops.is_moment": "touches no row",
    "ops.schedule_problem": "touches no row",
    "ops.workspaces_with_jobs": "asks across workspaces, without a lock",
    "ops.due_schedules": "asks across workspaces, without a lock",
    "autopost.note_failure": "a trigger; not installed on a distributed table",
    "autopost.failure_data": "its first argument is a row of the workspace",
    "autopost.monitor_service": "of the service: workspace '*'",
    "autopost.check_partitions": "asks whether there is any row of any workspace",
    "core.set_operator_enabled": "operators are of no workspace",
    "core.set_password": "operators are of no workspace",
    "core.try_gates": "operators are of no workspace",
    "core.pass_gates": "operators are of no workspace",
    "core.was_let_in": "operators are of no workspace",
    "core.prune_sign_ins": "operators are of no workspace",
}  # fmt: skip
LOCAL_SETTINGS = {
    "autopost.ingress_admit": "synchronous_commit for its own transaction: where it is lost, only speed is"
}
ROW_LOCKS = {"autopost.sweep_receipts": "for update on receipts, which nothing refers to"}
EDGES = {"core": {"core"}, "ops": {"ops", "core"}, "autopost": {"autopost", "ops", "core"}}

TABLES = """
    select n.nspname || '.' || c.relname as name, c.oid
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any (%s) and c.relkind in ('r', 'p') and not c.relispartition"""


async def rows(db: AsyncConnection[DictRow], query: str) -> list[DictRow]:
    return await (await db.execute(query.encode(), (sorted(EDGES),))).fetchall()


async def columns_of(db: AsyncConnection[DictRow], which: str) -> dict[str, list[str]]:
    """The columns of each index that ``which`` selects, by its name."""
    found = await rows(
        db,
        f"""select t.name, split_part(t.name, '.', 1) || '.' || i.relname as index,
                   array(select coalesce(a.attname, '(expression)') from unnest(x.indkey) with ordinality k (n, place)
                         left join pg_attribute a on a.attrelid = t.oid and a.attnum = k.n
                         where k.place <= x.indnkeyatts order by k.place)::text[] as columns
            from ({TABLES}) t join pg_index x on x.indrelid = t.oid join pg_class i on i.oid = x.indexrelid
            where {which}""",
    )
    return {row["index"]: row["columns"] for row in found}


# The catalog


async def test_every_table_belongs_to_a_workspace(db: AsyncConnection[DictRow]) -> None:
    found = await rows(
        db,
        f"""select t.name from ({TABLES}) t where not exists (
                select from pg_attribute a where a.attrelid = t.oid and a.attname = 'workspace_id' and a.attnotnull)""",
    )
    assert {row["name"] for row in found} == NO_WORKSPACE.keys()


async def test_what_is_unique_is_unique_in_its_workspace(db: AsyncConnection[DictRow]) -> None:
    unique = await columns_of(db, "x.indisunique and t.name not in ('core.schema_migrations', 'core.schema_functions')")
    assert {name for name, columns in unique.items() if "workspace_id" not in columns} == UNIQUE_EVERYWHERE.keys()
    assert len(unique) > 20


async def test_primary_keys_are_led_by_the_workspace(db: AsyncConnection[DictRow]) -> None:
    primary = await columns_of(db, "x.indisprimary")
    others = {name for name, columns in primary.items() if columns[0] != "workspace_id"}
    service = {"core.operators_pkey", "core.operator_sessions_pkey", "core.sign_in_gates_pkey"}
    assert others == {"core.api_keys_pkey", "core.schema_migrations_pkey", "core.schema_functions_pkey"} | service
    assert len(primary) == len(await rows(db, TABLES)), "each table has one"


async def test_other_indexes_are_led_by_the_workspace_too(db: AsyncConnection[DictRow]) -> None:
    plain = await columns_of(db, "not x.indisunique")
    assert {name for name, columns in plain.items() if columns[0] != "workspace_id"} == NOT_LED_BY_WORKSPACE.keys()


async def test_there_is_no_exclusion_constraint_and_no_sequence(db: AsyncConnection[DictRow]) -> None:
    assert (
        await rows(db, f"select from ({TABLES}) t join pg_constraint k on k.conrelid = t.oid where k.contype = 'x'")
        == []
    )
    sequences = (
        "select c.relname from pg_class c where c.relkind = 'S' and c.relnamespace::regnamespace::text = any (%s)"
    )
    assert await rows(db, sequences) == []


async def test_foreign_keys_stay_inside_the_workspace(db: AsyncConnection[DictRow]) -> None:
    found = await rows(
        db,
        f"""select k.conname as name, k.confrelid::regclass::text = any ('{{workspaces,core.workspaces}}') as to_workspaces,
                   (select array_agg(a.attname::text order by u.place) from unnest(k.conkey) with ordinality u (n, place)
                    join pg_attribute a on a.attrelid = k.conrelid and a.attnum = u.n) as here,
                   (select array_agg(a.attname::text order by u.place) from unnest(k.confkey) with ordinality u (n, place)
                    join pg_attribute a on a.attrelid = k.confrelid and a.attnum = u.n) as there
            from ({TABLES}) t join pg_constraint k on k.conrelid = t.oid where k.contype = 'f'""",
    )
    assert len(found) > 10
    for key in found:
        if key["name"] in TO_REFERENCE_TABLES:
            continue
        assert key["here"][0] == key["there"][0] == "workspace_id", key["name"]
        assert len(key["here"]) > 1 or key["to_workspaces"], key["name"]


async def test_events_refer_to_nothing(db: AsyncConnection[DictRow]) -> None:
    query = "select 1 from pg_constraint where contype = 'f' and conrelid = 'autopost.events'::regclass"
    assert await (await db.execute(query)).fetchall() == []


async def test_triggers_are_few_and_for_a_single_node(db: AsyncConnection[DictRow]) -> None:
    found = await rows(
        db, f"select t.name, g.tgname from ({TABLES}) t join pg_trigger g on g.tgrelid = t.oid where not g.tgisinternal"
    )
    assert {(row["name"], row["tgname"]) for row in found} == {
        ("autopost.deliveries", "deliveries_guard"),
        ("autopost.events", "events_failures"),
        ("core.payload_reads", "payload_reads_stay"),
    }


# The texts


def test_no_text_hides_from_these_tests() -> None:
    texts = "".join(file.text for file in read_functions().values())
    assert len(functions()) == texts.count("create or replace function") > 50


async def test_functions_begin_with_their_workspace(db: AsyncConnection[DictRow]) -> None:
    found = await rows(
        db,
        """select p.pronamespace::regnamespace || '.' || p.proname as name from pg_proc p
           where p.pronamespace::regnamespace::text = any (%s) and p.provolatile <> 'i'
             and (coalesce(p.proargnames[1], '') <> 'p_workspace_id' or p.proargtypes[0] <> 'text'::regtype)""",
    )
    assert {row["name"] for row in found} == OTHER_FIRST_ARGUMENT.keys()


def test_locks_are_no_stronger_than_foreign_keys_bear() -> None:
    """KEY SHARE, which every insert of a delivery takes on its channel and message, waits for FOR UPDATE."""
    strong = {str(f) for f in functions() if {("for", "update"), ("for", "share")} & set(pairs(f.words))}
    assert strong == ROW_LOCKS.keys()


def test_functions_wake_nobody() -> None:
    assert [f for f in functions() if {"notify", "pg_notify", "listen"} & set(f.words)] == []


def test_functions_rely_on_no_setting_of_the_session() -> None:
    assert {str(f) for f in functions() if "set_config" in f.words} == LOCAL_SETTINGS.keys()
    for function in functions():
        assert "current_setting" not in function.words
        for call_ in clauses(function.words, "set_config", "(", end=set()):
            assert call_[-2:] == ("true", ")"), f"{function} sets something for the whole session"


def test_nothing_moves_to_another_workspace() -> None:
    for function in functions():
        for assignments in set_clauses(function):
            targets = [word for word, after in pairs(assignments) if after == "="]
            assert targets
            assert "workspace_id" not in targets, function


async def test_nothing_volatile_is_called_in_set_or_returning(db: AsyncConnection[DictRow]) -> None:
    found = await db.execute("select distinct proname from pg_proc where provolatile = 'v'")
    volatile = {row["proname"] for row in await found.fetchall()}
    assert {"uuid7", "gen_random_uuid", "random", "clock_timestamp", "nextval"} <= volatile
    for function in functions():
        returning = clauses(function.words, "returning", end={";", "into"})
        for clause in (*set_clauses(function), *returning):
            called = {word for word, after in pairs(clause) if after == "("}
            assert not called & volatile, function


async def test_everything_is_named_with_its_schema(db: AsyncConnection[DictRow]) -> None:
    tables = {row["name"].split(".")[1] for row in await rows(db, TABLES)}
    names = {function.name for function in functions()}
    for function in functions():
        words = ("", *function.words, "")
        for before, word, after in zip(words, words[1:], words[2:], strict=False):
            if before in ("from", "join", "update", "into", "only", "of") and after != ".":
                assert word not in tables - function.own_names, f"{function}: {word} has no schema"
            if before != "." and after == "(" and word not in function.own_names:
                assert word not in names, f"{function}: {word}() has no schema"


def test_functions_call_only_along_the_edges() -> None:
    for function in functions():
        mentioned = {word for word, after in pairs(function.words) if after == "." and word in EDGES}
        assert mentioned <= EDGES[function.schema], function


def set_clauses(function: Function) -> Iterator[tuple[str, ...]]:
    """The assignments of every UPDATE, those of ON CONFLICT with them."""
    for clause in clauses(function.words, "set", end={"where", "from", "returning", ";"}):
        if "=" in clause:
            yield clause


def pairs(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return pairwise(words)
