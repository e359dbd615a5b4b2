"""The integrity job: rows that refer to nothing, and rows that no sweep and no claim will ever see."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from proving import alert, check, rewrite, unguarded
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def story(workspace: Autopost) -> Any:
    """Two posts in one channel, one of them gone out; returns the one that waits."""
    await workspace.channel(max_parallel=1)
    await workspace.push("first")
    (row,) = await workspace.take()
    await workspace.sent(row["delivery_id"], row["lease"])
    await workspace.push("second")
    return (await workspace.deliveries("queued"))[0]


async def found(workspace: Autopost, **how: Any) -> list[tuple[str, str]]:
    return [(trouble["kind"], trouble["subject"]) for trouble in await check(workspace, **how)]


async def stray_event(workspace: Autopost, column: str, value: Any) -> None:
    await workspace.sql(
        f"insert into autopost.events (workspace_id, id, {column}, ts, action) values (%s, gen_random_uuid(), %s, %s, 'enqueue')",
        workspace.workspace, value, workspace.now,
    )  # fmt: skip


async def test_a_sound_workspace_has_nothing_and_no_alert(workspace: Autopost) -> None:
    await story(workspace)
    assert await found(workspace) == []
    assert await alert(workspace, "autopost.integrity") is None


@pytest.mark.parametrize(
    ("column", "kind"),
    [("delivery_id", "event_without_delivery"), ("message_id", "event_without_message"), ("channel_id", "event_without_channel")],
)  # fmt: skip
async def test_an_event_that_points_at_nothing_is_found(workspace: Autopost, column: str, kind: str) -> None:
    await story(workspace)
    nothing = str(uuid4()) if column != "channel_id" else "gone"
    await stray_event(workspace, column, nothing)
    assert await found(workspace) == [(kind, nothing)]


async def test_a_channel_that_a_person_removed_is_no_trouble(workspace: Autopost) -> None:
    await workspace.channel("unused")
    await stray_event(workspace, "channel_id", "unused")
    await workspace.sql("select autopost.remove_channel(%s, 'ana', 'unused')", workspace.workspace)
    assert await found(workspace) == []


async def test_what_retention_has_taken_explains_itself(workspace: Autopost) -> None:
    """An id says when it was made: what is older than rows are kept may be gone."""
    await story(workspace)
    for days in (89, 91):
        made = await workspace.value("select core.uuid7(%s)", workspace.now - timedelta(days=days))
        await stray_event(workspace, "delivery_id", made)
    assert [kind for kind, _ in await found(workspace)] == ["event_without_delivery"]
    assert await found(workspace, kept="30 days") == []


STUCK: list[tuple[dict[str, Any], str]] = [
    (
        {"status": "sending", "attempt": 1, "lease": 1},
        "it is sending, and since when is not kept: its lease never ends",
    ),
    ({"status": "claimed", "not_before": "infinity"}, "it is claimed for a slot that never comes"),
    ({"status": "retry"}, "it waits for another try, and no moment is kept"),
    ({"status": "retry", "next_retry_at": "infinity"}, "it waits for ever, and nobody holds it"),
    ({"not_before": "infinity"}, "it waits for files, and its post has none"),
]


@pytest.mark.parametrize(("columns", "says"), STUCK, ids=[says for _, says in STUCK])
async def test_a_row_that_no_sweep_sees_is_found(workspace: Autopost, columns: dict[str, Any], says: str) -> None:
    waiting = await story(workspace)
    await rewrite(workspace, waiting, **columns)
    assert await workspace.sweep() == (0, 0)
    workspace.wait(days=1)
    assert await workspace.take() == []
    troubles = {t["kind"]: t for t in await check(workspace)}
    assert troubles["unseen_by_sweeps"]["says"] == says
    assert troubles["unseen_by_sweeps"]["subject"] == str(waiting["delivery_id"])


async def test_a_hold_that_holds_nothing_is_found(workspace: Autopost) -> None:
    waiting = await story(workspace)
    await rewrite(workspace, waiting, held_at=workspace.now)
    assert await found(workspace) == [("unseen_by_sweeps", str(waiting["delivery_id"]))]


async def test_what_a_sweep_will_see_is_none_of_its_business(workspace: Autopost) -> None:
    await workspace.channel(on_unknown="hold", max_parallel=2)
    await workspace.push("a")
    await workspace.push("b")
    await workspace.take(limit=1)
    workspace.wait(days=1)
    assert await found(workspace) == []
    await workspace.sweep()
    assert await found(workspace) == []


async def test_a_delivery_without_its_message_is_found(workspace: Autopost) -> None:
    waiting = await story(workspace)
    async with unguarded(workspace):
        await workspace.sql("delete from autopost.messages where workspace_id = %s and message_id = %s",
                            workspace.workspace, waiting["message_id"])  # fmt: skip
    kinds = dict(await found(workspace))
    assert kinds["delivery_without_message"] == str(waiting["delivery_id"])
    assert kinds["event_without_message"] == str(waiting["message_id"])


async def test_a_row_that_contradicts_its_events_is_found_however_long_ago_it_was(workspace: Autopost) -> None:
    waiting = await story(workspace)
    workspace.wait(days=20)
    await rewrite(workspace, waiting, status="deduped")
    assert await found(workspace) == [("status", str(waiting["delivery_id"]))]


async def test_a_hash_that_is_not_its_messages_is_found(workspace: Autopost) -> None:
    waiting = await story(workspace)
    await rewrite(workspace, waiting, content_hash="another")
    assert await found(workspace) == [("wrong_hash", str(waiting["delivery_id"]))]


async def test_a_sent_row_without_its_moment_is_found(workspace: Autopost) -> None:
    await story(workspace)
    (row,) = await workspace.deliveries("sent")
    await rewrite(workspace, row, sent_at=None)
    assert await found(workspace) == [("sent_without_time", str(row["delivery_id"]))]


async def test_files_that_are_not_there_are_found_where_somebody_waits_for_them(workspace: Autopost) -> None:
    await workspace.channel()
    blob = {"blob_ref": "sha256:x", "origin_url": "x", "sha256": "x", "content_type": "image/png", "size_bytes": 6}
    await workspace.sql("select autopost.store_origin(%s, %s, %s)", workspace.workspace, Jsonb(blob), workspace.now)
    await workspace.push({"text": "Look", "media": [{"type": "image", "blob_ref": "sha256:x"}]})
    await workspace.sql("insert into autopost.media_blobs (workspace_id, blob_ref, provider, file_id) values (%s, 'sha256:x', 'telegram', '1')",
                        workspace.workspace)  # fmt: skip
    assert await found(workspace) == []
    await workspace.sql("delete from autopost.media_origin where workspace_id = %s", workspace.workspace)
    (row,) = await workspace.deliveries()
    assert await found(workspace) == [
        ("media_without_origin", str(row["delivery_id"])),
        ("handle_without_file", "sha256:x"),
    ]


async def test_an_item_of_a_source_whose_post_is_gone_is_found(workspace: Autopost) -> None:
    await workspace.sql("insert into autopost.pull_sources (workspace_id, source_id, kind) values (%s, 'feed', 'rss')", workspace.workspace)  # fmt: skip
    gone = uuid4()
    for n, message in enumerate(
        (gone, await workspace.value("select core.uuid7(%s)", workspace.now - timedelta(days=91)), None)
    ):
        await workspace.sql("insert into autopost.pull_items (workspace_id, source_id, item_hash, message_id, outcome)"
                            " values (%s, 'feed', %s, %s, 'posted')", workspace.workspace, str(n), message)  # fmt: skip
    assert await found(workspace) == [("item_without_post", str(gone))]


async def test_small_pages_find_what_one_page_finds_and_a_round_can_stop_anywhere(workspace: Autopost) -> None:
    await story(workspace)
    strays = [str(uuid4()) for _ in range(5)]
    for stray in strays:
        await stray_event(workspace, "delivery_id", stray)
    (page,) = await workspace.sql(
        "select * from autopost.check_page(%s, 2, p_now => %s)", workspace.workspace, workspace.now
    )
    assert (page["stage"], page["rows_seen"], page["pass_ended"]) == ("events", 2, False)
    workspace.wait(hours=1)
    await stray_event(workspace, "delivery_id", str(uuid4()))  # too late for this round
    await check(workspace, page=2)
    listed = await workspace.sql("select * from autopost.list_findings(%s)", workspace.workspace)
    assert sorted(row["subject"] for row in listed) == sorted(strays)
    assert len(await found(workspace)) == 6


async def test_what_was_mended_is_forgotten_by_the_next_round_and_its_alert_ends(workspace: Autopost) -> None:
    waiting = await story(workspace)
    await rewrite(workspace, waiting, content_hash="another")
    await check(workspace)
    raised = await alert(workspace, "autopost.integrity")
    assert raised["details"]["findings"] == [
        {"kind": "wrong_hash", "subject": str(waiting["delivery_id"]), "says": "its hash is not that of its message"}
    ]
    await rewrite(workspace, waiting, content_hash=waiting["content_hash"])
    workspace.wait(days=1)
    assert await found(workspace) == []
    assert await alert(workspace, "autopost.integrity") is None
    assert await workspace.sql("select * from autopost.list_findings(%s)", workspace.workspace) == []
