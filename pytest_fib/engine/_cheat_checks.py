"""The checks against cheats: code that seems right, or fast, and isn't. One function for each.

The phases call them. A function that returns text says what is wrong; nothing is if the text is
empty. What a stalling machine looks like too is measured again before it is refused. The room
``sandbox`` refuses cheats against a process (crashes, forged messages, ...), ``timing/_series.py``
those against the way in which the calls of a block are run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import TYPE_CHECKING

from pytest_fib.data import format_distinct
from pytest_fib.sandbox import changed, copy_bits, fill_with_poison
from pytest_fib.timing import SURE, Ceilings, Timings, hidden_share, surely_longer

if TYPE_CHECKING:
    import torch

    from pytest_fib.verdict import Outputs

#: The most elements of both sides' timed calls that are compared.
COMPARED = 1 << 21
#: The methods of timing, as patterns.
METHODS = {"cpu": r"cpu, \d{1,4} threads?", "cuda": "cuda graph|cupti|events"}
#: The methods in which a block has gaps between its calls.
LAUNCHED = ("cupti", "events")
#: The share by which two sums of the same times may differ.
ROUNDING = 1e-6
#: The least time of a call, in nanoseconds.
LEAST_NS = 1.0
#: The most that a call may take alone: this factor of its time in a block, and nanoseconds more.
#: Events and loading code took 0 to 3.8 µs on an H200, 4 % of the longest call. They took 8.7 µs
#: for a sort of 256 numbers, whose code is long. Without a flush, that sort and three other calls
#: took 1.3 to 2.4.
SINGLE, SINGLE_NS, SINGLE_WARM_NS = 1.05, 4_000.0, 3_000.0
#: The same on the CPU, for a call that can't know of others. Calls of honest kernels took up to 26
#: % longer, of 18 µs, and none took 25 % and 1 µs longer.
STEPPED, STEPPED_NS = 1.25, 3_000.0
#: How much longer reading a call's outputs may take than reading the reference's, in nanoseconds:
#: 280 were measured for outputs in a dict.
READING_NS = 400.0
#: The factor by which memory may be faster than its measured ceiling.
ABOVE_THE_ROOF = 1.1
FALSE_TIMES = "its times are false: "
OWN_MEMORY = "return new memory each time, or take the output (calling='destination')"
OWN_OUTPUTS = "do all writes stay within the outputs of their call?"


# Of outputs.


def poison_outputs(outputs: Outputs, poison: int) -> None:
    """Against outputs that are never written, and right answers that were left in memory."""
    for tensor in outputs.values():
        fill_with_poison(tensor, poison)


def check_inputs(
    inputs: Mapping[str, torch.Tensor],
    pristine: Mapping[str, torch.Tensor],
    written_by_reference: Callable[[], list[str]],
) -> str:
    """Against calls that change their inputs, and so the right outputs.

    An input that the reference writes to as well is scratch memory, and is restored.
    """
    written = changed(inputs, pristine)
    allowed = written_by_reference() if written else []
    for name in written:
        if name not in allowed:
            return f"wrote to its input {name!r}"
        copy_bits(inputs[name], pristine[name])
    return ""


def check_earlier_outputs(
    now: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor], calling: str
) -> str:
    """Against memory that is returned again: the caller loses the earlier outputs.

    A ``destination`` call that changes them has written outside of its outputs.
    """
    advice = OWN_MEMORY if calling == "value" else OWN_OUTPUTS
    for name in changed({each: now[each] for each in stored}, stored):
        return f"{name}: overwritten by the next call; {advice}"
    return ""


# Timed calls and their outputs.


def most_different(
    one: torch.Tensor, other: torch.Tensor, numbers: Sequence[int], source: Random
) -> int | None:
    """Against timed calls that are skipped, or do less than others.

    Returns the one of these calls whose outputs, shape (calls, ...), differ most; of many elements,
    some are compared. None if none differ.
    """
    size = one[0].numel()
    if size == 0:
        return None
    step = -(-len(numbers) * size // COMPARED)
    start = source.randrange(min(step, size))
    first, second = (
        side.reshape(len(side), -1)[:, start::step][numbers].float() for side in (one, other)
    )
    same = (first == second) | (first.isnan() & second.isnan())
    distances = (first - second).abs().masked_fill(same, 0).nan_to_num(inf, inf)
    furthest = distances.amax(1)
    return numbers[int(furthest.argmax())] if furthest.any() else None


@dataclass(frozen=True)
class Reading:
    """A round whose outputs were read, in nanoseconds by the judge's clock.

    ``wall_ns`` is the time of the round; ``extra_ns`` is how much longer reading took than it
    should by the reference's.
    """

    wall_ns: float
    extra_ns: float

    def late_ns(self, round_ns: float) -> float:
        """How much longer the round and reading took, if rounds should take ``round_ns``."""
        return self.extra_ns + max(0.0, self.wall_ns - round_ns)


def late_ns(readings: Sequence[Reading], timings: Timings, calls: int) -> float:
    """The nanoseconds of a call that are outside of the rounds that count.

    A round's work is done only after its outputs were read. So the sum of both is compared with the
    shortest rounds. Noise makes some sums longer, but not all.
    """
    return min(reading.late_ns(timings.round_ns) for reading in readings) / calls


def check_reading(readings: Sequence[Reading], timings: Timings, calls: int) -> str:
    """Against work that is delayed until a round's outputs are read, when no clock runs.

    In all rounds, or in some if the others are not among the shortest.
    """
    extra_ns = late_ns(readings, timings, calls)
    latency_ns = timings.latency.value
    if extra_ns <= hidden_share(latency_ns) * latency_ns + READING_NS:
        return ""
    sides = f"{extra_ns / 1e3:.3g} µs a call more than the reference's"
    what = "works while its outputs are read, or returns outputs that are slow to read"
    return f"{what} (a strided view?): {sides}"


def check_single_calls(
    single_ns: float, usual_ns: float, reference_extra_ns: float, *, cold: bool = True
) -> str:
    """Against a call that does the work of a whole block at once, since it knows the others.

    ``single_ns`` is the time of a call in a block of its own, ``usual_ns`` that of one of many;
    ``reference_extra_ns`` is the difference of the reference's. A block is ``cold`` if the cache
    was flushed before it, of code as well.
    """
    least_ns = SINGLE_NS if cold else SINGLE_WARM_NS
    if single_ns <= SINGLE * usual_ns + max(reference_extra_ns, least_ns):
        return ""
    return _works_for_others(single_ns, usual_ns)


def check_stepped_calls(single_ns: float, usual_ns: float, reference_extra_ns: float) -> str:
    """The same on the CPU.

    ``single_ns`` is the time of a call whose inputs appeared after the last call was done.
    """
    if single_ns <= STEPPED * usual_ns + max(reference_extra_ns, STEPPED_NS):
        return ""
    return _works_for_others(single_ns, usual_ns)


def check_steps(turns: int, calls: int) -> str:
    """Against calls whose end was not seen."""
    return "" if turns == calls else f"{FALSE_TIMES}{turns} of {calls} calls were answered"


def _works_for_others(single_ns: float, usual_ns: float) -> str:
    single, usual = format_distinct(single_ns / 1e3, usual_ns / 1e3, 3)
    sides = f"{single} µs alone, {usual} µs among others"
    return f"does the work of several calls at once: a call takes {sides}"


# Times that a sandbox claims.


def check_method(method: str, device: str) -> str:
    """Against the claim of a method that is checked less."""
    if re.fullmatch(METHODS[device], method):
        return ""
    return f"{FALSE_TIMES}unknown timing method {method[:60]!r}"


def check_samples_ns(samples: Sequence[float], longest_ns: float, blocks: int) -> str:
    """Against samples that are missing, negative, zero, too long, or not one per block."""
    # NaN isn't between these either.
    impossible = [sample for sample in samples if not LEAST_NS <= sample <= longest_ns]
    if impossible or not samples:
        return f"{FALSE_TIMES}a call took {impossible[0] if impossible else 'no'} ns"
    if len(samples) != blocks:
        return f"{FALSE_TIMES}{blocks} blocks were timed {len(samples)} times"
    return ""


def check_blocks_ns(blocks_ns: float, calls_ns: float, longest_ns: float, method: str) -> str:
    """Against blocks that take less time than their calls, and calls that take less than blocks.

    Only if calls are launched one by one, a block has gaps.
    """
    most_ns = longest_ns if method.startswith(LAUNCHED) else calls_ns * (1 + ROUNDING)
    if calls_ns * (1 - ROUNDING) <= blocks_ns <= most_ns:
        return ""
    return f"{FALSE_TIMES}blocks took {blocks_ns} ns, and their calls {calls_ns} ns"


def check_judges_clock(timings: Timings, left_ns: float, *, strictly: bool) -> str:
    """Against replaced clocks and events, and work outside of what they time.

    ``left_ns`` is the time for writing back what blocks leave in the cache. Unless ``strictly``,
    the uncertainty of the reference's rounds is allowed, since the intervals contain it. A
    candidate that makes its own rounds uncertain only makes them longer. It is refused in any case
    if its rounds surely take over twice what it claims.
    """
    accounting = timings.accounting
    hidden_ns = accounting.hidden_ns
    allowed_ns = accounting.allowed_ns + left_ns
    if hidden_ns <= allowed_ns + (0.0 if strictly else accounting.other_error_ns) and (
        strictly or not _surely_takes_twice(timings, left_ns)
    ):
        return ""
    return FALSE_TIMES + by_both_clocks(accounting.blocks_ns, accounting.blocks_ns + hidden_ns)


def _surely_takes_twice(timings: Timings, left_ns: float) -> bool:
    """Whether the ranks of rounds say that these take over twice what they claim."""
    twice_ns = timings.accounting.blocks_ns + left_ns
    return surely_longer(timings.turns, timings.usual_turns, twice_ns)


def is_far_off(timings: Timings, readings: Sequence[Reading], calls: int) -> bool:
    """Whether rounds, or reading their outputs, surely take over twice what they claim.

    Other work slows down both sides; the rounds show how much of that may be chance. A candidate
    that makes its own rounds uncertain is refused too, only later.
    """
    accounting = timings.accounting
    chance_ns = accounting.other_error_ns + SURE * accounting.error_ns
    return _left_out_ns(timings, readings, calls) - chance_ns > accounting.blocks_ns


def may_be_waits(timings: Timings, readings: Sequence[Reading], calls: int, left_ns: float) -> bool:
    """Whether what rounds, or reading their outputs, take too long may be waits for a core.

    It is no longer than a round of the reference waited for cores, on average, or than its rounds
    are uncertain, as by waits for the driver; and no sign says that rounds surely take over twice
    what they claim. The candidate has no part in the former: it is stopped meanwhile. Its own waits
    don't count, since it could make them.
    """
    accounting = timings.accounting
    waited_ns = max(accounting.other_waited_ns, accounting.other_error_ns)
    return (
        _left_out_ns(timings, readings, calls) <= waited_ns
        and not is_far_off(timings, readings, calls)
        and not _surely_takes_twice(timings, left_ns)
    )


def _left_out_ns(timings: Timings, readings: Sequence[Reading], calls: int) -> float:
    """What is left out of the claimed time of a round, when it runs or when it is read."""
    return max(timings.accounting.hidden_ns, calls * late_ns(readings, timings, calls))


def by_both_clocks(claimed_ns: float, wall_ns: float) -> str:
    """The time of rounds by the sandbox's clock and by the judge's, in words."""
    own, wall = format_distinct(claimed_ns / 1e6, wall_ns / 1e6, 3)
    return f"rounds of calls take {own} ms by their own clock, {wall} ms by the judge's clock"


def check_memory_rate(seconds: float, least_bytes: int, calls: int, ceilings: Ceilings) -> str:
    """Against a latency that memory is too slow for, whatever the trick.

    A block of ``calls`` calls moves their least bytes, less what the cache holds.
    """
    through_memory = max(calls * least_bytes - ceilings.cache_bytes, 0) / calls
    least = through_memory / ceilings.bytes_per_second / ABOVE_THE_ROOF
    if seconds >= least:
        return ""
    rate = f"{ceilings.bytes_per_second / 1e9:.0f} GB/s of this device"
    claimed, needed = format_distinct(seconds * 1e6, least * 1e6, 3)
    sides = f"{claimed} µs, but moving {least_bytes} bytes takes {needed} µs at the {rate}"
    return f"its times can't be true: {sides}"
