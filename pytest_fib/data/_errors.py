"""Validation errors as sentences a person can act on, each with its place."""

import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ._base import Loc, Raw, did_you_mean, unknown


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong in a file; lines count from 1."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class DataError(ValueError):
    """A file that can't be used. Its text is every problem in it, one per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        # Repeated: the members of a family share most of their mistakes.
        self.problems = tuple(sorted(set(problems)))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


# As many choices can be read at a glance.
FEW_CHOICES = 6
# Keys that say which model of a union a record is.
_TAG_KEYS = ("type", "kind")
# Tags that no file has: a rule with a value has no kind.
_UNWRITTEN = {"fixed value"}
# Type of a pydantic error -> what the value should be.
_WANTED = {
    **dict.fromkeys(["string_type", "string_sub_type"], "text"),
    **dict.fromkeys(["int_type", "int_parsing", "int_from_float"], "a whole number"),
    **dict.fromkeys(["float_type", "float_parsing", "finite_number"], "a number"),
    **dict.fromkeys(["bool_type", "bool_parsing"], "true or false"),
    **dict.fromkeys(["dict_type", "model_type", "model_attributes_type"], "a mapping"),
    **dict.fromkeys(["list_type", "tuple_type"], "a list"),
}

# Type of a pydantic error -> what it calls the limit, and how the limit is said.
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}


def shown(value: object) -> str:
    """`value` as a message names it: YAML's words, and nothing long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _sentence(error: ErrorDetails) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind in _WANTED:
        return f"should be {_WANTED[kind]}, not {shown(value)}"
    if kind in ("enum", "literal_error", "union_tag_invalid"):
        expected = context.get("expected") or context["expected_tags"]
        choices = [c for c in re.findall(r"'([^']*)'", expected) if c not in _UNWRITTEN]
        tag = context.get("tag", value)
        near = did_you_mean(tag, choices) if len(choices) > FEW_CHOICES else ""
        return f"{shown(tag)} is not one of {', '.join(choices)}{near}"
    if (limit := _LIMITS.get(kind)) is not None:
        key, words = limit
        return f"should be {words} {context[key]:.15g}, not {shown(value)}"
    if kind in ("too_short", "string_too_short", "string_too_long"):
        most = context.get("max_length")
        return f"should have at most {most} characters" if most else "should not be empty"
    if kind == "json_invalid":
        return f"bad JSON: {context['error']}"
    return str(context["error"]) if kind == "value_error" else error["msg"]


def _known_keys(kind: Raw, loc: Loc) -> Iterator[str]:
    """Names of the fields at `loc` of the type `kind`."""
    origin: Raw = get_origin(kind)
    args = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if not loc:
            yield from (field.alias or name for name, field in kind.model_fields.items())
        elif field := kind.model_fields.get(str(loc[0])):
            yield from _known_keys(field.annotation, loc[1:])
    elif origin is Annotated:
        yield from _known_keys(args[0], loc)
    elif origin in (Union, types.UnionType):
        for member in args:
            yield from _known_keys(member, _without_tag(member, loc))
    elif args:
        yield from _known_keys(args[-1] if origin is dict else args[0], loc[1:])


def _without_tag(member: Raw, loc: Loc) -> Loc:
    fields = getattr(member, "model_fields", {})
    tags = [fields[key].default for key in _TAG_KEYS if key in fields]
    return loc[1:] if loc and loc[0] in tags else loc


def _real(loc: Loc, data: Raw) -> Loc:
    """`loc` without what is not in the data: missing keys, and tags that pydantic adds."""
    real: list[int | str] = []
    for key in loc:
        entries = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(entries, dict) and key in entries:
            real.append(key)
            data = entries[key]
    return tuple(real)


def at(loc: Loc, message: str) -> str:
    """`message` after the path it is about, as in ``axes.batch.type: ...``."""
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in loc)
    return f"{keys[1:]}: {message}" if keys else message


def _located(error: ErrorDetails, model: type[BaseModel], data: Raw) -> tuple[Loc, str]:
    loc = error["loc"]
    real = _real(loc, data)
    if error["type"] == "missing":
        return real, at(real, f"missing key {loc[-1]!r}")
    if error["type"] == "union_tag_not_found":
        return real, at(real, "missing key 'type'")
    if error["type"] == "extra_forbidden":
        message = unknown("key", loc[-1], _known_keys(model, loc[:-1]))
        # As of {description: sorted, no duplicates}, which YAML ends at the comma.
        is_text = error["input"] is None and " " in str(loc[-1])
        quoted = "; a text with a comma between { and } has to be in quotes" if is_text else ""
        return real, at(real[:-1], f"{message}{quoted}")
    if error["type"] == "union_tag_invalid":
        real = (*real, error["ctx"]["discriminator"].strip("'"))
    return real, at(real, _sentence(error))


def first_problem(error: ValidationError, model: type[BaseModel], data: Raw) -> str:
    """What is wrong first with ``data`` that failed to be a ``model``, with its place in it."""
    return problems_of(error, model, data, "", lambda loc, within: 0)[0].message


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    data: Raw,
    path: str,
    line_at: Callable[[Loc, int], int],
) -> list[Problem]:
    """The problems of a file whose `data` failed to be a `model`.

    `line_at(loc, within)` is the line in the file of a place in the data, `within` being the line
    of a text value there, 0 for the value itself.
    """
    problems = []
    for item in error.errors(include_url=False):
        loc, message = _located(item, model, data)
        within = item.get("ctx", {}).get("line", 0) if item["type"] == "fib" else 0
        problems.append(Problem(path, line_at(loc, within), message))
    return problems
