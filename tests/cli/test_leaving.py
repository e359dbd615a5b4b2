"""A process that used the object store ends with its own exit code and all its words, and does not take itself apart beside
that library's threads: that made one in ten end with an abort."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = r"""
import atexit, os, sys
import obstore
from vestnik.cli import main

class Torn:
    write = staticmethod(os.write)

    def __del__(self):
        self.write(1, b"taken apart\n")

torn = Torn()
atexit.register(print, "the last words")
sys.argv = ["vestnik", *sys.argv[1:]]
main()
"""


def ended(*arguments: str) -> tuple[int, str]:
    program = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(("command", "code"), [("--help", 0), ("no-such-command", 2), ("\udcff", 1)])
def test_beside_the_store_it_leaves_without_being_taken_apart(command: str, code: int) -> None:
    returned, said = ended(command)
    assert returned == code
    assert said.endswith("the last words\n")
    assert ("Usage" in said) == (code == 0), "what was written before has arrived"
