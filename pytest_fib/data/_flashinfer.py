"""What FlashInfer's own tools accept: records in the form that they read, or why there is none.

Their loader refuses a whole dataset for one record that it can't take.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ._definition import Definition
from ._solution import Solution, SupportedLanguages
from ._trace import FLAT_KEYS, Evaluation, EvaluationStatus, Trace

#: The dtypes that its readers know.
_DTYPES = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1"}
_DTYPES |= {"int64", "int32", "int16", "int8", "bool"}


def definition_for_flashinfer(definition: Definition) -> tuple[dict[str, Any], list[str]]:
    """The definition as FlashInfer Trace has it, and why its readers would refuse it."""
    data = definition.to_flashinfer()
    if "constraints" in data:
        data["constraints"] = [text.strip() for text in data["constraints"]]
    return data, list(_definition_refusals(definition))


def _definition_refusals(definition: Definition) -> Iterator[str]:
    for section in ("inputs", "outputs"):
        for name, spec in getattr(definition, section).items():
            if spec.dtype not in _DTYPES:
                yield f"{section}.{name} has dtype {spec.dtype.value}"
    for section in ("axes", "inputs", "outputs"):
        if "" in getattr(definition, section):
            yield f"{section} has an empty name"


def solution_for_flashinfer(solution: Solution) -> tuple[dict[str, Any], list[str]]:
    """The solution as FlashInfer Trace has it, and why its readers would refuse or misread it."""
    data = solution.to_flashinfer()
    data["spec"]["entry_point"] = f"{solution.entry_file}::{solution.entry_symbol}"
    for source in data["sources"]:
        source["content"] = source["content"] or "\n"
    return data, list(_solution_refusals(solution))


def _solution_refusals(solution: Solution) -> Iterator[str]:
    if solution.spec.language is SupportedLanguages.CUTEDSL:
        yield "language cutedsl"
    if solution.spec.calling == "tuple":
        yield "it takes one tuple, and would be called with its arguments one by one"


def trace_for_flashinfer(trace: Trace) -> tuple[dict[str, Any], list[str]]:
    """The trace as FlashInfer Trace has it, and why its readers would refuse it."""
    data = trace.to_flashinfer()
    refusals: list[str] = []
    if (trace.solution is None) != (trace.evaluation is None):
        refusals.append("solution and evaluation are both given or both null")
    if trace.evaluation is not None:
        refusals += _evaluation_refusals(trace, data["evaluation"])
    return data, refusals


def _evaluation_refusals(trace: Trace, data: dict[str, Any]) -> Iterator[str]:
    evaluation = trace.evaluation
    assert evaluation is not None
    if not evaluation.hardware:
        yield "no hardware"
    if not evaluation.timestamp:
        yield "no timestamp"
    if evaluation.status is EvaluationStatus.PASSED:
        yield from _figure_refusals("performance", data["performance"])
    if evaluation.status in (EvaluationStatus.PASSED, EvaluationStatus.INCORRECT_NUMERICAL):
        for name in FLAT_KEYS["correctness"] if data["correctness"] else ():
            if data["correctness"].get(name) is None:
                data["correctness"][name] = "NaN"  # left out it would read as 0
        yield from _figure_refusals("correctness", data["correctness"])


def _figure_refusals(section: str, data: Mapping[str, Any] | None) -> Iterator[str]:
    if not data:
        yield f"no {section}"
        return
    for name in FLAT_KEYS[section]:
        value = float("nan" if data.get(name) is None else data[name])
        if _is_impossible(section, value):
            yield f"{section}.{name} is {data.get(name)}"


def _is_impossible(section: str, value: float) -> bool:
    """Errors may be infinite or no number, times may not."""
    return value < 0 or (section == "performance" and not math.isfinite(value))


def impossible_figures(evaluation: Evaluation) -> Iterator[str]:
    """The errors and times that no evaluation gives."""
    for section in ("correctness", "performance"):
        for name in FLAT_KEYS[section]:
            value = getattr(evaluation, name)
            if value is not None and _is_impossible(section, value):
                yield f"{section}.{name} is {value}"
