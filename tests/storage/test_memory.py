"""A video is never in memory as a whole, neither on its way in nor on its way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from s3_server import S3Server

MOST_MB = 64

_STREAM = """
import asyncio, os, resource, sys
from vestnik.storage import open_store

async def chunks():
    block = bytes(256 * 1024)
    for _ in range(200 * 4):
        yield block

async def main():
    store = open_store(sys.argv[1])
    await store.exists("warm")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await store.put("large", chunks())
    size = 0
    async for chunk in store.get("large"):
        size += len(chunk)
    assert size == 200 << 20, size
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, flush=True)

asyncio.run(main())
os._exit(0)  # the library's threads may still let go of something while the interpreter ends, and abort it
"""


def grown_mb(url: str) -> int:
    done = subprocess.run([sys.executable, "-c", _STREAM, url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_200_mb_through_a_folder(tmp_path: Path) -> None:
    assert grown_mb(tmp_path.as_uri()) < MOST_MB


def test_200_mb_through_a_bucket(s3: S3Server) -> None:
    bucket = s3.new_bucket()
    try:
        assert grown_mb(s3.url(bucket)) < MOST_MB
    finally:
        s3.ask("DELETE", f"/{bucket}/large")
