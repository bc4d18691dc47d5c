"""A wrong output, examined through samples that are small enough for many tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any, TypeAlias

import torch

from pytest_fib.data import Definition, is_unnamed
from pytest_fib.verdict import PRECISION, OutputComparison, compare_outputs, marked
from pytest_fib.workloads import row_major_strides

OutputsOf: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, torch.Tensor] | None]
#: Turns an output of the reference, whose axes it is given, into what a kernel writes.
Back: TypeAlias = Callable[[torch.Tensor, Sequence[str]], torch.Tensor]

#: The share of wrong elements that a pattern must account for.
NEARLY_ALL = 0.95
#: The share of all elements that a hypothesis about inputs must account for: all but a few that
#: round otherwise, since a part of the outputs may be right or wrong for another reason.
HELD = 0.99
#: log10 of how unlikely it must be that wrong elements hold certain values by chance.
EVIDENCE = 3.0
#: The least probability of 0, 1 and -1, infinities and NaN, whatever is wrong.
COMMON = 0.3
#: The least number of elements for a pattern: fewer elements are shown themselves.
FEW = 8
#: The share of the error that may remain if elements hold other known values.
LEFT = 0.25
#: How far the factor between written and claimed values may be from 1: this, and so many times the
#: standard error of the factor.
SAME_FACTOR, SIGMAS = 0.005, 4.0
#: Elements in a sample of the wrong ones, or of all.
SAMPLE = 1 << 14
#: More wrong elements are sampled by trial, since a list of all would be large.
LISTED = 1 << 20
#: How many other inputs are tried, since much is so by chance with some.
OTHERS = 4
#: Rows in a sample of rows, and elements of each.
ROWS, ROW_ELEMENTS = 64, 2048


@dataclass(frozen=True)
class CallContext:
    """The facts of the call with wrong outputs; all of them are optional.

    ``axes`` are the sizes of all axes. ``poisons`` filled the outputs before each call, two bytes
    each. ``second_outputs`` are those of a second call on the same inputs, ``previous`` what
    earlier calls should have written. ``reference_outputs`` computes the outputs of the reference
    for other values of some inputs, ``own_outputs`` the same in its own dtypes, and ``outputs``
    those of the implementation; each returns None if it fails. ``other_inputs`` makes plain inputs
    of the same sizes, others for each number; number 0 has the same kinds of values as ``inputs``.
    """

    definition: Definition | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    poisons: tuple[int, ...] = ()
    second_outputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    previous: Mapping[str, torch.Tensor] = field(default_factory=dict)
    reference_outputs: OutputsOf | None = None
    own_outputs: OutputsOf | None = None
    outputs: OutputsOf | None = None
    other_inputs: Callable[[int], Mapping[str, Any]] | None = None

    def readable_inputs(self) -> dict[str, Any]:
        """The inputs whose elements can be read, without empty tensors."""
        return {
            name: value
            for name, value in self.inputs.items()
            if is_readable(value) and (not isinstance(value, torch.Tensor) or value.numel())
        }

    def both(
        self, values: Mapping[str, Any]
    ) -> tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]] | None:
        """Outputs of the implementation and of the reference; None if one of them fails."""
        if self.outputs is None or self.reference_outputs is None:
            return None
        got = self.outputs(values)
        expected = None if got is None else self.reference_outputs(values)
        return None if got is None or expected is None else (got, expected)

    def compared(
        self,
        values: Mapping[str, Any],
        read_as: Mapping[str, Any] | None = None,
        back: Back = lambda output, axes: output,
    ) -> list[OutputComparison] | None:
        """The implementation's outputs for ``values`` beside those of the reference.

        Or beside what the reference computes from what they are ``read_as``, as ``back`` turns it.
        The reference's own rounding is allowed for. None if one of them fails.
        """
        if self.definition is None or self.outputs is None or self.reference_outputs is None:
            return None
        read = {**values, **(read_as or {})}
        got, expected = self.outputs(values), self.reference_outputs(read)
        if got is None or expected is None:
            return None
        own = self.own_outputs(read) if self.own_outputs else None
        axes = {name: spec.shape or () for name, spec in self.definition.outputs.items()}
        expected, *yardsticks = (
            {name: back(output, axes[name]) for name, output in outputs.items()}
            for outputs in (expected, own)
            if outputs is not None
        )
        inputs = {**self.inputs, **values}
        return compare_outputs(self.definition, got, expected, yardsticks, inputs=inputs)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {n: x for n, x in self.readable_inputs().items() if isinstance(x, torch.Tensor)}


@dataclass(frozen=True)
class Failure:
    """The wrong outputs of a call; ``right`` are the expected values of the others."""

    outputs: tuple[WrongOutput, ...]
    context: CallContext = field(default_factory=CallContext)
    right: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def elsewhere(self) -> tuple[Failure, ...]:
        """What is wrong with each of some other inputs; empty where nobody knows."""
        failures = map(self._with_other_inputs, range(OTHERS))
        return tuple(failure for failure in failures if failure is not None)

    def _with_other_inputs(self, number: int) -> Failure | None:
        context = self.context
        if context.other_inputs is None or context.definition is None:
            return None
        inputs = context.other_inputs(number)
        compared = context.compared(inputs)
        if compared is None:
            return None
        wrong = [each for each in compared if not each.passed]
        outputs = tuple(WrongOutput.of(each, context.definition) for each in wrong)
        right = {each.name: each.expected for each in compared if each.passed}
        return Failure(outputs, CallContext(context.definition, context.axes, inputs), right)


def is_readable(value: Any) -> bool:
    """Whether the elements of an input or output can be read: not those of float4."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return True
    return value.dtype in PRECISION or value.dtype is torch.float8_e8m0fnu


@dataclass(frozen=True)
class Sample:
    """Elements at some flat indices, in float64: both sides and the allowed distance.

    ``error`` is the written value minus the expected one, exact for integers.
    """

    at: torch.Tensor
    got: torch.Tensor
    expected: torch.Tensor
    bound: torch.Tensor
    error: torch.Tensor

    @cached_property
    def finite(self) -> torch.Tensor:
        """Where both sides are numbers."""
        return self.got.isfinite() & self.expected.isfinite()

    def part(self, which: torch.Tensor) -> Sample:
        sides = self.at, self.got, self.expected, self.bound, self.error
        return Sample(*(side[which] for side in sides))


@dataclass(frozen=True)
class WrongOutput:
    """One output: the written and the expected values, and the allowed distance.

    ``dims`` names the axis of every dimension. ``wrong`` (bool) marks the elements beyond
    ``bound``, which broadcasts to the output's shape. If none is marked, the output as a whole is
    wrong, and all are examined. ``by_rows`` says that only rows are, or the output as a whole, and
    each element by itself is within its bound. Float4 outputs are unpacked.
    """

    name: str
    dims: tuple[str, ...]
    got: torch.Tensor
    expected: torch.Tensor
    wrong: torch.Tensor
    bound: torch.Tensor
    by_rows: bool = False

    @classmethod
    def of(cls, comparison: OutputComparison, definition: Definition | None) -> WrongOutput:
        """From a failed comparison; without a definition, axes have no names."""
        name = comparison.name
        dims = () if definition is None else definition.outputs[name].shape or ()
        sides, by_rows = (comparison.got, comparison.expected), comparison.check != "elements"
        return cls(name, tuple(dims), *sides, *marked(comparison), by_rows)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.got.shape)

    @property
    def total(self) -> int:
        return self.got.numel()

    @cached_property
    def marked(self) -> int:
        """The number of wrong elements; 0 if only the output as a whole is wrong."""
        return int(self.wrong.sum())

    @property
    def count(self) -> int:
        return self.marked or self.total

    @property
    def width(self) -> int:
        """The length of a row, which is the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def is_number(self) -> bool:
        """Whether elements are more than true or false."""
        return self.got.dtype is not torch.bool

    def axis(self, dim: int) -> str:
        """The name of a dimension's axis, or its number."""
        name = self.dims[dim] if len(self.dims) == len(self.shape) else ""
        return dimension(name, dim)

    def digits(self, value: torch.Tensor | float, sign: str = "") -> str:
        """A value in few digits; integers have all digits."""
        return f"{float(value):{sign}{'.4g' if self.got.is_floating_point() else '.0f'}}"

    def sample_at(self, at: torch.Tensor) -> Sample:
        """The elements at these flat indices, of any shape."""
        got, expected = take(self.got, at), take(self.expected, at)
        error = got - expected
        if self.got.dtype is torch.int64:  # more digits than a float64 has
            error = torch.where(error.abs() < 2.0**62, self.difference_at(at).double(), error)
        bound = self.bound.to(at.device).expand(self.shape)[unraveled(at, self.shape)].double()
        return Sample(at, got, expected, bound.expand(at.shape), error)

    def difference_at(self, at: torch.Tensor) -> torch.Tensor:
        """What is written less what is expected, in int64, of integers; modulo 2**64."""
        one, other = (x.reshape(-1)[at.to(x.device)].long() for x in (self.got, self.expected))
        return (one - other).to(at.device)

    @cached_property
    def wrong_sample(self) -> Sample:
        """Wrong elements, ascending: all of them, or some."""
        return self.sample_at(self._wrong_indices())

    @cached_property
    def any_sample(self) -> Sample:
        """Elements that are wrong or right, ascending: all of them, or some."""
        return self.sample_at(_at_random(self.total, SAMPLE, self.got.device))

    def _wrong_indices(self) -> torch.Tensor:
        if not self.marked:
            return self.any_sample.at
        flat = self.wrong.reshape(-1)
        if self.count <= LISTED:
            return evenly(flat.nonzero()[:, 0], SAMPLE)
        tried = _at_random(self.total, SAMPLE * self.total // self.count, flat.device)
        return tried[flat[tried]]

    def rows(self, sample: Sample) -> Sample:
        """[rows, elements] of some of the rows that a sample has elements of, evenly spread."""
        width = max(self.width, 1)
        rows = evenly(torch.unique(sample.at // width), ROWS)[:, None] * width
        return self.sample_at(rows + evenly(torch.arange(width, device=rows.device), ROW_ELEMENTS))

    def holds(
        self, values: torch.Tensor, known: torch.Tensor | None = None, *, exact: bool = False
    ) -> bool:
        """Whether the wrong elements hold these values, and not by chance.

        ``known`` marks the elements that have a value here.
        """
        sample = self.wrong_sample
        if known is not None:
            sample, values = sample.part(known), values[known]
        agrees = self.agrees(sample, values, exact=exact)
        return agrees and self.evidence(sample, values) >= EVIDENCE

    def agrees(self, sample: Sample, values: torch.Tensor, *, exact: bool = False) -> bool:
        """Whether the elements of a sample hold these values, by chance or not.

        Written values that are merely small beside the expected ones don't count as zeros.
        """
        matches = sample.got == values if exact else self.near(sample, values)
        if share(matches) < NEARLY_ALL:
            return False
        numbers = sample.finite & values.isfinite()
        if not bool(numbers.any()):
            return True
        got, claimed = sample.got[numbers], values[numbers]
        least = min(rms(sample.error[numbers]), rms(got))
        return rms(got - claimed) <= LEFT * least and not _are_scaled(got, claimed)

    def evidence(self, sample: Sample, values: torch.Tensor) -> float:
        """log10 of how unlikely it is that wrong elements are so near to these values by chance.

        The chance of one is estimated from other elements' values, and from the distance between
        written and expected values. So a value that all elements hold is no evidence, and one of
        few integers, 0 or 1 hardly any.
        """
        matches = self.near(sample, values)
        if not bool(matches.any()):
            return 0.0
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(values), generator=generator).to(values.device)
        moved = order != torch.arange(len(order), device=order.device)
        others = share(self.near(sample, values[order])[moved])
        known = sample.finite & (sample.got.abs() != 1) & (sample.got != 0)
        chance = self._reach(sample, values) / sample.error.abs()
        chance = torch.where(known, chance, chance.nan_to_num(1.0).clamp(min=COMMON))
        return float(-chance[matches].clamp(max(others, 1e-9), 1.0).log10().sum())

    def near(self, sample: Sample, values: torch.Tensor) -> torch.Tensor:
        """Which elements of a sample hold ``values``, to within twice their bound."""
        same = (sample.got == values) | (sample.got.isnan() & values.isnan())
        return ((sample.got - values).abs() <= self._reach(sample, values)) | same

    def _reach(self, sample: Sample, values: torch.Tensor) -> torch.Tensor:
        """Twice the bounds of ``values``; values of another size are rounded at that size."""
        precision = PRECISION.get(self.got.dtype)
        if precision is None:
            return (2 * sample.bound).clamp(min=0.5)
        reach = precision.element * precision.roundoff
        bound, finite = sample.bound, values[values.isfinite()]
        if len(finite):
            bound = bound.clamp(min=reach * rms(finite)) + reach * values.abs()
        return 2 * bound


def dimension(axis: str, dim: int) -> str:
    """The name of a dimension's axis; its number if it has none."""
    return axis if axis and not is_unnamed(axis) else f"dim{dim}"


def take(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Elements at flat indices of any shape, in float64, on the device of ``index``."""
    flat, at = tensor.reshape(-1), index.to(tensor.device)
    if flat.element_size() == 1 and flat.is_floating_point():  # these can't be indexed everywhere
        return flat.view(torch.uint8)[at].view(flat.dtype).double().to(index.device)
    return flat[at].double().to(index.device)


def share(which: torch.Tensor) -> float:
    """The share of true elements; 0 of none."""
    return float(which.double().mean()) if which.numel() else 0.0


def vary(values: torch.Tensor) -> bool:
    return bool((values != values.flatten()[:1]).any())


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def unraveled(at: torch.Tensor, shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """The index in each dimension of flat ones; torch's own imports sympy for that, for 0.5 s."""
    steps = row_major_strides(shape)
    return tuple(at // step % size for size, step in zip(shape, steps, strict=True))


def evenly(values: torch.Tensor, most: int) -> torch.Tensor:
    """Up to ``most`` of the values, evenly spread."""
    count = min(len(values), most)
    return values[torch.arange(count, device=values.device) * len(values) // max(count, 1)]


def _at_random(total: int, most: int, device: torch.device) -> torch.Tensor:
    """Up to ``most`` indices below ``total``, ascending: all, or always the same ones at random."""
    if total <= most:
        return torch.arange(total, device=device)
    generator = torch.Generator().manual_seed(0)
    chosen: torch.Tensor = torch.unique(torch.randint(total, (most,), generator=generator))
    return chosen.to(device)


def _are_scaled(got: torch.Tensor, claimed: torch.Tensor) -> bool:
    """Whether written values are claimed ones times one factor, which is not 1.

    A factor of 1 / ln 2 is not one of the root of 2, though a wide bound allows for both.
    """
    square = float(claimed.square().sum())
    if not square:
        return False
    factor = float((got * claimed).sum()) / square
    error = float((got - factor * claimed).norm()) / sqrt(len(got) * square)
    return abs(factor - 1) > SAME_FACTOR + SIGMAS * error
