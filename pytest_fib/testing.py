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

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import (
    Definition,
    Evaluation,
    EvaluationStatus,
    SearchResult,
    Tolerance,
    Workload,
)
from pytest_fib.diagnosis import diagnose
from pytest_fib.engine import FunctionChecker, search_and_diagnose
from pytest_fib.report import (
    describe_evaluation,
    has_recorded_tensors,
    headline,
    workload_json,
)
from pytest_fib.verdict import compare_tensor, dtype_bound, overridden, verdict_of
from pytest_fib.workloads import (
    DEFAULT_BUDGETS,
    example_workloads,
    plain_defaults,
    read_workload,
    why_not_generated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_fib.data import Correctness, LoadedDefinition

__all__ = ["KernelCheck", "assert_kernel_close"]


@plain_defaults()
def assert_kernel_close(
    actual: object,
    expected: object,
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
    keep to it. Both may be numbers, lists or arrays of numpy, too. With
    ``exact`` nothing may differ once ``expected`` is rounded. ``own`` is what an
    honest implementation makes of the same inputs: where that is far off, so may ``actual`` be.
    """
    __tracebackhide__ = True
    actual = torch.as_tensor(actual)
    if not isinstance(expected, torch.Tensor):
        dtype = torch.float64 if actual.is_floating_point() else actual.dtype
        expected = torch.as_tensor(expected, dtype=dtype, device=actual.device)
    _refuse_unlike(name, actual, expected)
    tolerance = Tolerance(rtol=rtol, atol=atol, matched_ratio=matched_ratio, exact=exact)
    bound = overridden(dtype_bound(actual.dtype, oracle=expected.dtype != actual.dtype), tolerance)
    yardsticks = () if own is None else (own,)
    compared = [compare_tensor(name, actual, expected, bound, yardsticks)]
    verdict = verdict_of(compared)
    if not verdict.passed:
        found = diagnose(compared)
        lines = [*headline(verdict.status, found.sentence), "", *_figures(verdict.correctness)]
        raise AssertionError("\n".join([*lines, "", *found.details]))


def _refuse_unlike(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    __tracebackhide__ = True
    if actual.shape != expected.shape:
        sides = f"got {list(actual.shape)}, expected {list(expected.shape)}"
        raise AssertionError(f"INCORRECT_SHAPE: {name}: {sides}")
    oracle = actual.is_floating_point() and expected.dtype is torch.float64
    if actual.dtype != expected.dtype and not oracle:
        sides = f"got {_short(actual.dtype)}, expected {_short(expected.dtype)}"
        both = actual.is_floating_point() and expected.is_floating_point()
        own = f"or, where it is to be of the kernel's own, expected.to({actual.dtype})"
        remedy = f"; compute it in float64, as with expected.double(), {own}" if both else ""
        raise AssertionError(f"INCORRECT_DTYPE: {name}: {sides}{remedy}")
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

    It runs in this process; nothing guards against a function that crashes, hangs or cheats, as the
    sandboxes of kernel items do. ``find`` looks a definition up by its name or file; ``device`` is
    ``cpu`` or ``cuda``; ``examples``, ``repeat`` and ``max_bytes`` are as in the options
    ``--fib-examples``, ``--fib-repeat`` and ``--fib-max-bytes``, ``seed`` and ``run_seed`` the two
    parts of ``--fib-seed``.
    """

    def __init__(
        self,
        find: Callable[[str | Path], LoadedDefinition],
        device: str,
        *,
        examples: int = 25,
        seed: int = 0,
        run_seed: int | None = None,
        repeat: int = 1,
        max_bytes: int | None = None,
    ) -> None:
        self._find = find
        self._device = device
        self._examples = examples
        self._seed = seed
        self._run_seed = run_seed
        self._repeat = repeat
        self._max_bytes = DEFAULT_BUDGETS[device] if max_bytes is None else max_bytes

    def __call__(
        self,
        definition: Definition | str | Path,
        function: Callable[..., Any],
        *,
        axes: Mapping[str, int] | None = None,
        workload: Workload | Mapping[str, Any] | None = None,
        examples: int | None = None,
        calling: str = "value",
    ) -> None:
        """Call ``function`` on workloads of ``definition`` and compare with its reference.

        definition: a record, the name of one in the definition directories, or a YAML file, with
            ``::name`` behind it where that holds several.
        function: takes the inputs in the definition's order, as tensors and Python scalars.
        axes: sizes of the var axes of a single workload; those that follow from others may be left
            out.
        workload: a single workload, as a record or as ``--fib-workload`` takes it.
        examples: how many workloads are drawn; ``--fib-examples`` where not given.
        calling: ``value`` for a function that returns its outputs, ``destination`` for one that
            takes them as its last arguments, ``tuple`` for one that takes one tuple of both.

        Without ``axes`` or a ``workload``, the definition's examples and drawn workloads are tried,
        as kernel items do it, and the smallest that fails is reported. Raises AssertionError where
        an output is wrong, whatever ``function`` raises, and ValueError for a definition that no
        workload can be made of.
        """
        __tracebackhide__ = True
        root = None
        if not isinstance(definition, Definition):
            loaded = self._find(definition)
            definition, root = loaded.definition, loaded.path.parent
        how: dict[str, Any] = {"calling": calling, "root": root, "repeat": self._repeat}
        check = FunctionChecker(definition, function, self._device, **how)
        given = _given(definition, axes, workload)
        if reason := why_not_generated(definition, given):
            raise ValueError(f"{definition.name}: {reason}")
        if given is None:
            result = self._search(check, self._examples if examples is None else examples)
        else:
            result = SearchResult(tried=1, workload=given, outcome=check(given, explain=True))
        assert isinstance(result.outcome, Evaluation)  # what a reference raises comes through
        if result.outcome.status is not EvaluationStatus.PASSED:
            raise AssertionError(_described(definition, function, result))

    def _search(self, check: FunctionChecker, examples: int) -> SearchResult:
        return search_and_diagnose(
            check.definition,
            check,
            listed=example_workloads(check.definition),
            examples=examples,
            seed=self._seed,
            run_seed=self._run_seed,
            max_bytes=self._max_bytes,
            affordable=lambda workload: check.is_affordable(workload, self._max_bytes),
        )


def _given(
    definition: Definition,
    axes: Mapping[str, int] | None,
    workload: Workload | Mapping[str, Any] | None,
) -> Workload | None:
    if isinstance(workload, Workload):
        return workload
    facts = dict(workload or {})
    if axes is not None:
        facts["axes"] = dict(axes)
    return read_workload(definition, json.dumps(facts)) if facts else None


def _described(definition: Definition, function: Callable[..., Any], result: SearchResult) -> str:
    outcome, workload = result.outcome, result.workload
    assert isinstance(outcome, Evaluation)
    name = getattr(function, "__name__", type(function).__name__)
    given = repr(workload) if has_recorded_tensors(workload) else workload_json(workload)
    again = f"kernel_check({definition.name!r}, {name}, workload={given})"
    where = f"{name}{_place(function)}"
    return describe_evaluation(outcome, workload, where, again, result.origin)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"  {Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
