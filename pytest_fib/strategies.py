"""Hypothesis strategies of kernels' workloads and inputs, for tests written by hand.

    from hypothesis import given
    from pytest_fib.strategies import inputs

    @given(inputs("rmsnorm_d4096"))
    def test_a_row_has_unit_mean_square(tensors):
        ...

Everything of Hypothesis works as usual: its database, ``@example``, ``@settings``,
``--hypothesis-seed``, ``--hypothesis-show-statistics``, ``.map`` and ``.filter``. What fails is
shrunk to small axes, and to the plainest values and seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hypothesis import currently_in_test_context, note, strategies as st

from pytest_fib import search
from pytest_fib.data import Definition, Workload
from pytest_fib.discovery import find_definition
from pytest_fib.workloads import make_inputs, why_not_generated

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    #: A record; or a name or a file, as ``find_definition`` takes it.
    DefinitionLike: TypeAlias = Definition | str | os.PathLike[str]

__all__ = ["inputs", "workloads"]

_T = TypeVar("_T")
#: Memory of one workload: a test draws a hundred of them.
MAX_BYTES = 16 << 20


def workloads(
    definition: DefinitionLike, *, max_bytes: int = MAX_BYTES
) -> SearchStrategy[Workload]:
    """Workloads of a definition: axes that meet its constraints, value patterns and a seed.

    ``definition`` is a record, the name of one in the definition directories of the running pytest
    session (outside of one, under ``kernel_defs`` in the current directory), or a YAML file, with
    ``::name`` behind it where that holds several. It is looked up when the first workload is drawn:
    that raises LookupError where there is none, and ValueError for one that no workload can be made
    of. No workload takes more than ``max_bytes``, but for the smallest.
    """

    def resolve() -> SearchStrategy[Workload]:
        return search.workloads(_resolved(definition)[0], max_bytes)

    return _when_drawn(resolve)


def inputs(
    definition: DefinitionLike, *, device: str = "cpu", max_bytes: int = MAX_BYTES
) -> SearchStrategy[dict[str, Any]]:
    """The inputs of drawn ``workloads``: tensors on ``device`` and Python scalars, by name.

    Hypothesis reports a failure with a note of the workload that they are made of.
    """

    def resolve() -> SearchStrategy[dict[str, Any]]:
        record, root = _resolved(definition)

        def inputs_of(workload: Workload) -> dict[str, Any]:
            if currently_in_test_context():
                note(f"workload: {workload.to_json()}")
            return make_inputs(record, workload, device, root)

        return search.workloads(record, max_bytes).map(inputs_of)

    return _when_drawn(resolve)


def _when_drawn(resolve: Callable[[], SearchStrategy[_T]]) -> SearchStrategy[_T]:
    """A strategy that is made when it is used; why it can't be is raised without our frames."""

    def strategy() -> SearchStrategy[_T]:
        try:
            return resolve()
        except (LookupError, OSError, ValueError) as error:
            return st.just(error).map(_raised)

    return st.deferred(strategy)


def _raised(error: Exception) -> Any:
    __tracebackhide__ = True
    raise copy(error).with_traceback(None) from None  # Hypothesis adds notes to each


def _resolved(definition: DefinitionLike) -> tuple[Definition, Path | None]:
    """The record, and the directory that paths in it are relative to."""
    if isinstance(definition, Definition):
        record, root = definition, None
    else:
        loaded = find_definition(definition)
        record, root = loaded.definition, loaded.path.parent
    if reason := why_not_generated(record):
        raise ValueError(f"{record.name}: {reason}")
    return record, root
