"""Files of this machine that go along with a post."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vestnik.adapters.contract import MediaType
from vestnik.autopost.media.blobs import BlobStore
from vestnik.autopost.media.upload import keep_file
from vestnik.db.pool import Pool
from vestnik.settings import load_settings
from vestnik.storage import open_store

Files = Annotated[
    list[Path] | None, typer.Option("--file", help="A picture, film or file of this machine; may be given again.")
]


async def with_files(pool: Pool, workspace: str, post: dict[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """The payload, with the files behind the media that it has already; they are stored from now on."""
    if not files:
        return post
    settings = load_settings()
    blobs = BlobStore(open_store(settings.object_store))
    media = list(post.get("media") or ())
    for path in files:
        kind = kind_of(path)
        blob_ref = await keep_file(pool, blobs, workspace, path, kind, settings.media_max_bytes)
        media.append({"type": kind, "blob_ref": blob_ref})
    return post | {"media": media}


def kind_of(path: Path) -> MediaType:
    """As its name says; what it really is must then agree."""
    content_type = mimetypes.guess_type(path.name)[0] or ""
    if content_type == "image/gif":
        return "animation"
    kinds: dict[str, MediaType] = {"image": "image", "video": "video", "audio": "audio"}
    return kinds.get(content_type.partition("/")[0], "file")
