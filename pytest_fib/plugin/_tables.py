"""Writes a definition's tables under xdist as soon as all its items have ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_fib.report import Baseline, Row, write_tables

if TYPE_CHECKING:
    from pytest_fib.plugin._recorder import Recorder


class Tables:
    """Writes each definition's tables once: when it is done, or at the end of the run."""

    def __init__(
        self, config: pytest.Config, recorder: Recorder, width: int, baseline: Baseline | None
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._width = width
        self._baseline = baseline
        #: The items that have not ended, by file and definition: those of all workers are the same.
        self._left: dict[str, set[str]] = {}
        self._written: set[str] = set()
        #: The items that failed and will be rerun by a plugin.
        self._to_rerun: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the items to wait for."""
        if self._left:
            return
        left = defaultdict(set)
        for nodeid in ids:
            left[_definition(nodeid)].add(nodeid)
        self._left = dict(left)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the items that will be rerun."""
        if report.outcome not in ("passed", "failed", "skipped"):  # one of plugins, as "rerun"
            self._to_rerun.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """After the last item of a definition, write its tables."""
        if nodeid in self._to_rerun:
            self._to_rerun.remove(nodeid)
            return
        definition = _definition(nodeid)
        left = self._left.get(definition, set())
        left.discard(nodeid)
        if definition in self._left and not left and definition not in self._written:
            self._written.add(definition)
            self._write(self._recorder.rows_of(lambda other: _definition(other) == definition))

    def write_rest(self) -> None:
        """Write the tables of definitions with items that did not end."""
        self._write(self._recorder.rows_of(lambda nodeid: _definition(nodeid) not in self._written))

    def _write(self, rows: Sequence[Row]) -> None:
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if rows and terminal.verbosity >= 0:
            terminal.ensure_newline()
            if self._config.get_terminal_writer().width_of_current_line:
                terminal.line("")  # the workers' dots, which the terminal reporter doesn't count
            write_tables(terminal, rows, self._width, self._baseline)


def _definition(nodeid: str) -> str:
    """The file and the name of the definition in an item's id."""
    return nodeid.partition("[")[0]
