"""The Ray cluster of ``--fib-ray``: an actor for each process of pytest, as far as GPUs suffice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_fib.build import Machine
from pytest_fib.executors import RayExecutor, RayOptions, RemoteError, SharedActors
from pytest_fib.plugin._machines import RemoteMachines, described, why_not_isolated

if TYPE_CHECKING:
    from pytest_fib.data import TensorFiles
    from pytest_fib.plugin._options import Settings
    from pytest_fib.plugin._progress import Progress


@dataclass(frozen=True)
class RayCluster(RemoteMachines):
    """The actors of the controller, which has their ``owner``, and their machines."""

    settings: Settings
    shared: SharedActors
    machines: tuple[Machine, ...]
    owner: RayExecutor | None = None

    @classmethod
    def find(cls, settings: Settings, processes: int) -> RayCluster:
        """Make actors for so many processes. Raises RemoteError."""
        options = RayOptions(
            device=settings.device,
            isolation=settings.isolation,
            lock_timeout=settings.lock_timeout,
            actors=processes,
            prebuilt=settings.prebuilt,
        )
        assert settings.ray is not None
        owner = RayExecutor(settings.ray, options)
        try:
            machines = tuple(owner.start())
            for machine in machines:
                if why := why_not_isolated(settings, machine):
                    raise RemoteError(f"{machine.host}: {why}")
        except BaseException as error:  # an interrupt, too
            owner.close()
            if isinstance(error, RemoteError):
                raise RemoteError(f"{settings.ray}: {error}") from None
            raise
        return cls(settings, owner.shared, machines, owner)

    def to_json(self) -> str:
        """JSON for a worker of xdist, which uses one of the actors."""
        machines = [machine.to_json() for machine in self.machines]
        return json.dumps({"shared": asdict(self.shared), "machines": machines})

    @classmethod
    def from_json(cls, settings: Settings, text: str) -> RayCluster:
        facts: dict[str, Any] = json.loads(text)
        shared = SharedActors(**facts["shared"])
        return cls(settings, shared, tuple(map(Machine.from_json, facts["machines"])))

    def machine(self, number: int) -> Machine:
        return self.machines[number % len(self.machines)]

    def executor(self, number: int, files: TensorFiles, progress: Progress) -> RayExecutor:
        """An executor for that process' actor, which others may use too. Raises RemoteError."""
        names = self.shared.names
        one_actor = SharedActors(
            self.shared.address, self.shared.namespace, (names[number % len(names)],)
        )
        return RayExecutor(self.shared.address, files=files, shared=one_actor)

    def prepare_check(self) -> None:
        """Nothing to begin."""

    def check(self) -> None:
        """Nothing to check: actors have imported all they need before they are found."""

    def header(self) -> list[str]:
        lines = [described(m, m.device(self.settings.device)) for m in self.machines]
        return [f"fib: ray {self.shared.address}: {line}" for line in lines]

    def close(self) -> None:
        if self.owner is not None:
            self.owner.close()
