"""The result of a build: a file, and facts about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelResources:
    """What ptxas says one kernel takes: registers of a thread, and bytes.

    ``spills`` are stores and loads of registers that did not fit.
    """

    name: str
    registers: int = 0
    shared_bytes: int = 0
    spills: int = 0


@dataclass(frozen=True)
class Built:
    """``file`` is the artifact's name in the build's folder.

    ``headers`` are those outside the sources and the system that it was built from, and static
    libraries: each path, and the SHA-256 of what it held. ``exports`` are the functions that can be
    called, where that was looked up.
    """

    file: str
    headers: tuple[tuple[str, str], ...] = ()
    kernels: tuple[KernelResources, ...] = ()
    exports: tuple[str, ...] | None = None
