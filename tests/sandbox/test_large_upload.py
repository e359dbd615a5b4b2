"""A large file passes through the sandbox without staying in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

import vestnik

MB = 1024 * 1024
TOKEN = {"Authorization": "any"}


def peak_of(process: int) -> int:
    """The most memory that it ever had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def film(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // MB):
        yield bytes(MB)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_video_of_200_mb_costs_a_few_megabytes() -> None:
    code = "import typer; from vestnik.cli.sandbox import sandbox; typer.run(sandbox)"
    source = str(Path(vestnik.__file__).parent.parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", code, "--port", "0", "--lenient"]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().removeprefix("Sandbox: ").rstrip("/")
        try:
            async with aiohttp.ClientSession() as http:
                await upload(http, url, MB)
                before = peak_of(process.pid)
                token = await upload(http, url, 200 * MB)
                grown = peak_of(process.pid) - before
                async with http.post(f"{url}/max/messages?chat_id=-1", json=message(token), headers=TOKEN) as answer:
                    assert answer.status == 200
        finally:
            process.terminate()
    assert grown < 16 * MB


async def upload(http: aiohttp.ClientSession, url: str, size: int) -> str:
    async with http.post(f"{url}/max/uploads?type=video", headers=TOKEN) as answer:
        place = await answer.json()
    form = aiohttp.FormData()
    form.add_field("data", film(size), filename="film.mp4", content_type="video/mp4")
    async with http.post(place["url"], data=form) as answer:
        assert answer.status == 200
    return str(place["token"])


def message(token: str) -> dict[str, object]:
    return {"text": "", "attachments": [{"type": "video", "payload": {"token": token}}]}
