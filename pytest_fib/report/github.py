"""A run's traces as Markdown, for the job summary of a GitHub workflow.

python -m pytest_fib.report.github fib-traces.jsonl >> "$GITHUB_STEP_SUMMARY"

With ``--compare TRACES``, a file or a directory, also how its times compare with those.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_fib.data import DataError, Evaluation, Trace, read_traces, visible
from pytest_fib.report._failure import axis_sizes
from pytest_fib.report._rows import Row
from pytest_fib.report._times import (
    Baseline,
    TimeRecord,
    read_times,
    shown_change,
    shown_uncertainty,
    tally,
)
from pytest_fib.report._units import amount, duration, percent, shown_share

#: Rows of one table. GitHub refuses a summary of more than 1 MiB.
ROW_LIMIT = 1000
#: Characters of a failure's text: the traces have it whole.
TEXT_LIMIT = 200
#: GitHub's emoji of a change.
_EMOJI = {"slower": "🔺 ", "faster": "🟢 "}
_TIME_COLUMNS = (
    "workload", "latency", "reference", "speed-up", "GB/s", "TFLOP/s", "of the ceiling",
    "least traffic", "separate operations",
)  # fmt: skip


def summary(
    traces: Iterable[Trace],
    baseline: Baseline | None = None,
    untested: Sequence[Row] = (),
    xfailed: Sequence[Row] = (),
) -> str:
    """What came of a run: a sentence, then tables of failures, comparisons, times and correctness.

    ``untested`` are rows of what failed and left no trace, ``xfailed`` of what was marked to fail.
    Traces without an evaluation, which only record a workload, are left out.
    """
    cases = [(trace, trace.evaluation) for trace in traces if trace.evaluation is not None]
    cases.sort(key=lambda case: _order(case[0]))
    rows = [_row(trace, baseline) for trace, _ in cases]
    passed = [row for row in rows if row.status == "PASSED"]
    known = {(row.definition, row.implementation, row.worst_at) for row in xfailed}
    wrong = [row for row in rows if row.status != "PASSED"]
    expected = [r for r in wrong if (r.definition, r.implementation, r.label) in known]
    failed = [row for row in wrong if row not in expected]
    timed = [row for row in passed if row.latency_ms is not None]
    untimed = [row for row in passed if row.latency_ms is None]
    sentence = "No evaluations."
    if rows:
        where = _environments([evaluation for _, evaluation in cases])
        as_expected = f", {len(expected)} failed as expected" if expected else ""
        sentence = f"**{len(passed)} of {len(rows)} evaluations passed**{as_expected}{where}."
    parts = ["## Kernels", "", sentence]
    parts += _table(":x: Failures", ("workload", "status", "what"), failed, _failure)
    parts += _table(":x: Not tested", ("what",), untested, _why_untested)
    parts += _table("Failed as expected", ("workload", "status", "what"), expected, _failure)
    parts += _comparisons(timed, baseline) if baseline is not None else []
    parts += _table("Times", _TIME_COLUMNS, timed, _time)
    parts += _table(
        "Correctness", ("closest workload", "error of what is allowed"), untimed, _errors
    )
    return "\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the summary of trace files. Exits with a message where one can't be read."""
    parser = argparse.ArgumentParser("python -m pytest_fib.report.github", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="traces, one JSON line each")
    parser.add_argument("--compare", metavar="TRACES", type=Path, help="earlier times")
    options = parser.parse_args(arguments)
    try:
        traces = [trace for file in options.files for trace in read_traces(file)]
        earlier = options.compare and Baseline(str(options.compare), read_times(options.compare))
    except (DataError, OSError) as error:
        sys.exit(visible(str(error)))
    sys.stdout.write(summary(traces, earlier))


def _order(trace: Trace) -> tuple[str, str, list[int]]:
    return trace.definition, trace.solution or "", list(trace.workload.axes.values())


def _row(trace: Trace, baseline: Baseline | None) -> Row:
    item = {
        "definition": trace.definition,
        "implementation": trace.solution or "",
        "language": "",
        "kind": "",
        "label": axis_sizes(trace.workload.axes),
    }
    row = Row.of(item, "passed", trace.to_flashinfer())
    time = TimeRecord.from_trace(trace)
    if time is None or baseline is None:
        return row
    return replace(row, time_comparison=baseline.compare(time))


def _environments(evaluations: Iterable[Evaluation]) -> str:
    """The devices and versions, each once: shards of one run may have had different ones."""
    environments = [e.environment for e in evaluations if e.environment is not None]
    devices = sorted({environment.hardware for environment in environments})
    libs = {lib for environment in environments for lib in environment.libs.items()}
    versions = sorted(" ".join(lib) for lib in libs)
    where = f" on {_text(', '.join(devices))}" if devices else ""
    return f"{where} ({_text(', '.join(versions))})" if versions else where


def _comparisons(timed: Iterable[Row], baseline: Baseline) -> list[str]:
    """A table of the times that can be compared, and why others can't."""
    pairs = [(row, row.time_comparison) for row in timed if row.time_comparison is not None]
    compared = [row for row, comparison in pairs if comparison.before_ms is not None]
    sentences = tally([comparison for _, comparison in pairs], baseline.name)
    titles = ("workload", "before", "now", "change", "")
    table = _table("Compared", titles, compared, _change) or ["", "### Compared"]
    return [*table, "", *(f"- {_text(sentence)}" for sentence in sentences)]


def _table(
    title: str, titles: Sequence[str], rows: Sequence[Row], cells: Callable[[Row], Sequence[str]]
) -> list[str]:
    if not rows:
        return []
    heads = ["definition", "implementation", *titles]
    lines = [
        _line(map(_text, (row.definition, row.implementation, *cells(row))))
        for row in rows[:ROW_LIMIT]
    ]
    more = [f"\n… and {len(rows) - ROW_LIMIT} more."] if len(rows) > ROW_LIMIT else []
    return ["", f"### {title}", "", _line(heads), _line(["---"] * len(heads)), *lines, *more]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(cell: str) -> str:
    """A program's output, escaped: it stays text and in its cell."""
    cell = visible(cell)
    shown = cell if len(cell) <= TEXT_LIMIT else f"{cell[: TEXT_LIMIT - 1]}…"
    return re.sub(r"([\\`*_~|<>&$\[\]])", r"\\\1", " ".join(shown.split()))


def _failure(row: Row) -> Sequence[str]:
    return row.label, row.status, row.reason


def _why_untested(row: Row) -> Sequence[str]:
    return (row.reason if row.definition else f"{row.item}: {row.reason}",)


def _change(row: Row) -> Sequence[str]:
    comparison = row.time_comparison
    assert comparison is not None
    times = _optional(comparison.before_ms, duration), duration(comparison.now_ms)
    difference = f"{shown_change(comparison)} {shown_uncertainty(comparison)}"
    return row.label, *times, difference, _EMOJI.get(comparison.change, "") + comparison.change


def _time(row: Row) -> Sequence[str]:
    share = row.ceiling_share
    return (
        row.label,
        _optional(row.latency_ms, duration),
        _optional(row.reference_latency_ms, duration),
        _optional(row.speedup_factor, "{:.2f}x".format),
        _optional(row.gigabytes_per_second, "{:.3g}".format),
        _optional(row.teraflops_per_second or None, "{:.3g}".format),
        "-" if share is None else f"{percent(share)} ({row.bound_by})",
        _optional(row.least_bytes, lambda size: amount(size, "B")),
        _optional(row.separate_bytes, lambda size: amount(size, "B")),
    )


def _errors(row: Row) -> Sequence[str]:
    return row.label, shown_share(row.error_share)


def _optional(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


if __name__ == "__main__":
    main()
