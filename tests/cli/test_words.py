"""What the command line says, whatever names and values are like."""

from __future__ import annotations

import json
import os

import pytest
from cli_rig import Cli

ODD = """
workspaces:
  - id: shop
    endpoints: [{{id: main}}]
    channels:
      - {{id: "[/x]", platform: telegram, target: "-1", auth_ref: bot, title: "{title}"}}
"""


def test_names_that_look_like_markup_are_shown_as_they_are(cli: Cli) -> None:
    seen = cli.ok("apply", cli.write("odd.yml", ODD.format(title="[/b]")))
    assert "+ channel shop/[/x]" in seen
    assert "vpush_" in seen
    assert "title: [/b] → [/i]" in cli.ok("apply", cli.write("odd.yml", ODD.format(title="[/i]")))
    assert "no such channel: [/y]" in cli.ok("push", "shop", "hello", "--channel", "[/y]")


def test_a_number_too_large_for_its_column_is_one_line(cli: Cli) -> None:
    declared = ODD.format(title="t").replace("title:", "max_parallel: 99999999999, title:")
    assert "integer out of range" in cli.refused("apply", cli.write("odd.yml", declared))


def test_an_api_key_is_revoked_by_its_id_only(cli: Cli) -> None:
    assert "UUID" in cli.refused("apikey", "revoke", "abc")


def test_a_database_address_that_is_none_is_a_wrong_setting(cli: Cli) -> None:
    assert "VESTNIK_DATABASE_URL: " in cli.refused("queue", VESTNIK_DATABASE_URL="nonsense")


@pytest.mark.parametrize(
    "arguments", [("push", "shop", "\udcff"), ("push", "shop", "a", "--tag", "\udcff"), ("events", "\udcff")]
)
def test_bytes_that_are_no_text_are_one_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert "is not text in UTF-8" in cli.refused(
        *(os.fsencode(each).decode("utf-8", "surrogateescape") for each in arguments)
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"text": "\\ud800"}', "not JSON"),
        (b'{"text": "a\\u0000b"}', "NUL"),
        (b'{"meta": ' + b"[" * 2000 + b"]" * 2000 + b"}", "payload"),
        (b"[1]", "must be a JSON object"),
        (b"\xff", "not JSON"),
    ],
    ids=["half", "nul", "deep", "list", "bytes"],
)
def test_a_payload_that_nobody_could_store_is_one_line(cli: Cli, content: bytes, said: str) -> None:
    (cli.folder / "post.json").write_bytes(content)
    assert said in cli.refused("push", "shop", "--payload", "post.json")


def test_a_declaration_that_is_nested_without_end_is_one_line(cli: Cli) -> None:
    assert "nested too deep" in cli.refused("apply", cli.write("deep.yml", "[" * 5000 + "]" * 5000))


def test_a_folder_without_a_database_is_a_mistake_and_stays_empty(cli: Cli) -> None:
    said = cli.refused("queue", VESTNIK_DATABASE_URL="", VESTNIK_DATA_DIR=str(cli.folder / "mistyped"))
    assert "no database" in said
    assert "VESTNIK_DATA_DIR" in said
    assert not (cli.folder / "mistyped").exists()


def test_events_fit_into_a_terminal(cli: Cli) -> None:
    cli.ok("apply", cli.write("odd.yml", ODD.format(title="t")))
    cli.ok("push", "shop", "<b>hello", "--html")
    seen = cli.ok("events", "shop", COLUMNS="80").splitlines()
    assert len(seen) == 2
    assert all(len(line) <= 80 for line in seen)
    assert "validation_failed" in seen[0]
    assert json.loads(cli.ok("events", "shop", "--json"))[0]["delivery_id"] in seen[0]
    assert seen[1].strip() == "validation_failed <b> is never closed"
