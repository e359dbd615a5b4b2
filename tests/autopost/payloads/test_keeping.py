"""What went wrong is kept in full where few may look, and in short, without a secret, where all may."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from newsroom import TOKENS, Newsroom

from vestnik.autopost.payloads.keeper import AT_ONCE, PATIENCE, REST, Keeper
from vestnik.autopost.payloads.sealing import Seal
from vestnik.autopost.payloads.vault import LARGEST, Vault
from vestnik.db.pool import Pool, call
from vestnik.ops.secrets.box import SecretBox
from vestnik.storage import StorageError

PHONE, MAIL, PASSWORD = "+7 (916) 123-45-67", "ivan.petrov@example.org", "hunter2"
SECRETS = ("916", "ivan.petrov", PASSWORD, "f9LHodD0cOKmT8", *TOKENS.values())
HOSTILE = (
    f"Bad Request: no {PHONE} or {MAIL}, password={PASSWORD}, Authorization: Bearer f9LHodD0cOKmT8, {TOKENS['bot']}"
)


async def everything_kept(room: Newsroom) -> str:
    tables = (
        "autopost.events",
        "autopost.deliveries",
        "autopost.channels",
        "autopost.ingest_runs",
        "ops.errors",
        "ops.jobs",
    )
    return json.dumps(
        [await room.sql(f"select (to_jsonb(t) - 'rendered_text')::text as row from {table} t") for table in tables]
    )


async def failed(room: Newsroom) -> dict[str, Any]:
    (event,) = await room.sql("select * from autopost.events where action = 'failed_permanent'")
    return event


def objects(room: Newsroom) -> list[Any]:
    return [path for path in (room.folder / "objects" / "payloads").rglob("*") if path.is_file()]


async def test_what_a_platform_says_in_anger_is_kept_in_full_and_told_without_secrets(
    newsroom: Newsroom, vault: Vault, capfd: pytest.CaptureFixture[str]
) -> None:
    newsroom.fault("telegram", "400", message=HOSTILE)
    async with newsroom.open():
        await newsroom.push({"text": f"a post of the customer {PHONE}"})
        await newsroom.settled("failed_permanent")
    event = await failed(newsroom)
    told = await everything_kept(newsroom) + "".join(capfd.readouterr())
    assert not [secret for secret in SECRETS if secret in told]
    assert "Bad Request: no ***" in event["error"]["message"]

    whole = json.loads(await vault.get("w", event["payload_ref"]))
    assert HOSTILE.replace(TOKENS["bot"], "***") in whole["answer"]["body"]
    assert (whole["answer"]["status"], whole["kind"]) == (400, "send_error")
    assert whole["request"]["body"]["json"]["text"].endswith(PHONE)
    assert whole["request"]["path"] == "/bot***/sendMessage"
    assert whole["delivery_id"] == str(event["delivery_id"])
    assert TOKENS["bot"] not in json.dumps(whole)


async def test_at_rest_nobody_can_read_it(newsroom: Newsroom) -> None:
    newsroom.fault("telegram", "400", message=HOSTILE)
    async with newsroom.open():
        await newsroom.push({"text": "hello"})
        await newsroom.settled("failed_permanent")
    (path,) = objects(newsroom)
    assert path.name == (await failed(newsroom))["payload_ref"]
    for word in (b"Bad Request", b"hello", b"ivan", b"sendMessage"):
        assert word not in path.read_bytes()


async def test_a_success_leaves_nothing(newsroom: Newsroom) -> None:
    async with newsroom.open():
        await newsroom.push({"text": "hello"})
        await newsroom.settled("sent")
    assert objects(newsroom) == []


async def test_who_wants_nothing_kept_has_nothing_kept(newsroom: Newsroom) -> None:
    await newsroom.sql(
        """insert into ops.retention (workspace_id, rule, options) values ('w', 'payloads', '{"raw_payloads": "off"}')"""
    )
    newsroom.fault("telegram", "400", message="no")
    async with newsroom.open():
        await newsroom.push({"text": "hello"})
        await newsroom.settled("failed_permanent")
    event = await failed(newsroom)
    assert (event["payload_ref"], "payload_not_kept" in event["meta"], objects(newsroom)) == (None, False, [])


async def test_without_an_object_store_the_result_is_written_all_the_same(newsroom: Newsroom) -> None:
    newsroom.fault("telegram", "400", message="no")
    async with newsroom.open():
        shutil.rmtree(newsroom.folder / "objects")
        (newsroom.folder / "objects").write_text("in its place")
        await newsroom.push({"text": "hello"})
        await newsroom.settled("failed_permanent")
    event = await failed(newsroom)
    assert event["payload_ref"] is None
    assert event["meta"]["payload_not_kept"] == "the object store cannot be used now"


async def test_a_push_that_is_turned_away_is_kept_as_it_came(newsroom: Newsroom, vault: Vault) -> None:
    async with newsroom.open("api"):
        for body in ({"tekst": f"call {PHONE}"}, {"text": 5}):
            assert (await newsroom.push(body))["status"] == 422
    refused = await newsroom.sql(
        "select payload_ref, meta from autopost.events where action = 'ingress_payload_rejected' order by ts"
    )
    assert sum(event["meta"]["count"] for event in refused) == 2
    first = json.loads(await vault.get("w", refused[0]["payload_ref"]))
    assert json.loads(first["body"]) == {"tekst": f"call {PHONE}"}
    assert (first["kind"], first["endpoint_id"], first["reason"]) == ("rejected_push", "site", "invalid")
    assert "tekst" in str(first["problems"])
    assert len(objects(newsroom)) == len(refused), "one of an endpoint, reason and second"
    assert PHONE not in await everything_kept(newsroom)


class Store:
    """A store whose writing is in the test's hand."""

    def __init__(self) -> None:
        self.broken: Exception | None = None
        self.hanging = False
        self.tries = 0

    async def put(self, path: str, chunks: AsyncIterator[bytes]) -> None:
        self.tries += 1
        if self.broken:
            raise self.broken
        if self.hanging:
            await asyncio.Event().wait()


def keeper_on(pool: Pool, store: Store, clock: Mapping[str, float]) -> Keeper:
    vault = Vault(store, Seal([SecretBox.open_with("key")]))  # type: ignore[arg-type]
    return Keeper(pool, vault, clock=lambda: clock["now"])


async def test_a_store_that_fails_is_left_alone_for_a_while(pool: Pool) -> None:
    clock, store = {"now": 100.0}, Store()
    keeper = keeper_on(pool, store, clock)
    store.broken = StorageError("away")
    for _ in range(3):
        kept = await keeper.keep("w", {"a": 1})
        assert kept.payload_ref is None and kept.not_kept
    assert store.tries == 1
    store.broken = None
    clock["now"] += REST
    assert (await keeper.keep("w", {"a": 1})).payload_ref


async def test_a_store_that_hangs_holds_a_result_up_for_a_moment_only(pool: Pool) -> None:
    clock, store = {"now": 100.0}, Store()
    store.hanging = True
    async with asyncio.timeout(PATIENCE * 20):
        kept = await keeper_on(pool, store, clock).keep("w", {"a": 1})
    assert kept.not_kept == "the object store cannot be used now"


async def test_a_storm_of_errors_does_not_become_a_storm_of_objects(pool: Pool) -> None:
    store = Store()
    store.hanging = True
    keeper = keeper_on(pool, store, {"now": 100.0})
    kept = await asyncio.gather(*(keeper.keep("w", {"n": n}) for n in range(AT_ONCE + 5)))
    assert store.tries <= AT_ONCE
    assert [each.not_kept for each in kept].count("too many at once") == 5


async def test_no_object_is_larger_than_it_may_be(pool: Pool, tmp_path: Any) -> None:
    from vestnik.storage import open_store

    vault = Vault(open_store(tmp_path.as_uri()), Seal([SecretBox.open_with("key")]))
    name = await vault.put("w", {"body": uuid.uuid4().hex * (LARGEST // 16)})
    content = await vault.get("w", name)
    assert len(content) == LARGEST
    assert b"bytes in all" in content[-40:]


async def test_what_an_event_tells_twice_is_told_without_secrets_twice(newsroom: Newsroom) -> None:
    """Whatever is in the log, redacting it once more changes nothing."""
    newsroom.fault("telegram", "400", message=HOSTILE)
    async with newsroom.open():
        await newsroom.push({"text": "hello", "tags": [MAIL]})
        await newsroom.settled("failed_permanent")
        await call(newsroom.pool, "select autopost.cancel_deliveries('w', 'me', %s)", (f"call {PHONE}",))
    found = await newsroom.sql(
        "select action, error, meta from autopost.events"
        " where core.redact(error) is distinct from error or core.redact(meta) is distinct from meta"
    )
    assert found == []
