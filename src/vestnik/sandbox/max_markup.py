"""MAX's two text formats as a reader sees them.

Its HTML keeps a handful of tags and strips all others. Its Markdown has emphasis, code, links, quotes and
headings by CommonMark's rules, with ``++underline++`` and ``^^highlight^^``; lists, rules and HTML are text.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, cast

import mistune
from mistune.plugins import Plugin
from mistune.plugins.formatting import strikethrough

from vestnik.sandbox.richtext import Builder, Rich

_TAGS = {
    **dict.fromkeys(("i", "em"), "italic"),
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("del", "s"), "strikethrough"),
    **dict.fromkeys(("ins", "u"), "underline"),
    "a": "text_link",
    "pre": "pre",
    "code": "code",
    "mark": "mark",
    "blockquote": "blockquote",
    "h1": "heading",
}
_TOKENS = {
    "emphasis": "italic",
    "strong": "bold",
    "strikethrough": "strikethrough",
    "underline": "underline",
    "mark": "mark",
    "block_quote": "blockquote",
    "link": "text_link",
}


def parse_max(text: str, format: str | None) -> Rich:
    if format == "html":
        return parse_max_html(text)
    return parse_max_markdown(text) if format == "markdown" else Rich(text)


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out = Builder()
        self.open: list[tuple[str, int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _TAGS:
            self.open.append((tag, self.out.length, dict(attrs).get("href") or ""))

    def handle_endtag(self, tag: str) -> None:
        for at in range(len(self.open) - 1, -1, -1):
            if self.open[at][0] == tag:
                _, start, address = self.open.pop(at)
                self.out.mark(_TAGS[tag], start, address)
                return

    def handle_data(self, data: str) -> None:
        self.out.add(data)


def parse_max_html(text: str) -> Rich:
    parser = _Html()
    try:
        parser.feed(text)
        parser.close()
    except AssertionError:  # its way of saying that a declaration is malformed
        return Rich(text)
    return parser.out.rich()


def parse_max_markdown(text: str) -> Rich:
    out = Builder()
    try:
        _blocks(out, cast(list[dict[str, Any]], _parse(text)))
    except RecursionError:
        return Rich(text)
    return out.rich().stripped()


def _blocks(out: Builder, tokens: list[dict[str, Any]]) -> None:
    for token in tokens:
        start = out.length
        if token["type"] == "blank_line":
            out.add("\n")
            continue
        if token["type"] == "block_code":
            out.add(token["raw"].rstrip("\n"))
            out.mark("pre", start)
        elif token["type"] == "block_quote":
            inner = Builder()
            _blocks(inner, token["children"])
            _insert(out, inner.rich().stripped())
            out.mark("blockquote", start)
        else:
            _inline(out, token.get("children", []))
            if token["type"] == "heading":
                out.mark("heading", start)
        out.add("\n")


def _insert(out: Builder, rich: Rich) -> None:
    base = out.length
    out.add(rich.text)
    out.spans += [type(span)(span.kind, base + span.start, base + span.end, span.value) for span in rich.spans]


def _inline(out: Builder, tokens: list[dict[str, Any]]) -> None:
    for token in tokens:
        start = out.length
        if token["type"] in ("softbreak", "linebreak"):
            out.add("\n")
        elif "children" in token:
            _inline(out, token["children"])
            out.mark(_TOKENS.get(token["type"], ""), start, token.get("attrs", {}).get("url", ""))
        else:
            out.add(token.get("raw", ""))
            if token["type"] == "codespan":
                out.mark("code", start)


def _paired(kind: str, marker: str) -> Plugin:
    closing = re.compile(r"(?<=[^\s\\])" + re.escape(marker))

    def parse(inline: mistune.InlineParser, found: re.Match[str], state: mistune.InlineState) -> int | None:
        end = closing.search(state.src, found.end())
        if end is None:
            return None
        inside = state.copy()
        inside.src = state.src[found.end() : end.start()]
        state.append_token({"type": kind, "children": inline.render(inside)})
        return end.end()

    def plugin(md: mistune.Markdown) -> None:
        md.inline.register(kind, re.escape(marker) + r"(?=\S)", parse, before="link")

    return plugin


def _parser() -> mistune.Markdown:
    blocks = mistune.BlockParser(block_quote_rules=["fenced_code", "blank_line"])
    blocks.rules = ["fenced_code", "atx_heading", "block_quote", "blank_line"]
    plugins = [strikethrough, _paired("underline", "++"), _paired("mark", "^^")]
    return mistune.Markdown(renderer=None, block=blocks, plugins=plugins)


_parse = _parser()
