"""From an entry of a feed to the payload of a post."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any, Final

from vestnik.autopost.sources.feeds.attachments import media_type
from vestnik.autopost.sources.feeds.entries import Attachment, Body, Entry, Feed
from vestnik.autopost.sources.template import Form, Template, as_text, expression
from vestnik.autopost.sources.tidy import escaped, tidy
from vestnik.autopost.sources.web.addresses import web_address

if TYPE_CHECKING:
    from vestnik.autopost.sources.rss import RssConfig

_IMAGE: Final = re.compile(r"<img\b[^>]*>", re.IGNORECASE)
_ATTRIBUTE: Final = re.compile(r"(?<![a-z-])([a-z-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)
_LONGEST_TAG, _MOST_TAGS = 64, 64


def entry_payload(config: RssConfig, feed: Feed, entry: Entry) -> dict[str, Any]:
    link = web_address(entry.link, entry.base)
    payload: dict[str, Any] = {"parse_mode": "HTML", "text": _text(config, feed, entry, link)}
    if link and config.link == "text":
        payload["links"] = [link]
    elif link and config.link == "button":
        payload["buttons"] = [[{"text": config.button_text, "url": link}]]
    payload["media"] = _media(config, entry)
    payload["tags"] = _tags(config, entry)
    return {name: value for name, value in payload.items() if value}


def _text(config: RssConfig, feed: Feed, entry: Entry, link: str | None) -> str:
    if config.text:
        return _filled(config.text, feed, entry, link)
    title = f"<b>{escaped(entry.title)}</b>" if entry.title else ""
    if config.content == "title":
        return title or _html(_summary(entry))
    body = _html(_full(entry) if config.content == "full" else _summary(entry))
    return "\n\n".join(part for part in (title, body) if part)


def _filled(text: str, feed: Feed, entry: Entry, link: str | None) -> str:
    template = expression(text)
    if not isinstance(template, Template):
        return text
    bodies = {"summary": _html(_summary(entry)), "full": _html(_full(entry))}
    words = {
        "title": entry.title,
        "link": link or "",
        "author": entry.author,
        "feed": feed.title,
        "categories": ", ".join(entry.categories),
    }
    record = bodies | {name: escaped(value) for name, value in words.items()}

    def shown(value: Any, _: Form) -> str:
        return as_text(value)

    return re.sub(r"\n{3,}", "\n\n", template.filled(record, shown)).strip()


FIELDS: Final = frozenset({"title", "summary", "full", "link", "author", "feed", "categories"})


def _summary(entry: Entry) -> Body | None:
    return entry.summary or entry.content


def _full(entry: Entry) -> Body | None:
    return entry.content or entry.summary


def _html(body: Body | None) -> str:
    if body is None:
        return ""
    return tidy(body.text, body.base) if body.html else escaped(body.text.strip())


def _tags(config: RssConfig, entry: Entry) -> list[str]:
    """What is too long for a tag is a sentence that somebody wrote into the wrong field."""
    categories = [name.strip() for name in entry.categories] if config.categories_as_tags else []
    usable = [name for name in categories if 0 < len(name) <= _LONGEST_TAG]
    return list(dict.fromkeys([*config.tags, *usable]))[:_MOST_TAGS]


def _media(config: RssConfig, entry: Entry) -> list[dict[str, str]]:
    if config.media == "none":
        return []
    found = _usable(entry, [*(each for each in entry.attachments if not each.preview), *_images(entry)])
    # A preview is the picture of an entry that has no other.
    found = found or _usable(entry, [each for each in entry.attachments if each.preview])[:1]
    return found[:1] if config.media == "first" else found


def _usable(entry: Entry, attachments: list[Attachment]) -> list[dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for attachment in attachments:
        url = web_address(attachment.url, entry.base)
        kind = media_type(url, attachment.mime, attachment.medium) if url else None
        if url and kind:
            found.setdefault(url, {"type": kind, "url": url})
    return list(found.values())


def _images(entry: Entry) -> list[Attachment]:
    """The pictures in the texts, but for those that only count readers."""
    bodies = [body for body in (entry.content, entry.summary) if body and body.html]
    tags = [(body, image) for body in bodies for image in _IMAGE.findall(body.text)]
    images = [_image(image, body.base) for body, image in tags]
    return [image for image in images if image]


def _image(tag: str, base: str) -> Attachment | None:
    attributes = {name.lower(): unescape(a or b or c) for name, a, b, c in _ATTRIBUTE.findall(tag)}
    source = attributes.get("src", "")
    if not source or source.startswith("data:"):
        source = attributes.get("data-src", "")  # shown only when scrolled to
    url = web_address(source, base)
    if url is None or {attributes.get("width"), attributes.get("height")} & {"0", "1"}:
        return None
    return Attachment(url, medium="" if media_type(url) in ("animation", None) else "image")
