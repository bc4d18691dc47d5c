"""One process at a time, with a deadline."""

from __future__ import annotations

import fcntl
from time import monotonic, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import HasFileno

#: Seconds between two looks: the kernel's own wait has no deadline.
LOOK_INTERVAL = 0.02


def has_lock_within(seconds: float, file: HasFileno | int) -> bool:
    """Lock an open file against other processes until it is closed; False where others keep it."""
    until = monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                return False
            sleep(LOOK_INTERVAL)
        else:
            return True
