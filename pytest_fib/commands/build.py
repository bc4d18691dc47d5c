"""``python -m pytest_fib build``: compile implementations ahead of time, for other machines."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fib.build import PrebuiltEntry
    from pytest_fib.data import Definition
    from pytest_fib.discovery import Implementation
    from pytest_fib.engine import Judge

#: The width of the progress bar.
_BAR = 24
#: What the log of an error at a line of the sources begins with.
_SOURCE_LINE = re.compile(r" *\d+ \| .*")


@dataclass(frozen=True)
class _Wanted:
    """One implementation of a definition, to be built for one target.

    One with none can't be; ``reason`` says why if it is for other targets.
    """

    definition: Definition
    implementation: Implementation
    target: str
    reason: str = ""

    def __str__(self) -> str:
        named = f"{self.definition.name}[{self.implementation.name}]"
        return f"{named} for {self.target}" if self.target else named


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("build", help="compile ahead of time, for other machines")
    add = parser.add_argument
    add("--definition", action="append", metavar="GLOB", help="only these definitions")
    add("--implementation", action="append", metavar="GLOB", help="only these implementations")
    add(
        "--target",
        action="append",
        metavar="SM",
        help="targets (sm_80, sm_90, sm_100)",
    )
    add("--out", required=True, type=Path, metavar="DIR", help="folder for --fib-prebuilt")
    add("--defs", type=Path, default=Path("kernel_defs"), metavar="DIR", help="(kernel_defs)")
    add("--impls", type=Path, default=Path("kernel_impls"), metavar="DIR", help="(kernel_impls)")
    add("--jobs", type=int, default=os.cpu_count(), metavar="N", help="parallel builds")
    add(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="limit for each build (600)"
    )
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    """Build all that can be; 1 where something does not compile."""
    from pytest_fib.build import why_not_architecture, write_manifest
    from pytest_fib.engine import Judge

    for problem in filter(None, map(why_not_architecture, given.target or ())):
        raise ValueError(f"--target: {problem}")
    _check(given)
    wanted = list(_wanted(given))
    if not wanted:
        named = given.definition or given.implementation
        kinds = "in CUDA, C++, Triton, TileLang or CuTe DSL"
        what = "has such a name" if named else f"({kinds}) is in the folders of --defs and --impls"
        raise ValueError(f"nothing that is compiled {what}")
    if all(each.reason for each in wanted):
        raise ValueError(f"{wanted[0]}: {wanted[0].reason}")
    given.out.mkdir(parents=True, exist_ok=True)
    entries = []
    with Judge() as judge, ThreadPoolExecutor(given.jobs) as pool:
        builds = {pool.submit(_build, judge, given, each): each for each in wanted}
        for number, build in enumerate(as_completed(builds), 1):
            entries.append(build.result())
            _show(builds[build], entries[-1], number, len(wanted))
    entries.sort(key=lambda entry: (entry.definition, entry.implementation, entry.target))
    write_manifest(given.out, entries)
    return _summarise(given.out, entries)


def _check(given: Namespace) -> None:
    """Raise ValueError for an argument that nothing can be made of."""
    for option, value in (("jobs", given.jobs), ("timeout", given.timeout)):
        if value <= 0:
            raise ValueError(f"--{option}: {value:g} is not above 0")
    for option, folder in (("defs", given.defs), ("impls", given.impls)):
        if not folder.is_dir() and folder != Path(f"kernel_{option}"):
            raise ValueError(f"--{option}: there is no folder {folder}")


def _wanted(given: Namespace) -> Iterator[_Wanted]:
    """What to build. Raises ValueError where a definition file is malformed."""
    from pytest_fib.discovery import definition_files, find_implementations, load_catalogue

    files = definition_files(given.defs)
    catalogue = load_catalogue([files], find_implementations([given.impls]))
    for broken in catalogue.broken.values():
        raise ValueError(broken.problem)
    for loaded in catalogue.loaded:
        name = loaded.definition.name
        for implementation in catalogue.implementations_of(name):
            if _matches(name, given.definition) and _matches(
                implementation.name, given.implementation
            ):
                yield from _of_each_target(loaded.definition, implementation, given.target or ())


def _of_each_target(
    definition: Definition, implementation: Implementation, targets: Sequence[str]
) -> Iterator[_Wanted]:
    from pytest_fib.build import build_targets, why_no_target

    if implementation.problem:
        yield _Wanted(definition, implementation, "")
    elif reason := why_no_target(implementation, targets):
        yield _Wanted(definition, implementation, "", reason)
    for target in build_targets(implementation, targets):
        yield _Wanted(definition, implementation, target)


def _matches(name: str, globs: Iterable[str] | None) -> bool:
    return globs is None or any(fnmatchcase(name, glob) for glob in globs)


def _build(judge: Judge, given: Namespace, wanted: _Wanted) -> PrebuiltEntry:
    """What comes of one build, whose artifact is in the folder then."""
    from pytest_fib.build import (
        Prebuilt,
        PrebuiltEntry,
        versions,
        why_not_buildable,
        write_artifact,
    )
    from pytest_fib.data import BuildRequest

    definition, implementation = wanted.definition, wanted.implementation
    named = definition.name, implementation.name, implementation.language, wanted.target
    if implementation.problem:
        return PrebuiltEntry(*named, "COMPILE_ERROR", implementation.problem)
    if reason := wanted.reason or why_not_buildable(implementation):
        return PrebuiltEntry(*named, "SKIPPED", reason)
    request = BuildRequest(
        definition=definition,
        solution=implementation.solution(definition.name),
        target=wanted.target,
        directory=str(implementation.directory) if implementation.directory else None,
        build_timeout=given.timeout,
    )
    result, built = judge.build_artifact(request)
    if built is None:
        return PrebuiltEntry(*named, result.status, result.message, log=result.log)
    program, artifact = built
    key = Prebuilt.key(program)
    file = f"{implementation.name}-{wanted.target}-{key[:12]}.so"
    return PrebuiltEntry(
        *named,
        result.status,
        file=file,
        digest=write_artifact(given.out, file, artifact),
        key=key,
        kernels=artifact.built.kernels,
        versions=versions(program),
    )


def _show(wanted: _Wanted, entry: PrebuiltEntry, number: int, total: int) -> None:
    """A bar on a terminal; for what was not built why, with the line of its sources."""
    bar = sys.stderr.isatty()
    if bar:
        print("\r\x1b[K", end="", file=sys.stderr)
    if entry.status != "PASSED":
        print(f"{entry.status} {wanted}: {entry.message}")
        if line := _SOURCE_LINE.match(entry.log):
            print(line[0])
    if bar:
        done = _BAR * number // total
        shown = f"[{'#' * done}{'.' * (_BAR - done)}] {number}/{total} {wanted}"
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # some say 0
        print(shown[: width - 1], end="" if number < total else "\n", file=sys.stderr, flush=True)


def _summarise(folder: Path, entries: Sequence[PrebuiltEntry]) -> int:
    """Say what the folder has; the exit status."""
    built = sum(bool(entry.file) for entry in entries)
    failed = sum(entry.status == "COMPILE_ERROR" for entry in entries)
    skipped = sum(entry.status == "SKIPPED" for entry in entries)
    launched = len(entries) - built - failed - skipped
    print(
        f"{folder}: {built} built, {failed} failed, {skipped} skipped"
        + (f", {launched} of Triton compile, and do so when they are launched" if launched else "")
    )
    return 1 if failed else 0
