"""Folders for temporary files of a run: what one that was killed left, the next one removes.

Who makes such a folder holds a lock on it, which the kernel lets go with the process. So one that
somebody else can lock belongs to nobody any more. Process ids would not tell: containers that share
/tmp have the same ones.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

PREFIX = "pytest-fib-run-"
#: For how many seconds files are removed.
REMOVING = 3.0


@dataclass(frozen=True)
class TemporaryFolder:
    """A folder, and the descriptor that holds its lock."""

    path: Path
    lock: int

    @classmethod
    def make(cls, parent: str | Path | None = None) -> TemporaryFolder:
        """Make one, and remove those beside it whose makers are dead. Raises OSError."""
        new = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
        lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # Others look at this name only, which it gets once it is locked.
        path = new.rename(new.with_name(new.name.removeprefix(".")))
        remove_abandoned(path.parent)
        return cls(path, lock)

    def remove(self, seconds: float = REMOVING) -> None:
        """Remove it, with all that is in it."""
        remove_folder(self.path, seconds)
        os.close(self.lock)


def remove_abandoned(parent: str | Path) -> None:
    """Remove the folders whose makers are dead."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(PREFIX):
            continue
        with suppress(OSError):  # somebody else's, in use, or removed by now
            lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_folder(entry.path)
            finally:
                os.close(lock)


def remove_folder(top: str | Path, seconds: float = REMOVING) -> None:
    """Remove a folder of foreign code's; what can't be, or takes longer, stays.

    Folders may lie in each other deeper than a path, or recursion, can go. So those within one are
    moved to the top before it is removed.
    """
    until = monotonic() + seconds
    with suppress(OSError):
        Path(top).chmod(0o700)
        while folders := list(_without_files(top, until)):
            for folder in folders:
                for inner in list(_without_files(folder, until)):
                    Path(inner).rename(Path(top, os.urandom(8).hex()))
                Path(folder).rmdir()
        Path(top).rmdir()


def _without_files(folder: str | Path, until: float) -> Iterator[str]:
    """Remove the files in a folder, and give the folders. Raises TimeoutError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if monotonic() > until:
                raise TimeoutError
            if entry.is_dir(follow_symlinks=False):
                Path(entry.path).chmod(0o700)
                yield entry.path
            else:
                Path(entry.path).unlink()
