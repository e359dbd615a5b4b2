"""Results on their way back: whatever a platform said, that it said it counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from vestnik.autopost.sender import Result
from vestnik.autopost.settler import Settler
from vestnik.db.pool import Pool


@pytest.mark.parametrize("strange", ["\0", "\ud800"], ids=["NUL", "half a character"])
async def test_an_answer_that_cannot_be_stored_still_settles(autopost: Any, pool: Pool, strange: str) -> None:
    autopost.now = datetime.now(UTC)
    for n in range(4):
        await autopost.channel(f"c{n}")
    await autopost.push("Hello")
    rows = await autopost.take()
    error = {"category": "PERMANENT", "scope": "delivery", "code": "400", "message": strange, "raw": {"a": strange}}
    answers: list[dict[str, Any]] = [
        {"provider_message_id": "1", "raw": {"said": strange}},
        {"provider_message_id": "2", "raw": {"said": "all well"}},
        {"error": error},
        {"error": error | {"message": "plain", "raw": {}}},
    ]
    settled: list[int] = []
    settler = Settler(pool, settled.append)
    for row, answer in zip(rows, answers, strict=True):
        settler.put(Result("w", row["delivery_id"], row["lease"], **answer))
    settler.close()
    await settler.run()
    assert sum(settled) == 4
    after = [await autopost.delivery(row["delivery_id"]) for row in rows]
    assert [row["status"] for row in after] == ["sent", "sent", "failed_permanent", "failed_permanent"]
    assert [row["last_error"]["code"] for row in after[2:]] == ["400", "400"]
    assert after[3]["last_error"]["message"] == "plain"
