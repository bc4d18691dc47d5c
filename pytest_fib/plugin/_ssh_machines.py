"""The machines of ``--fib-remote``: each process gets the next host, and a GPU of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fib.build import Machine
from pytest_fib.executors import (
    Description,
    RemoteError,
    RemoteOptions,
    SshConnections,
    SshExecutor,
    SshTarget,
    TorchImport,
)
from pytest_fib.plugin._machines import RemoteMachines, described, why_not_isolated

if TYPE_CHECKING:
    from pytest_fib.data import TensorFiles
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._progress import Progress


@dataclass(frozen=True)
class Connecting:
    """Connections to all targets, which are being made; the machines describe themselves."""

    settings: Settings
    targets: tuple[SshTarget, ...]
    connections: SshConnections
    descriptions: tuple[Description, ...]

    @classmethod
    def begin(cls, settings: Settings) -> Connecting:
        """Raises RemoteError."""
        targets = _targets(settings)
        connections = SshConnections()
        try:
            descriptions = tuple(Description(connections, target) for target in targets)
        except BaseException:  # there is no ssh, or an interrupt
            connections.close()
            raise
        return cls(settings, targets, connections, descriptions)

    def machines(self) -> tuple[Machine, ...]:
        """Wait for all of them. Raises RemoteError."""
        for each in self.descriptions:
            each.order()
        return tuple(each.machine() for each in self.descriptions)

    def close(self) -> None:
        """End the connections, also those that are still being made."""
        for each in self.descriptions:
            each.close()
        self.connections.close()


@dataclass(frozen=True)
class SshMachines(RemoteMachines):
    """The targets, their machines, and the connections that xdist workers share."""

    settings: Settings
    targets: tuple[SshTarget, ...]
    machines: tuple[Machine, ...]
    connections: SshConnections
    #: In the process that found them: its executors, and imports on targets where it has none.
    executors: dict[SshTarget, SshExecutor] = field(default_factory=dict)
    imports: dict[SshTarget, TorchImport] = field(default_factory=dict)

    @classmethod
    def find(cls, connecting: Connecting) -> SshMachines:
        """Wait for what each says of itself. Raises RemoteError."""
        machines = connecting.machines()
        remote = cls(connecting.settings, connecting.targets, machines, connecting.connections)
        remote._check_devices()
        remote._check_isolation()
        return remote

    def _check_devices(self) -> None:
        """Check that all have a GPU, if one has or CUDA is requested. Raises RemoteError."""
        wanted = self.settings.device
        if not any(machine.device(wanted) == "cuda" for machine in self.machines):
            return
        for target, machine in zip(self.targets, self.machines, strict=True):
            if not machine.gpus:
                why = "" if wanted == "cuda" else " (others have one: give --fib-device)"
                raise RemoteError(f"{target.url}: {machine.no_gpu}{why}")

    def _check_isolation(self) -> None:
        """Raises RemoteError."""
        for target, machine in zip(self.targets, self.machines, strict=True):
            if why := why_not_isolated(self.settings, machine):
                raise RemoteError(f"{target.url}: {why}")

    def to_json(self) -> str:
        machines = [machine.to_json() for machine in self.machines]
        return json.dumps({"folder": str(self.connections.folder), "machines": machines})

    @classmethod
    def from_json(cls, settings: Settings, text: str) -> SshMachines:
        facts: dict[str, Any] = json.loads(text)
        machines = tuple(map(Machine.from_json, facts["machines"]))
        return cls(settings, _targets(settings), machines, SshConnections(Path(facts["folder"])))

    def _slot(self, number: int) -> tuple[SshTarget, Machine, str | None]:
        """A target, and its GPU or None for its CPU: hosts in turn, then the next GPU of each."""
        slots: list[tuple[int, int, str | None]] = []
        for i, machine in enumerate(self.machines):
            on_gpus = machine.device(self.settings.device) == "cuda"
            gpus: tuple[str | None, ...] = machine.gpus if on_gpus else (None,)
            slots += [(rank, i, gpu) for rank, gpu in enumerate(gpus)]
        slots.sort(key=lambda slot: slot[:2])
        _, i, gpu = slots[number % len(slots)]
        return self.targets[i], self.machines[i], gpu

    def machine(self, number: int) -> Machine:
        return self._slot(number)[1]

    def executor(self, number: int, files: TensorFiles, progress: Progress) -> SshExecutor:
        target, _, gpu = self._slot(number)
        options = RemoteOptions(
            device=self.device(number),
            isolation=self.settings.isolation,
            lock_timeout=self.settings.lock_timeout,
            gpu=gpu,
            grace=self.settings.remote_grace,
            prebuilt=self.settings.prebuilt,
        )
        executor = SshExecutor(
            target, options, progress.announce, files, self.connections, progress=progress.tell
        )
        try:
            executor.start()
        except RemoteError:
            # This xdist worker runs tests by now: its first request reconnects.
            if self.connections.is_owner:
                executor.close()
                raise
        if self.connections.is_owner:  # others ask it for evaluations only
            self.executors[target] = executor
        return executor

    def header(self) -> list[str]:
        wanted = self.settings.device
        pairs = zip(self.targets, self.machines, strict=True)
        return [f"fib: remote {t.url}: {described(m, m.device(wanted))}" for t, m in pairs]

    def prepare_check(self) -> None:
        for target in self.targets:
            if target not in self.executors:
                self.imports[target] = TorchImport(self.connections, target)

    def check(self) -> None:
        """A worker imports torch itself. If it can't, or is lost, an import of torch says why."""
        for target, executor in self.executors.items():
            if not executor.is_ready():
                self.imports[target] = TorchImport(self.connections, target)
        for each in self.imports.values():
            each.check()

    def close(self) -> None:
        """End the imports. The shared connections end with `Connecting`."""
        for each in self.imports.values():
            each.close()


def _targets(settings: Settings) -> tuple[SshTarget, ...]:
    """Raises RemoteError."""
    try:
        return tuple(SshTarget.parse(url, settings.remote_python) for url in settings.remotes)
    except ValueError as error:
        raise RemoteError(str(error)) from None
