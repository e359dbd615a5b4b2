"""What came through a door before: by its reference for good, by its body for a few seconds. Each accepted request leaves one receipt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from doors import arrive, door, refuse

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def test_a_source_ref_passes_once(workspace: Autopost) -> None:
    await workspace.channel()
    await door(workspace)
    post = {"text": "hi", "source_ref": "cms-42"}
    assert await arrive(workspace, post) == ["accepted"]
    workspace.wait(hours=30)
    assert await arrive(workspace, post | {"text": "edited since"}) == ["duplicate"]
    assert await workspace.statuses() == {"queued": 1}


async def test_an_expired_receipt_counts_as_absent_before_it_is_cleaned_up(workspace: Autopost) -> None:
    await workspace.policy(receipt_ttl="1 day")
    await door(workspace)
    post = {"text": "hi", "source_ref": "cms-42"}
    assert await arrive(workspace, post) == ["accepted"]
    workspace.wait(days=1, microseconds=-1)
    assert await arrive(workspace, post) == ["duplicate"]
    workspace.wait(microseconds=1)
    assert await arrive(workspace, post) == ["accepted"]
    assert await arrive(workspace, post) == ["duplicate"], "the receipt lives again"


async def test_without_a_source_ref_the_same_body_is_dropped_for_a_few_seconds(workspace: Autopost) -> None:
    await door(workspace, hash_drop_window_sec=10)
    assert await arrive(workspace, {"text": "hi"}) == ["accepted"]
    workspace.wait(seconds=10, microseconds=-1)
    assert await arrive(workspace, {"text": "hi"}) == ["duplicate"]
    assert await arrive(workspace, {"text": "other"}) == ["accepted"]
    workspace.wait(microseconds=1)
    assert await arrive(workspace, {"text": "hi"}) == ["accepted"]


async def test_what_was_dropped_does_not_make_the_window_longer(workspace: Autopost) -> None:
    await door(workspace, hash_drop_window_sec=10)
    outcomes = []
    for _ in range(3):
        outcomes += await arrive(workspace, {"text": "hi"})
        workspace.wait(seconds=6)
    assert outcomes == ["accepted", "duplicate", "accepted"]


@pytest.mark.parametrize("hint", [{"workspace_id": "other"}, {"meta": {"try": 2}}, {"source": {"feed": 1}}], ids=str)
async def test_hints_do_not_make_it_another_request(workspace: Autopost, hint: dict[str, Any]) -> None:
    await door(workspace)
    assert await arrive(workspace, {"text": "hi"}, {"text": "hi"} | hint) == ["accepted", "duplicate"]


async def test_every_door_remembers_for_itself(workspace: Autopost) -> None:
    await door(workspace, "a")
    await door(workspace, "b")
    for post in ({"text": "hi"}, {"text": "hi", "source_ref": "1"}):
        assert (
            await arrive(workspace, post, endpoint="a") == await arrive(workspace, post, endpoint="b") == ["accepted"]
        )
        assert await arrive(workspace, post, endpoint="b") == ["duplicate"]


async def test_one_batch_is_gated_like_single_requests(workspace: Autopost) -> None:
    await workspace.channel()
    await door(workspace)
    hi, ref = {"text": "hi"}, {"text": "x", "source_ref": "r"}
    assert await arrive(workspace, hi, ref, {"text": 7}, hi, ref | {"text": "y"}, {"text": "z"}) == [
        "accepted", "accepted", "invalid", "duplicate", "duplicate", "accepted",
    ]  # fmt: skip
    assert await workspace.statuses() == {"queued": 3}


async def test_a_refused_request_leaves_no_receipt_so_a_retry_is_welcome(workspace: Autopost) -> None:
    await door(workspace)
    assert await arrive(workspace, {"text": 7, "source_ref": "r"}) == ["invalid"]
    await refuse(workspace, "ingress_rate_limited", "rate")
    assert not await workspace.sql(
        "select 1 from autopost.ingress_receipts where workspace_id = %s", workspace.workspace
    )
    assert await arrive(workspace, {"text": "put right", "source_ref": "r"}) == ["accepted"]


async def test_a_failed_enqueue_takes_its_receipt_with_it(workspace: Autopost) -> None:
    await door(workspace)
    with pytest.raises(ZeroDivisionError):
        async with workspace.connection.transaction():
            assert await arrive(workspace, {"text": "hi", "source_ref": "r"}) == ["accepted"]
            raise ZeroDivisionError
    assert await arrive(workspace, {"text": "hi", "source_ref": "r"}) == ["accepted"]


async def test_dropped_requests_write_neither_messages_nor_deliveries(workspace: Autopost) -> None:
    await workspace.channel()
    await door(workspace)
    await arrive(workspace, {"text": "hi"})
    before = await workspace.sql("select * from autopost.messages where workspace_id = %s", workspace.workspace)
    assert await arrive(workspace, {"text": "hi"}, {"text": 8}) == ["duplicate", "invalid"]
    after = await workspace.sql("select * from autopost.messages where workspace_id = %s", workspace.workspace)
    assert before == after, "not even seen once more"
    assert await workspace.statuses() == {"queued": 1}


async def test_receipts_are_swept_when_they_expire(workspace: Autopost) -> None:
    await workspace.policy(receipt_ttl="1 day")
    await door(workspace)
    await arrive(workspace, {"text": "a"}, {"text": "b", "source_ref": "b"})
    workspace.wait(hours=12)
    await arrive(workspace, {"text": "c"})
    sweep: Callable[[], Awaitable[int]] = lambda: workspace.value(  # noqa: E731
        "select autopost.sweep_receipts(%s, 1, %s)", workspace.workspace, workspace.now
    )
    assert await sweep() == 0
    workspace.wait(hours=12)
    assert await sweep() == 0, "to the microsecond"
    workspace.wait(microseconds=1)
    assert [await sweep() for _ in range(3)] == [1, 1, 0], "page by page, and only what has expired"


async def test_a_page_of_a_sweep_is_not_used_up_by_another_workspace(workspace: Autopost) -> None:
    other = type(workspace)(workspace.connection, workspace.workspace + "-other")
    await other.workspace_row()
    for one, wait in ((other, 0), (workspace, 1)):
        one.wait(hours=wait)
        await one.policy(receipt_ttl="1 day")
        await door(one)
        await arrive(one, {"text": "a"})
    workspace.wait(days=2)
    query = "select autopost.sweep_receipts(%s, 1, %s)"
    assert await workspace.value(query, workspace.workspace, workspace.now) == 1
    assert await workspace.value(query, other.workspace, workspace.now) == 1
