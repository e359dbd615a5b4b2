"""Full payloads go when their time is over, named or not, and before the deliveries that they tell of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from vestnik.autopost.apply import apply
from vestnik.autopost.declaration import read_declaration
from vestnik.autopost.payloads.retention import Payloads, payloads_retention
from vestnik.autopost.payloads.sealing import Seal
from vestnik.autopost.payloads.vault import Vault, new_ref, path_of
from vestnik.db.pool import Pool, call
from vestnik.errors import ConfigError
from vestnik.ops import retention
from vestnik.ops.retention import Budget
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.storage import ObjectStore, open_store

NOW = datetime(2027, 3, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "objects").as_uri())


async def objects(store: ObjectStore, workspace: str = "w") -> int:
    return len([each async for each in store.list(f"payloads/{workspace}")])


async def put(store: ObjectStore, *ages: float, workspace: str = "w") -> None:
    """One object of each age, in days."""

    async def once() -> Any:
        yield b"sealed"

    for age in ages:
        await store.put(path_of(workspace, new_ref((NOW - timedelta(days=age)).timestamp())), once())


async def run(pool: Pool, store: ObjectStore, **given: Any) -> Any:
    return await retention.run(pool, [Payloads(store)], now=NOW, **given)


async def test_after_two_weeks_they_go(autopost: Any, pool: Pool, store: ObjectStore) -> None:
    await put(store, 0, 13.9, 14.1, 400)
    (seen,) = await retention.status(pool, [Payloads(store)], now=NOW, workspace_id="w")
    assert (seen["going"], seen["bytes"], seen["keep"]) == (2, 12, timedelta(days=14))
    assert (await run(pool, store))["removed"] == {"payloads": 2}
    assert await objects(store) == 2
    assert (await run(pool, store))["removed"] == {}


async def test_each_workspace_has_its_own_measure(autopost: Any, pool: Pool, store: ObjectStore) -> None:
    await call(pool, "insert into core.workspaces (workspace_id, name) values ('w2', '')")
    await call(pool, "insert into ops.retention (workspace_id, rule, keep) values ('w2', 'payloads', '2 days')")
    for workspace in ("w", "w2"):
        await put(store, 1, 3, 15, workspace=workspace)
    await run(pool, store)
    assert (await objects(store), await objects(store, "w2")) == (2, 1)


async def test_a_run_may_end_anywhere_and_the_next_goes_on(autopost: Any, pool: Pool, store: ObjectStore) -> None:
    await put(store, *(20 + n for n in range(7)))
    for left in (4, 1, 0):
        await run(pool, store, budget=Budget(rows=3))
        assert await objects(store) == left


async def test_never_longer_than_the_deliveries_even_if_those_are_shortened_later(
    autopost: Any, pool: Pool, store: ObjectStore
) -> None:
    await put(store, 4, 6)
    await call(pool, "insert into ops.retention (workspace_id, rule, keep) values ('w', 'deliveries', '5 days')")
    await run(pool, store)
    assert await objects(store) == 1
    await call(
        pool,
        """insert into ops.retention (workspace_id, rule, keep, options)
           values ('w', 'payloads', '9 days', '{"may_outlive_deliveries": true}')""",
    )
    await put(store, 8)
    await run(pool, store)
    assert await objects(store) == 2


def declared(**measures: Any) -> Any:
    return read_declaration({"workspaces": [{"id": "w", "retention": measures}]})


@pytest.mark.parametrize("measures", [{"payloads": "91d"}, {"payloads": "8d", "deliveries": "7d"}], ids=str)
def test_who_declares_a_longer_one_must_mean_it(measures: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="longer than the deliveries"):
        declared(**measures)
    declared(**measures, payloads_may_outlive_deliveries=True)


async def test_what_is_declared_holds(autopost: Any, pool: Pool, tmp_path: Path) -> None:
    declaration = declared(payloads="3d", raw_payloads="off", payloads_may_outlive_deliveries=True)
    credentials = Credentials(pool, SecretBox.open(tmp_path, None))
    await apply(pool, credentials, declaration)
    query = "select autopost.payloads_keep('w') as keep, autopost.keeps_payloads('w') as wanted, ops.retention_options('w', 'payloads') as o"
    (row,) = await call(pool, query)
    assert (row["keep"], row["wanted"]) == (timedelta(days=3), False)
    assert row["o"] == {"raw_payloads": "off", "may_outlive_deliveries": True}


async def test_an_object_that_no_event_names_goes_with_the_others(
    autopost: Any, pool: Pool, store: ObjectStore
) -> None:
    """As a crash between the object and its event leaves it; and half an object, too."""
    vault = Vault(store, Seal([SecretBox.open_with("key")]))
    await vault.put("w", {"a": 1})
    unfinished = store.folders["objects"] / "payloads" / "w" / "half#1"
    unfinished.write_bytes(b"half")
    await retention.run(pool, [Payloads(store)], now=datetime.now(UTC) + timedelta(days=15))
    assert await objects(store) == 0
    assert not unfinished.exists()


def test_it_is_done_by_the_clock(store: ObjectStore) -> None:
    recurring = payloads_retention(store)
    assert (recurring.kind.name, recurring.every) == ("payloads.retention", timedelta(hours=1))
