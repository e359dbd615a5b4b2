"""``vestnik sandbox``: the emulated platforms in the foreground."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from vestnik.errors import ConfigError
from vestnik.sandbox.server import Sandbox, serve
from vestnik.sandbox.state import State


def sandbox(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8090,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Accept any token and any chat, without registering them.")
    ] = False,
    ring: Annotated[int, typer.Option(min=1, help="How many posts of each chat to keep.")] = 200,
) -> None:
    """Run emulators of Telegram and MAX, with faults on demand and a page to watch them."""
    asyncio.run(_run(host, port, State(ring=ring, lenient=lenient)))


async def _run(host: str, port: int, state: State) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with serve(host, port, state=state) as running:
            typer.echo(_instructions(running, lenient=state.lenient))
            await stop.wait()
    except OSError as e:
        raise ConfigError(
            f"the sandbox cannot listen on {host}:{port}: {e.strerror or e}", hint="choose another --port"
        ) from e


def _instructions(running: Sandbox, *, lenient: bool) -> str:
    url = running.url
    lines = [
        f"Sandbox: {url}/",
        "",
        "Point Vestnik at it, best in its .env:",
        f"  VESTNIK_TELEGRAM_API_URL={running.telegram_url}",
        f"  VESTNIK_MAX_API_URL={running.max_url}",
        f"  VESTNIK_FETCH_ALLOW={running.runner.addresses[0][0]}",
        "",
    ]
    if not lenient:
        lines += [
            "Register a token and a chat (or start with --lenient):",
            f"""  curl -X PUT {url}/admin/telegram/tokens/demo -d '{{"token": "1:DEMO"}}'""",
            f"""  curl -X PUT {url}/admin/telegram/chats/-1001 -d '{{"title": "News"}}'""",
            "",
        ]
    lines += [
        "Make it fail:",
        f"""  curl -X PUT {url}/admin/telegram/faults -d '{{"kind": "429", "retry_after": 3, "times": 2}}'""",
        "",
        "Ctrl-C stops it.",
    ]
    return "\n".join(lines)
