"""A first day on the command line, and the mistakes one makes there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from cli_rig import Cli

SHOP = """
workspaces:
  - id: shop
    credentials: [{platform: telegram, auth_ref: bot, token: "${TOKEN}"}]
    endpoints: [{id: main}]
    channels:
      - {id: news, platform: telegram, target: "-1001", auth_ref: bot, route_filter: {include_any: [news]}}
      - {id: all, platform: telegram, target: "-1002", auth_ref: bot}
"""


def test_the_first_day(cli: Cli) -> None:
    cli.write("shop.yml", SHOP)
    seen = cli.ok("apply", "shop.yml", "--dry-run", TOKEN="1:SECRET")
    assert "none of them made" in seen
    assert cli.ok("queue", "--json") == "[]\n"

    seen = cli.ok("apply", "shop.yml", TOKEN="1:SECRET")
    assert "+ channel shop/news" in seen
    assert "1:SECRET" not in seen
    assert re.search(r"^vpush_\S{30,}$", seen, re.M)
    assert "nothing to change" in cli.ok("apply", "shop.yml", TOKEN="1:SECRET")

    done = json.loads(cli.ok("push", "shop", "Hello #news", "--json"))
    assert done["enqueued"] == 2
    assert "1 queued" in cli.ok("push", "shop", "-", stdin="Only for all of you")
    assert json.loads(cli.ok("queue", "-w", "shop", "--json"))[0]["count"] == 3
    happened = json.loads(cli.ok("events", "shop", "--json"))
    assert {event["action"] for event in happened} == {"enqueue"}
    assert "enqueue" in cli.ok("events", "shop")
    assert "nothing is in its way" in cli.ok("why", happened[-1]["delivery_id"])
    assert json.loads(cli.ok("why", happened[-1]["delivery_id"], "--json"))["gate"] == "none"
    asked = cli.refused("why", done["message_id"])
    assert f"{happened[-1]['delivery_id']} ({happened[-1]['channel_id']})" in asked


def test_a_changed_declaration_shows_what_changes(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yml", SHOP), TOKEN="t")
    changed = SHOP.replace('"-1002", auth_ref: bot', '"-1002", auth_ref: bot, max_parallel: 3')
    seen = cli.ok("apply", cli.write("shop.yml", changed), TOKEN="t")
    assert "~ channel shop/all" in seen
    assert "max_parallel: 1 → 3" in seen
    assert "channel shop/news" not in seen
    assert "+ credential" in cli.ok("apply", "shop.yml", TOKEN="another")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workspaces: [", "shop.yml"),
        ("workspaces: [{id: shop, colour: red}]", "colour"),
        ("workspaces: [{id: shop, channels: [{id: a}]}]", "platform"),
        ("workspaces: [{id: 'no spaces please'}]", "id"),
        ("workspaces: [{id: w, name: '${NOT_THERE}'}]", "NOT_THERE"),
        (
            "workspaces: [{id: w, channels: [{id: a, platform: telegramm, target: '1', auth_ref: b}]}]",
            "installed are max, telegram",
        ),
        (
            "workspaces: [{id: w, channels: [{id: a, platform: telegram, target: '1', auth_ref: b, rate_rps: .inf}]}]",
            "rate_rps",
        ),
        (
            "workspaces: [{id: w, channels: [{id: a, platform: telegram, target: '1', auth_ref: b,"
            " settings: {message_thread_id: abc}}]}]",
            "message_thread_id",
        ),
        (
            "workspaces: [{id: w, channels: [{id: a, platform: telegram, target: '1', auth_ref: b},"
            " {id: c, platform: telegram, target: '1', auth_ref: b}]}]",
            "channels a and c both lead to 1 on telegram",
        ),
        (
            "workspaces: [{id: w, channels: [{id: a, platform: telegram, target: '1', auth_ref: b,"
            " route_filter: {include_any: [News]}}]}]",
            "lower-case",
        ),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong_and_changes_nothing(cli: Cli, text: str, said: str) -> None:
    assert said in cli.refused("apply", cli.write("shop.yml", text))
    assert json.loads(cli.ok("endpoint", "list", "--json")) == []
    assert json.loads(cli.ok("queue", "--json")) == []


def test_endpoints_and_keys_over_their_life(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yml", "workspaces: [{id: shop}]"))
    first = cli.ok("endpoint", "create", "shop", "site").strip()
    assert "vestnik endpoint rotate shop site" in cli.refused("endpoint", "create", "shop", "site")
    assert "no name for an endpoint" in cli.refused("endpoint", "create", "shop", "no spaces; please")
    rotated = cli.ok("endpoint", "rotate", "shop", "site")
    assert "site-v2" in rotated
    assert first not in rotated
    listed = json.loads(cli.ok("endpoint", "list", "--json"))
    assert [(e["endpoint_id"], e["enabled"]) for e in listed] == [("site", False), ("site-v2", True)]
    assert "no enabled endpoint" in cli.refused("endpoint", "rotate", "shop", "site")

    assert cli.ok("apikey", "create", "shop", "n8n").startswith("vkey_")
    key = json.loads(cli.ok("apikey", "list", "--json"))[0]
    cli.ok("apikey", "revoke", key["key_id"])
    assert "no API key" in cli.refused("apikey", "revoke", key["key_id"])
    assert "vestnik apply" in cli.refused("endpoint", "create", "nowhere", "site")


def test_mistakes_are_answered_in_words(cli: Cli) -> None:
    for command in (("push", "nowhere", "Hello"), ("queue", "-w", "nowhere"), ("events", "nowhere")):
        assert "no workspace nowhere" in cli.refused(*command)
    cli.ok("apply", cli.write("w.yml", "workspaces: [{id: w}]"))
    assert "text, links or media" in cli.refused("push", "w")
    assert "no such file" in cli.refused("push", "w", "--payload", "missing.json").lower()
    assert "no delivery" in cli.refused("why", "00000000-0000-0000-0000-000000000000")
    assert "there is no role 'cook'" in cli.refused("run", "cook")
    assert "VESTNIK_HTTP_PORT" in cli.refused("queue", VESTNIK_HTTP_PORT="eighty")
    assert "the database" in cli.refused("queue", VESTNIK_DATABASE_URL="postgresql://127.0.0.1:1/nothing")


def test_up_answers_and_ends_when_told(cli: Cli) -> None:
    declaration = "workspaces: [{id: w, endpoints: [{id: main, secret: sixteen-and-more-letters}]}]"
    cli.ok("apply", cli.write("w.yml", declaration))
    process = subprocess.Popen(
        [sys.executable, "-m", "vestnik", "up"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=cli.folder,
        env=cli.environment | {"VESTNIK_HTTP_PORT": "0"},
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        url = next(found[1] for line in lines if (found := re.search(r"API: (http://\S+)", line)))
        request = urllib.request.Request(
            f"{url}/v1/push", b'{"text": "Hello"}', {"Authorization": "Bearer sixteen-and-more-letters"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.status == 202
        port = url.rsplit(":", 1)[1]
        for command in (["run", "api"], ["up"]):
            assert cli.refused(*command, VESTNIK_HTTP_PORT=port).splitlines() == [
                f"vestnik: the API cannot listen on 127.0.0.1:{port}: Address already in use",
                "  try: is another Vestnik running? Choose another VESTNIK_HTTP_PORT",
            ]
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_help_names_every_command(cli: Cli) -> None:
    said = cli.ok("--help")
    for command in (
        *("up", "run", "migrate", "db", "apply", "push", "queue", "events"),
        *("why", "endpoint", "apikey", "demo", "sandbox", "bench"),
    ):
        assert re.search(rf"\b{command}\b", said), command
