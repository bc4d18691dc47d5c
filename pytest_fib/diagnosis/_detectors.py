"""What kind of bug does a wrong output look like?

A detector looks at samples of one wrong output and yields what it recognises, the most specific
first: a pattern, and a sentence that fits behind the output's name. To add one, write the function
and put it into ``SPECIFIC``, where the first that recognises something decides, or into
``GENERAL``, which comes after the hypotheses about inputs. What is recognised by the values that
the wrong elements hold in place of their own needs no detector, but a line in ``_other_values``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, log, nan, sqrt
from typing import TypeAlias

import torch

from pytest_fib.data import shortened
from pytest_fib.diagnosis._experiments import correlation, errors_of_moved_inputs
from pytest_fib.diagnosis._localize import localize
from pytest_fib.diagnosis._wrong_output import (
    COMMON,
    EVIDENCE,
    FEW,
    NEARLY_ALL,
    Failure,
    Sample,
    WrongOutput,
    evenly,
    rms,
    share,
    strides,
    take,
    unraveled,
)
from pytest_fib.sandbox import fill_with_poison
from pytest_fib.verdict import PRECISION
from pytest_fib.workloads import bits

OtherValues: TypeAlias = tuple[str, str, torch.Tensor] | tuple[str, str, torch.Tensor, torch.Tensor]
Detector: TypeAlias = Callable[[WrongOutput, Failure], Iterator[tuple[str, str]]]

#: The share of wrong elements that is most of them.
MOST = 0.5
#: log10 of how unlikely it must be that a fit is good, or that values are apart, by chance.
CHANCE = 4.0
#: The share of the root mean square error that a fit may leave; of an output that is wrong only as
#: a whole, whose elements keep the errors of their rounding.
LEFT, LEFT_TOGETHER = 0.5, 0.9
#: The share of wrong elements that a shift brings from within the tensor.
SHIFTED = 0.7
#: Slices of a dimension that are looked for at other places, and elements that identify each.
SLICES, MARKS, MOST_SLICES = 64, 24, 8192
#: How far a fitted offset of integers may be from a whole one.
WHOLE = 1e-3
#: How likely it may be that some number is what a factor is known for.
BY_CHANCE = 0.01
#: Factors that may come from anywhere.
SIMPLE = (-2.0, -1.0, -0.5, 0.25, 1 / 3, 0.5, 1.0, 2.0, 3.0, 4.0)
#: How many slices may be like a wrong one, on average, if one of them is to have been taken for it.
MOST_ALIKE = 1.5
#: Unit roundoffs that errors are compared with; float16's is tf32's too. What is rounded again and
#: again, as a sum that is kept in a dtype, has errors like those of a narrower one.
ROUNDOFFS = {
    "to float16 or tf32": 2.0**-11,
    "to bfloat16, or often to float16": 2.0**-8,
    "to float8 e4m3, or often to bfloat16": 2.0**-4,
}
#: The largest error, as a share of a row's scale, that rounding operands to float8 e5m2 makes.
COARSEST = 0.08
#: How far inputs are moved, over the size of small errors, to see whether these become others, and
#: the correlation from which they are the same. Of products with a factor beside a power of two,
#: neighbours over dozens of steps are rounded alike.
MOVED, RELATED = 64.0, 0.5
#: The share of their bounds, root mean square, that errors of mere rounding don't use.
ROUNDED = 0.15


def where(output: WrongOutput) -> str:
    """Where an output is wrong, behind a blank."""
    location = localize(output)
    return f" {location.phrase}" if location else f" at {output.count} of {output.total} elements"


def _where_those(output: WrongOutput, which: torch.Tensor) -> str:
    """Where some of the wrong elements are; others may be wrong because these are."""
    return where(replace(output, wrong=output.wrong & which))


def _vary(values: torch.Tensor) -> bool:
    return bool((values != values.flatten()[0]).any())


# ---- values that are nobody's ----


def _never_written(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """Elements that hold in each call what they held before it.

    Of one call, only where two bytes tell poison from numbers.
    """
    context, at = failure.context, output.wrong_sample.at
    again = context.again.get(output.name)
    calls = [output.got] if again is None else [output.got, again]
    if len(calls) > len(context.poisons) or (len(calls) == 1 and output.got.element_size() == 1):
        return
    left = torch.ones(output.shape, dtype=torch.bool, device=output.got.device)
    for got, poison in zip(calls, context.poisons, strict=False):
        written = bits(got.reshape(-1))
        same = written == fill_with_poison(written[:1].clone(), poison)
        left &= same.view(output.shape)
    if share(left.reshape(-1)[at]) >= MOST:
        yield "unwritten", f"never written{_where_those(output, left)}".removesuffix(" everywhere")


def _special_values(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """NaN and infinities where there should be none, or none where there should be."""
    got, expected = output.wrong_sample.got, output.wrong_sample.expected
    infinite = got.isinf() & expected.isfinite()
    if share(~got.isfinite() & expected.isfinite()) >= MOST and infinite.any():
        place = _where_those(output, ~output.got.isfinite())
        if least := _overflown_from(output, infinite):
            yield "overflow", f"infinity{place}, where values of {least:.3g} or more are expected"
        signs = torch.unique(got[infinite].sign()).tolist()
        special = {1.0: "inf", -1.0: "-inf"}[signs[0]] if len(signs) == 1 else "infinities"
        yield "infinity", _instead(f"{special}{place}", "numbers are")
    if share(got.isnan() & ~expected.isnan()) >= MOST:
        right = "infinity is" if share(expected.isinf()) >= MOST else "numbers are"
        yield "nan", _instead(f"NaN{where(output)}", right)
    rounded = expected.to(output.got.dtype).double()
    if share(~rounded.isfinite() & got.isfinite()) >= MOST:
        special = "NaN" if bool(rounded.isnan().any()) else f"{float(rounded.min()):g}"
        location = localize(output)
        known = location is not None and location.name in ("everywhere", "padding region")
        place = "" if known else where(output)
        yield "lost special value", f"finite numbers{place}, where {special} is expected"


def _instead(words: str, right: str) -> str:
    """Values at some place, and what is expected there if the place doesn't say it."""
    return words if words.endswith("expected") else f"{words}, where {right} expected"


def _overflown_from(output: WrongOutput, infinite: torch.Tensor) -> float:
    """The least size from which numbers are infinite, of their own sign; 0 if it is not size."""
    wrong, every = output.wrong_sample, output.any_sample
    if bool((wrong.got.sign() != wrong.expected.sign())[infinite].any()):
        return 0.0
    least = float(wrong.expected[infinite].abs().min())
    finite = every.expected[every.got.isfinite()].abs()
    return least if share(finite < least) >= NEARLY_ALL else 0.0


def _one_value(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    sample = output.wrong_sample
    value = sample.got.median()
    if not output.is_number or output.total < FEW or share(sample.got == value) < NEARLY_ALL:
        return
    if value == 0:
        yield "zeros", f"zeros{where(output)}"
    elif len(sample.at) >= 4 and _vary(sample.expected) and not _is_common(output, value):
        yield "constant", f"the same value, {_number(output, value)},{where(output)}"


def _is_common(output: WrongOutput, value: torch.Tensor) -> bool:
    """Whether many elements are right to be this: others may have become it for any reason."""
    return share(output.any_sample.expected == value) > COMMON


# ---- values that are another's ----


def _held_values(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    if not output.is_number:
        return
    for pattern, words, values, *known in _other_values(output, failure):
        if output.holds(values, *known, exact=pattern == "copied input"):
            yield pattern, words if pattern == "transposed" else f"{words}{where(output)}"


def _other_values(output: WrongOutput, failure: Failure) -> Iterator[OtherValues]:
    """What the wrong elements may hold in place of their own: a pattern, words and the values.

    And for which elements there is a value, if not for all.
    """
    at, expected = output.wrong_sample.at, output.wrong_sample.expected
    inputs = failure.context.tensors()
    others = {other.name: other.expected for other in failure.outputs if other is not output}
    for pattern, words, tensors in (
        ("stale", "holds the results of an earlier call", failure.context.previous),
        ("swapped outputs", "holds what is expected of {}", {**failure.right, **others}),
        ("copied input", "equal to the input {}", inputs),
    ):
        for name, tensor in tensors.items():
            if tensor.shape == output.got.shape and (pattern != "stale" or name == output.name):
                yield pattern, words.format(name), take(tensor, at)
    yield "negated", "the sign is wrong", -expected
    yield from _wrapped(output)
    yield from _transposed(output)
    yield from _shifted(output)
    for name, tensor in inputs.items():
        shape = tuple(tensor.shape)
        if not shape or shape != output.shape[len(output.shape) - len(shape) :]:
            continue  # one of fewer dimensions is broadcast over the first ones
        values = take(tensor, at % tensor.numel())
        yield "missing input", f"as if {name} was not added", expected - values
        yield "missing input", f"as if {name} was added once more", expected + values
        yield "missing input", f"as if not multiplied by {name}", expected / values
        yield "missing input", f"as if multiplied by {name} once more", expected * values


def _wrapped(output: WrongOutput) -> Iterator[OtherValues]:
    """The low bits of integers."""
    if output.got.is_floating_point():
        return
    whole = output.expected.reshape(-1)[output.wrong_sample.at]
    for narrow in (torch.int32, torch.int16, torch.int8, torch.uint8):
        if narrow.itemsize < output.got.element_size():
            words = f"wrapped around to {narrow.itemsize * 8} bits"
            yield "wrapped", words, whole.to(narrow).double()


def _transposed(output: WrongOutput) -> Iterator[OtherValues]:
    for i, j in combinations(range(len(output.shape)), 2):
        if 1 in (output.shape[i], output.shape[j]):
            continue
        # The elements that lie at the wrong places in memory once both have changed places.
        shape, steps = list(output.shape), strides(output.shape)
        for order in (shape, steps):
            order[i], order[j] = order[j], order[i]
        index = unraveled(output.wrong_sample.at, shape)
        moved = torch.stack([x * step for x, step in zip(index, steps, strict=True)]).sum(0)
        words = f"{output.axis(i)} and {output.axis(j)} are transposed"
        yield "transposed", words, take(output.expected, moved)


def _shifted(output: WrongOutput) -> Iterator[OtherValues]:
    at = output.wrong_sample.at
    for dim, (size, step) in enumerate(zip(output.shape, strides(output.shape), strict=True)):
        index = at // step % size
        for by in (1, -1):
            inside = (index >= by) & (index - by < size)
            if share(inside) < SHIFTED:  # what is left over at the end of a long shift is little
                continue
            values = take(output.expected, torch.where(inside, at - by * step, at))
            # What comes from outside may be anything.
            yield "shifted", f"shifted by {by:+d} along {output.axis(dim)}", values, inside


def _permuted(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    if not output.is_number:
        return
    for dim, size in enumerate(output.shape):
        is_sized = 1 < size <= MOST_SLICES and output.total // size >= 4
        if is_sized and (moves := _moves(output, dim)):
            moved = shortened(
                [f"{to} holds that of {from_}" for to, from_ in moves if to != from_], 4
            )
            yield "permuted", f"right values at the wrong {output.axis(dim)}: {moved}"


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
    if share(same.any(1)) < NEARLY_ALL or not _vary(every.got[wrong]):
        return None
    wrong, same = wrong[same.any(1)], same[same.any(1)]
    if float(same.sum(1).double().mean()) > MOST_ALIKE:
        return None  # what many slices hold is nobody's
    sources = same.int().argmax(1).tolist()
    if 1 < len(set(sources)) < NEARLY_ALL * len(sources):
        return None  # neither one for all nor each for one: they are merely alike
    return list(zip(wrong.tolist(), sources, strict=True))


def _reordered(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """The right values in each row, in an order of its own."""
    if not output.is_number:
        return
    rows = output.rows(output.wrong_sample)
    if len(rows.at) < 2 or rows.at.shape[1] != output.width or output.width < 3:
        return
    bound = rows.bound.amax(1, keepdim=True)
    moved = (rows.error.abs() > 2 * bound).any(1)
    got, expected = rows.got.sort(dim=1).values, rows.expected.sort(dim=1).values
    # Values close to one another are in any order what they are in another.
    apart = expected.diff(dim=1) > 4 * bound
    other = ((got - expected).abs() > bound).sum()
    misplaced = (rows.error.abs() > 2 * bound).sum()
    same = float(other) <= (1 - NEARLY_ALL) * float(misplaced)  # of those that are not in place
    if same and share(apart) >= NEARLY_ALL and share(moved) >= MOST:
        yield "reordered", f"each row holds the right values in another order{where(output)}"


# ---- one factor or offset ----


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

        An element's weight is one over its bound; what is exact is rounded by half, at most.
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
        # What is written at another scale is rounded at that scale.
        reach = 2 * value.abs().clamp(min=1.0) if factor else torch.full_like(value, 2.0)
        close = (rest.abs() <= reach[..., None]) | ~known
        count = known.sum(-1)
        before, after = (x.square().sum(-1).div(count).sqrt() for x in (error, rest))
        gain = (before / after.clamp(min=1e-6 * before.clamp(min=1e-300))).log10()
        enough = (after <= left * before) & ((count - 1) * gain >= CHANCE) & (length > 0)
        enough &= ~_bent(rest, column, sample.expected.where(known, 0.0))
        missed = (~close).sum(-1) <= (1 - NEARLY_ALL) * count
        error = after.clamp(min=1e-6) / length.clamp(min=1e-300).sqrt()
        return cls(value, enough & missed & (count >= 2) & (before > 0), after, error)


def _bent(rest: torch.Tensor, column: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Whether what a fit leaves of each line follows the size of values: as of another function."""
    curve = column * expected.abs()
    along = (curve * column).sum(-1) / column.square().sum(-1).clamp(min=1e-300)
    curve = curve - along[..., None] * column
    shared = (curve * rest).sum(-1).square()
    whole = curve.square().sum(-1) * rest.square().sum(-1)
    return (shared > LEFT * whole) & (expected.shape[-1] >= FEW)


def _one_number(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """One factor, or one offset, of all elements or else of the wrong ones."""
    if not output.is_number:
        return
    left = LEFT if output.marked else LEFT_TOGETHER
    for every, sample in (("every element is ", output.any_sample), ("", output.wrong_sample)):
        if not every and localize(output) is None:
            yield from _factor_per_line(output, failure)  # of whole rows, though some passed
        place = "" if every else where(output)
        if not every and _is_another_number(sample):
            continue
        factor, offset = (LinearFit.of(sample, factor=f, left=left) for f in (True, False))
        good = [fit for fit in (factor, offset) if bool(fit.good)]
        best = min(good, key=lambda fit: float(fit.left), default=None)
        if best is factor and _is_evident(output, sample, factor):
            value = float(factor.value)
            if value == 0:
                yield "zeros", f"zeros{where(output)}"
                return
            known = _known(value, float(factor.error), failure)
            yield "one factor", f"{every}{_times(value)} x expected{place}{known}"
        elif best is offset and _is_whole(output, float(offset.value)):
            yield "one offset", f"{every}off by {_number(output, offset.value, '+')}{place}"
    yield from _factor_of_few(output, failure)


def _number(output: WrongOutput, value: torch.Tensor, sign: str = "") -> str:
    """A number in few digits; an integer whole."""
    digits = ".4g" if output.got.is_floating_point() else ".0f"
    return f"{float(value):{sign}{digits}}"


def _times(factor: float) -> str:
    """A factor in few digits, but not as 1 what is off by it."""
    text = f"{factor:.5g}"
    return f"{factor:.9g}" if text == "1" else text


def _is_another_number(sample: Sample) -> bool:
    """Whether one number is in place of another, of which it is some factor in any case.

    Where it is off by less than twice, that it is off is all that there is to say.
    """
    expected, got = sample.expected[sample.finite], sample.got[sample.finite]
    if not bool((expected == expected[:1]).all() & (got == got[:1]).all()):
        return False
    share = got / expected
    return not bool(((share >= 0.5) & (share <= 2.0)).all())


def _is_evident(output: WrongOutput, sample: Sample, fit: LinearFit) -> bool:
    """Whether integers are what a factor makes of them by more than chance."""
    if output.got.is_floating_point():
        return True
    wrong, value = output.wrong_sample, float(fit.value)
    if not _is_whole(output, value) and not _is_whole(output, 1 / value):
        return False
    return output.evidence(wrong, fit.value * wrong.expected) >= 2 * EVIDENCE


def _is_whole(output: WrongOutput, number: float) -> bool:
    """Whether a number may lie between integers, or be their ratio; any may of other outputs."""
    return output.got.is_floating_point() or abs(number - round(number)) < WHOLE


def _factor_of_few(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """Of an output that is one element at any size, a factor that is known for something."""
    definition, sample = failure.context.definition, output.wrong_sample
    if output.total > 1 or not bool(sample.finite.all()) or float(sample.expected) == 0:
        return
    if definition is None or set(output.dims) & set(definition.var_axes):
        return  # there are larger ones
    value = float(sample.got / sample.expected)
    error = float(sample.bound / sample.expected.abs()) / 2
    if known := _known(value, error, failure):
        yield "one factor", f"{value:.5g} x expected{known}"


def _known(factor: float, error: float, failure: Failure) -> str:
    """What a factor is known for, given its standard error; nothing that many numbers are."""
    names = list(_known_factors(failure))
    reach = max(4 * error / max(abs(factor), 1e-300), 2.0**-20)
    if 2 * reach * len(names) > BY_CHANCE or any(abs(factor / n - 1) <= reach for n in SIMPLE):
        return ""
    for value, name in names:
        if abs(factor / value - 1) <= reach < abs(value - 1) / 4:
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
            yield size / (size - 1), f"{name} / ({name} - 1)"
            yield (size - 1) / size, f"({name} - 1) / {name}"
    for name, x in failure.context.readable_inputs().items():
        number = x if isinstance(x, (int, float)) else float(x) if x.numel() == 1 else nan
        if isfinite(number) and number != 0:
            yield number, name
            yield 1 / number, f"1 / {name}"


def _factor_per_line(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """Rows or columns that each have a factor, or nearly all of them."""
    if not output.got.is_floating_point():
        return
    rows, columns = output.rows(output.wrong_sample), output.columns(output.wrong_sample)
    location = localize(output)
    for name, lines in (("row", rows), ("column", columns)):
        if len(lines.at) < 2 or lines.at.shape[1] < 8:
            continue
        fit = LinearFit.of(lines, factor=True)
        if share(fit.good) >= 0.9:
            low, high = (float(end) for end in fit.value[fit.good].aminmax())
            if low == high == 0:
                continue
            sums = [(side.sum(1) - 1).abs() < 1e-2 for side in (lines.got, lines.expected)]
            to_one = f"; each {name} sums to 1" if sums[0].all() and not sums[1].all() else ""
            scales = f"{low:.4g} to {high:.4g},{where(output)}{to_one}"
            which = f"each {name}" if location else f"each {name} that is wrong"
            yield f"factor per {name}", f"{which} is scaled by a different factor, {scales}"


# ---- which elements are wrong, whatever they hold ----


def _dense_location(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    location = localize(output)
    if location and location.dense and location.name not in ("everywhere", "one element"):
        yield location.name, f"{_wrong(output)} {location.phrase}"


def _location(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    location = localize(output)
    if output.total < FEW:
        yield "everywhere" if output.count == output.total else "scattered", _wrong(output)
    elif location:
        yield location.name, f"{_wrong(output)} {location.phrase}"
    elif output.is_number:
        yield "scattered", f"{output.count} of {output.total} elements are wrong, in no pattern"
    else:
        yield "scattered", f"{_wrong(output)} at {output.count} of {output.total} elements"


def _wrong(output: WrongOutput) -> str:
    """``wrong``, or of bools which way, if it is one."""
    sides = [] if output.is_number else torch.unique(output.wrong_sample.got).tolist()
    one_way = {0.0: "False where True is expected", 1.0: "True where False is expected"}
    return one_way[sides[0]] if len(sides) == 1 else "wrong"


# ---- small errors ----


def _rounded_toward_zero(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """Every element is the next number towards zero, where half of them should be the other."""
    precision, sample = PRECISION.get(output.got.dtype), output.any_sample
    got, expected = sample.got.abs(), sample.expected.abs()
    normal = expected.isfinite() & (expected >= torch.finfo(torch.float16).tiny)
    if precision is None or int(normal.sum()) < 64:
        return
    step = 2 * precision.roundoff * expected[normal].frexp().exponent.sub(1).double().exp2()
    below = (expected[normal] - got[normal]) / step
    if share((below > -0.05) & (below < 1.05)) >= 0.98 and 0.4 < float(below.mean()) < 0.6:
        words = "every element is rounded toward zero, not to the nearest number"
        yield "rounded toward zero", words


def _small_errors(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, str]]:
    """Small errors of every element; those that rounding makes are others for other inputs."""
    if not output.got.is_floating_point():
        return
    rows = output.rows(output.any_sample)
    rows = output.sample_at(rows.at[rows.finite.all(1)])
    if rows.at.numel() < 16 or rms(rows.error / rows.bound.clamp(min=1e-300)) < ROUNDED:
        return
    scale = rows.expected.square().mean(1, keepdim=True).sqrt()
    has_scale = scale[:, 0] > 0
    error = (rows.error / scale)[has_scale]
    if not error.numel() or not 2.0**-14 < (size := rms(error)) < COARSEST:
        return
    if not _like_rounding(error):
        return
    words = f"errors of {100 * size:.2g} % of a row's scale everywhere"
    moved = errors_of_moved_inputs(output, failure.context, MOVED * size)
    if moved is None:
        yield "small errors", words
    elif abs(correlation(take(moved, rows.at), rows.error, beside=rows.expected)) < RELATED:
        name = min(ROUNDOFFS, key=lambda which: abs(log(size / (ROUNDOFFS[which] * 0.5))))
        yield "lower precision", f"{words}, like those of rounding {name}"


def _like_rounding(error: torch.Tensor) -> bool:
    """Whether errors [rows, elements] have no direction, and most elements and rows have one.

    A window, or a term that is left out, makes them all larger, or all smaller; or it changes some
    rows alone, and these by more.
    """
    size, chance = rms(error), 4 / sqrt(error.numel())
    direction = max(abs(float(error.mean())) / size, abs(float(error.sign().mean())))
    of_rows = error.square().mean(1).sqrt()
    return (
        direction <= 0.1 + chance
        and float(error.abs().median()) >= 0.2 * size
        and float(of_rows.median()) >= 0.1 * size
    )


#: Those that say what went wrong, the most specific first.
SPECIFIC: tuple[Detector, ...] = (
    _never_written,
    _special_values,
    _one_value,
    _held_values,
    _rounded_toward_zero,
    _permuted,
    _reordered,
)
#: Those that describe more than they explain.
GENERAL: tuple[Detector, ...] = (
    _one_number,
    _factor_per_line,
    _dense_location,
    _small_errors,
    _location,
)
