"""``vestnik sandbox``: says where it is, serves, stops when told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import vestnik
from vestnik.cli.sandbox import _run
from vestnik.errors import ConfigError
from vestnik.sandbox.server import serve
from vestnik.sandbox.state import State

CODE = "import typer; from vestnik.cli.sandbox import sandbox; typer.run(sandbox)"


def start(*arguments: str) -> subprocess.Popen[str]:
    source = str(Path(vestnik.__file__).parent.parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", CODE, *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_it_is_told_to_stop(number: signal.Signals) -> None:
    with start("--port", "0", "--lenient") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(6)]
        url = lines[0].removeprefix("Sandbox: ").rstrip("/")
        assert lines[3:6] == [
            f"VESTNIK_TELEGRAM_API_URL={url}/telegram",
            f"VESTNIK_MAX_API_URL={url}/max",
            "VESTNIK_FETCH_ALLOW=127.0.0.1",
        ]
        with urllib.request.urlopen(f"{url}/telegram/bot1:A/getMe", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


async def test_a_port_that_is_taken_is_named() -> None:
    async with serve() as other:
        port = other.runner.addresses[0][1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}") as caught:
            await _run("127.0.0.1", port, State())
    assert "--port" in str(caught.value.hint)
