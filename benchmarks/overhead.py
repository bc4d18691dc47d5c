"""What a correctness run costs beyond the kernels it runs.

Runs ``pytest --fib-definition rmsnorm_d4096`` on the CPU as a user would, for the total, and again
with a plugin that takes the time apart. The first sandbox to start waits for a process that
imports torch and triton; loading programs is importing the implementations. Overhead is all but
that, importing torch, and the calls themselves; making inputs and comparing outputs are parts of
it. Targets: a total under 20 s, an overhead under 2 s.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

from _common import print_machine, print_table, timed

GIVEN = (
    "importing torch",
    "starting sandboxes",
    "loading programs",
    "calling implementations and references",
)
PARTS = ("making inputs", "comparing outputs")
SEARCH = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--fib-device=cpu", "--fib-seed=0")
SEARCH += ("kernel_defs",)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a run costs beyond its kernels.")
    parser.add_argument("--definition", default="rmsnorm_d4096")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each kind (default: 5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [both(Path(folder), arguments.definition) for _ in range(arguments.repeat)]
    rows = [(name, f"{median(run[name] for run in runs):.2f}") for name in runs[0]]
    print_table(("seconds, median", "CPU"), rows)
    print_machine("torch", "triton", "hypothesis")


def both(folder: Path, definition: str) -> dict[str, float]:
    """Seconds of one run, of another that is taken apart, and of the parts."""
    command = [*SEARCH, f"--fib-definition={definition}", f"--fib-traces={folder / 'traces'}"]
    total = timed(command).wall
    parts = folder / "parts.json"
    watched = {"PYTHONPATH": str(Path(__file__).parent), "FIB_SPLIT": str(parts)}
    apart = timed([*command, "-p", "_split"], environment=watched).wall
    seconds = json.loads(parts.read_text(encoding="utf-8"))
    overhead = apart - sum(seconds[name] for name in GIVEN)
    return {
        "total": total,
        "total, taken apart": apart,
        **{name: seconds[name] for name in GIVEN},
        "overhead": overhead,
        **{f"- {name}": seconds[name] for name in PARTS},
        "- everything else": overhead - sum(seconds[name] for name in PARTS),
    }


if __name__ == "__main__":
    main()
