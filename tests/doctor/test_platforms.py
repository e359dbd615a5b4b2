"""What the doctor learns from the platforms, over real sockets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from clinic import TOKEN, Clinic

from vestnik.doctor import platforms
from vestnik.doctor.findings import Finding
from vestnik.doctor.platforms import PLATFORMS
from vestnik.sandbox.faults import parse_faults
from vestnik.sandbox.state import Hook

CREDENTIALS, RIGHTS, WEBHOOKS = "platforms.credentials", "platforms.rights", "platforms.webhooks"
BOTH = pytest.mark.parametrize("platform", ["telegram", "max"])


def by_subject(found: list[Finding]) -> Mapping[str | None, Finding]:
    return {each.subject: each for each in found}


@BOTH
async def test_a_good_token_says_who_the_bot_is(clinic: Clinic, platform: str) -> None:
    await clinic.channel("news", platform)
    found = by_subject(await clinic.look(PLATFORMS, CREDENTIALS))
    number = clinic.sandbox.state.platforms[platform].tokens[TOKEN].number
    assert (found[f"{platform} bot"].status, found[f"{platform} bot"].said) == ("ok", f"@bot_bot, account {number}")
    assert found[platform].said == "its clock and this machine's agree"


@BOTH
async def test_a_bad_token_fails_once_with_the_way_out(clinic: Clinic, platform: str) -> None:
    clinic.tokens["bot"] = "1:a-token-that-nobody-knows"
    clinic.room(platform)
    await clinic.channel("news", platform)
    found = by_subject(await clinic.look(PLATFORMS, CREDENTIALS))[f"{platform} bot"]
    assert found.status == "fail" and "does not take the token" in found.said
    assert found.fix == "get a valid token from the platform, put it in the declaration as bot, and vestnik apply it"
    for other in (RIGHTS, WEBHOOKS):
        again = await clinic.one(PLATFORMS, other)
        assert (again.status, again.said) == ("skipped", "its token is refused, see platforms.credentials")


async def test_a_credential_that_is_not_there_and_one_that_is_no_token(clinic: Clinic) -> None:
    clinic.tokens["odd"] = "this is no token"
    await clinic.channel("a", auth_ref="nowhere", target_id="1")
    await clinic.channel("b", auth_ref="odd", target_id="2")
    found = by_subject(await clinic.look(PLATFORMS, CREDENTIALS))
    assert found["telegram nowhere"].status == "fail"
    assert found["telegram nowhere"].said == "no telegram credential 'nowhere' in workspace 'shop'"
    assert found["telegram odd"].status == "fail" and "is not a token" in found["telegram odd"].said


async def test_a_platform_without_an_adapter_and_one_that_tells_nothing(clinic: Clinic) -> None:
    class Mute:
        platform = "pigeon"

        async def close(self) -> None: ...

    clinic.adapters = {**clinic.adapters, "pigeon": Mute()}  # type: ignore[dict-item]
    await clinic.channel("a", "pigeon", target_id="1")
    await clinic.channel("b", "owl", target_id="1")
    found = by_subject(await clinic.look(PLATFORMS, CREDENTIALS))
    assert found["pigeon bot"].status == "skipped" and "tells nothing" in found["pigeon bot"].said
    assert found["owl bot"].status == "fail" and found["owl bot"].said == "no adapter for 'owl' is installed"


async def test_a_platform_that_is_away_is_told_from_a_bad_token(clinic: Clinic) -> None:
    await clinic.channel("news")
    clinic.sandbox.state.platforms["telegram"].faults[:] = parse_faults({"kind": "503"})
    found = by_subject(await clinic.look(PLATFORMS, CREDENTIALS))["telegram bot"]
    assert found.status == "fail" and "reaches the platform" in (found.fix or "")
    clinic.sandbox.state.platforms["telegram"].faults[:] = parse_faults({"kind": "429", "retry_after": 3})
    found = by_subject(await clinic.look(PLATFORMS, CREDENTIALS))["telegram bot"]
    assert found.status == "skipped" and "asks to wait" in found.said


@pytest.mark.parametrize(("shift", "status"), [(20, "warn"), (3600, "fail"), (-3600, "fail"), (1, "ok")])
async def test_a_clock_that_is_off_shows_beside_the_platforms(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch, shift: float, status: str
) -> None:
    monkeypatch.setattr(platforms, "time", SimpleNamespace(time=lambda: time.time() + shift))
    await clinic.channel("news")
    found = by_subject(await clinic.look(PLATFORMS, CREDENTIALS))["telegram"]
    assert found.status == status and (found.fix is None) == (status == "ok"), found


@BOTH
@pytest.mark.parametrize(
    ("bot", "kind", "status"),
    [
        ("owner", "channel", "ok"),
        ("administrator", "channel", "ok"),
        ("silent", "channel", "fail"),
        ("member", "channel", "fail"),
        ("left", "channel", "fail"),
        ("member", "group", "ok"),
        ("administrator", "group", "ok"),
        ("member", "private", "ok"),
    ],
)
async def test_rights_in_a_channel(clinic: Clinic, platform: str, bot: str, kind: str, status: str) -> None:
    kind = {"group": "chat", "private": "dialog"}.get(kind, kind) if platform == "max" else kind
    clinic.room(platform, bot=bot, kind=kind)
    await clinic.channel("news", platform)
    found = await clinic.one(PLATFORMS, RIGHTS)
    assert (found.status, found.subject, found.workspace_id) == (status, "news", "shop"), found
    assert (found.fix is None) == (status == "ok")


async def test_a_chat_that_is_not_there_does_not_keep_the_others_from_being_asked_about(clinic: Clinic) -> None:
    clinic.room("telegram", "-2")
    for number in (1, 2, 3):
        await clinic.channel(f"c{number}", target_id=f"-{number}")
    found = by_subject(await clinic.look(PLATFORMS, RIGHTS))
    assert {name: each.status for name, each in found.items()} == {"c1": "fail", "c2": "ok", "c3": "fail"}
    assert "chat not found" in found["c1"].said


async def test_only_so_many_channels_are_asked_about_and_those_in_trouble_first(clinic: Clinic) -> None:
    clinic.room("telegram")
    for number in range(5):
        await clinic.channel(f"c{number}", target_id=f"-{number}", error_streak=int(number == 4))
    found = await clinic.look(PLATFORMS, RIGHTS, most_channels=2)
    assert [each.subject for each in found] == ["c4", "c0", None]
    assert found[-1].status == "skipped" and found[-1].said.startswith("3 more channels")


async def test_no_webhook_is_fine_and_said(clinic: Clinic) -> None:
    await clinic.channel("a")
    await clinic.channel("b", "max")
    for found in await clinic.look(PLATFORMS, WEBHOOKS):
        assert found.status == "ok" and found.said == "no webhook is registered; none is needed to publish"


@BOTH
async def test_a_webhook_is_named_by_its_host_alone(clinic: Clinic, platform: str) -> None:
    token = clinic.sandbox.state.platforms[platform].tokens[TOKEN]
    token.hooks["x"] = Hook("https://user:pw@bots.example/v1/hooks/SECRET", time.time())
    await clinic.channel("news", platform)
    found = await clinic.one(PLATFORMS, WEBHOOKS)
    assert (found.status, found.said) == ("ok", "updates go to https://bots.example")


@pytest.mark.parametrize(
    ("hook", "status"),
    [
        ({"error": "Connection timed out", "error_at": 0.0}, "fail"),
        ({"error": "Connection timed out", "error_at": -7200.0}, "ok"),
        ({"pending": 500}, "warn"),
        ({"pending": 2}, "ok"),
    ],
)
async def test_what_telegram_says_of_a_webhook(clinic: Clinic, hook: dict[str, Any], status: str) -> None:
    now = time.time()
    if "error_at" in hook:
        hook["error_at"] += now
    clinic.sandbox.state.platforms["telegram"].tokens[TOKEN].hooks["x"] = Hook("https://bots.example/x", now, **hook)
    await clinic.channel("news")
    found = await clinic.one(PLATFORMS, WEBHOOKS)
    assert found.status == status, found
    if status == "fail":
        assert "Connection timed out" in found.said


async def test_offline_asks_no_platform(clinic: Clinic) -> None:
    await clinic.channel("news")
    for check in (CREDENTIALS, RIGHTS, WEBHOOKS):
        assert (await clinic.one(PLATFORMS, check, offline=True)).status == "skipped"
    assert clinic.sandbox.state.platforms["telegram"].counters["requests"] == 0


async def test_one_workspace_hears_nothing_of_another(clinic: Clinic) -> None:
    await clinic.workspace("other")
    clinic.room("telegram")
    await clinic.channel("mine")
    await clinic.channel("theirs", workspace_id="other", auth_ref="gone")
    for check in (CREDENTIALS, RIGHTS, WEBHOOKS):
        found = await clinic.look(PLATFORMS, check, workspace_id="shop")
        assert {each.workspace_id for each in found} <= {"shop", None}
