"""A trouble is one alert from its first moment to its last."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.pg16


async def test_a_trouble_is_new_once_and_then_goes_on(troubles: Any) -> None:
    assert await troubles.put() is True
    troubles.wait(minutes=1)
    assert await troubles.put() is False
    row = await troubles.row()
    assert (row["episode"], row["raises"]) == (1, 1)
    assert (row["last_seen_at"] - row["raised_at"]).total_seconds() == 60


async def test_it_is_over_once(troubles: Any) -> None:
    await troubles.put()
    assert await troubles.clear() is True
    assert await troubles.clear() is False
    assert await troubles.clear("unheard_of") is False


async def test_what_comes_back_within_its_quiet_time_is_the_same_trouble(troubles: Any) -> None:
    await troubles.put()
    await troubles.clear()
    troubles.wait(minutes=4)
    assert await troubles.put() is False
    row = await troubles.row()
    assert (row["episode"], row["raises"], row["cleared_at"]) == (1, 2, None)


async def test_what_comes_back_later_is_another_one(troubles: Any) -> None:
    await troubles.put()
    await troubles.clear()
    troubles.wait(minutes=6)
    assert await troubles.put() is True
    assert (await troubles.row())["episode"] == 2


async def test_the_quiet_time_grows_with_what_flaps(troubles: Any) -> None:
    """Six minutes are enough the first time, and not the second time within an hour."""
    await troubles.put()
    for expected in (True, False, False):
        await troubles.clear()
        troubles.wait(minutes=6)
        assert await troubles.put() is expected


async def test_an_acknowledgement_ends_with_its_episode(troubles: Any) -> None:
    await troubles.put()
    await troubles.sql(
        "update ops.alerts set acked_at = %s, acked_by = 'me' where workspace_id = %s",
        troubles.now, troubles.workspace,
    )  # fmt: skip
    await troubles.clear()
    await troubles.put()
    assert (await troubles.row())["acked_by"] == "me"
    await troubles.clear()
    troubles.wait(hours=1)
    await troubles.put()
    assert (await troubles.row())["acked_by"] is None


async def test_the_summary_is_short_and_without_secrets(troubles: Any) -> None:
    query = "select ops.put_alert(%s, 'disk', '', 'warning', %s, null, %s)"
    await troubles.sql(query, troubles.workspace, "the token=abcdef of " + "x" * 500, troubles.now)
    summary = (await troubles.row())["summary"]
    assert len(summary) == 300
    assert "abcdef" not in summary


async def test_the_service_has_alerts_of_its_own(troubles: Any) -> None:
    async with troubles.connection.transaction(force_rollback=True):
        troubles.workspace = "*"
        assert await troubles.put("a_service_trouble") is True
        assert await troubles.clear("a_service_trouble") is True
