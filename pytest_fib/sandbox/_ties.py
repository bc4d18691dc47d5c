"""Which integers an honest order may give where it may have any of several in a place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: What gives some of the elements, each as it is; and what computes each element from one number.
_SELECTED = frozenset({"slice", "narrow", "clone", "alias", "detach"})
_COMPUTED = frozenset({"add", "sub", "mul", "floor_divide", "remainder", "fmod", "div", "_to_copy"})
#: What gives all elements in another shape or order.
_RESHAPED = frozenset({"view", "_unsafe_view", "reshape", "t", "transpose", "permute", "clone"})
#: What adds to the places that indices are, and by which names it has the indices and the numbers.
_COUNTING = {
    "index_add": ("index", "source"),
    "scatter_add": ("index", "src"),
    "bincount": ("self", "weights"),
}


#: What of a group that ties is in a mask: all of it, or only what every honest order chooses.
ANY, CERTAIN = 0, 2
#: How many elements are compared with places at most.
LARGEST = 1 << 26


@dataclass(frozen=True)
class Ties:
    """Integers in an order that has ties: ``values`` of one ``group`` may come in any sequence.

    The order is along ``dim``. ``places`` has the group of each element that is of interest. Such
    an element counts as the least of its group (``way`` -1), or as the greatest (1).
    """

    values: torch.Tensor
    group: torch.Tensor
    places: torch.Tensor
    dim: int
    way: int

    def ends(self) -> torch.Tensor:
        """The elements of interest: the least or the greatest of their groups."""
        reduce = "amin" if self.way < 0 else "amax"
        table = self.values.scatter_reduce(
            self.dim, self.group, self.values, reduce, include_self=False
        )
        return table.gather(self.dim, self.places)

    def after(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Ties | None:
        """The ties in what an operation makes of these; None where it isn't followed."""
        first, *others = args
        if name == "gather":
            return self._gathered(*args)
        if name == "index":
            plain = first.dim() == self.values.dim() == len(others[0]) == 1
            return self._gathered(first, 0, None) if plain else None
        if any(isinstance(each, torch.Tensor) and each.dim() for each in others):
            return None
        if name in _SELECTED:
            return replace(self, places=function(self.places, *others))
        return self._holding(function(self.values, *others)) if name in _COMPUTED else None

    def scattered(
        self, into: torch.Tensor, dim: int, source: torch.Tensor | float, adds: bool
    ) -> torch.Tensor | None:
        """The result of a scatter by the elements: the least or the most that each place may hold.

        Of a group that isn't looked at whole, any place may be left as it is. None where places are
        along another dimension, or hold no floating numbers.
        """
        if dim % max(into.dim(), 1) != self.dim or not into.is_floating_point():
            return None
        reduce, beyond = ("amin", float("inf")) if self.way < 0 else ("amax", -float("inf"))
        if isinstance(source, torch.Tensor) and source.dim():
            source = source[tuple(slice(n) for n in self.places.shape)]
        put = torch.zeros_like(self.places, dtype=into.dtype) + source
        ends = into.new_full(self.values.shape, beyond)
        ends = ends.scatter_reduce(self.dim, self.places, put, reduce).gather(self.dim, self.group)
        held = into.gather(self.dim, self.values)
        put_there = held + ends if adds else ends
        looked_at, members = self._sizes()
        left = (looked_at < members).gather(self.dim, self.group)
        either = torch.minimum if self.way < 0 else torch.maximum
        new = torch.where(left, either(put_there, held), put_there)
        may_change = (looked_at > 0).gather(self.dim, self.group)
        return into.scatter(self.dim, self.values, torch.where(may_change, new, held))

    def reshaped(self, name: str, result: torch.Tensor) -> Reshaped | None:
        """What an operation makes of all elements, if it is known how often each may be there."""
        others = [
            [n for dim, n in enumerate(each.shape) if dim != self.dim]
            for each in (self.places, self.group)
        ]
        if name not in _RESHAPED or others[0] != others[1]:
            return None
        if result.numel() != self.places.numel() or result.is_floating_point():
            return None
        looked_at, members = self._sizes()
        is_there = looked_at >= members if self.way < 0 else looked_at > 0
        there = self.values[is_there.gather(self.dim, self.group)]
        return Reshaped(result, there, result._version)

    def _sizes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """How many elements of each group are looked at, and how many it has."""
        looked_at, members = (
            torch.zeros_like(self.group).scatter_add(self.dim, each, torch.ones_like(each))
            for each in (self.places, self.group)
        )
        return looked_at, members

    def masked(self, into: torch.Tensor, value: bool, way: int) -> torch.Tensor | None:
        """A mask with a value where the first elements of an honest order say.

        That order has groups as they are (-1) or turned round (1). With ``ANY``, all of a group
        count of which any may be chosen, with ``CERTAIN``, none unless all are. None where other
        elements are of interest.
        """
        if self.places.dim() != self.group.dim():
            return None
        count, size = self.places.shape[self.dim], self.group.shape[self.dim]
        firsts = self.group.narrow(self.dim, 0, count)
        if not count or firsts.shape != self.places.shape or not torch.equal(firsts, self.places):
            return None
        place = torch.arange(size, device=self.group.device)
        place = place.view(-1, *[1] * (self.group.dim() - 1 - self.dim))
        last = firsts.narrow(self.dim, count - 1, 1)
        any_chosen = self.group <= last
        if way == ANY:
            chosen = any_chosen
        elif way == CERTAIN:
            all_are = any_chosen.sum(self.dim, keepdim=True) == count
            chosen = (self.group < last) | (any_chosen & all_are)
        else:
            chosen = (place < count).expand(self.group.shape)
        order = (self.group * size - (way if way in (-1, 1) else 0) * place).argsort(self.dim)
        at = self.values.gather(self.dim, order)
        return into.scatter(self.dim, at, torch.where(chosen, value, into.gather(self.dim, at)))

    def _gathered(self, source: torch.Tensor, dim: int, _index: Any) -> Ties | None:
        """The elements of a source at these places."""
        if dim % source.dim() != self.dim or self.values is source:
            return None
        return self._holding(source.gather(self.dim, self.values))

    def _holding(self, values: torch.Tensor) -> Ties | None:
        """Other values; numbers that have errors are alike where what orders them is."""
        if values.is_floating_point() or values.dtype is torch.bool:
            return None
        return replace(self, values=values)


@dataclass(frozen=True)
class Reshaped:
    """The integers of ``Ties`` in another shape, of which only how often each is there is followed.

    ``tensor`` has them as long as it has that ``version``; ``there``, each as often as it is there
    at least, or at most.
    """

    tensor: torch.Tensor
    there: torch.Tensor
    version: int

    def is_in(self, value: Any) -> bool:
        """Whether a tensor has them, and was not changed since."""
        return value is self.tensor and self.tensor._version == self.version

    def after(self, name: str, result: torch.Tensor) -> Reshaped | None:
        """The same in another shape or dtype; None where it isn't that."""
        keeps = name in _RESHAPED or name == "_to_copy"
        if not keeps or result.is_floating_point() or result.numel() != self.tensor.numel():
            return None
        return replace(self, tensor=result, version=result._version)

    def counted(self, name: str, argument: Callable[[str], Any]) -> torch.Tensor | None:
        """The result of an operation that counts them; None where that isn't known.

        ``argument`` gives the operation's arguments by name.
        """
        if name not in _COUNTING or self.tensor.dim() != 1:
            return None
        index, numbers = map(argument, _COUNTING[name])
        if not self.is_in(index) or not len(index):
            return None
        there = self.there.long()
        if name == "bincount":
            size = max(argument("minlength"), int(index.max()) + 1)
            counts = there.bincount(minlength=size)
            return counts if numbers is None and len(counts) == size else None
        into, numbers = argument("self"), numbers.reshape(-1)
        if into.dim() != 1 or into.is_floating_point() or into.dtype is torch.bool:
            return None
        fits = bool((there < len(into)).all())
        if not fits or not bool((numbers == numbers[:1]).all()):
            return None
        alpha = argument("alpha")
        each = (numbers[:1] * (1 if alpha is None else alpha)).to(into.dtype)
        counted: torch.Tensor = into.index_add(0, there, each.expand(len(there)))
        return counted


@dataclass(frozen=True)
class Ranks(Ties):
    """Integers of which each may be at some of an order's places, as others may be missing.

    ``group`` has the first place that each may have, ``last_place`` the last one; ``places`` are
    those of interest.
    """

    last_place: torch.Tensor

    @classmethod
    def of(
        cls,
        ends: tuple[torch.Tensor, torch.Tensor],
        reach: torch.Tensor,
        missing: torch.Tensor,
        *,
        dim: int,
        count: int,
    ) -> Ranks | None:
        """The first ``count`` indices of an order, the largest number first, as the least of each.

        ``ends`` are the numbers where as few, and as many, are there as may be; ``missing``, how
        many of these honest orders leave out of a row. Each number may be off by ``reach``. None
        for too many elements.
        """
        if reach.numel() * count > LARGEST:
            return None
        lows, highs, reaches, missing = (each.movedim(dim, -1) for each in (*ends, reach, missing))
        size = highs.shape[-1]
        above, below = (highs + reaches).contiguous(), (highs - reaches).contiguous()
        surely, mostly = (
            size - torch.searchsorted(least.sort(-1).values, above, right=True)
            for least in (lows - reaches, below)
        )
        first = torch.maximum(surely, mostly - missing)
        last = size - 1 - torch.searchsorted(above.sort(-1).values, below)
        index = torch.arange(size, device=reach.device).expand(highs.shape)
        place = torch.arange(count, device=reach.device).expand(*highs.shape[:-1], count)
        values, group, places, last = (
            each.movedim(-1, dim) for each in (index, first, place, last)
        )
        return cls(values, group, places, dim, -1, last)

    def ends(self) -> torch.Tensor:
        """The least or the greatest that may be at each place of interest."""
        values, first, last, places = (
            each.movedim(self.dim, -1)
            for each in (self.values, self.group, self.last_place, self.places)
        )
        place = places[..., None, :]
        may_be = (first[..., None] <= place) & (place <= last[..., None])
        info = torch.iinfo(values.dtype)
        beyond, pick = (info.max, torch.amin) if self.way < 0 else (info.min, torch.amax)
        ends: torch.Tensor = pick(torch.where(may_be, values[..., None], beyond), -2)
        return ends.movedim(-1, self.dim)

    def masked(self, into: torch.Tensor, value: bool, way: int) -> None:
        """Not followed."""

    def reshaped(self, name: str, result: torch.Tensor) -> None:
        """Not followed."""

    def scattered(
        self, into: torch.Tensor, dim: int, source: torch.Tensor | float, adds: bool
    ) -> None:
        """Not followed."""
