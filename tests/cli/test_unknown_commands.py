"""``vestnik unknown``, ``forecast`` and ``findings`` on the command line."""

from __future__ import annotations

import json
import re

import psycopg
import pytest
from cli_rig import Cli

SHOP = """
workspaces:
  - id: shop
    channels:
      - {id: news, platform: telegram, target: "-1002", auth_ref: bot, on_unknown: hold, max_parallel: 9, rate_rps: 1}
      - {id: old, platform: telegram, target: "-1004", auth_ref: bot, enabled: false}
      - {id: sport, platform: telegram, target: "-1005", auth_ref: bot, route_filter: {include_any: [sport]}}
"""
NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def shop(cli: Cli) -> Cli:
    cli.ok("apply", cli.write("shop.yml", SHOP))
    return cli


def held(cli: Cli, *texts: str) -> list[str]:
    for text in texts:
        cli.ok("push", "shop", text)
    with psycopg.connect(cli.database, autocommit=True) as db:
        db.execute("update autopost.channels set rate_rps = null")
        db.execute("update autopost.platform_limits set rate_rps = null")
        rows = db.execute("select delivery_id from autopost.claim_and_begin('shop', 'run', 100)").fetchall()
        db.execute("select autopost.sweep_sending('shop', 500, now() + interval '1 hour')")
        db.execute("update autopost.deliveries set held_at = now() where held_at is not null")
    assert len(rows) == len(texts)
    return [str(row[0]) for row in rows]


def test_look_confirm_and_send_again(shop: Cli) -> None:
    assert shop.ok("unknown", "list", "shop") == "Nothing is held.\n"
    first, second = held(shop, "one", "two")
    seen = shop.ok("unknown", "list", "shop", "--limit", "1")
    assert "2 are held; these are the oldest 1." in seen
    assert "whether the platform took the post is not known" in seen
    assert "confirmed" in shop.ok(
        "unknown", "confirm", first, "--reason", "I saw it", "--message-id", "77", "--operator", "ana"
    )
    assert (
        shop.refused("unknown", "resend", first, "--reason", "x")
        == f"vestnik: delivery {first} is not held: it is sent\n"
    )
    done = json.loads(shop.ok("unknown", "resend", second, "--reason", "not there", "--json"))
    assert done == [{"delivery_id": second, "outcome": "resent"}]
    happened = {event["action"]: event for event in json.loads(shop.ok("events", "shop", "--json"))}
    assert (happened["confirmed"]["meta"]["operator"], happened["sent"]["meta"]["provider_message_id"]) == ("ana", "77")
    assert happened["manual_requeue"]["meta"]["reason"] == "not there"


def test_a_whole_channel_is_counted_and_asked_for(shop: Cli) -> None:
    held(shop, "one", "two")
    channel = ("-w", "shop", "--channel", "news", "--reason", "all are there")
    assert "this would confirm 2 deliveries of channel news" in shop.refused("unknown", "confirm", *channel)
    done = json.loads(shop.ok("unknown", "confirm", *channel, "--yes", "--json"))
    assert [row["outcome"] for row in done] == ["confirmed"] * 2
    assert "channel news of workspace shop holds nothing" in shop.refused("unknown", "resend", *channel, "--yes")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("confirm", "--reason", "x"), "confirm what?"),
        (("confirm", NOBODY), "the events want a reason"),
        (("resend", NOBODY, "--reason", "x"), f"no delivery {NOBODY}"),
        (("resend", "--channel", "news", "--reason", "x"), "a channel of which workspace?"),
        (("confirm", "--channel", "news", "-w", "shop", "--message-id", "7", "--reason", "x"), "a message id is of one delivery"),
        (("list", "nowhere"), "no workspace nowhere"),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_line(shop: Cli, arguments: tuple[str, ...], said: str) -> None:
    assert said in shop.refused("unknown", *arguments)


def test_a_forecast_says_when_and_who_never(shop: Cli) -> None:
    shop.ok("push", "shop", "Before")
    seen = shop.ok("forecast", "shop", "Hello")
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.search(rf"^{moment}  news +1$", seen, re.M)
    assert "never old: the channel is disabled" in seen
    assert "not for sport: its route_filter wants one of sport" in seen
    assert re.search(rf"^1 of 3 channels, first {moment}, last {moment}; 1 never$", seen, re.M)
    found = json.loads(shop.ok("forecast", "shop", "Hello", "--json"))
    assert (found["leaving"], found["never"], found["total"]) == (1, 1, 3)
    assert "text" in shop.refused("forecast", "shop")
    assert "no workspace nowhere" in shop.refused("forecast", "nowhere", "x")


def test_findings(shop: Cli) -> None:
    assert shop.ok("findings", "shop") == "Everything holds together.\n"
    with psycopg.connect(shop.database, autocommit=True) as db:
        query = "insert into autopost.events (workspace_id, id, delivery_id, action) values ('shop', gen_random_uuid(), %s, 'enqueue')"
        db.execute(query, (NOBODY,))
        while not db.execute("select pass_ended from autopost.check_page('shop')").fetchall()[0][0]:
            pass
    assert json.loads(shop.ok("findings", "shop", "--json"))[0]["subject"] == NOBODY
    assert "event_without_delivery" in shop.ok("findings", "shop")
