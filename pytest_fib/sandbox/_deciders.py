"""Operations that decide: comparisons, rounding to integers, extremes, orders."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from pytest_fib.sandbox._operations import (
    ELEMENTWISE,
    SCANS,
    SOFTMAX,
    UNDERFLOW,
    WIDE,
    Operation,
    is_wide,
    words,
)
from pytest_fib.sandbox._ties import Ranks, Ties

#: An error of what underflows is below that.
FAINT_REACH = 4 * UNDERFLOW
COMPARISONS = words("gt ge lt le eq ne")
_BUCKETS = words("bucketize searchsorted")
_DIVISIONS = words("floor_divide remainder fmod")
#: Decisions on a number, by which argument it is.
_DECIDED = {
    **dict.fromkeys(words("round floor ceil trunc sign sgn frac bucketize _to_copy"), 0),
    **dict.fromkeys(words("searchsorted copy"), 1),
}


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
        value = call.args[0].double()
        if not is_stable(call) or dim is None or value.dim() == 0 or not value.numel():
            return None
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
    return call.name in (ELEMENTWISE - SCANS) | SOFTMAX


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
