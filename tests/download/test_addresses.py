"""What is fetched from: the public internet, and nothing that only looks like it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from servers import answering

from vestnik.download import Downloader, DownloadRefused, is_public, parse_networks
from vestnik.errors import ConfigError

PRIVATE = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::ffff:0:127.0.0.1", "::127.0.0.1",
    "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe", "5f00::1", "100::1", "4000::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "223.255.255.254",
    "2606:4700:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_what_it_is_alone(inner: Any) -> None:
    number = int(inner)
    wrapped = [0xFFFF << 32 | number, int(ip_address("64:ff9b::")) | number, 0x2002 << 112 | number << 80]
    for each in wrapped:
        assert is_public(ip_address(each.to_bytes(16, "big"))) == is_public(inner)


async def refusal(downloader: Downloader, url: str, **options: Any) -> DownloadRefused:
    options = {"max_bytes": 1000} | options
    try:
        with pytest.raises(DownloadRefused) as caught:
            async with downloader.get(url, **options) as answer:
                await answer.read()
    finally:
        await downloader.close()
    return caught.value


@pytest.fixture
async def visited() -> AsyncIterator[tuple[str, list[str]]]:
    """(the port of a server of this machine, who asked it)"""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(str(request.url))
        return web.Response(text="the inside")

    async with answering(answer) as url:
        yield url.rpartition(":")[2], asked


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "LOCALHOST.", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1",
        "017700000001", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]",
        "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1", "0.0.0.0", "0", "[::]", "user@127.0.0.1", "8.8.8.8@127.0.0.1",
        "127.0.0.1%20", "[::1%25lo]",
    ],
)  # fmt: skip
async def test_no_spelling_leads_inside(visited: tuple[str, list[str]], host: str) -> None:
    port, asked = visited
    refused = await refusal(Downloader(), f"http://{host}:{port}/")
    assert refused.code in ("private_address", "bad_url", "unknown_host")
    assert asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_what_is_allowed_is_fetched(visited: tuple[str, list[str]], host: str) -> None:
    port, asked = visited
    downloader = Downloader(allow=parse_networks("127.0.0.0/8"))
    async with downloader.get(f"http://{host}:{port}/x", max_bytes=100) as answer:
        assert await answer.read() == b"the inside"
        assert answer.content_type == "text/plain"
    await downloader.close()
    assert asked == [f"http://{host}:{port}/x"]


@pytest.mark.parametrize("target", ["http://127.0.0.2:{port}/", "http://[::1]:{port}/", "//127.0.0.2:{port}/"])
async def test_a_redirect_to_a_private_address(target: str) -> None:
    asked: list[str] = []

    async def inside(request: web.Request) -> web.Response:
        asked.append(str(request.url))
        return web.Response(text="the inside")

    async def redirecting(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": target.format(port=port)})

    async with answering(inside, "127.0.0.2") as other:
        port = other.rpartition(":")[2]
        async with answering(redirecting) as url:
            refused = await refusal(Downloader(allow=parse_networks("127.0.0.1/32")), url)
    assert (refused.code, refused.permanent) == ("private_address", True)
    assert asked == []


def resolving_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
    """Names get these addresses, one answer after the other, the last one for ever."""
    left = list(answers)

    def getaddrinfo(host: Any, port: Any, *rest: Any, **more: Any) -> list[Any]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_a_name_that_resolves_inside(visited: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    port, asked = visited
    resolving_to(monkeypatch, ["127.0.0.1"])
    refused = await refusal(Downloader(), f"http://innocent.example:{port}/")
    assert (refused.code, refused.permanent) == ("private_address", True)
    assert "private network" in str(refused)
    assert asked == []


async def test_of_several_addresses_only_public_ones_are_tried(
    visited: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = visited
    # 127.0.0.3 stands for a public address here: it is let through, and nobody listens there.
    resolving_to(monkeypatch, ["127.0.0.1", "127.0.0.3"])
    refused = await refusal(Downloader(allow=parse_networks("127.0.0.3/32")), f"http://both.example:{port}/")
    assert (refused.code, refused.permanent) == ("network", False)
    assert asked == []


async def test_a_name_that_changes_its_mind_gains_nothing(
    visited: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = visited
    resolving_to(monkeypatch, ["127.0.0.3"], ["127.0.0.1"])
    await refusal(Downloader(allow=parse_networks("127.0.0.3/32")), f"http://rebinding.example:{port}/")
    assert asked == []


async def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    refused = await refusal(Downloader(), "http://nowhere.example/")
    assert (refused.code, refused.permanent) == ("unknown_host", False)


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://e.org/", "file:///etc/passwd", "http://", "http:///x", "//e.org", "http://[::1", "http://e.org:99999/",
     "http://e.org:x/", "gopher://e.org", "data:text/plain,x", "http://a..b/", f"http://{'a' * 300}.org/"],
)  # fmt: skip
async def test_what_is_no_address(url: str) -> None:
    refused = await refusal(Downloader(), url)
    assert refused.code in ("bad_url", "unknown_host"), refused


@given(st.text(max_size=60).map(lambda tail: f"http://127.0.0.1{tail}") | st.text(max_size=60))
async def test_any_text_is_refused_by_name(url: str) -> None:
    # Port 9 of this machine answers nobody; the point is that nothing but a refusal ever comes out.
    await refusal(Downloader(allow=parse_networks("127.0.0.1/32")), url.replace("127.0.0.1", "127.0.0.1:9", 1))


@pytest.mark.parametrize("text", ["", " ", "10.0.0.0/8", "10.1.0.0/16, 127.0.0.1/32,::1/128", "127.0.0.1"])
def test_networks_as_the_user_writes_them(text: str) -> None:
    assert len(parse_networks(text)) == len([part for part in text.split(",") if part.strip()])


@pytest.mark.parametrize("text", ["x", "10.0.0.1/8", "10.0.0.0/33", "localhost"])
def test_what_is_no_list_of_networks(text: str) -> None:
    with pytest.raises(ConfigError, match="not a list of networks") as caught:
        parse_networks(text)
    assert caught.value.hint
