"""``vestnik operator`` and ``vestnik changes``: who may do what, said at a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

from cli_rig import Cli

PASSWORD = "a password of the tests"
SHOP = "workspaces: [{id: shop, channels: [{id: news, platform: telegram, target: '-1001', auth_ref: bot}]}]"


def record(cli: Cli, workspace: str) -> list[tuple[str, str]]:
    return [(row["action"], row["subject"]) for row in json.loads(cli.ok("changes", workspace, "--json"))]


def test_an_operator_from_the_first_day_to_the_last(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yaml", SHOP))
    added = cli.ok("operator", "add", "anna", "--name", "Anna", "--role", "editor", "-w", "shop", "--password-stdin",
                   stdin=f"{PASSWORD}\n")  # fmt: skip
    assert added == "anna is editor of shop\n"
    cli.ok("operator", "role", "anna", "security")
    (anna,) = json.loads(cli.ok("operator", "list", "--json"))
    assert anna["roles"] == {"shop": ["editor"], "*": ["security"]}
    assert "editor of shop" in cli.ok("operator", "list", "-w", "shop")
    cli.ok("operator", "role", "anna", "editor", "-w", "shop", "--take")
    cli.ok("operator", "password", "anna", "--password-stdin", stdin="another long password\n")
    assert cli.ok("operator", "disable", "anna") == "done\n"
    assert cli.ok("operator", "disable", "anna") == "so it was already\n"
    cli.ok("operator", "enable", "anna")
    cli.ok("operator", "remove", "anna")
    assert json.loads(cli.ok("operator", "list", "--json")) == []
    assert record(cli, "*") == [
        ("operator_removed", "operator anna"), ("operator_enabled", "operator anna"),
        ("operator_disabled", "operator anna"), ("password_set", "operator anna"),
        ("role_granted", "operator anna"), ("operator_added", "operator anna"),
    ]  # fmt: skip
    assert record(cli, "shop")[:2] == [("role_taken", "operator anna"), ("role_granted", "operator anna")]


def test_what_commands_change_is_on_record_with_who_did_it(cli: Cli) -> None:
    cli.ok("apply", cli.write("shop.yaml", SHOP))
    cli.ok("endpoint", "create", "shop", "site")
    cli.ok("endpoint", "rotate", "shop", "site")
    cli.ok("apikey", "create", "shop", "robot")
    (key,) = json.loads(cli.ok("apikey", "list", "--json"))
    cli.ok("apikey", "revoke", key["key_id"])
    rows = json.loads(cli.ok("changes", "shop", "--json"))
    assert [row["action"] for row in rows[:4]] == ["apikey_revoked", "apikey_created", "rotated", "created"]
    assert {"channel news", "workspace shop"} <= {row["subject"] for row in rows}
    assert len({row["actor"] for row in rows}) == 1
    assert "apikey robot" in cli.ok("changes", "shop", "--limit", "3")
    assert cli.ok("changes", "shop", "--actor", "nobody") == "Nobody changed anything in the last 30 days.\n"


def test_slips_are_told(cli: Cli) -> None:
    def refused(*arguments: str, stdin: str = "") -> str:
        done = cli(*arguments, stdin=stdin)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "no workspace nowhere" in refused(
        "operator", "add", "anna", "--role", "owner", "-w", "nowhere", "--password-stdin", stdin=PASSWORD
    )
    assert json.loads(cli.ok("operator", "list", "--json")) == []
    assert "from 10 to 256" in refused("operator", "add", "boris", "--password-stdin", stdin="short\n")
    assert "login" in refused("operator", "add", "Böris", "--password-stdin", stdin=PASSWORD)
    assert "--password-stdin" in refused("operator", "add", "boris")
    assert "no operator boris" in refused("operator", "role", "boris", "viewer")


def test_the_password_is_asked_for_twice_and_not_shown(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "vestnik", "operator", "add", "anna"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=cli.folder, env=cli.environment, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        for prompt in (b"Password: ", b"confirmation: "):
            while prompt not in shown.split(b"\n")[-1]:
                shown += os.read(ours, 1000)
            os.write(ours, PASSWORD.encode() + b"\n")
        try:
            while piece := os.read(ours, 1000):
                shown += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        assert process.wait(60) == 0, shown
    os.close(ours)
    assert PASSWORD.encode() not in shown
    assert [row["login"] for row in json.loads(cli.ok("operator", "list", "--json"))] == ["anna"]
