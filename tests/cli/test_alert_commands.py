"""Alerts, targets and webhooks, as they are declared and as an operator sees them."""

from __future__ import annotations

import json

import psycopg
from cli_rig import Cli

SHOP = """
workspaces:
  - id: shop
    alerts:
      policy: {paused_channels_max: 0, repeat_every: 2h}
      targets:
        - {id: admins, kind: telegram, address: "-100200300", auth_ref: bot, language: ru}
        - {id: mail, kind: email, address: ops@example.org, min_severity: critical}
        - {id: pager, kind: webhook, address: "https://pager.example/hooks/abc"}
    webhooks:
      - {id: crm, url: "https://crm.example/hooks", events: [delivery.dead]}
      - {id: own, url: "https://own.example/", secret: "${HOOK_SECRET}"}
alerts:
  targets:
    - {id: admins, kind: telegram, address: "-100200300", auth_ref: bot, credential_workspace: shop}
"""
CHANNEL = "workspaces: [{id: shop, channels: [{id: news, platform: telegram, target: '@news', auth_ref: bot}]}]"
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


def apply(cli: Cli, text: str = SHOP) -> str:
    return cli.ok("apply", cli.write("shop.yaml", text), HOOK_SECRET=SECRET)


def put_workspace(cli: Cli) -> None:
    with psycopg.connect(cli.database, autocommit=True) as db:
        db.execute("insert into core.workspaces (workspace_id, name) values ('shop', 'Shop')")


def put(cli: Cli, alert: str = "dead", workspace: str = "shop") -> None:
    with psycopg.connect(cli.database, autocommit=True) as db:
        db.execute("select ops.put_alert(%s, %s, '', 'critical', 'three are dead', null)", (workspace, alert))


def test_what_is_declared_is_made_true_and_secrets_are_shown_once(cli: Cli) -> None:
    first = apply(cli)
    assert first.count("whsec_") == 2
    assert SECRET not in first
    assert "Secret of webhook shop/crm, shown this once:" in first
    assert "nothing to change" in apply(cli)
    again = apply(cli, SHOP.replace("-100200300", "-100200301").replace("[delivery.dead]", "[channel.disabled]"))
    assert ("~ alert target shop/admins" in again, "~ alert target */admins" in again) == (True, True)
    assert ("~ webhook shop/crm" in again, "whsec_" in again) == (True, False)
    targets = json.loads(cli.ok("alerts", "targets", "--json"))
    assert {(t["workspace_id"], t["target_id"]): t["address"] for t in targets} == {
        ("*", "admins"): "-100200301",
        ("shop", "admins"): "-100200301",
        ("shop", "mail"): "ops@example.org",
        ("shop", "pager"): "https://pager.example/…",
    }


def test_an_operator_sees_acknowledges_and_silences(cli: Cli) -> None:
    put_workspace(cli)
    put(cli)
    assert "three are dead" in cli.ok("alerts", "list", "-w", "shop")
    assert "1 acknowledged" in cli.ok("alerts", "ack", "shop", "dead", "--operator", "anna")
    cli.ok("alerts", "silence", "shop", "dead", "--for", "2h", "--reason", "a move", "--operator", "anna")
    (silence,) = json.loads(cli.ok("alerts", "silences", "--json"))
    assert (silence["alert"], silence["actor"], silence["reason"]) == ("dead", "anna", "a move")
    (alert,) = json.loads(cli.ok("alerts", "list", "--json"))
    assert (alert["acked_by"], alert["silent_until"]) == ("anna", silence["until"])
    assert "no alert disk is on" in cli.refused("alerts", "ack", "shop", "disk")


def test_a_target_is_tried_and_removed(cli: Cli) -> None:
    apply(cli)
    assert "no_way" in cli.refused("alerts", "test", "shop", "mail")
    assert "removed" in cli.ok("alerts", "remove", "shop", "mail")
    assert "no alert target mail" in cli.refused("alerts", "remove", "shop", "mail")


def test_a_webhook_gets_a_new_secret_and_is_removed(cli: Cli) -> None:
    apply(cli)
    assert cli.ok("webhooks", "rotate", "shop", "crm", "--overlap", "1h").startswith("whsec_")
    assert cli.ok("webhooks", "rotate", "shop", "pager", "--target").startswith("whsec_")
    rows = {row["webhook_id"]: row for row in json.loads(cli.ok("webhooks", "list", "--json"))}
    assert (rows["crm"]["secrets"], rows["own"]["secrets"]) == (2, 1)
    assert "removed" in cli.ok("webhooks", "remove", "shop", "crm")


def test_the_health_of_a_workspace(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yml", CHANNEL))
    put(cli)
    cli.ok("push", "shop", "hello")
    cli.ok("disable", "shop", "news", "--reason", "drill")
    said = cli.ok("health", "shop")
    assert ("shop is active" in said, "alert dead: three" in said) == (True, True)
    assert "disabled    news\n" in said and "paused      " not in said
    assert json.loads(cli.ok("health", "shop", "--json"))["alerts"][0]["alert"] == "dead"
