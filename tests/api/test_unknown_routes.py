"""Unknown outcomes, forecasts and findings over HTTP."""

from __future__ import annotations

from typing import Any

from api_rig import Api

from vestnik.ops import access

SHOP = "/v1/workspaces/shop"
NOBODY = "00000000-0000-0000-0000-000000000000"


async def held(api: Api, *texts: str) -> list[str]:
    """Of the Telegram channel: begun, and never heard of again."""
    await api.sql("update autopost.channels set on_unknown = 'hold', max_parallel = 9, rate_rps = null")
    for text in texts or ("Hello",):
        assert (await api.push({"text": text, "channels": ["telegram"]}))[0] == 202
    rows = await api.sql("select * from autopost.claim_and_begin('shop', 'run', 100)")
    await api.sql("select autopost.sweep_sending('shop', 500, now() + interval '1 hour')")
    await api.sql("update autopost.deliveries set held_at = now() where held_at is not null")
    return [str(row["delivery_id"]) for row in rows]


async def keys(api: Api) -> tuple[str, str]:
    return await access.create_key(api.pool, "shop", "ana", "full"), await access.create_key(api.pool, "shop", "reads")


async def post(api: Api, path: str, body: Any, key: str) -> tuple[int, Any]:
    status, said, _ = await api.ask("POST", f"{SHOP}/{path}", body, key=key)
    return status, said


async def test_what_is_held_is_confirmed_or_sent_again_by_name(api: Api) -> None:
    first, second = await held(api, "one", "two")
    full, reads = await keys(api)
    status, listed = await api.get(f"{SHOP}/unknown?channel_id=telegram", reads)
    assert (status, listed["total"], {row["shows"] for row in listed["held"]}) == (200, 2, {"one", "two"})
    assert (await api.get(f"{SHOP}/unknown?channel_id=max", reads))[1] == {"held": [], "total": 0}

    confirm = {"reason": "I saw it", "provider_message_id": "77"}
    assert (await post(api, f"deliveries/{first}/confirm", confirm, reads))[0] == 403
    assert await post(api, f"deliveries/{first}/confirm", confirm, full) == (
        200, {"delivery_id": first, "outcome": "confirmed"},
    )  # fmt: skip
    status, refusal = await post(api, f"deliveries/{first}/resend", {"reason": "once more"}, full)
    assert (status, refusal["detail"]) == (409, f"delivery {first} is not held: it is sent.")
    assert (await post(api, f"deliveries/{second}/resend", {"reason": "not there"}, full))[1]["outcome"] == "resent"
    assert (await post(api, f"deliveries/{NOBODY}/confirm", {"reason": "x"}, full))[0] == 404
    (event,) = await api.sql("select meta from autopost.events where action = 'confirmed'")
    assert (event["meta"]["operator"], event["meta"]["provider_message_id"]) == ("apikey ana", "77")


async def test_all_of_a_channel(api: Api) -> None:
    deliveries = await held(api, *"abc")
    full, reads = await keys(api)
    body = {"channel_id": "telegram", "reason": "all of them are there"}
    assert (await post(api, "unknown/confirm", body, reads))[0] == 403
    early = body | {"until": "2020-01-01T00:00:00Z"}
    assert (await post(api, "unknown/resend", early, full))[1] == {"count": 0, "deliveries": []}
    status, done = await post(api, "unknown/confirm", body, full)
    assert (status, done["count"], sorted(done["deliveries"])) == (200, 3, sorted(deliveries))
    assert (await post(api, "unknown/resend", body, full))[1]["count"] == 0
    assert (await post(api, "unknown/resend", body | {"channel_id": "gone"}, full))[0] == 404


async def test_what_is_not_right_is_a_problem(api: Api) -> None:
    (delivery,) = await held(api)
    full, _ = await keys(api)
    for path, body in (
        (f"deliveries/{delivery}/confirm", {}),
        (f"deliveries/{delivery}/confirm", {"reason": "x\0"}),
        (f"deliveries/{delivery}/confirm", {"reason": "x", "provider_message_id": "\0"}),
        (f"deliveries/{delivery}/resend", {"reason": "x", "who": "me"}),
        ("unknown/resend", {"channel_id": "telegram", "reason": "x", "until": "2020-01-01T00:00:00"}),
        ("unknown/confirm", {"reason": "x"}),
        ("forecast", {"text": 7}),
        ("forecast", "text"),
    ):
        status, said = await post(api, path, body, full)
        assert (status, bool(said["errors"])) == (422, True), path
    assert (await api.sql("select status from autopost.deliveries"))[0]["status"] == "retry"


async def test_a_forecast_is_for_every_key_and_keeps_nothing(api: Api) -> None:
    await api.sql("update autopost.channels set enabled = false where channel_id = 'max'")
    await api.push({"text": "Before"})
    _, reads = await keys(api)
    before = await api.traces()
    status, said = await post(api, "forecast", {"text": "Hello"}, reads)
    assert status == 200
    assert (said["leaving"], said["never"], said["total"]) == (1, 1, 2)
    telegram, max_ = said["channels"]
    assert (telegram["channel_id"], telegram["outcome"], telegram["ahead"]) == ("telegram", "enqueued", 1)
    assert telegram["leaves_at"] == said["first_at"] == said["last_at"]
    assert (max_["outcome"], max_["reason"], max_["leaves_at"]) == ("never", "the channel is disabled", None)
    assert await api.traces() == before


async def test_findings_are_listed(api: Api) -> None:
    _, reads = await keys(api)
    assert await api.get(f"{SHOP}/findings", reads) == (200, [])
    await api.sql(
        "insert into autopost.events (workspace_id, id, delivery_id, action) values ('shop', gen_random_uuid(), %s, 'enqueue')",
        NOBODY,
    )
    while not (await api.sql("select * from autopost.check_page('shop')"))[0]["pass_ended"]:
        pass
    (finding,) = (await api.get(f"{SHOP}/findings", reads))[1]
    assert (finding["source"], finding["kind"], finding["subject"]) == ("integrity", "event_without_delivery", NOBODY)
