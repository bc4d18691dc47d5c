"""What pytest asks of machines that kernels run on in place of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pytest_fib.build import Machine
    from pytest_fib.data import TensorFiles
    from pytest_fib.executors import Executor
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._progress import Progress


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

    def check(self) -> None:
        """Wait until it is known whether kernels can run there. Raises RemoteError."""

    def header(self) -> list[str]:
        """A line for each machine."""

    def to_json(self) -> str:
        """For a worker of xdist."""

    def close(self) -> None:
        """End what workers share."""


def why_not_isolated(settings: Settings, machine: Machine) -> str:
    """Why kernels can't be shut in there as the options ask for, or nothing."""
    if settings.isolation != "container" or not machine.no_container:
        return ""
    return f"--fib-isolation=container{machine.no_container}"


def described(machine: Machine, device: str) -> str:
    """``node7, 2 x NVIDIA H200, Python 3.12.3, torch 2.11.0``."""
    count = len(machine.gpus)
    gpus = machine.gpu.name if count == 1 else f"{count} x {machine.gpu.name}"
    what = gpus if device == "cuda" else "CPU"
    return f"{machine.host}, {what}, Python {machine.python}, torch {machine.version('torch')}"
