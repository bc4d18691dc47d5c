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


#: Elements compared at a time: on the CPU few enough for the intermediate values to stay in cache.
CHUNK = {"cpu": 1 << 18, "cuda": 1 << 26}


@dataclass
class _Comparison:
    """One output against its expected values. ``used`` is the largest error over its bound."""

    name: str
    total: int
    wrong: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    used: float = 0.0
    at: int = 0

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
    element = _element(worst, outputs[worst.name], expected[worst.name], definition)
    correctness = Correctness(
        max_relative_error=max(c.max_relative for c in compared),
        max_absolute_error=max(c.max_absolute for c in compared),
        extra={
            "bound_used": worst.used,
            "worst": element,
            "elements_wrong": {c.name: c.wrong for c in compared},
            "elements": {c.name: c.total for c in compared},
        },
    )
    if not any(c.wrong for c in compared):
        return Verdict(EvaluationStatus.PASSED, correctness)
    return Verdict(EvaluationStatus.INCORRECT_NUMERICAL, correctness, _summary(element))


def _compare(name: str, got: torch.Tensor, expected: torch.Tensor, bound: Bound) -> _Comparison:
    result = _Comparison(name, expected.numel())
    if got.equal(expected):
        return result
    flat_got, flat_expected = got.flatten(), expected.flatten()
    step = CHUNK[expected.device.type]
    for start in range(0, result.total, step):
        chunk = slice(start, start + step)
        _add(result, start, flat_got[chunk], flat_expected[chunk], bound)
    return result


def _add(
    result: _Comparison, start: int, got: torch.Tensor, expected: torch.Tensor, bound: Bound
) -> None:
    """Count in one chunk of an output."""
    # float32 holds every value of the 16-bit and smaller types, so only wider ones need float64.
    wide = torch.float32 if expected.element_size() <= 2 else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    size = expected.abs()
    error = (got - expected).abs_()
    used = error / (size * bound.rtol).add_(bound.atol)
    top = float(used.max())
    if not math.isfinite(top):  # NaN, an infinity or a bound of zero: rare, so looked at closely
        error, used = _with_specials(got, expected, error, used)
        top = float(used.max())
    if top > result.used:
        result.used, result.at = top, start + int(used.argmax())
    if top > 1:
        result.wrong += int((used > 1).sum())
    result.max_absolute = max(result.max_absolute, float(error.max()))
    relative = torch.where(size == 0, 0.0, error / size)
    result.max_relative = max(result.max_relative, float(relative.nan_to_num_(math.inf).max()))


def _with_specials(
    got: torch.Tensor, expected: torch.Tensor, error: torch.Tensor, used: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Errors and used bounds where NaN and infinities match in place and sign, or are wrong."""
    same = (got == expected) | (got.isnan() & expected.isnan())
    finite = got.isfinite() & expected.isfinite()
    error = torch.where(same, 0.0, torch.where(finite, error, math.inf))
    return error, torch.where(same, 0.0, torch.where(finite, used, math.inf))


def _element(
    comparison: _Comparison, got: torch.Tensor, expected: torch.Tensor, definition: Definition
) -> dict[str, Any]:
    """The worst element of an output: where it is, both sides, and how far apart they may be."""
    if comparison.total == 0:
        return {}
    index = _index(comparison.at, expected.shape)
    wanted = float(expected[tuple(index)])
    bound = bound_for(definition, comparison.name)
    return {
        "output": comparison.name,
        "index": index,
        "got": float(got[tuple(index)]),
        "expected": wanted,
        "allowed": bound.atol + bound.rtol * abs(wanted) if math.isfinite(wanted) else 0.0,
    }


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
