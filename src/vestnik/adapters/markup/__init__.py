"""From internal markup to what a platform takes: pure functions, pinned by version.

Internal markup is one of three things, named by the parse mode:

``HTML``      the tags of ``INTERNAL_TAGS``; newlines count as they stand, blocks make their own:
              b strong i em u ins s strike del mark, a[href], code, pre (the language as
              ``<pre><code class="language-x">``), blockquote[expandable], tg-spoiler or
              span[class=tg-spoiler], h1–h6, p, br, ul, ol[start], li
``Markdown``  CommonMark with ``~~strikethrough~~``; raw HTML in it is text
``None``      plain text

The same call with the same version gives the same bytes for ever: a retry repeats what was sent, a preview
shows what will be sent. A change of behaviour is a new version beside the old one.

What a platform lacks is replaced by the nearest thing it has, never dropped: a deep heading becomes a bold
line, a list becomes lines with bullets, an image becomes a link, a link that cannot be carried keeps its
address in brackets behind its text. Nothing here raises on any text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from vestnik.adapters.contract import ParseMode, SendError, SendMeta
from vestnik.adapters.markup.dialects import Dialect, MaxHtml, MaxMarkdown, Plain, TelegramHtml
from vestnik.adapters.markup.html import INTERNAL_TAGS, VOID_TAGS, parse_html
from vestnik.adapters.markup.markdown import parse_markdown
from vestnik.adapters.markup.tree import Node
from vestnik.adapters.markup.writer import render

__all__ = ["INTERNAL_TAGS", "VERSIONS", "VOID_TAGS", "convert", "convert_for", "dialect_of", "parse"]

LONGEST_REMEMBERED = 16_384


def convert(text: str, parse_mode: ParseMode, platform: str, version: int = 1) -> tuple[str, str | None]:
    """(text, the platform's own parse mode). A platform without a dialect here gets plain text."""
    if parse_mode not in ("HTML", "Markdown"):
        return text, None
    return VERSIONS[version](text, parse_mode, platform)


def convert_for(platform: str, text: str, meta: SendMeta) -> tuple[str, str | None]:
    """As an adapter calls it. A version from the future is for a newer process to send."""
    if meta.converter not in VERSIONS:
        raise SendError(
            category="TRANSIENT",
            scope="delivery",
            code="converter_unknown",
            message=f"{platform}: this process does not know converter {meta.converter}; upgrade it",
            raw={"outcome": "not_sent"},
        )
    return convert(text, meta.parse_mode, platform, meta.converter)


def _convert_1(text: str, parse_mode: str, platform: str) -> tuple[str, str | None]:
    tree = parse(text, parse_mode)
    dialect = dialect_of(tree, parse_mode, platform)
    return render(tree, dialect), dialect.parse_mode


_remembered_1 = lru_cache(maxsize=512)(_convert_1)


def _version_1(text: str, parse_mode: str, platform: str) -> tuple[str, str | None]:
    """One post goes to many channels; what no platform takes in one message is not worth the memory."""
    return (_remembered_1 if len(text) <= LONGEST_REMEMBERED else _convert_1)(text, parse_mode, platform)


def parse(text: str, parse_mode: str) -> Node:
    text = text.replace("\r\n", "\n")
    if parse_mode == "HTML":
        return parse_html(text)
    return parse_markdown(text) if parse_mode == "Markdown" else Node("root", children=[text])


def dialect_of(tree: Node, parse_mode: str, platform: str) -> Dialect:
    if parse_mode not in ("HTML", "Markdown"):
        return Plain()
    if platform == "telegram":
        return TelegramHtml()
    if platform == "max":
        return MaxHtml() if parse_mode == "HTML" else MaxMarkdown(tree)
    return Plain()


VERSIONS: Mapping[int, Callable[[str, str, str], tuple[str, str | None]]] = MappingProxyType({1: _version_1})
