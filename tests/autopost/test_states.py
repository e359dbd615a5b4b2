"""The transition guard: of the 64 pairs of states exactly the documented moves can be made, whoever tries."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

STATES = ["queued", "claimed", "sending", "sent", "retry", "deduped", "failed_permanent", "dead"]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "delivery-states.md"

# Moves that need more than a new status, and what they need: of the old row, and of the new.
BEGUN_AT_ONCE = (
    "attempt = attempt + 1, lease = lease + 1, claimed_at = now(), sending_started_at = now(), claim_token = 'run'"
)
SUCCESS = "sent_at = now()"
CONDITIONAL = {
    ("queued", "sending"): BEGUN_AT_ONCE, ("retry", "sending"): BEGUN_AT_ONCE,
    ("queued", "sent"): SUCCESS, ("retry", "sent"): SUCCESS, ("claimed", "sent"): SUCCESS,
}  # fmt: skip


def documented() -> set[tuple[str, str]]:
    """The moves that the page lists."""
    moves = set()
    for line in PAGE.read_text().split("| from | to |")[1].splitlines():
        cells = line.split("|")
        if len(cells) < 4 or "`" not in cells[2]:
            continue
        sources = STATES if cells[1].strip() == "any" else re.findall(r"`(\w+)`", cells[1])
        moves |= {
            (source, target) for source in sources for target in re.findall(r"`(\w+)`", cells[2]) if target in STATES
        }
    return {(source, target) for source, target in moves if source in STATES and source != target}


async def move(workspace: Autopost, source: str, target: str, sets: str = "", *, attempt: int = 1) -> str | None:
    """Tries it on a row of its own; returns the state of the error, or None when it was made."""
    try:
        async with workspace.connection.transaction(force_rollback=True):
            row = (await workspace.deliveries())[0]["delivery_id"]
            await workspace.sql("delete from autopost.deliveries where delivery_id = %s", row)
            await workspace.sql(
                "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, status, attempt)"
                " select workspace_id, %s, message_id, 'c1', content_hash, %s, %s from autopost.messages where workspace_id = %s",
                row, source, attempt, workspace.workspace,
            )  # fmt: skip
            await workspace.sql(
                f"update autopost.deliveries set status = %s {sets and ',' + sets} where delivery_id = %s", target, row
            )
            return None
    except psycopg.errors.Error as error:
        return error.sqlstate


@pytest.fixture
async def one(workspace: Autopost) -> Autopost:
    await workspace.channel()
    await workspace.push("hi")
    return workspace


def test_the_page_lists_the_specifications_moves() -> None:
    chain = [("queued", "claimed"), ("retry", "claimed"), ("claimed", "sending"), ("sending", "sent")]
    back = [("claimed", "queued"), ("claimed", "retry"), ("sending", "retry")]
    ends = [("queued", "failed_permanent"), ("retry", "failed_permanent"), ("sending", "failed_permanent")]
    ends += [("queued", "deduped"), ("retry", "deduped")] + [(state, "dead") for state in STATES if state != "dead"]
    beyond = [("dead", "retry"), ("failed_permanent", "retry"), *CONDITIONAL]
    assert documented() == {*chain, *back, *ends, *beyond}


@pytest.mark.parametrize("source", STATES)
async def test_exactly_the_documented_moves_can_be_made(one: Autopost, source: str) -> None:
    made = {
        (source, target)
        for target in STATES
        if source != target and await move(one, source, target, CONDITIONAL.get((source, target), "")) is None
    }
    assert made == {(s, t) for s, t in documented() if s == source}


async def test_what_events_tell_are_moves_of_the_table_and_all_of_them(one: Autopost) -> None:
    """The table that the live proof replays events by. A claim leaves no event: it is a way, and no stop."""
    free, at_once, late = [
        {tuple(move.split(">")) for move in await one.value(f"select autopost.{name}()")}
        for name in ("free_moves", "moves_at_once", "late_moves")
    ]
    made = free | at_once | late
    assert made == documented()
    by_way = made | {
        (a, c) for (a, b), (claimed, c) in product(made, made) if b == claimed == "claimed" and a in ("queued", "retry")
    }
    told = {
        (source, row["to_status"])
        for row in await one.sql("select * from autopost.told_moves()") if row["action"] != "confirmed"
        for source in row["from_statuses"]
    }  # fmt: skip
    assert {(source, target) for source, target in told - by_way if source != target} == set()
    silent = {(source, target) for source, target in made if "claimed" not in (source, target)} - told
    assert silent == set(), "an event tells of each"


async def test_every_other_move_is_a_named_error(one: Autopost) -> None:
    refused = set(product(STATES, STATES)) - documented() - {(state, state) for state in STATES}
    assert {await move(one, source, target) for source, target in refused} == {"VM001"}
    assert len(refused) == 64 - 8 - len(documented())


async def test_a_row_that_stays_where_it_is_makes_no_move(one: Autopost) -> None:
    assert {await move(one, state, state, "updated_at = now()") for state in STATES} == {None}


@pytest.mark.parametrize(("source", "target"), CONDITIONAL)
async def test_a_shortcut_without_what_it_stands_for_is_refused(one: Autopost, source: str, target: str) -> None:
    assert await move(one, source, target) == "VM001"
    sets = CONDITIONAL[source, target].split(", ")
    for left_out in sets:
        assert await move(one, source, target, ", ".join(part for part in sets if part != left_out)) == "VM001"


@pytest.mark.parametrize("source", ["queued", "retry", "claimed"])
async def test_what_was_never_begun_was_never_sent(one: Autopost, source: str) -> None:
    assert await move(one, source, "sent", SUCCESS, attempt=0) == "VM001"


async def test_an_illegal_move_changes_nothing_and_names_the_row(one: Autopost) -> None:
    (before,) = await one.deliveries()
    with pytest.raises(psycopg.Error, match=f"illegal move of delivery {before['delivery_id']}: queued -> sent"):
        await one.sql(
            "update autopost.deliveries set status = 'sent', attempt = 9 where workspace_id = %s", one.workspace
        )
    assert await one.deliveries() == [before]


async def test_a_state_that_is_not_known_cannot_be_stored(one: Autopost) -> None:
    with pytest.raises(psycopg.Error):
        await one.sql("update autopost.deliveries set status = 'lost' where workspace_id = %s", one.workspace)
    with pytest.raises(psycopg.errors.CheckViolation):
        await one.sql(
            "insert into autopost.deliveries (workspace_id, delivery_id, message_id, channel_id, content_hash, status)"
            " select workspace_id, gen_random_uuid(), message_id, 'c1', 'x', 'lost' from autopost.messages where workspace_id = %s",
            one.workspace,
        )  # fmt: skip
