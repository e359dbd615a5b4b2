"""A text that is too long for one message goes in parts: cut where it hurts least, nothing lost, every mark kept."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from documents import PLATFORMS, as_read, bare, html_documents, joined, markdown_documents
from hypothesis import given, settings
from hypothesis import strategies as st

from vestnik.adapters.contract import ParseMode, SendError, SendMeta
from vestnik.adapters.markup import VERSIONS, convert, cuts
from vestnik.adapters.markup.measure import MEASURES, units
from vestnik.adapters.markup.split import SPLITTERS, TRUNCATORS, CannotCut, split_text, truncate_text
from vestnik.adapters.wording import worded
from vestnik.sandbox.richtext import utf16

MODES: tuple[ParseMode, ...] = ("HTML", "Markdown", "None")
MORE = "https://e.org/the/whole?of=it&and=more"
few = settings(max_examples=60, deadline=None)


def parts_of(text: str, limit: int, mode: ParseMode = "HTML", platform: str = "telegram") -> list[str]:
    return [part for part, _ in split_text(text, mode, platform, limit)]


def counted(part: str, form: str | None, platform: str) -> int:
    """As the emulated platform counts, which knows nothing of our measuring."""
    return utf16(as_read(part, form, platform).text if platform == "telegram" else part)


# Where it is cut


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("one two\n\nthree four\nfive six", 24, ["one two", "three four\nfive six"]),
        ("one two. three four\nfive six seven", 24, ["one two. three four", "five six seven"]),
        ("One two. Three four five six", 17, ["One two.", "Three four five", "six"]),
        ("one two three four", 9, ["one two", "three", "four"]),
        ("one twothreefour", 8, ["one", "twothree", "four"]),
        ("a\n\nbcdefghij klmnopqrs", 20, ["a\n\nbcdefghij", "klmnopqrs"]),
        ("one two\u00a0three four", 12, ["one", "two\u00a0three", "four"]),
    ],
)
def test_the_best_place_is_the_end_of_a_paragraph_then_a_line_a_sentence_a_word(
    text: str, limit: int, parts: list[str]
) -> None:
    assert parts_of(text, limit, "None") == parts


def test_a_paragraph_that_would_leave_a_part_nearly_empty_is_no_good_place() -> None:
    short, long = "Hello!", "word " * 30
    first, *_ = parts_of(f"{short}\n\n{long}", 100, "None")
    assert len(first) > 90


def test_a_title_stays_with_what_it_stands_over() -> None:
    text = f"<p>{'a' * 30}</p><h2>Title</h2><p>{'b' * 20}</p>"
    assert parts_of(text, 45) == ["a" * 30, f"<b>Title</b>\n{'b' * 20}".replace("\n", "\n\n")]


@pytest.mark.parametrize("whole", ["👨‍👩‍👧‍👦", "👍🏽", "🇷🇺", "e\u0301", "🏴\U000e0067\U000e0062\U000e007f", "🌍"])
def test_inside_a_word_what_is_seen_as_one_character_stays_one(whole: str) -> None:
    parts = parts_of(whole * 40, units(whole) * 3 + 1, "None")
    assert {part.replace(whole, "") for part in parts} == {""}
    assert "".join(parts) == whole * 40


def test_a_character_larger_than_the_limit_is_cut_all_the_same() -> None:
    assert "".join(parts_of("👨‍👩‍👧‍👦", 4, "None")) == "👨‍👩‍👧‍👦"


# What is open at a cut


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<b>one two <i>three four</i></b>", ["<b>one two</b>", "<b><i>three four</i></b>"]),
        (
            '<a href="https://e.org/?a=1&amp;b">one two three</a>',
            ['<a href="https://e.org/?a=1&amp;b">one two</a>', '<a href="https://e.org/?a=1&amp;b">three</a>'],
        ),
        (
            "<blockquote expandable>one two\nthree</blockquote>",
            ["<blockquote expandable>one two</blockquote>", "<blockquote expandable>three</blockquote>"],
        ),
        (
            '<pre><code class="language-py">if x:\n    y &amp; z</code></pre>',
            ['<pre><code class="language-py">if x:</code></pre>', '<pre><code class="language-py">    y &amp; z</code></pre>'],
        ),
        ("<code>one two three</code>", ["<code>one two </code>", "<code>three</code>"]),
        ("<tg-spoiler>one two three</tg-spoiler>", ["<tg-spoiler>one two</tg-spoiler>", "<tg-spoiler>three</tg-spoiler>"]),
        ("<ul><li>one</li><li>two</li><li>three</li></ul>", ["• one", "• two", "• three"]),
        ("<ol start='9'><li>one</li><li>two</li></ol>", ["9. one", "10. two"]),
        ("<ol><li>one two three</li><li>four</li></ol>", ["1. one two", "three", "2. four"]),
        ("<h1>one two three</h1>", ["<b>one two</b>", "<b>three</b>"]),
    ],
    ids=lambda x: str(x)[:30],
)  # fmt: skip
def test_a_mark_that_is_open_at_a_cut_is_closed_and_opened_again(text: str, parts: list[str]) -> None:
    assert parts_of(text, 10) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("**one two three four five**", ["**one two three four**", "**five**"]),
        ("[one two three](https://e.org/)", ["[one](https://e.org/)", "[two](https://e.org/)", "[three](https://e.org/)"]),
        ("> one two three four\n> five", ["> one two three four", "> five"]),
        ("```\none two\nthree four five\n```", ["```\none two\n```", "```\nthree four five\n```"]),
    ],
)  # fmt: skip
def test_max_counts_the_marks_as_well(text: str, parts: list[str]) -> None:
    assert parts_of(text, 24, "Markdown", "max") == parts


def test_an_address_that_cannot_be_a_link_is_shown_once() -> None:
    text = '<a href="mailto:ann@e.org">write a letter to Ann</a>'
    assert parts_of(text, 12) == ["write a", "letter to", "Ann (ann@", "e.org)"] or (
        "".join(parts_of(text, 12)).count("ann@e.org") == 1
    )
    assert bare("".join(parts_of(text, 12))) == "writealettertoAnn(ann@e.org)"


def test_a_text_that_fits_is_not_touched() -> None:
    for mode in MODES:
        for platform in (*PLATFORMS, "pigeon"):
            text = "  a <b>b</b> *c*\n\n\n- d "
            assert split_text(text, mode, platform, 100) == [convert(text, mode, platform)]
            assert truncate_text(text, mode, platform, 100, MORE) == convert(text, mode, platform)


def test_an_address_longer_than_a_message_is_refused_in_words() -> None:
    text = f"[a](https://e.org/{'x' * 4000}) b"
    with pytest.raises(CannotCut):
        split_text(text, "Markdown", "max", 4000)
    with pytest.raises(SendError, match=r"4\d\d\d of 4000 characters, and an address in it is too long"):
        worded("max", text, SendMeta("Markdown", long_text="split"), 4000)
    with pytest.raises(SendError, match="an address in it is too long"):
        more = f"https://e.org/{'x' * 5000}"
        worded("max", "a " * 3000, SendMeta(long_text="truncate_with_link", more_link=more), 4000)


def test_markup_around_nothing_is_refused_in_words() -> None:
    with pytest.raises(SendError, match="nothing is left"):
        worded("telegram", "<b> </b>", SendMeta("HTML"), 4096)


# Whatever the text


def long_documents(mode: ParseMode) -> st.SearchStrategy[str]:
    if mode == "None":
        return st.text(alphabet="ab c.\n🌍é\u0301\u200d🇷🇺", max_size=400)
    one = html_documents() if mode == "HTML" else markdown_documents()
    return st.lists(one, min_size=1, max_size=6).map(lambda docs: joined(docs, "\n\n").source)


def shown_and_linked(parts: list[tuple[str, str | None]], platform: str) -> tuple[str, set[str]]:
    read = [as_read(part, form, platform) for part, form in parts]
    links = {span.value for rich in read for span in rich.spans if span.kind == "text_link"}
    shown = "".join(bare(rich.text) for rich in read)
    return shown if platform in PLATFORMS else shown.replace(">", ""), links  # each line of a plain quote has its own


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("platform", [*PLATFORMS, "pigeon"])
def test_nothing_is_lost_and_every_part_fits(mode: ParseMode, platform: str) -> None:
    @few
    @given(text=long_documents(mode), limit=st.integers(12, 60))
    def holds(text: str, limit: int) -> None:
        limit += 200 * (platform == "max" and mode != "None")  # the marks of one character need that much
        parts = split_text(text, mode, platform, limit)
        assert all(counted(part, form, platform) <= limit for part, form in parts)
        whole = [convert(text, mode, platform)]
        assert shown_and_linked(parts, platform) == shown_and_linked(whole, platform)
        assert all(part.strip() for part, _ in parts) or len(parts) == 1
        split_once = SPLITTERS[1].__wrapped__(text, mode, platform, limit)
        assert list(split_once) == parts

    holds()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("platform", [*PLATFORMS, "pigeon"])
def test_a_beginning_fits_and_leads_to_the_rest(mode: ParseMode, platform: str) -> None:
    @few
    @given(text=long_documents(mode), limit=st.integers(100, 160))
    def holds(text: str, limit: int) -> None:
        limit += 200 * (platform == "max" and mode != "None")
        part, form = truncate_text(text, mode, platform, limit, MORE)
        assert counted(part, form, platform) <= limit
        if (part, form) == convert(text, mode, platform):
            return
        shown, links = shown_and_linked([(part, form)], platform)
        assert MORE in links or MORE in shown
        beginning, _, rest = shown.rpartition("…")
        assert shown_and_linked([convert(text, mode, platform)], platform)[0].startswith(beginning)
        assert rest in ("e.org/the/whole", MORE, f"e.org/the/whole({MORE})")

    holds()


@pytest.mark.parametrize(
    ("text", "mode", "platform", "cut"),
    [
        ("one two three. " * 6, "None", "telegram", f"one two three. one two three. …\n\n{MORE}"),
        ("<b>one two three four</b> " * 9, "HTML", "telegram", None),
        ("<pre>one\ntwo\n" + "three\n" * 40 + "</pre>", "HTML", "telegram", None),
    ],
)
def test_a_beginning_ends_at_a_sound_place(text: str, mode: ParseMode, platform: str, cut: str | None) -> None:
    part, _ = truncate_text(text, mode, platform, 75, MORE)
    if cut is not None:
        assert part == cut
    else:
        link = f'<a href="{MORE.replace("&", "&amp;")}">e.org/the/whole</a>'
        assert re.fullmatch(rf"(?s).*(one|two|three|four)(…</b>|</pre>\n…)\n\n{re.escape(link)}", part)


def test_most_of_the_room_is_used() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "Some words of a sentence. " * 12 for n in range(40))
    for mode in MODES:
        parts = parts_of(text, 4096, mode)
        assert len(parts) <= -(-len(text) // 3500)
        assert all(part.startswith("Paragraph") for part in parts)
        part, _ = truncate_text(text, mode, "telegram", 4096, MORE)
        assert len(part) > 3500


# For ever


def test_every_version_of_the_conversion_has_its_cuts() -> None:
    assert set(VERSIONS) == set(MEASURES) == set(SPLITTERS) == set(TRUNCATORS)


def test_the_parts_do_not_depend_on_the_process() -> None:
    source = "**a b** ++c++ [d e](https://e.org) `f`\n\n- g h\n- i\n\n" * 4
    code = f"from vestnik.adapters.markup.split import split_text; print(ascii(split_text({source!r}, 'Markdown', 'max', 40)))"
    told = {
        subprocess.check_output([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "src"})
        for seed in ("1", "2")
    }
    assert told == {f"{split_text(source, 'Markdown', 'max', 40)!a}\n".encode()}


@pytest.mark.parametrize(
    "unit", ["<b>a</b> ", "a", "\n", "- a\n", "<li>a", "**a** ", "> ", "[a](https://e.org) ", "🇷🇺"]
)
def test_a_huge_text_is_cut_in_time(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    for mode in MODES:
        for platform in PLATFORMS:
            split_text(text, mode, platform, 4000)


def test_the_sides_of_a_cut_share_no_node() -> None:
    from vestnik.adapters.markup import parse

    tree = parse("<b>one two</b>", "HTML")
    head, tail = cuts.before(tree, 4), cuts.after(tree, 4)
    assert (head.plain(), tail.plain(), tree.plain()) == ("one ", "two", "one two")
