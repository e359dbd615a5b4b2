"""Every link that a reader could follow says where the reader came from; everything else stays as it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from vestnik.adapters.markup import convert, parse
from vestnik.adapters.markup.tree import Node

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

UTM = {"source": "tg", "campaign": "spring"}
Q = "utm_source=tg&utm_campaign=spring"
H = Q.replace("&", "&amp;")


async def tagged(workspace: Autopost, url: str | None, utm: Any = None, hosts: list[str] | None = None) -> str | None:
    return await workspace.value("select autopost.with_utm(%s, %s, %s)", url, Jsonb(UTM if utm is None else utm), hosts)


async def rewritten(workspace: Autopost, text: str, mode: str = "None", hosts: list[str] | None = None) -> str:
    return await workspace.value("select autopost.rewrite_links(%s, %s, %s, %s)", text, mode, Jsonb(UTM), hosts)


# One address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://e.org/", f"https://e.org/?{Q}"),
        ("https://e.org", f"https://e.org/?{Q}"),
        ("HTTP://E.org/A?b=1", f"HTTP://E.org/A?b=1&{Q}"),
        ("https://e.org/a?b=1&c=2#d", f"https://e.org/a?b=1&c=2&{Q}#d"),
        ("https://e.org/a?#d?e", f"https://e.org/a?{Q}#d?e"),
        ("https://e.org/a?b&", f"https://e.org/a?b&{Q}"),
        ("https://e.org#d", f"https://e.org/?{Q}#d"),
        ("https://e.org/?utm_source=mine", "https://e.org/?utm_source=mine&utm_campaign=spring"),
        ("https://e.org/?UTM_SOURCE=&utm_campaign", "https://e.org/?UTM_SOURCE=&utm_campaign"),
        ("https://e.org/?utm_source_id=1&xutm_campaign=2", f"https://e.org/?utm_source_id=1&xutm_campaign=2&{Q}"),
        ("https://e.org/#utm_source=1", f"https://e.org/?{Q}#utm_source=1"),
        ("https://кто.рф/путь?а=б", f"https://кто.рф/путь?а=б&{Q}"),
        *((other, other) for other in ("mailto:a@e.org", "tg://user?id=1", "max://user/5", "tel:+7", "/x", "", "https://")),
    ],
)  # fmt: skip
async def test_an_address_gets_the_parameters_that_it_lacks(workspace: Autopost, url: str, expected: str) -> None:
    assert await tagged(workspace, url) == expected
    assert await tagged(workspace, expected) == expected


async def test_names_and_values_of_the_parameters(workspace: Autopost) -> None:
    utm = {
        "term": "a b&c=d", "utm_content": "100%", "medium": "соц", "campaign": "v1.2.", "source": "tg", "id": "7",
        "only_hosts": ["e.org"], "x y": "1", "content": "",
    }  # fmt: skip
    assert await tagged(workspace, "https://e.org/", utm) == (
        "https://e.org/?utm_source=tg&utm_medium=%D1%81%D0%BE%D1%86&utm_campaign=v1.2%2E&utm_term=a%20b%26c%3Dd"
        "&utm_content=100%25&utm_id=7"
    )
    assert await tagged(workspace, "https://e.org/", {}) == "https://e.org/"
    assert await tagged(workspace, None) is None
    assert await workspace.value("select autopost.with_utm('https://e.org/', null)") == "https://e.org/"
    assert await workspace.value("select autopost.with_utm('https://e.org/', '[1]')") == "https://e.org/"


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("e.org", True),
        ("WWW.E.org", True),
        ("a.b.e.org:8443", True),
        ("ann:secret@e.org", True),
        ("shop.example", True),
        ("evile.org", False),
        ("e.org.evil", False),
        ("e.org@evil", False),
        ("x", False),
    ],
)
async def test_only_the_hosts_that_are_named_and_what_is_below_them(workspace: Autopost, host: str, ours: bool) -> None:
    url = f"https://{host}/e.org"
    expected = f"{url}?{Q}" if ours else url
    assert await tagged(workspace, url, hosts=["E.org", ".shop.example"]) == expected
    assert await rewritten(workspace, url, hosts=["E.org", ".shop.example"]) == expected


# A text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://e.org/a, or not.", f"see https://e.org/a?{Q}, or not."),
        ("(https://e.org/a). https://e.org/b!", f"(https://e.org/a?{Q}). https://e.org/b?{Q}!"),
        ("https://e.org/w_(a)…", f"https://e.org/w_(a)?{Q}…"),
        ("«https://e.org/a» \"https://e.org/b\"", f"«https://e.org/a?{Q}» \"https://e.org/b?{Q}\""),
        ("https://e.org/a?b=1#c\nhttp://f.org", f"https://e.org/a?b=1&{Q}#c\nhttp://f.org/?{Q}"),
        ("mailto:a@e.org tg://x e.org/a", "mailto:a@e.org tg://x e.org/a"),
        ("a\x01https://e.org/\x02", f"a\x01https://e.org/\x02?{Q}"),
        ("no link", "no link"),
        ("`https://e.org/a`", f"`https://e.org/a?{Q}`"),
    ],
)  # fmt: skip
async def test_addresses_in_plain_text(workspace: Autopost, text: str, expected: str) -> None:
    assert await rewritten(workspace, text) == expected


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<a href="https://e.org/?a=1&amp;b=2#c">t</a>', f'<a href="https://e.org/?a=1&amp;b=2&amp;{H}#c">t</a>'),
        ('<a href="https://e.org/?a=1&b=2">t</a>', f'<a href="https://e.org/?a=1&b=2&amp;{H}">t</a>'),
        ("<a class='x' HREF = 'https://e.org'>t</a>", f"<a class='x' HREF = 'https://e.org/?{H}'>t</a>"),
        ("<a href=https://e.org/x>t</a>", f'<a href="https://e.org/x?{H}">t</a>'),
        ('<a href="https://e.org/?q=&#39;a&#x27;&quot;#f">t</a>', f'<a href="https://e.org/?q=&#39;a&#x27;&quot;&amp;{H}#f">t</a>'),
        ('<a href="https://e.org/caf&eacute;">t</a>', f'<a href="https://e.org/caf&eacute;?{H}">t</a>'),
        ('<a href="https://e.org/">https://e.org/</a>', f'<a href="https://e.org/?{H}">https://e.org/</a>'),
        ('<a href="tg://user?id=1">https://e.org/</a>', '<a href="tg://user?id=1">https://e.org/</a>'),
        ("<b>https://e.org/a</b>, x", f"<b>https://e.org/a?{H}</b>, x"),
        ("https://e.org/?a=1&amp;b=2&lt;", f"https://e.org/?a=1&amp;b=2&amp;{H}&lt;"),
        ("&quot;https://e.org/&quot;&nbsp;", f"&quot;https://e.org/?{H}&quot;&nbsp;"),
        ("https://e.org/?a&b", f"https://e.org/?a&b&amp;{H}"),
        ("<code>https://e.org/</code> <pre><code class='language-x'>a</code> https://e.org/</pre>", None),
        ("<pre>x</pre>https://e.org/", f"<pre>x</pre>https://e.org/?{H}"),
        ("<p>https://e.org/a</p><p>b</p>", f"<p>https://e.org/a?{H}</p><p>b</p>"),
        ('<a class="href=https://x.org/" href="https://e.org/">t</a>', f'<a class="href=https://x.org/" href="https://e.org/?{H}">t</a>'),
        ("<blockquote>https://e.org/</blockquote>", f"<blockquote>https://e.org/?{H}</blockquote>"),
    ],
)  # fmt: skip
async def test_links_in_html(workspace: Autopost, html: str, expected: str | None) -> None:
    expected = html if expected is None else expected
    assert await rewritten(workspace, html, "HTML") == expected
    assert await rewritten(workspace, expected, "HTML") == expected


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("[t](https://e.org/a)", f"[t](https://e.org/a?{Q})"),
        ("[t](https://e.org/w_(a)), x", f"[t](https://e.org/w_(a)?{Q}), x"),
        ('[t](https://e.org/a "title")', f'[t](https://e.org/a?{Q} "title")'),
        ("[t](<https://e.org/a b>)", f"[t](<https://e.org/a b?{Q}>)"),
        ("[https://e.org/a](https://e.org/b)", f"[https://e.org/a](https://e.org/b?{Q})"),
        ("![i](https://e.org/i.png)", f"![i](https://e.org/i.png?{Q})"),
        ("[![i](https://e.org/i.png)](https://f.org)", f"[![i](https://e.org/i.png?{Q})](https://f.org/?{Q})"),
        ("<https://e.org/a>.", f"<https://e.org/a?{Q}>."),
        ("[t][1]\n\n[1]: https://e.org/a", f"[t][1]\n\n[1]: https://e.org/a?{Q}"),
        ("**https://e.org/a**", f"**https://e.org/a?{Q}**"),
        ("https://e.org/a_ x", f"https://e.org/a_?{Q} x"),
        ("`https://e.org/a` https://e.org/b", f"`https://e.org/a` https://e.org/b?{Q}"),
        ("``a ` https://e.org/a`` `", "``a ` https://e.org/a`` `"),
        ("```\nhttps://e.org/a\n```\nhttps://e.org/b", f"```\nhttps://e.org/a\n```\nhttps://e.org/b?{Q}"),
        ("a\n~~~\nhttps://e.org/a\n~~~", "a\n~~~\nhttps://e.org/a\n~~~"),
        ("a ` b https://e.org/a", f"a ` b https://e.org/a?{Q}"),
        ("\\` https://e.org/a `", f"\\` https://e.org/a?{Q} `"),
        ("https://e.org/a\\\nb \\> c", f"https://e.org/a?{Q}\\\nb \\> c"),
        ("[t](tg://user?id=1) [u](/x)", "[t](tg://user?id=1) [u](/x)"),
    ],
)  # fmt: skip
async def test_links_in_markdown(workspace: Autopost, markdown: str, expected: str) -> None:
    assert await rewritten(workspace, markdown, "Markdown") == expected
    assert await rewritten(workspace, expected, "Markdown") == expected


scraps = st.sampled_from(
    ["https://e.org", "http://f.org/a?b=1", "&amp;", "&", "#", "?", "(", ")", "[t](", "]", "<", ">", "<a href='", "'>", "</a>",
     "<pre>", "</pre>", "`", "```", "\n", "\n~~~", " ", ".", "**", "_", "\\", "\x01", '"', "utm_source=1", "x", "Ж", "%", "<a href=\""]
)  # fmt: skip
thorough = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@thorough
@given(text=st.lists(scraps, max_size=20).map("".join), mode=st.sampled_from(["HTML", "Markdown", "None"]))
async def test_a_second_time_changes_nothing_and_nothing_else_changes(
    workspace: Autopost, text: str, mode: str
) -> None:
    once = await rewritten(workspace, text, mode)
    assert await rewritten(workspace, once, mode) == once
    added = [H, Q, "utm_campaign=spring", "&amp;", "&", "?", "/", '"']
    assert stripped(once, added) == stripped(text, added)


def stripped(text: str, added: list[str]) -> str:
    for each in added:
        text = text.replace(each, "")
    return text


def addresses(node: Node) -> list[str]:
    return [link.value for link in node.links()]


async def test_what_the_adapters_read_are_the_addresses_with_their_parameters(workspace: Autopost) -> None:
    cases = [
        ('<a href="https://e.org/?a=1&amp;b=&quot;2&quot;">t</a> <b><a href="https://f.org">u</a></b>', "HTML"),
        ("[t](https://e.org/?a=1&b=2) **[u](https://f.org/)** <https://g.org>", "Markdown"),
    ]
    for text, mode in cases:
        before = addresses(parse(text, mode))
        after = addresses(parse(await rewritten(workspace, text, mode), mode))
        assert after == [await tagged(workspace, url) for url in before]
        assert Q.replace("&", "&amp;") in convert(await rewritten(workspace, text, mode), mode, "telegram")[0]  # type: ignore[arg-type]


async def test_a_text_of_nothing_but_links_takes_no_time(workspace: Autopost) -> None:
    """The server gives up after five seconds; a text of this length takes a hundredth of it."""
    await workspace.sql("set statement_timeout = '5s'")
    for mode, unit in (
        ("HTML", '<a href="https://e.org/a">b</a> '),
        ("Markdown", "[b](https://e.org/a) `"),
        ("None", "https://e.org/a "),
    ):
        text = await rewritten(workspace, unit * (60_000 // len(unit)), mode)
        assert text.count("utm_source") >= 60_000 // len(unit) // 2


# In a post


async def test_a_channel_says_which_parameters_its_links_get(workspace: Autopost) -> None:
    utm = {"source": "{platform}", "medium": "{channel}", "only_hosts": ["e.org"]}
    await workspace.channel("a", settings={"utm": utm, "long_text": "truncate_with_link"})
    await workspace.channel("b", settings={"utm": utm, "parse_mode": "HTML"}, platform="max")
    await workspace.channel("plain")
    pushed = await workspace.push(
        {
            "text": "see https://e.org/x and https://f.org/",
            "links": ["https://e.org/y?a=1&b=2"],
            "buttons": [[{"text": "Go", "url": "https://e.org/z"}, {"text": "Elsewhere", "url": "https://f.org/"}]],
        }
    )
    assert pushed["enqueued"] == 3
    rows = {row["channel_id"]: row for row in await workspace.deliveries()}
    a = "utm_source=telegram&utm_medium=a"
    assert rows["a"]["rendered_text"] == f"see https://e.org/x?{a} and https://f.org/\n\nhttps://e.org/y?a=1&b=2&{a}"
    assert rows["a"]["render_meta"]["more_link"] == f"https://e.org/y?a=1&b=2&{a}"
    assert rows["a"]["render_meta"]["buttons"] == [
        [{"text": "Go", "url": f"https://e.org/z?{a}"}, {"text": "Elsewhere", "url": "https://f.org/"}]
    ]
    b = "utm_source=max&amp;utm_medium=b"
    assert rows["b"]["rendered_text"] == (
        f"see https://e.org/x?{b} and https://f.org/\n\nhttps://e.org/y?a=1&amp;b=2&amp;{b}"
    )
    assert rows["plain"]["rendered_text"] == "see https://e.org/x and https://f.org/\n\nhttps://e.org/y?a=1&b=2"


async def test_it_is_the_same_post_with_other_parameters(workspace: Autopost) -> None:
    await workspace.channel("a", settings={"utm": {"source": "one"}})
    await workspace.push("https://e.org/")
    await workspace.sql(
        'update autopost.channels set settings = \'{"utm": {"source": "two"}}\' where workspace_id = %s',
        workspace.workspace,
    )
    pushed = await workspace.push("https://e.org/")
    assert (pushed["enqueued"], pushed["suppressed"]) == (0, 1)
