"""What of pytest-fib, and of what it needs, has to travel to a machine that lacks it."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distribution, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: What tests run with, not kernels; and what must be there.
_NOT_SENT = frozenset({"pytest", "pytest-xdist", "torch", "triton"})
_OLDEST_PYTHON = (3, 11)


class RemoteError(Exception):
    """A remote machine can't be used, or not any longer; the message is a line that says why."""


@dataclass(frozen=True)
class Archive:
    """Files, with a name that changes with their content; ``content`` makes a zip of them."""

    name: str
    content: Callable[[], bytes]


@dataclass(frozen=True)
class RemotePython:
    """The facts about the far end's Python, from `_relay`."""

    facts: Mapping[str, Any]

    @cached_property
    def _installed(self) -> dict[str, str]:
        return {canonicalize_name(n): v for n, v in self.facts["installed"].items() if n}

    def check(self) -> None:
        """Raise RemoteError where nothing can be done about what lacks."""
        executable, python = self.facts["executable"], self.facts["python"]
        if tuple(self.facts["version"]) < _OLDEST_PYTHON:
            oldest = ".".join(map(str, _OLDEST_PYTHON))
            raise RemoteError(f"{executable} is Python {python}; pytest-fib needs {oldest}")
        torch = next(each for each in _requirements("pytest-fib") if each.name == "torch")
        version = self._installed.get("torch")
        if version is None:
            raise RemoteError(f"torch is not installed for {executable} (Python {python})")
        if not torch.specifier.contains(version, prereleases=True):
            raise RemoteError(f"torch {version} is installed; pytest-fib needs {torch}")

    def archives(self) -> list[Archive]:
        """Ours, and before it in ``sys.path`` what is lacking of what we need."""
        lacking = sorted(self._lacking())
        if not lacking:
            return [_package()]
        words = [*lacking, *map(str, self.facts["tag"])]
        name = hashlib.sha256("\n".join(words).encode()).hexdigest()
        return [_package(), Archive(name, lambda: self._wheels(lacking))]

    def _lacking(self) -> set[str]:
        """The installed ones of these requirements, as ``name==version``."""
        lacking: set[str] = set()
        unmet = [each for each in _requirements("pytest-fib") if not self._meets(each)]
        while unmet:
            name = unmet.pop().name
            pinned = f"{name}=={distribution(name).version}"
            if name not in _NOT_SENT and pinned not in lacking:
                lacking.add(pinned)
                unmet += _requirements(name)  # all of them: versions go together
        return lacking

    def _meets(self, requirement: Requirement) -> bool:
        version = self._installed.get(canonicalize_name(requirement.name))
        return version is not None and requirement.specifier.contains(version, prereleases=True)

    def _wheels(self, pinned: list[str]) -> bytes:
        """A zip of distributions: this machine's where Pythons are alike, else from an index."""
        if self.facts["tag"] == [sys.implementation.cache_tag, sysconfig.get_platform()]:
            return _zipped(file for each in pinned for file in _files_of(each.partition("==")[0]))
        with tempfile.TemporaryDirectory() as folder:
            self._install(pinned, folder)
            return _zipped(_files_below(Path(folder)))

    def _install(self, pinned: list[str], folder: str) -> None:
        """By pip, for the remote Python. Raises RemoteError."""
        machine = self.facts["tag"][1].rpartition("-")[2]
        minor = int((self.facts["libc"][1] or "2.17").partition(".")[2])
        platforms = [f"--platform=manylinux_2_{n}_{machine}" for n in range(17, minor + 1)]
        python = ".".join(map(str, self.facts["version"]))
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
        command += ["--only-binary=:all:", f"--python-version={python}", "--target", folder]
        command += [*platforms, f"--platform=manylinux2014_{machine}", *pinned]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            said = (ran.stderr.strip().splitlines() or ["it failed"])[-1]
            names = " ".join(f"'{each}'" for each in pinned)
            raise RemoteError(
                f"Python {python} there lacks what this machine has for another Python, and pip "
                f"says: {said}; install it there: {self.facts['executable']} -m pip install {names}"
            )


def _requirements(name: str) -> list[Requirement]:
    """The requirements of a distribution on this machine, without extras."""
    requirements = map(Requirement, requires(name) or ())
    no_extra = {"extra": ""}
    return [each for each in requirements if each.marker is None or each.marker.evaluate(no_extra)]


def _package() -> Archive:
    """pytest-fib as it is here, changed or not."""
    root = Path(__file__).parents[1]
    return _archive([(f"pytest_fib/{name}", path) for name, path in _files_below(root)])


def archive_of(folder: Path) -> Archive:
    """All files of a folder. Raises OSError."""
    return _archive(_files_below(folder))


def _archive(files: list[tuple[str, Path]]) -> Archive:
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(b"%s\0%s\0" % (name.encode(), hashlib.sha256(path.read_bytes()).digest()))
    return Archive(digest.hexdigest(), lambda: _zipped(files))


def _files_below(root: Path) -> list[tuple[str, Path]]:
    """Names relative to a folder, and where they are; no bytecode."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [
        (str(path.relative_to(root)), path) for path in paths if "__pycache__" not in path.parts
    ]


def _files_of(name: str) -> Iterator[tuple[str, Path]]:
    """The files of an installed distribution, but for scripts outside its folder."""
    for file in distribution(name).files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield str(file), Path(str(file.locate()))


def _zipped(files: Any) -> bytes:
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED
    # Reproducible images date files to 1970, before a zip's time begins.
    with zipfile.ZipFile(buffer, "w", kind, compresslevel=1, strict_timestamps=False) as archive:
        for name, path in files:
            archive.write(path, name)
    return buffer.getvalue()
