"""A process that has torch imported and forks sandboxes on request.

Run as ``python -m pytest_fib.engine._zygote DEVICE`` with its control socket as standard input.
multiprocessing's forkserver does nearly this, but there is one of it in a process, shared with
everyone else's code, and its children import the parent's ``__main__``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from time import monotonic, sleep
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: How long a sandbox that closed its channel may take to be gone, in seconds.
GRACE = 0.5
_LIBC = ctypes.CDLL(None)


def main(device: str) -> None:
    """Serve until the control socket closes or SIGTERM comes; then take every sandbox along."""
    children: set[int] = set()
    signal.signal(signal.SIGTERM, lambda *_: _leave(children))
    die_with_parent(signal.SIGTERM)
    # What a sandbox leaves behind becomes a child of this process, and so can be found.
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _preload()
    control = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("r+b", buffering=0) as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        _serve(control, children, device)
    finally:
        _leave(children)


def _leave(children: set[int]) -> NoReturn:
    for pid in children:
        _kill(pid)
    _end_strays(set())
    os._exit(0)  # with no exception, which another signal could cut short


def _serve(control: socket.socket, children: set[int], device: str) -> None:
    control.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not message:
            return
        turn, word, *arguments = message.split()
        if word == b"start":
            pid = _start(control, descriptors, device)
            children.add(pid)
            answer = b"%d" % pid
        elif word == b"ping":
            answer = b"pong"
        else:
            pid = int(arguments[0])
            answer = b"%d %d" % _end(pid, GRACE if word == b"end" else 0.0)
            children.discard(pid)
            _end_strays(children)
        control.send(b"%s %s" % (turn, answer))


def _preload() -> None:
    import pytest_fib.engine._inside  # noqa: F401  (and torch with it)

    try:
        import triton  # noqa: F401
    except ImportError:
        return


def _start(control: socket.socket, descriptors: list[int], device: str) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_sandbox(control, descriptors, device, parent)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _become_sandbox(
    control: socket.socket, descriptors: list[int], device: str, parent: int
) -> NoReturn:
    try:
        # Its own session: a Ctrl-C at the terminal is the judge's, and whatever it starts can be
        # stopped and ended with it.
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it died before that took effect
        control.close()
        from pytest_fib.engine._inside import serve

        channel, output = descriptors
        serve(channel, output, device)
    except BaseException:  # noqa: BLE001  (KeyboardInterrupt, say; goes where prints go)
        traceback.print_exc()
    finally:
        os._exit(1)


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel signal this process when its parent ends, however that comes about."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def _end(pid: int, grace: float) -> tuple[int, int]:
    """End a sandbox; its wait status, and whether it had to be killed."""
    until = monotonic() + grace
    while monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _kill_group(pid)  # what it started
            return status, 0
        sleep(0.001)
    _kill(pid)
    return os.waitpid(pid, 0)[1], 1


def _kill(pid: int) -> None:
    _kill_group(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _end_strays(children: set[int]) -> None:
    """End what dead sandboxes left in sessions of their own, and what those leave in turn."""
    while strays := _inherited() - children:
        for pid in strays:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _inherited() -> set[int]:
    """The children of this process, where the kernel lists them."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return set()
    return {int(pid) for pid in text.split()}


if __name__ == "__main__":
    main(sys.argv[1])
