"""No request's body is read beyond the limit of this server, nor waited for without end. The push door has limits of its own."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vestnik.api.problems import problem

PATIENCE = 60.0  # seconds for the whole of a body


class BodySize:
    def __init__(self, app: ASGIApp, *, limit: int, except_paths: frozenset[str] = frozenset()) -> None:
        self._app, self._limit, self._except = app, limit, except_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._except:
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self._limit:
            await problem(413, self._detail)(scope, receive, send)
            return
        left, whole, until = self._limit, False, asyncio.get_running_loop().time() + PATIENCE

        async def measured() -> Message:
            nonlocal left, whole
            if whole:  # what comes now is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "The body did not come in time.", {"Connection": "close"}) from None
            whole = not message.get("more_body", False)
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, self._detail)
            return message

        await self._app(scope, measured, send)

    @property
    def _detail(self) -> str:
        return f"The body is larger than {self._limit} bytes."
