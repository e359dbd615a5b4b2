"""How MAX says no."""

from __future__ import annotations

import math
from typing import Any

from aiohttp import web

from vestnik.sandbox.faults import Fault
from vestnik.sandbox.state import Platform

NOT_READY = "attachment.not.ready"
_SAID = {
    400: ("proto.payload", "Invalid request"),
    401: ("verify.token", "Invalid access_token"),
    403: ("chat.denied", "Key: error.dialog.suspended"),
    404: ("not.found", "Chat not found"),
    405: ("method.not.allowed", "Method not allowed"),
    429: ("too.many.requests", "Too many requests"),
    500: ("internal.error", "Internal error"),
    503: ("service.unavailable", "Service unavailable"),
}


class Refused(Exception):
    """A no of the API. ``violation`` names the rule that the caller broke, for the counters."""

    def __init__(
        self,
        status: int,
        message: str | None = None,
        violation: str | None = None,
        *,
        code: str | None = None,
        wait: float | None = None,
    ) -> None:
        usual = _SAID.get(status, ("error", "Error"))
        self.status = status
        self.code = code or usual[0]
        self.message = message or usual[1]
        self.violation = violation
        self.wait = wait
        super().__init__(self.message)

    def response(self) -> web.Response:
        headers = {} if self.wait is None else {"Retry-After": str(math.ceil(self.wait))}
        body = {"code": self.code, "message": self.message}
        return web.json_response(body, status=self.status, headers=headers)


class MaxVoice:
    def error(self, status: int, fault: Fault) -> web.Response:
        return Refused(status, fault.message, code=fault.code, wait=fault.retry_after).response()

    def no(self, fault: Fault) -> web.Response:
        if fault.kind == "not_ready":
            return not_ready(fault.message).response()
        body: dict[str, Any] = {"success": False, "message": fault.message or "Message was not sent"}
        return web.json_response({**body, "code": fault.code} if fault.code else body)


def not_ready(message: str | None = None) -> Refused:
    return Refused(400, message or "Key: errors.process.attachment.file.not.processed", code=NOT_READY)


def refuse(platform: Platform, e: Refused) -> web.Response:
    platform.counters[f"refused.{e.status}"] += 1
    if e.violation:
        platform.violations[e.violation] += 1
    return e.response()
