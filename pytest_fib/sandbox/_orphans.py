"""Ends the orphans of a killed fork server, which this process adopts.

Only what can be told to be ours is touched: groups of processes that a fork server made, as far as
they have become children of this process. Orphans of other code, a daemon of a test say, become its
children as well meanwhile, and are left alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from time import monotonic, sleep
from typing import ClassVar

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_LIBC = ctypes.CDLL(None)


class Adoption:
    """While there is one in force, orphans of this process' descendants become its children."""

    #: How many are in force, and what the process was before: the kernel has one flag for all.
    _in_force: ClassVar[int] = 0
    _before: ClassVar[int] = 0

    def __init__(self) -> None:
        before = ctypes.c_int()
        if Adoption._in_force == 0:
            _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
            Adoption._before = before.value
            _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        Adoption._in_force += 1

    def end(self) -> None:
        """Adopt no longer, unless another adoption is in force."""
        Adoption._in_force -= 1
        if Adoption._in_force == 0:
            _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, Adoption._before)


def end_group(group: int, timeout: float) -> None:
    """Kill and reap the children of this process in a group, and whatever else is in it.

    Nothing happens where none of the group is a child of this process: its number may be another's
    by now. What can't be killed within ``timeout`` seconds is left.
    """
    until = monotonic() + timeout
    with suppress(ChildProcessError, ProcessLookupError, PermissionError):
        while monotonic() < until:
            os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(group, signal.SIGKILL)
            if os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG) is None:
                sleep(0.001)
