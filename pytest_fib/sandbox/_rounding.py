"""Varies a run of a reference as float32 arithmetic may: its errors, and its decisions.

A *decision* is where numbers become something discrete: a conversion to float8 or to integers,
``round``, a comparison, the place of a maximum. The number that is decided on has an error, which
is small against the step from one result to the next, but near a boundary either result is honest.

Errors are measured as Monte Carlo arithmetic does it (Parker, Monte Carlo Arithmetic, 1997): the
result of each operation that float32 can't hold is moved at random by some of its roundoffs, and
logarithms of sums of exponentials by those of the sums. What float32 holds is exact, and stays. So
a number that was computed has an error, and an input has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from pytest_fib.sandbox._deciders import COMPARISONS, Decider, Together, decider, treats_alike
from pytest_fib.sandbox._exactness import rounding_step
from pytest_fib.sandbox._foreign_errors import one_line, out_of_memory
from pytest_fib.sandbox._formulas import (
    added_from_the_end,
    added_in_turn,
    by_reciprocal,
    is_added,
    is_multiplied,
    is_quotient,
    multiplied_in_turn,
    multiplies,
    simpler,
)
from pytest_fib.sandbox._moved import SHORT_ROW, Computed, lost_to_overflow, moved_result
from pytest_fib.sandbox._operations import (
    BELIEVED,
    SHOWING_ALL,
    SHOWING_SOME,
    UNDERFLOW,
    UNIQUE,
    ExponentialAgain,
    Operation,
    SoftmaxOfLogSum,
    is_exponential,
    is_softmax,
    is_wide,
    log_sum_of_softmax,
    scale_of,
)
from pytest_fib.sandbox._recurrences import Recurrences
from pytest_fib.sandbox._ties import ANY, CERTAIN, Reshaped, Ties

#: How much of the reason why there is no float64 reference, in characters.
REASON_LIMIT = 200
#: Why a run can't be compared with the first.
ANOTHER_WAY = "it does not always make the same decisions"
#: Operations that put numbers at places, or add them there.
_SCATTERS = ("scatter", "scatter_add")
#: The largest weight, but for rounding.
MOST_WEIGHT = 1 + 2.0**-20
#: How far a logarithm that is kept is moved, in roundoffs: an implementation rounds it once.
KEPT_MOVED = 2.0
#: How far equal results are moved that stay in their order, as a share of what others are.
LITTLE = 2.0**-10
#: Multiples of it are spread between integers.
GOLDEN = 0.6180339887498949
#: What bits are multiplied by that are mixed; and how many different numbers are noise.
MIXING = 0x2545F4914F6CDD1D
NOISES = 1 << 24


class OracleUnavailable(Exception):
    """The reference can't be computed so; the message says why, in one line."""


class VariationError(Exception):
    """What varies a run of the reference failed, and not the reference: our own fault."""


def raise_if_ours(error: Exception, what: Any, plainly: Callable[[], Any]) -> None:
    """Raise VariationError where the operation ``what`` works ``plainly``, as nobody varies it.

    An error of its own is the reference's doing, which may go other ways than it was written for.
    """
    if isinstance(error, OracleUnavailable | VariationError) or out_of_memory(error):
        return
    try:
        plainly()
    except Exception:  # noqa: BLE001  (torch and a reference's own types may raise anything)
        return
    raise VariationError(f"{what}: {one_line(error, REASON_LIMIT)}") from error


@dataclass
class Decision:
    """One decision of a run.

    - ``name``: the operation that decides; ``value``, its input; ``result``, what was decided.
    - ``size``: what an error of the input is relative to.
    - ``off``: the elements of the input that differ in another run, and those that tie, where not
      even exact numbers decide. All others are exact.
    - ``error``: how far elements that are off may be off.
    - ``together``: of a stable order, what is equal however it is rounded.
    - ``alike``: the elements of a comparison that are.
    """

    name: str
    value: torch.Tensor
    size: torch.Tensor
    result: torch.Tensor
    error: torch.Tensor
    off: torch.Tensor
    together: Together | None = None
    alike: torch.Tensor | None = None

    @property
    def is_open(self) -> bool:
        """Whether its input has an error."""
        return bool(self.off.any())

    @property
    def reach(self) -> torch.Tensor:
        """How far off elements may be."""
        return torch.where(self.off, self.error, 0.0)

    @property
    def may_have_equals(self) -> bool:
        """Whether it may be about numbers that are equal however they are rounded."""
        return self.is_open and (self.together is not None or self.name in COMPARISONS)

    def is_of(self, decision: Decider) -> bool:
        """Whether a decision of another run is this one."""
        return (decision.call.name, decision.operand()[0].shape) == (self.name, self.value.shape)

    def expect(self, decision: Decider) -> None:
        """Raise OracleUnavailable unless a decision of another run is this one."""
        if not self.is_of(decision):
            raise OracleUnavailable(ANOTHER_WAY)

    def note(self, value: torch.Tensor) -> None:
        """Take in the input as another run has it.

        Luck may make an element nearly right, so its neighbours in the row count: by their largest
        error or, if that is less, by the largest relative to the size.
        """
        error = (value.double() - self.value).abs_().nan_to_num_(0.0, 0.0, 0.0)
        # What is lost below ``UNDERFLOW`` is in no proportion to a number.
        relative = (error - UNDERFLOW).clamp_min_(0.0).div_(self.size).nan_to_num_(0.0)
        most, most_relative = _largest_of_row(error), _largest_of_row(relative)
        reach = torch.minimum(most, self.size * most_relative) + UNDERFLOW
        self.off |= error > 0
        self.error = torch.maximum(self.error, BELIEVED * reach)

    def note_equal(self, decision: Decider) -> None:
        """Take in what is equal in a run that moves equal numbers alike.

        A comparison of two numbers that are equal in all such runs has one result. Both have moved:
        0 has not, and may be a difference of products, which other ways to multiply and add don't
        make 0.
        """
        self.together = decision.equal(self.together)
        if self.name in COMPARISONS:
            value, size = decision.operand()
            is_alike = (self.value == 0) & (value == 0) & (size != self.size)
            self.alike = (self.off if self.alike is None else self.alike) & is_alike

    def leave_equal(self) -> None:
        """Take what is equal however it is rounded for exact."""
        if self.alike is not None:
            self.off &= ~self.alike


def _largest_of_row(values: torch.Tensor) -> torch.Tensor:
    if values.numel() == 0:
        return values
    if values.dim() and values.shape[-1] >= SHORT_ROW:
        return values.amax(-1, keepdim=True)
    return values.max()


@dataclass
class Weights:
    """What a softmax of a run gave, or an exponential, which may be part of one.

    - ``name``, ``shape``: of the operation, and of what it is of.
    - ``log_sum``, ``top``: of a softmax, the logarithms of its rows' sums, and its rows' largest
      numbers.
    - ``most``: of an exponential, the largest.
    - ``uses``: how many operations compute something from the weights.
    """

    name: str
    shape: torch.Size
    log_sum: torch.Tensor | None = None
    top: torch.Tensor | None = None
    most: float = 0.0
    uses: int = 0

    @classmethod
    def of(cls, call: Operation, result: Any) -> Weights | None:
        """Those of an operation; None of others."""
        if is_softmax(call):
            top = call.args[0].double().amax(call.dim or 0, keepdim=True)
            return cls(call.name, call.args[0].shape, log_sum_of_softmax(call), top)
        if is_exponential(call):
            return cls(call.name, call.args[0].shape, most=float(result.max()))
        return None

    def again(self, call: Operation, noise: Callable[[torch.Tensor], torch.Tensor]) -> Operation:
        """The operation of another run, if these may be computed a second time for several uses.

        Backward passes use weights for several gradients. A forward pass uses a softmax once, and
        an exponential twice: for what is weighted, and for the sum.
        """
        if self.log_sum is not None and self.top is not None:
            if self.uses <= 1:
                return call
            # The largest number is added to the logarithm of a sum, which is lost at the most.
            added = (self.log_sum - self.top).nan_to_num_(0.0)
            step = rounding_step(self.log_sum, KEPT_MOVED, noise(self.log_sum))
            return SoftmaxOfLogSum.of(call, self.log_sum + step.clamp(-added, added))
        are_weights = self.most <= MOST_WEIGHT and self.uses > 2
        return ExponentialAgain(call.func, call.args, call.kwargs) if are_weights else call


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the decisions of a run and its weights, in their order, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decisions: list[Decision] = []
        self.weights: list[Weights] = []
        self._weights_in: MutableMapping[torch.Tensor, Weights] = WeakIdKeyDictionary()
        #: The logits of sums' logarithms, and of each softmax.
        self._log_sums_of: MutableMapping[torch.Tensor, int] = WeakIdKeyDictionary()
        self._softmax_of: MutableMapping[torch.Tensor, Weights] = WeakIdKeyDictionary()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The base class imports all of dynamo for this, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # A function mode of the reference's run is about dtypes that it asks for.
        with torch._C.DisableTorchFunction():
            call = Operation(func, args, kwargs or {})
            try:
                decision = decider(call)
                return self.compute(call) if decision is None else self.decide(decision)
            except Exception as error:
                raise_if_ours(error, func, partial(func, *args, **call.kwargs))
                raise

    def compute(self, call: Operation) -> Any:
        """The result of an operation that decides nothing."""
        result = call.run()
        if self._weights_in:
            self._note_uses(call, result)
        if (weights := Weights.of(call, result)) is not None:
            self.weights.append(weights)
            self._weights_in[result] = weights
            if is_softmax(call):
                self._softmax_of[call.args[0]] = weights
                weights.uses += self._log_sums_of.get(call.args[0], 0)
        elif call.name == "logsumexp":
            self._note_log_sum(call.args[0])
        return result

    def _note_log_sum(self, logits: torch.Tensor) -> None:
        """Note that kernels have the sum's logarithm too, by which they may merge parts."""
        if (weights := self._softmax_of.get(logits)) is not None:
            weights.uses += 1
        else:
            self._log_sums_of[logits] = 1

    def _note_uses(self, call: Operation, result: Any) -> None:
        """Note what is computed from weights; what shows some of them is not."""
        tensors = (x for x in tree_leaves((call.args, call.kwargs)) if isinstance(x, torch.Tensor))
        for weights in filter(None, map(self._weights_in.get, tensors)):
            if call.name in SHOWING_ALL and isinstance(result, torch.Tensor):
                self._weights_in[result] = weights
            else:
                weights.uses += call.name not in SHOWING_SOME

    def decide(self, decision: Decider) -> Any:
        """The result of one that does."""
        value, size = (each.double().clone() for each in decision.operand())
        result = decision.call.run()
        decided = decision.decided(result).clone()
        size.nan_to_num_(0.0, 0.0, 0.0)
        error, off = torch.zeros_like(value), decision.undetermined()
        name, together = decision.call.name, decision.equal()
        self.decisions.append(Decision(name, value, size, decided, error, off, together))
        return result


class Deciding(Recording):  # type: ignore[no-untyped-call]
    """Keeps what is decided on elements one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.decided: list[torch.Tensor] = []

    def compute(self, call: Operation) -> Any:
        """The result as it is."""
        return call.plain()

    def decide(self, decision: Decider) -> Any:
        """The operation's own decision."""
        result = decision.call.run()
        if decision.of_each:
            self.decided.append(decision.decided(result).clone())
        return result

    def agrees(self, other: Deciding) -> bool:
        """Whether another run decided the same."""
        if len(self.decided) != len(other.decided):
            return False
        pairs = zip(self.decided, other.decided, strict=True)
        return all(torch.equal(one.double(), two.double()) for one, two in pairs)


class DecidingOnMoved(Deciding):  # type: ignore[no-untyped-call]
    """The same of inputs that were moved, by which equal numbers differ.

    Raises OracleUnavailable where it is asked which numbers are equal.
    """

    def compute(self, call: Operation) -> Any:
        """The result as it is."""
        if call.name in UNIQUE and is_wide(call.args[0]):
            raise OracleUnavailable("equal numbers are told apart")
        return super().compute(call)


class Replaying(Recording):  # type: ignore[no-untyped-call]
    """A run that knows the decisions of the first."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        super().__init__()
        self._left = iter(decisions)

    def first(self) -> Decision:
        """The first run's decision here. Raises OracleUnavailable if it had fewer."""
        first = next(self._left, None)
        if first is None:
            raise OracleUnavailable(ANOTHER_WAY)
        return first


class Sampling(Replaying):  # type: ignore[no-untyped-call]
    """Notes how far the inputs of decisions are off in this run, which decides as the first did.

    With a ``seed``, results are moved at random; without, the run is what it is.
    """

    def __init__(self, decisions: Sequence[Decision], seed: int | None) -> None:
        super().__init__(decisions)
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._computed = Computed(Recurrences(grid=1 + GOLDEN * (seed or 0) % 1))

    def decide(self, decision: Decider) -> Any:
        """The first run's decision."""
        first = self.first()
        first.expect(decision)
        first.note(decision.operand()[0])
        return decision.pinned(first.result)

    def compute(self, call: Operation) -> Any:
        """The result, moved where float32 can't hold it."""
        return call.run() if self._seed is None else moved_result(call, self._noise, self._computed)

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        """A random sign times a number between 1/2 and 1; the other sign for the negated seed."""
        seed = self._seed or 0
        generator = self._generators.get(like.device)
        if generator is None:
            generator = torch.Generator(like.device).manual_seed(abs(seed))
            self._generators[like.device] = generator
        noise = torch.empty(like.shape, dtype=torch.float32, device=like.device)
        noise.uniform_(-1.0, 1.0, generator=generator)
        noise.add_(noise.sign()).mul_(0.5 if seed > 0 else -0.5)
        return noise.to(like.dtype)


class MovingAlike(Sampling):  # type: ignore[no-untyped-call]
    """Notes what stays equal where equal results of each element are moved alike.

    An implementation computes what it computes of equal numbers alike, and of equal rows each
    softmax, in which larger numbers have larger shares, even if rounding makes these equal. Sums it
    may not; the same numbers in another order have another sum.
    """

    def decide(self, decision: Decider) -> Any:
        """The first run's decision."""
        first = self.first()
        first.expect(decision)
        first.note_equal(decision)
        return decision.pinned(first.result)

    def compute(self, call: Operation) -> Any:
        """The result, moved by what it is, or if it is a sum, at random."""
        noise = self._noise_of_value if treats_alike(call) else self._noise
        if is_softmax(call):
            noise = partial(_noise_of_shares, of=call.args[0], dim=call.dim or 0)
        return moved_result(call, noise, self._computed)

    def _noise_of_value(self, like: torch.Tensor) -> torch.Tensor:
        """What follows from the bits of elements; of a negated seed the other way, and very little.

        So numbers that differ by less than they are moved are in their own order once.
        """
        noise = _noise_of_value(like)
        return noise if (self._seed or 0) > 0 else noise * -LITTLE


def _noise_of_value(like: torch.Tensor, of: torch.Tensor | int = 0) -> torch.Tensor:
    """Numbers between -1 and 1 that follow from the bits of elements, and from integers ``of``."""
    mixed = _mixed_bits(like) ^ of
    return (mixed % NOISES).to(like.dtype).div_(NOISES / 2).sub_(1.0)


def _noise_of_shares(like: torch.Tensor, of: torch.Tensor, dim: int) -> torch.Tensor:
    """Numbers from 1/3 to 1 that follow from the rows of a softmax.

    Those of shares rise with the numbers that they are ``of``; those of these are one for each row,
    which leaves their order as it is.
    """
    if not of.dim():
        return torch.ones_like(like)
    noise = (1 + (_mixed_rows(of, dim) % NOISES).to(like.dtype).div_(NOISES)) / 3
    if like is of:
        return noise.expand_as(of)
    rows = of.movedim(dim, -1).contiguous()
    rank = torch.searchsorted(rows.sort(-1).values, rows).movedim(-1, dim)
    return noise + rank / (3 * of.shape[dim])


def _mixed_bits(value: torch.Tensor) -> torch.Tensor:
    """An integer for each element that follows from its bits, and looks random."""
    bits = value.double().contiguous().view(torch.int64)
    mixed = (bits ^ (bits >> 29)) * MIXING
    return mixed ^ (mixed >> 31)


def _mixed_rows(value: torch.Tensor, dim: int) -> torch.Tensor:
    """An integer for each row along ``dim`` that follows from its elements and their order."""
    if not value.dim():
        return _mixed_bits(value)
    along = [-1 if i == dim else 1 for i in range(value.dim())]
    places = torch.arange(1, 2 * value.shape[dim], 2, device=value.device).view(along)
    return (_mixed_bits(value) * places).sum(dim, keepdim=True)


class Keeping(Replaying):  # type: ignore[no-untyped-call]
    """A run on other inputs, in which what was decided on elements without errors stays.

    So no input is moved across a number that it is compared with. What is computed may be. Where
    the run goes another way than the first, it goes on by itself.
    """

    def compute(self, call: Operation) -> Any:
        """The result as it is."""
        return call.plain()

    def decide(self, decision: Decider) -> Any:
        """The first run's decision on what has no error, and this run's on all else."""
        first = next(self._left, None)
        if first is None or not first.is_of(decision):
            self._left = iter(())
            return decision.call.run()
        call = decision.call
        if first.together is not None:  # which is in the order that a stable one has to keep
            call = replace(call, args=(first.together.joined(call.args[0]), *call.args[1:]))
        result = call.run()
        if not decision.of_each:
            return result
        kept = torch.where(self.goes_on(first, decision), decision.decided(result), first.result)
        return decision.pinned(kept)

    def goes_on(self, first: Decision, decision: Decider) -> torch.Tensor:
        """The elements on which this run decides by itself."""
        return first.off


class Moving(Keeping, Sampling):  # type: ignore[no-untyped-call]
    """Moves results at random, and lets decisions follow where they have errors.

    Where several operations use its weights, a softmax has the first run's sum, rounded, as in a
    backward pass that keeps no weights. What it is of may have been moved above that, and it may
    overflow.
    """

    def __init__(self, first: Recording, seed: int) -> None:
        super().__init__(first.decisions, seed)
        self._computed.seed_of_numbers = seed
        self._first = iter(first.weights)

    def compute(self, call: Operation) -> Any:
        """The result, moved where float32 can't hold it."""
        return Sampling.compute(self, self._of_first_weights(call))

    def goes_on(self, first: Decision, decision: Decider) -> torch.Tensor:
        """Also those that have no errors, and that another decision has changed."""
        changed = decision.operand()[0].double() != first.value
        return first.off | (changed if first.alike is None else changed & ~first.alike)

    def _of_first_weights(self, call: Operation) -> Operation:
        if not (is_softmax(call) or is_exponential(call)):
            return call
        first = next(self._first, None)
        if first is None or (first.name, first.shape) != (call.name, call.args[0].shape):
            self._first = iter(())  # where it went another way
            return call
        return first.again(call, self._noise)


class Naive(Recording):  # type: ignore[no-untyped-call]
    """Adds terms one after the other in float32, and multiplies by its reciprocals to divide.

    Running sums from the end are off as differences of others from the beginning are; softmax
    subtracts the logarithm of its sum, logaddexp is computed from the smaller number, and tanh and
    elu subtract 1. Sums whose terms overflow in some order are NaN.
    """

    def __init__(self, *, marks_overflow: bool = True) -> None:
        super().__init__()
        self._flipped: MutableMapping[torch.Tensor, Any] = WeakIdKeyDictionary()
        self._marks_overflow, self.has_marked = marks_overflow, False
        self._scale = 1.0  # the least factor of a tensor until now

    def compute(self, call: Operation) -> Any:
        """Sums are added in turn, also those of products, and quotients multiply by reciprocals."""
        if (sums := self._sums(call)) is not None:
            marks = self._marks_overflow
            marked = lost_to_overflow(call, sums, self._scale) if marks else sums
            self.has_marked |= marked is not sums
            return marked
        self._scale = min(self._scale, scale_of(call))
        if call.name == "flip":
            result, axes = call.run(), call.args[0].dim()
            self._flipped[result] = [dim % axes for dim in call.args[1]] if axes else ()
            return result
        if is_quotient(call):
            return by_reciprocal(call)
        if (steps := simpler(call)) is not None:
            with self:
                return steps(*call.args, **call.kwargs)
        return call.run()

    def _sums(self, call: Operation) -> torch.Tensor | None:
        """What an operation adds up; None of those that aren't known to add."""
        if is_added(call):
            from_the_end = call.name == "cumsum" and call.dim in self._flipped.get(call.args[0], ())
            return added_from_the_end(call) if from_the_end else added_in_turn(call)
        if not multiplies(call):
            return None
        return multiplied_in_turn(call) if is_multiplied(call) else call.run()

    def decide(self, decision: Decider) -> Any:
        """The operation's own decision."""
        return decision.call.run()


class Leaning(Replaying):  # type: ignore[no-untyped-call]
    """Decides as if inputs were as low as their errors may make them (-1), or as high (1).

    The first of the ``ways`` is for the first decision that may fall either way, such as that on a
    scale, the second for all others; a single one is for all. Where elements tie in an order, the
    integers that it picks and the places where floating numbers are put by them are followed.

    Masks of what ties are made by one order; with a single way, by what is certain to be chosen.
    Then ``operands`` has what decisions were on. With these as ``least``, masks are of all that
    any order may choose, of which each element may be missing.

    With ``counts``, what ties is counted as often as any order has it at least, or at most.
    ``has_counted`` says whether anything was: such counts are no sizes, as their sum is another.
    """

    def __init__(
        self,
        decisions: Sequence[Decision],
        ways: tuple[int, ...],
        least: Sequence[torch.Tensor] | None = None,
        *,
        counts: bool = True,
    ) -> None:
        super().__init__(decisions)
        self.has_masks, self.operands = False, list[torch.Tensor]()
        self._tied: list[tuple[torch.Tensor, Ties]] = []
        self._reshaped: list[Reshaped] = []
        self._counts, self.has_counted = counts, False
        self._least = iter(least or ())
        both = (ways[0], -1) if len(ways) == 1 else ways
        self._ways, self._next_ways = both, both if len(ways) == 1 else ways[::-1]
        self._masks = ways[-1] if len(ways) > 1 else CERTAIN if least is None else ANY

    def decide(self, decision: Decider) -> Any:
        """The decision on the moved input."""
        first, value = self.first(), decision.operand()[0].double()
        least = next(self._least, None)
        decision.others = None if least is None else (least, first.value)
        self.operands.append(value)
        if not first.is_open:
            return decision.call.run()
        first.expect(decision)
        ways, self._ways = self._ways, self._next_ways
        decision.together = first.together
        reach, unseen = first.reach, value.isfinite() & ~first.value.isfinite()
        if bool(unseen.any()):  # masked in the first run
            reach = torch.where(unseen, reach.amax(-1, keepdim=True), reach)
        result = decision.leaning(reach, *ways)
        if decision.ties is not None:
            self._tied.append((decision.decided(result), decision.ties))
        return result

    def compute(self, call: Operation) -> Any:
        """The result; of integers that are tied, the least or the most that each may be."""
        if call.name in _SCATTERS and (placed := self._placed(call)) is not None:
            return call.args[0].copy_(placed) if call.in_place else placed
        for each in self._reshaped if self._counts else ():
            if (counted := each.counted(call.name, call.argument)) is not None:
                self.has_counted = True
                return call.args[0].copy_(counted) if call.in_place else counted
        function = partial(call.func, **call.kwargs)
        for value in () if call.in_place else tree_leaves(call.args):
            known = next((ties for tied, ties in self._tied if tied is value), None)
            ties = known and known.after(call.name, function, call.args)
            if ties is not None:
                self._tied.append((ties.ends(), ties))
                return self._tied[-1][0]
        result = call.run()
        self._follow_reshaped(call, result)
        return result

    def _follow_reshaped(self, call: Operation, result: Any) -> None:
        """Note what has all integers that are tied, in another shape."""
        first = call.args[0] if call.args else None
        if not isinstance(result, torch.Tensor):
            return
        known = [ties.reshaped(call.name, result) for tied, ties in self._tied if tied is first]
        known += [each.after(call.name, result) for each in self._reshaped if each.is_in(first)]
        self._reshaped += filter(None, known)

    def _placed(self, call: Operation) -> torch.Tensor | None:
        """What a scatter by integers that are tied makes of its first argument.

        A mask is that of an order: the ends of ties may be fewer elements than are selected.
        """
        into, dim, index, source, *rest = call.args
        known = next((ties for tied, ties in self._tied if tied is index), None)
        if known is None or rest or call.kwargs:
            return None
        if into.dtype is torch.bool:
            if not isinstance(source, bool) or dim % max(into.dim(), 1) != known.dim:
                return None
            masked = known.masked(into, source, self._masks)
            self.has_masks |= masked is not None
            return masked
        return known.scattered(into, dim, source, call.name == "scatter_add")
