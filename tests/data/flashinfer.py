"""What FlashInfer Trace's strict readers ask of a trace."""

import math
from collections.abc import Iterator

from pytest_fib.data import Evaluation, EvaluationStatus, Trace

NUMBERS = {
    "correctness": ("max_relative_error", "max_absolute_error"),
    "performance": ("latency_ms", "reference_latency_ms", "speedup_factor"),
}


def flashinfer_complaints(trace: Trace) -> list[str]:
    """What FlashInfer Trace's strict readers would refuse in `trace`; [] where they take it."""
    return list(_complaints(trace))


def _complaints(trace: Trace) -> Iterator[str]:
    if (trace.solution is None) != (trace.evaluation is None):
        yield "solution and evaluation are both given or both null"
    if trace.evaluation is not None:
        yield from _evaluation_complaints(trace.evaluation)


def _evaluation_complaints(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.environment is None:
        yield "evaluation.environment is required"
    elif not evaluation.environment.hardware:
        yield "evaluation.environment.hardware is empty"
    for section, keys in NUMBERS.items():
        if getattr(evaluation, section) is not None:
            yield from _number_complaints(evaluation, section, keys)
        elif evaluation.status is EvaluationStatus.PASSED:
            yield f"evaluation.{section} is required with PASSED"


def _number_complaints(
    evaluation: Evaluation, section: str, keys: tuple[str, ...]
) -> Iterator[str]:
    for key in keys:
        value = getattr(evaluation, key)
        # An error may be NaN or infinite, a time may not.
        wild = value is not None and section == "performance" and not math.isfinite(value)
        if value is None or value < 0 or wild:
            yield f"evaluation.{section}.{key} should be a number, at least 0, not {value}"
