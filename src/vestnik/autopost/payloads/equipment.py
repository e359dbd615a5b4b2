"""From the settings to what keeps full payloads, and what shows them."""

from __future__ import annotations

from vestnik.autopost.payloads.links import Links
from vestnik.autopost.payloads.sealing import Seal
from vestnik.autopost.payloads.vault import Vault
from vestnik.autopost.payloads.verbs import PayloadDesk
from vestnik.db.pool import Pool
from vestnik.ops.secrets.box import SecretBox
from vestnik.settings import Settings
from vestnik.storage import ObjectStore, open_store


def open_vault(settings: Settings, store: ObjectStore) -> Vault:
    key = settings.secret_key.get_secret_value() if settings.secret_key else None
    earlier = [each.get_secret_value() for each in settings.earlier_secret_keys]
    boxes = [SecretBox.open(settings.data_dir, key), *SecretBox.earlier(settings.data_dir, key, earlier)]
    return Vault(store, Seal(boxes))


def open_desk(settings: Settings, pool: Pool, vault: Vault | None = None) -> PayloadDesk:
    key = settings.secret_key.get_secret_value() if settings.secret_key else None
    links = Links(SecretBox.open(settings.data_dir, key))
    return PayloadDesk(pool, vault or open_vault(settings, open_store(settings.object_store)), links)
