"""One line of a table, from a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Row:
    """An item's outcome. Errors are numbers or the strings of non-finite ones; times in ms.

    ``no_oracle`` is why expected values were not computed in float64, where they were not.
    """

    definition: str
    implementation: str
    language: str
    kind: str
    label: str
    status: str
    reason: str = ""
    max_absolute_error: float | str | None = None
    max_relative_error: float | str | None = None
    latency_ms: float | None = None
    reference_latency_ms: float | None = None
    speedup_factor: float | None = None
    gigabytes_per_second: float | None = None
    no_oracle: str = ""


#: Reports without a record: what the status column then says.
_WITHOUT_RECORD = {"skipped": "SKIPPED", "failed": "ERROR", "passed": "PASSED"}


def row_of(facts: dict[str, str], outcome: str, trace: dict[str, Any] | None) -> Row:
    """The row of an item: its facts, pytest's outcome, and its trace record if it left one."""
    row = Row(
        definition=facts["definition"],
        implementation=facts["implementation"],
        language=facts["language"],
        kind=facts["kind"],
        label=facts["label"],
        status=_WITHOUT_RECORD[outcome],
        reason=facts.get("reason", ""),
    )
    return row if trace is None else _recorded(row, trace)


def _recorded(row: Row, trace: dict[str, Any]) -> Row:
    evaluation = trace["evaluation"]
    correctness = evaluation.get("correctness") or {}
    performance = evaluation.get("performance") or {}
    return replace(
        row,
        status=evaluation["status"],
        reason=evaluation.get("log", "").partition("\n")[0],
        max_absolute_error=correctness.get("max_absolute_error"),
        max_relative_error=correctness.get("max_relative_error"),
        latency_ms=performance.get("latency_ms"),
        reference_latency_ms=performance.get("reference_latency_ms"),
        speedup_factor=performance.get("speedup_factor"),
        gigabytes_per_second=performance.get("gigabytes_per_second"),
        no_oracle=(correctness.get("extra") or {}).get("no_oracle", ""),
    )
