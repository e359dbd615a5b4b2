"""What a caller names in a path, a query or a body leads nowhere but into the caller's own workspace."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from whole_rig import OWNER, Whole

from vestnik.autopost import verbs
from vestnik.ops import access, operators
from vestnik.ops.jobs.verbs import enqueue

EDITOR, HERS = ("boris", OWNER[1]), "/v1/workspaces/shop"
MARK = "nobody-elses-business"


def reading(dsn: str = "", secret: str = "") -> dict[str, Any]:
    address = {"dsn": dsn} if dsn else {"secret_ref": secret}
    query = "select 1 as id, 'x' as title where 1 > :watermark limit :limit"
    watermark = {"column": "id", "start": 0}
    mapping = {"text": "{title}"}
    return {
        "kind": "db",
        "config": {**address, "query": query, "watermark": watermark, "key": "id", "mapping": mapping},
    }


@pytest.fixture
async def key(whole: Whole) -> str:
    return await access.create_key(whole.api.pool, "shop", "robot", "full")


async def test_only_an_owner_of_the_service_has_a_database_read(whole: Whole, key: str, tmp_path: Path) -> None:
    """The service would read it with its own rights: its own database, or any file of the machine."""
    with closing(sqlite3.connect(tmp_path / "any.db")):
        pass
    await operators.grant(whole.api.pool, "shop", "boris", "owner", actor="tests")
    callers: list[dict[str, Any]] = [{"key": key}, {"by": EDITOR}]
    for source in (
        reading(f"sqlite://{tmp_path}/any.db"),
        reading("postgresql:///vestnik"),
        reading("postgresql://h/d?passfile=/root/.pgpass"),
        reading(secret="shop-db"),
    ):
        for who in callers:
            for verb, path, body in (
                ("PUT", f"{HERS}/sources/evil", source),
                ("POST", f"{HERS}/apply", {"sources": [{"id": "evil", **source}]}),
                ("PUT", f"{HERS}/sources/feed?dry_run=true", source),
            ):
                status, said, _ = await whole.api.ask(verb, path, body, **who)
                assert (status, "reads a database" in said["detail"]) == (403, True), (path, source, said)
    assert await whole.api.sql("select 1 from autopost.pull_sources where kind = 'db'") == []
    assert (await whole.api.ask("PUT", f"{HERS}/sources/shop", reading(secret="shop-db"), by=OWNER))[0] == 200


async def test_nor_does_an_owner_of_one_workspace_name_one_as_a_credential(whole: Whole) -> None:
    """The source that uses it is there already."""
    await operators.grant(whole.api.pool, "shop", "boris", "owner", actor="tests")
    path = f"{HERS}/credentials/source/shop-db"
    for token in ("postgresql://u:p@h/d", " sqlite:///etc/x.db", "mysql://u@h/d"):
        assert (await whole.api.ask("PUT", path, {"token": token}, by=EDITOR))[0] == 403, token
    assert (await whole.api.ask("PUT", path, {"token": "a key of an API"}, by=EDITOR))[0] == 200
    assert (await whole.api.ask("PUT", path, {"token": "postgresql://u:p@h/d"}, by=OWNER))[0] == 200


async def test_what_a_database_source_reads_stays_and_when_is_anybodys(whole: Whole, key: str) -> None:
    source = reading(secret="shop-db")
    assert (await whole.api.ask("PUT", f"{HERS}/sources/goods", source, by=OWNER))[0] == 200
    slower = {**source, "every": "1h"}
    assert (await whole.api.ask("PUT", f"{HERS}/sources/goods", slower, key=key))[0] == 200
    other = {**slower, "config": {**source["config"], "query": "select 2 as id, :watermark as title limit :limit"}}
    assert (await whole.api.ask("PUT", f"{HERS}/sources/goods", other, key=key))[0] == 403


async def test_a_credential_is_sent_where_an_owner_says(whole: Whole, key: str) -> None:
    """Else whoever may change an address is given the credential that they may not see."""
    auth = {"auth": {"header": "X-Key", "secret_ref": "goods"}}
    api = {"items": "$[*]", "key": "$.id", "mapping": {"text": "$.title"}}
    for kind, config in (("rss", {}), ("api", api)):
        body = {"kind": kind, "config": {"url": "https://mine.example/", **auth, **config}}
        for who in ({"key": key}, {"by": EDITOR}):
            await operators.grant(whole.api.pool, "shop", "boris", "editor", actor="tests")
            status, said, _ = await whole.api.ask("PUT", f"{HERS}/sources/feed", body, **who)  # type: ignore[arg-type]
            assert (status, "sends a credential" in said["detail"]) == (403, True), said
        await operators.grant(whole.api.pool, "shop", "boris", "owner", actor="tests")
        assert (await whole.api.ask("PUT", f"{HERS}/sources/feed", body, by=EDITOR))[0] == 200


async def test_nothing_is_filled_in_from_the_environment(whole: Whole, key: str) -> None:
    body = {"name": "${HOME} ${VESTNIK_SECRET_KEY}"}
    _, said, _ = await whole.api.ask("POST", f"{HERS}/apply", body, key=key)
    assert said["changes"][0]["after"] == body


async def elsewhere(whole: Whole) -> dict[str, str]:
    """One of each in the other workspace, by the name of a path's parameter."""
    pool = whole.api.pool
    channel = {"platform": "telegram", "target": "-1009", "auth_ref": "theirs"}
    for path, body in (
        (f"channels/{MARK}", channel),
        (f"endpoints/{MARK}", {}),
        (f"templates/{MARK}", {"body": MARK}),
        (f"sources/{MARK}", {"kind": "rss", "config": {"url": "http://127.0.0.1:9/x"}}),
        (f"credentials/telegram/{MARK}", {"token": MARK}),
        (f"alert-targets/{MARK}", {"kind": "webhook", "address": f"https://{MARK}.example/"}),
        (f"webhooks/{MARK}", {"url": f"https://{MARK}.example/"}),
    ):
        status, said, _ = await whole.api.ask("PUT", f"/v1/workspaces/other/{path}", body, by=OWNER)
        assert status in (200, 201), (path, said)
    await access.create_key(pool, "other", MARK)
    message = await verbs.publish(pool, "other", {"text": MARK})
    job = await enqueue(pool, "other", "media.fetch", {"message_id": str(message["message_id"])})
    (ids,) = await whole.api.sql(
        "select (select delivery_id::text from autopost.deliveries where workspace_id = 'other') as delivery_id,"
        " (select key_id::text from core.api_keys where workspace_id = 'other') as key_id"
    )
    names = (
        "channel_id",
        "endpoint_id",
        "template_id",
        "source_id",
        "auth_ref",
        "target_id",
        "webhook_id",
        "schedule_id",
    )
    return {**dict.fromkeys(names, MARK), **ids, "message_id": str(message["message_id"]), "job_id": str(job.job_id)}


async def state(whole: Whole) -> Any:
    tables = (
        "autopost.channels", "autopost.deliveries", "autopost.messages", "autopost.workspace_endpoints", "ops.jobs",
        "autopost.templates", "autopost.pull_sources", "core.credential_bindings", "autopost.events", "core.changes",
    )  # fmt: skip
    return [
        await whole.api.sql(f"select x::text from {table} x where workspace_id = 'other' order by 1")
        for table in tables
    ]


async def test_an_id_of_another_workspace_is_an_id_of_nothing(whole: Whole) -> None:
    """By whoever may do everything in the one and nothing in the other."""
    theirs = await elsewhere(whole)
    await operators.grant(whole.api.pool, "shop", "boris", "owner", actor="tests")
    before, seen = await state(whole), 0
    for verb, path, operation in whole.operations():
        named = [name for name in theirs if f"{{{name}}}" in path]
        if not path.startswith("/v1/workspaces/{ws}/") or not named or verb == "PUT":
            continue
        whole.known |= theirs
        url = whole.path(path)
        for body in ({"reason": "the tests ask"}, None) if "requestBody" in operation else (None,):
            status, said, _ = await whole.api.ask(verb, url, body, by=EDITOR)
            assert status in (404, 422), (verb, url, status, said)
        seen += 1
    assert seen > 25
    assert await state(whole) == before


async def test_nor_do_bodies_and_queries_reach_it(whole: Whole, key: str) -> None:
    theirs = await elsewhere(whole)
    before = await state(whole)
    delivery, send = theirs["delivery_id"], "/v1/adapters/telegram"
    for path in (
        f"events?channel_id={MARK}", f"events?delivery_id={delivery}", f"deliveries?channel_id={MARK}",
        f"planned?channel_id={MARK}", "messages", "channels", "endpoints", "templates", "credentials", "changes", "webhooks",
    ):  # fmt: skip
        status, said, _ = await whole.api.ask("GET", f"{HERS}/{path}", key=key)
        assert MARK not in str(said) and delivery not in str(said), path
        assert status in (200, 404, 422), path
    for path, body in (
        (f"{HERS}/deliveries/requeue", {"delivery_ids": [delivery], "reason": "the tests"}),
        (f"{HERS}/unknown/confirm", {"delivery_ids": [delivery], "reason": "the tests"}),
        (f"{HERS}/unknown/resend", {"delivery_ids": [delivery], "reason": "the tests"}),
        (f"{HERS}/messages", {"text": "Hi", "channels": [MARK]}),
        (f"{HERS}/messages", {"text": "Hi", "template": MARK}),
        (f"{send}/send_text", {"delivery_id": delivery, "lease": 1}),
        (f"{send}/send_text", {"channel_id": MARK, "text": "Hi"}),
        (f"{send}/send_text", {"target": "-1009", "auth_ref": MARK, "text": "Hi"}),
        (f"{send}/send_media", {"channel_id": "news", "media": [{"type": "image", "blob_ref": f"blob:{MARK}"}]}),
    ):
        status, said, _ = await whole.api.ask("POST", path, body, key=key)
        sent = said.get("ok") if isinstance(said, dict) else None
        assert status < 500 and not sent, (path, said)
    assert await state(whole) == before


async def test_who_published_through_this_api_is_on_record(whole: Whole, key: str) -> None:
    _, said, _ = await whole.api.ask("POST", f"{HERS}/messages", {"text": "Hi there"}, key=key)
    _, changes, _ = await whole.api.ask("GET", f"{HERS}/changes?limit=1", key=key)
    (change,) = changes
    assert (change["actor"], change["action"], change["subject"]) == (
        "apikey robot", "published", f"message {said['message_id']}",
    )  # fmt: skip
