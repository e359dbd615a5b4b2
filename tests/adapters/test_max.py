"""MAX: the shape of a request, refusals that come as HTTP 200, and the words they are judged by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web
from conformance import TEXT, error_of, verdict
from conformance_media import error_of as media_error_of
from conformance_media import media
from sandbox_rig import SandboxRig
from test_http import answering

from vestnik.adapters.contract import SendMeta


async def test_the_request_as_it_goes_out(max_rig: SandboxRig) -> None:
    seen: list[web.Request] = []
    bodies: list[object] = []

    async def remember(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        bodies.append(await request.json())
        return web.json_response({"message": {"body": {"mid": "mid.1"}}})

    async with answering(remember) as url:
        adapter = max_rig.adapter(base_url=url)
        for meta in (SendMeta(), SendMeta("HTML", disable_preview=True), SendMeta("Markdown")):
            await adapter.send_text(max_rig.channel, "a", meta)

    assert [request.headers["Authorization"] for request in seen] == [max_rig.token] * 3
    assert [request.path_qs for request in seen] == [
        "/messages?chat_id=-1001&disable_link_preview=false",
        "/messages?chat_id=-1001&disable_link_preview=true",
        "/messages?chat_id=-1001&disable_link_preview=false",
    ]
    assert bodies == [{"text": "a"}, {"text": "a", "format": "html"}, {"text": "a", "format": "markdown"}]


async def test_a_chat_is_a_number(max_rig: SandboxRig) -> None:
    error = await error_of(max_rig.adapter(), replace(max_rig.channel, target_id="@news"))
    assert verdict(error) == ("PERMANENT", "channel", "bad_target")


async def test_wide_rows_of_buttons_are_broken(max_rig: SandboxRig) -> None:
    links = [{"text": str(number), "url": "https://e.org"} for number in range(8)]
    calls = [{"text": str(number), "callback": "x"} for number in range(8)]
    await max_rig.adapter().send_text(max_rig.channel, TEXT, SendMeta(buttons=[links, calls]))

    (post,) = max_rig.posts()
    assert [[button["text"] for button in row] for row in post["buttons"]] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6", "7"],
        ["0", "1", "2", "3", "4", "5", "6"],
        ["7"],
    ]
    assert max_rig.platform.violations.total() == 0


async def test_what_is_kept_for_the_audit(max_rig: SandboxRig) -> None:
    sent = await max_rig.adapter().send_text(max_rig.channel, TEXT, SendMeta())
    assert sent.provider_message_id.startswith("mid.")
    assert set(sent.raw) == {"mid", "seq", "chat_id", "timestamp"}
    assert sent.raw["chat_id"] == -1001
    assert sent.raw["seq"] > 2**53  # kept exactly


@pytest.mark.parametrize(
    ("status", "code", "message", "expected"),
    [
        (400, "attachment.not.ready", "", ("TRANSIENT", "delivery", "attachment.not.ready")),
        (400, "proto.payload", "chat not found in payload", ("PERMANENT", "delivery", "proto.payload")),
        (400, "something.new", "", ("PERMANENT", "delivery", "something.new")),
        (401, "verify.token", "Invalid access_token", ("PERMANENT", "channel", "verify.token")),
        (403, "chat.denied", "Key: error.dialog.suspended", ("PERMANENT", "channel", "chat.denied")),
        (404, "not.found", "Chat not found", ("PERMANENT", "channel", "not.found")),
        (405, "method.not.allowed", "", ("PERMANENT", "delivery", "method.not.allowed")),
        (429, "too.many.requests", "Too many requests", ("TRANSIENT", "platform", "429")),
        (500, "internal.error", "", ("TRANSIENT", "platform", "500")),
        (503, "attachment.not.ready", "", ("TRANSIENT", "platform", "503")),
    ],
)
async def test_the_codes_of_a_refusal(
    max_rig: SandboxRig, status: int, code: str, message: str, expected: tuple[str, str, str]
) -> None:
    max_rig.fault(str(status), code=code, message=message)
    error = await error_of(max_rig.adapter(), max_rig.channel)
    assert verdict(error) == expected
    assert error.raw["code"] == code


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"message": "Message was not sent"}, ("PERMANENT", "delivery", "refused")),
        ({}, ("PERMANENT", "delivery", "refused")),
        ({"message": None, "code": 7}, ("PERMANENT", "delivery", "refused")),
        ({"message": "Chat not found"}, ("PERMANENT", "channel", "chat_not_found")),
        ({"message": "Access denied"}, ("PERMANENT", "channel", "no_access")),
        ({"message": "Invalid access_token"}, ("PERMANENT", "channel", "unauthorized")),
        ({"message": "x", "code": "chat.denied"}, ("PERMANENT", "channel", "chat.denied")),
        ({"message": "Too many requests"}, ("TRANSIENT", "platform", "429")),
        ({"message": "Internal error"}, ("TRANSIENT", "platform", "unavailable")),
        (
            {"message": "Key: errors.process.attachment.file.not.processed"},
            ("TRANSIENT", "delivery", "attachment.not.ready"),
        ),
    ],
)
async def test_a_no_that_comes_as_http_200(
    max_rig: SandboxRig, body: dict[str, object], expected: tuple[str, str, str]
) -> None:
    async def say_no(request: web.Request) -> web.StreamResponse:
        return web.json_response({"success": False, **body})

    async with answering(say_no) as url:
        error = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
    assert verdict(error) == expected


async def test_an_error_body_under_http_200(max_rig: SandboxRig) -> None:
    async def say_no(request: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "attachment.not.ready", "message": ""})

    async with answering(say_no) as url:
        error = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
    assert verdict(error) == ("TRANSIENT", "delivery", "attachment.not.ready")


@pytest.mark.parametrize("content", ["<retval>1</retval>", "<html>403</html>", ""])
async def test_a_refusal_that_is_not_json(max_rig: SandboxRig, content: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=content, status=403, content_type="application/xml")

    async with answering(answer) as url:
        error = await error_of(max_rig.adapter(base_url=url), max_rig.channel)
    assert verdict(error) == ("PERMANENT", "channel", "403")
    assert error.raw["description"] == content


@pytest.mark.parametrize("method", ["uploads", "upload_host"])
@pytest.mark.parametrize("kind", ["reset_after_accept", "500"])
async def test_an_upload_that_fails_has_posted_nothing(max_rig: SandboxRig, method: str, kind: str) -> None:
    """Even when its answer is lost: so a channel that holds back what is unknown tries it again."""
    max_rig.fault(kind, method=method)
    error = await media_error_of(max_rig, media(max_rig, "f"))
    assert (error.category, error.raw["outcome"]) == ("TRANSIENT", "not_sent")
    assert max_rig.posts() == []
