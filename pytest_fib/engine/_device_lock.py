"""Who may use a device: many to check, one to time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: After this many seconds of waiting, whoever waits is told for whom.
PATIENCE = 3.0
#: Where every user of a machine finds the same files, and no sandbox opens any: who may read a
#: file can lock it.
FOLDER = Path("/dev/shm")


class DeviceLock:
    """A lock on one device across processes and users of a machine: shared or exclusive.

    ``flock`` rather than a lock library: the kernel releases it when its holder dies, and it can
    be shared. A second file is the turnstile that keeps a stream of sharers from starving who
    wants to be alone: it is held while waiting, and everyone passes through it.
    """

    def __init__(self, device: str, announce: Callable[[str], None] | None = None) -> None:
        self.name = device_name(device)
        self._announce = announce or _silent
        self._path = FOLDER / f"pytest-fib-{self.name}.lock"
        self._turnstile = FOLDER / f"pytest-fib-{self.name}.turnstile.lock"

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Use the device beside others."""
        with self._holding(self._turnstile, fcntl.LOCK_SH):
            pass
        with self._holding(self._path, fcntl.LOCK_SH):
            yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Use the device alone."""
        with contextlib.ExitStack() as stack:
            with self._holding(self._turnstile, fcntl.LOCK_EX):
                stack.enter_context(self._holding(self._path, fcntl.LOCK_EX))
            yield

    @contextmanager
    def _holding(self, path: Path, mode: int) -> Iterator[None]:
        descriptor = _opened(path)
        try:
            self._wait(descriptor, mode)
            yield
        finally:
            os.close(descriptor)  # which also unlocks

    def _wait(self, descriptor: int, mode: int) -> None:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            return
        # The kernel wakes who waits at once; to try again and again would leave the device idle.
        teller = Timer(PATIENCE, self._tell, (descriptor,))
        teller.start()
        try:
            fcntl.flock(descriptor, mode)
        finally:
            teller.cancel()
            teller.join()

    def _tell(self, descriptor: int) -> None:
        self._announce(f"waiting for {self.name}: {_holders(descriptor)}")


def device_name(device: str) -> str:
    """``cpu``, or ``GPU-`` and the UUID of this process' CUDA device."""
    if device == "cpu":
        return "cpu"
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def _opened(path: Path) -> int:
    """Open a lock file that any user of the machine may have made."""
    while True:
        try:
            # Without O_CREAT first: in a sticky folder the kernel refuses it for others' files.
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
                os.fchmod(descriptor, 0o666)  # whatever the umask says
                return descriptor


def _holders(descriptor: int) -> str:
    """``held by pid 123``, from the kernel's list of locks."""
    inode = os.fstat(descriptor).st_ino
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return "held by another process"
    pids = [
        line.split()[4]
        for line in lines
        if "->" not in line and line.split()[5].endswith(f":{inode}")
    ]
    others = [pid for pid in pids if pid not in ("0", "-1", str(os.getpid()))]
    return f"held by pid {', '.join(others)}" if others else "held by another process"


def _silent(_: str) -> None:
    """Nobody to tell."""
