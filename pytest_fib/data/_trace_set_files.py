"""A TraceSet's files: one of JSON, datasets, and the lines of traces."""

from __future__ import annotations

import json
import re
import shutil
import time
from codecs import BOM_UTF8
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from ._base import Record
from ._dataset import OWN, Places, files, why_lfs_pointer, write_counts, write_whole
from ._definition import OWN_KEYS, Definition
from ._errors import DataError, Problem, problems_of
from ._files import load_definition_file, load_solution_file
from ._flashinfer import definition_for_flashinfer, solution_for_flashinfer, trace_for_flashinfer
from ._solution import Solution
from ._trace import Trace
from ._trace_index import row_of
from ._workload import SafetensorsInput

if TYPE_CHECKING:
    from ._trace_set import TraceSet

#: The version of the form of one file; a reader refuses what a later one wrote.
SCHEMA = 1
#: How often workloads were called, by definition and uuid.
_COUNTS = TypeAdapter(dict[str, dict[str, int]])
_R = TypeVar("_R", bound=Record)


@dataclass
class Stored(Generic[_R]):
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


@dataclass
class Export:
    """The result of an export: how many records, and which FlashInfer's tools refuse, and why.

    ``missing`` are files of recorded tensors that were not there to be copied; ``without`` are the
    definitions of which FlashInfer Trace has no place for all, and what was left out.
    """

    written: int = 0
    refused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)


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
        raise _BadJson("bad JSON: should be a mapping", 1)
    for section in ("schema_version", "counts"):
        if section in document:
            yield 1, section, document[section], b""
    for section in ("definitions", "solutions", "workloads", "traces"):
        records = document.get(section, [])
        if not isinstance(records, list):
            raise _BadJson(f"bad JSON: {section} should be a list", 1)
        for data in records:
            yield 1, section, data, json.dumps(data).encode()


def _parsed(text: bytes, line: int) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise _BadJson(_why_no_json(text, error), line) from None


def _why_no_json(text: bytes, error: ValueError) -> str:
    return why_lfs_pointer(text) or f"bad JSON: {error}"


class Reader:
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
        for path in self._files(root, "definitions", ".json"):
            self._read_name(path, self._definition_file)
        for path in self._files(root, "solutions", ".json"):
            self._read_name(path, self._solution_file)
        for kind in ("workloads", "traces"):
            for path in self._files(root, kind, ".jsonl"):
                self.read_lines(path)
        self.read_counts(root)

    def _files(self, root: Path, kind: str, suffix: str) -> Iterator[Path]:
        """The files of a kind, but no pipe, which nobody may ever write to."""
        for path in files(root, kind, suffix):
            if path.is_file():
                yield path
            elif not path.is_dir():
                self._note(str(path), 1, "is no regular file, nor leads to one")

    def read_counts(self, root: Path) -> None:
        """How often workloads were called, as several processes counted."""
        folder = root / OWN / "counts"
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            self._read_name(path, lambda path, data: self._add_counts(data))

    def _read_name(self, path: Path, keep: Callable[[Path, Any], None]) -> None:
        self._noting(str(path), 1, lambda: keep(path, _parsed(path.read_bytes(), 1)))

    def _definition_file(self, path: Path, data: Any) -> None:
        def read() -> Definition:
            return load_definition_file(path)[0].definition

        name = _text(data, "name", read)
        self._set._keep_definition(Stored(name, name, "", read=read))

    def _solution_file(self, path: Path, data: Any) -> None:
        def read() -> Solution:
            return load_solution_file(path)

        name, definition, author = (
            _text(data, key, read) for key in ("name", "definition", "author")
        )
        self._set._keep_solution(Stored(name, definition, author, read=read))

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
                        self._note(str(path), number, _why_no_json(line, error))
                    if why_lfs_pointer(line):
                        break
                    continue
                self._read_trace(str(path), number, line.strip(), data)
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
        except AttributeError:
            self._note(path, line, "should be a mapping")
        except ValueError as error:
            self._note(path, line, str(error))

    def read_document(self, path: Path) -> None:
        """One file with all records: one to a line, as `save` writes it, or in any other form."""
        with path.open("rb") as file:
            first = _FIRST_LINE.match(file.readline())
            if first is None:
                file.seek(0)
            else:
                self._read_entry(str(path), 1, "schema_version", int(first[1]), b"")
            whole = file.read().removeprefix(BOM_UTF8) if first is None else b""
            entries = _entries_of(whole) if first is None else _entries_by_line(file)
            try:
                for line, key, data, text in entries:
                    self._read_entry(str(path), line, key, data, text)
            except _BadJson as error:
                raise DataError([Problem(str(path), error.line, str(error))]) from None

    def _read_entry(self, path: str, line: int, key: str, data: Any, text: bytes) -> None:
        if key == "schema_version" and data != SCHEMA:
            is_newer = isinstance(data, int) and data > SCHEMA
            how = "newer than" if is_newer else "not"
            message = f"schema {data!r} is {how} what this version reads, {SCHEMA}"
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

    def _add_counts(self, counts: object) -> None:
        for definition, by_workload in _COUNTS.validate_python(counts).items():
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


class Writer:
    """Writes a TraceSet into a directory."""

    def __init__(self, trace_set: TraceSet, root: Path) -> None:
        self._set, self._root = trace_set, root
        self._places = Places(root)
        self._export = Export()
        self._lines: dict[Path, list[bytes]] = defaultdict(list)

    def write(self) -> Export:
        """Write everything; what is read from the directory itself is read before."""
        trace_set = self._set
        for definition in trace_set.definitions.values():
            self._put_definition(definition)
        for name in trace_set._solutions:
            solution = trace_set.solution(name)
            folders = (
                solution.author,
                trace_set._op_type(solution.definition),
                solution.definition,
            )
            exported = solution_for_flashinfer(solution)
            self._put_file("solutions", (*folders, name), *exported)
        for name in trace_set._definitions:
            for trace in trace_set._recorded(name):
                self._put_line("workloads", (trace_set._op_type(name), name), trace)
            for row in trace_set._of(name):
                author = trace_set._solutions[row.solution].author
                self._put_line(
                    "traces", (author, trace_set._op_type(name), name), trace_set._read_trace(row)
                )
        for path, lines in self._lines.items():
            write_whole(path, lines)
        if counts := {name: dict(counts) for name, counts in trace_set._counts.items() if counts}:
            self._write_counts(counts)
        return self._export

    def _put_definition(self, definition: Definition) -> None:
        exported = definition_for_flashinfer(definition)
        self._put_file("definitions", (definition.op_type, definition.name), *exported)
        if own := [key for key in OWN_KEYS if getattr(definition, key)]:
            self._export.without.append(f"{', '.join(own)} of {definition.name}")

    def _write_counts(self, counts: dict[str, dict[str, int]]) -> None:
        """Write what the files there don't count yet; processes that trace go on with theirs."""
        written = type(self._set)()
        reader = Reader(written)
        reader.read_counts(self._root)
        reader.finish()
        more = {name: Counter(of) - written._counts[name] for name, of in counts.items()}
        if any(more.values()):
            writer = f"exported-{time.time_ns()}"
            write_counts(self._root, writer, {name: dict(of) for name, of in more.items() if of})

    def _put_file(
        self, kind: str, names: tuple[str, ...], data: dict[str, Any], refusals: list[str]
    ) -> None:
        path = self._places.place(kind, names, ".json", own=bool(refusals))
        self._lines[path] = [json.dumps(data, indent=2, allow_nan=False).encode(), b"\n"]
        self._count(f"{kind.removesuffix('s')} {names[-1]}", refusals)

    def _put_line(self, kind: str, names: tuple[str, ...], trace: Trace) -> None:
        data, refusals = trace_for_flashinfer(trace)
        path = self._places.place(kind, names, ".jsonl", own=bool(refusals))
        line = json.dumps(data, separators=(",", ":"), allow_nan=False)
        self._lines[path].append(f"{line}\n".encode())
        by = f" by {trace.solution}" if trace.solution else ""
        self._count(f"a trace of {trace.definition}{by}", refusals)
        for given in trace.workload.inputs.values():
            if isinstance(given, SafetensorsInput):
                self._copy(given.path)

    def _count(self, what: str, refusals: list[str]) -> None:
        self._export.written += 1
        if refusals:
            self._export.refused.append(f"{what}: {'; '.join(refusals)}")

    def _copy(self, name: str) -> None:
        target = self._root / name
        is_inside = target.resolve().is_relative_to(self._root.resolve())
        if not is_inside or target.exists():
            return
        source = next(filter(Path.is_file, (root / name for root in self._set.roots)), None)
        if source is None:
            if name not in self._export.missing:  # one file may hold several tensors
                self._export.missing.append(name)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def write_document(trace_set: TraceSet, path: Path) -> None:
    """Write all records into one JSON file, one to a line; tensors stay where they are."""
    write_whole(path, _document(trace_set))


def _document(trace_set: TraceSet) -> Iterator[bytes]:
    counts = json.dumps({n: dict(c) for n, c in trace_set._counts.items() if c})
    yield f'{{"schema_version": {SCHEMA},\n"counts": {counts}'.encode()
    definitions = (_line(stored.get()) for stored in trace_set._definitions.values())
    solutions = (_line(stored.get()) for stored in trace_set._solutions.values())
    workloads = chain.from_iterable(each.values() for each in trace_set._workloads.values())
    traces = (row.text.strip() for row in chain.from_iterable(trace_set._rows.values()))
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


def _line(record: Record) -> bytes:
    # Also what is pytest-fib's own, under the names that files have.
    return json.dumps(record.model_dump(mode="json", by_alias=True)).encode()
