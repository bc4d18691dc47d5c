"""One line of a table, from a report."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from pytest_fib.report._failure import axis_sizes
from pytest_fib.report._times import TimeComparison


@dataclass(frozen=True)
class Row:
    """An item's outcome. Errors are numbers or the strings of non-finite ones; times in ms.

    ``error_share`` is the largest error as a share of what is allowed, ``worst_at`` the sizes of
    the workload that it was on.

    ``workload`` is how tables name one whose label says nothing of its sizes.
    ``file`` is where the definition is, ``source`` and ``line`` where the implementation is,
    ``item`` the name of the item; ``reruns``, how often the item ran before; ``no_oracle``
    why expected values were not computed in float64, where they were not; ``left_out``, from where
    on workloads were left out, and why; ``unimplemented``, that
    there is nothing but the definition; ``host`` is the machine, where it is another.
    """

    definition: str
    implementation: str
    language: str
    kind: str
    label: str
    status: str
    workload: str = ""
    file: str = ""
    source: str = ""
    line: int = 0
    item: str = ""
    reason: str = ""
    reruns: int = 0
    max_absolute_error: float | str | None = None
    max_relative_error: float | str | None = None
    error_share: float | str | None = None
    worst_at: str = ""
    latency_ms: float | None = None
    reference_latency_ms: float | None = None
    speedup_factor: float | None = None
    ci_ms: list[float] | None = None
    noisy: bool | None = None
    gigabytes_per_second: float | None = None
    no_oracle: str = ""
    left_out: str = ""
    teraflops_per_second: float | None = None
    ceiling_share: float | None = None
    bound_by: str | None = None
    least_bytes: int | None = None
    separate_bytes: int | None = None
    flops: int | None = None
    time_comparison: TimeComparison | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None
    binary_bytes: int | None = None
    unimplemented: bool = False
    host: str = ""

    @property
    def is_shown(self) -> bool:
        """Not where a definition that has implementations was found to be in order."""
        return self.kind != "definition" or self.unimplemented or self.status != "PASSED"

    @classmethod
    def of(cls, item: dict[str, Any], category: str, trace: dict[str, Any] | None) -> Row:
        """The row of an item: what it is, its outcome, and its trace record if it left one.

        ``category`` is the outcome as ``pytest_report_teststatus`` has it; other plugins may have
        outcomes of their own.
        """
        build = item.get("build") or {}
        status = build.get("status") or _STATUS_OF_OUTCOME.get(category, category.upper())
        row = cls(**{**_row_fields({**item, **build}), "status": status})
        if row.time_comparison is not None:
            row = replace(row, time_comparison=TimeComparison(**item["time_comparison"]))
        if row.unimplemented and not row.reason:
            row = replace(row, reason="the definition has no implementation")
        if trace is None:
            return row
        axes = trace.get("workload", {}).get("axes", {})
        return replace(row._with(trace["evaluation"], category), worst_at=axis_sizes(axes))

    @classmethod
    def untabled(
        cls, file: str, line: int, *, item: str, reason: str, status: str = "ERROR"
    ) -> Row:
        """Of what fails and is no kernel item: a file of definitions, or a test by hand."""
        nothing = dict.fromkeys(("definition", "implementation", "language", "kind", "label"), "")
        facts = {"file": file, "source": file, "line": line, "item": item, "reason": reason}
        return cls(**nothing, status=status, **facts)  # type: ignore[arg-type]

    def _with(self, evaluation: dict[str, Any], category: str) -> Row:
        correctness = evaluation.get("correctness") or {}
        performance = evaluation.get("performance") or {}
        diagnosis = evaluation.get("diagnosis") or {}
        shown = ("sentence", "element") if diagnosis.get("vague") else ("sentence",)
        headline = "; ".join(diagnosis[part] for part in shown if part in diagnosis)
        first_line = evaluation.get("log", "").partition("\n")[0]
        return replace(
            self,
            status=self._status(evaluation["status"], category),
            reason=self.reason or headline or first_line,
            error_share=(correctness.get("extra") or {}).get("bound_used"),
            no_oracle=(correctness.get("extra") or {}).get("no_oracle", ""),
            left_out=_left_out(**(correctness.get("extra") or {}).get("left_out", {})),
            host=(evaluation.get("environment") or {}).get("host", ""),
            **_row_fields({**correctness, **performance}),
        )

    def _status(self, evaluated: str, category: str) -> str:
        if category not in ("passed", "failed"):
            return self.status
        if category == "passed" or evaluated != "PASSED":
            return evaluated
        # What is right fails where it is slower than it may be, or where xfail is strict.
        return "SLOWER" if self.time_comparison is not None else "FAILED"


#: The statuses of outcomes; a failure that left no record is no verdict on the implementation.
_STATUS_OF_OUTCOME = {"failed": "ERROR", "xfailed": "XFAIL", "xpassed": "XPASS"}


def _left_out(axes: dict[str, int] | None = None, why: str = "") -> str:
    return f"{axis_sizes(axes)}: {why}" if axes else ""


def _row_fields(values: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(Row)}
    return {name: value for name, value in values.items() if name in names}
