"""``vestnik doctor``, as people run it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cli_rig import Cli

from vestnik.sandbox.server import Sandbox, serve

DECLARATION = """
workspaces:
  - id: shop
    name: Shop
    credentials:
      - {platform: telegram, auth_ref: bot, token: "1:GOOD"}
    channels:
      - {id: news, platform: telegram, target: "-1001", auth_ref: bot}
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with serve() as running:
        telegram = running.state.platforms["telegram"]
        telegram.add_token("1:GOOD", "good")
        telegram.add_chat("-1001")
        yield running


async def run(cli: Cli, sandbox: Sandbox, *arguments: str) -> tuple[int, str]:
    urls = {"VESTNIK_TELEGRAM_API_URL": sandbox.telegram_url, "VESTNIK_MAX_API_URL": sandbox.max_url}
    done = await asyncio.to_thread(lambda: cli("doctor", *arguments, **urls))
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


async def test_the_doctor_looks_at_everything_and_fails_when_something_must_be_put_right(
    cli: Cli, sandbox: Sandbox
) -> None:
    cli.ok("apply", cli.write("shop.yml", DECLARATION))
    code, told = await run(cli, sandbox, "--json")
    found: list[dict[str, Any]] = json.loads(told)
    of = {(each["check"], each["subject"]): each for each in found}
    # Of the server of the tests, which is fast and not durable.
    assert code == 1 and of["database.settings", "fsync"]["status"] == "fail"
    assert of["platforms.credentials", "telegram bot"]["said"].startswith("@good_bot")
    assert of["platforms.rights", "news"]["status"] == "ok"
    assert {each["status"] for each in found if each["check"].startswith("machine.")} <= {"ok", "warn"}
    assert all(bool(each["fix"]) == (each["status"] in ("warn", "fail")) for each in found)


async def test_one_workspace_offline_is_in_order_and_says_so(cli: Cli, sandbox: Sandbox) -> None:
    cli.ok("apply", cli.write("shop.yml", DECLARATION))
    code, told = await run(cli, sandbox, "--workspace", "shop", "--offline")
    assert code == 0
    assert "3 checks" in told and "nobody outside is asked (--offline)" in told
    assert told.splitlines()[-1] == "3 skipped, 6 in order"
    assert sandbox.state.platforms["telegram"].counters["requests"] == 0


async def test_what_is_wrong_stands_with_what_to_do(cli: Cli, sandbox: Sandbox) -> None:
    cli.ok("apply", cli.write("shop.yml", DECLARATION))
    sandbox.state.platforms["telegram"].chats["-1001"].bot = "silent"
    code, told = await run(cli, sandbox, "-w", "shop")
    assert code == 1
    assert "shop news: may not post there, as administrator: can_post_messages" in told
    assert "try: make the bot an administrator of -1001 that may post;" in told
    assert "1 to put right" in told.splitlines()[-1]


async def test_a_workspace_that_is_not_there_is_refused(cli: Cli) -> None:
    assert "no workspace nowhere" in cli.refused("doctor", "-w", "nowhere")
