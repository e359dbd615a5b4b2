from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from crowd import Crowd
from driver import Autopost, Connection
from psycopg import AsyncConnection
from psycopg.rows import dict_row

__all__ = ["Autopost"]


@pytest.fixture
async def autopost(db: Connection) -> Autopost:
    """One active workspace without channels."""
    driver = Autopost(db)
    await driver.workspace_row()
    return driver


@pytest.fixture
async def workspace(worker_database: str) -> AsyncIterator[Autopost]:
    """The same, cheaper, in a database with other workspaces: enough for what stays inside one."""
    async with await AsyncConnection.connect(worker_database, autocommit=True, row_factory=dict_row) as db:
        driver = Autopost(db, f"w-{uuid4().hex}")
        await driver.workspace_row()
        yield driver


@pytest.fixture
async def crowd(database: str, autopost: Autopost) -> AsyncIterator[Crowd]:
    crowd = Crowd(database, autopost)
    yield crowd
    await crowd.close()
