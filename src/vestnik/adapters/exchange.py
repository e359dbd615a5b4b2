"""The last call of a send as it went over the wire, for whoever keeps what a platform answered in full.

Written down only while somebody records, and without what opens doors: the token is cut out, and so are the headers that
carry one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

_DOORS = ("authorization", "cookie", "token", "secret", "api-key", "auth")


@dataclass(slots=True)
class Exchange:
    """``body`` is at most what the adapter reads of an answer."""

    method: str
    path: str
    secret: str = field(repr=False)
    request: Any = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def told(self) -> dict[str, Any]:
        """What was asked and what came back."""
        answer = {"status": self.status, "headers": _without_doors(self.headers), "body": self._readable()}
        return {
            "request": {"method": self.method, "path": self._cleaned(self.path), "body": self._deeply(self.request)},
            "answer": answer if self.status is not None else None,
        }

    def _readable(self) -> str:
        return self._cleaned(self.body.decode("utf-8", "replace"))

    def _cleaned(self, text: str) -> str:
        for form in {self.secret, quote(self.secret, safe=""), quote(self.secret)} - {""}:
            text = text.replace(form, "***")
        return text

    def _deeply(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._cleaned(value)
        if isinstance(value, Mapping):
            return {key: self._deeply(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._deeply(item) for item in value]
        return value


@dataclass(slots=True)
class Tape:
    last: Exchange | None = None


_TAPE: ContextVar[Tape | None] = ContextVar("exchange", default=None)


@contextmanager
def recording() -> Iterator[Tape]:
    """Of this task, and of those that it starts meanwhile."""
    tape = Tape()
    before = _TAPE.set(tape)
    try:
        yield tape
    finally:
        _TAPE.reset(before)


def asked(method: str, path: str, secret: str, request: Any) -> None:
    if (tape := _TAPE.get()) is not None:
        tape.last = Exchange(method, path, secret, request)


def answered(status: int, headers: Mapping[str, str], body: bytes) -> None:
    if (tape := _TAPE.get()) is not None and tape.last is not None:
        tape.last.status, tape.last.headers, tape.last.body = status, headers, body


def _without_doors(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not any(door in name.lower() for door in _DOORS)}
