"""Telegram's inline keyboards."""

from __future__ import annotations

from typing import Any

from vestnik.sandbox.telegram_html import checked_link
from vestnik.sandbox.telegram_wire import Refused

MOST_BUTTONS = 100
_OTHER_BUTTONS = frozenset(
    {"web_app", "login_url", "switch_inline_query", "switch_inline_query_current_chat", "copy_text", "pay"}
)


def read_buttons(markup: dict[str, Any]) -> list[list[dict[str, str]]]:
    rows = markup.get("inline_keyboard") or []
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise Refused(400, "Bad Request: can't parse inline keyboard: must be an Array of Arrays", "bad_keyboard")
    if sum(len(row) for row in rows) > MOST_BUTTONS:
        raise Refused(400, "Bad Request: reply markup is too long", "bad_keyboard")
    return [[_button(button) for button in row] for row in rows]


def _button(button: Any) -> dict[str, str]:
    said = "Bad Request: can't parse inline keyboard button: "
    if not isinstance(button, dict) or not isinstance(button.get("text"), str) or not button["text"]:
        raise Refused(400, said + 'Field "text" must be of type String', "bad_keyboard")
    if "callback_data" in button:
        if not 1 <= len(str(button["callback_data"]).encode()) <= 64:
            raise Refused(400, "Bad Request: BUTTON_DATA_INVALID", "bad_keyboard")
    elif "url" in button:
        if not checked_link(str(button["url"])):
            wrong = f"inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL"
            raise Refused(400, f"Bad Request: {wrong}", "bad_keyboard")
    elif not _OTHER_BUTTONS & set(button):
        raise Refused(400, said + "Text buttons are unallowed in the inline keyboard", "bad_keyboard")
    return {key: str(button[key]) for key in ("text", "url", "callback_data") if key in button}
