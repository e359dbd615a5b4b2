"""Two stores to hold to the same promises: a folder, and a real S3 server over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import S3Server

from vestnik.storage import ObjectStore, open_store


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with S3Server.running() as server:
        yield server


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store((tmp_path / "objects").as_uri())
    server: S3Server = request.getfixturevalue("s3")
    return open_store(server.url(server.new_bucket(), "some/prefix"))
