"""Artifacts that were built ahead of time on a machine with compilers, to load on others.

A folder with a manifest and the artifacts that it names. They are found by sources, flags and
target; the compilers' versions are in the manifest for people, since where it is used there may be
none to compare with.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fib.build._artifact import Built, KernelResources
from pytest_fib.build._cache import FORMAT, Artifact, program_facts
from pytest_fib.build._runtime import RUNTIME, RUNTIME_VARIABLE, runtime_library

if TYPE_CHECKING:
    from pytest_fib.build._program import Program

MANIFEST = "manifest.json"
#: The environment's word for the folder that is used where no other is given.
PREBUILT_VARIABLE = "FIB_PREBUILT_PATH"


@dataclass(frozen=True)
class PrebuiltEntry:
    """What came of building one implementation of a definition for one target.

    ``status``, ``message`` and ``log`` are as in a BuildResult. ``file`` is the artifact's name in
    the folder, ``digest`` its SHA-256, and ``key`` says what it was built from; without an artifact
    they are empty. ``versions`` are those of the compilers.
    """

    definition: str
    implementation: str
    language: str
    target: str
    status: str
    message: str = ""
    file: str = ""
    digest: str = ""
    key: str = ""
    kernels: tuple[KernelResources, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    log: str = ""


class Prebuilt:
    """The artifacts of a folder that ``python -m pytest_fib build`` wrote."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest. Raises OSError, or ValueError where it is not one."""
        self.folder = folder
        if not (folder / MANIFEST).exists():
            what = f"python -m pytest_fib build --out {folder} writes it"
            raise FileNotFoundError(f"there is no {folder / MANIFEST}: {what}")
        text = (folder / MANIFEST).read_text(encoding="utf-8")
        try:
            manifest = json.loads(text)
            entries = [_entry(fields) for fields in manifest["builds"] if fields["file"]]
            self._entries = {entry.key: entry for entry in entries}
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(
                f"{folder / MANIFEST} is not a manifest of builds: {error!r}"
            ) from None
        if manifest.get("format") != FORMAT:
            raise ValueError(f"{folder / MANIFEST} is of another version of pytest-fib: build anew")

    @classmethod
    def from_environment(cls) -> Prebuilt | None:
        """The folder that the environment names, if any. Raises as the constructor does."""
        folder = os.environ.get(PREBUILT_VARIABLE)
        return cls(Path(folder)) if folder else None

    def has(self, program: Program) -> bool:
        return program.compilation is not None and self.key(program) in self._entries

    def find(self, program: Program) -> Artifact | None:
        """What this program was built to, if the file is there and whole."""
        entry = self._entries.get(self.key(program))
        if entry is None:
            return None
        with suppress(OSError):
            content = (self.folder / entry.file).read_bytes()
            if hashlib.sha256(content).hexdigest() == entry.digest:
                return Artifact(content, Built(entry.file, kernels=entry.kernels))
        return None

    def expose_runtime(self) -> None:
        """Name the libraries that artifacts need to processes that are started from here."""
        path = (self.folder / RUNTIME).absolute()
        if path.exists():
            os.environ.setdefault(RUNTIME_VARIABLE, str(path))

    @staticmethod
    def key(program: Program) -> str:
        """The digest of what a program is built from."""
        facts = json.dumps(program_facts(program), sort_keys=True)
        return hashlib.sha256(facts.encode()).hexdigest()


def write_artifact(folder: Path, name: str, artifact: Artifact) -> str:
    """Add an artifact to the folder; its SHA-256."""
    from pytest_fib.data import write_whole

    write_whole(folder / name, [artifact.content])
    return hashlib.sha256(artifact.content).hexdigest()


def write_manifest(folder: Path, entries: Iterable[PrebuiltEntry]) -> None:
    """Name everything that the folder has, and add the libraries that it needs."""
    from pytest_fib.data import write_whole

    listed = [asdict(entry) for entry in entries]
    text = json.dumps({"format": FORMAT, "builds": listed}, indent=1)
    write_whole(folder / MANIFEST, [text.encode()])
    library = runtime_library()
    if library is not None and any(each["language"] == "cutedsl" for each in listed):
        shutil.copyfile(library, folder / RUNTIME)


def _entry(fields: dict[str, Any]) -> PrebuiltEntry:
    kernels = tuple(KernelResources(**each) for each in fields.pop("kernels"))
    return PrebuiltEntry(**fields, kernels=kernels)
