"""What the command line says, whatever names and values are like."""

from __future__ import annotations

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
