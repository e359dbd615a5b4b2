"""A real n8n on loopback, with PostgreSQL as its database."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from install import environment, node_of

READY = 300.0  # seconds that n8n may take to start; its first start makes its tables
NO_CALLS_HOME = (
    "N8N_DIAGNOSTICS_ENABLED",
    "N8N_VERSION_NOTIFICATIONS_ENABLED",
    "N8N_TEMPLATES_ENABLED",
    "N8N_PERSONALIZATION_ENABLED",
    "N8N_HIRING_BANNER_ENABLED",
    "N8N_COMMUNITY_PACKAGES_ENABLED",
)


@dataclass
class N8n:
    installed: Path
    folder: Path
    database: dict[str, str]
    """host, port, database, user and password of n8n's own tables."""
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "N8N_USER_FOLDER": str(self.folder),
            "N8N_ENCRYPTION_KEY": "a-key-of-the-test",
            "N8N_LISTEN_ADDRESS": "127.0.0.1",
            "N8N_PORT": str(self.port),
            "N8N_RUNNERS_BROKER_PORT": str(free_port()),  # each of its processes has a broker of its own
            "N8N_LOG_LEVEL": "info",
            "N8N_DISABLED_MODULES": "mcp-registry",
            # Otherwise what its command line publishes is noticed only minutes after the start.
            "N8N_USE_WORKFLOW_PUBLICATION_SERVICE": "false",
            "DB_TYPE": "postgresdb",
            "GENERIC_TIMEZONE": "UTC",
            **{f"DB_POSTGRESDB_{name.upper()}": value for name, value in self.database.items()},
            **dict.fromkeys(NO_CALLS_HOME, "false"),
        }
        return environment(self.installed) | own

    def cli(self, *arguments: str) -> str:
        """What one of its commands printed; an AssertionError with it, when it failed."""
        done = subprocess.run(
            [*self._program, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"n8n {' '.join(arguments)}:\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    @contextmanager
    def running(self, *active: str) -> Iterator[None]:
        """``active``: the workflows that are published."""
        log = self.folder / "n8n.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*self._program, "start"],
                env=self.environment,
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # it starts a runner of its own, which ends with it
            )
            try:
                self._wait(process, log, len(active))
                yield
            finally:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _wait(self, process: subprocess.Popen[bytes], log: Path, workflows: int) -> None:
        until = time.monotonic() + READY
        while time.monotonic() < until and process.poll() is None:
            if log.read_bytes().count(b"Activated workflow") == workflows:
                return
            time.sleep(0.2)
        raise AssertionError(f"n8n did not start:\n{log.read_text(errors='replace')[-6000:]}")

    @property
    def _program(self) -> list[str]:
        return [node_of(self.installed), str(self.installed / "node_modules/n8n/bin/n8n")]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http(url: str, body: Any, **headers: str) -> tuple[int, Any, Message]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, _json(answer.read()), answer.headers
    except urllib.error.HTTPError as e:
        with e:
            return e.code, _json(e.read()), e.headers


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
