"""``POST /v1/workspaces/{ws}/preview`` and what is planned, over HTTP."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_rig import Api

from vestnik.ops import access

SOON = (datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0)
NOBODY = "00000000-0000-0000-0000-000000000000"


async def key(api: Api, rights: str = "read") -> str:
    return await access.create_key(api.pool, "shop", "tests", access=rights)


async def ask(
    api: Api, path: str, body: Any = None, *, by: str, raw: bytes | io.BytesIO | None = None
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {by}", "Content-Type": "application/json"}
    sent: dict[str, Any] = {"data": raw} if raw is not None else {"json": body}
    async with api.http.post(f"{api.url}/v1/workspaces/{path}", headers=headers, **sent) as response:
        return response.status, await response.json(content_type=None)


async def rows_of_all_tables(api: Api) -> dict[str, int]:
    tables = await api.sql(
        "select schemaname || '.' || tablename as name from pg_tables"
        " where schemaname in ('core', 'autopost', 'ops') and tablename <> 'policies'"
    )
    return {t["name"]: (await api.sql(f"select count(*) as n from {t['name']}"))[0]["n"] for t in tables}


async def test_a_preview_shows_what_each_channel_would_get_and_why_not(api: Api) -> None:
    await api.sql(
        "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, route_filter)"
        " values ('shop', 'deals', 'telegram', '2', 'bot', 'bot', '{\"include_any\": [\"deal\"]}')"
    )
    status, answer = await ask(
        api, "shop/preview", {"text": "<b>Привет</b>", "parse_mode": "HTML", "tags": ["News"]}, by=await key(api)
    )
    assert (status, answer["matching"], answer["total"], answer["warnings"]) == (200, 2, 3, [])
    shown = {channel["channel_id"]: channel for channel in answer["channels"]}
    assert [channel["outcome"] for channel in answer["channels"]] == ["enqueued", "enqueued", "not_routed"]
    (call,) = shown["telegram"]["calls"]
    assert (call["method"], call["text"], call["media"]) == ("sendMessage", "<b>Привет</b>", [])
    assert call["body"] == {"chat_id": 1, "text": "<b>Привет</b>", "parse_mode": "HTML"}
    (call,) = shown["max"]["calls"]
    assert (call["method"], call["params"]["chat_id"]) == ("POST /messages", "1")
    assert shown["deals"]["reason"] == "its route_filter wants one of deal, and the post has news"
    assert shown["deals"]["calls"] == []


async def test_a_preview_writes_nothing(api: Api) -> None:
    by = await key(api)
    before = await rows_of_all_tables(api)
    media = [{"type": "image", "url": "https://e.org/a.png"}]
    for body in (
        {"text": "x"},
        {"text": "x" * 5000},
        {"text": "y", "media": media},
        {"text": "<b>", "parse_mode": "HTML"},
    ):
        assert (await ask(api, "shop/preview", body, by=by))[0] == 200
    assert await rows_of_all_tables(api) == before


async def test_a_limit_of_one_platform_is_shown_for_that_one(api: Api) -> None:
    _, answer = await ask(api, "shop/preview", {"text": "x" * 4050}, by=await key(api))
    assert {c["channel_id"]: (c["outcome"], c["reason"]) for c in answer["channels"]} == {
        "telegram": ("enqueued", None),
        "max": ("refused", "text is too long: 4050 of 4000 characters"),
    }


async def test_what_went_before_is_shown_as_suppressed_and_the_first_tags_count(api: Api) -> None:
    await api.push({"text": "again", "tags": ["a"]})
    _, answer = await ask(api, "shop/preview", {"text": "again", "tags": ["b"]}, by=await key(api))
    assert {c["outcome"] for c in answer["channels"]} == {"suppressed"}
    assert answer["channels"][0]["reason"] == "the same post is on its way into this channel"
    assert answer["channels"][0]["calls"][0]["text"] == "again"
    assert answer["warnings"] == ["the same post came before with other tags; it is routed by those"]


async def test_it_warns_of_everything_that_a_push_would(api: Api) -> None:
    await api.sql("update autopost.channels set min_gap = '1 hour'")
    await api.push({"text": "first", "scheduled_for": SOON.isoformat()})
    post = {"text": "x", "channels": ["max", "nowhere"], "scheduled_for": (SOON + timedelta(minutes=10)).isoformat()}
    _, answer = await ask(api, "shop/preview", post, by=await key(api))
    gap = "closer to another post than the channel's minimum gap: 00:10:00 apart, at least 01:00:00"
    assert (answer["warnings"], answer["channels"][0]["warnings"]) == (["no such channel: nowhere"], [gap])
    assert datetime.fromisoformat(answer["channels"][0]["goes_at"]) == SOON + timedelta(minutes=10)
    status, pushed, _ = await api.push(post)
    assert (status, pushed["warnings"]) == (
        202,
        ["no such channel: nowhere", f"{gap.partition(': ')[0]}: max (00:10:00 apart, at least 01:00:00)"],
    )


@pytest.mark.parametrize(
    "raw",
    [b"{", b"[]", b'{"text": 3, "colour": "red"}', b'{"text": " "}', b'{"text": "a\\u0000b"}', b'{"text": "x", "scheduled_for": "soon"}',
     b'{"media": [{"type": "image"}]}', b'{"text": "x", "media": [{"type": "image", "upload": "a"}]}'],
)  # fmt: skip
async def test_bad_payloads_are_422_in_the_words_of_a_push(api: Api, raw: bytes) -> None:
    status, answer = await ask(api, "shop/preview", by=await key(api), raw=raw)
    pushed_status, pushed, _ = await api.push(raw=raw)
    assert (status, answer["errors"]) == (pushed_status, pushed["errors"])
    assert status == 422


async def test_too_large_a_body_is_413(api: Api) -> None:
    status, _ = await ask(api, "shop/preview", by=await key(api), raw=io.BytesIO(b" " * (1 << 20) + b"{}"))
    assert status == 413


async def test_another_workspace_is_404_and_no_key_is_401(api: Api) -> None:
    await api.sql("insert into core.workspaces (workspace_id, name) values ('other', 'Other')")
    reading, changing = await key(api), await key(api, "full")
    for path in ("preview", f"messages/{NOBODY}/cancel", f"messages/{NOBODY}/replace"):
        assert (await ask(api, f"other/{path}", {"text": "x"}, by=changing))[0] == 404
        assert (await ask(api, f"shop/{path}", {"text": "x"}, by="vkey_wrong"))[0] == 401
    for path in ("planned", "conflicts"):
        assert (await api.get(f"/v1/workspaces/other/{path}", reading))[0] == 404
        assert (await api.get(f"/v1/workspaces/shop/{path}", reading))[0] == 200


# What waits


async def pushed(api: Api, text: str = "Hello") -> str:
    _, answer, _ = await api.push({"text": text, "scheduled_for": SOON.isoformat()})
    return str(answer["message_id"])


async def test_a_reading_key_sees_what_is_planned_and_changes_nothing(api: Api) -> None:
    by, message = await key(api), await pushed(api)
    status, rows = await api.get("/v1/workspaces/shop/planned", by)
    assert status == 200
    assert [(row["channel_id"], row["message_id"], row["shows"]) for row in rows] == [
        ("max", message, "Hello"), ("telegram", message, "Hello"),
    ]  # fmt: skip
    assert {datetime.fromisoformat(row["goes_at"]) for row in rows} == {SOON}
    for path, body in (
        ("cancel", {}),
        ("reschedule", {"scheduled_for": None}),
        ("replace", {"text": "x"}),
    ):
        status, answer = await ask(api, f"shop/messages/{message}/{path}", body, by=by)
        assert status == 403
        assert answer["detail"].endswith("make one that may more: vestnik apikey create shop NAME --access full")
    assert (await api.get("/v1/workspaces/shop/planned", by))[1] == rows


async def test_cancel_by_channel_with_a_reason_and_the_name_of_the_key(api: Api) -> None:
    by, message = await key(api, "full"), await pushed(api)
    path = f"shop/messages/{message}/cancel"
    status, rows = await ask(api, path, {"reason": "wrong price", "channels": ["max"]}, by=by)
    assert (status, [(row["channel_id"], row["outcome"]) for row in rows]) == (200, [("max", "cancelled")])
    events = await api.sql("select meta from autopost.events where action = 'cancelled'")
    assert [(e["meta"]["operator"], e["meta"]["reason"]) for e in events] == [("apikey tests", "wrong price")]
    status, rows = await ask(api, path, by=by, raw=b"")
    assert (status, [row["channel_id"] for row in rows]) == (200, ["telegram"])
    status, answer = await ask(api, path, {}, by=by)
    assert (status, answer["detail"]) == (404, f"nothing of message {message} waits to be sent.")
    status, answer = await ask(api, f"shop/messages/{NOBODY}/cancel", {}, by=by)
    assert (status, answer["detail"]) == (404, f"no message {NOBODY}.")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("cancel", {"channels": []}),  # nobody means "all" by naming none
        ("cancel", {"reason": ""}),
        ("cancel", {"channels": ["a\0"]}),
        ("cancel", {"everything": True}),
        ("reschedule", {}),
        ("reschedule", {"scheduled_for": "2027-01-31T09:00:00"}),
        ("replace", {"text": ""}),
        ("replace", {"text": "x", "colour": "red"}),
    ],
)
async def test_what_is_not_meant_changes_nothing(api: Api, path: str, body: dict[str, Any]) -> None:
    by, message = await key(api, "full"), await pushed(api)
    before = await api.sql("select * from autopost.deliveries order by 2")
    assert (await ask(api, f"shop/messages/{message}/{path}", body, by=by))[0] == 422
    assert await api.sql("select * from autopost.deliveries order by 2") == before


async def test_reschedule_and_replace_and_see_it(api: Api) -> None:
    by, message = await key(api, "full"), await pushed(api)
    later = SOON + timedelta(hours=1)
    status, rows = await ask(api, f"shop/messages/{message}/reschedule", {"scheduled_for": later.isoformat()}, by=by)
    assert (status, {row["outcome"] for row in rows}) == (200, {"rescheduled"})
    assert {datetime.fromisoformat(row["goes_at"]) for row in rows} == {later}
    status, done = await ask(api, f"shop/messages/{message}/replace", {"text": "Edited"}, by=by)
    assert (status, done["enqueued"], done["too_late"], done["kept"]) == (202, 2, [], {})
    await pushed(api, "Already")
    for text, reason in (("x" * 5000, "text is too long"), ("Already", "the same post is on its way")):
        path = f"shop/messages/{done['message_id']}/replace"
        status, answer = await ask(api, path, {"text": text, "channels": ["telegram"]}, by=by)
        assert (status, reason in answer["errors"][0]) == (422, True), answer
    await api.sql("select autopost.cancel_deliveries('shop', 'me', 'why', (select message_id from autopost.messages"
                  " where payload ->> 'text' = 'Already'))")  # fmt: skip
    _, rows = await api.get("/v1/workspaces/shop/planned?limit=1", by)
    assert [(row["shows"], datetime.fromisoformat(row["goes_at"])) for row in rows] == [("Edited", later)]
    assert rows[0]["message_id"] == done["message_id"]


async def test_conflicts_with_a_gap_of_ones_own(api: Api) -> None:
    by = await key(api)
    one, other = await pushed(api, "a"), await pushed(api, "b")
    assert await api.get("/v1/workspaces/shop/conflicts", by) == (200, {"conflicts": [], "more": False})
    status, answer = await api.get("/v1/workspaces/shop/conflicts?gap_minutes=30", by)
    rows = answer["conflicts"]
    assert (status, len(rows), answer["more"]) == (200, 2, False)
    _, answer = await api.get("/v1/workspaces/shop/conflicts?gap_minutes=30&limit=1", by)
    assert (answer["conflicts"], answer["more"]) == (rows[:1], True)
    assert (rows[0]["gap"], rows[0]["minimum"]) == ("PT0S", "PT30M")
    assert {rows[0]["first_message_id"], rows[0]["second_message_id"]} == {one, other}
    assert (await api.get("/v1/workspaces/shop/conflicts?gap_minutes=0", by))[0] == 422


async def test_the_description_names_every_answer_and_every_reference_leads_somewhere(api: Api) -> None:
    _, description = await api.get("/openapi.json")
    paths = description["paths"]
    for path in ("preview", "planned", "conflicts"):
        (operation,) = paths[f"/v1/workspaces/{{ws}}/{path}"].values()
        assert operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert {"403", "404", "413", "422"} <= set(
        paths["/v1/workspaces/{ws}/messages/{message_id}/replace"]["post"]["responses"]
    )
    for reference in _references(description):
        node = description
        for step in reference.removeprefix("#/").split("/"):
            assert step in node, f"{reference} leads nowhere"
            node = node[step]


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in _references(value)]
    return [found for value in node for found in _references(value)] if isinstance(node, list) else []
