"""A platform of a running sandbox, and the built-in adapter for it, as the conformance suite wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from depot import MemoryDepot

from vestnik.adapters import max, telegram
from vestnik.adapters.contract import Adapter, AdapterContext, Channel, CreateAdapter, MediaItem
from vestnik.sandbox.faults import parse_faults
from vestnik.sandbox.server import Sandbox

CREATE: dict[str, CreateAdapter] = {"telegram": telegram.create, "max": max.create}
LONGEST = {"telegram": 4096, "max": 4000}
LARGEST = {"telegram": 50 * 1024 * 1024, "max": 100 * 1024 * 1024}  # as far as a test of memory needs it
EXPIRED = {
    "telegram": {"message": "Bad Request: wrong file identifier/HTTP URL specified"},
    "max": {"code": "attachment.expired", "method": "messages"},
}
CHAT = "-1001"


class SandboxRig:
    """One platform of a running sandbox, without its rate limits, which are not what is tested."""

    def __init__(
        self, sandbox: Sandbox, platform: str, *, name: str | None = None, create: CreateAdapter | None = None
    ) -> None:
        """``name`` and ``create`` are those of an adapter of your own that speaks to this platform."""
        self.name, self.create = name or platform, create or CREATE[platform]
        self.sandbox = sandbox
        self.platform = sandbox.state.platforms[platform]
        self.token = "1000001:SECRET-token_of_the_bot"
        self.channel = Channel("ws", "ch", self.name, CHAT, "main", "main")
        self.longest_text = LONGEST[platform]
        self.largest_file = LARGEST[platform]
        self.depot = MemoryDepot()
        self.url = f"{sandbox.url}/{platform}"
        self._adapters: list[Adapter] = []
        self.platform.add_token(self.token, "bot")
        self.chat = self.platform.add_chat(CHAT, title="News", threads=frozenset({7}))
        self.platform.limits.chat_rps = self.platform.limits.token_rps = None

    def adapter(
        self,
        *,
        timeout: float = 5.0,
        base_url: str | None = None,
        ca_file: Path | None = None,
        connections: int = 8,
        token: str | None = None,
        media: bool = True,
    ) -> Adapter:
        async def secret(workspace_id: str, platform: str, auth_ref: str) -> str:
            assert (workspace_id, platform, auth_ref) == ("ws", self.name, "main")
            return self.token if token is None else token

        context = AdapterContext(
            secret=secret,
            base_urls={self.name: base_url or self.url},
            ca_files={} if ca_file is None else {self.name: ca_file},
            timeout=timeout,
            connections=connections,
            depot=self.depot if media else None,
        )
        self._adapters.append(self.create(context))
        return self._adapters[-1]

    def fault(self, kind: str, **fault: Any) -> None:
        self.platform.faults[:] = parse_faults({"kind": kind, **fault})

    def fault_of_messages(self, kind: str, **fault: Any) -> None:
        # A file of MAX's is uploaded by calls of its own, which are not meant.
        of_messages = {"method": "messages"} if self.platform.name == "max" else {}
        self.fault(kind, **of_messages, **fault)

    def fault_of_expired_media(self) -> None:
        self.fault("400", **EXPIRED[self.platform.name])

    def heal(self) -> None:
        self.platform.faults.clear()

    def known_media(self, handle: str) -> MediaItem:
        return MediaItem("image", **{"file_id" if self.platform.name == "telegram" else "attachment_token": handle})

    def uploads(self) -> int:
        return self.platform.counters["uploads"]

    def posts(self) -> list[dict[str, Any]]:
        return [post.as_json() for post in self.chat.posts]

    def connections(self) -> int:
        return self.sandbox.connections

    async def close(self) -> None:
        for adapter in self._adapters:
            await adapter.close()
