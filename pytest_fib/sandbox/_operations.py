"""ATen's operations: calls of them, and what sorts there are."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.utils.weak import WeakIdKeyDictionary

T = TypeVar("T")
#: Numbers that have errors. Narrower ones are results of decisions.
WIDE = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16))
#: Unit roundoff of float32, and the size below which its numbers have an error of one size.
ROUNDOFF, UNDERFLOW = 2.0**-24, 2.0**-126
FLOAT32_MAX = torch.finfo(torch.float32).max


def words(text: str) -> frozenset[str]:
    """Names of operations, which blanks are between."""
    return frozenset(text.split())


#: What tells which numbers are equal.
UNIQUE = words("_unique _unique2 unique_consecutive unique_dim unique_dim_consecutive")
#: Operations on each element, products of matrices, and others that add many terms.
ELEMENTWISE = words("""
    add sub rsub mul div pow exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan
    tanh sigmoid silu gelu softplus erf erfc elu mish sinh cosh atan2 hypot xlogy logaddexp
    logaddexp2 addcmul addcdiv lerp square prod cumprod log_sigmoid_forward
""")
SCANS, SOFTMAX = words("prod cumprod"), words("_softmax _log_softmax")
PRODUCTS = words("mm bmm addmm baddbmm addmv mv dot vdot")
SUMS = words("""
    sum nansum mean cumsum logsumexp logcumsumexp var std var_mean std_mean norm linalg_vector_norm
    _softmax _log_softmax native_layer_norm native_group_norm _fused_rms_norm convolution index_add
    scatter_add scatter_reduce index_reduce segment_reduce
""")
#: What adds, multiplies or selects, as an argument says; the ways that select.
_REDUCING = words("scatter_reduce index_reduce segment_reduce")
_SELECTING = words("amax amin max min")
#: What underflows to zeros that were ranked before; below that, float64 results are graded.
_EXPONENTIALS, _FAINT = words("exp exp2 sigmoid _softmax"), 1e-290
#: What was off may be this many times as far off as it was seen to be. That is before what is
#: computed of it, which need not be in proportion.
BELIEVED = 2.0
#: The logarithm of 2**256: far beyond float32's numbers, with float64's room for its products.
OVERFLOWING = 256 * math.log(2)
#: What gives all elements of a tensor as they are, or but for a mask; and what gives some of them.
SHOWING_ALL = words("""
    view _unsafe_view reshape t transpose permute expand unsqueeze squeeze clone detach alias
    _to_copy nan_to_num masked_fill where
""")
SHOWING_SOME = words("slice select index narrow split unbind index_select gather")
SHOWING = SHOWING_ALL | SHOWING_SOME
#: Operations that may scale a tensor by a number. Attention scales by no less, up to 256 numbers a
#: head; what is multiplied by less is changed by a rate of learning, say.
SCALINGS, LEAST_SCALE = words("mul div true_divide"), 1 / 16
#: What ``log1p`` is part of a logarithm of a sum of.
POWERS = words("exp exp2")


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
        """``add``, of all its overloads and in place as well.

        What only selects is ``scatter_reduce amin``: unlike a sum, it has no errors of its own.
        """
        name: str = self.func.overloadpacket.__name__.removesuffix("_")
        if name in _REDUCING and (how := self.argument("reduce")) in _SELECTING:
            return f"{name} {how}"
        return name

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

    These keep the logarithm of the sum of exponentials of each row, which has an error of its own.
    So a row's weights are 1 together but for that: ``shift`` is how much less the logarithm is than
    that of this run. Of large numbers, two computations differ by so much that an exponential
    overflows: ``excess`` is by how much the numbers of this run are more than that logarithm.
    """

    excess: torch.Tensor
    shift: torch.Tensor

    @classmethod
    def of(cls, call: Operation, log_sum: torch.Tensor) -> SoftmaxOfLogSum:
        """The call of a run, with the logarithms of sums of another."""
        shift = log_sum_of_softmax(call) - log_sum
        excess = (BELIEVED * (call.args[0].double() - log_sum)).clamp_max(OVERFLOWING)
        excess = torch.where(log_sum.isfinite(), excess, -math.inf)
        shift = torch.where(shift.isfinite(), shift, 0.0)
        return cls(call.func, call.args, call.kwargs, excess, shift)

    def plain(self) -> Any:
        """The result; of what is more than the sum is, that of as much as it may be."""
        result = super().plain()
        is_logarithm = self.name == "_log_softmax"
        logarithm = (result if is_logarithm else result.log()) + self.shift
        logarithm = torch.where(self.excess > 0, self.excess, logarithm.clamp_max(OVERFLOWING))
        return (logarithm if is_logarithm else logarithm.exp()).to(result.dtype)


@dataclass(frozen=True)
class ExponentialAgain(Operation):
    """An exponential of what was not above 0 in another run, and is by its errors alone."""

    def plain(self) -> Any:
        """The result; of what is above 0, that of as much as it may be, and no infinity."""
        value = self.args[0]
        most = OVERFLOWING / (math.log(2) if self.name == "exp2" else 1.0)
        excess = (BELIEVED * value).clamp_max(most)
        return self.func(torch.where(value > 0, excess, value), **self.kwargs)


def scale_of(call: Operation) -> float:
    """The factor below 1 that a tensor is multiplied by; 1 of anything else.

    Of those that are scales, as of attention and averages, and no settings, as a learning rate.
    """
    if call.name not in SCALINGS or not is_wide(call.args[0]) or not call.args[0].dim():
        return 1.0
    factor = call.args[1]
    if isinstance(factor, torch.Tensor):
        if factor.dim():
            return 1.0
        factor = factor.item()
    size = abs(factor)
    size = 1 / size if call.name != "mul" and size else size
    return size if LEAST_SCALE <= size < 1 else 1.0


def is_exponential(call: Operation) -> bool:
    """Whether this is an exponential of any numbers in float64, and changes none in place."""
    if call.name not in POWERS or call.in_place:
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
    return call.name in SOFTMAX and call.args[0].numel() > 0


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


class UntilChanged(Generic[T]):
    """What is noted of tensors: None once they were changed in place, and of anything else.

    Tensors made in inference mode don't say whether they were changed, so nothing is noted of them.
    """

    def __init__(self) -> None:
        self._noted: MutableMapping[torch.Tensor, tuple[int, T]] = WeakIdKeyDictionary()

    def note(self, value: torch.Tensor, what: T, *, changes: int = 0) -> None:
        """Note something of a tensor as it is now, but for so many ``changes`` still to be counted.

        An operation in place is counted once it has returned.
        """
        if not value.is_inference():
            self._noted[value] = value._version + changes, what

    def get(self, value: Any) -> T | None:
        """What was noted of a tensor of numbers that have errors."""
        known = self._noted.get(value) if is_wide(value) else None
        return known[1] if known and known[0] == value._version else None
