"""A feed without its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Body:
    """A text as the feed has it; ``base`` is what its relative addresses are relative to."""

    text: str
    html: bool
    base: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    url: str
    mime: str = ""
    medium: str = ""
    preview: bool = False  # a small picture of what is there in full, or of the whole entry


@dataclass(frozen=True, slots=True)
class Entry:
    id: str
    link: str
    title: str  # plain words
    summary: Body | None = None
    content: Body | None = None
    author: str = ""
    categories: tuple[str, ...] = ()
    published: datetime | None = None
    attachments: tuple[Attachment, ...] = ()
    base: str = ""


@dataclass(frozen=True, slots=True)
class Feed:
    """``entries`` in the order of the document."""

    title: str
    entries: list[Entry]
    notes: list[str] = field(default_factory=list)
    cut_off: bool = False  # there is more of it, which did not come
