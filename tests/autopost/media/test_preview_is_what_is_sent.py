"""What a preview shows is what the platforms are then asked for: the same calls, in the same order, with the same bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from newsroom import Newsroom, newsroom_of, picture
from psycopg.types.json import Jsonb
from wiretap import Asked, Wiretap, wiretap

from vestnik.ops import access

TEMPLATE = '<b>Наш канал</b>\n\n{{ text }}\n\n{{#link}}<a href="{{ link }}">читать</a>{{/link}}'
CHANNELS: list[dict[str, Any]] = [
    {"platform": "telegram"},
    {"platform": "telegram", "settings": {"long_text": "split", "message_thread_id": 7}},
    {"platform": "telegram", "template_ref": "frame", "settings": {"utm": {"source": "{channel}"}}},
    {"platform": "max"},
    {"platform": "max", "settings": {"long_text": "truncate_with_link", "disable_preview": True}},
]
words = st.sampled_from([
    "Привет", "sale & more", "<b>жирный</b>", "**strong**", "👩‍👩‍👧 emoji", '<a href="https://e.org/a?b=1&amp;c=2">ссылка</a>',
    "[link](https://e.org/x)", "<i>a <b>b</b></i>", "<b>never closed", "`code`", "\n\n", "длинно " * 90, "_a_ 1 < 2",
])  # fmt: skip
buttons = st.lists(
    st.lists(st.just({"text": "Купить", "url": "https://e.org/buy"}), min_size=1, max_size=4), min_size=1, max_size=2
)
files = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["image", "image", "file"]), "file": st.integers(0, 5)},
        optional={"caption": st.sampled_from(["подпись", "<b>a</b> & b", "c" * 900])},
    ),
    max_size=12, unique_by=lambda item: item["file"],
)  # fmt: skip
posts = st.fixed_dictionaries(
    {"text": st.lists(words, min_size=1, max_size=12).map(" ".join), "media": files},
    optional={
        "parse_mode": st.sampled_from(["HTML", "Markdown", "None"]),
        "links": st.lists(
            st.sampled_from(["https://e.org/1", "https://e.org/2?x=y"]), min_size=1, max_size=2, unique=True
        ),
        "buttons": buttons,
        "disable_preview": st.booleans(),
    },
)
PROFILE = settings(
    max_examples=40, deadline=None, database=None, derandomize=True,
    phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
)  # fmt: skip


def test_a_preview_is_what_is_sent(database: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stage = runner.run(_opened(database, tmp_path))
        try:

            @PROFILE
            @given(posts)
            def check(post: dict[str, Any]) -> None:
                runner.run(stage.check(post))

            check()
            assert stage.compared > 100, "hardly anything was sent, so hardly anything was compared"
        finally:
            runner.run(stage.close())


class Stage:
    def __init__(self, room: Newsroom, tap: Wiretap, key: str, closing: Any) -> None:
        self.room, self.tap, self.key, self._closing = room, tap, key, closing
        self.compared = self.number = 0

    async def check(self, post: dict[str, Any]) -> None:
        self.number += 1  # each post is a new one
        media = [
            {"type": item["type"], "url": f"{self.room.sandbox.url}/files/{item['file']}.png"}
            | ({"caption": item["caption"]} if "caption" in item else {})
            for item in post["media"]
        ]
        payload = post | {"text": f"{post['text']} {self.number}", "media": media}
        shown = await self._preview(payload)
        self.tap.asked.clear()
        done = await self.room.push(payload)
        assert done["status"] == 202
        await self.room.settled("sent", "failed_permanent")
        rows = await self.room.sql(
            "select channel_id, status, last_error from autopost.deliveries where message_id = %s", done["message_id"]
        )
        found = {row["channel_id"]: row for row in rows}
        assert found.keys() == {channel["channel_id"] for channel in shown["channels"]}
        for channel in shown["channels"]:
            self._compare(channel, found[channel["channel_id"]], self.tap.to(channel["target_id"]))

    def _compare(self, channel: Mapping[str, Any], row: Mapping[str, Any], asked: list[Asked]) -> None:
        if channel["outcome"] == "refused":
            assert (row["status"], row["last_error"]["message"], asked) == ("failed_permanent", channel["reason"], [])
            return
        assert (channel["outcome"], row["status"]) == ("enqueued", "sent"), row["last_error"]
        assert [call["method"] for call in channel["calls"]] == [each.method for each in asked]
        for planned, sent in zip(channel["calls"], asked, strict=True):
            assert planned["params"] == sent.params
            assert _same(planned["body"], sent.body), (planned["body"], sent.body)
            self.compared += 1

    async def _preview(self, payload: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"{self.room.url}/v1/workspaces/w/preview"
        async with self.room.http.post(url, json=payload, headers=headers) as response:
            assert response.status == 200, await response.text()
            answer: dict[str, Any] = await response.json()
            return answer

    async def close(self) -> None:
        for context in reversed(self._closing):
            await context.__aexit__(None, None, None)


async def _opened(database: str, folder: Path) -> Stage:
    rooming = newsroom_of(database, folder)
    room = await rooming.__aenter__()
    tapping = wiretap(room.sandbox.url)
    tap = await tapping.__aenter__()
    await room.sql("select autopost.save_template('w', 'frame', %s, '{}', 'HTML')", TEMPLATE)
    for n, channel in enumerate(CHANNELS):
        await room.sql(
            "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group, rate_rps,"
            " settings, template_ref) values ('w', %s, %s, %s, 'bot', 'bot', null, %s, %s)",
            f"c{n}", channel["platform"], f"-{n + 1}", Jsonb(channel.get("settings", {})), channel.get("template_ref"),
        )  # fmt: skip
    for n in range(6):
        room.put_file(f"{n}.png", picture(n))
    serving = room.open(telegram_api_url=f"{tap.url}/telegram", max_api_url=f"{tap.url}/max")
    await serving.__aenter__()
    return Stage(room, tap, await access.create_key(room.pool, "w", "preview"), [rooming, tapping, serving])


def _same(planned: Any, sent: Any) -> bool:
    """But for handles: what is uploaded has none before it is."""
    if isinstance(planned, str):
        return planned == sent or (planned.startswith("attach://") and isinstance(sent, str))
    if isinstance(sent, str):
        sent = json.loads(sent)  # a field of a form
    if isinstance(planned, dict):
        return (
            isinstance(sent, dict)
            and planned.keys() == sent.keys()
            and all(_same(planned[k], sent[k]) for k in planned)
        )
    if isinstance(planned, list):
        return len(planned) == len(sent) and all(map(_same, planned, sent))
    return bool(planned == sent)
