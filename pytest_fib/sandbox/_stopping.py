"""Whether a stopped process has really stopped: a system call may go on for seconds."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

#: Stopped, stopped by a debugger; or ended.
_STOPPED = frozenset({b"T", b"t"})
_AT_REST = _STOPPED | {b"Z", b"X"}
#: How long to wait before looking again, in seconds.
_PAUSE = 5e-5


def has_stopped(pid: int) -> bool:
    """Whether a process is stopped. Raises ProcessLookupError if there is none."""
    try:
        return _fields(f"/proc/{pid}")[0] in _STOPPED
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error


def wait_until_stopped(session: int, timeout: float) -> float:
    """Wait until all threads of a session have stopped; returns the seconds that this took.

    The time of looking at the threads is included. So a program that has many of them, to make that
    take long, gains nothing by it. Where the kernel doesn't list children, they count as stopped.
    Raises TimeoutError after ``timeout`` seconds.
    """
    start = monotonic()
    while _works(session):
        if monotonic() > start + timeout:
            raise TimeoutError
        sleep(_PAUSE)
    return monotonic() - start


def _works(session: int) -> bool:
    """Whether a thread of the session is neither stopped nor dead.

    All of its processes descend from its leader, or from who adopted them when their parent ended:
    the leader's parent. Sessions of others there are not looked into.
    """
    try:
        adopter = int(_fields(f"/proc/{session}")[1])
    except (FileNotFoundError, ProcessLookupError):
        return False
    processes = [adopter]
    while processes:
        pid = processes.pop()
        with suppress(FileNotFoundError, ProcessLookupError):  # it ends, or there is no such file
            for task in os.scandir(f"/proc/{pid}/task"):
                state, _, _, its_session = _fields(task.path)
                is_member = int(its_session) == session
                if is_member and state not in _AT_REST:
                    return True
                if is_member or pid == adopter:
                    processes += map(int, Path(task.path, "children").read_bytes().split())
    return False


def _fields(task: str) -> list[bytes]:
    """The state of a thread, its process' parent, group and session."""
    return Path(task, "stat").read_bytes().rpartition(b")")[2].split(maxsplit=4)[:4]
