"""Answers that never end, lie about themselves, or never come."""

from __future__ import annotations

import asyncio
import gzip
import traceback
import tracemalloc
import zlib
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from servers import answering, saying

from vestnik.download import MOST_REDIRECTS, Downloader, DownloadRefused, parse_networks

LOOPBACK = parse_networks("127.0.0.1/32, 127.0.0.2/32")
OK = b"HTTP/1.1 200 OK\r\n"


async def fetched(url: str, *, silence: float = 30.0, **options: Any) -> bytes:
    options = {"max_bytes": 100_000} | options
    downloader = Downloader(allow=LOOPBACK, silence=silence)
    try:
        async with downloader.get(url, **options) as answer:
            return await answer.read()
    finally:
        await downloader.close()


async def refusal(url: str, **options: Any) -> DownloadRefused:
    with pytest.raises(DownloadRefused) as caught:
        await fetched(url, **options)
    return caught.value


def verdict(refused: DownloadRefused) -> tuple[str, bool]:
    return refused.code, refused.permanent


class TestSize:
    async def test_declared_too_large_is_not_even_begun(self) -> None:
        async with saying(OK + b"Content-Length: 10000000000\r\n\r\n", then_wait=True) as url:
            refused = await refusal(url)
        assert verdict(refused) == ("too_large", True)
        assert str(refused) == "larger than the 100000 bytes allowed"

    @pytest.mark.parametrize("framing", [b"Connection: close\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
    async def test_without_end(self, framing: bytes) -> None:
        block = bytes(10_000) if b"close" in framing else b"2710\r\n" + bytes(10_000) + b"\r\n"
        async with saying(OK + framing, *[block] * 50, then_wait=True) as url:
            assert verdict(await refusal(url)) == ("too_large", True)

    async def test_exactly_what_is_allowed(self) -> None:
        async with saying(OK + b"Content-Length: 5\r\n\r\n12345") as url:
            assert await fetched(url, max_bytes=5) == b"12345"
            assert verdict(await refusal(url, max_bytes=4)) == ("too_large", True)

    async def test_less_than_declared(self) -> None:
        async with saying(OK + b"Content-Length: 50\r\n\r\n12345") as url:
            refused = await refusal(url)
        assert verdict(refused) == ("broken_off", False)
        assert str(refused) == "the answer broke off before its end, or is damaged"

    async def test_a_chunk_that_breaks_off(self) -> None:
        async with saying(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n") as url:
            assert verdict(await refusal(url)) == ("broken_off", False)

    async def test_more_than_declared(self) -> None:
        async with saying(OK + b"Content-Length: 5\r\n\r\n1234567890") as url:
            assert verdict(await refusal(url)) == ("network", False)


class TestPacking:
    async def test_packed_bodies_are_unpacked(self) -> None:
        packed = gzip.compress(b"hello")
        head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        async with saying(head + packed) as url:
            assert await fetched(url, max_bytes=50) == b"hello"

    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_a_bomb_is_stopped_before_it_is_in_memory(self, encoding: str) -> None:
        packer = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
        bomb = b"".join([packer.compress(bytes(1 << 20)) for _ in range(300)]) + packer.flush()
        head = OK + f"Content-Encoding: {encoding}\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
        async with saying(head + bomb) as url:
            tracemalloc.start()
            refused = await refusal(url, max_bytes=1_000_000)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert refused.code in ("too_large", "broken_off")
        assert peak < 80 << 20

    async def test_packed_rubbish(self) -> None:
        async with saying(OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n12345") as url:
            assert verdict(await refusal(url)) == ("broken_off", False)


class TestSilence:
    async def test_no_answer(self) -> None:
        async with saying(then_wait=True) as url:
            refused = await refusal(url, silence=0.05)
        assert verdict(refused) == ("timeout", False)
        assert "silent" in str(refused)

    async def test_in_the_middle_of_the_body(self) -> None:
        async with saying(OK + b"Content-Length: 50\r\n\r\n12345", then_wait=True) as url:
            assert verdict(await refusal(url, silence=0.05)) == ("timeout", False)

    async def test_drops_for_ever(self) -> None:
        async def dripping(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse()
            await answer.prepare(request)
            with suppress(ConnectionError):
                while True:
                    await answer.write(b"x")
                    await asyncio.sleep(0.01)
            return answer

        async with answering(dripping) as url:
            refused = await refusal(url, timeout=0.2)
        assert verdict(refused) == ("timeout", False)
        assert str(refused) == "it took too long"

    async def test_a_deadline_of_the_caller_stays_the_callers(self) -> None:
        async with saying(then_wait=True) as url:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await fetched(url)

    async def test_nobody_listens(self) -> None:
        assert verdict(await refusal("http://127.0.0.1:9/")) == ("network", False)

    @pytest.mark.parametrize("said", [b"", b"rubbish\r\n\r\n", b"HTTP/1.1 banana\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n"])
    async def test_no_http(self, said: bytes) -> None:
        async with saying(said) as url:
            assert verdict(await refusal(url)) == ("network", False)


class TestStatus:
    @pytest.mark.parametrize(
        ("status", "permanent"),
        [(400, True), (401, True), (403, True), (404, True), (410, True), (300, True),
         (408, False), (429, False), (500, False), (503, False)],
    )  # fmt: skip
    async def test_refusals(self, status: int, permanent: bool) -> None:
        async with saying(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status) as url:
            assert verdict(await refusal(url)) == (f"http_{status}", permanent)

    async def test_not_modified_is_an_answer(self) -> None:
        downloader = Downloader(allow=LOOPBACK)
        async with saying(b"HTTP/1.1 304 Not Modified\r\n\r\n") as url, downloader.get(url, max_bytes=1) as answer:
            assert answer.status == 304
        await downloader.close()


class TestRedirects:
    async def test_few_are_followed_and_the_end_is_told(self) -> None:
        async def counting(request: web.Request) -> web.Response:
            step = int(request.path[1:])
            if step == MOST_REDIRECTS:
                return web.Response(text="there")
            return web.Response(status=302, headers={"Location": str(step + 1)})

        downloader = Downloader(allow=LOOPBACK)
        async with answering(counting) as url, downloader.get(f"{url}/0", max_bytes=10) as answer:
            assert await answer.read() == b"there"
            assert answer.url == f"{url}/{MOST_REDIRECTS}"
        await downloader.close()

    async def test_a_circle(self) -> None:
        asked: list[str] = []

        async def circling(request: web.Request) -> web.Response:
            asked.append(request.path)
            return web.Response(status=307, headers={"Location": "/again"})

        async with answering(circling) as url:
            assert verdict(await refusal(url)) == ("too_many_redirects", True)
        assert len(asked) == MOST_REDIRECTS + 1

    @pytest.mark.parametrize("target", ["", "ftp://e.org", "http://[", "javascript:alert(1)"])
    async def test_to_nowhere(self, target: str) -> None:
        async with saying(b"HTTP/1.1 302 X\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % target.encode()) as url:
            assert verdict(await refusal(url)) == ("bad_url", True)

    async def test_headers_stay_with_the_host_they_were_meant_for(self) -> None:
        heard: list[str | None] = []

        async def elsewhere(request: web.Request) -> web.Response:
            heard.append(request.headers.get("X-Key"))
            return web.Response(text="there")

        async def here(request: web.Request) -> web.Response:
            heard.append(request.headers.get("X-Key"))
            if request.path == "/":
                return web.Response(status=302, headers={"Location": "/next", "Set-Cookie": "a=b"})
            assert "Cookie" not in request.headers
            return web.Response(status=302, headers={"Location": other})

        # Another port is another host: who may open one is not who may open the other.
        async with answering(elsewhere) as other, answering(here) as url:
            assert await fetched(url, headers={"X-Key": "secret"}) == b"there"
        assert heard == ["secret", "secret", None]


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n", OK + b"Content-Length: 9\r\n\r\n1",
     OK + b"Content-Length: 999999999\r\n\r\n", b"HTTP/1.1 302 X\r\nLocation: http://10.0.0.1/?SEKRIT\r\n\r\n",
     b"HTTP/1.1 302 X\r\nLocation: x://SEKRIT\r\n\r\n"],
)  # fmt: skip
async def test_no_error_tells_the_address(said: bytes) -> None:
    async with saying(said) as url:
        refused = await refusal(f"{url.replace('//', '//user:SEKRIT@')}/SEKRIT?token=SEKRIT#SEKRIT")
    assert "SEKRIT" not in "".join(traceback.format_exception(refused))
