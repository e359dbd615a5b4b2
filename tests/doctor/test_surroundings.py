"""What the doctor sees of this machine: the data folder, the key, the object store, the schema."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from clinic import Clinic

from vestnik.doctor import machine
from vestnik.doctor.examination import examine
from vestnik.doctor.findings import Finding
from vestnik.doctor.machine import Installation
from vestnik.doctor.opening import opened
from vestnik.ops.secrets.box import SecretBox
from vestnik.settings import Settings
from vestnik.storage import open_store

Usage = namedtuple("Usage", "total used free")


def installation(folder: Path, database: str = "", **settings: object) -> Installation:
    made = Settings(data_dir=folder, database_url=database or None, **settings)  # type: ignore[arg-type]
    box = SecretBox.open(folder, None)
    return Installation(made, database, box, open_store(made.object_store))


async def one(clinic: Clinic, of: Installation, name: str, *, offline: bool = False) -> Finding:
    checks = [check for check in of.checks() if check.name == name]
    (found,) = await examine(clinic.patient(offline=offline), checks)
    return found


async def test_all_that_is_kept_here_is_in_order(clinic: Clinic, tmp_path: Path, database: str) -> None:
    found = await examine(clinic.patient(), installation(tmp_path, database).checks())
    assert {each.check: each.status for each in found if each.status != "ok"} == {}


async def test_a_folder_or_a_key_that_others_may_touch(clinic: Clinic, tmp_path: Path) -> None:
    of = installation(tmp_path)
    (tmp_path / "secret.key").chmod(0o644)
    assert (await one(clinic, of, "machine.secret_key")).fix == f"chmod 600 {tmp_path.resolve() / 'secret.key'}"
    tmp_path.chmod(0o777)
    assert (await one(clinic, of, "machine.folder")).fix == f"chmod o-w {tmp_path.resolve()}"


@pytest.mark.parametrize(("free", "status"), [(100, "ok"), (5, "warn"), (1, "fail")])
async def test_a_disk_that_fills_up(
    clinic: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: str
) -> None:
    gib = 2**30
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(200 * gib, (200 - free) * gib, free * gib))
    assert (await one(clinic, installation(tmp_path), "machine.disk")).status == status


async def test_a_credential_of_another_key_is_named(clinic: Clinic, tmp_path: Path) -> None:
    of = installation(tmp_path)
    other = SecretBox.open(tmp_path, "another key")
    for auth_ref, box in (("good", of.box), ("lost", other)):
        assert isinstance(box, SecretBox)
        await clinic.sql(
            "insert into core.credential_bindings (workspace_id, platform, auth_ref, secret) values ('shop', 'max', %s, %s)",
            auth_ref,
            box.lock("token"),
        )
    found = await one(clinic, of, "machine.credentials")
    assert (found.status, found.workspace_id, found.subject) == ("fail", "shop", "max lost")
    assert found.fix == "set VESTNIK_SECRET_KEY to the key that was in use"


async def test_a_schema_that_is_not_this_programs(clinic: Clinic, tmp_path: Path, database: str) -> None:
    await clinic.sql("update core.schema_functions set sha256 = 'other' where path like '%%claim%%'")
    found = await one(clinic, installation(tmp_path, database), "machine.schema")
    assert (found.status, found.fix) == ("fail", "vestnik migrate") and "its functions differ" in found.said


async def test_an_object_store_that_does_not_take_anything(clinic: Clinic, tmp_path: Path) -> None:
    of = installation(tmp_path, object_store_url=(tmp_path / "objects").as_uri())
    assert (await one(clinic, of, "machine.object_store")).status == "ok"
    assert not [each for each in (tmp_path / "objects").rglob("*") if each.is_file()], "the probe is gone"
    shutil.rmtree(tmp_path / "objects")
    (tmp_path / "objects").write_text("in the way")
    found = await one(clinic, of, "machine.object_store")
    assert found.status == "fail" and found.fix


async def test_a_bucket_is_not_asked_offline_and_one_that_is_away_is_said(clinic: Clinic, tmp_path: Path) -> None:
    address = "s3://KEY:SECRET@bucket?endpoint=http://127.0.0.1:9"
    of = installation(tmp_path, object_store_url=address)
    assert (await one(clinic, of, "machine.object_store", offline=True)).status == "skipped"


async def test_a_database_that_is_away_leaves_the_machine_to_look_at(tmp_path: Path) -> None:
    settings = Settings(database_url="postgresql://127.0.0.1:9/nowhere", data_dir=tmp_path)
    async with opened(settings) as case:
        found, left = case.possible(case.installation.checks())
        found += await examine(case.patient, left)
    of = {each.check: each for each in found}
    assert of["database.reachable"].status == "fail" and "cannot be reached" in of["database.reachable"].said
    assert of["machine.schema"].status == "skipped"
    assert of["machine.disk"].status in ("ok", "warn") and of["machine.object_store"].status == "ok"
    assert not (tmp_path / "secret.key").exists(), "to look is not to make"


def test_a_room_is_measured_where_the_folder_will_be(tmp_path: Path) -> None:
    assert machine._existing(tmp_path / "not" / "yet") == tmp_path
