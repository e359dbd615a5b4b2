"""Addresses as sources write them, made into such as can be followed."""

from __future__ import annotations

import re
from urllib.parse import quote, urljoin, urlsplit

_WEB = re.compile(r"https?://[^\s/?#<>]+[^\s<>]*", re.IGNORECASE)
_UNSAFE = re.compile(r"[\s<>\"\x00-\x1f\x7f]")
_LINKS = {"http", "https", "mailto", "tel", "tg"}


def web_address(text: str, base: str = "") -> str | None:
    """An absolute http or https address, or None."""
    address = absolute(text, base)
    return address if address and _WEB.fullmatch(address) else None


def link_address(text: str, base: str = "") -> str | None:
    """What a link in a text may lead to: the web, a mail address, a telephone, a chat."""
    address = absolute(text, base)
    if not address:
        return None
    scheme = address.partition(":")[0].lower()
    if scheme in ("http", "https"):
        return address if _WEB.fullmatch(address) else None
    return address if scheme in _LINKS else None


def absolute(text: str, base: str) -> str | None:
    try:
        address = urljoin(base, text.strip()) if base else text.strip()
        urlsplit(address)
    except ValueError:
        return None
    return _UNSAFE.sub(lambda found: quote(found[0]), address)
