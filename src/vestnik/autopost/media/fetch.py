"""What an address leads to becomes a blob, or a reason why not."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from vestnik.adapters.contract import MediaType
from vestnik.autopost.media.blobs import Blob, BlobStore
from vestnik.autopost.media.inspect import MediaRefused
from vestnik.download import Download, Downloader, DownloadRefused
from vestnik.errors import VestnikError
from vestnik.storage import StorageError


class FetchFailed(VestnikError):
    """``permanent``: another attempt will not help."""

    def __init__(self, code: str, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.code = code
        self.permanent = permanent


async def fetch(
    downloader: Downloader, blobs: BlobStore, workspace_id: str, url: str, wanted: MediaType, max_bytes: int
) -> Blob:
    """Streamed from there into the store; FetchFailed says why it did not come about."""
    try:
        async with downloader.get(url, max_bytes=max_bytes) as answer:
            if answer.status != 200:
                raise FetchFailed("no_content", f"the server answered {answer.status}", permanent=True)
            return await blobs.keep(
                workspace_id,
                answer.chunks(),
                wanted,
                declared=answer.content_type,
                name=_name(answer),
                max_bytes=max_bytes,
            )
    except DownloadRefused as e:
        failure = FetchFailed(e.code, str(e), permanent=e.permanent)
    except MediaRefused as e:
        failure = FetchFailed("not_that_kind", str(e), permanent=True)
    except StorageError as e:
        failure = FetchFailed("object_store", str(e), permanent=e.permanent)
    raise failure


def _name(answer: Download) -> str | None:
    """As the server names it, else as its address ends."""
    said = re.search(r'filename\s*=\s*"?([^";]+)', answer.headers.get("Content-Disposition", ""))
    return said[1] if said else unquote(urlsplit(answer.url).path).rpartition("/")[2] or None
