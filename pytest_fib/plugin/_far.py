"""The far machines of a run: connected before any test, one GPU of them for each worker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fib.build import Machine
from pytest_fib.executors import (
    FarOptions,
    RemoteError,
    SshConnections,
    SshExecutor,
    SshTarget,
    describe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_fib.data import TensorFiles
    from pytest_fib.plugin._options import Settings


@dataclass(frozen=True)
class Slot:
    """What one process of pytest has kernels run on; ``gpu`` is None on a CPU."""

    target: SshTarget
    machine: Machine
    device: str
    gpu: str | None


@dataclass(frozen=True)
class FarMachines:
    """The targets of ``--fib-remote`` and what they are."""

    targets: tuple[SshTarget, ...]
    machines: tuple[Machine, ...]
    connections: SshConnections

    @classmethod
    def find(cls, settings: Settings) -> FarMachines:
        """Connect to each. Raises UsageError."""
        targets = tuple(_parsed(url, settings.remote_python) for url in settings.remotes)
        connections = SshConnections()
        try:
            machines = tuple(describe(connections, target) for target in targets)
            _check_devices(targets, machines, settings.device)
        except (RemoteError, pytest.UsageError) as error:
            connections.close()
            raise pytest.UsageError(f"--fib-remote {error}") from None
        except BaseException:  # an interrupt
            connections.close()
            raise
        return cls(targets, machines, connections)

    def to_json(self) -> str:
        """For a worker of xdist, which shares the connections."""
        machines = [machine.to_json() for machine in self.machines]
        return json.dumps({"folder": str(self.connections.folder), "machines": machines})

    @classmethod
    def from_json(cls, text: str, settings: Settings) -> FarMachines:
        """What `to_json` gave the worker."""
        facts: dict[str, Any] = json.loads(text)
        targets = tuple(_parsed(url, settings.remote_python) for url in settings.remotes)
        machines = tuple(map(Machine.from_json, facts["machines"]))
        return cls(targets, machines, SshConnections(Path(facts["folder"])))

    def slot(self, number: int, device: str) -> Slot:
        """The one of the process with that number: hosts in turn, then the next GPU of each."""
        slots = self._slots(device)
        return slots[number % len(slots)]

    def _slots(self, wanted: str) -> Sequence[Slot]:
        slots = []
        for target, machine in zip(self.targets, self.machines, strict=True):
            device = machine.device(wanted)
            gpus = machine.gpus if device == "cuda" else (None,)
            slots += [(i, Slot(target, machine, device, gpu)) for i, gpu in enumerate(gpus)]
        return [slot for _, slot in sorted(slots, key=lambda pair: pair[0])]

    def executor(
        self,
        slot: Slot,
        settings: Settings,
        files: TensorFiles,
        *,
        announce: Callable[[str], None],
        progress: Callable[[str], None],
    ) -> SshExecutor:
        """What evaluates there; it is getting ready. Raises UsageError."""
        options = FarOptions(
            device=slot.device,
            isolation=settings.isolation,
            lock_timeout=settings.lock_timeout,
            gpu=slot.gpu,
            grace=settings.remote_grace,
        )
        executor = SshExecutor(
            slot.target, options, announce, files, self.connections, progress=progress
        )
        try:
            executor.start()
        except RemoteError as error:
            executor.close()
            raise pytest.UsageError(f"--fib-remote {error}") from None
        return executor

    def header(self, device: str) -> list[str]:
        """A line for each machine."""
        lines = []
        for target, machine in zip(self.targets, self.machines, strict=True):
            versions = f"Python {machine.python}, torch {machine.version('torch')}"
            what = _devices(machine) if machine.device(device) == "cuda" else "CPU"
            lines.append(f"fib: remote {target.url}: {machine.host}, {what}, {versions}")
        return lines


def _devices(machine: Machine) -> str:
    count = len(machine.gpus)
    return machine.gpu.name if count == 1 else f"{count} x {machine.gpu.name}"


def _parsed(url: str, python: str) -> SshTarget:
    try:
        return SshTarget.parse(url, python)
    except ValueError as error:
        raise pytest.UsageError(f"--fib-remote: {error}") from None


def _check_devices(targets: Sequence[SshTarget], machines: Sequence[Machine], wanted: str) -> None:
    """All have a GPU, where that is asked for or one has. Raises UsageError."""
    if not any(machine.device(wanted) == "cuda" for machine in machines):
        return
    for target, machine in zip(targets, machines, strict=True):
        if not machine.gpus:
            why = "" if wanted == "cuda" else " (others have one: give --fib-device)"
            raise pytest.UsageError(f"{target.url}: {machine.no_gpu}{why}")
