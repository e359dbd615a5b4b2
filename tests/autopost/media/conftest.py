from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from newsroom import Newsroom, newsroom_of


@pytest.fixture
async def newsroom(database: str, tmp_path: Path) -> AsyncIterator[Newsroom]:
    async with newsroom_of(database, tmp_path) as room:
        yield room
