"""The second phase of an evaluation: timing the implementation beside the reference.

Both sides get buffers of their own, many, and time blocks of calls in turn: a timed call finds none
of its tensors in a cache. Times that can't be true are refused. A last round on values and outputs
that no call has seen decides whether the timed calls did the work: it must be right, and as fast as
the rounds before it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import SystemRandom
from statistics import median
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from pytest_fib.data import Performance
from pytest_fib.engine._cheat_checks import (
    DISTINCT,
    FALSE_TIMES,
    by_both_clocks,
    calls_that_differ,
    check_collecting,
    check_flush_ns,
    check_judges_clock,
    check_memory_rate,
    check_method,
    check_new_values,
    check_samples_ns,
    draw_contents,
)
from pytest_fib.engine._context import GAP
from pytest_fib.engine._correctness import SandboxCalls
from pytest_fib.sandbox import Blocks, Collect, CountOperations, Done, Failed, Prepare
from pytest_fib.timing import (
    GROUPS,
    Clocks,
    calls_per_block,
    compute_dtype,
    flush_ns,
    l2_bytes,
    least_traffic,
    placements,
    roofline,
    time_both_sides,
    time_rounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_fib.engine._context import BufferPool, EvaluationContext, Side
    from pytest_fib.sandbox import Reply
    from pytest_fib.timing import Ceilings, Estimate, OperationCounts, Timings, Turn
    from pytest_fib.verdict import Verdict

#: What the buffers of one side may take in all, in bytes, and as a share of a device's memory; two
#: are made however large they are.
MOST_BYTES = {"cpu": 512 << 20, "cuda": 8 << 30}
MOST_SHARE = 1 / 8
#: Groups of timed calls whose outputs are checked, and calls in them; at least.
CHECKED, CHECKED_CALLS = 2, 16
#: Launches of hot blocks.
HOT_ROUNDS = 3
#: What disagrees once may be the machine's doing; and how often all rounds are timed again.
ATTEMPTS, MEASUREMENTS = 5, 3
#: Seconds until it is done again where the reference's times disagree too.
PAUSES = (0.1, 0.5, 2.0, 4.0)
UNTIMED = "can't be timed, nor can the reference, while something else keeps the device busy"
#: Calls in a block that tells roughly how long one takes; how many of them it takes on the CPU, in
#: nanoseconds by their own account; and how long that may take by the judge's clock.
ROUGH, ROUGH_NS, LONGEST_ROUGH_NS = 2, 1e6, 50e6
#: What references were counted to do, by a definition's name and reference, and a workload's uuid;
#: None, where that can't be counted. It is the same for every implementation.
Counts: TypeAlias = "dict[tuple[str, str, str], OperationCounts | None]"


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
        self.size = 0
        self.repeat = 1
        self.flush_ns = 0.0

    @property
    def calls_per_block(self) -> int:
        """How many calls a block is."""
        return self.size * self.repeat

    @property
    def called(self) -> list[int]:
        """The buffers that a round's calls work on."""
        return [group + i for group in self.groups for i in range(self.size)]

    def allocate(self, count: int) -> None:
        """Get memory for so many calls, in place of what there was."""
        self.buffers = self._context.buffers(self._side, count)

    def prepare(self, groups: list[int], size: int, repeat: int, *, check: bool) -> Reply:
        """Have the sandbox get groups of ``size`` calls ready; its reply is for ``prepared``."""
        self.groups, self.size, self.repeat = tuple(groups), size, repeat
        return self._prepare(repeat, check=check)

    def _prepare(self, repeat: int, *, check: bool = False) -> Reply:
        tensors, stride = self.buffers.first, self.buffers.stride
        arguments, outputs = tensors.arguments, tuple(tensors.outputs.values())
        request = Prepare(arguments, outputs, stride, self.groups, self.size, repeat, check)
        return self._side.sandbox.ask(request, self._timeout)

    def prepared(self, reply: Reply) -> None:
        """Take the answer to that; ends the evaluation where it is none."""
        done, device = self._done(reply), self._context.device
        # How its times are held against the judge's clock hangs on this word of the sandbox.
        self._context.refuse_if(check_method(done.method, device))
        self._context.refuse_if(check_flush_ns(done.flush_ns))
        self.method = done.method + ("" if device == "cpu" else ", cold L2")
        self.flush_ns = done.flush_ns

    def call_once(self) -> None:
        """Where blocks repeat calls, have them call once until ``repeat_calls``."""
        if self.repeat > 1:
            self._done(self._prepare(1))

    def repeat_calls(self) -> None:
        """Have blocks repeat calls as they did."""
        if self.repeat > 1:
            self._done(self._prepare(self.repeat))

    def run(self, rounds: int) -> tuple[float, ...]:
        """Time a block of each group: nanoseconds of one call in each."""
        return self._samples(Blocks(rounds), rounds * len(self.groups))

    def hot(self, rounds: int) -> tuple[float, ...]:
        """Time blocks of one call again and again: nanoseconds of a call in each."""
        return self._samples(Blocks(rounds, hot=True))

    def _samples(self, request: Blocks, blocks: int | None = None) -> tuple[float, ...]:
        samples = self.ask(request).samples_ns
        self._context.refuse_if(check_samples_ns(samples, self._timeout * 1e9, blocks))
        return samples

    def ask(self, request: Blocks | Collect) -> Done:
        """The sandbox's answer; ends the evaluation where there is none."""
        return self._done(self._side.sandbox.ask(request, self._timeout))


class Benchmark:
    """Times calls whose outputs were found right; used once, with the device to itself."""

    def __init__(
        self, context: EvaluationContext, ceilings: Callable[[], Ceilings], counts: Counts
    ) -> None:
        self._context = context
        self._ceilings = ceilings
        self._counts = counts
        self._device = context.device
        self._random = SystemRandom()
        reference_reply = partial(context.reference_reply, when=" while it was timed")
        self._candidate = TimedSide(context, context.candidate, context.candidate_reply)
        self._reference = TimedSide(context, context.reference, reference_reply)
        self._contents: list[int] = []  # which of the distinct values each buffer has

    def outcome(self) -> tuple[Verdict, Performance | None]:
        """The verdict on the timed calls, and their times where it is good."""
        clocks = Clocks(self._device)
        self._prepare()
        clocks.steady()  # what later readings are compared with
        for _ in range(MEASUREMENTS):
            timings = self._timings(clocks)
            facts = {"hot_latency_ms": self._hot_latency_ms(), **clocks.facts()}
            verdict, wrong = self._on_new_values(timings.latency.value)
            if not verdict.passed or not wrong:
                break
        else:
            self._context.refuse(wrong)
        if not verdict.passed:
            return verdict.qualified("while it was timed"), None
        return verdict, self._performance(timings, facts)

    # Getting ready.

    def _prepare(self) -> None:
        """Find out how many calls make a block, then get those ready."""
        sides = (self._candidate, self._reference)
        self._allocate(ROUGH)
        self._ready([0], (ROUGH, ROUGH), (1, 1))
        rough = [self._rough_ns(side) for side in sides]
        most, many = _most_buffers(sides[0].buffers.size, self._device), self._device != "cpu"
        calls = calls_per_block(rough, self._device, max(most // GROUPS, 1) if many else None)
        # On the CPU a block is one call again and again, so caches are warm and buffers are few.
        sizes, repeats = (calls, [1, 1]) if many else ([1, 1], calls)
        blocks = [duration * number for duration, number in zip(rough, calls, strict=True)]
        groups = placements(blocks, self._device, most // max(sizes))
        # Single calls lie at odd distances, so that there are some on each of the distinct values.
        spacing = max(sizes) | (min(sizes) == 1)
        self._allocate(groups * spacing)
        # Both, though only one is untrusted: once CUPTI has recorded, kernels take 2 % longer.
        self._ready([spacing * n for n in range(groups)], sizes, repeats, check=True)
        self._fill()  # what the calls have seen until here is of no use to them any more

    def _ready(
        self,
        groups: list[int],
        sizes: Sequence[int],
        repeats: Sequence[int],
        *,
        check: bool = False,
    ) -> None:
        """Get groups of calls of both sides ready.

        At the same time where each has a process: capturing hundreds of calls takes the host more
        time than timing them, and nothing is timed then.
        """
        sides = self._candidate, self._reference
        prepare = [
            partial(side.prepare, groups, size, repeat, check=check)
            for side, size, repeat in zip(sides, sizes, repeats, strict=True)
        ]
        if self._device != "cpu" and all(side.is_process for side in sides):
            with ThreadPoolExecutor(len(sides)) as pool:
                replies = list(pool.map(lambda ask: ask(), prepare))
        else:
            replies = [ask() for ask in prepare]
        for side, reply in zip(sides, replies, strict=True):
            side.prepared(reply)

    def _rough_ns(self, side: TimedSide) -> float:
        """About how long a call takes.

        On the CPU blocks get as long as this says, so it may not be far from the judge's clock.
        """
        rounds, refused = ROUGH, 0
        while True:
            samples, turn = time_rounds(side, rounds)
            if self._device != "cpu" or turn.claimed_ns >= ROUGH_NS:
                return float(samples.min())
            if turn.wall_ns < LONGEST_ROUGH_NS:
                rounds *= 8
            elif side is self._reference:
                return float(samples.min())
            elif (refused := refused + 1) == ATTEMPTS:
                self._context.refuse(FALSE_TIMES + by_both_clocks(turn.claimed_ns, turn.wall_ns))

    def _allocate(self, count: int) -> None:
        self._candidate.allocate(max(count, DISTINCT))
        self._reference.allocate(max(count, DISTINCT))
        self._fill()

    def _fill(self) -> None:
        """Values that no call has seen, and outputs that are none."""
        buffers, context = self._candidate.buffers, self._context
        for number in range(DISTINCT):
            # The same lengths, pages and routes each time: other ones are other work.
            seed = self._random.getrandbits(32)
            context.fill(buffers.at(number), context.request.workload, bulk_seed=seed)
        self._contents = draw_contents(buffers.count, self._candidate.called, self._random)
        buffers.repeat(self._contents)
        self._reference.buffers.inputs().copy_(buffers.inputs())
        buffers.outputs().fill_(-1)
        context.synchronize()

    # Timing.

    def _timings(self, clocks: Clocks) -> Timings:
        """What rounds say that hold by the judge's clock.

        Where others use the device as well, whoever launches on it waits, and the reference does
        too: that is not the implementation's doing. So it is done again, later.
        """
        candidate, reference = self._candidate, self._reference
        pauses = iter(PAUSES)
        while True:
            timings = time_both_sides(
                candidate,
                reference,
                device=self._device,
                precision=self._context.request.precision,
                steady=clocks.steady,
            )
            wrong = self._false_claim(candidate, timings.turns)
            if not wrong:
                return timings
            if not self._false_claim(reference, timings.reference_turns):
                self._context.refuse(FALSE_TIMES + wrong)
            if (pause := next(pauses, None)) is None:
                self._context.refuse(f"{UNTIMED}: {wrong}")
            sleep(pause)

    def _false_claim(self, side: TimedSide, turns: Sequence[Turn]) -> str:
        """How rounds disagree with the judge's clock, time after time; empty, they don't."""
        for _ in range(ATTEMPTS):
            wrong = self._disagreement(side, turns)
            if not wrong:
                break
            turns = [time_rounds(side, rounds)[1] for rounds in {turn.rounds for turn in turns}]
        return wrong

    def _disagreement(self, side: TimedSide, turns: Sequence[Turn]) -> str:
        # What flushing takes is measured here, in the judge.
        blocks = len(side.groups)
        flushing_ns = 0.0 if self._device == "cpu" else blocks * flush_ns()
        return check_judges_clock(turns, flushing_ns, blocks, side.method)

    def _hot_latency_ms(self) -> float | None:
        """Of a call whose tensors are in the L2 cache; None where they don't fit."""
        side = self._candidate
        if self._device == "cpu" or side.buffers.size > l2_bytes() // 2:
            return None
        return median(side.hot(HOT_ROUNDS)) / 1e6

    # What timed calls left.

    def _on_new_values(self, latency_ns: float) -> tuple[Verdict, str]:
        """The verdict on calls with values and outputs that are new to them, and what is wrong.

        That is an implementation that is slower on those than when they come again, as they do
        where its latency is from, or that does its work when outputs are collected.
        """
        for _ in range(ATTEMPTS):
            verdict, wrong = self._on_new_values_once(latency_ns)
            if not verdict.passed or not wrong:
                break
        return verdict, wrong

    def _on_new_values_once(self, latency_ns: float) -> tuple[Verdict, str]:
        """The verdict, and what is wrong with the times; may be the machine's doing."""
        side, size = self._candidate, self._candidate.buffers.size
        side.call_once()
        self._fill()
        samples = side.run(1)
        first_ns = min(samples[group] for group in self._groups_with_new_values())
        verdict, collecting_ns = self._collected()
        side.repeat_calls()
        # Neither alone: one may do its work once it knows that this is not what counts.
        usual_ns = min(side.run(1)[0], latency_ns)
        if verdict.passed and side.repeat > 1:
            verdict, _ = self._collected()
        wrong = check_new_values(first_ns, usual_ns, size, self._device)
        return verdict, wrong or check_collecting(collecting_ns, usual_ns, size)

    def _groups_with_new_values(self) -> list[int]:
        """The groups that are the first to see their values in a round."""
        side = self._candidate
        if side.size > 1:
            return [0]
        contents = [self._contents[number] for number in side.groups]
        return [group for group, content in enumerate(contents) if content not in contents[:group]]

    def _collected(self) -> tuple[Verdict, float]:
        """The verdict on what some of the groups left, drawn when the calls are over.

        And how long a call's outputs took to collect, in nanoseconds.
        """
        side = self._candidate
        most = max(CHECKED, CHECKED_CALLS // side.size)
        groups = self._random.sample(range(len(side.groups)), min(most, len(side.groups)))
        start = perf_counter_ns()
        side.ask(Collect(tuple(groups)))
        collecting_ns = (perf_counter_ns() - start) / (len(groups) * side.size)
        return self._verdict(groups), collecting_ns

    def _verdict(self, groups: Sequence[int]) -> Verdict:
        """That of one call on each of the values; all others must have the same outputs."""
        side = self._candidate
        called = [side.groups[group] + i for group in groups for i in range(side.size)]
        self._random.shuffle(called)
        judged = {self._contents[number]: number for number in called}
        for number in judged.values():
            verdict = self._check_outputs(number)
            if not verdict.passed:
                return verdict
        definition = self._context.definition
        if definition.nondeterministic or any(map(definition.is_sampled, definition.outputs)):
            return verdict
        models = [judged[self._contents[number]] for number in called]
        differing = calls_that_differ(side.buffers, called, models)
        if differing:
            verdict = self._check_outputs(differing[0])
            if verdict.passed:
                share = f"{len(differing)} of {len(called)} timed calls"
                self._context.refuse(f"{share} gave different outputs for identical inputs")
        return verdict

    def _check_outputs(self, number: int) -> Verdict:
        """The verdict on what a call left, whose tensors are those of that buffer."""
        sides = self._candidate.buffers.at(number), self._reference.buffers.at(number)
        return SandboxCalls(self._context, *sides).check_outputs()

    # The record.

    def _count_operations(self) -> OperationCounts | None:
        """What the reference does on the workload."""
        context, definition = self._context, self._context.definition
        key = (definition.name, definition.reference, context.request.workload.uuid)
        if key not in self._counts:
            arguments = self._reference.buffers.first.arguments
            reply = context.ask_reference(CountOperations(arguments))
            if isinstance(reply, Failed):
                context.raise_if_killed(reply)
            self._counts[key] = reply.counts if isinstance(reply, Done) else None
        return self._counts[key]

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

    def _roofline_metrics(self, seconds: float) -> dict[str, Any]:
        """Rates, and shares of the device's ceilings; what isn't known is left out.

        Ends the evaluation where memory doesn't allow the time.
        """
        counts, ceilings = self._count_operations(), self._ceilings()
        least_bytes, calls = self._least_traffic(counts), self._candidate.size
        self._context.refuse_if(check_memory_rate(seconds, least_bytes, calls, ceilings))
        flops, dtype = counts.flops if counts else 0, compute_dtype(self._context.definition)
        cold = self._device != "cpu"
        roof = roofline(least_bytes, flops, dtype, ceilings, seconds, cold=cold)
        metrics = {
            "least_bytes": least_bytes,
            "separate_bytes": counts.moved_bytes if counts else None,
            "flops": counts.flops if counts else None,
            "gigabytes_per_second": roof.gigabytes_per_second,
            "teraflops_per_second": roof.teraflops_per_second if counts else None,
            "ceiling_share": roof.ceiling_share,
            "bound_by": roof.bound_by,
        }
        return {key: value for key, value in metrics.items() if value is not None}

    def _performance(self, timings: Timings, facts: dict[str, Any]) -> Performance:
        side, samples = self._candidate, timings.candidate
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
                "method": side.method,
                "reference_method": self._reference.method,
                "p10_ms": float(np.percentile(samples, 10)) / 1e6,
                "p90_ms": float(np.percentile(samples, 90)) / 1e6,
                "samples": samples.size,
                "placements": len(side.groups),
                "calls_per_block": side.calls_per_block,
                "device_time_ms": timings.spent_ns / 1e6,
                **self._roofline_metrics(timings.latency.value / 1e9),
                **facts,
            }
        )


def _most_buffers(size: int, device: str) -> int:
    """How many buffers of that many bytes a side may have."""
    most = MOST_BYTES[device]
    if device != "cpu":
        most = min(most, int(MOST_SHARE * torch.cuda.mem_get_info()[1]))
    return max(2, most // (size + GAP))


def _interval(estimate: Estimate, unit: float = 1.0) -> list[float]:
    return [estimate.low / unit, estimate.high / unit]
