"""The checks that refuse cheats, one function for each: code that seems right, or fast, and isn't.

The phases call them. Where a function returns text, that is what is wrong; empty, nothing is. What
a machine that stalls looks like as well, the benchmark phase measures again before it refuses it.
Cheats against a process (crashes, forged messages, ...) are refused by the room ``sandbox``, those
against the way calls are run in a block by ``timing/_series.py``.
"""

from __future__ import annotations

import re
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from pytest_fib.sandbox import changed, copy_bits, fill_with_poison

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    import torch

    from pytest_fib.data import Workload
    from pytest_fib.engine._context import BufferPool
    from pytest_fib.timing import Ceilings, Turn
    from pytest_fib.verdict import Outputs

#: What outputs hold before each of the first two calls, two bytes over and over. The first is NaN
#: in the floating dtypes, one that arithmetic does not make; the second is a finite number, so that
#: neither passes where the other would.
POISONS = (0xFFE5, 0x5555)
#: Makes another seed of a seed.
OTHER_SEED = 0x5EED0
#: Buffers with values of their own. The others repeat them, which costs less than making them.
DISTINCT = 2
#: How much of the buffers is compared at once: that takes copies.
COMPARED_BYTES = 128 << 20
#: The ways of timing that there are.
METHODS = {"cpu": r"cpu, warm, \d{1,4} threads?", "cuda": "cuda graph|cupti|events"}
#: A call takes no less, in nanoseconds.
LEAST_NS = 1.0
#: How much longer than they claim rounds may take by the judge's clock, as a share of the claim
#: and in nanoseconds; and how much a request may take besides, however many rounds it is for.
UNCLAIMED, UNCLAIMED_NS, REQUEST_NS = 0.3, 300_000.0, 50e6
#: The same where CUPTI tells how long the device was busy: the host's time between kernels is no
#: part of that, nor is what recording a block takes.
UNRECORDED, RECORDING_NS = 20.0, 3e6
#: By how much memory may turn out faster than its ceiling was measured to be.
ABOVE_THE_ROOF = 1.1
#: How much longer calls may take on values they have not seen, and in nanoseconds. On the CPU their
#: code may be in no cache then, nor are their tensors, which are read at least as fast as this.
UNSEEN, UNSEEN_NS = 1.3, {"cpu": 50_000.0, "cuda": 2_000.0}
BYTES_PER_NS = 1.0
#: How long the outputs of a call may take to collect, beside what the call takes and copying them.
COLLECTING_NS = 2e6
FALSE_TIMES = "its times are false: "


# Of outputs.


def poison_outputs(outputs: Outputs, poison: int) -> None:
    """Against outputs that were never written, and right answers that lay in memory."""
    for tensor in outputs.values():
        fill_with_poison(tensor, poison)


def with_other_values(workload: Workload) -> Workload:
    """Against answers from a cache, by pointer, object, shape or coarse content.

    The same shapes with other values, for a call at the same places.
    """
    return workload.model_copy(update={"seed": workload.seed ^ OTHER_SEED})


def check_inputs(
    inputs: Mapping[str, torch.Tensor],
    pristine: Mapping[str, torch.Tensor],
    written_by_reference: Callable[[], list[str]],
) -> str:
    """Against calls that change their inputs, and so what is right.

    Where the reference writes to one as well, it is room for intermediate results: put back.
    """
    written = changed(inputs, pristine)
    allowed = written_by_reference() if written else []
    for name in written:
        if name not in allowed:
            return f"wrote to its input {name!r}"
        copy_bits(inputs[name], pristine[name])
    return ""


# Of timed calls, and what they left.


def draw_contents(count: int, called: Sequence[int], source: Random) -> list[int]:
    """Against the work of a few timed calls that is given for all others.

    Which of the distinct values each of ``count`` buffers has: the first ones, their own. Those
    that are called have them in random order, about as many of each: who knows where a buffer lies
    doesn't know by that which other one has the same.
    """
    contents = [number % DISTINCT for number in range(count)]
    others = [number for number in called if number >= DISTINCT]
    shuffled = source.sample(others, len(others))
    for i, number in enumerate(shuffled, start=1):
        contents[number] = i % DISTINCT
    return contents


def calls_that_differ(
    buffers: BufferPool, called: Sequence[int], judged: Sequence[int]
) -> list[int]:
    """Against timed calls that are skipped, or do less than others.

    The numbers of those whose outputs differ from what a judged call left of the same values.
    """
    outputs, differing = buffers.outputs(), list[int]()
    step = max(1, COMPARED_BYTES // max(buffers.size, 1))
    for at in range(0, len(called), step):
        chunk = called[at : at + step]
        differ = (outputs[chunk] != outputs[judged[at : at + step]]).any(1).tolist()
        differing += [number for number, other in zip(chunk, differ, strict=True) if other]
    return differing


def check_new_values(first_ns: float, usual_ns: float, size: int, device: str) -> str:
    """Against timed calls that answer from a cache, or work only when values have changed.

    ``first_ns`` is what the first calls on their values took, in buffers of ``size`` bytes.
    """
    cold = 0.0 if device != "cpu" else size / BYTES_PER_NS
    if first_ns <= UNSEEN * usual_ns + UNSEEN_NS[device] + cold:
        return ""
    sides = f"{first_ns / 1e3:.3g} µs a call, {usual_ns / 1e3:.3g} µs when they come again"
    return f"slower on new values: {sides}"


def check_collecting(collecting_ns: float, usual_ns: float, size: int) -> str:
    """Against work that is put off until outputs are read, when no clock runs."""
    if collecting_ns <= usual_ns + COLLECTING_NS + size / BYTES_PER_NS:
        return ""
    sides = f"{usual_ns / 1e3:.3g} µs a call, and {collecting_ns / 1e3:.3g} µs to get its outputs"
    return f"works when its outputs are collected: {sides}"


# Of times as a sandbox claims them.


def check_method(method: str, device: str) -> str:
    """Against the claim to be timed in a way that is checked less."""
    if re.fullmatch(METHODS[device], method):
        return ""
    return f"{FALSE_TIMES}unknown timing method {method[:60]!r}"


def check_flush_ns(flush_ns: float) -> str:
    """Against a claim about flushing the cache by which rounds would never use their budget."""
    return "" if 0 <= flush_ns < inf else f"{FALSE_TIMES}flushing the cache took {flush_ns} ns"


def check_samples_ns(samples: Sequence[float], longest_ns: float, blocks: int | None) -> str:
    """Against no time at all, less than none, longer than was waited, and not one per block."""
    # NaN isn't between these either.
    impossible = [sample for sample in samples if not LEAST_NS <= sample <= longest_ns]
    if impossible or not samples:
        return f"{FALSE_TIMES}a call took {impossible[0] if impossible else 'no'} ns"
    if blocks not in (None, len(samples)):
        return f"{FALSE_TIMES}{blocks} blocks were timed {len(samples)} times"
    return ""


def check_judges_clock(turns: Sequence[Turn], flushing_ns: float, blocks: int, method: str) -> str:
    """Against clocks and events that were replaced, and work outside of what they time.

    Rounds of ``blocks`` blocks, with ``flushing_ns`` for their flushes, take by the judge's clock
    what they claim. What a request takes besides is the same for many rounds and for few, so the
    rest of its time must not grow with the rounds.
    """
    rest: dict[int, list[float]] = {}
    for turn in turns:
        unclaimed = turn.wall_ns - turn.claimed_ns - turn.rounds * flushing_ns
        rest.setdefault(turn.rounds, []).append(unclaimed)
    few, many = sorted(rest)
    least, most = median(rest[few]), median(rest[many])
    claimed = median(turn.claimed_ns / turn.rounds for turn in turns) + flushing_ns
    # Whoever takes his time over few rounds would have many look short.
    hidden = max((most - least) / (many - few), (least - REQUEST_NS) / few)
    allowed = UNCLAIMED * claimed + UNCLAIMED_NS
    if method.startswith("cupti"):
        allowed = UNRECORDED * claimed + RECORDING_NS * blocks
    return "" if hidden <= allowed else by_both_clocks(claimed, claimed + hidden)


def by_both_clocks(claimed_ns: float, wall_ns: float) -> str:
    """What rounds take by the sandbox's clock and by the judge's, in words."""
    claimed = f"rounds of calls take {claimed_ns / 1e6:.3g} ms by their own account"
    return f"{claimed}, {wall_ns / 1e6:.3g} ms by the judge's clock"


def check_memory_rate(seconds: float, least_bytes: int, calls: int, ceilings: Ceilings) -> str:
    """Against a latency that no memory allows, by whatever trick it was claimed.

    A block of ``calls`` calls moves what these must, less what the cache holds.
    """
    through_memory = max(calls * least_bytes - ceilings.cache_bytes, 0) / calls
    least = through_memory / ceilings.bytes_per_second / ABOVE_THE_ROOF
    if seconds >= least:
        return ""
    rate = f"{ceilings.bytes_per_second / 1e9:.0f} GB/s of this device"
    least_time = f"{least * 1e6:.3g} µs at the {rate}"
    sides = f"{seconds * 1e6:.3g} µs, but moving {least_bytes} bytes takes {least_time}"
    return f"its times can't be true: {sides}"
