"""From ``VESTNIK_OBJECT_STORE_URL`` to a store.

    file:///srv/vestnik/objects
    s3://KEY:SECRET@bucket/prefix?region=eu-central-1
    s3://KEY:SECRET@bucket?endpoint=https://minio.example.org:9000

Key and secret are percent-encoded where they hold ``/``, ``+`` or ``@``. Without them the machine's own are used, as
AWS hands them to its machines. With an ``endpoint`` the bucket is part of the path, as MinIO and its kin want it. No
message ever quotes an address: it may hold the secret.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore.store import LocalStore, S3Store

from vestnik.errors import ConfigError
from vestnik.storage.store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import S3Config

_FORMS = "write file:///folder, or s3://KEY:SECRET@bucket/prefix?endpoint=https://…&region=…, with / in a SECRET as %2F"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SECRET_AT_REST = 0o700


def open_store(url: str) -> ObjectStore:
    """ConfigError for an address that cannot be one; whether the store answers is seen at the first use."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        _wrong("it is not an address")
    if parts.scheme == "file":
        return _local(parts)
    if parts.scheme == "s3" and port is None:
        return _s3(parts)
    return _wrong("it begins neither with file:/// nor with s3://bucket")


def _local(parts: SplitResult) -> ObjectStore:
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        _wrong("a folder is written file:///like/this")
    root = Path(unquote(parts.path))
    try:
        root.mkdir(mode=_SECRET_AT_REST, parents=True, exist_ok=True)
        return ObjectStore(LocalStore(root), root=root)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else "it is not a folder"
        raise ConfigError(
            f"the folder for objects cannot be used: {root}: {reason}",
            hint="make it writable for this user, or set VESTNIK_OBJECT_STORE_URL to another place",
        ) from None


def _s3(parts: SplitResult) -> ObjectStore:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"endpoint", "region"})
    if unknown:
        _wrong(f"there is no option {unknown[0]!r}")
    bucket = parts.hostname or ""
    if _BUCKET.fullmatch(bucket) is None:
        _wrong("the name of a bucket has 3 to 63 small letters, digits, dots and dashes")
    config: S3Config = {"region": options.get("region") or "us-east-1"}
    if parts.username or parts.password:
        if not (parts.username and parts.password):
            _wrong("KEY and SECRET belong together")
        config["access_key_id"], config["secret_access_key"] = unquote(parts.username), unquote(parts.password)
    endpoint = options.get("endpoint", "")
    if endpoint:
        if not endpoint.startswith(("http://", "https://")) or not urlsplit(endpoint).hostname:
            _wrong("the endpoint is not an http or https address")
        config["endpoint"] = endpoint.rstrip("/")
    store = S3Store(
        bucket,
        prefix=unquote(parts.path).strip("/") or None,
        config=config,
        # A slow reader may take as long as it likes; a store that is silent may not.
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "timeout": timedelta(hours=6),
            "read_timeout": timedelta(seconds=60),
        },
        retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=30)},
    )
    return ObjectStore(store)


def _wrong(what: str) -> NoReturn:
    raise ConfigError(f"the address of the object store cannot be used: {what}", hint=_FORMS) from None
