"""A rule of the table, and makers of inputs that several rules share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fib.data import DTYPE_CLASSES, InputRule, kinds

if TYPE_CHECKING:
    from pytest_fib.workloads._subject import Subject


@dataclass(frozen=True)
class Rule:
    """``name`` and ``op_type`` are regular expressions for the whole of each.

    ``dtype`` is a class of dtypes; ``scalar``, whether the rule is for Python scalars. ``make``
    gives how the input is made, or None where the definition lacks what the rule needs.
    """

    says: str
    name: str
    make: Callable[[Subject], InputRule | None]
    dtype: str = "any"
    op_type: str = ".*"
    scalar: bool = False

    def applies(self, subject: Subject) -> bool:
        """Whether the rule may speak about this input."""
        return (
            subject.spec.is_scalar == self.scalar
            and subject.spec.dtype in DTYPE_CLASSES[self.dtype]
            and re.fullmatch(self.name, subject.name) is not None
            and re.fullmatch(self.op_type, subject.definition.op_type) is not None
        )


def near(usual: float) -> Callable[[Subject], InputRule]:
    """Between half and twice what is usual: a kernel that takes that for granted is wrong."""
    return lambda subject: kinds.Uniform(min=usual / 2, max=usual * 2)


def normal(std: float) -> Callable[[Subject], InputRule]:
    """Normal values of that standard deviation."""
    return lambda subject: kinds.Normal(std=std)


def of_one(rule: InputRule) -> Callable[[Subject], InputRule | None]:
    """For a tensor of one element alone: what a name says of a setting, others needn't be."""

    def make(subject: Subject) -> InputRule | None:
        sizes = subject.definition.const_axes
        return rule if all(sizes.get(axis) == 1 for axis in subject.spec.shape or ()) else None

    return make


def of_rows(rule: InputRule) -> Callable[[Subject], InputRule | None]:
    """For a tensor that has one element for each row."""
    return of_each_row(lambda subject: rule)


def of_each_row(
    make: Callable[[Subject], InputRule | None],
) -> Callable[[Subject], InputRule | None]:
    """For a tensor that has no more than one element for each row."""
    return lambda subject: make(subject) if len(subject.spec.shape or ()) < 2 else None
