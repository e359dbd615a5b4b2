"""The pages: what a person sees, in both languages, and that no post can break out of them."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest


async def page(client: Any, path: str, **headers: str) -> str:
    said = await client.ask("GET", path, headers=headers)
    assert said.status == 200
    assert said.headers["Content-Security-Policy"].startswith("default-src 'none'")
    _Balanced(said.body)
    return str(said.body)


class _Balanced(HTMLParser):
    """Every tag is closed, none is a script or brings an event handler."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "iframe", "svg")
        assert not [name for name, _ in attrs if name.startswith("on")]
        assert not [value for name, value in attrs if name == "href" and "javascript:" in (value or "").lower()]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


async def test_the_chats_at_a_glance(client: Any, clock: Any) -> None:
    await client.telegram("sendMessage", text="<b>Hello</b> world", parse_mode="HTML")
    await client.admin("PUT", "telegram/chats/-1001/faults", {"kind": "429", "probability": 0.25, "times": 3})
    clock.pass_by(7)
    text = await page(client, "/")
    for part in ("News &amp; co", "Hello world", "7 s ago", "429 25% ×3", "/chats/telegram/-1001?lang=en"):
        assert part in text


async def test_a_channel_as_its_readers_see_it(client: Any) -> None:
    source = (
        'x <b>bold <i>both</i></b> <a href="https://e.org/?a=1&amp;b=2">link</a> <tg-spoiler>s</tg-spoiler>'
        "<blockquote>q</blockquote><pre>p\n  p</pre>"
    )
    markup = {"inline_keyboard": [[{"text": "Go", "url": "https://e.org"}, {"text": "Do", "callback_data": "x"}]]}
    await client.telegram("sendMessage", text=source, parse_mode="HTML", reply_markup=markup)
    text = await page(client, "/chats/telegram/-1001")
    for part in (
        "x <b>bold <i>both</i></b>",
        '<a href="https://e.org/?a=1&amp;b=2" rel="noopener noreferrer nofollow" target="_blank">link</a>',
        '<span class="spoiler">s</span>',
        "<blockquote>q</blockquote><pre>p\n  p</pre>",
        ">Go ↗</a>",
        '<span class="button">Do</span>',
    ):
        assert part in text


async def test_the_newest_post_is_first_and_a_deleted_one_is_marked(client: Any) -> None:
    for text in ("older post", "newer post"):
        await client.telegram("sendMessage", text=text)
    await client.telegram("deleteMessage", message_id=1)
    text = await page(client, "/chats/telegram/-1001")
    assert text.index("newer post") < text.index("older post")
    assert text.count('class="deleted"') == 1


@pytest.mark.parametrize(
    ("query", "accept", "word"),
    [
        ("", "", "Sandbox"),
        ("", "ru-RU,ru;q=0.9,en;q=0.8", "Песочница"),
        ("", "en-US,en;q=0.9,ru;q=0.8", "Sandbox"),
        ("", "de", "Sandbox"),
        ("?lang=ru", "en", "Песочница"),
        ("?lang=en", "ru", "Sandbox"),
        ("?lang=%22%3E", "", "Sandbox"),
    ],
)
async def test_two_languages(client: Any, query: str, accept: str, word: str) -> None:
    assert f"<h1>{word}</h1>" in await page(client, f"/{query}", **{"Accept-Language": accept})


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


async def test_nothing_breaks_out_of_the_pages(client: Any) -> None:
    await client.admin("PUT", "telegram/settings", {"lenient": True})
    await client.admin("PUT", "max/settings", {"lenient": True})
    await client.admin("PUT", "telegram/chats/-9", {"title": EVIL})
    await client.admin("PUT", "telegram/tokens/e%22%3E%3Cscript%3E", {"token": "9:X"})
    await client.admin("PUT", "telegram/chats/-9/faults", {"kind": "slow", "latency_ms": 0, "message": EVIL})
    await client.telegram("sendMessage", text=EVIL, chat_id="-9", token="9:X")
    await client.telegram("sendMessage", text="a", chat_id='"><script>x', token="9:X")
    link = '<a href="tg://&quot;><script>">a</a>'
    await client.telegram("sendMessage", text=link, parse_mode="HTML", chat_id="-9", token="9:X")
    for form in ("html", "markdown"):
        body = (
            f'{EVIL} <a href="javascript:alert(1)">a</a> [b](javascript:alert(1)) <a href=\'https://e"><script>\'>c</a>'
        )
        button = {"type": "callback", "text": EVIL, "payload": EVIL}
        keyboard = [{"type": "inline_keyboard", "payload": {"buttons": [[button]]}}]
        await client.max(body, chat="-9", format=form, attachments=keyboard)

    paths = ["/", "/chats/telegram/-9", "/chats/telegram/%22%3E%3Cscript%3Ex", "/chats/max/-9"]
    for path in paths:
        text = await page(client, path)
        assert "<script" not in text
        assert "<img" not in text


async def test_overlapping_spans_become_a_tree(client: Any) -> None:
    from vestnik.sandbox.richtext import Rich, Span, to_html

    rich = Rich("abcdef", [Span("bold", 0, 4), Span("italic", 2, 6), Span("code", 3, 4)])
    assert to_html(rich) == "<b>ab<i>c<code>d</code></i></b>ef"


async def test_a_block_ends_its_line_by_itself(client: Any) -> None:
    from vestnik.sandbox.richtext import Rich, Span, to_html

    rich = Rich("q\n\nr", [Span("blockquote", 0, 1)])
    assert to_html(rich) == "<blockquote>q</blockquote>\nr"


async def test_an_empty_sandbox_says_what_to_do(client: Any) -> None:
    await client.ask("POST", "/admin/reset")
    assert "curl -X PUT" in await page(client, "/")


async def test_a_chat_that_is_not_there(client: Any) -> None:
    assert (await client.ask("GET", "/chats/telegram/-5")).status == 404
