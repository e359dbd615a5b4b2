"""Series that take their time, and whatever may happen meanwhile: all of it is shown, once, and in one place."""

from __future__ import annotations

import hashlib
import io
from functools import partial
from typing import Any

import pytest
from newsroom import Newsroom, named, picture
from PIL import Image
from psycopg.types.json import Jsonb

from vestnik import app
from vestnik.autopost.dispatcher import Dispatcher

FILES = {f"f{n}": b"%PDF-1.7 number " + bytes([n]) for n in range(7)}


def hashes(*files: bytes) -> list[str]:
    return [hashlib.sha256(data).hexdigest() for data in files]


async def the_delivery(newsroom: Newsroom) -> dict[str, Any]:
    (row,) = await newsroom.sql("select *, render_meta -> 'series_progress' as progress from autopost.deliveries")
    return row


async def failing(newsroom: Newsroom, calls: int) -> None:
    """So many calls are through, and the next one has failed twice."""

    async def stuck() -> bool:
        row = await the_delivery(newsroom)
        return (row["progress"] or {}).get("calls") == calls and row["attempt"] > row["progress"]["attempt"]

    await newsroom.until(stuck, f"stuck behind {calls} calls")


def strict(newsroom: Newsroom, *, chat: float | None = None, token: float | None = None) -> None:
    limits = newsroom.sandbox.state.platforms["telegram"].limits
    limits.chat_rps, limits.token_rps = chat, token
    limits.chat_burst = limits.token_burst = 1


async def test_the_calls_of_a_series_keep_the_rate_of_their_channel(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    await newsroom.sql("update autopost.channels set rate_rps = 8")
    strict(newsroom, chat=10)
    files = {name: data for n in range(4) for name, data in ((f"p{n}", picture(n)), (f"f{n}", FILES[f"f{n}"]))}
    media = [item for name in files for item in named("image" if name.startswith("p") else "file", [name])]
    async with newsroom.open():
        await newsroom.push({"text": "Eight calls", "media": media}, **files)
        await newsroom.settled()
    assert newsroom.shown() == hashes(*files.values())
    assert (await the_delivery(newsroom))["attempt"] == 1, "the platform had nothing against it"


async def test_the_parts_of_a_long_text_keep_the_rate_of_their_group(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    await newsroom.sql("""update autopost.channels set settings = '{"long_text": "split"}'""")
    await newsroom.sql(
        "insert into autopost.platform_limits (workspace_id, platform, rate_group, rate_rps) values ('w', 'telegram', 'bot', 8)"
        " on conflict (workspace_id, platform, rate_group) do update set rate_rps = excluded.rate_rps"
    )
    strict(newsroom, token=10)
    text = "\n\n".join(f"{n} " + "word " * 700 for n in range(6))
    async with newsroom.open():
        await newsroom.push({"text": text})
        await newsroom.settled()
    assert "".join("".join(post.text.split()) for post in newsroom.posts()) == "".join(text.split())
    assert (await the_delivery(newsroom))["attempt"] == 1


async def test_an_album_counts_with_all_that_it_shows(newsroom: Newsroom) -> None:
    await newsroom.channels("telegram")
    await newsroom.sql("update autopost.channels set rate_rps = 16")
    strict(newsroom, chat=20)
    files = {"a": picture(1), "b": picture(2), "c": FILES["f0"]}
    async with newsroom.open():
        await newsroom.push({"media": named("image", ["a", "b"]) + named("file", ["c"])}, **files)
        await newsroom.settled()
    assert (await the_delivery(newsroom))["attempt"] == 1


async def test_a_series_gets_on_however_often_each_of_its_calls_fails(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    await newsroom.sql("update autopost.policies set max_attempts = 2")
    newsroom.sandbox.state.platforms["max"].limits.not_ready = 1
    async with newsroom.open():
        await newsroom.push({"media": named("file", FILES)}, **FILES)
        await newsroom.settled()
    assert newsroom.shown("max") == hashes(*FILES.values())
    assert newsroom.uploads("max") == len(FILES)


async def test_what_was_acknowledged_is_written_down_also_when_the_database_fails_at_first(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    await newsroom.sql("create sequence failures")
    await newsroom.sql("grant usage on sequence failures to public")
    await newsroom.sql(
        "create function fail_twice() returns trigger language plpgsql as $$ begin"
        " if nextval('failures') <= 2 then raise 'no room for you' using errcode = '53300'; end if; return new; end $$"
    )
    await newsroom.sql(
        "create trigger failing before update on autopost.deliveries for each row"
        " when (new.render_meta #>> '{series_progress,calls}' = '2' and new.status = 'sending') execute function fail_twice()"
    )
    files = dict(list(FILES.items())[:4])
    async with newsroom.open():
        await newsroom.push({"media": named("file", files)}, **files)
        await newsroom.settled()
    assert newsroom.shown("max") == hashes(*files.values())
    assert (await the_delivery(newsroom))["attempt"] == 1


async def test_a_series_ends_where_it_began_whatever_becomes_of_its_channel(newsroom: Newsroom) -> None:
    """Half of it stands there as a file already, in that chat."""
    await newsroom.channels("telegram", large_image="document")
    await newsroom.sql("update autopost.policies set max_attempts = 500, backoff_max = '20 milliseconds'")
    out = io.BytesIO()
    Image.new("RGB", (9995, 6), (1, 2, 3)).save(out, "PNG")
    files = {"wide": out.getvalue(), "a": b"ID3" + bytes(500)}
    media = [*named("image", ["wide"]), {"type": "audio", "upload": "a"}]
    async with newsroom.open():
        newsroom.fault("telegram", "500", method="sendAudio")
        await newsroom.push({"media": media}, **files)
        await failing(newsroom, 1)
        await newsroom.sql("update autopost.channels set target_id = '-99', settings = '{}'")
        newsroom.heal()
        await newsroom.settled()
    assert newsroom.shown() == hashes(*files.values())
    chats = newsroom.sandbox.state.platforms["telegram"].chats
    assert [len(chat.posts) for name, chat in chats.items() if chat.posts] == [2], chats.keys()


async def test_a_series_ends_as_it_began_whatever_is_learned_of_its_files(newsroom: Newsroom) -> None:
    """MAX has the picture by its address, and then it comes out that it would not take such pictures."""
    await newsroom.channels("max")
    await newsroom.sql("update autopost.policies set max_attempts = 500, backoff_max = '20 milliseconds'")
    await newsroom.sql("update autopost.policies set upload_policy = %s", Jsonb({"image": "url_allowed"}))
    address = newsroom.put_file("a.webp", picture(), "image/webp")
    media = [{"type": "image", "url": address}, *named("file", ["f0"])]
    async with newsroom.open():
        newsroom.fault("max", "503", method="messages", after=1)
        await newsroom.push({"text": "Look", "media": media}, f0=FILES["f0"])
        await failing(newsroom, 1)
        blob = {"blob_ref": "b", "origin_url": address, "content_type": "image/webp", "size_bytes": 9, "place": 0}
        await newsroom.sql("select autopost.media_arrived('w', message_id, %s) from autopost.messages", Jsonb([blob]))
        newsroom.heal()
        await newsroom.settled()
    assert [[each.type for each in post.media] for post in newsroom.posts("max")] == [["image"], ["file"]]


async def test_a_film_that_is_long_in_the_making_is_waited_for(newsroom: Newsroom) -> None:
    await newsroom.channels("max")
    newsroom.sandbox.state.platforms["max"].limits.not_ready = 9
    data = b"\x00\x00\x00\x18ftypmp42" + bytes(500)
    async with newsroom.open():
        await newsroom.push({"media": named("video", ["v"])}, v=data)
        await newsroom.settled()
    assert newsroom.shown("max") == hashes(data)
    assert (await the_delivery(newsroom))["attempt"] == 10


async def test_a_series_cut_off_between_two_calls_leaves_nothing_in_doubt(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop that could not wait for it: what was shown is known, so the channel that holds what is unknown does not hold it."""
    monkeypatch.setattr(app, "Dispatcher", partial(Dispatcher, grace=0.05))
    await newsroom.channels("max")
    await newsroom.sql("update autopost.channels set rate_rps = 0.05, on_unknown = 'hold'")
    files = dict(list(FILES.items())[:3])

    async def shown() -> bool:
        progress = (await the_delivery(newsroom))["progress"]
        return bool(progress) and progress["calls"] == 1

    async with newsroom.open():
        await newsroom.push({"media": named("file", files)}, **files)
        await newsroom.until(shown, "the first call is through")
    (row,) = await newsroom.sql("select status, held_at, last_error from autopost.deliveries")
    assert (row["status"], row["held_at"], row["last_error"]["code"]) == ("retry", None, "shutdown")
    assert row["last_error"]["outcome"] == "not_sent"
    await newsroom.sql("update autopost.channels set rate_rps = null, next_allowed_at = null, last_begin_at = null")
    async with newsroom.open():
        await newsroom.settled()
    assert newsroom.shown("max") == hashes(*files.values())
