"""One output against what is right, in passes over chunks. The bounds are those of ``_bounds``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine._bounds import PRECISION, YARDSTICK, row_length, smallest
from pytest_fib.engine._fit import Fit, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_fib.engine._bounds import Bound

#: Elements compared at a time: on the CPU few enough for the intermediate values to stay in cache.
CHUNK = {"cpu": 1 << 16, "cuda": 1 << 25}
#: The bits of a number's exponent, and the integers of its size.
_EXPONENT = {
    torch.float32: (torch.int32, 0x7F80_0000),
    torch.float64: (torch.int64, 0x7FF0_0000_0000_0000),
}


@dataclass
class Comparison:
    """What there is to say of one output.

    ``used`` is the largest error of an element over its bound, at the flat index ``at``, where
    yardsticks made the bound ``width`` times as wide; ``rows_used`` is the same of a row, the one
    from ``row_at`` on.
    """

    name: str
    bound: Bound
    total: int
    oracle: bool
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
    fit: Fit | None = None

    @property
    def matched_ratio(self) -> float:
        """The share of elements within their bound."""
        return 1.0 - self.wrong / self.total if self.total else 1.0

    @property
    def rmse(self) -> float:
        """The root mean square error."""
        return math.sqrt(self.square_sum / self.total) if self.total else 0.0

    @property
    def fit_used(self) -> float:
        """The fitted scale or offset over its bound."""
        return self.fit.used if self.fit else 0.0

    @property
    def elements_used(self) -> float:
        """How much of what it allows them the elements use; more than 1 is wrong."""
        share = 1.0 - self.bound.matched_ratio
        if share > 0 and self.used > 1:
            return (1.0 - self.matched_ratio) / share
        return self.used

    @property
    def bound_used(self) -> float:
        """The same of elements, rows and fit; the largest of them."""
        return max(self.elements_used, self.rows_used, self.fit_used)

    @property
    def passed(self) -> bool:
        """Whether this output is right."""
        return self.bound_used <= 1


@dataclass(frozen=True)
class _Chunk:
    """Some rows of an output. Errors and fractions of the bound, element by element."""

    error: torch.Tensor
    used: torch.Tensor
    size: torch.Tensor
    scale: torch.Tensor


def compare(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: Bound,
    yardsticks: Sequence[torch.Tensor] = (),
) -> Comparison:
    """Compare an output with its float64 value, or with one in its own dtype."""
    oracle = expected.dtype is torch.float64 or not expected.is_floating_point()
    result = Comparison(name, bound, got.numel(), oracle)
    if result.total == 0:
        return result
    if bound.exact:
        _compare_exactly(result, got, expected, yardsticks)
        return result
    result.row = row_length(got.shape)
    flat = [tensor.reshape(-1) for tensor in (got, expected, *yardsticks)]
    for start, rows in _chunks(result.total, result.row, CHUNK[got.device.type]):
        parts = [tensor[start : start + rows.numel()].view(rows) for tensor in flat]
        _add(result, start, parts[0], parts[1], parts[2:])
    result.fit = fitted(flat[0], flat[1], bound, result.row, flat[2:])
    return result


def marked(
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: Bound,
    yardsticks: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which elements of an output are wrong, and how far each may be off.

    Where rows are wrong in which no element is alone, those of all wrong rows; where that is none
    either, nothing is marked and it is the output as a whole. Takes as much memory as the output
    again, or several times.
    """
    flat = [tensor.reshape(-1) for tensor in (got, expected, *yardsticks)]
    allowed = torch.zeros(got.shape, dtype=_wide(got.dtype), device=got.device)
    if bound.exact:
        return _differing(flat, got.dtype).view(got.shape), allowed
    wrong = torch.zeros(flat[0].shape, dtype=torch.bool, device=got.device)
    in_rows = torch.zeros_like(wrong)
    together = False
    for start, shape in _chunks(len(flat[0]), row_length(got.shape), CHUNK[got.device.type]):
        at = slice(start, start + shape.numel())
        parts = [tensor[at].view(shape) for tensor in flat]
        chunk, _ = _looked_at(parts[0], parts[1], bound, parts[2:])
        width, rows = _widths(chunk, parts[1], bound, parts[2:])
        elements = 1.0 if width is None else width[:, None]
        means = _root_mean_square(chunk.used) / (1.0 if rows is None else rows)
        alone, whole = chunk.used > elements, means > (bound.rows or math.inf)
        together = together or bool((whole & ~alone.any(1)).any())
        wrong[at], in_rows[at] = alone.view(-1), (alone | whole[:, None]).view(-1)
        reach = _allowed(chunk.size, chunk.scale, bound) * elements
        allowed.view(-1)[at] = reach.view(-1)
    return (in_rows if together else wrong).view(got.shape), allowed


def _differing(flat: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Which elements of the first are not those of the second; integers, nor of another."""
    got, expected, *others = (_numbers(tensor, dtype) for tensor in flat)
    wrong = _same(got, expected).logical_not()
    for other in () if dtype.is_floating_point else others:
        wrong &= got != other
    return wrong


def _chunks(total: int, row: int, most: int) -> Iterator[tuple[int, torch.Size]]:
    """Where each chunk starts and its shape, rows by elements; the last may be part of a row."""
    rows = max(1, most // row)
    whole = total // row * row
    starts = [*range(0, whole, rows * row), whole]
    for start, end in pairwise(starts):
        yield start, torch.Size(((end - start) // row, row))
    if total > whole:
        yield whole, torch.Size((1, total - whole))


def _add(
    result: Comparison,
    start: int,
    got: torch.Tensor,
    expected: torch.Tensor,
    yardsticks: Sequence[torch.Tensor],
) -> None:
    """Count in one chunk. Asks the device for numbers once, unless something is wrong."""
    chunk, figures = _looked_at(got, expected, result.bound, yardsticks)
    absolute, relative, ulp, squares, *_ = figures
    result.max_absolute = max(result.max_absolute, absolute)
    result.max_relative = max(result.max_relative, relative)
    result.max_ulp = max(result.max_ulp, ulp)
    result.square_sum += squares
    _add_used(result, start, chunk, *_widths(chunk, expected, result.bound, yardsticks))


def _looked_at(
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: Bound,
    yardsticks: Sequence[torch.Tensor],
) -> tuple[_Chunk, list[float]]:
    """A chunk and its figures."""
    chunk = _measured(got, expected, bound)
    figures = _figures(chunk, got.dtype)
    if not all(map(math.isfinite, figures)):  # NaN, an infinity: rare, so looked at closely
        chunk = _with_specials(got, expected, bound, yardsticks)
        figures = _figures(chunk, got.dtype)
    return chunk, figures


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Wide enough for errors: float32 holds every 16-bit value and its float64 one to 2**-24."""
    return torch.float32 if dtype.itemsize <= 2 else torch.float64


def _measured(got: torch.Tensor, expected: torch.Tensor, bound: Bound) -> _Chunk:
    wide = _wide(got.dtype)
    value = expected.to(wide)
    size = value.abs()
    scale = _scale(size)
    error = (got.to(wide) - value).abs_()
    return _Chunk(error, error / _allowed(size, scale, bound), size, scale)


def _scale(size: torch.Tensor, count: torch.Tensor | None = None) -> torch.Tensor:
    """The root mean square of each row, of which ``count`` elements say how large it is."""
    norm: torch.Tensor = torch.linalg.vector_norm(size, dim=1)
    # Squares of what float32 holds may be beyond it; asking costs a copy, or on CUDA a wait.
    if size.is_cuda or not bool(((norm > 1e-15) & norm.isfinite()).all()):
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
) -> _Chunk:
    """The same where NaN, infinities or overflow are about; these are right or wrong, no more."""
    value, seen = expected.double(), got.double()
    rounded = expected.to(got.dtype).double()
    top = torch.finfo(got.dtype).max
    size = value.abs()
    # Beyond the largest number by less than a rounding: what is finite there may be right.
    counts = size.isfinite() & (size <= top * (1 + bound.rtol))
    counted = torch.where(counts, size.clamp_max(top), 0.0)
    scale = _scale(counted, counts.sum(1))
    near = (size >= top * (1 - bound.rtol)) & (size <= top * (1 + bound.rtol))
    finite = seen.isfinite() & (rounded.isfinite() | near)
    same = _same(seen, rounded) | (near & seen.isinf() & (seen.sign() == value.sign()))
    for yardstick in yardsticks:
        same |= ~seen.isfinite() & _same(seen, yardstick.to(got.dtype).double())
    error = torch.where(finite, (seen - value).abs(), math.inf)
    used = error / _allowed(counted, scale, bound)
    settled = same & ~finite
    used = torch.where(settled, 0.0, torch.where(finite, used, math.inf))
    return _Chunk(torch.where(settled, 0.0, error), used, counted, scale)


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left == right) | (left.isnan() & right.isnan())


def _figures(chunk: _Chunk, dtype: torch.dtype) -> list[float]:
    """Largest absolute error, relative error and error in ulps, squared errors; then sentinels."""
    least = smallest(dtype)
    integer, mask = _EXPONENT[chunk.size.dtype]
    power = chunk.size.view(integer).bitwise_and(mask).view(chunk.size.dtype)
    ulp = power.mul_(2 * PRECISION[dtype].roundoff).clamp_min_(least)
    figures = [
        chunk.error.max(),
        (chunk.error / chunk.size.clamp_min(least)).max(),
        (chunk.error / ulp).max(),
        torch.linalg.vector_norm(chunk.error).double().square(),
        chunk.used.max(),
        chunk.scale.max(),
    ]
    return torch.stack([figure.double() for figure in figures]).tolist()


def _widths(
    chunk: _Chunk, expected: torch.Tensor, bound: Bound, yardsticks: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """By how much the yardsticks widen the bounds of elements and rows; None, not at all."""
    elements: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    wide = chunk.size.dtype
    value = expected.to(wide)
    for yardstick in yardsticks:
        error = (yardstick.to(wide) - value).abs_()
        used = error / _allowed(chunk.size, chunk.scale, bound)
        # Where it is NaN or infinite it says nothing of how far off finite numbers may be.
        used = torch.where(used.isfinite(), used, 0.0)
        wider = used.amax(dim=1).mul_(YARDSTICK).clamp_min_(1.0)
        share = YARDSTICK / (bound.rows or math.inf)
        wider_row = _root_mean_square(used).mul_(share).clamp_min_(1.0)
        elements = wider if elements is None else torch.maximum(elements, wider)
        rows = wider_row if rows is None else torch.maximum(rows, wider_row)
    return elements, rows


def _root_mean_square(rows: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norm.div_(math.sqrt(rows.shape[1]))


def _add_used(
    result: Comparison,
    start: int,
    chunk: _Chunk,
    elements: torch.Tensor | None,
    rows: torch.Tensor | None,
) -> None:
    used = chunk.used if elements is None else chunk.used / elements[:, None]
    means = _root_mean_square(chunk.used)
    means = means if rows is None else means / rows
    top, top_row = torch.stack([used.max().double(), means.max().double()]).tolist()
    if top > result.used:
        at = int(used.argmax())
        result.used, result.at = top, start + at
        result.width = 1.0 if elements is None else float(elements[at // used.shape[1]])
    if top > 1:
        result.wrong += int((used > 1).sum())
    if result.bound.rows is not None and top_row / result.bound.rows > result.rows_used:
        result.rows_used = top_row / result.bound.rows
        result.row_at = start + int(means.argmax()) * result.row


def _compare_exactly(
    result: Comparison,
    got: torch.Tensor,
    expected: torch.Tensor,
    yardsticks: Sequence[torch.Tensor],
) -> None:
    """Equal bits, or equal numbers; integers may also be what a yardstick has.

    In float64 a sum may round to another integer than in the reference's own dtype.
    """
    others = () if got.dtype.is_floating_point else yardsticks
    sides = [_numbers(tensor.reshape(-1), got.dtype) for tensor in (got, expected, *others)]
    step = CHUNK[got.device.type]
    for start in range(0, len(sides[0]), step):
        _add_exact(result, start, *(side[start : start + step] for side in sides))


def _add_exact(
    result: Comparison,
    start: int,
    got: torch.Tensor,
    expected: torch.Tensor,
    *yardsticks: torch.Tensor,
) -> None:
    same = _same(got, expected)
    for yardstick in yardsticks:
        same |= got == yardstick
    wrong = int(same.logical_not().sum())
    if not wrong:
        return
    if not result.wrong:
        result.used, result.at = math.inf, start + int(same.int().argmin())
    result.wrong += wrong
    error = (got.double() - expected.double()).abs_().nan_to_num_(math.inf, math.inf)
    error = torch.where(same, 0.0, error)
    relative = error / expected.double().abs().nan_to_num_(1.0).clamp_min_(5e-324)
    result.max_absolute = max(result.max_absolute, float(error.max()))
    result.max_relative = max(result.max_relative, float(relative.max()))
    result.square_sum += float(error.square().sum())


def _numbers(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded to a dtype; where torch can't compute in it, its bytes."""
    if dtype not in PRECISION and dtype.is_floating_point:
        return tensor.view(torch.uint8)
    rounded = tensor.to(dtype)
    return rounded.float() if rounded.element_size() == 1 and dtype.is_floating_point else rounded
