"""What ``kernel_check`` leaves in tests written by hand: traces, and workloads that failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_fib.plugin import _failure_cache as failure_cache

if TYPE_CHECKING:
    from pytest_fib.data import LoadedDefinition, Trace, Workload
    from pytest_fib.plugin._options import Settings

_TRACES = pytest.StashKey[list[str]]()


class KernelCheckRecords:
    """Traces and failed workloads of the checks in one test."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item = item
        self._settings = settings

    def add(self, trace: Trace, loaded: LoadedDefinition | None) -> None:
        """Add a trace, which travels with the test's report."""
        file = "" if loaded is None else self._settings.shown(loaded.path)
        named = trace.model_copy(update={"definition_file": file})
        self._item.stash.setdefault(_TRACES, []).append(named.to_json_line())

    def keep(self, workload: Workload, loaded: LoadedDefinition) -> None:
        """With ``--fib-keep-failures``, record a workload beside its definition."""
        if self._settings.keep_failures:
            failure_cache.record(self._item, workload, loaded, self._settings)


def attach_records(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put the traces of the checks in this phase of a test on its report."""
    traces = item.stash.get(_TRACES, [])
    if traces or report.failed:
        report.fib = json.dumps({"traces": traces})  # type: ignore[attr-defined]
        item.stash[_TRACES] = []
