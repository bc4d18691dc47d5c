"""Takes traces from items' reports to the JSONL file and the tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fib.plugin._device_uses import DeviceUses
from pytest_fib.plugin._trace_file import TraceFile
from pytest_fib.report import Row

if TYPE_CHECKING:
    from pytest_fib.plugin._options import Settings

#: pytest's own outcomes. Any other is from a plugin that reruns the item: "rerun", "retried".
_FINAL = ("passed", "failed", "skipped", "error", "xfailed", "xpassed")


class Recorder:
    """Writes each trace record as its report arrives, and keeps the rows of the tables."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.file = TraceFile(settings.traces)
        self._config = config
        self._rows: dict[str, list[Row]] = {}
        #: Failed tests that were written by hand.
        self._by_hand: dict[str, Row] = {}
        self._reruns: Counter[str] = Counter()
        self.device_uses = DeviceUses()
        #: Traces of items that may run again.
        self._undecided: dict[str, list[str]] = {}
        # Else it is opened on the first kernel test, so that a run without one leaves no file.
        if settings.traces_file is not None:
            self._open_before_any_test(settings.traces)

    @property
    def rows(self) -> list[Row]:
        return self.rows_of(lambda nodeid: True)

    @property
    def failures_by_hand(self) -> list[Row]:
        """The failures of tests written by hand that check kernels, in the order of their ends."""
        return list(self._by_hand.values())

    def rows_of(self, wanted: Callable[[str], bool]) -> list[Row]:
        return [row for nodeid, rows in self._rows.items() if wanted(nodeid) for row in rows]

    def add(self, report: pytest.TestReport) -> None:
        """Add an item's outcome. If a plugin runs it several times, the last run counts."""
        if report.when == "setup":
            self._undecided.pop(report.nodeid, None)
            self._by_hand.pop(report.nodeid, None)
            if self._rows.pop(report.nodeid, None) is not None:
                self._reruns[report.nodeid] += 1
        payload = getattr(report, "fib", None)
        if payload is None:
            return
        item = json.loads(payload)
        traces = item.pop("traces")
        category = self._category(report)
        if category in _FINAL:
            self.file.add(traces, f"after {report.nodeid}")
        else:
            self._undecided[report.nodeid] = traces
        if not item:  # a test that somebody wrote by hand has a name of its own in pytest's report
            if category == "failed":
                self._by_hand[report.nodeid] = _failure_by_hand(report)
            return
        self.device_uses.add(report.nodeid, item.pop("device_use"), report.duration)
        reason = _reason(report) or ("" if traces else _end_of(report))
        item |= {"reason": reason, "reruns": self._reruns[report.nodeid]}
        records = [json.loads(line) for line in traces] or [None]
        rows = [Row.of(item, category, record) for record in records]
        self._rows.setdefault(report.nodeid, []).extend(rows)

    def finish(self) -> None:
        """Write the records of items whose rerun did not happen; complete the file."""
        for nodeid, traces in self._undecided.items():
            self.file.add(traces, f"after {nodeid}")
        self.file.finish()

    def _category(self, report: pytest.TestReport) -> str:
        status = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        return status[0] if status else report.outcome

    def _open_before_any_test(self, path: Path) -> None:
        """Raise UsageError if the file can't be opened."""
        try:
            self.file.open()
        except OSError as error:
            message = f"--fib-traces {path}: can't be written: {error}"
            raise pytest.UsageError(message) from None


def _reason(report: pytest.TestReport) -> str:
    """Why an item was skipped or xfailed; the phase of an error outside of the test."""
    reason: Any = getattr(report, "wasxfail", "")
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
    elif report.failed and report.when != "call":
        reason = f"error in {report.when}"
    return str(reason)


def _failure_by_hand(report: pytest.TestReport) -> Row:
    """A failure with the place that raised it: in the kernel, or in the line that checks it."""
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    place = (str(crash.path), crash.lineno) if crash is not None else ("", 0)
    paragraph = str(getattr(crash, "message", "")).partition("\n\n")[0]
    sentence = " ".join(paragraph.split()).removeprefix("AssertionError: ")
    status, _, reason = sentence.partition(": ")
    return Row.untabled(*place, item=report.nodeid, status=status, reason=reason)


def _end_of(report: pytest.TestReport) -> str:
    """Why an item that left no record ended."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(getattr(crash, "message", "")).partition("\n")[0]
