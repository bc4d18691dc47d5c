"""Call the engine: in this process, on a remote machine by ssh, in a Ray cluster.

Importing this imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib._lazy import lazily
from pytest_fib.executors._benchmark import Benchmark as Benchmark
from pytest_fib.executors._local import LocalExecutor as LocalExecutor
from pytest_fib.executors._protocol import Executor as Executor

if TYPE_CHECKING:
    from pytest_fib.executors._archives import RemoteError as RemoteError
    from pytest_fib.executors._devices import (
        DevicePool as DevicePool,
        DeviceProcess as DeviceProcess,
    )
    from pytest_fib.executors._ray import (
        RayExecutor as RayExecutor,
        RayOptions as RayOptions,
        SharedActors as SharedActors,
    )
    from pytest_fib.executors._remote import UnreachableExecutor as UnreachableExecutor
    from pytest_fib.executors._ssh import (
        Description as Description,
        RemoteOptions as RemoteOptions,
        SshConnections as SshConnections,
        SshExecutor as SshExecutor,
        SshTarget as SshTarget,
        TorchImport as TorchImport,
        describe as describe,
    )


# Resolved on first use: most runs are here.
__getattr__ = lazily(
    __name__,
    {
        "_archives": "RemoteError",
        "_devices": "DevicePool DeviceProcess",
        "_ray": "RayExecutor RayOptions SharedActors",
        "_remote": "UnreachableExecutor",
        "_ssh": "Description RemoteOptions SshConnections SshExecutor SshTarget TorchImport "
        "describe",
    },
)
