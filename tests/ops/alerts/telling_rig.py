"""Real other sides on loopback: a mail server, and an address that is called."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vestnik.db.pool import Pool
from vestnik.ops.jobs.registry import JobContext, JobKind, Stats


async def run(kind: JobKind, pool: Pool, workspace_id: str, payload: dict[str, Any]) -> Stats:
    """One run of a job of this kind, without the runner around it."""
    deadline = asyncio.get_running_loop().time() + 60
    done = await kind.handler(JobContext(uuid4(), workspace_id, kind.name, payload, 1, None, pool, deadline))
    return done or {}


@dataclass
class Called:
    """An address that answers as ``statuses`` say, then with 204, and what it was sent."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(({k.lower(): v for k, v in request.headers.items()}, await request.read()))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 204, headers=self.headers)


@asynccontextmanager
async def called() -> AsyncIterator[Called]:
    other = Called()
    app = web.Application()
    app.router.add_post("/{path:.*}", other.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    other.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield other
    await runner.cleanup()


class Postbox:
    """What a mail server was given. ``refusal`` is its answer instead of taking it."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []
        self.refusal: str | None = None
        self.was_encrypted: list[bool] = []

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:
        if self.refusal:
            return self.refusal
        self.mails.append(envelope)
        self.was_encrypted.append(session.ssl is not None)
        return "250 OK"


@asynccontextmanager
async def mail_server(
    tls: ssl.SSLContext | None = None, *, at_once: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Postbox, int]]:
    """With a context it wants STARTTLS and a login, or speaks TLS from the first byte."""

    def login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        return AuthResult(success=(data.login, data.password) == (b"vestnik", b"p@ss/word"), handled=False)

    postbox = Postbox()
    wanted = (
        {"tls_context": tls, "require_starttls": True, "auth_required": True, "authenticator": login} if tls else {}
    )
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(postbox, hostname="here", loop=loop, **wanted), "127.0.0.1", 0, ssl=at_once
    )
    async with server:
        yield postbox, server.sockets[0].getsockname()[1]


def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The context of a server on loopback, and that of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))
