"""Telegram's answers about a bot: what it may do in a chat, and where its updates go."""

from __future__ import annotations

import re
from typing import Any

from vestnik.sandbox.state import Chat, Hook
from vestnik.sandbox.telegram_messages import find_chat
from vestnik.sandbox.telegram_objects import bot_object
from vestnik.sandbox.telegram_wire import Asked, Refused, read_list

MOST_URL = 2048
_STATUS = {"owner": "creator", "silent": "administrator", "left": "left"}
_RIGHTS_IN_GROUPS = ("can_pin_messages", "can_manage_topics")
_RIGHTS_IN_CHANNELS = ("can_post_messages", "can_edit_messages")
_RIGHTS = (
    *("can_manage_chat", "can_delete_messages", "can_manage_video_chats", "can_restrict_members"),
    *("can_promote_members", "can_change_info", "can_invite_users"),
)


def get_chat_member(asked: Asked) -> dict[str, Any]:
    """Only of bots themselves: the sandbox has no other members."""
    chat, user_id = find_chat(asked), str(asked.params.get("user_id", ""))
    token = next((each for each in asked.platform.tokens.values() if str(each.number) == user_id), None)
    if token is None:
        raise Refused(400, "Bad Request: PARTICIPANT_ID_INVALID")
    if chat.kind == "channel" and chat.bot == "member":
        raise Refused(400, "Bad Request: member list is inaccessible")
    if chat.kind == "channel" and chat.bot == "left":
        raise Refused(403, "Forbidden: bot is not a member of the channel chat")
    return {"user": bot_object(token), **_membership(chat)}


def _membership(chat: Chat) -> dict[str, Any]:
    if chat.bot == "silent" and chat.kind != "channel":
        return {"status": "restricted", "is_member": True, "can_send_messages": False, "until_date": 0}
    status = _STATUS.get(chat.bot, chat.bot)
    if status != "administrator":
        return {"status": status, "is_anonymous": False} if status == "creator" else {"status": status}
    granted = (*_RIGHTS, *(_RIGHTS_IN_CHANNELS if chat.kind == "channel" else _RIGHTS_IN_GROUPS))
    rights = dict.fromkeys(granted, True)
    if chat.bot == "silent":
        rights["can_post_messages"] = False
    return {"status": status, "can_be_edited": False, "is_anonymous": False, **rights}


def get_webhook_info(asked: Asked) -> dict[str, Any]:
    hook = next(iter(asked.token.hooks.values()), None)
    if hook is None:
        return {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
    info = {
        "url": hook.url,
        "has_custom_certificate": False,
        "pending_update_count": hook.pending,
        "max_connections": 40,
    }
    if hook.error:
        info |= {"last_error_date": int(hook.error_at or hook.at), "last_error_message": hook.error}
    if hook.update_types is not None:
        info["allowed_updates"] = hook.update_types
    return info


def set_webhook(asked: Asked) -> bool:
    url = str(asked.params.get("url", ""))
    if not url:
        return delete_webhook(asked)
    if len(url) > MOST_URL or not re.fullmatch(r"https://[^\s/:]+(:(443|80|88|8443))?(/\S*)?", url):
        raise Refused(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook", "bad_webhook")
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,256}", str(asked.params.get("secret_token") or "")):
        raise Refused(400, "Bad Request: secret token contains unallowed characters", "bad_webhook")
    types = [str(each) for each in read_list(asked.params.get("allowed_updates"))][:100]
    asked.token.hooks.clear()
    asked.token.hooks[url] = Hook(url, asked.state.clock.time(), types or None)
    return True


def delete_webhook(asked: Asked) -> bool:
    asked.token.hooks.clear()
    return True
