"""YAML with a line for everything, and files that stand for a family of documents.

Scalars follow YAML 1.2's core schema: ``1e-5`` is a number, ``no`` and ``2026-01-01`` are text.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from ._base import Loc, Raw
from ._errors import DataError, Problem, at

_WORDS: dict[str, Any] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf"], math.inf),
    "-.inf": -math.inf,
    **dict.fromkeys([".nan", ".NaN", ".NAN"], math.nan),
}
_NUMBER = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", re.ASCII)
# Longer ones int() refuses.
_INTEGER = re.compile(r"[-+]?\d{1,4000}|0x[\da-fA-F]+|0o[0-7]+", re.ASCII)

_STRING_TAG = "tag:yaml.org,2002:str"
_PLAIN_TAGS = (_STRING_TAG, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
# A file of nine lines can stand for billions of entries by aliases of aliases.
_MOST_ENTRIES = 1_000_000
_BLOCK = ("|", ">")
_UNEXPECTED_KEY = "mapping values are not allowed in this context"
_ANOTHER_DOCUMENT = "but found another document"
_TAB = re.compile(r" *\t")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Only composes; what scalars mean is decided here."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


# A plain `${x}` in a flow mapping would end at its brace, so in families these stand for braces:
# as wide as what they replace, so that columns stay right.
_OPEN, _CLOSE = "\ue000", "\ue001"
_VARIABLE = re.compile(rf"\${_OPEN}(\w+){_CLOSE}")


@dataclass(frozen=True)
class Document:
    """One YAML document: a whole file, or one member of its family."""

    path: str
    root: yaml.Node
    variables: Mapping[str, str] = field(default_factory=dict)

    def data(self) -> tuple[Any, list[Problem]]:
        """The document as plain data, and what is wrong with its form.

        Raises DataError where it has no end, as an alias to its own parent makes it.
        """
        problems: list[Problem] = []
        try:
            return self._value(self.root, (), problems), problems
        except RecursionError:
            raise DataError([self._problem(self.root, (), "nested too deeply")]) from None

    def line(self, loc: Loc, within: int = 0) -> int:
        """The line of a place in the data: of a mapping's key, or of a list's entry."""
        node, line = self.root, self.root.start_mark.line + 1
        for key in loc:
            entry = self.entry(node, key)
            if entry is None:
                return line
            place, node = entry
            line = place.start_mark.line + 1
        # A block scalar's text starts on the line after its `|`.
        return line + within if isinstance(node, yaml.ScalarNode) and node.style in _BLOCK else line

    def entry(self, node: yaml.Node, key: int | str) -> tuple[yaml.Node, yaml.Node] | None:
        """The nodes of a key and its value; of a list's entry, its node twice. None if absent."""
        if isinstance(node, yaml.MappingNode):
            pairs = (pair for pair in node.value if self._text(pair[0]) == key)
            return next(pairs, None)
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            return (node.value[key],) * 2 if key < len(node.value) else None
        return None

    def _text(self, node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            return None
        text: str = node.value
        if self.variables and _OPEN in text:
            text = _VARIABLE.sub(lambda match: self.variables[match[1]], text)
        return text

    def _value(self, node: yaml.Node, loc: Loc, problems: list[Problem]) -> Raw:
        if node.tag not in _PLAIN_TAGS:
            problems.append(self._problem(node, loc, f"tags like {node.tag!r} are not supported"))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc, problems)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*loc, i), problems) for i, item in enumerate(node.value)]
        text = self._text(node) or ""
        return text if getattr(node, "style", None) else _plain_scalar(text)

    def _mapping(self, node: yaml.Node, loc: Loc, problems: list[Problem]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value in node.value:
            key = self._text(key_node)
            if key is None:
                problems.append(self._problem(key_node, loc, "a key should be text"))
                continue
            if key in data:
                message = f"key {key!r} is given twice, first on line {lines[key]}"
                problems.append(self._problem(key_node, loc, message))
            lines.setdefault(key, key_node.start_mark.line + 1)
            data[key] = self._value(value, (*loc, key), problems)
        return data

    def _problem(self, node: yaml.Node, loc: Loc, message: str) -> Problem:
        return Problem(self.path, node.start_mark.line + 1, at(loc, message))


def _plain_scalar(text: str) -> Raw:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0 if text[:2] in ("0x", "0o") else 10)
    return float(text) if _NUMBER.fullmatch(text) else text


def compose(path: str, text: str) -> Document:
    """The single document in `text`. Raises DataError on bad syntax and on an empty file."""
    try:
        root = _Loader(text).get_single_node()
        if root is not None and "*" in text and _entries(root, {}) > _MOST_ENTRIES:
            message = "aliases (*name) of aliases make too many entries; write out what is meant"
            raise DataError([Problem(path, 1, message)])
    except yaml.MarkedYAMLError as error:
        raise DataError([_syntax_problem(path, text.splitlines(), error)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DataError([Problem(path, line, f"bad YAML: {error.reason}")]) from None
    except RecursionError:
        raise DataError([Problem(path, 1, "nested too deeply")]) from None
    if root is None:
        raise DataError([Problem(path, 1, "the file is empty")])
    return Document(path, root)


def _syntax_problem(path: str, lines: list[str], error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    if error.context == "while scanning a simple key":  # whose end is only known lines later
        mark = error.context_mark
    number = mark.line + 1 if mark else 1
    line = lines[number - 1] if number <= len(lines) else ""
    parts = [error.problem, error.context]
    if _TAB.match(line):
        parts = ["the line is indented by a tab, where blanks are needed"]
    elif error.problem == _ANOTHER_DOCUMENT:
        parts = ["another document begins here; a file holds one, so give each a file of its own"]
    elif error.problem == _UNEXPECTED_KEY and mark is not None:
        parts = [_why_no_key(line[: mark.column], lines[: number - 1])]
    elif error.context_mark is not None and error.context_mark.line + 1 < number:
        parts.append(f"which begins on line {error.context_mark.line + 1}")
    return Problem(path, number, "bad YAML: " + ", ".join(part for part in parts if part))


def _why_no_key(before: str, earlier: list[str]) -> str:
    """Why there can't be a key behind these characters of a line, and these lines."""
    if ": " in before:
        return "there is a second ':' in the line; a text that holds one needs quotes"
    above = next((line for line in reversed(earlier) if line.strip()), "")
    if ":" in above:
        return "a key is indented further than the one above, which has a value already"
    return "a key can't be here: a line above lacks its ':', or a text of several lines its '|'"


def _entries(node: yaml.Node, known: dict[int, int]) -> int:
    """How many entries there are in and below a node once aliases are followed."""
    if id(node) not in known:
        known[id(node)] = 1  # an alias to a parent: it has no end, which is found later
        pairs = isinstance(node, yaml.MappingNode)
        below = itertools.chain.from_iterable(node.value) if pairs else node.value
        if not isinstance(node, yaml.ScalarNode):
            known[id(node)] += sum(_entries(entry, known) for entry in below)
    return known[id(node)]


def compose_family(path: str, text: str) -> list[Document]:
    """The document in `text`, or every member of the family that its ``family:`` key makes."""
    if not re.search(r"^family\s*:", text, re.MULTILINE):
        return [compose(path, text)]
    document = compose(path, re.sub(r"\$\{(\w+)\}", rf"${_OPEN}\1{_CLOSE}", text))
    choices = _choices(document)
    if problems := list(_unknown_variables(path, document.root, choices)):
        raise DataError(problems)
    return [
        Document(path, document.root, dict(zip(choices, values, strict=True)))
        for values in itertools.product(*choices.values())
    ]


def _choices(document: Document) -> dict[str, list[str]]:
    entry = document.entry(document.root, "family")
    if entry is None or not isinstance(entry[1], yaml.MappingNode) or not entry[1].value:
        message = "family: should be a mapping of names to lists"
        raise DataError([Problem(document.path, document.line(("family",)), message)])
    choices: dict[str, list[str]] = {}
    problems = []
    for key, values in entry[1].value:
        items = values.value if isinstance(values, yaml.SequenceNode) else []
        if not items or not all(isinstance(item, yaml.ScalarNode) for item in items):
            message = f"family.{key.value}: should be a list of values"
            problems.append(Problem(document.path, key.start_mark.line + 1, message))
        choices[str(key.value)] = [item.value for item in items]
    if problems:
        raise DataError(problems)
    return choices


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from itertools.chain.from_iterable(map(_scalars, pair))
    else:
        yield from itertools.chain.from_iterable(map(_scalars, node.value))


def _unknown_variables(path: str, root: yaml.Node, family: Iterable[str]) -> Iterator[Problem]:
    for node in _scalars(root):
        for match in _VARIABLE.finditer(node.value) if _OPEN in node.value else ():
            if match[1] not in family:
                below = node.value.count("\n", 0, match.start()) + 1 if node.style in _BLOCK else 0
                names = ", ".join(f"${{{name}}}" for name in family)
                message = f"unknown ${{{match[1]}}}; the family has {names}"
                yield Problem(path, node.start_mark.line + 1 + below, message)
