"""Where full payloads lie: one sealed object each, under the day that it was made."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from vestnik.autopost.payloads.sealing import Seal
from vestnik.errors import NotFound
from vestnik.storage import ObjectNotFound, ObjectStore

FOLDER = "payloads"
LARGEST = 1 << 20  # of the content, before it is compressed; an object is never larger than this and a little
_REF = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Vault:
    def __init__(self, store: ObjectStore, seal: Seal) -> None:
        self.store, self._seal = store, seal

    async def put(self, workspace_id: str, document: Mapping[str, Any]) -> str:
        """Returns the name under which it lies; StorageError when it does not."""
        payload_ref = new_ref()
        sealed = self._seal.close(workspace_id, payload_ref, _content(document))
        await self.store.put(path_of(workspace_id, payload_ref), _once(sealed))
        return payload_ref

    async def get(self, workspace_id: str, payload_ref: str) -> bytes:
        """NotFound when its time is over, StorageError, PayloadUnreadable."""
        if not is_ref(payload_ref):
            raise NotFound(f"no payload {payload_ref!r}")
        sealed = bytearray()
        try:
            async for chunk in self.store.get(path_of(workspace_id, payload_ref)):
                sealed += chunk
        except ObjectNotFound:
            raise NotFound(f"the payload {payload_ref} is not kept any more") from None
        return self._seal.open(workspace_id, payload_ref, bytes(sealed))


def new_ref(now: float | None = None) -> str:
    """A UUID of version 7: it carries its moment, so nothing else must be asked to know how old an object is."""
    milliseconds = round((time.time() if now is None else now) * 1000)
    drawn = secrets.randbits(74)
    number = milliseconds << 80 | 7 << 76 | (drawn >> 62) << 64 | 2 << 62 | drawn & (1 << 62) - 1
    return str(UUID(int=number))


def is_ref(text: str) -> bool:
    return _REF.fullmatch(text) is not None


def made_at(payload_ref: str) -> datetime:
    return datetime.fromtimestamp((UUID(payload_ref).int >> 80) / 1000, UTC)


def path_of(workspace_id: str, payload_ref: str) -> str:
    return f"{FOLDER}/{workspace_id}/{made_at(payload_ref):%Y-%m-%d}/{payload_ref}"


def _content(document: Mapping[str, Any]) -> bytes:
    content = json.dumps(document, ensure_ascii=False, indent=1, default=str).encode("utf-8", "replace")
    if len(content) > LARGEST:
        note = f"\n… cut: {len(content)} bytes in all\n".encode()
        content = content[: LARGEST - len(note)] + note
    return content


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
