"""A run's traces as Markdown, for the job summary of a GitHub workflow.

python -m pytest_fib.report.github fib-traces.jsonl >> "$GITHUB_STEP_SUMMARY"
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from pytest_fib.data import DataError, EvaluationStatus, read_traces
from pytest_fib.report.terminal import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_fib.data import Evaluation, Trace

    Judged = tuple[Trace, Evaluation]

#: Rows of one table. GitHub refuses a summary of more than 1 MiB.
MOST_ROWS = 1000
#: Characters of a failure's text: the traces have it whole.
MOST_TEXT = 200


def summary(traces: Iterable[Trace]) -> str:
    """What came of a run: a sentence, then tables of failures, times and correctness.

    Traces without an evaluation, which only record a workload, are left out.
    """
    judged = [(trace, trace.evaluation) for trace in traces if trace.evaluation is not None]
    judged.sort(key=lambda case: _place(case[0]))
    failed = [case for case in judged if not _passed(case[1])]
    timed = [case for case in judged if case[1].performance is not None]
    untimed = [case for case in judged if case[1].performance is None and _passed(case[1])]
    parts = ["## Kernels", "", _sentence(judged)]
    parts += _table(":x: Failures", ("workload", "status", "what"), failed, _failure)
    parts += _table("Times", ("workload", "latency", "reference", "speed-up", "GB/s"), timed, _time)
    parts += _table("Correctness", ("closest workload", "max abs", "max rel"), untimed, _errors)
    return "\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the summary of trace files. Exits with a message where one can't be read."""
    parser = argparse.ArgumentParser("python -m pytest_fib.report.github", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="traces, one JSON line each")
    try:
        traces = [t for file in parser.parse_args(arguments).files for t in read_traces(file)]
    except (DataError, OSError) as error:
        sys.exit(str(error))
    sys.stdout.write(summary(traces))


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
    """What a program said, so that it stays text and in its cell."""
    shown = cell if len(cell) <= MOST_TEXT else f"{cell[: MOST_TEXT - 1]}…"
    return re.sub(r"([\\`*_~|<>\[\]])", r"\\\1", " ".join(shown.split()))


def _failure(trace: Trace, evaluation: Evaluation) -> Sequence[str]:
    return _axes(trace), evaluation.status.value, evaluation.log.partition("\n")[0]


def _time(trace: Trace, evaluation: Evaluation) -> Sequence[str]:
    extra = (evaluation.performance and evaluation.performance.model_extra) or {}
    return (
        _axes(trace),
        _shown(evaluation.latency_ms, duration),
        _shown(evaluation.reference_latency_ms, duration),
        _shown(evaluation.speedup_factor, "{:.2f}x".format),
        _shown(extra.get("gigabytes_per_second"), "{:.3g}".format),
    )


def _errors(trace: Trace, evaluation: Evaluation) -> Sequence[str]:
    errors = evaluation.max_absolute_error, evaluation.max_relative_error
    return (_axes(trace), *(_shown(error, "{:.1e}".format) for error in errors))


def _axes(trace: Trace) -> str:
    return ", ".join(f"{axis}={n}" for axis, n in trace.workload.axes.items()) or "fixed"


def _shown(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


if __name__ == "__main__":
    main()
