"""Checks before a run. Each raises pytest.UsageError, which says what is wrong and what to do."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fib.build import gpus, why_not_architecture
from pytest_fib.walls import why_no_container

if TYPE_CHECKING:
    from pytest_fib.discovery import Catalogue
    from pytest_fib.plugin._options import Settings


def check_options(settings: Settings) -> None:
    """Check what needs no definition to be read."""
    _check_device(settings)
    _check_isolation(settings)
    _check_directories(settings)
    _check_workload(settings)
    _check_comparison(settings)
    _check_shard(settings)
    _check_summary(settings)
    _check_targets(settings)
    _check_writable(f"--fib-traces {settings.traces}", settings.traces, folder=False)
    if settings.cache is not None:
        _check_writable(f"--fib-cache-dir {settings.cache}", settings.cache, folder=True)


def check_selection(settings: Settings, load_catalogue: Callable[[], Catalogue]) -> None:
    """Refuse names and globs on the command line that match nothing."""
    if not settings.selective:
        return
    catalogue = load_catalogue()
    if any(settings.may_want_definition(file.names) for file in catalogue.broken.values()):
        return  # what is wrong with those files is shown when they are collected
    for glob in settings.definitions:
        _check_glob("--fib-definition", glob, catalogue.names)
    selected = [name for name in catalogue.names if settings.wants_definition(name)]
    names = sorted({i.name for name in selected for i in catalogue.implementations_of(name)})
    for glob in settings.implementations:
        if not fnmatchcase("reference", glob):  # each definition's own
            _check_glob("--fib-implementation", glob, names)
    if not names and settings.impls:
        from pytest_fib.data import shortened

        folders = ", ".join(settings.shown(folder) for folder in settings.implementation_dirs)
        raise pytest.UsageError(f"nothing in {folders} implements {shortened(selected)}")


def _check_glob(option: str, glob: str, names: Sequence[str]) -> None:
    if any(fnmatchcase(name, glob) for name in names):
        return
    from pytest_fib.data import shortened

    near = difflib.get_close_matches(glob, names, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise pytest.UsageError(
        f"{option} {glob or repr(glob)} matches nothing; {hint}there are: {shortened(names)}"
    )


def _check_device(settings: Settings) -> None:
    if not settings.is_remote and settings.device == "cuda" and gpus.count() == 0:
        raise pytest.UsageError(f"--fib-device cuda: {gpus.why_none()}")


def _check_isolation(settings: Settings) -> None:
    """Check that containers work here; a remote machine checks that itself."""
    if settings.isolation == "none" and settings.is_remote:
        option = "--fib-remote" if settings.ray is None else "--fib-ray"
        raise pytest.UsageError(
            f"--fib-isolation=none (and --pdb) run kernels in this process, {option} on another "
            "machine: give one of them"
        )
    if settings.ray is not None and settings.remote:
        raise pytest.UsageError("--fib-ray and --fib-remote: kernels run in one place; give one")
    if settings.isolation != "container" or settings.is_remote:
        return
    on_cpu = settings.device == "cpu" or gpus.count() == 0
    if why := why_no_container("cpu" if on_cpu else "cuda"):
        raise pytest.UsageError(f"--fib-isolation=container{why}")


def _check_directories(settings: Settings) -> None:
    """Check that the directories on the command line exist and that datasets are datasets."""
    for dataset in settings.datasets:
        if not (dataset / "definitions").is_dir():
            there = "it has no folder definitions" if dataset.is_dir() else "no such directory"
            root = next((f for f in dataset.parents if (f / "definitions").is_dir()), None)
            hint = f"; did you mean {settings.shown(root)}?" if root else ""
            raise pytest.UsageError(f"--fib-dataset {settings.shown(dataset)}: {there}{hint}")
    for option, folders in (
        ("--fib-defs", settings.definition_dirs if settings.defs else ()),
        ("--fib-impls", settings.implementation_dirs if settings.impls else ()),
    ):
        for folder in folders:
            if not folder.is_dir():
                raise pytest.UsageError(f"{option} {settings.shown(folder)}: no such directory")


def _check_workload(settings: Settings) -> None:
    if settings.workload is None:
        return
    from pytest_fib.workloads import parse_workload

    try:
        parse_workload(settings.workload)
    except ValueError as error:
        raise pytest.UsageError(f"--fib-workload: {error}") from None


def _check_comparison(settings: Settings) -> None:
    """Refuse options that would compare nothing: a check in CI would always pass."""
    if settings.fail_on is not None and settings.compare is None:
        raise pytest.UsageError("--fib-fail-on needs --fib-compare=TRACES to compare times with")
    if settings.compare is not None and not settings.bench:
        raise pytest.UsageError("--fib-compare needs --fib-bench: without it nothing is timed")


def _check_shard(settings: Settings) -> None:
    if settings.shard_by is not None and settings.shard is None:
        raise pytest.UsageError("--fib-shard-by needs --fib-shard=I/N, which part to run")


def _check_summary(settings: Settings) -> None:
    if settings.github_summary and not os.environ.get("GITHUB_STEP_SUMMARY"):
        raise pytest.UsageError(
            "--fib-github-summary: GITHUB_STEP_SUMMARY, which GitHub sets in a job, is not set"
        )


def _check_targets(settings: Settings) -> None:
    for problem in filter(None, map(why_not_architecture, settings.targets)):
        raise pytest.UsageError(f"--fib-target: {problem}")


def _check_writable(option: str, path: Path, *, folder: bool) -> None:
    """Check now: else every item fails, or the records of a whole run are lost at its end."""
    existing: Path = next(p for p in (path, *path.parents) if p.exists())
    if existing == path and existing.is_dir() is not folder:
        problem = "is a file" if folder else "is a directory"
    elif existing != path and not existing.is_dir():
        problem = f"can't be created: {existing} is a file"
    elif not os.access(existing, os.W_OK):
        problem = f"can't be written: no permission for {existing}"
    else:
        return
    raise pytest.UsageError(f"{option}: {problem}")
