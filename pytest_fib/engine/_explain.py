"""What kind of bug does this look like? Names the pattern of the wrong elements of an output.

Runs after a failure only. Detectors look at samples of the wrong elements and at where they are
(``_places``); the first one of ``DETECTORS`` that recognises something has the word.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf, isfinite, log, log10, nan, sqrt
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine._bounds import PRECISION
from pytest_fib.engine._memory import poisoned
from pytest_fib.engine._mistake import (
    ROWS,
    Mistake,
    Seen,
    WrongOutput,
    distinct,
    evenly,
    share,
    strides,
    take,
)
from pytest_fib.engine._places import EVERYWHERE, listed, place_of, position
from pytest_fib.workloads import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_fib.engine._places import Place

__all__ = ["DETECTORS", "Explanation", "Mistake", "WrongOutput", "explain"]

#: The share of wrong elements that a pattern must account for.
MOST = 0.95
#: log10 of how unlikely a fit must be by chance.
CHANCE = 4.0
#: A fit must leave no more than this share of the root mean square error.
LEFT, LEFT_TOGETHER = 0.5, 0.9
#: The same of what is supposed of an input, and wrong elements that tell it.
SUPPOSED_LEFT, LEAST_EVIDENCE = 0.25, 8
#: The share of wrong elements that a shift brings from within the tensor, all but the first.
SHIFTED = 0.7
#: Slices of a dimension that are looked for at other places, and elements that identify each.
SLICES, MARKS, MOST_SLICES = 64, 24, 8192
#: Rows and columns that a rank is told by: four times the least of these.
FEWEST = 3
#: Unit roundoffs that errors are measured by; float16's is tf32's too.
ROUNDOFFS = {"float16 or tf32": 2.0**-11, "bfloat16": 2.0**-8, "float8 e4m3": 2.0**-4}
#: The largest error, as a share of a row's scale, that rounding operands to float8 e5m2 makes.
COARSEST = 0.08
#: From this one on, detectors describe rather than explain: before, inputs are supposed changed.
FIRST_VAGUE = "one factor"
#: Detectors of which the place has the name: of one, or of one that says little.
NAMED_BY_PLACE = ("place", "sparse place", "no place")
#: How much of small errors goes with what is expected, where that is not by chance.
ALONG = 0.3
#: The share of their bounds, root mean square, that errors of mere rounding don't use.
ROUNDED = 0.15
#: Columns of a terminal, and elements that are shown.
WIDTH, SHOWN = 80, 5


@dataclass(frozen=True)
class Explanation:
    """The name of the pattern, the kind of place it is at, one sentence, the worst elements."""

    pattern: str
    sentence: str
    elements: list[str]
    place: str = ""

    def lines(self) -> list[str]:
        """Plain text of at most 80 columns."""
        return [*textwrap.wrap(self.sentence, WIDTH), *(f"  {line}" for line in self.elements)]


def explain(mistake: Mistake) -> Explanation:
    """Name what is wrong with these outputs; at least one of them has elements."""
    # The most wrong output first: others may be wrong because it is, or by chance.
    outputs = [Seen(output, mistake) for output in mistake.outputs if output.got.numel()]
    outputs.sort(key=lambda seen: -seen.count / seen.total if not seen.together else 0.0)
    places = {seen.name: place_of(seen) for seen in outputs}
    for pattern, detect in DETECTORS:
        if pattern == FIRST_VAGUE and (words := _misread(outputs, mistake)):
            place = places[outputs[0].name]
            where = f", {place.phrase}" if place and place is not EVERYWHERE else ""
            sentence = f"{outputs[0].name}: as if {words}{where}"
            return Explanation("misread input", sentence, _elements(outputs[0]))
        for seen in outputs:
            place = places[seen.name]
            if said := detect(seen, place):
                name = place.name if place and pattern in NAMED_BY_PLACE else pattern
                sentence = f"{seen.name}: {said}"
                return Explanation(name, sentence, _elements(seen), place.name if place else "")
    raise ValueError("there are no outputs with elements")


def _misread(outputs: Sequence[Seen], mistake: Mistake) -> str | None:
    """What to suppose of the inputs, for all that is wrong to be right; best, for all there is."""
    partly = None
    for words, supposed in mistake.supposed:
        if not all(_agrees(seen, supposed[seen.name]) for seen in outputs):
            continue
        if all(_close(seen, seen.anywhere, supposed[seen.name]) >= MOST for seen in outputs):
            return words
        partly = partly or words
    return partly


def _agrees(seen: Seen, values: torch.Tensor) -> bool:
    """Whether an output holds ``values``, and they are not what is expected anyway."""
    if len(seen.at) < LEAST_EVIDENCE or _close(seen, seen.at, values) < MOST:
        return False
    there = take(values, seen.at)
    known = seen.finite & there.isfinite()
    before, after = ((seen.got - side)[known] for side in (seen.expected, there))
    return not bool(known.any()) or _rms(after) <= SUPPOSED_LEFT * _rms(before)


def _close(seen: Seen, at: torch.Tensor, values: torch.Tensor) -> float:
    """The share of the elements ``at`` that hold ``values``."""
    there, got, bound = take(values, at), seen.got_at(at), seen.bound_at(at)
    # What is of another size is rounded at that size.
    precision = PRECISION.get(seen.output.got.dtype)
    reach = 0.0 if precision is None else precision.element * precision.roundoff
    size = there[there.isfinite()]
    if len(size):
        bound = bound.clamp(min=reach * _rms(size)) + reach * there.abs()
    close = ((got - there).abs() <= 2 * bound) | (got == there) | (got.isnan() & there.isnan())
    return share(close)


def _elements(seen: Seen) -> list[str]:
    """The elements that are furthest beyond their bound."""
    error = torch.where(seen.got == seen.expected, 0.0, (seen.got - seen.expected).abs())
    used = (error / seen.bound.clamp(min=1e-300)).nan_to_num(inf, inf)
    worst = used.argsort(descending=True, stable=True)[:SHOWN].tolist()
    return [_element(seen, i) for i in worst]


def _element(seen: Seen, i: int) -> str:
    where = f"{seen.name}{position(seen, int(seen.at[i]))}"
    sides = f"got {float(seen.got[i]):.6g}, expected {float(seen.expected[i]):.6g}"
    whole = f"{where} {sides}, allowed ±{float(seen.bound[i]):.2g}"
    return whole if len(whole) <= WIDTH - 2 else f"{where} {sides}"[: WIDTH - 2]


def _in(place: Place | None) -> str:
    return f" {place.phrase}" if place else " at scattered elements"


# ---- what the wrong elements hold ----


def _unwritten(seen: Seen, place: Place | None) -> str | None:
    found = bits(seen.output.got.reshape(-1))[seen.at]
    for poison in seen.mistake.poisons:
        holds = poisoned(found[:1].clone(), poison)
        if share(found == holds) >= LEFT:
            return f"never written{_in(_place_of_those(seen, bits(seen.output.got) == holds))}"
    return None


def _place_of_those(seen: Seen, which: torch.Tensor) -> Place | None:
    """The place of some of the wrong elements; others may be wrong because these are."""
    those = replace(seen.output, wrong=seen.output.wrong & which)
    return place_of(Seen(those, seen.mistake))


def _stale(seen: Seen, place: Place | None) -> str | None:
    before = seen.mistake.previous.get(seen.name)
    if before is None or tuple(before.shape) != seen.shape:
        return None
    if seen.holds(take(before, seen.at.to(before.device)).to(seen.at.device)) < MOST:
        return None
    return f"the results of an earlier call{_in(place)}"


def _infinite(seen: Seen, place: Place | None) -> str | None:
    overflown = seen.got.isinf() & seen.expected.isfinite()
    if share(~seen.got.isfinite() & seen.expected.isfinite()) < LEFT or not bool(overflown.any()):
        return None
    least = float(seen.expected[overflown].abs().min())
    where = _in(_place_of_those(seen, ~seen.output.got.isfinite()))
    return f"overflow to infinity{where}, where values of {least:.3g} or more are expected"


def _nan(seen: Seen, place: Place | None) -> str | None:
    if share(seen.got.isnan() & ~seen.expected.isnan()) < LEFT:
        return None
    if share(seen.expected.isinf()) >= LEFT:
        return f"NaN{_in(place)}, where infinity is expected"
    return f"NaN{_in(place)}, where numbers are expected"


def _lost_special(seen: Seen, place: Place | None) -> str | None:
    """Numbers where NaN or an infinity is expected."""
    if share(~seen.expected.isfinite() & seen.got.isfinite()) < LEFT:
        return None
    what = "NaN" if bool(seen.expected.isnan().any()) else f"{float(seen.expected.min()):g}"
    return f"a number where {what} is expected{_in(place)}"


def _swapped(seen: Seen, place: Place | None) -> str | None:
    for name, right in seen.mistake.right.items():
        if right.shape == seen.output.got.shape and seen.holds(take(right, seen.at)) >= MOST:
            return f"holds what {name} should"
    for other in seen.mistake.outputs:
        if other.name == seen.name or other.got.shape != seen.output.got.shape:
            continue
        if seen.holds(take(other.expected, seen.at)) < MOST:
            continue
        theirs = Seen(other, seen.mistake)
        if theirs.holds(take(seen.output.expected, theirs.at)) >= MOST:
            return f"swapped with {other.name}"
        return f"holds what {other.name} should"
    return None


def _copied(seen: Seen, place: Place | None) -> str | None:
    for name, tensor in seen.tensors().items():
        values = seen.other(tensor)
        if values is None or tensor.dim() < len(seen.shape) or len(seen.at) < 2:
            continue
        if share(seen.got == values) >= MOST and _differ(values):
            return f"equal to the input {name}{_in(place)}"
    return None


def _differ(values: torch.Tensor) -> bool:
    return bool((values != values[0]).any())


def _zeros(seen: Seen, place: Place | None) -> str | None:
    return f"zeros{_in(place)}" if share(seen.got == 0) >= MOST else None


def _negated(seen: Seen, place: Place | None) -> str | None:
    large = (seen.expected.abs() > 2 * seen.bound) & seen.finite
    if share(large) < LEFT or seen.holds(-seen.expected, large) < MOST:
        return None
    return f"the sign is wrong{_in(place)}"


def _constant(seen: Seen, place: Place | None) -> str | None:
    value = seen.got.median()
    if len(seen.at) < 4 or share(seen.got == value) < MOST or not _differ(seen.expected):
        return None
    return f"the same value, {float(value):.4g},{_in(place)}"


# ---- what the wrong elements are off by ----


@dataclass(frozen=True)
class _Fit:
    """got = factor * expected + offset. Errors over the bound, before and after (RMS)."""

    factor: float
    offset: float
    before: float
    after: float
    elements: int
    parameters: int

    def explains(self, left: float) -> bool:
        """Whether no more than this share of the error is left, and would hardly be by chance."""
        if not self.before > 0 or self.after > left * self.before:
            return False
        gain = log10(self.before / max(self.after, 1e-6 * self.before, 1e-300))
        return (self.elements - self.parameters) * gain >= CHANCE


def _fit(
    sides: tuple[torch.Tensor, torch.Tensor, torch.Tensor], *, factor: bool, offset: bool
) -> _Fit | None:
    """Least squares on (got, expected, bound), each element weighted by one over its bound."""
    got, expected, bound = sides
    keep = got.isfinite() & expected.isfinite()
    got, expected, bound = got[keep], expected[keep], bound[keep]
    if len(got) < 2 or (factor and not bool((expected != 0).any())):
        return None
    weight = 1 / torch.where(bound > 0, bound, 1e-6 * expected.abs().clamp(min=1.0))
    columns = [expected * weight] * factor + [weight] * offset
    error = (got - expected) * weight
    changed = _solved(torch.stack(columns, 1), error)
    if changed is None:
        return None
    left = error - torch.stack(columns, 1) @ changed
    slope = 1 + float(changed[0]) if factor else 1.0
    # What is written at another scale is rounded at that scale.
    close = left.abs() <= 2 * max(1.0, abs(slope))
    if share(close) < MOST:
        return None
    shift = float(changed[-1]) if offset else 0.0
    return _Fit(slope, shift, _rms(error), _rms(left), len(got), len(columns))


def _solved(columns: torch.Tensor, error: torch.Tensor) -> torch.Tensor | None:
    """The least squares solution by normal equations; columns are scaled to length 1 before."""
    length = columns.norm(dim=0)
    unit = columns / length.clamp(min=1e-300)
    gram, right = (unit.T @ unit).cpu(), (unit.T @ error).cpu()  # one or two unknowns
    if gram.shape[0] == 2 and float(gram[0, 1].abs()) > 0.999:  # the same elements, twice
        return None
    solution: torch.Tensor = torch.linalg.solve(gram, right)
    return solution.to(length.device).div(length.clamp(min=1e-300))


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def _fits(seen: Seen, factor: bool, offset: bool) -> tuple[_Fit, bool] | None:
    """The fit to all elements, then to the wrong ones alone; whether it is the former."""
    sides = [(seen.got, seen.expected, seen.bound)]
    if not seen.together:
        at = seen.anywhere
        sides.insert(0, (seen.got_at(at), seen.expected_at(at), seen.bound_at(at)))
    # What is wrong only as a whole keeps the errors of its rounding, whatever it is off by.
    left = LEFT_TOGETHER if seen.together else LEFT
    for index, side in enumerate(sides):
        fit = _fit(side, factor=factor, offset=offset)
        if fit is not None and fit.explains(left):
            return fit, index < len(sides) - 1 or seen.together
    return None


def _better(found: tuple[_Fit, bool], other: tuple[_Fit, bool] | None) -> bool:
    """Of a factor and an offset that both explain an error, the one that leaves less of it."""
    return other is None or found[0].after <= other[0].after


def _one_factor(seen: Seen, place: Place | None) -> str | None:
    found = _fits(seen, True, False)
    if found is None or not _better(found, _fits(seen, False, True)):
        return None
    fit, all_ = found
    where = _in(EVERYWHERE if all_ else place)
    return f"{fit.factor:.4f} times what is expected{where}{_known(fit.factor, seen)}"


def _known(factor: float, seen: Seen) -> str:
    """What a factor is known for."""
    for value, what in _factors(seen):
        if abs(factor / value - 1) < 1e-3 and abs(factor - 1) > 4 * abs(factor / value - 1):
            return f" ({what})"
    return ""


def _factors(seen: Seen) -> Iterator[tuple[float, str]]:
    yield log(2), "ln 2: a logarithm to another base?"
    yield 1 / log(2), "1 / ln 2: a logarithm to another base?"
    for name, n in seen.mistake.axes.items():
        for value, what in (
            (n, name),
            (1 / max(n, 1), f"1 / {name}"),
            (sqrt(n), f"the root of {name}"),
            (1 / sqrt(max(n, 1)), f"1 / the root of {name}"),
            (n / max(n - 1, 1), f"{name} / ({name} - 1)"),
            ((n - 1) / max(n, 1), f"({name} - 1) / {name}"),
        ):
            if n > 2:
                yield value, what
    for name, x in seen.mistake.inputs.items():
        number = x if isinstance(x, (int, float)) else float(x) if x.numel() == 1 else nan
        if isfinite(number) and number != 0:
            yield number, name
            yield 1 / number, f"1 / {name}"


def _one_offset(seen: Seen, place: Place | None) -> str | None:
    if (found := _fits(seen, False, True)) is None:
        return None
    fit, all_ = found
    where = _in(EVERYWHERE if all_ else place)
    return f"off by {fit.offset:+.4g}{where}"


def _factor_and_offset(seen: Seen, place: Place | None) -> str | None:
    found = _fits(seen, True, True)
    # Far from a line through all is not far from every line: what little is left must be noise.
    if found is None or found[0].after > 1 or found[0].elements < 16:
        return None
    fit, all_ = found
    where = _in(EVERYWHERE if all_ else place)
    return f"{fit.factor:.4f} times what is expected, and {fit.offset:+.4g}{where}"


def _missing(seen: Seen, place: Place | None) -> str | None:
    """An input that was not added, or was added twice; or not multiplied by, or divided."""
    for name, tensor in seen.tensors().items():
        values = seen.other(tensor)
        if values is None or len(seen.at) < 4:
            continue
        for what, right in (
            (f"{name} was not added", seen.expected - values),
            (f"{name} was added once too often", seen.expected + values),
            (f"not multiplied by {name}", seen.expected / values),
            (f"multiplied by {name} once too often", seen.expected * values),
        ):
            matters = share((right - seen.expected).abs() > 4 * seen.bound) >= LEFT
            if matters and seen.holds(right) >= MOST:
                return f"{what}{_in(place)}, as it looks"
    return None


def _per_line(seen: Seen, lines: torch.Tensor, factor: bool) -> list[_Fit] | None:
    """A fit of each line, where all of them fit and they differ."""
    if lines.dim() != 2 or len(lines) < 2 or lines.shape[1] < 8:
        return None
    sides = zip(seen.got_at(lines), seen.expected_at(lines), seen.bound_at(lines), strict=True)
    fits = [_fit(line, factor=factor, offset=not factor) for line in sides]
    good = [fit for fit in fits if fit is not None and fit.explains(LEFT)]
    return good if len(good) >= 0.9 * len(lines) else None


def _factor_per_row(seen: Seen, place: Place | None) -> str | None:
    fits = _per_line(seen, seen.rows, True)
    if fits is None:
        return None
    return f"each row by a factor of its own{_range(fits)}{_in(place)}{_normalised(seen)}"


def _normalised(seen: Seen) -> str:
    """Whether the rows sum to 1, as they should not."""
    sums, right = seen.got_at(seen.rows).sum(1), seen.expected_at(seen.rows).sum(1)
    to_one = bool(((sums - 1).abs() < 1e-2).all()) and not bool(((right - 1).abs() < 1e-2).all())
    return ", and now sums to 1" if to_one else ""


def _range(fits: list[_Fit]) -> str:
    factors = [fit.factor for fit in fits]
    return f", {min(factors):.4g} to {max(factors):.4g},"


def _factor_per_column(seen: Seen, place: Place | None) -> str | None:
    fits = _per_line(seen, seen.columns, True)
    return None if fits is None else f"each column by a factor of its own{_range(fits)}{_in(place)}"


def _offset_per_row(seen: Seen, place: Place | None) -> str | None:
    fits = _per_line(seen, seen.rows, False)
    return None if fits is None else f"each row is off by an amount of its own{_in(place)}"


def _offset_per_column(seen: Seen, place: Place | None) -> str | None:
    fits = _per_line(seen, seen.columns, False)
    return None if fits is None else f"each column is off by an amount of its own{_in(place)}"


# ---- right values at wrong places ----


def _transposed(seen: Seen, place: Place | None) -> str | None:
    if len(seen.at) < 8:
        return None
    for i, j in combinations(range(len(seen.shape)), 2):
        if 1 in (seen.shape[i], seen.shape[j]):
            continue
        values = seen.expected_at(_as_transposed(seen, i, j))
        if seen.holds(values) >= MOST and seen.differs(values) >= LEFT:
            return f"transposed: {seen.axis(i)} and {seen.axis(j)} change places"
    return None


def _as_transposed(seen: Seen, i: int, j: int) -> torch.Tensor:
    """The elements that lie at ``at`` in memory once two dimensions have changed places."""
    shape, steps = list(seen.shape), strides(seen.shape)
    for order in (shape, steps):
        order[i], order[j] = order[j], order[i]
    index = torch.unravel_index(seen.at, shape)
    return sum((x * step for x, step in zip(index, steps, strict=True)), torch.zeros_like(seen.at))


def _shifted(seen: Seen, place: Place | None) -> str | None:
    for dim, (size, step) in enumerate(zip(seen.shape, strides(seen.shape), strict=True)):
        index = seen.at // step % size
        for by in (1, -1):
            inside = (index >= by) & (index - by < size)
            # What is left over at the end of a long shift is little.
            if int(inside.sum()) < 8 or share(inside) < SHIFTED:
                continue
            values = seen.expected_at(torch.where(inside, seen.at - by * step, seen.at))
            if seen.holds(values, inside) >= MOST and seen.differs(values, inside) >= LEFT:
                return f"shifted by {by:+d} along {seen.axis(dim)}{_in(place)}"
    return None


def _permuted(seen: Seen, place: Place | None) -> str | None:
    for dim, size in enumerate(seen.shape):
        looked_for = 1 < size <= MOST_SLICES and seen.total // size >= 4
        if looked_for and (found := _moved(seen, dim)):
            moves = listed([f"{to} holds {from_}'s" for to, from_ in found], 4)
            return f"right values at wrong places along {seen.axis(dim)}: {moves}"
    return None


def _reordered(seen: Seen, place: Place | None) -> str | None:
    """The right values in each row, in an order of its own."""
    grid = seen.rows
    if len(grid) < 2 or grid.shape[1] != seen.width or seen.width < FEWEST:
        return None
    sides = [seen.got_at(grid), seen.expected_at(grid)]
    bound = seen.bound_at(grid).amax(1, keepdim=True)
    moved = ((sides[0] - sides[1]).abs() > 2 * bound).any(1)
    got, expected = (side.sort(dim=1).values for side in sides)
    # Values close to one another are in any order what they are in another.
    apart = expected.diff(dim=1) > 4 * bound
    same = (got - expected).abs() <= bound
    if min(share(same), share(apart)) < MOST or share(moved) < LEFT:
        return None
    return f"the right values of each row in another order{_in(place)}"


def _moved(seen: Seen, dim: int) -> list[tuple[int, int]] | None:
    """Which slice of a dimension holds what another should, if all wrong ones do."""
    size, step = seen.shape[dim], strides(seen.shape)[dim]
    wrong = distinct(seen.at // step % size)[:SLICES]
    # The same elements of every slice, at which the wrong ones are wrong.
    base = distinct(seen.at - seen.at // step % size * step)
    base = base[evenly(len(base), MARKS, base.device)]
    if len(base) < 4:
        return None
    everywhere = base + torch.arange(size, device=base.device)[:, None] * step
    expected, bound = seen.expected_at(everywhere), seen.bound_at(everywhere)
    got = seen.got_at(everywhere[wrong])
    same = torch.ones((len(wrong), size), dtype=torch.bool, device=base.device)
    for mark in range(len(base)):
        same &= (got[:, None, mark] - expected[:, mark]).abs() <= 2 * bound[:, mark]
    alike = ((expected[wrong][:, None] - expected).abs() <= 2 * bound).all(2)
    same &= ~alike  # what is expected here is there as well: that is no move
    if share(same.any(1)) < MOST or not _differ(expected.flatten()):
        return None
    return list(zip(wrong.tolist(), same.int().argmax(1).tolist(), strict=True))


# ---- which elements are wrong, whatever they hold ----


def _by_value(seen: Seen, place: Place | None) -> str | None:
    """Wrong where a number is large, small or negative, and right elsewhere."""
    if seen.together or (place and place.name in ("everywhere", "padding region", "last tile")):
        return None
    for name, values, wrong in (*_row_facts(seen), *_element_facts(seen)):
        if said := _separated(name, values, wrong):
            return said
    return None


def _row_facts(seen: Seen) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """A number for every row, and which rows have wrong elements."""
    if len(seen.shape) < 2 or seen.width < 2:
        return
    wrong = seen.output.wrong.reshape(-1, seen.width).any(1)
    for name, tensor in {"what is expected": seen.output.expected, **seen.tensors()}.items():
        x = tensor.to(wrong.device)
        if tuple(x.shape) == (seen.shape[0],) and seen.height == seen.shape[0]:
            yield f"rows where {name}", x.double(), wrong
        elif x.dim() > 1 and x.shape[:-1] == seen.shape[:-1] and x.element_size() > 1:
            rows = x.reshape(seen.height, -1)
            narrow = rows.dtype.itemsize < 4 or not rows.is_floating_point()
            norm = torch.linalg.vector_norm(rows.float() if narrow else rows, dim=1)
            yield f"rows where the size of {name}", norm.double(), wrong


def _element_facts(seen: Seen) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Numbers of some elements, those that are wrong and others."""
    flat = seen.output.wrong.reshape(-1)
    at = torch.cat([seen.at, seen.anywhere[~flat[seen.anywhere]]])
    wrong = flat[at]
    for name, tensor in {"what is expected": seen.output.expected, **seen.tensors()}.items():
        if tuple(tensor.shape) == seen.shape:
            values = take(tensor, at.to(tensor.device)).to(at.device)
            yield f"elements where {name}", values, wrong
            yield f"elements where the size of {name}", values.abs(), wrong


def _separated(name: str, values: torch.Tensor, wrong: torch.Tensor) -> str | None:
    """Whether all wrong ones are above, or below, all that are right, and not by chance."""
    known = values.isfinite()
    values, wrong = values[known], wrong[known]
    bad, good = values[wrong], values[~wrong]
    few = min(len(bad), len(good))
    # One of C(n, k) subsets: at least (n / k)^k.
    if not few or few * log10(len(values) / few) < CHANCE:
        return None
    if float(bad.min()) > float(good.max()):
        return f"wrong in {name} is above {float(good.max()):.3g}, right in all others"
    if float(bad.max()) < float(good.min()):
        return f"wrong in {name} is below {float(good.min()):.3g}, right in all others"
    return None


def _truncated(seen: Seen, place: Place | None) -> str | None:
    """Every element is the next number towards zero, where half of them should be the other."""
    precision = PRECISION.get(seen.output.got.dtype)
    got, expected = seen.got_at(seen.anywhere).abs(), seen.expected_at(seen.anywhere).abs()
    normal = expected.isfinite() & (expected >= torch.finfo(torch.float16).tiny)
    if precision is None or int(normal.sum()) < 64:
        return None
    step = 2 * precision.roundoff * expected[normal].frexp().exponent.sub(1).double().exp2()
    below = (expected[normal] - got[normal]) / step
    if share((below > -0.05) & (below < 1.05)) < 0.98 or not 0.4 < float(below.mean()) < 0.6:
        return None
    return "rounded toward zero, not to the nearest number, everywhere"


def _few_terms(seen: Seen, place: Place | None) -> str | None:
    """Errors of low rank: a few terms of a sum over products are missing, or are wrong."""
    everywhere = place is not None and place.name == "everywhere"
    if not everywhere or min(seen.height, seen.width) < 4 * FEWEST:
        return None
    at = _even_rows(seen)
    at = at[:, evenly(at.shape[1], 8 * ROWS, at.device)]
    error = (seen.got_at(at) - seen.expected_at(at)).cpu()
    if not bool(error.isfinite().all()):
        return None
    left = torch.linalg.svdvals(error).square().flip(0).cumsum(0).flip(0)
    noise = float(seen.bound_at(at).square().sum()) / 4
    rank = int((left > noise).sum())
    if not 0 < rank <= len(left) // 4:
        return None
    terms = "one term is" if rank == 1 else f"{rank} terms are"
    return f"errors of rank {rank} everywhere, as if of each sum {terms} left out or wrong"


def _place(seen: Seen, place: Place | None) -> str | None:
    if place is None or not place.dense or place.name in ("everywhere", "one element"):
        return None
    return f"wrong {place.phrase}"


def _sparse_place(seen: Seen, place: Place | None) -> str | None:
    return None if place is None or place.dense else f"wrong {place.phrase}"


def _about_one_factor(seen: Seen, place: Place | None) -> str | None:
    """Small errors that grow with what is expected, though not as one factor of all of it."""
    sides = _scaled(seen)
    if sides is None:
        return None
    error, right = sides
    slope = float((error * right).mean() / right.square().mean())
    along = abs(slope) * _rms(right) / _rms(error)
    if along < ALONG + 4 / sqrt(error.numel()):
        return None
    return f"about {1 + slope:.4f} times what is expected everywhere, and other small errors"


def _low_precision(seen: Seen, place: Place | None) -> str | None:
    """Small errors of every element, as often up as down, in proportion to the row's scale."""
    sides = _scaled(seen)
    if sides is None:
        return None
    size = _rms(sides[0])
    name = min(ROUNDOFFS, key=lambda which: abs(log(size / (ROUNDOFFS[which] * 0.5))))
    share_ = f"{100 * size:.2g} % of a row's scale"
    return f"errors everywhere, up and down, of {share_}: arithmetic in {name}?"


def _scaled(seen: Seen) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Small errors of every element, and what is expected, both over the scale of its row."""
    at = _even_rows(seen)
    at = at[(seen.got_at(at).isfinite() & seen.expected_at(at).isfinite()).all(1)]
    got, expected = seen.got_at(at), seen.expected_at(at)
    if got.numel() < 16:
        return None
    # An honest rounding of the result looks the same, but smaller.
    if _rms((got - expected) / seen.bound_at(at).clamp(min=1e-300)) < ROUNDED:
        return None
    scale = expected.square().mean(1, keepdim=True).sqrt()
    known = (scale > 0).expand_as(got)
    error, right = ((side / scale.clamp(min=1e-300))[known] for side in (got - expected, expected))
    return (error, right) if error.numel() and _noise(error) else None


def _even_rows(seen: Seen) -> torch.Tensor:
    """Some rows, whether or not anything is wrong there."""
    device = seen.at.device
    return seen.matrix(
        torch.arange(seen.height, device=device), torch.arange(seen.width, device=device)
    )


def _noise(error: torch.Tensor) -> bool:
    """Whether these look like rounding: no direction, no few that are much larger than the rest."""
    size, number = _rms(error), error.numel()
    if not 2.0**-14 < size < COARSEST:
        return False
    centred = abs(float(error.mean())) <= (0.1 + 4 / sqrt(number)) * size
    return centred and float(error.abs().median()) >= 0.2 * size


def _everywhere(seen: Seen, place: Place | None) -> str | None:
    if place is None or place.name not in ("everywhere", "one element"):
        return None
    return f"wrong {place.phrase}"


def _scattered(seen: Seen, place: Place | None) -> str:
    return f"{seen.count} of {seen.total} elements are wrong, at no place in particular"


#: Every detector by the name of its pattern, the most specific first. Each says what it sees in
#: one output, or None.
DETECTORS: tuple[tuple[str, Callable[[Seen, Place | None], str | None]], ...] = (
    ("unwritten", _unwritten),
    ("stale", _stale),
    ("overflow", _infinite),
    ("nan", _nan),
    ("lost special value", _lost_special),
    ("swapped outputs", _swapped),
    ("copied input", _copied),
    ("zeros", _zeros),
    ("negated", _negated),
    ("constant", _constant),
    ("rounded toward zero", _truncated),
    ("transposed", _transposed),
    ("shifted", _shifted),
    ("permuted", _permuted),
    ("reordered", _reordered),
    ("missing input", _missing),
    ("one factor", _one_factor),
    ("one offset", _one_offset),
    ("factor per row", _factor_per_row),
    ("factor per column", _factor_per_column),
    ("offset per row", _offset_per_row),
    ("offset per column", _offset_per_column),
    ("factor and offset", _factor_and_offset),
    ("by value", _by_value),
    ("place", _place),
    ("missing terms", _few_terms),
    ("about one factor", _about_one_factor),
    ("lower precision", _low_precision),
    ("sparse place", _sparse_place),
    ("no place", _everywhere),
    ("scattered", _scattered),
)
