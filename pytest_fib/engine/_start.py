"""Starts the fork server, which a judge needs first and which takes the longest to be ready.

Importing this imports no torch: the fork server imports it at the same time as the judge.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

from pytest_fib.build import Prebuilt, default_builds_directory
from pytest_fib.sandbox import PASSIVE, WAIT_POLICY, ForkServer, environment_for

Isolation: TypeAlias = Literal["process", "container", "none"]
#: The variable for the number of a CUDA context's hardware queues, which is eight by default.
QUEUES, DEFAULT_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "8"
#: The queues of contexts that time nothing. Eight cost the driver three times as much as one, and
#: so do allocations beside forty contexts. Two keep streams apart, for kernels that wrongly don't
#: have one wait for the other.
FEW_QUEUES = "2"
#: The value that this process has set.
_queues_here: dict[str, str] = {}


def start_fork_server(
    device: str = "cpu",
    isolation: Isolation = "process",
    *,
    builds: Path | None = None,
    prebuilt: Path | None = None,
    timed: bool = True,
) -> ForkServer | None:
    """Start the fork server without waiting; None if foreign code runs in this process.

    The arguments are those of a Judge.
    """
    if prebuilt is not None:
        Prebuilt(prebuilt).expose_runtime()  # before the first process that may load a kernel
    os.environ.setdefault(WAIT_POLICY, PASSIVE)  # for this process, before torch is imported
    if isolation == "none":
        return None
    environment = {**compiler_caches(builds), **environment_for(device)}
    if device != "cpu":
        environment[QUEUES] = _queues_of_sandboxes(timed=timed)
    server = ForkServer(device, environment, contained=isolation == "container")
    server.warm()
    return server


def _queues_of_sandboxes(*, timed: bool) -> str:
    """The queues of sandboxes: the default if they time, as in production. This process has few.

    It has no context yet. The user's own setting holds for all.
    """
    said = os.environ.get(QUEUES)
    if said is not None and said != _queues_here.get("set"):
        return said
    os.environ[QUEUES] = _queues_here["set"] = FEW_QUEUES
    return DEFAULT_QUEUES if timed else FEW_QUEUES


def compiler_caches(builds: Path | None) -> dict[str, str]:
    """The caches of compilers that run at calls: beside builds, unless the user sets them."""
    from pytest_fib.data import SupportedLanguages

    folder = builds or default_builds_directory()
    if folder is None:
        return {}
    return {
        name: str(folder / language)
        for language in SupportedLanguages
        if (name := language.facts.cache) and name not in os.environ
    }
