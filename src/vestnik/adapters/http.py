"""Pooled HTTP for adapters: one session for each platform, and every way a call can break as a ``SendError``.

``raw.outcome`` says what is known of a call without an answer: ``not_sent`` when no connection came about or a
form's last byte never left, ``unknown`` otherwise.

No text of an exception of the HTTP library is ever passed on: some of them quote the address, and Telegram's
address holds the token. What a platform says is cleaned of the token before anybody else sees it.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from vestnik.adapters import exchange
from vestnik.adapters.classify import unanswered
from vestnik.adapters.contract import AdapterContext, Channel, SendError
from vestnik.adapters.multipart import File, Form
from vestnik.errors import ConfigError, NotFound

BODY_LIMIT = 1 << 20  # an answer longer than this is not one of a messaging API
CONNECT_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``data`` is the JSON object, ``None`` for a body of any other kind."""

    status: int
    data: Mapping[str, Any] | None
    text: str
    retry_after: float | None
    date: str | None = None  # the header: what the platform's clock says


class PlatformHttp:
    """The connections of one platform."""

    def __init__(self, platform: str, context: AdapterContext) -> None:
        self._platform = platform
        self._context = context
        self._base = _base_url(platform, context)
        self._ssl = _trust(platform, context)
        self._session: aiohttp.ClientSession | None = None

    async def token(self, channel: Channel, shape: re.Pattern[str]) -> str:
        """The channel's token, in a form that can go into a URL or a header."""
        token = (await self._secret(channel)).strip()
        if shape.fullmatch(token) is None:
            raise SendError(
                category="PERMANENT",
                scope="channel",
                code="bad_token",
                message=f"{self._platform}: what is stored under {channel.auth_ref!r} is not a token",
                raw={"outcome": "not_sent"},
            )
        return token

    async def _secret(self, channel: Channel) -> str:
        """Whatever goes wrong here, nothing was sent; what is no SendError would pass for a crash in the middle of it."""
        try:
            return await self._context.secret(channel.workspace_id, channel.platform, channel.auth_ref)
        except (SendError, NotFound):
            raise
        except ConfigError as e:
            raise SendError(
                category="PERMANENT",
                scope="channel",
                code="credential_unreadable",
                message=f"{self._platform}: the credential {channel.auth_ref!r} cannot be read: {e}",
                raw={"outcome": "not_sent"},
            ) from e
        except Exception as e:
            raise SendError(
                category="TRANSIENT",
                scope="delivery",
                code="credential_unavailable",
                message=f"{self._platform}: the credential {channel.auth_ref!r} cannot be had now: {type(e).__name__}",
                raw={"outcome": "not_sent"},
            ) from e

    async def get(self, path: str, *, secret: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self._request("GET", path, secret, headers=headers)

    async def post(
        self,
        path: str,
        *,
        secret: str,
        json: Mapping[str, Any] | None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        return await self._request("POST", path, secret, json=json, params=params, headers=headers)

    async def _request(self, method: str, path: str, secret: str, **how: Any) -> Answer:
        # Raised outside the except blocks: a chained exception would carry the address into a traceback.
        exchange.asked(method, path, secret, {"json": how.get("json"), "params": how.get("params")})
        try:
            address = URL(self._base + path, encoded=True)
            async with self._open().request(method, address, allow_redirects=False, **how) as response:
                return await _read(response, secret)
        except (aiohttp.ClientError, OSError) as e:  # TimeoutError is an OSError
            failure = self._failure(e)
        raise failure

    def form(self, fields: Mapping[str, str], files: Sequence[File]) -> Form:
        return Form(fields, files, silence=self._context.timeout)

    async def upload(self, target: str, form: Form, *, secret: str) -> Answer:
        """``target`` is a path of the platform, or an address elsewhere that the platform named."""
        exchange.asked("POST", target, secret, {"form": form.told()})
        try:
            async with self._open().post(
                self._address(target),
                data=form,
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect(), sock_read=self._context.timeout),
                allow_redirects=False,
            ) as response:
                return await _read(response, secret)
        except (aiohttp.ClientError, OSError) as e:
            failure = form.failure or self._failure(e, sent=form.finished)
        raise failure

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        # At the first call, because a session belongs to the loop that it is made in.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._context.connections, ssl=self._ssl),
                timeout=aiohttp.ClientTimeout(total=self._context.timeout, connect=self._connect()),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _connect(self) -> float:
        """Shorter than the total, so that a connection that never came about is known as such."""
        return min(CONNECT_TIMEOUT, self._context.timeout * 2 / 3)

    def _address(self, target: str) -> URL:
        if target.startswith("/"):
            return URL(self._base + target, encoded=True)
        try:
            url = URL(target, encoded=True)
            usable = url.scheme in ("http", "https") and bool(url.host) and url.user is None
        except ValueError:
            usable = False
        if not usable:
            raise unanswered(self._platform, "bad_answer", sent=False, detail="the upload address is not an address")
        return url

    def _failure(self, e: Exception, *, sent: bool = True) -> SendError:
        unreached = isinstance(e, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        garbled = isinstance(e, aiohttp.ClientResponseError)
        code = "timeout" if isinstance(e, TimeoutError) else "bad_answer" if garbled else "network"
        detail = _reason(e) if sent or unreached else f"the upload broke off: {_reason(e)}"
        return unanswered(self._platform, code, sent=sent and not unreached, detail=detail)


def part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object inside an answer; an empty one where the platform sent anything else."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def scalars(**values: Any) -> dict[str, int | str]:
    """What of an answer is worth an auditor's while: the plain values among those named."""
    return {key: value for key, value in values.items() if isinstance(value, int | str)}


def _base_url(platform: str, context: AdapterContext) -> str:
    base = context.base_urls.get(platform, "").rstrip("/")
    try:
        url = URL(base)
        usable = url.scheme in ("http", "https") and bool(url.host) and not url.query_string
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"the base URL of platform {platform!r} is not an http(s) address",
            hint=f"set VESTNIK_{_variable(platform)}_API_URL to something like https://api.example.org",
        )
    return base


def _variable(platform: str) -> str:
    return platform.upper().replace("-", "_")


def _trust(platform: str, context: AdapterContext) -> ssl.SSLContext:
    """The system's roots, and the platform's own beside them."""
    trust = ssl.create_default_context()
    extra = context.ca_files.get(platform)
    if extra is not None:
        try:
            trust.load_verify_locations(cafile=extra)
        except OSError as e:  # ssl.SSLError is one too
            raise ConfigError(
                f"the CA file of platform {platform!r} cannot be used: {extra}: {e.strerror or e}",
                hint=f"VESTNIK_{_variable(platform)}_CA_FILE must name a PEM file with a root certificate",
            ) from e
    return trust


async def _read(response: aiohttp.ClientResponse, secret: str) -> Answer:
    try:
        body = await response.content.read(BODY_LIMIT + 1)
        while len(body) <= BODY_LIMIT and (more := await response.content.read(BODY_LIMIT)):
            body += more
    except (aiohttp.ClientError, OSError):
        if response.status < 400:
            raise
        body = b""  # the status alone says that it was refused
    exchange.answered(response.status, response.headers, body)
    text = body.decode("utf-8", "replace")
    data: Any = None
    try:
        if len(body) <= BODY_LIMIT:
            data = _clean(json.loads(text), secret)
    except (ValueError, RecursionError):
        data = None
    return Answer(
        status=response.status,
        data=data if isinstance(data, dict) else None,
        text=_clean(text[:2000], secret),
        retry_after=_seconds(response.headers.get("Retry-After")),
        date=response.headers.get("Date"),
    )


def _clean(value: Any, secret: str) -> Any:
    """Without the token, and without what the database's jsonb cannot hold."""
    if isinstance(value, str):
        for form in {secret, quote(secret, safe=""), quote(secret)}:
            value = value.replace(form, "***")
        return value.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_clean(key, secret): _clean(item, secret) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, secret) for item in value]
    return value


def _seconds(header: str | None) -> float | None:
    """Retry-After in either of its two forms."""
    if header is None:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d+)?", header.strip()):
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return None


def moment(header: str | None) -> float | None:
    """A Date header in Unix seconds."""
    try:
        return parsedate_to_datetime(header).timestamp() if header else None
    except (ValueError, OverflowError, OSError):
        return None


def _reason(e: Exception) -> str:
    if isinstance(e, aiohttp.ClientConnectorCertificateError):
        return "the server's certificate is not trusted; name its root in the platform's CA file"
    if isinstance(e, aiohttp.ClientConnectorDNSError):
        return "the host name cannot be resolved"
    cause = e.os_error if isinstance(e, aiohttp.ClientConnectorError) else e
    said = cause.strerror if isinstance(cause, OSError) else None
    return said or type(e).__name__
