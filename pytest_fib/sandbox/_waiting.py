"""How long threads waited for a core, as the kernel counts it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def waited_ns(pid: int | None = None) -> int:
    """How long this thread, and the main one of a process, could have run and had no core.

    In nanoseconds since they began; 0 where the kernel doesn't tell. No process can write what the
    kernel counts. But it can have itself wait, by threads of its own that are on the same core.
    """
    own = _of("/proc/thread-self/schedstat")
    return own if pid is None else own + _of(f"/proc/{pid}/schedstat")


def _of(file: str) -> int:
    """The second of three numbers: the time on cores, that of waiting for one, and the turns."""
    with suppress(OSError):
        return int(Path(file).read_bytes().split()[1])
    return 0
