"""What every adapter that sends media must do, whatever its platform: the second half of the suite.

Its rig is that of ``conformance`` with a ``depot`` and what a ``MediaRig`` has besides.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from typing import Any, Protocol

import pytest
from conformance import IMPATIENT, TEXT, Rig, Timed, verdict
from depot import MemoryDepot, MemorySeries
from PIL import Image

from vestnik.adapters.contract import Adapter, MediaItem, MediaType, SendError, SendMeta, Sent

KINDS: dict[str, MediaType] = {"i": "image", "v": "video", "f": "file", "a": "audio", "g": "animation"}
TYPES = {"i": "image/png", "v": "video/mp4", "f": "application/pdf", "a": "audio/mpeg", "g": "image/gif"}


class MediaRig(Rig, Protocol):
    depot: MemoryDepot
    largest_file: int

    def adapter(self, *, media: bool = True, timeout: float = 5.0, **options: Any) -> Adapter: ...

    def fault_of_messages(self, kind: str, **fault: Any) -> None:
        """To each request that posts something; those that only upload are left alone."""

    def fault_of_expired_media(self) -> None:
        """The platform knows no handle any more."""

    def heal(self) -> None:
        """No more faults."""

    def known_media(self, handle: str) -> MediaItem:
        """An image that names nothing but the platform's own handle."""

    def uploads(self) -> int:
        """How many files were received as bytes."""

    # posts() tell ``media``: a list of ``sha256``, ``type``, ``caption``, ``size``.


def picture(number: int, form: str = "PNG") -> bytes:
    made = BytesIO()
    Image.new("RGB", (40 + number, 30), (number * 9 % 256, 80, 120)).save(made, form)
    return made.getvalue()


def media(rig: MediaRig, kinds: str, **every: Any) -> list[MediaItem]:
    """Stored files of these kinds, each with bytes of its own."""
    items = []
    for number, kind in enumerate(kinds):
        form = {"i": "PNG", "g": "GIF"}.get(kind)
        data = picture(number, form) if form else f"{kind}{number}".encode() * 1000
        name = rig.depot.put(f"{kind}{number}", data[:100], data[100:])
        facts = {"content_type": TYPES[kind], "size_bytes": len(data)}
        items.append(MediaItem(KINDS[kind], blob_ref=name, **facts, **every))
    return items


async def bytes_of(rig: MediaRig, items: list[MediaItem]) -> list[str]:
    found = []
    for item in items:
        chunks = [chunk async for chunk in rig.depot.blobs[str(item.blob_ref)]()]
        found.append(hashlib.sha256(b"".join(chunks)).hexdigest())
    return found


def shown(rig: MediaRig) -> list[str]:
    return [each["sha256"] for post in rig.posts() for each in post["media"]]


def said(rig: MediaRig) -> list[str]:
    return [post["visible"] for post in rig.posts() if post["visible"]]


async def send(rig: MediaRig, items: list[MediaItem], text: str | None = None, **meta: Any) -> Sent:
    return await rig.adapter().send_media(rig.channel, items, text, (), SendMeta(**meta))


async def error_of(rig: MediaRig, items: list[MediaItem], adapter: Adapter | None = None, **meta: Any) -> SendError:
    with pytest.raises(SendError) as caught:
        await (adapter or rig.adapter()).send_media(rig.channel, items, TEXT, (), SendMeta(**meta))
    json.dumps(caught.value.as_json(), allow_nan=False)
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value


class MediaConformance(Timed):
    longest = 60.0  # files of a hundred megabytes, on a machine that is busy

    @pytest.mark.parametrize("kind", "ivfag")
    async def test_sends_one_of_each_kind_with_its_text(self, rig: MediaRig, kind: str) -> None:
        items = media(rig, kind)
        sent = await send(rig, items, "<b>Привет</b> 🌍", parse_mode="HTML")

        (post,) = rig.posts()
        assert post["visible"] == "Привет 🌍"
        assert shown(rig) == await bytes_of(rig, items)
        assert sent.provider_message_id == post["message_id"]

    @pytest.mark.parametrize("kinds", ["ii", "iviv", "ff", "aa", "gg", "iifva", "figav", "i" * 12, "f" * 11])
    async def test_all_of_it_is_shown_in_order(self, rig: MediaRig, kinds: str) -> None:
        items = media(rig, kinds)
        sent = await send(rig, items, TEXT)

        assert shown(rig) == await bytes_of(rig, items)
        assert said(rig) == [TEXT]
        posts = rig.posts()
        assert posts[0]["visible"] == TEXT
        assert sent.provider_message_id == posts[0]["message_id"]
        if len(posts) > 1:
            assert sent.raw["message_ids"] == [post["message_id"] for post in posts]

    @pytest.mark.parametrize("kinds", ["i", "ii", "iifva", "a", "g"])
    @pytest.mark.parametrize("length", [1, 1024, 1025, 3900])
    async def test_a_text_of_any_length_is_shown_once_and_first(self, rig: MediaRig, kinds: str, length: int) -> None:
        buttons = [[{"text": "Site", "url": "https://example.org"}]]
        await send(rig, media(rig, kinds), "я" * length, buttons=buttons)

        assert said(rig) == ["я" * length]
        assert rig.posts()[0]["visible"]
        assert [bool(post["buttons"]) for post in rig.posts()].count(True) == 1
        assert rig.posts()[0]["buttons"]
        assert len(shown(rig)) == len(kinds)

    async def test_captions_of_items_are_not_lost(self, rig: MediaRig) -> None:
        items = [replace(item, caption=f"caption {place}") for place, item in enumerate(media(rig, "iifa"))]
        await send(rig, items, TEXT)
        told = "\n".join(said(rig))
        wanted = [TEXT, "caption 0", "caption 1", "caption 2", "caption 3"]
        assert [told.count(each) for each in wanted] == [1] * 5
        assert sorted(wanted, key=told.index) == wanted

    @pytest.mark.parametrize("kinds", ["i", "iiv", "iifva"])
    async def test_what_is_sent_is_what_was_planned(self, rig: MediaRig, kinds: str) -> None:
        adapter, items = rig.adapter(), media(rig, kinds)
        plan = adapter.plan(rig.channel, items, TEXT, SendMeta())
        assert plan == adapter.plan(rig.channel, items, TEXT, SendMeta())
        json.dumps([call.body for call in plan])
        series = MemorySeries()
        await adapter.send_media(rig.channel, items, TEXT, (), SendMeta(series=series))

        assert [place for call in plan for place in call.items] == list(range(len(kinds)))
        assert [call.text for call in plan if call.text] == said(rig)
        assert series.done == (len(plan) if len(plan) > 1 else 0)
        assert series.items == (list(range(len(kinds))) if len(plan) > 1 else [])

    async def test_the_second_send_of_a_file_needs_no_upload(self, rig: MediaRig) -> None:
        items = media(rig, "ivf")
        await send(rig, items)
        assert rig.uploads() == 3
        await send(rig, items)

        assert rig.uploads() == 3
        assert set(rig.depot.reads.values()) == {1}
        assert shown(rig) == await bytes_of(rig, items) * 2

    async def test_senders_at_the_same_time_upload_once(self, rig: MediaRig) -> None:
        items, adapter = media(rig, "i"), rig.adapter()
        await asyncio.gather(*(adapter.send_media(rig.channel, items, None, (), SendMeta()) for _ in range(6)))
        assert (rig.uploads(), len(rig.posts())) == (1, 6)

    async def test_what_stands_twice_in_a_post_is_read_once(self, rig: MediaRig) -> None:
        first, second = media(rig, "ii")
        await send(rig, [first, second, first])
        assert shown(rig) == await bytes_of(rig, [first, second, first])
        assert rig.depot.reads == {"i0": 1, "i1": 1}

    async def test_what_the_platform_has_needs_no_depot(self, rig: MediaRig) -> None:
        await send(rig, media(rig, "i"))
        (handle,) = rig.depot.handles.values()
        await rig.adapter(media=False).send_media(rig.channel, [rig.known_media(handle)], None, (), SendMeta())
        assert len(set(shown(rig))) == 1 and len(rig.posts()) == 2

    async def test_without_a_depot_stored_files_are_refused_by_name(self, rig: MediaRig) -> None:
        error = await error_of(rig, media(rig, "i"), rig.adapter(media=False))
        assert verdict(error) == ("PERMANENT", "delivery", "media_unsupported")
        assert not rig.posts()

    async def test_a_file_that_is_gone_is_told_and_nothing_posted(self, rig: MediaRig) -> None:
        items = media(rig, "ii")
        del rig.depot.blobs["i1"]
        error = await error_of(rig, items)
        assert verdict(error) == ("PERMANENT", "delivery", "media_missing_origin")
        assert not rig.posts()

    async def test_a_send_does_not_fail_for_what_could_not_be_remembered(self, rig: MediaRig) -> None:
        rig.depot.unwritable = True
        await send(rig, media(rig, "ii"))
        assert len(shown(rig)) == 2
        assert not rig.depot.handles

    async def test_a_handle_that_expired_is_replaced_in_the_same_attempt(self, rig: MediaRig) -> None:
        items = media(rig, "iii")
        await send(rig, items)
        key = next(key for key in rig.depot.handles if key[3] == "i1")
        rig.depot.handles[key] = "AgACunknown"
        await send(rig, items)

        assert shown(rig) == await bytes_of(rig, items) * 2
        assert rig.depot.forgotten["i1"] == 1
        assert rig.depot.handles[key] != "AgACunknown"

    async def test_a_handle_is_not_replaced_for_ever(self, rig: MediaRig) -> None:
        items = media(rig, "i")
        await send(rig, items)
        rig.fault_of_expired_media()
        error = await error_of(rig, items)

        assert verdict(error) == ("PERMANENT", "delivery", "media_expired")
        assert (rig.depot.forgotten["i0"], rig.depot.reads["i0"]) == (1, 2)

    async def test_a_handle_that_somebody_gave_us_is_the_posts_fault(self, rig: MediaRig) -> None:
        error = await error_of(rig, [rig.known_media("AgACunknown")])
        assert verdict(error) == ("PERMANENT", "delivery", "media_expired")
        assert not rig.depot.forgotten

    async def test_handles_that_expired_in_a_series_do_not_begin_it_again(self, rig: MediaRig) -> None:
        items = media(rig, "fi")
        await send(rig, items)
        for key in rig.depot.handles:
            rig.depot.handles[key] = "BQACunknown"
        await send(rig, items)
        assert shown(rig) == await bytes_of(rig, items) * 2

    @pytest.mark.parametrize("kind", ["400", "401", "429", "500", "garbage", "reset", "timeout", "success_false"])
    async def test_the_token_is_never_shown(self, rig: MediaRig, kind: str, caplog: pytest.LogCaptureFixture) -> None:
        rig.fault(kind, message=f"no such thing: /bot{rig.token}/x")
        error = await error_of(rig, media(rig, "i"), rig.adapter(timeout=IMPATIENT))
        assert rig.token not in json.dumps(error.as_json()) + str(error) + repr(error) + caplog.text
        assert not rig.posts()

    async def test_a_failed_upload_is_tried_again_by_the_next(self, rig: MediaRig) -> None:
        items = media(rig, "i")
        rig.fault("500")
        await error_of(rig, items)
        rig.heal()
        async with asyncio.timeout(30):  # nobody holds the file any more
            await send(rig, items)
        assert shown(rig) == await bytes_of(rig, items)

    async def test_memory_stays_flat(self, rig: MediaRig) -> None:
        block = bytes(range(256)) * 4096
        blocks = rig.largest_file // len(block)

        async def read() -> AsyncIterator[bytes]:
            for _ in range(blocks):
                yield block

        rig.depot.blobs["large"] = read
        item = MediaItem("video", blob_ref="large", size_bytes=rig.largest_file, content_type="video/mp4")
        adapter = rig.adapter(timeout=30.0)
        tracemalloc.start()
        try:
            await adapter.send_media(rig.channel, [item], None, (), SendMeta())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert rig.posts()[0]["media"][0]["size"] == rig.largest_file
        assert peak < 16 * 1024 * 1024
