"""Telegram's HTML parser against what Telegram's own library does with the same texts."""

from __future__ import annotations

import pytest

from vestnik.sandbox.richtext import utf16
from vestnik.sandbox.telegram_html import EntityError, parse_telegram_html

CUP = "🏟 🏟&lt;"  # thirteen bytes of UTF-8
SURROGATES = (
    "Text contains invalid Unicode characters after decoding HTML entities, check for unmatched surrogate code units"
)


def seen(text: str) -> tuple[str, list[tuple[str, int, int, str]]]:
    rich = parse_telegram_html(text)
    spans = [
        (span.kind, utf16(rich.text[: span.start]), utf16(rich.text[span.start : span.end]), span.value)
        for span in rich.spans
    ]
    return rich.text, spans


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("&#57311;", SURROGATES),
        (f"{CUP}<abacaba", "Unclosed start tag at byte offset 13"),
        (f"{CUP}<abac aba>", 'Unsupported start tag "abac" at byte offset 13'),
        (f"{CUP}<i   =aba>", 'Empty attribute name in the tag "i" at byte offset 13'),
        (f"{CUP}<i    aba>", 'Can\'t find end tag corresponding to start tag "i"'),
        (f"{CUP}<i    aba  =  ", 'Unclosed start tag "i" at byte offset 13'),
        (f"{CUP}<i    aba  =  190azAz-.,", "Unexpected end of name token at byte offset 27"),
        (f'{CUP}<i    aba  =  "&lt;&gt;&quot;>', "Unclosed start tag at byte offset 13"),
        (f"{CUP}</", "Unexpected end tag at byte offset 13"),
        (f"{CUP}<b></b></", "Unexpected end tag at byte offset 20"),
        (f"{CUP}<i>a</i   ", "Unclosed end tag at byte offset 17"),
        (f"{CUP}<i>a</em   >", 'Unmatched end tag at byte offset 17, expected "</i>", found "</em>"'),
        ("<span>a</span>", 'Tag "span" must have class "tg-spoiler" at byte offset 0'),
        ("<!-- a -->", 'Unsupported start tag "!--" at byte offset 0'),
        ("a <…b>", 'Unsupported start tag "…b" at byte offset 2'),
        ("<br>", 'Unsupported start tag "br" at byte offset 0'),
    ],
)
def test_complaints(text: str, said: str) -> None:
    with pytest.raises(EntityError) as caught:
        parse_telegram_html(text)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("text", "visible", "spans"),
    [
        ("", "", []),
        ("&ge;&lt;&gt;&amp;&quot;&laquo;&#12345678;", '&ge;<>&"&laquo;&#12345678;', []),
        ("➡️ ➡️<i>➡️ ➡️</i><b>x</b>", "➡️ ➡️➡️ ➡️x", [("italic", 5, 5, ""), ("bold", 10, 1, "")]),
        ("🏟 🏟<i>🏟 &gt;<b aba   =   caba>&lt🏟</b></i>", "🏟 🏟🏟 ><🏟", [("italic", 5, 7, ""), ("bold", 9, 3, "")]),
        (f"{CUP}<i    aba  =  190azAz-.   >a</i>", "🏟 🏟<a", [("italic", 6, 1, "")]),
        (f"{CUP}<i>a</    >", "🏟 🏟<a", [("italic", 6, 1, "")]),
        (f"{CUP}<b></b>", "🏟 🏟<", []),
        ('<span class = "tg-spoiler">a</span>', "a", [("spoiler", 0, 1, "")]),
        ("<a href=telegram.org> </a>", " ", [("text_link", 0, 1, "http://telegram.org/")]),
        ("<a   href=  'telegram.org?&lt;'   > </a>", " ", [("text_link", 0, 1, "http://telegram.org?<")]),
        ("<a> </a>", " ", []),
        ("<a>telegram.org</a>", "telegram.org", [("text_link", 0, 12, "http://telegram.org/")]),
        (f"{CUP}<pre  >🏟 🏟&lt;</>", "🏟 🏟<🏟 🏟<", [("pre", 6, 6, "")]),
        ('<pre><code class="language-fift">a</></>', "a", [("pre", 0, 1, "fift")]),
        ('<code class="language-fift"><pre>a</></>', "a", [("pre", 0, 1, "fift")]),
        ("<pre><code>a</code></>", "a", [("pre", 0, 1, ""), ("code", 0, 1, "")]),
        ('<blockquote   cite="" x>a&lt;<pre  >b;</></>', "a<b;", [("blockquote", 0, 4, ""), ("pre", 2, 2, "")]),
        ("<blockquote   expandable=false>a</>", "a", [("expandable_blockquote", 0, 1, "")]),
    ],
)
def test_entities(text: str, visible: str, spans: list[tuple[str, int, int, str]]) -> None:
    assert seen(text) == (visible, spans)
