"""Definitions, solutions and traces from files."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ._base import Loc, Raw, Record
from ._dataset import why_lfs_pointer
from ._definition import Definition
from ._errors import DataError, Problem, problems_of
from ._solution import Solution, unsafe_path
from ._trace import Trace
from ._yaml import Document, compose, compose_family

_R = TypeVar("_R", bound=Record)
_YAML = (".yaml", ".yml")
#: The most bytes of a file that is read whole: what is sent to a sandbox is no larger.
LARGEST_SOURCE = 64 << 20


@dataclass(frozen=True)
class LoadedDefinition:
    """A definition, its file, and the line of its name there (from 1).

    The reference begins after ``lines_before_reference``; None where its lines aren't the file's.
    """

    definition: Definition
    path: Path
    line: int
    lines_before_reference: int | None = None

    def line_of(self, *loc: str | int) -> int:
        """The line of a place in the file, read again, as only errors need it; else the name's."""
        if not loc:
            return self.line
        try:
            return compose_family(str(self.path), _read(str(self.path)))[0].line(loc)
        except (DataError, OSError):  # JSON that is no YAML; a file that has gone
            return self.line


def load_definition_file(path: str | os.PathLike[str]) -> tuple[LoadedDefinition, ...]:
    """The definitions in a YAML file (several where it is a family) or a dataset's JSON file.

    Unknown keys are errors in YAML and ignored in JSON. Raises DataError with every problem in
    the file, and OSError where it can't be read.
    """
    name = os.fspath(path)
    return read_definitions(name, _read(name))


def read_definitions(name: str, text: str) -> tuple[LoadedDefinition, ...]:
    """The definitions of a file of this name with this text. Raises DataError."""
    path = Path(name)
    if not name.endswith(_YAML):
        return (LoadedDefinition(_from_json(Definition, name, text), path, 1),)
    loaded: list[LoadedDefinition] = []
    problems: list[Problem] = []
    names: set[str] = set()
    for document in compose_family(name, text):
        data, form_problems = document.data()
        problems += form_problems
        if document.variables and isinstance(data, dict):
            del data["family"]
            problems += _same_name(document, data.get("name"), names)
        definition, content_problems = _validated(Definition, document, data, data)
        problems += content_problems
        if definition is not None:
            before = document.line(("reference",), 1) - 1
            line = document.line(("name",))
            loaded.append(LoadedDefinition(definition, path, line, before))
    if problems:
        raise DataError(problems)
    return tuple(loaded)


def load_solution_file(path: str | os.PathLike[str]) -> Solution:
    """A Solution from JSON, or from a ``solution.yaml`` whose `sources` name files beside it.

    Raises DataError with every problem in the file, and OSError where it can't be read.
    """
    name = os.fspath(path)
    text = _read(name)
    if not name.endswith(_YAML):
        return _from_json(Solution, name, text)
    document = compose(name, text)
    data, problems = document.data()
    record = data
    if isinstance(data, dict) and isinstance(data.get("sources"), list):
        sources = [
            _with_content(document, source, ("sources", i), problems)
            for i, source in enumerate(data["sources"])
        ]
        record = {**data, "sources": sources}
    solution, more = _validated(Solution, document, data, record)
    if solution is None or problems:
        raise DataError(problems + more)
    return solution


def read_traces(
    path: str | os.PathLike[str], broken: Callable[[DataError], None] | None = None
) -> Iterator[Trace]:
    """The traces in a JSONL file, one at a time.

    A last line that was cut off, as by a run that died, is skipped. ``broken`` is called with the
    DataError of a line that can't be read otherwise; without it, the first one is raised.
    """
    name = os.fspath(path)
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                trace = Trace.from_json(line)
            except ValidationError as error:
                bad_json = error.errors()[0]["type"] == "json_invalid"
                if bad_json and not line.endswith(b"\n"):
                    return
                data = None if bad_json else json.loads(line)
                unreadable = DataError(_on_line(error, data, name, number))
                if broken is None:
                    raise unreadable from None
                broken(unreadable)
            else:
                yield trace


def _on_line(error: ValidationError, data: Raw, path: str, number: int) -> list[Problem]:
    return problems_of(error, Trace, data, path, lambda loc, within: number)


def _read(path: str) -> str:
    try:
        return _text(Path(path), "utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError([Problem(path, line, "not UTF-8 text")]) from None


def _text(path: Path, encoding: str) -> str:
    """A file's text. Raises UnicodeDecodeError and OSError.

    The latter also of a pipe, instead of waiting, and of a file that is too large.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if path.is_file() and path.stat().st_size > LARGEST_SOURCE:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST_SOURCE >> 20} MiB", str(path))
    return path.read_text(encoding=encoding)


def _validated(
    model: type[_R], document: Document, data: Raw, record: Raw
) -> tuple[_R | None, list[Problem]]:
    """The model of `record`, which is the document's `data` with what it stands for filled in."""
    try:
        return model.model_validate(record, extra="forbid", context={"node_id": True}), []
    except ValidationError as error:
        return None, problems_of(error, model, data, document.path, document.line)


def _from_json(model: type[_R], path: str, text: str) -> _R:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        why = why_lfs_pointer(text[:100].encode()) or f"bad JSON: {error.msg}"
        raise DataError([Problem(path, error.lineno, why)]) from None
    except RecursionError:
        raise DataError([Problem(path, 1, "nested too deeply")]) from None
    except ValueError:  # Python reads no longer ones
        raise DataError([Problem(path, 1, "a whole number has too many digits")]) from None
    try:
        return model.from_elsewhere(data)
    except ValidationError as error:
        problems = problems_of(error, model, data, path, lambda loc, _: _json_line(text, loc))
        raise DataError(problems) from None


def _json_line(text: str, loc: Loc) -> int:
    # JSON is YAML but for rare escapes, and only errors need lines.
    try:
        return compose("", text).line(loc)
    except DataError:
        return 1


def _same_name(document: Document, name: object, names: set[str]) -> list[Problem]:
    if not isinstance(name, str) or name not in names:
        names.add(str(name))
        return []
    needed = " and ".join(f"${{{variable}}}" for variable in document.variables)
    message = f"several family members have the name {name!r}; write {needed} in it"
    return [Problem(document.path, document.line(("name",)), message)]


def _with_content(document: Document, source: Raw, loc: Loc, problems: list[Problem]) -> Raw:
    """`source` with the content of the file it names, where it names one without giving it."""
    source = {"path": source} if isinstance(source, str) else source
    if not isinstance(source, dict) or "content" in source:
        return source
    path = source.get("path")
    if not isinstance(path, str) or not path or unsafe_path(path):
        return {**source, "content": ""}
    try:
        content = _text(Path(document.path).parent / path, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8 text" if isinstance(error, ValueError) else "can't be read"
        reason = "does not exist" if isinstance(error, FileNotFoundError) else reason
        message = f"sources[{loc[-1]}]: file {path!r} {reason}"
        problems.append(Problem(document.path, document.line(loc), message))
        content = ""
    return {**source, "content": content}
