"""Internal markup in the forms of the platforms: whatever the text, as the emulated platforms read it."""

from __future__ import annotations

from documents import PLATFORMS, Doc, as_read, bare, html_documents, markdown_documents, words
from hypothesis import given, settings
from hypothesis import strategies as st

from vestnik.adapters.contract import ParseMode
from vestnik.adapters.markup import _convert_1, convert
from vestnik.sandbox.telegram_html import checked_link

few = settings(max_examples=150, deadline=None)


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
