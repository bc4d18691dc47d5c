"""The machines of ``--fib-remote``: each process gets the next host, and a GPU of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fib.build import Machine
from pytest_fib.executors import (
    RemoteError,
    RemoteOptions,
    SshConnections,
    SshExecutor,
    SshTarget,
    TorchImport,
    describe,
)
from pytest_fib.plugin._machines import RemoteMachines, described, why_not_isolated

if TYPE_CHECKING:
    from pytest_fib.data import TensorFiles
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._progress import Progress


@dataclass(frozen=True)
class SshMachines(RemoteMachines):
    """The targets, their machines, and the connections that xdist workers share."""

    settings: Settings
    targets: tuple[SshTarget, ...]
    machines: tuple[Machine, ...]
    connections: SshConnections
    #: One for each target, in the process that found them.
    imports: tuple[TorchImport, ...] = ()

    @classmethod
    def find(cls, settings: Settings, processes: int) -> SshMachines:
        """Connect to each, however many processes share them. Raises RemoteError."""
        targets = _targets(settings)
        connections = SshConnections()
        imports: list[TorchImport] = []
        try:
            machines = tuple(describe(connections, target) for target in targets)
            imports += (TorchImport(connections, target) for target in targets)
            remote = cls(settings, targets, machines, connections, tuple(imports))
            remote._check_devices()
            remote._check_isolation()
        except BaseException:  # an interrupt, too
            _close(imports, connections)
            raise
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
        return executor

    def header(self) -> list[str]:
        wanted = self.settings.device
        pairs = zip(self.targets, self.machines, strict=True)
        return [f"fib: remote {t.url}: {described(m, m.device(wanted))}" for t, m in pairs]

    def check(self) -> None:
        for each in self.imports:
            each.check()

    def close(self) -> None:
        _close(self.imports, self.connections)


def _close(imports: Iterable[TorchImport], connections: SshConnections) -> None:
    for each in imports:
        each.close()
    connections.close()


def _targets(settings: Settings) -> tuple[SshTarget, ...]:
    """Raises RemoteError."""
    try:
        return tuple(SshTarget.parse(url, settings.remote_python) for url in settings.remotes)
    except ValueError as error:
        raise RemoteError(str(error)) from None
