"""Who calls the engine: this process, a remote machine by ssh, a cluster of Ray.

Importing this imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib._lazy import lazily
from pytest_fib.executors._benchmark import Benchmark
from pytest_fib.executors._local import LocalExecutor
from pytest_fib.executors._protocol import Executor

if TYPE_CHECKING:
    from pytest_fib.executors._archives import RemoteError
    from pytest_fib.executors._devices import DevicePool, DeviceProcess
    from pytest_fib.executors._ray import RayExecutor, RayOptions, SharedActors
    from pytest_fib.executors._ssh import (
        RemoteOptions,
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
    "LocalExecutor",
    "RayExecutor",
    "RayOptions",
    "RemoteError",
    "RemoteOptions",
    "SharedActors",
    "SshConnections",
    "SshExecutor",
    "SshTarget",
    "describe",
]

# Resolved on first use: most runs are here.
__getattr__ = lazily(
    __name__,
    {
        "_archives": ("RemoteError",),
        "_devices": ("DevicePool", "DeviceProcess"),
        "_ray": ("RayExecutor", "RayOptions", "SharedActors"),
        "_ssh": ("RemoteOptions", "SshConnections", "SshExecutor", "SshTarget", "describe"),
    },
)
