"""Every route asks who is there, whose workspace it is, and whether they may."""

from __future__ import annotations

import json
from typing import Any

from whole_rig import OWNER, Whole

from vestnik.ops import access, operators

# What anybody may ask.
OPEN = {"/api/health", "/metrics", "/v1/push", "/v1/sign-in", "/v1/payloads/{token}"}
SERVICE = {"/v1/operators", "/v1/workspaces", "/v1/me", "/v1/sign-out"}


def body_for(operation: dict[str, Any]) -> Any:
    return {"reason": "the tests ask"} if "requestBody" in operation else None


def changes(operation: dict[str, Any]) -> bool:
    return "403" in operation["responses"]


async def test_nobody_is_let_in_without_saying_who_they_are(whole: Whole) -> None:
    seen = 0
    for verb, path, operation in whole.operations():
        if path in OPEN:
            continue
        for key in (None, "vkey_not-one", "vsess_not-one"):
            status, said, _ = await whole.api.ask(verb, whole.path(path), body_for(operation), key=key)
            assert status in ((401,) if key is None else (401, 429)), (verb, path, said)
            seen += 1
    assert seen > 150


async def test_a_key_of_one_workspace_finds_nothing_in_another(whole: Whole) -> None:
    """The same answer as for a workspace that is not there."""
    key = await access.create_key(whole.api.pool, "shop", "ours", "full")
    seen = 0
    for verb, path, operation in whole.operations():
        if path.startswith("/v1/workspaces/{ws}"):
            answers = [
                await whole.api.ask(verb, whole.path(path, workspace), body_for(operation), key=key)
                for workspace in ("other", "nowhere", "*")
            ]
            assert [status for status, _, _ in answers] == [404] * 3, (verb, path, answers)
            assert len({json.dumps(said) for _, said, _ in answers}) == 1, (verb, path)
            seen += 1
    assert seen > 50


async def test_what_changes_something_is_closed_to_those_who_may_only_read(whole: Whole) -> None:
    pool = whole.api.pool
    reading = await access.create_key(pool, "shop", "look")
    await operators.grant(pool, "shop", "boris", "viewer", actor="tests")
    before = await traces(whole)
    for verb, path, operation in whole.operations():
        if path in OPEN or not changes(operation):
            continue
        body = {"workspace_id": "shop", "channel_id": "news", "text": "Hi", "media": [{"type": "image", "url": "x"}]}
        body = body if path.startswith("/v1/adapters") else body_for(operation)
        for who in ({"key": reading}, {"by": ("boris", OWNER[1])}):
            status, said, _ = await whole.api.ask(verb, whole.path(path), body, **who)  # type: ignore[arg-type]
            refused = (404,) if path.startswith("/v1/operators") or path == "/v1/workspaces" else (403,)
            assert status in refused, (verb, path, who, said)
    assert await traces(whole) == before


async def test_every_route_that_may_change_something_says_so(whole: Whole) -> None:
    """Else the test above would not look at it. Those that only look, although they take a body, are named."""
    looking = {"/preview", "/forecast", "/bulk/{deed}/count", "/sign-in", "/sign-out", "/push"}
    for verb, path, operation in whole.operations():
        if verb != "GET" and not path.endswith(tuple(looking)):
            assert changes(operation), (verb, path)


async def test_keys_operators_and_credentials_take_an_owner(whole: Whole) -> None:
    pool = whole.api.pool
    full = await access.create_key(pool, "shop", "robot", "full")
    await operators.grant(pool, "shop", "boris", "editor", actor="tests")
    asked = [
        ("POST", "/v1/workspaces/shop/apikeys", {"name": "more", "access": "full"}),
        ("DELETE", f"/v1/workspaces/shop/apikeys/{whole.known['key_id']}", None),
        ("PUT", "/v1/workspaces/shop/operators/boris/roles/owner", None),
        ("DELETE", "/v1/workspaces/shop/operators/anna/roles/owner", None),
        ("PUT", "/v1/workspaces/shop/credentials/telegram/bot", {"token": "2:B"}),
        ("DELETE", "/v1/workspaces/shop/credentials/telegram/bot", None),
        ("POST", "/v1/workspaces/shop/apply", {"credentials": [{"platform": "max", "auth_ref": "m", "token": "t"}]}),
    ]
    for verb, path, body in asked:
        for who in ({"key": full}, {"by": ("boris", OWNER[1])}):
            status, said, _ = await whole.api.ask(verb, path, body, **who)  # type: ignore[arg-type]
            assert status == 403, (verb, path, said)
    await operators.grant(pool, "shop", "boris", "owner", actor="tests")
    for verb, path, body in asked:
        status, said, _ = await whole.api.ask(verb, path, body, by=("boris", OWNER[1]))
        assert status in (200, 201, 204, 409), (verb, path, said)


async def test_an_owner_of_one_workspace_owns_neither_another_nor_the_service(whole: Whole) -> None:
    await operators.grant(whole.api.pool, "shop", "boris", "owner", actor="tests")
    boris = ("boris", OWNER[1])
    for verb, path, body in (
        ("POST", "/v1/operators", {"login": "eve", "password": OWNER[1]}),
        ("GET", "/v1/operators", None),
        ("POST", "/v1/workspaces", {"workspace_id": "new"}),
        ("PUT", "/v1/workspaces/*/operators/boris/roles/owner", None),
        ("PUT", "/v1/workspaces/other/operators/boris/roles/owner", None),
        ("POST", "/v1/workspaces/*/job-kinds/media.fetch/pause", None),
    ):
        assert (await whole.api.ask(verb, path, body, by=boris))[0] == 404, path
    assert (await whole.api.ask("PUT", "/v1/workspaces/shop/apply", {"id": "other"}, by=boris))[0] == 405
    assert (await whole.api.ask("POST", "/v1/workspaces/shop/apply", {"id": "other"}, by=boris))[0] == 422


async def traces(whole: Whole) -> list[Any]:
    """What a change would leave."""
    return await whole.api.sql(
        "select (select count(*) from core.changes) as changes, (select count(*) from autopost.events) as events,"
        " (select count(*) from autopost.deliveries) as deliveries, (select count(*) from ops.jobs) as jobs"
    )
