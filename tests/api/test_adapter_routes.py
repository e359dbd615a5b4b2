"""The adapter contract over HTTP, as a workflow engine uses it between begin_sending and mark_sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from api_rig import Api, picture
from psycopg.types.json import Jsonb

from vestnik.adapters import registry
from vestnik.adapters.contract import AdapterContext
from vestnik.api.app import create_app
from vestnik.api.server import http_server
from vestnik.autopost import verbs
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.media.depot import SqlDepot
from vestnik.db.pool import Pool
from vestnik.download import Downloader, parse_networks
from vestnik.errors import NotFound
from vestnik.ops import access
from vestnik.sandbox.faults import parse_faults
from vestnik.sandbox.server import Sandbox, serve
from vestnik.settings import Settings
from vestnik.storage import open_store

TOKEN, CHAT = "1000001:SECRET-token_of_the_bot", "-1001"


@dataclass
class Desk:
    api: Api
    sandbox: Sandbox
    key: str

    async def send(self, body: dict[str, Any], *, media: bool = False, platform: str = "telegram") -> tuple[int, Any]:
        verb = "send_media" if media else "send_text"
        status, said, _ = await self.api.ask("POST", f"/v1/adapters/{platform}/{verb}", body, key=self.key)
        return status, said

    async def begun(self, text: str = "Hello", **payload: Any) -> dict[str, Any]:
        """The row of begin_sending, as a workflow engine gets it."""
        await verbs.publish(self.api.pool, "shop", {"text": text, **payload})
        await self.api.sql("select autopost.claim_deliveries('shop', 'n8n', 10)")
        rows = await self.api.sql("select to_jsonb(b) as row from autopost.begin_sending('shop', 'n8n', 10) b")
        row: dict[str, Any] = rows[0]["row"]
        return row

    def posts(self, platform: str = "telegram") -> list[Any]:
        return [post.as_json() for post in self.sandbox.state.platforms[platform].chats[CHAT].posts]

    def fault(self, kind: str, **fault: Any) -> None:
        self.sandbox.state.platforms["telegram"].faults[:] = parse_faults({"kind": kind, **fault})


@pytest.fixture
async def desk(pool: Pool, tmp_path: Path) -> AsyncIterator[Desk]:
    async with serve() as sandbox, aiohttp.ClientSession() as http:
        for platform in sandbox.state.platforms.values():
            platform.add_token(TOKEN, "main")
            platform.add_chat(CHAT, title="News")
            platform.limits.chat_rps = platform.limits.token_rps = None
        store = open_store((tmp_path / "objects").as_uri())

        async def secret(workspace_id: str, platform: str, auth_ref: str) -> str:
            if (workspace_id, auth_ref) != ("shop", "main"):
                raise NotFound(f"no {platform} credential {auth_ref!r} in workspace {workspace_id!r}")
            return TOKEN

        urls = {"telegram": sandbox.telegram_url, "max": sandbox.max_url}
        adapters = registry.load(AdapterContext(secret=secret, base_urls=urls, depot=SqlDepot(pool, store)))
        downloader = Downloader(allow=parse_networks("127.0.0.1/32"))
        app = create_app(pool, adapters, blobs=BlobStore(store), downloader=downloader)
        server = http_server(Settings(http_port=0), app)
        serving = asyncio.create_task(server.serve())
        api = Api(await server.address(serving), pool, http, "")
        await api.sql("insert into core.workspaces (workspace_id, name) values ('shop', 'Shop'), ('other', 'Other')")
        await api.sql(
            "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps)"
            " values ('shop', 'news', 'telegram', %s, 'main', 'main', null)",
            CHAT,
        )
        yield Desk(api, sandbox, await access.create_key(pool, "shop", "n8n", "full"))
        server.end()
        await serving
        for adapter in adapters.values():
            await adapter.close()
        await downloader.close()


async def test_a_row_of_begin_sending_goes_out_as_it_is_and_settles(desk: Desk) -> None:
    row = await desk.begun()
    status, said = await desk.send(row)
    assert (status, said["ok"]) == (200, True)
    assert [post["text"] for post in desk.posts()] == ["Hello"]
    await desk.api.sql(
        "select autopost.mark_sent('shop', %s, %s, %s, %s, %s)",
        row["delivery_id"], said["provider_message_id"], said["sent_at"], Jsonb(said["meta"]), row["lease"],
    )  # fmt: skip
    (delivery,) = await desk.api.sql("select status, provider_message_id from autopost.deliveries")
    assert delivery == {"status": "sent", "provider_message_id": said["provider_message_id"]}


async def test_the_same_begin_is_sent_once_however_often_it_is_asked_for(desk: Desk) -> None:
    row = await desk.begun()
    answers = await asyncio.gather(*(desk.send(row) for _ in range(5)))
    assert len(desk.posts()) == 1
    _, again = await desk.send({"delivery_id": row["delivery_id"], "lease": row["lease"]})
    assert (again["ok"], again["repeated"]) == (True, True)
    for _, said in answers:
        assert said["ok"] or said["error"]["code"] == "under_way"
    assert len(desk.posts()) == 1


async def test_a_lease_that_is_lost_sends_nothing(desk: Desk) -> None:
    row = await desk.begun()
    _, said = await desk.send({**row, "lease": row["lease"] + 1})
    assert (said["ok"], said["error"]["code"], desk.posts()) == (False, "lease_lost", [])


async def test_an_error_is_what_the_settling_functions_take(desk: Desk) -> None:
    desk.fault("429", retry_after=3, times=1)
    row = await desk.begun()
    status, said = await desk.send(row)
    assert (status, said["ok"]) == (200, False)
    assert said["error"]["category"] == "TRANSIENT"
    assert said["error"]["retry_after_ms"] == 3000
    await desk.api.sql(
        "select autopost.schedule_retry('shop', %s, null, %s, %s)",
        row["delivery_id"], Jsonb(said["error"]), row["lease"],
    )  # fmt: skip
    (delivery,) = await desk.api.sql("select status, last_error ->> 'code' as code from autopost.deliveries")
    assert delivery == {"status": "retry", "code": "429"}


async def test_what_did_not_go_out_may_be_tried_again_with_the_same_key(desk: Desk) -> None:
    desk.fault("500", times=1)
    post = {"channel_id": "news", "text": "Hello", "idempotency_key": "order-1"}
    _, failed = await desk.send(post)
    _, sent = await desk.send(post)
    _, again = await desk.send(post)
    assert [said["ok"] for said in (failed, sent, again)] == [False, True, True]
    assert (again["repeated"], again["provider_message_id"]) == (True, sent["provider_message_id"])
    assert len(desk.posts()) == 1


async def test_who_posted_past_the_queue_is_on_record_once(desk: Desk) -> None:
    for _ in range(2):
        await desk.send({"channel_id": "news", "text": "Hello", "idempotency_key": "order-1"})
    await desk.send({"channel_id": "news", "text": "Hello"})
    rows = await desk.api.sql("select actor, subject from core.changes where action = 'send_asked'")
    assert rows == [{"actor": "apikey n8n", "subject": "channel news"}] * 2


async def test_a_post_by_target_and_credential(desk: Desk) -> None:
    post = {"target": CHAT, "auth_ref": "main", "text": "<b>Hi</b>", "parse_mode": "HTML",
            "buttons": [[{"text": "Shop", "url": "https://shop.example/"}]]}  # fmt: skip
    for platform in ("telegram", "max"):
        status, said = await desk.send(post, platform=platform)
        assert (status, said["ok"]) == (200, True), said
        assert len(desk.posts(platform)) == 1


async def test_a_picture_by_its_address_is_fetched_behind_the_guards(desk: Desk) -> None:
    async with desk.api.http.put(f"{desk.sandbox.url}/admin/files/a.png", data=picture()) as response:
        assert response.status < 300, await response.text()
    media = [{"type": "image", "url": f"{desk.sandbox.url}/files/a.png"}]
    status, said = await desk.send({"channel_id": "news", "text": "See", "media": media}, media=True)
    assert (status, said["ok"]) == (200, True), said
    (origin,) = await desk.api.sql("select blob_ref from autopost.media_origin")
    _, again = await desk.send({"channel_id": "news", "media": [{"type": "image", **origin}]}, media=True)
    assert again["ok"], again
    inside = [{"type": "image", "url": "http://10.0.0.1/a.png"}]
    _, refused = await desk.send({"channel_id": "news", "media": inside}, media=True)
    assert refused["error"]["category"] == "PERMANENT"


async def test_a_credential_that_is_not_there_is_the_channels_fault(desk: Desk) -> None:
    _, said = await desk.send({"target": CHAT, "auth_ref": "elsewhere", "text": "Hi"})
    assert (said["error"]["code"], said["error"]["scope"]) == ("credential_missing", "channel")


async def test_only_those_who_may_change_send_and_only_in_their_workspace(desk: Desk) -> None:
    post = {"channel_id": "news", "text": "Hello"}
    reading = await access.create_key(desk.api.pool, "shop", "look")
    strange = await access.create_key(desk.api.pool, "other", "n8n", "full")
    path = "/v1/adapters/telegram/send_text"
    asked = {
        (key, workspace): (await desk.api.ask("POST", path, {**post, "workspace_id": workspace}, key=key))[0]
        for key in (None, reading, strange)
        for workspace in ("shop", "other")
    }
    assert asked == {
        (None, "shop"): 401, (None, "other"): 401, (reading, "shop"): 403, (reading, "other"): 404,
        (strange, "shop"): 404, (strange, "other"): 404,
    }  # fmt: skip
    assert desk.posts() == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "Hi"},
        {"channel_id": "news"},
        {"delivery_id": str(UUID(int=0))},
        {"channel_id": "news", "text": "Hi", "settings": {"message_thread_id": "x"}},
        {"channel_id": "\x00", "text": "Hi"},
    ],
)
async def test_what_says_too_little_is_refused_before_anything_is_sent(desk: Desk, body: dict[str, Any]) -> None:
    assert (await desk.send(body))[0] == 422
    assert desk.posts() == []
