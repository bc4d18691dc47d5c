"""From files to collectors to items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_fib import session
from pytest_fib._warnings import FibWarning
from pytest_fib.data import DataError
from pytest_fib.items import BenchItem, CorrectnessItem, UnusableItem, WorkloadItem
from pytest_fib.options import SETTINGS
from pytest_fib.recorded import Recorded, recorded_workloads
from pytest_fib.report.failure import message_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_fib.data import LoadedDefinition
    from pytest_fib.implementations import Implementation


class DefinitionFile(pytest.File):
    """A YAML file of one definition, or of a family of them."""

    def collect(self) -> Iterable[pytest.Item]:
        """The items of every selected definition in the file. Raises CollectError."""
        known = session.catalogue(self.config)
        settings = self.config.stash[SETTINGS]
        for sentence in session.strays(self.config):
            self.warn(FibWarning(self._relative(sentence)))
        if self.path in known.errors and settings.may_want_definition(known.broken[self.path]):
            if not self._foreign:
                raise self.CollectError(self._relative(known.errors[self.path]))
            yield self._unusable(known.broken[self.path], known.errors[self.path])
        definitions = known.definitions.get(self.path, ())
        selected = [d for d in definitions if settings.wants_definition(d.definition.name)]
        if not self._foreign:
            self._refuse_impossible(selected)
        for loaded in selected:
            yield from self._items(loaded, self._selected(loaded))

    @property
    def _foreign(self) -> bool:
        """Whether the file is a dataset's: what is wrong there is not for its user to mend."""
        datasets = self.config.stash[SETTINGS].datasets
        return any(self.path.is_relative_to(dataset) for dataset in datasets)

    def _refuse_impossible(self, definitions: Iterable[LoadedDefinition]) -> None:
        """Raise CollectError for definitions whose constraints nothing can meet."""
        from pytest_fib.workloads import plan

        problems = [(d, plan(d.definition).problem) for d in definitions]
        lines = [f"{d.path}:{d.line}: {problem}" for d, problem in problems if problem]
        if lines:
            raise self.CollectError(self._relative("\n".join(dict.fromkeys(lines))))

    def _selected(self, loaded: LoadedDefinition) -> list[Implementation]:
        settings = self.config.stash[SETTINGS]
        known = session.catalogue(self.config).implementations_of(loaded.definition.name)
        return [i for i in known if settings.wants_implementation(i.name)]

    def _items(
        self, loaded: LoadedDefinition, implementations: Iterable[Implementation]
    ) -> Iterator[pytest.Item]:
        recorded, broken = self._recorded(loaded)
        for number, reason in enumerate(broken, 1):
            yield self._unusable(f"{loaded.definition.name}[workloads-{number}]", reason)
        timed = self._timed(loaded, recorded) if self.config.stash[SETTINGS].bench else {}
        for implementation in implementations:
            facts = {"loaded": loaded, "implementation": implementation}
            yield CorrectnessItem.from_parent(self, label="correctness", **facts)
            if implementation.problem is not None:
                continue
            for uuid, case in recorded.items():
                yield WorkloadItem.from_parent(self, label=f"workload-{uuid}", case=case, **facts)
            for size, case in timed.items():
                yield BenchItem.from_parent(self, label=f"bench-{size}", case=case, **facts)

    def _recorded(self, loaded: LoadedDefinition) -> tuple[dict[str, Recorded], list[str]]:
        """The recorded workloads, and what is wrong with lines of a dataset's file."""
        broken: list[str] = []
        tell = (lambda error: broken.append(str(error))) if self._foreign else None
        try:
            found = recorded_workloads(loaded, self.config.stash[SETTINGS].datasets, tell)
        except DataError as error:
            raise self.CollectError(self._relative(str(error))) from None
        return found, broken

    def _unusable(self, name: str, reason: str) -> pytest.Item:
        """An item that says why something of a dataset can't be tested."""
        name = name if "[" in name else f"{name}[definition]"
        (first, *more), line = self._relative(reason).splitlines(), 1
        if more:
            first = f"{first} (and {len(more)} more)"
        return UnusableItem.from_parent(self, name=name, reason=first, line=line)

    def _timed(
        self, loaded: LoadedDefinition, recorded: Mapping[str, Recorded]
    ) -> dict[str, Recorded]:
        """What the definition lists, or a ladder of sizes; and what was recorded."""
        from pytest_fib.workloads import bench_workloads

        listed = bench_workloads(loaded.definition).items()
        return {size: Recorded(work, self.path.parent) for size, work in listed} | dict(recorded)

    def repr_failure(  # type: ignore[override]  # as that of pytest.Collector
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> Any:
        """What is wrong with the file, and nothing of how it was found out."""
        if isinstance(excinfo.value, self.CollectError):
            # pytest's summary gives the file already, and has little room.
            return message_only(excinfo, known=f"{self._relative(str(self.path))}:")
        return super().repr_failure(excinfo)

    def _relative(self, message: str) -> str:
        return message.replace(f"{self.config.rootpath}/", "")


class ImplementationFile(pytest.File):
    """A Python file under an implementation directory: never a test module."""

    def collect(self) -> Iterable[pytest.Item]:
        """Nothing; but an error that says what to do where the file was asked for by name."""
        if self.session.isinitpath(self.path):
            names = [
                implementation.name
                for implementation in session.catalogue(self.config).implementations
                if implementation.path == self.path
            ]
            hint = " ".join(f"--fib-implementation {name}" for name in names)
            raise self.CollectError(
                f"{self.name} holds implementations; test them with: pytest {hint}"
                if names
                else f"{self.name} lies among the implementations but marks none with @implements"
            )
        return []
