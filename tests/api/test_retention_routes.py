"""Retention over HTTP: what is kept, what would go, and let it go."""

from __future__ import annotations

from api_rig import Api

from vestnik.ops import access


async def old_posts(api: Api, count: int) -> None:
    await api.sql(
        "select autopost.enqueue_messages_and_deliveries('shop', null, 'webhook_push', jsonb_build_object('text', n::text,"
        " 'channels', '[]'::jsonb), now() - interval '91 days') from generate_series(1, %s) n",
        count,
    )


async def test_it_is_shown_and_run_by_who_may(api: Api) -> None:
    await old_posts(api, 4)
    reader = await access.create_key(api.pool, "shop", "reader")
    writer = await access.create_key(api.pool, "shop", "writer", access="full")
    status, rows = await api.get("/v1/workspaces/shop/retention", reader)
    shown = {row["rule"]: row for row in rows}
    assert status == 200
    assert (shown["messages"]["keep"], shown["messages"]["going"], shown["messages"]["own"]) == ("P90D", 4, False)
    assert (await api.ask("POST", "/v1/workspaces/shop/retention/run", key=reader))[0] == 403
    status, done, _ = await api.ask("POST", "/v1/workspaces/shop/retention/run?rule=messages", key=writer)
    assert (status, done) == (200, {"removed": {"messages": 4}, "more": False, "failed": {}, "held": None})
    (change,) = await api.sql("select actor, subject from core.changes where action = 'retention_run'")
    assert (change["actor"], change["subject"]) == ("apikey writer", "retention")


async def test_another_workspaces_is_not_there_and_slips_are_told(api: Api) -> None:
    await api.sql("insert into core.workspaces (workspace_id, name) values ('other', 'Other')")
    key = await access.create_key(api.pool, "shop", "writer", access="full")
    assert (await api.get("/v1/workspaces/other/retention", key))[0] == 404
    assert (await api.ask("POST", "/v1/workspaces/other/retention/run", key=key))[0] == 404
    assert (await api.get("/v1/workspaces/shop/retention?rule=nothing", key))[0] == 404
    for query in ("rule=A%00", "rule=" + "x" * 65):
        assert (await api.get(f"/v1/workspaces/shop/retention?{query}", key))[0] == 422
    for query in ("seconds=0", "seconds=21", "seconds=nan", "seconds=inf"):
        assert (await api.ask("POST", f"/v1/workspaces/shop/retention/run?{query}", key=key))[0] == 422
