"""How long a whole run takes, and what it has a device to itself for.

Runs ``pytest`` as a user does and reads its trace records as they arrive. "Held" is how long a
timed evaluation had the device alone; "timed" is that as a share of the run's wall clock.

    python benchmarks/throughput.py -n 8                     # all shipped kernels, timed
    python benchmarks/throughput.py -n 1 -n 2 --seconds 120  # one run each, ended after 120 s
    python benchmarks/throughput.py -n 8 -- --fib-definition 'rmsnorm_*'
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from time import perf_counter, sleep
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from _common import ROOT, print_machine, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds between two looks at the records.
STEP = 0.05
#: Seconds for an interrupted run to write its tables.
ENDING = 30.0


@dataclass
class Observed:
    """What one run left."""

    wall: float = 0.0
    first_timed: float | None = None
    ended: bool = True
    summary: str = ""
    statuses: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    held_ms: list[float] = field(default_factory=list)
    device_ms: list[float] = field(default_factory=list)
    by_definition: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, record: dict[str, object], now: float) -> None:
        """Take a trace record that arrived ``now`` seconds after the command."""
        evaluation = record["evaluation"]
        assert isinstance(evaluation, dict)
        self.statuses[evaluation["status"]] += 1
        if evaluation["status"] != "PASSED":
            what = f"{record['definition']}[{record['solution']}]"
            self.failed.append(f"{what}: {evaluation['log'].partition(chr(10))[0]}")
        if performance := evaluation["performance"]:
            self.first_timed = self.first_timed or now
            self.held_ms.append(performance["held_ms"])
            self.device_ms.append(performance["device_time_ms"])
            self.by_definition[str(record["definition"])].append(performance["held_ms"])

    def row(self, name: str) -> list[str]:
        """A row of the table."""
        held = sorted(self.held_ms) or [0.0]
        return [
            name,
            f"{self.wall:.0f}" + ("" if self.ended else " (not ended)"),
            str(len(self.held_ms)),
            str(sum(self.statuses.values()) - len(self.held_ms)),
            "-" if self.first_timed is None else f"{self.first_timed:.1f}",
            f"{median(held):.0f}",
            f"{mean(held):.0f}",
            f"{held[int(0.9 * (len(held) - 1))]:.0f}",
            f"{mean(self.device_ms or [0.0]):.0f}",
            f"{sum(held) / 1e3 / self.wall:.0%}",
        ]


TITLES = (
    "workers",
    "wall clock, s",
    "timed",
    "other records",
    "first timed, s",
    "held, ms: median",
    "mean",
    "p90",
    "of that in rounds: mean",
    "timed, share of wall",
)


def observe(arguments: Sequence[str], seconds: float) -> Observed:
    """Run pytest, for at most so many seconds, and watch its records."""
    observed = Observed()
    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder, "traces.jsonl")
        command = [sys.executable, "-m", "pytest", *arguments, "--fib-traces", str(traces)]
        with Path(folder, "output").open("w+", encoding="utf-8") as output:
            start = perf_counter()
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
            read = 0
            while process.poll() is None and perf_counter() - start < seconds:
                sleep(STEP)
                read += _take(traces, read, observed, perf_counter() - start)
            observed.ended = process.poll() is not None
            if not observed.ended:
                process.send_signal(signal.SIGINT)
                process.wait(ENDING)
            observed.wall = perf_counter() - start
            _take(traces, read, observed, observed.wall)
            output.seek(0)
            observed.summary = output.read()
    return observed


def _take(traces: Path, read: int, observed: Observed, now: float) -> int:
    """Take the whole lines beyond what was read; the number of their bytes."""
    if not traces.exists():
        return 0
    with traces.open("rb") as file:
        file.seek(read)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    for line in whole.splitlines():
        observed.add(json.loads(line), now)
    return len(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", action="append", type=int, help="workers; repeatable (default 8)")
    parser.add_argument("--seconds", type=float, default=600, help="the longest a run may take")
    parser.add_argument("--examples", type=int, default=6)
    parser.add_argument("--correctness", action="store_true", help="without timing")
    parser.add_argument("--longest", type=int, default=0, help="list so many definitions by hold")
    parser.add_argument("pytest", nargs="*", help="further arguments of pytest")
    options = parser.parse_args()
    rows = []
    for workers in options.n or [8]:
        arguments = ["kernel_defs", "-q", f"--fib-examples={options.examples}"]
        arguments += [] if options.correctness else ["--fib-bench"]
        arguments += ["-n", str(workers)] if workers > 1 else []
        observed = observe([*arguments, *options.pytest], options.seconds)
        rows.append(observed.row(str(workers)))
        lines = observed.summary.splitlines()
        failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        said = [*failures, *observed.failed, lines[-1]]
        print("\n".join(said), dict(observed.statuses), flush=True)
        longest = sorted(observed.by_definition.items(), key=lambda pair: -sum(pair[1]))
        for name, held in longest[: options.longest]:
            print(f"{name}: {len(held)} of mean {mean(held):.0f} ms", flush=True)
    print_table(TITLES, rows)
    print_machine("torch", "triton", "pytest-xdist")


if __name__ == "__main__":
    main()
