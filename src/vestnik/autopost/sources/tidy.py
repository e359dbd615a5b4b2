"""The HTML of web pages as internal HTML: known tags, absolute links, white space as it is shown.

On a page white space is layout and blocks make lines; in internal HTML newlines count as they stand. So paragraphs
become newlines here. Images, scripts and whatever has no text go; the words of unknown tags stay.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape, unescape
from typing import Final

import nh3

from vestnik.adapters.markup import INTERNAL_TAGS
from vestnik.autopost.sources.web.addresses import link_address

_BREAKS: Final = {
    **dict.fromkeys(("br", "tr", "dt", "dd", "figcaption", "summary", "option", "caption"), 1),
    **dict.fromkeys(("p", "div", "section", "article", "aside", "main", "header", "footer", "nav", "figure"), 2),
    **dict.fromkeys(("table", "address", "details", "form", "fieldset", "dl", "center", "hr"), 2),
    **dict.fromkeys(("td", "th"), 0),
}
_BLOCKS: Final = frozenset({"blockquote", "pre", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"})
_UNSEEN: Final = {"script", "style", "iframe", "noscript", "object", "template", "title", "svg", "math", "select"}
_ATTRIBUTES: Final = {
    "a": {"href"},
    "blockquote": {"expandable"},
    "span": {"class"},
    "code": {"class"},
    "ol": {"start"},
}
_CLASS: Final = re.compile(r"tg-spoiler|language-[A-Za-z0-9+#._-]{1,32}")
_TOKEN: Final = re.compile(r"<(/?)([a-z][a-z0-9-]*)([^>]*)>|([^<]+)")
_SPACE: Final = " \t\n\r\f"
_DEEPEST = 24


def tidy(html: str, base: str = "") -> str:
    """Internal HTML that says what a page with this in it would show."""
    writer = _Writer()
    for token in _TOKEN.finditer(_cleaner(base).clean(html)):
        closing, tag, attributes, text = token.groups()
        if text is not None:
            writer.text(text.replace("&nbsp;", " "))
        elif tag == "br":
            writer.line()
        elif tag in _BREAKS:
            writer.gap("\n" * _BREAKS[tag] or " ")
        elif closing:
            writer.close(tag)
        elif attributes or tag not in ("a", "span"):
            writer.open(tag, attributes)
        else:
            writer.skip(tag)
    return writer.finished()


def plain(html: str) -> str:
    """Only the words, in one line."""
    words = nh3.clean(html, tags=set(), clean_content_tags={"script", "style"})
    return " ".join(unescape(words).split())


def escaped(text: str) -> str:
    return escape(text, quote=False)


class _Writer:
    """White space and opening tags wait for the text that follows: so nothing stands empty or begins with a gap."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._gap = ""
        self._waiting: list[str] = []  # opening tags without text so far
        self._open: list[tuple[str, str, bool]] = []  # name, the tag as written, whether it is written at all
        self._verbatim = 0

    def text(self, text: str) -> None:
        if self._verbatim:
            self._write(text)
            return
        body = " ".join(text.split())
        if text[0] in _SPACE:
            self.gap(" ")
        if body:
            self._write(body)
            if text[-1] in _SPACE:
                self.gap(" ")

    def gap(self, gap: str) -> None:
        begins = not self._out or any(self._name(tag) in _BLOCKS for tag in self._waiting)
        if self._verbatim:
            self._write(gap)
        elif not begins and (gap.count("\n"), len(gap)) > (self._gap.count("\n"), len(self._gap)):
            self._gap = gap

    def line(self) -> None:
        """A second one makes a paragraph."""
        self.gap("\n\n" if "\n" in self._gap and not self._verbatim else "\n")

    def open(self, tag: str, attributes: str) -> None:
        if len(self._open) >= _DEEPEST:
            self.skip(tag)
            return
        written = f"<{tag}{attributes}>"
        self._open.append((tag, written, True))
        if tag in _BLOCKS:
            self._gap = ""
        self._waiting.append(written)
        self._verbatim += tag == "pre"

    def skip(self, tag: str) -> None:
        self._open.append((tag, "", False))

    def close(self, tag: str) -> None:
        name, written, kept = self._open.pop()
        if not kept:
            return
        self._verbatim -= name == "pre"
        if self._waiting and self._waiting[-1] == written:
            self._waiting.pop()
            return
        self._out.append(f"</{name}>")
        if name in _BLOCKS:
            self._gap = ""

    def finished(self) -> str:
        return "".join(self._out).strip()

    def _write(self, text: str) -> None:
        self._out += [self._gap, *self._waiting, text]
        self._gap = ""
        self._waiting.clear()

    @staticmethod
    def _name(written: str) -> str:
        return written[1:-1].partition(" ")[0]


@lru_cache(maxsize=64)
def _cleaner(base: str) -> nh3.Cleaner:
    def attribute(tag: str, name: str, value: str) -> str | None:
        if name == "href":
            return link_address(value, base)
        if name == "class":
            return value if _CLASS.fullmatch(value) else None
        if name == "start":
            return value if value.isdecimal() and len(value) < 10 else None
        return ""

    return nh3.Cleaner(
        tags=set(INTERNAL_TAGS | _BREAKS.keys()),
        clean_content_tags=_UNSEEN,
        attributes=_ATTRIBUTES,
        attribute_filter=attribute,
        link_rel=None,
        url_schemes={"http", "https", "mailto", "tel", "tg"},
    )
