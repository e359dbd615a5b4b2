"""Who may look at a full payload, for how long, and that each look is on record, also the one that was refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import psycopg
import pytest

from vestnik.api.app import create_app
from vestnik.api.server import http_server
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.payloads.equipment import open_desk, open_vault
from vestnik.autopost.payloads.links import Link, Links
from vestnik.autopost.payloads.vault import Vault, new_ref, path_of
from vestnik.autopost.payloads.verbs import PayloadDesk
from vestnik.db.pool import Pool, call
from vestnik.errors import IllegalMove
from vestnik.ops import access
from vestnik.ops.secrets.box import SecretBox
from vestnik.settings import Settings
from vestnik.storage import open_store

PHONE = "+7 916 123-45-67"
# Sofia has the role security; Victor may look, Edith may change things, Otto owns; Xenia is security of another workspace.
ROLES = {
    "sofia": ("w", "security"), "victor": ("w", "viewer"), "edith": ("w", "editor"), "otto": ("w", "owner"),
    "xenia": ("x", "security"),
}  # fmt: skip


@dataclass
class Desk:
    url: str
    pool: Pool
    http: aiohttp.ClientSession
    vault: Vault
    folder: Path
    name: str

    async def ask(self, verb: str, path: str, body: Any = None, login: str = "sofia") -> tuple[int, bytes, Any]:
        url = path if path.startswith("http") else f"{self.url}{path}"
        headers = {"Authorization": f"Bearer vsess_{login}"} if login else {}
        async with self.http.request(verb, url, json=body, headers=headers) as answer:
            return answer.status, await answer.read(), answer.headers

    async def link(self, login: str = "sofia", *, workspace: str = "w", name: str = "", **body: Any) -> tuple[int, Any]:
        path = f"/v1/workspaces/{workspace}/payloads/{name or self.name}/link"
        status, said, _ = await self.ask("POST", path, {"reason": "ticket 7"} | body, login)
        return status, json.loads(said)

    async def sql(self, query: Any, *arguments: Any) -> list[dict[str, Any]]:
        return await call(self.pool, query, arguments)

    async def reads(self) -> list[tuple[str, str, str, str, str]]:
        rows = await self.sql("select * from core.payload_reads where workspace_id = 'w' order by ts, read_id")
        return [(row["actor"], row["via"], row["action"], row["outcome"], row["reason"]) for row in rows]


@pytest.fixture
async def desk(pool: Pool, tmp_path: Path) -> AsyncIterator[Desk]:
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('w', 'W'), ('x', 'X')")
    for login, (workspace, role) in ROLES.items():
        await call(pool, "insert into core.operators (login, password_hash) values (%s, 'none')", (login,))
        await call(pool, "insert into core.operator_roles values (%s, %s, %s)", (workspace, login, role))
        session = "insert into core.operator_sessions (token_hash, login, expires_at) values (%s, %s, now() + interval '1 hour')"
        await call(pool, session, (access.hash_of(f"vsess_{login}"), login))
    settings = Settings(_env_file=None, data_dir=tmp_path, http_port=0)  # type: ignore[call-arg]
    store = open_store(settings.object_store)
    vault = open_vault(settings, store)
    app = create_app(pool, {}, blobs=BlobStore(store), payload_desk=open_desk(settings, pool, vault))
    server = http_server(settings, app)
    serving = asyncio.create_task(server.serve())
    async with aiohttp.ClientSession() as http:
        name = await vault.put("w", {"answer": f"no {PHONE}"})
        yield Desk(await server.address(serving), pool, http, vault, tmp_path, name)
    server.end()
    await serving


async def test_security_gets_a_link_and_the_link_leads_to_the_payload(desk: Desk) -> None:
    status, given = await desk.link()
    assert status == 200
    status, content, headers = await desk.ask("GET", given["url"], login="")
    assert (status, json.loads(content)) == (200, {"answer": f"no {PHONE}"})
    assert headers["Content-Type"] == "application/octet-stream"
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert headers["Content-Disposition"].startswith("attachment")
    assert await desk.reads() == [
        ("operator sofia", "api", "link", "granted", "ticket 7"),
        ("operator sofia", "link", "read", "granted", "by link"),
    ]


async def test_without_the_role_it_is_refused_and_on_record(desk: Desk) -> None:
    for login in ("victor", "edith", "otto"):
        assert (await desk.link(login))[0] == 403
        assert (await desk.reads())[-1] == (f"operator {login}", "api", "link", "refused", "ticket 7")
        for path in ("", "/reads"):
            assert (await desk.ask("GET", f"/v1/workspaces/w/payloads{path}", login=login))[0] == 403
    assert len(await desk.reads()) == 3


async def test_a_key_of_full_access_is_no_security_either(desk: Desk) -> None:
    key = await access.create_key(desk.pool, "w", "robot", "full")
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{desk.url}/v1/workspaces/w/payloads/{desk.name}/link"
    async with desk.http.post(url, data=b"not json at all", headers=headers) as answer:
        assert answer.status in (403, 422)
    async with desk.http.post(url, json={"reason": "\0" + "r" * 900}, headers=headers) as answer:
        assert answer.status == 403
    assert [(actor, outcome) for actor, _, _, outcome, _ in await desk.reads()][-1] == ("apikey robot", "refused")


async def test_of_another_workspace_there_is_nothing(desk: Desk) -> None:
    assert (await desk.link("xenia"))[0] == 404
    assert (await desk.link("xenia", workspace="x"))[0] == 404, "the name is right, the workspace is not"
    rows = await desk.sql("select outcome from core.payload_reads where workspace_id = 'x'")
    assert [row["outcome"] for row in rows] == ["not_found"]


async def test_a_link_wants_a_reason_and_a_short_life(desk: Desk) -> None:
    for body in ({"reason": ""}, {"reason": None}, {"seconds": 5}, {"seconds": 10**9}, {"reason": "a\0b"}):
        assert (await desk.link(**body))[0] == 422
    assert await desk.reads() == []


async def test_a_link_that_expired_leads_nowhere_and_that_is_on_record(desk: Desk) -> None:
    links = Links(SecretBox.open(desk.folder, None))
    old = links.write(Link("w", desk.name, "operator sofia", uuid4(), int(time.time()) - 1))
    status, said, headers = await desk.ask("GET", f"/v1/payloads/{old}", login="")
    assert (status, headers["Cache-Control"]) == (410, "no-store")
    assert PHONE.encode() not in said
    assert await desk.reads() == [("operator sofia", "link", "read", "expired", "by link")]


async def test_a_link_ends_with_the_role_of_whoever_asked_for_it(desk: Desk) -> None:
    _, given = await desk.link()
    await desk.sql("delete from core.operator_roles where login = 'sofia'")
    status, content, _ = await desk.ask("GET", given["url"], login="")
    assert (status, PHONE.encode() in content) == (410, False)
    assert (await desk.reads())[-1] == ("operator sofia", "link", "read", "refused", "by link")


async def test_a_link_that_somebody_made_up_leads_nowhere(desk: Desk) -> None:
    links = Links(SecretBox.open_with("another key"))
    forged = links.write(Link("w", desk.name, "operator sofia", uuid4(), int(time.time()) + 60))
    for token in (forged, "vlink_AAAA", "x", "vlink_" + "A" * 1900):
        assert (await desk.ask("GET", f"/v1/payloads/{token}", login=""))[0] == 404
    assert await desk.reads() == []


async def test_a_payload_that_is_gone_or_broken_is_said_to_be(desk: Desk) -> None:
    assert (await desk.link(name=new_ref()))[0] == 404
    path = desk.folder / "objects" / path_of("w", desk.name)
    path.write_bytes(b"VP1" + b"x" * 60)
    assert (await desk.link())[0] == 409
    assert [outcome for _, _, _, outcome, _ in await desk.reads()] == ["not_found", "unreadable"]


async def test_without_its_record_nothing_is_shown(desk: Desk) -> None:
    await desk.sql("alter table core.payload_reads rename to hidden")
    links = Links(SecretBox.open(desk.folder, None))
    token = links.write(Link("w", desk.name, "operator sofia", uuid4(), int(time.time()) + 60))
    with pytest.raises(psycopg.errors.UndefinedTable):
        await PayloadDesk(desk.pool, desk.vault, links).follow(token)


async def test_security_sees_which_there_are_and_who_looked(desk: Desk) -> None:
    await desk.sql(
        """insert into autopost.events (workspace_id, id, action, result, error, payload_ref)
           values ('w', gen_random_uuid(), 'failed_permanent', 'error', '{"code": "400"}', %s)""",
        desk.name,
    )
    await desk.link()
    status, said, _ = await desk.ask("GET", "/v1/workspaces/w/payloads")
    (named,) = json.loads(said)
    assert (status, named["payload_ref"], named["code"]) == (200, desk.name, "400")
    status, said, _ = await desk.ask("GET", "/v1/workspaces/w/payloads/reads")
    (look,) = json.loads(said)
    assert (look["actor"], look["outcome"], look["reason"]) == ("operator sofia", "granted", "ticket 7")


async def test_the_record_cannot_be_changed(desk: Desk, pool: Pool) -> None:
    await desk.link(reason=f"they called from {PHONE}")
    assert (await desk.reads())[0][4] == "they called from ***"
    for change in ("update core.payload_reads set actor = 'nobody'", "delete from core.payload_reads"):
        with pytest.raises((IllegalMove, psycopg.Error)):
            await call(pool, change)
    assert len(await desk.reads()) == 1
