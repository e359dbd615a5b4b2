"""Every benchmark works and prints what it promises, at a size that measures nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PROMISED = {
    "drain": ("deliveries_per_s", "wal_bytes_per_delivery", "vs_procrastinate", "with_blocked_backlog"),
    "fanout": ("rows_per_s", "vs_plain_insert"),
    "ingest": ("requests_per_s", "p50_ms", "p99_ms", "vs_bare_insert", "rows_per_s", "rows_vs_plain_insert"),
    "jobs": ("jobs_per_s", "vs_procrastinate"),
    "latency": ("p50_ms", "p99_ms"),
    "media": ("uploads", "deliveries_per_s", "peak_rss_mb", "peak_rss_mb_large"),
    "pull": ("items_per_s", "vs_plain_insert"),
    "soak": ("last_vs_first", "p99_ms", "bytes_per_delivery"),
}


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VESTNIK_")}
    command = [sys.executable, "-m", "vestnik", "bench", name, "--tiny", "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=folder, env=kept, check=False)


@pytest.mark.parametrize("name", PROMISED)
def test_it_prints_one_line_with_what_it_promises(name: str, own_folder: Path) -> None:
    done = run(name, own_folder)
    if name in ("drain", "jobs") and find_spec("procrastinate") is None:
        # The peer is a requirement of the benchmark only; without it one is told how to get it.
        assert done.returncode == 1
        assert "pip install procrastinate" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    for key in PROMISED[name]:
        assert found[key] > 0, (key, found)
    assert list(own_folder.iterdir()) == []


def test_an_unknown_one_is_refused_with_the_names_there_are(own_folder: Path) -> None:
    done = run("nothing", own_folder)
    assert done.returncode == 1
    assert "drain, fanout, ingest, jobs, latency, media, pull, soak" in done.stderr


def test_only_what_lasts_as_long_as_one_likes_takes_minutes(own_folder: Path) -> None:
    command = [sys.executable, "-m", "vestnik", "bench", "fanout", "--minutes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=own_folder, check=False)
    assert done.returncode == 1
    assert "fanout ends by itself" in done.stderr
