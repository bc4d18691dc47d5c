"""Reads the comments by which C++ and CUDA files describe themselves, like ``@implements``."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pytest_fib.discovery._implementation import Implementation

#: The language of a file that has a header.
LANGUAGES = {".cu": "cuda", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp"}
#: Suffixes of files that are no sources by themselves, or that nothing here compiles.
MISNAMED = (".cuh", ".hip", ".c", ".CU", ".CPP", ".C")
#: What a header may say. Those of the second line may name several.
_KEYS = ("implements", "entry", "calling", "binding", "author", "description")
_LISTS = {"target": "target_hardware", "flags": "flags", "dependencies": "dependencies"}
#: The first line of a header, but in another kind of comment, indented, or as Python marks it.
_NEARLY = re.compile(
    r"""^[ \t]*(?:/[/*]+|\*)[ \t]*@?implements[ \t]*[:(][ \t"']*([^\s"')*]*)""", re.I | re.M
)
_LINE = re.compile(r"^//[ \t]*([\w-]+)[ \t]*:[ \t]*(.*?)[ \t]*$")


def in_header(path: Path, text: str) -> Iterator[Implementation]:
    """The implementations that the file's comments name, each from a line ``// implements: x`` on.

    The other keys follow on the next lines: ``// target: sm_90``. One that says something wrong has
    it as its problem.
    """
    first = list(_begun(path, text))
    yield from first
    if not first and (near := _NEARLY.search(text)):
        line = text.count("\n", 0, near.start()) + 1
        problem = f"{path}:{line}: is no header; begin a line with // implements: {near[1]}"
        implementation = _implementation(path, line, {"implements": near[1]})
        yield replace(implementation, problem=problem.rstrip())


def misnamed(path: Path, text: str) -> Iterator[Implementation]:
    """The same of a file whose suffix is none that is compiled: that is the problem of each.

    In such a file, several words are prose.
    """
    remedy = f"is not compiled by itself: name it {path.stem}.cu or {path.stem}.cpp"
    for each in _begun(path, text) if "implements" in text else ():
        if " " not in each.definition:
            yield replace(each, problem=f"{path}:{each.line}: {remedy}")


def _begun(path: Path, text: str) -> Iterator[Implementation]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if (match := _LINE.match(line)) and match[1] == "implements":
            yield _implementation(path, number, _facts(lines[number - 1 :]))


def _facts(lines: list[str]) -> dict[str, str]:
    """The keys of a block of comments up to the next ``implements``."""
    facts: dict[str, str] = {}
    for line in lines:
        match = _LINE.match(line)
        if not line.startswith("//") or (match and facts and match[1] == "implements"):
            break
        if match:
            facts.setdefault(match[1], match[2])
    return facts


def _implementation(path: Path, line: int, facts: dict[str, str]) -> Implementation:
    language = LANGUAGES.get(path.suffix, "cuda")
    entry = facts.get("entry") or "run"
    name = path.stem if entry == "run" else f"{path.stem}_{entry}"
    targets = ("cuda",) if language == "cuda" else ("cpu",)
    wrong = _why_wrong(facts)
    given: dict[str, Any] = {
        field: _listed(key, facts[key]) for key, field in _LISTS.items() if facts.get(key)
    }
    return Implementation(
        name=name,
        definition=facts["implements"] or path.parent.name,
        path=path,
        line=line,
        symbol=entry,
        language=language,
        calling=facts.get("calling", "destination"),  # type: ignore[arg-type]  # checked above
        binding=facts.get("binding"),  # type: ignore[arg-type]
        author=facts.get("author", ""),
        description=facts.get("description", ""),
        problem=f"{path}:{line}: {wrong}" if wrong else None,
        **{"target_hardware": targets, **given},
    )


def _listed(key: str, text: str) -> tuple[str, ...]:
    """What a line names; between requirements and between targets there may be commas."""
    if key == "flags":
        return tuple(_flags(text) or ())
    # numpy, flash-attn>=2,<3
    return tuple(filter(None, re.split(r"[\s,]+(?![\s,<>=!~])", text)))


def _flags(text: str) -> list[str] | None:
    """As a shell splits them; None where a quotation has no end."""
    try:
        return shlex.split(text)
    except ValueError:
        return None


def _why_wrong(facts: dict[str, str]) -> str | None:
    """The problem of a header, or None. Other words before a colon are prose."""
    from pytest_fib.data import Binding, Calling, bad_target

    if not facts["implements"]:
        return "// implements: names no definition"
    for key, choices in (("calling", get_args(Calling)), ("binding", get_args(Binding))):
        if key in facts and facts[key] not in choices:
            return f"// {key}: {facts[key]!r} is not one of {', '.join(choices)}"
    for problem in filter(None, map(bad_target, _listed("target", facts.get("target", "")))):
        return f"// target: {problem}"
    if _flags(facts.get("flags", "")) is None:
        return "// flags: a quotation has no end"
    for key in facts.keys() - {*_KEYS, *_LISTS}:
        if near := difflib.get_close_matches(key, [*_KEYS, *_LISTS], n=1, cutoff=0.8):
            return f"// {key}: is not known; did you mean {near[0]!r}?"
    return None
