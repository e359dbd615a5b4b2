"""Every answer of ``POST /v1/push``, and what it leaves behind."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import psycopg
import pytest
from api_rig import Api

from vestnik.autopost import verbs
from vestnik.autopost.intake import Intake


async def test_a_post_is_accepted_and_queued_for_every_channel(api: Api) -> None:
    status, answer, _ = await api.push({"text": "Hello", "tags": ["News"]})
    assert status == 202
    assert {k: answer[k] for k in ("outcome", "enqueued", "suppressed", "failed")} == {
        "outcome": "accepted", "enqueued": 2, "suppressed": 0, "failed": 0,
    }  # fmt: skip
    stored = (
        await api.sql("select message_id, tags, first_seen_trace_id, first_ingest_run_id from autopost.messages")
    )[0]
    assert [str(v) for k, v in stored.items() if k != "tags"] == [
        answer[k] for k in ("message_id", "trace_id", "run_id")
    ]
    assert stored["tags"] == ["news"]
    runs = await api.sql("select stats_json from autopost.ingest_runs where run_id = %s", answer["run_id"])
    assert runs[0]["stats_json"]["accepted"] == 1


async def test_the_same_source_ref_is_a_duplicate(api: Api) -> None:
    assert (await api.push({"text": "one", "source_ref": "cms-1"}))[0] == 202
    status, answer, _ = await api.push({"text": "another text", "source_ref": "cms-1"})
    assert (status, answer) == (200, {"outcome": "duplicate"})
    assert (await api.traces())["messages"] == 1
    noted = await api.sql("select meta from autopost.events where action = 'ingress_dedup_dropped'")
    assert noted[0]["meta"]["count"] == 1


async def test_the_same_payload_at_once_is_a_duplicate_but_for_one(api: Api) -> None:
    answers = await asyncio.gather(*(api.push({"text": "same"}) for _ in range(24)))
    assert sorted(status for status, _, _ in answers) == [200] * 23 + [202]
    assert (await api.traces()) == {"messages": 1, "deliveries": 2, "ingress_receipts": 1}


async def test_many_at_once_are_all_kept(api: Api) -> None:
    answers = await asyncio.gather(*(api.push({"text": f"post {n}"}) for n in range(150)))
    assert {status for status, _, _ in answers} == {202}
    assert len({answer["message_id"] for _, answer, _ in answers}) == 150
    assert (await api.traces())["deliveries"] == 300


@pytest.mark.parametrize(
    "headers", [{"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}]
)
async def test_a_wrong_secret_is_401(api: Api, headers: dict[str, str]) -> None:
    status, answer, sent = await api.push({"text": "x"}, **headers)
    assert status == 401
    assert sent["Content-Type"] == "application/problem+json"
    assert sent["WWW-Authenticate"] == "Bearer"
    assert answer["status"] == 401
    assert sum((await api.traces()).values()) == 0


async def test_the_other_header_works_too(api: Api) -> None:
    assert (await api.push({"text": "x"}, **{"Authorization": "", "X-Vestnik-Secret": api.secret}))[0] == 202


async def test_a_secret_of_the_wrong_kind_is_401(api: Api) -> None:
    bot = await verbs.create_endpoint(api.pool, "shop", "bot", kind="bot_webhook")
    assert (await api.push({"text": "x"}, Authorization=f"Bearer {bot}"))[0] == 401


@pytest.mark.parametrize(("status", "answer"), [("paused", 202), ("disabled", 401)])
async def test_a_paused_workspace_accepts_a_disabled_one_does_not(api: Api, status: str, answer: int) -> None:
    await api.sql("update core.workspaces set status = %s", status)
    assert (await api.push({"text": "x"}))[0] == answer


async def test_rotation_opens_the_new_door_and_shuts_the_old_one(api: Api) -> None:
    new_id, new = await verbs.rotate_endpoint(api.pool, "shop", "site")
    assert (await api.push({"text": "x"}, Authorization=f"Bearer {new}"))[0] == 202
    assert (await api.push({"text": "y"}))[0] == 401
    kept = await api.sql("select endpoint_id, enabled from autopost.workspace_endpoints order by 1")
    assert kept == [{"endpoint_id": "site", "enabled": False}, {"endpoint_id": new_id, "enabled": True}]


async def test_the_hint_of_a_workspace_is_not_believed(api: Api) -> None:
    await api.sql("insert into core.workspaces (workspace_id, name) values ('other', 'Other')")
    assert (await api.push({"text": "x", "workspace_id": "other"}))[0] == 202
    assert (await api.sql("select workspace_id from autopost.messages")) == [{"workspace_id": "shop"}]


async def test_too_large_is_413_whether_it_says_so_or_not(api: Api) -> None:
    await api.sql("update autopost.workspace_endpoints set max_payload_bytes = 1000")
    await asyncio.sleep(0)
    status, answer, _ = await api.push({"text": "x" * 2000})
    assert (status, answer["max_payload_bytes"]) == (413, 1000)

    async def unsized() -> Any:
        for _ in range(30):
            yield b" " * 100

    async with api.http.post(
        f"{api.url}/v1/push", data=unsized(), headers={"Authorization": f"Bearer {api.secret}"}
    ) as response:
        assert response.status == 413
    noted = await api.sql(
        "select sum((meta ->> 'count')::int) as n from autopost.events where action = 'ingress_payload_rejected'"
    )
    assert noted[0]["n"] == 2
    assert sum((await api.traces()).values()) == 0


async def test_too_fast_is_429_and_leaves_no_receipt(api: Api) -> None:
    slow = await verbs.create_endpoint(api.pool, "shop", "slow", rps=2)
    answers = await asyncio.gather(
        *(api.push({"text": f"{n}", "source_ref": f"r{n}"}, Authorization=f"Bearer {slow}") for n in range(10))
    )
    refused = [headers for status, _, headers in answers if status == 429]
    assert len(refused) >= 6
    assert all(int(headers["Retry-After"]) >= 1 for headers in refused)
    accepted = sum(status == 202 for status, _, _ in answers)
    assert (await api.traces())["ingress_receipts"] == accepted
    noted = await api.sql(
        "select sum((meta ->> 'count')::int) as n from autopost.events where action = 'ingress_rate_limited'"
    )
    assert noted[0]["n"] == len(refused)
    runs = await api.sql("select sum((stats_json ->> 'rate_limited')::int) as n from autopost.ingest_runs")
    assert runs[0]["n"] == len(refused)


NESTED = b'{"text":"x","meta":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}"
BAD = {
    "not JSON": b"{",
    "an array": b"[]",
    "empty": b"",
    "NUL in a text": b'{"text": "a\\u0000b"}',
    "NUL in a key": b'{"text": "a", "meta": {"a\\u0000": 1}}',
    "half a character": b'{"text": "\\ud800"}',
    "not UTF-8": b'{"text": "\xff"}',
    "NaN": b'{"text": "x", "meta": {"a": NaN}}',
    "a number beyond any use": b'{"text": "x", "meta": {"a": 1e999999}}',
    "nested": NESTED,
    "a megabyte of nesting": b'{"text":"x","meta":' + b"[" * 120_000,
    "wrong type": b'{"text": 3}',
    "unknown key": b'{"text": "x", "colour": "red"}',
    "unknown parse mode": b'{"text": "x", "parse_mode": "BBCode"}',
    "nothing to say": b'{"text": "  "}',
    "media": b'{"text": "x", "media": [{"type": "image", "url": "file:///etc/passwd"}]}',
    "an upload without a form": b'{"text": "x", "media": [{"type": "image", "upload": "photo"}]}',
    "schedule": b'{"text": "x", "scheduled_for": "2027-01-01T00:00:00"}',
    "65 tags": json.dumps({"text": "x", "tags": [str(n) for n in range(65)]}).encode(),
    "a long tag": json.dumps({"text": "x", "tags": ["t" * 65]}).encode(),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD)
async def test_what_is_not_a_payload_is_422_with_its_faults(api: Api, raw: bytes) -> None:
    status, answer, headers = await api.push(raw=raw)
    assert status == 422
    assert headers["Content-Type"] == "application/problem+json"
    assert answer["errors"]
    assert sum((await api.traces()).values()) == 0
    assert (await api.push({"text": "a good one", "source_ref": "r"}))[0] == 202


async def test_faults_are_named(api: Api) -> None:
    _, answer, _ = await api.push({"text": 3, "colour": "red", "media": [{}]})
    assert answer["errors"] == ["colour: unknown key", "text: must be string, not number"]
    _, answer, _ = await api.push({"text": "x", "media": [{}], "scheduled_for": "2027-01-01"})
    assert answer["errors"] == [
        "media: item 1 needs a type: image, video, audio, file or animation",
        "scheduled_for: must be a moment with its offset, like 2027-01-31T09:00:00+03:00",
    ]
    _, answer, _ = await api.push({"text": "x", "media": [{"type": "image", "upload": "photo"}]})
    assert "send multipart/form-data with a part of that name" in answer["detail"]


async def test_two_million_tags_are_refused_quickly(api: Api) -> None:
    await api.sql("update autopost.workspace_endpoints set max_payload_bytes = 8000000")
    raw = b'{"text":"x","tags":[' + b",".join([b'"a"'] * 1_900_000) + b"]}"
    assert (await api.push(raw=io.BytesIO(raw)))[0] == 422


async def test_one_that_cannot_be_stored_does_not_take_its_neighbours_along(api: Api) -> None:
    good = [api.push({"text": f"good {n}"}) for n in range(10)]
    bad = [api.push(raw=BAD["a number beyond any use"]) for _ in range(2)]
    answers = await asyncio.gather(*good, *bad)
    assert [status for status, _, _ in answers] == [202] * 10 + [422] * 2


async def test_a_limit_of_one_platform_is_not_an_error_of_the_request(api: Api) -> None:
    status, answer, _ = await api.push({"text": "x" * 4050})
    assert status == 202
    assert (answer["enqueued"], answer["failed"]) == (1, 1)
    failed = await api.sql("select channel_id, last_error from autopost.deliveries where status = 'failed_permanent'")
    assert failed[0]["channel_id"] == "max"
    assert failed[0]["last_error"]["code"] == "validation_failed"


async def test_unbalanced_html_fails_in_every_channel_and_is_stored(api: Api) -> None:
    status, answer, _ = await api.push({"text": "<b>bold", "parse_mode": "HTML"})
    assert (status, answer["failed"]) == (202, 2)


async def test_a_post_that_nobody_gets_is_accepted_and_says_so(api: Api) -> None:
    await api.sql("update autopost.channels set enabled = false where channel_id = 'max'")
    status, answer, _ = await api.push({"text": "x", "channels": ["max"]})
    assert (status, answer["enqueued"]) == (202, 0)
    assert answer["warnings"] == ["no channel wants it: max: the channel is disabled"]


async def test_other_tags_for_the_same_post_are_told(api: Api) -> None:
    await api.push({"text": "x", "tags": ["a"], "source_ref": "1"})
    _, answer, _ = await api.push({"text": "x", "tags": ["b"], "source_ref": "2"})
    assert answer["routed_by_tags"] == ["a"]
    assert answer["warnings"]
    assert answer["suppressed"] == 2


async def test_a_push_wakes_the_dispatcher(api: Api, database: str) -> None:
    from contextlib import aclosing

    from vestnik.db.listen import listen

    async with aclosing(listen(database, "vestnik_wake")) as wakes:
        assert (await anext(wakes)).connected
        await api.push({"text": "x"})
        async with asyncio.timeout(10):
            assert (await anext(wakes)).payload == "shop"


async def test_health_and_the_description(api: Api) -> None:
    status, answer = await api.get("/api/health")
    assert (status, answer["status"]) == (200, "ok")
    status, description = await api.get("/openapi.json")
    assert status == 200
    assert set(description["paths"]["/v1/push"]["post"]["responses"]) >= {
        "200",
        "202",
        "401",
        "413",
        "422",
        "429",
        "503",
    }


async def test_what_is_not_there_is_a_problem_too(api: Api) -> None:
    status, answer = await api.get("/v1/nothing")
    assert (status, answer["title"]) == (404, "Not Found")


async def test_a_door_that_was_shut_a_moment_ago_is_401(api: Api) -> None:
    """The endpoint is still remembered; the database has the last word."""
    assert (await api.push({"text": "one"}))[0] == 202
    await api.sql("update core.workspaces set status = 'disabled' returning 1")
    assert (await api.push({"text": "two"}))[0] == 401
    await api.sql("update core.workspaces set status = 'active' returning 1")
    assert (await api.push({"text": "three"}))[0] == 202
    await api.sql("delete from autopost.workspace_endpoints returning 1")
    assert (await api.push({"text": "four"}))[0] == 401


@pytest.mark.parametrize("rate", ["Infinity", "1e300", "1e10"])
async def test_a_rate_without_measure_takes_everything(api: Api, rate: str) -> None:
    await api.sql("update autopost.workspace_endpoints set ingress_rps = %s returning 1", rate)
    answers = await asyncio.gather(*(api.push({"text": f"post {n}"}) for n in range(20)))
    assert {status for status, _, _ in answers} == {202}


async def test_what_is_stored_is_accepted_though_the_record_of_the_others_fails(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("the connection is cut")

    assert (await api.push({"text": "seen"}))[0] == 202
    monkeypatch.setattr(Intake, "refused", cut)
    answers = await asyncio.gather(*(api.push({"text": text}) for text in ("seen", "one", "two", "three")))
    assert [status for status, _, _ in answers] == [503, 202, 202, 202]
    assert (await api.traces())["messages"] == 4


async def test_many_faults_are_told_in_a_short_answer(api: Api) -> None:
    status, answer, _ = await api.push({f"key{n}": 1 for n in range(5000)})
    assert status == 422
    assert len(answer["errors"]) == 21
    assert answer["errors"][-1] == "and 4980 more"


async def test_a_body_that_breaks_off_is_no_failure_of_ours(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/push HTTP/1.1\r\nHost: x\r\nX-Vestnik-Secret: {api.secret}\r\nContent-Length: 99\r\n\r\n{{".encode()
    )
    await writer.drain()
    writer.close()
    await asyncio.sleep(0.3)
    assert "http.failed" not in "".join(capfd.readouterr())
