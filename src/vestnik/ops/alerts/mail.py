"""Alerts by mail: over SMTP as the setting ``VESTNIK_SMTP_URL`` says."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

import aiosmtplib

from vestnik.errors import ConfigError
from vestnik.ops.alerts.contract import Message, Target, TellFailed

_PORTS = {"smtp": 587, "smtps": 465}
_EXAMPLE = "like smtp://user:password@mail.example.org:587?from=vestnik@example.org"


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """``smtps`` speaks TLS from the first byte; ``smtp`` begins it (STARTTLS), unless ``starttls=never`` is said."""

    host: str
    port: int
    sender: str
    tls: Literal["at_once", "starttls", "never"]
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> SmtpServer:
        """Raises ConfigError, without the URL: it may hold a password."""
        try:
            parts = urlsplit(url)
            query = {
                name: values[-1] for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()
            }
            host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
            sender = query.pop("from")
            Address(addr_spec=sender)
            never = query.pop("starttls", "required") == "never"
        except (ValueError, KeyError, IndexError, HeaderParseError):
            raise ConfigError("VESTNIK_SMTP_URL is not the address of a mail server", hint=_EXAMPLE) from None
        if not host or query or parts.path not in ("", "/"):
            raise ConfigError("VESTNIK_SMTP_URL holds something that nobody reads", hint=_EXAMPLE)
        tls: Literal["at_once", "starttls", "never"] = (
            "at_once" if parts.scheme == "smtps" else "never" if never else "starttls"
        )
        user, password = (unquote(part) if part else None for part in (parts.username, parts.password))
        if password and tls == "never" and host not in ("localhost", "127.0.0.1", "::1"):
            raise ConfigError("VESTNIK_SMTP_URL would send its password unencrypted", hint="leave starttls=never out")
        return cls(host, port, sender, tls, user, password)


class MailWay:
    def __init__(self, server: SmtpServer, *, timeout: float = 30.0, tls: ssl.SSLContext | None = None) -> None:
        self._server, self._timeout, self._tls = server, timeout, tls

    async def __call__(self, target: Target, message: Message) -> None:
        server = self._server
        try:
            refused, _ = await aiosmtplib.send(
                self._mail(target, message),
                sender=server.sender,
                recipients=recipients(target.address),
                hostname=server.host,
                port=server.port,
                username=server.user,
                password=server.password,
                use_tls=server.tls == "at_once",
                start_tls=server.tls == "starttls",
                tls_context=self._tls,
                timeout=self._timeout,
            )
        except aiosmtplib.SMTPAuthenticationError:
            raise TellFailed("smtp_auth", "the mail server refuses our user or password") from None
        except aiosmtplib.SMTPResponseException as e:
            raise TellFailed(f"smtp_{e.code}", f"the mail server answered {e.code}") from None
        except aiosmtplib.SMTPRecipientsRefused as e:
            code = e.recipients[0].code if e.recipients else 550
            raise TellFailed(f"smtp_{code}", f"the mail server refuses every recipient ({code})") from None
        except TimeoutError:
            raise TellFailed("timeout", "the mail server was silent for too long") from None
        except (aiosmtplib.SMTPException, OSError) as e:
            raise TellFailed("smtp", f"the mail server cannot be used: {type(e).__name__}") from None
        if refused:
            raise TellFailed("smtp_some", f"the mail server refuses {len(refused)} of the recipients")

    def _mail(self, target: Target, message: Message) -> EmailMessage:
        mail = EmailMessage()
        mail["Subject"] = message.title
        mail["From"] = self._server.sender
        mail["To"] = ", ".join(recipients(target.address))
        mail["Date"] = formatdate()
        mail["Message-ID"] = f"<{message.message_id}@vestnik>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.text + "\n")
        return mail


def recipients(addresses: str) -> list[str]:
    """``a@example.org, b@example.org``; raises ValueError for what is none."""
    found = [part.strip() for part in addresses.split(",")]
    for address in found:
        try:
            usable = bool(Address(addr_spec=address).domain)
        except (ValueError, IndexError, HeaderParseError):
            usable = False
        if not usable:
            raise ValueError(f"{address!r} is no mail address")
    return found
