"""The pool survives the server, transactions survive collisions, refusals become errors of the domain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from vestnik.db.embedded import EmbeddedServer
from vestnik.db.pool import Connection, Pool, call, make_pool, retrying
from vestnik.errors import IllegalMove, InvalidPayload, NotFound

Ask = Callable[[str, str], Any]


async def value(pool: Pool, query: Any = "select 1 as v") -> Any:
    return (await call(pool, query))[0]["v"]


async def test_comes_back_after_a_restart_of_the_server(own_server: EmbeddedServer) -> None:
    async with make_pool(own_server.url, min_size=6, max_size=6, checkout_timeout=5) as pool:
        await pool.wait()
        own_server.stop(force=True)
        own_server.start()
        assert await value(pool) == 1, "six dead connections, and no time to try them one by one"
        assert await asyncio.gather(*(value(pool) for _ in range(20))) == [1] * 20


async def test_waits_for_a_server_that_is_away(own_server: EmbeddedServer) -> None:
    async with make_pool(own_server.url, min_size=2, max_size=5) as pool:
        await pool.wait()
        own_server.stop(force=True)
        waiting = asyncio.gather(*(value(pool) for _ in range(5)))
        await asyncio.to_thread(own_server.start)
        assert await waiting == [1] * 5


async def test_waits_longer_than_one_series_of_attempts(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vestnik.db.pool._GIVE_UP_CONNECTING", 0.1)
    given_up: asyncio.Queue[str] = asyncio.Queue()
    ear = logging.Handler(logging.WARNING)
    monkeypatch.setattr(ear, "emit", lambda record: given_up.put_nowait(record.getMessage()))
    monkeypatch.setattr(logging.getLogger("psycopg.pool"), "handlers", [ear])
    async with make_pool(own_server.url, min_size=1, max_size=3) as pool:
        await pool.wait()
        own_server.stop(force=True)
        waiting = asyncio.gather(*(value(pool) for _ in range(3)))
        async with asyncio.timeout(20):
            for _ in range(4):
                while "reconnection attempt" not in await given_up.get():
                    pass
        await asyncio.to_thread(own_server.start)
        assert await waiting == [1] * 3


async def test_comes_back_after_its_connections_were_terminated(database: str, ask: Ask) -> None:
    async with make_pool(database, min_size=3, max_size=3, name="doomed") as pool:
        await pool.wait()
        ended = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name = 'doomed'"
        assert ask(database, ended) == 3
        assert await asyncio.gather(*(value(pool) for _ in range(6))) == [1] * 6


async def test_a_connection_in_use_fails_and_is_not_handed_out_again(database: str) -> None:
    async with make_pool(database, max_size=1) as pool:
        with pytest.raises(psycopg.OperationalError):
            await call(pool, "select pg_terminate_backend(pg_backend_pid())")
        assert await value(pool) == 1


async def test_connections_have_limits_and_a_name(database: str) -> None:
    async with make_pool(database, name="limited", statement_timeout=1.5, lock_timeout=0.25) as pool:
        assert await value(pool, "select current_setting('statement_timeout') as v") == "1500ms"
        assert await value(pool, "select current_setting('lock_timeout') as v") == "250ms"
        assert await value(pool, "select current_setting('application_name') as v") == "limited"


async def test_defaults_of_the_database_do_not_change_the_meaning(own_server: EmbeddedServer) -> None:
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        connection.execute("alter role vestnik set default_transaction_isolation = 'serializable'")
        connection.execute("alter role vestnik set timezone = 'Asia/Tokyo'")
    async with make_pool(own_server.url) as pool:
        assert await value(pool, "select current_setting('transaction_isolation') as v") == "read committed"
        assert await value(pool, "select current_setting('timezone') as v") == "UTC"


async def test_options_of_the_address_win(database: str) -> None:
    async with make_pool(f"{database}&options=-c%20statement_timeout%3D7s") as pool:
        assert await value(pool, "select current_setting('statement_timeout') as v") == "7s"
        assert await value(pool, "select current_setting('lock_timeout') as v") == "10s"


async def test_repeated_statements_are_prepared(database: str) -> None:
    async with make_pool(database, max_size=1) as pool:
        for _ in range(8):
            await call(pool, "select %s::int as v", (1,))
        assert await value(pool, "select count(*) as v from pg_prepared_statements") == 1


async def test_a_deadlock_repeats_the_whole_transaction(pool: Pool) -> None:
    await call(pool, "create table rows (id int primary key, n int)")
    await call(pool, "insert into rows values (1, 0), (2, 0)")
    runs = 0
    both_have_one = asyncio.Barrier(2)

    async def add(connection: Connection, first: int, second: int) -> None:
        nonlocal runs
        runs += 1
        await connection.execute("update rows set n = n + 1 where id = %s", (first,))
        if runs <= 2:
            await both_have_one.wait()
        await connection.execute("update rows set n = n + 1 where id = %s", (second,))

    await asyncio.gather(retrying(pool, lambda c: add(c, 1, 2)), retrying(pool, lambda c: add(c, 2, 1)))
    assert runs == 3
    assert await call(pool, "select n from rows") == [{"n": 2}, {"n": 2}]


async def test_a_transaction_that_never_gets_through_is_given_up(pool: Pool) -> None:
    runs = 0

    async def collide(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        await connection.execute("do $$ begin raise exception 'again' using errcode = '40001'; end $$")

    with pytest.raises(psycopg.errors.SerializationFailure):
        await retrying(pool, collide)
    assert 2 < runs < 20


async def test_other_errors_are_not_repeated(pool: Pool) -> None:
    runs = 0

    async def fail(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        await connection.execute("insert into nowhere values (1)")

    with pytest.raises(psycopg.errors.UndefinedTable):
        await retrying(pool, fail)
    assert runs == 1


async def test_an_error_in_the_work_takes_everything_back(pool: Pool) -> None:
    await call(pool, "create table rows (id int)")

    async def half(connection: Connection) -> None:
        await connection.execute("insert into rows values (1)")
        raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        await retrying(pool, half)
    assert await call(pool, "select from rows") == []


@pytest.mark.parametrize(
    ("detail", "problems"),
    [('["text: is missing", "media[0].url: is missing"]', None), ("not json", ["not json"]), ("", ["refused"])],
)
async def test_an_invalid_payload_lists_its_problems(pool: Pool, detail: str, problems: list[str] | None) -> None:
    with pytest.raises(InvalidPayload) as caught:
        await call(pool, raising("VP001", detail))
    assert caught.value.problems == (problems or ["text: is missing", "media[0].url: is missing"])


async def test_other_refusals_have_their_errors(pool: Pool) -> None:
    with pytest.raises(IllegalMove, match="refused"):
        await call(pool, raising("VM001"))
    with pytest.raises(NotFound, match="refused"):
        await retrying(pool, lambda connection: connection.execute(raising("VN001")))


def raising(code: str, detail: str = "") -> Any:
    return f"do $$ begin raise exception 'refused' using errcode = '{code}', detail = '{detail}'; end $$"
