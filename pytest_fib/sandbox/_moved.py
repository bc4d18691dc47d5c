"""Results of operations that are moved by a few roundoffs, and sums that are added again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from pytest_fib.sandbox._exactness import (
    ARITHMETIC,
    EQUAL_SHARE,
    FEW_TERMS,
    NEAR_ONE,
    TERMS_LOOKED_AT,
    are_all_equal,
    has_few_values,
    is_exact,
    is_rounded_to_one,
    rounding_step,
    term_count,
    unrounded,
)
from pytest_fib.sandbox._operations import (
    BELIEVED,
    ELEMENTWISE,
    FLOAT32_MAX,
    POWERS,
    PRODUCTS,
    ROUNDOFF,
    SCALINGS,
    SHOWING,
    SUMS,
    Operation,
    UntilChanged,
    is_wide,
    words,
)
from pytest_fib.sandbox._recurrences import Recurrences

#: How far a result is moved, in roundoffs: by 2 to 4 of them, so that several hardly cancel.
MOVED = 4.0


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


#: Rows shorter than that are taken with all others.
SHORT_ROW = 64
#: The share of a term, of all equal ones, that no rounding loses.
LOST_TERM = 1 / 2
#: What changes the shape of a tensor in place, and none of its numbers.
_RESHAPES = words("squeeze unsqueeze t transpose")
#: The sums of a run, and views of them.
Sums = MutableMapping[torch.Tensor, Sum]


@dataclass
class Computed:
    """What a run has computed that counts where it is used.

    - ``equal_terms``: what was made, without rounding, of products of matrices whose terms are all
      equal: by how many roundoffs it is off where an implementation scales the terms.
    - ``exponentials``: results of exponential functions.
    - ``products``: results of multiplications, with both factors.
    - ``seed_of_numbers``: by which Python's numbers are moved; 0 where none is.
    """

    recurrences: Recurrences = field(default_factory=Recurrences)
    sums: Sums = field(default_factory=WeakIdKeyDictionary)
    equal_terms: UntilChanged[float] = field(default_factory=UntilChanged)
    exponentials: UntilChanged[bool] = field(default_factory=UntilChanged)
    products: UntilChanged[Sequence[Any]] = field(default_factory=UntilChanged)
    seed_of_numbers: int = 0

    def is_exponential(self, value: Any) -> bool:
        """Whether a tensor is what an exponential function gave, and was not changed since."""
        return self.exponentials.get(value) is not None

    def factors(self, value: Any) -> Sequence[Any]:
        """What a tensor is the product of, if it is one and was not changed since."""
        return self.products.get(value) or ()

    def exact_sum(self, call: Operation) -> Any:
        """The result of a sum of which float32 holds all partial sums."""
        result = call.run()
        if call.name in PRODUCTS and are_all_equal(call):
            terms = term_count(call)
            self.equal_terms.note(result, min(EQUAL_SHARE * terms, LOST_TERM / (terms * ROUNDOFF)))
        return result

    def off_once_scaled(self, call: Operation) -> float:
        """By how many roundoffs a product is off if it scales a sum of equal terms one by one.

        The sum is of products of ones, say, of which float32 holds each partial sum. Scaled terms
        it rounds, all to the same side, but by less than a term. Plain sums of ones are counts,
        which nobody scales before. 0 of anything else.
        """
        scaled = call.args[: 2 if call.name == "mul" else 1] if call.name in SCALINGS else ()
        return max((self.equal_terms.get(value) or 0.0 for value in scaled), default=0.0)

    def note(self, call: Operation, result: Any) -> None:
        """Take in an operation's result."""
        if not is_wide(result) or call.in_place:
            return
        if call.name in POWERS:
            self.exponentials.note(result, True)
        if call.name == "mul":
            self.products.note(result, call.args[:2])
        if (off := self.off_once_scaled(call)) and torch.equal(result, call.run()):
            self.equal_terms.note(result, off)

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
    adds = call.name in PRODUCTS | SUMS or "_backward" in call.name
    computes = adds or call.name in ELEMENTWISE
    if not computes or not any(map(is_wide, call.args)):  # integers and bools have no errors
        return _viewed(call, computed)
    call = _with_moved_numbers(call, computed.seed_of_numbers)
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
        return result.add_(rounding_step(result, MOVED, noise(result)))
    if adds and is_exact(call):
        return computed.exact_sum(call)
    result = _moved(call, noise, adds, offset, max(MOVED, computed.off_once_scaled(call)))
    if adds and is_wide(result):
        sums[result] = Sum.noted(result, call, lambda: _moved(call, noise, adds, offset))
    return result


def _with_moved_numbers(call: Operation, seed: int) -> Operation:
    """An operation with its Python floats moved where float32, which rounds them, can't hold them.

    Of ``x - (1 - s) - s``, an implementation rounds two numbers of Python. Each is moved the same
    way wherever it is, and for the negated ``seed`` the other way; for 0, none is.
    """
    if not seed or call.name not in ARITHMETIC:
        return call
    return replace(call, args=tuple(_moved_number(value, seed) for value in call.args))


def _moved_number(value: Any, seed: int) -> Any:
    if not isinstance(value, float) or _holds(value):
        return value
    way = Random(f"{abs(seed)} {value.hex()}").choice((-ROUNDOFF, ROUNDOFF))
    return value * (1 + (way if seed > 0 else -way))


def _holds(value: float) -> bool:
    """Whether float32 holds a number without rounding it."""
    return math.isnan(value) or torch.tensor(value, dtype=torch.float32).item() == value


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
    **dict.fromkeys(words("log1p softplus log_sigmoid_forward _log_softmax tanh"), _zero),
    "elu": _positive_part,
    **dict.fromkeys(
        words("logaddexp logaddexp2"), lambda call: torch.maximum(call.args[0], call.args[1])
    ),
    "logsumexp": _largest_along,
    "logcumsumexp": lambda call: call.args[0].cummax(call.args[1]).values,
}


def _moved(
    call: Operation,
    noise: Callable[[torch.Tensor], torch.Tensor],
    adds: bool,
    offset: torch.Tensor | None,
    by: float = MOVED,
) -> Any:
    args, exact = call.args, None
    if adds:
        terms = term_count(call)
        exact = call.run() if terms <= FEW_TERMS else None
        by = max(MOVED, 2 * math.sqrt(terms), EQUAL_SHARE * terms * has_few_values(call))
        args = tree_map(lambda x: x + rounding_step(x, by, noise(x)) if is_wide(x) else x, args)
    result = replace(call, args=tuple(args)).run()
    for place, output in enumerate(_all_of(result)):
        if not is_wide(output):
            continue
        keep = output == 0 if adds else unrounded(call, output, offset)
        step = rounding_step(output, by, noise(output), offset)
        if call.name in NEAR_ONE:  # it comes no nearer
            inwards = -output.sign() * step.abs()
            step = torch.where(is_rounded_to_one(call, output), inwards, step)
        if call.name == "gelu":
            step += _lost_beside_one(call, output) * noise(output)
        if exact is not None:  # no luck makes the errors of one or two terms cancel with the sum's
            step = step.abs().copysign(output - _all_of(exact)[place])
        output.add_(torch.where(keep, 0.0, step))
    return result


def _lost_beside_one(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """What is lost of ``x / 2 * (1 + erf(...))`` where that sum of 1 is near 0, and no more."""
    lost = call.args[0].abs() * (0.5 * MOVED * ROUNDOFF)
    return torch.where(call.args[0] < 0, torch.minimum(lost, output.abs()), 0.0)


def _all_of(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _versions(result: torch.Tensor, call: Operation) -> list[int]:
    return [x._version for x in (result, *call.args) if isinstance(x, torch.Tensor)]


def _scaled_sum(call: Operation, sums: Sums) -> Sum | None:
    """The sum that an operation scales by a number: the result has the roundoffs of a sum."""
    if call.name not in SCALINGS:
        return None
    value, number = call.args[:2]
    is_number = not isinstance(number, torch.Tensor) or not number.dim()
    return _known_sum(value, sums) if is_number else None


def _known_sum(value: Any, sums: Sums) -> Sum | None:
    """The record of a sum that has not changed since."""
    known = sums.get(value) if is_wide(value) else None
    return known if known is not None and _versions(value, known.of) == known.before else None


def _viewed(call: Operation, computed: Computed) -> Any:
    """What an operation returns that computes nothing; what it shows of a sum is one."""
    shown: Any = call.args[0] if call.args else None
    off = computed.equal_terms.get(shown)
    result, sums = call.run(), computed.sums
    if off is not None and is_wide(result) and call.name in SHOWING | _RESHAPES:
        computed.equal_terms.note(result, off, changes=call.in_place)
    known = sums.get(shown) if is_wide(shown) else None
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
    if adds and is_exact(call):
        return call.run()
    before = call.args[0].clone()
    output = call.run()
    if is_wide(output):
        keep = (output == before) & (offset is None)
        if not adds and output.dtype is torch.float64:
            keep |= unrounded(call, output, offset)
        output.add_(torch.where(keep, 0.0, rounding_step(output, MOVED, noise(output), offset)))
    return output


def lost_to_overflow(call: Operation, result: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """A sum, with NaN where float32 holds no partial sum in some order of the terms.

    ``call`` is a sum as of ``is_added``, or a product of matrices. There the order decides whether
    the sum is a number, an infinity, or the difference of two infinities. ``scale``, up to 1, is a
    factor of the terms that may come after the sum.
    """
    terms = term_count(call)
    counted = [float(x.abs().max()) if x.numel() else 0.0 for x in call.args if is_wide(x)]
    largest = math.prod(counted[-2:]) * terms
    most = FLOAT32_MAX * scale
    if not largest + sum(counted[:-2]) > most:  # NaN as well: that stays what it is
        return result
    sizes = replace(call, args=tree_map(lambda x: x.abs() if is_wide(x) else x, call.args))
    all_terms = sizes.plain().double() * (terms if call.name == "mean" else 1)
    overflows = (all_terms > most) & all_terms.isfinite()
    return result.masked_fill(overflows, math.nan)
