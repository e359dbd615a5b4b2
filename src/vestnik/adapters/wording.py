"""A post's text as one platform takes it: whole, in parts, or cut with a link to the rest."""

from __future__ import annotations

from vestnik.adapters.classify import refused
from vestnik.adapters.contract import SendError, SendMeta
from vestnik.adapters.markup import convert_for
from vestnik.adapters.markup.measure import measure
from vestnik.adapters.markup.split import CannotCut, split_text, truncate_text

Wording = tuple[str, str | None]
"""(text, the platform's own parse mode)"""


def check_version(platform: str, meta: SendMeta) -> None:
    """A plan is pinned together with its texts, also where there are none."""
    convert_for(platform, "", meta)


def whole(platform: str, text: str, meta: SendMeta, limit: int) -> Wording | None:
    """The text in the platform's form if it is within the limit, as that platform counts."""
    body, parse_mode = convert_for(platform, text, meta)
    # Nothing counts for more than two units a character: short texts need no measuring.
    if 2 * len(body) <= limit or measured(platform, text, meta) <= limit:
        return body, parse_mode
    return None


def worded(platform: str, text: str, meta: SendMeta, limit: int) -> list[Wording]:
    """The texts of the messages that it takes, by the channel's policy for what is too long for one."""
    fitting = whole(platform, text, meta, limit)
    if fitting is not None:
        if text.strip() and not fitting[0].strip():
            reason = "nothing is left of the text once its markup is taken away"
            raise refused(platform, "delivery", "validation_failed", reason)
        return [fitting]
    lacking = ""
    try:
        if meta.long_text == "split":
            return split_text(text, meta.parse_mode, platform, limit, meta.converter)
        if meta.long_text == "truncate_with_link" and meta.more_link:
            return [truncate_text(text, meta.parse_mode, platform, limit, meta.more_link, meta.converter)]
        if meta.long_text == "truncate_with_link":
            lacking = ", and no link to the whole of it is known"
    except CannotCut:
        lacking = ", and an address in it is too long for any part"
    raise too_long(platform, "text", text, meta, limit, lacking)


def captioned(platform: str, text: str, meta: SendMeta, limit: int, place: int) -> Wording:
    """An item's own caption, which is never cut."""
    fitting = whole(platform, text, meta, limit)
    if fitting is None:
        raise too_long(platform, f"caption of item {place + 1}", text, meta, limit)
    return fitting


def too_long(platform: str, what: str, text: str, meta: SendMeta, limit: int, more: str = "") -> SendError:
    length = measured(platform, text, meta)
    return refused(
        platform, "delivery", "validation_failed", f"the {what} is too long: {length} of {limit} characters{more}"
    )


def measured(platform: str, text: str, meta: SendMeta) -> int:
    return measure(text, meta.parse_mode, platform, meta.converter)
