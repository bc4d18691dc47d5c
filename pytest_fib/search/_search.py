"""Look for a workload that fails, and for the smallest like it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from statistics import median_high
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pytest_fib.search._at_numbers import workloads_at
from pytest_fib.search._deck import USUAL_SIZE, Deck, UnforeseenSizes
from pytest_fib.search._hypothesis import deal
from pytest_fib.search._shrink import shrunk
from pytest_fib.search._strategy import has_many_pairs, workloads
from pytest_fib.workloads import (
    is_open,
    make_workload,
    plan,
    smallest_axes,
    workload_bytes,
)

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Origin, Workload
    from pytest_fib.search._source_numbers import Number

CheckResult = TypeVar("CheckResult")
#: A check that takes a larger share of the time for shrinking is slow.
SLOW_SHARE = 0.005
#: Sizes that nobody has asked for are halved, or left out, where a check is expected to take more
#: seconds: references may go through an axis one by one.
LARGE_SECONDS = 5.0
#: What is done for each of a sixteenth of all pairs takes more seconds than that.
QUICK_SECONDS = 0.1
#: So many seconds more than the least may be those of other work on the machine.
NOISE_SECONDS = 0.05
#: Of workloads up to so many times smaller than the largest, the quickest says what a byte takes;
#: of those whose axis is up to so many times smaller, what each place along it takes.
NEARLY_LARGEST, NEARLY_LONGEST = 4, 16
#: Small workloads are ranked again after so many parts of them.
RANKED_AGAIN = 16
#: One of so many draws, rounded up, follows from the seed of the run.
DRAWS_TO_ONE_OF_THE_RUN = 5
#: Bytes of small workloads, or so many times those of the smallest where that is more. A check of
#: one takes milliseconds; of all of them, at most so many seconds.
SMALL_BYTES, SMALLEST_TIMES, SMALL_SECONDS = 512 << 10, 4, 3.0


@dataclass(frozen=True)
class Search(Generic[CheckResult]):
    """The result of a search: a failing workload or, if all passed, the closest call.

    ``origin`` says where the failing case comes from, None where nothing failed: ``shrunk`` is the
    smallest of its kind, ``unfinished`` what it was when time was over; ``failed before`` and
    ``listed`` ones are as they were given. ``undecided`` is the smallest workload whose failure
    told nothing, with its outcome. ``passed_over`` are drawn ones that were not affordable, and
    ``lowered`` those in whose place smaller ones were tried.
    """

    tried: int
    workload: Workload
    outcome: CheckResult
    origin: Origin | None
    undecided: tuple[Workload, CheckResult] | None = None
    passed_over: Sequence[Workload] = ()
    lowered: Sequence[Workload] = ()


class _Timed(NamedTuple):
    """How many seconds the check of a workload took, of these axes and so many bytes."""

    axes: Mapping[str, int]
    size: int
    seconds: float


class _Checked(Generic[CheckResult]):
    """Outcomes by workload, since shrinking asks for the same one again and again."""

    def __init__(
        self,
        definition: Definition,
        check: Callable[[Workload], CheckResult],
        failed: Callable[[CheckResult], bool],
        alike: Callable[[CheckResult, CheckResult], bool],
        shown_by: Callable[[CheckResult], Workload | None],
        *,
        shrink_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.seen: dict[str, tuple[Workload, CheckResult]] = {}
        self._timed: list[_Timed] = []
        self._slow: list[_Timed] = []
        self.out_of_time = False
        self._definition = definition
        self._check = check
        self._failed = failed
        self._alike = alike
        self._shown_by = shown_by
        self._shrink_seconds = shrink_seconds
        self._clock = clock
        self._deadline: float | None = None

    def fails(self, workload: Workload) -> bool:
        if workload.uuid not in self.seen:
            size, start = workload_bytes(self._definition, workload.axes), self._clock()
            if self._deadline is not None and start + self._expected(size) > self._deadline:
                self.out_of_time = True  # no time left to shrink: unknown workloads count as passed
                return False
            self.seen[workload.uuid] = (workload, self._check(workload))
            timed = _Timed(workload.axes, size, self._clock() - start)
            self._timed.append(timed)
            if timed.seconds > self._shrink_seconds * SLOW_SHARE:
                self._slow.append(timed)
        return self._failed(self.seen[workload.uuid][1])

    def fails_and_tells(
        self, undecided: Callable[[Workload, CheckResult], bool], workload: Workload
    ) -> bool:
        """Whether a workload fails for a reason that concerns the implementation."""
        return self.fails(workload) and not undecided(*self.seen[workload.uuid])

    def fails_like(self, first: Workload) -> Callable[[Workload], bool]:
        """Whether a workload fails as the first one does."""

        def fails(workload: Workload) -> bool:
            if not self.fails(workload):
                return False
            return self._alike(self.seen[first.uuid][1], self.seen[workload.uuid][1])

        return fails

    def worthwhile(self, drawn: Iterable[Workload]) -> Iterator[Workload]:
        """Workloads, of which those that would take long are smaller or, if they can't be, missing.

        That is where nobody has asked for sizes above the usual. One whose sizes have a product
        beyond 32 bits comes after one of a quarter of these, and only if that is quick: what is
        made for each pair would take all memory.
        """
        for workload in drawn:
            definition, axes = self._definition, workload.axes
            while _is_large(definition, axes) and (which := self._too_large(axes)):
                axes = _halved(definition, axes, which) or _halved(definition, axes) or {}
            if axes == workload.axes and has_many_pairs(definition, axes):
                yield from self._if_quick(workload)
            elif axes == workload.axes:
                yield workload
            elif _is_large(definition, axes):
                yield make_workload(definition, axes, workload.seed, workload.regime)

    def _if_quick(self, workload: Workload) -> Iterator[Workload]:
        """One of a quarter of the sizes, and the workload itself if that one is quick."""
        half = halved(self._definition, workload)
        quarter = half and halved(self._definition, half)
        if quarter is None:
            yield workload
            return
        if not self._seconds_at(quarter.axes):
            yield quarter
        seconds = self._seconds_at(quarter.axes)  # none if it was left out
        if seconds and max(seconds) - self._quickest <= QUICK_SECONDS:
            yield workload

    def _seconds_at(self, axes: Mapping[str, int]) -> list[float]:
        return [timed.seconds for timed in self._timed if timed.axes == axes]

    @property
    def _quickest(self) -> float:
        return min(timed.seconds for timed in self._timed)

    def within(self, seconds: float, drawn: Iterable[Workload]) -> Iterator[Workload]:
        """Workloads, until those before took as long; what comes before the first doesn't count.

        First those that are expected to take least for what is along one axis, and none that would
        take more than a tenth of the time. One whose axis is much longer than any before may take
        any, so it comes last.
        """
        end, left = self._clock() + seconds, [*drawn]
        while left:
            cost = self._cost_along(left[0].axes)
            left.sort(key=cost)
            few = len(left) // RANKED_AGAIN + 1
            next_ones, left = left[:few], left[few:]
            for workload in next_ones:
                if self._clock() >= end:
                    return
                is_unforeseen, expected = cost(workload)
                if is_unforeseen or expected <= seconds / 10:
                    yield workload

    def _cost_along(self, axes: Iterable[str]) -> Callable[[Workload], tuple[bool, float]]:
        """Whether a workload has an axis that is much longer than any before, and how long it is.

        If none is, the seconds that are expected of an axis.
        """
        of_each = {axis: self._along(axis, 1) for axis in axes}
        longest = {axis: max(timed.axes[axis] for timed in self._timed) for axis in of_each}

        def cost(workload: Workload) -> tuple[bool, float]:
            sizes = workload.axes
            if any(n > NEARLY_LONGEST * longest[axis] for axis, n in sizes.items()):
                return True, max(sizes.values())
            expected = max((n * of_each[axis] for axis, n in sizes.items()), default=0.0)
            # The order of what is quick follows from the seed alone.
            return False, expected if expected > NOISE_SECONDS else 0.0

        return cost

    def _too_large(self, axes: Mapping[str, int]) -> Callable[[int], bool] | None:
        """Which sizes make a check take long; None if it is expected to take little time.

        If it is for all bytes, those that are usual: the large ones are what the workload is for.
        """
        along = (self._along(axis, n) for axis, n in axes.items() if not _is_usual(n))
        if max(self._of_sequences(axes), *along) > LARGE_SECONDS:
            return lambda n: not _is_usual(n)
        by_bytes = self._expected(workload_bytes(self._definition, axes))
        return _is_usual if by_bytes > LARGE_SECONDS else None

    def _along(self, axis: str, n: int) -> float:
        """Seconds of what goes through an axis one by one: by the quickest of the largest so far.

        However few bytes there are.
        """
        return n * self._each(lambda timed: timed.axes[axis], min, nearly=NEARLY_LONGEST)

    def _of_sequences(self, axes: Mapping[str, int]) -> float:
        """Seconds of a workload of more sequences than usual: by what one took of the most so far.

        What goes through them one by one does so with those that aren't empty, so it is not by the
        quickest.
        """
        planned = plan(self._definition)
        if not planned.has_many_sequences(axes):
            return 0.0
        each = self._each(lambda timed: planned.sequences(timed.axes), median_high, NOISE_SECONDS)
        return planned.sequences(axes) * each

    def _expected(self, size: int) -> float:
        """Seconds that a workload of so many bytes may take, by those that took long.

        In proportion to larger ones, though what is small may take less than its share. A byte more
        on both sides: all tensors may be empty.
        """
        shares = (slow.seconds * min(1.0, (size + 1) / (slow.size + 1)) for slow in self._slow)
        return max((self._beyond(size), *shares))

    def _beyond(self, size: int) -> float:
        """Seconds of a workload larger than all before, by what a byte took of the largest ones.

        By the quickest of them, lest a pause count.
        """
        if size <= max((timed.size for timed in self._timed), default=size):
            return 0.0
        return size * self._each(lambda timed: timed.size, min)

    def _each(
        self,
        number_of: Callable[[_Timed], int],
        of_all: Callable[[Iterable[float]], float],
        noise: float = 0.0,
        nearly: int = NEARLY_LARGEST,
    ) -> float:
        """Seconds for each of what there is a number of, by the checks where it was largest.

        By those too where it was up to ``nearly`` times smaller. Without what even the quickest
        check took, with some ``noise``.
        """
        least = self._quickest + noise
        most = max(map(number_of, self._timed))
        near = [timed for timed in self._timed if number_of(timed) * nearly >= most]
        return of_all(max(0.0, timed.seconds - least) / (number_of(timed) + 1) for timed in near)

    def shrunk(self, first: Workload, origin: Origin) -> Search[CheckResult]:
        """The smallest workload that fails like the first; with that ``origin`` if there is none.

        No check is begun that is expected to end after ``shrink_seconds`` from now.
        """
        self._deadline = self._clock() + self._shrink_seconds
        shown_by = self._shown_by(self.seen[first.uuid][1])
        start = shown_by if shown_by and self.fails_like(first)(shown_by) else first
        failing = shrunk(self._definition, start, self.fails_like(start))
        if failing is not first or failing.axes == smallest_axes(self._definition):
            origin = "shrunk"
        if origin == "shrunk" and self.out_of_time:
            origin = "unfinished"
        return self.result(failing, origin)

    def closest(self, closeness: Callable[[CheckResult], float]) -> Search[CheckResult]:
        """The passed workload with the highest ``closeness``, or the first."""
        passed = [case for case in self.seen.values() if not self._failed(case[1])]
        if not passed:
            return self.result(next(iter(self.seen.values()))[0], "unfinished")
        best = self.result(max(passed, key=lambda case: closeness(case[1]))[0], None)
        return replace(best, undecided=next(filter(self._has_failed, self.seen.values()), None))

    def _has_failed(self, case: tuple[Workload, CheckResult]) -> bool:
        return self._failed(case[1])

    def result(self, workload: Workload, origin: Origin | None) -> Search[CheckResult]:
        return Search(len(self.seen), *self.seen[workload.uuid], origin)


def search(
    definition: Definition,
    check: Callable[[Workload], CheckResult],
    *,
    failed: Callable[[CheckResult], bool],
    closeness: Callable[[CheckResult], float],
    alike: Callable[[CheckResult, CheckResult], bool] = lambda first, other: True,
    shown_by: Callable[[CheckResult], Workload | None] = lambda outcome: None,
    affordable: Callable[[Workload], bool] = lambda workload: True,
    slow: Callable[[Workload], bool] = lambda workload: False,
    undecided: Callable[[Workload, CheckResult], bool] = lambda workload, outcome: False,
    failed_before: Iterable[Workload] = (),
    listed: Iterable[Workload] = (),
    examples: int = 25,
    small: int = 0,
    numbers: Sequence[Number] = (),
    seed: int = 0,
    run_seed: int | None = None,
    max_bytes: int = 1 << 28,
    shrink_seconds: float = 20.0,
    clock: Callable[[], float] = monotonic,
) -> Search[CheckResult]:
    """Check workloads that ``failed_before``, those ``listed``, then ``examples`` drawn ones.

    Beside those, as many ``small`` ones are drawn, which cost little: what many random events have
    to meet for is seen in some of them. They are tried for up to ``SMALL_SECONDS``. And up to twice
    as many as ``examples`` have sizes or values at ``numbers``, those in the implementation's
    source.

    One that fails again is the answer, since it was shrunk when it failed first. Any other failure
    ends the search, and is shrunk for up to ``shrink_seconds``; no check is begun that is expected
    to take longer than what is left of them. The same ``seed`` and ``run_seed`` draw the same
    workloads in every process: the latter a fifth of them, or none where it is None.
    Shrinking takes only what fails ``alike``, given the first failure and another; it begins with
    the workload that an outcome is ``shown_by``, if that is another that fails. ``closeness`` ranks
    outcomes that passed: the highest came closest to failing.
    Drawn workloads that are not ``affordable`` by then are left out, those that are ``slow`` are
    halved until they aren't, and a failure of theirs that is ``undecided`` tells nothing, unless
    nothing else was tried. ``clock`` gives the seconds that checks and shrinking take.
    """
    checked = _Checked(
        definition, check, failed, alike, shown_by, shrink_seconds=shrink_seconds, clock=clock
    )
    if failing := next(filter(checked.fails, failed_before), None):
        return checked.result(failing, "failed before")
    if failing := next(filter(checked.fails, listed), None):
        return checked.shrunk(failing, "listed")
    drawn, small_ones = _drawn(
        definition, examples, small, numbers, seeds=(seed, run_seed), max_bytes=max_bytes
    )
    # The smallest is always tried: else perhaps none would be.
    passed_over: list[Workload] = []
    lowered: list[Workload] = []

    def is_kept(workload: Workload) -> bool:
        is_affordable = affordable(workload)
        if not is_affordable:
            passed_over.append(workload)
        return is_affordable

    quick = _quick(definition, checked.worthwhile(drawn[1:]), slow, lowered)
    in_time = checked.within(SMALL_SECONDS, small_ones)
    tried = chain(drawn[:1], in_time, filter(is_kept, quick))
    if failing := next(filter(partial(checked.fails_and_tells, undecided), tried), None):
        return checked.shrunk(failing, "shrunk")
    return replace(checked.closest(closeness), passed_over=passed_over, lowered=lowered)


def _quick(
    definition: Definition,
    drawn: Iterable[Workload],
    slow: Callable[[Workload], bool],
    lowered: list[Workload],
) -> Iterator[Workload]:
    """Workloads; instead of a slow one, a smaller one of the same regime, if one is not slow.

    Those that are slow are added to ``lowered``.
    """
    for workload in drawn:
        smaller: Workload | None = workload
        while smaller is not None and slow(smaller):
            smaller = halved(definition, smaller)
        if smaller is not workload:
            lowered.append(workload)
        if smaller is not None:
            yield smaller


def halved(definition: Definition, workload: Workload) -> Workload | None:
    """The workload with sizes as near to half as constraints allow; None if none is smaller."""
    axes = _halved(definition, workload.axes)
    return make_workload(definition, axes, workload.seed, workload.regime) if axes else None


def _halved(
    definition: Definition,
    axes: Mapping[str, int],
    which: Callable[[int], bool] = lambda n: True,
) -> dict[str, int] | None:
    """``which`` sizes as near to half as constraints allow; None if none is smaller."""
    wanted = {axis: max(n // 2, 1) if which(n) else n for axis, n in axes.items()}
    smaller = plan(definition).lowered(axes, {}, wanted)
    return None if smaller == axes else smaller


def _is_usual(size: int) -> bool:
    return size <= USUAL_SIZE


def _is_large(definition: Definition, axes: Mapping[str, int]) -> bool:
    """Whether an axis has more than the usual size, and nobody has asked for that."""
    return any(not _is_usual(n) and is_open(definition, axis) for axis, n in axes.items())


def _drawn(
    definition: Definition,
    examples: int,
    small: int,
    numbers: Sequence[Number] = (),
    *,
    seeds: tuple[int, int | None],
    max_bytes: int,
) -> tuple[list[Workload], list[Workload]]:
    """Drawn workloads, the smallest first, and those of more sequences than usual last; small ones.

    Which are drawn does not hang on verdicts. So what fails is found at the least expense, and
    there is less to shrink. The small ones are in no order: there may be time for some only, which
    must not be the smallest.
    """

    def cost(workload: Workload) -> tuple[bool, int]:
        of_many = plan(definition).has_many_sequences(workload.axes)
        return of_many, workload_bytes(definition, workload.axes)

    seed, run_seed = seeds
    least = workload_bytes(definition, smallest_axes(definition))
    few_bytes = min(max_bytes, max(SMALL_BYTES, SMALLEST_TIMES * least))
    deck = Deck(seed)
    of_the_run = None if run_seed is None else Deck(run_seed, UnforeseenSizes(), deck)

    def dealt(most_bytes: int, count: int) -> Iterator[Workload]:
        """The plainest of all, and as many after it as make up the count."""
        strategy = workloads(definition, most_bytes)
        unforeseen = 0 if of_the_run is None else -(-count // DRAWS_TO_ONE_OF_THE_RUN)
        yield from deal(strategy, count - unforeseen, deck)
        if of_the_run is not None:
            yield from deal(strategy, unforeseen + 1, of_the_run)[1:]

    drawn = [*dealt(max_bytes, examples)]
    drawn += workloads_at(definition, numbers, 2 * examples, seed, max_bytes)
    small_ones = [*dealt(few_bytes, small + 1)][1:] if small else []
    return sorted(drawn, key=cost), small_ones
