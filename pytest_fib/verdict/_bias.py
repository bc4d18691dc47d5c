"""Bias: one factor and one offset of an output, which no single element shows. See ``_bounds``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pytest_fib.data import format_distinct
from pytest_fib.verdict._bounds import (
    BIAS_ELEMENTS,
    BIAS_LEAST,
    BIAS_SIGMAS,
    BIAS_YARDSTICK,
    Bound,
)

#: The least noise, as a fraction of the elements' bounds: that of the final rounding alone.
_QUIET = 0.14
#: How many elements are checked for distinct values.
_COUNTED = 4096


@dataclass(frozen=True)
class Bias:
    """``got = (1 + scale) * y + offset * s``, s being the scale of y's row.

    ``allowed`` are the bounds of both, ``elements`` how many it was fitted to.
    """

    scale: float
    offset: float
    allowed: tuple[float, float]
    elements: int

    @property
    def used(self) -> float:
        """The share of its bound that the scale or the offset uses, whichever is larger."""
        return max(abs(self.scale) / self.allowed[0], abs(self.offset) / self.allowed[1])

    def describe(self) -> str:
        """The one with the larger share, in words that follow the output's name."""
        over = f"fitted to {self.elements} elements"
        if abs(self.scale) / self.allowed[0] >= abs(self.offset) / self.allowed[1]:
            share, most = format_distinct(100 * abs(self.scale), 100 * self.allowed[0], 2)
            way = "large" if self.scale > 0 else "small"
            return f"is {share} % too {way} on average, allowed {most} % ({over})"
        share, most = format_distinct(100 * abs(self.offset), 100 * self.allowed[1], 2)
        sign = "+" if self.offset > 0 else "-"
        return f"is shifted by {sign}{share} % of a row's scale, allowed ±{most} % ({over})"


@dataclass(frozen=True)
class _Line:
    """Scale, offset and their standard errors."""

    values: tuple[float, float]
    errors: tuple[float, float]


def fit_bias(flat: Sequence[torch.Tensor], bound: Bound, row: int) -> Bias | None:
    """Fit a sample of got, expected and yardsticks; None if there is no bound, or too few elements.

    The weight of an element is one over its bound, so large elements count no more than others.
    """
    got = flat[0]
    if bound.bias is None or got.numel() < BIAS_LEAST:
        return None
    sides = [_sample(side, row).double() for side in flat]
    line, *others = _lines(sides, bound, torch.finfo(got.dtype))
    if line is None:
        return None
    biases = [other.values for other in others if other]
    allowed = tuple(
        max(bound.bias, BIAS_SIGMAS * error, *(BIAS_YARDSTICK * abs(bias[i]) for bias in biases))
        for i, error in enumerate(line.errors)
    )
    return Bias(*line.values, (allowed[0], allowed[1]), sides[0].numel())


def _sample(flat: torch.Tensor, row: int) -> torch.Tensor:
    """Rows of a flat tensor, evenly spread, without an incomplete last row."""
    if flat.numel() < row:
        return flat[None]
    rows = flat[: flat.numel() // row * row].view(-1, row)
    step = -(-rows.numel() // BIAS_ELEMENTS)
    return rows[::step]


def _lines(sides: list[torch.Tensor], bound: Bound, info: torch.finfo) -> list[_Line | None]:
    """The line of each side except the second, the expected one."""
    right = sides.pop(1)
    size = right.abs()
    size = torch.where(size <= info.max, size, 0.0)
    # Below, all numbers are rounded by the same step, and the smallest to zero.
    usable = size >= info.smallest_normal
    scale = torch.linalg.vector_norm(size, dim=1, keepdim=True) / math.sqrt(size.shape[1])
    allowed = size * bound.rtol + (scale * bound.scale + bound.atol)
    weighted = (right / allowed, scale / allowed)
    moments = [_moments(side - right, usable, allowed, weighted) for side in sides]
    counted, some = _distinct(size)
    # One read from the device for all.
    distinct, *numbers = torch.cat([counted.view(1).double(), *moments]).tolist()
    spread = 1.0 if distinct > some // 2 else size.numel() / distinct
    lines = (numbers[i : i + 10] for i in range(0, len(numbers), 10))
    return [_line(first, rest, spread) for first, *rest in lines]


def _distinct(size: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The number of different mantissas in a sample, and the sample's size.

    Equal mantissas are rounded alike, so their errors don't average out.
    """
    some = size.flatten()[:: max(1, size.numel() // _COUNTED)]
    mantissas = some.frexp().mantissa.sort().values
    return (mantissas[1:] != mantissas[:-1]).sum() + 1, len(some)


def _moments(
    error: torch.Tensor,
    usable: torch.Tensor,
    allowed: torch.Tensor,
    weighted: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """The number of usable, finite elements, and their nine second moments."""
    used = error / allowed
    keep = usable & used.isfinite()
    columns = torch.stack([used, weighted[0], weighted[1].expand_as(used)])
    columns = torch.where(keep, columns, 0.0).flatten(1)
    return torch.cat([keep.sum().view(1).double(), (columns @ columns.T).flatten()])


def _line(number: float, moments: Sequence[float], repeated: float) -> _Line | None:
    """Least squares by second moments, in rows of three; None for too few elements."""
    if number < BIAS_LEAST:
        return None
    rows = [list(moments[i : i + 3]) for i in (0, 3, 6)]
    return _solved(rows, int(number), repeated)


def _solved(m: list[list[float]], number: int, repeated: float) -> _Line | None:
    """The line from the second moments of (error, value, scale of the row), all over the bound."""
    (ee, ex, es), (_, xx, xs), (_, _, ss) = m
    if xx <= 0 or ss <= 0:
        return None
    if xs * xs > 0.98 * xx * ss:  # values are equal: a factor is like an offset
        slope = ex / xx
        noise = _noise(ee - slope * ex, number, repeated)
        return _Line((slope, 0.0), (noise / math.sqrt(xx), math.inf))
    det = xx * ss - xs * xs
    slope, offset = (ex * ss - es * xs) / det, (es * xx - ex * xs) / det
    noise = _noise(ee - slope * ex - offset * es, number, repeated)
    return _Line((slope, offset), (noise * math.sqrt(ss / det), noise * math.sqrt(xx / det)))


def _noise(rest: float, number: int, repeated: float) -> float:
    """One element's standard deviation, enlarged for repeated values."""
    return math.sqrt(max(rest / number, _QUIET**2) * repeated)
