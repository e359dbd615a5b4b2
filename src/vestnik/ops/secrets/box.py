"""Secrets at rest: one key for the installation, from the settings or made once in the data folder."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vestnik.db.embedded.files import give_to_owner_of
from vestnik.errors import ConfigError

KEY_FILE = "secret.key"


class SecretBox:
    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)
        self._key = base64.urlsafe_b64decode(key)

    @classmethod
    def open(cls, data_dir: Path, secret_key: str | None) -> SecretBox:
        """The key of the settings if there is one (any text will do), else the data folder's own."""
        if secret_key:
            return cls.open_with(secret_key)
        path = data_dir / KEY_FILE
        try:
            return cls(_key_of(path))
        except ValueError:
            raise ConfigError(
                f"{path} does not hold a key", hint="restore it from a backup, or set VESTNIK_SECRET_KEY"
            ) from None

    @classmethod
    def open_with(cls, secret_key: str) -> SecretBox:
        return cls(base64.urlsafe_b64encode(hashlib.sha256(secret_key.encode()).digest()))

    @classmethod
    def earlier(cls, data_dir: Path, secret_key: str | None, earlier_keys: Sequence[str]) -> list[SecretBox]:
        """Those of keys that were in use before: the named ones, and the data folder's own when a named one took its place."""
        boxes = [cls.open_with(key) for key in earlier_keys if key]
        if secret_key and (data_dir / KEY_FILE).exists():
            boxes.append(cls.open(data_dir, None))
        return boxes

    def derive(self, purpose: bytes) -> bytes:
        """A key of its own for each purpose; none tells of another."""
        return HKDF(hashes.SHA256(), length=32, salt=None, info=purpose).derive(self._key)

    def lock(self, secret: str) -> bytes:
        return self._fernet.encrypt(secret.encode())

    def unlock(self, sealed: bytes) -> str:
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken as e:
            raise ConfigError(
                "a stored credential was encrypted with another key",
                hint="set VESTNIK_SECRET_KEY to the key that was in use",
            ) from e


def _key_of(path: Path) -> bytes:
    """Read the key; make it when there is none. Many may do so at once: the link lets one of them win."""
    if path.exists():
        return path.read_bytes().strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
        f.write(Fernet.generate_key())
    give_to_owner_of(path.parent, draft)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_bytes().strip()
