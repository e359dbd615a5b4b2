"""Text with marks on it, as a reader sees it: what every emulated parser produces and the pages show."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True, slots=True)
class Span:
    """``kind`` by Telegram's names, with heading and mark for MAX; from and to in characters."""

    kind: str
    start: int
    end: int
    value: str = ""  # the link's address, the code's language


@dataclass(frozen=True, slots=True)
class Rich:
    text: str
    spans: list[Span] = field(default_factory=list)
    lost_links: int = 0  # links that the platform drops without a word

    def stripped(self) -> Rich:
        """Without white space around it; spans follow."""
        lead = len(self.text) - len(self.text.lstrip())
        text = self.text.strip()
        spans = [
            Span(span.kind, max(0, span.start - lead), min(len(text), span.end - lead), span.value)
            for span in self.spans
        ]
        return Rich(text, [span for span in spans if span.start < span.end], self.lost_links)


class Builder:
    """A rich text in the making: text is appended, marks are opened and closed around it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.spans: list[Span] = []
        self.lost_links = 0

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def mark(self, kind: str, start: int, value: str = "") -> None:
        """A mark from ``start`` to here; an empty one is none."""
        if start < self.length:
            self.spans.append(Span(kind, start, self.length, value))

    def rich(self) -> Rich:
        # Marks are closed from the inside out; of two with the same reach the outer one comes first.
        ordered = sorted(enumerate(self.spans), key=lambda item: (item[1].start, -item[1].end, -item[0]))
        return Rich("".join(self.parts), [span for _, span in ordered], self.lost_links)


def utf16(text: str) -> int:
    """Length as Telegram and MAX count it."""
    return len(text) + sum(char > "\uffff" for char in text)


_TAGS = {
    "bold": "b",
    "italic": "i",
    "underline": "u",
    "strikethrough": "s",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
    "expandable_blockquote": "blockquote",
    "mark": "mark",
    "heading": "h3",
}


_BLOCKS = ("</pre>", "</blockquote>", "</h3>")


def to_html(rich: Rich) -> str:
    """For a page of ours: what came from outside is escaped, only http(s) addresses become links."""
    ordered = sorted(rich.spans, key=lambda span: (span.start, -span.end))
    out: list[str] = []
    at = 0
    open_until: list[tuple[int, str]] = []

    def text_to(end: int) -> None:
        nonlocal at
        out.append(escape(rich.text[at:end]))
        at = max(at, end)

    def close_to(position: int) -> None:
        nonlocal at
        while open_until and open_until[-1][0] <= position:
            end, closing = open_until.pop()
            text_to(end)
            out.append(closing)
            if closing in _BLOCKS and rich.text[at : at + 1] == "\n":
                at += 1  # the block itself ends the line

    for span in ordered:
        close_to(span.start)
        text_to(span.start)
        opening, closing = _tag(span)
        out.append(opening)
        # A span that reaches out of the one around it ends with it: pages need trees.
        open_until.append((min([span.end, *(end for end, _ in open_until)]), closing))
    close_to(len(rich.text))
    text_to(len(rich.text))
    return "".join(out)


def _tag(span: Span) -> tuple[str, str]:
    if span.kind == "text_link":
        if not span.value.lower().startswith(("http://", "https://")):
            return f'<span class="link" title="{escape(span.value)}">', "</span>"
        return f'<a href="{escape(span.value)}" rel="noopener noreferrer nofollow" target="_blank">', "</a>"
    if span.kind == "spoiler":
        return '<span class="spoiler">', "</span>"
    tag = _TAGS.get(span.kind)
    return (f"<{tag}>", f"</{tag}>") if tag else ("", "")
