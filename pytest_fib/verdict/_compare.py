"""How far one output is from the expected one, in passes over chunks. See ``_bounds``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from pytest_fib.data import format_distinct
from pytest_fib.verdict._bias import Bias, fit_bias
from pytest_fib.verdict._bounds import YARDSTICK, Bound, dtype_bound, smallest

if TYPE_CHECKING:
    from pytest_fib.verdict._by_index import PointedAt

#: Elements compared at a time: on the CPU few enough for intermediate values to stay in cache.
CHUNK = {"cpu": 1 << 16, "cuda": 1 << 25}
#: The exponent bits of a number, and the integer type of its size.
_EXPONENT = {
    torch.float32: (torch.int32, 0x7F80_0000),
    torch.float64: (torch.int64, 0x7FF0_0000_0000_0000),
}
#: Below that, the distance between two integers fits into their own type.
_SAFE_DISTANCE = 2.0**62
#: Shorter rows are joined, longer rows are split.
SHORT_ROW, LONG_ROW = 64, 16_384
_FLOAT32_MAX = torch.finfo(torch.float32).max


@dataclass
class OutputComparison:
    """One output, its expected values, and the distances between them.

    ``used`` is the largest error of an element over its bound, at the flat index ``at``, where
    yardsticks made the bound ``width`` times as wide; ``rows_used`` is the same for a row, which
    begins at ``row_at``. For an output of indices, ``by_index`` has the values that are compared.
    """

    name: str
    got: torch.Tensor
    expected: torch.Tensor
    bound: Bound
    yardsticks: Sequence[torch.Tensor] = ()
    by_index: PointedAt | None = None
    row: int = 1
    wrong: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    max_ulp: float = 0.0
    square_sum: float = 0.0
    used: float = 0.0
    at: int = 0
    width: float = 1.0
    rows_used: float = 0.0
    row_at: int = 0
    bias: Bias | None = None

    @property
    def total(self) -> int:
        return self.got.numel()

    @property
    def oracle(self) -> bool:
        """Whether the expected values are exact, or in float64."""
        return self.expected.dtype is torch.float64 or not self.expected.is_floating_point()

    @property
    def matched_ratio(self) -> float:
        """The share of elements within their bound."""
        return 1.0 - self.wrong / self.total if self.total else 1.0

    @property
    def rmse(self) -> float:
        return math.sqrt(self.square_sum / self.total) if self.total else 0.0

    @property
    def bias_used(self) -> float:
        """The share of its bound that the factor or the offset uses."""
        return self.bias.used if self.bias else 0.0

    @property
    def elements_used(self) -> float:
        """The share of their bound that the elements use; more than 1 is wrong."""
        share = 1.0 - self.bound.matched_ratio
        if share > 0 and self.used > 1:
            return (1.0 - self.matched_ratio) / share
        return self.used

    @property
    def bound_used(self) -> float:
        """The largest share of a bound that elements, rows or the bias use."""
        return max(self.elements_used, self.rows_used, self.bias_used)

    @property
    def passed(self) -> bool:
        return self.bound_used <= 1

    @property
    def rank(self) -> tuple[float, int]:
        """A sort key: the worst of several outputs has the highest."""
        return (self.bound_used, self.wrong)

    @property
    def check(self) -> str:
        """The bound that is used most; the elements' if these are wrong."""
        elements, others = self.elements_used, max(self.rows_used, self.bias_used)
        if elements > 1 or elements >= others:
            return "elements"
        return "rows" if self.rows_used >= self.bias_used else "bias"

    @property
    def shown_by_elements(self) -> bool:
        """Whether single elements are wrong."""
        return self.by_index is None and self.check == "elements"

    def worst_element(self) -> dict[str, Any]:
        """The worst element: its place, both sides, and the allowed distance."""
        if self.total == 0:
            return {}
        index = _index_at(self.at, self.got.shape)
        got, expected, scale = self._worst_numbers(index)
        element = {
            "output": self.name,
            "index": list(index),
            "got": got,
            "expected": expected,
            "allowed": self._allowed(float(expected), scale),
        }
        return element | (self.by_index.facts(self.at) if self.by_index else {})

    def _worst_numbers(self, index: tuple[int, ...]) -> tuple[float, float, float]:
        """Both sides of the worst element, and its row's scale if the bound has one."""
        if self.by_index or not self.bound.scale:
            return number_at(self.got, self.at), number_at(self.expected, self.at), 0.0
        start = self.at // self.row * self.row
        row = self.expected.reshape(-1)[start : start + self.row].double()
        counted = row.abs() <= torch.finfo(self.got.dtype).max
        squares = torch.where(counted, row, 0.0).square().sum()
        scale = squares.div(counted.sum().clamp_min(1)).sqrt()
        sides = self.got[index].double(), self.expected[index].double()
        got, expected, root = torch.stack([*sides, scale]).tolist()  # the device is asked once
        return got, expected, root

    def _allowed(self, expected: float, scale: float) -> float:
        """The allowed error of the worst element, in a row of this scale."""
        bound = self.bound
        if self.by_index is not None or not math.isfinite(expected):
            return 0.0
        return self.width * (bound.atol + bound.rtol * abs(expected) + bound.scale * scale)

    def describe(self) -> str:
        """One line that says which bound is broken, where and by how much."""
        if self.check == "rows":
            return self._describe_row()
        if self.check == "bias" and self.bias is not None:
            return f"{self.name} {self.bias.describe()}"
        element = self.worst_element()
        allowed = None if self.by_index else element["allowed"]
        name = element_name(self.name, self.at, self.got.shape)
        sentence = element_sentence(name, element["got"], element["expected"], allowed)
        return f"{sentence}: {element['reason']}" if self.by_index else sentence

    def _describe_row(self) -> str:
        shape = self.got.shape or (1,)
        *index, start = _index_at(self.row_at, shape)
        end = min(start + self.row, shape[-1])
        line = ":" if shape[-1] == self.row else f"{start}:{end}"
        error = f"RMS error is {format_distinct(self.rows_used, 1.0, 3)[0]} times its limit"
        row = ", ".join([*map(str, index), line])
        return f"{self.name}[{row}]: {error}; each element is within its own limit"


def _index_at(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of an element by its place in memory."""
    # NumPy's, since the first call of torch's imports for seconds.
    return tuple(int(i) for i in np.unravel_index(flat, tuple(shape)))


def element_name(name: str, flat: int, shape: Sequence[int]) -> str:
    """An element of an output in Python's notation: ``y[3, 17]``; a scalar is ``y``."""
    index = _index_at(flat, shape)
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def number_at(tensor: torch.Tensor, flat: int) -> float:
    """An element by its place in memory: integers and bools as such."""
    element = tensor[_index_at(flat, tensor.shape)]
    return float(element) if tensor.is_floating_point() else element.item()


def element_sentence(element: str, got: float, expected: float, allowed: float | None) -> str:
    """Both sides of an element and, unless None, the allowed distance.

    Integers have all digits, floats as many as it takes to distinguish them.
    """
    in_few_digits = zip((got, expected), format_distinct(got, expected, 6), strict=True)
    one, other = (text if isinstance(x, float) else str(x) for x, text in in_few_digits)
    sides = f"{element} got {one}, expected {other}"
    return sides if allowed is None or isinstance(got, bool) else f"{sides}, allowed ±{allowed:.2g}"


def measure(comparison: OutputComparison) -> None:
    """Measure the distance of an output from its float64 value, or from one in its own dtype."""
    if comparison.total == 0:
        return
    bound, flat = comparison.bound, _flat(comparison)
    comparison.row = row_length(comparison.got.shape)
    # A chunk's values are freed before the next, so that those are in the cache too.
    for start, sides in _chunks(flat, comparison.row):
        _add(comparison, start, *_measured(bound, *sides))
    comparison.bias = fit_bias(flat, bound, comparison.row)


def _flat(comparison: OutputComparison) -> list[torch.Tensor]:
    """The flat tensors to compare: got, expected and yardsticks."""
    sides = comparison.by_index or comparison
    tensors = (sides.got, sides.expected, *comparison.yardsticks)
    return [tensor.reshape(-1) for tensor in tensors]


def marked(comparison: OutputComparison) -> tuple[torch.Tensor, torch.Tensor]:
    """Which elements of an output are wrong, and the allowed error of each.

    If only whole rows are wrong, their elements are marked; beside elements that are wrong alone,
    those that are off by half of what is usual in the row, or more. If only the output as a whole
    is wrong, none is. This takes as much memory as the output, or several times that.
    """
    got, bound, flat = comparison.got, comparison.bound, _flat(comparison)
    allowed = torch.zeros(got.numel(), dtype=_wide(got.dtype), device=got.device)
    wrong = torch.zeros(got.numel(), dtype=torch.bool, device=got.device)
    in_rows, is_off, together = torch.zeros_like(wrong), torch.zeros_like(wrong), False
    for start, sides in _chunks(flat, row_length(got.shape)):
        rows, _ = _measured(bound, *sides)
        at = slice(start, start + rows.used.numel())
        alone, whole = rows.used > 1, rows.rows_used > 1
        together = together or bool((whole & ~alone.any(1)).any())
        usual = rows.used.square().mean(1, keepdim=True).sqrt()
        is_off[at] = (whole[:, None] & (rows.used >= usual / 2)).view(-1)
        wrong[at], in_rows[at] = alone.view(-1), (alone | whole[:, None]).view(-1)
        allowed[at] = _allowed(rows.size, rows.scale, bound).mul_(rows.width).view(-1)
    if comparison.by_index:  # indices are equal or not
        allowed = allowed.new_zeros(got.numel())
    if together:
        wrong = wrong | is_off if bool(wrong.any()) else in_rows
    return wrong.view(got.shape), allowed.view(got.shape)


@dataclass(frozen=True)
class _Rows:
    """Some rows of an output.

    [rows, elements]: absolute ``error``, ``size`` of the expected values, fraction ``used`` of the
    bound. [rows]: ``scale``, and the fraction ``rows_used`` of a row's bound. Yardsticks make the
    elements' bounds ``width`` [rows, 1] times as wide.
    """

    error: torch.Tensor
    size: torch.Tensor
    used: torch.Tensor
    scale: torch.Tensor
    rows_used: torch.Tensor
    width: torch.Tensor | float = 1.0


class _Figures(NamedTuple):
    """The largest of each, and the root of the sum of all squared errors.

    ``at`` is where the largest ``used`` is, as a flat index, and ``row`` that of ``rows_used``.
    """

    error: float
    relative: float
    ulp: float
    norm: float
    used: float
    rows_used: float
    scale: float
    at: float
    row: float


def row_length(shape: Sequence[int]) -> int:
    """The number of neighbours in memory that share a scale: the last dimension, in most cases.

    Short rows are joined, since a few elements may all be small by chance. Long ones, such as
    vectors, are split, so that an error in a last tile is not averaged away.
    """
    length = 1
    for n in reversed(shape):
        if length >= SHORT_ROW:
            break
        length *= n
    last = shape[-1] if shape else 1
    if last < SHORT_ROW and length > SHORT_ROW:
        length = last * -(-SHORT_ROW // last) if last else 0
    return max(1, min(length, LONG_ROW))


def _chunks(flat: Sequence[torch.Tensor], row: int) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The start of each chunk, and its sides as rows; the last may be part of a row."""
    total, step = len(flat[0]), max(1, CHUNK[flat[0].device.type] // row) * row
    whole = total // row * row
    for start, end in pairwise([*range(0, whole, step), whole]):
        yield start, [side[start:end].view(-1, row) for side in flat]
    if total > whole:
        yield whole, [side[whole:].view(1, -1) for side in flat]


def _add(result: OutputComparison, start: int, rows: _Rows, most: _Figures) -> None:
    """Add the rows that begin at the flat index ``start``."""
    result.max_absolute = max(result.max_absolute, most.error)
    result.max_relative = max(result.max_relative, most.relative)
    result.max_ulp = max(result.max_ulp, most.ulp)
    result.square_sum += most.norm * most.norm
    if most.used > result.used:
        result.used, result.at = most.used, start + int(most.at)
        if isinstance(rows.width, torch.Tensor):
            result.width = float(rows.width[int(most.at) // rows.used.shape[1]])
    if most.used > 1:
        result.wrong += int((rows.used > 1).sum())
    if most.rows_used > result.rows_used:
        result.rows_used, result.row_at = most.rows_used, start + int(most.row) * result.row


def _wide(dtype: torch.dtype) -> torch.dtype:
    """In a dtype that is wide enough: float32 holds 16-bit values, and float64 ones to 2**-24."""
    return torch.float32 if dtype.itemsize <= 2 else torch.float64


def _measured(
    bound: Bound, got: torch.Tensor, expected: torch.Tensor, *yardsticks: torch.Tensor
) -> tuple[_Rows, _Figures]:
    """Compare some rows; reads from the device once, unless something is wrong."""
    if bound.exact:
        return _exactly(bound, got, expected, *yardsticks)
    wide = _wide(got.dtype)
    value = expected.to(wide)
    size = value.abs()
    scale = _scale(size)
    error = (got.to(wide) - value).abs_()
    used = error / _allowed(size, scale, bound)
    rows = _Rows(error, size, used, scale, _rows_used(used, bound))
    figures = _figures(rows, got.dtype)
    if not all(map(math.isfinite, figures)):  # NaN or an infinity: rare, so examined closely
        rows = _with_specials(got, expected, bound, yardsticks)
        figures = _figures(rows, got.dtype)
    if yardsticks:
        rows = _widened(rows, value, bound, yardsticks)
        largest = torch.stack([rows.used.max(), rows.rows_used.max()]).double()
        used, rows_used, at, row = torch.cat([largest, _places(rows)]).tolist()
        figures = figures._replace(used=used, rows_used=rows_used, at=at, row=row)
    return rows, figures


def _scale(size: torch.Tensor, count: torch.Tensor | None = None) -> torch.Tensor:
    """The root mean square of each row, over ``count`` elements."""
    # Squares of float32 values may overflow it; checking costs a copy, or on CUDA a wait.
    norm: torch.Tensor = torch.linalg.vector_norm(
        size, dim=1, dtype=torch.float64 if size.is_cuda else None
    )
    if not size.is_cuda and not bool(((norm > 1e-15) & norm.isfinite()).all()):
        norm = torch.linalg.vector_norm(size, dim=1, dtype=torch.float64)
    return norm.div_(math.sqrt(size.shape[1]) if count is None else count.clamp_min(1).sqrt())


def _allowed(size: torch.Tensor, scale: torch.Tensor, bound: Bound) -> torch.Tensor:
    around = (scale * bound.scale + bound.atol).to(size.dtype)
    return around[:, None].add(size, alpha=bound.rtol)


def _with_specials(
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: Bound,
    yardsticks: Sequence[torch.Tensor],
) -> _Rows:
    """Compare rows with NaN, infinities or overflow: such elements are right or wrong."""
    value, seen = expected.double(), got.double()
    rounded = expected.to(got.dtype).double()
    top = torch.finfo(got.dtype).max
    size = value.abs()
    # Beyond the largest number by less than a rounding: a finite value may be right.
    counts = size.isfinite() & (size <= top * (1 + bound.rtol))
    counted = torch.where(counts, size.clamp_max(top), 0.0)
    scale = _scale(counted, counts.sum(1))
    reach = _reach(value, counted, scale, bound, yardsticks).clamp_min(top * bound.rtol)
    near = (size >= top - reach) & (size <= top + reach)
    finite = seen.isfinite() & (rounded.isfinite() | near)
    overflow_is_near = seen.isinf() & (value * seen.sign() >= top - reach)
    if got.dtype.itemsize < 4 and expected.dtype is torch.float64:
        # float32 holds what is exactly the largest: it was clamped to that, unless luck moves it.
        overflow_is_near &= (size != top) | (reach > top * bound.rtol)
    same = _same(seen, rounded) | overflow_is_near
    # Sums that overflow: the order of terms decides which elements are inf or NaN.
    limited = value.isfinite() & (rounded.isfinite() | (size > _FLOAT32_MAX))
    for yardstick in yardsticks:
        other = yardstick.to(got.dtype).double()
        # Values near the largest number are infinite by rounding alone: that says nothing about
        # sums.
        overflows = (limited & (size < top / 2) & ~other.isfinite()).any(1, keepdim=True)
        unsure = value.isfinite() & other.isnan()  # infinities of both signs, or none
        same |= ~seen.isfinite() & (_same(seen, other) | (limited & overflows) | unsure)
        # float32 may not be able to decide whether a number is masked, but with which value it is.
        same |= value.isinf() & _is_close(seen, other, scale, bound)
    error = torch.where(finite, (seen - value).abs(), math.inf)
    used = error / _allowed(counted, scale, bound)
    settled = same & ~finite
    used = torch.where(settled, 0.0, torch.where(finite, used, math.inf))
    error = torch.where(settled, 0.0, error)
    return _Rows(error, counted, used, scale, _rows_used(used, bound))


def _is_close(
    seen: torch.Tensor, other: torch.Tensor, scale: torch.Tensor, bound: Bound
) -> torch.Tensor:
    """Where both are finite and the first is within the bounds around the second."""
    both = seen.isfinite() & other.isfinite()
    size = torch.where(both, other.abs(), 0.0)
    return both & ((seen - other).abs() <= _allowed(size, scale, bound))


def _reach(
    value: torch.Tensor,
    size: torch.Tensor,
    scale: torch.Tensor,
    bound: Bound,
    yardsticks: Sequence[torch.Tensor],
) -> torch.Tensor:
    """The extra error that yardsticks allow; 0 if they allow no more than the dtype."""
    allowed = _allowed(size, scale, bound)
    width = allowed.new_zeros(len(allowed))
    for yardstick in yardsticks:
        width = torch.maximum(width, YARDSTICK * _used_by(yardstick, value, allowed).amax(dim=1))
    return allowed * width[:, None]


def _used_by(yardstick: torch.Tensor, value: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """The share of the bounds that a yardstick uses.

    NaN and infinities in it say nothing about the errors of finite numbers. In float64: it may be
    of numbers that float32 can't hold, as that of exponentials which overflow, and where 0 is
    expected, bounds may be so small that the share can't be held either.
    """
    used = (yardstick.double() - value).abs_().div_(allowed)
    return used.nan_to_num_(0.0, 0.0, 0.0)


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left == right) | (left.isnan() & right.isnan())


def _figures(rows: _Rows, dtype: torch.dtype) -> _Figures:
    """The figures of all elements of some rows."""
    info, (integer, mask) = torch.finfo(dtype), _EXPONENT[rows.size.dtype]
    power = rows.size.view(integer).bitwise_and(mask).view(rows.size.dtype)
    figures = torch.stack(
        [
            rows.error.max(),
            (rows.error / rows.size.clamp_min(smallest(dtype))).max(),
            (rows.error / power.clamp_min_(info.smallest_normal)).max(),
            torch.linalg.vector_norm(rows.error),
            rows.used.max(),
            rows.rows_used.max(),
            rows.scale.max(),
        ]
    )
    error, relative, ulp, *others = torch.cat([figures.double(), _places(rows)]).tolist()
    return _Figures(error, relative, ulp / info.eps, *others)


def _places(rows: _Rows) -> torch.Tensor:
    """The indices of the elements and rows that use most of their bounds, in float64."""
    return torch.stack([rows.used.argmax(), rows.rows_used.argmax()]).double()


def _rows_used(used: torch.Tensor, bound: Bound) -> torch.Tensor:
    """The root mean square of each row's used fractions, over its limit."""
    if bound.rows is None:
        return used.new_zeros(len(used))
    count = used.shape[1]
    limit = math.sqrt(count) * bound.rows
    if bound.by_luck:
        limit = math.hypot(math.sqrt(max(count - 1, 0)) * bound.rows, 1.0)
    norm: torch.Tensor = torch.linalg.vector_norm(used, dim=1)
    return norm.div_(limit)


def _widened(
    rows: _Rows, value: torch.Tensor, bound: Bound, yardsticks: Sequence[torch.Tensor]
) -> _Rows:
    """The rows, compared by the bounds that yardsticks widen."""
    allowed = _allowed(rows.size, rows.scale, bound)
    elements = together = torch.ones_like(rows.rows_used)
    for yardstick in yardsticks:
        used = _used_by(yardstick, value, allowed)
        elements = torch.maximum(elements, YARDSTICK * used.amax(dim=1))
        together = torch.maximum(together, YARDSTICK * _rows_used(used, bound))
    # Equal elements are computed alike: all of them have the same error.
    alike = value.amax(dim=1) - value.amin(dim=1) <= allowed.amin(dim=1)
    together = torch.where(alike, torch.maximum(together, elements), together)
    width = elements[:, None]
    return replace(rows, used=rows.used / width, rows_used=rows.rows_used / together, width=width)


# ---- integers, and outputs that must be equal ----


def _exactly(
    bound: Bound, got: torch.Tensor, expected: torch.Tensor, *yardsticks: torch.Tensor
) -> tuple[_Rows, _Figures]:
    """Compare outputs that must have equal bits or numbers; integers may have a tolerance."""
    dtype, value = got.dtype, expected
    got, expected = _numbers(got, dtype), _numbers(expected, dtype)
    equal = _same(got, expected)
    if bound.ties and not bool(equal.all()):
        others = [_numbers(each, dtype) for each in (*yardsticks, *_neighbours(value, dtype))]
        equal |= _between(got, expected, others)
    scale = torch.zeros(len(got), dtype=torch.float64, device=got.device)
    if bool(equal.all()):
        zeros = torch.zeros(equal.shape, device=got.device)
        return _Rows(zeros, zeros, zeros, scale, scale), _Figures(*[0.0] * len(_Figures._fields))
    size = expected.double().abs().nan_to_num_(1.0)
    error = torch.where(equal, 0.0, _distance(got, expected))
    allowed = _allowed(size, scale, bound)
    used = torch.where(error > allowed, math.inf, (error / allowed).nan_to_num_(0.0))
    relatives = error / size.clamp_min(5e-324)
    figures = [error.max(), relatives.max(), torch.linalg.vector_norm(error), used.max()]
    rows = _Rows(error, size, used, scale, scale)
    numbers = torch.cat([torch.stack(figures), _places(rows)])
    most, relative, norm, most_used, at, _ = numbers.tolist()
    return rows, _Figures(most, relative, 0.0, norm, most_used, 0.0, 0.0, at, 0.0)


def _neighbours(value: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """The values that float32 arithmetic may lead to before rounding."""
    if not dtype.is_floating_point or value.dtype is dtype:
        return []
    reach = _allowed(value.abs(), _scale(value.abs()), dtype_bound(torch.float32))
    return [value - reach, value + reach]


def _between(
    got: torch.Tensor, expected: torch.Tensor, others: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Which numbers lie between the expected ones and the others, ends included.

    Integers may have several numbers packed into them, so each group of four bits is compared.
    """
    lowest = highest = expected
    right = torch.zeros_like(got, dtype=torch.bool)
    for other in others:
        right |= _same(got, other)
        lowest, highest = torch.minimum(lowest, other), torch.maximum(highest, other)
    right |= (lowest <= got) & (got <= highest)
    if not others or got.is_floating_point() or got.dtype is torch.bool:
        return right
    packed = torch.ones_like(right)
    for shift in range(0, 8 * got.element_size(), 4):
        four = (got >> shift) & 15
        packed &= torch.stack([((x >> shift) & 15) == four for x in (expected, *others)]).any(0)
    return right | packed


def _distance(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The distance of numbers in float64; exact for integers, if it is less than 2**53."""
    distance = (got.double() - expected.double()).abs_().nan_to_num_(math.inf, math.inf)
    if got.is_floating_point():
        return distance
    whole = (got.long() - expected.long()).double().abs_()
    return torch.where(distance < _SAFE_DISTANCE, whole, distance)


def _numbers(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded to a dtype; as float32, if torch can't compute in that dtype."""
    rounded = tensor.to(dtype)
    return rounded.float() if rounded.element_size() == 1 and dtype.is_floating_point else rounded
