"""Which implementations serve captured calls, and what they save of the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_fib.report._layout import Line, Table, unmarked, write_table
from pytest_fib.report._units import duration, percent

if TYPE_CHECKING:
    import pytest

    from pytest_fib.data import Selection

_TITLES = ("implementation", "calls", "reference", "chosen", "saved of all")


def write_selections(
    terminal: pytest.TerminalReporter,
    selections: Sequence[Selection],
    candidates: Mapping[str, int],
    width: int,
) -> None:
    """A table for each device; ``candidates`` is how many implementations a definition has."""
    by_hardware = sorted(selections, key=lambda each: (each.hardware, each.definition))
    for hardware, group in groupby(by_hardware, key=lambda each: each.hardware):
        terminal.section(hardware, sep="-")
        of_device = list(group)
        write_table(terminal, Table([Line(unmarked(*_TITLES)), *_lines(of_device)], 1, 1), width)
        terminal.line("")
        for sentence in _sentences(of_device, candidates):
            terminal.write_line(sentence)


def _lines(selections: Sequence[Selection]) -> Iterator[Line]:
    captured = sum(each.reference_ms or 0.0 for each in selections)
    for each in selections:
        yield Line(unmarked(each.definition, f"{each.calls:,}", *_times(each, captured)))
        for name, served in each.served.items():
            yield Line(
                unmarked(f"  {name}", f"{served.calls:,}", "", duration(served.milliseconds))
            )


def _times(selection: Selection, captured: float) -> tuple[str, str, str]:
    total = selection.total_ms
    if selection.reference_ms is None:
        return "-", duration(total), "-"
    saved = (selection.reference_ms - total) / captured
    return duration(selection.reference_ms), duration(total), _signed(saved)


def _sentences(selections: Sequence[Selection], candidates: Mapping[str, int]) -> Iterator[str]:
    chosen = sum(len(each.served) for each in selections)
    there = sum(candidates[each.definition] for each in selections)
    total = sum(each.total_ms for each in selections)
    best = sum(each.best_ms for each in selections)
    less = percent(1 - best / total)
    yield f"{chosen} of {there} implementations; all of them would take {less} less time"
    timed = [each for each in selections if each.reference_ms]
    if before := sum(each.reference_ms or 0.0 for each in timed):
        saved = 1 - sum(each.total_ms for each in timed) / before
        yield f"saved of the references' time for all captured calls: {_signed(saved)}"
    for each in selections:
        if each.unmeasured:
            yield f"{each.definition}: {each.unmeasured:,} calls at shapes where nothing was timed"


def _signed(share: float) -> str:
    """``-28 %`` of what takes longer than before."""
    return f"-{percent(-share)}" if share < 0 else percent(share)
