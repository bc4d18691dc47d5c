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
#: The variable for the hardware queues of CUDA contexts. Eight, CUDA's default, cost the driver
#: three times as much as one, and so do allocations beside forty contexts: with two, eight workers
#: timed nearly twice as many kernels. Two also keep streams apart, for kernels that wrongly don't
#: have one wait for the other. Programs that make streams are timed with the default, as in
#: production.
QUEUES, DEFAULT_QUEUES, FEW_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "8", "2"
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
    of_streams = {}
    if device != "cpu" and _has_few_queues():
        environment[QUEUES] = FEW_QUEUES
        of_streams = {QUEUES: DEFAULT_QUEUES} if timed else {}
    contained = isolation == "container"
    server = ForkServer(device, environment, contained=contained, of_streams=of_streams)
    server.warm()
    return server


def _has_few_queues() -> bool:
    """Whether this process has few, unless the user says otherwise. It has no context yet."""
    said = os.environ.get(QUEUES)
    if said is not None and said != _queues_here.get("set"):
        return False
    os.environ[QUEUES] = _queues_here["set"] = FEW_QUEUES
    return True


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
