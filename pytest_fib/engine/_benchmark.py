"""The second phase of an evaluation: timing the implementation beside the reference.

Both sides get buffers of their own, many, and time blocks of calls in turn: a timed call finds none
of its tensors in a cache. Times that can't be true are refused. Before every round all calls get
values that none has seen, and what some rounds leave has to be right: of those that are shorter
than all before them, of a few others, and of the last.

All that can be done beside others' work is: the device is held alone only while rounds run. What
these leave is kept then, and checked later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from math import inf, prod
from random import SystemRandom
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from pytest_fib.data import Performance
from pytest_fib.engine._cheat_checks import (
    Reading,
    check_blocks_ns,
    check_judges_clock,
    check_memory_rate,
    check_method,
    check_reading,
    check_samples_ns,
    check_single_calls,
    check_stepped_calls,
    check_steps,
    is_far_off,
    most_different,
)
from pytest_fib.engine._context import GAP, BufferPool, EvaluationContext, EvaluationEnded, Side
from pytest_fib.engine._correctness import SandboxCalls
from pytest_fib.engine._new_values import MIXED, Mixture, NewValues
from pytest_fib.engine._steps import steps
from pytest_fib.sandbox import (
    Blocks,
    Collect,
    CountOperations,
    Done,
    Failed,
    Prepare,
)
from pytest_fib.timing import (
    GROUPS,
    Ceilings,
    Clocks,
    Estimate,
    OperationCounts,
    Samples,
    TimedBlocks,
    Timings,
    calls_per_block,
    compute_dtype,
    copy_ns,
    least_traffic,
    placements,
    random_place,
    roofline,
    time_both_sides,
    time_round,
)
from pytest_fib.verdict import SamplingTest, is_seeded, judge_ranks, ranks

if TYPE_CHECKING:
    from pytest_fib.engine._context import CallTensors
    from pytest_fib.engine._counts_cache import CountsCache
    from pytest_fib.sandbox import Reply, TimingCore
    from pytest_fib.verdict import Verdict

#: What the buffers of one side may take in all, in bytes, and as a share of a device's memory; two
#: are made however large they are.
BUFFER_BYTES = {"cpu": 512 << 20, "cuda": 4 << 30}
BUFFER_SHARE = 1 / 8
#: The share of rounds whose outputs are checked, beside the shortest and the last.
CHECKED_SHARE = 0.05
#: How many rounds are checked where reading outputs seems slow.
MOST_CHECKS = 12
#: How many samples of a round are looked at, where an output is chosen at random.
SAMPLES = 32
#: The circumstance of failures in this phase.
WHILE_TIMED = "while it was timed"
#: The same of outputs: where they are wrong for that reason, they lie in the inputs, or did not
#: exist when the call returned.
CLEARED = ", and read once its inputs were cleared"
#: Bytes of what is kept of rounds until it is checked: else that is done while the device is held.
KEPT_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
#: Seconds until all rounds are timed again, where something is wrong that may be others' doing.
TIMING_PAUSES = (0.1, 0.5, 2.0)
#: Calls in a block that says roughly how long one takes, and rounds of it: others' work, which runs
#: at that time, is in some. One is enough where it takes so long, in nanoseconds.
ROUGH, ROUGH_ROUNDS, ROUGH_NS = 2, 5, 10e6
#: What of the L2 cache waits to be written back, at most: 0.35 was seen on an H200.
LEFT_IN_CACHE = 0.5
#: How often blocks are made anew, where they could have more than so many times the calls.
PREPARATIONS, LONGER = 3, 2
#: Rounds of blocks of one call.
SINGLE_ROUNDS = 5
#: How many calls are made one by one on the CPU, if one takes less than so many nanoseconds.
STEPS, STEPPED_BELOW_NS = 64, 100e3
#: Nanoseconds of a call that has no others beside it: the candidate's, and the reference's.
SingleCalls: TypeAlias = tuple[float, float]


class WrongOutputsError(Exception):
    """Timed calls left outputs that are wrong."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


@dataclass(frozen=True)
class KeptRound:
    """What a round's calls got, and what some left, by the numbers of their buffers, as words.

    ``inputs`` are those of fewer calls than ``outputs``.
    """

    mixture: Mixture
    inputs: dict[int, torch.Tensor]
    outputs: dict[int, torch.Tensor]

    @property
    def bytes(self) -> int:
        words = (*self.inputs.values(), *self.outputs.values())
        return self.mixture.bits.nbytes + sum(each.nbytes for each in words)


class TimedSide:
    """One side's prepared calls, asked through its sandbox. A BlockTimer.

    ``done`` ends the evaluation for replies that are failures.
    """

    buffers: BufferPool

    def __init__(
        self, context: EvaluationContext, side: Side, done: Callable[[Reply], Done]
    ) -> None:
        self._context = context
        self._side = side
        self._done = done
        self._timeout = context.request.timeout
        self.is_process = side.sandbox.is_process
        self.method = ""
        self.groups: tuple[int, ...] = ()
        self.calls_per_block = 0
        self.flush_ns = 0.0
        #: What the last round took by the judge's clock.
        self.wall_ns = 0.0

    @property
    def is_captured(self) -> bool:
        return self.method.startswith("cuda graph")

    @property
    def called(self) -> list[int]:
        """The buffers that a round's calls work on."""
        return [group + i for group in self.groups for i in range(self.calls_per_block)]

    def allocate(self, count: int) -> None:
        """Get memory for so many calls, in place of what there was."""
        self.buffers = self._context.buffers(self._side, count)

    def prepare(self, groups: list[int], size: int, *, check: bool) -> Reply:
        """Have the sandbox get groups of ``size`` calls ready; its reply is for ``prepared``."""
        self.groups, self.calls_per_block = tuple(groups), size
        tensors, stride = self.buffers.first, self.buffers.stride
        outputs = tuple(tensors.outputs.values())
        request = Prepare(tensors.arguments, outputs, stride, self.groups, size, check)
        return self._side.sandbox.ask(request, self._timeout)

    def prepared(self, reply: Reply) -> None:
        """Take the answer to that; ends the evaluation where it is none."""
        done, device = self._done(reply), self._context.device
        self._context.refuse_if(check_method(done.method, device))
        self.method = done.method + ("" if device == "cpu" else ", cold L2")
        self.flush_ns = done.flush_ns

    def run(self) -> TimedBlocks:
        done = self._ask(Blocks())
        samples, longest_ns = done.samples_ns, self._timeout * 1e9
        self._context.refuse_if(check_samples_ns(samples, longest_ns, len(self.groups)))
        claimed_ns = sum(samples) * self.calls_per_block
        wrong = check_blocks_ns(done.blocks_ns, claimed_ns, longest_ns, self.method)
        self._context.refuse_if(wrong)
        self.wall_ns = self._side.sandbox.ran_ns
        return TimedBlocks(samples, done.blocks_ns, self.wall_ns)

    def collect(self) -> float:
        """Have the outputs of the round's calls stored; nanoseconds that it took."""
        self._ask(Collect())
        return self._side.sandbox.ran_ns

    def step_ns(self, values: tuple[torch.Tensor, torch.Tensor], *, idle: bool = False) -> float:
        """How long a turn takes in which one of the prepared calls is made, as in ``steps``."""
        made = steps(self._side.sandbox, self.buffers, values, self._timeout, idle=idle)
        self._done(made.reply)
        self._context.refuse_if(check_steps(len(made.turns_ns), len(values[0])))
        return made.usual_ns

    def _ask(self, request: Blocks | Collect) -> Done:
        return self._done(self._side.sandbox.ask(request, self._timeout))


class BenchmarkPhase:
    """Times calls whose outputs were found right; used once."""

    def __init__(
        self,
        context: EvaluationContext,
        core: TimingCore,
        ceilings: Callable[[], Ceilings],
        counts: CountsCache,
    ) -> None:
        self._context = context
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
        self._verdict: Verdict
        self._kept: list[KeptRound] = []
        #: Of samples that timed calls chose, by the output.
        self._ranks: dict[str, list[torch.Tensor]] = {}
        self._readings: list[Reading] = []
        self._round_is_unchecked = False
        #: Whether calls' inputs are gone when outputs are read.
        self._inputs_are_cleared = False
        #: Of the candidate's blocks, but where each call has a block for itself.
        self._calls_per_block = 0
        self._held_ns = 0

    def outcome(self) -> tuple[Verdict, Performance | None]:
        """The verdict on the timed calls, and their times where it is good."""
        clocks = Clocks(self._device)
        try:
            with self._lock.shared():
                rough_ns = self._rough_ns()
                operations = self._counts.get(self._context.request, self._count_operations)
                least_bytes = self._least_traffic(operations)
                self._inputs_are_cleared = not self._returns_its_inputs()
            timings, single_ns = self._timings(clocks, rough_ns)
            self._check_ranks()
        except WrongOutputsError as error:
            when = WHILE_TIMED + CLEARED * (self._inputs_are_cleared and not self._is_destination)
            return error.verdict.qualified(when), None
        facts = {"calls_per_block": self._calls_per_block, **clocks.facts()}
        if single_ns is not None:
            facts["single_call_ms"] = single_ns[0] / 1e6
        facts |= self._roofline_metrics(timings.latency.value / 1e9, operations, least_bytes)
        return self._verdict, self._performance(timings, facts)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """With the device, and on one core with the sandboxes."""
        sandboxes = self._context.candidate.sandbox, self._context.reference.sandbox
        # Calls on the CPU need all cores.
        core = nullcontext() if self._device == "cpu" else self._core.shared_by(*sandboxes)
        with self._lock.exclusive(), core:
            start = perf_counter_ns()
            try:
                yield
            finally:
                self._held_ns += perf_counter_ns() - start

    @property
    def _is_destination(self) -> bool:
        return self._context.request.solution.spec.calling == "destination"

    # Getting ready.

    def _rough_ns(self) -> list[float]:
        """About how long a call of each side takes."""
        self._context.load_reference()
        self._allocate(ROUGH)
        self._ready([0], (ROUGH, ROUGH))
        return [_rough_ns(side) for side in self._sides]

    def _returns_its_inputs(self) -> bool:
        """Whether outputs of the reference lie in its inputs: then they change with these."""
        buffers = self._reference.buffers
        self._reference.collect()
        before = buffers.outputs().clone()
        buffers.inputs().zero_()
        self._context.synchronize()
        self._reference.collect()
        return not buffers.outputs().equal(before)

    @cached_property
    def _most_buffers(self) -> int:
        """How many buffers a side may have."""
        most = BUFFER_BYTES[self._device]
        if self._device != "cpu":
            most = min(most, int(BUFFER_SHARE * torch.cuda.mem_get_info()[1]))
        return max(2, most // (self._candidate.buffers.size + GAP))

    def _sizes(self, ns: Sequence[float]) -> list[int]:
        """How many calls a block of each side has, where one takes so long."""
        return calls_per_block(ns, self._device, max(self._most_buffers // GROUPS, 1))

    def _prepare(self, ns: Sequence[float]) -> None:
        """Get blocks ready, where a call of each side takes about so long."""
        with self._lock.shared():
            self._prepare_blocks(ns)

    def _prepare_blocks(self, ns: Sequence[float]) -> None:
        sizes = self._sizes(ns)
        self._calls_per_block = sizes[0]
        blocks_ns = [each * size for each, size in zip(ns, sizes, strict=True)]
        groups = placements(blocks_ns, self._device, self._most_buffers // max(sizes))
        self._allocate(groups * max(sizes))
        # Both, though only one is untrusted: once CUPTI has recorded, kernels take 2 % longer.
        self._ready([max(sizes) * number for number in range(groups)], sizes, check=True)
        self._values.fill_mixed()  # what the calls have seen until here is of no use any more

    def _ready(
        self,
        groups: list[int],
        sizes: Sequence[int],
        sides: Sequence[TimedSide] | None = None,
        *,
        check: bool = False,
    ) -> None:
        """Get groups of calls ready, of so many calls of each of these sides, or of both.

        At the same time where each has a process: capturing hundreds of calls takes the host more
        time than timing them, and nothing is timed then.
        """
        sides = sides or self._sides
        # Nobody is to know which calls of the candidate the reference makes as well.
        places = [partial(random_place, size, max(sizes), self._random) for size in sizes]
        prepare = [
            partial(side.prepare, [start + place() for start in groups], size, check=check)
            for side, size, place in zip(sides, sizes, places, strict=True)
        ]
        if self._device != "cpu" and all(side.is_process for side in sides):
            with ThreadPoolExecutor(len(prepare)) as pool:
                replies = list(pool.map(lambda ask: ask(), prepare))
        else:
            replies = [ask() for ask in prepare]
        for side, reply in zip(sides, replies, strict=True):
            side.prepared(reply)

    def _allocate(self, count: int) -> None:
        self._candidate.allocate(count)
        self._reference.allocate(count + MIXED)
        self._values = NewValues(self._context, self._candidate.buffers, self._reference.buffers)

    # Timing.

    def _timings(self, clocks: Clocks, ns: Sequence[float]) -> tuple[Timings, SingleCalls | None]:
        """Times that hold by the judge's clock, where a call of each side takes about so long."""
        for _ in range(PREPARATIONS):
            timings, single_ns = self._accounted_timings(clocks, ns)
            ns = [timings.latency.value, timings.reference_latency.value]
            # The rough times may be those of a first call, or false: then blocks are too short.
            if not self._are_too_short(ns):
                break
        return timings, single_ns

    def _are_too_short(self, ns: Sequence[float]) -> bool:
        """Whether blocks should have more calls, if a call of each side takes so long."""
        return self._sizes(ns)[0] > LONGER * self._calls_per_block

    def _accounted_timings(
        self, clocks: Clocks, ns: Sequence[float]
    ) -> tuple[Timings, SingleCalls | None]:
        """Times that hold by the judge's clock, in blocks made for calls that take about so long.

        Others that use the machine may keep one side from running between its blocks, so what seems
        wrong is timed again, later; what is wrong by far, but once.
        """
        pauses = iter(TIMING_PAUSES)
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
                self._check_kept()
            if not wrong:
                return timings, single_ns
            if pause is None:
                self._context.refuse(wrong)
            # Once calls were made by themselves, the clocks agreed.
            if single_ns is None and is_far_off(
                timings, self._readings, len(self._candidate.called)
            ):
                pauses = iter(())
            sleep(pause)
            if single_ns is not None:
                self._prepare(ns)  # blocks of several calls, again

    @property
    def _is_captured_on_one_side(self) -> bool:
        """Whether the reference's calls are a graph, and the candidate's are not."""
        return self._reference.is_captured and not self._candidate.is_captured

    def _wrong_by_the_judges_clock(self, timings: Timings, *, strictly: bool) -> str:
        """What of the times can't be true.

        Blocks that are launched one by one take the host time between them, which a graph does not.
        So a graph of the reference says nothing about them: their intervals contain all that time.
        """
        if self._is_captured_on_one_side:
            return ""
        wrong = check_judges_clock(timings, self._left_in_cache_ns(), strictly=strictly)
        return wrong or self._reading_is_slow(timings)

    def _reading_is_slow(self, timings: Timings) -> str:
        if self._is_captured_on_one_side:
            return ""  # a graph stores the outputs of one side only
        return check_reading(self._readings, timings, len(self._candidate.called))

    def _time(self, clocks: Clocks) -> Timings:
        self._readings.clear()
        self._round_is_unchecked = False
        self._ceilings()  # measured now, if they never were
        clocks.steady()  # what later readings are compared with
        timings = time_both_sides(
            self._candidate,
            self._reference,
            device=self._device,
            precision=self._context.request.precision,
            steady=clocks.steady,
            before_round=self._before_round,
        )
        self._keep()
        # Other work may have made reading one side's outputs slow, but not again and again.
        while self._reading_is_slow(timings) and len(self._readings) < MOST_CHECKS:
            self._run_round(self._sides)
            self._keep()
        return timings

    def _before_round(self, shortest: bool) -> None:
        """Keep what the round before left, or don't: nobody knows that while it runs.

        Then, new values. The shortest says what calls leave out of their times, so it must have
        done the work.
        """
        if self._round_is_unchecked and (shortest or self._random.random() < CHECKED_SHARE):
            self._keep()
        self._values.mix()
        self._round_is_unchecked = True

    def _run_round(self, sides: Sequence[TimedSide]) -> list[Samples]:
        self._before_round(shortest=False)
        return [time_round(side)[0] for side in sides]

    def _single_calls_ns(self, timings: Timings) -> SingleCalls | None:
        """How long a call of each side takes that has a block for itself.

        None where all had, and where blocks will have more calls. On the CPU, how long one takes
        that can know of no other; None where they are long.
        """
        usual_ns = timings.latency.value, timings.reference_latency.value
        if self._calls_per_block == 1 or self._are_too_short(usual_ns):
            return None
        if self._device == "cpu":
            in_steps = self._candidate.is_process and usual_ns[0] < STEPPED_BELOW_NS
            return self._stepped_calls_ns(usual_ns) if in_steps else None
        # The reference's calls may have blocks for themselves already.
        sides = [side for side in self._sides if side.calls_per_block > 1]
        self._values.mix()  # what was read has no inputs any more
        self._ready(list(self._candidate.groups), [1] * len(sides), sides)
        self._round_is_unchecked = False
        rounds = [self._run_round(sides) for _ in range(SINGLE_ROUNDS)]
        self._keep()
        single_ns = [float(np.median(samples)) for samples in zip(*rounds, strict=True)]
        return single_ns[0], single_ns[1] if len(sides) > 1 else usual_ns[1]

    def _stepped_calls_ns(self, usual_ns: SingleCalls) -> SingleCalls:
        """How long a call of each side takes where its inputs appear once the one before is done.

        In a block, calls know those that come. Both sides take turns with the judge on one core, so
        that neither finds its caches empty, nor waits for a core to wake up. If threads want more
        cores, they have them in a second try.
        """
        count = min(STEPS, self._candidate.buffers.count)
        self._ready([0], [count, count])
        sandboxes = self._context.candidate.sandbox, self._context.reference.sandbox
        with self._core.shared_by(*sandboxes):
            values = self._values_of_steps(count)
            idle_ns = self._reference.step_ns(values, idle=True)
            single_ns, reference_ns = (side.step_ns(values) - idle_ns for side in self._sides)
        if check_stepped_calls(single_ns, usual_ns[0], reference_ns - usual_ns[1]):
            values = self._values_of_steps(count)
            again_ns, _ = (side.step_ns(values) - idle_ns for side in self._sides)
            single_ns = min(single_ns, again_ns)
        self._keep_outputs(self._inputs_to_check())
        return single_ns, reference_ns

    def _values_of_steps(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """New inputs of so many calls, none in a buffer when steps begin; and room for outputs."""
        self._values.mix()
        self._round_is_unchecked = False
        reference = self._reference.buffers
        inputs = reference.inputs()[:count].clone()
        return inputs, inputs.new_empty(count, reference.outputs().shape[1])

    def _does_work_ahead(self, timings: Timings, single_ns: SingleCalls) -> str:
        """What is wrong where calls take less beside others than by themselves."""
        usual_ns = timings.latency.value, timings.reference_latency.value
        check = check_stepped_calls if self._device == "cpu" else check_single_calls
        return check(single_ns[0], usual_ns[0], single_ns[1] - usual_ns[1])

    # What timed calls left.

    def _keep(self) -> None:
        """Keep what some calls of the last round got and left. Raises WrongOutputsError."""
        self._round_is_unchecked = False
        candidate, reference = self._candidate.buffers, self._reference.buffers
        inputs = self._inputs_to_check()
        if self._inputs_are_cleared:
            for pool in (candidate, reference):  # both, so that caches hold as little of either
                pool.inputs()[: candidate.count].zero_()
            self._context.synchronize()
        self._readings.append(self._read_outputs())
        self._keep_outputs(inputs)

    def _inputs_to_check(self) -> dict[int, torch.Tensor]:
        """What some calls got, by the numbers of their buffers."""
        inputs = self._candidate.buffers.inputs()
        return {number: inputs[number].clone() for number in self._numbers_to_check()}

    def _keep_outputs(self, inputs: dict[int, torch.Tensor]) -> None:
        """Keep what those calls left, and those whose outputs seem wrong."""
        left = self._candidate.buffers.outputs()
        numbers = {*inputs} | self._numbers_of_wrong_outputs()
        outputs = {number: left[number].clone() for number in numbers}
        self._kept.append(KeptRound(self._values.mixture, inputs, outputs))
        if sum(each.bytes for each in self._kept) > KEPT_BYTES[self._device]:
            self._check_kept()

    def _read_outputs(self) -> Reading:
        """Have both sides store what their calls returned.

        The outputs of ``destination`` calls are there; who still works on them gets no time for it.
        """
        wall_ns, reference_ns = self._candidate.wall_ns, self._reference.collect()
        if self._is_destination:
            return Reading(wall_ns, 0.0)
        return Reading(wall_ns, self._candidate.collect() - self._usual_reading_ns(reference_ns))

    def _check_kept(self) -> None:
        """Check what was kept. Raises WrongOutputsError."""
        for kept_round in self._kept:
            # First those whose inputs are known: what was written there spoils outputs, too.
            for number in sorted(kept_round.outputs, key=lambda n: n not in kept_round.inputs):
                self._check_buffer(kept_round, number)
        self._kept.clear()

    def _check_buffer(self, kept_round: KeptRound, number: int) -> None:
        candidate, reference = self._candidate.buffers, self._reference.buffers
        self._values.restore(number, kept_round.mixture)
        inputs = kept_round.inputs.get(number, reference.inputs()[number])
        candidate.inputs()[number].copy_(inputs)
        candidate.outputs()[number].copy_(kept_round.outputs[number])
        tensors = candidate.at(number), reference.at(number)
        try:
            self._verdict = SandboxCalls(self._context, *tensors).check_buffer()
        except EvaluationEnded as ended:
            raise ended.qualified(WHILE_TIMED) from None
        if not self._verdict.passed:
            raise WrongOutputsError(self._verdict)
        self._add_ranks(*tensors)

    def _add_ranks(self, candidate: CallTensors, reference: CallTensors) -> None:
        """Note where samples of a call lie in their distributions."""
        context, names = self._context, self._sampled_outputs
        if names:
            inputs = {**context.reference.read(reference.input_tensors), **context.scalars}
            test = SamplingTest.of(inputs)
            for name, output in context.candidate.read(candidate.outputs).items():
                if name in names:
                    self._ranks.setdefault(name, []).append(ranks(output, test).cpu())

    def _check_ranks(self) -> None:
        """Against random choices that are not so random once they are timed."""
        for name, places in self._ranks.items():
            verdict = judge_ranks(self._verdict, name, torch.cat(places, 1))
            if not verdict.passed:
                raise WrongOutputsError(verdict)

    @cached_property
    def _sampled_outputs(self) -> list[str]:
        """Those of which each row is a sample by itself."""
        definition = self._context.definition
        sampled = [name for name in definition.outputs if definition.is_sampled(name)]
        one_dim = [name for name in sampled if len(self._context.layouts[name].shape) == 1]
        return [] if is_seeded(definition) else one_dim

    def _usual_reading_ns(self, reference_ns: float) -> float:
        """How long storing what the candidate's calls returned should take, if the reference's did.

        Of captured calls it is a few launches, and as many copies more as there are calls more.
        """
        calls, reference_calls = (len(side.called) for side in self._sides)
        if not all(side.is_captured for side in self._sides):
            return reference_ns * calls / reference_calls
        return reference_ns + (calls - reference_calls) * self._copy_ns

    @cached_property
    def _copy_ns(self) -> float:
        """How long it takes to store the outputs of a captured call more."""
        names = self._context.definition.outputs
        layouts = [self._context.layouts[name] for name in names]
        sizes = [(prod(layout.shape), layout.dtype) for layout in layouts]
        return copy_ns(sizes, len(self._candidate.called))

    @property
    def _output_bytes(self) -> int:
        return self._candidate.buffers.size - self._candidate.buffers.inputs_size

    def _left_in_cache_ns(self) -> float:
        """How long it takes to write back what a round's blocks leave in the cache at most.

        That is after each, when the cache is flushed. The reference may have left less.
        """
        if self._device == "cpu":
            return 0.0
        ceilings, written = self._ceilings(), self._output_bytes * self._candidate.calls_per_block
        left = min(written, LEFT_IN_CACHE * ceilings.cache_bytes)
        return 1e9 * len(self._candidate.groups) * left / ceilings.bytes_per_second

    def _numbers_to_check(self) -> set[int]:
        """The one whose inputs are not as they should be, and one at random; of samples, enough.

        That is one which the reference did not make, as its blocks have fewer calls where these
        take longer; else any, since one call may be far off to draw looks from others.
        """
        called = {*self._candidate.called}
        inputs = [side.buffers.inputs().view(torch.int16) for side in self._sides]
        unseen = called - ({*self._reference.called} if self._compared_outputs else set())
        among = sorted(unseen or called)
        rows = [self._context.layouts[name].shape[0] for name in self._sampled_outputs]
        number = -(-SAMPLES // max(1, min(rows, default=SAMPLES)))
        at_random = self._random.sample(among, min(number, len(among)))
        return {*at_random, *self._furthest(called, *inputs)}

    def _numbers_of_wrong_outputs(self) -> set[int]:
        """Those whose outputs are the furthest from what the reference left."""
        both = {*self._candidate.called} & {*self._reference.called}
        return {
            number
            for name in self._compared_outputs
            for number in self._furthest(
                both, *(side.buffers.outputs_named(name) for side in self._sides)
            )
        }

    @cached_property
    def _compared_outputs(self) -> list[str]:
        """The outputs that are the same on both sides, but for rounding."""
        definition = self._context.definition
        return [name for name in definition.outputs if not definition.is_sampled(name)]

    def _furthest(self, among: set[int], one: torch.Tensor, other: torch.Tensor) -> list[int]:
        """The call for which the sides differ most; none where they don't."""
        number = most_different(one, other, sorted(among), self._random) if among else None
        return [] if number is None else [number]

    # The record.

    def _count_operations(self) -> OperationCounts | None:
        """What the reference does on the workload; None where that can't be counted."""
        arguments = self._reference.buffers.first.arguments
        reply = self._context.ask_reference(CountOperations(arguments))
        if isinstance(reply, Failed):
            self._context.raise_if_lost(reply)
        return reply.counts if isinstance(reply, Done) else None

    def _least_traffic(self, counts: OperationCounts | None) -> int:
        """Bytes that have to be moved for these inputs, whatever computes it."""
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
        """Rates, and shares of the device's ceilings; what isn't known is left out.

        Ends the evaluation where memory doesn't allow the time.
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
        # Of threads, what both have been given, not what the candidate says of itself.
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
                "unaccounted": timings.accounting.unaccounted,
                "device_time_ms": timings.spent_ns / 1e6,
                "held_ms": self._held_ns / 1e6,
                **facts,
            }
        )


def _rough_ns(side: TimedSide) -> float:
    """About how long a call of a prepared block takes.

    Of one that takes long, on the device or on the host, others' work is little.
    """
    shortest_ns = inf
    for _ in range(ROUGH_ROUNDS):
        timed = side.run()
        shortest_ns = min(shortest_ns, *timed.samples_ns)
        if timed.wall_ns > ROUGH * ROUGH_NS:
            break
    return shortest_ns


def _interval(estimate: Estimate, unit: float = 1.0) -> list[float]:
    return [estimate.low / unit, estimate.high / unit]
