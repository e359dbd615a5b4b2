"""Two pages, in Russian and English: the chats at a glance, and one chat as its readers see it."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from itertools import islice
from string import Template
from typing import Any
from urllib.parse import quote

from aiohttp import web

from vestnik.sandbox.faults import Fault
from vestnik.sandbox.richtext import to_html
from vestnik.sandbox.state import PLATFORMS, Chat, Platform, Post
from vestnik.sandbox.wire import STATE

MOST_ROWS = 500

_WORDS = {
    "en": {
        "sandbox": "Sandbox",
        "lead": "Emulated platforms. Nothing here leaves this machine.",
        "chat": "Chat",
        "posts": "Posts",
        "last": "Last post",
        "faults": "Faults",
        "no_chats": "No chats yet. Add one:",
        "no_posts": "Nothing has been posted here yet.",
        "requests": "requests",
        "accepted": "accepted",
        "violations": "rule violations",
        "total": "posts: {}",
        "more": "and {} more",
        "none": "none",
        "back": "All chats",
        "deleted": "deleted",
        "no_preview": "no link preview",
        "topic": "topic",
        "switch": "Русский",
        "earlier": "earlier posts are no longer kept",
        "whole": "whole platform",
        "now": "just now",
        "seconds": "{} s ago",
        "minutes": "{} min ago",
        "hours": "{} h ago",
    },
    "ru": {
        "sandbox": "Песочница",
        "lead": "Эмуляторы платформ. Отсюда ничего не уходит наружу.",
        "chat": "Чат",
        "posts": "Посты",
        "last": "Последний пост",
        "faults": "Сбои",
        "no_chats": "Чатов пока нет. Добавьте первый:",
        "no_posts": "Здесь пока ничего не опубликовано.",
        "requests": "запросов",
        "accepted": "принято",
        "violations": "нарушений правил",
        "total": "постов: {}",
        "more": "и ещё {}",
        "none": "нет",
        "back": "Все чаты",
        "deleted": "удалено",
        "no_preview": "без превью ссылок",
        "topic": "тема",
        "switch": "English",
        "earlier": "более ранние посты уже не хранятся",
        "whole": "вся платформа",
        "now": "только что",
        "seconds": "{} с назад",
        "minutes": "{} мин назад",
        "hours": "{} ч назад",
    },
}
_NAMES = {"telegram": "Telegram", "max": "MAX"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
Words = dict[str, str]


def routes() -> list[web.RouteDef]:
    return [
        web.get("/", _index),
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
    posts = "".join(_post(post, words, now) for post in reversed(chat.posts))
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
    last = chat.posts[-1] if chat.posts else None
    said = " ".join(last.rich.text.split())[:90] if last else "—"
    when = f"<time>{_ago(last.at, now, words)}</time>" if last else ""
    return (
        f'<tr><td><a href="{link}">{escape(chat.title)}</a><code>{escape(chat.chat_id)}</code></td>'
        f'<td class="n">{chat.total}</td><td class="said"><span>{escape(said)}</span>{when}</td>'
        f"<td>{_fault_list(chat.faults) or words['none']}</td></tr>"
    )


def _post(post: Post, words: Words, now: float) -> str:
    notes = [_ago(post.at, now, words), f"#{post.message_id[-8:]}", post.token, post.parse_mode or "plain"]
    notes += [] if post.preview else [words["no_preview"]]
    notes += [] if post.thread_id is None else [f"{words['topic']} {post.thread_id}"]
    notes += [words["deleted"]] if post.deleted else []
    rows = "".join(f'<div class="row">{"".join(_button(button) for button in row)}</div>' for row in post.buttons)
    shown = f'<div class="text">{to_html(post.rich)}</div>'
    return (
        f'<article class="{"deleted" if post.deleted else ""}">{shown}{rows}'
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
    if asked in _WORDS:
        return str(asked)
    accepted = request.headers.get("Accept-Language", "").lower()
    ru, en = accepted.find("ru"), accepted.find("en")
    return "ru" if ru >= 0 and (en < 0 or ru < en) else "en"


def _words(request: web.Request) -> Words:
    return _WORDS[_lang(request)]


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
