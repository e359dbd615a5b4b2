"""What bots may do in a chat and where their updates go, as the platforms tell it."""

from __future__ import annotations

import pytest
from sandbox_client import CHAT, TOKEN, Client

HOOK = "https://bots.example/hook"


async def test_telegram_tells_what_the_bot_is_in_a_chat(client: Client) -> None:
    me = (await client.telegram("getMe")).body["result"]["id"]
    member = (await client.telegram("getChatMember", user_id=me)).body["result"]
    assert member["status"] == "administrator" and member["can_post_messages"] is True and member["user"]["id"] == me
    await client.admin("PUT", f"telegram/chats/{CHAT}", {"bot": "silent"})
    assert (await client.telegram("getChatMember", user_id=me)).body["result"]["can_post_messages"] is False
    await client.admin("PUT", f"telegram/chats/{CHAT}", {"bot": "left"})
    refused = await client.telegram("getChatMember", user_id=me)
    assert (refused.status, refused.body["description"]) == (403, "Forbidden: bot is not a member of the channel chat")
    assert (await client.telegram("getChatMember", user_id=1)).status == 400


@pytest.mark.parametrize(("bot", "status"), [("silent", 400), ("member", 400), ("left", 403), ("owner", 200)])
async def test_telegram_takes_posts_only_from_whom_may_post(client: Client, bot: str, status: int) -> None:
    await client.admin("PUT", f"telegram/chats/{CHAT}", {"bot": bot})
    assert (await client.telegram("sendMessage", text="a")).status == status
    assert len(await client.posts("telegram")) == (status == 200)


async def test_max_tells_what_the_bot_is_in_a_chat_and_takes_posts_accordingly(client: Client) -> None:
    async def member() -> object:
        return (await client.ask("GET", f"/max/chats/{CHAT}/members/me", headers={"Authorization": TOKEN})).body

    told = await member()
    assert told["is_admin"] is True and "write" in told["permissions"] and told["is_owner"] is False  # type: ignore[index]
    await client.admin("PUT", f"max/chats/{CHAT}", {"bot": "silent"})
    assert "write" not in (await member())["permissions"]  # type: ignore[index]
    assert (await client.max()).status == 403
    await client.admin("PUT", f"max/chats/{CHAT}", {"bot": "left"})
    assert (await member())["code"] == "chat.denied"  # type: ignore[index]
    await client.admin("PUT", f"max/chats/{CHAT}", {"bot": "member", "type": "chat"})
    assert "permissions" not in (await member()) and (await client.max()).status == 200  # type: ignore[operator]


async def test_telegram_keeps_one_webhook(client: Client) -> None:
    empty = (await client.telegram("getWebhookInfo")).body["result"]
    assert empty == {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
    assert (await client.telegram("setWebhook", url=HOOK, allowed_updates=["message"])).body["result"] is True
    assert (await client.telegram("setWebhook", url=f"{HOOK}2", secret_token="a-b_c")).body["result"] is True
    info = (await client.telegram("getWebhookInfo")).body["result"]
    assert info["url"] == f"{HOOK}2" and info["max_connections"] == 40 and "allowed_updates" not in info
    for bad in ("http://bots.example/", "https://bots.example:8080/", "nonsense"):
        assert (await client.telegram("setWebhook", url=bad)).status == 400
    assert (await client.telegram("setWebhook", url=HOOK, secret_token="no spaces")).status == 400
    await client.telegram("deleteWebhook")
    assert (await client.telegram("getWebhookInfo")).body["result"]["url"] == ""


async def test_a_webhook_error_is_told_on_demand(client: Client) -> None:
    body = {"url": HOOK, "error": "Connection timed out", "error_at": 1_800_000_000, "pending": 7}
    await client.admin("PUT", "telegram/tokens/main/webhook", body)
    info = (await client.telegram("getWebhookInfo")).body["result"]
    assert (info["last_error_message"], info["last_error_date"]) == ("Connection timed out", 1_800_000_000)
    assert info["pending_update_count"] == 7
    assert (await client.admin("PUT", "telegram/tokens/main/webhook", {"pending": 1}))["error"]
    assert (await client.admin("PUT", "telegram/tokens/nobody/webhook", body))["error"].startswith("there is no token")
    assert await client.admin("DELETE", "telegram/tokens/main/webhook") == []
    assert (await client.telegram("getWebhookInfo")).body["result"]["url"] == ""


async def test_max_adds_one_subscription_to_the_other(client: Client) -> None:
    async def ask(method: str, path: str = "", json: object = None) -> dict[str, object]:
        body: dict[str, object] = (
            await client.ask(method, f"/max/subscriptions{path}", json, headers={"Authorization": TOKEN})
        ).body
        return body

    assert await ask("GET") == {"subscriptions": []}
    assert (await ask("POST", json={"url": HOOK, "secret": "abcde", "update_types": ["bot_added"]}))["success"] is True
    assert (await ask("POST", json={"url": f"{HOOK}2"}))["success"] is True
    listed = (await ask("GET"))["subscriptions"]
    assert [each["url"] for each in listed] == [HOOK, f"{HOOK}2"] and listed[0]["update_types"] == ["bot_added"]  # type: ignore[attr-defined, index]
    assert (await ask("POST", json={"url": "http://bots.example/"}))["success"] is False
    assert (await ask("POST", json={"url": HOOK, "secret": "a"}))["code"] == "proto.payload"
    assert (await ask("DELETE", f"?url={HOOK}"))["success"] is True
    assert (await ask("DELETE", f"?url={HOOK}"))["success"] is False


async def test_a_bot_is_only_what_bots_can_be(client: Client) -> None:
    said = await client.admin("PUT", f"telegram/chats/{CHAT}", {"bot": "emperor"})
    assert said["error"] == "bot is one of owner, administrator, silent, member, left"
