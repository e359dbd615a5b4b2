"""Signatures in the form of Standard Webhooks: HMAC-SHA256 over id, time and body, one for each secret in use."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from vestnik.errors import ConfigError

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64  # bytes, as the standard has it


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def checked(secret: str) -> str:
    """Raises ConfigError for what is no secret of the standard, without quoting it."""
    if not SHORTEST <= len(_key(secret)) <= LONGEST:
        raise ConfigError(f"a webhook's secret holds {SHORTEST} to {LONGEST} bytes", hint=f"{PREFIX} and base64")
    return secret


def signed(secrets_in_use: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a message."""
    content = f"{message_id}.{timestamp}.".encode() + body
    marks = (hmac.new(_key(secret), content, hashlib.sha256).digest() for secret in secrets_in_use)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(mark).decode()}" for mark in marks),
    }


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("a webhook's secret is base64", hint=f"{PREFIX} and base64") from None
