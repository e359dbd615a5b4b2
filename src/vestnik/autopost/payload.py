"""The edge's look at a payload: only what would die in the cast to jsonb. Its shape is judged in SQL (normalize.sql),
so that psql, n8n and HTTP get the same answers."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from vestnik.errors import InvalidPayload

MAX_DEPTH = 32


def screen(body: bytes) -> str:
    """The body as text, or InvalidPayload: JSON, no NUL, no half characters, no depth beyond any use."""
    try:
        payload = from_json(body, allow_inf_nan=False)
        text = body.decode()
    except ValueError as e:
        raise InvalidPayload([f"payload: not JSON: {e}"]) from None
    if not isinstance(payload, dict):
        raise InvalidPayload(["payload: must be a JSON object"])
    _refuse_depth(payload)
    if "\\u0000" in text:
        _refuse_nul(payload)
    return text


def _refuse_depth(payload: Any) -> None:
    level = [payload]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise InvalidPayload([f"payload: nested more than {MAX_DEPTH} deep"])


def _refuse_nul(payload: Any) -> None:
    waiting = [payload]
    while waiting:
        node = waiting.pop()
        texts = [*node.keys(), *node.values()] if isinstance(node, dict) else node
        if any(isinstance(text, str) and "\0" in text for text in texts):
            raise InvalidPayload(["payload: a text contains a NUL character"])
        waiting.extend(_children(node))


def _children(node: Any) -> list[Any]:
    found = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [child for child in found if isinstance(child, dict | list)]
