"""MAX's inline keyboards."""

from __future__ import annotations

from typing import Any

from vestnik.sandbox.max_wire import Refused

_WIDE = frozenset({"link", "open_app", "request_geo_location", "request_contact"})
_KINDS = frozenset({*_WIDE, "callback", "message", "clipboard"})
MOST_ROWS, MOST_BUTTONS = 30, 210


def read_keyboard(payload: Any) -> list[list[dict[str, str]]]:
    given = payload.get("buttons") if isinstance(payload, dict) else None
    if not isinstance(given, list) or not given or not all(isinstance(row, list) for row in given):
        raise Refused(400, "Field 'buttons' cannot be empty", "bad_keyboard")
    if len(given) > MOST_ROWS or sum(len(row) for row in given) > MOST_BUTTONS:
        raise Refused(400, "Keyboard has too many rows or buttons", "bad_keyboard")
    return [_row(row) for row in given]


def _row(row: list[Any]) -> list[dict[str, str]]:
    buttons = [_button(button) for button in row]
    widest = 3 if any(button["type"] in _WIDE for button in buttons) else 7
    if len(buttons) > widest:
        raise Refused(400, f"Too many buttons in a row, at most {widest}", "bad_keyboard")
    return buttons


def _button(button: Any) -> dict[str, str]:
    if not isinstance(button, dict) or button.get("type") not in _KINDS:
        raise Refused(400, "Unknown button type", "bad_keyboard")
    if not 1 <= len(str(button.get("text") or "")) <= 128:
        raise Refused(400, "Button text: size must be between 1 and 128", "bad_keyboard")
    if button["type"] == "link":
        url = str(button.get("url") or "")
        if not url.startswith(("http://", "https://")) or len(url) > 2048:
            raise Refused(400, "Must have only http/https links format in buttons", "bad_keyboard")
    if button["type"] == "callback" and not 1 <= len(str(button.get("payload") or "")) <= 1024:
        raise Refused(400, "Field 'payload' cannot be null", "bad_keyboard")
    return {key: str(button[key]) for key in ("type", "text", "url", "payload") if key in button}
