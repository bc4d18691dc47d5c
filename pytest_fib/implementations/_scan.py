"""Read implementations out of a tree of files, by parsing; their code never runs here."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.implementations._found import Implementation
from pytest_fib.implementations.marker import ARGUMENTS, CALLINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAMED_DEFINITION = re.compile(r"""implements\(\s*["']([^"']+)["']""")
# Other JSON may lie beside implementations, as tables of tuned parameters do.
_SOLUTION = re.compile(r""""(spec|sources)"\s*:""")
Markable: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_LANGUAGES = ("python", "triton", "cpp", "cuda", "tilelang", "cutedsl")


class _Mistake(Exception):
    """A wrong ``@implements``: where, and what to do."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def find_implementations(directories: Iterable[Path]) -> tuple[Implementation, ...]:
    """Every implementation under the directories, in the order of their paths.

    One that can't be read is among them with its ``problem``, so that it is seen to fail.
    """
    found: list[Implementation] = []
    for path in sorted(_source_files(directories)):
        if path.suffix == ".py":
            found += _in_module(path)
        elif path.suffix != ".json" or _SOLUTION.search(_text(path)):
            found.append(_in_record(path))
    return tuple(found)


def _source_files(directories: Iterable[Path]) -> Iterator[Path]:
    for directory in directories:
        for folder, subfolders, names in os.walk(directory):
            subfolders[:] = [s for s in subfolders if not s.startswith((".", "__pycache__"))]
            for name in names:
                if name.endswith((".py", ".json")) or name in ("solution.yaml", "solution.yml"):
                    yield Path(folder, name)


def _in_module(path: Path) -> list[Implementation]:
    try:
        text = path.read_text(encoding="utf-8")
        if "implements" not in text:
            return []
        tree = ast.parse(text, str(path))
    except UnicodeDecodeError as error:
        return [_broken(path, path.stem, "", 1, f"not UTF-8: {error.reason}")]
    except SyntaxError as error:
        problem = f"syntax error: {error.msg}"
        names = dict.fromkeys(_NAMED_DEFINITION.findall(text)) or {"": None}
        return [_broken(path, path.stem, name, error.lineno or 1, problem) for name in names]
    return _all_marked(path, list(_top_level(tree.body)))


def _all_marked(path: Path, statements: list[Markable]) -> list[Implementation]:
    """What is marked; of alternatives (as in if and else) the last."""
    last = {statement.name: statement.lineno for statement in statements}
    found: dict[tuple[str, str], Implementation] = {}
    for statement in statements:
        for mark in filter(_is_mark, statement.decorator_list):
            marked = _marked(path, statement, mark)
            if (line := last[statement.name]) != statement.lineno:
                hides = f"{statement.name!r} is defined again on line {line}, which hides this one"
                marked = replace(marked, problem=f"{path}:{statement.lineno}: {hides}")
            found[statement.name, marked.definition] = marked
    return list(found.values())


def _top_level(body: Iterable[ast.stmt]) -> Iterator[Markable]:
    """What a module defines, also under an ``if``, ``try`` or ``with``."""
    for statement in body:
        if isinstance(statement, Markable):
            yield statement
        elif isinstance(statement, (ast.If, ast.Try, ast.With)):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from _top_level(getattr(statement, part, ()))
        elif isinstance(statement, ast.ExceptHandler):
            yield from _top_level(statement.body)


def _broken(path: Path, name: str, definition: str, line: int, problem: str) -> Implementation:
    return Implementation(
        name=name,
        # By custom an implementation lies in a folder named after what it implements.
        definition=definition or path.parent.name,
        path=path,
        line=line,
        problem=f"{path}:{line}: {problem}",
    )


def _is_mark(node: ast.expr) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)
    return name == "implements"


def _marked(path: Path, function: Markable, mark: ast.expr) -> Implementation:
    name = path.stem if function.name == "run" else f"{path.stem}_{function.name}"
    definition = ""
    try:
        if not isinstance(function, ast.FunctionDef):
            kind = "a class" if isinstance(function, ast.ClassDef) else "an async function"
            raise _Mistake(function.lineno, f"marks {kind}; it goes on a plain function")
        definition, facts = _arguments(mark)
    except _Mistake as mistake:
        known = _first_literal(mark)
        return _broken(path, name, known, mistake.line, f"@implements: {mistake}")
    return Implementation(
        name=name,
        definition=definition,
        path=path,
        line=function.lineno,
        symbol=function.name,
        **facts,  # type: ignore[arg-type]
    )


def _first_literal(mark: ast.expr) -> str:
    first = mark.args[0] if isinstance(mark, ast.Call) and mark.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _arguments(mark: ast.expr) -> tuple[str, dict[str, object]]:
    """The definition and the other arguments of an ``@implements(...)``. Raises _Mistake."""
    if not isinstance(mark, ast.Call) or len(mark.args) > 1:
        raise _Mistake(mark.lineno, 'takes one definition name: @implements("rmsnorm_d4096", ...)')
    facts: dict[str, object] = {}
    definition = _literal("definition", mark.args[0], str) if mark.args else ""
    for keyword in mark.keywords:
        if keyword.arg == "definition":
            definition = _literal("definition", keyword.value, str)
        else:
            facts.update([_fact(keyword)])
    if not isinstance(definition, str) or not definition:
        raise _Mistake(mark.lineno, "names no definition")
    return definition, facts


def _fact(keyword: ast.keyword) -> tuple[str, object]:
    name, line = keyword.arg, keyword.value.lineno
    if name not in ARGUMENTS:
        raise _Mistake(line, f"unknown argument {name!r} (there are: {', '.join(ARGUMENTS)})")
    value = _literal(name, keyword.value, ARGUMENTS[name])
    if name == "language" and value not in _LANGUAGES:
        raise _Mistake(line, f"language {value!r} is not one of {', '.join(_LANGUAGES)}")
    if name == "calling" and value not in CALLINGS:
        raise _Mistake(line, f"calling {value!r} is not one of {', '.join(CALLINGS)}")
    return name, value


def _literal(name: str, node: ast.expr, kind: type) -> object:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        problem = f"argument {name!r} is not a literal ({ast.unparse(node)})"
        hint = "it is read without running the file, so write the value itself"
        raise _Mistake(node.lineno, f"{problem}; {hint}") from None
    if kind is list:
        if isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        raise _Mistake(node.lineno, f"argument {name!r} is not a list of strings")
    if not isinstance(value, kind):
        raise _Mistake(node.lineno, f"argument {name!r} is not a string")
    return value


def _in_record(path: Path) -> Implementation:
    from pytest_fib.data import DataError, load_solution_file

    try:
        solution = load_solution_file(path)
    except DataError as error:
        name = path.stem if path.suffix == ".json" else path.parent.name
        definition = _quoted_definition(path)
        return Implementation(name, definition, path, 1, problem=str(error), record=path)
    return Implementation(
        name=solution.name,
        definition=solution.definition,
        path=path,
        line=1,
        symbol=solution.entry_symbol,
        language=solution.spec.language.value,
        target_hardware=tuple(solution.spec.target_hardware),
        dependencies=tuple(solution.spec.dependencies),
        calling=solution.spec.calling or "value",
        author=solution.author,
        description=solution.description or "",
        record=path,
    )


def _quoted_definition(path: Path) -> str:
    """The definition that a malformed record seems to name, so that its failure lands there."""
    match = re.search(r"""["']?definition["']?\s*:\s*["']?([\w\-.*\[\]?]+)""", _text(path))
    return match.group(1) if match else ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
