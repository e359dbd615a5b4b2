"""An edited post takes the place of one that waits: in its channels, at its moment, with its tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from planned import OFFICE, begins_at, clock, goes_exactly_at, move, push_at, replace
from psycopg.types.json import Jsonb
from sends import refused

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16


async def test_the_new_text_goes_at_the_moment_of_the_old_and_the_old_one_never(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "Sale at 9", clock(15))
    done = await replace(workspace, message, {"text": "Sale at 10"})
    assert (done["outcome"], done["enqueued"], done["too_late"], done["warnings"]) == ("accepted", 1, [], [])
    assert done["message_id"] != message
    await goes_exactly_at(workspace, clock(15), "Sale at 10")
    (event,) = await workspace.events("cancelled")
    told = {name: event["meta"][name] for name in ("operator", "reason")}
    assert told == {"operator": "anna", "reason": "replaced by an edited post"}


async def test_the_new_post_may_name_a_moment_of_its_own(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "old", clock(15))
    await replace(workspace, message, {"text": "new", "scheduled_for": clock(16).isoformat()})
    await goes_exactly_at(workspace, clock(16), "new")


async def test_a_moment_that_has_passed_is_not_handed_down(workspace: Autopost) -> None:
    await workspace.channel(window_mode="windowed", posting_window=OFFICE)
    message = await push_at(workspace, "old", clock(19))
    workspace.now = clock(20)
    done = await replace(workspace, message, {"text": "new"})
    assert done["warnings"] == []
    await goes_exactly_at(workspace, clock(9, day=2), "new")


async def test_each_channel_keeps_its_own_moment(workspace: Autopost) -> None:
    for channel in ("c1", "c2", "c3"):
        await workspace.channel(channel)
    message = await push_at(workspace, "old", clock(15))
    await move(workspace, message, clock(17), "c2")
    await move(workspace, message, None, "c3")
    assert (await replace(workspace, message, {"text": "new"}))["enqueued"] == 3
    assert await begins_at(workspace, workspace.now) == ["new"]
    await goes_exactly_at(workspace, clock(15), "new")
    await goes_exactly_at(workspace, clock(17), "new")


async def test_the_old_tags_count_unless_new_ones_are_named(workspace: Autopost) -> None:
    await workspace.channel("news", route_filter={"include_any": ["news"]})
    message = await push_at(workspace, "old", clock(15), tags=["news"])
    done = await replace(workspace, message, {"text": "new"})
    assert (done["enqueued"], done["warnings"]) == (1, [])
    await refused(workspace, "VP001", replace(workspace, done["message_id"], {"text": "newer", "tags": ["sport"]}))
    await goes_exactly_at(workspace, clock(15), "new")


async def test_only_the_channels_that_it_names_get_the_new_post(workspace: Autopost) -> None:
    for channel in ("c1", "c2"):
        await workspace.channel(channel)
    message = await push_at(workspace, "old", clock(15))
    done = await replace(workspace, message, {"text": "new", "channels": ["c2", "nowhere"]})
    assert done["enqueued"] == 1
    assert {row["channel_id"]: row["rendered_text"] for row in await workspace.deliveries("queued")} == {
        "c1": "old", "c2": "new",
    }  # fmt: skip


async def test_where_the_old_one_is_under_way_nothing_is_sent_twice(workspace: Autopost) -> None:
    await workspace.channel("now")
    await workspace.channel("later", window_mode="windowed", posting_window={"daily": [["20:00", "21:00"]]})
    message = await push_at(workspace, "old")
    assert await begins_at(workspace, workspace.now) == ["old"]
    done = await replace(workspace, message, {"text": "new"})
    assert (done["enqueued"], done["too_late"]) == (1, ["now"])
    assert await begins_at(workspace, clock(20)) == ["new"]


async def test_a_held_delivery_keeps_its_old_text_for_it_may_have_been_shown(workspace: Autopost) -> None:
    await workspace.channel("c1", on_unknown="hold")
    await workspace.channel("c2", window_mode="windowed", posting_window={"daily": [["20:00", "21:00"]]})
    message = await push_at(workspace, "old")
    await workspace.take()
    workspace.wait(seconds=301)
    await workspace.sweep()
    assert (await replace(workspace, message, {"text": "new"}))["too_late"] == ["c1"]
    assert await workspace.statuses() == {"retry": 1, "failed_permanent": 1, "queued": 1}


async def test_a_post_can_be_replaced_by_itself_at_another_moment(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "same", clock(15))
    done = await replace(workspace, message, {"text": "same", "scheduled_for": clock(16).isoformat()})
    assert (done["message_id"], done["enqueued"]) == (message, 1)
    await goes_exactly_at(workspace, clock(16), "same")


async def test_what_a_push_would_refuse_changes_nothing(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "old", clock(15))
    await refused(
        workspace,
        "VP001",
        replace(workspace, message, {"text": " "}),
        replace(workspace, message, {"text": "x", "colour": "red"}),
        replace(workspace, message, ["a list"]),  # type: ignore[arg-type]
    )


async def test_nothing_is_replaced_where_nothing_waits(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "old")
    await workspace.take()
    await refused(
        workspace, "VN001", replace(workspace, message, {"text": "new"}), replace(workspace, uuid4(), {"text": "new"})
    )


async def test_a_channel_that_cannot_take_the_new_text_keeps_the_old_and_says_why(workspace: Autopost) -> None:
    await workspace.channel("max", platform="max")
    await workspace.channel("telegram")
    await workspace.channel("other", route_filter={"exclude": ["vip"]})
    message = await push_at(workspace, "old", clock(15))
    text = "x" * 4050
    done = await replace(workspace, message, {"text": text, "tags": ["vip"]})
    assert (done["enqueued"], done["failed"], done["too_late"]) == (1, 0, [])
    assert done["kept"] == {
        "max": "text is too long: 4050 of 4000 characters", "other": "its route_filter excludes vip",
    }  # fmt: skip
    assert [event["channel_id"] for event in await workspace.events("cancelled")] == ["telegram"]
    assert sorted(await begins_at(workspace, clock(15))) == ["old", "old", text]


async def test_where_no_channel_can_take_the_new_text_nothing_changes(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "old", clock(15))
    await push_at(workspace, "there already", clock(16))
    before = await workspace.deliveries(), await workspace.events()
    await refused(workspace, "VP001", replace(workspace, message, {"text": "x" * 5000}))
    with pytest.raises(Exception, match="stays in c1: the same post is on its way into this channel"):
        await replace(workspace, message, {"text": "there already"})
    assert (await workspace.deliveries(), await workspace.events()) == before
    await goes_exactly_at(workspace, clock(15), "old")


async def test_a_channel_that_refuses_without_a_reason_ends_the_attempt(autopost: Autopost) -> None:
    """Else the post would be tried without it, again and again."""
    await autopost.channel()
    message = await push_at(autopost, "old", clock(15))
    await autopost.sql(
        "create or replace function autopost.not_replaced(p_workspace_id text, p_post jsonb, p_run_id uuid,"
        " p_channels text[], p_now timestamptz) returns jsonb language sql as 'select null::jsonb'"
    )
    with pytest.raises(Exception, match="is not replaced in c1, and nothing says why"):
        await replace(autopost, message, {"text": "x" * 5000})
    await goes_exactly_at(autopost, clock(15), "old")


async def test_what_was_sent_here_before_does_not_take_the_place_of_what_waits(workspace: Autopost) -> None:
    await workspace.channel("c1")
    await workspace.channel("c2", route_filter={"exclude": ["c1 only"]})
    await push_at(workspace, "shown", tags=["c1 only"])
    (row,) = await workspace.take()
    await workspace.sent(row["delivery_id"], row["lease"])
    workspace.wait(seconds=1)
    message = await push_at(workspace, "old", clock(15))
    with pytest.raises(Exception, match="stays in c1: the same post went into this channel within its dedup window"):
        await replace(workspace, message, {"text": "shown", "channels": ["c1"]})
    assert len(await begins_at(workspace, clock(15))) == 2


async def test_a_series_that_is_shown_in_part_is_not_replaced(workspace: Autopost) -> None:
    await workspace.channel("c1")
    await workspace.channel("c2", window_mode="windowed", posting_window={"daily": [["20:00", "21:00"]]})
    message = await push_at(workspace, "old")
    (row,) = await workspace.take()
    await workspace.sql(
        "select autopost.record_progress(%s, %s, %s::integer, 1, '{m1}', '{0}', null, %s)",
        workspace.workspace, row["delivery_id"], row["lease"], workspace.now,
    )  # fmt: skip
    await workspace.retry(row["delivery_id"], {"code": "500"}, row["lease"], at=clock(13))
    done = await replace(workspace, message, {"text": "new"})
    assert (done["enqueued"], done["too_late"], done["kept"]) == (1, ["c1"], {})
    await goes_exactly_at(workspace, clock(13), "old")
    await refused(workspace, "VN001", replace(workspace, message, {"text": "newer"}))


async def test_the_old_moment_stands_behind_the_new_picture(workspace: Autopost) -> None:
    await workspace.channel()
    message = await push_at(workspace, "old", clock(15))
    media: Any = [{"type": "image", "url": "https://e.org/a.png"}]
    done = await replace(workspace, message, {"text": "new", "media": media})
    assert done["media_pending"] == 1
    await workspace.sql(
        "select autopost.media_arrived(%s, %s, %s, %s)",
        workspace.workspace, done["message_id"],
        Jsonb([{"place": 0, "blob_ref": "sha256:a", "origin_url": "o", "size_bytes": 9, "content_type": "image/png"}]),
        workspace.now,
    )  # fmt: skip
    await goes_exactly_at(workspace, clock(15), "new")
