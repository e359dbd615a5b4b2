"""What every adapter must do, whatever its platform: the suite for built-in and outside adapters alike.

To run it on an adapter of your own, give a subclass of ``Conformance`` a fixture ``rig`` that yields a
``Rig``: your adapter against something that misbehaves on demand, in the words of ``vestnik.sandbox.faults``.
What an adapter does with media is in ``conformance_media``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from vestnik.adapters.contract import Adapter, Channel, SendError, SendMeta

TEXT = "Привет, мир 🌍"
IMPATIENT = 1.2  # seconds; two thirds of it are for the connection, enough on a machine that is busy


class Rig(Protocol):
    token: str
    channel: Channel
    longest_text: int

    def adapter(
        self,
        *,
        timeout: float = 5.0,
        base_url: str | None = None,
        ca_file: Path | None = None,
        connections: int = 8,
        token: str | None = None,
    ) -> Adapter:
        """A fresh adapter; the rig closes it."""

    def fault(self, kind: str, **fault: Any) -> None:
        """From now on the platform does this to every request."""

    def posts(self) -> Sequence[Mapping[str, Any]]:
        """What arrived: ``visible``, ``buttons``, ``preview``, ``message_id``."""

    def connections(self) -> int:
        """How many connections the platform holds open."""


async def error_of(adapter: Adapter, channel: Channel, meta: SendMeta | None = None, text: str = TEXT) -> SendError:
    with pytest.raises(SendError) as caught:
        await adapter.send_text(channel, text, meta or SendMeta())
    json.dumps(caught.value.as_json(), allow_nan=False)
    return caught.value


def verdict(error: SendError) -> tuple[str, str, str]:
    return error.category, error.scope, error.code


class Timed:
    """Every test of a suite has an end, so that an adapter that waits for ever fails, and the rest is still told."""

    longest = 20.0  # seconds

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _ending(test))


def _ending(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def timed(self: Timed, *arguments: Any, **named: Any) -> None:
        async with asyncio.timeout(self.longest):
            await test(self, *arguments, **named)

    return timed


class Conformance(Timed):
    async def test_sends_and_says_what_it_sent(self, rig: Rig) -> None:
        sent = await rig.adapter().send_text(rig.channel, TEXT, SendMeta())

        (post,) = rig.posts()
        assert post["visible"] == TEXT
        assert post["preview"] is True
        assert sent.provider_message_id == post["message_id"]
        assert TEXT not in json.dumps(sent.raw, ensure_ascii=False)
        assert sent.provider_message_id in [str(value) for value in sent.raw.values()]

    async def test_sends_markup(self, rig: Rig) -> None:
        adapter = rig.adapter()
        await adapter.send_text(rig.channel, "<h2>A &amp; B</h2><p>c</p>", SendMeta(parse_mode="HTML"))
        await adapter.send_text(rig.channel, "**a** `b`\n\n- c", SendMeta(parse_mode="Markdown"))
        await adapter.send_text(rig.channel, "<b>**a**</b> &amp;", SendMeta())

        assert [post["visible"] for post in rig.posts()] == ["A & B\n\nc", "a b\n\n• c", "<b>**a**</b> &amp;"]

    async def test_sends_buttons_and_hides_the_preview(self, rig: Rig) -> None:
        buttons = [
            [{"text": "Site", "url": "https://example.org/a?b=1"}],
            [{"text": "Again", "callback": "again"}],
        ]
        await rig.adapter().send_text(rig.channel, TEXT, SendMeta(buttons=buttons, disable_preview=True))

        (post,) = rig.posts()
        assert [[button["text"] for button in row] for row in post["buttons"]] == [["Site"], ["Again"]]
        assert post["buttons"][0][0]["url"] == "https://example.org/a?b=1"
        assert "again" in post["buttons"][1][0].values()
        assert post["preview"] is False

    @pytest.mark.parametrize("button", [{"text": "no target"}, {"text": "", "url": "https://e.org"}, {}])
    async def test_refuses_a_broken_button_by_itself(self, rig: Rig, button: dict[str, str]) -> None:
        error = await error_of(rig.adapter(), rig.channel, SendMeta(buttons=[[button]]))

        assert verdict(error) == ("PERMANENT", "delivery", "validation_failed")
        assert not rig.posts()

    @pytest.mark.parametrize(
        ("kind", "category", "scope"),
        [
            ("400", "PERMANENT", ("channel", "delivery")),  # by what the text says
            ("401", "PERMANENT", ("channel",)),
            ("403", "PERMANENT", ("channel",)),
            ("404", "PERMANENT", ("channel",)),
            ("413", "PERMANENT", ("delivery",)),
            ("429", "TRANSIENT", ("platform",)),
            ("500", "TRANSIENT", ("platform",)),
            ("502", "TRANSIENT", ("platform",)),
            ("503", "TRANSIENT", ("platform",)),
            ("504", "TRANSIENT", ("platform",)),
            ("success_false", "PERMANENT", ("delivery",)),
        ],
    )
    async def test_classifies_a_refusal(self, rig: Rig, kind: str, category: str, scope: tuple[str, ...]) -> None:
        rig.fault(kind)
        error = await error_of(rig.adapter(), rig.channel)

        assert error.category == category
        assert error.scope in scope
        assert error.message
        assert error.retry_after_ms is None
        assert not error.scope_named
        assert not rig.posts()

    async def test_a_plain_bad_request_is_the_payloads_fault(self, rig: Rig) -> None:
        rig.fault("400", message="Bad Request: something about the payload")
        error = await error_of(rig.adapter(), rig.channel)
        assert (error.category, error.scope) == ("PERMANENT", "delivery")

    @pytest.mark.parametrize("kind", ["429", "503"])
    async def test_passes_on_how_long_to_wait(self, rig: Rig, kind: str) -> None:
        rig.fault(kind, retry_after=7)
        error = await error_of(rig.adapter(), rig.channel)

        assert error.category == "TRANSIENT"
        assert error.retry_after_ms == 7000
        assert not error.scope_named

    async def test_too_long_a_text_is_permanent(self, rig: Rig) -> None:
        error = await error_of(rig.adapter(), rig.channel, text="x" * (rig.longest_text + 1))
        assert (error.category, error.scope) == ("PERMANENT", "delivery")

    async def test_the_longest_text_passes(self, rig: Rig) -> None:
        await rig.adapter().send_text(rig.channel, "🌍" * (rig.longest_text // 2), SendMeta())
        assert len(rig.posts()) == 1

    async def test_an_unknown_chat_is_the_channels_fault(self, rig: Rig) -> None:
        gone = Channel("ws", "ch", rig.channel.platform, "-404404", "main", "main")
        error = await error_of(rig.adapter(), gone)
        assert (error.category, error.scope) == ("PERMANENT", "channel")

    @pytest.mark.parametrize("token", ["2:UNKNOWN", "not a token", "new\nline", "", "ключ"])
    async def test_a_wrong_token_is_the_channels_fault(self, rig: Rig, token: str) -> None:
        error = await error_of(rig.adapter(token=token), rig.channel)
        assert (error.category, error.scope) == ("PERMANENT", "channel")

    @pytest.mark.parametrize("kind", ["garbage", "reset", "timeout"])
    async def test_no_readable_answer_leaves_the_outcome_unknown(self, rig: Rig, kind: str) -> None:
        rig.fault(kind)
        error = await error_of(rig.adapter(timeout=IMPATIENT), rig.channel)

        code = {"garbage": "bad_answer", "reset": "network", "timeout": "timeout"}[kind]
        assert verdict(error) == ("TRANSIENT", "platform", code)
        assert error.raw["outcome"] == "unknown"
        assert not rig.posts()

    @pytest.mark.parametrize(("kind", "code"), [("reset_after_accept", "network"), ("timeout_after_accept", "timeout")])
    async def test_a_lost_answer_leaves_the_outcome_unknown(self, rig: Rig, kind: str, code: str) -> None:
        rig.fault(kind)
        error = await error_of(rig.adapter(timeout=IMPATIENT), rig.channel)

        assert verdict(error) == ("TRANSIENT", "platform", code)
        assert error.raw["outcome"] == "unknown"
        assert len(rig.posts()) == 1  # it did arrive, and only once: nothing below retries

    @pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://no-such-host.invalid"])
    async def test_an_unreachable_platform_was_sent_nothing(self, rig: Rig, address: str) -> None:
        error = await error_of(rig.adapter(base_url=address), rig.channel)

        assert verdict(error) == ("TRANSIENT", "platform", "network")
        assert error.raw["outcome"] == "not_sent"

    async def test_a_connection_that_never_comes_about_was_sent_nothing(self, rig: Rig) -> None:
        async with _deaf() as address:
            error = await error_of(
                rig.adapter(base_url=address.replace("http:", "https:"), timeout=IMPATIENT), rig.channel
            )

        assert verdict(error) == ("TRANSIENT", "platform", "timeout")
        assert error.raw["outcome"] == "not_sent"

    async def test_a_slow_answer_is_an_answer(self, rig: Rig) -> None:
        rig.fault("slow", latency_ms=100)
        await rig.adapter().send_text(rig.channel, TEXT, SendMeta())
        assert len(rig.posts()) == 1

    @pytest.mark.parametrize(
        "kind",
        ["400", "401", "404", "429", "500", "garbage", "reset", "timeout", "success_false", "unreachable"],
    )
    async def test_the_token_is_never_shown(
        self, rig: Rig, kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        caplog.set_level(logging.DEBUG)
        if kind == "unreachable":
            adapter = rig.adapter(base_url="http://127.0.0.1:1")
        else:
            rig.fault(kind, message=f"no such thing: /bot{rig.token}/x")  # a platform that quotes what it got
            adapter = rig.adapter(timeout=IMPATIENT)
        error = await error_of(adapter, rig.channel)

        told = [
            json.dumps(error.as_json(), ensure_ascii=False),
            str(error),
            repr(error),
            caplog.text,
            *capfd.readouterr(),
        ]
        told += traceback.format_exception(error)
        assert error.__cause__ is error.__context__ is None
        assert rig.token not in "\n".join(told)

    async def test_connections_are_reused(self, rig: Rig) -> None:
        adapter = rig.adapter()
        for _ in range(5):
            await adapter.send_text(rig.channel, TEXT, SendMeta())
        assert rig.connections() == 1

    async def test_no_more_connections_than_allowed(self, rig: Rig) -> None:
        rig.fault("slow", latency_ms=20)
        adapter = rig.adapter(connections=3)
        await asyncio.gather(*(adapter.send_text(rig.channel, TEXT, SendMeta()) for _ in range(12)))

        assert len(rig.posts()) == 12
        assert rig.connections() <= 3

    async def test_a_cancelled_send_leaves_the_pool_healthy(self, rig: Rig) -> None:
        adapter = rig.adapter(connections=1)
        rig.fault("timeout_after_accept", times=1)
        send = asyncio.ensure_future(adapter.send_text(rig.channel, TEXT, SendMeta()))
        while not rig.posts():
            await asyncio.sleep(0.005)
        send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send
        await adapter.send_text(rig.channel, "after", SendMeta())

        assert [post["visible"] for post in rig.posts()] == [TEXT, "after"]

    async def test_a_text_is_sent_as_planned(self, rig: Rig) -> None:
        adapter = rig.adapter()
        (call,) = adapter.plan(rig.channel, (), TEXT, SendMeta())
        await adapter.send_text(rig.channel, TEXT, SendMeta())
        assert call.text == rig.posts()[0]["text"] == TEXT

    async def test_leaves_a_later_converter_to_a_newer_process(self, rig: Rig) -> None:
        error = await error_of(rig.adapter(), rig.channel, SendMeta(parse_mode="HTML", converter=99))
        assert verdict(error) == ("TRANSIENT", "delivery", "converter_unknown")

    async def test_close_can_be_called_twice_and_before_use(self, rig: Rig) -> None:
        adapter = rig.adapter()
        await adapter.close()
        await adapter.close()


class _deaf:
    """A server that accepts connections and never says a word: a TLS handshake with it never ends."""

    async def __aenter__(self) -> str:
        self._ended = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._ended.wait()
            writer.close()

        self._server = await asyncio.start_server(listen, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *error: object) -> None:
        self._ended.set()
        self._server.close()
        await self._server.wait_closed()
