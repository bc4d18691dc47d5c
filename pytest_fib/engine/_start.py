"""The first thing that a judge needs, and what takes the longest to be there.

Importing this imports no torch: the process that sandboxes come from does that at the same time as
the judge.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

from pytest_fib.build import Prebuilt, default_builds_directory
from pytest_fib.sandbox import PASSIVE, WAIT_POLICY, ForkServer, environment_for

Isolation: TypeAlias = Literal["process", "container", "none"]
#: How many hardware queues a CUDA context has, eight unless this says otherwise.
QUEUES, DEFAULT_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "8"
#: What contexts have in which nothing is timed. With eight each costs the driver three times what
#: it does with one, and so do allocations beside forty contexts. Two keep the streams of a kernel
#: apart that doesn't have one wait for the other.
FEW_QUEUES = "2"
#: What this process has set for itself.
_queues_here: dict[str, str] = {}


def start_fork_server(
    device: str = "cpu",
    isolation: Isolation = "process",
    *,
    builds: Path | None = None,
    prebuilt: Path | None = None,
    timed: bool = True,
) -> ForkServer | None:
    """What sandboxes come from, which is not waited for; None where they are this process.

    The arguments are those of a Judge.
    """
    if prebuilt is not None:
        Prebuilt(prebuilt).expose_runtime()  # before the first process that may load something
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
    """What is timed has what production has; few are for this process, which times nothing.

    It has no context yet. What the user says counts for all.
    """
    said = os.environ.get(QUEUES)
    if said is not None and said != _queues_here.get("set"):
        return said
    os.environ[QUEUES] = _queues_here["set"] = FEW_QUEUES
    return DEFAULT_QUEUES if timed else FEW_QUEUES


def compiler_caches(builds: Path | None) -> dict[str, str]:
    """Where compilers keep what they make at calls: beside builds, unless the user says where."""
    from pytest_fib.data import SupportedLanguages

    folder = builds or default_builds_directory()
    if folder is None:
        return {}
    return {
        name: str(folder / language)
        for language in SupportedLanguages
        if (name := language.facts.cache) and name not in os.environ
    }
