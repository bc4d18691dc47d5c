"""The first thing that a judge needs, and what takes the longest to be there.

Importing this imports no torch: the process that sandboxes come from does that at the same time as
the judge.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_fib.build import Prebuilt, default_builds_directory
from pytest_fib.sandbox import ForkServer, environment_for

if TYPE_CHECKING:
    from pathlib import Path

Isolation: TypeAlias = Literal["process", "container", "none"]


def start_fork_server(
    device: str = "cpu",
    isolation: Isolation = "process",
    *,
    builds: Path | None = None,
    prebuilt: Path | None = None,
) -> ForkServer | None:
    """What sandboxes come from, which is not waited for; None where they are this process.

    The arguments are those of a Judge.
    """
    if prebuilt is not None:
        Prebuilt(prebuilt).expose_runtime()  # before the first process that may load something
    if isolation == "none":
        return None
    environment = {**triton_caches(builds), **environment_for(device)}
    server = ForkServer(device, environment, contained=isolation == "container")
    server.warm()
    return server


def triton_caches(builds: Path | None) -> dict[str, str]:
    """Where Triton keeps what it compiles: beside other builds, unless the user says where."""
    folder = builds or default_builds_directory()
    if folder is None or "TRITON_CACHE_DIR" in os.environ:
        return {}
    return {"TRITON_CACHE_DIR": str(folder / "triton")}
