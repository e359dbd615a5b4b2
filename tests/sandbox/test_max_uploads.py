"""Uploads to MAX: the place, the bytes, the token; what another server refuses, what comes too late."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from sandbox_client import TOKEN, form_of, picture

from vestnik.sandbox import max_uploads

OTHER = "another-bot"
RETVAL = "<retval>1</retval>"


async def send(client: Any, kind: str, token: str, sender: str = TOKEN) -> Any:
    return await client.max(token=sender, attachments=[{"type": kind, "payload": {"token": token}}])


async def pieces(client: Any, url: str, data: bytes, piece: range, total: int | None = None, **headers: str) -> Any:
    """A part of a file, as one piece."""
    size = len(data) if total is None else total
    told = {"Content-Range": f"bytes {piece.start}-{piece.stop - 1}/{size}", "Content-Type": "application/x-binary"}
    path = url.removeprefix(client.sandbox.url)
    return await client.ask("POST", path, data=data[piece.start : piece.stop], headers=told | headers)


@pytest.mark.parametrize("kind", ["video", "audio"])
async def test_a_video_or_an_audio_has_its_token_before_its_bytes(client: Any, kind: str) -> None:
    place = (await client.max_place(kind)).body
    assert set(place) == {"url", "token"}
    early = await send(client, kind, place["token"])
    assert (early.status, early.body["code"]) == (400, "attachment.not.ready")
    told = await client.max_upload(place["url"], b"abc", "a.mp4")
    assert (told.status, told.headers["Content-Type"]) == (200, "text/xml; charset=utf-8")
    assert RETVAL in told.body
    assert (await send(client, kind, place["token"])).status == 200
    (post,) = await client.posts("max")
    assert [(one["type"], one["name"], one["size"]) for one in post["media"]] == [(kind, "a.mp4", 3)]


async def test_an_image_has_its_token_afterwards_among_its_photos(client: Any) -> None:
    place = (await client.max_place("image")).body
    assert set(place) == {"url"}
    photos = (await client.max_upload(place["url"], picture(), "a.png")).body["photos"]
    (photo,) = photos.values()
    assert (await send(client, "image", photo["token"])).status == 200
    said = await client.max(attachments=[{"type": "image", "payload": {"photos": photos}}])
    assert said.body["message"]["body"]["attachments"][0]["payload"]["token"] == photo["token"]


async def test_a_file_has_its_token_afterwards_beside_its_number(client: Any) -> None:
    place = (await client.max_place("file")).body
    assert set(place) == {"url"}
    told = (await client.max_upload(place["url"], b"abc", "folder/a.txt")).body
    assert isinstance(told["fileId"], int)
    shown = (await send(client, "file", told["token"])).body["message"]["body"]["attachments"]
    assert [(one["type"], one["filename"], one["size"]) for one in shown] == [("file", "a.txt", 3)]


async def test_a_token_may_be_used_again_but_only_by_its_own_bot_and_for_its_own_kind(client: Any) -> None:
    await client.admin("PUT", "max/tokens/second", {"token": OTHER})
    token = await client.max_token("file")
    assert [(await send(client, "file", token)).status for _ in range(2)] == [200, 200]
    for kind, sender in (("file", OTHER), ("image", TOKEN)):
        said = await send(client, kind, token, sender)
        assert (said.status, said.body["code"]) == (400, "attachment.not.found")
    counters = (await client.admin("GET", "max"))["counters"]
    assert (counters["uploads"], counters["reused"]) == (1, 1)


async def test_a_place_may_be_used_again_for_the_answer_may_have_been_lost(client: Any) -> None:
    place = (await client.max_place("video")).body
    for data in (b"abc", b"abcd"):
        assert RETVAL in (await client.max_upload(place["url"], data)).body
    assert (await send(client, "video", place["token"])).status == 200
    assert (await client.posts("max"))[0]["media"][0]["size"] == 4


async def test_a_place_that_nobody_asked_for(client: Any) -> None:
    said = await client.max_upload("/upload/anything", b"abc")
    assert (said.status, said.body["message"]) == (404, "Unknown upload")
    assert await client.violations("max") == {"unknown_upload": 1}


async def test_places_and_tokens_that_are_too_old(client: Any, clock: Any) -> None:
    await client.admin("PUT", "max/settings", {"upload_ttl_s": 60, "token_ttl_s": 3600})
    place, token = (await client.max_place()).body, await client.max_token()
    clock.pass_by(61)
    assert (await client.max_upload(place["url"], b"abc")).status == 404
    assert (await send(client, "file", token)).status == 200
    clock.pass_by(3600)
    said = await send(client, "file", token)
    assert (said.status, said.body["code"]) == (400, "attachment.expired")


@pytest.mark.parametrize("kind", ["", "photo", "sticker"])
async def test_kinds_that_cannot_be_uploaded(client: Any, kind: str) -> None:
    said = await client.max_place(kind)
    assert (said.status, said.body["code"]) == (400, "proto.payload")
    assert await client.violations("max") == {"bad_upload_type": 1}


async def test_a_place_is_told_to_bots_only(client: Any) -> None:
    assert (await client.max_place(token="nobody")).status == 401
    assert (await client.ask("GET", "/max/uploads?type=file", headers={"Authorization": TOKEN})).status == 405


@pytest.mark.parametrize(
    ("kind", "data", "status", "violation"),
    [
        ("file", b"", 400, "empty_file"),
        ("image", b"no picture", 400, "bad_picture"),
        ("image", picture(7681, 1), 400, "bad_picture"),
        ("image", picture(7680, 1), 200, None),
        ("image", picture(4, 4, "GIF"), 200, None),
        ("image", b"\0\0\0\x18ftypheic" + bytes(16), 200, None),
        ("video", b"anything", 200, None),
    ],
)
async def test_what_the_other_server_looks_at(
    client: Any, kind: str, data: bytes, status: int, violation: str | None
) -> None:
    place = (await client.max_place(kind)).body
    assert (await client.max_upload(place["url"], data)).status == status
    assert await client.violations("max") == ({violation: 1} if violation else {})


async def test_how_large_a_file_may_be(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mb = 1024**2
    assert {"image": 50 * mb, "video": 250 * mb, "audio": 256 * mb, "file": 4096 * mb} == max_uploads.LARGEST
    monkeypatch.setattr(max_uploads, "LARGEST", dict.fromkeys(max_uploads.LARGEST, 10))
    for kind in ("video", "audio", "file"):
        place = (await client.max_place(kind)).body
        sizes = [(await client.max_upload(place["url"], bytes(size))).status for size in (10, 11)]
        assert sizes == [200, 413]


@pytest.mark.parametrize(
    "form", [form_of({"file": ("a", b"abc")}), form_of({"file": ("a", b"abc")}, data="abc")], ids=["missing", "a text"]
)
async def test_the_file_is_the_field_data(client: Any, form: aiohttp.FormData) -> None:
    url = (await client.max_place()).body["url"]
    said = await client.ask("POST", url.removeprefix(client.sandbox.url), data=form)
    assert (said.status, said.body["message"]) == (400, "The file is expected in the field `data`")
    assert await client.violations("max") == {"bad_form": 1}


async def test_a_file_in_pieces(client: Any) -> None:
    url, data = (await client.max_place()).body["url"], b"abcdefghij"
    first = await pieces(client, url, data, range(4))
    assert (first.status, first.body) == (201, "0-3")
    assert (await client.ask("GET", url.removeprefix(client.sandbox.url))).body == "0-3"
    gap = await pieces(client, url, data, range(5, 10))
    assert (gap.status, gap.body["message"]) == (416, "Expected bytes from 4")
    last = await pieces(client, url, data, range(4, 10), **{"X-File-Name": "%D0%B0.txt"})
    assert (await send(client, "file", last.body["token"])).status == 200
    (post,) = await client.posts("max")
    assert (post["media"][0]["name"], post["media"][0]["size"]) == ("а.txt", 10)


async def test_pieces_that_begin_again_and_pieces_that_lie(client: Any) -> None:
    url, data = (await client.max_place()).body["url"], b"abcdefghij"
    await pieces(client, url, data, range(4))
    assert (await pieces(client, url, data, range(2))).body == "0-1"
    lie = await pieces(client, url, data, range(2, 20), total=20)
    assert (lie.status, "another size" in lie.body["message"]) == (400, True)
    assert (await pieces(client, url, data, range(2, 10))).status == 416  # the lie took all that was there with it
    assert (await pieces(client, url, data, range(10))).status == 200
    bare = {"Content-Type": "application/x-binary"}
    said = await client.ask("POST", url.removeprefix(client.sandbox.url), data=b"abc", headers=bare)
    assert said.body["message"] == "Content-Range is needed"


async def test_the_upload_host_has_only_the_faults_that_name_it(client: Any) -> None:
    url = (await client.max_place()).body["url"]
    await client.admin("PUT", "max/faults", [{"kind": "500"}])
    assert (await client.max_place()).status == 500
    assert (await client.max_upload(url, b"abc")).status == 200
    await client.admin("PUT", "max/faults", {"kind": "503", "method": "messages"})
    token = await client.max_token()
    assert (await send(client, "file", token)).status == 503
    await client.admin("PUT", "max/faults", {"kind": "success_false", "method": "upload_host", "message": "m"})
    said = await client.max_upload(url, b"abc")
    assert (said.status, said.body) == (200, {"success": False, "message": "m"})
    assert (await send(client, "file", token)).status == 200


async def test_an_upload_whose_answer_is_lost_was_taken(client: Any) -> None:
    await client.admin("PUT", "max/faults", {"kind": "reset_after_accept", "method": "upload_host", "times": 1})
    place = (await client.max_place("video")).body
    with pytest.raises(aiohttp.ClientError):
        await client.max_upload(place["url"], b"abc")
    assert (await send(client, "video", place["token"])).status == 200
