"""How a bug is planted: a right kernel that is wrong on the workloads that its trigger names."""

import functools
import inspect
from dataclasses import dataclass
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from pytest_fib.build import load, reference_program
from pytest_fib.data import REGIMES, EvaluationStatus, load_definition_file
from pytest_fib.engine import FunctionChecker
from pytest_fib.workloads import (
    empty_tensor,
    fill_inputs,
    layouts,
    make_workload,
    plan,
    scalar_inputs,
)

ROOT = Path(__file__).parents[2]

#: Every planted bug by name.
PLANTED: dict[str, "Planted"] = {}


def halved(rows):
    """As where part of a sum is left out: nothing to see where the result is zero."""
    return rows * 0.5


def unwritten(rows):
    """As where a row is never reached, or is divided by zero."""
    return torch.full_like(rows, nan if rows.is_floating_point() else -1)


def off_by_one(rows):
    """As where indices are counted from the wrong end; outside of what there is."""
    return rows + 1_000_000


@dataclass(frozen=True)
class Planted:
    """A bug in a kernel of ``definition``: ``wrong`` says which rows of the outputs are spoiled.

    ``wrong`` takes any of the inputs by name, and gives a bool for all rows or for each. ``axes``,
    all that follow from no others, and ``regime`` are the smallest and plainest that it needs.
    """

    name: str
    definition: str
    wrong: Any
    axes: dict[str, int]
    regime: dict[str, str]
    spoil: Any

    def kernel(self, *arguments):
        """The reference, but for the rows that are wrong."""
        definition = definition_of(self.definition)
        outputs = reference_of(self.definition)(*arguments)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        named = dict(zip(definition.inputs, arguments, strict=True))
        rows = torch.as_tensor(self.wrong(**{name: named[name] for name in self.reads}))
        return tuple(self._spoiled(output, rows) for output in outputs)

    def _spoiled(self, output, rows):
        chosen = rows.expand(len(output)).reshape(-1, *[1] * (output.dim() - 1))
        return torch.where(chosen, self.spoil(output), output)

    @property
    def reads(self):
        """The inputs that decide whether rows are wrong."""
        return tuple(inspect.signature(self.wrong).parameters)

    def triggered(self, workload):
        """Whether any row is wrong. Only the inputs that decide are made."""
        definition = definition_of(self.definition)
        made, needed = plan(definition), set(self.reads)
        for name in reversed(made.fill):  # what generators refer to is made before
            if name in needed:
                needed |= made.rules[name].inputs
        found = layouts(definition, workload)
        tensors = {
            name: empty_tensor(found[name], "cpu")
            for name in made.fill
            if name in needed & {*found}
        }
        fill_inputs(tensors, definition, workload)
        given = {**tensors, **scalar_inputs(definition, workload)}
        return bool(torch.as_tensor(self.wrong(**{name: given[name] for name in self.reads})).any())

    def check(self, workload):
        """Whether the verdict on the kernel is a failure.

        What is not triggered is the reference itself, so that is not computed.
        """
        if not self.triggered(workload):
            return False
        check = FunctionChecker(definition_of(self.definition), self.kernel, "cpu")
        return check(workload).status is not EvaluationStatus.PASSED

    def is_small(self, workload):
        """Whether no axis is larger than the bug needs."""
        return all(workload.axes[axis] <= n for axis, n in self.axes.items())

    def is_plain(self, workload):
        """Whether no part of the regime is less plain than the bug needs."""
        plain = {what: names[0] for what, names in REGIMES.items()}
        needed, found = ({**plain, **regime} for regime in (self.regime, workload.regime))
        return all(
            names.index(found[what]) <= names.index(needed[what]) for what, names in REGIMES.items()
        )

    def needed(self):
        """The smallest and plainest workloads that may fail, of any seed."""
        definition = definition_of(self.definition)
        axes = plan(definition).completed(self.axes)
        return (make_workload(definition, axes, seed, self.regime) for seed in range(1000))


def planted(definition, spoil=halved, regime=None, **axes):
    """Plant a bug: a function of inputs that says which rows of the outputs are wrong."""

    def plant(wrong):
        bug = Planted(wrong.__name__, definition, wrong, axes, regime or {}, spoil)
        assert PLANTED.setdefault(bug.name, bug) is bug
        return wrong

    return plant


@functools.cache
def definition_of(name):
    """A definition of this project."""
    return _definitions()[name]


@functools.cache
def reference_of(name):
    """What a definition's reference runs."""
    return load(reference_program(definition_of(name)))


@functools.cache
def _definitions():
    files = sorted((ROOT / "kernel_defs").glob("*/*.yaml"))
    return {
        each.definition.name: each.definition for f in files for each in load_definition_file(f)
    }


def sequences(indptr):
    """Where sequences begin and end, and how long they are."""
    indptr = indptr.long()
    return SimpleNamespace(begin=indptr[:-1], end=indptr[1:], length=indptr.diff())


def by_token(wrong, indptr):
    """What is said of each sequence, for each of its tokens."""
    return torch.as_tensor(wrong).expand(len(indptr) - 1).repeat_interleave(indptr.long().diff())
