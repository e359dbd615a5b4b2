"""Operators by password: who gets in, who does not, and how a guesser is slowed down."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from argon2 import PasswordHasher

from vestnik.autopost.changes import list_changes
from vestnik.db.pool import Pool, call
from vestnik.errors import Conflict, InvalidPayload, NotFound, TryLater
from vestnik.ops import operators, passwords, sign_in
from vestnik.ops.access import KEY_RIGHTS, create_key, hash_of, key_of
from vestnik.ops.passwords import is_password
from vestnik.ops.sign_in import SignIn, WrongPassword, operator_of_session, sign_out

PASSWORD = "correct horse 9 battery"
START = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hash costs is not what is tested here."""
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    passwords._nobodys.cache_clear()


@pytest.fixture
async def anna(pool: Pool) -> str:
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('shop', 'Shop'), ('other', 'Other')")
    await operators.add_operator(pool, "anna", PASSWORD, name="Anna", actor="tests")
    return "anna"


async def rights(pool: Pool, login: str, workspace_id: str) -> frozenset[str]:
    return (await operators.caller_of(pool, operators.Operator(login, "", "en"), workspace_id)).rights


async def test_the_right_password_opens_a_session_that_ends_when_it_is_told_to(pool: Pool, anna: str) -> None:
    session = await SignIn(pool).sign_in(" Anna ", PASSWORD, "192.0.2.1")
    who = await operator_of_session(pool, session.token)
    assert who is not None
    assert (who.login, who.name) == ("anna", "Anna")
    await sign_out(pool, session.token)
    assert await operator_of_session(pool, session.token) is None


async def test_a_session_ends_by_itself(pool: Pool, anna: str) -> None:
    session = await SignIn(pool).sign_in(anna, PASSWORD, "192.0.2.1")
    await call(pool, "update core.operator_sessions set expires_at = now() - interval '1 second'")
    assert await operator_of_session(pool, session.token) is None
    assert (await call(pool, "select core.prune_sign_ins() as n"))[0]["n"] >= 1


WRONG = ["", "wrong", PASSWORD + " ", PASSWORD.upper(), "x" * 5000, "\ud800", "a\0b"]
STRANGE = ["nobody", "", "x" * 300, "a\0b", "Ж", "\ud800"]


async def test_everybody_else_gets_the_same_answer(pool: Pool, anna: str) -> None:
    door = SignIn(pool)
    for login, password in [*((anna, wrong) for wrong in WRONG), *((strange, PASSWORD) for strange in STRANGE)]:
        with pytest.raises(WrongPassword):
            await door.sign_in(login, password, f"address of {login!r} and {password!r}")


async def test_neither_passwords_nor_tokens_nor_logins_of_strangers_are_kept(pool: Pool, anna: str) -> None:
    session = await SignIn(pool).sign_in(anna, PASSWORD, "192.0.2.1")
    with pytest.raises(WrongPassword):
        await SignIn(pool).sign_in("hunter2-typed-too-early", PASSWORD, "192.0.2.1")
    tables = ("operators", "operator_sessions", "sign_in_gates", "changes")
    rows = [row for table in tables for row in await call(pool, f"select x::text as x from core.{table} x")]
    kept = " ".join(row["x"] for row in rows)
    assert "argon2id" in kept
    for secret in (PASSWORD, session.token, "hunter2"):
        assert secret not in kept


async def test_five_wrong_passwords_shut_the_door_each_time_for_longer(pool: Pool) -> None:
    """By the clock in hand: the right password is refused as well while it is shut."""
    subjects, free, most = ["pair", "address"], [5, 20], [timedelta(minutes=15)] * 2

    async def tried(now: datetime) -> datetime | None:
        query = "select core.try_gates(%s, %s, %s, %s) as until"
        until: datetime | None = (await call(pool, query, (subjects, free, most, now)))[0]["until"]
        return until

    now, waits = START, []
    for _ in range(20):
        until = await tried(now)
        if until is not None:
            waits.append((until - now).total_seconds())
            now = until
            assert await tried(now) is None
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert waits == sorted(waits)
    assert max(waits) <= 900
    assert await tried(now + timedelta(hours=2)) is None
    (row,) = await call(pool, "select failures from core.sign_in_gates where subject = 'pair'")
    assert row["failures"] == 1, "a quiet hour forgets"


async def test_many_guesses_at_once_are_many_guesses(pool: Pool, anna: str) -> None:
    """Counted before the password is looked at: a thousand at once do not all see an open door."""
    door = SignIn(pool)
    tries = (door.sign_in(anna, f"guess number {n}", "192.0.2.1") for n in range(30))
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, WrongPassword) for each in outcomes) <= 6
    assert all(isinstance(each, WrongPassword | TryLater) for each in outcomes)
    await call(pool, "update core.sign_in_gates set locked_until = locked_until + interval '1 hour' where failures = 5")
    with pytest.raises(TryLater) as shut:
        await door.sign_in(anna, PASSWORD, "192.0.2.1")
    assert shut.value.after > 3000


async def test_a_guesser_does_not_shut_out_the_operator_elsewhere(pool: Pool, anna: str) -> None:
    door = SignIn(pool)
    for _ in range(6):
        with pytest.raises((WrongPassword, TryLater)):
            await door.sign_in(anna, "a wrong password", "192.0.2.66")
    assert (await door.sign_in(anna, PASSWORD, "192.0.2.1")).operator.login == anna


async def test_strangers_everywhere_do_not_shut_out_who_was_let_in_here_before(pool: Pool, anna: str) -> None:
    door = SignIn(pool)
    await door.sign_in(anna, PASSWORD, "192.0.2.1")
    shut = "update core.sign_in_gates set failures = 99, last_at = now(), locked_until = now() + interval '1 hour' where subject = %s"
    for subject, login, address in (("login anna", anna, "192.0.2.66"), ("address 192.0.2.1", "nobody", "192.0.2.1")):
        with pytest.raises(WrongPassword):
            await door.sign_in(login, "a wrong password", address)
        assert await call(pool, f"{shut} returning 1", (hash_of(subject),)), subject
    assert (await door.sign_in(anna, PASSWORD, "192.0.2.1")).operator.login == anna
    rows = await call(pool, "select 1 from core.sign_in_gates where failures = 99 and locked_until > now()")
    assert len(rows) == 2, "whoever has an account does not open the doors of others"
    with pytest.raises(TryLater):
        await door.sign_in(anna, PASSWORD, "192.0.2.77")
    for _ in range(5):
        with pytest.raises(WrongPassword):
            await door.sign_in(anna, "a wrong password", "192.0.2.1")
    with pytest.raises(TryLater):
        await door.sign_in(anna, PASSWORD, "192.0.2.1")


async def test_where_somebody_was_let_in_is_remembered_for_thirty_days(pool: Pool, anna: str) -> None:
    await SignIn(pool).sign_in(anna, PASSWORD, "192.0.2.1")
    await call(
        pool,
        "update core.sign_in_gates set last_at = last_at - interval '29 days', passed_at = passed_at - interval '29 days'",
    )
    await call(pool, "select core.prune_sign_ins()")
    known = "select core.was_let_in(subject, now()) as known from core.sign_in_gates"
    assert [row["known"] for row in await call(pool, known)] == [True]
    await call(pool, "update core.sign_in_gates set passed_at = passed_at - interval '2 days'")
    assert [row["known"] for row in await call(pool, known)] == [False]
    await call(pool, "select core.prune_sign_ins()")
    assert await call(pool, known) == []


async def test_a_flood_of_passwords_is_turned_away_and_not_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "MOST_WAITING", 3)
    outcomes = await asyncio.gather(*(is_password(None, "x" * 10) for _ in range(10)), return_exceptions=True)
    assert [isinstance(each, TryLater) for each in outcomes] == [False] * 3 + [True] * 7
    assert await is_password(None, "x" * 10) is False, "and then there is room again"


async def test_the_keys_of_a_workspace_that_is_switched_off_open_nothing(pool: Pool, anna: str) -> None:
    key = await create_key(pool, "shop", "robot")
    assert await key_of(pool, key) is not None
    await call(pool, "update core.workspaces set status = 'disabled' where workspace_id = 'shop'")
    assert await key_of(pool, key) is None


async def test_a_right_password_forgives_the_wrong_ones_before(pool: Pool, anna: str) -> None:
    door = SignIn(pool)
    for _ in range(3):
        for _ in range(4):
            with pytest.raises(WrongPassword):
                await door.sign_in(anna, "a wrong password", "192.0.2.1")
        await door.sign_in(anna, PASSWORD, "192.0.2.1")


async def test_an_unknown_login_costs_as_much_work_as_a_wrong_password(
    pool: Pool, anna: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[bool] = []
    verify = passwords._hasher.verify

    class Counting:
        def verify(self, *arguments: object) -> bool:
            worked.append(True)
            return verify(*arguments)  # type: ignore[arg-type]

        def hash(self, password: str) -> str:
            raise AssertionError("only once in the life of a process")

    passwords._nobodys()
    monkeypatch.setattr(passwords, "_hasher", Counting())
    for login in (anna, "nobody"):
        with pytest.raises(WrongPassword):
            await SignIn(pool).sign_in(login, "a wrong password", "192.0.2.1")
    assert len(worked) == 2


async def test_a_password_that_was_right_a_moment_ago_is_not_worked_out_again(
    pool: Pool, anna: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For those who send it with each request."""
    worked: list[str] = []

    async def counting(hashed: str | None, password: str) -> bool:
        worked.append(password)
        return await is_password(hashed, password)

    monkeypatch.setattr(sign_in, "is_password", counting)
    door = SignIn(pool)
    for _ in range(20):
        await door.check(anna, PASSWORD, "192.0.2.1")
    assert len(worked) == 1
    await operators.set_password(pool, anna, "another long password", actor="tests")
    with pytest.raises(WrongPassword):
        await door.check(anna, PASSWORD, "192.0.2.1")


@pytest.mark.parametrize("end", ["password", "disable", "remove"])
async def test_sessions_end_with_what_they_were_begun_with(pool: Pool, anna: str, end: str) -> None:
    session = await SignIn(pool).sign_in(anna, PASSWORD, "192.0.2.1")
    if end == "password":
        await operators.set_password(pool, anna, "another long password", actor="tests")
    elif end == "disable":
        assert await operators.set_enabled(pool, anna, False, actor="tests")
    else:
        await operators.remove_operator(pool, anna, actor="tests")
    assert await operator_of_session(pool, session.token) is None
    if end != "password":
        with pytest.raises(WrongPassword):
            await SignIn(pool).sign_in(anna, PASSWORD, "192.0.2.1")


async def test_each_role_opens_what_it_says_and_only_where_it_was_given(pool: Pool, anna: str) -> None:
    expected = {
        "owner": {"read", "change", "own"}, "editor": {"read", "change"}, "viewer": {"read"},
    }  # fmt: skip
    assert await rights(pool, anna, "shop") == frozenset()
    for role, opened in expected.items():
        assert await operators.grant(pool, "shop", anna, role, actor="tests")  # type: ignore[arg-type]
        assert await rights(pool, anna, "shop") == opened, "the new rank takes the old one's place"
        assert await rights(pool, anna, "other") == frozenset()
    await operators.grant(pool, "shop", anna, "security", actor="tests")
    assert await rights(pool, anna, "shop") == {"read", "security"}
    assert not await operators.grant(pool, "shop", anna, "security", actor="tests")
    assert await operators.take(pool, "shop", anna, "viewer", actor="tests")
    assert await rights(pool, anna, "shop") == {"security"}, "security alone looks at raw payloads, and at nothing else"
    assert not any("security" in opened for opened in KEY_RIGHTS.values())


async def test_a_role_on_everything_counts_in_every_workspace_that_there_is(pool: Pool, anna: str) -> None:
    await operators.grant(pool, operators.SERVICE, anna, "editor", actor="tests")
    for workspace in ("shop", "other", operators.SERVICE):
        assert await rights(pool, anna, workspace) == {"read", "change"}
    assert await rights(pool, anna, "nowhere") == frozenset()
    with pytest.raises(NotFound):
        await operators.grant(pool, "nowhere", anna, "viewer", actor="tests")
    with pytest.raises(NotFound):
        await operators.grant(pool, "shop", "nobody", "viewer", actor="tests")


async def test_what_makes_no_operator(pool: Pool, anna: str) -> None:
    with pytest.raises(Conflict):
        await operators.add_operator(pool, anna, PASSWORD, actor="tests")
    for login, password in (("Bob", PASSWORD), ("", PASSWORD), ("bob", "short"), ("bob", "x" * 257), ("-b", PASSWORD)):
        with pytest.raises(InvalidPayload):
            await operators.add_operator(pool, login, password, actor="tests")


async def test_every_change_is_on_record_with_who_made_it(pool: Pool, anna: str) -> None:
    await operators.grant(pool, operators.SERVICE, anna, "owner", actor="boris")
    await operators.set_password(pool, anna, "another long password", actor="boris")
    await operators.set_enabled(pool, anna, False, actor="boris")
    await operators.remove_operator(pool, anna, actor="boris")
    rows = await list_changes(pool, operators.SERVICE)
    assert [(row["actor"], row["action"]) for row in rows] == [
        ("boris", "operator_removed"), ("boris", "operator_disabled"), ("boris", "password_set"), ("boris", "role_granted"),
        ("tests", "operator_added"),
    ]  # fmt: skip
    assert await list_changes(pool, "shop") == []
