"""Sessions over HTTP, and how fast one caller may ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from api_rig import Api
from starlette.requests import Request
from whole_rig import OWNER, Whole

from vestnik.api import body_size
from vestnik.api.access import MOST_FAILURES, address_of
from vestnik.api.app import create_app
from vestnik.api.pace import Buckets
from vestnik.api.server import http_server
from vestnik.autopost.media.blobs import BlobStore
from vestnik.db.pool import Pool, call
from vestnik.ops import access, operators
from vestnik.settings import Settings
from vestnik.storage import open_store

LOGIN = {"login": OWNER[0], "password": OWNER[1]}


async def test_a_session_opens_what_its_operator_may_until_it_is_ended(whole: Whole) -> None:
    status, session, _ = await whole.api.ask("POST", "/v1/sign-in", LOGIN)
    assert (status, session["login"]) == (200, "anna")
    status, me, _ = await whole.api.ask("GET", "/v1/me", key=session["token"])
    assert (me["name"], me["roles"]) == ("operator anna", {"*": ["owner", "security"]})
    assert (await whole.api.get("/v1/workspaces/shop/queue", session["token"]))[0] == 200
    assert (await whole.api.ask("POST", "/v1/sign-out", key=session["token"]))[0] == 204
    assert (await whole.api.get("/v1/workspaces/shop/queue", session["token"]))[0] == 401


async def test_a_wrong_password_and_an_unknown_login_get_the_same_answer(whole: Whole) -> None:
    answers = [
        await whole.api.ask("POST", "/v1/sign-in", {"login": login, "password": "not the password"})
        for login in ("anna", "nobody")
    ]
    assert [status for status, _, _ in answers] == [401, 401]
    assert answers[0][1] == answers[1][1]


async def test_after_some_wrong_passwords_the_door_is_shut_for_a_while(whole: Whole) -> None:
    wrong = {"login": "boris", "password": "not the password"}
    tries = [whole.api.ask("POST", "/v1/sign-in", wrong) for _ in range(12)]
    answers = await asyncio.gather(*tries)
    assert {status for status, _, _ in answers} == {401, 429}
    shut = next(headers for status, _, headers in answers if status == 429)
    assert int(shut["Retry-After"]) >= 1


async def test_a_password_goes_with_each_request_as_well_in_any_letters(whole: Whole) -> None:
    await operators.set_password(whole.api.pool, "boris", "длинный пароль", actor="tests")
    status, me, _ = await whole.api.ask("GET", "/v1/me", by=("boris", "длинный пароль"))
    assert (status, me["roles"]) == (200, {})
    assert (await whole.api.ask("GET", "/v1/me", by=("boris", "another long one")))[0] == 401
    for header in ("Basic", "Basic !", "Basic bm8tY29sb24=", "Digest x", "Bearer", "Bearer  "):
        async with whole.api.http.get(f"{whole.api.url}/v1/me", headers={"Authorization": header}) as response:
            assert response.status == 401, header


async def test_a_key_says_of_which_workspace_it_is(whole: Whole) -> None:
    key = await access.create_key(whole.api.pool, "shop", "robot", "full")
    _, me, _ = await whole.api.ask("GET", "/v1/me", key=key)
    assert (me["name"], me["workspace_id"], me["rights"]) == ("apikey robot", "shop", ["read", "change"])
    _, workspaces, _ = await whole.api.ask("GET", "/v1/workspaces", key=key)
    assert [row["workspace_id"] for row in workspaces] == ["shop"]
    _, all_of_them, _ = await whole.api.ask("GET", "/v1/workspaces", by=OWNER)
    assert [row["workspace_id"] for row in all_of_them] == ["other", "shop"]


async def test_a_workspace_is_made_and_looked_into(whole: Whole) -> None:
    made = {"workspace_id": "new", "name": "New"}
    assert (await whole.api.ask("POST", "/v1/workspaces", made, by=OWNER))[0] == 201
    assert (await whole.api.ask("POST", "/v1/workspaces", made, by=OWNER))[0] == 409
    _, shown, _ = await whole.api.ask("GET", "/v1/workspaces/new", by=OWNER)
    assert (shown["name"], shown["status"]) == ("New", "active")


@asynccontextmanager
async def small_api(pool: Pool, folder: Path, **limits: Any) -> AsyncIterator[Api]:
    app = create_app(pool, {}, blobs=BlobStore(open_store(folder.as_uri())), **limits)
    server = http_server(Settings(http_port=0), app)
    serving = asyncio.create_task(server.serve())
    async with aiohttp.ClientSession() as http:
        yield Api(await server.address(serving), pool, http, "")
    server.end()
    await serving


async def test_who_asks_too_fast_is_told_when_to_come_back(pool: Pool, tmp_path: Path) -> None:
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('shop', 'Shop')")
    keys = [await access.create_key(pool, "shop", name) for name in ("robot", "another")]
    async with small_api(pool, tmp_path, api_rps=0.001) as api:
        answers = [await api.ask("GET", "/v1/me", key=key) for key in (keys[0], keys[0], keys[1])]
    assert [status for status, _, _ in answers] == [200, 429, 200], "each has a bucket of its own"
    assert 900 < int(answers[1][2]["Retry-After"]) <= 1000


async def test_who_guesses_keys_is_not_even_looked_up_and_others_are(whole: Whole) -> None:
    key = await access.create_key(whole.api.pool, "shop", "robot")
    assert (await whole.api.get("/v1/me", key))[0] == 200
    answers = [(await whole.api.get("/v1/me", f"vkey_guess-{n}"))[0] for n in range(MOST_FAILURES + 5)]
    assert answers[:MOST_FAILURES] == [401] * MOST_FAILURES
    assert answers[-1] == 429
    assert (await whole.api.get("/v1/me", key))[0] == 200, "a key that was right before still is"


async def test_a_body_beyond_the_limit_is_not_read(pool: Pool, tmp_path: Path) -> None:
    too_long = b'{"login": "' + b"x" * 5000

    async def in_pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(too_long), 500):
            yield too_long[start : start + 500]

    async with small_api(pool, tmp_path, max_request_bytes=2000) as api:
        for body in (too_long, in_pieces()):
            headers = {"Content-Type": "application/json"}
            async with api.http.post(f"{api.url}/v1/sign-in", data=body, headers=headers) as response:
                assert (response.status, response.content_type) == (413, "application/problem+json")


async def test_a_body_that_never_comes_to_its_end_is_not_waited_for(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_size, "PATIENCE", 0.05)
    async with small_api(pool, tmp_path) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(api.url.rpartition(":")[2]))
        writer.write(
            b"POST /v1/sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a name", "a name"),
    ],
)
def test_who_has_a_whole_network_of_addresses_counts_as_one(given: str, counted: str) -> None:
    assert address_of(Request({"type": "http", "client": (given, 1)})) == counted


def test_a_bucket_fills_again_and_never_beyond_its_size() -> None:
    now = 0.0
    bucket = Buckets(rate=2.0, size=4.0, clock=lambda: now)
    assert [bucket.take("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    now = 0.5
    assert [bucket.take("a") for _ in range(2)] == [0.0, 0.5]
    now = 1000.0
    assert [bucket.wait("a"), *(bucket.take("a") for _ in range(5))] == [0.0, 0.0, 0.0, 0.0, 0.0, 0.5]
