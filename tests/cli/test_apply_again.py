"""``vestnik apply`` when something was wrong before: another key, a channel that the platform refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from cli_rig import Cli

from vestnik.cli.operator import operator_name

SHOP = """
workspaces:
  - id: shop
    credentials: [{platform: telegram, auth_ref: bot, token: "${TOKEN}"}]
    channels:
      - {id: news, platform: telegram, target: "-1001", auth_ref: bot}
      - {id: other, platform: telegram, target: "-1002", auth_ref: other}
"""


def stored(cli: Cli, query: str) -> Any:
    with psycopg.connect(cli.database) as connection:
        done = connection.execute(query.encode())
        return done.fetchall() if done.description else []


def refuse(cli: Cli) -> None:
    """As the platform would have it: both channels are paused."""
    stored(
        cli,
        "update autopost.channels"
        " set error_streak = 1, paused_until = now() + interval '1 hour', penalized_at = now() - interval '1 minute'",
    )


def held_back(cli: Cli) -> list[str]:
    """Longer than a dispatcher may know an old token."""
    query = "select channel_id from autopost.channels where paused_until > now() + interval '1 minute' order by 1"
    return [channel for (channel,) in stored(cli, query)]


def test_a_new_token_lifts_the_pause_of_its_channels_and_says_so(cli: Cli) -> None:
    file = cli.write("shop.yml", SHOP)
    cli.ok("apply", file, TOKEN="wrong")
    refuse(cli)
    assert "held back" not in cli.ok("apply", file, TOKEN="wrong")
    assert "shop/news is no longer held back: a new token" in cli.ok("apply", file, "--dry-run", TOKEN="right")
    assert held_back(cli) == ["news", "other"]
    said = cli.ok("apply", file, TOKEN="right")
    assert "shop/news is no longer held back: a new token" in said
    assert "shop/other" not in said
    assert held_back(cli) == ["other"]
    events = "select channel_id, meta ->> 'operator' from autopost.events where action = 'channel_enabled'"
    assert stored(cli, events) == [("news", operator_name(None))]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"-1001", auth_ref: bot', '"-1001", auth_ref: second', "another auth_ref"),
        ('"-1001"', '"-1003"', "another target"),
        ('"-1001"', '"-1001", enabled: true', "enabled again"),
    ],
)
def test_so_does_what_a_channel_was_refused_for(cli: Cli, before: str, after: str, said: str) -> None:
    cli.ok("apply", cli.write("shop.yml", SHOP), TOKEN="t")
    refuse(cli)
    if "enabled" in said:
        stored(cli, "update autopost.channels set enabled = false where channel_id = 'news'")
    changed = cli.ok("apply", cli.write("shop.yml", SHOP.replace(before, after)), TOKEN="t")
    assert f"shop/news is no longer held back: {said}" in changed
    assert held_back(cli) == ["other"]


def test_another_key_is_refused_before_anything_is_written(cli: Cli) -> None:
    file = cli.write("shop.yml", SHOP)
    cli.ok("apply", file, TOKEN="t")
    before = stored(cli, "select * from core.credential_bindings")
    for text in (SHOP, SHOP.replace("auth_ref: bot", "auth_ref: bot2")):
        refusal = cli.refused("apply", cli.write("shop.yml", text), TOKEN="new", VESTNIK_SECRET_KEY="short")
        assert "encrypted with another key: shop/telegram/bot" in refusal
    assert stored(cli, "select * from core.credential_bindings") == before
    assert stored(cli, "select auth_ref from autopost.channels where channel_id = 'news'") == [("bot",)]
    assert "nothing to change" in cli.ok("apply", cli.write("shop.yml", SHOP), TOKEN="t")
