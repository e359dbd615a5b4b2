"""Where bytes are kept: a local folder by default, or a bucket of anything that speaks S3."""

from vestnik.storage.address import open_store
from vestnik.storage.failures import ObjectNotFound, StorageError
from vestnik.storage.store import ObjectStore, Stat

__all__ = ["ObjectNotFound", "ObjectStore", "Stat", "StorageError", "open_store"]
