"""A file goes when no post names it and it was not seen for long; a large video, when nothing waits for it any more."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16
KEEP = timedelta(days=30)
MB = 2**20


async def stored(
    workspace: Autopost, ref: str, *, path: str | None = None, kind: str = "image/png", size: int = 9
) -> None:
    blob = {"blob_ref": ref, "origin_url": path or f"media/{ref}", "content_type": kind, "size_bytes": size}
    await workspace.sql("select autopost.store_origin(%s, %s, %s)", workspace.workspace, Jsonb(blob), workspace.now)


async def forget(workspace: Autopost, limit: int = 100, keep: timedelta = KEEP) -> list[str]:
    """The objects that may be deleted now."""
    paths: list[str] = []
    more = True
    while more:
        async with asyncio.timeout(20):
            (row,) = await workspace.sql(
                "select * from autopost.forget_files(%s, %s, %s, %s)", workspace.workspace, keep, limit, workspace.now
            )
        paths, more = paths + row["paths"], row["more"]
    return sorted(paths)


async def files(workspace: Autopost) -> list[str]:
    query = "select blob_ref from autopost.media_origin where workspace_id = %s order by 1"
    return [row["blob_ref"] for row in await workspace.sql(query, workspace.workspace)]


def post(ref: str, text: str = "Look", kind: str = "image") -> dict[str, Any]:
    return {"text": text, "media": [{"type": kind, "blob_ref": ref}]}


async def end_all(workspace: Autopost) -> None:
    while rows := await workspace.take():
        for row in rows:
            await workspace.sent(row["delivery_id"], row["lease"])


async def test_a_file_that_no_post_names_goes_after_its_time(workspace: Autopost) -> None:
    await stored(workspace, "a")
    await stored(workspace, "b")
    await workspace.push(post("b"))
    workspace.wait(days=30)
    assert await forget(workspace) == [], "not longer than 30 days yet"
    workspace.wait(seconds=1)
    assert await forget(workspace) == ["media/a"]
    assert await files(workspace) == ["b"]
    workspace.wait(days=70)
    assert await forget(workspace) == [], "a post names it"
    await workspace.sql("delete from autopost.messages where workspace_id = %s", workspace.workspace)
    assert await forget(workspace) == ["media/b"]


async def test_a_file_that_is_seen_again_is_young_again(workspace: Autopost) -> None:
    await stored(workspace, "a")
    await workspace.push(post("a"))
    workspace.wait(days=29)
    await workspace.push(post("a"))
    await workspace.sql("delete from autopost.messages where workspace_id = %s", workspace.workspace)
    workspace.wait(days=29)
    assert await forget(workspace) == []


async def test_the_same_file_of_another_workspace_is_no_reason_to_keep_it(workspace: Autopost) -> None:
    other = workspace.on(workspace.connection)
    other.workspace += "-other"
    await other.workspace_row()
    for each in (workspace, other):
        await stored(each, "a", path=f"media/{each.workspace}/a")
    await other.push(post("a"))
    workspace.wait(days=31)
    assert await forget(workspace) == [f"media/{workspace.workspace}/a"]
    assert await files(other) == ["a"]


@pytest.mark.parametrize(("kind", "size", "goes"), [
    ("video/mp4", 50 * MB, True), ("video/mp4", 50 * MB - 1, False), ("image/png", 500 * MB, False), ("video/webm", None, False),
])  # fmt: skip
async def test_large_videos_go_sooner(workspace: Autopost, kind: str, size: int, goes: bool) -> None:
    await stored(workspace, "v", kind=kind, size=size)
    workspace.wait(days=7, seconds=1)
    assert bool(await forget(workspace)) is goes


async def test_a_large_video_stays_while_a_delivery_of_it_can_still_go(workspace: Autopost) -> None:
    await workspace.channel()
    await workspace.channel("shut", paused_until="infinity")
    await stored(workspace, "v", kind="video/mp4", size=50 * MB)
    await workspace.push(post("v", kind="video"))
    await end_all(workspace)
    workspace.wait(days=8)
    assert await forget(workspace) == []
    await workspace.sql(
        "select autopost.cancel_deliveries(%s, 'me', 'why', message_id, p_now => %s) from autopost.messages where workspace_id = %s",
        workspace.workspace, workspace.now, workspace.workspace,
    )  # fmt: skip
    assert await forget(workspace) == ["media/v"], "though a post names it"


async def test_a_workspace_has_its_own_idea_of_large_and_of_how_long(workspace: Autopost) -> None:
    await workspace.sql(
        """insert into ops.retention (workspace_id, rule, keep, options) values (%s, 'large_videos', '2 days', '{"from_bytes": 100}')""",
        workspace.workspace,
    )
    await stored(workspace, "v", kind="video/mp4", size=100)
    workspace.wait(days=3)
    assert await forget(workspace) == ["media/v"]


async def test_the_counts_of_references_are_put_right_page_by_page(workspace: Autopost) -> None:
    for ref in "abc":
        await stored(workspace, ref)
    await workspace.push(post("a", "one"))
    await workspace.push({"text": "two", "media": [{"type": "image", "blob_ref": ref} for ref in ("a", "b", "a")]})
    await workspace.sql("update autopost.media_origin set ref_count = 7 where workspace_id = %s", workspace.workspace)
    query = "select * from autopost.reconcile_refs(%s, 2, %s)"
    pages = [(await workspace.sql(query, workspace.workspace, workspace.now))[0] for _ in range(2)]
    assert [(row["removed"], row["more"]) for row in pages] == [(2, True), (1, False)]
    rows = await workspace.sql(
        "select blob_ref, ref_count from autopost.media_origin where workspace_id = %s", workspace.workspace
    )
    assert {row["blob_ref"]: row["ref_count"] for row in rows} == {"a": 2, "b": 1, "c": 0}


async def test_looking_counts_what_would_go_and_its_bytes(workspace: Autopost) -> None:
    for n in range(5):
        await stored(workspace, f"f{n}", size=100)
    await workspace.push(post("f0"))
    workspace.wait(days=31)
    query = "select * from autopost.look_at_files(%s, %s, %s, 3, %s)"
    (first,) = await workspace.sql(query, workspace.workspace, KEEP, None, workspace.now)
    (second,) = await workspace.sql(query, workspace.workspace, KEEP, first["place"], workspace.now)
    assert (first["going"], first["bytes"], first["place"]) == (2, 200, "f2")
    assert (second["going"], second["bytes"], second["place"]) == (2, 200, None)
    assert len(await forget(workspace, limit=3)) == 4


async def test_handles_go_when_they_have_expired_or_with_their_file(workspace: Autopost) -> None:
    async def upload(ref: str, handle: str | None, expires: timedelta | None = None) -> None:
        await workspace.sql(
            "select autopost.take_upload(%s, %s, 'telegram', 'bot', 'image', gen_random_uuid(), '1 minute', %s)",
            workspace.workspace, ref, workspace.now,
        )  # fmt: skip
        if handle:
            await workspace.sql(
                "select autopost.put_upload(%s, %s, 'telegram', 'bot', 'image', %s, %s, null, %s)",
                workspace.workspace, ref, handle, expires and workspace.now + expires, workspace.now,
            )  # fmt: skip

    async def handles() -> list[str]:
        query = "select blob_ref from autopost.media_blobs where workspace_id = %s order by 1"
        return [row["blob_ref"] for row in await workspace.sql(query, workspace.workspace)]

    async def prune(what: str = "prune_handles(%s, 2, %s)") -> int:
        removed, more = 0, True
        while more:
            (row,) = await workspace.sql(f"select * from autopost.{what}", workspace.workspace, workspace.now)
            removed, more = removed + row["removed"], row["more"]
        return removed

    for ref in ("broke-off", "expires", "stays", "with-its-file"):
        await stored(workspace, ref)
    await upload("broke-off", None)
    await upload("expires", "h", timedelta(hours=1))
    await upload("stays", "h")
    await upload("with-its-file", "h")
    await workspace.push(post("stays"))
    assert await prune() == 0
    workspace.wait(days=2)
    look = "select going from autopost.look_at_handles(%s, null, null, 10, %s)"
    assert await workspace.value(look, workspace.workspace, workspace.now) == 2
    assert await prune() == 2
    assert await handles() == ["stays", "with-its-file"]
    workspace.wait(days=31)
    await forget(workspace)
    assert await handles() == ["stays"]
