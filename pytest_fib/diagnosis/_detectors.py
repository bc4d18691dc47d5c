"""What kind of bug does a wrong output look like? One detector for each pattern.

A detector looks at samples of one wrong output and returns a sentence that fits behind the output's
name, or None. To add one, write the function and put it into ``SPECIFIC``, where the first that
recognises something decides, or into ``GENERAL``, which comes after the hypotheses about inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, log, nan, sqrt
from typing import TYPE_CHECKING, TypeAlias

import torch

from pytest_fib.diagnosis._localize import localize, shortened
from pytest_fib.diagnosis._wrong_output import (
    Failure,
    Sample,
    WrongOutput,
    evenly,
    rms,
    share,
    strides,
    take,
)
from pytest_fib.sandbox import fill_with_poison
from pytest_fib.verdict import PRECISION
from pytest_fib.workloads import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Detector: TypeAlias = Callable[[WrongOutput, Failure], str | None]

#: The share of wrong elements that a pattern must account for, and one that is most of them.
NEARLY_ALL, MOST = 0.95, 0.5
#: Wrong elements below which values that agree may do so by chance.
LEAST_EVIDENCE = 8
#: log10 of how unlikely it must be that a fit is good, or that values are apart, by chance.
CHANCE = 4.0
#: The share of the root mean square error that a fit may leave; of an output that is wrong only as
#: a whole, whose elements keep the errors of their rounding.
LEFT, LEFT_TOGETHER = 0.5, 0.9
#: The share of wrong elements that a shift brings from within the tensor.
SHIFTED = 0.7
#: Slices of a dimension that are looked for at other places, and elements that identify each.
SLICES, MARKS, MOST_SLICES = 64, 24, 8192
#: Unit roundoffs that errors are compared with; float16's is tf32's too.
ROUNDOFFS = {"float16 or tf32": 2.0**-11, "bfloat16": 2.0**-8, "float8 e4m3": 2.0**-4}
#: The largest error, as a share of a row's scale, that rounding operands to float8 e5m2 makes.
COARSEST = 0.08
#: How much of small errors is in proportion to what is expected, where that is not by chance.
ALONG = 0.3
#: The share of their bounds, root mean square, that errors of mere rounding don't use.
ROUNDED = 0.15


def where(output: WrongOutput) -> str:
    """Where an output is wrong, behind a blank."""
    location = localize(output)
    return f" {location.phrase}" if location else " at scattered elements"


# ---- special values ----


def _never_written(output: WrongOutput, failure: Failure) -> str | None:
    written = bits(output.got.reshape(-1))[output.wrong_sample.at]
    for poison in failure.context.poisons:
        left = fill_with_poison(written[:1].clone(), poison)
        if share(written == left) >= MOST:
            place = _where_those(output, bits(output.got) == left)
            return f"never written{place}".removesuffix(" everywhere")
    return None


def _where_those(output: WrongOutput, which: torch.Tensor) -> str:
    """Where some of the wrong elements are; others may be wrong because these are."""
    return where(replace(output, wrong=output.wrong & which))


def _overflow(output: WrongOutput, failure: Failure) -> str | None:
    sample = output.wrong_sample
    overflown = sample.got.isinf() & sample.expected.isfinite()
    if share(~sample.got.isfinite() & sample.expected.isfinite()) < MOST or not overflown.any():
        return None
    least = float(sample.expected[overflown].abs().min())
    place = _where_those(output, ~output.got.isfinite())
    return f"infinity{place}, where values of {least:.3g} or more are expected"


def _nan(output: WrongOutput, failure: Failure) -> str | None:
    sample = output.wrong_sample
    if share(sample.got.isnan() & ~sample.expected.isnan()) < MOST:
        return None
    expected = "infinity is" if share(sample.expected.isinf()) >= MOST else "numbers are"
    return f"NaN{where(output)}, where {expected} expected"


def _lost_special_value(output: WrongOutput, failure: Failure) -> str | None:
    sample = output.wrong_sample
    expected = sample.expected.to(output.got.dtype).double()
    if share(~expected.isfinite() & sample.got.isfinite()) < MOST:
        return None
    special = "NaN" if bool(expected.isnan().any()) else f"{float(expected.min()):g}"
    return f"finite numbers{where(output)}, where {special} is expected"


def _zeros(output: WrongOutput, failure: Failure) -> str | None:
    zeros = share(output.wrong_sample.got == 0) >= NEARLY_ALL
    return f"zeros{where(output)}" if zeros else None


def _constant(output: WrongOutput, failure: Failure) -> str | None:
    sample = output.wrong_sample
    value = sample.got.median()
    constant = len(sample.at) >= 4 and share(sample.got == value) >= NEARLY_ALL
    if not constant or not _vary(sample.expected):
        return None
    return f"the same value, {float(value):.4g},{where(output)}"


def _vary(values: torch.Tensor) -> bool:
    return bool((values != values.flatten()[0]).any())


# ---- other values than its own ----


def _holds(output: WrongOutput, values: torch.Tensor, keep: torch.Tensor | None = None) -> bool:
    """Whether the wrong elements hold ``values``, and these are not what is expected anyway.

    ``keep`` has the elements that count.
    """
    sample = output.wrong_sample
    holds, differs = sample.holds(values), sample.differs(values)
    if keep is not None:
        holds, differs = holds[keep], differs[keep]
    enough = len(holds) >= min(LEAST_EVIDENCE, output.total)
    return enough and share(holds) >= NEARLY_ALL and share(differs) >= MOST


def _stale(output: WrongOutput, failure: Failure) -> str | None:
    earlier = failure.context.previous.get(output.name)
    if earlier is None or earlier.shape != output.got.shape:
        return None
    stale = _holds(output, take(earlier, output.wrong_sample.at))
    return f"holds the results of an earlier call{where(output)}" if stale else None


def _swapped(output: WrongOutput, failure: Failure) -> str | None:
    wrong = {other.name: other.expected for other in failure.outputs if other is not output}
    for name, values in {**failure.right, **wrong}.items():
        if values.shape == output.got.shape and _holds(
            output, take(values, output.wrong_sample.at)
        ):
            return f"holds what is expected of {name}{where(output)}"
    return None


def _copied(output: WrongOutput, failure: Failure) -> str | None:
    sample = output.wrong_sample
    for name, tensor in failure.context.tensors().items():
        if tensor.shape != output.got.shape or len(sample.at) < 2:
            continue
        values = take(tensor, sample.at)
        if share(sample.got == values) >= NEARLY_ALL and _vary(values):
            return f"equal to the input {name}{where(output)}"
    return None


def _negated(output: WrongOutput, failure: Failure) -> str | None:
    sample = output.wrong_sample
    large = (sample.expected.abs() > 2 * sample.bound) & sample.finite
    if share(large) < MOST or share(sample.holds(-sample.expected)[large]) < NEARLY_ALL:
        return None
    return f"the sign is wrong{where(output)}"


def _missing_input(output: WrongOutput, failure: Failure) -> str | None:
    """An input that was not added, or was added twice; or not multiplied by, or twice."""
    sample = output.wrong_sample
    for name, tensor in failure.context.tensors().items():
        values = _broadcast(tensor, output)
        if values is None:
            continue
        for words, right in (
            (f"{name} was not added", sample.expected - values),
            (f"{name} was added twice", sample.expected + values),
            (f"not multiplied by {name}", sample.expected / values),
            (f"multiplied by {name} twice", sample.expected * values),
        ):
            if _holds(output, right):
                return f"as if {words}{where(output)}"
    return None


def _broadcast(tensor: torch.Tensor, output: WrongOutput) -> torch.Tensor | None:
    """An input at the wrong elements; one of fewer dimensions is broadcast over the first ones."""
    shape = tuple(tensor.shape)
    if not shape or shape != output.shape[len(output.shape) - len(shape) :]:
        return None
    return take(tensor, output.wrong_sample.at % tensor.numel())


# ---- right values at wrong places ----


def _transposed(output: WrongOutput, failure: Failure) -> str | None:
    at = output.wrong_sample.at
    for i, j in combinations(range(len(output.shape)), 2):
        if 1 in (output.shape[i], output.shape[j]):
            continue
        # The elements that lie at the wrong places in memory once both have changed places.
        shape, steps = list(output.shape), strides(output.shape)
        for order in (shape, steps):
            order[i], order[j] = order[j], order[i]
        index = torch.unravel_index(at, shape)
        moved = torch.stack([x * step for x, step in zip(index, steps, strict=True)]).sum(0)
        if _holds(output, take(output.expected, moved)):
            return f"{output.axis(i)} and {output.axis(j)} are transposed"
    return None


def _shifted(output: WrongOutput, failure: Failure) -> str | None:
    at = output.wrong_sample.at
    for dim, (size, step) in enumerate(zip(output.shape, strides(output.shape), strict=True)):
        index = at // step % size
        for by in (1, -1):
            inside = (index >= by) & (index - by < size)
            if share(inside) < SHIFTED:  # what is left over at the end of a long shift is little
                continue
            values = take(output.expected, torch.where(inside, at - by * step, at))
            if _holds(output, values, inside):
                return f"shifted by {by:+d} along {output.axis(dim)}{where(output)}"
    return None


def _permuted(output: WrongOutput, failure: Failure) -> str | None:
    for dim, size in enumerate(output.shape):
        looked_for = 1 < size <= MOST_SLICES and output.total // size >= 4
        if looked_for and (moves := _moves(output, dim)):
            moved = shortened([f"{to} holds that of {from_}" for to, from_ in moves], 4)
            return f"right values at the wrong {output.axis(dim)}: {moved}"
    return None


def _moves(output: WrongOutput, dim: int) -> list[tuple[int, int]] | None:
    """Which slice of a dimension holds what another should, if all wrong ones do."""
    size, step = output.shape[dim], strides(output.shape)[dim]
    index = output.wrong_sample.at // step % size
    wrong = torch.unique(index)[:SLICES]
    # The same elements of every slice, at which the wrong ones are wrong.
    marks = evenly(torch.unique(output.wrong_sample.at - index * step), MARKS)
    if len(marks) < 4:
        return None
    slices = torch.arange(size, device=marks.device)[:, None] * step
    every = output.sample_at(marks + slices)
    bound = 2 * every.bound
    same = torch.ones((len(wrong), size), dtype=torch.bool, device=marks.device)
    for mark in range(len(marks)):
        held = (every.got[wrong][:, None, mark] - every.expected[:, mark]).abs()
        same &= held <= bound[:, mark]
    alike = ((every.expected[wrong][:, None] - every.expected).abs() <= bound).all(2)
    same &= ~alike  # what is expected here is there as well: that is no move
    if share(same.any(1)) < NEARLY_ALL or not _vary(every.expected):
        return None
    return list(zip(wrong.tolist(), same.int().argmax(1).tolist(), strict=True))


def _reordered(output: WrongOutput, failure: Failure) -> str | None:
    """The right values in each row, in an order of its own."""
    rows = output.rows
    if len(rows.at) < 2 or rows.at.shape[1] != output.width or output.width < 3:
        return None
    bound = rows.bound.amax(1, keepdim=True)
    moved = (rows.error.abs() > 2 * bound).any(1)
    got, expected = rows.got.sort(dim=1).values, rows.expected.sort(dim=1).values
    # Values close to one another are in any order what they are in another.
    apart = expected.diff(dim=1) > 4 * bound
    same = (got - expected).abs() <= bound
    if min(share(same), share(apart)) < NEARLY_ALL or share(moved) < MOST:
        return None
    return f"each row holds the right values in another order{where(output)}"


# ---- one factor or offset ----


@dataclass(frozen=True)
class LinearFit:
    """Least squares for each line of a sample: ``got = value * expected``, or ``expected + value``.

    ``good`` says which lines it explains, ``left`` is their root mean square error over the bound.
    """

    value: torch.Tensor
    good: torch.Tensor
    left: torch.Tensor

    @classmethod
    def of(cls, sample: Sample, *, factor: bool, left: float = LEFT) -> LinearFit:
        """Fit each line; a good fit leaves no more than ``left`` of the error, and not by chance.

        An element's weight is one over its bound.
        """
        known = sample.finite
        bound = torch.where(sample.bound > 0, sample.bound, 1e-6 * sample.expected.abs().clamp(1.0))
        error = torch.where(known, sample.error / bound, 0.0)
        column = torch.where(known, (sample.expected if factor else 1.0) / bound, 0.0)
        length = column.square().sum(-1)
        change = (column * error).sum(-1) / length.clamp(min=1e-300)
        rest = error - column * change[..., None]
        value = 1 + change if factor else change
        # What is written at another scale is rounded at that scale.
        reach = 2 * value.abs().clamp(min=1.0) if factor else torch.full_like(value, 2.0)
        close = (rest.abs() <= reach[..., None]) | ~known
        count = known.sum(-1)
        before, after = (x.square().sum(-1).div(count).sqrt() for x in (error, rest))
        gain = (before / after.clamp(min=1e-6 * before.clamp(min=1e-300))).log10()
        enough = (after <= left * before) & ((count - 1) * gain >= CHANCE) & (length > 0)
        missed = (~close).sum(-1) <= (1 - NEARLY_ALL) * count
        return cls(value, enough & missed & (count >= 2) & (before > 0), after)


def _one_factor(output: WrongOutput, failure: Failure) -> str | None:
    return _one_number(output, failure, factor=True)


def _one_offset(output: WrongOutput, failure: Failure) -> str | None:
    return _one_number(output, failure, factor=False)


def _one_number(output: WrongOutput, failure: Failure, *, factor: bool) -> str | None:
    """One factor, or one offset, of all elements or else of the wrong ones."""
    left = LEFT if output.marked else LEFT_TOGETHER
    samples = (("every element is ", output.any_sample), ("", output.wrong_sample))
    for every, sample in samples:
        fit, other = (LinearFit.of(sample, factor=f, left=left) for f in (factor, not factor))
        if not bool(fit.good):
            continue
        if bool(other.good) and bool(other.left < fit.left):
            return None  # both explain the error, and the other leaves less of it
        value = float(fit.value)
        known = _known(value, failure) if factor else ""
        words = f"{value:.5g} x expected" if factor else f"off by {value:+.4g}"
        return f"{every}{words}{'' if every else where(output)}{known}"
    return None


def _known(factor: float, failure: Failure) -> str:
    """What a factor is known for."""
    for value, name in _known_factors(failure):
        near = abs(factor / value - 1)
        if near < 1e-3 and abs(factor - 1) > 4 * near:
            return f" (which is {name})"
    return ""


def _known_factors(failure: Failure) -> Iterator[tuple[float, str]]:
    yield log(2), "ln 2: a logarithm to another base?"
    yield 1 / log(2), "1 / ln 2: a logarithm to another base?"
    for name, size in failure.context.axes.items():
        if size > 2:
            yield size, name
            yield 1 / size, f"1 / {name}"
            yield sqrt(size), f"sqrt({name})"
            yield 1 / sqrt(size), f"1 / sqrt({name})"
    for name, x in failure.context.readable_inputs().items():
        number = x if isinstance(x, (int, float)) else float(x) if x.numel() == 1 else nan
        if isfinite(number) and number != 0:
            yield number, name
            yield 1 / number, f"1 / {name}"


def _factor_per_row(output: WrongOutput, failure: Failure) -> str | None:
    words = _factor_per_line(output, output.rows, "row")
    got, expected = output.rows.got.sum(1), output.rows.expected.sum(1)
    to_one = bool(((got - 1).abs() < 1e-2).all() & ((expected - 1).abs() >= 1e-2).any())
    return f"{words}; each row sums to 1" if words and to_one else words


def _factor_per_column(output: WrongOutput, failure: Failure) -> str | None:
    return _factor_per_line(output, output.columns, "column")


def _factor_per_line(output: WrongOutput, lines: Sample, name: str) -> str | None:
    """Rows or columns that each have a factor, or nearly all of them."""
    if len(lines.at) < 2 or lines.at.shape[1] < 8:
        return None
    fit = LinearFit.of(lines, factor=True)
    if share(fit.good) < 0.9:
        return None
    low, high = (float(end) for end in fit.value[fit.good].aminmax())
    scales = f"{low:.4g} to {high:.4g}"
    return f"each {name} is scaled by a different factor, {scales},{where(output)}"


# ---- which elements are wrong, whatever they hold ----


def _dense_location(output: WrongOutput, failure: Failure) -> str | None:
    location = localize(output)
    vague = location is None or location.name in ("everywhere", "one element")
    return None if location is None or vague or not location.dense else f"wrong {location.phrase}"


def _location(output: WrongOutput, failure: Failure) -> str:
    location = localize(output)
    if location is None:
        return f"{output.count} of {output.total} elements are wrong, in no pattern"
    return f"wrong {location.phrase}"


# ---- small errors ----


def _rounded_toward_zero(output: WrongOutput, failure: Failure) -> str | None:
    """Every element is the next number towards zero, where half of them should be the other."""
    precision, sample = PRECISION.get(output.got.dtype), output.any_sample
    got, expected = sample.got.abs(), sample.expected.abs()
    normal = expected.isfinite() & (expected >= torch.finfo(torch.float16).tiny)
    if precision is None or int(normal.sum()) < 64:
        return None
    step = 2 * precision.roundoff * expected[normal].frexp().exponent.sub(1).double().exp2()
    below = (expected[normal] - got[normal]) / step
    if share((below > -0.05) & (below < 1.05)) < 0.98 or not 0.4 < float(below.mean()) < 0.6:
        return None
    return "every element is rounded toward zero, not to the nearest number"


def _about_one_factor(output: WrongOutput, failure: Failure) -> str | None:
    """Small errors that grow with what is expected, though not as one factor of all of it."""
    sides = _small_errors(output)
    if sides is None:
        return None
    error, expected = sides
    slope = float((error * expected).mean() / expected.square().mean())
    if abs(slope) * rms(expected) / rms(error) < ALONG + 4 / sqrt(error.numel()):
        return None
    return f"about {1 + slope:.5g} x expected everywhere, with other small errors"


def _lower_precision(output: WrongOutput, failure: Failure) -> str | None:
    """Small errors of every element, as often up as down, in proportion to the row's scale."""
    sides = _small_errors(output)
    if sides is None:
        return None
    size = rms(sides[0])
    name = min(ROUNDOFFS, key=lambda which: abs(log(size / (ROUNDOFFS[which] * 0.5))))
    return f"errors of {100 * size:.2g} % of a row's scale everywhere, as {name} arithmetic has"


def _small_errors(output: WrongOutput) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Small errors of every element, and what is expected, both over the scale of its row.

    None where the errors are not like rounding: they have a direction, a few are much larger than
    the rest, or they are as small as an honest rounding of the result.
    """
    rows = output.any_rows
    rows = output.sample_at(rows.at[rows.finite.all(1)])
    if rows.at.numel() < 16 or rms(rows.error / rows.bound.clamp(min=1e-300)) < ROUNDED:
        return None
    scale = rows.expected.square().mean(1, keepdim=True).sqrt()
    known = (scale > 0).expand_as(rows.got)
    error, expected = (x.div(scale)[known] for x in (rows.error, rows.expected))
    if not error.numel() or not 2.0**-14 < (size := rms(error)) < COARSEST:
        return None
    centred = abs(float(error.mean())) <= (0.1 + 4 / sqrt(error.numel())) * size
    alike = float(error.abs().median()) >= 0.2 * size
    return (error, expected) if centred and alike else None


#: The name of a pattern and its detector, the most specific first.
SPECIFIC: tuple[tuple[str, Detector], ...] = (
    ("unwritten", _never_written),
    ("overflow", _overflow),
    ("nan", _nan),
    ("lost special value", _lost_special_value),
    ("stale", _stale),
    ("swapped outputs", _swapped),
    ("copied input", _copied),
    ("zeros", _zeros),
    ("negated", _negated),
    ("constant", _constant),
    ("rounded toward zero", _rounded_toward_zero),
    ("transposed", _transposed),
    ("shifted", _shifted),
    ("permuted", _permuted),
    ("reordered", _reordered),
    ("missing input", _missing_input),
)
#: Those that describe more than they explain; what "location" finds has the location's name.
GENERAL: tuple[tuple[str, Detector], ...] = (
    ("one factor", _one_factor),
    ("one offset", _one_offset),
    ("factor per row", _factor_per_row),
    ("factor per column", _factor_per_column),
    ("location", _dense_location),
    ("about one factor", _about_one_factor),
    ("lower precision", _lower_precision),
    ("location", _location),
)
