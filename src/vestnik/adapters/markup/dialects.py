"""The forms that platforms take, each as answers to the same few questions of the writer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Protocol

from vestnik.adapters.markup.tree import Node

Marks = tuple[str, str]


class Dialect(Protocol):
    """``None`` for a mark means: this platform has nothing of the kind, write what is inside."""

    @property
    def parse_mode(self) -> str | None: ...

    def mark(self, kind: str, before: str) -> Marks | None: ...  # before: the character it would follow
    def link(self, address: str) -> Marks | None: ...
    def heading(self, level: int) -> str: ...  # the kind of mark that a heading becomes
    def escape(self, text: str, at_line_start: bool) -> str: ...
    def code(self, text: str) -> str: ...
    def pre(self, text: str, language: str) -> str: ...
    def quote(self, inner: str, expandable: bool) -> str: ...


_HTTP = r"https?://[^\s/?#\"<>]*\.[^\s\"<>]+"  # a host without a dot makes Telegram drop the link without a word


class _Html:
    """What the two HTML forms share."""

    marks: Mapping[str, str] = {}
    carried: re.Pattern[str]

    def mark(self, kind: str, before: str) -> Marks | None:
        tag = self.marks.get(kind)
        return (f"<{tag}>", f"</{tag}>") if tag else None

    def link(self, address: str) -> Marks | None:
        return (f'<a href="{escape(address)}">', "</a>") if self.carried.fullmatch(address) else None

    def escape(self, text: str, at_line_start: bool) -> str:
        return escape(text, quote=False)

    def code(self, text: str) -> str:
        return f"<code>{escape(text, quote=False)}</code>"


class TelegramHtml(_Html):
    """Bot API, parse_mode HTML. It has no highlight, which becomes bold, and no headings."""

    parse_mode = "HTML"
    marks: Mapping[str, str] = {
        "bold": "b",
        "italic": "i",
        "underline": "u",
        "strike": "s",
        "spoiler": "tg-spoiler",
        "mark": "b",
    }
    carried = re.compile(rf"{_HTTP}|tg://\S+", re.IGNORECASE)

    def heading(self, level: int) -> str:
        return "bold"

    def pre(self, text: str, language: str) -> str:
        inner = escape(text, quote=False)
        return f'<pre><code class="language-{language}">{inner}</code></pre>' if language else f"<pre>{inner}</pre>"

    def quote(self, inner: str, expandable: bool) -> str:
        return f"<blockquote{' expandable' if expandable else ''}>{inner}</blockquote>"


class TelegramText(TelegramHtml):
    """What is left of it once Telegram has read the tags, which is what it counts."""

    def mark(self, kind: str, before: str) -> Marks | None:
        return ("", "") if kind in self.marks else None

    def link(self, address: str) -> Marks | None:
        return ("", "") if self.carried.fullmatch(address) else None

    def escape(self, text: str, at_line_start: bool) -> str:
        return text

    def code(self, text: str) -> str:
        return text

    def pre(self, text: str, language: str) -> str:
        return text

    def quote(self, inner: str, expandable: bool) -> str:
        return inner


class MaxHtml(_Html):
    """MAX, format html. It has no spoiler: the text stays, in the open."""

    parse_mode = "html"
    marks: Mapping[str, str] = {
        "bold": "b",
        "italic": "i",
        "underline": "u",
        "strike": "s",
        "mark": "mark",
        "title": "h1",
    }
    carried = re.compile(rf"{_HTTP}|max://\S+", re.IGNORECASE)

    def heading(self, level: int) -> str:
        return "title" if level == 1 else "bold"

    def pre(self, text: str, language: str) -> str:
        return f"<pre>{escape(text, quote=False)}</pre>"

    def quote(self, inner: str, expandable: bool) -> str:
        return f"<blockquote>{inner}</blockquote>"


class MaxMarkdown:
    """MAX, format markdown: CommonMark's emphasis, code, links and quotes, and ``++u++`` and ``^^mark^^``.

    No lists and one level of headings. Escapes are CommonMark's and as few as the text allows.
    """

    parse_mode = "markdown"
    carried = MaxHtml.carried
    _SPECIAL = re.compile(r"\\(?=[!-/:-@\[-`{-~\n]|$)|[`*_\[\]]|&(?=#?\w+;)|<(?=[A-Za-z/!?])|~~+|\+\++|\^\^+")
    _ADDRESS = re.compile(r"(https?://\S+)")

    def __init__(self, tree: Node) -> None:
        # A lone "C++" or "[sic]" is nothing but text: only in company can they be taken for a mark or a link.
        text = tree.plain()
        self._paired = {"~~", *(pair for pair in ("++", "^^") if text.count(pair) > 1)}
        self._brackets = "](" in text or any(re.search(r"[\[\]]", link.plain()) for link in tree.links())

    def mark(self, kind: str, before: str) -> Marks | None:
        star = "_" if before == "*" else "*"  # a run of stars would be read as one mark
        return {
            "bold": (star * 2, star * 2),
            "italic": (star, star),
            "strike": ("~~", "~~"),
            "title": ("# ", ""),
        }.get(kind)

    def link(self, address: str) -> Marks | None:
        if not self.carried.fullmatch(address):
            return None
        return "[", f"]({address.replace('(', '%28').replace(')', '%29')})"

    def heading(self, level: int) -> str:
        return "title" if level == 1 else "bold"

    def escape(self, text: str, at_line_start: bool) -> str:
        parts = self._ADDRESS.split(text)  # a bare address is not touched, a backslash would break it
        text = "".join(part if at % 2 else self._SPECIAL.sub(self._escaped, part) for at, part in enumerate(parts))
        lines = re.compile(r"^(#{1,6}(?=\s|$)|>|~~~|[-=]+$)", re.MULTILINE)
        return lines.sub(r"\\\1", text) if at_line_start else self._after_first_line(lines, text)

    def code(self, text: str) -> str:
        text = text.replace("\n", " ")
        fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
        pad = " " if text[:1] == "`" or text[-1:] == "`" else ""
        return f"{fence}{pad}{text}{pad}{fence}"

    def pre(self, text: str, language: str) -> str:
        fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
        return f"{fence}\n{text}\n{fence}"

    def quote(self, inner: str, expandable: bool) -> str:
        return "\n".join(f"> {line}".rstrip() for line in inner.split("\n"))

    def _escaped(self, found: re.Match[str]) -> str:
        run, whole = found[0], found.string
        before, after = whole[: found.start()][-1:], whole[found.end() :][:1]
        if run[0] in "~+^":
            return "".join(f"\\{char}" for char in run) if run[:2] in self._paired else run
        if run in "[]" and not self._brackets:
            return run
        if run == "_" and before.isalnum() and after.isalnum():
            return run
        if run in "*_" and before.isspace() and after.isspace():
            return run
        return f"\\{run}"

    @staticmethod
    def _after_first_line(lines: re.Pattern[str], text: str) -> str:
        first, newline, rest = text.partition("\n")
        return first + newline + lines.sub(r"\\\1", rest)


class Plain:
    """For a platform whose markup nobody has described: readable text, no link lost."""

    parse_mode = None

    def mark(self, kind: str, before: str) -> Marks | None:
        return None

    def link(self, address: str) -> Marks | None:
        return None

    def heading(self, level: int) -> str:
        return "title"

    def escape(self, text: str, at_line_start: bool) -> str:
        return text

    def code(self, text: str) -> str:
        return text

    def pre(self, text: str, language: str) -> str:
        return text

    def quote(self, inner: str, expandable: bool) -> str:
        return "\n".join(f"> {line}".rstrip() for line in inner.split("\n"))
