"""The lock of a device: many may check on it at once, one may time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event, Lock, RLock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from pytest_fib.data import visible_line
from pytest_fib.timing import IdleDevice

if TYPE_CHECKING:
    from pytest_fib.sandbox import ProcessSandbox, SpareProcess

#: After so many seconds of waiting, and again after each, the holder is announced.
LOCK_PATIENCE, REMINDER = 3.0, 60.0
#: Seconds between attempts to hold a device exclusively while others' kernels run. Others go on
#: meanwhile: a kernel that never ends is killed by its judge after --fib-timeout.
BUSY_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: A folder that all users of a machine share. Sandboxes can't open its files: a reader could lock
#: them.
FOLDER = Path("/dev/shm")


#: Uses of a device with less than this between them, in seconds, are one.
PAUSE = 0.01


@dataclass
class DeviceUse:
    """What a process did with a device.

    ``used`` is when it had the device, with others or alone, as pairs of ``time.monotonic``, which
    is the same for all processes of a machine. It ``waited`` and was ``alone`` for so many seconds.
    """

    device: str
    used: list[list[float]] = field(default_factory=list)
    waited: float = 0.0
    alone: float = 0.0

    def add(self, start: float) -> None:
        """Note a use that ends now."""
        if self.used and start - self.used[-1][1] < PAUSE:
            self.used[-1][1] = monotonic()
        else:
            self.used.append([start, monotonic()])


class DeviceHeldError(Exception):
    """Others held the device for too long; the message says who."""


class DeviceLock:
    """A lock on one device across processes and users of a machine: shared or exclusive.

    ``flock`` rather than a lock library: the kernel releases it when its holder dies, and it can
    be shared. A second file is a turnstile: each process that wants to share passes it, one by one.
    A process that wants the device exclusively keeps it shut until it is done, so all of those come
    before the next that shares. ``timeout`` is the most seconds to wait.

    The first process that wants exclusive use waits for all that share. These give way whenever
    they have nothing on the device, and pause their sandboxes that work there. Work on the device
    is waited for; if that takes long, the lock is released meanwhile so that it can go on.
    """

    def __init__(
        self,
        device: str,
        announce: Callable[[str], None] | None = None,
        timeout: float = 600.0,
    ) -> None:
        self.name = device_name(device)
        self._announce = announce or silent
        self._announced: set[str] = set()
        self._timeout = timeout
        #: All seconds that this process has waited for others.
        self.waited = 0.0
        self._path = FOLDER / f"pytest-fib-{self.name}.lock"
        self._turnstile = FOLDER / f"pytest-fib-{self.name}.turnstile.lock"
        self._share: contextlib.ExitStack | None = None
        self._shared_since = 0.0
        self._use = DeviceUse(self.name)
        self._waited_before = 0.0
        #: Pauses in seconds, in this order, while others' kernels run.
        self._busy_pauses: tuple[float, ...] = BUSY_PAUSES
        #: The processes that work on the device, with counts; changed and paused under the mutex.
        self._working: list[ProcessSandbox] = []
        #: The processes that work on the device whenever this one shares it, and only then.
        self._background: list[SpareProcess] = []
        self._mutex = RLock()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the device with others. Raises DeviceHeldError."""
        self._take_share()
        try:
            yield
        finally:
            self._drop_share()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the device during work that does not use it; no effect outside of ``shared``."""
        shares = self.is_shared
        self._drop_share()
        try:
            yield
        finally:
            if shares:
                self._take_share()

    def give_way(self) -> None:
        """Let waiting exclusive users go first; call this with nothing on the device."""
        with self.released():
            pass

    @property
    def is_shared(self) -> bool:
        """Whether this process shares the device with others."""
        return self._share is not None

    @contextmanager
    def working(self, process: ProcessSandbox) -> Iterator[None]:
        """While a process works on the device: it is paused for exclusive users."""
        with self._mutex:
            self._working.append(process)
        try:
            yield
        finally:
            with self._mutex:  # not while it is paused
                self._working.remove(process)

    def add_background(self, process: SpareProcess) -> None:
        """Let a process run whenever this one shares the device, and only then."""
        self._background.append(process)

    def pause_if_wanted(self) -> float:
        """Pause all that works on the device while others hold it exclusively, if any wait.

        Returns the seconds that this took. Raises DeviceHeldError.
        """
        start = monotonic()
        with self._mutex:
            if self.is_shared and self._is_wanted():
                for process in self._working:
                    process.pause()
                self.give_way()
                for process in self._working:
                    process.resume()
        return monotonic() - start

    def _is_wanted(self) -> bool:
        """Whether a process waits for exclusive use, or passes the turnstile right now."""
        descriptor = _opened(self._turnstile)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def take_use(self) -> DeviceUse:
        """What this process did with the device since this was called last."""
        use, self._use = self._use, DeviceUse(self.name)
        use.waited, self._waited_before = self.waited - self._waited_before, self.waited
        return use

    def _take_share(self) -> None:
        until = monotonic() + self._timeout
        with self._holding(self._turnstile, fcntl.LOCK_EX, until), contextlib.ExitStack() as stack:
            stack.enter_context(self._holding(self._path, fcntl.LOCK_SH, until))
            self._share = stack.pop_all()
        self._shared_since = monotonic()
        for process in self._background:
            process.resume()

    def _drop_share(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            for process in self._background:
                process.pause()
            share.close()
            self._use.add(self._shared_since)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Use the device exclusively, once it is idle. Raises DeviceHeldError."""
        until = monotonic() + self._timeout
        for pause in (*self._busy_pauses, None):
            with (
                self._holding(self._turnstile, fcntl.LOCK_SH, until),
                self._holding(self._path, fcntl.LOCK_EX, until),
            ):
                is_idle = self._is_idle()
                if is_idle or pause is None:
                    # A device that is never idle is used by other programs: wait for them only
                    # once.
                    self._busy_pauses = BUSY_PAUSES if is_idle else ()
                    start = monotonic()
                    try:
                        yield
                    finally:
                        self._use.add(start)
                        self._use.alone += monotonic() - start
                    return
            self._announce(f"waiting for {self.name}: another process runs kernels")
            sleep(pause)
            self.waited += pause

    def _is_idle(self) -> bool:
        """Whether no other process' kernels run on the device now."""
        return self._idle is None or self._idle.wait()

    @cached_property
    def _idle(self) -> IdleDevice | None:
        return None if self.name == "cpu" else IdleDevice()

    @contextmanager
    def _holding(self, path: Path, mode: int, until: float) -> Iterator[None]:
        """Hold a lock."""
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(descriptor, mode, until)
        try:
            yield
        finally:
            os.close(descriptor)  # which also unlocks

    def _wait(self, descriptor: int, mode: int, until: float) -> None:
        """Wait for a lock; the file is closed if that takes too long, or is interrupted."""
        waiter = _Waiter(descriptor, mode)
        start, patience = monotonic(), LOCK_PATIENCE
        try:
            while not waiter.has_lock_within(min(patience, until - monotonic())):
                if monotonic() >= until:
                    raise DeviceHeldError(self._who_holds_for_too_long(descriptor))
                self._announce_holders(descriptor)
                patience = REMINDER
        except BaseException:  # an interrupt included
            waiter.abandon()
            raise
        finally:
            self.waited += monotonic() - start

    def _announce_holders(self, descriptor: int) -> None:
        """Say who is waited for, each process once; where that can't be known, that it is one."""
        holders = _holders(descriptor)
        new = [holder for holder in holders if holder not in self._announced]
        self._announced.update(new)
        if new or not holders:
            self._announce(f"waiting for {self.name}: {_held_by(new)}")

    def _who_holds_for_too_long(self, descriptor: int) -> str:
        holders = [f"{pid} ({_command(pid)})" for pid in _holders(descriptor)]
        waited = f"for the {self._timeout:g} s of --fib-lock-timeout"
        return f"{self.name} was {_held_by(holders)} {waited}"


class _Waiter:
    """A thread that waits for a lock, since a wait in the kernel has no deadline.

    The kernel wakes it at once; polling would leave the device idle.
    """

    def __init__(self, descriptor: int, mode: int) -> None:
        self._descriptor = descriptor
        self._mode = mode
        self._lock = Lock()
        self._has_lock = Event()
        self._abandoned = False
        Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        fcntl.flock(self._descriptor, self._mode)
        with self._lock:
            self._has_lock.set()
            if self._abandoned:
                os.close(self._descriptor)

    def has_lock_within(self, seconds: float) -> bool:
        """Wait at most so many seconds; returns whether the lock is held."""
        return self._has_lock.wait(max(0.0, seconds))

    def abandon(self) -> None:
        """Close the file, now or as soon as its lock is held."""
        with self._lock:
            self._abandoned = True
            if self._has_lock.is_set():
                os.close(self._descriptor)


def device_name(device: str) -> str:
    """``cpu``, or ``GPU-`` and the UUID of this process' CUDA device."""
    if device == "cpu":
        return "cpu"
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def _opened(path: Path) -> int:
    """Open a lock file, which any user of the machine may have created."""
    while True:
        try:
            # Without O_CREAT first: in a sticky folder the kernel refuses it for others' files.
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
                os.fchmod(descriptor, 0o666)  # whatever the umask says
                return descriptor


def _holders(descriptor: int) -> list[str]:
    """The process ids of other holders, from the kernel's list of locks."""
    inode = str(os.fstat(descriptor).st_ino)
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    pids = [
        line.split()[4]
        for line in lines
        if "->" not in line and line.split()[5].rpartition(":")[2] == inode
    ]
    return [pid for pid in pids if pid not in ("0", "-1", str(os.getpid()))]


def _held_by(holders: list[str]) -> str:
    return f"held by pid {', '.join(holders)}" if holders else "held by another process"


def _command(pid: str) -> str:
    """What a process calls itself, which may be anything."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gone"
    return visible_line(name.strip())


def silent(_: str) -> None:
    """Announce nothing."""
