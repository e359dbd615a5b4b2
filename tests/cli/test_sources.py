"""``vestnik sources``: from the declaration to the posts, and the mistakes on the way."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from cli_rig import Cli

SHOP = """
workspaces:
  - id: shop
    channels:
      - {id: news, platform: telegram, target: "-1001", auth_ref: bot}
      - {id: sale, platform: telegram, target: "-1002", auth_ref: bot, route_filter: {include_any: [sale]}}
    sources:
      - id: goods
        kind: db
        every: 10m
        config:
          dsn: sqlite://FILE
          query: select id, title from goods where id >= :watermark order by id limit :limit
          watermark: {column: id, start: 0}
          key: id
          mapping: {text: "New: {title}"}
"""


@pytest.fixture
def shop(cli: Cli) -> Cli:
    file = cli.folder / "shop.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("create table goods (id integer, title text)")
        db.executemany("insert into goods values (?, ?)", [(1, "tea"), (2, None), (3, "cups")])
        db.commit()
    cli.ok("apply", cli.write("shop.yml", SHOP.replace("FILE", str(file))))
    return cli


def test_a_source_is_tried_read_and_looked_at(shop: Cli) -> None:
    tried = shop.ok("sources", "try", "shop", "goods")
    assert "2 would be taken, 1 cannot be" in tried
    assert "invalid 2: title is missing" in tried and "New: cups" in tried
    assert "→ news enqueued" in tried and "→ sale not_routed: its route_filter wants one of sale" in tried
    assert json.loads(shop.ok("queue", "--json")) == []
    found = json.loads(shop.ok("sources", "try", "shop", "goods", "--limit", "1", "--json"))
    assert ([item["key"] for item in found["items"]], found["take"]) == (["1"], 2)

    assert "3 read, 2 taken, 0 skipped, 1 invalid, 2 enqueued" in shop.ok("sources", "run", "shop", "goods")
    stats = json.loads(shop.ok("sources", "run", "shop", "goods", "--json"))
    assert (stats["outcome"], stats["new"]) == ("ok", 0)
    runs = json.loads(shop.ok("sources", "runs", "shop", "goods", "--json"))
    assert [run["stats"]["new"] for run in runs] == [0, 3]
    assert "ok" in shop.ok("sources", "runs", "shop")
    assert json.loads(shop.ok("queue", "--json"))[0]["count"] == 2
    (source,) = json.loads(shop.ok("sources", "list", "--json"))
    assert (source["source_id"], source["failures"], source["enabled"]) == ("goods", 0, True)


def test_mistakes_are_answered_in_words(shop: Cli) -> None:
    for command in (("try",), ("run",), ("runs",), ("remove",)):
        assert "no source nowhere in workspace shop" in shop.refused("sources", *command, "shop", "nowhere")
    (shop.folder / "shop.db").write_text("nothing")
    assert "this is no SQLite database" in shop.refused("sources", "try", "shop", "goods")
    assert "this is no SQLite database" in shop.refused("sources", "run", "shop", "goods")
    assert "not_a_database" in shop.ok("sources", "list", "-w", "shop")
    assert "failed" in shop.ok("sources", "runs", "shop", "goods")
    off = (shop.folder / "shop.yml").read_text().replace("every: 10m", "enabled: false")
    shop.ok("apply", shop.write("off.yml", off))
    assert "the source goods is disabled" in shop.refused("sources", "run", "shop", "goods")


def test_a_removed_source_is_gone(shop: Cli) -> None:
    assert "removed" in shop.ok("sources", "remove", "shop", "goods")
    assert json.loads(shop.ok("sources", "list", "--json")) == []
    assert json.loads(shop.ok("jobs", "schedules", "--json")) == []


def test_a_password_in_a_declaration_is_refused_and_not_repeated(cli: Cli) -> None:
    wrong = SHOP.replace("sqlite://FILE", "postgresql://me:hunter2@db/shop")
    said = cli.refused("apply", cli.write("shop.yml", wrong))
    assert "goods: config: dsn has a password in it" in said and "hunter2" not in said
