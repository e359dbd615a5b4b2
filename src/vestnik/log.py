"""Structured logs: each line has a stable ``action`` and its ids as fields, never formatted into the text."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

import structlog

from vestnik.redaction import redact_value

Log = structlog.stdlib.BoundLogger


def configure(level: str = "info", form: str = "text") -> None:
    # The pool warns of every connection that it cannot make; those who wait for one say so once, and in our form.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    renderer: Any = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            _with_ids,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redacted,
            structlog.processors.EventRenamer("action"),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


_ABOUT: ContextVar[Mapping[str, Any]] = ContextVar("about")


def about(**ids: Any) -> None:
    """What the lines of this task are about, from now on: ``workspace_id``, ``trace_id`` and the like."""
    _ABOUT.set({**_ABOUT.get({}), **ids})


def _with_ids(logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {**_ABOUT.get({}), **event}


def _redacted(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """What others said, and tracebacks, may quote anything."""
    redacted: dict[str, Any] = redact_value(line)
    return redacted


def get_log(**fields: Any) -> Any:
    return structlog.get_logger(**fields)
