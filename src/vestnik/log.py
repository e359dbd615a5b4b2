"""Structured logs: each line has a stable ``action`` and its ids as fields, never formatted into the text."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

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
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("action"),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_log(**fields: Any) -> Any:
    return structlog.get_logger(**fields)
