"""``GET /v1/workspaces/{ws}/doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from api_rig import Api

from vestnik.api import doctor
from vestnik.doctor.findings import Check, Finding, Patient
from vestnik.ops.access import create_key


async def test_who_may_read_may_ask_the_doctor(api: Api) -> None:
    key = await create_key(api.pool, "shop", "watch")
    status, found = await api.get("/v1/workspaces/shop/doctor?offline=true", key)
    assert status == 200
    of = {each["check"]: each for each in found}
    assert of["platforms.credentials"]["status"] == "skipped"
    assert of["work.sending"] == {
        "check": "work.sending", "status": "ok", "workspace_id": None, "subject": None,
        "said": "nothing is stuck in sending or claimed", "fix": None,
    }  # fmt: skip
    assert not [name for name in of if name.startswith(("database.", "machine."))], "the server is none of its business"


async def test_platforms_that_cannot_be_reached_are_findings(api: Api) -> None:
    """The adapters of this rig lead nowhere, and have no secret either."""
    key = await create_key(api.pool, "shop", "watch")
    status, found = await api.get("/v1/workspaces/shop/doctor", key)
    assert status == 200
    broken = {each["subject"]: each for each in found if each["check"] == "platforms.credentials"}
    assert {each["status"] for each in broken.values()} == {"fail"} and set(broken) == {"telegram bot", "max bot"}


async def test_another_workspace_is_not_there_and_bad_parameters_are_refused(api: Api) -> None:
    key = await create_key(api.pool, "shop", "watch")
    assert (await api.get("/v1/workspaces/other/doctor", key))[0] == 404
    assert (await api.get("/v1/workspaces/shop/doctor"))[0] == 401
    for bad in ("channels=0", "channels=201", "channels=x", "offline=perhaps"):
        assert (await api.get(f"/v1/workspaces/shop/doctor?{bad}", key))[0] == 422


async def test_many_who_ask_at_once_wait_for_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate of a bot is for posts."""
    examined: list[str | None] = []

    async def examine(patient: Patient, checks: Sequence[Check]) -> list[Finding]:
        examined.append(patient.workspace_id)
        return [Finding("ok", "well", check="a")]

    monkeypatch.setattr(doctor, "examine", examine)
    (route,) = doctor.doctor_routes({}).routes
    ask: Any = route.endpoint  # type: ignore[attr-defined]
    await asyncio.gather(*(ask(None, "shop", False, 20) for _ in range(5)), ask(None, "other", False, 20))
    assert examined == ["shop", "other"]
    await ask(None, "shop", False, 20)
    assert examined == ["shop", "other", "shop"], "the next one is asked for anew"
