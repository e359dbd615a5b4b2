"""Opens what is to be examined, as far as it can be opened: what cannot is a finding, not the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from cryptography.fernet import Fernet

from vestnik.adapters import registry
from vestnik.adapters.contract import Adapter
from vestnik.db.home import database, database_url
from vestnik.db.migrate import connect
from vestnik.db.pool import Pool, make_pool
from vestnik.doctor.findings import Check, Finding, Patient, refused, skipped
from vestnik.doctor.machine import Installation
from vestnik.errors import ConfigError, NotFound, VestnikError
from vestnik.ops.secrets.box import KEY_FILE, SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.settings import Settings
from vestnik.storage import ObjectStore, open_store

REACHABLE = "database.reachable"


@dataclass(frozen=True, slots=True)
class Opened:
    """``unreached`` is why the database cannot be asked; then only checks that can do without it are made."""

    patient: Patient
    installation: Installation
    unreached: Finding | None = None

    def possible(self, checks: tuple[Check, ...]) -> tuple[list[Finding], tuple[Check, ...]]:
        if self.unreached is None:
            return [], checks
        left = tuple(check for check in checks if not check.needs_database)
        without = [replace(skipped("the database is away"), check=each.name) for each in checks if each not in left]
        return [replace(self.unreached, check=REACHABLE), *without], left


@asynccontextmanager
async def opened(
    settings: Settings, *, workspace_id: str | None = None, offline: bool = False, most_channels: int = 100
) -> AsyncIterator[Opened]:
    """The embedded server runs for as long as the block lasts. NotFound for a workspace that is not there."""
    box, store = _box(settings), _store(settings)
    async with AsyncExitStack() as stack:
        try:
            url, pool = await _reached(settings, stack)
        except VestnikError as e:
            patient = Patient(make_pool(""), {}, workspace_id, offline, most_channels)
            yield Opened(patient, Installation(settings, "", box, store), refused(e, "vestnik db status"))
            return
        adapters, error = _adapters(settings, pool, box)
        for adapter in adapters.values():
            stack.push_async_callback(adapter.close)
        patient = Patient(pool, adapters, workspace_id, offline, most_channels)
        await _must_be_there(patient)
        yield Opened(patient, Installation(settings, url, box, store, error))


async def _reached(settings: Settings, stack: AsyncExitStack) -> tuple[str, Pool]:
    database_url(settings)
    url = await stack.enter_async_context(database(settings))
    await (await connect(url)).close()
    return url, await stack.enter_async_context(make_pool(url, max_size=4, name="vestnik doctor", checkout_timeout=10))


def _box(settings: Settings) -> SecretBox | ConfigError:
    """To look is not to make: without a key there is one for this moment only."""
    given = settings.secret_key.get_secret_value() if settings.secret_key else None
    try:
        if given is None and not (settings.data_dir / KEY_FILE).exists():
            return SecretBox(Fernet.generate_key())
        return SecretBox.open(settings.data_dir, given)
    except ConfigError as e:
        return e
    except OSError as e:
        return ConfigError(f"the key cannot be read: {e.strerror or e}", hint=f"see {settings.data_dir / KEY_FILE}")


def _store(settings: Settings) -> ObjectStore | ConfigError:
    try:
        return open_store(settings.object_store)
    except ConfigError as e:
        return e


def _adapters(
    settings: Settings, pool: Pool, box: SecretBox | ConfigError
) -> tuple[Mapping[str, Adapter], ConfigError | None]:
    if isinstance(box, ConfigError):
        return {}, box
    try:
        return registry.load_configured(settings, Credentials(pool, box).resolve), None
    except ConfigError as e:
        return {}, e


async def _must_be_there(patient: Patient) -> None:
    if patient.workspace_id is None:
        return
    query = "select 1 from core.workspaces where workspace_id = %s"
    if not await patient.rows(query, patient.workspace_id):
        raise NotFound(f"no workspace {patient.workspace_id}", hint="vestnik apply FILE makes one")
