"""ATen's operations, as float32 arithmetic sees them: which round, and which decide."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from pytest_fib.sandbox._ties import Ranks, Ties

T = TypeVar("T")
#: Numbers that have errors. Narrower ones are results of decisions.
WIDE = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16))
#: Unit roundoff of float32, and the size below which its numbers have an error of one size.
ROUNDOFF, UNDERFLOW = 2.0**-24, 2.0**-126
FLOAT32_MAX = torch.finfo(torch.float32).max
#: Numbers of bits of two factors of which float32 holds any product.
FEW_BITS = ((12, 12), (8, 16))
#: An error of what underflows is below that.
FAINT_REACH = 4 * UNDERFLOW
#: How far a result is moved, in roundoffs: by 2 to 4 of them, so that several hardly cancel.
MOVED = 4.0
#: The same for each of equal terms, up to half of which is in the last binade of the partial sums;
#: and how many values make terms equal, of how many that are looked at.
EQUAL_SHARE, FEW_TERMS, TERMS_LOOKED_AT = 0.25, 4, 1024


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operations on each element, products of matrices, and others that add many terms.
_ELEMENTWISE = _names("""
    add sub rsub mul div pow exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan
    tanh sigmoid silu gelu softplus erf erfc elu mish sinh cosh atan2 hypot xlogy logaddexp
    logaddexp2 addcmul addcdiv lerp square prod cumprod log_sigmoid_forward
""")
_SCANS, _SOFTMAX = _names("prod cumprod"), _names("_softmax _log_softmax")
_PRODUCTS = _names("mm bmm addmm baddbmm addmv mv dot vdot")
_SUMS = _names("""
    sum nansum mean cumsum logsumexp logcumsumexp var std var_mean std_mean norm linalg_vector_norm
    _softmax _log_softmax native_layer_norm native_group_norm _fused_rms_norm convolution index_add
    scatter_add scatter_reduce
""")
#: Sums whose terms may be added one after the other; and products that are such sums.
_ADDED, _DOTS = _names("sum mean cumsum"), _names("mv dot vdot")
#: Products of matrices, and how many products of numbers in them are added one after the other.
_MATRIX_PRODUCTS, MOST_PRODUCTS = _names("mm bmm addmm baddbmm"), 1 << 28
#: Any number of many bits.
SCALE_OF_PRODUCTS = 0.7
#: A quotient that float32 holds may have been a product with a reciprocal, which it does not hold;
#: and a reciprocal is part of a scale, which has many forms.
_QUOTIENT_OPERATIONS, _RECIPROCALS = _names("div sqrt"), _names("reciprocal rsqrt")
_PLAIN = _names("add sub rsub mul")
#: The number with which an operation leaves its other operand as it is, and which may be that.
_WITH_IDENTITY = {"mul": (1, (0, 1)), "div": (1, (1,)), "add": (0, (0, 1)), "sub": (0, (1,))}
COMPARISONS = _names("gt ge lt le eq ne")
_BUCKETS = _names("bucketize searchsorted")
_DIVISIONS = _names("floor_divide remainder fmod")
#: Decisions on a number, by which argument it is.
_DECIDED = {
    **dict.fromkeys(_names("round floor ceil trunc sign sgn frac bucketize _to_copy"), 0),
    **dict.fromkeys(_names("searchsorted copy"), 1),
}


#: What underflows to zeros that were ranked before; below that, float64 results are graded.
_EXPONENTIALS, _FAINT = _names("exp exp2 sigmoid _softmax"), 1e-290
#: What was off may be this many times as far off as it was seen to be. That is before what is
#: computed of it, which need not be in proportion.
BELIEVED = 2.0
#: The logarithm of 2**256: far beyond float32's numbers, with float64's room for its products.
OVERFLOWING = 256 * math.log(2)
#: Scores of -1e4 and below are masks.
LEAST_UNMASKED = -1e4
#: What gives all elements of a tensor as they are, or but for a mask; and what gives some of them.
SHOWING_ALL = _names("""
    view _unsafe_view reshape t transpose permute expand unsqueeze squeeze clone detach alias
    _to_copy nan_to_num masked_fill where
""")
SHOWING_SOME = _names("slice select index narrow split unbind index_select gather")
_SHOWING = SHOWING_ALL | SHOWING_SOME
#: Logarithms of what may be gates of recurrences, by operation.
_GATES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": lambda value: value.clone(),
    "exp2": lambda value: value * math.log(2),
    "sigmoid": torch.nn.functional.logsigmoid,
}
#: What gates are multiplied by, and which arguments that are; what goes on with what was gated.
_GATING = {"mul": ((0, 1), (1, 0)), "addcmul": ((1, 2), (2, 1))}
_CARRIES = _names("add sub clone copy _to_copy detach where")
#: What puts other numbers among those that it shows.
_PUTTING = _names("masked_fill nan_to_num where")
#: How many steps chunks usually have, and to what share sums of so many logarithms are rounded: the
#: random walk of their roundings in float32 is as long.
CHUNK, SUM_STEP = 64, 2.0**-21
#: Larger sums are rounded to quarters; and a gate that makes what is multiplied by it uncertain.
MOST_SUM, ANY_GATE = 0.25 / SUM_STEP, 4.0
#: What ``log1p`` is part of a logarithm of a sum of.
_POWERS = _names("exp exp2")


def is_wide(value: Any) -> bool:
    """Whether this is a tensor of numbers that have errors."""
    return isinstance(value, torch.Tensor) and value.dtype in WIDE


@dataclass(frozen=True)
class Operation:
    """One call of an operation; one that is ``in_place`` changes its first argument."""

    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def in_place(self) -> bool:
        """Whether the operation's name ends in an underscore."""
        return bool(self.func.overloadpacket.__name__.endswith("_"))

    @property
    def name(self) -> str:
        """``add``, of all its overloads and in place as well."""
        name: str = self.func.overloadpacket.__name__
        return name.removesuffix("_")

    def plain(self) -> Any:
        """The operation's result as it is."""
        return self.func(*self.args, **self.kwargs)

    def run(self) -> Any:
        """The operation's result; that of exponentials is without zeros."""
        result = self.plain()
        faints = self.name in _EXPONENTIALS and is_wide(result) and result.itemsize == 8
        return _graded(self, result) if faints else result

    def argument(self, name: str) -> Any:
        """An argument by its name in the schema, or its default; None where there is none."""
        for position, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                if position < len(self.args):
                    return self.args[position]
                return self.kwargs.get(name, argument.default_value)
        return None

    @property
    def dim(self) -> int | None:
        """The dimension it goes along, if it is one."""
        dim = self.argument("dim")
        return dim % max(self.args[0].dim(), 1) if isinstance(dim, int) else None


@dataclass(frozen=True)
class SoftmaxOfLogSum(Operation):
    """Softmax, or its logarithm, as of kernels that compute what it is of a second time.

    These keep the logarithm of the sum of exponentials of each row. Of large numbers, two
    computations differ by so much that an exponential overflows. ``excess`` is by how much the
    numbers of this run are more than that of another one.
    """

    excess: torch.Tensor

    @classmethod
    def of(cls, call: Operation, log_sum: torch.Tensor) -> SoftmaxOfLogSum:
        """The call of a run, with the logarithms of sums of another."""
        value = call.args[0].double()
        excess = (BELIEVED * (value - log_sum)).clamp_max(OVERFLOWING)
        excess = torch.where(log_sum.isfinite(), excess, -math.inf)
        return cls(call.func, call.args, call.kwargs, excess)

    def plain(self) -> Any:
        """The result, but for what is more than the sum is."""
        result = super().plain()
        again = self.excess if self.name == "_log_softmax" else self.excess.exp()
        return torch.where(self.excess > 0, again.to(result.dtype), result)


@dataclass(frozen=True)
class ExponentialAgain(Operation):
    """An exponential of what was not above 0 in another run, and is by its errors alone."""

    def plain(self) -> Any:
        """The result; of what is above 0, that of as much as it may be, and no infinity."""
        value = self.args[0]
        most = OVERFLOWING / (math.log(2) if self.name == "exp2" else 1.0)
        excess = (BELIEVED * value).clamp_max(most)
        return self.func(torch.where(value > 0, excess, value), **self.kwargs)


def is_exponential(call: Operation) -> bool:
    """Whether this is an exponential of any numbers in float64, and changes none in place."""
    if call.name not in _POWERS or call.in_place:
        return False
    value: torch.Tensor = call.args[0]
    return value.dtype is torch.float64 and value.numel() > 0


def _is_swallowed(value: torch.Tensor, dim: int) -> torch.Tensor:
    """Rows of numbers that are equal in float32; a single one is no such row."""
    seen, narrow = value.isfinite(), value.float()
    most = narrow.where(seen, -math.inf).amax(dim, keepdim=True)
    least = narrow.where(seen, math.inf).amin(dim, keepdim=True)
    return (most == least) & (seen.sum(dim, keepdim=True) > 1)


def is_softmax(call: Operation) -> bool:
    """Whether this is a softmax, or its logarithm, of any numbers."""
    return call.name in _SOFTMAX and call.args[0].numel() > 0


def log_sum_of_softmax(call: Operation) -> torch.Tensor:
    """The logarithm of the sum of exponentials of each row of a softmax.

    NaN of rows that a mask of -1e9, which was added, swallows: any way to compute these gives that.
    """
    value, dim = call.args[0].double(), call.dim or 0
    log_sum: torch.Tensor = value.logsumexp(dim, keepdim=True)
    return log_sum.masked_fill(_is_swallowed(value, dim), math.nan)


def _graded(call: Operation, result: torch.Tensor) -> torch.Tensor:
    """An exponential whose faintest results keep the order of what they are exponentials of.

    They are zeros in float32, of which any is as good; which these are must not be lost. Those of
    -inf are still 0.
    """
    faint = result < _FAINT
    if call.in_place or not bool(faint.any()):
        return result
    value = call.args[0].double()
    if call.name == "_softmax" and value.dim():
        value = value - value.amax(call.dim, keepdim=True)
    return torch.where(faint, _FAINT / value.abs().clamp_min(1.0), result)


# ---- arithmetic ----


@dataclass
class Sum:
    """A sum that a run has computed, which ``add_again`` computes with other roundoffs.

    ``before`` has the versions of the sum and of its terms at that time: once they have changed, it
    is another sum. ``uses`` has an entry for each time that the run has used it, or what it showed
    of it or scaled.
    """

    add_again: Callable[[], torch.Tensor]
    of: Operation
    before: list[int]
    uses: list[None] = field(default_factory=list)

    @classmethod
    def noted(
        cls,
        result: torch.Tensor,
        of: Operation,
        add_again: Callable[[], torch.Tensor],
        uses: list[None] | None = None,
    ) -> Sum:
        """The record of a sum that was just computed."""
        return cls(add_again, of, _versions(result, of), [] if uses is None else uses)

    def again(self, result: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> Sum:
        """The record of what was just made of the sum."""
        return Sum.noted(result, self.of, lambda: change(self.add_again()), self.uses)


@dataclass(frozen=True)
class Gated:
    """What has been multiplied by gates so many ``times``, one after the other.

    Recurrences such as that of gated linear attention are computed in chunks: a product of gates is
    the exponential of a difference of two running sums of their logarithms, which are rounded. So
    ``sums`` are, once they are multiplied by ``grid``; other grids are other roundings.
    """

    sums: torch.Tensor
    grid: float
    times: int = 1

    @classmethod
    def by(cls, logarithms: torch.Tensor, before: Gated | None, grid: float) -> Gated:
        """The same with one more gate; each chunk begins anew."""
        times = before.times if before else 0
        if before is not None and times % CHUNK:
            logarithms = before.sums + logarithms  # both broadcast to the product
        mantissas, exponents = torch.frexp(logarithms * grid)
        rounded = torch.ldexp(mantissas.div_(SUM_STEP).round_().mul_(SUM_STEP / grid), exponents)
        return cls(rounded, grid, times + 1)

    def fits(self, result: torch.Tensor) -> bool:
        """Whether a result has a sum for each element, or for several."""
        pairs = zip(reversed(self.sums.shape), reversed(result.shape), strict=False)
        longer = self.sums.dim() > result.dim()
        return not longer and all(one in (1, other) for one, other in pairs)

    def last(self, gate: torch.Tensor, before: Gated) -> torch.Tensor:
        """The last gate as the sums have it; as it is where they are infinite.

        Where sums are so large that they hold no gate it may be any, and is one that shows.
        """
        if before.times % CHUNK == 0:
            return gate
        step = self.sums - before.sums
        any_gate = torch.where(self.sums.abs() > MOST_SUM, ANY_GATE, step.exp())
        return torch.where(step.isfinite(), any_gate.to(gate.dtype), gate)


#: Rows shorter than that are taken with all others.
SHORT_ROW = 64
#: Operations that may scale a sum by a number.
_SCALINGS = {"mul", "div", "true_divide"}
#: The sums of a run, and views of them.
Sums = MutableMapping[torch.Tensor, Sum]


class UntilChanged(Generic[T]):
    """What is noted of tensors: None once they were changed in place, and of anything else.

    Tensors made in inference mode don't say whether they were changed, so nothing is noted of them.
    """

    def __init__(self) -> None:
        self._noted: MutableMapping[torch.Tensor, tuple[int, T]] = WeakIdKeyDictionary()

    def note(self, value: torch.Tensor, what: T) -> None:
        """Note something of a tensor as it is now."""
        if not value.is_inference():
            self._noted[value] = value._version, what

    def get(self, value: Any) -> T | None:
        """What was noted of a tensor of numbers that have errors."""
        known = self._noted.get(value) if is_wide(value) else None
        return known[1] if known and known[0] == value._version else None


#: What was gated of parts of tensors, by where these are.
Parts = MutableMapping[torch.Tensor, dict[tuple[Any, ...], Gated]]


def _place(part: torch.Tensor) -> tuple[Any, ...]:
    """Where in its memory a part of a tensor is."""
    return part.storage_offset(), part.shape, part.stride()


@dataclass
class Recurrences:
    """What a run multiplies by gates again and again, and the gates as chunks have them.

    - ``grid``: what logarithms are rounded on.
    - ``gates``: logarithms of exponentials and sigmoids, and of views of these.
    - ``gated``: what gates have been multiplied into, one after the other; ``parts``, of tensors,
      by where in these.
    """

    grid: float = 1.0
    gates: UntilChanged[torch.Tensor] = field(default_factory=UntilChanged)
    gated: UntilChanged[Gated] = field(default_factory=UntilChanged)
    parts: Parts = field(default_factory=WeakIdKeyDictionary)

    def run(self, call: Operation, run: Callable[[Operation], Any]) -> Any:
        """An operation's result, with its gate as chunks have it."""
        # Of what is changed in place, they are gone once it was run.
        logarithms = self._logarithms(call)
        call, gated = self._with_gate(call)
        result = run(call)
        if is_wide(result):
            if logarithms is not None:
                self.gates.note(result, logarithms)
            self._note(call, result, gated)
        return result

    def _logarithms(self, call: Operation) -> torch.Tensor | None:
        """Those of what may be gates; None of other results."""
        if call.name in _GATES:
            return _GATES[call.name](call.args[0]) if is_wide(call.args[0]) else None
        if call.name not in _SHOWING or (known := self.gates.get(call.args[0])) is None:
            return None
        if call.name in _PUTTING:
            return call.plain().log()  # type: ignore[no-any-return]
        shown: torch.Tensor = replace(call, args=(known, *call.args[1:])).plain()
        return shown

    def _with_gate(self, call: Operation) -> tuple[Operation, Gated | None]:
        """An operation whose gate is as a difference of sums has it, and what is gated then.

        A first gate stays as it is. There is None of what no gate is multiplied into.
        """
        if call.name in _CARRIES:
            sources = call.args[1:2] if call.name == "copy" else call.args[:2]
            return call, next(filter(None, map(self._before, sources)), None)
        for place, other in _GATING.get(call.name, ()):
            gate, before = call.args[place], self._before(call.args[other])
            logarithms = self.gates.get(gate)
            if logarithms is None or not is_wide(call.args[other]):
                continue
            gated = Gated.by(logarithms, before, self.grid)
            if before and not (call.in_place and place == 0):
                args = [*call.args]
                args[place] = gated.last(gate, before)
                call = replace(call, args=tuple(args))
            return call, gated
        return call, None

    def _before(self, value: Any) -> Gated | None:
        """What a tensor is known to be a product of gates with, or that part of another one."""
        known = self.gated.get(value)
        if known is None and is_wide(value) and value._base is not None:
            return self.parts.get(value._base, {}).get(_place(value))
        return known

    def _note(self, call: Operation, result: torch.Tensor, gated: Gated | None) -> None:
        """Note what is gated, and where it was put."""
        gated = gated if gated is not None and gated.fits(result) else None
        if gated is not None:
            self.gated.note(result, gated)
        if call.in_place and result._base is not None:
            parts = self.parts.setdefault(result._base, {})
            parts.pop(_place(result), None)
            if gated is not None:
                parts[_place(result)] = gated


@dataclass
class Computed:
    """What a run has computed that counts where it is used.

    - ``exponentials``: results of exponential functions.
    - ``products``: results of multiplications, with both factors.
    """

    recurrences: Recurrences = field(default_factory=Recurrences)
    sums: Sums = field(default_factory=WeakIdKeyDictionary)
    exponentials: UntilChanged[bool] = field(default_factory=UntilChanged)
    products: UntilChanged[Sequence[Any]] = field(default_factory=UntilChanged)

    def is_exponential(self, value: Any) -> bool:
        """Whether a tensor is what an exponential function gave, and was not changed since."""
        return self.exponentials.get(value) is not None

    def factors(self, value: Any) -> Sequence[Any]:
        """What a tensor is the product of, if it is one and was not changed since."""
        return self.products.get(value) or ()

    def note(self, call: Operation, result: Any) -> None:
        """Take in an operation's result."""
        if not is_wide(result) or call.in_place:
            return
        if call.name in _POWERS:
            self.exponentials.note(result, True)
        if call.name == "mul":
            self.products.note(result, call.args[:2])

    def is_blend(self, call: Operation) -> bool:
        """Whether this adds two products by weights that are 1 together.

        Interpolation has several formulas. Of equal numbers, and with weights that are beside a
        border, one is exact, and another is not.
        """
        if call.name == "lerp":
            return not call.in_place
        if call.name != "add" or call.in_place or call.kwargs:
            return False
        one, other = (self.factors(value) for value in call.args[:2])
        return any(_are_shares(*pair) for pair in product(one, other))


def moved_result(
    call: Operation, noise: Callable[[torch.Tensor], torch.Tensor], computed: Computed
) -> Any:
    """An operation's result, moved by float32 roundoffs where float32 can't hold it.

    ``noise`` makes random numbers between -1 and 1 for the elements of a tensor. Of a sum, the
    terms are moved, as orders of summation differ by roundoffs of partial sums: for ``n`` terms,
    by about the root of ``n`` roundoffs; for equal terms by a share of ``n``, since each addition
    rounds to the same side. An operation that uses a sum again gets it with other roundoffs, since
    an implementation may add the same terms twice. What is computed from a sum with 1, logarithms
    of sums of exponentials for one, is moved as that sum is.
    """
    result = computed.recurrences.run(call, lambda call: _moved_result(call, noise, computed))
    computed.note(call, result)
    return result


def _moved_result(
    call: Operation, noise: Callable[[torch.Tensor], torch.Tensor], computed: Computed
) -> Any:
    sums = computed.sums
    adds = call.name in _PRODUCTS | _SUMS or "_backward" in call.name
    computes = adds or call.name in _ELEMENTWISE
    if not computes or not any(map(is_wide, call.args)):  # integers and bools have no errors
        return _viewed(call, sums)
    offset = _offset(call, computed)
    if call.in_place:
        return _moved_in_place(call, noise, adds, offset)
    if (scaled := _scaled_sum(call, sums)) is not None:
        result = _moved(call, noise, adds, offset)
        sums[result] = scaled.again(
            result,
            lambda value: _moved(replace(call, args=(value, *call.args[1:])), noise, adds, offset),
        )
        return result
    is_blend = computed.is_blend(call)
    call = replace(call, args=tuple(_used(x, sums) for x in call.args))
    if is_blend:
        result = call.run()
        return result.add_(_step(result, MOVED, noise(result)))
    if adds and _is_exact(call):
        return call.run()
    result = _moved(call, noise, adds, offset)
    if adds and is_wide(result):
        sums[result] = Sum.noted(result, call, lambda: _moved(call, noise, adds, offset))
    return result


def _are_shares(one: Any, other: Any) -> bool:
    """Whether two weights are 1 together, all of them."""
    if not is_wide(one) or not is_wide(other) or one.shape != other.shape:
        return False
    return bool(((one.double() + other - 1).abs() <= BELIEVED * MOVED * ROUNDOFF).all())


def _offset(call: Operation, computed: Computed) -> torch.Tensor | None:
    """What kernels add to a number that they compute from a sum with 1; None of anything else.

    That sum loses digits of numbers near 0. A logarithm of a sum of exponentials is that of a sum
    of 1 or more, added to the largest exponent; ``tanh(x)`` is ``2 * sigmoid(2 * x) - 1``, and the
    negative part of ``elu`` ``exp(x) - 1``, where a language has nothing else. ``log1p`` is such a
    logarithm where it is of an exponential. Of other numbers it is written for the digits that a
    sum with 1 loses, as ``expm1`` is.
    """
    of = _OFFSETS.get(call.name)
    known = of and (call.name != "log1p" or computed.is_exponential(call.args[0]))
    return of(call) if of and known else None


def _largest_along(call: Operation) -> torch.Tensor:
    value: torch.Tensor = call.args[0]
    along = call.args[1], bool(call.argument("keepdim"))
    return value.amax(*along) if value.numel() else _zero(call)


def _zero(call: Operation) -> torch.Tensor:
    zero: torch.Tensor = call.args[0].new_zeros(())
    return zero


def _positive_part(call: Operation) -> torch.Tensor:
    part: torch.Tensor = call.args[0].clamp_min(0) * call.argument("scale")
    return part


_OFFSETS: Mapping[str, Callable[[Operation], torch.Tensor]] = {
    **dict.fromkeys(_names("log1p softplus log_sigmoid_forward _log_softmax tanh"), _zero),
    "elu": _positive_part,
    **dict.fromkeys(
        _names("logaddexp logaddexp2"), lambda call: torch.maximum(call.args[0], call.args[1])
    ),
    "logsumexp": _largest_along,
    "logcumsumexp": lambda call: call.args[0].cummax(call.args[1]).values,
}


def _moved(
    call: Operation,
    noise: Callable[[torch.Tensor], torch.Tensor],
    adds: bool,
    offset: torch.Tensor | None,
) -> Any:
    args, by, exact = call.args, MOVED, None
    if adds:
        terms = _terms(call)
        exact = call.run() if terms <= FEW_TERMS else None
        by = max(MOVED, 2 * math.sqrt(terms), EQUAL_SHARE * terms * _has_few_values(call))
        args = tree_map(lambda x: x + _step(x, by, noise(x)) if is_wide(x) else x, args)
    result = replace(call, args=tuple(args)).run()
    for place, output in enumerate(_all_of(result)):
        if not is_wide(output):
            continue
        keep = output == 0 if adds else _held(call, output, offset)
        step = _step(output, by, noise(output), offset)
        if exact is not None:  # no luck makes the errors of one or two terms cancel with the sum's
            step = step.abs().copysign(output - _all_of(exact)[place])
        output.add_(torch.where(keep, 0.0, step))
    return result


def _all_of(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _versions(result: torch.Tensor, call: Operation) -> list[int]:
    return [x._version for x in (result, *call.args) if isinstance(x, torch.Tensor)]


def _scaled_sum(call: Operation, sums: Sums) -> Sum | None:
    """The sum that an operation scales by a number: the result has the roundoffs of a sum."""
    if call.name not in _SCALINGS:
        return None
    value, number = call.args[:2]
    is_number = not isinstance(number, torch.Tensor) or not number.dim()
    return _known_sum(value, sums) if is_number else None


def _known_sum(value: Any, sums: Sums) -> Sum | None:
    """The record of a sum that has not changed since."""
    known = sums.get(value) if is_wide(value) else None
    return known if known is not None and _versions(value, known.of) == known.before else None


def _viewed(call: Operation, sums: Sums) -> Any:
    """What an operation returns that computes nothing; what it shows of a sum is one."""
    result = call.run()
    known = sums.get(call.args[0]) if call.args and is_wide(call.args[0]) else None
    if known is not None and is_wide(result) and not call.in_place:
        sums[result] = known.again(
            result, lambda value: replace(call, args=(value, *call.args[1:])).run()
        )
    return result


def _used(value: Any, sums: Sums) -> Any:
    """An argument; of a sum, another from its second use on."""
    known = _known_sum(value, sums)
    if known is None:
        return value
    known.uses.append(None)
    return value if len(known.uses) == 1 else value + _typical(known.add_again() - value, value)


def _typical(error: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Errors of a sum, none of which luck makes less than the root mean square of its row.

    Nor, in short rows, less than the median of all errors in proportion to the sums.
    """
    if not error.dim():
        return error
    usual = error.square().mean(-1, keepdim=True).sqrt()
    if error.shape[-1] < SHORT_ROW:
        step = error.numel() // TERMS_LOOKED_AT + 1
        some, sums = error.reshape(-1)[::step], value.reshape(-1)[::step]
        shares = (some / sums).abs().nan_to_num_(0.0, 0.0, 0.0)[some != 0]
        usual = torch.maximum(usual, value.abs() * shares.median().nan_to_num_(0.0))
    return torch.where(error.abs() < usual, error.sign() * usual, error).nan_to_num_(0.0, 0.0, 0.0)


def _moved_in_place(
    call: Operation,
    noise: Callable[[torch.Tensor], torch.Tensor],
    adds: bool,
    offset: torch.Tensor | None,
) -> Any:
    """Move what an operation in place changed in its first argument."""
    before = call.args[0].clone()
    output = call.run()
    if is_wide(output):
        keep = (output == before) & (offset is None)
        if not adds and output.dtype is torch.float64:
            keep |= _held(call, output, offset)
        output.add_(torch.where(keep, 0.0, _step(output, MOVED, noise(output), offset)))
    return output


def added_in_turn(call: Operation) -> torch.Tensor:
    """A sum, a mean or a cumulative sum in float32, one term after the other."""
    value, dims = call.args[0], call.argument("dim")
    dims = call.argument("dims") if dims is None else dims  # torch's primitive ones
    dims = [dims] if isinstance(dims, int) else dims or range(value.dim())
    along = sorted(dim % value.dim() for dim in dims)
    others = [dim for dim in range(value.dim()) if dim not in along]
    rows = value.permute(*others, *along).flatten(len(others))
    with np.errstate(over="ignore", invalid="ignore"):  # torch doesn't warn either
        partial = np.cumsum(rows.float().cpu().numpy(), axis=-1, dtype=np.float32)
    sums = torch.from_numpy(partial).to(value)
    if call.name == "cumsum":
        return sums.movedim(-1, along[0])
    total = sums[..., -1] / (rows.shape[-1] if call.name == "mean" else 1)
    for dim in along if call.argument("keepdim") else ():
        total = total.unsqueeze(dim)
    return total


def added_from_the_end(call: Operation) -> torch.Tensor:
    """A running sum of what was flipped, as what the whole is more than the sum up to a term.

    Off by a roundoff of each of both, whatever luck makes of them.
    """
    dim = call.dim or 0
    sums: torch.Tensor = call.run()
    fore: torch.Tensor = call.args[0].double().flip(dim).cumsum(dim).flip(dim)
    return sums.add(ROUNDOFF * (fore.abs() + fore.narrow(dim, 0, 1).abs()).to(sums.dtype))


def multiplies(call: Operation) -> bool:
    """Whether this is a product of matrices of float32 or float64, which changes none."""
    if call.name not in _MATRIX_PRODUCTS or call.in_place:
        return False
    left, _ = _factors(call)
    return is_wide(left) and left.itemsize > 2


def is_multiplied(call: Operation) -> bool:
    """Whether ``multiplied_in_turn`` computes such a product, in a fraction of a second."""
    left, right = _factors(call)
    return 0 < left.numel() * right.shape[-1] <= MOST_PRODUCTS


def _factors(call: Operation) -> tuple[torch.Tensor, torch.Tensor]:
    left, right = call.args[-2:]
    return left, right


def multiplied_in_turn(call: Operation) -> torch.Tensor:
    """A product of matrices in float32, one term after the other.

    With a scale that belongs to one of the matrices, unless float32 holds all sums without: a scale
    that comes after the product may be a part of it, and then float32 holds no term exactly.
    """
    left, right = _factors(call)
    scale = 1.0 if _is_exact(call) else SCALE_OF_PRODUCTS
    left = left * scale
    columns, rows = left.movedim(-1, 0).float(), right.movedim(-2, 0).float()
    total = torch.zeros_like(columns[0].unsqueeze(-1) * rows[0].unsqueeze(-2))
    for column, row in zip(columns.contiguous(), rows.contiguous(), strict=True):
        total += column.unsqueeze(-1) * row.unsqueeze(-2)
    result = total.to(left.dtype) / scale
    if len(call.args) == 2:
        return result
    alpha, beta = call.argument("alpha"), call.argument("beta")
    sums: torch.Tensor = alpha * result + beta * call.args[0]
    return sums


def lost_to_overflow(call: Operation, result: torch.Tensor) -> torch.Tensor:
    """A sum, with NaN where float32 holds no partial sum in some order of the terms.

    ``call`` is a sum as of ``is_added``, or a product of matrices. There the order decides whether
    the sum is a number, an infinity, or the difference of two infinities.
    """
    terms = _terms(call)
    counted = [float(x.abs().max()) if x.numel() else 0.0 for x in call.args if is_wide(x)]
    largest = math.prod(counted[-2:]) * terms
    if not largest + sum(counted[:-2]) > FLOAT32_MAX:  # NaN as well: that stays what it is
        return result
    sizes = replace(call, args=tree_map(lambda x: x.abs() if is_wide(x) else x, call.args))
    all_terms = sizes.plain().double() * (terms if call.name == "mean" else 1)
    overflows = (all_terms > FLOAT32_MAX) & all_terms.isfinite()
    return result.masked_fill(overflows, math.nan)


def is_added(call: Operation) -> bool:
    """Whether ``added_in_turn`` computes this operation."""
    if call.name not in _ADDED or not is_wide(call.args[0]):
        return False
    value: torch.Tensor = call.args[0]
    return value.dim() > 0 and value.numel() > 0


def simpler(call: Operation) -> Callable[..., Any] | None:
    """An operation written in those that kernels have for it; None where it isn't known how."""
    writes = call.in_place or "out" in call.kwargs
    if call.name in _FORMULAS and is_wide(call.args[0]) and not writes:
        return _FORMULAS[call.name]
    reduces = call.argument("reduction") in (1, 2)
    adds = call.name in _SUMS - _ADDED or call.name in _DOTS or reduces
    steps: Callable[..., Any] | None = decomposition_table.get(call.func) if adds else None
    if steps is None or any(is_wide(x) and x.itemsize < 4 for x in call.args):
        return steps
    # What wraps it converts narrower numbers, and imports torch's compiler, which takes seconds.
    unwrapped: Callable[..., Any] = inspect.unwrap(steps)
    return unwrapped


def _variance_and_mean(
    value: torch.Tensor,
    dim: Sequence[int] | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As aten's ``var_mean``; torch's own decomposition has no sum of squares in it."""
    dims = list(dim or range(value.dim()))
    mean = value.mean(dims, keepdim=True)
    squares = (value - mean).square().sum(dims, keepdim=keepdim)
    less = int(unbiased) if correction is None else correction
    freedom = value.numel() / max(mean.numel(), 1) - less
    return squares / max(freedom, 0.0), mean if keepdim else mean.sum(dims)


def _deviation_and_mean(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = _variance_and_mean(*args, **kwargs)
    return variance.sqrt(), mean


def _less_logsumexp(
    value: torch.Tensor, dim: int, half_to_float: bool = False, *_: Any
) -> torch.Tensor:
    """A logarithm of softmax as of kernels that keep that of the sum, all of it in float32.

    Of large numbers the sum's logarithm is lost then, and the weights of equal ones are all 1.
    """
    narrow = value.float()
    top = narrow.amax(dim, keepdim=True)
    logarithm = narrow - ((narrow - top).exp().sum(dim, keepdim=True).log() + top)
    return logarithm if half_to_float else logarithm.to(value.dtype)


def _softmax_of_logsumexp(*args: Any) -> torch.Tensor:
    return _less_logsumexp(*args).exp()


def _tanh_by_sigmoid(value: torch.Tensor) -> torch.Tensor:
    """As Triton's kernels have it, in float32."""
    return (2 * (2 * value.float()).sigmoid() - 1).to(value.dtype)


def _logaddexp_by_smaller(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """As of ring attention, ``one - logsigmoid(one - other)``, with the smaller one, in float32.

    That is off by roundoffs of the smaller one. A mask is lost so, which no kernel may lose.
    """
    both = torch.stack([torch.minimum(one, other), torch.maximum(one, other)])
    least, most = both.float()
    by_smaller = least - torch.nn.functional.logsigmoid(least - most)
    is_usual = (least > LEAST_UNMASKED) & most.isfinite()
    return torch.where(is_usual, by_smaller.to(both.dtype), both.logsumexp(0))


def _elu_by_exp(
    value: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> torch.Tensor:
    """As kernels have it that know no ``expm1``."""
    less_one = alpha * ((value.float() * input_scale).exp() - 1)
    return scale * torch.where(value > 0, value, less_one.to(value.dtype))


def _by_log2(base: float, value: torch.Tensor) -> torch.Tensor:
    """A logarithm as devices have it, which have that to base 2, in float32."""
    of_two = torch.tensor(math.log(2) / math.log(base), dtype=torch.float32, device=value.device)
    return (value.float().log2() * of_two).to(value.dtype)


_FORMULAS: Mapping[str, Callable[..., Any]] = {
    "log": partial(_by_log2, math.e),
    "log10": partial(_by_log2, 10.0),
    "tanh": _tanh_by_sigmoid,
    "elu": _elu_by_exp,
    "logaddexp": _logaddexp_by_smaller,
    "_softmax": _softmax_of_logsumexp,
    "_log_softmax": _less_logsumexp,
    "var_mean": _variance_and_mean,
    "std_mean": _deviation_and_mean,
    "var": lambda *args, **kwargs: _variance_and_mean(*args, **kwargs)[0],
    "std": lambda *args, **kwargs: _deviation_and_mean(*args, **kwargs)[0],
}


def is_quotient(call: Operation) -> bool:
    """Whether this divides numbers that have errors, and rounds no more than that."""
    return call.name == "div" and "rounding_mode" not in call.kwargs and is_wide(call.args[0])


def by_reciprocal(call: Operation) -> Any:
    """A quotient as float32's product with its reciprocal, which is infinite for faint divisors."""
    value, divisor = call.args
    reciprocal = torch.as_tensor(divisor).double().reciprocal().float()
    reciprocal = reciprocal.to(divisor.dtype if is_wide(divisor) else value.dtype)
    product = value * reciprocal
    product = product.float().to(product.dtype)
    return value.copy_(product) if call.in_place else product


def _step(
    value: torch.Tensor,
    roundoffs: float,
    noise: torch.Tensor,
    offset: torch.Tensor | None = None,
) -> torch.Tensor:
    """So many roundoffs of float32, or a step of a narrower dtype, times the noise.

    Roundoffs of the value; where it is a sum of ``offset`` and of what is computed from a sum with
    1, those of ``offset`` and of 1. Where that sum is 1 up to its roundoff, no more than all of it.
    """
    narrow = value.dtype.itemsize < 4
    by = torch.finfo(value.dtype).eps if narrow else ROUNDOFF * roundoffs
    if offset is None:
        step = value * by
    else:
        step = value.abs().clamp_min(offset.abs()) * by + (value - offset).abs().clamp_max(by)
    step *= noise
    tiny = (value.abs() < UNDERFLOW) & (value != 0)
    if not narrow and bool(tiny.any()):
        step += torch.where(tiny, value.sign() * UNDERFLOW, 0.0) * noise.abs()
    return step.nan_to_num_(0.0, 0.0, 0.0)


def _held(
    call: Operation, output: torch.Tensor, offset: torch.Tensor | None = None
) -> torch.Tensor:
    """Which elements of a result float32 computes without rounding, or the dtype that it has.

    What a sum with 1 adds to ``offset`` is rounded there, if it is less than 1.
    """
    if call.name in _RECIPROCALS:
        return torch.zeros_like(output, dtype=torch.bool)
    if output.dtype is torch.float64:
        held = output.float().double() == output
    else:
        args = tree_map(lambda x: x.double() if is_wide(x) else x, call.args)
        held = call.func(*args, **call.kwargs) == output.double()
    if call.name in _PLAIN and not (call.in_place or call.kwargs):
        held &= (_is_exact_product if call.name == "mul" else _is_exact_sum)(call, output)
    if call.name in _QUOTIENT_OPERATIONS:
        held &= _is_exact_quotient(call, output) if call.name == "div" else _is_power_of_two(output)
    if call.name in _WITH_IDENTITY and not (call.in_place or call.kwargs):
        neutral, operands = _WITH_IDENTITY[call.name]
        for other in operands:
            held |= torch.as_tensor(call.args[other], device=output.device) == neutral
    if offset is not None:
        added = (output - offset).abs()
        held &= (added == 0) | (added >= 1)
    return held


def _is_exact_sum(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """Where not even float64 rounds: 2 is the sum of 2 and a tiny number, but not its exact sum."""
    one, other = (torch.as_tensor(x, dtype=torch.float64, device=output.device) for x in call.args)
    one, other = {"sub": (one, -other), "rsub": (other, -one)}.get(call.name, (one, other))
    total = output.double()
    return (total - one == other) & (total - other == one)


def _is_exact_product(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """Where the factors have so few bits that float32 holds any such product, or one has one bit.

    Others are held by chance: in another formula for the same, they are not.
    """
    one, other = (torch.as_tensor(x, dtype=torch.float64, device=output.device) for x in call.args)
    exact = _has_bits(one, 1) | _has_bits(other, 1)
    for few, more in FEW_BITS:
        exact |= _has_bits(one, few) & _has_bits(other, more)
        exact |= _has_bits(one, more) & _has_bits(other, few)
    return exact


def _has_bits(value: torch.Tensor, count: int) -> torch.Tensor:
    """Where a float64 number has so many significant bits at most; its first one isn't stored."""
    return value.view(torch.int64) & ((1 << (53 - count)) - 1) == 0


def _is_exact_quotient(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """Where the divisor is a power of two; or the quotient by a constant, if a product has it too.

    That with the reciprocal: 448 * 2**k / 448 is a power of two in any way to divide, and 41 / 41
    is not.
    """
    value, divisor = call.args[:2]
    exact: torch.Tensor = _is_power_of_two(divisor)
    if isinstance(divisor, torch.Tensor) or call.in_place:
        return exact
    reciprocal = torch.tensor(divisor, dtype=torch.float64, device=output.device).reciprocal()
    same: torch.Tensor = value.float() * reciprocal.float() == output.float()
    return exact | (_is_power_of_two(output) & same)


def _is_power_of_two(value: Any) -> torch.Tensor:
    mantissa: torch.Tensor = torch.as_tensor(value).double().frexp().mantissa
    return mantissa.abs() == 0.5


def _terms(call: Operation) -> int:
    """How many terms a result is the sum of."""
    tensors = [x for x in call.args if isinstance(x, torch.Tensor)]
    if call.name in _PRODUCTS:
        return int(tensors[-1].shape[0 if tensors[-1].dim() == 1 else -2])
    first, dims = tensors[0], call.argument("dim")
    if dims in (None, []):
        return first.numel()
    dims = [dims] if isinstance(dims, int) else dims
    return math.prod(first.shape[dim] for dim in dims) if first.dim() else 1


def _has_few_values(call: Operation) -> bool:
    """Whether most terms have an equal."""
    some = next(filter(is_wide, call.args)).flatten()[:TERMS_LOOKED_AT]
    return len(torch.unique(some)) <= FEW_TERMS


def _is_exact(call: Operation) -> bool:
    """Whether all partial sums fit into float32 in any order: they are on one grid."""
    if call.name not in _PRODUCTS | {"sum", "cumsum"}:
        return False
    terms = [x for x in call.args if is_wide(x)]
    some = [x.flatten()[:TERMS_LOOKED_AT] for x in terms]
    return _fits(call, some) and _fits(call, terms)  # nearly always, some say that they don't


def _fits(call: Operation, terms: Sequence[torch.Tensor]) -> bool:
    """Whether partial sums of these elements, as many as the operation has, fit into float32."""
    grids = [_grid(x) for x in terms]
    most = [float(x.abs().max()) if x.numel() else 0.0 for x in terms]
    if call.name not in _PRODUCTS:
        return bool(most[0] * call.args[0].numel() < grids[0] / ROUNDOFF)
    largest, grid = most[-1] * most[-2] * _terms(call), grids[-1] * grids[-2]
    if len(terms) > 2:  # what is added to the product
        largest, grid = largest + most[0], min(grid, grids[0])
    return bool(largest < grid / ROUNDOFF)


def _grid(value: torch.Tensor) -> float:
    """The largest power of two that all numbers are multiples of; 0 where one is not finite."""
    mantissa, exponent = value.double().frexp()
    if not bool(mantissa.isfinite().all()):
        return 0.0
    whole = (mantissa * 2.0**53).long()
    steps = torch.ldexp((whole & -whole).double(), exponent.double() - 53)[whole != 0]
    return float(steps.min()) if steps.numel() else math.inf


# ---- decisions ----


@dataclass(frozen=True)
class Together:
    """Neighbours in an ``order`` along ``dim``; ``equal`` says which are equal to the next."""

    order: torch.Tensor
    equal: torch.Tensor
    dim: int

    def joined(self, value: torch.Tensor) -> torch.Tensor:
        """The values of another run, in which what is equal is what the first of it is."""
        ordered = value.gather(self.dim, self.order)
        place = torch.ones_like(self.order).cumsum(self.dim) - 1
        begins = torch.ones_like(self.order, dtype=torch.bool)
        begins.narrow(self.dim, 1, self.equal.shape[self.dim]).copy_(~self.equal)
        first = torch.where(begins, place, 0).cummax(self.dim).values
        return value.scatter(self.dim, self.order, ordered.gather(self.dim, first))

    def opened(self, order: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """Which neighbours of those that are ``near`` may change places.

        None may where a group of them has none but equal ones. In rows of another order all may.
        """
        another = (order != self.order).any(self.dim, keepdim=True)
        start = torch.zeros_like(order.narrow(self.dim, 0, 1))
        group = torch.cat([start, (~near).cumsum(self.dim)], self.dim)
        group = group.narrow(self.dim, 0, near.shape[self.dim])  # of the first of two
        apart = torch.zeros_like(order).scatter_add(self.dim, group, (near & ~self.equal).long())
        return near & ((apart.gather(self.dim, group) > 0) | another)


class Decider:
    """A decision on a number, such as ``round``, a conversion to float8, or ``bucketize``.

    `decided` says what to remember of a result, and `pinned` makes the result of that again.
    `leaning` makes the result for an input that is moved by up to ``reach``, down (``way`` -1) or
    up (1), while all other decisions go the way ``others``. If that result is an order in which
    several elements may be in one place, ``ties`` has these. ``together`` has those that are equal
    however they are rounded, which a stable order keeps in theirs. ``others`` is the number where
    what may be masked is, and where as much as usual is. ``of_each`` says whether each
    element is decided on by itself, as none of an order is.
    """

    of_each = True
    ties: Ties | None = None
    together: Together | None = None
    others: tuple[torch.Tensor, torch.Tensor] | None = None

    def __init__(self, call: Operation) -> None:
        self.call = call
        self._at = _DECIDED.get(call.name, 0)

    def operand(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The number that is decided on, and what its error is relative to."""
        value = self.call.args[self._at]
        return value, value.abs()

    def decided(self, result: Any) -> torch.Tensor:
        """What to remember of a result."""
        chosen: torch.Tensor = result
        return chosen

    def undetermined(self) -> torch.Tensor:
        """Where not even exact numbers decide."""
        return torch.zeros_like(self.operand()[0], dtype=torch.bool)

    def equal(self, before: Together | None = None) -> Together | None:
        """What a stable order has to keep; of what was together ``before``, what still is."""
        return None

    def pinned(self, decided: torch.Tensor) -> Any:
        """The result if that is what is decided."""
        call = self.call
        if call.in_place:
            return call.args[0].copy_(decided)
        return decided.to(call.args[0].dtype if decided.dtype in WIDE else decided.dtype, copy=True)

    def leaning(self, reach: torch.Tensor, way: int, others: int = 1) -> Any:
        """The result for inputs that are moved. Infinities and NaN stay what they are."""
        args, at = list(self.call.args), self._at
        shifted = (args[at].double() + reach * way).to(args[at].dtype)
        if self.call.in_place and at == 0:
            args[0].copy_(shifted)
        else:
            args[at] = shifted
        return self.call.func(*args, **self.call.kwargs)


class _Comparison(Decider):
    """Decides on the difference of both sides."""

    def operand(self) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = (torch.as_tensor(x).double() for x in self.call.args[:2])
        return left - right, left.abs() + right.abs()

    def leaning(self, reach: torch.Tensor, way: int, others: int = 1) -> Any:
        difference, size = self.operand()
        leaning = difference + reach * way
        # A number that can only underflow becomes 0, and none that has the other sign.
        only_underflows = (difference.abs() == size) & (reach < FAINT_REACH)
        leaning = leaning.where(~only_underflows | (leaning.sign() == difference.sign()), 0.0)
        leant = getattr(torch, self.call.name)(leaning, 0.0)
        return torch.where(difference.isfinite(), leant, self.call.run())


class _Bucket(Decider):
    """Decides on how far it is to the nearest of some boundaries, which may have errors as well."""

    def operand(self) -> tuple[torch.Tensor, torch.Tensor]:
        value, boundaries = self.call.args[self._at].double(), self._boundaries()
        if boundaries.shape[-1] == 0:
            return torch.full_like(value, math.inf), value.abs()
        after = torch.searchsorted(boundaries, value.contiguous())
        beside = [(after + step).clamp(0, boundaries.shape[-1] - 1) for step in (-1, 0)]
        along = boundaries.dim() > 1
        two = [boundaries.gather(-1, at) if along else boundaries[at] for at in beside]
        distances = [(value - each).abs() for each in two]
        return torch.minimum(*distances), value.abs() + torch.maximum(*(x.abs() for x in two))

    def _boundaries(self) -> torch.Tensor:
        boundaries: torch.Tensor = self.call.args[1 - self._at].double()
        sorter = self.call.argument("sorter")
        return boundaries if sorter is None else boundaries.gather(-1, sorter)


class _Division(Decider):
    """Decides on the quotient."""

    def operand(self) -> tuple[torch.Tensor, torch.Tensor]:
        quotient = self.call.args[0].double() / self.call.args[1]
        return quotient, quotient.abs()

    def leaning(self, reach: torch.Tensor, way: int, others: int = 1) -> Any:
        return super().leaning(reach * abs(self.call.args[1]), way)


class _Extreme(Decider):
    """Decides on a place: the first or the last one of what may be the extreme."""

    of_each = False

    def decided(self, result: Any) -> torch.Tensor:
        chosen: torch.Tensor = result if isinstance(result, torch.Tensor) else result[1]
        return chosen

    def pinned(self, decided: torch.Tensor) -> Any:
        call = self.call
        if call.name.startswith("arg"):
            return decided.clone()
        keepdim = call.name in ("topk", "sort") or call.argument("keepdim")
        index = decided if keepdim else decided.unsqueeze(call.dim or 0)
        values = call.args[0].gather(call.dim, index).view(decided.shape)
        return getattr(torch.return_types, call.name)((values, decided.clone()))

    def leaning(self, reach: torch.Tensor, way: int, others: int = 1) -> Any:
        call, chosen = self.call, self.decided(self.call.run())
        value, dim = call.args[0].double(), call.dim
        reach = reach.expand(value.shape)
        index = chosen if call.argument("keepdim") else chosen.unsqueeze(dim or 0)
        if dim is None:
            value, reach, dim, index = value.flatten(), reach.flatten(), 0, chosen.view(1)
        distance = (value.gather(dim, index) - value).abs()
        near = distance < reach + reach.gather(dim, index)
        near = near.scatter(dim, index, True).to(torch.uint8)
        if way < 0:
            place = near.argmax(dim, keepdim=True)
        else:
            place = value.shape[dim] - 1 - near.flip(dim).argmax(dim, keepdim=True)
        return self.pinned(place.view(chosen.shape))


class _Order(_Extreme):
    """Decides on an order: that of what may be equal is as it is, or the other way round.

    Where the other decisions lean down as well, each of these is the first of them, or the last:
    any of them may be in each place, so that no order has them all. What is equal has no order of
    its own, unless the operation is said to be stable.
    """

    def undetermined(self) -> torch.Tensor:
        call, dim = self.call, self.call.dim
        value: torch.Tensor = call.args[0]
        tied = torch.zeros_like(value, dtype=torch.bool)
        if is_stable(call) or dim is None or value.dim() == 0 or value.shape[dim] == 0:
            return tied
        ordered, order = value.sort(dim=dim)
        same = ordered.narrow(dim, 1, value.shape[dim] - 1) == ordered.narrow(
            dim, 0, value.shape[dim] - 1
        )
        end = torch.zeros_like(tied.narrow(dim, 0, 1))
        beside = torch.cat([end, same], dim) | torch.cat([same, end], dim)
        return tied.scatter(dim, order, beside)

    def equal(self, before: Together | None = None) -> Together | None:
        call, dim = self.call, self.call.dim
        if not is_stable(call) or dim is None or call.args[0].dim() == 0 or not len(call.args[0]):
            return None
        value = call.args[0].double()
        order = self._ordered(value)[1] if before is None else before.order
        value, beside = value.gather(dim, order), value.shape[dim] - 1
        equal = value.narrow(dim, 1, beside) == value.narrow(dim, 0, beside)
        return Together(order, equal if before is None else equal & before.equal, dim)

    def _ordered(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        call = self.call
        falling = bool(call.argument("largest" if call.name == "topk" else "descending"))
        values, order = value.sort(dim=call.dim or 0, descending=falling, stable=True)
        return values, order

    def leaning(self, reach: torch.Tensor, way: int, others: int = 1) -> Any:
        call, dim = self.call, self.call.dim
        value = call.args[0].double()
        if way == others == 1 or dim is None or value.dim() == 0 or value.numel() == 0:
            return call.run()
        ordered, order = self._ordered(value)
        all_reach, size = reach.expand(value.shape), value.shape[dim]
        reach = all_reach.gather(dim, order)
        left, right = ordered.narrow(dim, 0, size - 1), ordered.narrow(dim, 1, size - 1)
        near = (right - left).abs() <= (
            reach.narrow(dim, 0, size - 1) + reach.narrow(dim, 1, size - 1)
        )
        if not is_stable(call):
            near |= left == right  # infinities, whose difference is no number
        elif self.together is not None:
            near = self.together.opened(order, near)
        group = torch.cat([torch.zeros_like(order.narrow(dim, 0, 1)), (~near).cumsum(dim)], dim)
        if others < 0:
            places = group.narrow(dim, 0, call.args[1]) if call.name == "topk" else group
            self.ties = self._ranked(call.args[0].double(), places.shape[dim], way, all_reach)
            self.ties = self.ties or Ties(order, group, places, dim, way)
            return self.pinned(self.ties.ends())
        place = torch.arange(size, device=value.device).view(-1, *[1] * (value.dim() - 1 - dim))
        order = order.gather(dim, (group * size - place).argsort(dim))
        return self.pinned(order.narrow(dim, 0, call.args[1]) if call.name == "topk" else order)

    def _ranked(
        self, value: torch.Tensor, count: int, way: int, reach: torch.Tensor
    ) -> Ranks | None:
        """Which elements may be at the first places, where some may be masked; None if none are."""
        call, dim = self.call, self.call.dim or 0
        if self.others is None or torch.equal(self.others[0], value) or is_stable(call):
            return None
        least, usual = self.others
        falling = bool(call.argument("largest" if call.name == "topk" else "descending"))
        ends = (least, value) if falling else (-least, -value)
        there, usually = (each.isfinite().sum(dim, keepdim=True) for each in (value, usual))
        ranks = Ranks.of(ends, reach, there - usually, dim=dim, count=count)
        return ranks and replace(ranks, way=way)


def treats_alike(call: Operation) -> bool:
    """Whether equal elements have equal results; of a softmax, those in equal rows."""
    return call.name in (_ELEMENTWISE - _SCANS) | _SOFTMAX


def decider(call: Operation) -> Decider | None:
    """How an operation decides, or None: that it doesn't, or on no number with an error."""
    kind = _kind(call)
    at = _DECIDED.get(call.name, 0)
    operands = call.args[:2] if kind is _Comparison else call.args[at : at + 1]
    open_to_all = kind is _Order and not is_stable(call)  # integers as well
    return kind(call) if kind and (open_to_all or any(map(is_wide, operands))) else None


def is_stable(call: Operation) -> bool:
    """Whether an order is said to keep that of what is equal."""
    return bool(call.argument("stable"))


def _kind(call: Operation) -> type[Decider] | None:
    name = call.name
    if name in COMPARISONS:
        return None if call.in_place else _Comparison
    if name in _BUCKETS:
        return _Bucket
    if name in _DIVISIONS or (name == "div" and call.kwargs.get("rounding_mode")):
        return _Division
    if name in ("argmin", "argmax") or (name in ("min", "max") and call.dim is not None):
        return _Extreme
    if name in ("topk", "sort"):
        return _Order
    stays = {"_to_copy": call.kwargs.get("dtype"), "copy": getattr(call.args[0], "dtype", None)}
    return (
        Decider if name in _DECIDED and stays.get(name, torch.bool) not in WIDE | {None} else None
    )
