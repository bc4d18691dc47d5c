"""What compilers print, read for people: the first error, and what kernels take.

g++ can say its errors as JSON, nvcc and ptxas can't say any of this but in text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_fib.build._artifact import KernelResources
from pytest_fib.build._errors import BuildError, source_line

if TYPE_CHECKING:
    from pytest_fib.build._program import Program

#: Characters of a log that are kept: all of it, but of what never ends.
COMPILER_LOG_LIMIT = 1 << 18
#: g++, clang:  kernel.cpp:12:5: error: message
_OF_HOST = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)", re.M
)
_FIRST_ERRORS = (
    _OF_HOST,
    # nvcc:  kernel.cu(12): error: message
    re.compile(
        r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
        r"(?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)",
        re.M,
    ),
    re.compile(
        r"^(?:ptxas|nvlink) (?P<file>)(?P<line>)[^\n]*?(?:error|fatal) *: (?P<text>.*)", re.M
    ),
    # ld, of objects without line numbers
    re.compile(
        r"(?P<file>)(?P<line>)"
        r"(?P<text>(?:undefined reference to|multiple definition of) [^;\n]*|cannot find -l.*)"
    ),
    # a compiler of itself:  cc1plus: out of memory allocating 8 bytes
    re.compile(
        r"^(?P<file>)(?P<line>)(?P<text>(?:\S*/)?[\w+.-]+: "
        r"(?:(?:fatal |internal compiler )?error|out of memory|virtual memory exhausted)\b.*)",
        re.M,
    ),
)
#: Where a template in a header was instantiated from, as g++ and nvcc say it.
_MENTION = r"(?<![\w/.]){file}(?::(\d+):|\((\d+)\)|\W+?line (\d+))|at line (\d+) of {file}"
#: Lines around an error in which that is looked for.
_CONTEXT = 24
_MISSING_HEADER = re.compile(
    r"'?(?P<header>[^':]+)(?:: No such file or directory|' file not found)"
)
_TORCH_HEADERS = ("torch/", "ATen/", "c10/", "pybind11/")
_QUOTED = re.compile(r"[`']([^`']+)'")
_CALLED = re.compile(r"\w+(?=\s*\()")
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def failure(program: Program, log: str, compiled: str = "") -> BuildError:
    """The compiler's first error, at a line of the user's own sources where it tells one.

    Else at the source file that was ``compiled``, if it was one.
    """
    matches = filter(None, (pattern.search(log) for pattern in _FIRST_ERRORS))
    first = min(matches, key=lambda match: match.start(), default=None)
    if first is None:
        lines = log.strip().splitlines() or ["the compiler failed without a message"]
        return BuildError(lines[-1], log[-COMPILER_LOG_LIMIT:])
    text = first["text"].strip()
    place = (
        _place(program, log, first) if first["file"] else _first_with_what_is_quoted(program, text)
    )
    if place is None:
        return BuildError(f"{compiled}: {text}" if compiled else text, _kept(log, first))
    file, line = place
    log = _kept(log, first)
    source = dict(program.sources)[file].splitlines()
    shown = source[line - 1] if 0 < line <= len(source) else ""
    sentence = f"{file}:{line}: {text}{_where_header_is(program, file, text)}"
    return BuildError(sentence, f"{source_line(line, shown)}\n\n{log}")


def _kept(log: str, first: re.Match[str]) -> str:
    """As much of a log as is kept, with its first error; what follows many errors says little."""
    begin = max(0, first.start() - COMPILER_LOG_LIMIT // 2)
    return log[begin : begin + COMPILER_LOG_LIMIT]


def _where_header_is(program: Program, file: str, text: str) -> str:
    """What to know of a header that ``file`` includes and that is not there, or nothing."""
    missing = _MISSING_HEADER.match(text)
    if missing is None or program.compilation is None:
        return ""
    header, compilation = missing["header"], program.compilation
    if header.startswith(_TORCH_HEADERS) and compilation.binding != "torch":
        return "; a torch extension has the binding 'torch'"
    if program.directory is None:
        return ""
    folder = Path(program.directory)
    places = (str(PurePosixPath(file).parent), ".", *compilation.include_paths)
    header_file = next(
        (folder / p / header for p in places if (folder / p / header).is_file()), None
    )
    if header_file is None:
        return ""
    path = os.path.relpath(header_file, folder)
    if path.startswith(".."):
        return (
            "; it is outside of the folder that is compiled: have an absolute -I or include_paths"
        )
    return f"; {path} is there, but not among the sources"


def _first_with_what_is_quoted(program: Program, message: str) -> tuple[str, int] | None:
    """The line of the sources where that is named which ptxas or the linker complains about.

    They quote a function, by its mangled name or not, or a part of an instruction.
    """
    quoted = _QUOTED.search(message)
    if quoted is None:
        return None
    name = quoted[1].partition("(")[0].rpartition("::")[2]
    as_word = re.compile(r"(?<!\w)" * name[:1].isalnum() + re.escape(name) + r"(?!\w)")
    for file, source in program.sources:
        for number, line in enumerate(source.splitlines(), 1):
            words = _CALLED.findall(line)
            if as_word.search(line) or any(f"{len(word)}{word}" in name for word in words):
                return file, number
    return None


def _place(program: Program, log: str, first: re.Match[str]) -> tuple[str, int] | None:
    """File and line of the first error or, where that is in a header, of what led there."""
    files = {path for path, _ in program.sources}
    named = first["file"].removeprefix("./")
    if named in files:
        return named, int(first["line"])
    for context in _contexts(log, first):
        for line in context:
            for file in files:
                if mention := re.search(_MENTION.format(file=re.escape(file)), line):
                    return file, int(next(filter(None, mention.groups())))
    return None


def _contexts(log: str, first: re.Match[str]) -> Iterator[list[str]]:
    """Lines around an error from the nearest on, those first that tell what led to it.

    g++ says before its error where a template comes from, nvcc after it.
    """
    before = log[: first.start()].splitlines()[:-_CONTEXT:-1]
    after = log[first.start() :].splitlines()[:_CONTEXT]
    yield from (before, after) if first.re is _OF_HOST else (after, before)


def kernel_resources(log: str) -> list[KernelResources]:
    """What ``-Xptxas -v`` says of each kernel, the first of each name."""
    resources_by_kernel: dict[str, KernelResources] = {}
    for name, text in _entries(log):
        spills, used, shared = _SPILLS.search(text), _USED.search(text), _SHARED.search(text)
        resources_by_kernel.setdefault(
            name,
            KernelResources(
                name,
                registers=int(used[1]) if used else 0,
                shared_bytes=int(shared[1]) if shared else 0,
                spills=int(spills[1]) + int(spills[2]) if spills else 0,
            ),
        )
    return list(resources_by_kernel.values())


def _entries(log: str) -> Iterator[tuple[str, str]]:
    starts = list(_ENTRY.finditer(log))
    ends = [*(match.start() for match in starts[1:]), len(log)]
    for start, end in zip(starts, ends, strict=False):  # nothing starts, and one end
        yield start[1], log[start.end() : end]
