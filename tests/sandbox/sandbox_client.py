"""Speaking to a running sandbox: both platforms, the admin API, and files to send."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
from PIL import Image

from vestnik.sandbox.server import Sandbox

TOKEN = "42:TOKEN-of-the-bot"
CHAT = "-1001"


def picture(width: int = 4, height: int = 3, form: str = "PNG") -> bytes:
    out = BytesIO()
    Image.new("L", (width, height), 128).save(out, form)
    return out.getvalue()


def form_of(files: dict[str, tuple[str, bytes]], **texts: Any) -> aiohttp.FormData:
    """A form with files: the names of the parts with file name and bytes."""
    form = aiohttp.FormData(quote_fields=False)
    for name, text in texts.items():
        form.add_field(name, str(text))
    for name, (file_name, data) in files.items():
        form.add_field(name, data, filename=file_name, content_type="application/octet-stream")
    return form


@dataclass
class Said:
    status: int
    body: Any
    headers: Any


class Client:
    def __init__(self, sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.session = session

    async def ask(self, method: str, path: str, json: Any = None, **how: Any) -> Said:
        async with self.session.request(method, self.sandbox.url + path, json=json, **how) as answer:
            body = await (answer.json() if answer.content_type == "application/json" else answer.text())
            return Said(answer.status, body, answer.headers)

    async def telegram(self, method: str, token: str = TOKEN, **params: Any) -> Said:
        return await self.ask("POST", f"/telegram/bot{token}/{method}", {"chat_id": CHAT, **params})

    async def upload(self, method: str, files: dict[str, tuple[str, bytes]], token: str = TOKEN, **texts: Any) -> Said:
        """A call of the Bot API with files in it."""
        form = form_of(files, **{"chat_id": CHAT, **texts})
        return await self.ask("POST", f"/telegram/bot{token}/{method}", data=form)

    async def max_place(self, kind: str = "file", token: str = TOKEN) -> Said:
        """Asks MAX where a file may be uploaded to."""
        return await self.ask("POST", f"/max/uploads?type={kind}", headers={"Authorization": token})

    async def max_upload(self, url: str, data: bytes, name: str = "a.bin", field: str = "data") -> Said:
        """To another server: no token goes there."""
        return await self.ask("POST", url.removeprefix(self.sandbox.url), data=form_of({field: (name, data)}))

    async def max_token(self, kind: str = "file", data: bytes = b"abc", name: str = "a.bin", token: str = TOKEN) -> str:
        """A file, uploaded: its token."""
        place = (await self.max_place(kind, token)).body
        told = (await self.max_upload(place["url"], data, name)).body
        photos = told["photos"].values() if kind == "image" else [place if kind in ("video", "audio") else told]
        return str(next(iter(photos))["token"])

    async def max(self, text: str = "a", token: str = TOKEN, chat: str = CHAT, query: str = "", **body: Any) -> Said:
        path = f"/max/messages?chat_id={chat}{query}"
        return await self.ask("POST", path, {"text": text, **body}, headers={"Authorization": token})

    async def admin(self, method: str, path: str, json: Any = None) -> Any:
        return (await self.ask(method, f"/admin/{path}".rstrip("/"), json)).body

    async def posts(self, platform: str, chat: str = CHAT) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.admin("GET", f"{platform}/chats/{chat}/posts")
        return found

    async def violations(self, platform: str) -> dict[str, int]:
        found: dict[str, int] = (await self.admin("GET", platform))["violations"]
        return found
