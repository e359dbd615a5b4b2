"""Posts that take several calls: what was acknowledged is never sent again, whatever happens to the rest."""

from __future__ import annotations

import hashlib
from typing import Any

from newsroom import Newsroom, named, picture, pictures

FILES = {f"f{n}": b"%PDF-1.7 number " + bytes([n]) for n in range(5)}


def hashes(files: dict[str, bytes]) -> list[str]:
    return [hashlib.sha256(data).hexdigest() for data in files.values()]


async def progress(newsroom: Newsroom) -> dict[str, Any]:
    (row,) = await newsroom.sql("select render_meta -> 'series_progress' as progress from autopost.deliveries")
    return dict(row["progress"])


async def test_a_failure_in_the_middle_retries_the_tail_alone(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    async with newsroom.open():
        newsroom.fault("max", "503", method="messages", after=2, times=2)
        await newsroom.push({"text": "Five files", "media": named("file", FILES)}, **FILES)
        await newsroom.settled()
    assert newsroom.shown("max") == hashes(FILES)
    assert newsroom.uploads("max") == 5
    assert [post.text for post in newsroom.posts("max")] == ["Five files", "", "", "", ""]
    (delivery,) = await newsroom.sql("select attempt, provider_message_id from autopost.deliveries")
    assert delivery == {"attempt": 3, "provider_message_id": newsroom.posts("max")[0].message_id}
    assert await progress(newsroom) == {
        "calls": 5, "attempt": 3, "sent_items": [0, 1, 2, 3, 4], "provider_message_ids": [p.message_id for p in newsroom.posts("max")],
    }  # fmt: skip


async def test_progress_is_written_after_each_acknowledged_call(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    await newsroom.sql("update autopost.policies set max_attempts = 1")
    async with newsroom.open():
        newsroom.fault("max", "503", method="messages", after=3)
        await newsroom.push({"media": named("file", FILES)}, **FILES)
        await newsroom.settled("dead")
    assert (await progress(newsroom))["sent_items"] == [0, 1, 2]
    assert newsroom.shown("max") == hashes(FILES)[:3]


async def test_a_file_that_max_is_still_working_on_is_a_short_retry_without_a_second_upload(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    newsroom.sandbox.state.platforms["max"].limits.not_ready = 3
    async with newsroom.open():
        await newsroom.push({"text": "Look", "media": named("image", ["a"])}, a=picture())
        await newsroom.settled()
    assert newsroom.uploads("max") == 1
    assert len(newsroom.posts("max")) == 1
    (delivery,) = await newsroom.sql("select attempt from autopost.deliveries")
    assert delivery["attempt"] == 4
    errors = await newsroom.sql(
        "select distinct error ->> 'code' as code, error ->> 'scope' as scope from autopost.events where result = 'error'"
    )
    assert errors == [{"code": "attachment.not.ready", "scope": "delivery"}]
    (channel,) = await newsroom.sql("select cooldown_until, error_streak from autopost.channels")
    assert channel == {"cooldown_until": None, "error_streak": 0}, "neither channel nor platform is to blame"


async def test_http_200_that_says_no_is_an_error(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    async with newsroom.open():
        newsroom.fault("max", "success_false", method="messages")
        await newsroom.push({"media": named("image", ["a"])}, a=picture())
        await newsroom.settled("failed_permanent")
    assert newsroom.posts("max") == []
    error = await newsroom.error()
    assert (error["scope"], error["message"]) == ("delivery", "max: Message was not sent")


async def test_video_and_audio_whose_upload_is_answered_in_xml_arrive(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    files = {"v": b"\x00\x00\x00\x18ftypmp42" + bytes(500), "a": b"ID3" + bytes(500)}
    media = [{"type": "video", "upload": "v"}, {"type": "audio", "upload": "a"}]
    async with newsroom.open():
        await newsroom.push({"text": "Hear and see", "media": media}, **files)
        await newsroom.settled()
    assert [[each.type for each in post.media] for post in newsroom.posts("max")] == [["video"], ["audio"]]
    assert newsroom.shown("max") == hashes(files)


async def test_eleven_pictures_are_two_albums_in_order_and_the_second_alone_is_repeated(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    files = pictures(11)
    async with newsroom.open():
        newsroom.fault("telegram", "500", method="sendMediaGroup", after=1, times=2)
        await newsroom.push({"text": "Eleven", "media": named("image", files)}, **files)
        await newsroom.settled()
    assert newsroom.shown() == hashes(files)
    groups = [post.media_group_id for post in newsroom.posts()]
    assert [groups.count(group) for group in dict.fromkeys(groups)] == [6, 5]
    assert newsroom.posts()[0].text == "Eleven"
    assert (await progress(newsroom))["calls"] == 2
    assert newsroom.uploads() == 11


async def test_a_text_too_long_for_a_caption_goes_before_its_album_and_once(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    files, text = pictures(3), "long " * 300
    async with newsroom.open():
        newsroom.fault("telegram", "502", method="sendMediaGroup", times=1)
        await newsroom.push({"text": text, "media": named("image", files)}, **files)
        await newsroom.settled()
    posts = newsroom.posts()
    assert [len(post.media) for post in posts] == [0, 1, 1, 1]
    assert [post.text for post in posts] == [text.strip(), "", "", ""]


async def test_two_attempts_that_reach_the_same_platform_post_one_album(newsroom: Newsroom) -> None:
    """Mixed kinds: what Telegram does not show together goes one after the other, in the author's order."""
    await newsroom.channels("telegram")
    files = {**pictures(2), "d": b"%PDF-1.7 x", "p9": picture(9)}
    media = named("image", ["p0", "p1"]) + named("file", ["d"]) + named("image", ["p9"])
    async with newsroom.open():
        newsroom.fault("telegram", "500", method="sendPhoto", times=1)
        await newsroom.push({"text": "Mixed", "media": media}, **files)
        await newsroom.settled()
    assert newsroom.shown() == hashes(files)
    assert [post.media[0].type for post in newsroom.posts()] == ["photo", "photo", "document", "photo"]
