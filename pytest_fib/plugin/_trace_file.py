"""The file of trace records. It is complete at the end of a run, whatever happens before."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import FileIO


class TraceFile:
    """Appends records to a file, and notices if anything else changes or replaces it.

    All records are kept in memory too. They are written again if the file was changed, and to
    another file if it can't be written. No method but ``open`` raises OSError.
    """

    def __init__(self, path: Path) -> None:
        #: The first damage to the file, and when it was noticed.
        self._tampering = ""
        #: Why records could not be written.
        self._error = ""
        #: The other file that has all records, if one could be written.
        self._elsewhere: Path | None = None
        self._path = path
        self._file: FileIO | None = None
        self._lines: list[bytes] = []
        #: How many of these lines are in the file, and how many bytes they take.
        self._written = 0
        self._size = 0

    @property
    def count(self) -> int:
        return len(self._lines)

    @property
    def records(self) -> list[str]:
        return [line.decode() for line in self._lines]

    def problems(self, name: str) -> list[str]:
        """After ``finish``: lines that say what went wrong and what to do, of a file ``name``."""
        records = "the only record" if self.count == 1 else f"all {self.count} records"
        lines = []
        if self._tampering:
            lines += [
                f"{name} was {self._tampering}.",
                "So the run fails. Check the kernels that ran until then. If it was "
                "another run, give each run its own file with --fib-traces=FILE.",
            ]
            if not self._error:
                lines.append(f"It was written again, with {records} of this run.")
        if self._error and self._lines:
            lines.append(f"{name} can't be written: {self._error}. So the run fails.")
            if self._elsewhere is not None:
                lines.append(f"Written instead, with {records} of this run: {self._elsewhere}")
            else:
                lines.append(f"No other file can be written either. Here, {records} of this run:")
                lines += [line.decode().rstrip("\n") for line in self._lines]
        return lines

    def open(self) -> None:
        """Create an empty file, and its folder. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("wb", buffering=0)

    def add(self, lines: Iterable[str], when: str) -> None:
        """Write records at once; ``when`` says in messages where they are from."""
        self._lines += [f"{line}\n".encode() for line in lines]
        self._update(when, self._damage)

    def finish(self) -> None:
        """Check the file once more; if it lacks records, write all of them elsewhere."""
        if self._file is None and not self._lines:
            return
        self._update("at the end", self._damage_to_content)
        if self._error and self._lines:
            self._save_elsewhere()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _update(self, when: str, damage: Callable[[FileIO], str]) -> None:
        """Write what the file lacks; if that fails, the next record tries again."""
        self._error = ""
        try:
            if self._file is None:
                self.open()
            assert self._file is not None
            if what := damage(self._file):
                self._tampering = self._tampering or f"{what} during this run, as was seen {when}"
                self._replace()
            self._append(self._file)
        except OSError as error:
            self._error = error.strerror or str(error)

    def _append(self, file: FileIO) -> None:
        for line in self._lines[self._written :]:
            try:
                _write(file, line)
            except OSError:
                with suppress(OSError):  # leave no half line, which no reader could parse
                    file.truncate(file.seek(self._size))
                raise
            self._written += 1
            self._size += len(line)

    def _damage(self, file: FileIO) -> str:
        """The damage to the file, as a participle; nothing for devices and pipes."""
        ours = os.fstat(file.fileno())
        if not stat.S_ISREG(ours.st_mode):
            return ""
        try:
            at_path = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return "removed"
        if not os.path.samestat(ours, at_path):
            return "replaced"
        return "changed" if at_path.st_size != self._size else ""

    def _damage_to_content(self, file: FileIO) -> str:
        """Also compare the content if the size is right."""
        if (what := self._damage(file)) or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return what
        with self._path.open("rb") as content:
            same = all(content.read(len(line)) == line for line in self._lines[: self._written])
        return "" if same else "changed"

    def _replace(self) -> None:
        """Replace whatever is at the path with a new file of all records."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        file = fresh.open("xb", buffering=0)
        content = b"".join(self._lines)
        try:
            _write(file, content)
            fresh.replace(self._path)
        except OSError:
            file.close()
            fresh.unlink(missing_ok=True)
            raise
        old, self._file = self._file, file
        self._written, self._size = len(self._lines), len(content)
        if old is not None:
            old.close()

    def _save_elsewhere(self) -> None:
        try:
            descriptor, name = tempfile.mkstemp(".jsonl", "fib-traces-")
        except OSError:
            return
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            try:
                _write(file, b"".join(self._lines))
                self._elsewhere = Path(name)
            except OSError:
                Path(name).unlink()


def _write(file: FileIO, content: bytes) -> None:
    """Write all of it: on a disk that becomes full, a write stops early without an error."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
