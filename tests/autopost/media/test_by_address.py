"""Pictures by their addresses: fetched once, while the post waits in the open."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID, uuid4

import pytest
from newsroom import TOKENS, Newsroom, picture


def post(*urls: str, kind: str = "image", **more: Any) -> dict[str, Any]:
    return {"text": "Look", "media": [{"type": kind, "url": url} for url in urls], **more}


async def test_the_push_answers_at_once_and_the_post_waits_behind_a_gate_with_a_name(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram", 2)
    await newsroom.channels("max")
    url = newsroom.put_file("a.png", picture())
    async with newsroom.open("api", "dispatcher"):  # nobody fetches yet
        answer = await newsroom.push(post(url))
        assert (answer["status"], answer["enqueued"], answer["media_pending"]) == (202, 3, 3)
        assert await newsroom.gate() == "media_pending"
        assert newsroom.fetches() == 0
    async with newsroom.open("dispatcher", "jobs"):
        await newsroom.settled()
    assert newsroom.fetches() == 1
    sha256 = hashlib.sha256(picture()).hexdigest()
    assert newsroom.shown() + newsroom.shown("max") == [sha256] * 3


async def test_of_two_pictures_one_is_not_enough(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    async with newsroom.open("api"):
        await newsroom.push(post("http://127.0.0.1:1/a.png", "http://127.0.0.1:1/b.png"))
    for place, released in ((0, 0), (1, 1)):
        found = await newsroom.sql(
            "select autopost.media_arrived('w', m.message_id, jsonb_build_array(jsonb_build_object('place', %s::int,"
            " 'blob_ref', 'sha256:' || %s::int, 'origin_url', 'o', 'size_bytes', 9, 'content_type', 'image/png'))) as n"
            " from autopost.messages m", place, place,
        )  # fmt: skip
        assert found == [{"n": released}]
        gates = await newsroom.sql("select not_before = 'infinity' as waits from autopost.deliveries")
        assert gates == [{"waits": not released}]
        claimed = await newsroom.sql("select * from autopost.claim_deliveries('w', 'r')")
        assert len(claimed) == released


async def test_one_fetch_however_many_posts_and_channels_wait_for_it(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram", 10)
    url = newsroom.put_file("a.png", picture())
    async with newsroom.open():
        await newsroom.push(post(url, source_ref="1"))
        await newsroom.push(post(url, source_ref="2"))
        await newsroom.settled("sent", "deduped")
    assert (newsroom.fetches(), newsroom.uploads()) == (1, 1)
    assert len(newsroom.posts()) == 10


async def test_two_bots_upload_twice_and_one_bot_once_for_all_its_channels(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram", 10)
    await newsroom.channels("telegram", 5, auth_ref="other")
    async with newsroom.open():
        await newsroom.push(post(newsroom.put_file("a.png", picture())))
        await newsroom.settled()
    assert newsroom.uploads() == 2
    assert len(newsroom.posts()) == 15
    assert newsroom.sandbox.state.platforms["telegram"].violations["foreign_file_id"] == 0


async def test_the_next_post_with_the_same_picture_uploads_nothing(newsroom: Newsroom) -> None:
    for platform in ("telegram", "max"):
        await newsroom.channels(platform)
    url = newsroom.put_file("a.png", picture())
    async with newsroom.open():
        for number in range(3):
            await newsroom.push(post(url) | {"text": f"Post {number}"})
            await newsroom.settled()
    assert (newsroom.uploads(), newsroom.uploads("max")) == (1, 1)
    assert len(newsroom.shown()) == len(newsroom.shown("max")) == 3


async def test_after_a_rotation_no_file_id_of_the_old_bot_is_used(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram", 2)
    url = newsroom.put_file("a.png", picture())
    async with newsroom.open():
        await newsroom.push(post(url))
        await newsroom.settled()
    await newsroom.credential("telegram", "bot", TOKENS["other"])
    async with newsroom.open():
        await newsroom.push(post(url) | {"text": "Another"})
        await newsroom.settled()
    platform = newsroom.sandbox.state.platforms["telegram"]
    assert len(newsroom.posts()) == 4
    assert platform.violations["foreign_file_id"] == 0, "the old bot's file_id was never even tried"


async def test_a_handle_whose_upload_was_overtaken_by_a_rotation_counts_as_none(newsroom: Newsroom) -> None:
    """The upload began with the old token and ended after the rotation: whose file_id is it?"""
    key = ("w", "sha256:x", "telegram", "bot", "image")

    async def taken_after(seconds: int) -> str:
        query = "select state from autopost.take_upload(%s, %s, %s, %s, %s, gen_random_uuid(), '1 s', now() + %s * interval '1 s')"
        return str((await newsroom.sql(query, *key, seconds))[0]["state"])

    async def put_after(seconds: int) -> None:
        query = "select autopost.put_upload(%s, %s, %s, %s, %s, 'HANDLE', null, p_now => now() + %s * interval '1 s')"
        await newsroom.sql(query, *key, seconds)

    assert await taken_after(0) == "yours"
    await newsroom.sql("update core.credential_bindings set rotated_at = now() + interval '1 second'")
    await put_after(60)
    assert await taken_after(9) == "yours"
    # So is one that was begun so soon after it that its sender may just have read the old token.
    await put_after(70)
    assert await taken_after(15) == "yours"
    await put_after(80)
    assert await taken_after(81) == "ready"


async def test_an_upload_that_goes_on_and_on_began_when_it_began(workspace: Any) -> None:
    """Its sender's signs of life after a rotation make no new upload of it: its handle is the old bot's."""
    key, token = (workspace.workspace, "sha256:x", "telegram", "bot", "image"), uuid4()

    async def take(token: UUID) -> str:
        query = "select state from autopost.take_upload(%s, %s, %s, %s, %s, %s, '1 minute', %s)"
        return str((await workspace.sql(query, *key, token, workspace.now))[0]["state"])

    assert await take(token) == "yours"
    workspace.wait(seconds=20)
    await rotated(workspace)
    workspace.wait(seconds=30)
    assert await take(token) == "yours"
    query = "select autopost.put_upload(%s, %s, %s, %s, %s, 'OLD', null, %s, %s)"
    await workspace.sql(query, *key, token, workspace.now)
    assert await take(uuid4()) == "yours"


async def rotated(workspace: Any) -> None:
    await workspace.sql(
        "insert into core.credential_bindings (workspace_id, platform, auth_ref, secret_ref, rotated_at)"
        " values (%s, 'telegram', 'bot', 'env:BOT', %s)", workspace.workspace, workspace.now,
    )  # fmt: skip


async def test_what_a_late_sender_brings_is_not_kept_while_another_one_is_at_it(workspace: Any) -> None:
    """It lost its place, the token was rotated, and the handle that it brings at last is the old bot's."""
    key = (workspace.workspace, "sha256:x", "telegram", "bot", "image")

    async def take(token: UUID) -> tuple[str, str | None]:
        query = "select state, handle from autopost.take_upload(%s, %s, %s, %s, %s, %s, '1 minute', %s)"
        (row,) = await workspace.sql(query, *key, token, workspace.now)
        return row["state"], row["handle"]

    async def put(handle: str, token: UUID) -> None:
        query = "select autopost.put_upload(%s, %s, %s, %s, %s, %s, null, %s, %s)"
        await workspace.sql(query, *key, handle, token, workspace.now)

    old, new = uuid4(), uuid4()
    assert await take(old) == ("yours", None)
    workspace.wait(seconds=30)
    await rotated(workspace)
    workspace.wait(seconds=40)
    assert await take(new) == ("yours", None)
    workspace.wait(seconds=5)
    await put("OLD", old)
    assert await take(uuid4()) == ("wait", None)
    await put("NEW", new)
    assert await take(uuid4()) == ("ready", "NEW")
    # And one that comes when the other is done:
    await put("OLD", old)
    assert await take(uuid4()) == ("ready", "NEW")


async def test_a_token_of_max_that_expired_is_uploaded_again(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    url = newsroom.put_file("a.png", picture())
    async with newsroom.open():
        await newsroom.push(post(url))
        await newsroom.settled()
        # Known to us as expired:
        await newsroom.sql("update autopost.media_blobs set expires_at = now() - interval '1 second'")
        await newsroom.push(post(url) | {"text": "Another"})
        await newsroom.settled()
        assert newsroom.uploads("max") == 2
        # Known to MAX alone:
        for handle in newsroom.sandbox.state.platforms["max"].handles._all.values():
            handle.at -= 1000
        newsroom.sandbox.state.platforms["max"].limits.token_ttl_s = 100
        await newsroom.push(post(url) | {"text": "A third"})
        await newsroom.settled()
    assert newsroom.uploads("max") == 3
    assert len(newsroom.shown("max")) == 3
    attempts = await newsroom.sql("select distinct attempt from autopost.deliveries")
    assert attempts == [{"attempt": 1}], "the same attempt goes on with an upload"


@pytest.mark.parametrize("platform", ["telegram", "max"])
@pytest.mark.parametrize("how", ["lost", "forgotten"])
async def test_a_file_that_is_gone_from_the_store_is_a_clear_failure(
    newsroom: Newsroom, platform: str, how: str
) -> None:
    await newsroom.channels(platform)
    url = newsroom.put_file("a.png", picture())
    async with newsroom.open("api", "jobs"):
        await newsroom.push(post(url))
        await newsroom.until(lambda: newsroom.sql("select 1 from autopost.media_origin"), "the fetch")
    (kept,) = [path for path in (newsroom.folder / "objects" / "media").rglob("*") if path.is_file()]
    if how == "lost":
        kept.unlink()
    else:
        await newsroom.sql("update autopost.media_origin set deleted_at = now()")
    async with newsroom.open("dispatcher"):
        await newsroom.settled("failed_permanent")
    error = await newsroom.error()
    assert (error["code"], error["scope"]) == ("media_missing_origin", "delivery")
    assert "is not in the object store (any more)" in error["message"]
    assert newsroom.posts(platform) == []
    channel = (await newsroom.sql("select paused_until, error_streak from autopost.channels"))[0]
    assert channel == {"paused_until": None, "error_streak": 0}, "the channel is not to blame"


async def test_max_may_be_told_the_address_of_a_picture_and_then_nothing_is_fetched(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    await newsroom.sql("""update autopost.policies set upload_policy = '{"image": "url_allowed"}'""")
    url = newsroom.put_file("a.png", picture())
    async with newsroom.open():
        answer = await newsroom.push(post(url))
        assert "media_pending" not in answer
        await newsroom.settled()
    ((only,),) = [shown.media for shown in newsroom.posts("max")]
    assert (only.file.url, newsroom.fetches(), newsroom.uploads("max")) == (url, 0, 0)
