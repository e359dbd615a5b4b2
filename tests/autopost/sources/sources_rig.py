"""Sources of one workspace, read from a web server of this machine that answers what a test puts there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from psycopg.types.json import Jsonb

from vestnik.autopost.sources.contract import SourceFailed
from vestnik.autopost.sources.pull import Puller
from vestnik.db.pool import Pool, call
from vestnik.download import Downloader, parse_networks
from vestnik.errors import NotFound

Row = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CHANNEL = "c1"


@dataclass
class Site:
    """Answers to paths: a body, or a handler; ``asked`` is what came, in order."""

    url: str = ""
    pages: dict[str, web.Response | Handler] = field(default_factory=dict)
    asked: list[web.Request] = field(default_factory=list)

    def put(self, path: str, body: str | bytes | list[Any] | Row, status: int = 200, **headers: str) -> str:
        raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = lambda request: _answer(raw, status, named)  # type: ignore[assignment]
        return self.url + path

    def serve(self, path: str, handler: Handler) -> str:
        self.pages[path] = handler
        return self.url + path

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        handler = self.pages.get(request.path)
        return web.Response(status=404) if handler is None else await handler(request)  # type: ignore[operator]


async def _answer(body: bytes, status: int, headers: Mapping[str, str]) -> web.Response:
    return web.Response(body=body, status=status, headers=headers)


class Sources:
    """Declared by a row and read by the shipped puller; each ``pull`` is one run."""

    def __init__(self, workspace: Any, pool: Pool, site: Site) -> None:
        self.workspace, self.pool, self.site = workspace, pool, site
        self.secrets: dict[str, str] = {}
        self.downloader = Downloader(allow=parse_networks("127.0.0.1/32"), timeout=20, silence=5)
        self.puller = Puller(pool, self.downloader, lambda _: self._secret)

    async def declare(
        self, kind: str, config: Row, source_id: str = "s", *, backlog: int | None = None, enabled: bool = True
    ) -> None:
        await self.sql(
            "insert into autopost.pull_sources (workspace_id, source_id, kind, config_json, backlog, enabled)"
            " values (%s, %s, %s, %s, %s, %s) on conflict (workspace_id, source_id) do update"
            " set config_json = excluded.config_json, backlog = excluded.backlog, enabled = excluded.enabled",
            self.id, source_id, kind, Jsonb(config), backlog, enabled,
        )  # fmt: skip

    async def feed(self, body: str | bytes = "", path: str = "/feed", backlog: int | None = None, **config: Any) -> str:
        """An ``rss`` source of what is at ``path``."""
        url = self.site.put(path, body) if body else self.site.url + path
        await self.declare("rss", {"url": url, "link": "none"} | config, backlog=backlog)
        return url

    async def pull(self, source_id: str = "s") -> Row:
        return await self.puller.pull(self.id, source_id)

    async def fails(self, source_id: str = "s") -> SourceFailed:
        """The run's error, which its row and its source have as well."""
        try:
            stats = await self.pull(source_id)
        except SourceFailed as e:
            (run, *_) = await self.runs(source_id)
            assert run["stats_json"]["outcome"] == "failed" and run["finished_at"]
            assert run["stats_json"]["error"] == {"code": e.code, "message": str(e), "permanent": e.permanent}
            assert (await self.source(source_id))["last_error"] == run["stats_json"]["error"]
            return e
        raise AssertionError(f"it was read: {stats}")

    async def texts(self) -> list[str]:
        """What the channel gets, in the order in which it goes out."""
        rows = await self.sql(
            "select rendered_text as t from autopost.deliveries where workspace_id = %s and channel_id = %s"
            " and status = 'queued' order by created_at", self.id, CHANNEL,
        )  # fmt: skip
        return [row["t"] for row in rows]

    async def payloads(self) -> list[Row]:
        rows = await self.sql(
            "select m.payload || jsonb_build_object('tags', m.tags) as p from autopost.messages m"
            " join autopost.deliveries d using (workspace_id, message_id)"
            " where m.workspace_id = %s and d.channel_id = %s order by d.created_at", self.id, CHANNEL,
        )  # fmt: skip
        return [row["p"] for row in rows]

    async def cursor(self, source_id: str = "s") -> Row:
        return (await self.sql("select autopost.pull_cursor(%s, %s) as c", self.id, source_id))[0]["c"]

    async def source(self, source_id: str = "s") -> Row:
        found = await self.sql(
            "select * from autopost.pull_sources where workspace_id = %s and source_id = %s", self.id, source_id
        )
        return found[0]

    async def runs(self, source_id: str = "s") -> list[Row]:
        """The newest first."""
        return await self.sql(
            "select * from autopost.ingest_runs where workspace_id = %s and kind = 'pull'"
            " and stats_json ->> 'source_id' = %s order by started_at desc, run_id desc", self.id, source_id,
        )  # fmt: skip

    async def sql(self, query: Any, *arguments: Any) -> list[Row]:
        return await call(self.pool, query, arguments)

    @property
    def id(self) -> str:
        return self.workspace.workspace

    async def _secret(self, name: str) -> str:
        await asyncio.sleep(0)
        if name not in self.secrets:
            raise NotFound(f"no source credential {name!r}")
        return self.secrets[name]


def rss(*items: Row, title: str = "Feed") -> str:
    """RSS 2.0 of these, in this order; each has any of the tags of an item as text, or whole as ``xml``."""
    return (
        '<?xml version="1.0" encoding="utf-8"?><rss version="2.0" xmlns:media="http://search.yahoo.com/mrss/"'
        ' xmlns:content="http://purl.org/rss/1.0/modules/content/">'
        f"<channel><title>{title}</title>{''.join(map(_item, items))}</channel></rss>"
    )


def _item(item: Row) -> str:
    return "<item>" + "".join(v if k == "xml" else f"<{k}>{v}</{k}>" for k, v in item.items()) + "</item>"


def numbered(*numbers: int) -> str:
    """A feed of items that are known by a number, the newest first as feeds have it."""
    return rss(*({"guid": f"n{n}", "title": f"Item {n}"} for n in sorted(numbers, reverse=True)))


def item_texts(*numbers: int) -> list[str]:
    return [f"<b>Item {n}</b>" for n in numbers]
