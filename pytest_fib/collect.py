"""From files to collectors to items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_fib import session
from pytest_fib._warnings import FibWarning
from pytest_fib.data import DataError
from pytest_fib.items import BenchItem, CorrectnessItem, WorkloadItem
from pytest_fib.options import SETTINGS
from pytest_fib.recorded import Recorded, recorded_workloads
from pytest_fib.report.failure import message_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_fib.data import LoadedDefinition
    from pytest_fib.implementations import Implementation
    from pytest_fib.items import KernelItem


class DefinitionFile(pytest.File):
    """A YAML file of one definition, or of a family of them."""

    def collect(self) -> Iterable[KernelItem]:
        """The items of every selected definition in the file. Raises CollectError."""
        known = session.catalogue(self.config)
        settings = self.config.stash[SETTINGS]
        for sentence in session.strays(self.config):
            self.warn(FibWarning(self._relative(sentence)))
        if self.path in known.errors and settings.may_want_definition(known.broken[self.path]):
            raise self.CollectError(self._relative(known.errors[self.path]))
        for loaded in known.definitions.get(self.path, ()):
            if settings.wants_definition(loaded.definition.name):
                yield from self._items(loaded, self._selected(loaded))

    def _selected(self, loaded: LoadedDefinition) -> list[Implementation]:
        settings = self.config.stash[SETTINGS]
        known = session.catalogue(self.config).implementations_of(loaded.definition.name)
        return [i for i in known if settings.wants_implementation(i.name)]

    def _items(
        self, loaded: LoadedDefinition, implementations: Iterable[Implementation]
    ) -> Iterator[KernelItem]:
        recorded = self._recorded(loaded)
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

    def _recorded(self, loaded: LoadedDefinition) -> dict[str, Recorded]:
        try:
            return recorded_workloads(loaded, self.config.stash[SETTINGS].datasets)
        except DataError as error:
            raise self.CollectError(self._relative(str(error))) from None

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
