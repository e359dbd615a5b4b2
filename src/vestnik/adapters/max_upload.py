"""MAX: one file becomes a token. Nothing is posted here, so no failure leaves an outcome unknown.

MAX names an address, the bytes go there as a form without our token, and the answer to either step brings the
token: that of the first counts where it is given, for the second may then be XML, or nothing that can be read.
What the upload host refuses is never the channel's fault: its addresses expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vestnik.adapters.classify import Refusal, bad_answer, classify
from vestnik.adapters.contract import Resolved, SendError
from vestnik.adapters.http import Answer, PlatformHttp, part
from vestnik.adapters.max_answers import checked
from vestnik.adapters.max_plan import PLATFORM
from vestnik.adapters.multipart import file_of

FIELD = "data"


async def upload(http: PlatformHttp, token: str, resolved: Resolved, media_type: str) -> str:
    """The file's token."""
    try:
        return await _upload(http, token, resolved, media_type)
    except SendError as e:
        failure = e
    failure.raw = {**failure.raw, "outcome": "not_sent"}
    raise failure


async def _upload(http: PlatformHttp, token: str, resolved: Resolved, media_type: str) -> str:
    session = await http.post(
        "/uploads", secret=token, json=None, params={"type": media_type}, headers={"Authorization": token}
    )
    told = checked(session)
    address = told.get("url")
    if not isinstance(address, str):
        raise bad_answer(PLATFORM, session.status, session.text)
    answer = await http.upload(address, http.form({}, [file_of(FIELD, resolved)]), secret=token)
    if answer.status != 200:
        raise _refused(answer)
    found = _text(told.get("token")) or _token(answer.data or {})
    if found is None:
        raise _refused(answer) if _says_no(answer.data or {}) else bad_answer(PLATFORM, answer.status, answer.text)
    return found


def _token(data: Mapping[str, Any]) -> str | None:
    """An image's is one of ``photos``, all of which are the same picture."""
    photos = [photo for photo in part(data, "photos").values() if isinstance(photo, dict)]
    return _text(photos[0].get("token")) if photos else _text(data.get("token"))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _says_no(data: Mapping[str, Any]) -> bool:
    return data.get("success") is False or any(key in data for key in ("code", "error", "error_code", "error_msg"))


def _refused(answer: Answer) -> SendError:
    data = answer.data or {}
    said = next((text for key in ("message", "error_msg", "error") if (text := _text(data.get(key)))), answer.text)
    error = classify(Refusal(PLATFORM, answer.status, said, retry_after=answer.retry_after))
    if error.scope == "channel":  # an address that has expired; the next attempt asks for another
        return SendError(
            category="TRANSIENT", scope="delivery", code="upload_failed", message=error.message, raw=error.raw
        )
    return error
