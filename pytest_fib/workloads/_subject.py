"""An input in its definition, and what many rules ask about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_fib.data import Definition, DType, TensorSpec
from pytest_fib.workloads._constraints import bounds_of_elements, order_of_rows
from pytest_fib.workloads._descriptions import BITS_OF_SIZES, Bound, Said, more, said
from pytest_fib.workloads._reference_reader import uses_of

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_uses import ReferenceUses


@dataclass(frozen=True)
class Subject:
    """An input of a definition; ``totals`` has the axes that constraints call an indptr's total.

    ``sums`` has those that constraints call the sum of an input; ``bounds``, the expressions of
    axes that constraints say no element of an input is above.

    ``doubts`` gathers what was chosen although something else would do as well.
    """

    name: str
    spec: TensorSpec
    definition: Definition
    totals: Mapping[str, str]
    sums: Mapping[str, str]
    bounds: Mapping[str, Sequence[str]]
    doubts: list[str] = field(default_factory=list, compare=False)

    @cached_property
    def uses(self) -> ReferenceUses:
        """What the reference does with its inputs."""
        return uses_of(self.definition)

    @cached_property
    def said(self) -> Said:
        """What its description says of its numbers, or else constraints on each of them."""
        described = said(self.spec, self.definition)
        dtype = self.spec.dtype
        is_small = dtype is DType.BOOL or (dtype.is_floating and dtype.itemsize_bits <= 8)
        if self.spec.is_scalar or is_small:
            return described
        if (strictly := order_of_rows(self.name, self.definition)) is not None:
            distinct = described.are_distinct or strictly or None
            described = replace(described, is_sorted=True, are_distinct=distinct)
        least, most = bounds_of_elements(self.name, self.definition)
        whole = not dtype.is_floating
        if least is not None and described.least is None and _is_held(least[0], dtype):
            bound, strict = least
            bound = more(bound, 1) if whole and strict else bound
            described = replace(described, least=bound, is_open=strict and not whole)
        if most is not None and described.most is None and _is_held(most[0], dtype):
            bound, strict = most
            bound = more(bound, -1) if whole and strict else bound
            described = replace(described, most=bound, is_below=strict and not whole)
        return described

    @property
    def source(self) -> str:
        """Where what is ``said`` of it comes from, as an explanation says it."""
        return "as its description says" if self.spec.description else "as constraints say"

    def axis(self, *names: str) -> str | None:
        """The first of these axes that the definition has; another of them is a doubt."""
        present = [name for name in names if name in self.definition.axes]
        if len(present) > 1:
            self.doubts.append(f"{present[0]} rather than {' or '.join(present[1:])}")
        return next(iter(present), None)

    def const(self, *names: str) -> int | None:
        """The value of the first of these axes that is const."""
        values = self.definition.const_axes
        return next((values[name] for name in names if name in values), None)

    def input(self, *names: str) -> str | None:
        """The first of these inputs that the definition has."""
        return next((name for name in names if name in self.definition.inputs), None)

    @property
    def may_be_empty(self) -> bool:
        """Whether lengths may be 0: the description says so, or the reference takes that."""
        is_said = self.said.may_be_0 or self.said.least == 0
        return is_said or self.uses.takes_nothing(self.name)

    def dim(self, name: str | None, dim: int) -> str | None:
        """The axis of one dimension of another input."""
        spec = None if name is None else self.definition.inputs.get(name)
        return spec.shape[dim] if spec and spec.shape else None


def _is_held(bound: Bound, dtype: DType) -> bool:
    """Whether a dtype holds a bound; a narrow one may not hold a size."""
    first, last = dtype.ends
    if isinstance(bound, str):
        return dtype.itemsize_bits >= BITS_OF_SIZES
    return first <= bound <= last


def sentinels_of(subject: Subject) -> list[int] | None:
    """The numbers below 0 that the reference compares it with, or that its description names."""
    name, said, least = subject.name, subject.said, subject.spec.dtype.ends[0]
    asked_for = subject.uses.equals.get(name, ())
    pads = [pad] if (pad := subject.uses.pads.get(name)) is not None else []
    found = {*pads, *said.sentinels[:1], *(n for n in asked_for if n < 0)}
    if found == {-1} and -1 not in asked_for and least <= -100 and said.any_negative:
        found = {-100, -1}
    return sorted(n for n in found if least <= n) or None


def decides_a_size(subject: Subject) -> bool:
    """Whether there may be so many of something, as in ``for i in range(steps)``."""
    counted = rf"(range|empty|zeros|ones|full|expand|repeat)\w*\(.*\b{subject.name}\b"
    is_size = subject.name in subject.uses.sliced or subject.name not in subject.uses.seen
    return is_size or re.search(counted, subject.definition.reference) is not None
