"""Finds implementations in files by parsing them; their code never runs here."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

from pytest_fib.discovery._folders import YAML_SUFFIXES, files_below
from pytest_fib.discovery._header import LANGUAGES, MISNAMED, in_header, misnamed
from pytest_fib.discovery._implementation import Implementation
from pytest_fib.discovery._marker import ARGUMENTS
from pytest_fib.discovery._triton_functions import launches_triton

#: Python has them in strings, UTF-8 does not.
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMED_DEFINITION = re.compile(r"""implements\(\s*["']([^"']+)["']""")
# There may be other JSON beside implementations, such as tables of tuned parameters.
_SOLUTION = re.compile(r""""(spec|sources)"\s*:""")
#: Editors write a byte order mark, which Python and C++ read over.
_ENCODING = "utf-8-sig"
_SUFFIXES = (".py", ".json", *LANGUAGES, *MISNAMED)
Markable: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Mistake(Exception):
    """A wrong ``@implements``: where, and what to do."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def find_implementations(directories: Iterable[Path]) -> tuple[Implementation, ...]:
    """Every implementation under the directories, in the order of their paths.

    One that can't be read is among them with its ``problem``, so that it is seen to fail.
    """
    from pytest_fib.data import visible_line

    paths = sorted(_source_files(directories))
    # Names of files and of records may hold any character; that of an item is shown everywhere.
    return tuple(
        replace(each, name=visible_line(each.name), problem=each.problem or _bad_name(path))
        for path in paths
        for each in _in_file(path)
    )


def _bad_name(path: Path) -> str | None:
    if "::" in path.name:
        return f"{path}:1: '::' ends the name of a file where a function is named: rename the file"
    try:
        str(path).encode()
    except UnicodeEncodeError:  # records and requests, which name the file, are UTF-8
        if sys.getfilesystemencoding() != "utf-8":
            return f"{path}:1: its path can't be read in this locale: set LC_ALL=C.UTF-8"
        return f"{path}:1: its path is not UTF-8: rename the file or folder"
    return None


def why_unreadable(path: Path, error: OSError | UnicodeDecodeError) -> str:
    """What kept a file from being read, with its place."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        return f"{path}:{line}: not UTF-8: {error.reason}"
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f"{path}:1: can't be read: it links to {path.readlink()}, which does not exist"
    return f"{path}:1: can't be read: {error.strerror}"


def _in_file(path: Path) -> list[Implementation]:
    from pytest_fib.data import LARGEST_SOURCE

    if path.exists() and not path.is_file():  # a pipe, say, which nobody may ever write to
        return [_broken(path, "", f"{path}:1: is no regular file")]
    try:
        if path.exists() and path.stat().st_size > LARGEST_SOURCE:
            return _in_large_file(path)
        return _in_readable_file(path)
    except (OSError, UnicodeDecodeError) as error:
        return [_broken(path, "", why_unreadable(path, error))]
    except RecursionError:  # of what walks the parsed file
        return [_broken(path, "", f"{path}:1: nested too deeply")]


def _in_readable_file(path: Path) -> list[Implementation]:
    if path.suffix in MISNAMED:
        return list(misnamed(path, path.read_text(encoding=_ENCODING, errors="replace")))
    if path.suffix in LANGUAGES:
        return list(in_header(path, path.read_text(encoding=_ENCODING)))
    return _in_module(path) if path.suffix == ".py" else _in_record(path)


def _in_large_file(path: Path) -> list[Implementation]:
    """What can't be sent, if it begins like an implementation: there may be other data."""
    from pytest_fib.data import LARGEST_SOURCE

    with path.open("rb") as file:
        begin = file.read(LARGEST_SOURCE // 64).decode(errors="replace")
    is_one = _SOLUTION.search(begin) if path.suffix == ".json" else "implements" in begin
    if not is_one and path.suffix not in (".yaml", ".yml"):
        return []
    return [_broken(path, "", f"{path}:1: is larger than {LARGEST_SOURCE >> 20} MiB")]


def _source_files(directories: Iterable[Path]) -> Iterator[Path]:
    """Files that may have implementations."""
    for directory in directories:
        for path in files_below(directory):
            if path.name.endswith(_SUFFIXES) or path.name in ("solution.yaml", "solution.yml"):
                yield path


def _in_module(path: Path) -> list[Implementation]:
    text = path.read_text(encoding=_ENCODING)
    if "implements" not in text:
        return []
    try:
        tree = ast.parse(text, str(path))
    except (ValueError, RecursionError, MemoryError) as error:  # null characters, endless nesting
        return [_broken(path, "", f"{path}:1: not Python: {error or 'nested too deeply'}")]
    except SyntaxError as error:
        problem = f"{path}:{error.lineno or 1}: syntax error: {error.msg}"
        names = dict.fromkeys(_NAMED_DEFINITION.findall(text)) or {"": None}
        return [_broken(path, name, problem, line=error.lineno or 1) for name in names]
    statements = list(_top_level(tree.body))
    marked = _all_marked(path, statements, set(_hidden(tree.body)))
    return [*marked, *_out_of_reach(path, tree, statements), *_called(path, tree)]


def _out_of_reach(
    path: Path, tree: ast.Module, statements: Iterable[Markable]
) -> Iterator[Implementation]:
    """Marked methods, and marked functions inside others: nobody but these could call them."""
    reachable = set(statements)
    for node in ast.walk(tree):
        if isinstance(node, Markable) and node not in reachable:
            for mark in filter(_is_mark, node.decorator_list):
                where = "marks what is inside a class or function; it goes on one of the module's"
                problem = f"{path}:{node.lineno}: @implements: {where}"
                name = path.stem if node.name == "run" else f"{path.stem}_{node.name}"
                yield _broken(path, _first_literal(mark), problem, name=name, line=node.lineno)


def _called(path: Path, tree: ast.Module) -> Iterator[Implementation]:
    """``run = implements("x")(lambda ...)``: nothing that could be named by its source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and _is_mark(node.func):
            remedy = 'goes above a function as a decorator: @implements("..."), then def run(...)'
            problem = f"{path}:{node.lineno}: @implements: {remedy}"
            yield _broken(path, _first_literal(node.func), problem, line=node.lineno)


def _all_marked(
    path: Path, statements: list[Markable], hidden: Collection[Markable]
) -> list[Implementation]:
    """The marked functions; of alternatives (as in if and else) the last.

    Those that are ``hidden`` are no alternatives, and fail.
    """
    named = {statement.name: statement for statement in statements}
    is_triton = cache(partial(launches_triton, module=named))  # a function may have many marks
    implementations: dict[tuple[str, str, bool], Implementation] = {}
    for statement in statements:
        for mark in filter(_is_mark, statement.decorator_list):
            marked = _marked(path, statement, mark, is_triton)
            if (line := named[statement.name].lineno) != statement.lineno:
                hides = f"{statement.name!r} is defined again on line {line}, which hides this one"
                marked = replace(marked, problem=f"{path}:{statement.lineno}: {hides}")
            is_lost = statement in hidden
            implementations[statement.name, marked.definition, is_lost] = marked
    return list(implementations.values())


def _hidden(body: Sequence[ast.stmt]) -> Iterator[Markable]:
    """What one of the same name follows in the same block."""
    last = {each.name: each for each in body if isinstance(each, Markable)}
    for statement in body:
        if isinstance(statement, Markable) and last[statement.name] is not statement:
            yield statement
    for statement in body:
        for block in _blocks(statement):
            yield from _hidden(block)


def _top_level(body: Iterable[ast.stmt]) -> Iterator[Markable]:
    """The functions and classes of a module, also under an ``if``, ``try`` or ``with``."""
    for statement in body:
        if isinstance(statement, Markable):
            yield statement
        for block in _blocks(statement):
            yield from _top_level(block)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement that are a module's own level."""
    if isinstance(statement, (ast.If, ast.Try, ast.With)):
        yield statement.body
        yield from (handler.body for handler in getattr(statement, "handlers", []))
        yield from (getattr(statement, part, []) for part in ("orelse", "finalbody"))


def _broken(
    path: Path, definition: str, problem: str, *, name: str = "", line: int = 1
) -> Implementation:
    """An implementation that can't be tested.

    Without a ``definition`` it is of that which its folder is named after, as is the custom.
    """
    home = path.parent if path.suffix in YAML_SUFFIXES else path
    definition = definition or home.parent.name
    language = LANGUAGES.get(path.suffix, "python")
    return Implementation(
        name or home.stem, definition, path, line, language=language, problem=problem
    )


def _is_mark(node: ast.expr) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)
    return name == "implements"


def _marked(
    path: Path, function: Markable, mark: ast.expr, is_triton: Callable[[Markable], bool]
) -> Implementation:
    name = path.stem if function.name == "run" else f"{path.stem}_{function.name}"
    definition = ""
    try:
        if not isinstance(function, ast.FunctionDef):
            kind = "a class" if isinstance(function, ast.ClassDef) else "an async function"
            raise _Mistake(function.lineno, f"marks {kind}; it goes on a plain function")
        definition, facts = _arguments(mark)
        if "language" not in facts and is_triton(function):
            facts["language"] = "triton"
    except _Mistake as mistake:
        problem = f"{path}:{mistake.line}: @implements: {mistake}"
        return _broken(path, _first_literal(mark), problem, name=name, line=mistake.line)
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
    from pytest_fib.data import SupportedLanguages

    if SupportedLanguages(str(facts.get("language", "python"))).facts.for_cuda:
        facts.setdefault("target_hardware", ("cuda",))
    return definition, facts


def _fact(keyword: ast.keyword) -> tuple[str, object]:
    name, line = keyword.arg, keyword.value.lineno
    if name not in ARGUMENTS:
        raise _Mistake(line, f"unknown argument {name!r} (there are: {', '.join(ARGUMENTS)})")
    value = _literal(name, keyword.value, ARGUMENTS[name])
    if problem := _why_refused(name, value):
        raise _Mistake(line, problem)
    return name, value


def _why_refused(name: str, value: Any) -> str | None:
    """The problem of an argument's value, or None."""
    from pytest_fib.data import Calling, SupportedLanguages, bad_requirement, bad_target

    choices = {"language": [*SupportedLanguages], "calling": get_args(Calling)}.get(name)
    if choices and value not in choices:
        return f"{name} {value!r} is not one of {', '.join(choices)}"
    if name == "target_hardware" and not value:
        return "target_hardware is empty; name what it runs on, as in ['cpu', 'cuda']"
    why = {"dependencies": bad_requirement, "target_hardware": bad_target}.get(name)
    problems = filter(None, map(why, value)) if why else iter(())
    return next((f"{name}: {problem}" for problem in problems), None)


def _literal(name: str, node: ast.expr, kind: type) -> object:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):  # the latter for a dict with a list as key
        problem = f"argument {name!r} is not a literal ({ast.unparse(node)})"
        hint = "it is read without running the file, so write the value itself"
        raise _Mistake(node.lineno, f"{problem}; {hint}") from None
    if isinstance(value, str) and _SURROGATE.search(value):
        raise _Mistake(node.lineno, f"argument {name!r} is no Unicode text: {value!r}")
    if kind is list:
        if isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        example = f", as [{value!r}] is" if isinstance(value, str) else ""
        raise _Mistake(node.lineno, f"argument {name!r} is not a list of strings{example}")
    if not isinstance(value, kind):
        raise _Mistake(node.lineno, f"argument {name!r} is not a string")
    return value


def _in_record(path: Path) -> list[Implementation]:
    from pytest_fib.data import DataError, load_solution_file

    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json" and not _SOLUTION.search(text):
        return []
    try:
        solution = load_solution_file(path)
    except DataError as error:
        return [replace(_broken(path, _quoted_definition(text), str(error)), record=path)]
    return [Implementation.of_record(solution, path)]


def _quoted_definition(text: str) -> str:
    """The definition that a malformed record seems to name: its items show the problem."""
    match = re.search(r"""["']?definition["']?\s*:\s*["']?([\w\-.*\[\]?]+)""", text)
    return match.group(1) if match else ""
