"""The protocol of remote machines that kernels run on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pytest_fib.build import Machine
    from pytest_fib.data import TensorFiles
    from pytest_fib.executors import Executor
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._progress import Progress


class RemoteMachines(Protocol):
    """Machines that were found before any test. Each pytest process has a share by its number."""

    settings: Settings

    def machine(self, number: int) -> Machine:
        """The machine for kernels of that process."""

    def device(self, number: int) -> str:
        """``cpu`` or ``cuda``."""
        return self.machine(number).device(self.settings.device)

    def executor(self, number: int, files: TensorFiles, progress: Progress) -> Executor:
        """An executor there, which starts in the background. Raises RemoteError."""

    def prepare_check(self) -> None:
        """Begin what `check` waits for, where this process has no executor there."""

    def check(self) -> None:
        """Wait until it is known whether kernels can run there. Raises RemoteError."""

    def header(self) -> list[str]:
        """A line for each machine."""

    def to_json(self) -> str:
        """For a worker of xdist."""

    def close(self) -> None:
        """End the shared connections or actors."""


def why_not_isolated(settings: Settings, machine: Machine) -> str:
    """Why the requested isolation is impossible there, or nothing."""
    if settings.isolation != "container" or not machine.no_container:
        return ""
    return f"--fib-isolation=container{machine.no_container}"


def described(machine: Machine, device: str) -> str:
    """``node7, 2 x NVIDIA H200, Python 3.12.3, torch 2.11.0``."""
    count = len(machine.gpus)
    gpus = machine.gpu.name if count == 1 else f"{count} x {machine.gpu.name}"
    what = gpus if device == "cuda" else "CPU"
    return f"{machine.host}, {what}, Python {machine.python}, torch {machine.version('torch')}"
