"""Checks of this machine and of what is kept beside the database: the data folder, the key, the object store, the schema."""

from __future__ import annotations

import shutil
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from vestnik.db.migrate import check as check_schema
from vestnik.doctor.findings import Check, Finding, Looked, Patient, counted, fail, ok, refused, skipped, warn
from vestnik.errors import ConfigError, VestnikError
from vestnik.ops.secrets.box import KEY_FILE, SecretBox
from vestnik.settings import Settings
from vestnik.storage import ObjectStore

LITTLE, TOO_LITTLE = 0.1, 0.02  # of a disk that is free
LITTLE_BYTES, TOO_LITTLE_BYTES = 2 * 2**30, 256 * 2**20
PROBE = "doctor"  # the folder of the object store


@dataclass(frozen=True, slots=True)
class Installation:
    """What is examined beside the database. What could not be opened is here as the reason."""

    settings: Settings
    url: str
    box: SecretBox | ConfigError
    store: ObjectStore | ConfigError
    adapters_error: ConfigError | None = None

    def checks(self) -> tuple[Check, ...]:
        far = not self.settings.object_store.startswith("file:")
        return (
            Check("machine.schema", self.schema),
            Check("machine.folder", self.folder, needs_database=False),
            Check("machine.disk", self.disk, needs_database=False),
            Check("machine.secret_key", self.secret_key, needs_database=False),
            Check("machine.credentials", self.credentials),
            Check("machine.adapters", self.adapters),
            Check("machine.object_store", self.object_store, far, patience=30.0, needs_database=False),
        )

    async def schema(self, patient: Patient) -> Looked:
        try:
            await check_schema(self.url)
        except VestnikError as e:
            return refused(e, "vestnik migrate")
        return ok("migrations and functions are those of this program")

    async def folder(self, patient: Patient) -> Looked:
        folder = self.settings.data_dir.resolve()
        if not folder.is_dir():
            return skipped(f"{folder} is not there, and is not needed yet")
        if folder.stat().st_mode & stat.S_IWOTH:
            return fail(f"everybody may write into {folder}", f"chmod o-w {folder}")
        return ok(f"{folder}")

    async def disk(self, patient: Patient) -> Looked:
        """Of the data folder, and of the object store where it is a folder elsewhere."""
        folders = {_existing(self.settings.data_dir.resolve())}
        if isinstance(self.store, ObjectStore) and self.store.folder is not None:
            folders.add(_existing(self.store.folder))
        disks = {folder.stat().st_dev: folder for folder in sorted(folders)}
        return [_room(folder) for folder in disks.values()]

    async def secret_key(self, patient: Patient) -> Looked:
        if isinstance(self.box, ConfigError):
            return refused(self.box, "restore it from a backup")
        if self.settings.secret_key:
            return ok("from VESTNIK_SECRET_KEY")
        file = self.settings.data_dir.resolve() / KEY_FILE
        if not file.exists():
            return ok("none yet: it is made when the first credential is stored")
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return fail(f"others may read {file}", f"chmod 600 {file}")
        return ok(f"{file}: keep a copy of it, backups of the database are of no use without it")

    async def credentials(self, patient: Patient) -> Looked:
        if isinstance(self.box, ConfigError):
            return skipped("there is no key to read them with")
        rows = await patient.rows(
            "select workspace_id, platform, auth_ref, secret from core.credential_bindings where secret is not null"
            " order by 1, 2, 3"
        )
        found: list[Finding] = []
        for row in rows:
            try:
                self.box.unlock(row["secret"])
            except ConfigError as e:
                subject = f"{row['platform']} {row['auth_ref']}"
                found.append(refused(e, "store it anew", workspace_id=row["workspace_id"], subject=subject))
        return found or ok(f"{counted(len(rows), 'stored credential')} can be read")

    async def adapters(self, patient: Patient) -> Looked:
        if self.adapters_error is not None:
            return refused(self.adapters_error, "see the message")
        return ok(f"for {', '.join(patient.adapters)}")

    async def object_store(self, patient: Patient) -> Looked:
        """Written, read and removed."""
        if isinstance(self.store, ConfigError):
            return refused(self.store, "correct VESTNIK_OBJECT_STORE_URL")
        name, probe = f"{PROBE}/{uuid4().hex}", b"vestnik doctor"
        try:
            await self.store.put(name, _once(probe))
            read = b"".join([chunk async for chunk in self.store.get(name)])
            await self.store.delete(name)
        except VestnikError as e:
            return refused(e, "see VESTNIK_OBJECT_STORE_URL, the rights of its folder or of its key, and its disk")
        if read != probe:
            return fail("it gave back other bytes than it was given", "use another store")
        return ok("takes, gives back and removes")


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _room(folder: Path) -> Finding:
    total, _, free = shutil.disk_usage(folder)
    said, fix = f"{free / 2**30:.1f} GiB of {total / 2**30:.1f} free", "make room, or move VESTNIK_DATA_DIR"
    if free < TOO_LITTLE_BYTES or free < TOO_LITTLE * total:
        return fail(said, fix, subject=str(folder))
    if free < LITTLE_BYTES or free < LITTLE * total:
        return warn(said, fix, subject=str(folder))
    return ok(said, subject=str(folder))


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
