"""The first thing that a judge needs, and what takes the longest to be there.

Importing this imports no torch: the process that sandboxes come from does that at the same time as
the judge.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

from pytest_fib.build import Prebuilt, default_builds_directory
from pytest_fib.sandbox import ForkServer, environment_for

Isolation: TypeAlias = Literal["process", "container", "none"]
#: How many hardware queues a CUDA context has.
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


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
    if not timed and device != "cpu":
        # Of this process too, whose context is not made yet. CUDA makes eight by default, with
        # which each context costs the driver three times what it does with one, and so do
        # allocations beside forty contexts. Two keep the streams of a kernel apart that doesn't
        # have one wait for the other. What is timed has what production has.
        os.environ.setdefault(QUEUES, "2")
    if prebuilt is not None:
        Prebuilt(prebuilt).expose_runtime()  # before the first process that may load something
    if isolation == "none":
        return None
    environment = {**compiler_caches(builds), **environment_for(device)}
    server = ForkServer(device, environment, contained=isolation == "container")
    server.warm()
    return server


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
