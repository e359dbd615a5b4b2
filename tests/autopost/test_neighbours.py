"""What is wrong in one place must not stop anybody else: odd rows, odd settings, odd adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from crowd import until
from platforms import Platform

from vestnik.adapters.contract import Channel, SendError, SendMeta, Sent
from vestnik.autopost.dispatcher import Dispatcher
from vestnik.autopost.verbs import publish
from vestnik.db.pool import Pool

NUL = "a\0b"


class Odd(Platform):
    """Says what it is given in channel ``odd``, and works in every other."""

    def __init__(self, says: Sent | SendError) -> None:
        super().__init__()
        self.says = says

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent:
        if channel.channel_id != "odd":
            return await super().send_text(channel, text, meta)
        if isinstance(self.says, SendError):
            raise self.says
        return self.says


@pytest.fixture
async def odd(request: Any, database: str, pool: Pool) -> AsyncIterator[None]:
    platform = Odd(getattr(request, "param", Sent("1", {})))
    dispatcher = Dispatcher(database, pool, {"telegram": platform}, poll=0.1)
    running = asyncio.create_task(dispatcher.run())
    yield
    assert not running.done()
    dispatcher.stop()
    await running


def error(**words: Any) -> SendError:
    return SendError(**{"category": "TRANSIENT", "scope": "delivery", "code": "500", "message": "x"} | words)


async def until_all_sent(pool: Pool, channel_id: str, count: int) -> None:
    query = "select 1 from autopost.deliveries where channel_id = %s and status = 'sent' having count(*) = %s"
    await until(pool, query.replace("%s", f"'{channel_id}'", 1).replace("%s", str(count)))


async def test_a_row_that_came_back_by_hand_with_its_old_claim_is_sent(autopost: Any, pool: Pool, odd: None) -> None:
    """``claimed_at`` is not cleared: the guard would take the next begin for a move past the claim."""
    await autopost.channel("odd", enabled=False)
    await autopost.sql("update channels set enabled = true, paused_until = 'infinity'")
    await publish(pool, "w", {"text": "post"})
    await autopost.sql("update deliveries set claimed_at = now() - interval '1 minute', claim_token = 'gone'")
    await autopost.sql("update channels set paused_until = null")
    await until_all_sent(pool, "odd", 1)


async def test_a_workspace_that_cannot_be_served_stops_no_other(autopost: Any, pool: Pool, odd: None) -> None:
    await autopost.channel("odd")
    await autopost.sql("insert into core.workspaces (workspace_id, name) values ('a', 'a')")
    await autopost.sql("select autopost.policy_of('a')")
    # No date is this far away; the table would refuse it.
    await autopost.sql("alter table policies drop constraint policies_claim_horizon_check")
    await autopost.sql("update policies set claim_horizon = '300000 years' where workspace_id = 'a'")
    await autopost.sql(
        "insert into channels (workspace_id, channel_id, platform, target_id, auth_ref, rate_group)"
        " values ('a', 'c', 'telegram', '1', 'bot', 'bot')"
    )
    await publish(pool, "a", {"text": "post"})
    for n in range(3):
        await publish(pool, "w", {"text": f"post {n}"})
    await until_all_sent(pool, "odd", 3)


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 1e300, float("inf")])
async def test_any_rate_can_be_kept(autopost: Any, pool: Pool, odd: None, rate: float) -> None:
    await autopost.channel("odd", rate_rps=rate)
    await publish(pool, "w", {"text": "post"})
    await until_all_sent(pool, "odd", 1)


async def test_a_window_of_any_length_can_be_kept(autopost: Any, pool: Pool) -> None:
    await autopost.channel(dedup_ttl_hours=2**31 - 1)
    assert (await autopost.push("post"))["enqueued"] == 1
    (row,) = await autopost.take()
    await autopost.retry(row["delivery_id"])
    autopost.wait(minutes=1)
    (row,) = await autopost.take()
    await autopost.sent(row["delivery_id"])
    autopost.wait(days=36500 / 2)
    assert (await autopost.push("post"))["suppressed"] == 1


@pytest.mark.parametrize(
    "odd",
    [
        Sent(NUL, {}),
        Sent("\ud800", {"text": "\ud800"}),
        error(code=NUL),
        error(retry_after_ms=10**400),
        error(retry_after_ms=float("inf")),
        error(message=NUL, raw={"text": "\ud800"}),
    ],
    indirect=True,
    ids=["nul", "half", "nul code", "huge wait", "endless wait", "nul message"],
)
async def test_an_adapter_that_answers_nonsense_stops_no_other_channel(autopost: Any, pool: Pool, odd: None) -> None:
    await autopost.channel("odd")
    await autopost.channel("well")
    for n in range(2):
        await publish(pool, "w", {"text": f"post {n}"})
        await until_all_sent(pool, "well", n + 1)
    await until(pool, "select 1 where not exists (select from autopost.deliveries where status = 'sending')")
