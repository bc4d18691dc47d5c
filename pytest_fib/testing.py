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

import contextlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError

from pytest_fib.data import (
    Calling,
    Definition,
    DefinitionError,
    DefinitionFault,
    Evaluation,
    EvaluationStatus,
    LoadedDefinition,
    SearchResult,
    Tolerance,
    Trace,
    Workload,
    first_problem,
)
from pytest_fib.diagnosis import diagnose
from pytest_fib.discovery import local_files
from pytest_fib.engine import FunctionChecker, search_and_diagnose
from pytest_fib.report import describe_comparison, describe_evaluation, workload_json
from pytest_fib.sandbox import was_calling
from pytest_fib.search import source_numbers
from pytest_fib.verdict import compare_tensor, dtype_bound, overridden, verdict_of
from pytest_fib.workloads import (
    DEFAULT_BUDGETS,
    dtype_name,
    example_workloads,
    given_scalars,
    plain_defaults,
    plan,
    read_workload,
    why_not_generated,
)

__all__ = ["KernelCheck", "RunSettings", "assert_kernel_close"]


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
    tolerance = _tolerance(rtol=rtol, atol=atol, matched_ratio=matched_ratio, exact=exact)
    # Not as a decorator: its frame would show the arguments.
    with plain_defaults():
        actual = _tensor("actual", actual)
        if not isinstance(expected, torch.Tensor):
            dtype = torch.float64 if actual.is_floating_point() else actual.dtype
            expected = _tensor("expected", expected, dtype=dtype, device=actual.device)
        _refuse_unlike(name, actual, expected)
        complaint = _complaint(name, actual, expected, tolerance, own)
    if complaint:
        raise AssertionError(complaint)


def _tolerance(**limits: Any) -> Tolerance:
    """Raises ValueError for limits that there can't be, in one line."""
    __tracebackhide__ = True
    try:
        return Tolerance(**limits)
    except ValidationError as error:
        problem = first_problem(error, Tolerance, limits)
        raise ValueError(problem if ": " in problem else f"tolerance: {problem}") from None


def _tensor(name: str, value: object, **options: Any) -> torch.Tensor:
    """Raises TypeError for what is no tensor and can't become one."""
    __tracebackhide__ = True
    try:
        return torch.as_tensor(value, **options)
    except (RuntimeError, TypeError, ValueError):
        kinds = "a tensor, an array of numpy, a number or a list of numbers"
        raise TypeError(f"{name} ({type(value).__name__}) should be {kinds}") from None


def _complaint(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    own: torch.Tensor | None,
) -> str:
    """Says what is wrong with a tensor; empty if it is right."""
    bound = overridden(dtype_bound(actual.dtype, oracle=expected.dtype != actual.dtype), tolerance)
    compared = [compare_tensor(name, actual, expected, bound, () if own is None else (own,))]
    verdict = verdict_of(compared)
    if verdict.passed:
        return ""
    return describe_comparison(verdict.status, diagnose(compared), verdict.correctness)


def _refuse_unlike(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    __tracebackhide__ = True
    if actual.shape != expected.shape:
        sides = f"got {list(actual.shape)}, expected {list(expected.shape)}"
        raise AssertionError(f"INCORRECT_SHAPE: {name}: {sides}")
    oracle = actual.is_floating_point() and expected.dtype is torch.float64
    if actual.dtype != expected.dtype and not oracle:
        sides = f"got {dtype_name(actual.dtype)}, expected {dtype_name(expected.dtype)}"
        both = actual.is_floating_point() and expected.is_floating_point()
        own = f"or, where it is to be of the kernel's own, expected.to({actual.dtype})"
        remedy = f"; compute it in float64, as with expected.double(), {own}" if both else ""
        raise AssertionError(f"INCORRECT_DTYPE: {name}: {sides}{remedy}")
    if actual.device != expected.device:
        sides = f"got {actual.device}, expected {expected.device}"
        raise AssertionError(f"RUNTIME_ERROR: {name} is on the wrong device: {sides}")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """A run's settings for ``kernel_check``, from the options ``--fib-*``.

    ``seed`` and ``run_seed`` are the two parts of ``--fib-seed``, ``workload`` is as
    ``--fib-workload`` has it. ``why_not`` is given the names of a definition and a function, and
    says why that is not to be checked; ``shown`` writes a path as the run does. ``record`` takes
    what an evaluation came to, ``keep`` a workload that failed; either is given where the
    definition is from, if it is from a file.
    """

    device: str = "cpu"
    examples: int = 25
    seed: int = 0
    run_seed: int | None = None
    repeat: int = 1
    max_bytes: int | None = None
    workload: str | None = None
    why_not: Callable[[str, str], str | None] = lambda *_: None
    shown: Callable[[Path], str] = str
    record: Callable[[Trace, LoadedDefinition | None], None] = lambda *_: None
    keep: Callable[[Workload, LoadedDefinition], None] = lambda *_: None


class KernelCheck:
    """The fixture ``kernel_check``: asserts that a function computes a definition.

    It runs in this process; nothing guards against a function that crashes, hangs or cheats, as the
    sandboxes of kernel items do. ``find`` looks a definition up by its name or file.
    """

    def __init__(
        self, find: Callable[[str | Path], LoadedDefinition], run: RunSettings | None = None
    ) -> None:
        self._find = find
        self._run = run or RunSettings()

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
        examples: how many workloads are drawn, with three small ones for each; ``--fib-examples``
            where not given. With neither ``axes`` nor a ``workload``, ``--fib-workload`` is tried
            alone.
        calling: ``value`` for a function that returns its outputs, ``destination`` for one that
            takes them as its last arguments, ``tuple`` for one that takes one tuple of both.

        Without ``axes`` or a ``workload``, the definition's examples and drawn workloads are tried,
        as kernel items do it, and the smallest that fails is reported. Raises AssertionError where
        an output is wrong, whatever ``function`` raises, and ValueError for a definition that no
        workload can be made of.
        """
        __tracebackhide__ = True
        try:
            _refuse_unlike_arguments(definition, function, calling)
            definition, loaded = self._definition(definition)
            given = _given(definition, axes, workload or self._run.workload)
        except (LookupError, OSError, TypeError, ValueError) as error:
            raise error.with_traceback(None) from None  # the mistake is in the test
        if reason := self._run.why_not(definition.name, _name(function)):
            pytest.skip(reason)
        if reason := why_not_generated(definition, given):
            raise ValueError(f"{definition.name}: {reason}")
        root = None if loaded is None else loaded.path.parent
        how: dict[str, Any] = {"calling": calling, "root": root, "repeat": self._run.repeat}
        check = FunctionChecker(definition, function, self._run.device, **how)
        try:
            result = self._search(check, function, given, examples)
        except Exception as error:  # noqa: BLE001  (the function's own, which goes on)
            if check.workload is not None and _is_by(function, error.__traceback__):
                outcome = check.of_exception(error)
                self._record(check.workload, outcome, loaded, definition, function)
            raise error.with_traceback(_without_our_frames(error.__traceback__)) from None
        self._conclude(definition, function, loaded, result)

    def _definition(
        self, given: Definition | str | Path
    ) -> tuple[Definition, LoadedDefinition | None]:
        if isinstance(given, Definition):
            return given, None
        loaded = self._find(given)
        return loaded.definition, loaded

    def _search(
        self,
        check: FunctionChecker,
        function: Callable[..., Any],
        given: Workload | None,
        examples: int | None,
    ) -> SearchResult:
        """The outcome of one workload or, if none is given, of a search."""
        if given is not None:
            return SearchResult(tried=1, workload=given, outcome=check(given, explain=True))
        run = self._run
        max_bytes = DEFAULT_BUDGETS[run.device] if run.max_bytes is None else run.max_bytes
        return search_and_diagnose(
            check.definition,
            check,
            listed=example_workloads(check.definition),
            examples=run.examples if examples is None else examples,
            numbers=_numbers(function),
            seed=run.seed,
            run_seed=run.run_seed,
            max_bytes=max_bytes,
            affordable=lambda workload: check.is_affordable(workload, max_bytes),
            undecided=lambda workload, outcome: check.is_too_large(workload, outcome, max_bytes),
        )

    def _conclude(
        self,
        definition: Definition,
        function: Callable[..., Any],
        loaded: LoadedDefinition | None,
        result: SearchResult,
    ) -> None:
        """Record what came of it; raise AssertionError where that is a failure."""
        __tracebackhide__ = True
        evaluation, workload = result.outcome, result.workload
        if isinstance(evaluation, DefinitionFault):
            raise DefinitionError(f"{evaluation.message}, at axes {workload.axes}")
        self._record(workload, evaluation, loaded, definition, function)
        if evaluation.status is EvaluationStatus.PASSED:
            return
        if loaded is not None and result.origin is not None:
            self._run.keep(workload, loaded)
        raise AssertionError(self._described(definition, function, result))

    def _described(
        self, definition: Definition, function: Callable[..., Any], result: SearchResult
    ) -> str:
        outcome, workload = result.outcome, result.workload
        assert isinstance(outcome, Evaluation)
        name = _name(function)
        # What has no name can't be written again; Python takes three dots for anything.
        argument = name if name.isidentifier() else "..."

        def replay(tested: Workload) -> str:
            if tested.has_recorded_tensors:
                return f"kernel_check({definition.name!r}, {argument}, workload={tested!r})"
            given = json.loads(workload_json(tested, given_scalars(definition, tested)))
            return f"kernel_check({definition.name!r}, {argument}, workload={given})"

        where = f"{name}{self._place(function)}"
        guessed = _guessed(definition, workload)
        return describe_evaluation(outcome, workload, where, replay, result.origin, guessed=guessed)

    def _place(self, function: Callable[..., Any]) -> str:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is None:
            return ""
        return f"  {self._run.shown(Path(code.co_filename))}:{code.co_firstlineno}"

    def _record(
        self,
        workload: Workload,
        evaluation: Evaluation,
        loaded: LoadedDefinition | None,
        definition: Definition,
        function: Callable[..., Any],
    ) -> None:
        trace = Trace(
            definition=definition.name,
            solution=_name(function),
            workload=workload,
            evaluation=evaluation,
        )
        self._run.record(trace, loaded)


def _refuse_unlike_arguments(definition: object, function: object, calling: str) -> None:
    if not isinstance(definition, (Definition, str, Path)):
        kinds = "the name of a definition, a file of one or a Definition"
        raise TypeError(f"definition: {type(definition).__name__} is not {kinds}")
    if not callable(function):
        raise TypeError(f"function: {function!r} can't be called")
    if calling not in get_args(Calling):
        raise ValueError(f"calling: {calling!r} is not one of {', '.join(get_args(Calling))}")


def _is_by(function: Callable[..., Any], frames: TracebackType | None) -> bool:
    """Whether an exception came out of that function, or of a call that it can't take."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return was_calling(frames) or any(frame.f_code is code for frame, _ in walk_tb(frames))


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """From the function's frame on: none where it can't be called so, all if it isn't at fault."""
    if was_calling(traceback):
        return None
    ours = f"{Path(__file__).parent}/", contextlib.__file__
    frames = traceback
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    return frames or traceback


def _numbers(function: Callable[..., Any]) -> list[float]:
    """The numbers in the source of a function, and of what it needs of its file's folder."""
    while isinstance(function, partial):
        function = function.func
    called = function if hasattr(function, "__code__") else type(function).__call__
    code = getattr(inspect.unwrap(called), "__code__", None)
    if code is None or not (file := Path(code.co_filename)).is_file():
        return []
    try:
        sources = {str(path): text for path, text in local_files(file).items()}
    except (OSError, UnicodeDecodeError):  # of another encoding
        return []
    return source_numbers(sources, str(file), code.co_name)


def _given(
    definition: Definition,
    axes: Mapping[str, int] | None,
    workload: Workload | Mapping[str, Any] | str | None,
) -> Workload | None:
    if isinstance(workload, Workload):
        return workload
    facts = json.loads(workload) if isinstance(workload, str) else dict(workload or {})
    if axes is not None:
        facts["axes"] = dict(axes)
    return read_workload(definition, json.dumps(facts)) if facts else None


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _guessed(definition: Definition, workload: Workload) -> str:
    """The inputs whose meaning was inferred; none where a workload brings them along."""
    return "" if workload.has_recorded_tensors else plan(definition).guessed
