"""From a Workload to its inputs: how tensors lie in memory, what fills them, and Python scalars.

What a rule may ask for is in ``pytest_fib.data.kinds``.
"""

from __future__ import annotations

import hashlib
import math
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fib.data import (
    INPUTS,
    LAYOUTS,
    NEAR,
    Definition,
    DType,
    FixedValue,
    GeneratorKind,
    InputRule,
    SafetensorsInput,
    ScalarInput,
    TensorSpec,
    Workload,
    kinds,
)
from pytest_fib.workloads._constraints import parse_expression
from pytest_fib.workloads._plan import Plan, plan
from pytest_fib.workloads._recorded import read_tensor, stored_inputs
from pytest_fib.workloads._sizes import MOST_OF_LENGTHS, TILE_SIZES, TURNS
from pytest_fib.workloads._special_values import is_last_special, near_numbers

if TYPE_CHECKING:
    import torch

    from pytest_fib.workloads._reference_uses import ReferenceUses

    Scalar = int | float | bool
    #: Fills a contiguous tensor in place, by its rule.
    Fill = Callable[[torch.Tensor, Any, "FillContext"], None]

#: By how many turns one input is ahead of the one before it.
INPUT_TURNS = 5
#: The turns in which all that is counted is alike.
ALIKE_TURNS = (11, 23)
#: The turn in which all integers of a row are one number but for one.
NEARLY_ALIKE_TURN = 17
#: Significant bits of scalars that tensors are compared with: as many as bfloat16 has.
SCALAR_BITS = 8
#: Integers of less than so many are all dealt, if they are several times as many as special ones;
#: and steps from one to the next, prime to any such number.
MOST_DEALT, STRIDES = 72, (73, 79, 83, 89, 97, 101)
#: How many integers are looked through for one whose reciprocal is too small, with how many of its
#: multiples.
LOOKED_THROUGH, SHORT_MULTIPLES = 64, 64
#: How many scalars that could be any number are near to an end of their range; and how near at
#: most, as the binary logarithm of a share of the range: 1 / (1 - p) is too large for float16 then.
NEAR_SHARE, NEAREST = 0.3, 20
#: By what share of a step numbers may miss one: a quotient such as 1 / 12 is rounded.
STEP_ERROR = 2.0**-20
#: How many integer scalars of a wide range are no larger than the size of an axis.
SIZED_SHARE = 0.5
#: How many floating scalars stand for nothing, where one may.
SENTINEL_SHARE = 0.25
#: How often scalars are drawn that are to meet constraints.
REDRAWN = 64
#: Of a workload's inputs, one has patterns for float32's largest number, 2**128, and another for
#: this one: the product of the fourth roots of both is 2**56, and 2**16 squares of that have a sum.
SPARED = 2.0**96
#: The binary logarithm of the product of what several others have patterns for.
ALL_SPARED = 288
_RENAMED = {"float4_e2m1": "float4_e2m1fn_x2"}
#: Elements between the rows of a row-strided tensor: odd, so that hardly a row is aligned.
ROW_GAP = 17


class BrokenConstraintError(RuntimeError):
    """A workload was made or recorded that breaks a constraint; the message has its text."""


def make_inputs(
    definition: Definition, workload: Workload, device: str = "cpu", root: Path | None = None
) -> dict[str, Any]:
    """All inputs of a workload, in the definition's order, in new memory on ``device``.

    ``root`` is what paths of recorded tensors are relative to. Raises as ``fill_inputs`` does.
    """
    tensors = {
        name: empty_tensor(layout, device)
        for name, layout in layouts(definition, workload).items()
        if name in definition.inputs
    }
    stored = stored_inputs(definition, workload).values()
    files = {given.path: Path(root or "") / given.path for given in stored}
    fill_inputs(tensors, definition, workload, files)
    values = {**tensors, **scalar_inputs(definition, workload)}
    return {name: values[name] for name in definition.inputs}


def fill_inputs(
    tensors: Mapping[str, torch.Tensor],
    definition: Definition,
    workload: Workload,
    files: Mapping[str, Path] | None = None,
    bulk_seed: int | None = None,
) -> None:
    """Fill the input tensors in place, from the workload's seed or the files that it names.

    With ``bulk_seed`` they get other values where that changes nothing about the work to be done:
    lengths, pages, routing and the like are the workload's own, unless there is nothing else.

    The same workload gives the same bits in every process on the same kind of device. Structure is
    the same on every device; bulk values are not, since CPU and CUDA have different generators.
    ``files`` has where the recorded tensors' files lie, by their paths in the workload or the
    definition; what it lacks lies at those paths. Raises RecordedError for them, and
    BrokenConstraintError where the result breaks a constraint.
    """
    from pytest_fib.workloads._relations import relate  # it imports torch

    planned, sizes = plan(definition), definition.axis_values(workload.axes)
    inputs = InputTensors(definition, planned.rules, sizes, tensors)
    any_bulk = any(rule.bulk for rule in planned.rules.values())
    before: dict[str, Any] = {}
    uses = planned.uses
    compared = uses.compared.keys() | uses.edges.keys()
    compared |= {other for edges in uses.scaled_edges.values() for other, _ in edges}
    if uses.left_out or any(definition.inputs[name].is_scalar for name in compared):
        before |= scalar_inputs(definition, workload)
    for name in planned.fill:
        if name not in tensors:
            continue
        given = workload.inputs.get(name)
        if isinstance(given, SafetensorsInput):
            tensors[name].copy_(read_tensor(given, files or {}, tensors[name]))
            before[name] = tensors[name]
            continue
        is_bulk = planned.rules[name].bulk or not any_bulk
        seed = workload.seed if bulk_seed is None or not is_bulk else bulk_seed
        regime = _regime(name, planned, workload)
        _fill(name, inputs, planned, seed=seed, regime=regime, files=files or {}, before=before)
        before[name] = tensors[name]
    scalars = {n: v.value for n, v in workload.inputs.items() if isinstance(v, ScalarInput)}
    values = {**scalars, **tensors}
    made = tensors.keys() - stored_inputs(definition, workload).keys()
    relate(planned, inputs, {**sizes, **values}, made)
    _refuse_broken(planned, sizes, workload, values)


def why_broken(definition: Definition, workload: Workload, root: Path | None = None) -> str | None:
    """The message that a workload breaks a constraint once it is made, or None if it does not.

    Only the inputs are made that constraints speak of, on the CPU. Raises as ``make_inputs`` does
    for anything else.
    """
    names = _spoken_of(plan(definition))
    if not names:
        return None
    with plain_defaults():
        placed = layouts(definition, workload)
        tensors = {name: empty_tensor(placed[name], "cpu") for name in names & placed.keys()}
        stored = stored_inputs(definition, workload).values()
        files = {given.path: Path(root or "") / given.path for given in stored}
        try:
            fill_inputs(tensors, definition, workload, files)
        except BrokenConstraintError as error:
            return str(error)
    return None


def _spoken_of(planned: Plan) -> set[str]:
    """The inputs that constraints speak of, and those that are made before them for their sake."""
    names = {*planned.constrained}
    for name in reversed(planned.fill):
        if name in names:
            names |= planned.rules[name].inputs | planned.uses.compared.get(name, set())
    return names


def coupled_inputs(definition: Definition) -> frozenset[str]:
    """The inputs that a bulk seed changes, and whose elements can't be mixed with another's.

    So a tensor of random elements of two fillings, such as of two `indptr`, would not be valid.
    """
    rules = plan(definition).rules
    any_bulk = any(rule.bulk for rule in rules.values())
    return frozenset(
        name for name, rule in rules.items() if rule.bulk == any_bulk and not rule.elementwise
    )


def _fill(
    name: str,
    inputs: InputTensors,
    planned: Plan,
    *,
    seed: int,
    regime: Mapping[str, str],
    files: Mapping[str, Path],
    before: Mapping[str, torch.Tensor | Scalar],
) -> None:
    """Fill an input by its rule, as a contiguous tensor; then it lies as the input does.

    Along dimensions of stride 0 there is one value, so it is filled as one. ``before`` are scalars,
    and the tensors that are filled already.
    """
    # The generators import torch, which planning and scalars do without.
    import torch

    from pytest_fib.workloads._structure_generators import FILLS
    from pytest_fib.workloads._telling_values import put_telling_values

    tensor, rule = inputs.tensors[name], inputs.rules[name]
    own_seed = _seed(seed, name)
    context = FillContext(
        **vars(inputs),
        uses=planned.uses,
        regime=regime,
        turn=_turn(name, inputs.definition, seed),
        shared_turn=seed % TURNS,
        round_number=seed // TURNS,
        top=_top(name, planned, seed),
        host_random=torch.Generator().manual_seed(own_seed),
        device_random=torch.Generator(tensor.device).manual_seed(own_seed),
        files=files,
    )
    stored = once(tensor)
    compact = tensor if tensor.is_contiguous() else stored.new_empty(stored.shape)
    if isinstance(rule, FixedValue):
        compact.fill_(rule.value)
    else:
        FILLS[rule.kind](compact, rule, context)
        put_telling_values(name, compact, context, before)
    if compact is not tensor:
        bits(stored).copy_(bits(compact))


def _top(name: str, planned: Plan, seed: int) -> float:
    """The number that an input's value patterns take for the largest of float32, by the seed.

    One input of a workload has that itself. The product of the fourth roots of all is at most
    2**104 then: those of up to four have `SPARED`, of more have less.
    """
    following = planned.following("values")
    if name not in following or following[seed % len(following)] == name:
        return inf
    others = len(following) - 1
    return min(SPARED, 2.0 ** (ALL_SPARED // others))


def _regime(name: str, planned: Plan, workload: Workload) -> Mapping[str, str]:
    """The regime of one input: of those that might be normal instead, one never is and one is.

    Or all but one are.

    Beside negative ones, every second is positive, or now and then every second pair: so products
    are far below zero, such as scores that what masks others must be below.
    No divisor is subnormal: nearly all quotients by it would be infinite in float32.
    """
    if workload.regime.get("values") == "subnormal" and name in planned.uses.divisors:
        return {**workload.regime, "values": "normal"}
    which = workload.regime.get("inputs", INPUTS[0])
    if which == INPUTS[0]:
        return workload.regime
    following = planned.following("values")
    if name not in following:
        return workload.regime
    at, count, seed = following.index(name), len(following), workload.seed
    if which == "some" and workload.regime.get("values") == "negative":
        by = 2 if count > 3 and seed % 2 else 1
        return {**workload.regime, "values": "positive"} if at // by % 2 else workload.regime
    place = (at - seed) % count
    spared = place == 1 or (place > 1 and _seed(seed, f"{name}/regime") % 2 == 0)
    spared = spared if which == "some" else place != 0
    return {**workload.regime, "values": "normal"} if spared else workload.regime


def _refuse_broken(
    planned: Plan,
    sizes: Mapping[str, int],
    workload: Workload,
    values: Mapping[str, torch.Tensor | Scalar],
) -> None:
    """Check every constraint on the finished workload, whatever was done to meet it."""
    broken = planned.broken(sizes, values)
    if broken is not None:
        stored = any(isinstance(given, SafetensorsInput) for given in workload.inputs.values())
        what = "recorded" if stored else "made"
        where = f"axes {workload.axes}, seed {workload.seed}"
        name = planned.definition.name
        how = "; ".join((where, *_how_made(planned, broken, workload)))
        raise BrokenConstraintError(
            f"a workload of {name} was {what} that breaks {broken!r}: {how}"
        )


def _how_made(planned: Plan, broken: str, workload: Workload) -> Iterator[str]:
    """By which rules the inputs are made that a broken constraint speaks of, for its message."""
    spoken_of = {name for each in planned.stated if each.text == broken for name in each.tensors}
    recorded = stored_inputs(planned.definition, workload)
    for name, line in zip(planned.rules, planned.explained(), strict=True):
        if name in spoken_of and name not in recorded:
            yield line


def scalar_inputs(definition: Definition, workload: Workload) -> dict[str, Scalar]:
    """The values of the inputs that are Python scalars."""
    scalars = [name for name, spec in definition.inputs.items() if spec.is_scalar]
    sizes = definition.axis_values(workload.axes) if scalars else {}
    planned = plan(definition)
    rules = {**planned.rules, **planned.narrowed(workload.axes)}
    inputs = InputTensors(definition, rules, sizes, {})
    drawn = {name: _scalar(name, inputs, workload) for name in scalars}
    drawn = {n: _as_compared(drawn[n], n, planned, inputs, workload) for n in scalars}
    if NEAR in workload.regime:
        drawn |= _scalars_near(inputs, workload)
    given = {
        name: int(spec.value)
        for name, spec in workload.inputs.items()
        if isinstance(spec, ScalarInput) and name in planned.scalars
    }
    fitting = planned.fitting(drawn, {**workload.axes, **given})
    return _meeting_constraints(planned, fitting, inputs, workload)


def is_allowed(definition: Definition, axes: Mapping[str, int], name: str, number: Scalar) -> bool:
    """Whether the rule of an integer scalar allows a number in workloads of these axes."""
    planned = plan(definition)
    rule = planned.rules[name]
    if not isinstance(rule, kinds.Integers):
        return False
    inputs = InputTensors(definition, planned.rules, definition.axis_values(axes), {})
    return inputs.steps(rule).has(number) or number in (rule.sentinels or ())


def _meeting_constraints(
    planned: Plan, scalars: dict[str, Scalar], inputs: InputTensors, workload: Workload
) -> dict[str, Scalar]:
    """Scalars of which floating ones are drawn again while they break a constraint on scalars.

    What stays broken after ``REDRAWN`` times is for whoever checks the whole workload.
    """
    ranges = {name: _range(name, inputs) for name in scalars if name not in workload.inputs}
    free = {name: ends for name, ends in ranges.items() if ends is not None}
    spoken_of = [
        each for each in planned.stated if each.tensors <= {*scalars} and each.tensors & free.keys()
    ]
    for attempt in range(REDRAWN):
        known = {**inputs.sizes, **scalars}
        broken = next((each for each in spoken_of if not each.holds(known)), None)
        if broken is None:
            break
        for name in broken.tensors & free.keys():
            source = random.Random(_seed(workload.seed, f"{name}/{attempt}"))
            number = source.uniform(*free[name])
            scalars[name] = _as_compared(number, name, planned, inputs, workload)
    return scalars


def _range(name: str, inputs: InputTensors) -> tuple[float, float] | None:
    """The ends between which a floating scalar is any number; None of what is made otherwise."""
    rule = inputs.rules[name]
    if not isinstance(rule, kinds.Uniform):
        return None
    return inputs.number(rule.min), inputs.number(rule.max)


def _as_compared(
    number: Scalar, name: str, planned: Plan, inputs: InputTensors, workload: Workload
) -> Scalar:
    """A scalar that is drawn: in half of the workloads, one that elements may equal if compared.

    In the others it shows what rounds such a number. One in four divisors shows what multiplies by
    its reciprocal. One that is given stays.
    """
    rule = inputs.rules[name]
    if name in planned.uses.whole_divisors and isinstance(rule, kinds.Integers):
        is_drawn = name not in workload.inputs and workload.seed % 4 == 1
        steps = inputs.steps(rule)
        if is_drawn and steps.are_all:
            return _of_short_reciprocal(int(number), steps.ends[1])
        return number
    is_compared = name in planned.uses.compared and isinstance(number, float)
    if not is_compared or workload.seed % 2 or name in workload.inputs:
        return number
    low, high = _range(name, inputs) or (-math.inf, math.inf)
    is_sentinel = not low <= number <= high
    return number if is_sentinel else min(max(_of_few_bits(number), low), high)


def _of_short_reciprocal(least: int, most: int) -> int:
    """An integer some of whose multiples fall short, once multiplied by its float32 reciprocal.

    The first is 41. It is the next one from ``least`` on; and that if there is none up to ``most``.
    """
    for divisor in range(max(least, 1), min(most, least + LOOKED_THROUGH) + 1):
        reciprocal = _float32(1 / divisor)
        if any(_float32(n * divisor * reciprocal) < n for n in range(1, SHORT_MULTIPLES)):
            return divisor
    return least


def _float32(number: float) -> float:
    """The float32 number that is nearest."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def _scalar(name: str, inputs: InputTensors, workload: Workload) -> Scalar:
    given, rule = workload.inputs.get(name), inputs.rules[name]
    if isinstance(given, ScalarInput):
        return given.value
    floating = inputs.definition.inputs[name].dtype.is_floating
    if isinstance(rule, FixedValue):
        is_whole = isinstance(rule.value, int) and not isinstance(rule.value, bool)
        return float(rule.value) if floating and is_whole else rule.value
    source = random.Random(_seed(workload.seed, name))
    if isinstance(rule, kinds.Boolean):
        return source.random() < inputs.number(rule.p)
    if isinstance(rule, kinds.OneOf):
        turn = _turn(name, inputs.definition, workload.seed)
        value = sorted(rule.values)[turn % len(rule.values)]
        return float(value) if floating else int(value)
    assert isinstance(rule, kinds.Uniform | kinds.Integers), f"{rule.kind} makes no scalars"
    if rule.sentinels and source.random() < SENTINEL_SHARE:
        chosen = source.choice(rule.sentinels)
        return float(chosen) if floating else int(chosen)
    return _of_range(name, rule, inputs, workload, source)


def _of_range(
    name: str,
    rule: kinds.Uniform | kinds.Integers,
    inputs: InputTensors,
    workload: Workload,
    source: random.Random,
) -> Scalar:
    """A scalar between two ends: one of these, what is special for most kernels, or any."""
    floating = inputs.definition.inputs[name].dtype.is_floating
    steps = inputs.steps(rule) if isinstance(rule, kinds.Integers) else None
    low, high = (inputs.number(rule.min), inputs.number(rule.max)) if steps is None else steps.ends
    # Half of the time, or a third where each end may switch something off, 0, 1 or the least or the
    # most it may be, or 2, which is the second of what is counted from 1; else often near to these.
    known = (low, high, 0, 1) if floating else (low, high, 0, 1, 2)
    special = sorted({n for n in known if low <= n <= high})
    special += [-1, -1] * (not floating and low == -1 and high > 0)  # no limit, most likely
    whole = [n for n in (0, 1, 1, 1, 2) if low <= n <= high]
    number: float
    if floating and workload.regime.get("values") == "zeros_and_ones" and whole:
        # Squares of distances are whole numbers here: they may equal what they are compared with.
        number = source.choice(whole)
    elif not floating and 2 * len(special) < high - low < MOST_DEALT:
        place = [*inputs.definition.inputs].index(name)
        number = _dealt(int(low), int(high), special, workload.seed, place)
    else:
        turn = _turn(name, inputs.definition, workload.seed) % (
            (3 if floating else 2) * len(special)
        )
        if isinstance(rule, kinds.Integers) and inputs.number(rule.step) == 1:
            high = _perhaps_a_size(low, high, inputs, _seed(workload.seed, f"{name}/size"))
        any_of = _any_float if steps is None else _any_integer
        number = special[turn] if turn < len(special) else any_of(low, high, source)
    number = number if steps is None else steps.number(number)
    return float(number) if floating else int(number)


def _perhaps_a_size(low: float, high: float, inputs: InputTensors, seed: int) -> float:
    """The end of a range, or the size of an axis that is in it: a scalar may limit a count."""
    source = random.Random(seed)
    sizes = [n for n in inputs.sizes.values() if low < n < high]
    return source.choice(sizes) if sizes and source.random() < SIZED_SHARE else high


def _scalars_near(inputs: InputTensors, workload: Workload) -> dict[str, Scalar]:
    """Those scalars that may be the number that a regime asks for, or next to it; each by turns."""
    found: dict[str, Scalar] = {}
    for name, rule in inputs.rules.items():
        spec = inputs.definition.inputs[name]
        if not spec.is_scalar or name in workload.inputs:
            continue
        near = near_numbers(workload.regime, whole=not spec.dtype.is_floating)
        fitting = [n for n in near if _may_be(n, rule, inputs)]
        if fitting:
            turn = _turn(name, inputs.definition, workload.seed)
            found[name] = fitting[turn % len(fitting)]
    return found


def _may_be(number: float, rule: InputRule, inputs: InputTensors) -> bool:
    """Whether a scalar by a rule that has a range may be a number: it is in that, and a step."""
    ends = inputs.ends(rule) if isinstance(rule, kinds.Uniform | kinds.Integers) else None
    if ends is None or not ends[0] <= number <= ends[1]:
        return False
    steps = inputs.steps(rule) if isinstance(rule, kinds.Integers) else None
    return steps is None or (number - steps.base) % steps.size == 0


def _any_float(low: float, high: float, source: random.Random) -> float:
    """A number of a range, often near to one of its ends."""
    is_near = source.random() < NEAR_SHARE
    return _near_an_end(low, high, source) if is_near else source.uniform(low, high)


def _any_integer(low: float, high: float, source: random.Random) -> float:
    """An integer of a range, often small or what whole tiles hold."""
    if source.random() < NEAR_SHARE:
        return _small(low, high, source)
    if source.random() < NEAR_SHARE:
        return _whole_tiles(low, high, source)
    return source.randint(int(low), int(high))


def _dealt(low: int, high: int, special: Sequence[float], seed: int, place: int) -> float:
    """An integer of a small range: a special one in one workload of four, else each in its turn.

    So a search has all of them, and those at different places of a definition hardly the same.
    """
    count, turn = divmod(seed % TURNS**2 + place, 4)
    if turn == 0:
        return special[count % len(special)]
    return low + (3 * count + turn) * STRIDES[place % len(STRIDES)] % (high - low + 1)


def _near_an_end(low: float, high: float, source: random.Random) -> float:
    """A number whose distance from the least or the most there may be has any size."""
    distance: float = (high - low) * 2.0 ** -source.randint(1, NEAREST)
    return source.choice((low + distance, high - distance))


def _small(low: float, high: float, source: random.Random) -> float:
    """An integer whose distance from 0, or from what is next to that, has any size."""
    base = min(max(int(low), 0), int(high))
    most = source.choice([int(end) - base for end in (low, high) if end != base] or [0])
    distance = int(2 ** source.uniform(0, math.log2(abs(most) + 1))) - 1
    return base + int(math.copysign(distance, most))


def _whole_tiles(low: float, high: float, source: random.Random) -> float:
    """What whole tiles hold, or one more or less: it may be a length. Else small."""
    tiles = [tile for tile in TILE_SIZES[1:] if tile <= high]
    if not tiles:
        return _small(low, high, source)
    tile = source.choice(tiles)
    count = int((min(high, MOST_OF_LENGTHS) // tile + 1) ** source.random())
    return min(max(tile * max(count, 1) + source.choice((0, 0, -1, 1)), low), high)


def _of_few_bits(number: float) -> float:
    """A number near to it that every floating dtype holds, so that elements may equal it."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(mantissa * 2**SCALAR_BITS) / 2**SCALAR_BITS, exponent)


@dataclass(frozen=True)
class Steps:
    """The numbers ``base + size * n`` for whole ``n`` between two ``ends``, both included.

    ``base`` is 0 where these are multiples of ``size``.
    """

    ends: tuple[int, int]
    size: float = 1
    base: float = 0

    @classmethod
    def between(cls, low: float, high: float, size: float) -> Steps:
        """From ``low`` on, up to ``high``: -1 and 1 in steps of 2."""
        if isinstance(low, int) and isinstance(high, int) and isinstance(size, int):
            first, rest = divmod(low, size)  # of 64 bits, floating numbers have too few
            return cls((first, (high - rest) // size), size, rest)
        first = round(low / size)
        base = low - first * size
        if abs(base) <= STEP_ERROR * size:
            base = 0
        return cls((first, first + int((high - low) / size + STEP_ERROR)), size, base)

    @property
    def are_all(self) -> bool:
        """Whether all integers between the ends are steps."""
        return self.size == 1 and self.base == 0

    def number(self, n: float) -> float:
        """The number of a step."""
        return n * self.size + self.base

    def has(self, number: float) -> bool:
        """Whether a number is a step."""
        n, rest = divmod(number - self.base, self.size)
        return rest == 0 and self.ends[0] <= n <= self.ends[1]

    def holds(self, numbers: torch.Tensor) -> torch.Tensor:
        """Which numbers are steps."""
        least, most = self.ends
        if (
            isinstance(self.size, int)
            and isinstance(self.base, int)
            and not numbers.is_floating_point()
        ):
            above = numbers.long() - self.base  # a quotient would be a float32
            n, is_step = above // self.size, above % self.size == 0
        else:
            n = (numbers - self.base) / self.size
            is_step = n == n.round()
        held: torch.Tensor = is_step & (n >= least) & (n <= most)
        return held


@dataclass(frozen=True)
class InputTensors:
    """A workload: the rule of every input, the sizes of all axes, and tensors made so far."""

    definition: Definition
    rules: Mapping[str, InputRule]
    sizes: Mapping[str, int]
    tensors: Mapping[str, torch.Tensor]

    def number(self, value: float | str) -> float:
        """A parameter that is a number, or an expression of axes, computed."""
        if not isinstance(value, str):
            return value
        size = self.sizes.get(value)  # most are an axis: no need to parse
        return parse_expression(value, self.definition)(self.sizes) if size is None else size

    def whole(self, value: float | str) -> int:
        """The same of a whole number."""
        return int(self.number(value))

    def steps(self, rule: kinds.Integers) -> Steps:
        """The numbers that a rule allows."""
        return Steps.between(*(self.number(each) for each in (rule.min, rule.max, rule.step)))

    def ends(self, rule: InputRule) -> tuple[float, float] | None:
        """The least and the most number that a rule allows; None of what has no range."""
        match rule:
            case kinds.Integers() | kinds.Uniform():
                return self.number(rule.min), self.number(rule.max)
            case kinds.Scales(signed=False):
                return self.number(rule.min), math.inf
            case kinds.SeqLens():
                return 0 if rule.allow_empty else 1, self.whole(rule.max)
            case kinds.Positions() | kinds.Indices():
                return 0, self.whole(rule.below) - 1
        return None

    def allows(self, rule: InputRule, values: torch.Tensor) -> torch.Tensor:
        """Which of these numbers a rule allows: all, where it has no range."""
        if isinstance(rule, kinds.Integers):
            return self.steps(rule).holds(values)
        least, most = self.ends(rule) or (-math.inf, math.inf)
        return (values >= least) & (values <= most)

    def axes(self, name: str) -> tuple[str, ...]:
        return tuple(self.definition.inputs[name].shape or ())

    def factors(self, value: float | str) -> tuple[str, ...]:
        """The axes of a parameter that is an axis or a product of axes, else nothing."""
        names = tuple(part.strip() for part in str(value).split("*"))
        return names if all(name in self.definition.axes for name in names) else ()

    def on_host(self, name: str) -> torch.Tensor:
        """An integer input, as int64 on the host."""
        return self.tensors[name].cpu().long()


@dataclass(frozen=True)
class FillContext(InputTensors):
    """What a generator needs to fill one input.

    - ``uses``: what the reference does with the inputs.
    - ``turn``: which of its special cases it makes, from 0 to TURNS - 1. It goes up by one with
      each seed of a search, and starts elsewhere for each input; ``shared_turn`` is the same for
      all inputs, and ``round_number`` goes up after TURNS of them.
    - ``top``: what value patterns take for the largest number of a dtype that has larger ones.
    - ``host_random``, ``device_random``: random generators on the host, and on the tensor's device.
    - ``files``: where recorded tensors lie, by their paths.
    """

    uses: ReferenceUses
    regime: Mapping[str, str]
    turn: int
    shared_turn: int
    round_number: int
    top: float
    host_random: torch.Generator
    device_random: torch.Generator
    files: Mapping[str, Path]

    @property
    def all_alike(self) -> bool:
        """Whether the integers of each input are one number, and all that is true or false true.

        What counts them then counts as many as there may be. That is of integers that are data and
        of indices that may be equal, before the numbers that they are compared with are put there.
        """
        return self.shared_turn in ALIKE_TURNS

    @property
    def nearly_alike(self) -> bool:
        """Whether the integers of each row are one number but for one: data, as above."""
        return self.shared_turn == NEARLY_ALIKE_TURN

    def lengths_of(self, indptr: str | None) -> torch.Tensor | None:
        """Sequence lengths from an indptr, on the host."""
        return None if indptr is None else self.on_host(indptr).diff()


def with_all_alike(seed: int, *, but_one: bool = False) -> int:
    """A seed near to this one by which all integers of each input, or row, are one number.

    Of each row all ``but_one``, where that is asked.
    """
    return seed - seed % TURNS + (NEARLY_ALIKE_TURN if but_one else ALIKE_TURNS[0])


def _turn(name: str, definition: Definition, seed: int) -> int:
    """Which of several special cases an input is, from 0 to TURNS - 1: in turn, by the seed.

    After each of these all inputs but the first are further ahead than before, so that not the same
    cases of two always meet.
    """
    place, round_number = [*definition.inputs].index(name), seed // TURNS
    return (seed + place * (INPUT_TURNS + round_number)) % TURNS


def special_at_end(definition: Definition, values: str, seed: int) -> list[str]:
    """The inputs that have a row whose last element is NaN or infinite, by their turn.

    So they are with this value pattern and seed; none with patterns without special values.
    """
    return [
        name
        for name in plan(definition).following("values")
        if is_last_special(values, _turn(name, definition, seed))
    ]


def _seed(seed: int, name: str) -> int:
    """A seed of its own for each input, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8]) >> 1


@dataclass(frozen=True)
class TensorLayout:
    """A tensor's torch shape, strides in elements, torch dtype name, and offset in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    offset: int = 0

    @classmethod
    def contiguous(cls, shape: Sequence[int], dtype: str) -> TensorLayout:
        """The layout of a row-major tensor."""
        return cls(tuple(shape), row_major_strides(shape), dtype)


def dtype_name(dtype: torch.dtype) -> str:
    """``float16`` for ``torch.float16``."""
    return str(dtype).removeprefix("torch.")


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor, in elements."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * max(n, 1))
    return tuple(reversed(strides)) if shape else ()


def layouts(definition: Definition, workload: Workload) -> dict[str, TensorLayout]:
    """The layout of every tensor of a workload. Outputs are contiguous."""
    axes = definition.axis_values(workload.axes)
    rules = plan(definition).rules
    layout = workload.regime.get("layout", LAYOUTS[0])
    by_name = {
        name: _input(spec, axes, rules.get(name), layout)
        for name, spec in definition.inputs.items()
        if not spec.is_scalar
    }
    for name, spec in definition.outputs.items():
        shape = _torch_shape(spec, axes, None)
        by_name[name] = TensorLayout.contiguous(shape, torch_dtype(spec.dtype))
    return by_name


def _input(
    spec: TensorSpec, axes: Mapping[str, int], rule: InputRule | None, layout: str
) -> TensorLayout:
    asked = rule if isinstance(rule, GeneratorKind) else GeneratorKind()
    names, shape = spec.shape or (), _torch_shape(spec, axes, asked.packed)
    stride = row_major_strides(shape)
    if asked.memory_order is not None:
        stride = _ordered(shape, [names.index(axis) for axis in asked.memory_order])
    elif asked.broadcast is not None:
        dims = [dim for dim, axis in enumerate(names) if axis not in asked.broadcast]
        stride = _ordered(shape, dims)
    elif layout == "row_strided" and len(shape) > 1:
        rows = max(shape[-1], 1)
        stride = (*(step // rows * (rows + ROW_GAP) for step in stride[:-1]), 1)
    offset = 1 if layout == "offset" else 0
    return TensorLayout(shape, stride, torch_dtype(spec.dtype), offset)


def _ordered(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor that holds these dimensions one within the other; of others, 0."""
    steps = dict(zip(dims, row_major_strides([shape[dim] for dim in dims]), strict=True))
    return tuple(steps.get(dim, 0) for dim in range(len(shape)))


def _torch_shape(spec: TensorSpec, axes: Mapping[str, int], packed: str | None) -> tuple[int, ...]:
    """The shape in torch's elements: two fp4 values share one, along ``packed`` or the last."""
    shape = list(spec.shape_at(axes))
    if spec.dtype.value.startswith("float4") and shape:
        dim = (spec.shape or ()).index(packed) if packed else len(shape) - 1
        shape[dim] = -(-shape[dim] // 2)
    return tuple(shape)


def torch_dtype(dtype: DType) -> str:
    """torch's name of a schema dtype."""
    return _RENAMED.get(dtype.value, dtype.value)


def empty_tensor(layout: TensorLayout, device: str) -> torch.Tensor:
    """A tensor of this layout in memory of its own, not initialised."""
    import torch

    elements = layout.offset + extent(layout.shape, layout.stride)
    memory = torch.empty(elements, dtype=getattr(torch, layout.dtype), device=device)
    return memory.as_strided(layout.shape, layout.stride, layout.offset)


def once(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that are there: along dimensions of stride 0, one."""
    for dim, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor as integers: NaN equals itself, and small dtypes can be copied at all."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(whole[tensor.element_size()])


@lru_cache(maxsize=1024)  # asked of the same few tensors again and again
def extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many elements a strided tensor spans, from its first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))


@dataclass(frozen=True)
class TorchDefaults:
    """Device and dtype of tensors that are made without either."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def now(cls) -> TorchDefaults:
        import torch

        return cls(torch.get_default_device(), torch.get_default_dtype())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Have them in force."""
        import torch

        before = TorchDefaults.now()
        # A mode costs each call of torch a microsecond, so it is entered where it changes anything.
        mode = self.device if self.device != before.device else nullcontext()
        torch.set_default_dtype(self.dtype)
        try:
            with mode:
                yield
        finally:
            torch.set_default_dtype(before.dtype)


@contextmanager
def plain_defaults() -> Iterator[None]:
    """Have torch's own defaults in force: the CPU and float32."""
    import torch

    with TorchDefaults(torch.device("cpu"), torch.float32).applied():
        yield
