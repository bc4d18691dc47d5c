"""Who calls the engine: this process, a far machine by ssh, a cluster of Ray.

Importing this imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pytest_fib.executors._benchmark import Benchmark
from pytest_fib.executors._local import LocalExecutor
from pytest_fib.executors._protocol import Executor

if TYPE_CHECKING:
    from pytest_fib.executors._code import RemoteError
    from pytest_fib.executors._devices import DevicePool, DeviceProcess
    from pytest_fib.executors._ray import RayExecutor, RayOptions, SharedActors
    from pytest_fib.executors._ssh import (
        FarOptions,
        SshConnections,
        SshExecutor,
        SshTarget,
        describe,
    )

__all__ = [
    "Benchmark",
    "DevicePool",
    "DeviceProcess",
    "Executor",
    "FarOptions",
    "LocalExecutor",
    "RayExecutor",
    "RayOptions",
    "RemoteError",
    "SharedActors",
    "SshConnections",
    "SshExecutor",
    "SshTarget",
    "describe",
]

# Resolved on first use: most runs are here.
_HOMES = {
    "RemoteError": "_code",
    **dict.fromkeys(("DevicePool", "DeviceProcess"), "_devices"),
    **dict.fromkeys(("RayExecutor", "RayOptions", "SharedActors"), "_ray"),
    **dict.fromkeys(
        ("FarOptions", "SshConnections", "SshExecutor", "SshTarget", "describe"), "_ssh"
    ),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
