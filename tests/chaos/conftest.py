from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stormy import Storm, stormy_on

from vestnik.db.embedded import EmbeddedServer


@pytest.fixture
async def storm(own_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Storm]:
    async with stormy_on(own_server, tmp_path) as storm:
        yield storm
