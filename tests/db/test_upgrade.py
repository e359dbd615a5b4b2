"""Rows of the first release, as they come out of the upgrade."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from vestnik.db.migrate import migrate
from vestnik.db.schema_files import SQL_ROOT


async def first_release(url: str, tmp_path: Path) -> None:
    """Its tables; the functions are not asked for here."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "migrations").mkdir()
    for number in ("0001", "0002", "0003"):
        (file,) = (SQL_ROOT / "migrations").glob(f"{number}_*.sql")
        shutil.copy(file, tmp_path / "migrations")
    await migrate(url, sql_root=tmp_path)


async def test_rules_that_had_no_bounds_come_into_theirs(empty_database: str, tmp_path: Path) -> None:
    await first_release(empty_database, tmp_path)
    with psycopg.connect(empty_database, autocommit=True, row_factory=dict_row) as db:
        db.execute("insert into core.workspaces (workspace_id, name) values ('odd', ''), ('usual', '')")
        db.execute("insert into autopost.policies (workspace_id) values ('usual')")
        db.execute(
            "insert into autopost.policies (workspace_id, pause_on_permanent_for, sending_lease, claimed_lease, backoff_base,"
            " backoff_factor, claim_horizon, receipt_ttl) values ('odd', '999999999 days', '0', '999999999 days', '-1 second',"
            " 'NaN', '300000 years', '-1 day')"
        )
        usual = db.execute("select * from autopost.policies where workspace_id = 'usual'").fetchone()
        await migrate(empty_database)
        odd = db.execute("select * from autopost.policies where workspace_id = 'odd'").fetchone()
        after = db.execute("select * from autopost.policies where workspace_id = 'usual'").fetchone()
    assert odd is not None and usual is not None and after is not None
    assert {name: after[name] for name in usual} == usual
    year = timedelta(days=365)
    assert (odd["pause_on_permanent_for"], odd["claimed_lease"], odd["claim_horizon"]) == (
        year, timedelta(days=7), timedelta(days=1),
    )  # fmt: skip
    assert (odd["sending_lease"], odd["backoff_base"], odd["receipt_ttl"]) == (
        timedelta(milliseconds=1), timedelta(0), timedelta(0),
    )  # fmt: skip
    assert (odd["backoff_factor"], odd["max_attempts"]) == (100, 5)
