"""From files to collectors to items."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

import pytest

from pytest_fib.build import build_targets
from pytest_fib.data import DataError, LoadedDefinition
from pytest_fib.discovery import FibWarning, Implementation
from pytest_fib.plugin._items import (
    REFERENCE,
    BenchItem,
    CompileItem,
    CorrectnessItem,
    DefinitionItem,
    WorkloadItem,
)
from pytest_fib.plugin._kernel_item import KernelItem, UnusableItem
from pytest_fib.plugin._session import Session
from pytest_fib.report import message_only
from pytest_fib.workloads import RecordedWorkload, plan, recorded_workloads, why_not_generated

#: The beginning of a message about a line of a file.
_PLACE = re.compile(r"(.+?):(\d+): ")


class DefinitionFile(pytest.File):
    """A YAML file of one definition, or of a family of them."""

    @property
    def _run(self) -> Session:
        return Session.of(self.config)

    def collect(self) -> Iterable[pytest.Item]:
        """The items of every selected definition in the file. Raises CollectError."""
        catalogue, settings = self._run.catalogue, self._run.settings
        if "::" in (shown := settings.shown(self.path)):
            what = "'::' can't be part of a path in test ids: rename the file or folder"
            raise self.CollectError(settings.readable(f"{shown}: {what}"))
        for sentence in self._run.stray_warnings():
            self._warn_of_stray(sentence)
        broken = catalogue.broken.get(self.path)
        if broken is not None and settings.may_want_definition(broken.names):
            if not self._in_dataset:
                raise self.CollectError(self._run.settings.readable(broken.problem))
            yield self._unusable(f"{broken.names}[definition]", broken.problem)
        definitions = catalogue.definitions.get(self.path, ())
        selected = [d for d in definitions if settings.wants_definition(d.definition.name)]
        if not self._in_dataset:
            self._refuse_impossible(selected)
        for loaded in selected:
            yield from self._items(loaded)

    def _warn_of_stray(self, sentence: str) -> None:
        """Warn at the place that the sentence begins with, else at this file."""
        warning, place = FibWarning(self._run.settings.readable(sentence)), _PLACE.match(sentence)
        path = Path(place[1]) if place else self.path
        if place is None or (path.exists() and not path.is_file()):  # a pipe: warnings quote lines
            self.warn(warning)
        else:
            warnings.warn_explicit(warning, None, place[1], int(place[2]))

    @property
    def _in_dataset(self) -> bool:
        """Whether the file is part of a dataset, which its user can't repair."""
        return any(self.path.is_relative_to(dataset) for dataset in self._run.settings.datasets)

    def _refuse_impossible(self, definitions: Iterable[LoadedDefinition]) -> None:
        """Raise CollectError for definitions whose constraints nothing can meet."""
        plans = [(d, plan(d.definition)) for d in definitions]
        lines = [f"{d.path}:{d.line_of(*p.problem_at)}: {p.problem}" for d, p in plans if p.problem]
        if lines:
            raise self.CollectError(self._run.settings.readable("\n".join(dict.fromkeys(lines))))

    def _items(self, loaded: LoadedDefinition) -> Iterator[pytest.Item]:
        """The items of one definition: its own, and of each implementation."""
        settings, name = self._run.settings, loaded.definition.name
        recorded, broken = self._recorded(loaded)
        for number, reason in enumerate(broken, 1):
            yield self._unusable(f"{name}[workloads-{number}]", reason)
        implementations = self._run.catalogue.implementations_of(name)
        if settings.wants_implementation(REFERENCE):
            implemented = bool(implementations)
            yield from self._repeated(
                DefinitionItem, "definition", loaded=loaded, implemented=implemented
            )
        timed = {**self._listed(loaded, recorded), **recorded} if settings.bench else {}
        for implementation in implementations:
            if settings.wants_implementation(implementation.name):
                yield from self._implementation_items(loaded, implementation, recorded, timed)

    def _implementation_items(
        self,
        loaded: LoadedDefinition,
        implementation: Implementation,
        recorded: Mapping[str, RecordedWorkload],
        timed: Mapping[str, RecordedWorkload],
    ) -> Iterator[pytest.Item]:
        """The items of one implementation: one or more of each kind of test."""
        item = {"loaded": loaded, "implementation": implementation}
        for target in build_targets(implementation, self._run.targets):
            label = f"compile-{target}"
            yield from self._repeated(CompileItem, label, target=target, **item)
        yield from self._repeated(CorrectnessItem, "correctness", **item)
        if implementation.problem is not None:
            return
        for uuid, case in recorded.items():
            yield from self._repeated(WorkloadItem, f"workload-{uuid}", case=case, **item)
        for size, case in timed.items():
            yield from self._repeated(BenchItem, f"bench-{size}", case=case, **item)

    def _repeated(self, kind: type[KernelItem], label: str, **facts: Any) -> Iterator[KernelItem]:
        """One item, or several with the ids of pytest-repeat if ``--count`` is given."""
        repeats = any(map(self.config.pluginmanager.has_plugin, ("repeat", "pytest_repeat")))
        count = self.config.getoption("count") if repeats else 1
        steps = [f"-{step}-{count}" for step in range(1, count + 1)] if count > 1 else [""]
        for step in steps:
            yield kind.from_parent(self, label=label, repetition=step, **facts)

    def _recorded(self, loaded: LoadedDefinition) -> tuple[dict[str, RecordedWorkload], list[str]]:
        """The recorded workloads, and what is wrong with invalid lines of a dataset's file."""
        errors: list[str] = []
        add_error = (lambda error: errors.append(str(error))) if self._in_dataset else None
        try:
            recorded = recorded_workloads(loaded, self._run.settings.datasets, add_error)
        except DataError as error:
            raise self.CollectError(self._run.settings.readable(str(error))) from None
        return recorded, errors

    def _listed(
        self, loaded: LoadedDefinition, recorded: Mapping[str, RecordedWorkload]
    ) -> dict[str, RecordedWorkload]:
        """The workloads to time that the definition lists, or a ladder of sizes.

        Captured calls are worth timing; the recorded workloads of a project are failures.
        """
        from pytest_fib.workloads import bench_workloads

        section = loaded.definition.workloads
        if self._in_dataset and recorded and not (section and section.bench):
            return {}
        listed = bench_workloads(loaded.definition).items()
        return {size: RecordedWorkload(work, self.path.parent) for size, work in listed}

    def _unusable(self, name: str, reason: str) -> pytest.Item:
        """An item that says why a part of a dataset can't be tested."""
        first, *more = self._run.settings.readable(reason).splitlines()
        note = f" (and {len(more)} more)" if more else ""
        return UnusableItem.from_parent(self, name=name, reason=f"{first}{note}")

    def repr_failure(  # type: ignore[override]  # as that of pytest.Collector
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> Any:
        """What is wrong with the file, without a traceback."""
        if isinstance(excinfo.value, self.CollectError):
            # pytest's summary gives the file already, and has little room.
            shown_before = f"{self._run.settings.readable(str(self.path))}:"
            line = str(excinfo.value).removeprefix(shown_before).partition(":")[0]
            place = str(self.path), int(line) if line.isdecimal() else 1
            return message_only(excinfo, place, shown_before)
        return super().repr_failure(excinfo)


class ImplementationFile(pytest.File):
    """A Python file under an implementation directory: never a test module."""

    def collect(self) -> Iterable[pytest.Item]:
        """No items; an error that says what to do if the file was named on the command line."""
        if self.session.isinitpath(self.path):
            implementations = Session.of(self.config).catalogue.implementations
            names = [each.name for each in implementations if each.path == self.path]
            if not names:
                raise self.CollectError(f"nothing in {self.name} is marked with @implements")
            options = " ".join(f"--fib-implementation {name}" for name in names)
            raise self.CollectError(
                f"{self.name} holds implementations; test them with: pytest {options}"
            )
        return []


def explain_inputs(session: pytest.Session) -> bool:
    """Show how the inputs of the selected definitions are made, and why."""
    terminal: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if terminal is None:  # -p no:terminal
        return True
    items = [item for item in session.items if isinstance(item, KernelItem)]
    terminal.ensure_newline()
    for item in {item.definition.name: item for item in items}.values():
        loaded = item.loaded
        place = f"{item.settings.shown(loaded.path)}:{loaded.line}"
        terminal.write_line(f"{loaded.definition.name}  {place}")
        lines = [*plan(loaded.definition).explained(), why_not_generated(loaded.definition) or ""]
        for line in filter(None, lines):
            for part in wrap(line, 80, initial_indent="  ", subsequent_indent="    "):
                terminal.write_line(part)
    return True
