"""MAX: what its answers mean. Some refusals come as HTTP 200 with ``success: false``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vestnik.adapters.classify import Refusal, bad_answer, classify
from vestnik.adapters.http import Answer, part, scalars
from vestnik.adapters.max_plan import PLATFORM
from vestnik.adapters.series import Made


def made(answer: Answer) -> Made:
    """The message that was posted."""
    message = part(checked(answer), "message")
    body, recipient = part(message, "body"), part(message, "recipient")
    mid = body.get("mid")
    if not isinstance(mid, str) or not mid:
        raise bad_answer(PLATFORM, answer.status, answer.text)
    raw = scalars(
        mid=mid,
        seq=body.get("seq"),
        chat_id=recipient.get("chat_id"),
        timestamp=message.get("timestamp"),
    )
    return Made([mid], raw)


def checked(answer: Answer) -> Mapping[str, Any]:
    """The body of a yes; an error body is ``{code, message}``, ``success: false`` brings a message alone."""
    data = answer.data or {}
    if answer.status == 200 and data.get("success") is not False and "code" not in data:
        return data
    code, message = data.get("code"), data.get("message")
    raise classify(
        Refusal(
            platform=PLATFORM,
            status=answer.status,
            text=message if isinstance(message, str) else answer.text,
            code=code if isinstance(code, str) else "",
            retry_after=answer.retry_after,
        )
    )
