"""Traces on their way from an item's report to the JSONL file and the tables."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, TextIO

import pytest

from pytest_fib import baseline
from pytest_fib.report.rows import Row, row_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_fib.options import Settings


class Recorder:
    """In the controller only: writes each record as it arrives, and reports at the end."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._file: TextIO | None = None
        self.rows: list[Row] = []
        self.written = 0
        _refuse_unwritable(settings.traces)
        if settings.traces_given:
            self._file = _opened_first(settings.traces)

    def pytest_report_header(self) -> list[str]:
        """One line: where kernels run and what is recorded."""
        from pytest_fib.report.terminal import header

        return header(self._config, self._settings)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the report's traces; each line is flushed before the next test is reported."""
        payload = getattr(report, "fib", None)
        if payload is None:
            return
        facts = json.loads(payload)
        # Opened on the first kernel test only: a run without one leaves no file behind.
        self._file = self._file or _opened(self._settings.traces)
        traces = facts.pop("traces")
        for line in traces:
            self._file.write(line + "\n")
        self._file.flush()
        self.written += len(traces)
        records = [json.loads(line) for line in traces] or [None]
        self.rows += [row_of(facts, report.outcome, record) for record in records]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The tables."""
        from pytest_fib.report.terminal import write_comparison, write_tables

        if self.rows and terminalreporter.verbosity >= 0:
            earlier = baseline.of(self._config)
            write_tables(terminalreporter, self.rows, earlier)
            terminalreporter.currentfspath = None  # else there would be another empty line
            terminalreporter.line("")
            if earlier is not None:
                write_comparison(terminalreporter, self.rows, earlier)
            if self.written:
                where = self._settings.shown(self._settings.traces)
                records = "trace record" if self.written == 1 else "trace records"
                terminalreporter.write_line(f"{self.written} {records} in {where}")

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _refuse_unwritable(path: Path) -> None:
    """Raise UsageError now rather than lose the records of a whole run later."""
    existing = next(p for p in (path, *path.parents) if p.exists())
    if path.is_dir():
        problem = "is a directory"
    elif existing != path and not existing.is_dir():
        problem = f"can't be created: {existing} is a file"
    elif not os.access(existing, os.W_OK):
        problem = f"can't be written: no permission for {existing}"
    else:
        return
    raise pytest.UsageError(f"--fib-traces {path}: {problem}")


def _opened_first(path: Path) -> TextIO:
    """As _opened, before any test ran. Some refusals show only in the attempt."""
    try:
        return _opened(path)
    except OSError as error:
        raise pytest.UsageError(f"--fib-traces {path}: can't be written: {error}") from None


def _opened(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8")
