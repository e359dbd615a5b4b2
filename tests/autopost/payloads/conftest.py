from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "media"))  # the rig of a whole service is theirs

from newsroom import Newsroom, newsroom_of

from vestnik.autopost.payloads.equipment import open_vault
from vestnik.autopost.payloads.vault import Vault
from vestnik.storage import open_store


@pytest.fixture
async def newsroom(database: str, tmp_path: Path) -> AsyncIterator[Newsroom]:
    async with newsroom_of(database, tmp_path) as room:
        await room.channels("telegram")
        yield room


@pytest.fixture
def vault(newsroom: Newsroom) -> Vault:
    """The service's own, from its settings."""
    settings = newsroom.settings()
    return open_vault(settings, open_store(settings.object_store))
