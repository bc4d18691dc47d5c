"""The process that starts sandboxes: it has torch imported, and forks one on request.

Run as ``python -m pytest_fib.sandbox._fork_server DEVICE``, its control socket as standard input.
multiprocessing's forkserver does nearly this, but a process has only one, which it shares with all
other code, and its children import the parent's ``__main__``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: How long a sandbox that closed its channel may take to be gone, in seconds.
GRACE = 0.5
_LIBC = ctypes.CDLL(None)


def main(device: str) -> None:
    """Serve until the control socket closes or SIGTERM comes; then end every sandbox."""
    children: set[int] = set()
    signal.signal(signal.SIGTERM, lambda *_: _leave(children))
    die_with_parent(signal.SIGTERM)
    # Orphans of a sandbox become children of this process, and so can be found.
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _preload()
    control = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as empty:
        os.dup2(empty.fileno(), 0)
    try:
        _serve(control, children, device)
    finally:
        _leave(children)


def _leave(children: set[int]) -> NoReturn:
    for pid in children:
        _kill(pid)
    _end_orphans(set())
    os._exit(0)  # with no exception, which another signal could cut short


def _serve(control: socket.socket, children: set[int], device: str) -> None:
    control.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not message:
            return
        number, word, *arguments = message.split()
        if word == b"start":
            pid = _start(control, descriptors, device)
            children.add(pid)
            reply = b"%d" % pid
        elif word == b"ping":
            reply = b"pong"
        else:
            pid = int(arguments[0])
            reply = b"%d %d" % _end(pid, GRACE if word == b"end" else 0.0)
            children.discard(pid)
            _end_orphans(children)
        control.send(b"%s %s" % (number, reply))


def _preload() -> None:
    import pytest_fib.sandbox._worker  # noqa: F401  (and torch with it)

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
        # A session of its own: Ctrl-C at the terminal goes to the judge alone, and what the sandbox
        # starts can be stopped and ended with it.
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before that took effect
        control.close()
        from pytest_fib.sandbox._worker import serve

        channel, output = descriptors
        serve(channel, output, device)
    except BaseException:  # noqa: BLE001  (KeyboardInterrupt, say; goes where prints go)
        traceback.print_exc()
    finally:
        os._exit(1)


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel signal this process when its parent ends."""
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
    with suppress(ProcessLookupError):  # it may have no group yet
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _end_orphans(children: set[int]) -> None:
    """End what dead sandboxes left in sessions of their own, and what those leave in turn."""
    while orphans := _all_children() - children:
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _all_children() -> set[int]:
    """The children of this process, where the kernel lists them."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return set()
    return {int(pid) for pid in text.split()}


if __name__ == "__main__":
    main(sys.argv[1])
