"""From a record, a row or an object of JSON, to the payload of a post."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, model_validator

from vestnik.autopost.sources.declared import SourceConfig
from vestnik.autopost.sources.feeds.attachments import media_type
from vestnik.autopost.sources.moments import moment_of
from vestnik.autopost.sources.template import (
    Constant,
    Expr,
    Form,
    MappingFailed,
    Path,
    Template,
    as_text,
    expression,
    value_of,
)
from vestnik.autopost.sources.tidy import escaped, tidy
from vestnik.autopost.sources.web.addresses import web_address

ParseMode = Literal["HTML", "Markdown", "None"]
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#~&|^+])")


class ButtonMapping(SourceConfig):
    text: Expr
    url: Expr


class MediaMapping(SourceConfig):
    url: Expr
    type: Literal["image", "video", "audio", "file", "animation"] | None = None
    caption: Expr | None = None


class PostMapping(SourceConfig):
    """``$.path`` takes a value as it is in this parse mode; ``{name}`` puts it into a text as plain words."""

    text: Expr | None = None
    parse_mode: ParseMode = "None"
    disable_preview: bool | None = None
    links: list[Expr] = Field([])
    buttons: list[ButtonMapping] = Field([])
    media: list[MediaMapping] = Field([])
    tags: list[Expr] = Field([])
    scheduled_for: Expr | None = None
    base_url: str = Field("", description="What relative addresses are relative to.")

    @model_validator(mode="after")
    def _something(self) -> PostMapping:
        if not (self.text or self.links or self.media):
            raise ValueError("a post needs text, links or media")
        if self.parse_mode != "HTML" and any("|html" in text for text in _texts(self)):
            raise ValueError("{name|html} needs parse_mode: HTML")
        return self


def payload_of(mapping: PostMapping, record: Any) -> dict[str, Any]:
    """The push payload of one record; MappingFailed says what is missing."""
    payload: dict[str, Any] = {
        "text": _text(mapping, mapping.text, record) if mapping.text else "",
        "links": _addresses(mapping.links, record, mapping.base_url),
        "media": [media for each in mapping.media for media in _media(mapping, each, record)],
    }
    if not any(payload.values()):
        raise MappingFailed("nothing to post: text, links and media are all empty")
    payload |= {
        "parse_mode": mapping.parse_mode,
        "disable_preview": mapping.disable_preview,
        "buttons": [[button] for each in mapping.buttons for button in _button(mapping, each, record)],
        "tags": list(dict.fromkeys(tag for each in mapping.tags for tag in _words(value_of(each, record)))),
        "scheduled_for": _moment(value_of(mapping.scheduled_for, record)) if mapping.scheduled_for else None,
    }
    return {name: value for name, value in payload.items() if value not in ("", [], None)}


def _text(mapping: PostMapping, text: str, record: Any) -> str:
    asked = expression(text)
    if isinstance(asked, Constant):
        return asked.text
    if isinstance(asked, Path):
        whole = as_text(asked.value(record))
        return tidy(whole, mapping.base_url) if mapping.parse_mode == "HTML" else whole.strip()
    return _filled(mapping, asked, record)


def _filled(mapping: PostMapping, template: Template, record: Any) -> str:
    def shown(value: Any, form: Form) -> str:
        if form == "html":
            return tidy(as_text(value), mapping.base_url)
        if mapping.parse_mode == "HTML":
            return escaped(as_text(value))
        return _MARKDOWN.sub(r"\\\1", as_text(value)) if mapping.parse_mode == "Markdown" else as_text(value)

    # What an optional value leaves behind is not a hole in the text.
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", template.filled(record, shown))).strip()


def _addresses(asked: Iterable[str], record: Any, base: str) -> list[str]:
    found = []
    for text in asked:
        for written in _each(value_of(text, record)):
            address = web_address(written, base)
            if address is None:
                raise MappingFailed(f"{written[:80]!r} is not an http or https address")
            found.append(address)
    return list(dict.fromkeys(found))


def _media(mapping: PostMapping, asked: MediaMapping, record: Any) -> list[dict[str, str]]:
    addresses = _addresses([asked.url], record, mapping.base_url)
    caption = _text(mapping, asked.caption, record) if asked.caption and addresses else ""
    return [
        {"type": asked.type or media_type(url) or "file", "url": url} | ({"caption": caption} if caption else {})
        for url in addresses
    ]


def _button(mapping: PostMapping, asked: ButtonMapping, record: Any) -> list[dict[str, str]]:
    text = as_text(value_of(asked.text, record)).strip()
    return [{"text": text, "url": url} for url in _addresses([asked.url], record, mapping.base_url)[:1] if text]


def _moment(value: Any) -> str | None:
    if value is None or value == "":
        return None
    moment = moment_of(value)
    if moment is None:
        raise MappingFailed(f"scheduled_for: {as_text(value)[:80]!r} is not a moment")
    return moment.isoformat()


def _words(value: Any) -> list[str]:
    """A list, or words with commas between them."""
    parts = [part for each in _each(value) for part in each.split(",")]
    return [part.strip() for part in parts if part.strip()]


def _each(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in (as_text(each).strip() for each in values) if text]


def _texts(mapping: PostMapping) -> list[str]:
    return [text for text in (mapping.text, *(media.caption for media in mapping.media)) if text]
