"""``--fib-select``: the few implementations to deploy for captured calls. No test runs."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING

import pytest

from pytest_fib.data import Selection, TraceSet, shortened
from pytest_fib.report import write_selections

if TYPE_CHECKING:
    from pytest_fib.plugin._options import Settings


class SelectionRun:
    """A run that reads a dataset and shows what to choose from it. Raises UsageError."""

    def __init__(self, settings: Settings) -> None:
        assert settings.select is not None
        self._settings = settings
        self._path = settings.place(settings.select)
        try:
            self._trace_set = TraceSet.load(self._path)
        except (OSError, ValueError) as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            if isinstance(error, ValueError) and self._path.suffix == ".jsonl":
                why = "is no dataset but records; python -m pytest_fib traces merge makes one"
            message = settings.readable(f"--fib-select={settings.select}: {why}")
            raise pytest.UsageError(message) from None
        names = self._trace_set.definitions
        self._names = [name for name in names if settings.wants_definition(name)]

    def pytest_report_header(self) -> str:
        return f"fib: choosing by the calls and times in {self._settings.shown(self._path)}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool:
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """It is no failure that no test ran."""
        session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The implementations of each definition, and what they save."""
        selections = list(self._selections())
        candidates = {name: len(self._trace_set.solutions[name]) for name in self._names}
        width = terminalreporter.config.get_terminal_writer().fullwidth
        write_selections(terminalreporter, selections, candidates, width)
        chosen = {selection.definition for selection in selections}
        without = [name for name in self._names if name not in chosen]
        captured = [name for name in without if self._trace_set.counts(name)]
        if uncaptured := [name for name in without if name not in captured]:
            names = shortened(uncaptured)
            terminalreporter.write_line(f"no calls of {names} were captured: enable_tracing does")
        if captured:
            self._write_how_to_time(terminalreporter, shortened(captured))

    def _write_how_to_time(self, terminal: pytest.TerminalReporter, names: str) -> None:
        settings = self._settings
        path, traces = map(quote, map(settings.shown, (self._path, settings.traces)))
        terminal.write_line(f"nothing was timed on captured workloads of {names}; to time them:")
        terminal.write_line(f"  pytest --fib-dataset={path} --fib-bench")
        terminal.write_line(f"  python -m pytest_fib traces merge {path} {traces} -o {path}")

    def _selections(self) -> Iterator[Selection]:
        for name in self._names:
            weights = self._trace_set.counts(name)
            for hardware in self._trace_set.hardware(name) if weights else ():
                selection = self._trace_set.best(name, hardware=hardware, weights=weights)
                if selection is not None:
                    yield selection
