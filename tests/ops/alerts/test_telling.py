"""Alerts leave by real ways: chats of the sandbox, a mail server, an address that is called."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook
from telling_rig import Called, called, certificate, mail_server, run

from vestnik.adapters import registry
from vestnik.adapters.contract import AdapterContext
from vestnik.autopost.messenger import chat_way
from vestnik.db.pool import Pool, call
from vestnik.download import Downloader, parse_networks
from vestnik.errors import ConfigError
from vestnik.ops.alerts.contract import Message, Target, TellFailed, Way
from vestnik.ops.alerts.mail import MailWay, SmtpServer
from vestnik.ops.alerts.notifier import Notifier
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.webhooks.caller import Caller
from vestnik.ops.webhooks.signing import new_secret
from vestnik.sandbox.server import serve

BOX = SecretBox(b"0" * 43 + b"=")
MESSAGE = Message("alert_1", "a title", "текст\nof an alert", [])


def mail_to(address: str) -> Target:
    return Target("w", "mail", "email", address, "en")


async def notify(pool: Pool, troubles: Any, target: str, **ways: Way) -> dict[str, Any]:
    kind = Notifier(pool, ways).kind()
    return await run(kind, pool, troubles.workspace, {"target_id": target})


async def real_trouble(troubles: Any, alert: str = "dead", **details: Any) -> None:
    """One of now: the notifier's clock is the database's."""
    query = "select ops.put_alert(%s, %s, '', 'critical', 'a summary', %s)"
    facts = {"count": 3, "code": "502", "channels": 1} | details
    await troubles.sql(query, troubles.workspace, alert, json.dumps(facts))


@pytest.mark.parametrize("platform", ["telegram", "max"])
async def test_an_alert_reaches_a_chat_once(troubles: Any, shared_pool: Pool, platform: str) -> None:
    async def secret(workspace_id: str, platform: str, auth_ref: str) -> str:
        assert (workspace_id, auth_ref) == (troubles.workspace, "bot")
        return "1000001:SECRET-token_of_the_bot"

    async with serve() as sandbox:
        state = sandbox.state.platforms[platform]
        state.add_token("1000001:SECRET-token_of_the_bot", "bot")
        chat = state.add_chat("-1001", title="Admins")
        url = f"{sandbox.url}/{platform}"
        adapter = registry.load(AdapterContext(secret, {platform: url}), [platform])[platform]
        await troubles.target(kind=platform, address="-1001", language="ru")
        await real_trouble(troubles)
        way = chat_way(adapter)
        assert await notify(shared_pool, troubles, "chat", **{platform: way}) == {"told": 1}
        assert await notify(shared_pool, troubles, "chat", **{platform: way}) == {"told": 0}
        (message,) = chat.posts
        assert "3 доставки не удались после всех попыток; чаще всего: 502" in str(message)
        await adapter.close()


async def test_a_chat_that_refuses_is_a_failure_with_its_code(troubles: Any, shared_pool: Pool) -> None:
    async def secret(workspace_id: str, platform: str, auth_ref: str) -> str:
        return "1000001:SECRET-token_of_the_bot"

    async with serve() as sandbox:
        adapter = registry.load(AdapterContext(secret, {"telegram": f"{sandbox.url}/telegram"}), ["telegram"])[
            "telegram"
        ]
        sandbox.state.platforms["telegram"].add_token("1000001:SECRET-token_of_the_bot", "bot")
        await troubles.target(address="-404")
        await real_trouble(troubles)
        done = await notify(shared_pool, troubles, "chat", telegram=chat_way(adapter))
        assert (done["told"], done["failures"]) == (0, 1)
        assert await notify(shared_pool, troubles, "chat", telegram=chat_way(adapter)) == {"told": 0}
        await adapter.close()


async def test_an_alert_goes_by_mail_over_tls_and_with_a_login(
    troubles: Any, shared_pool: Pool, tmp_path: Path
) -> None:
    server, client = certificate(tmp_path)
    async with mail_server(server) as (postbox, port):
        url = f"smtp://vestnik:p%40ss%2Fword@127.0.0.1:{port}?from=vestnik@example.org"
        way = MailWay(SmtpServer.parse(url), tls=client)
        await troubles.target("mail", kind="email", address="a@example.org, b@example.org", language="ru")
        await real_trouble(troubles)
        assert await notify(shared_pool, troubles, "mail", email=way) == {"told": 1}
        assert await notify(shared_pool, troubles, "mail", email=way) == {"told": 0}
    (envelope,) = postbox.mails
    assert (postbox.was_encrypted, envelope.rcpt_tos) == ([True], ["a@example.org", "b@example.org"])
    mail = message_from_bytes(envelope.content, policy=policy.default)
    assert mail["Subject"] == (
        f"Vestnik · {troubles.workspace}: 3 доставки не удались после всех попыток; чаще всего: 502"
    )
    assert f"vestnik requeue -w {troubles.workspace} --dry-run" in mail.get_content()


async def test_a_mail_server_without_tls_gets_nothing_unless_that_is_said(tmp_path: Path) -> None:
    async with mail_server() as (postbox, port):
        with pytest.raises(TellFailed):
            await MailWay(SmtpServer.parse(f"smtp://127.0.0.1:{port}?from=v@example.org"))(mail_to("a@e.org"), MESSAGE)
        assert postbox.mails == []
        url = f"smtp://127.0.0.1:{port}?from=v@example.org&starttls=never"
        await MailWay(SmtpServer.parse(url))(mail_to("a@e.org"), MESSAGE)
        assert len(postbox.mails) == 1


async def test_a_mail_server_may_speak_tls_from_the_first_byte(tmp_path: Path) -> None:
    server, client = certificate(tmp_path)
    async with mail_server(at_once=server) as (postbox, port):
        url = f"smtps://127.0.0.1:{port}?from=v@example.org"
        await MailWay(SmtpServer.parse(url), tls=client)(mail_to("a@e.org"), MESSAGE)
        with pytest.raises(TellFailed):
            await MailWay(SmtpServer.parse(url))(mail_to("a@e.org"), MESSAGE)
    assert len(postbox.mails) == 1, "whose certificate nobody vouches for gets nothing"


async def test_a_wrong_password_is_told_without_it(tmp_path: Path) -> None:
    server, client = certificate(tmp_path)
    async with mail_server(server) as (_, port):
        url = f"smtp://vestnik:wr0ng-one@127.0.0.1:{port}?from=v@example.org"
        with pytest.raises(TellFailed) as refused:
            await MailWay(SmtpServer.parse(url), tls=client)(mail_to("a@e.org"), MESSAGE)
    assert (refused.value.code, "wr0ng" in str(refused.value)) == ("smtp_auth", False)


async def test_what_a_mail_server_answers_is_a_code(tmp_path: Path) -> None:
    async with mail_server() as (postbox, port):
        postbox.refusal = "451 the words of somebody else"
        url = f"smtp://127.0.0.1:{port}?from=v@example.org&starttls=never"
        with pytest.raises(TellFailed) as refused:
            await MailWay(SmtpServer.parse(url))(mail_to("a@e.org"), MESSAGE)
    assert (refused.value.code, str(refused.value)) == ("smtp_451", "the mail server answered 451")


@pytest.mark.parametrize(
    "url",
    [
        "http://h?from=a@e.org", "smtp://h", "smtp://?from=a@e.org", "smtp://h:port?from=a@e.org", "smtp://h?from=nobody",
        "smtp://u:SECRET@mail.example.org?from=a@e.org&starttls=never", "smtp://u:SECRET@h?from=a@e.org&what=1",
    ],
)  # fmt: skip
def test_a_wrong_address_of_a_mail_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SmtpServer.parse(url)
    assert "SECRET" not in f"{refused.value} {refused.value.hint}"
    assert "p@ss" not in repr(SmtpServer.parse("smtps://u:p@ss@h?from=a@e.org"))


@pytest.fixture
async def downloader() -> AsyncIterator[Downloader]:
    """May call this machine."""
    downloader = Downloader(allow=parse_networks("127.0.0.0/8"))
    yield downloader
    await downloader.close()


async def hook(troubles: Any, pool: Pool, other: Called, downloader: Downloader, *secrets: str) -> Way:
    await troubles.target("hook", kind="webhook", address=other.url, auth_ref=None)
    for secret in secrets:
        query = "select ops.put_webhook_secret(%s, 'target:hook', %s, '1 hour')"
        await call(pool, query, (troubles.workspace, BOX.lock(secret)))
    return Caller(pool, BOX, downloader).tell


async def test_a_webhook_gets_the_alerts_signed(troubles: Any, shared_pool: Pool, downloader: Downloader) -> None:
    secret = new_secret()
    async with called() as other:
        way = await hook(troubles, shared_pool, other, downloader, secret)
        await real_trouble(troubles)
        assert await notify(shared_pool, troubles, "hook", webhook=way) == {"told": 1}
    ((headers, body),) = other.seen
    told = Webhook(secret).verify(body, headers)
    assert told["type"] == "alerts"
    (alert,) = told["data"]["alerts"]
    assert (alert["alert"], alert["news"], alert["details"]["count"]) == ("dead", "raised", 3)


async def test_the_same_told_again_has_the_same_id(troubles: Any, shared_pool: Pool, downloader: Downloader) -> None:
    async with called() as other:
        way = await hook(troubles, shared_pool, other, downloader, new_secret())
        other.statuses = [500]
        await real_trouble(troubles)
        assert (await notify(shared_pool, troubles, "hook", webhook=way))["failed"] == "http_500"
        query = "update ops.alert_targets set next_try_at = null where workspace_id = %s"
        await troubles.sql(query, troubles.workspace)
        assert await notify(shared_pool, troubles, "hook", webhook=way) == {"told": 1}
    first, second = (headers["webhook-id"] for headers, _ in other.seen)
    assert first == second


async def test_an_address_inside_our_network_is_not_called(
    troubles: Any, shared_pool: Pool, downloader: Downloader
) -> None:
    async with called() as other:
        await hook(troubles, shared_pool, other, downloader, new_secret())
        await real_trouble(troubles)
        strict = Downloader()
        done = await notify(shared_pool, troubles, "hook", webhook=Caller(shared_pool, BOX, strict).tell)
        await strict.close()
    assert (done["failed"], other.seen) == ("private_address", [])


async def test_a_kind_that_cannot_be_told_here_is_a_failure(troubles: Any, shared_pool: Pool) -> None:
    await troubles.target("mail", kind="email", address="a@example.org")
    await real_trouble(troubles)
    assert (await notify(shared_pool, troubles, "mail"))["failed"] == "no_way"


async def test_a_way_that_breaks_is_a_failure_and_keeps_its_words(troubles: Any, shared_pool: Pool) -> None:
    async def broken(target: Target, message: Message) -> None:
        raise RuntimeError("with the token 123:SECRET in it")

    await troubles.target()
    await real_trouble(troubles)
    done = await notify(shared_pool, troubles, "chat", telegram=broken)
    assert done["failed"] == "broke"
    rows = await troubles.sql("select last_error from ops.alert_targets where workspace_id = %s", troubles.workspace)
    assert "SECRET" not in str(rows)
