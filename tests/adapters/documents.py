"""Documents as hypothesis writes them, and what a reader of an emulated platform sees of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from hypothesis import strategies as st

from vestnik.sandbox.max_markup import parse_max
from vestnik.sandbox.richtext import Rich
from vestnik.sandbox.telegram_html import parse_telegram_html

PLATFORMS = ("telegram", "max")


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
