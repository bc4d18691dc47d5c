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
from time import monotonic, sleep
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
#: How long a sandbox that closed its channel may take to be gone, in seconds.
GRACE = 0.5
_LIBC = ctypes.CDLL(None)


def main(device: str) -> None:
    """Serve until the control socket closes; then take every sandbox along."""
    _preload()
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    children: set[int] = set()
    control.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not message:
            break
        word, _, argument = message.partition(b" ")
        if word == b"start":
            children.add(_start(control, descriptors, device))
        elif word == b"ping":
            control.send(b"pong")
        else:
            pid = int(argument)
            control.send(b"%d %d" % _end(pid, GRACE if word == b"end" else 0.0))
            children.discard(pid)
    for pid in children:
        _kill(pid)


def _preload() -> None:
    import torch  # noqa: F401

    import pytest_fib.engine._inside

    try:
        import triton  # noqa: F401
    except ImportError:
        return


def _start(control: socket.socket, descriptors: list[int], device: str) -> int:
    pid = os.fork()
    if pid == 0:
        _become_sandbox(control, descriptors, device)
    for descriptor in descriptors:
        os.close(descriptor)
    control.send(b"%d" % pid)
    return pid


def _become_sandbox(control: socket.socket, descriptors: list[int], device: str) -> NoReturn:
    try:
        # Its own session: a Ctrl-C at the terminal is the judge's, and whatever it starts can be
        # ended with it.
        os.setsid()
        die_with_parent()
        control.close()
        from pytest_fib.engine._inside import serve

        channel, output = descriptors
        serve(channel, output, device)
    finally:
        os._exit(1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that comes about."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(pid: int, grace: float) -> tuple[int, int]:
    """End a sandbox; its wait status, and whether it had to be killed."""
    until = monotonic() + grace
    while monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _kill(pid)  # what it started
            return status, 0
        sleep(0.001)
    _kill(pid)
    return os.waitpid(pid, 0)[1], 1


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    die_with_parent()
    main(sys.argv[1])
    os._exit(0)  # tearing torch down takes a while and frees nothing that the kernel does not
