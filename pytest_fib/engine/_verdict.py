"""Are these outputs right? Compares what an implementation wrote with what is expected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import Correctness, EvaluationStatus
from pytest_fib.engine._bounds import EXACT, PRECISION, bound_for, coherent
from pytest_fib.engine._compare import Comparison, compare, marked
from pytest_fib.engine._gathered import Gathered, gather

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_fib.data import Definition
    from pytest_fib.engine._bounds import Bound

    Outputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Verdict:
    """PASSED or INCORRECT_NUMERICAL, the figures, one line that says what is wrong, and more."""

    status: EvaluationStatus
    correctness: Correctness
    summary: str = ""
    details: tuple[str, ...] = ()

    @property
    def log(self) -> str:
        """The summary, and the details below it."""
        return "\n".join([self.summary, *self.details])

    @property
    def passed(self) -> bool:
        """Whether the outputs are right."""
        return self.status is EvaluationStatus.PASSED


def judge_outputs(
    definition: Definition,
    outputs: Outputs,
    expected: Outputs,
    own: Outputs | Sequence[Outputs] | None = None,
    *,
    exact: bool = False,
    inputs: Outputs | None = None,
) -> Verdict:
    """Compare every output with its expected values, by the bounds of ``_bounds``.

    ``expected`` are the reference's outputs in float64 or, where that can't be, in their own
    dtypes. ``own`` are yardsticks, outputs of the reference that are rounded as an implementation's
    may be: in its own dtypes, or on nudged inputs. They only widen bounds, so they are worth making
    only where the outputs are wrong without. With ``exact``, as for inputs of zeros and ones,
    outputs that the definition calls linear must be the expected values, rounded once. ``inputs``
    are needed where indices are compared by what they point at. Outputs that are compared by
    samples are left to the statistics.
    """
    yardsticks = _sequence(own)
    return verdict_of(
        compare_outputs(definition, outputs, expected, yardsticks, exact=exact, inputs=inputs)
    )


def compare_outputs(
    definition: Definition,
    outputs: Outputs,
    expected: Outputs,
    yardsticks: Sequence[Outputs] = (),
    *,
    exact: bool = False,
    inputs: Outputs | None = None,
) -> list[Judged]:
    """What ``judge_outputs`` concludes from."""
    return [
        judge_output(definition, name, outputs, expected, yardsticks, exact=exact, inputs=inputs)
        for name in definition.outputs
        if not definition.is_sampled(name)
    ]


@dataclass(frozen=True)
class Judged:
    """An output that was compared, and both sides of it."""

    comparison: Comparison
    got: torch.Tensor
    expected: torch.Tensor
    gathered: Gathered | None = None
    yardsticks: Sequence[torch.Tensor] = ()

    def marked(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The wrong elements and how far each may be off, as in ``_compare.marked``."""
        if self.gathered is None:
            return marked(self.got, self.expected, self.comparison.bound, self.yardsticks)
        wrong, _ = marked(self.gathered.got, self.gathered.expected, self.comparison.bound)
        return wrong, torch.zeros((), device=wrong.device)  # indices are equal or not

    @property
    def rank(self) -> tuple[float, int]:
        """The worst of several outputs has the highest."""
        return (self.comparison.bound_used, self.comparison.wrong)


def judge_output(
    definition: Definition,
    name: str,
    outputs: Outputs,
    expected: Outputs,
    yardsticks: Sequence[Outputs] = (),
    *,
    exact: bool = False,
    inputs: Outputs | None = None,
) -> Judged:
    """Compare one output of a definition."""
    got, right = outputs[name], expected[name]
    tolerance = definition.tolerances.get(name)
    if tolerance is not None and tolerance.by == "gathered":
        gathered = gather(definition, name, got, right, {**(inputs or {}), **expected})
        comparison = compare(name, gathered.got, gathered.expected, gathered.bound)
        return Judged(comparison, got, right, gathered)
    bound = bound_for(definition, name, got.dtype, oracle=right.dtype != got.dtype)
    if exact and tolerance is not None and tolerance.linear:
        bound = EXACT
    if yardsticks:
        bound = coherent(bound, got.dtype, inputs or {})
    return judge_tensor(name, got, right, bound, [y[name] for y in yardsticks])


def judge_tensor(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: Bound,
    yardsticks: Sequence[torch.Tensor] = (),
) -> Judged:
    """Compare one tensor by a given bound; of float4, which torch can't read, the bytes."""
    if got.is_floating_point() and got.dtype not in PRECISION:
        got, expected, *yardsticks = (x.view(torch.uint8) for x in (got, expected, *yardsticks))
    comparison = compare(name, got, expected, bound, yardsticks)
    return Judged(comparison, got, expected, yardsticks=yardsticks)


def verdict_of(compared: Sequence[Judged]) -> Verdict:
    """What the comparisons of all outputs amount to."""
    if not compared:
        return Verdict(EvaluationStatus.PASSED, Correctness())
    worst = max(compared, key=lambda judged: judged.rank)
    correctness = _correctness([judged.comparison for judged in compared], worst)
    if all(judged.comparison.passed for judged in compared):
        return Verdict(EvaluationStatus.PASSED, correctness)
    return Verdict(EvaluationStatus.INCORRECT_NUMERICAL, correctness, _summary(worst))


def _sequence(own: Outputs | Sequence[Outputs] | None) -> Sequence[Outputs]:
    if own is None:
        return ()
    return own if isinstance(own, (list, tuple)) else (own,)


def _correctness(compared: Sequence[Comparison], worst: Judged) -> Correctness:
    total = sum(c.total for c in compared)
    return Correctness(
        max_relative_error=max(c.max_relative for c in compared),
        max_absolute_error=max(c.max_absolute for c in compared),
        extra={
            "oracle": "float64" if all(c.oracle for c in compared) else "own precision",
            "bound_used": worst.comparison.bound_used,
            "check": decided_by(worst.comparison),
            "worst": _element(worst),
            "rmse": {c.name: c.rmse for c in compared},
            "max_ulp": max(c.max_ulp for c in compared),
            "matched_ratio": 1 - sum(c.wrong for c in compared) / total if total else 1.0,
            "elements_wrong": {c.name: c.wrong for c in compared},
            "elements": {c.name: c.total for c in compared},
        },
    )


def decided_by(comparison: Comparison) -> str:
    """Which of the bounds is used most: the elements' wherever these are wrong."""
    used = {"rows": comparison.rows_used, "fit": comparison.fit_used}
    most = max(used, key=lambda check: used[check])
    elements = comparison.elements_used
    return "elements" if elements > 1 or elements >= used[most] else most


def _element(judged: Judged) -> dict[str, Any]:
    """The worst element of an output: where it is, both sides, and how far apart they may be."""
    comparison = judged.comparison
    if comparison.total == 0:
        return {}
    index = unravelled(comparison.at, judged.got.shape)
    got, expected = float(judged.got[tuple(index)]), float(judged.expected[tuple(index)])
    found: dict[str, Any] = {
        "output": comparison.name,
        "index": index,
        "got": got,
        "expected": expected,
        "allowed": _allowed(judged, expected),
    }
    if judged.gathered is not None:
        found |= judged.gathered.facts(comparison.at)
    return found


def _allowed(judged: Judged, expected: float) -> float:
    """How far the worst element may be off."""
    comparison, bound = judged.comparison, judged.comparison.bound
    if bound.exact or judged.gathered is not None or not math.isfinite(expected):
        return 0.0
    start = comparison.at // comparison.row * comparison.row
    row = judged.expected.reshape(-1)[start : start + comparison.row].double()
    row = row[row.abs() <= torch.finfo(judged.got.dtype).max]
    scale = float(row.square().mean().sqrt()) if len(row) else 0.0
    reach = bound.atol + bound.rtol * abs(expected) + bound.scale * scale
    return comparison.width * reach


def unravelled(flat: int, shape: Sequence[int]) -> list[int]:
    """The index of an element by its place in memory."""
    index = []
    for n in reversed(shape):
        index.append(flat % n)
        flat //= n
    return index[::-1]


def _summary(worst: Judged) -> str:
    comparison = worst.comparison
    check = decided_by(comparison)
    if check == "rows":
        return _row_summary(worst)
    if check == "fit":
        return _fit_summary(comparison)
    element = _element(worst)
    sides = f"got {element['got']:.6g}, expected {element['expected']:.6g}"
    if worst.gathered is not None:
        return f"{_place(element)} {sides}: {element['reason']}"
    return f"{_place(element)} {sides}, allowed ±{element['allowed']:.2g}"


def _place(element: Mapping[str, Any]) -> str:
    return f"{element['output']}[{', '.join(str(i) for i in element['index'])}]"


def _row_summary(judged: Judged) -> str:
    comparison = judged.comparison
    index = unravelled(comparison.row_at, judged.got.shape)
    place = ", ".join(_row_index(index, judged.got.shape, comparison.row))
    times = f"{comparison.rows_used:.3g} times what rounding explains"
    return f"{comparison.name}[{place}] is off by {times}, though no element alone is"


def _row_index(index: Sequence[int], shape: Sequence[int], row: int) -> Iterator[str]:
    """``3, :`` for a whole row, ``3, 128:192`` for part of one; short rows by the first of them."""
    for i in index[:-1]:
        yield str(i)
    if shape and shape[-1] == row:
        yield ":"
    elif shape:
        yield f"{index[-1]}:{min(index[-1] + row, shape[-1])}"


def _fit_summary(comparison: Comparison) -> str:
    fit = comparison.fit
    assert fit is not None
    name, over = comparison.name, f"fitted to {fit.elements} elements"
    if abs(fit.scale) / fit.allowed[0] >= abs(fit.offset) / fit.allowed[1]:
        share, most = 100 * abs(fit.scale), 100 * fit.allowed[0]
        way = "large" if fit.scale > 0 else "small"
        return f"{name} is {share:.2g} % too {way} throughout, allowed {most:.2g} % ({over})"
    share, most = 100 * fit.offset, 100 * fit.allowed[1]
    return f"{name} is shifted by {share:+.2g} % of a row's scale, allowed ±{most:.2g} % ({over})"
