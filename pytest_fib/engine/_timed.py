"""Timing one implementation beside the reference, and refusing times that can't be true.

Both sides get sets of tensors of their own, many, and time blocks of calls in turn. A last round
on values and outputs that no call has seen decides whether the timed calls did the work: it must
be right, and as fast as the rounds before it.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import inf
from random import SystemRandom
from statistics import median
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pytest_fib.data import Performance
from pytest_fib.engine._figures import figures, under_the_roof
from pytest_fib.engine._messages import Blocks, Collect, Done
from pytest_fib.engine._sets import DISTINCT, contents_of, most_sets
from pytest_fib.timing import (
    GROUPS,
    Clocks,
    Shape,
    calls_per_block,
    flush_ns,
    l2_bytes,
    measure,
    placements,
    turn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_fib.engine._case import Case, Side
    from pytest_fib.engine._messages import Reply
    from pytest_fib.engine._sets import Sets
    from pytest_fib.engine._verdict import Verdict
    from pytest_fib.timing import Ceilings, Estimate, Measured, Samples, Turn

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
#: The ways of timing that there are.
METHODS = {"cpu": r"cpu, warm, \d{1,4} threads?", "cuda": "cuda graph|cupti|events"}
#: A call takes no less, in nanoseconds.
LEAST_NS = 1.0
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


class Timed:
    """Times one case whose outputs were found right; used once, with the device to itself."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._device = case.candidate.layout.device
        self._random = SystemRandom()
        timeout = case.request.timeout
        self._candidate = _Arm(case.candidate, case.answered, case.refuse, timeout)
        self._reference = _Arm(case.reference, self._referred, case.refuse, timeout)
        self._contents: list[int] = []  # which of the distinct values each set has

    def _referred(self, reply: Reply) -> Done:
        return self._case.referred(reply, " while it was timed")

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
            self._case.refuse(wrong)
        if not verdict.passed:
            return replace(verdict, summary=f"{verdict.summary} (while it was timed)"), None
        return verdict, self._performance(measured, facts)

    def _measured(self, clocks: Clocks) -> Measured:
        """What rounds say that hold by the judge's clock.

        Where others use the device as well, whoever launches on it waits, and the reference does
        too: that is not the implementation's doing. So it is done again, later.
        """
        arms = self._candidate, self._reference
        pauses = iter(PAUSES)
        while True:
            measured = measure(
                arms,
                (arms[0].shape, arms[1].shape),
                device=self._device,
                precision=self._case.request.precision,
                steady=clocks.steady,
            )
            false = self._false_claim(arms[0], measured.turns)
            if false is None:
                return measured
            if self._false_claim(arms[1], measured.reference_turns) is None:
                self._refuse_times(*false)
            if (pause := next(pauses, None)) is None:
                self._case.refuse(f"{UNTIMED}: {_sides(*false)}")
            sleep(pause)

    def _prepare(self) -> None:
        """Find out how many calls make a block, then get those ready."""
        arms = (self._candidate, self._reference)
        self._allocate(ROUGH)
        self._ready([0], (ROUGH, ROUGH), (1, 1))
        rough = [self._rough(arm) for arm in arms]
        most, many = most_sets(arms[0].sets.size, self._device), self._device != "cpu"
        calls = calls_per_block(rough, self._device, max(most // GROUPS, 1) if many else None)
        # On the CPU a block is one call again and again, so caches are warm and sets are few.
        sizes, repeats = (calls, [1, 1]) if many else ([1, 1], calls)
        blocks = [duration * number for duration, number in zip(rough, calls, strict=True)]
        groups = placements(blocks, self._device, most // max(sizes))
        # Single calls lie at odd distances, so that there are some on each of the distinct values.
        spacing = max(sizes) | (min(sizes) == 1)
        self._allocate(groups * spacing)
        # Both are checked, though one is suspect: once CUPTI has recorded, kernels take 2 % longer.
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
        arms = self._candidate, self._reference
        asked = [
            partial(arm.prepare, groups, size, repeat, check=check)
            for arm, size, repeat in zip(arms, sizes, repeats, strict=True)
        ]
        if self._device != "cpu" and all(arm.apart for arm in arms):
            with ThreadPoolExecutor(len(arms)) as pool:
                replies = list(pool.map(lambda ask: ask(), asked))
        else:
            replies = [ask() for ask in asked]
        for arm, reply in zip(arms, replies, strict=True):
            arm.prepared(reply)

    def _rough(self, arm: _Arm) -> float:
        """About how long a call takes, in nanoseconds.

        On the CPU blocks get as long as this says, so it may not be far from the judge's clock.
        """
        rounds, refused = ROUGH, 0
        while True:
            samples, taken = turn(arm, arm.shape, rounds)
            if self._device != "cpu" or taken.claimed_ns >= ROUGH_NS:
                return float(samples.min())
            if taken.wall_ns < LONGEST_ROUGH_NS:
                rounds *= 8
            elif arm is self._reference:
                return float(samples.min())
            elif (refused := refused + 1) == ATTEMPTS:
                self._refuse_times(taken.claimed_ns, taken.wall_ns)

    def _allocate(self, count: int) -> None:
        case, count = self._case, max(count, DISTINCT)
        self._candidate.sets = case.sets(case.candidate, count)
        self._reference.sets = case.sets(case.reference, count)
        self._fill()

    def _fill(self) -> None:
        """Values that no call has seen, and outputs that are none."""
        mine, theirs = self._candidate.sets, self._reference.sets
        workload = self._case.request.workload
        for number in range(DISTINCT):
            # The same lengths, pages and routes each time: other ones are other work.
            seed = self._random.getrandbits(32)
            self._case.fill(mine.at(number), workload, bulk_seed=seed)
        self._contents = contents_of(mine.count, self._candidate.called, self._random)
        mine.repeat(self._contents)
        theirs.inputs().copy_(mine.inputs())
        mine.outputs().fill_(-1)
        self._case.synchronize()

    def _false_claim(self, arm: _Arm, turns: Sequence[Turn]) -> tuple[float, float] | None:
        """What a round claims to take and what it takes by the judge's clock, where they disagree.

        What a request takes besides is the same for many rounds and for few, so the rest of its
        time must not grow with the rounds. What flushing takes is measured here, in the judge.
        """
        for _ in range(ATTEMPTS):
            claimed, hidden = self._hidden(arm, turns)
            if hidden <= self._unclaimed(arm, claimed):
                return None
            turns = tuple(turn(arm, arm.shape, n)[1] for n in {each.rounds for each in turns})
        return claimed, claimed + hidden

    def _unclaimed(self, arm: _Arm, claimed: float) -> float:
        """How much longer than it claims a round may take."""
        if arm.method.startswith("cupti"):
            return UNRECORDED * claimed + RECORDING_NS * len(arm.groups)
        return UNCLAIMED * claimed + UNCLAIMED_NS

    def _hidden(self, arm: _Arm, turns: Sequence[Turn]) -> tuple[float, float]:
        """What a round claims to take, and how much longer it takes by the judge's clock."""
        flushing = len(arm.groups) * (0.0 if self._device == "cpu" else flush_ns())
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
        self._case.refuse(f"its times are false: {_sides(claimed_ns, wall_ns)}")

    def _hot(self) -> float | None:
        """Milliseconds of a call whose tensors are in the L2 cache; None where they don't fit."""
        arm = self._candidate
        if self._device == "cpu" or arm.sets.size > l2_bytes() // 2:
            return None
        return median(arm.hot(HOT_ROUNDS)) / 1e6

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
        arm = self._candidate
        arm.once()
        self._fill()
        samples = arm.run(1)
        found = min(samples[group] for group in self._fresh())
        verdict, collecting = self._collected()
        arm.again()
        # Neither alone: one may do its work once it knows that this is not what counts.
        usual = min(arm.run(1)[0], latency_ns)
        if verdict.passed and arm.repeat > 1:
            verdict, _ = self._collected()
        cold = 0.0 if self._device != "cpu" else arm.sets.size / BYTES_PER_NS
        if found > UNSEEN * usual + UNSEEN_NS[self._device] + cold:
            sides = f"{found / 1e3:.3g} µs a call, {usual / 1e3:.3g} µs when they come again"
            return verdict, f"slower on new values: {sides}"
        if collecting > usual + COLLECTING_NS + arm.sets.size / BYTES_PER_NS:
            sides = f"{usual / 1e3:.3g} µs a call, and {collecting / 1e3:.3g} µs to get its outputs"
            return verdict, f"works when its outputs are collected: {sides}"
        return verdict, ""

    def _fresh(self) -> list[int]:
        """The groups that are the first to see their values in a round."""
        arm = self._candidate
        if arm.size > 1:
            return [0]
        seen = [self._contents[number] for number in arm.groups]
        return [group for group, content in enumerate(seen) if content not in seen[:group]]

    def _collected(self) -> tuple[Verdict, float]:
        """The verdict on what some of the groups left, drawn when the calls are over.

        And how long a call's outputs took to collect, in nanoseconds.
        """
        arm = self._candidate
        most = max(CHECKED, CHECKED_CALLS // arm.size)
        groups = self._random.sample(range(len(arm.groups)), min(most, len(arm.groups)))
        start = perf_counter_ns()
        arm.ask(Collect(tuple(groups)))
        collecting = (perf_counter_ns() - start) / (len(groups) * arm.size)
        return self._verdict(groups), collecting

    def _verdict(self, groups: Sequence[int]) -> Verdict:
        """That of one call on each of the values; all others must have the same outputs."""
        mine, theirs, arm = self._candidate.sets, self._reference.sets, self._candidate
        called = [arm.groups[group] + i for group in groups for i in range(arm.size)]
        self._random.shuffle(called)
        judged = {self._contents[number]: number for number in called}
        for number in judged.values():
            verdict = self._case.verdict_of(mine.at(number), theirs.at(number))
            if not verdict.passed:
                return verdict
        definition = self._case.request.definition
        drawn = any(definition.is_sampled(name) for name in definition.outputs)
        if definition.nondeterministic or drawn:
            return verdict
        differing = self._differing(called, [judged[self._contents[n]] for n in called])
        for number in differing[:1]:
            verdict = self._case.verdict_of(mine.at(number), theirs.at(number))
            if verdict.passed:
                total = f"{len(differing)} of {len(called)} timed calls"
                self._case.refuse(f"{total} left other outputs than others on the same values")
        return verdict

    def _differing(self, called: list[int], judged: list[int]) -> list[int]:
        """Calls that left other outputs than the judged ones on the same values."""
        outputs, found = self._candidate.sets.outputs(), []
        step = max(1, COMPARED_BYTES // max(self._candidate.sets.size, 1))
        for at in range(0, len(called), step):
            mine = called[at : at + step]
            differ = (outputs[mine] != outputs[judged[at : at + step]]).any(1).tolist()
            found += [number for number, other in zip(mine, differ, strict=True) if other]
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
            self._case.refuse(f"its times can't be true: {told}")

    def _performance(self, measured: Measured, facts: dict[str, Any]) -> Performance:
        arm, reference = self._candidate, self._reference
        request = self._case.request
        traffic, counted = self._case.work(reference.sets.first)
        roofs, seconds = self._case.ceilings(), measured.latency.value / 1e9
        self._refuse_impossible(seconds, traffic.least_bytes, roofs)
        cold = self._device != "cpu"
        found = under_the_roof(request.definition, traffic, counted, roofs, seconds, cold=cold)
        return Performance.model_validate(
            {
                "latency_ms": measured.latency.value / 1e6,
                "reference_latency_ms": measured.reference_latency.value / 1e6,
                "speedup_factor": measured.speedup.value,
                **_interval("ci_ms", measured.latency, 1e6),
                **_interval("reference_ci_ms", measured.reference_latency, 1e6),
                **_interval("speedup_ci", measured.speedup),
                "comparison": measured.compared,
                "noise_floor": measured.floor,
                "noisy": measured.noisy,
                "method": arm.method,
                "reference_method": reference.method,
                **_spread(measured.candidate),
                "samples": measured.candidate.size,
                "placements": len(arm.groups),
                "calls_per_block": arm.shape.calls,
                "device_time_ms": measured.spent_ns / 1e6,
                **figures(traffic, counted, found),
                **facts,
            }
        )


class _Arm:
    """One side's prepared calls, asked through its sandbox."""

    sets: Sets

    def __init__(
        self,
        side: Side,
        answered: Callable[[Reply], Done],
        refuse: Callable[[str], NoReturn],
        timeout: float,
    ) -> None:
        self._side = side
        self._answered = answered
        self._refuse = refuse
        self._timeout = timeout
        self.apart = side.sandbox.apart
        self.method = ""
        self.groups: tuple[int, ...] = ()
        self.size = 0
        self.repeat = 1
        self.shape = Shape(0)

    def prepare(
        self, groups: Sequence[int], size: int, repeat: int = 1, *, check: bool = False
    ) -> Reply:
        """Ask for groups of ``size`` calls, from these sets on; what is answered is for below."""
        self.groups, self.size, self.repeat = tuple(groups), size, repeat
        return self._repeating(repeat, check=check)

    def prepared(self, reply: Reply) -> None:
        """Take the answer to that; ends the evaluation where it is none."""
        done = self._answered(reply)
        device = self._side.layout.device
        # How its times are held against the judge's clock hangs on this word of the sandbox.
        if not re.fullmatch(METHODS[device], done.method):
            self._refuse(f"its times are false: a way to time it is {done.method[:60]!r}")
        self.method = done.method + ("" if device == "cpu" else ", cold L2")
        if not 0 <= done.flush_ns < inf:
            self._refuse(f"its times are false: flushing the cache took {done.flush_ns} ns")
        self.shape = Shape(self.size * self.repeat, done.flush_ns)

    def _repeating(self, repeat: int, *, check: bool = False) -> Reply:
        request = self.sets.first.prepare(self.sets.stride, self.groups, self.size, repeat)
        return self._side.sandbox.ask(replace(request, check=check), self._timeout)

    def once(self) -> None:
        """Where blocks repeat calls, have them call once until ``again``."""
        if self.repeat > 1:
            self._answered(self._repeating(1))

    def again(self) -> None:
        """Have blocks repeat calls as they did."""
        if self.repeat > 1:
            self._answered(self._repeating(self.repeat))

    @property
    def called(self) -> list[int]:
        """The sets that a round's calls are on."""
        return [group + i for group in self.groups for i in range(self.size)]

    def run(self, rounds: int) -> tuple[float, ...]:
        """Time a block of each group: nanoseconds of one call in each."""
        samples = self._samples(Blocks(rounds))
        if len(samples) != rounds * len(self.groups):
            sides = f"{rounds * len(self.groups)} blocks were timed {len(samples)} times"
            self._refuse(f"its times are false: {sides}")
        return samples

    def hot(self, rounds: int) -> tuple[float, ...]:
        """Time blocks of one call again and again: nanoseconds of a call in each."""
        return self._samples(Blocks(rounds, hot=True))

    def _samples(self, request: Blocks) -> tuple[float, ...]:
        samples = self.ask(request).samples_ns
        # Neither NaN is between these, nor what was done in no time, or took longer than we waited.
        wrong = [s for s in samples if not LEAST_NS <= s <= self._timeout * 1e9]
        if wrong or not samples:
            self._refuse(f"its times are false: a call took {wrong[0] if wrong else 'no'} ns")
        return samples

    def ask(self, request: Blocks | Collect) -> Done:
        """The sandbox's answer; ends the evaluation where there is none."""
        return self._answered(self._side.sandbox.ask(request, self._timeout))


def _sides(claimed_ns: float, wall_ns: float) -> str:
    claimed = f"rounds of calls take {claimed_ns / 1e6:.3g} ms by their own account"
    return f"{claimed}, {wall_ns / 1e6:.3g} ms by the judge's clock"


def _interval(name: str, estimate: Estimate, unit: float = 1.0) -> dict[str, list[float]]:
    return {name: [estimate.low / unit, estimate.high / unit]}


def _spread(samples: Samples) -> dict[str, float]:
    return {f"p{q}_ms": float(np.percentile(samples, q)) / 1e6 for q in (10, 90)}
