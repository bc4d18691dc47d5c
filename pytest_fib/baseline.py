"""The earlier times of ``--fib-compare``: read once for all processes, before any is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_fib.options import BEST
from pytest_fib.report.compare import Baseline, Timed, read_times

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_fib.options import Settings

_BASELINE = pytest.StashKey[Baseline]()
#: Its key in what the controller tells a worker of pytest-xdist.
_TOLD = "fib_baseline"


def of(config: pytest.Config) -> Baseline | None:
    """What this run is compared with."""
    return config.stash.get(_BASELINE, None)


def load(config: pytest.Config, settings: Settings, names: Iterable[str]) -> None:
    """Read the times of these definitions, and have workers told. Raises UsageError.

    In a worker, take what the controller read: the file may be this run's by now.
    """
    told = getattr(config, "workerinput", {}).get(_TOLD)
    if told is not None:
        config.stash[_BASELINE] = Baseline.from_json(told)
    elif settings.compare is not None:
        config.stash[_BASELINE] = found = _read(settings, settings.compare, set(names))
        config.pluginmanager.register(_Telling(found), "fib-baseline")


class _Telling:
    """Tells workers, which may be on another machine."""

    def __init__(self, baseline: Baseline) -> None:
        self._text = baseline.to_json()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Before a worker starts."""
        node.workerinput[_TOLD] = self._text  # type: ignore[attr-defined]


def _read(settings: Settings, given: str, names: set[str]) -> Baseline:
    shown = f"--fib-compare={given}"
    paths = _known(settings) if given == BEST else [settings.place(given)]
    try:
        records = [record for path in paths for record in read_times(path)]
    except FileNotFoundError as error:
        raise pytest.UsageError(f"{shown}: no such file or directory") from error
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"{shown}: can't be read: {error}") from error
    ours = [record for record in records if record.definition in names]
    if not ours:
        raise pytest.UsageError(f"{shown}: {_nothing(records, paths, settings)}")
    return Baseline("the best known" if given == BEST else given, ours, best=given == BEST)


def _known(settings: Settings) -> list[Path]:
    """Where earlier runs left their traces: in the datasets, and in the file of the last run."""
    places = [*settings.dataset_dirs("traces"), settings.traces]
    return [place for place in places if place.exists()]


def _nothing(records: list[Timed], paths: list[Path], settings: Settings) -> str:
    if records:
        has = ", ".join(sorted({record.definition for record in records}))
        return f"no times of the selected definitions; it has those of: {has}"
    if not paths:
        return f"there are no earlier traces: {settings.shown(settings.traces)} does not exist"
    where = ", ".join(settings.shown(path) for path in paths)
    return f"no times in {where}; run with --fib-bench to record some"
