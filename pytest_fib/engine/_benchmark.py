"""The second phase of an evaluation: timing the implementation beside the reference.

Both sides get buffers of their own, many, and time blocks of calls in turn. Times that can't be
true are refused. A last round
on values and outputs that no call has seen decides whether the timed calls did the work: it must
be right, and as fast as the rounds before it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import SystemRandom
from statistics import median
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from pytest_fib.data import Performance
from pytest_fib.engine._correctness import SandboxCalls
from pytest_fib.engine._timed_side import DISTINCT, TimedSide, contents_of, most_buffers
from pytest_fib.sandbox import Collect, Done, Failed
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

    from pytest_fib.engine._context import Context
    from pytest_fib.sandbox import Reply
    from pytest_fib.timing import (
        Ceilings,
        Estimate,
        OperationCounts,
        Samples,
        Timings,
        Turn,
    )
    from pytest_fib.verdict import Verdict

#: How much longer calls may take on values they have not seen, and in nanoseconds. On the CPU their
#: code may be in no cache then, nor are their tensors, which are read at least as fast as this.
UNSEEN, UNSEEN_NS = 1.3, {"cpu": 50_000.0, "cuda": 2_000.0}
BYTES_PER_NS = 1.0
#: How long the outputs of a call may take to collect, beside what the call takes and copying them.
COLLECTING_NS = 2e6
#: How much longer than they claim rounds may take by the judge's clock, as a share of the claim
#: and in nanoseconds; and how much a request may take besides, however many rounds it is for.
UNCLAIMED, UNCLAIMED_NS, REQUEST_NS = 0.3, 300_000.0, 50e6
#: The same where CUPTI tells how long the device was busy: the host's time between kernels is no
#: part of that, nor is what recording a block takes.
UNRECORDED, RECORDING_NS = 20.0, 3e6
#: By how much memory may turn out faster than its ceiling was measured to be.
ABOVE_THE_ROOF = 1.1
#: Groups of timed calls whose outputs are checked, and calls in them; at least.
CHECKED, CHECKED_CALLS = 2, 16
#: How much of the sets is compared at once: that takes copies.
COMPARED_BYTES = 128 << 20
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


class Benchmark:
    """Times calls whose outputs were found right; used once, with the device to itself."""

    def __init__(self, context: Context, ceilings: Callable[[], Ceilings], counts: Counts) -> None:
        self._context = context
        self._ceilings = ceilings
        self._counts = counts
        self._device = context.device
        self._random = SystemRandom()
        timed = partial(TimedSide, refuse=context.refuse, timeout=context.request.timeout)
        self._candidate = timed(context.candidate, context.candidate_reply)
        self._reference = timed(context.reference, self._reference_reply)
        self._contents: list[int] = []  # which of the distinct values each buffer has

    def _reference_reply(self, reply: Reply) -> Done:
        return self._context.reference_reply(reply, " while it was timed")

    def outcome(self) -> tuple[Verdict, Performance | None]:
        """The verdict on the timed calls, and their times where it is good."""
        clocks = Clocks(self._device)
        self._prepare()
        clocks.steady()  # what later readings are compared with
        for _ in range(MEASUREMENTS):
            measured = self._measured(clocks)
            facts = {"hot_latency_ms": self._hot(), **clocks.facts()}
            verdict, wrong = self._unseen(measured.latency.value)
            if not verdict.passed or not wrong:
                break
        else:
            self._context.refuse(wrong)
        if not verdict.passed:
            return verdict.qualified("while it was timed"), None
        return verdict, self._performance(measured, facts)

    def _measured(self, clocks: Clocks) -> Timings:
        """What rounds say that hold by the judge's clock.

        Where others use the device as well, whoever launches on it waits, and the reference does
        too: that is not the implementation's doing. So it is done again, later.
        """
        sides = self._candidate, self._reference
        pauses = iter(PAUSES)
        while True:
            measured = time_both_sides(
                *sides,
                device=self._device,
                precision=self._context.request.precision,
                steady=clocks.steady,
            )
            false = self._false_claim(sides[0], measured.turns)
            if false is None:
                return measured
            if self._false_claim(sides[1], measured.reference_turns) is None:
                self._refuse_times(*false)
            if (pause := next(pauses, None)) is None:
                self._context.refuse(f"{UNTIMED}: {_sides(*false)}")
            sleep(pause)

    def _prepare(self) -> None:
        """Find out how many calls make a block, then get those ready."""
        sides = (self._candidate, self._reference)
        self._allocate(ROUGH)
        self._ready([0], (ROUGH, ROUGH), (1, 1))
        rough = [self._rough(side) for side in sides]
        most, many = most_buffers(sides[0].buffers.size, self._device), self._device != "cpu"
        calls = calls_per_block(rough, self._device, max(most // GROUPS, 1) if many else None)
        # On the CPU a block is one call again and again, so caches are warm and sets are few.
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
        asked = [
            partial(side.prepare, groups, size, repeat, check=check)
            for side, size, repeat in zip(sides, sizes, repeats, strict=True)
        ]
        if self._device != "cpu" and all(side.is_process for side in sides):
            with ThreadPoolExecutor(len(sides)) as pool:
                replies = list(pool.map(lambda ask: ask(), asked))
        else:
            replies = [ask() for ask in asked]
        for side, reply in zip(sides, replies, strict=True):
            side.prepared(reply)

    def _rough(self, side: TimedSide) -> float:
        """About how long a call takes, in nanoseconds.

        On the CPU blocks get as long as this says, so it may not be far from the judge's clock.
        """
        rounds, refused = ROUGH, 0
        while True:
            samples, taken = time_rounds(side, rounds)
            if self._device != "cpu" or taken.claimed_ns >= ROUGH_NS:
                return float(samples.min())
            if taken.wall_ns < LONGEST_ROUGH_NS:
                rounds *= 8
            elif side is self._reference:
                return float(samples.min())
            elif (refused := refused + 1) == ATTEMPTS:
                self._refuse_times(taken.claimed_ns, taken.wall_ns)

    def _allocate(self, count: int) -> None:
        context, count = self._context, max(count, DISTINCT)
        self._candidate.buffers = context.buffers(context.candidate, count)
        self._reference.buffers = context.buffers(context.reference, count)
        self._fill()

    def _fill(self) -> None:
        """Values that no call has seen, and outputs that are none."""
        buffers, context = self._candidate.buffers, self._context
        for number in range(DISTINCT):
            # The same lengths, pages and routes each time: other ones are other work.
            seed = self._random.getrandbits(32)
            context.fill(buffers.at(number), context.request.workload, bulk_seed=seed)
        self._contents = contents_of(buffers.count, self._candidate.called, self._random)
        buffers.repeat(self._contents)
        self._reference.buffers.inputs().copy_(buffers.inputs())
        buffers.outputs().fill_(-1)
        context.synchronize()

    def _false_claim(self, side: TimedSide, turns: Sequence[Turn]) -> tuple[float, float] | None:
        """What a round claims to take and what it takes by the judge's clock, where they disagree.

        What a request takes besides is the same for many rounds and for few, so the rest of its
        time must not grow with the rounds. What flushing takes is measured here, in the judge.
        """
        for _ in range(ATTEMPTS):
            claimed, hidden = self._hidden(side, turns)
            if hidden <= self._unclaimed(side, claimed):
                return None
            turns = tuple(time_rounds(side, n)[1] for n in {each.rounds for each in turns})
        return claimed, claimed + hidden

    def _unclaimed(self, side: TimedSide, claimed: float) -> float:
        """How much longer than it claims a round may take."""
        if side.method.startswith("cupti"):
            return UNRECORDED * claimed + RECORDING_NS * len(side.groups)
        return UNCLAIMED * claimed + UNCLAIMED_NS

    def _hidden(self, side: TimedSide, turns: Sequence[Turn]) -> tuple[float, float]:
        """What a round claims to take, and how much longer it takes by the judge's clock."""
        flushing = len(side.groups) * (0.0 if self._device == "cpu" else flush_ns())
        rest: dict[int, list[float]] = {}
        for each in turns:
            unclaimed = each.wall_ns - each.claimed_ns - each.rounds * flushing
            rest.setdefault(each.rounds, []).append(unclaimed)
        few, many = sorted(rest)
        least, most = median(rest[few]), median(rest[many])
        claimed = median(each.claimed_ns / each.rounds for each in turns) + flushing
        # Whoever takes his time over few rounds would have many look short.
        return claimed, max((most - least) / (many - few), (least - REQUEST_NS) / few)

    def _refuse_times(self, claimed_ns: float, wall_ns: float) -> NoReturn:
        self._context.refuse(f"its times are false: {_sides(claimed_ns, wall_ns)}")

    def _hot(self) -> float | None:
        """Milliseconds of a call whose tensors are in the L2 cache; None where they don't fit."""
        side = self._candidate
        if self._device == "cpu" or side.buffers.size > l2_bytes() // 2:
            return None
        return median(side.hot(HOT_ROUNDS)) / 1e6

    def _unseen(self, latency_ns: float) -> tuple[Verdict, str]:
        """The verdict on calls with values and outputs that are new to them, and what is wrong.

        That is an implementation that is slower on those than when they come again, as they do
        where its latency is from, or that does its work when outputs are collected.
        """
        for _ in range(ATTEMPTS):
            verdict, wrong = self._unseen_once(latency_ns)
            if not verdict.passed or not wrong:
                break
        return verdict, wrong

    def _unseen_once(self, latency_ns: float) -> tuple[Verdict, str]:
        """The verdict, and what is wrong with the times; may be the machine's doing."""
        side = self._candidate
        side.once()
        self._fill()
        samples = side.run(1)
        found = min(samples[group] for group in self._fresh())
        verdict, collecting = self._collected()
        side.again()
        # Neither alone: one may do its work once it knows that this is not what counts.
        usual = min(side.run(1)[0], latency_ns)
        if verdict.passed and side.repeat > 1:
            verdict, _ = self._collected()
        cold = 0.0 if self._device != "cpu" else side.buffers.size / BYTES_PER_NS
        if found > UNSEEN * usual + UNSEEN_NS[self._device] + cold:
            sides = f"{found / 1e3:.3g} µs a call, {usual / 1e3:.3g} µs when they come again"
            return verdict, f"slower on new values: {sides}"
        if collecting > usual + COLLECTING_NS + side.buffers.size / BYTES_PER_NS:
            sides = f"{usual / 1e3:.3g} µs a call, and {collecting / 1e3:.3g} µs to get its outputs"
            return verdict, f"works when its outputs are collected: {sides}"
        return verdict, ""

    def _fresh(self) -> list[int]:
        """The groups that are the first to see their values in a round."""
        side = self._candidate
        if side.size > 1:
            return [0]
        seen = [self._contents[number] for number in side.groups]
        return [group for group, content in enumerate(seen) if content not in seen[:group]]

    def _collected(self) -> tuple[Verdict, float]:
        """The verdict on what some of the groups left, drawn when the calls are over.

        And how long a call's outputs took to collect, in nanoseconds.
        """
        side = self._candidate
        most = max(CHECKED, CHECKED_CALLS // side.size)
        groups = self._random.sample(range(len(side.groups)), min(most, len(side.groups)))
        start = perf_counter_ns()
        side.ask(Collect(tuple(groups)))
        collecting = (perf_counter_ns() - start) / (len(groups) * side.size)
        return self._verdict(groups), collecting

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
        drawn = any(definition.is_sampled(name) for name in definition.outputs)
        if definition.nondeterministic or drawn:
            return verdict
        differing = self._differing(called, [judged[self._contents[n]] for n in called])
        for number in differing[:1]:
            verdict = self._check_outputs(number)
            if verdict.passed:
                total = f"{len(differing)} of {len(called)} timed calls"
                self._context.refuse(f"{total} gave different outputs for identical inputs")
        return verdict

    def _check_outputs(self, number: int) -> Verdict:
        """The verdict on what a call left, whose tensors are those of that buffer."""
        sides = self._candidate.buffers.at(number), self._reference.buffers.at(number)
        return SandboxCalls(self._context, *sides).check_outputs()

    def _differing(self, called: list[int], judged: list[int]) -> list[int]:
        """Calls whose outputs differ from the checked ones on the same values."""
        buffers, found = self._candidate.buffers, list[int]()
        outputs = buffers.outputs()
        step = max(1, COMPARED_BYTES // max(buffers.size, 1))
        for at in range(0, len(called), step):
            chunk = called[at : at + step]
            differ = (outputs[chunk] != outputs[judged[at : at + step]]).any(1).tolist()
            found += [number for number, other in zip(chunk, differ, strict=True) if other]
        return found

    def _refuse_impossible(self, seconds: float, least_bytes: int, roofs: Ceilings) -> None:
        """A block can't move what its calls must, less what the cache holds, faster than memory."""
        calls = self._candidate.size
        through_memory = max(calls * least_bytes - roofs.cache_bytes, 0) / calls
        least = through_memory / roofs.bytes_per_second / ABOVE_THE_ROOF
        if seconds < least:
            rate = f"{roofs.bytes_per_second / 1e9:.0f} GB/s of this device"
            least_time = f"{least * 1e6:.3g} µs at the {rate}"
            told = f"{seconds * 1e6:.3g} µs, but moving {least_bytes} bytes takes {least_time}"
            self._context.refuse(f"its times can't be true: {told}")

    def _count_operations(self) -> OperationCounts | None:
        """What the reference does on the workload."""
        context, definition = self._context, self._context.definition
        key = (definition.name, definition.reference, context.request.workload.uuid)
        if key not in self._counts:
            reply = context.ask_reference(self._reference.buffers.first.count_operations())
            if isinstance(reply, Failed):
                context.raise_if_killed(reply)
            self._counts[key] = reply.counts if isinstance(reply, Done) else None
        return self._counts[key]

    def _least_traffic(self, counts: OperationCounts | None) -> int:
        """What has to be moved for these inputs, whatever computes it."""
        context, definition = self._context, self._context.definition
        names = zip(definition.inputs, counts.read_bytes, strict=True) if counts else ()
        read_bytes = {name: size for name, size in names if size is not None}
        inputs = context.reference.read(self._reference.buffers.first.input_tensors)
        outputs = context.reference.read(self._reference.buffers.first.outputs)
        axes = context.request.workload.axes
        return least_traffic(definition, axes, inputs, outputs, read_bytes)

    def _roofline_metrics(
        self, least_bytes: int, counts: OperationCounts | None, ceilings: Ceilings, seconds: float
    ) -> dict[str, Any]:
        """Rates, and shares of the device's ceilings; what isn't known is left out."""
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

    def _performance(self, measured: Timings, facts: dict[str, Any]) -> Performance:
        side, reference = self._candidate, self._reference
        counts = self._count_operations()
        least_bytes = self._least_traffic(counts)
        ceilings, seconds = self._ceilings(), measured.latency.value / 1e9
        self._refuse_impossible(seconds, least_bytes, ceilings)
        metrics = self._roofline_metrics(least_bytes, counts, ceilings, seconds)
        return Performance.model_validate(
            {
                "latency_ms": measured.latency.value / 1e6,
                "reference_latency_ms": measured.reference_latency.value / 1e6,
                "speedup_factor": measured.speedup.value,
                **_interval("ci_ms", measured.latency, 1e6),
                **_interval("reference_ci_ms", measured.reference_latency, 1e6),
                **_interval("speedup_ci", measured.speedup),
                "comparison": measured.comparison,
                "noise_floor": measured.floor,
                "noisy": measured.noisy,
                "method": side.method,
                "reference_method": reference.method,
                **_spread(measured.candidate),
                "samples": measured.candidate.size,
                "placements": len(side.groups),
                "calls_per_block": side.calls_per_block,
                "device_time_ms": measured.spent_ns / 1e6,
                **metrics,
                **facts,
            }
        )


def _sides(claimed_ns: float, wall_ns: float) -> str:
    claimed = f"rounds of calls take {claimed_ns / 1e6:.3g} ms by their own account"
    return f"{claimed}, {wall_ns / 1e6:.3g} ms by the judge's clock"


def _interval(name: str, estimate: Estimate, unit: float = 1.0) -> dict[str, list[float]]:
    return {name: [estimate.low / unit, estimate.high / unit]}


def _spread(samples: Samples) -> dict[str, float]:
    return {f"p{q}_ms": float(np.percentile(samples, q)) / 1e6 for q in (10, 90)}
