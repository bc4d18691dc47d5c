"""A collection of definitions, solutions, workloads and traces, in memory and on disk."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from pydantic import ValidationError
from pydantic_core import from_json

from ._base import Record, unknown
from ._dataset import OWN, Places, files, write_counts, write_whole
from ._definition import Definition
from ._errors import DataError, Problem, problems_of
from ._files import load_definition_file, load_solution_file
from ._flashinfer import definition_for_flashinfer, solution_for_flashinfer, trace_for_flashinfer
from ._selection import Selection, Shape, selection_of
from ._solution import Solution
from ._trace import EvaluationStatus, Trace
from ._trace_rows import Index, Row, mean_latency, row_of, same_hardware
from ._workload import SafetensorsInput, Workload

if TYPE_CHECKING:
    import os

#: The version of the form of one file; a reader refuses what a later one wrote.
SCHEMA = 1
_R = TypeVar("_R", bound=Record)
_T = TypeVar("_T")


@dataclass
class _Stored(Generic[_R]):
    """A record, or the file that it is read from when it is first asked for."""

    name: str
    definition: str
    author: str
    record: _R | None = None
    read: Callable[[], _R] | None = None

    def get(self) -> _R:
        if self.record is None:
            assert self.read is not None
            self.record = self.read()
        return self.record


class _View(Mapping[str, _T]):
    """A mapping whose values are made when they are asked for."""

    def __init__(self, keys: Collection[str], make: Callable[[str], _T]) -> None:
        self._keys, self._make = keys, make

    def __getitem__(self, key: str) -> _T:
        if key not in self._keys:
            raise KeyError(key)
        return self._make(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<{len(self)} entries: {', '.join(self)}>"


@dataclass(frozen=True)
class DefinitionSummary:
    """What there is of one definition; ``best`` is the solution with the highest speed-up."""

    name: str
    solutions: int
    workloads: int
    calls: int
    traces: int
    passed: int
    best: str | None
    speedup: float | None


@dataclass(frozen=True)
class TraceSetSummary:
    """How many records there are, in all and of each definition."""

    definitions: tuple[DefinitionSummary, ...]
    solutions: int
    workloads: int
    total: int
    passed: int
    failed: int


@dataclass
class Export:
    """What was written: how many records, those that FlashInfer's tools don't take, and why.

    ``missing`` are files of recorded tensors that were not there to be copied.
    """

    written: int = 0
    apart: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class TraceSet:
    """Definitions, solutions, workloads and traces, whose names are checked against each other.

    Files are read when their records are asked for, tensors never. ``definitions``, ``solutions``,
    ``workloads`` and ``traces`` are mappings by the name of the definition: the first to records,
    the others to lists of records. It is made of such mappings too, or of records one by one.
    """

    def __init__(
        self,
        definitions: Iterable[Definition] | Mapping[str, Definition] = (),
        solutions: Iterable[Solution] | Mapping[str, Iterable[Solution]] = (),
        workloads: Iterable[tuple[str, Workload]] | Mapping[str, Iterable[Trace]] = (),
        traces: Iterable[Trace] | Mapping[str, Iterable[Trace]] = (),
    ) -> None:
        self.roots: tuple[Path, ...] = ()
        self._definitions: dict[str, _Stored[Definition]] = {}
        self._solutions: dict[str, _Stored[Solution]] = {}
        self._workloads: dict[str, dict[str, bytes]] = defaultdict(dict)
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._indexes: dict[str, Index] = {}
        self._traces: dict[bytes, Trace] = {}
        if isinstance(definitions, Mapping):
            definitions = definitions.values()
        for definition in definitions:
            self.add_definition(definition)
        for solution in _one_by_one(solutions):
            self.add_solution(solution)
        if isinstance(workloads, Mapping):
            workloads = ((t.definition, t.workload) for t in _one_by_one(workloads))
        for name, workload in workloads:
            self.add_workload(name, workload)
        for trace in _one_by_one(traces):
            self.add_trace(trace)

    def __repr__(self) -> str:
        parts = (
            f"{len(self._definitions)} definitions",
            f"{len(self._solutions)} solutions",
            f"{sum(map(len, self._workloads.values()))} workloads",
            f"{len(self)} traces",
        )
        return f"<TraceSet: {', '.join(parts)}>"

    def __len__(self) -> int:
        """How many traces there are."""
        return sum(map(len, self._rows.values()))

    # Adding

    def add_definition(self, definition: Definition) -> None:
        """Add a definition. Raises ValueError where there is one of that name."""
        self._keep_definition(_Stored(definition.name, definition.name, "", definition))

    def add_solution(self, solution: Solution) -> None:
        """Add an implementation. Raises ValueError for an unknown definition or a name in use."""
        stored = _Stored(solution.name, solution.definition, solution.author, solution)
        self._keep_solution(stored)

    def add_workload(
        self, definition: str | Definition, workload: Workload, count: int = 0
    ) -> None:
        """Add a workload that was called ``count`` times; one that is there already is kept once.

        Raises ValueError for an unknown definition, and where its uuid is that of another workload.
        """
        name = definition.name if isinstance(definition, Definition) else definition
        trace = Trace(definition=name, workload=workload)
        self._keep_workload(name, workload.uuid, trace.to_json_line().encode())
        if count:
            self._counts[name][workload.uuid] += count

    def add_trace(self, trace: Trace) -> None:
        """Add a trace; one without solution and evaluation is a workload.

        Raises ValueError for an unknown definition or solution.
        """
        if trace.solution is None and trace.evaluation is None:
            self.add_workload(trace.definition, trace.workload)
            return
        text = trace.to_json_line().encode()
        self._keep_row(row_of(text, from_json(text)))

    def read_traces(self, path: str | os.PathLike[str]) -> int:
        """Add the traces of a JSONL file, as a run of pytest writes it; how many there were.

        Raises DataError with everything that is wrong in the file, and OSError.
        """
        reader = _Reader(self)
        number = reader.read_lines(Path(path))
        reader.finish()
        return number

    def _keep_definition(self, stored: _Stored[Definition]) -> None:
        if stored.name in self._definitions:
            raise ValueError(f"there is a definition {stored.name!r} already")
        self._definitions[stored.name] = stored

    def _keep_solution(self, stored: _Stored[Solution]) -> None:
        self._known_definition(stored.definition)
        if stored.name in self._solutions:
            raise ValueError(f"there is a solution {stored.name!r} already")
        self._solutions[stored.name] = stored

    def _keep_workload(self, definition: str, uuid: str, text: bytes) -> None:
        self._known_definition(definition)
        kept = self._workloads[definition].setdefault(uuid, text)
        if kept != text and from_json(kept)["workload"] != from_json(text)["workload"]:
            raise ValueError(f"{definition}: two workloads have the uuid {uuid!r}")

    def _keep_row(self, row: Row) -> None:
        self._known_definition(row.definition)
        stored = self._solutions.get(row.solution)
        if stored is None:
            raise ValueError(unknown("solution", row.solution, self._solutions))
        if stored.definition != row.definition:
            message = f"solution {row.solution!r} is of {stored.definition!r}"
            raise ValueError(f"{message}, not of {row.definition!r}")
        self._rows[row.definition].append(row)
        self._indexes.pop(row.definition, None)

    def _known_definition(self, name: str) -> None:
        if name not in self._definitions:
            raise ValueError(unknown("definition", name, self._definitions))

    # Looking

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """The definitions, by name."""
        return _View(self._definitions, lambda name: self._definitions[name].get())

    @property
    def solutions(self) -> Mapping[str, list[Solution]]:
        """The implementations of each definition."""
        return _View(self._definitions, lambda name: list(map(self.solution, self._names(name))))

    @property
    def workloads(self) -> Mapping[str, list[Trace]]:
        """The recorded workloads of each definition, as traces without solution."""
        return _View(self._definitions, lambda name: list(self._recorded(name)))

    @property
    def traces(self) -> Mapping[str, list[Trace]]:
        """The traces of each definition that have a solution and an evaluation."""
        return _View(self._definitions, lambda name: list(map(self._trace, self._of(name))))

    def solution(self, name: str) -> Solution:
        """The implementation of this name. Raises KeyError."""
        return self._solutions[name].get()

    def has_passed(self, definition: str, solution: str, workload: str) -> bool:
        """Whether a solution has a trace with a time on the workload of this uuid."""
        return any(
            row.timed and row.solution == solution and row.workload == workload
            for row in self._of(definition)
        )

    def file(self, path: str) -> Path:
        """A file of recorded tensors, whose path is relative to the dataset.

        Where it isn't there, the path at which it should be.
        """
        places = [root / path for root in self.roots] or [Path(path)]
        return next(filter(Path.is_file, places), places[0])

    def counts(self, definition: str) -> dict[str, int]:
        """How often each recorded workload was called, by its uuid; 0 where nobody counted."""
        counts: Mapping[str, int] = self._counts.get(definition, {})
        return {uuid: counts.get(uuid, 0) for uuid in self._workloads.get(definition, {})}

    @overload
    def best(
        self,
        definition: str,
        axes: Mapping[str, int] | None = None,
        hardware: str | None = None,
        *,
        weights: None = None,
    ) -> Trace | None: ...

    @overload
    def best(
        self,
        definition: str,
        axes: None = None,
        hardware: str | None = None,
        *,
        weights: Mapping[str, int],
    ) -> Selection | None: ...

    def best(
        self,
        definition: str,
        axes: Mapping[str, int] | None = None,
        hardware: str | None = None,
        *,
        weights: Mapping[str, int] | None = None,
    ) -> Trace | Selection | None:
        """The trace of the best implementation that passed and was timed; None where none did.

        At given sizes of all var axes that is the fastest; over several shapes, as without ``axes``
        or with some of them, that with the highest speed-up. Intervals decide: the upper end of the
        latency's, the lower end of the speed-up's. What failed at a shape isn't chosen there,
        unless it passed on that workload since. Names of hardware are compared by their words.
        Raises ValueError for an unknown definition or axis.

        With ``weights``, such as `counts`, it is the smallest set of implementations that serves so
        many calls of each recorded workload, by its uuid, in at most 1 % more time than the fastest
        at each shape. Weights that are all 0, as where nobody counted, are 1 each. Raises
        ValueError for an unknown workload, and where traces are of several devices and ``hardware``
        doesn't say which.
        """
        if weights is not None:
            return self._selection(definition, hardware, weights)
        index = self._indexes.get(definition) or self._index(definition)
        row = index.best(axes, hardware)
        return None if row is None else self._trace(row)

    def hardware(self, definition: str) -> list[str]:
        """The devices that implementations passed and were timed on. Raises ValueError."""
        ranked = self._index(definition).ranked
        return sorted(next(iter(by_shape.values()))[0].hardware for by_shape in ranked.values())

    def _selection(
        self, definition: str, hardware: str | None, weights: Mapping[str, int]
    ) -> Selection | None:
        devices = [
            d for d in self.hardware(definition) if same_hardware(hardware or d) == same_hardware(d)
        ]
        if len(devices) > 1:
            raise ValueError(f"{definition} was timed on {', '.join(devices)}: which hardware?")
        if not devices:
            return None
        measured = self._index(definition).measured(same_hardware(devices[0]))
        times = {
            shape: {name: mean_latency(rows) for name, rows in by_name.items()}
            for shape, by_name in measured.items()
        }
        rows = {shape: chain.from_iterable(by_name.values()) for shape, by_name in measured.items()}
        calls = self._calls(definition, weights)
        references = {shape: self._reference_time(rows[shape]) for shape in calls if shape in rows}
        known = {shape: time for shape, time in references.items() if time is not None}
        return selection_of(definition, devices[0], calls, times, known)

    def _calls(self, definition: str, weights: Mapping[str, int]) -> dict[Shape, int]:
        """How often each shape was called."""
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1)
        axes = {t.workload.uuid: t.workload.axes for t in self._recorded(definition)}
        calls: Counter[Shape] = Counter()
        for uuid, number in weights.items():
            if uuid not in axes:
                raise ValueError(f"{definition}: {unknown('workload', uuid, axes)}")
            calls[self._index(definition).shape(axes[uuid].items())] += number
        return calls

    def _reference_time(self, rows: Iterable[Row]) -> float | None:
        """The mean of the times that the reference took beside these, in milliseconds."""
        evaluations = filter(None, (self._read_trace(row).evaluation for row in rows))
        times = [each.reference_latency_ms for each in evaluations]
        known = [time for time in times if time is not None and 0 < time < math.inf]
        return math.fsum(known) / len(known) if known else None

    def fastest(self, definition: str, hardware: str | None = None) -> list[Trace]:
        """The fastest trace at each measured shape, on each hardware or on this one.

        In the order of the hardware's names and of the shapes. Raises ValueError.
        """
        ranked = self._index(definition).ranked
        devices = sorted(ranked) if hardware is None else [same_hardware(hardware)]
        return [
            self._trace(rows[0])
            for device in devices
            for _, rows in sorted(ranked.get(device, {}).items())
        ]

    def ranked(self, definition: str, hardware: str) -> dict[tuple[int, ...], tuple[str, ...]]:
        """The solutions to choose from at each measured shape on this hardware, best first.

        A shape is the sizes of the definition's var axes, in order. Raises ValueError.
        """
        by_shape = self._index(definition).ranked.get(same_hardware(hardware), {})
        return {shape: tuple(row.solution for row in rows) for shape, rows in by_shape.items()}

    def filter(
        self,
        *,
        definition: str | None = None,
        solution: str | Collection[str] | None = None,
        op_type: str | None = None,
        author: str | None = None,
        status: str | EvaluationStatus | None = None,
        hardware: str | None = None,
    ) -> TraceSet:
        """The part of this that has all these facts: traces, with what they name.

        Solutions and definitions that have the facts are kept without traces, too, but where the
        question is about traces (``status``, ``hardware``). ``solution`` may be several.
        """
        solutions = (solution,) if isinstance(solution, str) else solution
        device = None if hardware is None else same_hardware(hardware)

        def has_names(stored: _Stored[Solution]) -> bool:
            wanted = solutions is None or stored.name in solutions
            return wanted and author in (None, stored.author)

        def is_wanted(row: Row) -> bool:
            of_device = device is None or same_hardware(row.hardware) == device
            return of_device and status in (None, row.status) and row.solution in part._solutions

        part = TraceSet()
        part.roots = self.roots
        part._definitions = {
            name: stored
            for name, stored in self._definitions.items()
            if definition in (None, name) and op_type in (None, self._op_type(name))
        }
        part._solutions = {
            name: stored
            for name, stored in self._solutions.items()
            if stored.definition in part._definitions and has_names(stored)
        }
        for name in part._definitions:
            part._rows[name] = [row for row in self._of(name) if is_wanted(row)]
            part._workloads[name] = dict(self._workloads.get(name, {}))
            part._counts[name] = Counter(self._counts.get(name, {}))
        if status is not None or hardware is not None:
            part._drop_without_traces()
        return part

    def _drop_without_traces(self) -> None:
        named = {row.solution for row in chain.from_iterable(self._rows.values())}
        self._solutions = {name: self._solutions[name] for name in self._solutions if name in named}
        self._definitions = {n: d for n, d in self._definitions.items() if self._rows.get(n)}
        for name in [name for name in self._workloads if name not in self._definitions]:
            del self._workloads[name]

    def merge(self, other: TraceSet) -> TraceSet:
        """Both together; what is the same is kept once, and counts of calls are added.

        Raises ValueError with every name that means something else on either side.
        """
        both = TraceSet()
        both.roots = tuple(dict.fromkeys((*self.roots, *other.roots)))
        clashes: list[str] = []
        _unite("definition", self._definitions, other._definitions, both._definitions, clashes)
        _unite("solution", self._solutions, other._solutions, both._solutions, clashes)
        for part in (self, other):
            for name, texts in part._workloads.items():
                for uuid, text in texts.items():
                    try:
                        both._keep_workload(name, uuid, text)
                    except ValueError as error:
                        clashes.append(str(error))
            for name, counts in part._counts.items():
                both._counts[name].update(counts)
        if clashes:
            raise ValueError("\n".join(clashes))
        for name in both._definitions:
            rows = chain(self._of(name), other._of(name))
            both._rows[name] = list({row.text: row for row in rows}.values())
        return both

    def summary(self) -> TraceSetSummary:
        """How many records there are, in all and of each definition."""
        definitions = tuple(map(self._summary_of, self._definitions))
        total, passed = len(self), sum(each.passed for each in definitions)
        return TraceSetSummary(
            definitions=definitions,
            solutions=len(self._solutions),
            workloads=sum(each.workloads for each in definitions),
            total=total,
            passed=passed,
            failed=total - passed,
        )

    def _summary_of(self, name: str) -> DefinitionSummary:
        rows = self._of(name)
        best = self._index(name).best(None, None)
        return DefinitionSummary(
            name=name,
            solutions=len(self._names(name)),
            workloads=len(self._workloads.get(name, {})),
            calls=sum(self._counts.get(name, {}).values()),
            traces=len(rows),
            passed=sum(row.passed for row in rows),
            best=None if best is None else best.solution,
            speedup=None if best is None else best.speedup,
        )

    def records(self) -> Iterator[dict[str, Any]]:
        """The facts of each trace in one flat dictionary: the rows of a table."""
        for row in chain.from_iterable(self._rows.values()):
            trace = self._read_trace(row)
            evaluation = trace.evaluation
            if evaluation is None:
                continue
            yield {
                "definition": row.definition,
                "solution": row.solution,
                "author": self._solutions[row.solution].author,
                "workload": row.workload,
                **{f"axes.{name}": size for name, size in trace.workload.axes.items()},
                "status": row.status,
                "hardware": row.hardware,
                "timestamp": evaluation.timestamp,
                "latency_ms": evaluation.latency_ms,
                "reference_latency_ms": evaluation.reference_latency_ms,
                "speedup_factor": evaluation.speedup_factor,
                "max_relative_error": evaluation.max_relative_error,
                "max_absolute_error": evaluation.max_absolute_error,
            }

    def to_dataframe(self) -> Any:
        """`records` as a pandas DataFrame. Raises ImportError without pandas."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return pd.DataFrame(list(self.records()))

    def _index(self, definition: str) -> Index:
        index = self._indexes.get(definition)
        if index is None:
            self._known_definition(definition)
            index = Index(self._definitions[definition].get(), self._of(definition))
            self._indexes[definition] = index
        return index

    def _of(self, definition: str) -> list[Row]:
        return self._rows.get(definition, [])

    def _names(self, definition: str) -> list[str]:
        return [name for name, each in self._solutions.items() if each.definition == definition]

    def _op_type(self, definition: str) -> str:
        return self._definitions[definition].get().op_type

    def _recorded(self, definition: str) -> Iterator[Trace]:
        for text in self._workloads.get(definition, {}).values():
            yield Trace.from_json(text)

    def _trace(self, row: Row) -> Trace:
        trace = self._traces.get(row.text)
        if trace is None:
            trace = self._traces[row.text] = self._read_trace(row)
        return trace

    def _read_trace(self, row: Row) -> Trace:
        try:
            return Trace.from_json(row.text)
        except ValidationError as error:
            place = f"a trace of {row.solution}"
            data = from_json(row.text)
            problems = problems_of(error, Trace, data, place, lambda loc, within: 1)
            raise DataError(problems) from None

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all records into one JSON file; tensors stay where they are. Raises OSError."""
        write_whole(Path(path), self._document())

    def _document(self) -> Iterator[bytes]:
        counts = json.dumps({n: dict(c) for n, c in self._counts.items() if c})
        yield f'{{"schema_version": {SCHEMA},\n"counts": {counts}'.encode()
        definitions = (_line(stored.get()) for stored in self._definitions.values())
        solutions = (_line(stored.get()) for stored in self._solutions.values())
        workloads = chain.from_iterable(each.values() for each in self._workloads.values())
        traces = (row.text.strip() for row in chain.from_iterable(self._rows.values()))
        sections = zip(
            ("definitions", "solutions", "workloads", "traces"),
            (definitions, solutions, workloads, traces),
            strict=True,
        )
        for name, lines in sections:
            yield f',\n"{name}": ['.encode()
            for i, line in enumerate(lines):
                yield (b",\n" if i else b"\n") + line
            yield b"\n]"
        yield b"\n}\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TraceSet:
        """The records in a JSON file that `save` wrote.

        Raises DataError with every problem in the file, and OSError.
        """
        trace_set = cls()
        reader = _Reader(trace_set)
        reader.read_document(Path(path))
        reader.finish()
        return trace_set

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> TraceSet:
        """The dataset in a directory that has FlashInfer Trace's layout.

        A last line that was cut off, as by a process that was killed, is skipped. Raises DataError
        with every name that is used twice or leads nowhere and every line that can't be read, and
        OSError.
        """
        root = Path(path)
        if not root.is_dir():
            raise NotADirectoryError(f"{root} is no directory")
        trace_set = cls()
        trace_set.roots = (root,)
        reader = _Reader(trace_set)
        reader.read_directory(root)
        reader.finish()
        return trace_set

    def to_path(self, path: str | os.PathLike[str]) -> Export:
        """Write FlashInfer Trace's layout into a directory, in a form that FlashInfer's tools take.

        Each file is there in whole or not at all. What those tools would refuse, such as a trace
        that passed without a time, lies under ``pytest_fib/`` there, and the answer lists it.
        Recorded tensors are copied. Raises OSError, and DataError for a record that can't be read.
        """
        return _Writer(self, Path(path)).write()

    def validate(self) -> list[str]:
        """Read every record in full: what is wrong, one line each; nothing where all is right."""
        problems: list[str] = []
        for definition in self._definitions.values():
            _collect(problems, definition.get)
        for solution in self._solutions.values():
            _collect(problems, solution.get)
        for name in self._definitions:
            _collect(problems, partial(list, self._recorded(name)))
            for row in self._of(name):
                _collect(problems, partial(self._read_trace, row))
        return list(dict.fromkeys(problems))


def _one_by_one(records: Iterable[_T] | Mapping[str, Iterable[_T]]) -> Iterable[_T]:
    """Records, which may be in lists by the names of definitions."""
    return chain.from_iterable(records.values()) if isinstance(records, Mapping) else records


def _collect(problems: list[str], read: Callable[[], object]) -> None:
    try:
        read()
    except ValueError as error:
        problems.append(str(error))


def _line(record: Record) -> bytes:
    # Also what is pytest-fib's own, under the names that files have.
    return json.dumps(record.model_dump(mode="json", by_alias=True)).encode()


def _unite(
    what: str,
    first: Mapping[str, _Stored[_R]],
    second: Mapping[str, _Stored[_R]],
    both: dict[str, _Stored[_R]],
    clashes: list[str],
) -> None:
    both.update(first)
    for name, stored in second.items():
        kept = both.setdefault(name, stored)
        if kept is not stored and kept.get() != stored.get():
            clashes.append(f"{what} {name!r} is not the same on both sides")


class _BadJson(ValueError):
    """A file that is no JSON from this line on."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


#: Line, section, what it holds, and that as text.
_Entry: TypeAlias = tuple[int, str, Any, bytes]
_FIRST_LINE = re.compile(rb'\{"schema_version": (\d+),$')
_SECTION = re.compile(rb'"(\w+)": ?')


def _entries_by_line(file: Iterable[bytes]) -> Iterator[_Entry]:
    """What `save` writes, after the first line; what is elsewhere takes ten times the memory."""
    section = ""
    for number, line in enumerate(file, 2):
        text = line.strip().removesuffix(b",")
        match = _SECTION.match(text)
        if match is not None:
            section, text = match[1].decode(), text[match.end() :]
        if text not in (b"[", b"[]", b"]", b"}"):
            yield number, section, _parsed(text, number), text


def _entries_of(text: bytes) -> Iterator[_Entry]:
    """Any JSON object of the same content, in whichever order."""
    document = _parsed(text, 1)
    if not isinstance(document, dict):
        raise _BadJson("should be a mapping", 1)
    for section in ("schema_version", "counts"):
        if section in document:
            yield 1, section, document[section], b""
    for section in ("definitions", "solutions", "workloads", "traces"):
        for data in document.get(section, ()):
            yield 1, section, data, json.dumps(data).encode()


def _parsed(text: bytes, line: int) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise _BadJson(str(error), line) from None


class _Reader:
    """Reads files into a TraceSet, and keeps every problem until the end."""

    def __init__(self, trace_set: TraceSet) -> None:
        self._set = trace_set
        self._problems: dict[str, Problem] = {}

    def finish(self) -> None:
        """Raise DataError where there was a problem."""
        if self._problems:
            raise DataError(self._problems.values())

    def read_directory(self, root: Path) -> None:
        """A dataset's files; definitions and solutions only as far as their names."""
        for path in files(root, "definitions", ".json"):
            self._read_name(path, self._definition_file)
        for path in files(root, "solutions", ".json"):
            self._read_name(path, self._solution_file)
        for kind in ("workloads", "traces"):
            for path in files(root, kind, ".jsonl"):
                self.read_lines(path)
        self.read_counts(root)

    def read_counts(self, root: Path) -> None:
        """How often workloads were called, as several processes counted."""
        folder = root / OWN / "counts"
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            self._read_name(path, lambda path, data: self._add_counts(data))

    def _read_name(self, path: Path, keep: Callable[[Path, Any], None]) -> None:
        self._noting(str(path), 1, lambda: keep(path, from_json(path.read_bytes())))

    def _definition_file(self, path: Path, data: Any) -> None:
        def read() -> Definition:
            return load_definition_file(path)[0].definition

        name = _text(data, "name", read)
        self._set._keep_definition(_Stored(name, name, "", read=read))

    def _solution_file(self, path: Path, data: Any) -> None:
        def read() -> Solution:
            return load_solution_file(path)

        name, definition, author = (
            _text(data, key, read) for key in ("name", "definition", "author")
        )
        self._set._keep_solution(_Stored(name, definition, author, read=read))

    def read_lines(self, path: Path) -> int:
        """The traces and workloads in a JSONL file; how many lines it has."""
        number = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                try:
                    data = from_json(line)
                except ValueError as error:
                    if line.endswith(b"\n"):  # else it was cut off
                        self._note(str(path), number, f"bad JSON: {error}")
                    continue
                self._read_trace(str(path), number, line, data)
        return number

    def _read_trace(self, path: str, line: int, text: bytes, data: Any) -> None:
        # A hundred thousand times: no call that isn't needed.
        try:
            if data.get("solution") is None and data.get("evaluation") is None:
                trace = Trace.from_json(text)
                text = trace.to_json_line().encode()
                self._set._keep_workload(trace.definition, trace.workload.uuid, text)
            else:
                self._set._keep_row(row_of(text, data))
        except ValidationError as error:
            for problem in problems_of(error, Trace, data, path, lambda loc, within: line):
                self._note(path, line, problem.message)
        except (AttributeError, ValueError) as error:
            self._note(path, line, str(error))

    def read_document(self, path: Path) -> None:
        """One file with all records: one to a line, as `save` writes it, or in any other form."""
        with path.open("rb") as file:
            first = _FIRST_LINE.match(file.readline())
            if first is None:
                file.seek(0)
            else:
                self._read_entry(str(path), 1, "schema_version", int(first[1]), b"")
            entries = _entries_of(file.read()) if first is None else _entries_by_line(file)
            try:
                for line, key, data, text in entries:
                    self._read_entry(str(path), line, key, data, text)
            except _BadJson as error:
                raise DataError([Problem(str(path), error.line, f"bad JSON: {error}")]) from None

    def _read_entry(self, path: str, line: int, key: str, data: Any, text: bytes) -> None:
        if key == "schema_version" and data != SCHEMA:
            message = f"schema {data} is newer than what this version reads, {SCHEMA}"
            raise DataError([Problem(path, line, message)])
        if key in ("workloads", "traces"):
            self._read_trace(path, line, text, data)
        else:
            self._noting(path, line, partial(self._add, key, data))

    def _add(self, key: str, data: Any) -> None:
        if key == "definitions":
            self._set.add_definition(Definition.from_elsewhere(data))
        elif key == "solutions":
            self._set.add_solution(Solution.from_elsewhere(data))
        elif key == "counts":
            self._add_counts(data)

    def _add_counts(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        for definition, by_workload in counts.items():
            self._set._counts[definition].update(by_workload)

    def _noting(self, path: str, line: int, act: Callable[[], None]) -> None:
        try:
            act()
        except DataError as error:
            for problem in error.problems:
                self._note(problem.path, problem.line, problem.message)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                place = ".".join(map(str, detail["loc"]))
                self._note(path, line, f"{place}: {detail['msg']}")
        except ValueError as error:
            self._note(path, line, str(error))

    def _note(self, path: str, line: int, message: str) -> None:
        # What leads nowhere a thousand times is said once for each file.
        self._problems.setdefault(f"{path} {message}", Problem(path, line, message))


def _text(data: Any, key: str, read: Callable[[], Record]) -> str:
    """A name in raw data. Raises DataError, of the whole record, where there is none."""
    value = data.get(key) if isinstance(data, dict) else None
    if not isinstance(value, str) or not value:
        read()
        raise ValueError(f"{key} should be a name")
    return value


class _Writer:
    """Writes a TraceSet into a directory."""

    def __init__(self, trace_set: TraceSet, root: Path) -> None:
        self._set, self._root = trace_set, root
        self._places = Places(root)
        self._export = Export()
        self._lines: dict[Path, list[bytes]] = defaultdict(list)
        self._apart: set[str] = set()

    def write(self) -> Export:
        """Write everything; what is read from the directory itself is read before."""
        of = self._set
        for definition in of.definitions.values():
            exported = definition_for_flashinfer(definition)
            self._put_file("definitions", (definition.op_type, definition.name), *exported)
        for name in of._solutions:
            solution = of.solution(name)
            folders = (solution.author, of._op_type(solution.definition), solution.definition)
            exported = solution_for_flashinfer(solution)
            self._put_file("solutions", (*folders, name), *exported)
        for name in of._definitions:
            for trace in of._recorded(name):
                self._put_line("workloads", (of._op_type(name), name), trace)
            for row in of._of(name):
                author = of._solutions[row.solution].author
                self._put_line("traces", (author, of._op_type(name), name), of._read_trace(row))
        for path, lines in self._lines.items():
            write_whole(path, lines)
        if counts := {name: dict(counts) for name, counts in of._counts.items() if counts}:
            self._write_counts(counts)
        return self._export

    def _write_counts(self, counts: dict[str, dict[str, int]]) -> None:
        """Write what the files there don't count yet; processes that trace go on with theirs."""
        there = TraceSet()
        reader = _Reader(there)
        reader.read_counts(self._root)
        reader.finish()
        more = {name: Counter(of) - there._counts[name] for name, of in counts.items()}
        if any(more.values()):
            writer = f"exported-{time.time_ns()}"
            write_counts(self._root, writer, {name: dict(of) for name, of in more.items() if of})

    def _put_file(
        self, kind: str, names: tuple[str, ...], data: dict[str, Any], refusals: list[str]
    ) -> None:
        path = self._places.place(kind, names, ".json", apart=bool(refusals))
        self._lines[path] = [json.dumps(data, indent=2, allow_nan=False).encode(), b"\n"]
        self._count(f"{kind.removesuffix('s')} {names[-1]}", refusals)

    def _put_line(self, kind: str, names: tuple[str, ...], trace: Trace) -> None:
        data, refusals = trace_for_flashinfer(trace)
        path = self._places.place(kind, names, ".jsonl", apart=bool(refusals))
        line = json.dumps(data, separators=(",", ":"), allow_nan=False)
        self._lines[path].append(f"{line}\n".encode())
        of = f" by {trace.solution}" if trace.solution else ""
        self._count(f"a trace of {trace.definition}{of}", refusals)
        for given in trace.workload.inputs.values():
            if isinstance(given, SafetensorsInput):
                self._copy(given.path)

    def _count(self, what: str, refusals: list[str]) -> None:
        self._export.written += 1
        if refusals:
            self._export.apart.append(f"{what}: {'; '.join(refusals)}")

    def _copy(self, name: str) -> None:
        target = self._root / name
        inside = target.resolve().is_relative_to(self._root.resolve())
        if not inside or target.exists():
            return
        source = next(filter(Path.is_file, (root / name for root in self._set.roots)), None)
        if source is None:
            self._export.missing.append(name)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
