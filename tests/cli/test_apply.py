"""``vestnik apply``: a file with everything in it, made true, once."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest
from cli_rig import Cli

SHOP = """
workspaces:
  - id: shop
    policy:
      min_gap: 30m
      upload_policy: {image: url_allowed}
      media_max_bytes: {telegram: {video: 2000000000}}
    templates:
      - {id: frame, parse_mode: HTML, body: "<b>{{ shop }}</b> {{ text }}", defaults: {shop: "${SHOP}"}}
    sources:
      - {id: blog, kind: rss, every: 15m, config: {url: "https://shop.example/feed.xml", tags: [blog]}}
    channels:
      - id: news
        platform: telegram
        target: "@news"
        auth_ref: bot
        template: frame
        min_gap: 1h
        timezone: Europe/Moscow
        posting_window: {daily: [["09:00", "18:00"]]}
      - {id: all, platform: telegram, target: "@all", auth_ref: bot}
"""


def stored(cli: Cli, query: str) -> Any:
    with psycopg.connect(cli.database) as connection:
        return connection.execute(query.encode()).fetchall()


def everything(cli: Cli) -> Any:
    tables = (
        "core.workspaces",
        "autopost.channels",
        "autopost.templates",
        "autopost.pull_sources",
        "autopost.policies",
    )
    return [
        stored(cli, f"select to_jsonb(t) - 'updated_at' from {table} t order by 1")
        for table in (*tables, "ops.schedules", "ops.jobs")
    ]


def apply(cli: Cli, text: str, *options: str) -> str:
    return cli.ok("apply", cli.write("shop.yml", text), *options, SHOP="Our shop")


def test_everything_that_is_declared_is_made_and_a_second_time_changes_nothing(cli: Cli) -> None:
    said = apply(cli, SHOP)
    for what in ("workspace shop", "policy of shop", "channel shop/news", "template shop/frame", "source shop/blog"):
        assert f"+ {what}" in said
    before = everything(cli)
    assert apply(cli, SHOP) == "nothing to change\n"
    assert everything(cli) == before
    assert stored(cli, "select window_mode, timezone, min_gap::text, template_ref from autopost.channels order by 1") == [
        ("immediate", None, None, None), ("windowed", "Europe/Moscow", "01:00:00", "frame"),
    ]  # fmt: skip
    assert stored(cli, "select min_gap::text, upload_policy, media_max_bytes from autopost.policies") == [
        ("00:30:00", {"image": "url_allowed"}, {"telegram": {"video": 2000000000}})
    ]
    assert stored(cli, "select defaults from autopost.templates") == [({"shop": "Our shop"},)]
    assert stored(cli, "select every::text, payload from ops.schedules") == [("00:15:00", {"source_id": "blog"})]


def test_a_name_is_filled_in_from_the_file_of_settings_too(cli: Cli) -> None:
    cli.write(".env", "SHOP=Of the file\n")
    cli.ok("apply", cli.write("shop.yml", SHOP))
    assert stored(cli, "select defaults from autopost.templates") == [({"shop": "Of the file"},)]
    assert "+ template shop/frame" not in apply(cli, SHOP)
    assert stored(cli, "select defaults from autopost.templates order by version desc")[0] == ({"shop": "Our shop"},)


def test_a_dry_run_shows_the_same_and_makes_nothing(cli: Cli) -> None:
    dry = apply(cli, SHOP, "--dry-run")
    assert everything(cli) == [[]] * 7
    assert dry.splitlines()[:-1] == apply(cli, SHOP).splitlines()
    assert "none of them made" in dry


def test_what_changes_is_shown_and_what_is_left_out_stays(cli: Cli) -> None:
    apply(cli, SHOP)
    changed = SHOP.replace("min_gap: 1h", "min_gap: 2h").replace("{{ text }}", "{{ text }}!").replace("15m", "20m")
    said = apply(cli, changed.replace("      min_gap: 30m\n", ""))
    assert "min_gap: 1:00:00 → 2:00:00" in said
    assert "version: 1 → 2" in said
    assert "every: 0:15:00 → 0:20:00" in said
    assert stored(cli, "select min_gap::text from autopost.policies") == [("00:30:00",)]
    smaller = "workspaces: [{id: shop, channels: [{id: all, platform: telegram, target: '@all', auth_ref: bot}]}]"
    assert apply(cli, smaller) == "nothing to change\n"
    assert len(stored(cli, "select from autopost.channels union all select from autopost.pull_sources")) == 3


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"09:00"', "9:00", "workspaces.shop.channels.news.posting_window.daily: 540 is a number, not a time; put times in quotes"),
        ("daily:", "someday:", 'workspaces.shop.channels.news.posting_window: unknown day "someday"'),
        ("Europe/Moscow", "Moskow", 'workspaces.shop.channels.news.timezone: "Moskow" is not a zone of the IANA database'),
        ("template: frame", "template: frames", "workspaces.shop.channels.news.template: there is no template frames"),
        ("{{ text }}", "{{ txt }}", "workspaces.shop.templates.frame.body: unknown variable txt"),
        ("<b>{{ shop }}</b>", "<b>{{ shop }}", "workspaces.shop.templates.frame.body: "),
        ("every: 15m", "every: soon", "workspaces.shop.sources.blog.every: not a duration"),
        ("every: 15m", "every: 15m, cron: '* * * * *'", "workspaces.shop.sources.blog: either every or cron, not both"),
        ("every: 15m", "cron: 'now and then'", "'now and then' is no cron expression"),
        ("every: 15m", "every: 15m, timezone: Moskow", "Moskow"),
        ("kind: rss", "kind: fax", "workspaces.shop.sources.blog.kind"),
        ("url: ", "address: ", "workspaces.shop.sources.blog"),
        ("min_gap: 1h", "min_gap: 0s", "workspaces.shop.channels.news.min_gap"),
        ("min_gap: 30m", "min_gap: -1", "workspaces.shop.policy.min_gap"),
        ("url_allowed", "sometimes", "workspaces.shop.policy.upload_policy.image"),
        ("2000000000", "-1", "workspaces.shop.policy.media_max_bytes.telegram.video"),
        ("{image: url_allowed}", "null", "upload_policy cannot be null; leave it out to keep what is there"),
        ("${SHOP}", "${SHOPS}", "${SHOPS}, which is neither in the environment nor in .env"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_place_before_anything_is_written(
    cli: Cli, before: str, after: str, said: str
) -> None:
    assert SHOP.count(before) == 1
    refusal = cli.refused("apply", cli.write("shop.yml", SHOP.replace(before, after)), SHOP="Our shop")
    assert said in refusal
    assert everything(cli) == [[]] * 7


def test_posts_that_wait_follow_the_new_hours_of_their_channel(cli: Cli) -> None:
    day = date.today() + timedelta(days=10)
    closed = SHOP.replace('{daily: [["09:00", "18:00"]]}', f'{{except: {{"{day}": [["09:00", "18:00"]]}}}}')
    apply(cli, closed)
    done = json.loads(cli.ok("push", "shop", "Read me", "--channel", "news", "--json"))
    (row,) = json.loads(cli.ok("planned", "shop", "--json"))
    assert (row["message_id"], row["goes_at"]) == (done["message_id"], f"{day}T06:00:00Z")
    opened = SHOP.replace("posting_window:", "window_mode: immediate\n        posting_window:")
    assert "1 waiting in shop/news go at the new hours" in apply(cli, opened, "--dry-run")
    assert json.loads(cli.ok("planned", "shop", "--json")) == [row]
    said = apply(cli, opened)
    assert "window_mode: windowed → immediate" in said
    assert "1 waiting in shop/news go at the new hours" in said
    (row,) = stored(cli, "select not_before <= now(), rendered_text from autopost.deliveries")
    assert row == (True, "<b>Our shop</b> Read me")


def test_posts_that_wait_keep_the_text_they_were_rendered_with(cli: Cli) -> None:
    apply(cli, SHOP)
    cli.ok("push", "shop", "Read me", "--channel", "news")
    assert "version: 1 → 2" in apply(cli, SHOP.replace("{{ text }}", "{{ text }}!"))
    assert stored(cli, "select rendered_text, template_version from autopost.deliveries") == [
        ("<b>Our shop</b> Read me", "frame@1")
    ]
