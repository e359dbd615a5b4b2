"""A post is rendered once, when it is enqueued; every try sends those very bytes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def rendered(workspace: Autopost, payload: dict[str, Any], parse_mode: str = "None") -> str:
    return await workspace.value("select autopost.render_text(%s, %s)", Jsonb(payload), parse_mode)


async def test_links_follow_the_text_unless_it_shows_them(workspace: Autopost) -> None:
    a, b = "https://a.example/", "https://b.example/?x=1&y=2"
    assert await rendered(workspace, {"text": "hi"}) == "hi"
    assert await rendered(workspace, {"text": "hi", "links": [b, a]}) == f"hi\n\n{b}\n{a}"
    assert await rendered(workspace, {"text": f"see {a}", "links": [a, b]}) == f"see {a}\n\n{b}"
    assert await rendered(workspace, {"text": f"see {a}", "links": [a]}) == f"see {a}"
    assert await rendered(workspace, {"links": [a]}) == a


async def test_what_is_put_into_html_is_escaped(workspace: Autopost) -> None:
    link = "https://b.example/?x=1&y=2"
    assert await rendered(workspace, {"text": "<b>hi</b>", "links": [link]}, "HTML") == (
        "<b>hi</b>\n\nhttps://b.example/?x=1&amp;y=2"
    )


async def test_a_link_is_no_markup_of_markdown(workspace: Autopost) -> None:
    link = "https://b.example/*x*_y_"
    assert await rendered(workspace, {"text": "hi", "links": [link]}, "Markdown") == f"hi\n\n<{link}>"
    assert await rendered(workspace, {"text": f"[x]({link})", "links": [link]}, "Markdown") == f"[x]({link})"
    assert (
        await rendered(workspace, {"text": "hi", "links": ["https://b.example/"]}, "Markdown")
        == "hi\n\nhttps://b.example/"
    )


async def test_a_delivery_keeps_its_text_and_how_to_send_it(workspace: Autopost) -> None:
    await workspace.channel()
    button = {"text": "Go", "url": "https://e.example/"}
    await workspace.push({
        "text": " <b>hi</b>  there ", "parse_mode": "HTML", "disable_preview": True, "buttons": [[button]],
    })  # fmt: skip
    delivery = (await workspace.deliveries())[0]
    assert delivery["rendered_text"] == "<b>hi</b> there"
    assert delivery["render_meta"] == {
        "converter": 1, "parse_mode": "HTML", "disable_preview": True, "buttons": [[button]],
    }  # fmt: skip
    assert delivery["template_version"] is None, "no template was used"


async def test_the_settings_of_a_channel_are_defaults_under_the_post(workspace: Autopost) -> None:
    await workspace.channel("plain")
    await workspace.channel("html", settings={"parse_mode": "HTML", "disable_preview": True})
    await workspace.push("one")
    await workspace.push({"text": "two", "parse_mode": "None", "disable_preview": False})
    found = {
        (row["rendered_text"], row["channel_id"]): (
            row["render_meta"]["parse_mode"],
            row["render_meta"]["disable_preview"],
        )
        for row in await workspace.deliveries()
    }
    assert found == {
        ("one", "plain"): ("None", False),
        ("one", "html"): ("HTML", True),
        ("two", "plain"): ("None", False),
        ("two", "html"): ("None", False),
    }


async def test_a_retry_sends_the_very_same_text(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.push({"text": "hi", "links": ["https://a.example"]})
    (first,) = await workspace.take()
    await workspace.retry(first["delivery_id"], lease=first["lease"])
    await workspace.sql(
        'update autopost.messages set payload = \'{"type": "text", "text": "edited"}\' where workspace_id = %s',
        workspace.workspace,
    )
    await workspace.sql(
        'update autopost.channels set settings = \'{"parse_mode": "HTML"}\' where workspace_id = %s',
        workspace.workspace,
    )
    workspace.wait(hours=1)
    (second,) = await workspace.take()
    assert second["attempt"] == 2
    assert (second["rendered_text"], second["render_meta"]) == (first["rendered_text"], first["render_meta"])


async def test_a_payload_lies_once_in_messages_however_many_channels_want_it(workspace: Autopost) -> None:
    for n in range(5):
        await workspace.channel(f"c{n}")
    pushed = await workspace.push("hi")
    assert pushed["enqueued"] == 5
    rows = await workspace.sql("select message_id from autopost.messages where workspace_id = %s", workspace.workspace)
    assert [row["message_id"] for row in rows] == [pushed["message_id"]]
    assert {row["message_id"] for row in await workspace.deliveries()} == {pushed["message_id"]}


async def test_a_text_is_judged_once_however_many_channels_want_it(workspace: Autopost) -> None:
    """Looking for the tags of a long text takes longer than writing a row."""
    text = "<b>x</b> " * 700
    await workspace.sql(
        "insert into autopost.channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group)"
        " select %s, 'c' || n, 'telegram', '@' || n, 'bot', 'bot' from generate_series(1, 400) n",
        workspace.workspace,
    )
    started = time.perf_counter()
    await workspace.sql(
        "select autopost.preflight_problem('telegram', %s || repeat(' ', n), 'HTML', '{}') from generate_series(1, 100) n",
        text,
    )
    a_hundred_times = time.perf_counter() - started
    started = time.perf_counter()
    assert (await workspace.push({"text": text, "parse_mode": "HTML"}))["enqueued"] == 400
    assert time.perf_counter() - started < 2 * a_hundred_times
