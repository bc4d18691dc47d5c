"""The lines on kernels in pytest's header."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import pytest

from pytest_fib.walls import wall_names

if TYPE_CHECKING:
    from pytest_fib.plugin._session import Session


def header(session: Session) -> list[str]:
    """``fib: device cpu, definitions in kernel_defs, traces to fib-traces.jsonl``."""
    config, settings = session.config, session.settings
    folders = ", ".join(map(settings.shown, session.folders or settings.definition_dirs))
    where = f"definitions in {folders}, traces to {settings.shown(settings.traces)}"
    lines = [f"fib: device {session.device}, {where}", *_missing(session)]
    if session.remote is not None:
        lines += session.remote.header()
    if settings.isolation == "none":
        debugger = "--pdb" * config.option.usepdb or "--trace" * config.option.trace
        why = debugger or "--fib-isolation=none"
        lines.append(f"fib: {why} runs kernels in this process; a crash ends the run")
    else:
        of_machine = wall_names() if session.machine is None else session.machine.walls
        walls = ["container"] * (settings.isolation == "container") + [*of_machine]
        shown = ", ".join(walls) or "processes that this system can't restrict"
        lines.append(f"fib: sandbox: {shown}")
    if settings.shard is not None:
        lines.append(f"fib: {_shard(session)}")
    if settings.workload is None:
        lines.append(f"fib: {_drawn_from(*session.seeds, given=settings.seeds is not None)}")
    says_inferred = config.get_verbosity() > 0 and not settings.explain_inputs  # which shows it
    return lines + (list(_inferred(session)) if says_inferred else [])


def _missing(session: Session) -> Iterator[str]:
    """Say what is missing, and what to do."""
    settings = session.settings
    folders = ", ".join(settings.shown(folder) for folder in settings.definition_dirs)
    if not settings.datasets and not session.has_definition_files:
        yield f"fib: no definitions in {folders}: a definition is a YAML file there"
    elif what := _collects_others_only(session):
        relative = " ".join(os.path.relpath(each, settings.start) for each in session.folders)
        yield f"fib: no kernel is collected: {folders} is not {what}; pytest {relative} does"
    for path in session.unread_definitions():
        shown = settings.shown(path)
        yield f"fib: {shown} is not read: definitions there are YAML, which JSON is; rename it"
    if not settings.datasets and not any(
        folder.is_dir() for folder in settings.implementation_dirs
    ):
        tried = ", ".join(settings.shown(folder) for folder in settings.implementation_dirs)
        yield (
            f"fib: no implementations: {tried} does not exist; make it, set fib_impls in the ini "
            "file, or give --fib-impls=DIR"
        )


def _collects_others_only(session: Session) -> str:
    """The collected folders that have no definitions, in words.

    None if the user named anything but folders of implementations.
    """
    source, config = pytest.Config.ArgsSource, session.config
    paths = list(map(session.settings.place, config.args))
    if config.args_source is source.ARGS:
        kernels = session.settings.implementation_dirs
        named = all(any(p.is_relative_to(k) for k in kernels) for p in paths)
        only = named and not any(p.is_relative_to(f) for f in session.folders for p in paths)
        return "among the arguments" if only else ""
    if any(f.is_relative_to(p) or p.is_relative_to(f) for f in session.folders for p in paths):
        return ""
    return "among testpaths" if config.args_source is source.TESTPATHS else "below this folder"


def unimplemented(names: Sequence[str]) -> str:
    """``fib: 2 definitions have no implementation: a, b``."""
    from pytest_fib.data import shortened

    have = "definition has" if len(names) == 1 else "definitions have"
    return f"fib: {len(names)} {have} no implementation: {shortened(names)}"


def untestable(problems: Sequence[str]) -> Iterator[str]:
    """``fib: 2 implementations can't be tested: a.py:3: ...``, the first problem for all."""
    if problems:
        what = "1 implementation" if len(problems) == 1 else f"{len(problems)} implementations"
        others = "; the items of the others say why" if len(problems) > 1 else ""
        yield f"fib: {what} can't be tested: {problems[0]}{others}"


def _shard(session: Session) -> str:
    """Which part this run has, and how the parts were made."""
    settings = session.settings
    assert settings.shard is not None
    part = "shard {} of {}".format(*settings.shard)
    if settings.shard_by is None:
        return f"{part}, by the number of tests (--fib-shard-by balances by how long they took)"
    digest = session.durations.digest
    return f"{part}, by durations {digest} of {settings.shard_by}: the same for every shard"


def _drawn_from(fixed: int, of_the_run: int | None, *, given: bool) -> str:
    """Which seeds workloads are drawn from, unless kernels could read that too early.

    A log is a file, which they may read: what nobody is to know beforehand is shown at the end.
    """
    if of_the_run is None:
        return f"seed {fixed} for all draws"
    if given:
        return f"seed {fixed}, other draws from {of_the_run}"
    return f"seed {fixed}, other draws from a seed of this run's own (shown at the end)"


def repeated_by(session: Session) -> str:
    """How to draw the same again, where the command line doesn't say that already; else nothing."""
    fixed, of_the_run = session.seeds
    settings = session.settings
    if settings.seeds is not None or settings.workload is not None:
        return ""
    return f"--fib-seed={fixed}:{of_the_run} draws the same workloads again"


def _inferred(session: Session) -> Iterator[str]:
    """What was inferred about inputs that the definitions don't describe."""
    from pytest_fib.workloads import plan, why_not_generated

    files = session.catalogue.definitions.values()
    for definition in (loaded.definition for file in files for loaded in file):
        if not session.settings.wants_definition(definition.name):
            continue
        planned = plan(definition)
        unknown = why_not_generated(definition)
        sentences = [*planned.notes, *filter(None, [unknown])]
        if sentences:
            yield f"fib: inferred for the inputs of {definition.name}:"
        for sentence in map(session.settings.readable, sentences):
            yield from wrap(sentence, 80, initial_indent="  ", subsequent_indent="    ")
