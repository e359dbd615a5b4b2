"""What every call goes through: trust in certificates, strange answers, base URLs, another event loop."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from email.utils import format_datetime
from pathlib import Path

import psycopg
import psycopg_pool
import pytest
import uvloop
from aiohttp import web
from conformance import IMPATIENT, TEXT, error_of, verdict
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sandbox_rig import CREATE, SandboxRig

from vestnik.adapters.contract import AdapterContext, SendError, SendMeta
from vestnik.adapters.http import BODY_LIMIT, PlatformHttp
from vestnik.errors import ConfigError, NotFound
from vestnik.sandbox.server import Sandbox, serve

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def response(body: str | bytes, status: int = 200, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        raw = body.encode() if isinstance(body, str) else body
        return web.Response(body=raw, status=status, headers=headers, content_type="application/json")

    return handler


class TestCertificates:
    @pytest.fixture
    def authority(self, tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
        """(the root's PEM file, a server's context with a certificate of 127.0.0.1 under that root)"""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test root")])
        base = x509.CertificateBuilder().issuer_name(root_name).not_valid_before(now - day).not_valid_after(now + day)
        identifier = x509.SubjectKeyIdentifier.from_public_key(root_key.public_key())
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        root = (
            base.subject_name(root_name)
            .public_key(root_key.public_key())
            .serial_number(1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
            .sign(root_key, hashes.SHA256())
        )
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        leaf = (
            base.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")]))
            .public_key(key.public_key())
            .serial_number(2)
            .add_extension(address, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
            .sign(root_key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        root_file, leaf_file = tmp_path / "root.pem", tmp_path / "leaf.pem"
        root_file.write_bytes(root.public_bytes(pem))
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        leaf_file.write_bytes(leaf.public_bytes(pem) + secret)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(leaf_file)
        return root_file, context

    async def test_a_platform_under_a_root_of_its_own(
        self, max_rig: SandboxRig, authority: tuple[Path, ssl.SSLContext]
    ) -> None:
        root, context = authority
        async with serve(state=max_rig.sandbox.state, ssl_context=context) as secure:
            url = f"{secure.url}/max"
            stranger = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
            await max_rig.adapter(base_url=url, ca_file=root).send_text(max_rig.channel, TEXT, SendMeta())

        assert verdict(stranger) == ("TRANSIENT", "platform", "network")
        assert stranger.raw["outcome"] == "not_sent"
        assert "CA file" in stranger.message
        assert len(max_rig.posts()) == 1

    def test_the_systems_roots_stay(self, max_rig: SandboxRig, authority: tuple[Path, ssl.SSLContext]) -> None:
        alone = ssl.create_default_context()
        context = AdapterContext(_no_secret, {"max": "https://e.org"}, {"max": authority[0]})
        trust = PlatformHttp("max", context)._ssl
        assert trust.cert_store_stats()["x509_ca"] == alone.cert_store_stats()["x509_ca"] + 1

    @pytest.mark.parametrize("content", [None, "", "not a certificate"])
    def test_a_ca_file_that_is_none(self, tmp_path: Path, content: str | None) -> None:
        file = tmp_path / "root.pem"
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError, match=r"root\.pem") as caught:
            PlatformHttp("max", AdapterContext(_no_secret, {"max": "https://e.org"}, {"max": file}))
        assert "VESTNIK_MAX_CA_FILE" in str(caught.value.hint)


class TestStrangeAnswers:
    @pytest.mark.parametrize(
        "body",
        [
            "",
            "null",
            "[]",
            "7",
            '"text"',
            "{}",
            '{"ok": true}',
            '{"ok": 1, "result": {"message_id": 1}}',
            '{"ok": true, "result": {"message_id": "1"}}',
            '{"ok": true, "result": {"message_id": true}}',
            '{"ok": true, "result": [1]}',
            '{"message": {"body": {}}}',
            '{"message": {"body": {"mid": 5}}}',
            '{"message": {"body": {"mid": ""}}}',
            '{"message": "hello"}',
            "<retval>1</retval>",
            "[" * 100_000,
            '{"a":' * 100_000,
            b"\xff\xfe\x00",
            b"\x00" * 100,
            "1" * 5000,
        ],
        ids=lambda body: repr(body[:40]),
    )
    @pytest.mark.parametrize("platform", ["telegram", "max"])
    async def test_a_yes_that_shows_nothing_leaves_the_outcome_unknown(
        self, telegram_rig: SandboxRig, max_rig: SandboxRig, platform: str, body: str | bytes
    ) -> None:
        rig = telegram_rig if platform == "telegram" else max_rig
        async with answering(response(body)) as url:
            error = await error_of(rig.adapter(base_url=url), rig.channel)

        assert verdict(error) == ("TRANSIENT", "platform", "bad_answer")
        assert error.raw["outcome"] == "unknown"

    async def test_an_endless_answer_is_not_read_to_its_end(self, telegram_rig: SandboxRig) -> None:
        written: list[int] = []

        async def endless(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse()
            await answer.prepare(request)
            with suppress(ConnectionError):
                for _ in range(200):
                    await answer.write(b"x" * BODY_LIMIT)
                    written.append(BODY_LIMIT)
            return answer

        async with answering(endless) as url:
            error = await error_of(telegram_rig.adapter(base_url=url), telegram_rig.channel)
        assert verdict(error) == ("TRANSIENT", "platform", "bad_answer")
        assert len(written) < 100

    async def test_what_is_not_http_at_all(self, telegram_rig: SandboxRig) -> None:
        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            error = await error_of(telegram_rig.adapter(base_url=url), telegram_rig.channel)
        assert verdict(error) == ("TRANSIENT", "platform", "bad_answer")
        assert error.raw["outcome"] == "unknown"

    async def test_a_refusal_whose_body_is_cut_off_is_still_a_refusal(self, max_rig: SandboxRig) -> None:
        async def cut(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(status=403, headers={"Content-Length": "1000"})
            await answer.prepare(request)
            await answer.write(b'{"code":')
            assert request.transport is not None
            request.transport.close()
            return answer

        async with answering(cut) as url:
            error = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
        assert verdict(error) == ("PERMANENT", "channel", "403")

    async def test_a_redirect_is_not_followed(self, max_rig: SandboxRig) -> None:
        async with answering(response("{}", 302, Location=f"{max_rig.url}/messages")) as url:
            error = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
        assert verdict(error) == ("TRANSIENT", "platform", "302")
        assert max_rig.platform.counters["requests"] == 0

    @pytest.mark.parametrize(
        ("wait", "expected"),
        [
            ("3", 3000),
            ("0", 0),
            ("1.5", 1500),
            ("soon", None),
            ("-3", None),
            ("NaN", None),
            ("9" * 30, None),
            ("999999999", 7 * 24 * 3600 * 1000),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ],
    )
    async def test_retry_after_in_the_header(self, max_rig: SandboxRig, wait: str, expected: int | None) -> None:
        async with answering(response("{}", 429, **{"Retry-After": wait})) as url:
            error = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
        assert error.code == "429"
        assert error.retry_after_ms == expected

    async def test_retry_after_as_a_date(self, max_rig: SandboxRig) -> None:
        date = format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1), usegmt=True)
        async with answering(response("{}", 429, **{"Retry-After": date})) as url:
            error = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
        assert 3_500_000 < (error.retry_after_ms or 0) <= 3_600_000

    async def test_what_the_database_cannot_hold_is_taken_out(self, telegram_rig: SandboxRig) -> None:
        body = r'{"ok": false, "description": "a\u0000b\ud800c", "parameters": {"retry_after": NaN}}'
        async with answering(response(body, 429)) as url:
            error = await error_of(telegram_rig.adapter(base_url=url), telegram_rig.channel)
        assert error.raw["description"] == "ab?c"
        assert error.retry_after_ms == 0


class TestBaseUrl:
    @pytest.mark.parametrize("url", ["", "api.telegram.org", "ftp://e.org", "http://", "http://e.org?x=1", "http://["])
    def test_what_is_no_address_is_refused_at_the_start(self, url: str) -> None:
        with pytest.raises(ConfigError, match="telegram") as caught:
            PlatformHttp("telegram", AdapterContext(_no_secret, {"telegram": url}))
        assert "VESTNIK_TELEGRAM_API_URL" in str(caught.value.hint)

    async def test_a_slash_at_its_end_does_not_matter(self, telegram_rig: SandboxRig) -> None:
        adapter = telegram_rig.adapter(base_url=f"{telegram_rig.url}/")
        await adapter.send_text(telegram_rig.channel, TEXT, SendMeta())
        assert len(telegram_rig.posts()) == 1


async def test_a_missing_secret_is_passed_on(telegram_rig: SandboxRig) -> None:
    from vestnik.adapters.telegram import create

    missing = SendError(category="PERMANENT", scope="channel", code="no_secret", message="none")

    async def secret(*where: str) -> str:
        raise missing

    adapter = create(AdapterContext(secret, {"telegram": telegram_rig.url}))
    assert await error_of(adapter, telegram_rig.channel) is missing


@pytest.mark.parametrize("platform", ["telegram", "max"])
@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (psycopg.OperationalError("the database is away"), ("TRANSIENT", "delivery", "credential_unavailable")),
        (psycopg_pool.PoolTimeout("no connection"), ("TRANSIENT", "delivery", "credential_unavailable")),
        (TimeoutError(), ("TRANSIENT", "delivery", "credential_unavailable")),
        (KeyError("x"), ("TRANSIENT", "delivery", "credential_unavailable")),
        (ConfigError("encrypted with another key"), ("PERMANENT", "channel", "credential_unreadable")),
    ],
    ids=["database", "pool", "timeout", "fault", "another key"],
)
async def test_without_its_token_nothing_was_sent(
    sandbox: Sandbox, platform: str, trouble: Exception, expected: tuple[str, str, str]
) -> None:
    rig = SandboxRig(sandbox, platform)

    async def secret(*where: str) -> str:
        raise trouble

    adapter = CREATE[platform](AdapterContext(secret, {platform: rig.url}))
    error = await error_of(adapter, rig.channel)
    assert verdict(error) == expected
    assert error.raw["outcome"] == "not_sent"
    assert rig.posts() == []
    await adapter.close()


async def test_a_credential_that_is_not_there_is_told_by_the_one_who_looked(sandbox: Sandbox) -> None:
    async def secret(*where: str) -> str:
        raise NotFound("no telegram credential 'main' in workspace 'ws'")

    rig = SandboxRig(sandbox, "telegram")
    adapter = CREATE["telegram"](AdapterContext(secret, {"telegram": rig.url}))
    with pytest.raises(NotFound, match="credential 'main'"):
        await adapter.send_text(rig.channel, TEXT, SendMeta())


def test_the_same_verdicts_on_uvloop() -> None:
    """The product runs on uvloop, whose errors are not asyncio's."""

    async def run() -> dict[str, tuple[str, str, str, str]]:
        found = {}
        async with serve() as sandbox:
            rig = SandboxRig(sandbox, "telegram")
            for kind in ("reset", "reset_after_accept", "timeout", "slow"):
                rig.fault(kind, latency_ms=1)
                try:
                    await rig.adapter(timeout=IMPATIENT).send_text(rig.channel, TEXT, SendMeta())
                except SendError as e:
                    found[kind] = (*verdict(e), e.raw["outcome"])
            unreachable = await error_of(rig.adapter(base_url="http://127.0.0.1:1"), rig.channel)
            found["unreachable"] = (*verdict(unreachable), unreachable.raw["outcome"])
            await rig.close()
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run())
    assert found == {
        "reset": ("TRANSIENT", "platform", "network", "unknown"),
        "reset_after_accept": ("TRANSIENT", "platform", "network", "unknown"),
        "timeout": ("TRANSIENT", "platform", "timeout", "unknown"),
        "unreachable": ("TRANSIENT", "platform", "network", "not_sent"),
    }


async def _no_secret(*where: str) -> str:
    raise AssertionError("not asked for")
