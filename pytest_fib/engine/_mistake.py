"""Outputs that are wrong, seen through samples small enough to look at from every side."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_fib.data import Definition

#: Elements that are looked at, of those that are wrong and of all.
SAMPLE = 1 << 14
#: Above this many wrong elements they are found by trying, since a list of all would be large.
LISTED = 1 << 20
#: Rows, and elements of each, that are looked at as rows.
ROWS, ROW_ELEMENTS = 64, 2048


@dataclass(frozen=True)
class WrongOutput:
    """One output: what was written, what is expected, and how far apart these may be.

    ``dims`` names the axis of every dimension. ``wrong`` (bool) marks the elements beyond
    ``bound``, which broadcasts to the output's shape; where none is marked, the output as a whole
    is wrong and so all are looked at. Float4 outputs come unpacked.
    """

    name: str
    dims: tuple[str, ...]
    got: torch.Tensor
    expected: torch.Tensor
    wrong: torch.Tensor
    bound: torch.Tensor | float


@dataclass(frozen=True)
class Mistake:
    """All that explaining a failure needs. Only ``outputs`` is required.

    ``axes`` are the sizes of all axes; ``poisons`` what outputs were filled with before calls, two
    bytes each; ``previous`` what earlier calls should have written; ``right`` what is expected of
    the outputs that are not wrong. ``supposed`` are outputs by what one has to suppose to get them;
    they are made as they are asked for.
    """

    outputs: tuple[WrongOutput, ...]
    axes: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, torch.Tensor | float] = field(default_factory=dict)
    poisons: tuple[int, ...] = ()
    previous: Mapping[str, torch.Tensor] = field(default_factory=dict)
    right: Mapping[str, torch.Tensor] = field(default_factory=dict)
    supposed: Iterable[tuple[str, Mapping[str, torch.Tensor]]] = ()

    @classmethod
    def of(
        cls,
        definition: Definition,
        axes: Mapping[str, int],
        *,
        got: Mapping[str, torch.Tensor],
        expected: Mapping[str, torch.Tensor],
        wrong: Mapping[str, torch.Tensor],
        bound: Mapping[str, torch.Tensor | float],
        inputs: Mapping[str, torch.Tensor | float] | None = None,
        poisons: Sequence[int] = (),
        previous: Mapping[str, torch.Tensor] | None = None,
    ) -> Mistake:
        """The mistake in outputs of a definition; ``axes`` are the workload's.

        Outputs that are right can be left out of ``wrong``.
        """
        outputs = tuple(
            WrongOutput(
                name,
                definition.outputs[name].shape or (),
                got[name],
                expected[name],
                wrong[name],
                bound[name],
            )
            for name in definition.outputs
            if name in wrong
        )
        return cls(
            outputs,
            definition.axis_values(axes),
            inputs or {},
            tuple(poisons),
            previous or {},
        )


class Seen:
    """One output of a mistake, with what several detectors need. Everything is float64, flat."""

    def __init__(self, output: WrongOutput, mistake: Mistake) -> None:
        self.output = output
        self.mistake = mistake
        self.name = output.name
        self.shape = tuple(output.got.shape)
        self.total = output.got.numel()
        marked = int(output.wrong.sum())
        #: Whether elements are wrong by themselves, or only all together.
        self.together = marked == 0
        self.count = marked or self.total

    @property
    def width(self) -> int:
        """Elements of a row, which is what the last dimension holds."""
        return self.shape[-1] if self.shape else 1

    @property
    def height(self) -> int:
        """Rows."""
        return self.total // max(self.width, 1)

    def axis(self, dim: int) -> str:
        """The name of a dimension's axis."""
        return self.output.dims[dim] if len(self.output.dims) == len(self.shape) else f"dim {dim}"

    @cached_property
    def at(self) -> torch.Tensor:
        """Flat indices of wrong elements, ascending; all of them, or a sample."""
        if self.together:
            return self.anywhere
        flat = self.output.wrong.reshape(-1)
        if self.count <= LISTED:
            found = flat.nonzero()[:, 0]
            return found[evenly(len(found), SAMPLE, found.device)]
        tried = _scattered(self.total, SAMPLE * self.total // self.count, flat.device)
        return tried[flat[tried]]

    @cached_property
    def anywhere(self) -> torch.Tensor:
        """Flat indices of any elements, ascending."""
        return _scattered(self.total, SAMPLE, self.output.got.device)

    @cached_property
    def got(self) -> torch.Tensor:
        """What was written, at ``at``."""
        return self.got_at(self.at)

    @cached_property
    def expected(self) -> torch.Tensor:
        """What is expected, at ``at``."""
        return self.expected_at(self.at)

    @cached_property
    def bound(self) -> torch.Tensor:
        """How far apart these may be."""
        return self.bound_at(self.at)

    @cached_property
    def finite(self) -> torch.Tensor:
        """Where both sides are numbers."""
        return self.got.isfinite() & self.expected.isfinite()

    def got_at(self, index: torch.Tensor) -> torch.Tensor:
        """What was written at these flat indices."""
        return take(self.output.got, index)

    def expected_at(self, index: torch.Tensor) -> torch.Tensor:
        """What is expected there."""
        return take(self.output.expected, index)

    def bound_at(self, index: torch.Tensor) -> torch.Tensor:
        """How far apart these may be: 0 where they must be equal."""
        bound = self.output.bound
        if not isinstance(bound, torch.Tensor):
            return torch.full(index.shape, float(bound), dtype=torch.float64, device=index.device)
        where = torch.unravel_index(index, self.shape) if self.shape else ()
        return bound.to(index.device).expand(self.shape)[where].double().expand(index.shape)

    def holds(self, values: torch.Tensor, keep: torch.Tensor | None = None) -> float:
        """The share of wrong elements that hold ``values`` within twice their bound."""
        close = ((self.got - values).abs() <= 2 * self.bound) | (self.got == values)
        return share(close if keep is None else close[keep])

    def differs(self, values: torch.Tensor, keep: torch.Tensor | None = None) -> float:
        """The share of wrong elements of which ``values`` are not what is expected anyway."""
        apart = ((values - self.expected).abs() > 2 * self.bound) & (values != self.expected)
        return share(apart if keep is None else apart[keep])

    def other(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """An input's values at ``at``; one of fewer dimensions is broadcast over the first ones."""
        shape = tuple(tensor.shape)
        if not shape or shape != self.shape[len(self.shape) - len(shape) :]:
            return None
        return take(tensor, (self.at % tensor.numel()).to(tensor.device)).to(self.at.device)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The inputs that have elements."""
        inputs = self.mistake.inputs
        return {n: x for n, x in inputs.items() if isinstance(x, torch.Tensor) and x.numel()}

    @cached_property
    def rows(self) -> torch.Tensor:
        """Flat indices [rows, elements] of some rows, those with wrong elements, evenly spread."""
        chosen = distinct(self.at // max(self.width, 1))
        return self.matrix(chosen, torch.arange(self.width, device=chosen.device))

    @cached_property
    def columns(self) -> torch.Tensor:
        """Flat indices [columns, elements] of some columns with wrong elements."""
        chosen = distinct(self.at % max(self.width, 1))
        return self.matrix(torch.arange(self.height, device=chosen.device), chosen, True)

    def matrix(
        self, rows: torch.Tensor, columns: torch.Tensor, upright: bool = False
    ) -> torch.Tensor:
        """Flat indices of a grid; thinned out where it would be large."""
        most = (ROW_ELEMENTS, ROWS) if upright else (ROWS, ROW_ELEMENTS)
        rows = rows[evenly(len(rows), most[0], rows.device)]
        columns = columns[evenly(len(columns), most[1], columns.device)]
        grid = rows[:, None] * self.width + columns
        return grid.T if upright else grid


def take(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Elements at flat indices of any shape, in float64."""
    flat = tensor.reshape(-1)
    if flat.element_size() == 1 and flat.is_floating_point():  # these can't be indexed everywhere
        return flat.view(torch.uint8)[index].view(flat.dtype).double()
    return flat[index].double()


def share(found: torch.Tensor) -> float:
    """The share of true elements; 0 of none."""
    return float(found.double().mean()) if found.numel() else 0.0


def strides(shape: Sequence[int]) -> list[int]:
    """Elements from one index of each dimension to the next."""
    return [prod(shape[dim + 1 :]) for dim in range(len(shape))]


def evenly(length: int, most: int, device: torch.device) -> torch.Tensor:
    """Up to ``most`` indices below ``length``, evenly spread."""
    count = min(length, most)
    return (torch.arange(count, device=device) * length) // max(count, 1)


def _scattered(total: int, most: int, device: torch.device) -> torch.Tensor:
    """Up to ``most`` indices below ``total``, ascending: all, or always the same ones at random."""
    if total <= most:
        return torch.arange(total, device=device)
    generator = torch.Generator().manual_seed(0)
    return distinct(torch.randint(total, (most,), generator=generator).to(device))


def distinct(numbers: torch.Tensor) -> torch.Tensor:
    """The different ones among these, ascending."""
    ordered = numbers.flatten().sort().values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]
