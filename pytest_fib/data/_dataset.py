"""The FlashInfer Trace layout of a dataset on disk: where what lies, and how it is written.

What FlashInfer's tools would refuse lies in the same layout under ``pytest_fib/``, where they
don't look. So do the counts of calls, one file for each process that counted.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

#: The folder of what is for pytest-fib alone.
OWN = "pytest_fib"
#: How a file begins in whose place Git LFS has put where its content is.
_LFS_POINTER = b"version https://git-lfs"


def why_lfs_pointer(beginning: bytes) -> str | None:
    """What to do about a file that begins so, where that is a pointer of Git LFS; else None."""
    is_pointer = beginning.startswith(_LFS_POINTER)
    return "is a Git LFS pointer; fetch it with: git lfs pull" if is_pointer else None


def folders(root: Path, kind: str) -> list[Path]:
    """The folders of ``definitions``, ``solutions``, ``workloads`` or ``traces`` of a dataset."""
    return [folder for folder in (root / kind, root / OWN / kind) if folder.is_dir()]


def files(root: Path, kind: str, suffix: str) -> Iterator[Path]:
    """All files of a kind, in the order of their paths."""
    for folder in folders(root, kind):
        yield from sorted(folder.rglob(f"*{suffix}"))


class Places:
    """Where records of a dataset go; names that look alike as files get a digest each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._taken: dict[Path, tuple[str, ...]] = {}

    def place(self, kind: str, names: tuple[str, ...], suffix: str, *, own: bool) -> Path:
        """The file of a record whose folders and name these are."""
        base = self._root / OWN / kind if own else self._root / kind
        path = base.joinpath(*map(file_name, names[:-1]), f"{file_name(names[-1])}{suffix}")
        if self._taken.setdefault(path, names) != names:
            digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]
            path = path.with_name(f"{path.stem}-{digest}{suffix}")
        return path


def file_name(name: str) -> str:
    """A name as part of a path: it leads nowhere else."""
    return re.sub(r"^\.+", "_", re.sub(r"[^\w.\-]", "_", name)) or "_"


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file that is there in whole or not at all, in folders made for it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with new.open("xb") as file:
            file.writelines(parts)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def write_counts(root: Path, writer: str, counts: dict[str, dict[str, int]]) -> None:
    """Write how often each workload of each definition was called, as one process counted."""
    text = json.dumps(counts, separators=(",", ":"))
    write_whole(root / OWN / "counts" / f"{file_name(writer)}.json", [text.encode()])
