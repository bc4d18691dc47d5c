"""The cache of artifacts, by all that decides them: contents and versions, not folder names.

An entry is one file: a digest, the facts as JSON, the artifact. It is replaced as a whole, and one
whose digest is wrong counts as missing, which that of another key's entry is. Sandboxes can't write
here: what they built comes to the judge through a file in memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, TypeVar

from pytest_fib.build._artifact import Built, KernelResources
from pytest_fib.build._builders import versions

if TYPE_CHECKING:
    from pytest_fib.build._program import Program

#: Changes when the commands that build, or the files here, become others.
FORMAT = 5
#: Bytes that all entries and compilers' caches may take; the ones not used for longest go.
SIZE_LIMIT = 4 << 30
#: Seconds since a program was loaded in which the folder that its compiler keeps stays.
COMPILER_CACHE_IN_USE = 3600.0
#: The most files of a compiler's folder that are counted.
MOST_FILES = 100_000
#: Seconds until whoever waits for another's build says so.
BUILD_PATIENCE = 3.0

#: Names of what is kept: entries, also half-written, and folders of compilers and of counts.
_OWN = re.compile(r"\.?[0-9a-f]{64}\.(artifact|lock)(\.\w+)?|triton|tilelang|counts")
#: What a build returns in place of an artifact.
NotBuilt = TypeVar("NotBuilt")


@dataclass(frozen=True)
class Artifact:
    """A file that a program was built to, in memory, and the facts of its build."""

    content: bytes
    built: Built


class ArtifactCache:
    """Artifacts on disk, for all processes of this user; without a folder, none are kept.

    ``announce`` is told of long waits.
    """

    def __init__(
        self,
        folder: Path | None,
        announce: Callable[[str], None] | None = None,
        size_limit: int = SIZE_LIMIT,
    ) -> None:
        self.folder = folder
        self._announce = announce
        self._size_limit = size_limit

    @staticmethod
    def key(program: Program, subject: str = "") -> str:
        """The digest of all that an artifact depends on. Raises BuildError if a tool is missing.

        ``subject`` says what it is called with, where that decides.
        """
        facts = {**program_facts(program), "versions": versions(program), "subject": subject}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def find(self, key: str) -> Artifact | None:
        """The artifact, if it is complete and its headers have not changed."""
        if self.folder is None:
            return None
        path = self._path(self.folder, key)
        try:
            entry = path.read_bytes()
        except OSError:
            return None
        artifact = _artifact(key, entry)
        if artifact is None:
            return None
        if not _are_unchanged(artifact.built.headers):
            return None
        with suppress(OSError):
            os.utime(path)  # used now
        return artifact

    def add(self, key: str, artifact: Artifact) -> None:
        """Keep what was built. Where it can't be written, it is built again next time."""
        if self.folder is None:
            return
        from pytest_fib.data import write_whole

        with suppress(OSError):
            write_whole(self._path(self.folder, key), [_entry(key, artifact)])
            self._shrink(self.folder)

    def get(
        self, key: str, what: str, timeout: float, build: Callable[[], Artifact | NotBuilt]
    ) -> Artifact | NotBuilt:
        """The cached artifact, or a new one, which one process builds; failures are not kept."""
        if artifact := self.find(key):
            return artifact
        with self._lock(key, what, timeout):
            if artifact := self.find(key):  # another process was faster
                return artifact
            result = build()
            if isinstance(result, Artifact):
                self.add(key, result)
        return result

    @contextmanager
    def _lock(self, key: str, what: str, timeout: float) -> Iterator[None]:
        """Hold the lock of a build; go on without it after ``timeout`` seconds.

        Adding is atomic, so all that a lock saves is work.
        """
        file = self._lock_file(key)
        if file is None:
            yield
            return
        try:
            self._wait(file, what, timeout)
            yield
        finally:
            os.close(file)  # which also unlocks

    def _lock_file(self, key: str) -> int | None:
        if self.folder is None:
            return None
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(
                self.folder / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        return None

    def _wait(self, file: int, what: str, timeout: float) -> None:
        from pytest_fib.data import has_lock_within

        patience = min(BUILD_PATIENCE, timeout)
        if not has_lock_within(patience, file):
            if self._announce and timeout > patience:
                self._announce(f"waiting for another process that builds {what}")
            has_lock_within(timeout - patience, file)

    def clear(self) -> None:
        """Remove the folder. Raises ValueError where it holds what no run of ours puts there."""
        if self.folder is None or not self.folder.is_dir():
            return
        others = sorted(p.name for p in self.folder.iterdir() if not _OWN.fullmatch(p.name))
        if others:
            raise ValueError(f"{self.folder} is not removed: {others[0]!r} in it is not a build")
        _remove(self.folder)

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / f"{key}.artifact"

    def _shrink(self, folder: Path) -> None:
        entries = [*_artifacts(folder), *_compiler_caches(folder)]
        total = sum(size for _, size, _ in entries)
        for used, size, path in sorted(entries):
            if total <= self._size_limit:
                return
            is_folder = path.is_dir() and not path.is_symlink()
            if is_folder and time() - used < COMPILER_CACHE_IN_USE:
                continue  # a process may have a compiler write there
            _remove(path)
            total -= size


def _artifacts(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """When each entry was last used, its bytes, and its path."""
    for path in folder.glob("*.artifact"):
        status = path.stat()
        yield status.st_mtime, status.st_size, path


def _compiler_caches(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """The same of what compilers keep of each program. Raises OSError where one is removed now.

    Sandboxes write there, so anything may be: links, times to come, folders deep in each other.
    """
    from pytest_fib.data import SupportedLanguages

    for language in SupportedLanguages:
        if language.facts.cache and (folder / language).is_dir():
            for entry in os.scandir(folder / language):
                used = entry.stat(follow_symlinks=False).st_mtime
                yield used if used <= time() else 0.0, _bytes_in(entry), Path(entry.path)


def _bytes_in(top: os.DirEntry[str]) -> int:
    """The bytes on disk of a file, or of a folder; what can't be looked into counts as empty.

    Of a folder with more than ``MOST_FILES``, more than any limit.
    """
    size, files, unread = 0, 0, [top]
    while unread:
        entry = unread.pop()
        with suppress(OSError):  # deeper than paths go, or closed
            if entry.is_dir(follow_symlinks=False):
                with os.scandir(entry.path) as entries:
                    unread += islice(entries, MOST_FILES)
            else:
                status = entry.stat(follow_symlinks=False)
                size += min(status.st_size, 512 * status.st_blocks)  # files may have holes
        files += 1
        if files + len(unread) > MOST_FILES:
            return SIZE_LIMIT
    return size


def _remove(path: Path) -> None:
    """Remove a file or a folder; what can't be stays.

    Links are not followed, also if somebody puts one in the place of a folder meanwhile.
    """
    with suppress(OSError, RecursionError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def program_facts(program: Program) -> dict[str, object]:
    """The facts of a program that its artifact depends on, without those of the compiler."""
    assert program.compilation is not None, "only compiled programs are kept"
    from pytest_fib.data import SupportedLanguages

    of_all_sources = SupportedLanguages(program.language).facts.compiled == "sources"
    return {
        "format": FORMAT,
        "language": program.language,
        "entry": "" if of_all_sources else program.entry_symbol,
        "calling": program.calling,
        "sources": sorted(program.sources),
        "compilation": asdict(program.compilation),
    }


def default_builds_directory() -> Path | None:
    """Where what is built is kept unless another folder is given; None without a home."""
    from pytest_fib.data import cache_directory

    with suppress(FileNotFoundError):
        return cache_directory() / "builds"
    return None


def _entry(key: str, artifact: Artifact) -> bytes:
    """The bytes of an entry's file."""
    rest = json.dumps(asdict(artifact.built)).encode() + b"\n" + artifact.content
    return _entry_digest(key, rest) + b"\n" + rest


def _artifact(key: str, entry: bytes) -> Artifact | None:
    """The artifact in a file's bytes, if they are complete and of this key."""
    digest, _, rest = entry.partition(b"\n")
    if _entry_digest(key, rest) != digest:
        return None
    facts, _, content = rest.partition(b"\n")
    return Artifact(content, _built(json.loads(facts)))


def _entry_digest(key: str, rest: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + rest).hexdigest().encode()


def _built(facts: dict[str, object]) -> Built:
    kernels = tuple(KernelResources(**each) for each in facts.pop("kernels"))  # type: ignore[attr-defined]
    headers = tuple((path, digest) for path, digest in facts.pop("headers"))  # type: ignore[attr-defined]
    names: list[str] | None = facts.pop("exports")  # type: ignore[assignment]
    exports = None if names is None else tuple(names)
    return Built(**facts, headers=headers, kernels=kernels, exports=exports)  # type: ignore[arg-type]


def _are_unchanged(headers: Iterable[tuple[str, str]]) -> bool:
    """Whether files still have their digests.

    A sandbox said which: nothing is waited for, and no more is read than the cache may hold.
    """
    left = SIZE_LIMIT
    for path, was in headers:
        try:
            size, digest = _digest_of(path, left)
        except (OSError, ValueError):  # the latter of a name with a null character
            return False
        if digest != was:
            return False
        left -= size
    return True


def _digest_of(path: str, most: int) -> tuple[int, str]:
    """The bytes and the digest of a regular file. Raises OSError and ValueError.

    Files of /proc are regular, have no size, and may never end.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        digest, left = hashlib.sha256(), status.st_size
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
        return status.st_size, digest.hexdigest()
