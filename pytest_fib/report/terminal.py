"""The header line and the tables, at 80 columns."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    from pytest_fib.options import Settings
    from pytest_fib.report.rows import Row

    #: Pieces of one line, each with its terminal markup.
    Line = list[tuple[str, dict[str, bool]]]

_PLAIN: dict[str, bool] = {}
_COLOURS = {"PASSED": {"green": True}, "SKIPPED": {"yellow": True}}
_FAILED = {"red": True, "bold": True}
#: Widths of the columns: implementation, language, status.
_NAME, _LANGUAGE, _STATUS = 22, 9, 20


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


def write_tables(terminal: pytest.TerminalReporter, rows: Iterable[Row]) -> None:
    """A table for each definition: how right each implementation is, then how fast."""
    ordered = sorted(rows, key=lambda row: row.definition)
    for definition, group in groupby(ordered, key=lambda row: row.definition):
        terminal.section(definition, sep="-")
        found = sorted(group, key=_place)
        for line in table(found):
            for text, markup in line:
                terminal.write(text, **markup)
            terminal.line("")
        if terminal.verbosity > 0:
            for text in oracle_notes(found):
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
        titles = f"{'latency':>11}{'reference':>11}{'speed-up':>10}{'GB/s':>8}"
        lines += [[], [(f"{'implementation':<{_NAME}}{'workload':<18}{titles}", _PLAIN)]]
        lines += [_timing(row) for row in timed]
    return lines


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
    columns = f"{_cut(row.implementation, _NAME)}{_cut(row.label.removeprefix('bench-'), 18)}"
    if row.latency_ms is None or row.reference_latency_ms is None or row.speedup_factor is None:
        markup = _COLOURS.get(row.status, _FAILED)
        reason = f"  {_end(row.reason, 29)}" if row.status == "SKIPPED" else ""
        return [(columns, _PLAIN), (row.status, markup), (reason, _PLAIN)]
    times = f"{duration(row.latency_ms):>11}{duration(row.reference_latency_ms):>11}"
    rates = f"{row.speedup_factor:>9.2f}x{_rate(row.gigabytes_per_second):>8}"
    return [(columns + times + rates, _PLAIN)]


def duration(milliseconds: float) -> str:
    """Three significant digits, in µs or ms or s: ``12.3 µs``."""
    for limit, factor, unit in ((1, 1e3, "µs"), (1e3, 1, "ms")):
        if milliseconds < limit:
            return f"{_three_digits(milliseconds * factor)} {unit}"
    return f"{_three_digits(milliseconds / 1e3)} s"


def _rate(gigabytes: float | None) -> str:
    return "-" if gigabytes is None else _three_digits(gigabytes)


def _three_digits(number: float) -> str:
    decimals = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{decimals}f}"


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
