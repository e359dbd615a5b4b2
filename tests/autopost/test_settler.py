"""Results on their way back: whatever a platform said, that it said it counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

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


async def test_a_channel_that_is_paused_and_then_disabled_is_told_to_the_log(autopost: Any, pool: Pool) -> None:
    await autopost.policy(disable_after_permanent_streak=2)
    for n in range(3):
        await autopost.channel(f"c{n}")
    refusal = {"category": "PERMANENT", "code": "401", "message": "Unauthorized"}
    told = []
    for n in range(2):
        autopost.now = datetime.now(UTC)
        await autopost.push(f"post {n}")
        settler = Settler(pool, lambda count: None)
        for row in await autopost.take():
            scope = {"c0": "channel", "c1": "delivery", "c2": "channel" if n else None}[row["channel_id"]]
            settler.put(Result("w", row["delivery_id"], row["lease"], error=scope and refusal | {"scope": scope}))
        settler.close()
        with capture_logs() as lines:
            await settler.run()
        told.append([tuple(line[k] for k in ("event", "channel_id", "code", "refusals")) for line in lines])
        await autopost.sql("update autopost.channels set paused_until = null")
    assert told == [
        [("channel.paused", "c0", "401", 1)],
        [("channel.paused", "c0", "401", 2), ("channel.disabled", "c0", "401", 2), ("channel.paused", "c2", "401", 1)],
    ]
