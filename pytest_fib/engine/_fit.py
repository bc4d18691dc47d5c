"""Whether an output is off by one factor or offset that no element shows. See ``_bounds``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine._bounds import FIT_ELEMENTS, FIT_LEAST, FIT_SIGMAS, YARDSTICK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_fib.engine._bounds import Bound

#: The least noise that is believed, as a fraction of the elements' bounds: that of bare rounding.
_QUIET = 0.14
#: Elements whose distinct values are counted.
_COUNTED = 4096


@dataclass(frozen=True)
class Fit:
    """``got = (1 + scale) * y + offset * s``, s being the scale of y's row.

    ``allowed`` are the bounds of both, ``elements`` what it was fitted to.
    """

    scale: float
    offset: float
    allowed: tuple[float, float]
    elements: int

    @property
    def used(self) -> float:
        """The larger of both over its bound."""
        return max(abs(self.scale) / self.allowed[0], abs(self.offset) / self.allowed[1])


@dataclass(frozen=True)
class _Line:
    """Scale, offset and their standard errors."""

    values: tuple[float, float]
    errors: tuple[float, float]


def fitted(
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: Bound,
    row: int,
    yardsticks: Sequence[torch.Tensor] = (),
) -> Fit | None:
    """Fit a sample of a flat output; None where nothing is bounded or there are too few elements.

    The weight of an element is one over its bound, so large ones decide no more than others.
    """
    if bound.fit is None or got.numel() < FIT_LEAST:
        return None
    sides = [_sample(tensor, row).double() for tensor in (got, expected, *yardsticks)]
    line, *others = _lines(sides, bound, torch.finfo(got.dtype))
    if line is None:
        return None
    allowed = tuple(
        max(bound.fit, FIT_SIGMAS * error, *(YARDSTICK * abs(o.values[i]) for o in others if o))
        for i, error in enumerate(line.errors)
    )
    return Fit(*line.values, (allowed[0], allowed[1]), sides[0].numel())


def _sample(flat: torch.Tensor, row: int) -> torch.Tensor:
    """Rows of a flat tensor, evenly spread, without the rest that fills no row."""
    if flat.numel() < row:
        return flat[None]
    rows = flat[: flat.numel() // row * row].view(-1, row)
    step = -(-rows.numel() // FIT_ELEMENTS)
    return rows[::step]


def _lines(sides: list[torch.Tensor], bound: Bound, info: torch.finfo) -> list[_Line | None]:
    """The line of each side but the second, which is what is right."""
    right = sides.pop(1)
    size = right.abs()
    size = torch.where(size <= info.max, size, 0.0)
    # Below, numbers are rounded by a step of one size, which makes zeros of the smallest.
    usable = size >= info.smallest_normal
    scale = torch.linalg.vector_norm(size, dim=1, keepdim=True) / math.sqrt(size.shape[1])
    allowed = size * bound.rtol + (scale * bound.scale + bound.atol)
    weighted = (right / allowed, scale / allowed)
    spread = _repeated(size)
    return [_line(side - right, usable, allowed, weighted, spread) for side in sides]


def _repeated(size: torch.Tensor) -> float:
    """How often a rounding is repeated: equal mantissas are rounded alike, and don't average."""
    some = size.flatten()[:: max(1, size.numel() // _COUNTED)]
    mantissas = some.frexp().mantissa
    distinct = len(torch.unique(mantissas))
    return 1.0 if distinct > len(some) // 2 else size.numel() / distinct


def _line(
    error: torch.Tensor,
    usable: torch.Tensor,
    allowed: torch.Tensor,
    weighted: tuple[torch.Tensor, torch.Tensor],
    repeated: float,
) -> _Line | None:
    """Least squares on the elements that are finite."""
    used = error / allowed
    keep = usable & used.isfinite()
    columns = torch.stack([used, weighted[0], weighted[1].expand_as(used)])[:, keep]
    number = columns.shape[1]
    if number < FIT_LEAST:
        return None
    moments = (columns @ columns.T).tolist()
    return _solved(moments, number, repeated)


def _solved(m: list[list[float]], number: int, repeated: float) -> _Line | None:
    """The line from the second moments of (error, value, scale of the row), all over the bound."""
    (ee, ex, es), (_, xx, xs), (_, _, ss) = m
    if xx <= 0 or ss <= 0:
        return None
    if xs * xs > 0.98 * xx * ss:  # all values alike: a factor and an offset can't be told apart
        slope = ex / xx
        noise = _noise(ee - slope * ex, number, repeated)
        return _Line((slope, 0.0), (noise / math.sqrt(xx), math.inf))
    det = xx * ss - xs * xs
    slope, offset = (ex * ss - es * xs) / det, (es * xx - ex * xs) / det
    noise = _noise(ee - slope * ex - offset * es, number, repeated)
    return _Line((slope, offset), (noise * math.sqrt(ss / det), noise * math.sqrt(xx / det)))


def _noise(rest: float, number: int, repeated: float) -> float:
    """One element's standard deviation, enlarged for what is repeated."""
    return math.sqrt(max(rest / number, _QUIET**2) * repeated)
