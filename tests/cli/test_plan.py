"""``vestnik preview`` and what one does to posts that wait, on the command line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from cli_rig import Cli

from vestnik.api.app import create_app
from vestnik.api.server import http_server
from vestnik.autopost.media.blobs import BlobStore
from vestnik.db.pool import make_pool
from vestnik.settings import Settings
from vestnik.storage import open_store

SHOP = """
workspaces:
  - id: shop
    channels:
      - {id: forum, platform: telegram, target: "-1001", auth_ref: bot, settings: {message_thread_id: 42}}
      - {id: news, platform: telegram, target: "-1002", auth_ref: bot}
      - {id: max-news, platform: max, target: "-7", auth_ref: max-bot}
      - {id: deals, platform: telegram, target: "-1003", auth_ref: bot, route_filter: {include_any: [deal]}}
      - {id: old, platform: telegram, target: "-1004", auth_ref: bot, enabled: false}
"""
AT = "2099-01-31T09:00+03:00"
NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def shop(cli: Cli) -> Cli:
    cli.ok("apply", cli.write("shop.yml", SHOP))
    return cli


def push(cli: Cli, text: str = "Доброе утро", *options: str) -> str:
    return str(json.loads(cli.ok("push", "shop", text, "--at", AT, "--json", *options))["message_id"])


def test_a_preview_shows_who_gets_what_and_who_does_not(shop: Cli) -> None:
    assert shop.ok("preview", "shop", "Привет, <b>мир</b>", "--html") == (
        """\
forum, news  Telegram · goes at once
  sendMessage
    │ Привет, <b>мир</b>

max-news  MAX · goes at once
  POST /messages
    │ Привет, <b>мир</b>

not for deals: its route_filter wants one of deal, and the post has no tags
not for old: the channel is disabled

3 of 5 channels would get it
"""
    )
    assert json.loads(shop.ok("queue", "--json")) == []


def test_an_album_with_buttons_and_captions(shop: Cli) -> None:
    post = {
        "text": "Весна",
        "media": [
            {"type": "image", "url": "https://e.org/a.jpg", "caption": "Первый [/b]"},
            {"type": "image", "url": "https://e.org/b.jpg"},
            {"type": "file", "url": "https://e.org/c.pdf"},
        ],
        "buttons": [[{"text": "Купить", "url": "https://e.org/buy"}]],
    }
    shop.write("post.json", json.dumps(post))
    said = shop.ok("preview", "shop", "--payload", "post.json", "--channel", "news", "--at", AT)
    assert said.splitlines()[:10] == [
        "news  Telegram · goes when its media are fetched, at 2099-01-31 06:00 UTC at the earliest",
        "  1. sendMessage",
        "    │ Весна",
        "    │ [ Купить → https://e.org/buy ]",
        "  2. sendMediaGroup  2 images",
        "    │ Первый [/b]",
        "    │ ▪ https://e.org/a.jpg — Первый [/b]",
        "    │ ▪ https://e.org/b.jpg",
        "  3. sendDocument  1 file",
        "    │ ▪ https://e.org/c.pdf",
    ]


def test_a_long_text_is_cut_on_the_screen_and_a_refusal_says_why(shop: Cli) -> None:
    text = "\n".join(f"Строка {n} {'слово ' * 19}".strip() for n in range(33))
    said = shop.ok("preview", "shop", "-", stdin=text)
    assert f"refused max-news: text is too long: {len(text)} of 4000 characters" in said
    assert "    │ … 21 more lines (--full shows them)" in said
    assert "Строка 12" not in said
    assert "Строка 32" in shop.ok("preview", "shop", "-", "--full", stdin=text)


def test_a_preview_says_what_is_wrong_with_a_payload_as_push_does(shop: Cli) -> None:
    for command in ("push", "preview"):
        assert "text or links" in shop.refused(command, "shop").replace("text, links", "text or links")
        assert "no such file" in shop.refused(command, "shop", "--payload", "missing.json").lower()
        assert "'soon' is not a moment" in shop.refused(command, "shop", "x", "--at", "soon")
        assert "no workspace nowhere" in shop.refused(command, "nowhere", "x")
    shop.ok("apply", shop.write("bare.yml", "workspaces: [{id: bare}]"))
    assert "vestnik apply FILE makes some" in shop.ok("preview", "bare", "x")


def test_planned_posts_are_moved_replaced_and_withdrawn(shop: Cli) -> None:
    message = push(shop)
    assert shop.ok("planned", "shop") == (
        f"2099-01-31 06:00:00 UTC  forum, max-news, news\n  Доброе утро\n  message {message}\n"
    )
    rows = json.loads(shop.ok("reschedule", message, "2099-02-01T12:00Z", "--channel", "forum", "--json"))
    assert [(row["outcome"], row["goes_at"]) for row in rows] == [("rescheduled", "2099-02-01T12:00:00Z")]
    assert "2 queued" in shop.ok("replace", message, "Новый текст", "--channel", "news", "--channel", "forum")
    assert [(row["channel_id"], row["goes_at"], row["shows"]) for row in json.loads(shop.ok("planned", "shop", "--json"))] == [
        ("max-news", "2099-01-31T06:00:00Z", "Доброе утро"),
        ("news", "2099-01-31T06:00:00Z", "Новый текст"),
        ("forum", "2099-02-01T12:00:00Z", "Новый текст"),
    ]  # fmt: skip
    said = shop.ok("cancel", message, "--reason", "ошибка")
    assert [line.split()[:2] for line in said.splitlines()] == [["channel", "id"], ["max-news", "cancelled"]]
    events = json.loads(shop.ok("events", "shop", "--json"))
    assert next(event["meta"]["reason"] for event in events if event["action"] == "cancelled") in (
        "ошибка", "replaced by an edited post",
    )  # fmt: skip


def test_conflicts_are_shown_together_for_channels_that_share_them(shop: Cli) -> None:
    assert "No two posts" in shop.ok("conflicts", "shop", "--gap", "30")
    one = push(shop)
    other = json.loads(shop.ok("push", "shop", "Второй", "--at", "2099-01-31T09:10+03:00", "--json"))["message_id"]
    assert "No two posts" in shop.ok("conflicts", "shop")
    assert shop.ok("conflicts", "shop", "--gap", "30") == (
        "forum, max-news, news: 0:10:00 apart, at least 0:30:00\n"
        f"  2099-01-31 06:00:00 UTC  message {one}\n  2099-01-31 06:10:00 UTC  message {other}\n"
    )
    assert "more; these are the first 2." in shop.ok("conflicts", "shop", "--gap", "30", "--limit", "2")


def test_a_channel_that_would_not_get_the_new_post_keeps_the_old_one(shop: Cli) -> None:
    message = push(shop)
    said = shop.ok("replace", message, "x" * 4050)
    assert "2 queued" in said and "max-news keeps the old post: text is too long: 4050 of 4000 characters" in said
    refusal = shop.refused("replace", message, "x" * 5000)
    assert "the old post stays in max-news: text is too long" in refusal


def test_mistakes_are_one_clear_line(shop: Cli) -> None:
    message = push(shop)
    assert shop.refused("cancel", NOBODY) == f"vestnik: no message {NOBODY}\n"
    assert shop.refused("reschedule", NOBODY, "now", "-w", "shop") == f"vestnik: no message {NOBODY}\n"
    assert shop.refused("reschedule", message, "tomorrow") == (
        "vestnik: 'tomorrow' is not a moment\n  try: write it like 2027-01-31T09:00+03:00\n"
    )
    assert "text" in shop.refused("replace", message)
    shop.ok("cancel", message)
    for again in (("cancel", message), ("reschedule", message, "now"), ("replace", message, "x")):
        assert shop.refused(*again) == f"vestnik: nothing of message {message} waits to be sent\n"
    for command in ("conflicts", "planned"):
        assert "no workspace nowhere" in shop.refused(command, "nowhere")
    assert shop.ok("planned", "shop").startswith("Nothing waits.")


def test_json_is_what_http_answers(shop: Cli) -> None:
    message = push(shop)
    push(shop, "Второй")
    said = {
        "planned": json.loads(shop.ok("planned", "shop", "--json")),
        "conflicts?gap_minutes=30": json.loads(shop.ok("conflicts", "shop", "--gap", "30", "--json")),
        "preview": json.loads(shop.ok("preview", "shop", "Привет #deal", "--at", AT, "--json")),
        f"messages/{message}/reschedule": json.loads(shop.ok("reschedule", message, AT, "--json")),
    }
    key = shop.ok("apikey", "create", "shop", "tests", "--access", "full").split()[0]
    asked = asyncio.run(_asked(shop, key, {
        "preview": {"text": "Привет #deal", "scheduled_for": AT},
        f"messages/{message}/reschedule": {"scheduled_for": AT},
    }, said.keys()))  # fmt: skip
    assert asked == said
    assert all(said.values())


async def _asked(cli: Cli, key: str, bodies: dict[str, Any], paths: Any) -> dict[str, Any]:
    from vestnik.adapters import registry
    from vestnik.adapters.contract import AdapterContext

    async def no_secret(workspace_id: str, platform: str, auth_ref: str) -> str:
        raise AssertionError("a plan needs no secret")

    nowhere = dict.fromkeys(("telegram", "max"), "http://127.0.0.1:9")
    adapters = registry.load(AdapterContext(secret=no_secret, base_urls=nowhere))
    async with make_pool(cli.database) as pool, aiohttp.ClientSession() as http:
        blobs = BlobStore(open_store((cli.folder / "objects").as_uri()))
        server = http_server(Settings(http_port=0), create_app(pool, adapters, blobs=blobs))
        serving = asyncio.create_task(server.serve())
        url = await server.address(serving)
        found = {}
        for path in paths:
            how = {"json": bodies[path]} if path in bodies else {}
            headers = {"Authorization": f"Bearer {key}"}
            method = "POST" if how else "GET"
            async with http.request(method, f"{url}/v1/workspaces/shop/{path}", headers=headers, **how) as response:
                assert response.status == 200, await response.text()
                found[path] = await response.json()
        server.end()
        await serving
    return found
