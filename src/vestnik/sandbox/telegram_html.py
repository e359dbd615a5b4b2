"""Telegram's HTML as its server reads it: which tags, which entities, and the words of its complaints."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from vestnik.sandbox.richtext import Builder, Rich, Span

_KINDS = {
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("i", "em"), "italic"),
    **dict.fromkeys(("u", "ins"), "underline"),
    **dict.fromkeys(("s", "strike", "del"), "strikethrough"),
    "a": "text_link",
    "blockquote": "blockquote",
    "code": "code",
    "pre": "pre",
    "span": "spoiler",
    "tg-emoji": "custom_emoji",
    "tg-spoiler": "spoiler",
    "tg-time": "date_time",
}
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_ENTITY = re.compile(r"&(?:#(\d+)|#[xX]([0-9a-fA-F]+)|([A-Za-z]+));?", re.ASCII)
_SPACES = " \t\r\n\v\0"
_LINK = re.compile(r"(?:(https?)://)?([^\s/?#@]+\.[^\s/?#@.]+)([/?#]\S*)?", re.IGNORECASE)


class EntityError(ValueError):
    """The text after "can't parse entities: "."""


@dataclass(slots=True)
class _Open:
    tag: str
    start: int
    attributes: dict[str, str] = field(default_factory=dict)


def parse_telegram_html(text: str) -> Rich:
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.out = Builder()
        self.open: list[_Open] = []

    def run(self) -> Rich:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "<":
                self.tag()
            elif char == "&" and (entity := _ENTITY.match(self.text, self.at)):
                self.out.add(_decode(entity))
                self.at = entity.end()
            else:
                self.out.add(char)
                self.at += 1
        if self.open:
            raise EntityError(f'Can\'t find end tag corresponding to start tag "{self.open[-1].tag}"')
        return self.out.rich()

    def tag(self) -> None:
        begin = self.at
        if self.text[begin + 1 : begin + 2] == "/":
            self.end_tag(begin)
        else:
            self.start_tag(begin)

    def start_tag(self, begin: int) -> None:
        self.at = begin + 1
        name = self.word(_SPACES + ">").lower()
        if self.at >= len(self.text):
            raise EntityError(f"Unclosed start tag at byte offset {self.offset(begin)}")
        if name not in _KINDS:
            raise EntityError(f'Unsupported start tag "{name}" at byte offset {self.offset(begin)}')
        opened = _Open(name, self.out.length)
        while True:
            self.skip_spaces()
            if self.peek() == ">":
                break
            self.attribute(begin, opened)
        self.at += 1
        if name == "span" and opened.attributes.get("class") != "tg-spoiler":
            raise EntityError(f'Tag "span" must have class "tg-spoiler" at byte offset {self.offset(begin)}')
        if name == "tg-emoji" and not opened.attributes.get("emoji-id", "").isdigit():
            raise EntityError("Invalid custom emoji identifier specified")
        self.open.append(opened)

    def attribute(self, begin: int, opened: _Open) -> None:
        name = self.word(_SPACES + "=>")
        if not name and self.peek() == "=":
            raise EntityError(f'Empty attribute name in the tag "{opened.tag}" at byte offset {self.offset(begin)}')
        self.skip_spaces()
        value = ""
        if self.peek() == "=":
            self.at += 1
            self.skip_spaces()
            if not self.peek():
                raise EntityError(f'Unclosed start tag "{opened.tag}" at byte offset {self.offset(begin)}')
            value = self.quoted(begin) if self.peek() in "'\"" else self.token()
        elif not self.peek():
            raise EntityError(f'Unclosed start tag "{opened.tag}" at byte offset {self.offset(begin)}')
        opened.attributes[name.lower()] = value

    def quoted(self, begin: int) -> str:
        end = self.text.find(self.peek(), self.at + 1)
        if end < 0:
            raise EntityError(f"Unclosed start tag at byte offset {self.offset(begin)}")
        value = _ENTITY.sub(_decode, self.text[self.at + 1 : end])
        self.at = end + 1
        return value

    def token(self) -> str:
        found = re.compile(r"[A-Za-z0-9.-]*").match(self.text, self.at)
        end = found.end() if found else self.at
        if self.text[end : end + 1] not in (*_SPACES, ">"):
            raise EntityError(f"Unexpected end of name token at byte offset {self.offset(self.at)}")
        value, self.at = self.text[self.at : end], end
        return value

    def end_tag(self, begin: int) -> None:
        if not self.open:
            raise EntityError(f"Unexpected end tag at byte offset {self.offset(begin)}")
        self.at = begin + 2
        name = self.word(_SPACES + ">").lower()
        self.skip_spaces()
        if self.peek() != ">":
            raise EntityError(f"Unclosed end tag at byte offset {self.offset(begin)}")
        self.at += 1
        opened = self.open.pop()
        if name and name != opened.tag:
            raise EntityError(
                f'Unmatched end tag at byte offset {self.offset(begin)}, expected "</{opened.tag}>", found "</{name}>"'
            )
        self.mark(opened)

    def mark(self, opened: _Open) -> None:
        kind, out = _KINDS[opened.tag], self.out
        if opened.tag == "a":
            if out.length > opened.start:
                url = checked_link(opened.attributes.get("href") or "".join(out.parts)[opened.start :])
                if url:
                    out.mark(kind, opened.start, url)
                else:
                    out.lost_links += 1
        elif opened.tag == "blockquote" and "expandable" in opened.attributes:
            out.mark("expandable_blockquote", opened.start)
        elif opened.tag in ("pre", "code"):
            self.mark_code(opened)
        else:
            out.mark(kind, opened.start, opened.attributes.get("emoji-id", ""))

    def mark_code(self, opened: _Open) -> None:
        """``pre`` and ``code`` with a language over the same text are one block with a language."""
        out, inner = self.out, self.out.spans[-1] if self.out.spans else None
        language = re.sub(r"^language-", "", opened.attributes.get("class", "")) if opened.tag == "code" else ""
        same = inner is not None and (inner.start, inner.end) == (opened.start, out.length)
        if same and inner is not None and {inner.kind, opened.tag} == {"pre", "code"} and (language or inner.value):
            out.spans[-1] = Span("pre", inner.start, inner.end, language or inner.value)
        else:
            out.mark(opened.tag, opened.start, language)

    def word(self, stops: str) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in stops:
            self.at += 1
        return self.text[start : self.at]

    def skip_spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACES:
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def offset(self, position: int) -> int:
        return len(self.text[:position].encode("utf-8", "surrogatepass"))


def checked_link(url: str) -> str:
    """The address as Telegram keeps it, or nothing where it drops the link."""
    url = url.strip()
    if re.match(r"tg://\S", url, re.IGNORECASE):
        return url
    found = _LINK.fullmatch(url)
    return f"{(found[1] or 'http').lower()}://{found[2]}{found[3] or '/'}" if found else ""


def _decode(entity: re.Match[str]) -> str:
    if entity[3]:
        return _NAMED.get(entity[3], entity[0])
    number = int(entity[1], 10) if entity[1] else int(entity[2], 16)
    if 0xD800 <= number <= 0xDFFF:
        raise EntityError(
            "Text contains invalid Unicode characters after decoding HTML entities, "
            "check for unmatched surrogate code units"
        )
    return chr(number) if 0 < number < 0x10FFFF else entity[0]
