"""What the emulated platforms remember: tokens, chats, posts, files, faults. In memory, bounded everywhere."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from vestnik.sandbox.faults import Fault
from vestnik.sandbox.media import MOST_SESSIONS, Handles, Kept, Media, Session
from vestnik.sandbox.pace import Pace
from vestnik.sandbox.richtext import Rich
from vestnik.sandbox.site import Site

PLATFORMS = ("telegram", "max")
MOST_CHATS = 20_000
MOST_TOKENS = 1_000
LONGEST_ID = 64
LONGEST_KEPT = 16_384  # of a text as it was received
MOST_HOOKS = 32  # of one bot
ROLES = ("owner", "administrator", "silent", "member", "left")  # a silent administrator may not post


class Clock(Protocol):
    """``time`` is for what is shown, ``monotonic`` for what is measured."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...


class SystemClock:
    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Full(Exception):
    """The sandbox takes no more of this kind."""


@dataclass(slots=True)
class Post:
    message_id: str
    at: float
    token: str  # the alias, never the token
    text: str  # as it was received
    rich: Rich  # as it is seen
    parse_mode: str | None
    buttons: list[list[dict[str, str]]]
    preview: bool
    thread_id: int | None = None
    media: tuple[Media, ...] = ()
    media_group_id: str | None = None  # of an album that is a message for each of its files
    deleted: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "message_id": self.message_id,
            "at": self.at,
            "token": self.token,
            "text": self.text,
            "visible": self.rich.text,
            "parse_mode": self.parse_mode,
            "buttons": self.buttons,
            "preview": self.preview,
            "thread_id": self.thread_id,
            "media": [media.as_json() for media in self.media],
            "media_group_id": self.media_group_id,
            "deleted": self.deleted,
        }


@dataclass(slots=True)
class Chat:
    chat_id: str
    number: int
    title: str
    kind: str
    posts: deque[Post]
    threads: frozenset[int] | None = None  # None: any topic is there
    total: int = 0
    last_id: int = 0
    faults: list[Fault] = field(default_factory=list)
    pace: Pace = field(default_factory=Pace)
    minute: Pace = field(default_factory=Pace)
    bot: str = "administrator"  # what every bot is here, one of ROLES

    @property
    def takes_posts(self) -> bool:
        return self.bot in ("owner", "administrator") or (self.bot == "member" and self.kind != "channel")

    def find(self, message_id: str) -> Post | None:
        return next((post for post in self.posts if post.message_id == message_id and not post.deleted), None)


@dataclass(slots=True)
class Hook:
    """An address that updates go to. Nothing is sent there: the sandbox has no updates yet."""

    url: str
    at: float
    update_types: list[str] | None = None
    pending: int = 0
    error: str | None = None
    error_at: float | None = None


@dataclass(slots=True)
class Token:
    alias: str
    number: int
    bot: str = ""  # tells bots apart without showing their tokens
    hooks: dict[str, Hook] = field(default_factory=dict)  # by address; with Telegram there is one at most
    pace: Pace = field(default_factory=Pace)


@dataclass(slots=True)
class Limits:
    """Rates are in messages per second, ``None`` is no limit; a burst is what may come at once."""

    chat_rps: float | None
    token_rps: float | None
    chat_burst: int = 3
    token_burst: int = 15
    group_per_minute: int | None = None
    not_ready: int = 0  # how often MAX says of each uploaded file that it is not ready
    token_ttl_s: float | None = None  # after which MAX no longer knows an uploaded file
    upload_ttl_s: float | None = None  # after which MAX no longer knows an address to upload to


def _platform_limits(name: str) -> Limits:
    return Limits(chat_rps=1.0, token_rps=30.0) if name == "telegram" else Limits(chat_rps=None, token_rps=30.0)


class Platform:
    """One emulated platform."""

    def __init__(self, name: str, ring: int) -> None:
        self.name = name
        self.ring = ring
        self.lenient = False
        self.limits = _platform_limits(name)
        self.tokens: dict[str, Token] = {}
        self._numbers = itertools.count(1_000_000)
        self.chats: OrderedDict[str, Chat] = OrderedDict()
        self.faults: list[Fault] = []
        self.counters: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.handles = Handles()
        self.sessions: OrderedDict[str, Session] = OrderedDict()

    def add_token(self, token: str, alias: str) -> Token:
        for known, entry in list(self.tokens.items()):
            if entry.alias == alias or known == token:
                del self.tokens[known]
        if len(self.tokens) >= MOST_TOKENS:
            raise Full(f"the sandbox holds at most {MOST_TOKENS} tokens")
        bot = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.tokens[token] = Token(alias, next(self._numbers), bot)
        return self.tokens[token]

    def token(self, token: str) -> Token | None:
        known = self.tokens.get(token)
        if known is None and self.lenient and token and len(self.tokens) < MOST_TOKENS:
            return self.add_token(token, f"token-{len(self.tokens) + 1}")
        return known

    def add_chat(
        self, chat_id: str, *, title: str = "", kind: str = "channel", threads: frozenset[int] | None = None
    ) -> Chat:
        """A chat that is already there keeps its posts and faults."""
        chat = self.chats.get(chat_id)
        if chat is None:
            if len(self.chats) >= MOST_CHATS:
                raise Full(f"the sandbox holds at most {MOST_CHATS} chats")
            number = int(chat_id) if chat_id.lstrip("-").isdigit() else -1_000_000_000_000 - len(self.chats)
            chat = self.chats[chat_id] = Chat(chat_id, number, title, kind, deque(maxlen=self.ring))
        chat.title, chat.kind, chat.threads = title or chat.title or chat_id, kind, threads
        return chat

    def chat(self, chat_id: str) -> Chat | None:
        known = self.chats.get(chat_id)
        if known is None and self.lenient and 0 < len(chat_id) <= LONGEST_ID and len(self.chats) < MOST_CHATS:
            return self.add_chat(chat_id)
        return known

    def accept(self, chat: Chat, post: Post) -> None:
        post.text = post.text[:LONGEST_KEPT]
        chat.posts.append(post)
        chat.total += 1
        self.counters["accepted"] += 1

    def open_session(self, name: str, session: Session) -> None:
        self.sessions[name] = session
        while len(self.sessions) > MOST_SESSIONS:
            self.sessions.popitem(last=False)


class State:
    """Everything that one sandbox knows."""

    def __init__(self, *, clock: Clock | None = None, ring: int = 200, lenient: bool = False) -> None:
        self.clock: Clock = clock or SystemClock()
        self._ring = ring
        self.lenient = lenient
        self.platforms: dict[str, Platform] = {}
        self.kept = Kept()
        self.site = Site()
        self.reset()

    def reset(self) -> None:
        self.kept, self.site = Kept(), Site()
        self.platforms = {name: Platform(name, self._ring) for name in PLATFORMS}
        for platform in self.platforms.values():
            platform.lenient = self.lenient
