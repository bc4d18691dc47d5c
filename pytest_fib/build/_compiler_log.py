"""What compilers print, read for people: the first error, and what kernels take.

g++ can say its errors as JSON, nvcc and ptxas can't say any of this but in text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_fib.build._artifact import KernelResources
from pytest_fib.build._errors import BuildError

if TYPE_CHECKING:
    from pytest_fib.build._program import Program

#: Characters of a log that are kept.
COMPILER_LOG_LIMIT = 12_000
_FIRST_ERRORS = (
    # g++, clang:  kernel.cpp:12:5: error: message
    re.compile(
        r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)", re.M
    ),
    # nvcc:  kernel.cu(12): error: message
    re.compile(
        r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
        r"(?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)",
        re.M,
    ),
    re.compile(r"^ptxas (?P<file>)(?P<line>)[^\n]*?(?:error|fatal) *: (?P<text>.*)", re.M),
    # ld, of an object without line numbers
    re.compile(r"(?P<file>)(?P<line>)(?P<text>undefined reference to .*|cannot find -l.*)"),
)
#: Where a template in a header was instantiated from, as g++ and nvcc say it.
_MENTION = r"(?<![\w/.]){file}(?::(\d+):|\((\d+)\)|\W+?line (\d+))|at line (\d+) of {file}"
_QUOTED = re.compile(r"[`']([^`']+)'")
_CALLED = re.compile(r"\w+(?=\s*\()")
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def failure(program: Program, log: str) -> BuildError:
    """The compiler's first error, at a line of the user's own sources where it tells one."""
    log = log[:COMPILER_LOG_LIMIT]  # what follows the first errors says little
    matches = filter(None, (pattern.search(log) for pattern in _FIRST_ERRORS))
    first = min(matches, key=lambda match: match.start(), default=None)
    if first is None:
        lines = log.strip().splitlines() or ["the compiler failed without a word"]
        return BuildError(lines[-1], log)
    text = first["text"].strip()
    place = (
        _place(program, log, first) if first["file"] else _first_with_what_is_quoted(program, text)
    )
    if place is None:
        return BuildError(text, log)
    file, line = place
    source = dict(program.sources)[file].splitlines()
    shown = source[line - 1].strip() if 0 < line <= len(source) else ""
    return BuildError(f"{file}:{line}: {text}", f"{line:>5} | {shown}\n\n{log}")


def _first_with_what_is_quoted(program: Program, message: str) -> tuple[str, int] | None:
    """The line of the sources where that is named which ptxas or the linker complains about.

    They quote a function, by its mangled name or not, or a part of an instruction.
    """
    quoted = _QUOTED.search(message)
    if quoted is None:
        return None
    name = quoted[1].partition("(")[0].rpartition("::")[2]
    for file, source in program.sources:
        for number, line in enumerate(source.splitlines(), 1):
            words = _CALLED.findall(line)
            if name in line or any(f"{len(word)}{word}" in name for word in words):
                return file, number
    return None


def _place(program: Program, log: str, first: re.Match[str]) -> tuple[str, int] | None:
    """File and line of the first error or, where that is in a header, of what led there."""
    files = {path for path, _ in program.sources}
    named = first["file"].removeprefix("./")
    if named in files:
        return named, int(first["line"])
    # g++ says where a template comes from before its error, nvcc after it.
    context = "\n".join([*log[: first.start()].splitlines()[-12:], *_after(log, first)])
    mentions = (
        (file, match)
        for file in sorted(files)
        for match in re.finditer(_MENTION.format(file=re.escape(file)), context)
    )
    for file, match in mentions:
        return file, int(next(filter(None, match.groups())))
    return None


def _after(log: str, first: re.Match[str]) -> list[str]:
    return log[first.start() :].splitlines()[:24]


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
