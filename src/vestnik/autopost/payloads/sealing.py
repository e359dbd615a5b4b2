"""Payloads at rest: compressed, encrypted, each bound to its workspace and its name.

``VP1`` · id of the key (8 bytes) · nonce (12 bytes) · ciphertext. The key is derived from the installation's secret key; with
earlier ones at hand (``VESTNIK_EARLIER_SECRET_KEYS``), what they sealed can be read for as long as it is kept.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vestnik.errors import VestnikError
from vestnik.ops.secrets.box import SecretBox

MAGIC = b"VP1"
PURPOSE = b"vestnik payloads 1"
_KEY_ID, _NONCE = 8, 12


class PayloadUnreadable(VestnikError):
    """It was sealed with a key that is not at hand, or it is not what was stored."""


class Seal:
    """Seals with the first of the boxes, opens with any of them."""

    def __init__(self, boxes: Iterable[SecretBox]) -> None:
        keys = [box.derive(PURPOSE) for box in boxes]
        self._known = {_id_of(key): AESGCM(key) for key in keys}
        self._current = _id_of(keys[0])

    def close(self, workspace_id: str, payload_ref: str, content: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        sealed = self._known[self._current].encrypt(nonce, zlib.compress(content), _bound(workspace_id, payload_ref))
        return MAGIC + self._current + nonce + sealed

    def open(self, workspace_id: str, payload_ref: str, sealed: bytes) -> bytes:
        head, sealed = sealed[: len(MAGIC)], sealed[len(MAGIC) :]
        key_id, nonce, sealed = sealed[:_KEY_ID], sealed[_KEY_ID : _KEY_ID + _NONCE], sealed[_KEY_ID + _NONCE :]
        if head != MAGIC or len(nonce) != _NONCE:
            raise PayloadUnreadable("this object is not a payload of Vestnik's")
        if key_id not in self._known:
            raise PayloadUnreadable(
                "it was sealed with another secret key", hint="name that key in VESTNIK_EARLIER_SECRET_KEYS"
            )
        try:
            return zlib.decompress(self._known[key_id].decrypt(nonce, sealed, _bound(workspace_id, payload_ref)))
        except (InvalidTag, zlib.error):
            raise PayloadUnreadable("this object was changed, or is another one's") from None


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"id" + key).digest()[:_KEY_ID]


def _bound(workspace_id: str, payload_ref: str) -> bytes:
    return f"{workspace_id}/{payload_ref}".encode()
