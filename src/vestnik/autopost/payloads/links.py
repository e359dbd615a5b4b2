"""Links to one payload for a few minutes. They are signed, not stored: any process with the same secret key knows its own."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from uuid import UUID

from vestnik.errors import VestnikError
from vestnik.ops.secrets.box import SecretBox

PREFIX = "vlink_"  # by which it is known, and masked, in texts
PURPOSE = b"vestnik payload links 1"


class LinkForged(VestnikError):
    """No link of ours."""


@dataclass(frozen=True, slots=True)
class Link:
    """``actor`` asked for it; ``expires_at`` in Unix seconds."""

    workspace_id: str
    payload_ref: str
    actor: str
    link_id: UUID
    expires_at: int


class Links:
    def __init__(self, box: SecretBox) -> None:
        self._key = box.derive(PURPOSE)

    def write(self, link: Link) -> str:
        claims = [link.workspace_id, link.payload_ref, link.actor, link.link_id.hex, link.expires_at]
        body = json.dumps(claims, separators=(",", ":")).encode()
        return PREFIX + _packed(self._signature(body) + body)

    def read(self, token: str) -> Link:
        """Also of one that has expired: whoever asks for it goes on record."""
        try:
            packed = _unpacked(token.removeprefix(PREFIX)) if token.startswith(PREFIX) else b""
        except (binascii.Error, ValueError):
            packed = b""
        signature, body = packed[:32], packed[32:]
        if not hmac.compare_digest(signature, self._signature(body)):
            raise LinkForged("no such link")
        workspace_id, payload_ref, actor, link_id, expires_at = json.loads(body)
        return Link(workspace_id, payload_ref, actor, UUID(link_id), expires_at)

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, hashlib.sha256)


def _packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _unpacked(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
