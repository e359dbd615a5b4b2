"""Two pages, in Russian and English: the chats at a glance, and one chat as its readers see it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from itertools import islice
from string import Template
from typing import Any
from urllib.parse import quote

from aiohttp import web

from vestnik.sandbox.faults import Fault
from vestnik.sandbox.page_media import Pictures, media_html, said_in_a_line
from vestnik.sandbox.page_words import WORDS, Words
from vestnik.sandbox.richtext import to_html
from vestnik.sandbox.state import PLATFORMS, Chat, Platform, Post
from vestnik.sandbox.wire import STATE

MOST_ROWS = 500
MOST_OF_AN_ALBUM = 10

_NAMES = {"telegram": "Telegram", "max": "MAX"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def routes() -> list[web.RouteDef]:
    return [
        web.get("/", _index),
        web.get("/thumbs/{sha256:[0-9a-f]{64}}", _thumb),
        web.get(rf"/chats/{{platform:{'|'.join(PLATFORMS)}}}/{{chat_id}}", _feed),
    ]


async def _index(request: web.Request) -> web.Response:
    state, words = request.app[STATE], _words(request)
    now = state.clock.time()
    sections = [_section(platform, words, now, _lang(request)) for platform in state.platforms.values()]
    lead = f'<p class="lead">{escape(words["lead"])}</p>'
    return _page(request, words["sandbox"], lead + "".join(sections))


async def _feed(request: web.Request) -> web.Response:
    state, words = request.app[STATE], _words(request)
    platform = state.platforms[request.match_info["platform"]]
    chat = platform.chats.get(request.match_info["chat_id"])
    if chat is None:
        raise web.HTTPNotFound(text="404: no such chat", headers=_HEADERS)
    now = state.clock.time()
    pictures = Pictures(state, f"{request.scheme}://{request.host}")
    posts = "".join(_post(album, words, now, pictures) for album in reversed(_albums(chat.posts)))
    posts = posts or f'<p class="empty">{escape(words["no_posts"])}</p>'
    if chat.total > len(chat.posts) > 0:
        posts += f'<p class="empty">{escape(words["earlier"])}</p>'
    name = f"{_NAMES[platform.name]} · <code>{escape(chat.chat_id)}</code> · {words['total'].format(chat.total)}"
    head = (
        f'<p class="back"><a href="/?lang={_lang(request)}">← {escape(words["back"])}</a></p>'
        f'<p class="lead">{name}</p>'
        f"{_fault_list(chat.faults + platform.faults)}"
    )
    return _page(request, chat.title, f'{head}<main class="feed">{posts}</main>')


async def _thumb(request: web.Request) -> web.Response:
    kept = request.app[STATE].kept.get(request.match_info["sha256"])
    if kept is None or not kept[0].picture_type:
        raise web.HTTPNotFound(text="404: no such picture", headers=_HEADERS)
    headers = {**_HEADERS, "Cache-Control": "max-age=31536000, immutable"}
    return web.Response(body=kept[1], content_type=kept[0].picture_type, headers=headers)


def _albums(posts: Iterable[Post]) -> list[list[Post]]:
    """Posts that are shown as one are together."""
    albums: list[list[Post]] = []
    for post in posts:
        if post.media_group_id and albums and albums[-1][0].media_group_id == post.media_group_id:
            albums[-1].append(post)
        else:
            albums.append([post])
    return albums


def _section(platform: Platform, words: Words, now: float, lang: str) -> str:
    broken = sum(platform.violations.values())
    faults = f"<span>{words['whole']}: {_fault_list(platform.faults)}</span>" if platform.faults else ""
    head = (
        f"<h2>{_NAMES[platform.name]}</h2>"
        f'<p class="counts"><span><b>{platform.counters["requests"]}</b> {words["requests"]}</span>'
        f"<span><b>{platform.counters['accepted']}</b> {words['accepted']}</span>"
        f'<span class="{"bad" if broken else ""}"><b>{broken}</b> {words["violations"]}'
        f"{_broken(platform)}</span>{faults}</p>"
    )
    if not platform.chats:
        command = f"curl -X PUT …/admin/{platform.name}/chats/-1001"
        return f'<section>{head}<p class="empty">{words["no_chats"]} <code>{command}</code></p></section>'
    rows = "".join(_row(platform, chat, words, now, lang) for chat in islice(platform.chats.values(), MOST_ROWS))
    hidden = len(platform.chats) - MOST_ROWS
    more = f'<p class="empty">{words["more"].format(hidden)}</p>' if hidden > 0 else ""
    titles = "".join(f"<th>{escape(words[name])}</th>" for name in ("chat", "posts", "last", "faults"))
    return f"<section>{head}<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{more}</section>"


def _broken(platform: Platform) -> str:
    named = ", ".join(f"{name} {count}" for name, count in sorted(platform.violations.items()) if count)
    return f" ({escape(named)})" if named else ""


def _row(platform: Platform, chat: Chat, words: Words, now: float, lang: str) -> str:
    link = f"/chats/{platform.name}/{quote(chat.chat_id, safe='')}?lang={lang}"
    last = _albums(islice(reversed(chat.posts), MOST_OF_AN_ALBUM))[:1]
    said = said_in_a_line(last[0][::-1], words) if last else "—"
    when = f"<time>{_ago(last[0][0].at, now, words)}</time>" if last else ""
    return (
        f'<tr><td><a href="{link}">{escape(chat.title)}</a><code>{escape(chat.chat_id)}</code></td>'
        f'<td class="n">{chat.total}</td><td class="said"><span>{escape(said)}</span>{when}</td>'
        f"<td>{_fault_list(chat.faults) or words['none']}</td></tr>"
    )


def _post(album: list[Post], words: Words, now: float, pictures: Pictures) -> str:
    post, deleted = album[0], all(one.deleted for one in album)
    number = f"#{post.message_id[-8:]}" + (f"–{album[-1].message_id[-8:]}" if len(album) > 1 else "")
    notes = [_ago(post.at, now, words), number, post.token, post.parse_mode or "plain"]
    notes += [] if post.preview else [words["no_preview"]]
    notes += [] if post.thread_id is None else [f"{words['topic']} {post.thread_id}"]
    notes += [words["deleted"]] if deleted else []
    rows = "".join(f'<div class="row">{"".join(_button(button) for button in row)}</div>' for row in post.buttons)
    media = media_html([media for one in album for media in one.media], words, pictures)
    texts = "".join(f'<div class="text">{to_html(one.rich)}</div>' for one in album if one.rich.text)
    classes = " ".join(name for name, on in (("deleted", deleted), ("with-media", bool(media))) if on)
    return (
        f'<article class="{classes}">{media}{texts}{rows}'
        f"<footer>{' · '.join(escape(note) for note in notes)}</footer></article>"
    )


def _button(button: dict[str, str]) -> str:
    text, url = escape(button.get("text", "")), button.get("url", "")
    if url.lower().startswith(("http://", "https://")):
        return f'<a class="button" href="{escape(url)}" rel="noopener noreferrer" target="_blank">{text} ↗</a>'
    return f'<span class="button">{text}</span>'


def _fault_list(faults: list[Fault]) -> str:
    def words(fault: Fault) -> str:
        chance = "" if fault.probability >= 1 else f" {fault.probability:.0%}"
        left = "" if fault.times is None else f" ×{fault.times - fault.fired}"
        return f'<span class="fault">{escape(fault.kind)}{chance}{left}</span>'

    return " ".join(words(fault) for fault in faults)


def _ago(at: float, now: float, words: Words) -> str:
    seconds = max(0, int(now - at))
    if seconds < 2:
        return words["now"]
    for name, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if seconds >= size * (1 if name == "seconds" else 2):
            return words[name].format(seconds // size)
    return words["now"]


def _lang(request: web.Request) -> str:
    asked = request.query.get("lang")
    if asked in WORDS:
        return str(asked)
    accepted = request.headers.get("Accept-Language", "").lower()
    ru, en = accepted.find("ru"), accepted.find("en")
    return "ru" if ru >= 0 and (en < 0 or ru < en) else "en"


def _words(request: web.Request) -> Words:
    return WORDS[_lang(request)]


def _page(request: web.Request, title: str, body: str) -> web.Response:
    lang, words = _lang(request), _words(request)
    values: dict[str, Any] = {
        "lang": lang,
        "other": "en" if lang == "ru" else "ru",
        "title": escape(title),
        "switch": words["switch"],
        "body": body,
    }
    template = Template(files("vestnik.sandbox").joinpath("page.html").read_text("utf-8"))
    return web.Response(text=template.substitute(values), content_type="text/html", headers=_HEADERS)
