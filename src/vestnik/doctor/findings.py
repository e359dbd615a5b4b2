"""What a check says: one line, and the way out where something is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from vestnik.adapters.contract import Adapter
from vestnik.db.pool import Pool, call
from vestnik.errors import VestnikError

Status = Literal["ok", "warn", "fail", "skipped"]
WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "skipped", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """``subject`` is what of many things was looked at; the name of the check is put in by who runs it."""

    status: Status
    said: str
    fix: str | None = None
    subject: str | None = None
    workspace_id: str | None = None
    check: str = ""

    def as_row(self) -> dict[str, Any]:
        named = ("check", "status", "workspace_id", "subject", "said", "fix")
        return {name: getattr(self, name) for name in named}


def ok(said: str, *, workspace_id: str | None = None, subject: str | None = None) -> Finding:
    return Finding("ok", said, None, subject, workspace_id)


def warn(said: str, fix: str, *, workspace_id: str | None = None, subject: str | None = None) -> Finding:
    return Finding("warn", said, fix, subject, workspace_id)


def fail(said: str, fix: str, *, workspace_id: str | None = None, subject: str | None = None) -> Finding:
    return Finding("fail", said, fix, subject, workspace_id)


def skipped(said: str, *, workspace_id: str | None = None, subject: str | None = None) -> Finding:
    return Finding("skipped", said, None, subject, workspace_id)


def refused(error: VestnikError, fix: str, **of: str | None) -> Finding:
    """An error of ours is a sentence for people, and mostly knows the way out itself."""
    return fail(str(error), error.hint or fix, **of)


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined: everything, or one workspace. ``offline``: nobody outside is asked."""

    pool: Pool
    adapters: Mapping[str, Adapter]
    workspace_id: str | None = None
    offline: bool = False
    most_channels: int = 100  # of each credential whose rights are asked for

    async def rows(self, query: Any, *arguments: Any) -> list[dict[str, Any]]:
        return await call(self.pool, query, arguments)

    async def value(self, query: Any, *arguments: Any) -> Any:
        return next(iter((await self.rows(query, *arguments))[0].values()))


Looked: TypeAlias = Finding | Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """``outside``: it asks somebody else than the database and this machine. ``patience`` is in seconds."""

    name: str
    look: Callable[[Patient], Awaitable[Looked]]
    outside: bool = False
    patience: float = 15.0
    needs_database: bool = True


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
