"""Alerts, targets and webhooks over HTTP: what the commands do, by key, and on record."""

from __future__ import annotations

from typing import Any

from api_rig import Api

from vestnik.ops.access import create_key

TARGET = {"kind": "telegram", "address": "-100", "auth_ref": "bot", "language": "ru"}
HOOK = {"url": "https://crm.example/hooks/SECRET", "events": ["delivery.dead"]}


async def ask(api: Api, method: str, path: str, body: Any = None, access: str = "full") -> tuple[int, Any]:
    key = await create_key(api.pool, "shop", "tests", access)
    headers = {"Authorization": f"Bearer {key}"}
    async with api.http.request(method, f"{api.url}/v1/workspaces/shop/{path}", headers=headers, json=body) as answer:
        return answer.status, await answer.json(content_type=None) if answer.status != 204 else None


async def put(api: Api, alert: str = "dead", workspace_id: str = "shop") -> None:
    await api.sql("select ops.put_alert(%s, %s, '', 'critical', 'a summary', null)", workspace_id, alert)


async def test_what_is_on_is_listed_and_what_is_over_when_asked_for(api: Api) -> None:
    await put(api)
    await put(api, "disk")
    await api.sql("select ops.clear_alert('shop', 'disk', '')")
    _, found = await ask(api, "GET", "alerts", access="read")
    assert [row["alert"] for row in found] == ["dead"]
    _, found = await ask(api, "GET", "alerts?over_too=true", access="read")
    assert [row["alert"] for row in found] == ["dead", "disk"]


async def test_an_alert_is_acknowledged_by_the_caller_and_on_record(api: Api) -> None:
    await put(api)
    assert await ask(api, "POST", "alerts/dead/ack") == (200, {"count": 1})
    _, (alert,) = await ask(api, "GET", "alerts")
    assert alert["acked_by"] == "apikey tests"
    changes = await api.sql("select actor, subject from core.changes where action = 'alert_acked'")
    assert changes == [{"actor": "apikey tests", "subject": "dead"}]
    status, _ = await ask(api, "POST", "alerts/disk/ack")
    assert status == 404


async def test_an_alert_is_silenced_and_told_again(api: Api) -> None:
    body = {"seconds": 3600, "reason": "a move"}
    assert (await ask(api, "POST", "alerts/dead/silence", body))[0] == 200
    _, (silence,) = await ask(api, "GET", "alerts/silences")
    assert (silence["actor"], silence["reason"]) == ("apikey tests", "a move")
    await ask(api, "POST", "alerts/dead/silence", body | {"seconds": 0})
    assert await ask(api, "GET", "alerts/silences") == (200, [])


async def test_the_policy_is_shown_and_changed_in_part(api: Api) -> None:
    _, before = await ask(api, "GET", "alerts/policy")
    _, after = await ask(api, "PATCH", "alerts/policy", {"repeat_every": "2h", "paused_channels_max": 0})
    assert after == before | {"repeat_every": "PT2H", "paused_channels_max": 0}


async def test_a_target_is_made_tried_and_removed(api: Api) -> None:
    assert await ask(api, "PUT", "alert-targets/chat", TARGET) == (200, {"secret": None})
    _, (target,) = await ask(api, "GET", "alert-targets")
    assert (target["target_id"], target["address"], target["language"]) == ("chat", "-100", "ru")
    status, problem = await ask(api, "POST", "alert-targets/chat/test")
    assert (status, problem["detail"]) == (502, "chat did not take it: no_way.")
    assert (await ask(api, "DELETE", "alert-targets/chat"))[0] == 204
    for method, path in (("DELETE", "alert-targets/chat"), ("POST", "alert-targets/chat/test")):
        assert (await ask(api, method, path))[0] == 404


async def test_a_webhook_shows_its_secret_once_and_never_its_path(api: Api) -> None:
    _, made = await ask(api, "PUT", "webhooks/crm", HOOK)
    assert made["secret"].startswith("whsec_")
    assert await ask(api, "PUT", "webhooks/crm", HOOK) == (200, {"secret": None})
    _, (webhook,) = await ask(api, "GET", "webhooks")
    assert (webhook["url"], webhook["secrets"]) == ("https://crm.example/…", 1)
    _, rotated = await ask(api, "POST", "webhooks/crm/rotate")
    assert rotated["secret"] not in ("", made["secret"])
    _, (webhook,) = await ask(api, "GET", "webhooks")
    assert webhook["secrets"] == 2
    assert (await ask(api, "DELETE", "webhooks/crm"))[0] == 204
    assert await api.sql("select from ops.webhook_secrets where workspace_id = 'shop'") == []


async def test_who_may_only_read_changes_nothing(api: Api) -> None:
    for method, path, body in (
        ("POST", "alerts/dead/ack", None),
        ("POST", "alerts/dead/silence", {"seconds": 1, "reason": "a"}),
        ("PATCH", "alerts/policy", {}),
        ("PUT", "alert-targets/chat", TARGET),
        ("DELETE", "alert-targets/chat", None),
        ("POST", "alert-targets/chat/test", None),
        ("PUT", "webhooks/crm", HOOK),
        ("DELETE", "webhooks/crm", None),
        ("POST", "webhooks/crm/rotate", None),
    ):
        assert (await ask(api, method, path, body, access="read"))[0] == 403, path


async def test_what_is_not_right_is_refused_with_its_reason(api: Api) -> None:
    for path, body in (
        ("alert-targets/chat", TARGET | {"auth_ref": None}),
        ("alert-targets/chat", TARGET | {"address": "not a chat"}),
        ("alert-targets/mail", {"kind": "email", "address": "nobody"}),
        ("alert-targets/mail", {"kind": "email", "address": "a@example.org\r\nBcc: b@example.org"}),
        ("alert-targets/hook", {"kind": "webhook", "address": "ftp://e.example"}),
        ("alert-targets/hook", {"kind": "webhook", "address": "https://e.example", "credential_workspace": "other"}),
        ("webhooks/crm", HOOK | {"events": []}),
        ("webhooks/crm", HOOK | {"events": ["delivery.sent"]}),
        ("webhooks/crm", HOOK | {"url": "javascript:alert(1)"}),
    ):
        status, problem = await ask(api, "PUT", path, body)
        assert (status, bool(problem["errors"])) == (422, True), body


async def test_the_health_of_a_workspace_at_a_glance(api: Api) -> None:
    await put(api)
    await api.push({"text": "hello"})
    status, found = await ask(api, "GET", "health", access="read")
    assert (status, found["workspace_id"], found["status"]) == (200, "shop", "active")
    assert found["deliveries"] == {"queued": 2}
    assert (found["channels"]["total"], [alert["alert"] for alert in found["alerts"]]) == (2, ["dead"])
    assert found["top_errors"] == []
