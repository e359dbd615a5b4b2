"""The runbook over HTTP: who asks is the operator of the events, and every mistake has its answer."""

from __future__ import annotations

from typing import Any

import pytest
from api_rig import Api

from vestnik.ops import access

WHY = {"reason": "drill"}
NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
async def key(api: Api) -> str:
    await api.sql("update autopost.channels set max_parallel = 9, rate_rps = null")
    return await access.create_key(api.pool, "shop", "console", "full")


async def post(api: Api, key: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    async with api.http.post(f"{api.url}/v1/workspaces/shop/{path}", headers=headers, json=body) as response:
        return response.status, await response.json(content_type=None)


async def begin(api: Api, text: str = "hello") -> list[Any]:
    await api.push({"text": text})
    return await api.sql("select * from autopost.claim_and_begin('shop', 'run', 100)")


async def one_dead(api: Api) -> str:
    """One of two; the other is being sent."""
    row, _ = await begin(api)
    await api.sql("select autopost.policy_of('shop')")
    await api.sql("update autopost.policies set max_attempts = 1")
    await api.sql("select autopost.schedule_retry('shop', %s, null, '{\"code\": \"500\"}')", row["delivery_id"])
    return str(row["delivery_id"])


async def metas(api: Api, action: str) -> list[Any]:
    return [row["meta"] for row in await api.sql("select meta from autopost.events where action = %s", action)]


async def test_deliveries_are_requeued_and_refusals_are_told(api: Api, key: str) -> None:
    dead = await one_dead(api)
    status, rows = await post(api, key, "deliveries/requeue", WHY | {"deliveries": [dead, NOBODY]})
    assert status == 200
    assert {row["delivery_id"]: (row["outcome"], row["detail"]) for row in rows} == {
        dead: ("requeued", None), NOBODY: ("refused", "there is no such delivery"),
    }  # fmt: skip
    assert await metas(api, "manual_requeue") == [
        {"operator": "apikey console", "reason": "drill", "from_status": "dead"}
    ]


async def test_many_are_counted_and_moved_page_by_page(api: Api, key: str) -> None:
    for n in range(3):
        await api.push({"text": f"post {n}", "tags": ["promo"]})
    select = {"status": "queued", "tag": "promo", "platform": "max"}
    status, counted = await post(api, key, "bulk/cancel/count", select)
    assert (status, counted["count"], counted["refused"]) == (200, 3, 0)
    assert [row["channel_id"] for row in counted["channels"]] == ["max"]
    select["until"] = counted["until"]
    await api.push({"text": "later", "tags": ["promo"]})
    move = WHY | {"select": select, "limit": 2}
    answers = [await post(api, key, "bulk/cancel", move) for _ in range(2)]
    assert answers == [(200, {"moved": 2, "more": True}), (200, {"moved": 1, "more": False})]
    assert len(await metas(api, "cancelled")) == 3
    status, refusal = await post(api, key, "bulk/requeue", move)
    assert (status, refusal["detail"]) == (422, "What is queued is nothing to requeue; dead and failed_permanent are.")


async def test_the_dead_are_requeued_by_what_they_have_in_common(api: Api, key: str) -> None:
    await one_dead(api)
    select = {"status": "dead", "code": "500", "category": "TRANSIENT"}
    assert (await post(api, key, "bulk/requeue/count", select))[1]["count"] == 1
    assert await post(api, key, "bulk/requeue", WHY | {"select": select}) == (200, {"moved": 1, "more": False})
    assert (await post(api, key, "bulk/requeue/count", select))[1]["channels"] == []


async def test_channels_and_groups_stop_and_go_on(api: Api, key: str) -> None:
    await api.sql("update autopost.channels set channel_id = 'a/b' where channel_id = 'max'")
    status, answer = await post(api, key, "channels/a%2Fb/pause", WHY | {"seconds": 60})
    assert (status, answer["channel_id"]) == (200, "a/b")
    assert await post(api, key, "channels/a/b/resume", WHY) == (200, ["a/b"])
    assert await post(api, key, "channels/telegram/disable", WHY) == (200, ["telegram"])
    assert await post(api, key, "groups/bot/enable", WHY) == (200, ["a/b", "telegram"])
    assert await post(api, key, "groups/bot/disable", WHY | {"platform": "max"}) == (200, ["a/b"])
    by = {"operator": "apikey console", "reason": "drill", "manual": True}
    assert await metas(api, "channel_paused") == [by]
    assert await metas(api, "channel_disabled") == [by, by | {"rate_group": "bot"}]


async def test_a_credential_is_rotated(api: Api, key: str) -> None:
    for platform in ("telegram", "max"):
        await api.sql(
            "insert into core.credential_bindings (workspace_id, platform, auth_ref, secret) values ('shop', %s, 'new', '\\x00')",
            platform,
        )
    (row, _) = await begin(api)
    body = {"auth_ref": "new", "from": "bot", "wait_seconds": 0}
    status, rows = await post(api, key, "rotate-auth", body)
    assert status == 200
    assert [row["outcome"] for row in rows] == ["sending", "sending"]
    await api.sql("select autopost.mark_sent('shop', %s, 'm')", row["delivery_id"])
    rows = (await post(api, key, "rotate-auth", body))[1]
    assert sorted(row["outcome"] for row in rows) == ["rotated", "sending"]
    assert await metas(api, "auth_rotated") == [
        {"operator": "apikey console", "old_auth_ref": "bot", "new_auth_ref": "new"}
    ]


async def test_what_is_stuck_is_released(api: Api, key: str) -> None:
    await begin(api)
    assert await post(api, key, "release-stuck") == (200, [])
    await api.sql("update autopost.deliveries set sending_started_at = now() - interval '2 minutes'")
    status, rows = await post(api, key, "release-stuck", {"older_than_seconds": 60})
    assert (status, {row["outcome"] for row in rows}) == (200, {"retry"})


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("deliveries/requeue", WHY | {"deliveries": []}, 422),
        ("deliveries/requeue", {"deliveries": [NOBODY]}, 422),
        ("deliveries/requeue", WHY | {"deliveries": [NOBODY], "more": 1}, 422),
        ("bulk/requeue", WHY | {"select": {"status": "dead", "colour": "red"}}, 422),
        ("bulk/requeue", WHY | {"select": {"status": "dead"}, "limit": 100000}, 422),
        ("bulk/requeue/count", {"status": "dead", "tag": "a\x00b"}, 422),
        ("bulk/requeue/count", {"status": "dead", "since": "2027-01-31T09:00:00"}, 422),
        ("bulk/requeue/count", {"status": "dead", "since": "0001-01-01T00:00:00+14:00"}, 200),
        ("bulk/requeue/count", {"status": "dead", "until": "9999-12-31T23:59:59-14:00"}, 200),
        ("bulk/delete", WHY | {"select": {"status": "dead"}}, 422),
        ("channels/nobody/pause", WHY | {"seconds": 60}, 404),
        ("channels/max/pause", WHY | {"seconds": 0}, 422),
        ("channels/max/pause", WHY | {"seconds": 10**12}, 422),
        ("channels/max/pause", {"seconds": 60, "reason": ""}, 422),
        ("channels/nobody/resume", WHY, 404),
        ("channels/%00/disable", WHY, 422),
        ("groups/nobody/disable", WHY, 404),
        ("groups/bot/enable", WHY | {"platform": "pigeon"}, 404),
        ("rotate-auth", {"auth_ref": "new"}, 422),
        ("rotate-auth", {"auth_ref": "new", "from": "bot", "channels": ["max"]}, 422),
        ("rotate-auth", {"auth_ref": "missing", "channels": ["max"]}, 404),
        ("rotate-auth", {"auth_ref": "new", "from": "nobody"}, 404),
        ("release-stuck", {"older_than_seconds": 1}, 422),
    ],
)
async def test_every_mistake_has_its_answer(api: Api, key: str, path: str, body: Any, status: int) -> None:
    answer = await post(api, key, path, body)
    assert answer[0] == status, answer
    assert await api.sql("select 1 from autopost.events") == []


async def test_who_may_only_read_counts_and_changes_nothing(api: Api, key: str) -> None:
    reader = await access.create_key(api.pool, "shop", "reader")
    assert (await post(api, reader, "bulk/requeue/count", {"status": "dead"}))[0] == 200
    for path, body in (
        ("deliveries/requeue", WHY | {"deliveries": [NOBODY]}), ("bulk/requeue", WHY | {"select": {"status": "dead"}}),
        ("channels/max/pause", WHY | {"seconds": 9}), ("channels/max/resume", WHY), ("channels/max/disable", WHY),
        ("groups/bot/disable", WHY), ("groups/bot/enable", WHY), ("rotate-auth", {"auth_ref": "x", "from": "bot"}), ("release-stuck", {}),
    ):  # fmt: skip
        assert (await post(api, reader, path, body))[0] == 403
    assert await api.sql("select 1 from autopost.events") == []
