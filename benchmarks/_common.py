"""What the benchmarks share: processes that are timed, tables, and the line that says on what."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Run:
    """A finished process: seconds on the clock, seconds of CPU, and what it printed."""

    wall: float
    cpu: float
    output: str


def timed(
    arguments: Sequence[str], cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> Run:
    """Run ``python`` with the arguments. Exits, showing the output, where the process failed."""
    # A file, since a pipe would have to be emptied while the clock runs.
    with tempfile.TemporaryFile("w+") as output:
        start = perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            # Bytecode caches as any user has them, whatever this environment says.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode != 0:
        sys.exit(f"python {' '.join(arguments)} ended with {process.returncode}:\n{text}")
    return Run(wall, used.ru_utime + used.ru_stime, text)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table, ready for docs/measured.md; columns after the first are figures."""
    lines = [titles, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for line in (titles, rule, *lines[1:]):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        print(f"| {' | '.join([line[0].ljust(widths[0]), *cells[1:]])} |")


def print_machine(*distributions: str) -> None:
    """The processor and the versions that a figure depends on."""
    versions = [f"Python {platform.python_version()}"]
    for name in ("pytest", *distributions):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"no {name}")
    print(f"\n{_processor()}, {os.cpu_count()} cores; {', '.join(versions)}")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
