"""A run's traces as Markdown, for the job summary of a GitHub workflow.

python -m pytest_fib.report.github fib-traces.jsonl >> "$GITHUB_STEP_SUMMARY"

With ``--compare TRACES``, a file or a directory, also how its times compare with those.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fib.data import DataError, EvaluationStatus, read_traces
from pytest_fib.report._failure import diagnosis_of
from pytest_fib.report._times import (
    Baseline,
    TimeRecord,
    read_times,
    shown_change,
    shown_uncertainty,
    tally,
)
from pytest_fib.report._units import amount, duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_fib.data import Evaluation, Trace

    Judged = tuple[Trace, Evaluation]

#: Rows of one table. GitHub refuses a summary of more than 1 MiB.
MOST_ROWS = 1000
#: Characters of a failure's text: the traces have it whole.
MOST_TEXT = 200


def summary(traces: Iterable[Trace], baseline: Baseline | None = None) -> str:
    """What came of a run: a sentence, then tables of failures, comparisons, times and correctness.

    Traces without an evaluation, which only record a workload, are left out.
    """
    judged = [(trace, trace.evaluation) for trace in traces if trace.evaluation is not None]
    judged.sort(key=lambda case: _place(case[0]))
    failed = [case for case in judged if not _passed(case[1])]
    timed = [case for case in judged if case[1].performance is not None]
    untimed = [case for case in judged if case[1].performance is None and _passed(case[1])]
    parts = ["## Kernels", "", _sentence(judged)]
    parts += _table(":x: Failures", ("workload", "status", "what"), failed, _failure)
    parts += _comparisons(timed, baseline) if baseline is not None else []
    parts += _table("Times", _TIMES, timed, _time)
    parts += _table("Correctness", ("closest workload", "max abs", "max rel"), untimed, _errors)
    return "\n".join(parts) + "\n"


_TIMES = (
    "workload", "latency", "reference", "speed-up", "GB/s", "TFLOP/s", "of the ceiling",
    "least traffic", "separate operations",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the summary of trace files. Exits with a message where one can't be read."""
    parser = argparse.ArgumentParser("python -m pytest_fib.report.github", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="traces, one JSON line each")
    parser.add_argument("--compare", metavar="TRACES", type=Path, help="earlier times")
    given = parser.parse_args(arguments)
    try:
        traces = [t for file in given.files for t in read_traces(file)]
        earlier = given.compare and Baseline(str(given.compare), read_times(given.compare))
    except (DataError, OSError) as error:
        sys.exit(str(error))
    sys.stdout.write(summary(traces, earlier))


def _comparisons(timed: Sequence[Judged], baseline: Baseline) -> list[str]:
    """A table of the times that can be compared, and why others can't."""
    comparisons = {
        id(trace): baseline.compare(now)
        for trace, _ in timed
        if (now := TimeRecord.from_trace(trace)) is not None
    }

    def cells(trace: Trace, _: Evaluation) -> Sequence[str]:
        comparison = comparisons[id(trace)]
        times = (_shown(comparison.before_ms, duration), duration(comparison.now_ms))
        difference = f"{shown_change(comparison)} {shown_uncertainty(comparison)}"
        change = _MARKS.get(comparison.change, "") + comparison.change
        return (_axes(trace), *times, difference, change)

    known = {key for key, comparison in comparisons.items() if comparison.before_ms is not None}
    compared = [(trace, evaluation) for trace, evaluation in timed if id(trace) in known]
    sentences = tally(list(comparisons.values()), baseline.name)
    titles = ("workload", "before", "now", "change", "")
    table = _table("Compared", titles, compared, cells) or ["", "### Compared"]
    return [*table, "", *(f"- {_text(sentence)}" for sentence in sentences)]


#: GitHub's emoji of a change.
_MARKS = {"slower": "🔺 ", "faster": "🟢 "}


def _passed(evaluation: Evaluation) -> bool:
    return evaluation.status is EvaluationStatus.PASSED


def _place(trace: Trace) -> tuple[str, str, list[int]]:
    return trace.definition, trace.solution or "", list(trace.workload.axes.values())


def _sentence(judged: Sequence[Judged]) -> str:
    if not judged:
        return "No evaluations."
    passed = sum(_passed(evaluation) for _, evaluation in judged)
    return f"**{passed} of {len(judged)} evaluations passed**{_where(judged)}."


def _where(judged: Sequence[Judged]) -> str:
    """The devices and versions, each once: shards of one run may have had different ones."""
    environments = [e.environment for _, e in judged if e.environment is not None]
    devices = sorted({environment.hardware for environment in environments})
    libs = {lib for environment in environments for lib in environment.libs.items()}
    versions = sorted(" ".join(lib) for lib in libs)
    where = f" on {', '.join(devices)}" if devices else ""
    return f"{where} ({', '.join(versions)})" if versions else where


def _table(
    title: str,
    titles: Sequence[str],
    cases: Sequence[Judged],
    cells: Callable[[Trace, Evaluation], Sequence[str]],
) -> list[str]:
    if not cases:
        return []
    heads = ["definition", "implementation", *titles]
    rows = [
        _line([_text(cell) for cell in (trace.definition, trace.solution or "", *cells(trace, e))])
        for trace, e in cases[:MOST_ROWS]
    ]
    more = [f"\n… and {len(cases) - MOST_ROWS} more."] if len(cases) > MOST_ROWS else []
    return ["", f"### {title}", "", _line(heads), _line(["---"] * len(heads)), *rows, *more]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(cell: str) -> str:
    """A program's output, escaped: it stays text and in its cell."""
    shown = cell if len(cell) <= MOST_TEXT else f"{cell[: MOST_TEXT - 1]}…"
    return re.sub(r"([\\`*_~|<>\[\]])", r"\\\1", " ".join(shown.split()))


def _failure(trace: Trace, evaluation: Evaluation) -> Sequence[str]:
    return _axes(trace), evaluation.status.value, diagnosis_of(evaluation).sentence


def _time(trace: Trace, evaluation: Evaluation) -> Sequence[str]:
    extra = (evaluation.performance and evaluation.performance.model_extra) or {}
    return (
        _axes(trace),
        _shown(evaluation.latency_ms, duration),
        _shown(evaluation.reference_latency_ms, duration),
        _shown(evaluation.speedup_factor, "{:.2f}x".format),
        _shown(extra.get("gigabytes_per_second"), "{:.3g}".format),
        _shown(extra.get("teraflops_per_second") or None, "{:.3g}".format),
        _ceiling(extra),
        _shown(extra.get("least_bytes"), _size),
        _shown(extra.get("separate_bytes"), _size),
    )


def _ceiling(extra: Mapping[str, Any]) -> str:
    share = extra.get("ceiling_share")
    return "-" if share is None else f"{percent(share)} ({extra.get('bound_by')})"


def _size(number: float) -> str:
    return amount(number, "B")


def _errors(trace: Trace, evaluation: Evaluation) -> Sequence[str]:
    errors = evaluation.max_absolute_error, evaluation.max_relative_error
    return (_axes(trace), *(_shown(error, "{:.1e}".format) for error in errors))


def _axes(trace: Trace) -> str:
    return ", ".join(f"{axis}={n}" for axis, n in trace.workload.axes.items()) or "fixed"


def _shown(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


if __name__ == "__main__":
    main()
