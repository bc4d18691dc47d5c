"""Fits a factor or an offset to a wrong output: for all of it, or for each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, log, log10, nan, sqrt

import torch

from pytest_fib.data import Sentence, format_distinct
from pytest_fib.diagnosis import _parts as parts
from pytest_fib.diagnosis._localize import localize, where
from pytest_fib.diagnosis._wrong_output import (
    FEW,
    NEARLY_ALL,
    SIGMAS,
    Failure,
    Sample,
    WrongOutput,
    rms,
    share,
    take,
    vary,
)
from pytest_fib.verdict import PRECISION

#: log10 of how unlikely it must be that a fit is good by chance.
CHANCE = 4.0
#: The share of the root mean square error that a fit may leave; and for an output that is wrong
#: only as a whole, since its elements keep their rounding errors.
LEFT, LEFT_TOGETHER = 0.5, 0.9
#: In shorter lines, what rounding leaves depends on values by chance.
MANY = 32
#: The share of wrong rows that must have a factor.
MOST_ROWS = 0.9
#: The most that a fitted offset of integers may differ from a whole number.
WHOLE = 1e-3
#: Fewer integers are off by the same whole number by chance.
LEAST_OFF = 4
#: As a share of the elements that are wrong, others that are off as they are.
AS_MANY = 0.25
#: Offsets that are a smaller share of what is allowed are those of a few faint elements; smaller
#: factors are those of elements that are nearly 0 for any reason.
FAINT = 1e-3
#: A factor whose error is a smaller share of it has three digits: the last is off by a few at most.
THREE_DIGITS = 0.005
#: Factors that are nearer to 1 have digits by what they differ from it.
NEAR_1 = 0.1
#: How far errors are from one offset, root mean square, as a share of it.
SPREAD = 0.2
#: Factors of rows are one if they differ by less than this share of it, or of its distance from 1.
ALIKE = 1e-3
#: By which share sizes differ that no rounding to a few bits makes different.
APART = 2.0**-6
#: Elements of a part, as of a group of a row that has its own scale.
PART = 16
#: The least distance of a factor from one for all, as a share of that one's distance from 1.
OTHER = 0.1
#: The most likely that a factor may equal a known number by chance.
BY_CHANCE = 0.01
#: Factors that may come from anywhere: ratios of small numbers.
SIMPLE = {sign * p / q for p in range(1, 5) for q in range(1, 5) for sign in (-1, 1)}


@dataclass(frozen=True)
class LinearFit:
    """Least squares for each line of a sample: ``got = value * expected``, or ``expected + value``.

    ``good`` says which lines it explains, ``left`` is their root mean square error over the bound,
    ``error`` the standard error of the value.
    """

    value: torch.Tensor
    good: torch.Tensor
    left: torch.Tensor
    error: torch.Tensor

    @classmethod
    def of(cls, sample: Sample, *, factor: bool, left: float = LEFT) -> LinearFit:
        """Fit each line; a good fit leaves no more than ``left`` of the error, and not by chance.

        An element's weight is one over its bound; exact elements have rounding errors up to a half.
        """
        known = sample.finite
        size = sample.expected.abs()
        exact = 0.5 if bool((size == size.round())[known].all()) else 1e-6 * size.clamp(1.0)
        bound = torch.where(sample.bound > 0, sample.bound, exact)
        error = torch.where(known, sample.error / bound, 0.0)
        column = torch.where(known, (sample.expected if factor else 1.0) / bound, 0.0)
        length = column.square().sum(-1)
        change = (column * error).sum(-1) / length.clamp(min=1e-300)
        rest = error - column * change[..., None]
        value = 1 + change if factor else change
        # Values of another scale are rounded at that scale.
        reach = 2 * value.abs().clamp(min=1.0) if factor else torch.full_like(value, 2.0)
        close = (rest.abs() <= reach[..., None]) | ~known
        count = known.sum(-1)
        before, after = (x.square().sum(-1).div(count).sqrt() for x in (error, rest))
        gain = (before / after.clamp(min=1e-6 * before.clamp(min=1e-300))).log10()
        enough = (after <= left * before) & ((count - 1) * gain >= CHANCE) & (length > 0)
        if factor:  # a small one leaves what is no multiple of what is expected
            seen = torch.where(known, sample.got / bound, 0.0).square().sum(-1).div(count).sqrt()
            enough &= after <= left * seen
        shows = (rest.abs() > reach[..., None] / 2).any(-1) | (rest.shape[-1] >= MANY)
        enough &= ~(shows & _bent(rest, column, sample.expected.where(known, 0.0)))
        missed = (~close).sum(-1) <= (1 - NEARLY_ALL) * count
        error = after.clamp(min=1e-6) / length.clamp(min=1e-300).sqrt()
        return cls(value, enough & missed & (count >= 2) & (before > 0), after, error)


def _bent(rest: torch.Tensor, column: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Whether the residuals of each line depend on the values, as for another function."""
    curve = column * expected.abs()
    along = (curve * column).sum(-1) / column.square().sum(-1).clamp(min=1e-300)
    curve = curve - along[..., None] * column
    shared = (curve * rest).sum(-1).square()
    whole = curve.square().sum(-1) * rest.square().sum(-1)
    return (shared > LEFT * whole) & (expected.shape[-1] >= FEW)


def _changes(output: WrongOutput, failure: Failure) -> bool:
    """Whether a second call on the same inputs writes other numbers to most wrong elements."""
    second_call = failure.context.second_outputs.get(output.name)
    if second_call is None:
        return False
    sample = output.wrong_sample
    moved = (sample.got - take(second_call, sample.at)).abs()
    return share(moved > 2 * sample.bound) > 0.5


def factor_or_offset(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    """One factor or offset for all elements, or for the wrong ones; or one factor for each row.

    If the wrong elements have no pattern, rows come first: in wrong rows some elements may pass.
    What a second call of the same inputs changes has none.
    """
    if not output.is_number or _changes(output, failure):
        return
    if vary(output.any_sample.expected.abs()):
        yield from _one_number(output, failure, output.any_sample, ())
    if localize(output) is None:
        yield from _factor_per_row(output)
    if vary(output.wrong_sample.expected.abs()):
        yield from _one_number(output, failure, output.wrong_sample, where(output))
    yield from _factor_per_row(output)


def _one_number(
    output: WrongOutput, failure: Failure, sample: Sample, place: Sentence
) -> Iterator[tuple[str, Sentence]]:
    """One factor or offset of the elements of a sample: of those at a place, or of all."""
    left = LEFT if output.marked else LEFT_TOGETHER
    factor, offset = (LinearFit.of(sample, factor=f, left=left) for f in (True, False))
    fits = (factor, offset) if bool(_differ(sample.expected)) else (offset,)
    good = [fit for fit in fits if bool(fit.good)]
    best = min(good, key=lambda fit: float(fit.left), default=None)
    is_float, value = output.got.is_floating_point(), float(best.value) if best else 0.0
    is_factor = best is factor and is_float and abs(value) > FAINT
    if is_factor and not (_varies(output, sample, value) or _is_one_step(output, sample, value)):
        known = _known(value, float(factor.error), failure)
        times = _times(value, max(float(factor.error), _roundoff(output, sample, value)))
        other = None if known else _another(output, failure, value, factor=True)
        if other is None:
            of = (f"{times} x expected", *place) if place else (parts.Factor(times),)
            yield "one factor", (*of, *known)
        elif not place:
            yield "one factor", (parts.Factor(times).beside(_times(other)),)
    elif best is offset and (
        abs(value) > FAINT * float(sample.bound.median())
        and _are_alike(sample, value)
        and (not place or _stands_out(output, value))
        if is_float
        else len(sample.at) >= LEAST_OFF and abs(value - round(value)) < WHOLE
    ):
        off, digits = "off by" if place else "every element is off by", output.digits(value, "+")
        other = _another(output, failure, value, factor=False)
        if other is None:
            yield "one offset", (off, parts.Number(digits, otherwise=("one number",)), *place)
        elif not place:
            others = f"by {output.digits(other, '+')} with other inputs: it depends on these"
            yield "one offset", (f"{off} {digits} here, {others}",)


def _are_alike(sample: Sample, offset: float) -> bool:
    """Whether errors are one offset but for a little, not a range about it within the bounds."""
    return rms(sample.error[sample.finite] - offset) <= SPREAD * abs(offset)


def _stands_out(output: WrongOutput, offset: float) -> bool:
    """Whether few elements that aren't wrong are off by more than half of it, and to that side.

    Of errors of all sizes, those beyond a bound are alike too.
    """
    sample = output.any_sample
    is_wrong = sample.error.abs() > sample.bound
    is_near = (sample.error / offset > 0.5) & sample.finite & ~is_wrong
    return int(is_near.sum()) <= AS_MANY * int(is_wrong.sum())


def _another(output: WrongOutput, failure: Failure, value: float, *, factor: bool) -> float | None:
    """Another factor, or offset, that wrong elements have with other inputs, if there is one."""
    least = OTHER * abs(value - 1 if factor else value)
    for elsewhere in failure.elsewhere:
        for other in elsewhere.outputs:
            if other.name == output.name and vary(other.wrong_sample.expected.abs()):
                fit = LinearFit.of(other.wrong_sample, factor=factor)
                is_another = abs(float(fit.value) - value) > least
                if not output.got.is_floating_point():  # all but whole ones are fitted
                    is_another = round(float(fit.value)) != round(value)
                if bool(fit.good) and is_another:
                    return float(fit.value)
    return None


def _varies(output: WrongOutput, sample: Sample, factor: float) -> bool:
    """Whether many rows, or parts of a sample, have surely another factor than this one.

    One for all lies between theirs; those that are right have 1.
    """
    pieces = sample.at[: len(sample.at) // PART * PART].view(-1, PART)
    return any(
        _has_another(LinearFit.of(lines, factor=True), factor)
        for lines in (output.rows(sample), output.sample_at(pieces))
        if len(lines.at) > 1 and lines.at.shape[1] >= FEW
    )


def _is_one_step(output: WrongOutput, sample: Sample, factor: float) -> bool:
    """Whether a factor is no more than a rounding of elements that are nearly equal."""
    precision = PRECISION.get(output.got.dtype)
    sizes = sample.expected[sample.finite & (sample.expected != 0)].abs()
    is_small = precision is not None and abs(factor - 1) <= 2 * precision.roundoff
    return is_small and len(sizes) > 0 and bool(sizes.max() < 2 * sizes.min())


def _has_another(fit: LinearFit, factor: float) -> bool:
    distance = (fit.value - factor).abs()
    others = (distance > SIGMAS * fit.error) & (distance > OTHER * abs(factor - 1))
    known = fit.good | (fit.left <= 1)
    return share(others[known]) > 1 - MOST_ROWS


def _differ(expected: torch.Tensor) -> torch.Tensor:
    """Whether a line has several sizes beside 0, and not by roundings alone.

    Any number is a multiple of one.
    """
    size = torch.where(expected.isfinite(), expected.abs(), 0.0)
    return torch.where(size > 0, size, inf).amin(-1) < (1 - APART) * size.amax(-1)


def _roundoff(output: WrongOutput, sample: Sample, factor: float) -> float:
    """The standard error of a factor by the rounding of elements alone."""
    precision = PRECISION.get(output.got.dtype)
    return abs(factor) * precision.roundoff / sqrt(len(sample.at)) if precision else 0.0


def _times(factor: float, error: float = 0.0) -> str:
    """A factor in the digits that its standard error leaves as they are; two, or nearly three.

    One near 1 has at least as many as show what it differs by, and up to three more.
    """
    relative = error / abs(factor) if factor else 1.0
    known = floor(-log10(max(relative, 1e-9)))
    digits = min(5, max(2 + (relative < THREE_DIGITS), known))
    digits = max(digits, min(5, floor(log10(max(abs(factor), 1.0))) + 1))
    if 0 < abs(factor - 1) < NEAR_1:
        first = ceil(-log10(abs(factor - 1))) + (factor > 1)
        digits = max(digits, first, min(first + 3, known))
    return f"{factor:.{digits}g}"


def _factor_per_row(output: WrongOutput) -> Iterator[tuple[str, Sentence]]:
    rows = output.rows(output.wrong_sample)
    if not output.got.is_floating_point() or len(rows.at) < 2 or rows.at.shape[1] < FEW:
        return
    fit = LinearFit.of(rows, factor=True)
    good = fit.good & _differ(rows.expected)
    if share(good) < MOST_ROWS:
        return
    low, high = (float(end) for end in fit.value[good].aminmax())
    if max(abs(low), abs(high)) < FAINT:
        return  # what is left of sums that should be more, for any reason
    spread = 2 * SIGMAS * float(fit.error[good].median())  # as rounding makes it
    sums = [(side.sum(1) - 1).abs() < 1e-2 for side in (rows.got, rows.expected)]
    to_one = ("; each row sums to 1",) * bool(sums[0].all() and not sums[1].all())
    whole = localize(output) is not None
    rows_named = "each row" if whole else "each row that is wrong"
    if high - low <= max(ALIKE * min(abs(low), abs(low - 1)), spread):
        error = float(fit.error[good].median())
        words = f"{rows_named} is {_times(low, error)} x expected,"
        yield "one factor", (words, *where(output), *to_one)
    else:
        ends = " to ".join(format_distinct(low, high, 4))
        scaled = "rows are scaled" if whole else "rows that are wrong are scaled"
        words = f"{scaled}, by factors from {ends},"
        yield "factor per row", (words, *where(output), *to_one)


def _known(factor: float, error: float, failure: Failure) -> Sentence:
    """The name of the number that a factor equals within its standard error, if not by chance."""
    names = list(_known_factors(failure))
    reach = max(4 * error / max(abs(factor), 1e-300), 2.0**-20)
    if 2 * reach * len(names) > BY_CHANCE or any(abs(factor / n - 1) <= reach for n in SIMPLE):
        return ()
    for value, name in names:
        if abs(factor / value - 1) <= reach < abs(value - 1) / 4:
            return (parts.Name(name),)
    return ()


def _known_factors(failure: Failure) -> Iterator[tuple[float, str]]:
    for number, what in ((log(2), "ln 2"), (1 / log(2), "1 / ln 2")):
        yield number, f"{what}: a logarithm to another base?"
    for name, n in failure.context.axes.items():
        if n > 2:
            yield from ((n, name), (1 / n, f"1 / {name}"))
            yield from ((sqrt(n), f"sqrt({name})"), (1 / sqrt(n), f"1 / sqrt({name})"))
            yield n / (n - 1), f"{name} / ({name} - 1)"
            yield (n - 1) / n, f"({name} - 1) / {name}"
    for name, x in failure.context.readable_inputs().items():
        number = x if isinstance(x, (int, float)) else float(x) if x.numel() == 1 else nan
        if isfinite(number) and number != 0:
            yield from ((number, name), (1 / number, f"1 / {name}"))
