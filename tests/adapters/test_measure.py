"""How long a text is: as the emulated platforms count it, and as the database has counted before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

import psycopg
import pytest
from documents import Doc, as_read, cores, html_documents, joined, markdown_documents, words
from hypothesis import given, settings
from hypothesis import strategies as st

from vestnik.adapters.contract import ParseMode
from vestnik.adapters.markup import convert
from vestnik.adapters.markup.measure import measure, units
from vestnik.sandbox.richtext import utf16

PLATFORMS = ("telegram", "max")
few = settings(max_examples=120, deadline=None)


@pytest.fixture(scope="module")
def database_length(worker_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(worker_database, autocommit=True) as connection:
        yield connection


def counted_in_sql(connection: psycopg.Connection, text: str, mode: str, platform: str) -> int:
    row = connection.execute("select autopost.text_length(%s, %s, %s)", (platform, text, mode)).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(
    ("text", "mode", "telegram", "max_"),
    [
        ("Ж🌍", "None", 3, 3),
        ("<b>&lt;", "None", 7, 7),
        ("<b>Ж🌍</b>", "HTML", 3, 10),
        ("<strong>a</strong>", "HTML", 1, 8),
        ("<tg-spoiler>a</tg-spoiler>", "HTML", 1, 1),
        ("&lt;&copy;&amp;&", "HTML", 4, 4 + 1 + 5 + 5),
        ('<a href="https://e.org/?a&amp;b">t</a>', "HTML", 1, 39 - 1),
        ('<a href="mailto:a@e.org">t</a>', "HTML", 11, 11),
        ("<ul><li>a</li><li>b</li></ul>", "HTML", 7, 7),
        ("<p>a</p><p>b</p>", "HTML", 4, 4),
        ("a<br>b", "HTML", 3, 3),
        ("**a** [t](https://e.org/)", "Markdown", 3, 25),
        ("- a\n- b\n\n# c", "Markdown", 10, 12),
        ("\\*a\\*", "Markdown", 3, 5),
    ],
)
def test_telegram_counts_what_is_left_of_the_markup_and_max_what_it_gets(
    text: str, mode: ParseMode, telegram: int, max_: int
) -> None:
    assert measure(text, mode, "telegram") == telegram
    assert measure(text, mode, "max") == max_
    assert measure(text, mode, "pigeon") == units(convert(text, mode, "pigeon")[0])


@pytest.mark.parametrize("mode", ["HTML", "Markdown", "None"])
def test_it_is_what_the_emulated_platforms_count(mode: ParseMode) -> None:
    documents = {"HTML": html_documents(), "Markdown": markdown_documents(), "None": words.map(lambda w: Doc(w, w, []))}

    @few
    @given(documents[mode])
    def holds(doc: Doc) -> None:
        text, form = convert(doc.source, mode, "telegram")
        assert measure(doc.source, mode, "telegram") == utf16(as_read(text, form, "telegram").text)
        assert measure(doc.source, mode, "max") == utf16(convert(doc.source, mode, "max")[0])

    holds()


# And the database


def inline_html() -> st.SearchStrategy[str]:
    """Words, marks, links that both platforms carry, code, entities, and paragraphs of them."""
    word = words.map(escape) | cores | st.sampled_from(["&copy;", "&#1078;", "&amp;", "a & b", "1 > 0", "x<br>y", " "])
    tags = st.sampled_from(["b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "tg-spoiler", "span"])

    def wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        many = st.lists(inner, min_size=1, max_size=3).map("".join)
        return st.builds(lambda tag, text: f"<{tag}>{text}</{tag}>", tags, many)

    addresses = st.sampled_from(["https://e.org", "http://e.org/a?b=1&amp;c=2", "HTTPS://e.org/x#y"])
    link = st.builds(lambda address, core: f'<a href="{address}">{core}</a>', addresses, cores)
    code = words.map(lambda text: f"<code>{escape(text)}</code>")
    inline = st.lists(st.recursive(word | link | code, wrapped, max_leaves=6), max_size=4).map("".join)
    block = st.builds(
        lambda tag, text: f"<{tag}>{text}</{tag}>", st.sampled_from(["p", "h1", "h3", "blockquote"]), inline
    )
    return st.lists(inline | block | st.sampled_from(["\n", "\n\n"]), max_size=4).map("".join)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_database_counts_the_same_in_html_and_in_plain_text(
    database_length: psycopg.Connection, platform: str
) -> None:
    @few
    @given(inline_html())
    def holds(text: str) -> None:
        text = re.sub(r"\n{3,}", "\n\n", text.strip())  # as the normal form has it
        plain = counted_in_sql(database_length, text, "None", platform)
        assert plain == measure(text, "None", platform)
        if re.search(
            r"<code>\s|\s</code>|<blockquote>([ \n]|<[^>]*>)*</blockquote>|((<br>|\n)(<(?!br)[^>]*>|[ \t])*){3,}", text
        ):
            return  # blanks at the edges of code, and three newlines around a block, empty quotes: the database may count fewer
        assert counted_in_sql(database_length, text, "HTML", platform) == measure(text, "HTML", platform)

    holds()


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("mode", ["HTML", "Markdown"])
def test_the_database_never_counts_more_than_there_is(
    database_length: psycopg.Connection, mode: ParseMode, platform: str
) -> None:
    """So it refuses nothing that would fit; what it lets through and does not fit, the plan refuses."""
    one = html_documents() if mode == "HTML" else markdown_documents()

    @few
    @given(st.lists(one, min_size=1, max_size=3).map(lambda docs: joined(docs, "\n\n").source.strip()))
    def holds(text: str) -> None:
        assert counted_in_sql(database_length, text, mode, platform) <= measure(text, mode, platform)

    holds()


def test_what_the_database_lets_through_of_markdown_is_not_far_off(database_length: psycopg.Connection) -> None:
    text = "A **bold** word, a [link](https://e.org/page) and `code`.\n\n" * 80
    for platform in PLATFORMS:
        exact = measure(text, "Markdown", platform)
        assert exact * 0.8 < counted_in_sql(database_length, text, "Markdown", platform) <= exact
