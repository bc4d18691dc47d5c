"""A collection of definitions, solutions, workloads and traces, in memory and on disk."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pydantic import ValidationError
from pydantic_core import from_json

from ._base import Record, unknown
from ._definition import Definition
from ._errors import DataError, problems_of
from ._flashinfer import impossible_figures
from ._selection import Selection, Shape, selection_of
from ._trace import Evaluation, EvaluationStatus, Trace
from ._trace_index import Index, TraceRow, mean_latency, row_of, same_hardware, without_repeats
from ._trace_set_files import Export, Reader, Stored, Writer, write_document

if TYPE_CHECKING:
    from ._solution import Solution
    from ._workload import Workload

_R = TypeVar("_R", bound=Record)
_T = TypeVar("_T")


class _View(Mapping[str, _T]):
    """A mapping whose values are made when they are asked for."""

    def __init__(self, keys: Collection[str], make: Callable[[str], _T]) -> None:
        self._keys, self._make = keys, make

    def __getitem__(self, key: str) -> _T:
        if key not in self._keys:
            raise KeyError(key)
        return self._make(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys  # Mapping's own way makes the value

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<{len(self)} entries: {', '.join(self)}>"


@dataclass(frozen=True)
class DefinitionSummary:
    """The records of one definition; ``best`` is the solution with the highest speed-up."""

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
        self._definitions: dict[str, Stored[Definition]] = {}
        self._solutions: dict[str, Stored[Solution]] = {}
        self._workloads: dict[str, dict[str, bytes]] = defaultdict(dict)
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._rows: dict[str, list[TraceRow]] = defaultdict(list)
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
        self._keep_definition(Stored(definition.name, definition.name, "", definition))

    def add_solution(self, solution: Solution) -> None:
        """Add an implementation. Raises ValueError for an unknown definition or a name in use."""
        stored = Stored(solution.name, solution.definition, solution.author, solution)
        self._keep_solution(stored)

    def add_workload(
        self, definition: str | Definition, workload: Workload, count: int = 0
    ) -> None:
        """Add a workload that was called ``count`` times; one that is there already is kept once.

        Raises ValueError for an unknown definition, where its axes aren't the definition's, and
        where its uuid is that of another workload.
        """
        name = definition.name if isinstance(definition, Definition) else definition
        self._known_definition(name)
        _check_axes(self.definitions[name], workload)
        trace = Trace(definition=name, workload=workload)
        self._keep_workload(name, workload.uuid, trace.to_json_line().encode())
        if count:
            self._counts[name][workload.uuid] += count

    def add_trace(self, trace: Trace) -> None:
        """Add a trace; one without solution and evaluation is a workload.

        Raises ValueError for an unknown definition or solution, and where its axes aren't the
        definition's.
        """
        if trace.solution is None and trace.evaluation is None:
            self.add_workload(trace.definition, trace.workload)
            return
        self._known_definition(trace.definition)
        _check_axes(self.definitions[trace.definition], trace.workload)
        text = trace.to_json_line().encode()
        self._keep_row(row_of(text, from_json(text)))

    def read_traces(self, path: str | os.PathLike[str]) -> int:
        """Add the traces of a JSONL file, as a run of pytest writes it; how many there were.

        What is there already is kept once.

        Raises DataError with everything that is wrong in the file, and OSError.
        """
        reader = Reader(self)
        number = reader.read_lines(Path(path))
        reader.finish()
        self.drop_repeats()
        return number

    def drop_repeats(self) -> None:
        """Keep each trace once, where files were read that have the same ones."""
        for name, rows in self._rows.items():
            self._rows[name] = without_repeats(rows)
        self._indexes.clear()

    def _keep_definition(self, stored: Stored[Definition]) -> None:
        if stored.name in self._definitions:
            raise ValueError(f"there is a definition {stored.name!r} already")
        self._definitions[stored.name] = stored

    def _keep_solution(self, stored: Stored[Solution]) -> None:
        self._known_definition(stored.definition)
        if stored.name in self._solutions:
            raise ValueError(f"there is a solution {stored.name!r} already")
        self._solutions[stored.name] = stored

    def _keep_workload(self, definition: str, uuid: str, text: bytes) -> None:
        self._known_definition(definition)
        known = self._workloads[definition].setdefault(uuid, text)
        if known != text and from_json(known)["workload"] != from_json(text)["workload"]:
            raise ValueError(f"{definition}: two workloads have the uuid {uuid!r}")

    def _keep_row(self, row: TraceRow) -> None:
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
        return _View(
            self._definitions, lambda name: list(map(self.solution, self.solution_names(name)))
        )

    @property
    def workloads(self) -> Mapping[str, list[Trace]]:
        """The recorded workloads of each definition, as traces without solution."""
        return _View(self._definitions, lambda name: list(self._recorded(name)))

    @property
    def traces(self) -> Mapping[str, list[Trace]]:
        """The traces of each definition that have a solution and an evaluation."""
        return _View(self._definitions, lambda name: list(map(self._trace, self._of(name))))

    def solution_names(self, definition: str) -> list[str]:
        """The names of a definition's implementations, of which none is read for that."""
        return [name for name, each in self._solutions.items() if each.definition == definition]

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
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1)
        axes = {t.workload.uuid: t.workload.axes for t in self._recorded(definition)}
        calls: Counter[Shape] = Counter()
        for uuid, number in weights.items():
            if uuid not in axes:
                raise ValueError(f"{definition}: {unknown('workload', uuid, axes)}")
            calls[self._index(definition).shape(axes[uuid].items())] += number
        return calls

    def _reference_time(self, rows: Iterable[TraceRow]) -> float | None:
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
        question is about traces (``status``, ``hardware``). ``solution`` may be several. Raises
        ValueError for an unknown status.
        """
        solutions = (solution,) if isinstance(solution, str) else solution
        if status not in (None, *EvaluationStatus):
            raise ValueError(unknown("status", str(status), EvaluationStatus))
        device = None if hardware is None else same_hardware(hardware)
        part = TraceSet()
        part.roots = self.roots
        part._definitions = self._definitions_about(definition, op_type)
        part._solutions = {
            name: stored
            for name, stored in self._solutions.items()
            if stored.definition in part._definitions
            and (solutions is None or name in solutions)
            and author in (None, stored.author)
        }
        for name in part._definitions:
            part._rows[name] = [
                row
                for row in self._of(name)
                if row.solution in part._solutions
                and status in (None, row.status)
                and device in (None, same_hardware(row.hardware))
            ]
            part._workloads[name] = dict(self._workloads.get(name, {}))
            part._counts[name] = Counter(self._counts.get(name, {}))
        if status is not None or hardware is not None:
            part._drop_without_traces()
        return part

    def _definitions_about(
        self, definition: str | None, op_type: str | None
    ) -> dict[str, Stored[Definition]]:
        return {
            name: stored
            for name, stored in self._definitions.items()
            if definition in (None, name) and op_type in (None, self._op_type(name))
        }

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
            both._rows[name] = without_repeats(chain(self._of(name), other._of(name)))
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
            solutions=len(self.solution_names(name)),
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

    def _of(self, definition: str) -> list[TraceRow]:
        return self._rows.get(definition, [])

    def _op_type(self, definition: str) -> str:
        return self._definitions[definition].get().op_type

    def _recorded(self, definition: str) -> Iterator[Trace]:
        for text in self._workloads.get(definition, {}).values():
            yield Trace.from_json(text)

    def _trace(self, row: TraceRow) -> Trace:
        trace = self._traces.get(row.text)
        if trace is None:
            trace = self._traces[row.text] = self._read_trace(row)
        return trace

    def _read_trace(self, row: TraceRow) -> Trace:
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
        write_document(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TraceSet:
        """The records in a JSON file that `save` wrote; of a folder, those of `from_path`.

        Raises DataError with every problem in the file, OSError, and ValueError for a folder
        without definitions, where there is nothing to choose from.
        """
        if Path(path).is_dir():
            trace_set = cls.from_path(path)
            if not trace_set.definitions:
                raise ValueError(f"{path} is no dataset: there are no definitions in definitions/")
            return trace_set
        trace_set = cls()
        reader = Reader(trace_set)
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
        reader = Reader(trace_set)
        reader.read_directory(root)
        reader.finish()
        return trace_set

    def to_path(self, path: str | os.PathLike[str]) -> Export:
        """Write FlashInfer Trace's layout into a directory, in a form that FlashInfer's tools take.

        Each file is there in whole or not at all. What those tools would refuse, such as a trace
        that passed without a time, lies under ``pytest_fib/`` there, and the answer lists it.
        Recorded tensors are copied. Raises OSError, and DataError for a record that can't be read.
        """
        return Writer(self, Path(path)).write()

    def validate(self) -> list[str]:
        """Read every record in full: what is wrong, one line each; nothing where all is right."""
        problems: list[str] = []
        for solution in self._solutions.values():
            _collect(problems, solution.get)
        for name, stored in self._definitions.items():
            definition = _collect(problems, stored.get)
            reads = [
                partial(Trace.from_json, text) for text in self._workloads.get(name, {}).values()
            ]
            reads += [partial(self._read_trace, row) for row in self._of(name)]
            for read in reads:
                trace = _collect(problems, read)
                if definition and trace:
                    _collect(problems, partial(_check_axes, definition, trace.workload))
                if trace and trace.evaluation:
                    problems += _impossible(trace, trace.evaluation)
        return list(dict.fromkeys(problems))


def _one_by_one(records: Iterable[_T] | Mapping[str, Iterable[_T]]) -> Iterable[_T]:
    """Records, which may be in lists by the names of definitions."""
    return chain.from_iterable(records.values()) if isinstance(records, Mapping) else records


def _collect(problems: list[str], read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except ValueError as error:
        problems.append(str(error))
        return None


def _check_axes(definition: Definition, workload: Workload) -> None:
    """Raise ValueError where a workload's axes aren't those of a definition."""
    try:
        definition.axis_values(workload.axes)
    except ValueError as error:
        raise ValueError(f"a workload of {definition.name}: {error}") from None


def _impossible(trace: Trace, evaluation: Evaluation) -> list[str]:
    whose = f"a trace of {trace.definition} by {trace.solution}"
    return [f"{whose}: {figure}" for figure in impossible_figures(evaluation)]


def _unite(
    what: str,
    first: Mapping[str, Stored[_R]],
    second: Mapping[str, Stored[_R]],
    both: dict[str, Stored[_R]],
    clashes: list[str],
) -> None:
    both.update(first)
    for name, stored in second.items():
        united = both.setdefault(name, stored)
        if united is not stored and united.get() != stored.get():
            clashes.append(f"{what} {name!r} is not the same on both sides")
