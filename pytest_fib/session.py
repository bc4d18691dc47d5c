"""What one pytest run shares between its items, and the checks before it starts."""

from __future__ import annotations

import difflib
import os
import sys
from contextlib import nullcontext
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fib import _devices, baseline
from pytest_fib.artifacts import Recorder
from pytest_fib.implementations import Catalogue, find_implementations, load_catalogue
from pytest_fib.options import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_fib.engine import Judge
    from pytest_fib.options import Settings

_CATALOGUE = pytest.StashKey[Catalogue]()
_WARNED = pytest.StashKey[bool]()
_JUDGE = pytest.StashKey["Judge"]()


def join(config: pytest.Config, settings: Settings) -> None:
    """Check the settings, and register what reports and what binds workers to GPUs.

    Raises pytest.UsageError before any test runs.
    """
    if is_worker(config):
        _narrow(config, settings)  # a worker reads the command line anew
        baseline.load(config, settings, ())
        return
    if settings.device == "cuda" and _devices.count() == 0:
        raise pytest.UsageError(f"--fib-device cuda: {_devices.why_none()}")
    _refuse_bad_paths(settings)
    _refuse_bad_workload(settings)
    _refuse_idle_comparison(settings)
    _narrow(config, settings)
    if settings.selective:
        _refuse_empty_selection(config, settings)
    if settings.compare is not None:  # before the recorder replaces what may be the same file
        selected = filter(settings.wants_definition, catalogue(config).names)
        baseline.load(config, settings, selected)
    config.pluginmanager.register(Recorder(config, settings), "fib-recorder")
    if config.pluginmanager.has_plugin("xdist") and settings.device != "cpu":
        config.pluginmanager.register(_devices.Binding(), "fib-devices")


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def catalogue(config: pytest.Config) -> Catalogue:
    """The definitions and implementations of this run, read once per process."""
    if _CATALOGUE not in config.stash:
        settings = config.stash[SETTINGS]
        loaded = load_catalogue(
            [
                _definition_files(folders, settings)
                for folders in (
                    settings.definition_dirs,
                    *zip(settings.dataset_dirs("definitions"), strict=True),
                )
            ],
            find_implementations(
                (*settings.implementation_dirs, *settings.dataset_dirs("solutions"))
            ),
        )
        config.stash[_CATALOGUE] = loaded
    return config.stash[_CATALOGUE]


def strays(config: pytest.Config) -> list[str]:
    """Sentences on implementations of nothing; once in a run, by its first process."""
    if config.stash.get(_WARNED, False) or (is_worker(config) and worker_id(config) != "gw0"):
        return []
    config.stash[_WARNED] = True
    return catalogue(config).strays()


def worker_id(config: pytest.Config) -> str:
    """``gw0``, ``gw1``, ... in a worker of pytest-xdist."""
    return str(config.workerinput["workerid"])  # type: ignore[attr-defined]


def judge(config: pytest.Config) -> Judge:
    """The judge of this process, opened on first use and closed with the run."""
    if _JUDGE not in config.stash:
        from pytest_fib.engine import Judge

        settings = config.stash[SETTINGS]
        announce = partial(_announce, config)
        config.stash[_JUDGE] = Judge(device(config), settings.isolation, announce)
        config.add_cleanup(config.stash[_JUDGE].close)
    return config.stash[_JUDGE]


def device(config: pytest.Config) -> str:
    """``cpu`` or ``cuda``: where kernels run in this process."""
    asked = config.stash[SETTINGS].device
    if asked == "auto":
        return "cuda" if _devices.count() else "cpu"
    return asked


def _narrow(config: pytest.Config, settings: Settings) -> None:
    """With no path on the command line, a selection of kernels collects kernels only.

    Datasets are collected besides, wherever they are.
    """
    datasets = [str(folder) for folder in settings.dataset_dirs("definitions")]
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        config.args += [d for d in datasets if not any(a.startswith(d) for a in config.args)]
        return
    if not (settings.selective or settings.definition_dirs_given):
        config.args += datasets
        return
    existing = [str(folder) for folder in settings.definition_dirs if folder.is_dir()]
    if not existing and not datasets:
        tried = ", ".join(settings.shown(folder) for folder in settings.definition_dirs)
        where = "set fib_defs in the ini file or give --fib-defs DIR"
        raise pytest.UsageError(f"no definition directory: {tried} does not exist; {where}")
    config.args[:] = existing + datasets


def _refuse_bad_paths(settings: Settings) -> None:
    """A directory that the command line names and that is not there is a slip of the pen."""
    for option, given, folders in (
        ("--fib-defs", settings.definition_dirs_given, settings.definition_dirs),
        ("--fib-impls", settings.implementation_dirs_given, settings.implementation_dirs),
        ("--fib-dataset", bool(settings.datasets), settings.dataset_dirs("definitions")),
    ):
        for folder in folders if given else ():
            if not folder.is_dir():
                raise pytest.UsageError(f"{option} {settings.shown(folder)}: no such directory")


def _refuse_bad_workload(settings: Settings) -> None:
    if settings.workload is None:
        return
    from pytest_fib.workloads import parse_workload

    try:
        parse_workload(settings.workload)
    except ValueError as error:
        raise pytest.UsageError(f"--fib-workload: {error}") from None


def _refuse_idle_comparison(settings: Settings) -> None:
    """Options that would compare nothing, so that a check in CI would pass whatever happens."""
    if settings.fail_on is not None and settings.compare is None:
        raise pytest.UsageError("--fib-fail-on: with what? give --fib-compare=TRACES too")
    if settings.compare is not None and not settings.bench:
        raise pytest.UsageError("--fib-compare: nothing is timed; give --fib-bench too")


def _refuse_empty_selection(config: pytest.Config, settings: Settings) -> None:
    known = catalogue(config)
    if any(settings.may_want_definition(pattern) for pattern in known.broken.values()):
        return  # what is wrong with those files is shown when they are collected
    for glob in settings.definitions:
        _refuse_unmatched("--fib-definition", glob, known.names)
    selected = [name for name in known.names if settings.wants_definition(name)]
    names = sorted({i.name for name in selected for i in known.implementations_of(name)})
    for glob in settings.implementations:
        _refuse_unmatched("--fib-implementation", glob, names)
    if not names:
        folders = ", ".join(settings.shown(folder) for folder in settings.implementation_dirs)
        shown = _shortened(selected) or "anything"
        raise pytest.UsageError(f"nothing under {folders} implements {shown}")


def _refuse_unmatched(option: str, glob: str, names: Sequence[str]) -> None:
    if any(fnmatchcase(name, glob) for name in names):
        return
    near = difflib.get_close_matches(glob, names, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    listed = _shortened(names) or "none"
    raise pytest.UsageError(f"{option} {glob}: matches nothing; {hint}there are: {listed}")


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")


def _definition_files(directories: Iterable[Path], settings: Settings) -> Iterator[Path]:
    for directory in directories:
        for folder, subfolders, names in os.walk(directory):
            subfolders.sort()
            paths = (Path(folder, name) for name in sorted(names))
            yield from filter(settings.is_definition_file, paths)


def _announce(config: pytest.Config, message: str) -> None:
    """Say something at once, past pytest's capture; workers share the controller's stderr."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print(f"\nfib: {message}", file=sys.__stderr__, flush=True)
