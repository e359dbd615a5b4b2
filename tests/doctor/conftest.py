from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from clinic import TOKEN, Clinic

from vestnik.db.pool import Pool
from vestnik.doctor import platforms
from vestnik.sandbox.server import serve


@pytest.fixture
async def clinic(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clinic]:
    """Workspace ``shop``; the token ``bot`` is known to both platforms."""
    monkeypatch.setattr(platforms, "PAUSE", 0.0)
    async with serve() as sandbox:
        for platform in sandbox.state.platforms.values():
            platform.add_token(TOKEN, "bot")
        clinic = Clinic(pool, sandbox)
        clinic.load()
        await clinic.workspace()
        yield clinic
        for adapter in clinic.adapters.values():
            await adapter.close()
