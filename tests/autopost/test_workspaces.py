"""Across workspaces: who has work, whose turn it is, and that nobody touches what is a neighbour's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def neighbours(autopost: Autopost, *names: str, status: str = "active") -> dict[str, Autopost]:
    """Workspaces with one channel and one post each."""
    found = {}
    for name in names:
        found[name] = type(autopost)(autopost.connection, name)
        await found[name].workspace_row()
        await found[name].channel()
        await found[name].push("hi")
        await autopost.sql("update core.workspaces set status = %s where workspace_id = %s", status, name)
    return found


async def with_work(autopost: Autopost, after: str = "", limit: int = 1000) -> list[str]:
    rows = await autopost.sql("select w from autopost.workspaces_with_work(%s, %s) w", after, limit)
    return [row["w"] for row in rows]


async def test_only_active_workspaces_with_something_to_do_are_named(autopost: Autopost) -> None:
    await neighbours(autopost, "a", "b")
    await neighbours(autopost, "paused", status="paused")
    await neighbours(autopost, "disabled", status="disabled")
    assert await with_work(autopost) == ["a", "b"], "the workspace without deliveries is not"


@pytest.mark.parametrize(
    ("steps", "has_work"),
    [((), True), (("claim",), True), (("take",), True), (("take", "retry"), True), (("take", "sent"), False), (("take", "fail"), False)],
    ids=str,
)  # fmt: skip
async def test_work_is_what_may_be_sent_or_swept(autopost: Autopost, steps: tuple[str, ...], has_work: bool) -> None:
    one = (await neighbours(autopost, "a"))["a"]
    for step in steps:
        if step in ("claim", "take"):
            await getattr(one, step)()
        else:
            await getattr(one, step)((await one.deliveries())[0]["delivery_id"])
    assert await with_work(autopost) == (["a"] if has_work else [])


async def test_the_round_begins_after_the_one_served_last(autopost: Autopost) -> None:
    await neighbours(autopost, "a", "b", "c")
    assert await autopost.value("select autopost.workspace_place()") == ""
    served = []
    for _ in range(7):
        place = await autopost.value("select autopost.workspace_place()")
        (next_one, *_) = await with_work(autopost, place)
        await autopost.sql("select autopost.remember_workspace(%s)", next_one)
        served.append(next_one)
    assert served == ["a", "b", "c", "a", "b", "c", "a"]
    assert await with_work(autopost, "b", 2) == ["c", "a"]


async def test_a_claim_of_one_workspace_leaves_the_place_of_the_dispatcher_alone(autopost: Autopost) -> None:
    found = await neighbours(autopost, "a", "b")
    await autopost.sql("select autopost.remember_workspace('a')")
    await found["b"].claim()
    assert await autopost.value("select autopost.workspace_place()") == "a"


async def test_no_call_moves_a_row_of_another_workspace(workspace: Autopost) -> None:
    other = (await neighbours(workspace, workspace.workspace + "-other"))[workspace.workspace + "-other"]
    tables = (
        "deliveries",
        "events",
        "channels",
        "messages",
        "platform_limits",
        "policies",
        "ingest_runs",
        "dispatcher_state",
    )

    async def rows() -> list[object]:
        return [
            await other.sql(f"select * from autopost.{table} where workspace_id = %s order by 1, 2", other.workspace)
            for table in tables
        ]

    before = await rows()
    await workspace.policy(max_attempts=1)
    await workspace.channel(max_parallel=4)
    for text in ("hi", "two", "three", "Ж" * 4097):
        await workspace.push(text)
    for row, end in zip(await workspace.take(), (workspace.sent, workspace.fail, workspace.retry), strict=True):
        await end(row["delivery_id"])
    await workspace.push("hi")
    await workspace.push("again")
    await workspace.take()
    workspace.wait(hours=1)
    await workspace.sweep()
    assert await rows() == before


async def test_a_paused_workspace_keeps_its_queue_until_it_goes_on(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.sql("update core.workspaces set status = 'paused' where workspace_id = %s", workspace.workspace)
    await workspace.push("hi")
    assert await workspace.claim() == await workspace.take() == []
    await workspace.sql("update core.workspaces set status = 'active' where workspace_id = %s", workspace.workspace)
    assert len(await workspace.take()) == 1
