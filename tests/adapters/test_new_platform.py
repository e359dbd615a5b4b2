"""The adapter that docs/howto/new-platform.md shows keeps the contract, and is configured like the built-in ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conformance import Conformance, Timed
from sandbox_rig import SandboxRig

from vestnik.adapters.contract import CreateAdapter
from vestnik.sandbox.server import Sandbox

PAGE = Path(__file__).parents[2] / "docs/howto/new-platform.md"


def shown() -> CreateAdapter:
    found = re.search(r"```python\n(# my_platform.py.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    names: dict[str, Any] = {}
    exec(found[1], names)
    create: CreateAdapter = names["create"]
    return create


class TestTheExample(Conformance):
    @pytest.fixture
    async def rig(self, sandbox: Sandbox) -> AsyncIterator[SandboxRig]:
        rig = SandboxRig(sandbox, "telegram", name="myplatform", create=shown())
        yield rig
        await rig.close()


async def test_an_adapter_that_waits_for_ever_fails() -> None:
    class Suite(Timed):
        longest = 0.01

        async def test_waits(self) -> None:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await Suite().test_waits()
