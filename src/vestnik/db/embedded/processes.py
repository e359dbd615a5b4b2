"""Which processes belong to a cluster, and signals that reach only those.

A process id alone proves nothing: it may have been given to somebody else since it was written down.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

_PROC = Path("/proc")


def belongs(pid: int, data: Path, cluster_name: str) -> bool:
    """Every process of a server stands in the data directory.

    Where one may not look there (root in a container, or a system without /proc), the command line decides:
    it has the directory in the first process, and the cluster's own name in all others.
    """
    try:
        return (_PROC / str(pid) / "cwd").readlink() == data
    except PermissionError:
        pass
    except OSError:
        if _PROC.is_dir():
            return False
    command = _command_line(pid)
    return command.startswith(f"postgres: {cluster_name}: ") or (
        "/bin/postgres " in command and command.endswith(f" -D {data}")
    )


def processes_of(data: Path, cluster_name: str) -> list[int]:
    """Empty also on systems without /proc; there the server's own lock has to tell."""
    if not _PROC.is_dir():
        return []
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if belongs(pid, data, cluster_name)]


def send(pid: int, number: signal.Signals, data: Path, cluster_name: str) -> None:
    """Signals the process if it is one of the cluster."""
    try:
        # Opened before the look, so that it cannot be swapped in between.
        opened = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        opened = None
    try:
        if not belongs(pid, data, cluster_name):
            return
        if opened is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(opened, number)
    except ProcessLookupError:
        pass
    finally:
        if opened is not None:
            os.close(opened)


def _command_line(pid: int) -> str:
    if not _PROC.is_dir():
        shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
        return os.fsdecode(shown.stdout).strip()
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return os.fsdecode(words.replace(b"\0", b" ")).strip()
