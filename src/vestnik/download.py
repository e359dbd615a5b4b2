"""Fetching what somebody else's address names: bounded, and never from inside our own network.

An address comes from a post, a feed or a setting, so it may lead anywhere: into the network that Vestnik stands in,
around in circles, to an answer without end. Every hop's host is resolved here and only public addresses are connected
to: what was checked is what is used, so a name that changes its mind between check and use gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from vestnik import __version__
from vestnik.errors import ConfigError, VestnikError

Network = IPv4Network | IPv6Network
MOST_REDIRECTS = 5
CONNECT_TIMEOUT = 10.0
SILENCE = 30.0
CHUNK = 64 * 1024
AGENT = f"Vestnik/{__version__}"


class DownloadRefused(VestnikError):
    """It was not fetched. ``permanent``: trying again will not help."""

    def __init__(self, code: str, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.code = code
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Download:
    """An answer whose body is still to be read; ``url`` is where the redirects ended."""

    status: int
    url: str
    headers: Mapping[str, str]
    _response: aiohttp.ClientResponse
    _max_bytes: int

    @property
    def content_type(self) -> str:
        """What the server calls it, in lower case and without parameters; it may be wrong."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, unpacked; DownloadRefused ``too_large`` as soon as it is more than was allowed."""
        declared = self._response.content_length
        if declared is not None and declared > self._max_bytes:
            raise _too_large(self._max_bytes)
        received = 0
        failure: DownloadRefused | None = None
        try:
            async for chunk in self._response.content.iter_chunked(CHUNK):
                received += len(chunk)
                if received > self._max_bytes:
                    raise _too_large(self._max_bytes)
                yield chunk
        except (aiohttp.ClientError, OSError) as e:
            failure = _broken(e)
        if failure:
            raise failure

    async def read(self) -> bytes:
        """The whole body: for what is known to be small."""
        return b"".join([chunk async for chunk in self.chunks()])


class Downloader:
    """``allow``: networks that may be fetched from although they are not public; ``silence``: most seconds without a byte."""

    def __init__(self, *, allow: Sequence[Network] = (), timeout: float = 600.0, silence: float = SILENCE) -> None:
        self._allow, self._timeout, self._silence = tuple(allow), timeout, silence
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def get(
        self,
        url: str,
        *,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # for all of it, to the last byte
    ) -> AsyncIterator[Download]:
        """Any 2xx answer, and 304; everything else is a DownloadRefused. Headers go to the first host only."""
        clock = asyncio.timeout(timeout or self._timeout)
        try:
            async with clock, await self._follow(url, headers or {}) as response:
                yield Download(response.status, str(response.url), response.headers, response, max_bytes)
        except TimeoutError:
            # The caller's block runs in here too, and may have a deadline of its own.
            if not clock.expired():
                raise
            raise DownloadRefused("timeout", "it took too long", permanent=False) from None

    async def post(
        self, url: str, body: bytes, *, headers: Mapping[str, str], timeout: float
    ) -> tuple[int, float | None]:
        """The status, whatever it is, and the seconds of its Retry-After. The answer is not read, no redirect followed."""
        target = self._checked(url)
        try:
            async with (
                asyncio.timeout(timeout),
                self._open().post(target, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return response.status, _seconds(response.headers.get("Retry-After"))
        except DownloadRefused as e:
            refused = e
        except TimeoutError:
            refused = DownloadRefused("timeout", "it took too long", permanent=False)
        except (aiohttp.ClientError, OSError, ValueError) as e:
            refused = _refusal(e)
        raise refused

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _follow(self, url: str, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        target = self._checked(url)
        first = target.origin()
        for _ in range(MOST_REDIRECTS + 1):
            response = await self._ask(target, headers if target.origin() == first else {})
            if response.status not in (301, 302, 303, 307, 308):
                return _accepted(response)
            location = response.headers.get("Location", "")
            response.close()
            target = self._checked(_joined(target, location))
        raise DownloadRefused("too_many_redirects", f"more than {MOST_REDIRECTS} redirects", permanent=True)

    async def _ask(self, target: URL, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        # Raised outside the except block: a chained exception would carry the address, and what it may hold, into a log.
        try:
            return await self._open().get(target, headers=headers, allow_redirects=False)
        except DownloadRefused as e:
            refused = e
        except (aiohttp.ClientError, OSError, ValueError) as e:
            refused = _refusal(e)
        raise refused

    def _checked(self, url: str) -> URL:
        try:
            target = URL(url)
            usable = target.scheme in ("http", "https") and bool(target.host)
        except ValueError:
            usable = False
        if not usable:
            raise DownloadRefused("bad_url", "not an http or https address", permanent=True)
        literal = _literal(target.host or "")
        if literal is not None and not self._reachable(literal):
            raise PrivateAddress
        return target

    def _reachable(self, address: IPv4Address | IPv6Address) -> bool:
        return is_public(address) or any(address in network for network in self._allow)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(resolver=_PublicResolver(self._reachable), limit=64, ttl_dns_cache=10)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=self._silence),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": AGENT},
            )
        return self._session


class _PublicResolver(AbstractResolver):
    """The system's resolver, without the addresses that may not be connected to."""

    def __init__(self, reachable: Any) -> None:
        self._resolver = ThreadedResolver()
        self._reachable = reachable

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        open_ones = [each for each in found if self._reachable(ip_address(each["host"].partition("%")[0]))]
        if found and not open_ones:
            raise PrivateAddress
        return open_ones

    async def close(self) -> None:
        await self._resolver.close()


class PrivateAddress(DownloadRefused, OSError):
    """An OSError too: that is what the HTTP library lets a resolver raise."""

    def __init__(self) -> None:
        DownloadRefused.__init__(
            self,
            "private_address",
            "the address leads into a private network, which is not fetched from unless VESTNIK_FETCH_ALLOW names it",
            permanent=True,
        )


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """An address of the public internet, also where one is wrapped in another."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is not None:
            return is_public(inner)
        if address in _NAT64:
            return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        # The rest is private or not handed out, and Python's list of it has gaps.
        return address in _GLOBAL_UNICAST and address.is_global
    return address.is_global and not address.is_multicast and address not in _PROTOCOLS


_PROTOCOLS = IPv4Network("192.0.0.0/24")
_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def parse_networks(text: str) -> list[Network]:
    """``127.0.0.1/32, 10.1.0.0/16`` as the user writes it in a setting."""
    try:
        return [ip_network(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as e:
        raise ConfigError(f"not a list of networks: {e}", hint="write them like 127.0.0.1/32, 10.1.0.0/16") from None


def _accepted(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    if 200 <= response.status < 300 or response.status == 304:
        return response
    response.close()
    again = response.status in (408, 425, 429) or response.status >= 500
    raise DownloadRefused(f"http_{response.status}", f"the server answered {response.status}", permanent=not again)


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None


def _joined(base: URL, location: str) -> str:
    try:
        return str(base.join(URL(location))) if location else ""
    except ValueError:
        return ""


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _refusal(e: Exception) -> DownloadRefused:
    cause = e.os_error if isinstance(e, aiohttp.ClientConnectorError) else e
    return cause if isinstance(cause, DownloadRefused) else _broken(e)


def _broken(e: Exception) -> DownloadRefused:
    if isinstance(e, TimeoutError):
        return DownloadRefused("timeout", "the server was silent for too long", permanent=False)
    if isinstance(e, aiohttp.ClientConnectorDNSError):
        return DownloadRefused("unknown_host", "the host name cannot be resolved", permanent=False)
    if isinstance(e, aiohttp.ClientPayloadError):
        return DownloadRefused("broken_off", "the answer broke off before its end, or is damaged", permanent=False)
    if isinstance(e, aiohttp.InvalidURL | ValueError):
        return DownloadRefused("bad_url", "not an address that can be asked", permanent=True)
    return DownloadRefused("network", f"the connection failed: {type(e).__name__}", permanent=False)


def _too_large(limit: int) -> DownloadRefused:
    return DownloadRefused("too_large", f"larger than the {limit} bytes allowed", permanent=True)
