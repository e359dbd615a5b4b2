"""Everything that can happen to a queue, at the same time: workers that forget, operators with the runbook, sweeps."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

from crowd import failed, push_now, sent, settle_now, take_now
from psycopg import AsyncClientCursor
from runbook import as_psycopg, statements

from vestnik.db.pool import Connection, Pool, call, retrying

_ANSWERS = ["500", "429", "400", "403"]
_IN_FLIGHT = "status in ('queued', 'claimed', 'sending', 'retry')"


class Bedlam:
    """In each workspace ``w``; every method is one small deed, to be repeated by many at once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._random = random.Random(20)
        self._pushed = 0
        self.begun = 0
        self.troubles: list[Any] = []

    async def dispatch(self) -> None:
        rows = await take_now(self._pool, limit=self._random.randint(1, 12))
        self.begun += len(rows)
        self._random.shuffle(rows)
        results = [
            sent(r) if self._random.random() < 0.6 else failed(r, self._random.choice(_ANSWERS), _scope(n))
            for n, r in enumerate(rows)
        ]
        await settle_now(self._pool, results[: len(results) // 2])
        await settle_now(self._pool, results)

    async def forget(self) -> None:
        """A worker that begins and is never heard of again, or only when its leases have run out."""
        rows = await take_now(self._pool, limit=2, run="forgetful")
        self.begun += len(rows)
        await self.sweep()
        if self._random.random() < 0.5:
            await settle_now(self._pool, [sent(r) if self._random.random() < 0.5 else failed(r, "500") for r in rows])

    async def push(self) -> None:
        self._pushed += 1
        await push_now(self._pool, *(f"post {self._random.randint(0, 40 + self._pushed // 4)}" for _ in range(3)))

    async def sweep(self) -> None:
        await call(self._pool, "select autopost.sweep_sending('w'), autopost.sweep_claimed('w')")

    async def monitor(self) -> None:
        """Its round, and somebody who looks."""
        await call(self._pool, "select autopost.monitor_workspace('w'), autopost.needs_kick('w')")
        await call(self._pool, "select autopost.health_snapshot('w')")

    async def let_go(self) -> None:
        """Retention, of what is hardly over."""
        keep = "'w', interval '300 milliseconds', 20"
        old = "updated_at < now() - interval '300 milliseconds'"
        await call(
            self._pool,
            f"select * from autopost.cancel_deliveries('w', 'me', 'old', null, array("
            f"select delivery_id from autopost.deliveries where {_IN_FLIGHT} and {old} order by message_id limit 60))",
        )
        await call(
            self._pool,
            f"""update autopost.deliveries set sent_at = sent_at - interval '2 days' where delivery_id in (
                    select delivery_id from autopost.deliveries where status = 'sent' and sent_at > now() - interval '1 day'
                    and {old} limit 40 for no key update skip locked)""",
        )
        await call(self._pool, f"select autopost.prune_deliveries({keep})")
        await call(self._pool, f"select autopost.prune_messages({keep})")
        await call(self._pool, f"select autopost.prune_runs({keep}), autopost.prune_events({keep})")

    async def withdraw(self) -> None:
        await call(
            self._pool, "select * from autopost.cancel_deliveries('w', 'me', 'no', null, %s)", (await self._some(),)
        )

    async def postpone(self) -> None:
        await call(
            self._pool,
            "select * from autopost.reschedule_deliveries('w', 'me', 'later', now() + interval '10 ms', null, %s)",
            (await self._some(),),
        )
        await call(self._pool, "select autopost.replan_channel('w', %s, 'me')", (f"c{self._random.randint(0, 7)}",))

    async def _some(self) -> list[UUID]:
        query = f"select delivery_id from autopost.deliveries where {_IN_FLIGHT} order by random() limit 6"
        return [row["delivery_id"] for row in await call(self._pool, query)]

    async def requeue(self) -> None:
        for section, status in ((3, "dead"), (4, "failed_permanent")):
            rows = await call(
                self._pool,
                "select delivery_id from autopost.deliveries where status = %s order by random() limit 3",
                (status,),
            )
            await self._runbook(section, delivery_ids=[row["delivery_id"] for row in rows])

    async def release(self) -> None:
        await self._runbook(10)

    async def pause(self) -> None:
        channel = f"c{self._random.randint(0, 7)}"
        await self._runbook(5, channel_id=channel, pause_seconds=60)
        await self._runbook(6, channel_id=channel)

    async def disable(self) -> None:
        group = f"g{self._random.randint(0, 2)}"
        await self._runbook(7, rate_group=group)
        await self._runbook(8, rate_group=group)

    async def operate(self) -> None:
        """The runbook as functions; what is stopped goes on at once."""
        who = "'w', 'olga', 'drill'"
        channel, group = f"c{self._random.randint(0, 7)}", f"g{self._random.randint(0, 2)}"
        gone = "array(select delivery_id from autopost.deliveries where status in ('dead', 'failed_permanent') limit 4)"
        await call(self._pool, f"select * from autopost.requeue_deliveries({who}, {gone})")
        await call(self._pool, f"select autopost.pause_channel({who}, %s, '1 minute')", (channel,))
        await call(self._pool, f"select autopost.resume_channel({who}, %s)", (channel,))
        await call(self._pool, f"select autopost.disable_group({who}, %s)", (group,))
        await call(self._pool, f"select autopost.enable_group({who}, %s)", (group,))
        await call(self._pool, "select * from autopost.release_stuck('w', 'olga', '10 milliseconds')")

    async def rotate(self) -> None:
        """Another credential, and now and then another group; in each group somebody stays."""
        channel, group = f"c{self._random.randint(3, 7)}", self._random.choice([None, "g0", "g1", "g2"])
        auth_ref = self._random.choice(["bot", "new"])
        (drained,) = await call(
            self._pool, "select * from autopost.drain_channel('w', 'olga', %s, '1 second')", (channel,)
        )
        await call(self._pool, "select * from autopost.switch_auth('w', 'olga', 'drill', %s, %s, %s, %s, %s)",
                   (channel, auth_ref, group, drained["drained_until"], drained["paused_before"]))  # fmt: skip
        await call(self._pool, "select autopost.end_drain('w', 'olga', %s, %s)", (channel, drained["drained_until"]))

    async def decide(self) -> None:
        """What is held has arrived, or has not."""
        for verb in ("confirm", "resend"):
            query = f"select * from autopost.{verb}_deliveries('w', 'olga', 'seen', p_channel_id => %s, p_limit => 2)"
            await call(self._pool, query, (f"c{self._random.randint(0, 7)}",))

    async def watch(self) -> list[Any]:
        """The proof and the integrity job: nothing that anybody does here is wrong."""
        found: list[Any] = []
        for page in ("prove_page('w', 200)", "check_page('w', 200)"):
            for row in await call(self._pool, f"select x.troubles from autopost.{page} x"):
                found += row["troubles"]
        for source in ("proof", "integrity"):
            await call(self._pool, "select autopost.tell_findings('w', %s)", (source,))
        self.troubles += found
        return found

    async def calm(self) -> None:
        """The platform takes everything at once, nobody interferes: the queue has to run empty."""
        await call(self._pool, "update autopost.channels set rate_rps = null")
        for n in range(3):
            await self._runbook(8, rate_group=f"g{n}")
        # What was let go by hand has a quarter of a minute to wait, which nobody here has.
        await call(self._pool, "update autopost.deliveries set next_retry_at = now()"
                   " where status = 'retry' and next_retry_at < 'infinity'")  # fmt: skip
        # And it keeps the slot that it had: as far away as the horizon.
        until = asyncio.get_running_loop().time() + 60
        while asyncio.get_running_loop().time() < until:
            await self.sweep()
            await settle_now(self._pool, [sent(row) for row in await take_now(self._pool)])
            for n in range(8):
                await call(
                    self._pool,
                    "select * from autopost.resend_deliveries('w', 'me', 'no', p_channel_id => %s)",
                    (f"c{n}",),
                )
            if not await call(self._pool, f"select 1 from autopost.deliveries where {_IN_FLIGHT} limit 1"):
                return
        left = await call(self._pool, f"select * from autopost.deliveries where {_IN_FLIGHT}")
        raise AssertionError(f"these do not go out: {left}")

    async def _runbook(self, section: int, **arguments: Any) -> None:
        # Raw SQL locks in the order of a scan, so it may well be the one that a deadlock chooses: it tries again.
        query = (
            as_psycopg(statements(section)[0])
            .replace("'10 minutes'", "'20 milliseconds'")
            .replace("'15 seconds'", "'5 milliseconds'")
        )

        async def work(connection: Connection) -> None:
            cursor = AsyncClientCursor(connection)
            await cursor.execute(
                query.encode(), {"workspace_id": "w", "operator": "me", "reason": "because"} | arguments
            )

        await retrying(self._pool, work)


def _scope(n: int) -> str:
    return ("delivery", "channel", "platform")[n % 3]
