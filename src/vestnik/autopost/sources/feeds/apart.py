"""Work on a stranger's document, bounded: whoever writes the document chooses what it costs to read.

feedparser, and the cleaning of HTML after it, have inputs that take hours for a few megabytes, and nobody knows all of
them. A thread cannot be ended, and shares its pool with the object store. So what is large is read in a process of its
own, with limits of time and memory. A new one each time costs a third of a second, but keeps the bad document of one
from holding up the others; and most answers are that nothing has changed. Only what is so small that even the worst
inputs that we know (a single long name of an author takes time to the third power) are soon over stays in a thread.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from vestnik.autopost.sources.contract import SourceFailed

SMALL: Final = 8 * 1024
PATIENCE = 120.0  # an honest feed of 20 MB takes a quarter of it
MEMORY = 2 << 30
_OUT_OF_MEMORY: Final = 9
_ANSWER: Final = f"from {__name__} import answer; answer()"
T = TypeVar("T")


async def bounded(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """What ``work``, a function of a module, makes of a document of this size; SourceFailed when that takes too much."""
    if size <= SMALL:
        return await asyncio.to_thread(work, *arguments)
    found: T | SourceFailed = pickle.loads(await _asked(pickle.dumps((work, arguments))))
    if isinstance(found, SourceFailed):
        raise found
    return found


async def _asked(question: bytes) -> bytes:
    # Nothing that the document could lead it to do needs our secrets, or our terminal's signals.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VESTNIK_")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", _ANSWER, str(int(PATIENCE) + 1), str(MEMORY),
        stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            answer, complaint = await process.communicate(question)
    except TimeoutError:
        raise _too_costly() from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == _OUT_OF_MEMORY or (process.returncode or 0) < 0:
        raise _too_costly()
    if process.returncode:
        raise RuntimeError((complaint.decode(errors="replace").strip().splitlines() or ["it ended without a word"])[-1])
    return answer


def answer() -> None:
    """The process: a question from stdin, its answer to stdout."""
    os.nice(10)  # posts go out first
    # Also when nobody is left to end it. Not every system can limit the memory of a process.
    for limit, most in zip((resource.RLIMIT_CPU, resource.RLIMIT_AS), sys.argv[1:], strict=True):
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (int(most), int(most)))
    try:
        work, arguments = pickle.load(sys.stdin.buffer)
        try:
            found = work(*arguments)
        except SourceFailed as e:
            found = e
        pickle.dump(found, sys.stdout.buffer)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)


def _too_costly() -> SourceFailed:
    message = f"the answer takes more than {PATIENCE:g} s or {MEMORY >> 20} MB of memory to read"
    return SourceFailed("too_costly", message, permanent=False)
