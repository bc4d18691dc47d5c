"""What the fixture ``kernel_check`` leaves: traces, and workloads that failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_fib.discovery import FibWarning

if TYPE_CHECKING:
    from pytest_fib.data import LoadedDefinition, Trace, Workload
    from pytest_fib.plugin._options import Settings

_TRACES = pytest.StashKey[list[str]]()


class KernelCheckRecords:
    """Of the checks in one test."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item = item
        self._settings = settings

    def add(self, trace: Trace, loaded: LoadedDefinition | None) -> None:
        """Have a trace travel with the test's report."""
        file = "" if loaded is None else self._settings.shown(loaded.path)
        named = trace.model_copy(update={"definition_file": file})
        self._item.stash.setdefault(_TRACES, []).append(named.to_json_line())

    def keep(self, workload: Workload, loaded: LoadedDefinition) -> None:
        """With ``--fib-keep-failures``, record a workload beside its definition."""
        if not self._settings.keep_failures:
            return
        from pytest_fib.workloads import record_workload

        try:
            record_workload(workload, loaded, self._settings.datasets)
        except OSError as error:
            warning = FibWarning(f"the failing workload could not be recorded: {error}")
            self._item.warn(warning)


def attach_records(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put on a report what the checks in its phase of a test came to."""
    if traces := item.stash.get(_TRACES, []):
        report.fib = json.dumps({"traces": traces})  # type: ignore[attr-defined]
        item.stash[_TRACES] = []
