"""The OpenAPI description of the push payload and the SQL that judges it agree on one corpus."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb
from pydantic import ValidationError

from vestnik.api.payload_schema import PushPayload

GOOD: list[dict[str, Any]] = [
    {"text": "x"},
    {"links": ["https://example.org/a?b=c#d"]},
    {"text": "x", "parse_mode": "HTML"},
    {"text": "x", "parse_mode": None, "media": None, "tags": None, "buttons": None, "scheduled_for": None},
    {"text": "x", "media": []},
    {"media": [{"type": "image", "url": "https://example.org/a.png", "caption": "A", "blob_ref": None}]},
    {"media": [{"type": "file", "blob_ref": "sha256:0"}, {"type": "video", "file_id": "BAAC"}], "text": "x"},
    {"text": "x", "scheduled_for": "2027-01-31T09:00:00+03:00"},
    {"text": "x", "buttons": [[{"text": "Go", "url": "https://example.org"}]]},
    {"text": "x", "tags": ["a"] * 64, "channels": [], "meta": {"any": [1, {"thing": None}]}, "source": {"feed": 1}},
    {"text": "x", "source_ref": "r" * 256, "workspace_id": "w", "disable_preview": True},
]
BAD: list[dict[str, Any]] = [
    {"text": 1},
    {"text": ["x"]},
    {"text": "x", "colour": "red"},
    {"text": "x", "parse_mode": "html"},
    {"text": "x", "links": "https://example.org"},
    {"text": "x", "links": [1]},
    {"text": "x", "links": ["https://e.x"] * 21},
    {"text": "x", "buttons": [{"text": "Go", "url": "https://example.org"}]},
    {"text": "x", "buttons": [[{"text": "Go"}]]},
    {"text": "x", "buttons": [[{"text": "Go", "url": "https://e.x", "colour": "red"}]]},
    {"text": "x", "buttons": [[{"text": "", "url": "https://e.x"}]]},
    {"text": "x", "buttons": [[{"text": "t" * 65, "url": "https://e.x"}]]},
    {"text": "x", "disable_preview": "yes"},
    {"text": "x", "tags": "news"},
    {"text": "x", "tags": [1]},
    {"text": "x", "tags": ["a"] * 65},
    {"text": "x", "source_ref": ""},
    {"text": "x", "source_ref": 42},
    {"text": "x", "source_ref": "r" * 257},
    {"text": "x", "channels": "all"},
    {"text": "x", "channels": [1]},
    {"text": "x", "source": "feed"},
    {"text": "x", "scheduled_for": 1},
    {"text": "x", "media": "https://example.org/a.png"},
    {"text": "x", "media": [{"url": "https://example.org/a.png"}]},
    {"text": "x", "media": [{"type": "sticker", "url": "https://example.org/a.png"}]},
    {"text": "x", "media": [{"type": "image", "url": "https://example.org/a.png", "colour": "red"}]},
    {"text": "x", "media": [{"type": "image", "url": 5}]},
    {"text": "x", "media": [{"type": "image", "url": "https://example.org/a.png", "caption": "c" * 4097}]},
    {"text": "x", "media": [{"type": "image", "url": "https://example.org/a.png"}] * 101},
    {"text": "x", "meta": []},
]


@pytest.mark.parametrize("payload", GOOD, ids=str)
async def test_both_take_it(db: AsyncConnection[DictRow], payload: dict[str, Any]) -> None:
    assert await _problems(db, payload) == []
    PushPayload.model_validate(payload, strict=True)


@pytest.mark.parametrize("payload", BAD, ids=lambda p: str(p)[:60])
async def test_both_refuse_it(db: AsyncConnection[DictRow], payload: dict[str, Any]) -> None:
    assert await _problems(db, payload)
    with pytest.raises(ValidationError):
        PushPayload.model_validate(payload, strict=True)


async def test_both_know_the_same_keys(db: AsyncConnection[DictRow]) -> None:
    for key in PushPayload.model_fields:
        assert f"{key}: unknown key" not in await _problems(db, {"text": "x", key: None})


async def _problems(db: AsyncConnection[DictRow], payload: dict[str, Any]) -> list[str]:
    row = await (await db.execute("select autopost.payload_problems(%s) as found", (Jsonb(payload),))).fetchone()
    assert row is not None
    found: list[str] = row["found"]
    return found
