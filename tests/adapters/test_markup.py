"""Internal markup in the forms of the platforms: by example."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vestnik.adapters.contract import ParseMode
from vestnik.adapters.markup import INTERNAL_TAGS, VERSIONS, convert, markdown


def telegram(text: str, mode: ParseMode = "HTML") -> str:
    converted, parse_mode = convert(text, mode, "telegram")
    assert parse_mode == "HTML"
    return converted


def max_html(text: str) -> str:
    converted, parse_mode = convert(text, "HTML", "max")
    assert parse_mode == "html"
    return converted


def max_markdown(text: str) -> str:
    converted, parse_mode = convert(text, "Markdown", "max")
    assert parse_mode == "markdown"
    return converted


@pytest.mark.parametrize("platform", ["telegram", "max", "vk"])
def test_plain_text_is_not_touched(platform: str) -> None:
    text = "  <b>**a**</b> &amp;\r\n\n\n b "
    assert convert(text, "None", platform) == (text, None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<b>a</b><strong>b</strong>", "<b>a</b><b>b</b>"),
        ("<i>a</i><em>b</em><u>c</u><ins>d</ins>", "<i>a</i><i>b</i><u>c</u><u>d</u>"),
        ("<s>a</s><strike>b</strike><del>c</del>", "<s>a</s><s>b</s><s>c</s>"),
        (
            '<tg-spoiler>a</tg-spoiler> <span class="tg-spoiler">b</span>',
            "<tg-spoiler>a</tg-spoiler> <tg-spoiler>b</tg-spoiler>",
        ),
        ("<span>a</span>", "a"),
        ("<mark>a</mark> <b><mark>b</mark></b>", "<b>a</b> <b>b</b>"),
        ("<b>a <strong>b</strong></b>", "<b>a b</b>"),
        ("<B>a</B>", "<b>a</b>"),
        ("<code>a &lt; b</code>", "<code>a &lt; b</code>"),
        ("<code>a <b>b</b></code>", "<code>a b</code>"),
        ('<pre><code class="language-c++">a\n  b</code></pre>', '<pre><code class="language-c++">a\n  b</code></pre>'),
        ("<pre>a</pre>", "<pre>a</pre>"),
        ('<pre><code class="language-x&quot;y">a</code></pre>', '<pre><code class="language-x">a</code></pre>'),
        ("a<blockquote>b</blockquote>c", "a\n<blockquote>b</blockquote>\nc"),
        ("<blockquote expandable>b</blockquote>", "<blockquote expandable>b</blockquote>"),
        ("<blockquote>a<blockquote>b</blockquote>c</blockquote>", "<blockquote>a\nb\nc</blockquote>"),
        ("<h1>a</h1>b", "<b>a</b>\nb"),
        ("<p>a</p>\n<h3>b <i>c</i></h3>\n<p>d</p>", "<b>".join(["a\n\n", "b <i>c</i></b>\n\nd"])),
        ("a<br>b<br/>\nc", "a\nb\nc"),
        ("a\n\n\nb", "a\n\n\nb"),
        ("<p>a</p>\n\n<p>b</p>", "a\n\nb"),
        ("<ul><li>a</li><li>b</li></ul>c", "• a\n• b\nc"),
        ("a<ol start='9'>\n<li>b</li>\n<li>c</li></ol>", "a\n9. b\n10. c"),
        ("<ul><li>a<ol><li>b</li></ol></li><li>c</li></ul>", "• a\n  1. b\n• c"),
        ("<ul><li><h1>a</h1></li></ul>", "• <b>a</b>"),
        ("a & b &amp; c &lt;b&gt; &copy; &ampx; &#1078;&#x416;", "a &amp; b &amp; c &lt;b&gt; © &amp;ampx; жЖ"),
        ("1 < 2 > 1", "1 &lt; 2 &gt; 1"),
        ("<b> a </b>b", " <b>a</b> b".strip()),
        ("<b></b><i> </i>a", "a"),
    ],
)
def test_html_for_telegram(source: str, expected: str) -> None:
    assert telegram(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<h1>a</h1><h2>b</h2>", "<h1>a</h1>\n\n<b>b</b>"),
        ("<mark>a</mark> <u>b</u> <strike>c</strike>", "<mark>a</mark> <u>b</u> <s>c</s>"),
        ("<tg-spoiler>a</tg-spoiler>", "a"),
        ('<pre><code class="language-py">a</code></pre>', "<pre>a</pre>"),
        ("<ul><li>a</li></ul>", "• a"),
        ('<a href="max://user/5">Ann</a>', '<a href="max://user/5">Ann</a>'),
    ],
)
def test_html_for_max(source: str, expected: str) -> None:
    assert max_html(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('<a href="https://e.org/?a=1&amp;b=2">t</a>', '<a href="https://e.org/?a=1&amp;b=2">t</a>'),
        ('<a href="https://e.org/?a=1&b=2&copy=3">t</a>', '<a href="https://e.org/?a=1&amp;b=2&amp;copy=3">t</a>'),
        ("<a href=https://e.org/x>t</a>", '<a href="https://e.org/x">t</a>'),
        ('<a href="https://e.org/&quot;x">t</a>', 't (https://e.org/"x)'),
        ('<a href="https://e.org"></a>', '<a href="https://e.org">https://e.org</a>'),
        ('<a href="tg://user?id=5">t</a>', '<a href="tg://user?id=5">t</a>'),
        ('<a href="mailto:a@e.org">t</a>', "t (a@e.org)"),
        ('<a href="mailto:a@e.org">a@e.org</a>', "a@e.org"),
        ('<a href="javascript:alert(1)">t</a>', "t (javascript:alert(1))"),
        ('<a href="/path">t</a>', "t (/path)"),
        ('<a href="http://localhost/x">t</a>', "t (http://localhost/x)"),
        ("<a>t</a>", "t"),
        (
            '<a href="https://e.org">a <a href="https://f.org">b</a></a>',
            '<a href="https://e.org">a b (https://f.org)</a>',
        ),
        ('<code>a <a href="https://e.org">b</a></code>', "<code>a b (https://e.org)</code>"),
        ('<pre><a href="https://e.org">b</a></pre>', "<pre>b (https://e.org)</pre>"),
        ('<a href="https://e.org"><code>b</code></a>', '<a href="https://e.org">b</a>'),
        ('<b><a href="https://e.org">b</a></b>', '<b><a href="https://e.org">b</a></b>'),
    ],
)
def test_no_link_is_lost(source: str, expected: str) -> None:
    assert telegram(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("**a** *b* ~~c~~ `d<`", "<b>a</b> <i>b</i> <s>c</s> <code>d&lt;</code>"),
        ("# a\ntext", "<b>a</b>\n\ntext"),
        ("a\nb\\\nc  \nd", "a\nb\nc\nd"),
        ("- a\n- b\n\n3. c\n4. d", "• a\n• b\n\n3. c\n4. d"),
        ("> a\n> b\n\nc", "<blockquote>a\nb</blockquote>\n\nc"),
        ("```py\na\n\n<b>\n```", '<pre><code class="language-py">a\n\n&lt;b&gt;</code></pre>'),
        ("![alt](https://e.org/a.png)", '<a href="https://e.org/a.png">alt</a>'),
        ("![](https://e.org/a.png)", '<a href="https://e.org/a.png">https://e.org/a.png</a>'),
        ("[![i](https://e.org/i.png)](https://e.org)", '<a href="https://e.org">i (https://e.org/i.png)</a>'),
        ("[a](<https://e.org/x y>)", '<a href="https://e.org/x%20y">a</a>'),
        ("<https://e.org>", '<a href="https://e.org">https://e.org</a>'),
        ("[a][1]\n\n[1]: https://e.org", '<a href="https://e.org">a</a>'),
        ("[a](https://сайт.рф/x)", '<a href="https://сайт.рф/x">a</a>'),
        ("<b>a</b> <!-- c -->", "&lt;b&gt;a&lt;/b&gt; &lt;!-- c --&gt;"),
        ("<div>\na\n</div>", "&lt;div&gt;\na\n&lt;/div&gt;"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("\\*a\\* &lt; &amp;", "*a* &lt; &amp;"),
        ("[m](mailto:a@e.org)", "m (a@e.org)"),
    ],
)
def test_markdown_for_telegram(source: str, expected: str) -> None:
    assert telegram(source, "Markdown") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("**a** *b* ~~c~~ `d`", "**a** *b* ~~c~~ `d`"),
        ("***a***", "***a***"),
        ("**a**_b_", "**a**_b_"),
        ("# a\n\n## b", "# a\n\n**b**"),
        ("- a\n- b", "• a\n• b"),
        ("1. a\n2. b", "1. a\n2. b"),
        ("> a\n>\n> b", "> a\n>\n> b"),
        ("```py\na\n```", "```\na\n```"),
        ("````\n```\n````", "````\n```\n````"),
        ("`` a`b ``", "``a`b``"),
        ("![alt](https://e.org/a.png)", "[alt](https://e.org/a.png)"),
        ("[a](https://e.org/x_(y))", "[a](https://e.org/x_%28y%29)"),
        ("snake_case_name https://e.org/a_b_c*", "snake_case_name https://e.org/a_b_c*"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("\\*a\\* \\_b\\_ \\`c\\`", "\\*a\\* \\_b\\_ \\`c\\`"),
        ("C++", "C++"),
        ("C++ и D++ ^^x^^", "C\\+\\+ и D\\+\\+ \\^\\^x\\^\\^"),
        ("[Обновлено] текст", "[Обновлено] текст"),
        ("\\[a](b)", "\\[a\\](b)"),
        ("\\# a\n\\> b", "\\# a\n\\> b"),
        ("#тег #два", "#тег #два"),
        ("<b>a</b> \\&lt; a\\b", "\\<b>a\\</b> \\&lt; a\\b"),
    ],
)
def test_markdown_for_max(source: str, expected: str) -> None:
    assert max_markdown(source) == expected


def test_a_platform_that_nobody_described_gets_readable_text() -> None:
    source = '<h1>a</h1><p><b>b</b> &amp; <a href="https://e.org">c</a></p><ul><li>d</li></ul>'
    assert convert(source, "HTML", "pigeon") == ("a\n\nb & c (https://e.org)\n\n• d", None)


def test_broken_html_survives() -> None:
    assert telegram("<b>a <i>b</b> c</i> <u>d") == "<b>a <i>b</i></b> c <u>d</u>"
    assert telegram("a < b <x> </y> <b") == "a &lt; b &lt;x&gt; &lt;/y&gt; &lt;b"
    assert telegram("<b>" * 500 + "a" + "</b>" * 500) == "<b>a</b>"
    assert telegram("</b></p>a") == "a"


@pytest.mark.parametrize(
    "unit", ["<a <", '<a "', "<b>", "</b>", "<!--", "&", "[", "*a **b ", "> ", "- ", "`", "![", "\\"]
)
def test_a_long_and_nasty_text_takes_no_time(unit: str) -> None:
    text = unit * 3000
    for mode in ("HTML", "Markdown"):
        for platform in ("telegram", "max"):
            convert(text, mode, platform)  # type: ignore[arg-type]


def test_text_survives_a_parser_that_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    def trip(text: str) -> None:
        raise IndexError(text)

    monkeypatch.setattr(markdown, "_parse", trip)
    assert telegram("a **tripping** <b>text</b>", "Markdown") == "a **tripping** &lt;b&gt;text&lt;/b&gt;"


def test_the_bytes_do_not_depend_on_the_process() -> None:
    source = "**a** ++b++ ^^c^^ [d](https://e.org) C++ ~~~ `e`\n\n- f"
    code = f"from vestnik.adapters.markup import convert; print(ascii(convert({source!r}, 'Markdown', 'max')[0]))"
    told = {
        subprocess.check_output([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "src"})
        for seed in ("1", "2", "3")
    }
    assert told == {f"{max_markdown(source)!a}\n".encode()}


def test_the_tags_are_these() -> None:
    """The SQL preflight has the same list."""
    single = "a b blockquote br code del em i ins li mark ol p pre s span strike strong tg-spoiler u ul"
    assert {*single.split(), "h1", "h2", "h3", "h4", "h5", "h6"} == INTERNAL_TAGS


def test_version_1_is_there_for_ever() -> None:
    assert 1 in VERSIONS


def test_a_list_may_begin_with_any_number() -> None:
    for start in ("9" * 5000, "x", "-1", ""):
        assert convert(f'<ol start="{start}"><li>a</li></ol>', "HTML", "telegram")[0] == "• a"
    assert convert('<ol start="7"><li>a</li></ol>', "HTML", "telegram")[0] == "7. a"
