"""How far outputs may be from the right ones: every formula and constant of a verdict.

**Elements.** Let ``y`` be the float64 value of an element, ``u`` the unit roundoff of the output's
dtype, and ``s`` the root mean square of the row that the element lies in. The element may be off by

    c * u * (|y| + s) + 2 * (the smallest number that arithmetic keeps).

That is the dtype's smallest number, a subnormal one; in float32 and bfloat16 it is the smallest
normal number, as GPUs may take what is less for 0 (nvcc's ``-ftz=true``, which ``--use_fast_math``
implies, and ``ex2.approx.ftz``, which is Triton's exponential).

``c * u * |y|`` is the rounding of the result. ``c * u * s`` is for intermediate rounding, which is
in proportion to the terms of a sum, not to the sum: the backward error of a sum or product (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1, (3.5) and 4.2). The verdict
sees no terms, but in the outputs of linear algebra, attention and normalisation they are as large
as the other elements of the row. ``c`` is 2 for the narrow dtypes, whose kernels accumulate in
float32: rounding the result takes a quarter of that, and one more rounding on the way (such as
attention's weights before they are multiplied by the values) another quarter. In float32 the
accumulation itself shows, as sqrt(K) random roundings (Higham, section 2.8), so ``c`` is larger.

**Rows.** Let ``f`` be the fraction of its bound that an element uses. The root mean square of ``f``
over a row of ``n`` stays below ``r``; in float32 and float64 below ``sqrt(((n - 1) r^2 + 1) / n)``,
since in a few sums one may be off by all that it may. In the narrow dtypes rounding alone, uniform
in half a step, takes 0.1 on average and at most 1 / (2 c).

**Bias: one scale and offset.** Rounding has no direction. Over many elements, ``got = (1 + a) y +
b s`` is fitted by least squares, weighted by the elements' bounds; ``|a|`` and ``|b|`` stay below
``f * u``, or below ``BIAS_SIGMAS`` standard errors if there are few elements. This finds a scale
that is off by 0.5 % in bfloat16, which no bound of an element can. ``f`` is 1/2, since honest
rounding comes that far: in a product with a factor beside a power of two, every element is rounded
to the same side, by up to half of ``u``.

In float32 the bounds of elements find a factor that is wrong by that, unless yardsticks widen them:
operands of products that are rounded to float16 take hundreds of times as much. So a bias is
looked for then. It may be ``BIAS_YARDSTICK`` times that of any yardstick: rounding has no bias, but
rows whose elements share an error do.

If an input has few different values, such as zeros and ones, so has what is computed from it
alone, and all elements share one intermediate rounding. Then the bias may be larger by ``u``. This
is checked after a failure only.

**Ill-conditioned outputs** honestly have larger errors: two large logits that nearly tie, a sum
that cancels. The reference itself shows how large. It is run in its own dtypes; in float64 on
inputs that are moved a little; in float64 with operands of matrix products rounded as matrix units
round them; in float64 with the result of each operation moved by roundoffs of float32, that of a
logarithm of a sum of exponentials by those of the sum and of the largest exponent, and softmax that
is used several times by a logarithm of its sum that was rounded; and with terms of sums added one
after the other in float32, reciprocals for divisors, running sums from the end as differences,
softmax as ``exp(x - logsumexp)``, and ``logaddexp`` by the smaller number (``sandbox.YARDSTICKS``);
and moved by other roundoffs where elements are nearly within these bounds (``MOVED_AGAIN``). Where
one of these yardsticks uses up to a fraction ``f`` of the bounds in a row, the row's elements may
use ``YARDSTICK * f``; likewise the row's root mean square and the bias. Where a row's elements are
alike they share their roundings, and so its root mean square may be what one element is off by.
Yardsticks only ever widen bounds, so they are run after a failure only. Errors of outputs that are
computed in float64 are taken to be smaller by the ratio of both roundoffs.

**NaN and infinities** must match, in place and sign, the float64 value rounded to the output's
dtype. Where that value is within its own bound of the largest number, or of its negative, both
that and its infinity are right; where a yardstick overflows, so may the output. Where the terms of
a sum overflow float32 in some order, it may be any infinity, or NaN. An infinity that is no
overflow, as of a mask, may be a number where that of a yardstick is one, and the same: what float32
can't tell apart decides there.

**Rounded outputs** are integers, bools and floats of 8 bits or fewer. Let ``v`` be the float64
value that the reference rounds by ``R``, and ``e`` what float32 arithmetic adds to it. As ``R``
never falls, what honest arithmetic gives is in ``R(v - e) .. R(v + e)``: within half a step of the
output's format of some number that is within ``e`` of ``v``, where ``R`` rounds to nearest. For
nearly all elements that is ``R(v)`` alone; near a tie it is both neighbours. ``e`` is twice what
yardsticks measure at ``v``, and 0 where float32 computes ``v`` exactly. So no more elements may
differ than lie within ``e`` of a tie: 2 e / step of them, some in 10,000 of float8's. Truncation
changes half of all, a factor of 0.95 most. The reference's own code is ``R``, run on ``v - e`` and
on ``v + e`` (``sandbox._rounding``), so clamps, packing, codes and thresholds are as it has them.
Numbers that are packed into one are compared by groups of four bits.

A definition may give a rounded output a tolerance: then ``|got - y| <= atol + rtol * |y|`` is right
as well, ``y`` being the rounded value. What it calls ``exact`` is that value, ties or not.

The constants are calibrated by ``benchmarks/calibration.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pytest_fib.data import Tolerance


@dataclass(frozen=True)
class _Precision:
    """``roundoff`` is half the distance from 1 to the next number; the others are as above."""

    roundoff: float
    element: float
    rows: float
    bias: float | None


#: ``u``, ``c``, ``r`` and ``f`` of the floating dtypes. Other dtypes are compared bit by bit. No
#: bias is fitted if a wrong factor is far beyond the bound of an element anyway.
PRECISION = {
    torch.float64: _Precision(2.0**-53, element=64, rows=0.8, bias=None),
    torch.float32: _Precision(2.0**-24, element=32, rows=0.8, bias=None),
    torch.float16: _Precision(2.0**-11, element=2, rows=0.4, bias=0.5),
    torch.bfloat16: _Precision(2.0**-8, element=2, rows=0.4, bias=0.5),
    torch.float8_e4m3fn: _Precision(2.0**-4, element=2, rows=0.4, bias=0.5),
    torch.float8_e5m2: _Precision(2.0**-3, element=2, rows=0.4, bias=0.5),
}
#: Dtypes with the exponents of float32, and below what its numbers may be taken for 0.
_OF_FLOAT32, FLUSHED = (torch.float32, torch.bfloat16), torch.finfo(torch.float32).smallest_normal
#: A fitted scale or offset must differ by this many standard errors, whatever its size: there are
#: thousands of workloads, and elements are not quite independent.
BIAS_SIGMAS = 8.0
#: The number of elements for the fit, spread over the output.
BIAS_ELEMENTS = 1 << 16
#: The least number of elements for the fit.
BIAS_LEAST = 32
#: Inputs with at most this many different mantissas have roundings that all elements share; checked
#: for so many elements.
FEW_VALUES, LOOKED_AT = 2, 4096
#: The most that an output's error may be of a yardstick's, and its scale and offset: a sum of
#: errors that elements share is less certain than the largest of many.
YARDSTICK, BIAS_YARDSTICK = 2.0, 4.0
#: The scale and offset that outputs with widened bounds may always have, over their own bound: one
#: float32 sum of thousands of numbers may be a factor of all elements.
WIDENED_BIAS = 64.0


@dataclass(frozen=True)
class Bound:
    """An element may be off by ``rtol * |y| + scale * s + atol``, s being its row's scale.

    ``rows`` and ``bias`` bound elements together, unless None. ``matched_ratio`` of the elements
    must keep to their bound. ``exact`` elements must be the rounded value, or within the
    definition's ``rtol`` and ``atol``, which are 0 by default; with ``ties``, the values that
    yardsticks round to are right too. Where luck decides how far off sums are, ``by_luck``, one of
    a row may use all of its bound.
    """

    rtol: float
    scale: float
    atol: float
    rows: float | None
    bias: float | None
    matched_ratio: float = 1.0
    exact: bool = False
    ties: bool = False
    by_luck: bool = False


EXACT = Bound(0.0, 0.0, 0.0, None, None, exact=True)
ROUNDED = replace(EXACT, ties=True)


def is_rounded(dtype: torch.dtype) -> bool:
    """Whether a dtype is of rounded outputs: integers, bools and floats of 8 bits or fewer."""
    return dtype not in PRECISION or dtype.itemsize == 1


@cache
def dtype_bound(dtype: torch.dtype, *, oracle: bool = True) -> Bound:
    """The bound of outputs of a dtype; without an ``oracle`` both sides are rounded."""
    if is_rounded(dtype):
        return ROUNDED
    precision = PRECISION[dtype]
    sides = 1 if oracle else 2
    reach = sides * precision.element * precision.roundoff
    return Bound(
        rtol=reach,
        scale=reach,
        atol=sides * 2 * (FLUSHED if dtype in _OF_FLOAT32 else smallest(dtype)),
        rows=precision.rows,
        bias=None if precision.bias is None else sides * precision.bias * precision.roundoff,
        by_luck=precision.bias is None,
    )


@cache
def overridden(bound: Bound, tolerance: Tolerance | None) -> Bound:
    """The bound with the definition's tolerances instead of the dtype's.

    Tolerances for elements hold for rows, scale and offset as well.
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
        bias=None,
        matched_ratio=tolerance.matched_ratio or 1.0,
    )


def with_yardsticks(bound: Bound, dtype: torch.dtype, inputs: Mapping[str, object]) -> Bound:
    """The bound of an output whose elements' bounds yardsticks may widen.

    A rounding may be the same for all elements, if the values of an input are.
    """
    if bound.rows is None:  # not the dtype's own
        return bound
    precision, few = PRECISION[dtype], any(map(_of_few_values, inputs.values()))
    if bound.bias is not None:
        return replace(bound, bias=bound.bias + precision.roundoff * few)
    widened = WIDENED_BIAS * precision.element * precision.roundoff
    return bound if few else replace(bound, bias=widened)


def _of_few_values(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype not in PRECISION:
        return False
    if value.numel() < BIAS_LEAST:
        return False
    some = value.reshape(-1)[:: max(1, value.numel() // LOOKED_AT)].double()
    return len(torch.unique(some.frexp().mantissa.abs())) <= FEW_VALUES


@cache
def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number of a dtype, a subnormal one."""
    info = torch.finfo(dtype)
    return float(info.smallest_normal * info.eps)
