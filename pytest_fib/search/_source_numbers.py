"""The numbers in the source of an implementation: where it may do something else.

As fuzzers take a dictionary from the program (``-fsanitize-coverage=trace-cmp`` of LLVM): a kernel
that is wrong beyond 192 columns, or where an index is 300, mostly says 192 or 300 somewhere.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TypeAlias

Number: TypeAlias = "int | float"

#: Numbers nearer to 0 are tried anyway, as sizes and as values.
LEAST_WHOLE = 3
#: Beyond these there is no size, and no integer of an input.
MOST_BITS = 63
MOST_DIGITS = 19
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
#: Comments and texts of C++, in which numbers mean nothing.
_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""", re.DOTALL
)
_SHIFTED = re.compile(r"(?<![\w.])(\d+)[uUlL]*\s*<<\s*(\d+)[uUlL]*(?![\w.])")
_NUMBER = re.compile(
    r"(?<![\w.])(?:(0[xX][\da-fA-F']+)|((?:\d[\d']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[uUlLfFzZ]*(?![\w.])"
)


def source_numbers(sources: Mapping[str, str], file: str, symbol: str) -> list[Number]:
    """The numbers, in order, of the code that ``symbol`` in ``file`` may run, of these sources.

    In Python that is what it names, directly or not, with products and powers of numbers computed.
    Of other languages, all files: ``sources`` has their texts by path. None of whole numbers below
    ``LEAST_WHOLE``.
    """
    if file.endswith(".py"):
        modules = {path: tree for path, text in sources.items() if (tree := _parsed(path, text))}
        found = _found_in(modules, file, symbol)
    else:
        found = [number for text in sources.values() for number in _of_cpp(text)]
    telling = sorted(filter(_is_telling, found), key=lambda n: (n, isinstance(n, int)))
    return [*{number: number for number in telling}.values()]  # 192 rather than 192.0


def _found_in(modules: Mapping[str, ast.Module], file: str, symbol: str) -> list[Number]:
    """The numbers of Python code; none of code that is too deep to be read."""
    try:
        return [*_of_python(modules, file, symbol)]
    except RecursionError:
        return []


def _is_telling(number: Number) -> bool:
    if isinstance(number, int):
        return LEAST_WHOLE <= abs(number) < 1 << MOST_BITS
    return math.isfinite(number) and abs(number) not in (0.0, 1.0)


def _parsed(path: str, text: str) -> ast.Module | None:
    """None for what isn't Python, or can't be read: importing it says so."""
    if PurePath(path).suffix != ".py":
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _of_python(modules: Mapping[str, ast.Module], file: str, symbol: str) -> Iterator[Number]:
    """The numbers in all that is defined under a name which that code has, in any module."""
    by_name: dict[str, list[ast.AST]] = {}
    for module in modules.values():
        for name, node in _named(module):
            by_name.setdefault(name, []).append(node)
    entry = modules.get(file)
    own = [node for name, node in _definitions(entry) if name == symbol] if entry else []
    unread: list[ast.AST] = own or by_name.get(symbol, []).copy()
    seen = {symbol}
    while unread:
        node = unread.pop()
        yield from _numbers_of(node)
        for name in sorted({*_names(node)} - seen):
            seen.add(name)
            unread += by_name.get(name, ())


def _definitions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """All functions and classes, those within others as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node


def _named(module: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """What a module defines, by name; what is within an ``if`` or ``try`` as well."""
    yield from _definitions(module)
    for node in ast.walk(module):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from ((each, node) for each in _names(target))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _numbers_of(tree: ast.AST) -> Iterator[Number]:
    """The numbers in code; of what is calculated of numbers alone, the result."""
    number = _computed(tree)
    if number is not None:
        yield number
        return
    for child in ast.iter_child_nodes(tree):
        yield from _numbers_of(child)


def _computed(node: ast.AST) -> Number | None:
    """What a number, or an expression of numbers alone, is; None of others."""
    if isinstance(node, ast.Constant):
        value = node.value
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _computed(node.operand)
        return None if operand is None else -operand
    if isinstance(node, ast.BinOp) and (apply := _OPERATORS.get(type(node.op))):
        left, right = _computed(node.left), _computed(node.right)
        if left is None or right is None or _is_huge(node.op, left, right):
            return None
        try:
            result = apply(left, right)
        except (ArithmeticError, TypeError, ValueError):  # such as a shift by -1, or 1.0 << 2
            return None
        return result if isinstance(result, int | float) else None
    return None


def _is_huge(how: ast.operator, left: Number, right: Number) -> bool:
    """Whether a power may have more digits than there is time for."""
    grows = isinstance(how, ast.Pow | ast.LShift)
    return grows and (abs(right) > MOST_BITS or abs(left) > 1 << MOST_BITS)


def _of_cpp(text: str) -> Iterator[Number]:
    code = _NO_CODE.sub(" ", text)
    for number, by in _SHIFTED.findall(code):
        if int(by) <= MOST_BITS:
            yield int(number) << int(by)
    yield from _literals(_NUMBER.findall(_SHIFTED.sub(" ", code)))


def _literals(found: Iterable[tuple[str, str]]) -> Iterator[Number]:
    for hexadecimal, decimal in found:
        digits = (hexadecimal or decimal).replace("'", "")
        if hexadecimal:
            yield int(digits, 16)
        elif not digits.isdecimal():
            yield float(digits)
        elif len(digits) <= MOST_DIGITS:
            yield int(digits)
