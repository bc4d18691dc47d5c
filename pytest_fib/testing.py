"""For kernel tests written by hand: the verdict of kernel items as a function and a fixture.

    from pytest_fib.testing import assert_kernel_close

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    @pytest.mark.parametrize("n", [1, 128, 1000])
    def test_scale(dtype, n):
        x = torch.randn(n, dtype=dtype, device="cuda")
        assert_kernel_close(scale(x, 2.5), x.double() * 2.5)

Where there is a definition, the fixture ``kernel_check`` makes the inputs and runs its reference:

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
    @pytest.mark.parametrize("n", [1, 128, 1000])
    def test_scale(kernel_check, dtype, n):
        kernel_check(f"scale_{dtype}", scale, axes={"n": n})
"""

from __future__ import annotations

import difflib
import inspect
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib import session
from pytest_fib._defaults import PLAIN
from pytest_fib.data import (
    Definition,
    Evaluation,
    EvaluationStatus,
    Tolerance,
    Workload,
    load_definition_file,
)
from pytest_fib.engine._bounds import dtype_bound, overridden
from pytest_fib.engine._evidence import explained
from pytest_fib.engine._telling import told
from pytest_fib.engine._trial import Trial
from pytest_fib.engine._verdict import judge_tensor, verdict_of
from pytest_fib.options import SETTINGS
from pytest_fib.report.failure import (
    describe_evaluation,
    first_line,
    has_recorded_tensors,
    workload_json,
)
from pytest_fib.workloads import why_not_generated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from pytest_fib.data import Correctness
    from pytest_fib.workloads.search import Origin

__all__ = ["KernelCheck", "assert_kernel_close"]

#: Memory of a workload that the fixture draws: it is one test among many.
MAX_BYTES = 16 << 20


@PLAIN.held()
def assert_kernel_close(
    actual: torch.Tensor,
    expected: torch.Tensor,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    matched_ratio: float | None = None,
    exact: bool = False,
    own: torch.Tensor | None = None,
    name: str = "output",
) -> None:
    """Assert that a kernel's output is right, by the bounds that kernel items have.

    ``expected`` is computed in float64, which is best, or in the dtype of ``actual``. The bound
    follows from that dtype and the scale of each row unless ``rtol`` and ``atol`` are given, of
    which an element may use ``atol + rtol * |expected|``; ``matched_ratio`` of the elements must
    keep to it. With ``exact`` nothing may differ once ``expected`` is rounded. ``own`` is what an
    honest implementation makes of the same inputs: where that is far off, so may ``actual`` be.
    """
    __tracebackhide__ = True
    _refuse_unlike(name, actual, expected)
    tolerance = Tolerance(rtol=rtol, atol=atol, matched_ratio=matched_ratio, exact=exact)
    bound = overridden(dtype_bound(actual.dtype, oracle=expected.dtype != actual.dtype), tolerance)
    yardsticks = () if own is None else (own,)
    compared = [judge_tensor(name, actual, expected, bound, yardsticks)]
    verdict = verdict_of(compared)
    if not verdict.passed:
        verdict = explained(verdict, compared)
        lines = [*first_line(verdict.status, verdict.summary), "", *_figures(verdict.correctness)]
        raise AssertionError("\n".join([*lines, "", *verdict.details]))


def _refuse_unlike(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    __tracebackhide__ = True
    if actual.shape != expected.shape:
        sides = f"got {list(actual.shape)}, expected {list(expected.shape)}"
        raise AssertionError(f"INCORRECT_SHAPE: {name}: {sides}")
    oracle = actual.is_floating_point() and expected.dtype is torch.float64
    if actual.dtype != expected.dtype and not oracle:
        sides = f"got {_short(actual.dtype)}, expected {_short(expected.dtype)}"
        raise AssertionError(f"INCORRECT_DTYPE: {name}: {sides}")
    if actual.device != expected.device:
        sides = f"got {actual.device}, expected {expected.device}"
        raise AssertionError(f"RUNTIME_ERROR: {name} is on the wrong device: {sides}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _figures(correctness: Correctness) -> list[str]:
    extra = correctness.extra or {}
    ((name, wrong),) = extra["elements_wrong"].items()
    total, rmse = extra["elements"][name], extra["rmse"][name]
    largest = f"absolute {correctness.max_absolute_error:.3g}"
    return [
        f"  wrong           {wrong} of {total} elements of {name} ({100 * wrong / total:.3g} %)",
        f"  largest error   {largest}, relative {correctness.max_relative_error:.3g}",
        f"  rms error       {rmse:.3g}",
        f"  bound           {extra['bound_used']:.3g} times what is allowed ({extra['check']})",
    ]


class KernelCheck:
    """The fixture ``kernel_check``: asserts that a function computes a definition.

    It runs in this process, on the device of ``--fib-device``; nothing guards against a function
    that crashes, hangs or cheats, as the sandboxes of kernel items do.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(
        self,
        definition: Definition | str | Path,
        function: Callable[..., Any],
        *,
        axes: Mapping[str, int] | None = None,
        workload: Workload | Mapping[str, Any] | None = None,
        examples: int = 5,
        calling: str = "value",
    ) -> None:
        """Call ``function`` on workloads of ``definition`` and compare with its reference.

        ``definition`` is a record, the name of one in the definition directories, or a YAML file,
        with ``::name`` behind it where that holds several. Without ``axes`` or a ``workload`` (a
        record, or what ``--fib-workload`` takes), the definition's examples and some drawn
        workloads are tried, and the smallest that fails is told. ``calling`` is as in
        ``@implements``. Raises AssertionError, whatever ``function`` raises, and ValueError for a
        definition that no workload can be made of.
        """
        __tracebackhide__ = True
        found = definition if isinstance(definition, Definition) else self._found(definition)
        trial = Trial(found, function, session.device(self._config), calling)
        given = self._given(found, axes, workload)
        if reason := why_not_generated(found, given):
            raise ValueError(f"{found.name}: {reason}")
        replayed = None if given is None else (given, trial(given, explain=True), None)
        case = replayed or self._searched(trial, examples)
        if case[1].status is not EvaluationStatus.PASSED:
            raise AssertionError(_told(found, function, *case))

    def _given(
        self,
        definition: Definition,
        axes: Mapping[str, int] | None,
        workload: Workload | Mapping[str, Any] | None,
    ) -> Workload | None:
        from pytest_fib.workloads import read_workload

        if isinstance(workload, Workload):
            return workload
        facts = dict(workload or {})
        if axes is not None:
            facts["axes"] = dict(axes)
        return read_workload(definition, json.dumps(facts)) if facts else None

    def _searched(self, trial: Trial, examples: int) -> tuple[Workload, Evaluation, Origin | None]:
        from pytest_fib.workloads import example_workloads
        from pytest_fib.workloads.search import search

        result = search(
            trial.definition,
            trial,
            failed=lambda outcome: outcome.status is not EvaluationStatus.PASSED,
            closeness=_closeness,
            listed=example_workloads(trial.definition),
            examples=examples,
            seed=self._config.stash[SETTINGS].seed,
            max_bytes=MAX_BYTES,
        )
        outcome = result.outcome
        if result.origin:
            explained = partial(trial, explain=True)
            outcome = told(trial.definition, result.workload, outcome, explained, MAX_BYTES)
        return result.workload, outcome, result.origin

    def _found(self, definition: str | Path) -> Definition:
        path, _, name = str(definition).partition("::")
        if path.endswith((".yaml", ".yml", ".json")):
            loaded = load_definition_file(self._config.rootpath / path)
            known = {entry.definition.name: entry.definition for entry in loaded}
            name = next(iter(known)) if len(known) == 1 else name
        else:
            files = session.catalogue(self._config).definitions.values()
            known = {entry.definition.name: entry.definition for file in files for entry in file}
            name = path
        if name in known:
            return known[name]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none'}"
        raise LookupError(f"no definition {name!r}; {hint}" if name else f"{path}: {hint}")


def _closeness(outcome: Evaluation) -> float:
    extra = (outcome.correctness and outcome.correctness.extra) or {}
    return float(extra.get("bound_used", 0.0))


def _told(
    definition: Definition,
    function: Callable[..., Any],
    workload: Workload,
    outcome: Evaluation,
    origin: Origin | None,
) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    given = repr(workload) if has_recorded_tensors(workload) else workload_json(workload)
    again = f"kernel_check({definition.name!r}, {name}, workload={given})"
    return describe_evaluation(outcome, workload, f"{name}{_place(function)}", again, origin)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"  {Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
