"""The service as it ships, in a process of its own: ``vestnik run ROLE…`` on a free port of the loopback."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vestnik.bench.ground import BenchError

_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 30.0


@dataclass(frozen=True)
class ServiceProcess:
    url: str
    pid: int

    def peak_rss_mb(self) -> float:
        """The most memory that it has had so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if found is None:
            raise BenchError("this system does not tell the memory of a process")
        return int(found[1]) / 1024


@asynccontextmanager
async def running(
    command: Sequence[str], database_url: str, folder: Path, *, import_path: Path | None = None
) -> AsyncIterator[str]:
    """``python -m COMMAND…``; yields the address of its API. ``folder`` is where it keeps its keys."""
    async with started(command, database_url, folder, import_path=import_path) as process:
        yield process.url


@asynccontextmanager
async def started(
    command: Sequence[str],
    database_url: str,
    folder: Path,
    *,
    import_path: Path | None = None,
    settings: Mapping[str, str] | None = None,
    tells_on_stdout: bool = False,
) -> AsyncIterator[ServiceProcess]:
    """As ``running``. A process that tells its address on its standard output tells nothing else worth passing on."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("VESTNIK_")} | {
        "VESTNIK_DATABASE_URL": database_url,
        "VESTNIK_DATA_DIR": str(folder),
        "VESTNIK_HTTP_PORT": "0",
        "VESTNIK_LOG_LEVEL": "error",
        "COLUMNS": "200",
        "PYTHONUNBUFFERED": "1",
        **(settings or {}),
    }
    if import_path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(import_path), os.environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE if tells_on_stdout else asyncio.subprocess.DEVNULL,
        stderr=None if tells_on_stdout else asyncio.subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    said = process.stdout or process.stderr
    assert said is not None
    try:
        address = await _address(said)
        # What it says later must not fill the pipe and hold it up.
        passing_on = asyncio.create_task(_pass_on(said, None if tells_on_stdout else sys.stderr.buffer))
        yield ServiceProcess(address, process.pid)
    finally:
        await _stop(process)
    await passing_on


async def _address(stream: asyncio.StreamReader) -> str:
    said = b""
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            while line := await stream.readline():
                said += line
                if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
                    return found[0].decode()
    except TimeoutError:
        pass
    raise BenchError(f"the service did not start: {said.decode(errors='replace')[-2000:]}")


async def _pass_on(stream: asyncio.StreamReader, where: BinaryIO | None) -> None:
    while line := await stream.readline():
        if where is not None:
            where.write(line)


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
