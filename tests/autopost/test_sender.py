"""From the row that a begin hands over to the arguments of an adapter; and how long a send may take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

import pytest
from crowd import until
from platforms import Platform
from psycopg.types.json import Jsonb

from vestnik.adapters.contract import Channel, SendMeta, Sent
from vestnik.autopost.dispatcher import Dispatcher
from vestnik.autopost.pulse import Pulse, pulse_of
from vestnik.autopost.verbs import publish
from vestnik.db.pool import Pool, make_pool


class Attentive(Platform):
    def __init__(self) -> None:
        super().__init__()
        self.metas: list[SendMeta] = []

    async def send_text(self, channel: Channel, text: str, meta: SendMeta) -> Sent:
        self.metas.append(meta)
        return await super().send_text(channel, text, meta)


async def meta_of_a_send(database: str, pool: Pool) -> Mapping[str, Any]:
    platform = Attentive()
    dispatcher = Dispatcher(database, pool, {"telegram": platform})
    running = asyncio.create_task(dispatcher.run())
    await until(pool, "select 1 from autopost.deliveries where status = 'sent'")
    dispatcher.stop()
    await running
    (meta,) = platform.metas
    return {key: value for key, value in asdict(replace(meta, series=None)).items() if key != "series"}


async def test_a_send_is_made_as_it_was_rendered(autopost: Any, database: str, pool: Pool) -> None:
    """Whatever version the code has by now: a retry is the same bytes."""
    rendered = {
        "parse_mode": "HTML", "disable_preview": True, "buttons": [[{"text": "more", "url": "https://e.org"}]],
        "converter": 7, "long_text": "split", "more_link": "https://e.org/1", "upload_policy": {"image": "url_allowed"},
        "largest": {"video": 1000},
    }  # fmt: skip
    await autopost.channel()
    await publish(pool, "w", {"text": "hello"})
    await autopost.sql("update autopost.deliveries set render_meta = %s", Jsonb(rendered))
    found = await meta_of_a_send(database, pool)
    (row,) = await autopost.deliveries()
    own = {"trace_id": str(row["trace_id"]), "idempotency_key": str(row["delivery_id"])}
    assert found == rendered | own


async def test_what_was_rendered_before_there_was_a_version_is_of_the_first(
    autopost: Any, database: str, pool: Pool
) -> None:
    await autopost.channel()
    await publish(pool, "w", {"text": "hello"})
    await autopost.sql("update autopost.deliveries set render_meta = '{}'")
    found = await meta_of_a_send(database, pool)
    assert (found["converter"], found["parse_mode"], found["long_text"]) == (1, "None", "refuse")


# How long


LEASE = 300.0


async def alive(autopost: Any) -> Any:
    """A row under way, as a begin hands it over."""
    await autopost.channel()
    await autopost.push("hello")
    (row,) = await autopost.take()
    return row | {"lease_seconds": LEASE}


async def test_a_sign_of_life_that_is_not_written_down_does_not_outlive_the_lease(autopost: Any, pool: Pool) -> None:
    """The sweep would give the delivery away while its sender still waits for an answer."""
    row = await alive(autopost)
    async with pulse_of(pool, "w", row, 0.9 * LEASE) as pulse:
        lease_ends = pulse.ends_at + 0.1 * LEASE
        earlier(pulse, 0.19 * LEASE)
        await pulse.beat()
        assert pulse.ends_at <= lease_ends - 0.19 * LEASE
    assert (await autopost.delivery(row["delivery_id"]))["sending_started_at"] == autopost.now


async def test_a_sign_of_life_that_is_written_down_begins_the_lease_anew(autopost: Any, pool: Pool) -> None:
    row = await alive(autopost)
    async with pulse_of(pool, "w", row, 0.9 * LEASE) as pulse:
        ends_at = pulse.ends_at
        earlier(pulse, 0.21 * LEASE)
        await pulse.beat()
        assert pulse.ends_at >= ends_at
    assert (await autopost.delivery(row["delivery_id"]))["sending_started_at"] != autopost.now


async def test_a_short_deadline_begins_anew_with_every_sign_of_life(autopost: Any, pool: Pool) -> None:
    row = await alive(autopost)
    async with pulse_of(pool, "w", row, 10) as pulse:
        ends_at = pulse.ends_at
        earlier(pulse, 0.19 * LEASE)
        await pulse.beat()
        assert pulse.ends_at >= ends_at


async def test_who_has_lost_the_lease_stops(autopost: Any, pool: Pool) -> None:
    row = await alive(autopost)
    with pytest.raises(Exception, match="somebody else's now"):
        async with pulse_of(pool, "w", row | {"lease": 7}, 10) as pulse:
            earlier(pulse, LEASE)
            await pulse.beat()
    with pytest.raises(Exception, match="somebody else's now"):
        async with pulse_of(pool, "w", row | {"delivery_id": uuid4()}, 10) as pulse:
            await pulse.acknowledged(1, ["1"], [0])
    with pytest.raises(Exception, match="somebody else's now"):
        async with pulse_of(pool, "w", row | {"lease": 7}, 10) as pulse:
            await pulse.acknowledged(1, ["1"], [0])
    assert "series_progress" not in (await autopost.delivery(row["delivery_id"]))["render_meta"]


async def test_who_waits_for_its_turn_stays_alive(autopost: Any, pool: Pool) -> None:
    """However long it has to wait, and however short its deadline is."""
    row = await alive(autopost)
    async with pulse_of(pool, "w", row, 0.1) as pulse:
        earlier(pulse, LEASE)
        await pulse.rest(0.3)
    assert (await autopost.delivery(row["delivery_id"]))["sending_started_at"] != autopost.now


async def test_who_loses_its_lease_while_it_waits_stops(autopost: Any, pool: Pool) -> None:
    row = await alive(autopost)
    with pytest.raises(Exception, match="somebody else's now"):
        async with pulse_of(pool, "w", row | {"lease": 7}, 0.1) as pulse:
            earlier(pulse, LEASE)
            await pulse.rest(3600)


async def test_a_database_that_stays_away_is_asked_until_the_lease_ends(
    autopost: Any, pool: Pool, database: str
) -> None:
    row = await alive(autopost) | {"lease_seconds": 1.0}
    away = make_pool(database)
    await away.open()
    await away.close()
    with pytest.raises(TimeoutError):
        async with pulse_of(away, "w", row, 0.5) as pulse:
            await pulse.acknowledged(1, ["1"], [0])


def earlier(pulse: Pulse, seconds: float) -> None:
    """As if the last sign of life was written down that long ago."""
    pulse._written -= seconds
