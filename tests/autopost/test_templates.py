"""A template is checked once, at save; whatever is put into it afterwards shows itself and changes nothing around it."""

from __future__ import annotations

import asyncio
import html
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from crowd import Crowd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from vestnik.adapters.markup import convert
from vestnik.sandbox.max_markup import parse_max
from vestnik.sandbox.telegram_html import parse_telegram_html

if TYPE_CHECKING:
    from conftest import Autopost

pytestmark = pytest.mark.pg16

MODES = ("HTML", "Markdown", "None")
POST: dict[str, Any] = {
    "text": "Hello",
    "links": ["https://a.example/x?a=1&b=2", "https://b.example/"],
    "tags": ["big sale", "news"],
    "source": {
        "title": "Fish & <chips>",
        "authors": ["Ann", "Bob"],
        "page": 7,
        "open": True,
        "shut": False,
        "deep": {},
    },
    "channel": {"id": "c1", "title": "D&D", "city": "Тверь"},
}


async def rendered(
    workspace: Autopost,
    body: str,
    mode: str = "None",
    text_mode: str | None = "None",
    defaults: dict[str, str] | None = None,
    **values: Any,
) -> str | None:
    return await workspace.value(
        "select autopost.render_template(%s, %s, %s, %s, %s)",
        body, Jsonb(defaults or {}), mode, Jsonb(POST | values), text_mode,
    )  # fmt: skip


async def problem_of(workspace: Autopost, body: str, mode: str = "None", defaults: Any = None) -> str | None:
    return await workspace.value(
        "select autopost.template_problem(%s, %s, %s)", body, Jsonb({} if defaults is None else defaults), mode
    )


async def escaped(workspace: Autopost, text: str) -> str:
    return await workspace.value("select autopost.escape_markdown(autopost.normalize_text(%s))", text)


# What a template says


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("{{text}}", "Hello\n\nhttps://a.example/x?a=1&b=2\nhttps://b.example/"),
        ("{{ text }}: {{link}}", "Hello: https://a.example/x?a=1&b=2"),
        ("{{\ttext\n}}\n{{ links }}", "Hello\nhttps://a.example/x?a=1&b=2\nhttps://b.example/"),
        ("{{tags}}", "#big_sale #news"),
        ("{{source.title}}, {{source.page}}, {{source.open}}", "Fish & <chips>, 7, true"),
        ("{{source.authors}}", "Ann, Bob"),
        ("{{channel.id}} {{channel.title}} {{channel.city}}", "c1 D&D Тверь"),
        ("[{{source.shut}}{{source.deep}}{{source.none}}{{channel.none}}]", "[]"),
        ("{{{{ text }} { } }} {{{{{{link}}", "{{ text }} { } }} {{https://a.example/x?a=1&b=2"),
        ("no place at all", "no place at all"),
        ("  \n{{channel.id}}\n\n", "c1"),
    ],
)
async def test_a_place_shows_its_value(workspace: Autopost, body: str, shown: str) -> None:
    assert await rendered(workspace, body) == shown
    assert await problem_of(workspace, body) is None


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("a{{#tags}} {{tags}}{{/tags}}b", "a #big_sale #newsb"),
        ("a{{#source.none}}b{{/source.none}}c", "ac"),
        ("a{{#source.shut}}b{{/source.shut}}c{{# source.open }}d{{/ source.open }}", "acd"),
        ("{{#text}}1{{#source.none}}2{{#text}}3{{/text}}4{{/source.none}}5{{/text}}6", "156"),
        ("{{#source.none}}{{#source.none}}1{{/source.none}}2{{/source.none}}3", "3"),
        ("a\n\n{{#source.none}}by {{source.none}}{{/source.none}}\n\nb", "a\n\nb"),
    ],
)
async def test_a_section_shows_when_there_is_a_value(workspace: Autopost, body: str, shown: str) -> None:
    assert await rendered(workspace, body) == shown
    assert await problem_of(workspace, body) is None


async def test_defaults_stand_in_for_what_is_empty_and_bring_words_of_their_own(workspace: Autopost) -> None:
    defaults = {"source.author": "the editors", "source.title": "no title", "footer": "T & Co", "text": "(no text)"}
    body = "{{text}}|{{source.title}}|{{source.author}}|{{#footer}}{{footer}}{{/footer}}|{{link}}"
    assert await problem_of(workspace, body, "HTML", defaults) is None
    shown = await rendered(workspace, body, "HTML", "HTML", defaults, text=None, links=[])
    assert shown == "(no text)|Fish &amp; &lt;chips&gt;|the editors|T &amp; Co|"


async def test_links_that_have_no_place_of_their_own_follow_the_text(workspace: Autopost) -> None:
    links = ["https://a.example/", "https://b.example/"]
    assert await rendered(workspace, "{{text}} {{link}}", text="hi", links=links) == "hi https://a.example/"
    assert await rendered(workspace, "{{text}}!", text="see https://a.example/", links=links) == (
        "see https://a.example/\n\nhttps://b.example/!"
    )
    assert await rendered(workspace, "{{text}}", "HTML", "HTML", text="hi", links=["https://a.example/?a=1&b=2"]) == (
        "hi\n\nhttps://a.example/?a=1&amp;b=2"
    )
    assert await rendered(workspace, "{{text}}", text=None, links=links) == "\n".join(links)
    assert (
        await rendered(workspace, "{{{{link}} {{text}}", text="hi", links=links[:1])
        == "{{link}} hi\n\nhttps://a.example/"
    )


async def test_the_values_of_a_post_and_of_its_channel(workspace: Autopost) -> None:
    channel = await workspace.value(
        "select autopost.channel_values('c1', null, '@c1', %s)", Jsonb({"vars": {"city": "Тверь", "id": "mine"}})
    )
    assert channel == {"id": "c1", "title": None, "target": "@c1", "city": "Тверь"}
    payload = {"type": "text", "text": "hi", "links": ["https://a.example/"], "parse_mode": "HTML"}
    values = await workspace.value(
        "select autopost.template_values(%s, '{a,b}', %s, %s)", Jsonb(payload), Jsonb({"feed": "f"}), Jsonb(channel)
    )
    body = "{{text}} {{link}} {{tags}} {{source.feed}} {{channel.id}} {{channel.city}} {{channel.target}}"
    assert await rendered(workspace, body, **values) == "hi https://a.example/ #a #b f c1 Тверь @c1"
    bare = await workspace.value("select autopost.template_values('{}', null, null)")
    assert await rendered(workspace, f"({body})", **bare) == "(      )"
    assert await workspace.value("select autopost.channel_values('c', 't', '@c', '{\"vars\": 1}')") == {
        "id": "c", "title": "t", "target": "@c",
    }  # fmt: skip


async def test_its_variables_are_known(workspace: Autopost) -> None:
    body = "{{#source.b}}{{ text }}{{/source.b}} {{{{ link }} {{source.a}} {{text}}"
    assert await workspace.value("select autopost.template_variables(%s)", body) == ["source.a", "source.b", "text"]
    assert await workspace.value("select autopost.template_variables('plain')") == []
    assert not await workspace.value("select autopost.uses_channel(%s)", body)
    for uses in ("{{channel.title}}", "{{#channel.x}}a{{/channel.x}}"):
        assert await workspace.value("select autopost.uses_channel(%s)", uses)


# Markup


@pytest.mark.parametrize(
    ("written", "text", "result"),
    [
        ("None", "None", "None"), ("None", "HTML", "HTML"), ("None", "Markdown", "Markdown"), ("None", None, "None"),
        ("HTML", "None", "HTML"), ("HTML", "HTML", "HTML"), ("HTML", "Markdown", None), ("HTML", None, "HTML"),
        ("Markdown", "None", "Markdown"), ("Markdown", "HTML", None), ("Markdown", "Markdown", "Markdown"),
    ],
)  # fmt: skip
async def test_the_markup_of_the_result(
    workspace: Autopost, written: str, text: str | None, result: str | None
) -> None:
    assert await workspace.value("select autopost.template_mode(%s, %s)", written, text) == result
    assert (await rendered(workspace, "{{text}}", written, text) is None) is (result is None)


@pytest.mark.parametrize(
    ("mode", "text_mode", "body", "shown"),
    [
        ("HTML", "HTML", "<i>{{source.title}}</i> {{text}}", "<i>Fish &amp; &lt;chips&gt;</i> <b>1</b> *2*"),
        ("HTML", "None", "<i>a</i> {{text}}", "<i>a</i> &lt;b&gt;1&lt;/b&gt; *2*"),
        ("None", "HTML", "<i> {{source.title}} {{text}}", "&lt;i&gt; Fish &amp; &lt;chips&gt; <b>1</b> *2*"),
        ("None", "None", "<i> {{source.title}} {{text}}", "<i> Fish & <chips> <b>1</b> *2*"),
        ("Markdown", "Markdown", "_a_ {{source.title}} {{text}}", r"_a_ Fish & \<chips> <b>1</b> *2*"),
        ("Markdown", "None", "_a_ {{text}}", r"_a_ \<b>1\</b> \*2\*"),
        ("None", "Markdown", "_a_ {{text}}", r"\_a\_ <b>1</b> *2*"),
    ],
)
async def test_the_post_is_markup_and_every_other_value_is_text(
    workspace: Autopost, mode: str, text_mode: str, body: str, shown: str
) -> None:
    assert await rendered(workspace, body, mode, text_mode, text="<b>1</b> *2*", links=[]) == shown


async def test_quotes_are_escaped_where_they_would_end_an_attribute(workspace: Autopost) -> None:
    body = '"{{source.x}}" <a class=\'{{source.x}}\' href="{{source.x}}">"{{source.x}}"</a> \'{{source.x}}\''
    assert await problem_of(workspace, body, "HTML") is None
    assert await rendered(workspace, body, "HTML", source={"x": "\"'>"}) == (
        '""\'&gt;" <a class=\'&quot;&#39;&gt;\' href="&quot;&#39;&gt;">""\'&gt;"</a> \'"\'&gt;\''
    )


async def test_an_address_of_markdown_takes_no_blanks_and_brackets(workspace: Autopost) -> None:
    shown = await rendered(
        workspace,
        "[{{source.x}}]({{source.u}}) {{source.x}}",
        "Markdown",
        source={"x": "[a]", "u": "https://e.example/a_b (c) <d>"},
    )
    assert shown == r"[\[a\]](https://e.example/a_b%20%28c%29%20%3Cd%3E) \[a\]"


texts = st.text(alphabet="abzЖ7. \n\t<>&;\"'*_~`+^#=[]()|\\-!🌍é#lt1", max_size=24)
thorough = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def squeezed(text: str) -> str:
    """Blanks at the ends of lines are nothing that one sees, and before a paragraph no platform is given any."""
    return re.sub(r"\n\n[ \t]+", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))


@thorough
@given(text=texts)
async def test_escaped_markdown_shows_exactly_itself(workspace: Autopost, text: str) -> None:
    text = await workspace.value("select autopost.normalize_text(%s)", text)
    markdown = await escaped(workspace, text)
    assert squeezed(convert(markdown, "Markdown", "pigeon")[0]) == squeezed(text)
    on_telegram = parse_telegram_html(convert(markdown, "Markdown", "telegram")[0])
    assert (squeezed(on_telegram.text), on_telegram.spans) == (squeezed(text), [])
    converted, mode = convert(markdown, "Markdown", "max")
    on_max = parse_max(converted, mode).text if mode else converted
    assert re.sub(r"\n[ \t]", "\n", squeezed(on_max)) == re.sub(r"\n[ \t]", "\n", squeezed(text)), (
        "MAX takes no indentation"
    )


@thorough
@given(value=texts, before=st.sampled_from(["", "a ", "a", "- ", "# ", "\n\n", "**b** ", "> "]))
async def test_a_value_shows_itself_wherever_it_stands_in_markdown(
    workspace: Autopost, value: str, before: str
) -> None:
    value = " ".join((await workspace.value("select autopost.normalize_text(%s)", value)).split()) or "-"
    shown = await rendered(workspace, f"{before}{{{{source.x}}}} end", "Markdown", source={"x": value})
    expected = await rendered(workspace, f"{before}x end", "Markdown")
    plain = convert(str(shown), "Markdown", "pigeon")[0]
    assert plain == convert(str(expected), "Markdown", "pigeon")[0].replace("x end", f"{value} end")


@thorough
@given(value=texts, post=st.sampled_from(["None", "HTML"]))
async def test_sound_html_stays_sound_whatever_is_put_in(workspace: Autopost, value: str, post: str) -> None:
    body = "<b>{{text}}</b> <a href=\"{{source.x}}\">{{source.x}}</a>{{#source.x}}<i class='{{source.x}}'>{{channel.x}}</i>{{/source.x}}"
    assert await problem_of(workspace, body, "HTML") is None
    text = html.escape(value) if post == "HTML" else value
    shown = await rendered(workspace, body, "HTML", post, text=text, source={"x": value}, channel={"x": value})
    assert await workspace.value("select autopost.html_problem(%s)", shown) is None
    assert re.sub("[^<]|<(?!/?[abi]\\b)", "", str(shown)) in ("<" * 4, "<" * 6)


@thorough
@given(
    body=st.text("{} #/ab.textlink\n", max_size=40)
    | st.lists(st.sampled_from(["{{", "}}", "text", "{{#text}}", "{{/text}}", "a", "{"])).map("".join)
)
async def test_what_is_not_refused_renders_and_leaves_no_braces_behind(workspace: Autopost, body: str) -> None:
    problem = await problem_of(workspace, body)
    if problem is None:
        shown = await rendered(workspace, body, text="T", links=[])
        assert shown is not None and shown.count("{{") <= body.count("{{{{")
    assert await rendered(workspace, body) == await rendered(workspace, body), "the same in, the same out"


# What is refused


@pytest.mark.parametrize(
    ("body", "mode", "problem"),
    [
        ("", "None", "body: shows nothing"),
        (" \n", "None", "body: shows nothing"),
        ("{{#text}} {{/text}}", "None", "body: shows nothing"),
        ("x", "BBCode", "parse_mode: must be HTML, Markdown or None"),
        ("Ж" * 8193, "None", "body: has 16386 bytes, at most 16384 are allowed"),
        ("a\x01", "None", "body: contains control characters"),
        (
            "{{ titel }} {{text}} {{date}}",
            "None",
            "body: unknown variable date, titel; known are text, links, link, tags, source.<key>, channel.<key>, footer",
        ),
        ("{{source}}", "None", "body: unknown variable source; known are text, links, link, tags, source.<key>, channel.<key>, footer"),
        ("{{#x}}a{{/x}}", "None", "body: unknown variable x; known are text, links, link, tags, source.<key>, channel.<key>, footer"),
        ("a {{text", "None", 'body: "{{text" is never closed; braces themselves are written {{{{'),
        ("a {{ te xt }}", "None", 'body: "{{ te xt }}" is not a placeholder; braces themselves are written {{{{'),
        ("{{}}", "None", 'body: "{{}}" is not a placeholder; braces themselves are written {{{{'),
        ("{{text}} {{", "None", 'body: "{{" is never closed; braces themselves are written {{{{'),
        ("{{#text}}a", "None", "body: {{#text}} is never closed"),
        ("a{{/text}}", "None", "body: {{/text}} closes nothing"),
        ("{{#text}}a{{#link}}b{{/text}}{{/link}}", "None", "body: {{/text}} closes nothing; {{#link}} is open"),
        ("{{#text}}" * 9 + "a" + "{{/text}}" * 9, "None", "body: sections are nested more than 8 deep"),
        ("{{text}}" * 201, "None", "body: has more than 200 placeholders"),
        ("<b>{{text}}", "HTML", "body: <b> is never closed"),
        ("<blink>{{text}}</blink>", "HTML", "body: unknown tag <blink>"),
        ("<b>{{#link}}</b>{{/link}}{{text}}", "HTML", "body: in the section link: </b> closes nothing"),
        ("<b>{{#link}}x{{#text}}<i>{{/text}}{{/link}}</b>", "HTML", "body: in the section text: <i> is never closed"),
        ('<a {{#link}}href="x">{{/link}}y</a>', "HTML", "body: a section cannot begin or end inside a tag"),
        ('<a href="{{text}}">y</a>', "HTML", "body: text, links and tags cannot stand inside a tag"),
        *(
            (body, "HTML", "body: inside a tag a placeholder stands only between the quotes of href or class")
            for body in ("<a href={{link}}>y</a>", "<{{source.x}}>y</b>", '<b id="{{link}}">y</b>', '<a href="x" {{link}}>y</a>')
        ),
        ("[x]({{links}})", "Markdown", "body: text, links, tags and sections cannot stand in an address"),
        ("a `{{source.x}}`", "Markdown", "body: a placeholder cannot stand in code: its escapes would show"),
        ("```\n{{text}}\n```", "Markdown", "body: a placeholder cannot stand in code: its escapes would show"),
    ],
    ids=lambda x: str(x)[:40],
)  # fmt: skip
async def test_a_template_that_cannot_work_is_told_in_words(
    workspace: Autopost, body: str, mode: str, problem: str
) -> None:
    assert await problem_of(workspace, body, mode, {"footer": "f", "source.x": "y", "text": "t"}) == problem


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        ("<b>{{text}}", "None"),
        ("<b>{{text}}", "Markdown"),
        ("`a` {{text}} `b` \\` {{link}}", "Markdown"),
        ("[{{source.title}}]({{link}})", "Markdown"),
        ('<a class="{{source.c}}" href="https://e.example/?u={{source.id}}&x={{link}}">x</a>', "HTML"),
        ("<b>{{#link}}<i>{{link}}</i>{{/link}}</b>", "HTML"),
        ("{{{{", "HTML"),
        ("{{text}}" * 200, "None"),
        ("x" * 16384, "None"),
    ],
    ids=lambda x: str(x)[:40],
)
async def test_a_template_that_works(workspace: Autopost, body: str, mode: str) -> None:
    assert await problem_of(workspace, body, mode) is None


@pytest.mark.parametrize(
    ("defaults", "problem"),
    [
        ([], "defaults: must name values"),
        ({"footer": 1}, "defaults.footer: must be a string"),
        (
            {"chanel.title": "x"},
            'defaults.chanel.title: no such name; a name of your own has letters, digits, "_" and "-"',
        ),
        ({"a b": "x"}, 'defaults.a b: no such name; a name of your own has letters, digits, "_" and "-"'),
    ],
)
async def test_defaults_are_named_strings(workspace: Autopost, defaults: Any, problem: str) -> None:
    assert await problem_of(workspace, "{{text}}", defaults=defaults) == problem


# Versions


async def save(hand: Autopost, body: str, template_id: str = "t", mode: str = "None", **defaults: str) -> int:
    return await hand.value(
        "select autopost.save_template(%s, %s, %s, %s, %s, %s)",
        hand.workspace, template_id, body, Jsonb(defaults), mode, hand.now,
    )  # fmt: skip


async def test_a_change_is_a_new_version_and_no_change_is_none(workspace: Autopost) -> None:
    versions = [
        await save(workspace, "{{text}}"),
        await save(workspace, "{{text}}"),
        await save(workspace, "{{text}}!"),
        await save(workspace, "{{text}}!", footer="f"),
        await save(workspace, "{{text}}!", mode="HTML", footer="f"),
        await save(workspace, "{{text}}!", mode="HTML", footer="f"),
        await save(workspace, "{{text}}"),
        await save(workspace, "{{text}}", "other"),
    ]
    assert versions == [1, 1, 2, 3, 4, 4, 5, 1]
    rows = await workspace.sql(
        "select template_id, version, body, defaults, parse_mode, created_at from autopost.templates"
        " where workspace_id = %s order by 1, 2",
        workspace.workspace,
    )
    assert [row["version"] for row in rows] == [1, 1, 2, 3, 4, 5]
    assert rows[4] == {
        "template_id": "t", "version": 4, "body": "{{text}}!", "defaults": {"footer": "f"}, "parse_mode": "HTML",
        "created_at": workspace.now,
    }  # fmt: skip


async def test_what_cannot_work_is_not_stored(workspace: Autopost) -> None:
    await save(workspace, "{{text}}")
    for body, template_id in (("{{titel}}", "t"), ("{{text}}", ""), ("{{text}}", "no blanks")):
        with pytest.raises(psycopg.Error) as refused:
            await save(workspace, body, template_id)
        assert refused.value.sqlstate == "VP001"
    query = "select count(*) from autopost.templates where workspace_id = %s"
    assert await workspace.value(query, workspace.workspace) == 1


async def test_a_workspace_that_is_not_there_has_no_templates(workspace: Autopost) -> None:
    with pytest.raises(psycopg.Error) as refused:
        await workspace.value("select autopost.save_template('nowhere', 't', '{{text}}')")
    assert refused.value.sqlstate == "VN001"


async def test_two_that_save_at_once_make_two_versions(autopost: Autopost, crowd: Crowd) -> None:
    first, second = await crowd.hands(2)
    async with first.connection.transaction():
        assert await save(first, "one") == 1
        waiting = await crowd.blocked(second, save(second, "two"))
    assert await waiting == 2
    async with first.connection.transaction():
        assert await save(first, "three") == 3
        waiting = await crowd.blocked(second, save(second, "three"))
    assert await waiting == 3, "they wanted the same"


async def test_no_save_of_a_crowd_is_lost(autopost: Autopost, crowd: Crowd) -> None:
    hands = await crowd.hands(4)
    versions = await asyncio.gather(*(save(hand, f"{n}") for n, hand in enumerate(hands)))
    assert sorted(versions) == [1, 2, 3, 4]
    rows = await autopost.sql("select version, body from autopost.templates")
    assert {row["version"]: row["body"] for row in rows} == {v: str(n) for n, v in enumerate(versions)}
