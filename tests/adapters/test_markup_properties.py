"""Internal markup in the forms of the platforms: whatever the text, as the emulated platforms read it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from hypothesis import given, settings
from hypothesis import strategies as st

from vestnik.adapters.contract import ParseMode
from vestnik.adapters.markup import _convert_1, convert
from vestnik.sandbox.max_markup import parse_max
from vestnik.sandbox.richtext import Rich
from vestnik.sandbox.telegram_html import checked_link, parse_telegram_html

PLATFORMS = ("telegram", "max")
few = settings(max_examples=150, deadline=None)


@dataclass
class Doc:
    """A text, what of it a reader must see, and the links that must be there."""

    source: str
    visible: str
    links: list[str]


def joined(docs: list[Doc], between: str = "") -> Doc:
    links = [link for doc in docs for link in doc.links]
    return Doc(between.join(doc.source for doc in docs), " ".join(doc.visible for doc in docs), links)


words = st.text(alphabet="abzжяЫ7 \n<>&\"'*_~`+^#[]()|\\.-!🌍é", min_size=1, max_size=12)
addresses = st.sampled_from(
    [
        "https://e.org",
        "http://e.org/a_b?c=1&d=2#e",
        "https://e.org/(x)",
        "https://e.org/*a*",
        "tg://user?id=1",
        "/x",
    ]
)
cores = st.text(alphabet="ab7жЫ", min_size=1, max_size=4)


def as_read(text: str, mode: str | None, platform: str) -> Rich:
    """Raises where the platform would refuse."""
    if mode is None:
        return Rich(text)
    return parse_telegram_html(text) if platform == "telegram" else parse_max(text, mode)


def bare(text: str) -> str:
    return re.sub(r"\s+", "", text)


def check(doc: Doc, mode: ParseMode) -> None:
    for platform in PLATFORMS:
        text, form = convert(doc.source, mode, platform)
        read = as_read(text, form, platform)
        targets = [span.value for span in read.spans if span.kind == "text_link"]
        assert bare(read.text).replace("(tg://user?id=1)", "").replace("(/x)", "") == bare(doc.visible)
        for link in doc.links:
            found = (link, checked_link(link), link.replace("(", "%28").replace(")", "%29"))
            assert any(target in found for target in targets) or link in read.text
        assert _convert_1(doc.source, mode, platform) == (text, form)


def html_inline() -> st.SearchStrategy[Doc]:
    text = words.map(lambda word: Doc(escape(word), word, []))
    tags = st.sampled_from(["b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "mark", "tg-spoiler", "span"])

    def wrapped(inner: st.SearchStrategy[Doc]) -> st.SearchStrategy[Doc]:
        many = st.lists(inner, min_size=1, max_size=3).map(joined)
        return st.builds(lambda tag, doc: Doc(f"<{tag}>{doc.source}</{tag}>", doc.visible, doc.links), tags, many)

    link = st.builds(
        lambda address, core: Doc(f'<a href="{escape(address)}">{core}</a>', core, [address]),
        addresses,
        cores,
    )
    code = words.map(lambda word: Doc(f"<code>{escape(word)}</code>", word, []))
    line = st.just(Doc("<br>", "", []))
    return st.recursive(text | link | code | line, wrapped, max_leaves=8)


def html_documents() -> st.SearchStrategy[Doc]:
    inline = st.lists(html_inline(), max_size=3).map(joined)
    headed = st.sampled_from(["p", "h1", "h2", "h6", "blockquote"])
    block = st.builds(lambda tag, doc: Doc(f"<{tag}>{doc.source}</{tag}>", doc.visible, doc.links), headed, inline)
    pre = words.map(lambda word: Doc(f"<pre>{escape(word)}</pre>", word, []))

    def listed(items: list[Doc]) -> Doc:
        source = "".join(f"<li>{item.source}</li>" for item in items)
        return Doc(f"<ul>{source}</ul>", " ".join(f"• {item.visible}" for item in items), joined(items).links)

    item = st.builds(lambda core, doc: joined([Doc(core, core, []), doc]), cores, inline)
    lists = st.lists(item, min_size=1, max_size=3).map(listed)
    return st.lists(inline | block | pre | lists, max_size=5).map(joined)


def escaped(text: str) -> str:
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def markdown_documents() -> st.SearchStrategy[Doc]:
    # Marks stand between spaces and around letters: what else CommonMark makes of them is its business.
    middles = words.map(lambda word: " ".join(word.split()))
    phrase = st.builds(lambda a, mid, b: f"{a}{mid}{b}", cores, middles, cores)
    text = phrase.map(lambda word: Doc(escaped(word), word, []))
    marks = st.sampled_from(["**", "*", "~~", "__", "_"])

    def marked(mark: str, doc: Doc) -> Doc:
        twice = doc.source.startswith(mark)  # four tildes would be a fence
        return doc if twice else Doc(f"{mark}{doc.source}{mark}", doc.visible, doc.links)

    def wrapped(inner: st.SearchStrategy[Doc]) -> st.SearchStrategy[Doc]:
        return st.builds(marked, marks, inner)

    link = st.builds(lambda doc, address: Doc(f"[{doc.source}](<{address}>)", doc.visible, [address]), text, addresses)
    code = st.builds(lambda core: Doc(f"`{core} <b>`", f"{core} <b>", []), cores)
    inline = text | wrapped(text) | link | code | wrapped(wrapped(text)) | wrapped(link)
    line = st.lists(inline, min_size=1, max_size=4).map(lambda docs: joined(docs, " "))
    heading = st.builds(lambda n, doc: Doc(f"{'#' * n} {doc.source}", doc.visible, doc.links), st.integers(1, 6), line)
    quote = line.map(lambda doc: Doc(f"> {doc.source}", doc.visible, doc.links))
    fence = words.map(lambda word: Doc(f"~~~~\n{word}\n~~~~", word, []))

    def listed(items: list[Doc]) -> Doc:
        source = "\n".join(f"- {item.source}" for item in items)
        return Doc(source, " ".join(f"• {item.visible}" for item in items), joined(items).links)

    lists = st.lists(line, min_size=1, max_size=3).map(listed)
    return st.lists(line | heading | quote | fence | lists, max_size=4).map(lambda docs: joined(docs, "\n\n"))


@few
@given(html_documents())
def test_html_keeps_text_and_links(doc: Doc) -> None:
    check(doc, "HTML")


@few
@given(markdown_documents())
def test_markdown_keeps_text_and_links(doc: Doc) -> None:
    check(doc, "Markdown")


pieces = ["<b>", "</b>", "<a", "href='", "</a>", ">", "&", "**", "[x](", ")", "`", "\n-", "#", "> ", "~~~"]


@few
@given(st.text(max_size=60) | words | st.lists(st.sampled_from(pieces)).map("".join))
def test_any_text_at_all_becomes_something_that_the_platforms_take(text: str) -> None:
    for mode in ("HTML", "Markdown"):
        for platform in (*PLATFORMS, "pigeon"):
            converted, form = convert(text, mode, platform)  # type: ignore[arg-type]
            as_read(converted, form, platform)
