"""Full payloads on the machine itself: which there are, what is in one, and who has looked."""

from __future__ import annotations

import getpass
import json

import psycopg
from cli_rig import Cli

from vestnik.autopost.payloads.equipment import open_vault
from vestnik.autopost.payloads.vault import new_ref
from vestnik.settings import Settings
from vestnik.storage import open_store


async def kept(cli: Cli) -> str:
    """A payload of workspace w, and the event that names it."""
    settings = Settings(_env_file=None, data_dir=cli.folder / "data")  # type: ignore[call-arg]
    name = await open_vault(settings, open_store(settings.object_store)).put("w", {"answer": "call +7 916 123-45-67"})
    with psycopg.connect(cli.database) as connection:
        connection.execute("insert into core.workspaces (workspace_id, name) values ('w', 'W')")
        connection.execute(
            """insert into autopost.events (workspace_id, id, action, result, error, payload_ref)
               values ('w', gen_random_uuid(), 'failed_permanent', 'error', '{"code": "400"}', %s)""",
            (name,),
        )
    return name


async def test_a_look_wants_a_reason_and_leaves_a_trace(cli: Cli) -> None:
    name = await kept(cli)
    (listed,) = json.loads(cli.ok("payloads", "list", "w", "--json"))
    assert (listed["payload_ref"], listed["code"]) == (name, "400")
    assert "reason" in cli.refused("payloads", "show", "w", name)
    shown = cli.ok("payloads", "show", "w", name, "--reason", "ticket 7, for +7 916 123-45-67")
    assert json.loads(shown) == {"answer": "call +7 916 123-45-67"}
    assert "not kept" in cli.refused("payloads", "show", "w", new_ref(), "--reason", "ticket 7")
    looks = json.loads(cli.ok("payloads", "reads", "w", "--json"))
    assert [(look["actor"], look["via"], look["outcome"], look["reason"]) for look in looks] == [
        (f"machine {getpass.getuser()}", "machine", "not_found", "ticket 7"),
        (f"machine {getpass.getuser()}", "machine", "granted", "ticket 7, for ***"),
    ]
    assert "machine" in cli.ok("payloads", "reads", "w")


def test_there_may_be_nothing(cli: Cli) -> None:
    assert "No event names a payload" in cli.ok("payloads", "list", "w")
    assert "Nobody has looked" in cli.ok("payloads", "reads", "w")
    assert "no workspace" in cli.refused("payloads", "show", "w", new_ref(), "--reason", "why not").lower()
