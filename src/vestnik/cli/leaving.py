"""The end of a process that used the object store.

Its library keeps threads of its own, which hold on to a result for a moment after we have it. Where the interpreter is taken
apart beside them, the process now and then aborts after it has done everything (PyO3/pyo3-async-runtimes#40).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

LOST = 120  # what Python itself says when what it was to write could not be written


def leave(exit_: SystemExit) -> None:
    """All that Python does at the end, but for taking itself apart; ordinarily, where that library is not in use."""
    if "obstore" not in sys.modules:
        raise exit_
    code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    if isinstance(exit_.code, str):
        print(exit_.code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or LOST
    os._exit(code)
