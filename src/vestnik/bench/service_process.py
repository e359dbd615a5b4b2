"""The service as it ships, in a process of its own: ``vestnik run ROLE…`` on a free port of the loopback."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from vestnik.bench.ground import BenchError

_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 30.0


@asynccontextmanager
async def running(
    command: Sequence[str], database_url: str, folder: Path, *, import_path: Path | None = None
) -> AsyncIterator[str]:
    """``python -m COMMAND…``; yields the address of its API. ``folder`` is where it keeps its keys."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("VESTNIK_")} | {
        "VESTNIK_DATABASE_URL": database_url,
        "VESTNIK_DATA_DIR": str(folder),
        "VESTNIK_HTTP_PORT": "0",
        "VESTNIK_LOG_LEVEL": "error",
        "COLUMNS": "200",
    }
    if import_path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(import_path), os.environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    try:
        address = await _address(process)
        # What it says later must not fill the pipe and hold it up.
        passing_on = asyncio.create_task(_pass_on(process))
        yield address
    finally:
        await _stop(process)
    await passing_on


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            while line := await process.stderr.readline():
                said += line
                if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
                    return found[0].decode()
    except TimeoutError:
        pass
    raise BenchError(f"the service did not start: {said.decode(errors='replace')[-2000:]}")


async def _pass_on(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while line := await process.stderr.readline():
        sys.stderr.buffer.write(line)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
