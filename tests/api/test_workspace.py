"""The look into a workspace, and who may have it."""

from __future__ import annotations

from api_rig import Api

from vestnik.ops import access


async def test_a_key_opens_its_own_workspace_only(api: Api) -> None:
    await api.sql("insert into core.workspaces (workspace_id, name) values ('other', 'Other')")
    key = await access.create_key(api.pool, "shop", "tests")
    assert (await api.get("/v1/workspaces/shop/queue", key))[0] == 200
    assert (await api.get("/v1/workspaces/other/queue", key))[0] == 404
    assert (await api.get("/v1/workspaces/nowhere/queue", key))[0] == 404
    for wrong, said in (
        ("", "Send an API key or the token of a session: Authorization: Bearer …"),
        ("vkey_wrong", "No API key in use is this one."),
    ):
        status, answer = await api.get("/v1/workspaces/shop/queue", wrong)
        assert (status, answer["detail"]) == (401, said)


async def test_a_revoked_key_opens_nothing(api: Api) -> None:
    key = await access.create_key(api.pool, "shop", "tests")
    row = (await access.list_keys(api.pool, "shop"))[0]
    await access.revoke_key(api.pool, str(row["key_id"]))
    assert (await api.get("/v1/workspaces/shop/queue", key))[0] == 401


async def test_only_the_hash_of_a_key_is_kept(api: Api) -> None:
    key = await access.create_key(api.pool, "shop", "tests")
    row = (await api.sql("select row_to_json(k)::text as everything from core.api_keys k"))[0]
    assert key not in row["everything"]


async def test_queue_events_and_why(api: Api) -> None:
    key = await access.create_key(api.pool, "shop", "tests")
    await api.push({"text": "Hello"})
    _, queue = await api.get("/v1/workspaces/shop/queue", key)
    assert [(row["status"], row["count"]) for row in queue] == [("queued", 2)]
    _, events = await api.get("/v1/workspaces/shop/events", key)
    assert {event["action"] for event in events} == {"enqueue"}
    delivery = events[0]["delivery_id"]
    status, why = await api.get(f"/v1/workspaces/shop/deliveries/{delivery}/why", key)
    assert (status, why["gate"]) == (200, "none")
    nobody = "00000000-0000-0000-0000-000000000000"
    assert (await api.get(f"/v1/workspaces/shop/deliveries/{nobody}/why", key))[0] == 404
    assert (await api.get("/v1/workspaces/shop/deliveries/x/why", key))[0] == 422
