"""The demo's acts, over real HTTP, on a database that it makes itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vestnik.demo.acts import ACTS
from vestnik.demo.screen import LONGEST_NOTE

# Acts of our own in the place of the eight.
OTHER_ACTS = """
import asyncio, sys
from vestnik import cli
from vestnik.cli import demo
from vestnik.demo import play
from vestnik.demo.acts import Act
from vestnik.demo.acts.looking import expect

async def passes(stage, say):
    await stage.push("Hello", tags=["all"])
    return "seen"

async def fails(stage, say):
    expect(False, "the readers see [nothing]")

async def breaks(stage, say):
    await stage.sql("select 1 / 0")

async def hangs(stage, say):
    await asyncio.sleep(3600)

demo.ACTS = play.ACTS = tuple(Act(name, globals()[name]) for name in ACTS)
sys.argv = ["vestnik", "demo", "--check"]
cli.main()
"""


@contextmanager
def start(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VESTNIK_") and name != "HOME"}
    # The demo has nothing to do with the real one, whatever its settings are.
    real = {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "OBJECT_STORE_URL": "file:///nowhere",
        "HTTP_PORT": "1",
    }
    real |= {"TELEGRAM_API_URL": "http://127.0.0.1:1", "HTTP_TIMEOUT": "0.001", "DATA_DIR": str(folder)}
    environment = kept | {f"VESTNIK_{name}": value for name, value in real.items()}
    environment |= {"LC_ALL": "C", "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, *command], stdout=pipe, stderr=pipe, encoding="utf-8", cwd=folder, env=environment,
        # A shell's background job ignores Ctrl-C, and so would everything that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()  # after a failed test; the others have ended by now


def with_acts(*names: str) -> str:
    return OTHER_ACTS.replace("in ACTS", f"in {names!r}")


def test_the_demo_passes_and_says_what_it_showed(own_folder: Path) -> None:
    with start(own_folder, "-m", "vestnik", "demo", "--check") as demo:
        out, error = demo.communicate(timeout=180)
    assert (demo.returncode, error) == (0, ""), out
    shown = [line.split(": ", 2) for line in out.splitlines()]
    assert [line[:2] for line in shown] == [["passed", act.title] for act in ACTS]
    assert max(len(note) for *_, note in shown) <= LONGEST_NOTE


def test_an_act_that_fails_is_told_and_the_others_are_played(own_folder: Path) -> None:
    with start(own_folder, "-c", with_acts("fails", "breaks", "passes")) as demo:
        out, error = demo.communicate(timeout=180)
    assert (demo.returncode, error) == (1, "")
    assert out.splitlines() == [
        "failed: fails: the readers see [nothing]",
        "failed: breaks: DivisionByZero: division by zero",
        "passed: passes: seen",
    ]


def test_a_demo_runs_alone_and_an_interrupted_one_leaves_no_server_behind(own_folder: Path) -> None:
    with start(own_folder, "-c", with_acts("passes", "hangs")) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline() == "passed: passes: seen\n"
        (pid_file,) = own_folder.glob("demo/**/postmaster.pid")
        with start(own_folder, "-m", "vestnik", "demo", "--check") as second:
            out, error = second.communicate(timeout=60)
        assert (second.returncode, out) == (1, "")
        assert "a demo runs in" in error
        demo.send_signal(signal.SIGINT)
        out, error = demo.communicate(timeout=60)
    assert (demo.returncode, out, error) == (130, "", "")
    assert not pid_file.exists()
