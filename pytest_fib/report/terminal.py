"""The header line and the tables, at 80 columns."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from pytest_fib.report import compare
from pytest_fib.report.units import amount, duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    from pytest_fib.options import Settings
    from pytest_fib.report.compare import Baseline, Comparison
    from pytest_fib.report.rows import Row

    #: Pieces of one line, each with its terminal markup.
    Line = list[tuple[str, dict[str, bool]]]

_PLAIN: dict[str, bool] = {}
#: Stands before a time that is not known as well as it should be.
_NOISY = "~"
_COLOURS = {"PASSED": {"green": True}, "SKIPPED": {"yellow": True}}
_FAILED = {"red": True, "bold": True}
_VERDICTS = {"slower": {"red": True}, "faster": {"green": True}, "unclear": {"yellow": True}}
#: Widths of the columns: implementation, language, status.
_NAME, _LANGUAGE, _STATUS = 22, 9, 20
#: Of those in tables of times: implementation, workload.
_WHO, _WHAT = 20, 17
#: Columns of the terminal.
_WIDTH = 80


def header(config: pytest.Config, settings: Settings) -> list[str]:
    """``fib: device cpu, definitions in kernel_defs, traces to fib-traces.jsonl``."""
    from pytest_fib import session

    folders = ", ".join(settings.shown(folder) for folder in settings.definition_dirs)
    places = f"definitions in {folders}, traces to {settings.shown(settings.traces)}"
    lines = [f"fib: device {session.device(config)}, {places}"]
    if settings.isolation == "none":
        why = "--pdb" if config.option.usepdb else "--fib-isolation=none"
        lines.append(f"fib: kernels run in this process ({why}): nothing stops one that hangs")
    return lines + (_inferred(config, settings) if config.get_verbosity() > 0 else [])


def _inferred(config: pytest.Config, settings: Settings) -> list[str]:
    """What the definitions leave unsaid about their inputs, and what is made of that."""
    from pytest_fib import session
    from pytest_fib.workloads import plan

    lines = []
    for loaded in session.catalogue(config).definitions.values():
        for definition in (entry.definition for entry in loaded):
            made = plan(definition) if settings.wants_definition(definition.name) else None
            if made is not None and (made.problem or made.notes or made.unmade):
                unmade = [f"{name}: {reason}" for name, reason in made.unmade.items()]
                said = [made.problem] if made.problem else [*made.notes, *unmade]
                lines += [f"fib: what inputs of {definition.name} mean:"]
                lines += [line for sentence in said for line in _indented(sentence)]
    return lines


def _indented(sentence: str) -> list[str]:
    return wrap(sentence, 80, initial_indent="  ", subsequent_indent="    ")


def write_tables(
    terminal: pytest.TerminalReporter, rows: Iterable[Row], baseline: Baseline | None = None
) -> None:
    """Tables for each definition: how right each implementation is, how fast, how much faster."""
    verbose = terminal.verbosity > 0
    ordered = sorted(rows, key=lambda row: row.definition)
    for definition, group in groupby(ordered, key=lambda row: row.definition):
        terminal.section(definition, sep="-")
        placed = sorted(group, key=_place)
        for line in [*table(placed), *comparison_table(placed, baseline, verbose=verbose)]:
            for text, markup in line:
                terminal.write(text, **markup)
            terminal.line("")
        if terminal.verbosity > 0:
            for text in oracle_notes(placed):
                terminal.line(text)


def oracle_notes(rows: Sequence[Row]) -> list[str]:
    """Why a definition's expected values were not computed in float64, if they were not."""
    reasons = dict.fromkeys(row.no_oracle for row in rows if row.no_oracle)
    return [
        line
        for reason in reasons
        for line in textwrap.wrap(
            f"oracle: the reference's own precision, not float64: {reason}",
            80,
            subsequent_indent="  ",
        )
    ]


def write_comparison(
    terminal: pytest.TerminalReporter, rows: Iterable[Row], baseline: Baseline
) -> None:
    """How many times were compared, what came of it, and why others were not."""
    found = [row.against for row in rows if row.against is not None]
    for sentence in compare.tally(found, baseline.name):
        for line in textwrap.wrap(sentence, _WIDTH, subsequent_indent="  "):
            terminal.write_line(line)


def table(rows: Sequence[Row]) -> list[Line]:
    """The lines of one definition's table."""
    lines: list[Line] = [
        [
            (_columns("implementation", "language", "status"), _PLAIN),
            (f"{'max abs':>10}{'max rel':>10}", _PLAIN),
        ]
    ]
    lines += [_correctness(_deciding(list(group))) for _, group in _by_implementation(rows)]
    timed = [row for row in rows if row.kind == "bench"]
    if timed:
        titles = f"{'latency':>10}{'reference':>10}{'speed-up':>9}{'rate/s':>8}{'roof':>6}"
        lines += [[], [(_timed("implementation", "workload") + titles, _PLAIN)]]
        lines += [_timing(row) for row in timed]
        lines += _noise(timed)
    return lines + _traffic(timed)


def _noise(timed: Iterable[Row]) -> list[Line]:
    """How badly the times are known that were measured less well than was asked for."""
    half_widths = [
        (row.ci_ms[1] - row.ci_ms[0]) / 2 / row.latency_ms
        for row in timed
        if row.noisy and row.ci_ms and row.latency_ms
    ]
    if not half_widths:
        return []
    return [[(f"{_NOISY} noisy: the worst is known to within {percent(max(half_widths))}", _PLAIN)]]


def _traffic(timed: Iterable[Row]) -> list[Line]:
    """What each workload moves: by the reference's operations one by one, and by one kernel."""
    known = {row.label: row for row in timed if row.separate_bytes and row.least_bytes}
    if not known:
        return []
    titles = f"{'separate':>12}{'fused':>12}{'less':>8}{'operations':>13}"
    heading = f"{_cut('traffic of workload', _WHO + _WHAT - 4)}{titles}"
    return [[], [(heading, _PLAIN)], *(_moved(row) for row in known.values())]


def _moved(row: Row) -> Line:
    assert row.separate_bytes is not None
    assert row.least_bytes is not None
    less = percent(max(1 - row.least_bytes / row.separate_bytes, 0.0))
    operations = amount(row.flops, "FLOP") if row.flops else "-"
    figures = f"{amount(row.separate_bytes, 'B'):>12}{amount(row.least_bytes, 'B'):>12}"
    name = _cut(row.label.removeprefix("bench-"), _WHO + _WHAT - 4)
    return [(f"{name}{figures}{less:>8}{operations:>13}", _PLAIN)]


def comparison_table(
    rows: Sequence[Row], baseline: Baseline | None, *, verbose: bool = False
) -> list[Line]:
    """The times of one definition against earlier ones; nothing where none was compared."""
    pairs = [(row, row.against) for row in rows if row.against is not None]
    if baseline is None or all(found.before_ms is None for _, found in pairs):
        return []
    before = "best" if baseline.best else "before"
    titles = f"{before:>10}{'now':>10}{'change':>9}{'±':>6}"
    lines: list[Line] = [[], [(_timed("implementation", "workload") + titles, _PLAIN)]]
    for row, found in pairs:
        if found.before_ms is not None:
            lines += [_compared(row, found), *([_earlier(found)] if verbose else [])]
    return lines


def _compared(row: Row, found: Comparison) -> Line:
    assert found.before_ms is not None
    times = f"{duration(found.before_ms):>10}{duration(found.now_ms):>10}"
    change = f"{compare.shown_change(found.change):>9}{compare.shown_uncertainty(found):>6}"
    verdict = (f" {found.verdict}", _VERDICTS.get(found.verdict, _PLAIN))
    return [(_timed(row.implementation, row.label) + times + change, _PLAIN), verdict]


def _earlier(found: Comparison) -> Line:
    """Whose the earlier time is, and how it was taken."""
    facts = (found.solution, found.timestamp[:16].replace("T", " "), found.method)
    return [(_end(f"  against {', '.join(filter(None, facts))}", _WIDTH), _PLAIN)]


def _timed(implementation: str, label: str) -> str:
    return f"{_cut(implementation, _WHO)}{_cut(label.removeprefix('bench-'), _WHAT)}"


def _place(row: Row) -> tuple[str, list[tuple[str, int]]]:
    """Rows arrive as workers finish; ``batch=8`` comes before ``batch=32`` all the same."""
    parts = re.findall(r"(\D*)(\d*)", row.label)
    return row.implementation, [(text, int(number or 0)) for text, number in parts]


def _by_implementation(rows: Sequence[Row]) -> Iterable[tuple[str, Iterable[Row]]]:
    return groupby(rows, key=lambda row: row.implementation)


def _deciding(rows: list[Row]) -> Row:
    """The row that says most of an implementation: a failure, else the correctness search."""
    ranks = {"SKIPPED": 2, "PASSED": 1}
    return min(rows, key=lambda row: (ranks.get(row.status, 0), row.kind != "correctness"))


def _columns(name: str, language: str, status: str) -> str:
    return f"{_cut(name, _NAME)}{language:<{_LANGUAGE}}{status:<{_STATUS}}"


def _correctness(row: Row) -> Line:
    columns = _columns(row.implementation, row.language, "")[: _NAME + _LANGUAGE]
    status = (f"{row.status:<{_STATUS}}", _COLOURS.get(row.status, _FAILED))
    if row.status == "SKIPPED":
        return [(columns, _PLAIN), (row.status, status[1]), (f"  {_end(row.reason, 40)}", _PLAIN)]
    errors = (row.max_absolute_error, row.max_relative_error)
    return [(columns, _PLAIN), status, ("".join(f"{_error(e):>10}" for e in errors), _PLAIN)]


def _timing(row: Row) -> Line:
    columns = _timed(row.implementation, row.label)
    if row.latency_ms is None or row.reference_latency_ms is None or row.speedup_factor is None:
        markup = _COLOURS.get(row.status, _FAILED)
        room = _WIDTH - _WHO - _WHAT - len(row.status) - 2
        reason = f"  {_end(row.reason, room)}" if row.status in _COLOURS and row.reason else ""
        return [(columns, _PLAIN), (row.status, markup), (reason, _PLAIN)]
    latency = f"{_NOISY if row.noisy else ''}{duration(row.latency_ms)}"
    times = f"{latency:>10}{duration(row.reference_latency_ms):>10}"
    share = "-" if row.ceiling_share is None else percent(row.ceiling_share)
    return [(f"{columns}{times}{row.speedup_factor:>8.2f}x{_rate(row):>8}{share:>6}", _PLAIN)]


def _rate(row: Row) -> str:
    """Bytes or operations, of whichever there are too many for the device to be any faster."""
    if row.bound_by == "compute" and row.teraflops_per_second is not None:
        return amount(row.teraflops_per_second * 1e12, "F")
    if row.gigabytes_per_second is None:
        return "-"
    return amount(row.gigabytes_per_second * 1e9, "B")


def _error(value: float | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1e}" if isinstance(value, (int, float)) and value else str(value or 0)


def _cut(text: str, width: int) -> str:
    """Text in a column of that width, with at least one blank after it."""
    shown = text if len(text) < width else f"{text[: width - 2]}…"
    return f"{shown:<{width}}"


def _end(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
