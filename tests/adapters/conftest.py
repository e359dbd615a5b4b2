"""The built-in platforms on the rig: real adapters, real sockets, the sandbox at the other end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.register_assert_rewrite("conformance", "conformance_media", "conformance_series", "depot")

from sandbox_rig import SandboxRig  # noqa: E402

from vestnik.sandbox.server import Sandbox, serve  # noqa: E402


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with serve() as running:
        yield running


@pytest.fixture
async def telegram_rig(sandbox: Sandbox) -> AsyncIterator[SandboxRig]:
    rig = SandboxRig(sandbox, "telegram")
    yield rig
    await rig.close()


@pytest.fixture
async def max_rig(sandbox: Sandbox) -> AsyncIterator[SandboxRig]:
    rig = SandboxRig(sandbox, "max")
    yield rig
    await rig.close()
