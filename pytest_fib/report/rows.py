"""One line of a table, from a report."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from pytest_fib.report.compare import Comparison


@dataclass(frozen=True)
class Row:
    """An item's outcome. Errors are numbers or the strings of non-finite ones; times in ms.

    ``no_oracle`` is why expected values were not computed in float64, where they were not;
    ``against``, how its time compares with an earlier one.
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
    ci_ms: list[float] | None = None
    noisy: bool | None = None
    gigabytes_per_second: float | None = None
    no_oracle: str = ""
    teraflops_per_second: float | None = None
    ceiling_share: float | None = None
    bound_by: str | None = None
    least_bytes: int | None = None
    separate_bytes: int | None = None
    flops: int | None = None
    against: Comparison | None = None


#: Reports without a record: what the status column then says.
_WITHOUT_RECORD = {"skipped": "SKIPPED", "failed": "ERROR", "passed": "PASSED"}


def row_of(facts: dict[str, Any], outcome: str, trace: dict[str, Any] | None) -> Row:
    """The row of an item: its facts, pytest's outcome, and its trace record if it left one."""
    comparison = facts.get("comparison")
    row = Row(
        definition=facts["definition"],
        implementation=facts["implementation"],
        language=facts["language"],
        kind=facts["kind"],
        label=facts["label"],
        status=_WITHOUT_RECORD[outcome],
        reason=facts.get("reason", ""),
        against=Comparison(**comparison) if comparison else None,
    )
    return row if trace is None else _recorded(row, trace, failed=outcome == "failed")


def _recorded(row: Row, trace: dict[str, Any], *, failed: bool) -> Row:
    evaluation = trace["evaluation"]
    # What is right may fail all the same: where it is slower than it may be.
    slower = failed and row.against is not None and evaluation["status"] == "PASSED"
    correctness = evaluation.get("correctness") or {}
    found = {**correctness, **(evaluation.get("performance") or {})}
    named = {field.name for field in fields(Row)}
    return replace(
        row,
        status="SLOWER" if slower else evaluation["status"],
        reason=evaluation.get("log", "").partition("\n")[0],
        no_oracle=(correctness.get("extra") or {}).get("no_oracle", ""),
        **{key: value for key, value in found.items() if key in named},
    )
