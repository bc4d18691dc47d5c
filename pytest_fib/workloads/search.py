"""Look for a workload that fails, and for the smallest like it."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from pytest_fib.workloads._budget import workload_bytes
from pytest_fib.workloads._plan import smallest_axes
from pytest_fib.workloads._provider import BACKEND, seeded
from pytest_fib.workloads._shrink import shrunk
from pytest_fib.workloads._strategy import workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_fib.data import Definition, Workload

Outcome = TypeVar("Outcome")
#: The share of the time for shrinking below which a check is no matter.
QUICK = 0.005
Origin: TypeAlias = Literal["kept", "listed", "shrunk", "unfinished", "recorded"]


@dataclass(frozen=True)
class Search(Generic[Outcome]):
    """What a search saw: a failing case or, of those that passed, the closest call.

    ``origin`` says where the failing case comes from, None where nothing failed: ``shrunk`` is the
    smallest of its kind, ``unfinished`` what it was when time was over; ``kept`` and ``listed``
    ones are as they were given.
    """

    tried: int
    workload: Workload
    outcome: Outcome
    origin: Origin | None


class _Memory(Generic[Outcome]):
    """Outcomes by workload, since shrinking asks for the same one again and again."""

    def __init__(
        self,
        definition: Definition,
        check: Callable[[Workload], Outcome],
        failed: Callable[[Outcome], bool],
        patience: float,
    ) -> None:
        self.seen: dict[str, tuple[Workload, Outcome]] = {}
        self._slow: list[tuple[int, float]] = []  # bytes and seconds
        self.cut_short = False
        self._definition = definition
        self._check = check
        self._failed = failed
        self._patience = patience
        self._deadline: float | None = None

    def fails(self, workload: Workload) -> bool:
        if workload.uuid not in self.seen:
            size, start = workload_bytes(self._definition, workload.axes), monotonic()
            if self._deadline is not None and start + self._expected(size) > self._deadline:
                self.cut_short = True  # no time left to shrink: what is not known to fail passes
                return False
            self.seen[workload.uuid] = (workload, self._check(workload))
            if (seconds := monotonic() - start) > self._patience * QUICK:
                self._slow.append((size, seconds))
        return self._failed(self.seen[workload.uuid][1])

    def _expected(self, size: int) -> float:
        """Seconds that a workload of so many bytes may take, by those that took long.

        In proportion to larger ones, though what is small may take less than its share.
        """
        return max((taken * min(1.0, size / of) for of, taken in self._slow), default=0.0)

    def hurry(self) -> None:
        """From now on there is only so much time."""
        self._deadline = monotonic() + self._patience


def search(
    definition: Definition,
    check: Callable[[Workload], Outcome],
    *,
    failed: Callable[[Outcome], bool],
    closeness: Callable[[Outcome], float],
    kept: Iterable[Workload] = (),
    listed: Iterable[Workload] = (),
    examples: int = 25,
    seed: int = 0,
    max_bytes: int = 1 << 28,
    shrink_seconds: float = 20.0,
) -> Search[Outcome]:
    """Check the ``kept`` and the ``listed`` workloads, then ``examples`` drawn ones.

    A kept one that fails is the answer, since it was shrunk when it failed first. Any other failure
    ends the search, and is shrunk for up to ``shrink_seconds``; no check is begun that is expected
    to take longer than what is left of them. The same ``seed`` draws the same
    workloads in every process. ``closeness`` ranks outcomes that passed: the highest came closest
    to failing.
    """
    memory = _Memory(definition, check, failed, shrink_seconds)
    origin: Origin = "kept"
    failing = next(filter(memory.fails, kept), None)
    if failing is None:
        given = next(filter(memory.fails, listed), None)
        first = given or _drawn(definition, memory, examples, seed, max_bytes)
        if first is not None:
            memory.hurry()
            failing = shrunk(definition, first, memory.fails)
            small = failing.axes == smallest_axes(definition)
            if failing is given and not small:
                origin = "listed"
            else:
                origin = "unfinished" if memory.cut_short else "shrunk"
    if failing is not None:
        return Search(len(memory.seen), *memory.seen[failing.uuid], origin)
    closest = max(memory.seen.values(), key=lambda case: closeness(case[1]))
    return Search(len(memory.seen), *closest, None)


def _drawn(
    definition: Definition, memory: _Memory[Outcome], examples: int, seed: int, max_bytes: int
) -> Workload | None:
    """The first drawn workload that fails, of the smallest first.

    Which are drawn does not hang on verdicts. So what fails is found at the least expense, and
    there is less to shrink.
    """
    drawn: list[Workload] = []

    @settings(
        backend=BACKEND,
        max_examples=examples,
        phases=[Phase.generate],
        database=None,  # failures are kept as workloads, which outlive a change of strategy
        deadline=None,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(workloads(definition, max_bytes))
    def draw(workload: Workload) -> None:
        drawn.append(workload)

    with seeded(seed):
        draw()
    drawn.sort(key=lambda workload: workload_bytes(definition, workload.axes))
    return next(filter(memory.fails, drawn), None)
