"""A workspace is configured over HTTP by the very code that makes a declaration of a file true."""

from __future__ import annotations

from typing import Any

import pytest
from whole_rig import OWNER, Whole

from vestnik.ops import access


@pytest.fixture
async def key(whole: Whole) -> str:
    return await access.create_key(whole.api.pool, "shop", "robot", "full")


async def put(whole: Whole, path: str, body: Any, key: str, query: str = "") -> tuple[int, Any]:
    status, said, _ = await whole.api.ask("PUT", f"/v1/workspaces/shop/{path}{query}", body, key=key)
    return status, said


CHANNEL = {"platform": "telegram", "target": "-2002", "auth_ref": "bot"}


async def test_a_channel_is_made_changed_and_taken_back(whole: Whole, key: str) -> None:
    path = "channels/evening/news"
    status, said = await put(whole, path, {**CHANNEL, "rate_rps": 2}, key)
    assert (status, [change["what"] for change in said["changes"]]) == (200, ["channel shop/evening/news"])
    status, said = await put(whole, path, {**CHANNEL, "title": "Evening"}, key)
    assert said["changes"][0]["before"] == {"title": None}
    assert said["changes"][0]["after"] == {"title": "Evening"}
    _, shown = await whole.api.get(f"/v1/workspaces/shop/{path}", key)
    assert (shown["target_id"], shown["rate_rps"], shown["title"]) == ("-2002", 2, "Evening")
    status, _, _ = await whole.api.ask("DELETE", f"/v1/workspaces/shop/{path}", key=key)
    assert status == 204
    assert (await whole.api.get(f"/v1/workspaces/shop/{path}", key))[0] == 404


async def test_a_dry_run_answers_the_difference_and_leaves_everything(whole: Whole, key: str) -> None:
    before = await everything(whole)
    for path, body in (
        ("channels/evening", CHANNEL),
        ("policy", {"max_attempts": 3}),
        ("limits/telegram/bot", {"rate_rps": 5}),
        ("templates/card", {"body": "new {{text}}"}),
        ("endpoints/second", {}),
        ("sources/feed", {"kind": "rss", "config": {"url": "https://feeds.example/x"}}),
    ):
        status, said = await put(whole, path, body, key, "?dry_run=true")
        assert (status, said["dry_run"], len(said["changes"])) == (200, True, 1), (path, said)
        assert said["secrets"] == {}
    assert await everything(whole) == before


async def test_a_channel_with_deliveries_stays(whole: Whole, key: str) -> None:
    status, said, _ = await whole.api.ask("DELETE", "/v1/workspaces/shop/channels/news", key=key)
    assert (status, "disable it instead" in said["detail"]) == (409, True)


async def test_an_endpoint_is_made_rotated_and_shut(whole: Whole, key: str) -> None:
    _, said = await put(whole, "endpoints/second", {"ingress_rps": 7}, key)
    secret = said["secrets"]["shop/second"]
    status, _, _ = await whole.api.push({"text": "Hello"}, Authorization=f"Bearer {secret}")
    assert status == 202
    status, rotated, _ = await whole.api.ask("POST", "/v1/workspaces/shop/endpoints/second/rotate", key=key)
    assert (status, rotated["endpoint_id"]) == (201, "second-v2")
    assert (await whole.api.push({"text": "again"}, Authorization=f"Bearer {rotated['secret']}"))[0] == 202
    await put(whole, "endpoints/second-v2", {"enabled": False}, key)
    _, rows = await whole.api.get("/v1/workspaces/shop/endpoints", key)
    assert {row["endpoint_id"]: row["enabled"] for row in rows} == {"site": True, "second": False, "second-v2": False}


async def test_rules_limits_and_templates(whole: Whole, key: str) -> None:
    await put(whole, "policy", {"max_attempts": 3, "backoff_base": "15s"}, key)
    _, policy = await whole.api.get("/v1/workspaces/shop/policy", key)
    assert (policy["max_attempts"], policy["backoff_base"]) == (3, "PT15S")
    await put(whole, "limits/telegram/bot", {"rate_rps": 5}, key)
    _, limits = await whole.api.get("/v1/workspaces/shop/limits", key)
    assert [(row["rate_group"], row["rate_rps"]) for row in limits] == [("bot", 5)]
    await put(whole, "templates/card", {"body": "new {{text}}"}, key)
    _, card = await whole.api.get("/v1/workspaces/shop/templates/card", key)
    _, first = await whole.api.get("/v1/workspaces/shop/templates/card?version=1", key)
    assert ((card["version"], card["body"]), first["body"]) == ((2, "new {{text}}"), "{{text}}")


async def test_a_credential_goes_in_and_never_comes_out(whole: Whole) -> None:
    path = "/v1/workspaces/shop/credentials/telegram/bot"
    status, said, _ = await whole.api.ask("PUT", path, {"token": "2:SECRET"}, by=OWNER)
    assert (status, said["changes"][0]["after"]) == (200, {"token": "(secret)"})
    _, names, _ = await whole.api.ask("GET", "/v1/workspaces/shop/credentials", by=OWNER)
    assert [(row["platform"], row["auth_ref"]) for row in names] == [("telegram", "bot")]
    _, record, _ = await whole.api.ask("GET", "/v1/workspaces/shop/changes", by=OWNER)
    assert "2:SECRET" not in str((said, names, record))
    assert (await whole.api.ask("DELETE", path, by=OWNER))[0] == 409, "a channel sends with it"
    assert (await whole.api.ask("DELETE", f"{path}?although_used=true", by=OWNER))[0] == 204


async def test_a_whole_workspace_in_one_declaration(whole: Whole, key: str) -> None:
    body = {
        "policy": {"max_attempts": 4},
        "channels": [{"id": "a", **CHANNEL}, {"id": "b", **CHANNEL, "target": "-3003"}],
    }
    path = "/v1/workspaces/shop/apply"
    _, looked, _ = await whole.api.ask("POST", f"{path}?dry_run=true", body, key=key)
    _, done, _ = await whole.api.ask("POST", path, body, key=key)
    _, again, _ = await whole.api.ask("POST", path, body, key=key)
    assert looked["changes"] == done["changes"]
    assert (len(done["changes"]), again["changes"]) == (3, [])


@pytest.mark.parametrize(
    ("path", "body", "fault"),
    [
        ("channels/x", {**CHANNEL, "target": "nonsense"}, "is not the number of a chat"),
        ("channels/x", {**CHANNEL, "rate": 5}, "unknown key; did you mean rate_rps?"),
        ("channels/x", {**CHANNEL, "target": "-1001"}, "both lead to -1001"),
        ("channels/x", {"id": "y", **CHANNEL}, "the path says another"),
        ("channels/x", {}, "is missing"),
        ("policy", {"max_attempts": 10**12}, "max_attempts"),
        ("templates/x", {"body": "{{#open}}"}, "templates.x"),
        ("channels/x", {**CHANNEL, "title": "a\0b"}, "NUL"),
    ],
)
async def test_a_slip_is_told_as_the_command_tells_it(
    whole: Whole, key: str, path: str, body: dict[str, Any], fault: str
) -> None:
    before = await everything(whole)
    status, said = await put(whole, path, body, key)
    assert (status, fault in said["detail"]) == (422, True), said
    assert await everything(whole) == before


async def test_who_did_it_stands_in_the_record(whole: Whole, key: str) -> None:
    await put(whole, "channels/evening", CHANNEL, key)
    await whole.api.ask("POST", "/v1/workspaces/shop/job-kinds/media.fetch/pause", by=OWNER)
    await whole.api.ask("POST", "/v1/workspaces/shop/channels/news/disable", {"reason": "quiet hours"}, by=OWNER)
    _, rows, _ = await whole.api.ask("GET", "/v1/workspaces/shop/changes", by=OWNER)
    told = [(row["actor"], row["action"], row["subject"]) for row in rows]
    assert told[:3] == [
        ("operator anna", "channel_disabled", "channel news"),
        ("operator anna", "kind_paused", "jobs media.fetch"),
        ("apikey robot", "created", "channel evening"),
    ]
    _, of_key, _ = await whole.api.ask("GET", "/v1/workspaces/shop/changes?actor=apikey robot", by=OWNER)
    assert [row["subject"] for row in of_key] == ["channel evening"]


async def test_posts_and_deliveries_page_by_page(whole: Whole, key: str) -> None:
    for n in range(5):
        status, said, _ = await whole.api.ask("POST", "/v1/workspaces/shop/messages", {"text": f"post {n}"}, key=key)
        assert (status, said["enqueued"]) == (202, 1)
    seen: list[str] = []
    for what, name in (("messages", "message_id"), ("deliveries", "delivery_id")):
        seen, before = [], ""
        while True:
            _, page = await whole.api.get(f"/v1/workspaces/shop/{what}?limit=2{before}", key)
            if not page:
                break
            seen += [row[name] for row in page]
            before = f"&before={seen[-1]}"
        assert len(seen) == len(set(seen)) == 6
        assert seen == sorted(seen, reverse=True)
    _, message = await whole.api.get(f"/v1/workspaces/shop/messages/{whole.known['message_id']}", key)
    assert [each["delivery_id"] for each in message["deliveries"]] == [whole.known["delivery_id"]]
    _, none = await whole.api.get("/v1/workspaces/shop/deliveries?status=dead", key)
    assert none == []


async def everything(whole: Whole) -> list[Any]:
    tables = (
        *("channels", "policies", "platform_limits", "templates", "workspace_endpoints", "pull_sources"),
        *("pull_cursors",),
    )
    rows = [await whole.api.sql(f"select x::text from autopost.{table} x order by 1") for table in tables]
    return [*rows, await whole.api.sql("select change_id from core.changes order by 1")]
