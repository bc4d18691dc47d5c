"""Compares indices by the values that they point at: any index of equal values is right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from pytest_fib.data import Definition, DefinitionError, format_distinct
from pytest_fib.verdict._bounds import Bound, dtype_bound, overridden


@dataclass(frozen=True)
class PointedAt:
    """The values at both sides' indices; NaN if an index is wrong whatever it points at."""

    got: torch.Tensor
    expected: torch.Tensor
    bound: Bound
    source: str
    repeated: torch.Tensor
    outside: torch.Tensor

    def facts(self, at: int) -> dict[str, Any]:
        """Both values at a flat index, and the reason why it is wrong."""
        got, expected = float(self.got.flatten()[at]), float(self.expected.flatten()[at])
        if bool(self.outside.flatten()[at]):
            reason = f"{self.source} has no such index"
        elif bool(self.repeated.flatten()[at]):
            reason = "the same index twice in a row"
        else:
            one, other = format_distinct(got, expected, 6)
            reason = f"{self.source} has {one} there, not {other}"
        return {"got_value": got, "expected_value": expected, "reason": reason}


def pointed_at(
    definition: Definition,
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    tensors: Mapping[str, torch.Tensor],
    *,
    others: Sequence[torch.Tensor] = (),
) -> PointedAt:
    """The values that an output of indices points at, in the last dimension of its source.

    Negative indices are padding, which must be at the expected places. Leading dimensions of a
    source are those of the indices. ``others`` are indices that honest rounding may lead to: values
    between those are right as well.
    """
    source = source_of(definition, name)
    if source not in tensors:
        raise DefinitionError(f"tolerances.{name}: the values of {source!r} are not known")
    values = tensors[source].double()
    length = values.shape[-1]
    index, right_index = got.long(), expected.long()
    padding = right_index < 0
    outside = (index >= length) | ((index < 0) & ~padding) | (padding & (index != right_index))
    repeated = _repeated(index) & ~padding
    right = torch.where(padding, 0.0, _at(values, right_index))
    pointed = torch.where(padding, 0.0, _at(values, index))
    pointed = torch.where(outside | repeated, math.nan, pointed)
    if others:
        alike = _between(pointed, right, [_at(values, other.long()) for other in others])
        pointed = torch.where(alike & ~padding, right, pointed)
    return PointedAt(pointed, right, _bound(definition, name, source), source, repeated, outside)


def source_of(definition: Definition, name: str) -> str:
    """The tensor that indices point into: the one named, or the only input that fits.

    Raises DefinitionError if none or several fit.
    """
    tolerance = definition.tolerances.get(name)
    if tolerance is not None and tolerance.from_ is not None:
        return tolerance.from_
    leading = (definition.outputs[name].shape or ())[:-1]
    fitting = [
        other
        for other, spec in definition.inputs.items()
        if spec.dtype.is_floating and spec.shape and spec.shape[:-1] == leading
    ]
    if len(fitting) != 1:
        names = " and ".join(fitting) or "no input"
        raise DefinitionError(f"tolerances.{name}: add 'from: <tensor>'; {names} would fit")
    return fitting[0]


def _bound(definition: Definition, name: str, source: str) -> Bound:
    """The bound of a source: an output's values are final, an input's may be computed with."""
    if source in definition.outputs:
        dtype = getattr(torch, definition.outputs[source].dtype.value)
        bound = overridden(dtype_bound(dtype), definition.tolerances.get(source))
    else:
        bound = dtype_bound(torch.float32)
    bound = overridden(bound, definition.tolerances.get(name))
    return replace(bound, rows=None, bias=None)


def _between(
    got: torch.Tensor, expected: torch.Tensor, others: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Where values are between the expected ones and the others'.

    Neighbours in a row with overlapping ranges share them: their order is free.
    """
    sides = torch.stack([expected, *others])
    lowest, highest = sides.amin(0), sides.amax(0)
    if got.dim():
        overlap = torch.maximum(lowest[..., 1:], lowest[..., :-1]) <= torch.minimum(
            highest[..., 1:], highest[..., :-1]
        )
        run = torch.cat([torch.zeros_like(lowest[..., :1]), (~overlap).cumsum(-1)], -1).long()
        lowest, highest = _of_run(run, lowest, "amin"), _of_run(run, highest, "amax")
    return (lowest <= got) & (got <= highest)


def _of_run(run: torch.Tensor, values: torch.Tensor, how: str) -> torch.Tensor:
    """The least or the largest value of each run of neighbours."""
    room = torch.zeros_like(values)
    return room.scatter_reduce(-1, run, values, how, include_self=False).gather(-1, run)


def _at(values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    at = indices.clamp(0, max(values.shape[-1] - 1, 0))
    if values.dim() == 1:
        return values[at]
    return values.gather(-1, at)


def _repeated(indices: torch.Tensor) -> torch.Tensor:
    """Which indices occurred before in their row."""
    if indices.dim() == 0 or indices.shape[-1] < 2:
        return torch.zeros_like(indices, dtype=torch.bool)
    ordered, order = indices.sort(dim=-1, stable=True)
    repeated = torch.zeros_like(indices, dtype=torch.bool)
    repeated[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    return torch.zeros_like(repeated).scatter_(-1, order, repeated)
