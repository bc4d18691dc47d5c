"""What the plugin costs a pytest run that has nothing to do with it.

One trivial test in an empty directory, run with the plugin and with ``-p no:fib``, in turn and in
an order that alternates, so that whatever else the machine does hits both alike. Other plugins are
switched off: what they import, this one would otherwise get for free. The figure is the median of
the differences within each pair. Target: under 5 ms.

    python benchmarks/plugin_load.py
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from statistics import median, quantiles

from _common import Run, print_machine, print_table, timed

OTHERS_OFF = ("-p", "no:xdist", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
PYTEST = ("-m", "pytest", "-q", *OTHERS_OFF)
IMPORTS = "import pytest, pytest_fib.plugin"


def main() -> None:
    parser = argparse.ArgumentParser(description="What the plugin costs an unrelated run.")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of runs (default: 60)")
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        runs = interleaved(Path(folder), pairs)
    rows = [
        row("wall clock", [(a.wall, b.wall) for a, b in runs]),
        row("CPU time", [(a.cpu, b.cpu) for a, b in runs]),
    ]
    print_table(("ms, median of pairs", "with", "without", "difference", "quartiles"), rows)
    imports = sorted(import_ms() for _ in range(11))[5]
    print(f"\nimporting pytest_fib.plugin after pytest: {imports:.1f} ms (-X importtime)")
    print_machine("pluggy")


def interleaved(folder: Path, pairs: int) -> list[tuple[Run, Run]]:
    """Pairs of runs, with the plugin and without; the first pair only fills caches."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "test_one.py").write_text("def test_one():\n    pass\n", encoding="utf-8")
    runs = []
    for i in range(pairs + 1):
        arms = [PYTEST, (*PYTEST, "-p", "no:fib")]
        order = (0, 1) if i % 2 else (1, 0)
        done = {arm: timed(arms[arm], folder) for arm in order}
        runs.append((done[0], done[1]))
    return runs[1:]


def row(name: str, pairs: list[tuple[float, float]]) -> tuple[str, ...]:
    """The medians of both arms and of the differences, in milliseconds."""
    differences = [1e3 * (a - b) for a, b in pairs]
    low, middle, high = quantiles(differences, n=4)
    arms = [f"{1e3 * median(arm):.1f}" for arm in zip(*pairs, strict=True)]
    return (name, *arms, f"{middle:+.1f}", f"{low:+.1f} to {high:+.1f}")


def import_ms() -> float:
    """Milliseconds of importing the plugin into a process that has pytest already."""
    lines = timed(("-X", "importtime", "-c", IMPORTS)).output.splitlines()
    # Children are listed before their parents and deeper; only the outermost ones count.
    outermost = re.compile(r"import time:\s*\d+ \|\s*(\d+) \| pytest_fib")
    return sum(int(m[1]) for m in map(outermost.match, lines) if m) / 1e3


if __name__ == "__main__":
    main()
