"""``db``: rows of PostgreSQL, MySQL, MariaDB or SQLite, by a query with a watermark."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from pydantic import Field, model_validator

from vestnik.autopost.sources.contract import (
    Item,
    Reading,
    Secrets,
    SourceFailed,
    fingerprint,
    in_words,
    make_item,
    stable_key,
)
from vestnik.autopost.sources.databases import mysql, postgres, sqlite
from vestnik.autopost.sources.databases.dsn import Dsn, Engine, parse_dsn
from vestnik.autopost.sources.databases.query import translatable, translated
from vestnik.autopost.sources.databases.rows import Marked, Progress, progress
from vestnik.autopost.sources.databases.table import Question, Table
from vestnik.autopost.sources.databases.values import as_json, load_mark, store_mark
from vestnik.autopost.sources.declared import SourceConfig, secret
from vestnik.autopost.sources.mapping import PostMapping, payload_of
from vestnik.autopost.sources.moments import believed, moment_of
from vestnik.autopost.sources.template import Expr, MappingFailed, as_text, value_of

_ASK: Final[Mapping[Engine, Callable[[Question], Awaitable[Table]]]] = {
    "postgresql": postgres.ask,
    "mysql": mysql.ask,
    "sqlite": sqlite.ask,
}


class DbWatermark(SourceConfig):
    column: str = Field(min_length=1)
    start: int | float | str = Field(description="Where the first run begins: 0, or 1970-01-01.")


class DbConfig(SourceConfig):
    dsn: str | None = None
    secret_ref: str | None = Field(None, description="The credential that holds the DSN, password and all.")
    query: str = Field(max_length=20_000)
    watermark: DbWatermark
    key: str | list[str] = Field(min_length=1)
    published_at: Expr | None = None
    mapping: PostMapping
    timeout: float = Field(30, gt=0, le=600)

    @model_validator(mode="after")
    def _one_address(self) -> DbConfig:
        if (self.dsn is None) == (self.secret_ref is None):
            raise ValueError("one of dsn and secret_ref is needed, and not both")
        engine: Engine | None = None
        if self.dsn is not None:
            engine = _open_dsn(self.dsn).engine
        try:
            translatable(self.query, engine)
        except ValueError as e:
            raise ValueError(f"query {e}") from None
        return self


class DbReader:
    def __init__(self, secrets: Secrets, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._secrets, self._clock = secrets, clock

    async def read(self, config: DbConfig, cursor: Mapping[str, Any], *, limit: int) -> Reading:
        dsn = await self._dsn(config)
        # Another column is another order: what was known of the old one says nothing.
        stored = cursor if cursor.get("watermark_column") == config.watermark.column else {}
        mark = load_mark(stored["watermark"]) if stored else config.watermark.start
        known = frozenset(stored.get("taken_there", ()))
        # Room for what was taken already, so that every reading gets further.
        wanted = max(1, limit) + len(known)
        table = await self._ask(config, dsn, mark, wanted)
        rows, notes = _marked(config, table, self._clock())
        if not rows and table.rows and len(table.rows) >= wanted:
            raise SourceFailed(
                "no_progress", f"every row has no {config.watermark.column}; leave them out", permanent=True
            )
        found = progress(rows, mark, known, limit=max(1, limit), full=len(table.rows) >= wanted)
        return Reading(found.taken, _cursor(config, found, stored), notes=notes, more=found.more)

    async def _dsn(self, config: DbConfig) -> Dsn:
        if config.dsn is not None:
            return parse_dsn(config.dsn)
        stored = await secret(self._secrets, config.secret_ref or "")
        try:
            return parse_dsn(stored)
        except ValueError as e:
            message = f"the credential {config.secret_ref!r} {e}"
        raise SourceFailed("bad_secret", message, permanent=True)

    async def _ask(self, config: DbConfig, dsn: Dsn, mark: Any, wanted: int) -> Table:
        try:
            query = translated(config.query, dsn.engine)
        except ValueError as e:
            raise SourceFailed("bad_query", f"query {e}", permanent=True) from None
        parameters = {"watermark": mark, "limit": wanted}
        table = await _ASK[dsn.engine](Question(dsn, query, parameters, wanted + 1, config.timeout))
        if len(table.rows) > wanted:
            raise SourceFailed("limit_ignored", "the query gives more rows than :limit; end it with it", permanent=True)
        _check_columns(config, table.columns)
        return table


def _open_dsn(text: str) -> Dsn:
    try:
        dsn = parse_dsn(text)
    except ValueError as e:
        raise ValueError(f"dsn {e}") from None
    if dsn.password:
        raise ValueError("dsn has a password in it; store the whole of it as a credential and name it by secret_ref")
    return dsn


def _check_columns(config: DbConfig, columns: Sequence[str]) -> None:
    keys = [config.key] if isinstance(config.key, str) else config.key
    if missing := [name for name in (config.watermark.column, *keys) if name not in columns]:
        message = f"the query gives no column {missing[0]}; it gives {', '.join(columns)}"
        raise SourceFailed("missing_column", message, permanent=True)
    if twice := [name for name in columns if columns.count(name) > 1]:
        raise SourceFailed("bad_query", f"the query gives two columns with the name {twice[0]}", permanent=True)


def _marked(config: DbConfig, table: Table, now: datetime) -> tuple[list[Marked], list[str]]:
    found: list[Marked] = []
    unmarked = 0
    for row in table.rows:
        record = dict(zip(table.columns, row, strict=True))
        mark = record[config.watermark.column]
        if mark is None or mark != mark:  # a number that is none
            unmarked += 1
            continue
        if found and _descends(found[-1].mark, mark):
            column = config.watermark.column
            raise SourceFailed("unordered", f"the query must be ordered by {column}, smallest first", permanent=True)
        item = _item(config, {name: as_json(name, value) for name, value in record.items()}, now)
        found.append(Marked(mark, fingerprint(item.key), item))
    if not unmarked:
        return found, []
    return found, [f"{in_words(unmarked, 'row has', 'rows have')} no {config.watermark.column} and cannot be taken"]


def _descends(before: Any, after: Any) -> bool:
    """Texts are in the order of the database's collation, which is nobody else's."""
    comparable = isinstance(before, int | float | Decimal | date) and isinstance(after, type(before))
    return comparable and bool(after < before)


def _cursor(config: DbConfig, found: Progress, stored: Mapping[str, Any]) -> dict[str, Any]:
    cursor = {
        "watermark_column": config.watermark.column,
        "watermark": store_mark(found.mark),
        "taken_there": found.taken_there,
    }
    last = found.taken[-1].key if found.taken else stored.get("last_seen_id")
    return cursor | ({"last_seen_id": last} if last else {})


def _item(config: DbConfig, record: dict[str, Any], now: datetime) -> Item:
    published: datetime | None = None
    key = f"sha256:{fingerprint(json.dumps(record, sort_keys=True, default=repr), length=64)}"
    try:
        key = _key(config, record)
        if config.published_at:
            published = believed(moment_of(value_of(config.published_at, record)), now)
        payload = payload_of(config.mapping, record) | {"source": {"id": key}}
    except MappingFailed as e:
        return Item(key, {}, published, str(e))
    return make_item(key, payload, published)


def _key(config: DbConfig, record: Mapping[str, Any]) -> str:
    names = [config.key] if isinstance(config.key, str) else config.key
    values = [as_text(record[name]) for name in names]
    if not all(values):
        raise MappingFailed(f"it has no key: {names[values.index('')]} is empty")
    return stable_key(values[0] if len(values) == 1 else json.dumps(values, ensure_ascii=False))
