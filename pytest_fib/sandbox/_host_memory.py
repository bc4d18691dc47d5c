"""The host's memory: what foreign code takes of it, and the most that it may take."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Memory of its own that foreign code may take on the host, in bytes.
HOST_MEMORY = 16 << 30
_STATUS, _MEMORY = Path("/proc/self/status"), Path("/proc/meminfo")
_PEAK = Path("/proc/self/clear_refs")


def peak_bytes() -> int:
    """The most memory that this process has had so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forget_peak() -> int | None:
    """Forget the most memory so far; returns what is held now, or None where that can't be."""
    try:
        _PEAK.write_text("5", encoding="ascii")  # proc(5): "resets the peak resident set size"
        return _bytes(_STATUS, "VmRSS")
    except OSError:
        return None


def memory_to_take() -> int:
    """The most memory that foreign code may take here, in bytes.

    That is ``HOST_MEMORY``, or half of what is free on systems that say so.
    """
    try:
        return min(HOST_MEMORY, _bytes(_MEMORY, "MemAvailable") // 2)
    except OSError:
        return HOST_MEMORY


@contextmanager
def limited_memory() -> Iterator[None]:
    """Have allocations of this process fail that take more than ``memory_to_take`` at first.

    On systems that don't say what there is, nothing is limited.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        most = _bytes(_STATUS, "VmData") + memory_to_take()
    except OSError:
        yield
        return
    limits = [limit for limit in (soft, hard, most) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _bytes(file: Path, name: str) -> int:
    """A line of such a file: ``VmRSS:   1234 kB``."""
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return next(1024 * int(words[1]) for words in lines if words[0] == f"{name}:")
