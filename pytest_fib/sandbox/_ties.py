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
        looked_at, members = (
            torch.zeros_like(self.group).scatter_add(self.dim, each, torch.ones_like(each))
            for each in (self.places, self.group)
        )
        left = (looked_at < members).gather(self.dim, self.group)
        either = torch.minimum if self.way < 0 else torch.maximum
        new = torch.where(left, either(put_there, held), put_there)
        may_change = (looked_at > 0).gather(self.dim, self.group)
        return into.scatter(self.dim, self.values, torch.where(may_change, new, held))

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
