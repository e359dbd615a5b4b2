"""What the roles of the service work with: credentials, adapters, the object store, the way to addresses of others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from vestnik.adapters import registry
from vestnik.adapters.contract import Adapter
from vestnik.autopost.alerting import AlertDesk
from vestnik.autopost.media.arrival import MediaFetch
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.media.depot import SqlDepot
from vestnik.autopost.media.probe import probe
from vestnik.autopost.media.sweep import arrivals_sweep
from vestnik.autopost.messenger import chat_way
from vestnik.autopost.monitor import Monitor
from vestnik.autopost.payloads.equipment import open_vault
from vestnik.autopost.payloads.keeper import Keeper
from vestnik.autopost.payloads.retention import payloads_retention
from vestnik.autopost.proof import integrity, proof
from vestnik.autopost.retention import recurring_retention
from vestnik.autopost.sources.contract import Secrets
from vestnik.autopost.sources.pull import Puller
from vestnik.db.pool import Pool
from vestnik.download import Downloader, parse_networks
from vestnik.ops.alerts.contract import Way
from vestnik.ops.alerts.mail import MailWay, SmtpServer
from vestnik.ops.alerts.notifier import Notifier
from vestnik.ops.jobs.recurring import Recurring
from vestnik.ops.jobs.registry import JobKind, kinds
from vestnik.ops.secrets.box import SecretBox
from vestnik.ops.secrets.credentials import Credentials
from vestnik.ops.sign_in import sign_in_pruning
from vestnik.ops.webhooks.caller import Caller
from vestnik.ops.webhooks.sender import WebhookSender
from vestnik.settings import Settings
from vestnik.storage import open_store

SOURCES = "source"  # the platform of a credential that a source names


@dataclass(frozen=True, slots=True)
class Equipment:
    credentials: Credentials
    adapters: Mapping[str, Adapter]
    blobs: BlobStore
    puller: Puller
    downloader: Downloader
    media_max_bytes: int
    desk: AlertDesk
    monitor: Monitor
    webhooks: WebhookSender
    keeper: Keeper

    def job_kinds(self) -> dict[str, JobKind]:
        """Every kind of jobs that a capability brings, by its name."""
        fetch = MediaFetch(self.downloader, self.blobs, self.media_max_bytes)
        return kinds(
            [
                fetch.kind(),
                self.puller.kind(),
                self.desk.notifier.kind(),
                self.webhooks.kind(),
                *(each.kind for each in self.recurring()),
            ]
        )

    def recurring(self) -> list[Recurring]:
        """What the service itself does by the clock."""
        return [
            arrivals_sweep(self.blobs),
            sign_in_pruning(),
            *recurring_retention(self.blobs.store),
            payloads_retention(self.blobs.store),
            proof(),
            integrity(),
            self.monitor.recurring(),
            self.webhooks.collector(),
        ]


@asynccontextmanager
async def equipment(settings: Settings, pool: Pool) -> AsyncIterator[Equipment]:
    """Raises ConfigError when something of it cannot be used as it is set."""
    box = SecretBox.open(settings.data_dir, _secret_key(settings))
    credentials = Credentials(pool, box)
    await credentials.verify()
    store = open_store(settings.object_store)
    downloader = Downloader(allow=parse_networks(settings.fetch_allow))
    adapters = registry.load_configured(settings, credentials.resolve, SqlDepot(pool, store))
    puller = Puller(pool, downloader, lambda workspace_id: _secrets_of(credentials, workspace_id))
    caller = Caller(pool, box, downloader)
    notifier = Notifier(pool, _ways(settings, adapters, caller))
    monitor = Monitor(pool, notifier, lambda: probe(store), {"data": settings.data_dir.resolve()} | store.folders)
    try:
        yield Equipment(
            credentials,
            adapters,
            BlobStore(store),
            puller,
            downloader,
            settings.media_max_bytes,
            AlertDesk(pool, box, notifier),
            monitor,
            WebhookSender(pool, caller),
            Keeper(pool, open_vault(settings, store)),
        )
    finally:
        for adapter in adapters.values():
            await adapter.close()
        await downloader.close()


def _ways(settings: Settings, adapters: Mapping[str, Adapter], caller: Caller) -> dict[str, Way]:
    ways: dict[str, Way] = {platform: chat_way(adapter) for platform, adapter in adapters.items()}
    ways["webhook"] = caller.tell
    if settings.smtp_url:
        ways["email"] = MailWay(SmtpServer.parse(settings.smtp_url.get_secret_value()))
    return ways


def _secrets_of(credentials: Credentials, workspace_id: str) -> Secrets:
    async def secret(name: str) -> str:
        return await credentials.resolve(workspace_id, SOURCES, name)

    return secret


def _secret_key(settings: Settings) -> str | None:
    return settings.secret_key.get_secret_value() if settings.secret_key else None
