"""Sets a timer that fires once the reference is timed, for which the kernel tells thousands."""

import ctypes
import os
import select
import struct

from pytest_fib import implements
from pytest_fib.sandbox import Blocks
from pytest_fib.sandbox._runner import Runner

LIBC = ctypes.CDLL(None, use_errno=True)
WATCHERS, FILES, LATER_NS = 100, 500, 3_000_000
TIMER = []
answer = Runner._answer


def watched_timer():
    """A timer that many instances of epoll watch, each through many descriptors."""
    timer = LIBC.timerfd_create(1, 0)
    if timer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    copies = [os.dup(timer) for _ in range(FILES)]
    watchers = [select.epoll() for _ in range(WATCHERS)]
    for watcher in watchers:
        for copy in copies:
            watcher.register(copy, select.EPOLLIN | select.EPOLLET)
    return timer, watchers


def answering(self, request, *rest):
    reply = answer(self, request, *rest)
    if TIMER and isinstance(request, Blocks):
        times = struct.pack("qqqq", 0, 0, 0, LATER_NS)
        LIBC.timerfd_settime(TIMER[0][0], 0, times, None)
    return reply


Runner._answer = answering


@implements("scale_float32")
def run(x, factor):
    if not TIMER:
        TIMER.append(watched_timer())
    return x * factor
