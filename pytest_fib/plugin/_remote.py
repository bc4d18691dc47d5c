"""Where kernels run in place of this machine: machines by ssh, or a cluster of Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from pytest_fib.executors import RemoteError

if TYPE_CHECKING:
    from pytest_fib.build import Machine
    from pytest_fib.data import TensorFiles
    from pytest_fib.executors import Executor
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._progress import Progress
    from pytest_fib.plugin._ray_cluster import RayCluster
    from pytest_fib.plugin._ssh_machines import SshMachines


class RemoteMachines(Protocol):
    """Found before any test; each process of pytest has a number, and its share by that."""

    settings: Settings

    def machine(self, number: int) -> Machine:
        """What kernels of that process run on."""

    def device(self, number: int) -> str:
        """``cpu`` or ``cuda``."""
        return self.machine(number).device(self.settings.device)

    def executor(self, number: int, files: TensorFiles, progress: Progress) -> Executor:
        """What evaluates there; it is getting ready. Raises RemoteError."""

    def header(self) -> list[str]:
        """A line for each machine."""

    def to_json(self) -> str:
        """For a worker of xdist."""

    def close(self) -> None:
        """End what workers share."""


def find(settings: Settings, processes: int) -> RemoteMachines:
    """What the options name, for so many processes. Raises UsageError."""
    try:
        return _kind(settings).find(settings, processes)
    except RemoteError as error:
        option = "--fib-remote" if settings.ray is None else "--fib-ray"
        raise pytest.UsageError(f"{option} {error}") from None


def from_controller(settings: Settings, text: str) -> RemoteMachines:
    """What the controller found, in a worker of xdist."""
    return _kind(settings).from_json(settings, text)


def _kind(settings: Settings) -> type[RayCluster | SshMachines]:
    if settings.ray is not None:
        from pytest_fib.plugin._ray_cluster import RayCluster

        return RayCluster
    from pytest_fib.plugin._ssh_machines import SshMachines

    return SshMachines


def described(machine: Machine, device: str) -> str:
    """``node7, 2 x NVIDIA H200, Python 3.12.3, torch 2.11.0``."""
    count = len(machine.gpus)
    gpus = machine.gpu.name if count == 1 else f"{count} x {machine.gpu.name}"
    what = gpus if device == "cuda" else "CPU"
    return f"{machine.host}, {what}, Python {machine.python}, torch {machine.version('torch')}"
