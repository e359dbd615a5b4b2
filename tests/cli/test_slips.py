"""What people mistype, and the words that bring them back."""

from __future__ import annotations

import pytest
from cli_rig import Cli

SHOP = """
workspaces:
  - id: shop
    policy: {min_gap: 30m}
    credentials:
      - {platform: telegram, auth_ref: bot, token: "1:abc"}
    channels:
      - {id: news, platform: telegram, target: "@news", auth_ref: bot, settings: {long_text: split}}
      - {id: chat, platform: max, target: "-70123", auth_ref: max-bot}
    sources:
      - {id: blog, kind: rss, config: {url: "https://shop.example/feed.xml", tags: [blog]}}
"""


def swapped(before: str, after: str) -> str:
    assert SHOP.count(before) == 1
    return SHOP.replace(before, after)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing is declared"),
        ("[1]", "the declaration: must be keys with values"),
        ("workspaces: {id: shop}", "workspaces: must be a list; begin each of its items with a dash"),
        (swapped("channels:", "chanels:"), "workspaces.shop.chanels: unknown key; did you mean channels?"),
        (swapped("min_gap", "min_gapp"), "workspaces.shop.policy.min_gapp: unknown key; did you mean min_gap?"),
        (swapped("url:", "ulr:"), "workspaces.shop.sources.blog: url: is missing; ulr: unknown key; did you mean url?"),
        (swapped("kind: rss, ", ""), "workspaces.shop.sources.blog.kind: is missing"),
        (swapped("id: news,", "id: news, colour: red,"), "workspaces.shop.channels.news.colour: unknown key"),
        (swapped('"@news"', "our_news2"), "target 'our_news2' is not the number of a chat or the @name of a public channel; did you mean @our_news2?"),
        (swapped('"@news"', "https://t.me/news"), "did you mean @news?"),
        (swapped('"-70123"', '"@chat"'), "workspaces.shop.channels.chat: target '@chat' is not the number of a chat"),
        (swapped('"1:abc"', "$TOKEN"), "its token is the name of a variable; write ${TOKEN} to have it filled in"),
    ],
)  # fmt: skip
def test_a_slip_that_can_never_work_is_refused_in_words(cli: Cli, text: str, said: str) -> None:
    refusal = cli.refused("apply", cli.write("shop.yml", text))
    assert f"{said}\n" in refusal
    assert cli.ok("queue", "--json") == "[]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workspaces:\n  - id: a\n   name: b\n", "shop.yml line 3: "),
        ("workspaces:\n\t- id: a\n", "shop.yml line 2: found character '\\t' that cannot start any token"),
        ("workspaces: a: b\n", "shop.yml line 1: mapping values are not allowed here"),
    ],
)
def test_a_file_that_is_no_yaml_is_told_by_its_line(cli: Cli, text: str, said: str) -> None:
    refusal = cli.refused("apply", cli.write("shop.yml", text)).splitlines()
    assert refusal[0].startswith(f"vestnik: {said}") and len(refusal) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHOP, "! channel chat: there is no max credential max-bot in this workspace"),
        (swapped("auth_ref: bot, set", "auth_ref: bott, set"), "! channel news: there is no telegram credential bott in this workspace"),
        (swapped("long_text", "long_txt"), "! channel news: nothing reads the setting long_txt; did you mean long_text?"),
        (swapped("platform: telegram, auth_ref: bot, token: \"1:abc\"", "platform: source, auth_ref: b, token: $KEY"),
         "! credential b: its token looks like the name of a variable; write ${KEY} to have it filled in"),
    ],
)  # fmt: skip
def test_a_likely_slip_is_told_and_made_true(cli: Cli, text: str, said: str) -> None:
    done = cli("apply", cli.write("shop.yml", text))
    assert done.returncode == 0 and "+ channel shop/news" in done.stdout
    assert said in done.stderr.splitlines()


def test_a_declaration_in_which_nothing_is_odd_has_no_warnings(cli: Cli) -> None:
    text = swapped("auth_ref: max-bot", "auth_ref: max-bot, settings: {mine: 1}").replace(
        "    channels:", "      - {platform: max, auth_ref: max-bot, token: x$Y}\n    channels:"
    )
    assert cli("apply", cli.write("shop.yml", text)).stderr == ""
    bare = "workspaces: [{id: shop, channels: [{id: chat, platform: max, target: '-70123', auth_ref: max-bot}]}]"
    assert cli("apply", cli.write("bare.yml", bare)).stderr == "", "its credential is in the database"


def test_two_channels_on_one_destination_are_named(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yml", SHOP))
    twin = "workspaces: [{id: shop, channels: [{id: copy, platform: max, target: '-70123', auth_ref: b}]}]"
    said = "channels chat and copy both lead to -70123 on max\n"
    assert said in cli.refused("apply", cli.write("twin.yml", twin))
    both = swapped("    sources:", "      - {id: copy, platform: max, target: '-70123', auth_ref: b}\n    sources:")
    assert said in cli.refused("apply", cli.write("both.yml", both))


def test_channels_that_take_over_each_others_target_are_told_how(cli: Cli) -> None:
    a, b = ("{{id: {}, platform: max, target: '{}', auth_ref: x}}".format(*pair) for pair in (("a", 1), ("b", 2)))
    cli.ok("apply", cli.write("two.yml", f"workspaces: [{{id: w, channels: [{a}, {b}]}}]"))
    a, b = a.replace("'1'", "'2'"), b.replace("'2'", "'1'")
    cli.write("two.yml", f"workspaces: [{{id: w, channels: [{a}, {b}]}}]")
    assert "give that one its new target first" in cli.refused("apply", "two.yml")


def test_dates_without_quotes_settle(cli: Cli) -> None:
    window = "timezone: UTC, posting_window: {daily: [['09:00', '18:00']], except: {2027-01-01: []}}"
    text = swapped("auth_ref: max-bot", f"auth_ref: max-bot, {window}, settings: {{since: 2027-01-01}}")
    cli.ok("apply", cli.write("shop.yml", text))
    assert cli.ok("apply", "shop.yml") == "nothing to change\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("push", "shop", "x", "--media", "cat.png"), "'cat.png' is no address\n  try: for a file of this machine: vestnik push … --file FILE\n"),
        (("push", "shop", "--payload", "nope.json"), "\n  nope.json: No such file or directory\n"),
        (("why", "0190"), "as vestnik events shows it"),
        (("events", "shop", "--delivery", "0190"), "as vestnik events shows it"),
    ],
)  # fmt: skip
def test_a_slip_on_the_command_line_is_answered_with_the_way_out(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    assert said in cli.refused(*arguments)
