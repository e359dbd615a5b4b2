"""What every adapter must do when a post takes several calls: what was acknowledged is not sent again."""

from __future__ import annotations

import pytest
from conformance import TEXT, Timed, verdict
from conformance_media import MediaRig, bytes_of, error_of, media, said, send, shown
from depot import MemorySeries

from vestnik.adapters.contract import SendError, SendMeta


class SeriesConformance(Timed):
    async def test_a_series_goes_on_behind_what_was_acknowledged(self, rig: MediaRig) -> None:
        items, series = media(rig, "ifai"), MemorySeries()
        rig.fault_of_messages("500", after=2)
        error = await error_of(rig, items, series=series)
        assert verdict(error) == ("TRANSIENT", "platform", "500")
        assert (series.done, series.items) == (2, [0, 1])

        rig.heal()
        sent = await send(rig, items, TEXT, series=series)
        posts = rig.posts()
        assert shown(rig) == await bytes_of(rig, items)
        assert said(rig) == [TEXT]
        assert sent.provider_message_id == posts[0]["message_id"]
        assert sent.raw["message_ids"] == series.message_ids == [post["message_id"] for post in posts]
        assert series.items == [0, 1, 2, 3]

    async def test_an_answer_lost_on_the_way_is_unknown_and_the_rest_is_kept(self, rig: MediaRig) -> None:
        items, series = media(rig, "ifa"), MemorySeries()
        rig.fault_of_messages("reset_after_accept", after=1)
        error = await error_of(rig, items, series=series)
        assert verdict(error) == ("TRANSIENT", "platform", "network")
        assert error.raw["outcome"] == "unknown"
        assert series.done == 1
        assert len(rig.posts()) == 2

    async def test_a_series_stops_when_it_is_somebody_elses(self, rig: MediaRig) -> None:
        error = await error_of(rig, media(rig, "ifa"), series=MemorySeries(stolen_after=1))
        assert error.code == "lease_lost"
        assert len(rig.posts()) == 2

    async def test_a_series_that_is_done_already_calls_nobody(self, rig: MediaRig) -> None:
        items, series = media(rig, "ifa"), MemorySeries()
        first = await send(rig, items, TEXT, series=series)
        again = await send(rig, items, TEXT, series=series)
        assert again.provider_message_id == first.provider_message_id
        assert len(rig.posts()) == 3

    async def test_what_is_done_is_done_also_when_the_plan_has_fewer_calls_by_now(self, rig: MediaRig) -> None:
        items, series = media(rig, "ifa"), MemorySeries()
        first = await send(rig, items, TEXT, series=series)
        for fewer in (items[:2], items[:1]):
            again = await send(rig, fewer, TEXT, series=series)
            assert again.provider_message_id == first.provider_message_id
        assert (len(rig.posts()), series.done) == (3, 3)

    async def test_every_call_of_a_series_waits_for_its_turn(self, rig: MediaRig) -> None:
        items, series = media(rig, "ifa"), MemorySeries()
        await send(rig, items, TEXT, series=series)
        assert series.turns == [0, 1, 2], "how many calls were acknowledged when each asked"

    async def test_a_series_of_texts_goes_on_as_well(self, rig: MediaRig) -> None:
        text = "\n\n".join(str(number) * 999 for number in range(9))
        adapter, series = rig.adapter(), MemorySeries()
        rig.fault_of_messages("500", after=1)
        meta = SendMeta(long_text="split", series=series)
        with pytest.raises(SendError):
            await adapter.send_text(rig.channel, text, meta)
        rig.heal()
        await adapter.send_text(rig.channel, text, meta)

        assert "".join("".join(each.split()) for each in said(rig)) == "".join(text.split())
        assert [post["message_id"] for post in rig.posts()] == series.message_ids
