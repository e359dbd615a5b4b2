"""Files on the wire: streamed, counted, and honest about how far they came."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from conformance import IMPATIENT, verdict
from depot import MemoryDepot, missing_origin
from hypothesis import given
from hypothesis import strategies as st
from test_http import answering

from vestnik.adapters.contract import AdapterContext, Channel, MediaItem, SendError
from vestnik.adapters.http import Answer, PlatformHttp
from vestnik.adapters.multipart import PIECE, File, file_of

MB = 1024 * 1024
BLOCK = bytes(range(256)) * 4096
CHANNEL = Channel("ws", "ch", "telegram", "-1001", "main", "main")


async def _no_secret(*where: str) -> str:
    raise AssertionError("not asked for")


def file(*chunks: bytes, size: int | None = -1, fails: Exception | None = None) -> File:
    depot = MemoryDepot()
    depot.put("blob", *chunks, fails=fails)
    known = sum(map(len, chunks)) if size == -1 else size
    return File("data", "a.bin", "application/octet-stream", known, depot.blobs["blob"])


async def upload(url: str, *files: File, timeout: float = IMPATIENT) -> Answer:
    http = PlatformHttp("telegram", AdapterContext(_no_secret, {"telegram": "http://127.0.0.1:1"}, timeout=timeout))
    try:
        return await http.upload(url, http.form({"chat_id": "-1"}, files), secret="1:SECRET")
    finally:
        await http.close()


async def failure(url: str, *files: File) -> SendError:
    with pytest.raises(SendError) as caught:
        await upload(url, *files)
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value


@asynccontextmanager
async def speaking(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that does with the bare connection whatever it likes."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        await done.wait()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/upload"
        done.set()


async def received(request: web.Request) -> web.StreamResponse:
    """What arrived, in the order of the parts."""
    seen: list[dict[str, object]] = []
    async for part in await request.multipart():
        digest, size = hashlib.sha256(), 0
        while chunk := await part.read_chunk():  # type: ignore[union-attr]
            digest.update(chunk)
            size += len(chunk)
        seen.append(
            {
                "name": part.name,  # type: ignore[union-attr]
                "filename": part.filename,  # type: ignore[union-attr]
                "type": part.headers.get("Content-Type"),
                "sha256": digest.hexdigest(),
                "size": size,
            }
        )
    return web.json_response({"parts": seen, "length": request.content_length})


@pytest.mark.parametrize("announced", [True, False])
async def test_files_arrive_as_they_were(announced: bool) -> None:
    chunks = (b"", b"a" * (PIECE * 2 + 1), b"b", b"\r\n--")
    each = file(*chunks, size=-1 if announced else None)
    async with answering(received) as url:
        answer = await upload(url, each, each)

    assert answer.data is not None
    field, *files = answer.data["parts"]
    assert (field["name"], field["size"]) == ("chat_id", 2)
    assert [(part["filename"], part["sha256"]) for part in files] == [
        ("a.bin", hashlib.sha256(b"".join(chunks)).hexdigest())
    ] * 2
    assert (answer.data["length"] is not None) == announced


async def test_memory_stays_flat() -> None:
    async def stream() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield BLOCK

    async with answering(received) as url:
        tracemalloc.start()
        try:
            answer = await upload(url, File("data", "v.mp4", "video/mp4", 100 * len(BLOCK), stream), timeout=60)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert answer.data is not None
    assert answer.data["parts"][1]["size"] == 100 * MB
    assert peak < 16 * MB


async def test_a_slow_line_is_no_silence() -> None:
    patience = 4 * IMPATIENT  # so that a busy machine is not what is slow

    async def sip(request: web.Request) -> web.StreamResponse:
        # Longer than the whole time that a call has, and never as long in one place.
        for _ in range(5):
            await request.content.readexactly(5 * MB)
            await asyncio.sleep(patience / 4)
        return web.json_response({"ok": True})

    async with answering(sip) as url:
        answer = await upload(url, file(*[BLOCK] * 30), timeout=patience)
    assert answer.status == 200


class TestHowFarItCame:
    async def test_broken_off_in_the_middle_it_was_not_sent(self) -> None:
        async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(100_000)
            writer.transport.abort()

        async with speaking(cut) as url:
            error = await failure(url, file(*[BLOCK] * 50))
        assert verdict(error) == ("TRANSIENT", "platform", "network")
        assert error.raw["outcome"] == "not_sent"

    async def test_a_line_that_swallows_nothing_is_given_up(self) -> None:
        async def starve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()  # type: ignore[attr-defined]

        async with speaking(starve) as url:
            error = await failure(url, file(*[BLOCK] * 50))
        assert verdict(error) == ("TRANSIENT", "platform", "timeout")
        assert error.raw["outcome"] == "not_sent"

    @pytest.mark.parametrize("answers", ["nothing", "reset"])
    async def test_once_all_of_it_is_out_nobody_knows(self, answers: str) -> None:
        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"--\r\n")
            if answers == "reset":
                writer.transport.abort()

        async with speaking(swallow) as url:
            error = await failure(url, file(b"x" * 1000))
        assert error.code == {"nothing": "timeout", "reset": "network"}[answers]
        assert error.raw["outcome"] == "unknown"

    async def test_an_answer_before_its_end_is_an_answer(self) -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")

        async with speaking(refuse) as url, asyncio.timeout(30):
            answer = await upload(url, file(*[BLOCK] * 50))
        assert answer.status == 413

    async def test_nobody_there_was_sent_nothing(self) -> None:
        error = await failure("http://127.0.0.1:1/upload", file(b"x"))
        assert verdict(error) == ("TRANSIENT", "platform", "network")
        assert error.raw["outcome"] == "not_sent"


class TestWhatIsRead:
    async def test_its_own_error_is_what_is_told(self) -> None:
        async with answering(received) as url:
            error = await failure(url, file(b"x" * 1000, size=2000, fails=missing_origin()))
        assert verdict(error) == ("PERMANENT", "delivery", "media_missing_origin")

    async def test_a_store_that_breaks_is_tried_again(self) -> None:
        async with answering(received) as url:
            error = await failure(url, file(b"x" * 1000, size=2000, fails=OSError("s3://key:SECRET@host")))
        assert verdict(error) == ("TRANSIENT", "delivery", "media_unreadable")
        assert error.raw["outcome"] == "not_sent"
        assert "SECRET" not in str(error.as_json())

    @pytest.mark.parametrize("size", [1, 999, 1001, 10 * MB])
    async def test_another_size_than_announced_is_not_sent(self, size: int) -> None:
        whole: list[int] = []

        async def count(request: web.Request) -> web.StreamResponse:
            whole.append(len(await request.read()))
            return web.json_response({"ok": True})

        async with answering(count) as url:
            error = await failure(url, file(b"x" * 500, b"x" * 500, size=size))
        assert verdict(error) == ("TRANSIENT", "delivery", "media_unreadable")
        assert not whole

    async def test_a_store_that_falls_silent_is_given_up(self) -> None:
        closed: list[bool] = []

        async def silent() -> AsyncIterator[bytes]:
            try:
                yield b"x"
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        async with answering(received) as url:
            error = await failure(url, File("data", "a", "b/c", None, silent))
        assert verdict(error) == ("TRANSIENT", "delivery", "media_unreadable")
        assert closed == [True]


class TestAddress:
    @pytest.mark.parametrize(
        "url", ["", "ftp://e.org/x", "file:///etc/passwd", "http://", "http://u:p@127.0.0.1:1/", "x"]
    )
    async def test_what_is_no_address_is_not_called(self, url: str) -> None:
        error = await failure(url, file(b"x"))
        assert verdict(error) == ("TRANSIENT", "platform", "bad_answer")
        assert error.raw["outcome"] == "not_sent"

    async def test_a_redirect_is_not_followed(self) -> None:
        calls: list[str] = []

        async def move(request: web.Request) -> web.StreamResponse:
            calls.append(request.path)
            await request.read()
            return web.Response(status=307, headers={"Location": "/elsewhere"})

        async with answering(move) as url:
            answer = await upload(f"{url}/first", file(b"x"))
        assert (answer.status, calls) == (307, ["/first"])


class TestNames:
    async def test_a_name_cannot_break_out_of_its_header(self) -> None:
        item = MediaItem("file", blob_ref="b", file_name='../../a"\r\nX: y; отчёт.pdf', content_type="text/x\r\nX: y")
        depot = MemoryDepot()
        depot.put("b", b"x")
        async with depot.resolve(CHANNEL, [item]) as (resolved,), answering(received) as url:
            answer = await upload(url, file_of("data", resolved))
        assert answer.data is not None
        part = answer.data["parts"][1]
        assert (part["name"], part["filename"]) == ("data", "a'  X: y; отчёт.pdf")
        assert part["type"] == "text/x  X: y"

    @pytest.mark.parametrize(
        ("item", "name"),
        [
            (MediaItem("image", content_type="image/png"), "image.png"),
            (MediaItem("video"), "video.mp4"),
            (MediaItem("file", file_name=" / "), "file.bin"),
            (MediaItem("file", file_name="a" * 300 + ".pdf"), "a" * 116 + ".pdf"),
        ],
    )
    async def test_a_file_without_a_name_gets_one_that_fits(self, item: MediaItem, name: str) -> None:
        async with MemoryDepot().resolve(CHANNEL, [item]) as (resolved,):
            assert file_of("data", resolved).name == name

    @given(st.text(max_size=200))
    def test_any_name_is_one_line_of_utf8(self, name: str) -> None:
        class Named:
            item = MediaItem("file", file_name=name)
            read = None

        made = file_of("data", Named())  # type: ignore[arg-type]
        assert made.name and not set('"\r\n\0') & set(made.name)
        made.name.encode()
