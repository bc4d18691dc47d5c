"""The earlier times that ``--fib-compare`` names."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import pytest

from pytest_fib.plugin._options import BEST, Settings
from pytest_fib.report import Baseline, TimeRecord, read_times


def read_baseline(settings: Settings, source: str, names: Container[str]) -> Baseline:
    """The earlier times of the definitions with these names. Raises UsageError."""
    best, option = source == BEST, f"--fib-compare={source}"
    paths = _traces_of_earlier_runs(settings) if best else [settings.place(source)]
    try:
        records = [record for path in paths for record in read_times(path)]
    except FileNotFoundError as error:
        raise pytest.UsageError(f"{option}: no such file or directory") from error
    except (OSError, ValueError) as error:
        message = settings.readable(f"{option}: can't be read: {error}")
        raise pytest.UsageError(message) from error
    selected = [record for record in records if record.definition in names]
    if not selected:
        reason = settings.readable(_why_none(records, paths, settings))
        raise pytest.UsageError(f"{option}: {reason}")
    return Baseline("the best known" if best else source, selected, best=best)


def _traces_of_earlier_runs(settings: Settings) -> list[Path]:
    places = [*settings.dataset_dirs("traces"), settings.traces]
    return [place for place in places if place.exists()]


def _why_none(records: list[TimeRecord], paths: list[Path], settings: Settings) -> str:
    if records:
        has = ", ".join(sorted({record.definition for record in records}))
        return f"no times of the selected definitions, only of: {has}"
    if not paths:
        return f"there are no earlier traces: {settings.shown(settings.traces)} does not exist"
    where = ", ".join(settings.shown(path) for path in paths)
    return f"no times in {where}; run with --fib-bench to record some"
