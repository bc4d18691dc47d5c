"""How far an output may be from what is right: every formula and constant of a verdict.

**Elements.** With the float64 value ``y`` of an element, the unit roundoff ``u`` of the output's
dtype, and the root mean square ``s`` of the row that it lies in, an element may be off by

    c * u * (|y| + s) + 2 * (the smallest number of the dtype).

The first term is the rounding of the result. The second stands for what was rounded on the way to
it, in proportion to the summed terms and not to their sum: the backward error of a sum or product
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1, (3.5) and 4.2). The
verdict sees no terms, but in the outputs of linear algebra, attention and normalisation they are as
large as the other elements of the row. ``c`` is 2 for the narrow dtypes, whose kernels accumulate
in float32: the rounding of the result takes a quarter of that, and one more rounding on the way
(such as attention's weights before they meet the values) another. In float32 the accumulation
itself shows, as sqrt(K) roundings that are random (Higham, section 2.8), so ``c`` is larger.

**Rows.** An element that uses a fraction ``f`` of its bound is not wrong alone, but the root mean
square of ``f`` over a row stays below ``r``: of the narrow dtypes a bare rounding, uniform in half
a step, takes 0.1 on average and 1 / (2 c) at the very most.

**Scale and offset.** Rounding has no direction. Over many elements, ``got = (1 + a) y + b s`` is
fitted by least squares, weighted by the elements' bounds; ``|a|`` and ``|b|`` stay below
``f * u``, or below ``FIT_SIGMAS`` standard errors where there are few elements. This sees a scale
that is off by 0.5 % in bfloat16, which is below any bound of an element. ``f`` is 1/2, since honest
rounding comes that far: of a product with a factor beside a power of two, every element is rounded
to the same side, and by no more than half of ``u``.

Where an input takes few values, as zeros and ones, so does what is computed of it alone, and one
rounding on the way is the same for all elements. There the fit may be off by ``u`` more, which is
asked only after a failure.

**What is ill-conditioned** has larger errors than that, honestly: two large logits that nearly tie,
a sum that cancels. The reference itself shows how large, when it is run in its own dtypes and, in
float64, on inputs that were moved a little and with operands of matrix products rounded as matrix
units do (``_oracle.YARDSTICKS``). With the largest fraction ``f`` that one of these yardsticks uses
in a row, the row's elements may use ``YARDSTICK * f``, and likewise its root mean square and the
fit. Yardsticks only ever widen, so they need to be asked only after a failure.

**NaN and infinities** must match, in place and sign, the float64 value rounded to the output's
dtype. Where that value is within its own bound of the largest number, both that and the infinity
are right; where a yardstick overflows, so may the output.

**Integers and bools** are exact, or equal to a yardstick's.

The constants are calibrated by ``benchmarks/calibration.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_fib.data import Definition, Tolerance


@dataclass(frozen=True)
class _Precision:
    """``roundoff`` is half the distance from 1 to the next number; the rest as above."""

    roundoff: float
    element: float
    rows: float
    fit: float | None


#: ``u``, ``c``, ``r`` and ``f`` of the floating dtypes. Those that are not listed are compared bit
#: by bit. Nothing is fitted where one wrong factor is far beyond the bound of an element anyway.
PRECISION = {
    torch.float64: _Precision(2.0**-53, element=64, rows=0.8, fit=None),
    torch.float32: _Precision(2.0**-24, element=32, rows=0.8, fit=None),
    torch.float16: _Precision(2.0**-11, element=2, rows=0.4, fit=0.5),
    torch.bfloat16: _Precision(2.0**-8, element=2, rows=0.4, fit=0.5),
    torch.float8_e4m3fn: _Precision(2.0**-4, element=2, rows=0.4, fit=0.5),
    torch.float8_e5m2: _Precision(2.0**-3, element=2, rows=0.4, fit=0.5),
}
#: Standard errors that a fitted scale or offset must differ by, whatever its size. Workloads are
#: drawn by the thousand and elements are not quite independent.
FIT_SIGMAS = 8.0
#: Elements that a scale and offset are fitted to, spread over the output.
FIT_ELEMENTS = 1 << 16
#: Below this many elements nothing is fitted.
FIT_LEAST = 32
#: Inputs of no more different mantissas make roundings that all elements share; those of so many
#: elements are looked at.
FEW_VALUES, LOOKED_AT = 2, 4096
#: How many times a yardstick's error an output's may be.
YARDSTICK = 2.0
#: Rows shorter than that are taken together, longer ones apart.
SHORT_ROW, LONG_ROW = 64, 16_384


@dataclass(frozen=True)
class Bound:
    """An element may be off by ``rtol * |y| + scale * s + atol``, s being its row's scale.

    ``rows`` and ``fit`` bound what elements do together; None, not at all. ``matched_ratio`` of the
    elements must keep to their bound. ``exact`` allows no difference from the rounded value.
    """

    rtol: float
    scale: float
    atol: float
    rows: float | None
    fit: float | None
    matched_ratio: float = 1.0
    exact: bool = False


EXACT = Bound(0.0, 0.0, 0.0, None, None, exact=True)


def dtype_bound(dtype: torch.dtype, *, oracle: bool = True) -> Bound:
    """The bound of outputs of a dtype; without an ``oracle`` both sides are rounded ones."""
    if dtype not in PRECISION:
        return EXACT
    precision = PRECISION[dtype]
    sides = 1 if oracle else 2
    reach = sides * precision.element * precision.roundoff
    return Bound(
        rtol=reach,
        scale=reach,
        atol=sides * 2 * smallest(dtype),
        rows=precision.rows,
        fit=None if precision.fit is None else sides * precision.fit * precision.roundoff,
    )


def overridden(bound: Bound, tolerance: Tolerance | None) -> Bound:
    """The bound with what a definition says of this output in place of the dtype's own.

    Who says how far elements may be off says so of their rows, their scale and offset as well.
    """
    if tolerance is None:
        return bound
    if tolerance.exact:
        return EXACT
    own = (tolerance.rtol, tolerance.atol, tolerance.matched_ratio)
    if own == (None, None, None):
        return bound
    return replace(
        bound,
        rtol=bound.rtol if tolerance.rtol is None else tolerance.rtol,
        scale=bound.scale if tolerance.atol is None else 0.0,
        atol=bound.atol if tolerance.atol is None else tolerance.atol,
        rows=None,
        fit=None,
        matched_ratio=tolerance.matched_ratio or 1.0,
    )


def bound_for(
    definition: Definition, output: str, dtype: torch.dtype, *, oracle: bool = True
) -> Bound:
    """The bound of one output of a definition, which has that dtype."""
    return overridden(dtype_bound(dtype, oracle=oracle), definition.tolerances.get(output))


def coherent(bound: Bound, dtype: torch.dtype, inputs: Mapping[str, object]) -> Bound:
    """The bound where a rounding may be the same for all elements, since an input's values are."""
    if bound.fit is None or not any(map(_of_few_values, inputs.values())):
        return bound
    return replace(bound, fit=bound.fit + PRECISION[dtype].roundoff)


def _of_few_values(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype not in PRECISION:
        return False
    if value.numel() < FIT_LEAST:
        return False
    some = value.reshape(-1)[:: max(1, value.numel() // LOOKED_AT)].double()
    return len(torch.unique(some.frexp().mantissa.abs())) <= FEW_VALUES


def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number of a dtype, a subnormal one."""
    info = torch.finfo(dtype)
    return float(info.smallest_normal * info.eps)


def row_length(shape: Sequence[int]) -> int:
    """How many neighbours in memory share a scale: the last dimension, in most cases.

    Short rows are taken together, since a few elements may all happen to be small; long ones,
    vectors among them, are cut, so that the last tile of one can't hide.
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
