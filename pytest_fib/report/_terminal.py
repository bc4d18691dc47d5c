"""The tables at the end of a run."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_fib.report._layout import Line, Piece, Table, unmarked, write_table
from pytest_fib.report._times import (
    Baseline,
    TimeComparison,
    shown_change,
    shown_uncertainty,
    tally,
)
from pytest_fib.report._units import amount, duration, percent, shown_share

if TYPE_CHECKING:
    import pytest

    from pytest_fib.report._rows import Row

_GREEN, _YELLOW, _RED = {"green": True}, {"yellow": True}, {"red": True, "bold": True}
#: Any other status is a failure.
_STATUS_COLOURS = {
    "PASSED": _GREEN,
    **dict.fromkeys(("SKIPPED", "XFAIL", "XPASS", "RERUN"), _YELLOW),
}
_CHANGE_COLOURS = {"slower": {"red": True}, "faster": _GREEN, "unclear": _YELLOW}
#: Stands before a time that is not known as precisely as was asked for.
_NOISY = "~"


def write_tables(
    terminal: pytest.TerminalReporter,
    rows: Iterable[Row],
    width: int,
    baseline: Baseline | None = None,
) -> None:
    """For each definition: how right each implementation is, how fast, how much faster than before.

    ``width`` is the terminal's. Definitions of one name in several files have tables of their own.
    """
    ordered = sorted(
        (row for row in rows if row.is_shown), key=lambda row: (row.definition, row.file)
    )
    files = defaultdict(set)
    for row in ordered:
        files[row.definition].add(row.file)
    for (definition, file), group in groupby(ordered, key=lambda row: (row.definition, row.file)):
        title = definition if len(files[definition]) == 1 else f"{definition} ({file})"
        of_file = sorted(group, key=_order)
        hosts = sorted({row.host for row in of_file if row.host})
        terminal.section(f"{title} on {', '.join(hosts)}" if hosts else title, sep="-")
        _write_section(terminal, of_file, width, baseline)


def write_comparison(
    terminal: pytest.TerminalReporter, rows: Iterable[Row], width: int, baseline: Baseline
) -> None:
    """How many times were compared, what came of it, and why others were not."""
    comparisons = [row.time_comparison for row in rows if row.time_comparison is not None]
    for sentence in tally(comparisons, baseline.name):
        _write_wrapped(terminal, sentence, width)


def _write_section(
    terminal: pytest.TerminalReporter, rows: Sequence[Row], width: int, baseline: Baseline | None
) -> None:
    verbose = terminal.verbosity > 0
    timed = [row for row in rows if row.kind == "bench"]
    compiled = [row for row in rows if row.kind == "compile"]
    if others := [row for row in rows if row.kind != "compile"]:
        write_table(terminal, _correctness_table(others), width)
    if compiled:
        terminal.line("")
        write_table(terminal, _compile_table(compiled), width)
    if timed:
        terminal.line("")
        write_table(terminal, _times_table(timed), width)
        _write_noise(terminal, timed)
    _write_cut_reasons(terminal, rows, width)
    traffic = {row.label: row for row in timed if row.separate_bytes and row.least_bytes}
    if traffic:
        terminal.line("")
        write_table(terminal, _traffic_table(traffic.values()), width)
    comparisons = [(row, row.time_comparison) for row in rows if row.time_comparison is not None]
    compared = [pair for pair in comparisons if pair[1].before_ms is not None]
    if compared and baseline is not None:
        terminal.line("")
        table = _comparison_table(compared, "best" if baseline.best else "before", verbose=verbose)
        write_table(terminal, table, width)
    _write_notes(terminal, rows, width)


def _write_notes(terminal: pytest.TerminalReporter, rows: Sequence[Row], width: int) -> None:
    """What limits a verdict: workloads that were left out and, if asked for, missing oracles."""
    for row in rows:
        if row.left_out:
            note = f"{row.implementation}: left out as too large: {row.left_out}"
            _write_wrapped(terminal, note, width)
    if terminal.verbosity > 0:
        for reason in dict.fromkeys(row.no_oracle for row in rows if row.no_oracle):
            note = f"expected values are in the reference's own precision, not float64: {reason}"
            _write_wrapped(terminal, note, width)


def _write_wrapped(terminal: pytest.TerminalReporter, text: str, width: int) -> None:
    # Cut at blanks only: "a::error::" in a text must not become the beginning of a line, and what
    # is to be installed, "pytest-fib[cuda]", is copied.
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for line in wrapper.wrap(text):
        terminal.write_line(line)


def _write_cut_reasons(terminal: pytest.TerminalReporter, rows: Sequence[Row], width: int) -> None:
    """Why items were skipped, where tables have no room for it. What failed has its text above."""
    tables = (
        _correctness_table([row for row in rows if row.kind != "compile"]),
        _compile_table([row for row in rows if row.kind == "compile"]),
        _times_table([row for row in rows if row.kind == "bench"]),
    )
    lines = (line for table in tables for line in table.laid_out(width))
    shown = "\n".join("".join(text for text, _ in line) for line in lines)
    for reason in dict.fromkeys(row.reason for row in rows if row.status == "SKIPPED"):
        if reason not in shown:
            _write_wrapped(terminal, f"skipped: {reason}", width)


def _write_noise(terminal: pytest.TerminalReporter, timed: Iterable[Row]) -> None:
    """How uncertain the times are that were measured less precisely than was asked for."""
    half_widths = [
        (row.ci_ms[1] - row.ci_ms[0]) / 2 / row.latency_ms
        for row in timed
        if row.noisy and row.ci_ms and row.latency_ms
    ]
    if half_widths:
        terminal.line(f"{_NOISY} noisy: uncertain by up to ±{percent(max(half_widths))}")


def _correctness_table(rows: Sequence[Row]) -> Table:
    titles = Line(
        unmarked("implementation", "language", "status", "error"),
        unmarked("of what is allowed, at"),
    )
    groups = groupby(rows, key=lambda row: row.implementation)
    return Table(
        [titles, *(_correctness_line(_deciding(list(group))) for _, group in groups)], 3, 1
    )


def _correctness_line(row: Row) -> Line:
    names, reruns = unmarked(row.implementation, row.language), unmarked(_reruns(row))
    if row.max_absolute_error is None:
        return Line(names, [_status(row), *unmarked(_shortly(row)), *reruns])
    error = unmarked(shown_share(row.error_share))
    return Line([*names, _status(row), *error], [*unmarked(row.worst_at), *reruns])


def _shortly(row: Row) -> str:
    """Why an item has no figures; that its file can't be tested without the file's long path."""
    place = f"can't be tested: {row.source}:"
    return row.reason.replace(place, "line ", 1) if row.reason.startswith(place) else row.reason


def _compile_table(compiled: Iterable[Row]) -> Table:
    titles = "implementation", "compiled for", "status", "registers", "shared", "spills", "size"
    lines = map(_compile_line, _skips_together(compiled, "targets"))
    return Table([Line(unmarked(*titles)), *lines], 3, 1)


def _compile_line(row: Row) -> Line:
    names = unmarked(row.implementation, row.label.removeprefix("compile-"))
    if not row.binary_bytes:
        return Line(names, [_status(row), *unmarked(row.reason, _reruns(row))])
    kernels = ["-"] * 3  # a library for the CPU has none
    if row.registers:
        kernels = [str(row.registers), amount(row.shared_bytes or 0, "B"), str(row.spills)]
    figures = unmarked(*kernels, amount(row.binary_bytes, "B"))
    return Line([*names, _status(row), *figures])


def _times_table(timed: Iterable[Row]) -> Table:
    titles = "implementation", "workload", "latency", "reference", "speed-up", "rate/s", "roof"
    rows = list(_skips_together(timed, "workloads"))
    several = len({row.host for row in rows}) > 1
    lines = (_times_line(row, host=row.host if several else "") for row in rows)
    return Table([Line(unmarked(*titles)), *lines], 2, 2)


def _skips_together(rows: Iterable[Row], what: str) -> Iterator[Row]:
    """One row for all that one implementation was skipped on for one reason: ``4 workloads``."""

    def kind(row: Row) -> tuple[str, str, str]:
        return row.implementation, row.status, row.reason

    for (_, status, _), group in groupby(rows, key=kind):
        alike = list(group)
        if status == "SKIPPED" and len(alike) > 1:
            yield replace(alike[0], label=f"{len(alike)} {what}")
        else:
            yield from alike


def _times_line(row: Row, host: str) -> Line:
    """With the host, where there are several: only times of one are compared."""
    names = unmarked(row.implementation, _workload(row))
    if row.latency_ms is None or row.reference_latency_ms is None or row.speedup_factor is None:
        return Line(names, [_status(row), *unmarked(row.reason, _reruns(row))])
    figures = unmarked(
        f"{_NOISY if row.noisy else ''}{duration(row.latency_ms)}",
        duration(row.reference_latency_ms),
        f"{row.speedup_factor:.2f}x",
        _rate(row),
        "-" if row.ceiling_share is None else percent(row.ceiling_share),
    )
    return Line([*names, *figures], unmarked(host))


def _traffic_table(rows: Iterable[Row]) -> Table:
    """What each workload moves: by the reference's operations one by one, and by one kernel."""
    titles = Line(unmarked("memory traffic", "separate", "fused", "less", "operations"))
    return Table([titles, *map(_traffic_line, rows)], 1, 1)


def _traffic_line(row: Row) -> Line:
    assert row.separate_bytes is not None
    assert row.least_bytes is not None
    less = max(1 - row.least_bytes / row.separate_bytes, 0.0)
    moved = amount(row.separate_bytes, "B"), amount(row.least_bytes, "B"), percent(less)
    return Line(unmarked(_workload(row), *moved, amount(row.flops, "FLOP") if row.flops else "-"))


def _comparison_table(
    compared: Iterable[tuple[Row, TimeComparison]], before: str, *, verbose: bool
) -> Table:
    titles = Line(unmarked("implementation", "workload", before, "now", "change", "±"))
    lines = [titles]
    for row, comparison in compared:
        earlier = [Line((), unmarked(_earlier(comparison)))] if verbose else []
        lines += [_comparison_line(row, comparison), *earlier]
    return Table(lines, 2, 2)


def _comparison_line(row: Row, comparison: TimeComparison) -> Line:
    assert comparison.before_ms is not None
    times = duration(comparison.before_ms), duration(comparison.now_ms)
    figures = *times, shown_change(comparison), shown_uncertainty(comparison)
    cells = unmarked(row.implementation, _workload(row), *figures)
    change = (comparison.change, _CHANGE_COLOURS.get(comparison.change, {}))
    return Line(cells, [change])


def _earlier(comparison: TimeComparison) -> str:
    """Whose the earlier time is, and how it was taken."""
    date = comparison.timestamp[:16].replace("T", " ")
    return f"against {', '.join(filter(None, (comparison.solution, date, comparison.method)))}"


def _order(row: Row) -> tuple[str, list[tuple[str, int]]]:
    """Rows arrive as workers finish; ``batch=8`` comes before ``batch=32`` all the same."""
    parts = re.findall(r"(\D*)(\d*)", _workload(row))
    return row.implementation, [(text, int(number or 0)) for text, number in parts]


def _deciding(rows: Sequence[Row]) -> Row:
    """The row that says most of an implementation: a failure, else the correctness search."""
    ranks = dict.fromkeys(_STATUS_COLOURS, 1) | {"SKIPPED": 2}
    return min(rows, key=lambda row: (ranks.get(row.status, 0), row.kind != "correctness"))


def _status(row: Row) -> Piece:
    return row.status, _STATUS_COLOURS.get(row.status, _RED)


def _workload(row: Row) -> str:
    return row.workload or row.label.removeprefix("bench-")


def _reruns(row: Row) -> str:
    return f"after {row.reruns} rerun{'s' if row.reruns > 1 else ''}" if row.reruns else ""


def _rate(row: Row) -> str:
    """Bytes or operations, of whichever there are too many for the device to be any faster."""
    if row.bound_by == "compute" and row.teraflops_per_second is not None:
        return amount(row.teraflops_per_second * 1e12, "F")
    if row.gigabytes_per_second is None:
        return "-"
    return amount(row.gigabytes_per_second * 1e9, "B")
