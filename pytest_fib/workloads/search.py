"""Look for a workload that fails, and for the smallest like it."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from pytest_fib.workloads._provider import BACKEND, seeded
from pytest_fib.workloads._strategy import workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_fib.data import Definition, Workload

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Search(Generic[Outcome]):
    """What a search saw: the smallest failing case or, of those that passed, the closest call."""

    tried: int
    workload: Workload
    outcome: Outcome
    failed: bool


class _Fails(Exception):
    """Tells Hypothesis that a workload fails."""


class _Memory(Generic[Outcome]):
    """Outcomes by workload, since shrinking asks for the same one again and again."""

    def __init__(
        self, check: Callable[[Workload], Outcome], failed: Callable[[Outcome], bool], patience: float
    ) -> None:
        self.seen: dict[str, tuple[Workload, Outcome]] = {}
        self.last_failing: tuple[Workload, Outcome] | None = None
        self._check = check
        self._failed = failed
        self._patience = patience
        self._deadline: float | None = None

    def fails(self, workload: Workload) -> bool:
        if workload.uuid not in self.seen:
            if self._deadline is not None and monotonic() > self._deadline:
                return False  # no time left to shrink: what is not known to fail passes
            self.seen[workload.uuid] = (workload, self._check(workload))
        outcome = self.seen[workload.uuid][1]
        if not self._failed(outcome):
            return False
        self.last_failing = (workload, outcome)
        self._deadline = self._deadline or monotonic() + self._patience
        return True


def search(
    definition: Definition,
    check: Callable[[Workload], Outcome],
    *,
    failed: Callable[[Outcome], bool],
    closeness: Callable[[Outcome], float],
    first: Iterable[Workload] = (),
    examples: int = 25,
    seed: int = 0,
    max_bytes: int = 1 << 28,
    shrink_seconds: float = 20.0,
) -> Search[Outcome]:
    """Check the ``first`` workloads, then ``examples`` drawn ones; shrink the first failure.

    The same ``seed`` draws the same workloads in every process. ``closeness`` ranks outcomes that
    passed: the highest came closest to failing.
    """
    memory = _Memory(check, failed, shrink_seconds)
    if not any(memory.fails(workload) for workload in first):
        _draw(definition, memory, examples, seed, max_bytes)
    if memory.last_failing is not None:
        return Search(len(memory.seen), *memory.last_failing, failed=True)
    closest = max(memory.seen.values(), key=lambda case: closeness(case[1]))
    return Search(len(memory.seen), *closest, failed=False)


def _draw(
    definition: Definition, memory: _Memory[Outcome], examples: int, seed: int, max_bytes: int
) -> None:
    @settings(
        backend=BACKEND,
        max_examples=examples,
        phases=[Phase.generate, Phase.shrink],
        database=None,  # failures are kept as workloads, which outlive a change of strategy
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(workloads(definition, max_bytes))
    def passes(workload: Workload) -> None:
        if memory.fails(workload):
            raise _Fails

    with seeded(seed):
        try:
            passes()
        except _Fails:
            return
