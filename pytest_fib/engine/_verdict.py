"""Are these outputs right? Compares what an implementation wrote with what is expected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import Correctness, EvaluationStatus
from pytest_fib.engine._tolerance import Bound, bound_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_fib.data import Definition


@dataclass(frozen=True)
class Verdict:
    """PASSED or INCORRECT_NUMERICAL, the figures, and one line that says what is wrong."""

    status: EvaluationStatus
    correctness: Correctness
    summary: str = ""

    @property
    def passed(self) -> bool:
        """Whether the outputs are right."""
        return self.status is EvaluationStatus.PASSED


@dataclass(frozen=True)
class _Comparison:
    """One output against its expected values. ``used`` is the largest error over its bound."""

    name: str
    wrong: int
    total: int
    max_absolute: float
    max_relative: float
    used: float
    worst: dict[str, Any]

    @property
    def rank(self) -> tuple[float, int]:
        return (self.used, self.wrong)


def judge_outputs(
    definition: Definition,
    outputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
) -> Verdict:
    """Compare every output, element by element, with its expected values.

    NaN and infinities must match in place and sign; everything else lies within the output's
    bound (see ``_tolerance``).
    """
    compared = [
        _compare(name, outputs[name], expected[name], bound_for(definition, name))
        for name in definition.outputs
    ]
    worst = max(compared, key=lambda c: c.rank)
    wrong = sum(c.wrong for c in compared)
    correctness = Correctness(
        max_relative_error=max(c.max_relative for c in compared),
        max_absolute_error=max(c.max_absolute for c in compared),
        extra={
            "bound_used": worst.used,
            "worst": worst.worst,
            "elements_wrong": {c.name: c.wrong for c in compared},
            "elements": {c.name: c.total for c in compared},
        },
    )
    if wrong == 0:
        return Verdict(EvaluationStatus.PASSED, correctness)
    return Verdict(EvaluationStatus.INCORRECT_NUMERICAL, correctness, _summary(worst.worst))


def _compare(name: str, got: torch.Tensor, expected: torch.Tensor, bound: Bound) -> _Comparison:
    if expected.numel() == 0:
        return _Comparison(name, 0, 0, 0.0, 0.0, 0.0, {})
    # float32 holds every value of the 16-bit and smaller types, so only wider ones need float64.
    wide = torch.float32 if expected.element_size() <= 2 else torch.float64  # noqa: PLR2004
    got_wide, wanted = got.to(wide).flatten(), expected.to(wide).flatten()
    error = (got_wide - wanted).abs()
    allowed = wanted.abs() * bound.rtol + bound.atol
    same = (got_wide == wanted) | (got_wide.isnan() & wanted.isnan())
    finite = got_wide.isfinite() & wanted.isfinite()
    error = torch.where(same, 0.0, torch.where(finite, error, math.inf))
    used = torch.where(error == 0, 0.0, error / allowed)
    wrong = int((error > torch.where(finite, allowed, 0.0)).sum())
    relative = torch.where(finite & (wanted != 0), error / wanted.abs(), 0.0)
    at = int(used.argmax()) if wrong or bool((used > 0).any()) else int(error.argmax())
    return _Comparison(
        name=name,
        wrong=wrong,
        total=expected.numel(),
        max_absolute=float(error.max()),
        max_relative=float(relative.max()) if bool(finite.any()) else math.inf,
        used=float(used[at]),
        worst={
            "output": name,
            "index": _index(at, expected.shape),
            "got": float(got_wide[at]),
            "expected": float(wanted[at]),
            "allowed": float(allowed[at]) if bool(wanted[at].isfinite()) else 0.0,
        },
    )


def _index(flat: int, shape: torch.Size) -> list[int]:
    index = []
    for n in reversed(shape):
        index.append(flat % n)
        flat //= n
    return index[::-1]


def _summary(worst: dict[str, Any]) -> str:
    place = ", ".join(str(i) for i in worst["index"])
    sides = f"got {worst['got']:.6g}, expected {worst['expected']:.6g}"
    return f"{worst['output']}[{place}] {sides}, allowed ±{worst['allowed']:.2g}"
