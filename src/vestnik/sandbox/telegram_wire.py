"""What a call of the Bot API brings, and how it is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from vestnik.sandbox.faults import Fault
from vestnik.sandbox.media import Upload
from vestnik.sandbox.multipart import BadForm, read_form
from vestnik.sandbox.state import Platform, State, Token
from vestnik.sandbox.strict_json import loads

_SAID = {
    400: "Bad Request: chat not found",
    401: "Unauthorized",
    403: "Forbidden: bot is not a member of the channel chat",
    404: "Not Found",
    409: "Conflict: terminated by other getUpdates request",
    413: "Request Entity Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Refused(Exception):
    """A no of the API. ``violation`` names the rule that the caller broke, for the counters."""

    def __init__(self, status: int, description: str, violation: str | None = None, **parameters: Any) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.violation = violation
        self.parameters = parameters

    def response(self) -> web.Response:
        body: dict[str, Any] = {"ok": False, "error_code": self.status, "description": self.description}
        if self.parameters:
            body["parameters"] = self.parameters
        return web.json_response(body, status=self.status)


class TelegramVoice:
    def error(self, status: int, fault: Fault) -> web.Response:
        wait = None if fault.retry_after is None else math.ceil(fault.retry_after)
        text = _SAID.get(status, "Bad Request: something is wrong")
        if status == 429:
            text = "Too Many Requests" if wait is None else f"Too Many Requests: retry after {wait}"
        parameters: dict[str, Any] = {} if wait is None else {"retry_after": wait}
        return Refused(status, fault.message or text, **parameters).response()

    def no(self, fault: Fault) -> web.Response:
        text = fault.message or "Bad Request: message can't be sent"
        return web.json_response({"ok": False, "error_code": 400, "description": text})


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: who asks, for what, with which files."""

    state: State
    platform: Platform
    token: Token
    params: dict[str, Any]
    uploads: dict[str, Upload]


async def read_params(request: web.Request) -> tuple[dict[str, Any], dict[str, Upload]]:
    """The parameters from wherever they may come, and the files among them."""
    params: dict[str, Any] = dict(request.query)
    uploads: dict[str, Upload] = {}
    if request.content_type == "application/json":
        try:
            body = await request.json(loads=loads)
        except ValueError:
            raise Refused(400, "Bad Request: can't parse JSON object", "bad_json") from None
        params.update(body if isinstance(body, dict) else {})
    elif request.content_type == "multipart/form-data":
        try:
            form = await read_form(request)
        except BadForm as e:
            raise Refused(400, f"Bad Request: {e}", "bad_form") from None
        params.update(form.texts)
        uploads = form.files
    elif request.can_read_body:
        params.update(await request.post())
    return params, uploads


def read_object(value: Any) -> dict[str, Any]:
    """A nested object, which a form carries as a JSON text."""
    if isinstance(value, str) and value:
        try:
            value = loads(value)
        except ValueError:
            raise Refused(400, "Bad Request: object expected as reply markup", "bad_json") from None
    return value if isinstance(value, dict) else {}


def read_list(value: Any) -> list[Any]:
    if isinstance(value, str) and value:
        try:
            value = loads(value)
        except ValueError:
            raise Refused(400, "Bad Request: array expected", "bad_json") from None
    return value if isinstance(value, list) else []


def is_true(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "1")
