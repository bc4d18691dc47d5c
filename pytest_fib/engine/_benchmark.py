"""The second phase of an evaluation: timing the implementation beside the reference.

Both sides have many buffers of their own, so that a timed call finds none of its tensors in a
cache. They time blocks of calls in turn. Times that can't be true are refused. Before every round,
all calls get values that none has seen. The outputs of some rounds have to be right: those of each
round that is the shortest so far, of a few others, and of the last.

The device is held exclusively only while rounds run. Outputs are kept meanwhile, and checked later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from math import inf
from random import SystemRandom
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from pytest_fib.data import Performance
from pytest_fib.engine._cheat_checks import (
    check_judges_clock,
    check_memory_rate,
    check_reading,
    check_single_calls,
    check_stepped_calls,
    is_far_off,
    may_be_waits,
)
from pytest_fib.engine._context import GAP, EvaluationContext
from pytest_fib.engine._counts_cache import CountsCache, workload_key
from pytest_fib.engine._new_values import MIXED, NewValues
from pytest_fib.engine._timed_outputs import WHILE_TIMED, TimedOutputs, WrongOutputsError
from pytest_fib.engine._timed_side import IdleBlocks, TimedSide
from pytest_fib.sandbox import CountOperations, Done, Failed
from pytest_fib.timing import (
    GROUPS,
    LEAST_GROUPS,
    Ceilings,
    Clocks,
    Estimate,
    OperationCounts,
    Samples,
    Timings,
    calls_per_block,
    compute_dtype,
    is_slow,
    least_traffic,
    placements,
    random_place,
    roofline,
    time_both_sides,
    time_round,
)

if TYPE_CHECKING:
    from pytest_fib.sandbox import TimingCore
    from pytest_fib.verdict import Verdict

#: The most bytes of all buffers of one side, and of what is kept of rounds; on a device also as a
#: share of what is free there, since other workers need as much, and captured calls that return
#: tensors take it once more. There are two buffers at least, however large they are.
MOST_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30}
FREE_SHARE = 1 / 16
#: The share of rounds whose outputs are checked, beside the shortest and the last.
CHECKED_SHARE = 0.05
#: The most rounds that are checked if reading outputs seems slow.
MOST_CHECKS = 12
#: Seconds before all rounds are timed again, if what is wrong may be caused by other processes.
TIMING_PAUSES = (0.1, 0.5, 2.0)
#: The same for more tries, each like the last, if what is wrong may be waits for a core.
PAUSES_OF_WAITS = (1.0, 2.0, 2.0, 4.0)
#: For a rough time: calls in a block, and rounds of it, since other processes' work is in some.
#: One round is enough if a call takes this many nanoseconds.
ROUGH, ROUGH_ROUNDS, ROUGH_NS = 2, 5, 10e6
#: The largest share of the L2 cache that waits to be written back: 0.35 was seen on an H200.
LEFT_IN_CACHE = 0.5
#: Blocks are prepared again, at most so often, if they could have this many times the calls.
PREPARATIONS, LONGER = 3, 2
#: Rounds with one call in each block; and how often they are tried again if calls seem slow, as
#: other work of the device makes some longer.
SINGLE_ROUNDS, SINGLE_AGAIN = 5, 3
#: How many calls are made one by one on the CPU, if a call takes less than so many nanoseconds.
STEPS, STEPPED_BELOW_NS = 64, 100e3
#: How often they are, in turn with the reference's, if they seem slow the first time; and the
#: quantile of the turns that counts, since other work of the machine makes some longer.
STEPPED_AGAIN, QUANTILE = 16, 0.25
#: A reference whose blocks have more kernels has idle blocks beside it. To launch eight blocks of
#: 400 took up to 35 µs longer on an H100, 11 ns a kernel, so for fewer that is 3 µs of 100 at most.
MANY_KERNELS = 256
#: How many rounds of a slow reference are kept for implementations that are timed later.
ROUNDS_KEPT = 3
#: Nanoseconds of a single call: the candidate's, and the reference's.
SingleCalls: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class ReferenceFacts:
    """What timing one implementation tells of the reference, for those that are timed later.

    For one workload: the nanoseconds of a call, the least bytes that any implementation moves,
    whether inputs may be cleared before the outputs of timed calls are read, and, if it is slow,
    the nanoseconds of a call in its last rounds, of shape (rounds, groups).
    """

    call_ns: float
    least_bytes: int
    inputs_may_be_cleared: bool
    slow_samples: Samples | None = None


class BenchmarkPhase:
    """Times calls whose outputs are right; used once."""

    def __init__(
        self,
        context: EvaluationContext,
        core: TimingCore,
        ceilings: Callable[[], Ceilings],
        counts: CountsCache,
        known: dict[str, ReferenceFacts],
    ) -> None:
        self._context = context
        #: The facts of the reference, by workload.
        self._known = known
        self._workload = workload_key(context.request)
        self._lock = context.lock
        self._core = core
        self._ceilings = ceilings
        self._counts = counts
        self._device = context.device
        self._random = SystemRandom()
        reference_reply = partial(context.reference_reply, when=f" {WHILE_TIMED}")
        self._candidate = TimedSide(context, context.candidate, context.candidate_reply)
        self._reference = TimedSide(context, context.reference, reference_reply)
        self._sides = self._candidate, self._reference
        self._values: NewValues
        self._most_bytes = _most_bytes(context)
        self._outputs = TimedOutputs(
            context, self._candidate, self._reference, self._random, self._most_bytes
        )
        self._round_is_unchecked = False
        #: The sides whose usual blocks have several calls, which are also timed one by one.
        self._batched_sides: list[TimedSide] = []
        #: Whether the reference is timed in a few rounds only.
        self._reference_is_slow = False
        #: Whether idle blocks take turns: those of a slow reference, or of one with many kernels.
        self._idle_takes_turns = False
        self._idle = IdleBlocks(context.reference, context.request.timeout, reference_reply)
        #: Of the candidate's blocks; those of one call don't count.
        self._calls_per_block = 0
        self._held_ns = 0

    def outcome(self) -> tuple[Verdict, Performance | None]:
        """The verdict on the timed calls, and their times if they passed."""
        clocks = Clocks(self._device)
        try:
            with self._lock.shared():
                candidate_ns = self._candidate_rough_ns()
                operations = self._counts.get(self._context.request, self._count_operations)
                if self._workload not in self._known:
                    self._known[self._workload] = self._reference_facts(operations)
            reference = self._known[self._workload]
            self._outputs.inputs_are_cleared = reference.inputs_may_be_cleared
            timings, single_ns = self._timings(clocks, [candidate_ns, reference.call_ns])
            self._outputs.check_ranks()
        except WrongOutputsError as error:
            return error.verdict.qualified(self._outputs.circumstance), None
        facts = {"calls_per_block": self._calls_per_block, **clocks.facts()}
        if single_ns is not None:
            facts["single_call_ms"] = single_ns[0] / 1e6
        self._known[self._workload] = self._updated(reference, timings)
        seconds = timings.latency.value / 1e9
        facts |= self._roofline_metrics(seconds, operations, reference.least_bytes)
        return self._outputs.verdict, self._performance(timings, facts)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the device exclusively, and share one core with the sandboxes."""
        sandboxes = self._context.candidate.sandbox, self._context.reference.sandbox
        # Calls on the CPU need all cores.
        core = nullcontext() if self._device == "cpu" else self._core.shared_by(*sandboxes)
        with self._lock.exclusive(), core:
            start = perf_counter_ns()
            try:
                yield
            finally:
                self._held_ns += perf_counter_ns() - start

    # Getting ready.

    def _candidate_rough_ns(self) -> float:
        """The rough nanoseconds of a call of the candidate; both sides are loaded for it."""
        self._context.load_reference()
        self._allocate(ROUGH)
        sides = [self._candidate] if self._workload in self._known else self._sides
        self._ready([0], [ROUGH] * len(sides), sides)
        return _rough_ns(self._candidate)

    def _reference_facts(self, operations: OperationCounts | None) -> ReferenceFacts:
        """What the calls of a first, rough preparation tell of the reference."""
        call_ns = _rough_ns(self._reference)
        least_bytes = self._least_traffic(operations)
        return ReferenceFacts(call_ns, least_bytes, self._outputs.inputs_may_be_cleared())

    def _updated(self, facts: ReferenceFacts, timings: Timings) -> ReferenceFacts:
        """The facts with what these timings tell of the reference."""
        if not timings.paired:
            facts = replace(facts, slow_samples=timings.reference[:ROUNDS_KEPT])
        return replace(facts, call_ns=timings.reference_latency.value)

    @cached_property
    def _most_buffers(self) -> int:
        """How many buffers a side may have."""
        return max(2, self._most_bytes // (self._candidate.buffers.size + GAP))

    def _sizes(self, ns: Sequence[float]) -> list[int]:
        """How many calls a block of each side has, if a call takes ``ns``."""
        return calls_per_block(ns, self._device, max(self._most_buffers // GROUPS, 1))

    def _prepare(self, ns: Sequence[float]) -> None:
        """Prepare blocks, for calls of each side that take about ``ns``."""
        with self._lock.shared():
            self._prepare_blocks(ns)

    def _prepare_blocks(self, ns: Sequence[float]) -> None:
        sizes = self._sizes(ns)
        self._calls_per_block = sizes[0]
        blocks_ns = [each * size for each, size in zip(ns, sizes, strict=True)]
        # Idle blocks are captured: what takes longer beside calls that aren't is no cheat.
        is_captured = self._candidate.is_captured
        self._reference_is_slow = is_captured and is_slow(ns[0], ns[1], self._device)
        if self._reference_is_slow:
            blocks_ns[1] = blocks_ns[0]
        groups = placements(blocks_ns, self._device, self._most_buffers // max(sizes))
        self._allocate(groups * max(sizes))
        # Both, though only one is untrusted: once CUPTI has recorded, kernels take 2 % longer.
        self._ready([max(sizes) * number for number in range(groups)], sizes, check=True)
        self._idle_takes_turns = self._reference_is_slow or self._launches_much()
        if self._idle_takes_turns:
            self._idle.prepare(groups)
        self._values.fill_mixed()  # the calls have seen all values so far

    def _launches_much(self) -> bool:
        """Whether the reference's blocks have so many kernels that launching them would excuse."""
        is_captured = self._candidate.is_captured and self._reference.is_captured
        return is_captured and self._reference.kernels_per_block > MANY_KERNELS

    def _ready(
        self,
        groups: list[int],
        sizes: Sequence[int],
        sides: Sequence[TimedSide] | None = None,
        *,
        check: bool = False,
        cold: bool = True,
    ) -> None:
        """Prepare groups of calls, with ``sizes`` calls of these sides, or of both.

        Sides with a process each do so at the same time: capturing hundreds of calls takes longer
        than timing them, and nothing is timed meanwhile.
        """
        sides = sides or self._sides
        # The candidate must not know which of its calls the reference makes too.
        places = [partial(random_place, size, max(sizes), self._random) for size in sizes]
        prepare = [
            partial(
                side.prepare,
                [start + place() for start in groups[: self._most_groups(side)]],
                size,
                check=check,
                cold=cold,
            )
            for side, size, place in zip(sides, sizes, places, strict=True)
        ]
        if self._device != "cpu" and all(side.is_process for side in sides):
            with ThreadPoolExecutor(len(prepare)) as pool:
                replies = list(pool.map(lambda ask: ask(), prepare))
        else:
            replies = [ask() for ask in prepare]
        for side, reply in zip(sides, replies, strict=True):
            side.prepared(reply)

    def _most_groups(self, side: TimedSide) -> int:
        """How many groups of calls are prepared at most; of a slow reference, few."""
        is_slow_reference = self._reference_is_slow and side is self._reference
        return LEAST_GROUPS if is_slow_reference else GROUPS

    def _allocate(self, count: int) -> None:
        self._candidate.allocate(count)
        self._reference.allocate(count + MIXED)
        self._values = self._outputs.values = NewValues(
            self._context, self._candidate.buffers, self._reference.buffers
        )

    # Timing.

    def _timings(self, clocks: Clocks, ns: Sequence[float]) -> tuple[Timings, SingleCalls | None]:
        """Times that agree with the judge's clock; a call of each side takes about ``ns``."""
        for _ in range(PREPARATIONS):
            timings, single_ns = self._accounted_timings(clocks, ns)
            ns = [timings.latency.value, timings.reference_latency.value]
            # If the rough times are those of a first call, or false, blocks are too short.
            if not self._are_too_short(ns):
                break
        return timings, single_ns

    def _are_too_short(self, ns: Sequence[float]) -> bool:
        """Whether blocks should have more calls, if a call of each side takes ``ns``."""
        return self._sizes(ns)[0] > LONGER * self._calls_per_block

    def _accounted_timings(
        self, clocks: Clocks, ns: Sequence[float]
    ) -> tuple[Timings, SingleCalls | None]:
        """Times that agree with the judge's clock, in blocks for calls that take about ``ns``.

        Other processes may delay one side between its blocks. So what seems wrong is timed again,
        later; only once if it is wrong by far, and more often if it may be waits for a core.
        """
        pauses, pauses_of_waits = iter(TIMING_PAUSES), iter(PAUSES_OF_WAITS)
        single_ns = None
        self._prepare(ns)
        while True:
            pause = next(pauses, None)
            with self._alone():
                timings = self._time(clocks)
                wrong = self._wrong_by_the_judges_clock(timings, strictly=pause is not None)
                single_ns = None if wrong else self._single_calls_ns(timings)
                if single_ns is not None:
                    wrong = self._does_work_ahead(timings, single_ns)
            with self._lock.shared():
                self._outputs.check_kept()
            if not wrong:
                return timings, single_ns
            clocks_disagree = single_ns is None  # they agreed once calls were made by themselves
            if pause is None and clocks_disagree and self._may_be_waits(timings):
                pause = next(pauses_of_waits, None)
            if pause is None:
                self._context.refuse(wrong)
            if clocks_disagree and self._is_far_off(timings):
                pauses = iter(())
            sleep(pause)
            if single_ns is not None:
                self._prepare(ns)  # blocks of several calls, again

    @property
    def _is_captured_on_one_side(self) -> bool:
        """Whether the reference's calls are a graph, and the candidate's are not."""
        return self._reference.is_captured and not self._candidate.is_captured

    def _wrong_by_the_judges_clock(self, timings: Timings, *, strictly: bool) -> str:
        """Which of the times can't be true, or nothing.

        Between blocks that are launched one by one, the host takes time; in a graph it doesn't. So
        a graph of the reference can't be compared with them: their intervals contain that time.
        """
        if self._is_captured_on_one_side:
            return ""
        wrong = check_judges_clock(timings, self._left_in_cache_ns(), strictly=strictly)
        return wrong or self._reading_is_slow(timings)

    def _is_far_off(self, timings: Timings) -> bool:
        return is_far_off(timings, self._outputs.readings, len(self._candidate.called))

    def _may_be_waits(self, timings: Timings) -> bool:
        readings, calls = self._outputs.readings, len(self._candidate.called)
        return may_be_waits(timings, readings, calls, self._left_in_cache_ns())

    def _reading_is_slow(self, timings: Timings) -> str:
        if self._is_captured_on_one_side:
            return ""  # a graph stores the outputs of one side only
        return check_reading(self._outputs.readings, timings, len(self._candidate.called))

    def _time(self, clocks: Clocks) -> Timings:
        self._outputs.readings.clear()
        self._round_is_unchecked = False
        self._ceilings()  # measured now, if not before
        clocks.steady()  # later readings are compared with it
        timings = time_both_sides(
            self._candidate,
            self._reference,
            device=self._device,
            precision=self._context.request.precision,
            steady=clocks.steady,
            before_round=self._before_round,
            idle=self._idle if self._idle_takes_turns else None,
            is_slow=self._reference_is_slow,
            earlier=self._known[self._workload].slow_samples,
        )
        self._keep()
        # Other work may slow down reading one side's outputs, but not repeatedly.
        while self._reading_is_slow(timings) and len(self._outputs.readings) < MOST_CHECKS:
            self._run_round(self._sides)
            self._keep()
        return timings

    def _before_round(self, shortest: bool, only: int | None = None) -> None:
        """Maybe keep the last round, which the candidate can't know; then make new values.

        The shortest round is always kept: it shows what calls leave out of their times. New values
        are in all buffers, or in ``only`` one.
        """
        if self._round_is_unchecked and (shortest or self._random.random() < CHECKED_SHARE):
            self._keep()
        self._values.mix(only)
        self._reference.has_run = False
        self._round_is_unchecked = True

    def _keep(self) -> None:
        """Keep what the last round left. Raises WrongOutputsError."""
        self._round_is_unchecked = False
        self._outputs.keep()

    def _run_round(self, sides: Sequence[TimedSide], only: int | None = None) -> list[Samples]:
        self._before_round(shortest=False, only=only)
        return [time_round(side)[0] for side in sides]

    def _single_calls_ns(self, timings: Timings) -> SingleCalls | None:
        """How long a call of each side takes in a block of its own.

        None if all had one, or if blocks will have more calls. On the CPU, how long a call takes
        that can't know of others; None for long calls.
        """
        usual_ns = timings.latency.value, timings.reference_latency.value
        if self._calls_per_block == 1 or self._are_too_short(usual_ns):
            return None
        if self._device == "cpu":
            in_steps = self._candidate.is_process and usual_ns[0] < STEPPED_BELOW_NS
            return self._stepped_calls_ns(timings) if in_steps else None
        # The reference's calls may have blocks of their own already.
        self._batched_sides = [side for side in self._sides if side.calls_per_block > 1]
        return self._single_block_ns(usual_ns)

    def _single_block_ns(self, usual_ns: SingleCalls, *, cold: bool = True) -> SingleCalls:
        """As ``_single_calls_ns``, on CUDA.

        There is one block in a round, on one buffer. If there were several, the first could do the
        work of all.
        """
        sides, number = self._batched_sides, self._random.choice(self._candidate.groups)
        self._values.mix()  # reading has cleared the inputs
        self._ready([number], [1] * len(sides), sides, cold=cold)
        self._round_is_unchecked = False
        rounds = [self._run_round(sides, number) for _ in range(SINGLE_ROUNDS)]
        self._keep()
        single_ns = [float(np.median(samples)) for samples in zip(*rounds, strict=True)]
        return single_ns[0], single_ns[1] if len(sides) > 1 else usual_ns[1]

    def _stepped_calls_ns(self, timings: Timings) -> SingleCalls:
        """How long a call of each side takes if its inputs appear after the call before is done.

        In a block, calls can know the next ones. Both sides take turns with the judge on one core,
        so that neither finds its caches empty, nor waits for a core to wake up. Threads that need
        more cores have them in a second try, which has more turns: some moments are busier.
        """
        count = min(STEPS, self._candidate.buffers.count)
        self._ready([0], [count, count])
        sandboxes = self._context.candidate.sandbox, self._context.reference.sandbox
        with self._core.shared_by(*sandboxes):
            single_ns, reference_ns = self._one_by_one_ns(count)
        if _seems_to_work_ahead(timings, single_ns, reference_ns):
            single_ns, reference_ns = self._one_by_one_ns(count, STEPPED_AGAIN)
        return single_ns, reference_ns

    def _one_by_one_ns(self, count: int, times: int = 1) -> SingleCalls:
        """How long a call of each side takes one by one, less what a turn without a call does.

        All at the same moments: how long that is depends on what else the machine does.
        """
        taken = []
        for _ in range(times):
            values = self._values_of_steps(count)
            idle = self._reference.steps_ns(values, idle=True)
            taken.append([idle, *(side.steps_ns(values) for side in self._sides)])
            self._outputs.keep_outputs(self._outputs.inputs_to_check())
        idle_ns, *calls_ns = np.quantile(taken, QUANTILE, axis=(0, 2))
        return float(calls_ns[0] - idle_ns), float(calls_ns[1] - idle_ns)

    def _values_of_steps(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """New inputs of so many calls, in no buffer when steps begin; and room for outputs."""
        self._values.mix()
        self._round_is_unchecked = False
        reference = self._reference.buffers
        inputs = reference.inputs()[:count].clone()
        return inputs, inputs.new_empty(count, reference.outputs().shape[1])

    def _does_work_ahead(self, timings: Timings, single_ns: SingleCalls) -> str:
        """What is wrong if calls take less time among others than alone.

        A flush drops code from the cache as well, and a long kernel's takes a while to be loaded.
        So what seems wrong is timed again without a flush, more than once.
        """
        if self._device == "cpu":
            return _seems_to_work_ahead(timings, *single_ns)
        usual_ns = timings.latency.value, timings.reference_latency.value
        extra_ns = single_ns[1] - usual_ns[1]
        wrong = check_single_calls(single_ns[0], usual_ns[0], extra_ns)
        if not wrong:
            return ""
        for _ in range(SINGLE_AGAIN):
            warm_ns, reference_ns = self._single_block_ns(usual_ns, cold=False)
            extra_ns = reference_ns - usual_ns[1]
            if not check_single_calls(warm_ns, usual_ns[0], extra_ns, cold=False):
                return ""
        return wrong

    @property
    def _output_bytes(self) -> int:
        return self._candidate.buffers.size - self._candidate.buffers.inputs_size

    def _left_in_cache_ns(self) -> float:
        """How long writing back takes, at most, for what a round's blocks leave in the cache.

        It happens after each block, when the cache is flushed. The reference may have left less.
        """
        if self._device == "cpu":
            return 0.0
        ceilings, written = self._ceilings(), self._output_bytes * self._candidate.calls_per_block
        left = min(written, LEFT_IN_CACHE * ceilings.cache_bytes)
        return 1e9 * len(self._candidate.groups) * left / ceilings.bytes_per_second

    # The record.

    def _count_operations(self) -> OperationCounts | None:
        """The reference's operations on the workload; None if they can't be counted."""
        arguments = self._reference.buffers.first.arguments
        reply = self._context.ask_reference(CountOperations(arguments))
        if isinstance(reply, Failed):
            self._context.raise_if_lost(reply)
        return reply.counts if isinstance(reply, Done) else None

    def _least_traffic(self, counts: OperationCounts | None) -> int:
        """The bytes that any implementation has to move for these inputs."""
        context, tensors = self._context, self._reference.buffers.first
        names = zip(context.definition.inputs, counts.read_bytes, strict=True) if counts else ()
        return least_traffic(
            context.definition,
            context.request.workload.axes,
            context.reference.read(tensors.input_tensors),
            context.reference.read(tensors.outputs),
            {name: size for name, size in names if size is not None},
        )

    def _roofline_metrics(
        self, seconds: float, counts: OperationCounts | None, least_bytes: int
    ) -> dict[str, Any]:
        """Rates, and shares of the device's ceilings; unknown ones are left out.

        Ends the evaluation if memory is too slow for the time.
        """
        ceilings, calls = self._ceilings(), self._calls_per_block
        self._context.refuse_if(check_memory_rate(seconds, least_bytes, calls, ceilings))
        flops, separate = (counts.flops, counts.moved_bytes) if counts else (None, None)
        dtype = compute_dtype(self._context.definition)
        cold = self._device != "cpu"
        roof = roofline(least_bytes, flops, dtype, ceilings, seconds, cold=cold)
        metrics = {"least_bytes": least_bytes, "separate_bytes": separate, "flops": flops}
        metrics |= asdict(roof)
        return {key: value for key, value in metrics.items() if value is not None}

    def _performance(self, timings: Timings, facts: dict[str, Any]) -> Performance:
        side, samples = self._candidate, timings.candidate
        # The number of threads that both were given, not what the candidate claims.
        method = (self._reference if self._device == "cpu" else side).method
        return Performance.model_validate(
            {
                "latency_ms": timings.latency.value / 1e6,
                "reference_latency_ms": timings.reference_latency.value / 1e6,
                "speedup_factor": timings.speedup.value,
                "ci_ms": _interval(timings.latency, 1e6),
                "reference_ci_ms": _interval(timings.reference_latency, 1e6),
                "speedup_ci": _interval(timings.speedup),
                "comparison": timings.comparison,
                "noise_floor": timings.floor,
                "noisy": timings.noisy,
                "method": method,
                "reference_method": self._reference.method,
                "p10_ms": float(np.percentile(samples, 10)) / 1e6,
                "p90_ms": float(np.percentile(samples, 90)) / 1e6,
                "samples": samples.size,
                "placements": samples.shape[1],
                "reference_samples": timings.reference.size,
                "shared_samples": timings.shared * timings.reference.shape[1],
                "unaccounted": timings.accounting.unaccounted,
                "device_time_ms": timings.spent_ns / 1e6,
                "held_ms": self._held_ns / 1e6,
                **facts,
            }
        )


def _most_bytes(context: EvaluationContext) -> int:
    """The most bytes of one side's buffers, which replace those that it has, and of kept rounds."""
    if context.device == "cpu":
        return MOST_BYTES["cpu"]
    free, _ = torch.cuda.mem_get_info()
    arenas = sum(side.allocator.arena.size for side in (context.candidate, context.reference))
    return min(MOST_BYTES["cuda"], int(FREE_SHARE * (free + arenas)))


def _rough_ns(side: TimedSide) -> float:
    """The rough nanoseconds of a call in a prepared block.

    One round is enough for long calls, on the device or the host: other work is small beside them.
    """
    shortest_ns = inf
    for _ in range(ROUGH_ROUNDS):
        timed = side.run()
        shortest_ns = min(shortest_ns, *timed.samples_ns)
        if timed.wall_ns > ROUGH * ROUGH_NS:
            break
    return shortest_ns


def _seems_to_work_ahead(timings: Timings, single_ns: float, reference_ns: float) -> str:
    """What is wrong if a call of the candidate takes less time among others than one by one.

    Other work makes blocks longer, and hardly the turns that count. So the reference's blocks count
    as such turns do: else it would seem to take no longer one by one, where all calls do.
    """
    extra_ns = reference_ns - timings.undisturbed_reference_ns
    return check_stepped_calls(single_ns, timings.latency.value, extra_ns)


def _interval(estimate: Estimate, unit: float = 1.0) -> list[float]:
    return [estimate.low / unit, estimate.high / unit]
