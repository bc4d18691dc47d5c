"""Whether what was told to stop has stopped: in the kernel, a system call may go on for seconds."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

#: Stopped, stopped by a debugger, ended.
_AT_REST = frozenset({b"T", b"t", b"Z", b"X"})
#: How long to wait before looking again, in seconds.
_PAUSE = 5e-5


def wait_until_stopped(session: int, ancestor: int, timeout: float) -> float:
    """Wait until all threads of a session have stopped: for how many seconds some have not.

    0, where none is seen to work. Raises TimeoutError after ``timeout`` seconds. Only descendants
    of ``ancestor`` are looked at, who adopts orphans. Where the kernel doesn't tell of them, none
    works.
    """
    start = monotonic()
    if not _works(ancestor, session):
        return 0.0
    while _works(ancestor, session):
        if monotonic() > start + timeout:
            raise TimeoutError
        sleep(_PAUSE)
    return monotonic() - start


def _works(pid: int, session: int) -> bool:
    """Whether a thread of the session is neither stopped nor dead, in that process or below it."""
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it ends, or there is no such file
        for task in os.scandir(f"/proc/{pid}/task"):
            state, _, _, its_session = _fields(task.path)
            if int(its_session) == session and state not in _AT_REST:
                return True
            children += map(int, Path(task.path, "children").read_bytes().split())
    return any(_works(child, session) for child in children)


def _fields(task: str) -> list[bytes]:
    """The state of a thread, its process' parent, group and session."""
    return Path(task, "stat").read_bytes().rpartition(b")")[2].split(maxsplit=4)[:4]
