"""The lines of pytest's header on kernels."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from pytest_fib.walls import wall_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_fib.plugin._session import Session


def header(session: Session) -> list[str]:
    """``fib: device cpu, definitions in kernel_defs, traces to fib-traces.jsonl``."""
    config, settings = session.config, session.settings
    folders = ", ".join(settings.shown(folder) for folder in settings.definition_dirs)
    where = f"definitions in {folders}, traces to {settings.shown(settings.traces)}"
    lines = [f"fib: device {session.device}, {where}"]
    if settings.isolation == "none":
        why = "--pdb" if config.option.usepdb else "--fib-isolation=none"
        lines.append(f"fib: {why} runs kernels in this process; a crash ends the run")
    else:
        walls = ["container"] * (settings.isolation == "container") + wall_names()
        shown = ", ".join(walls) or "processes without walls, which this system lacks"
        lines.append(f"fib: sandbox: {shown}")
    if settings.workload is None:
        lines.append(f"fib: {_drawn_from(*session.seeds)}")
    return lines + (list(_inferred(session)) if config.get_verbosity() > 0 else [])


def _drawn_from(fixed: int, of_the_run: int | None) -> str:
    """Which seeds workloads are drawn from, and how to draw the same again."""
    if of_the_run is None:
        return f"seed {fixed} for all draws"
    again = f"--fib-seed={fixed}:{of_the_run} repeats them"
    return f"seed {fixed}, this run's own draws from {of_the_run} ({again})"


def _inferred(session: Session) -> Iterator[str]:
    """What was inferred of inputs that the definitions don't describe."""
    from pytest_fib.workloads import plan

    files = session.catalogue.definitions.values()
    for definition in (loaded.definition for file in files for loaded in file):
        if not session.settings.wants_definition(definition.name):
            continue
        planned = plan(definition)
        unmade = [f"{name}: {reason}" for name, reason in planned.unmade.items()]
        sentences = [planned.problem] if planned.problem else [*planned.notes, *unmade]
        if sentences:
            yield f"fib: inferred for the inputs of {definition.name}:"
        for sentence in map(session.settings.readable, sentences):
            yield from wrap(sentence, 80, initial_indent="  ", subsequent_indent="    ")
