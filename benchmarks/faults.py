"""Processes killed at random while a run goes on: what becomes of the verdicts.

As many kernels as there are items, all right but for a few that raise, through pytest in a folder
of its own. In the mean every few seconds, SIGKILL hits a fork server or a sandbox, or a fork server
with all its sandboxes; never pytest itself or a worker of xdist, and only what comes from that run.

    python benchmarks/faults.py --items 50 --workers 2 --every 2 --seed 0

The table has how many verdicts were right, wrong and lost (no trace), how many say that the machine
was at fault ("not evaluated", "this happened in each of 3 attempts"), tracebacks of this package in
the output, and what was left: processes, and files in /tmp and /dev/shm but for locks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

try:
    from benchmarks._common import ROOT, print_machine, print_table
except ImportError:  # as a script
    from _common import ROOT, print_machine, print_table

#: What an implementation does: waits, so that there is time to be killed, and is right or raises.
KERNEL = """\
import time

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    time.sleep({seconds})
    {line}
"""
RIGHT, WRONG = "return x * factor", "raise ValueError('planted')"
#: The share of those that raise.
WRONG_SHARE = 0.2
#: How an outcome says that it was killed.
KILLED = ("not evaluated: ", "this happened in each of ")
#: Seconds that processes may take to be gone after pytest has ended.
GRACE = 5.0


@dataclass(frozen=True)
class Campaign:
    """What became of a run."""

    kills: int
    right: int
    wrong: int
    killed: int
    lost: int
    tracebacks: int
    left: list[str]
    output: str

    def rows(self) -> list[tuple[str, str]]:
        """For a table."""
        return [
            ("kills", str(self.kills)),
            ("right", str(self.right)),
            ("wrong", str(self.wrong)),
            ("killed, and said so", str(self.killed)),
            ("lost", str(self.lost)),
            ("tracebacks", str(self.tracebacks)),
            ("leftovers", ", ".join(self.left) or "none"),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Verdicts while processes are killed.")
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2, help="of xdist; 0 is without it")
    parser.add_argument(
        "--every", type=float, default=2.0, help="seconds between kills, in the mean"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.3, help="that a call takes")
    parser.add_argument("--show", action="store_true", help="also what pytest printed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        campaign = run(
            Path(folder),
            arguments.items,
            arguments.workers,
            every=arguments.every,
            seed=arguments.seed,
            seconds=arguments.seconds,
        )
    if arguments.show:
        print(campaign.output)
    print_table((f"{arguments.items} items, -n {arguments.workers}", "CPU"), campaign.rows())
    print_machine("torch", "pytest-xdist")


def run(
    folder: Path, items: int, workers: int, *, every: float, seed: int, seconds: float = 0.3
) -> Campaign:
    """Run pytest on so many kernels in an empty folder, and kill what it starts."""
    draw = random.Random(seed)
    expected = write_kernels(folder / "impls", items, draw, seconds)
    shutil.copytree(ROOT / "kernel_defs/scale", folder / "defs")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    # What the run leaves in a folder for temporary files can't be taken for that of another run.
    temporary = folder / "tmp"
    temporary.mkdir()
    shared = set(Path("/dev/shm").iterdir())
    output = folder / "output"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command(workers),
            cwd=folder,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        )
        kills, seen = kill_until_it_ends(process, every, draw)
    text = output.read_text(encoding="utf-8", errors="replace")
    left = [f"process {pid}" for pid in still_there(seen)]
    left += [str(path.relative_to(folder)) for path in temporary.glob("pytest-fib-*")]
    new = set(Path("/dev/shm").iterdir()) - shared
    left += [str(path) for path in new if "fib" in path.name and path.suffix != ".lock"]
    return judged(expected, traces_of(folder), kills, text, left)


def command(workers: int) -> list[str]:
    options = ["-q", "-p", "no:cacheprovider", "-n", str(workers), "--fib-device=cpu"]
    options += ["--fib-defs=defs", "--fib-impls=impls", "--fib-traces=traces.jsonl"]
    options += ["--fib-definition=scale_float32", '--fib-workload={"axes": {"n": 1000}}']
    return [sys.executable, "-m", "pytest", *options]


def write_kernels(folder: Path, count: int, draw: random.Random, seconds: float) -> dict[str, str]:
    """The status that each must have, by name."""
    folder.mkdir(parents=True)
    expected = {}
    for i in range(count):
        wrong = draw.random() < WRONG_SHARE
        text = KERNEL.format(seconds=seconds, line=WRONG if wrong else RIGHT)
        (folder / f"kernel_{i:03}.py").write_text(text, encoding="utf-8")
        expected[f"kernel_{i:03}"] = "RUNTIME_ERROR" if wrong else "PASSED"
    return expected


def kill_until_it_ends(
    process: subprocess.Popen[bytes], every: float, draw: random.Random
) -> tuple[int, dict[int, str]]:
    """How many kills there were, and the start times by pid of every process that was seen."""
    seen: dict[int, str] = {}
    kills, next_kill = 0, monotonic() + draw.expovariate(1 / every)
    while process.poll() is None:
        sleep(0.02)
        found = sandboxes_and_their_makers(process.pid)
        seen |= {pid: started(pid) for pid in found if pid not in seen}
        if found and monotonic() >= next_kill:
            kills += 1
            kill_one(found, draw)
            next_kill = monotonic() + draw.expovariate(1 / every)
    return kills, seen


def kill_one(found: dict[int, int], draw: random.Random) -> None:
    """One process, or with a chance of a third it and those that come from it."""
    victim = draw.choice(sorted(found))
    victims = [victim]
    if draw.random() < 1 / 3:
        victims += [pid for pid, parent in found.items() if parent == victim]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def sandboxes_and_their_makers(root: int) -> dict[int, int]:
    """The parent of each fork server and sandbox among the living descendants of a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat_of(int(entry.name))) and fields[0] not in "ZX":
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    fresh = {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return {pid: parents[pid] for pid in found if is_fork_server_or_sandbox(pid)}


def is_fork_server_or_sandbox(pid: int) -> bool:
    try:
        return b"sandbox/_fork_server.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def stat_of(pid: int) -> list[str]:
    """What /proc says after the name: the state, the parent, and so on; nothing if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()


def started(pid: int) -> str:
    """When a process was started, which with its pid names it for ever; "" of one that is gone."""
    return (stat_of(pid) or [""] * 20)[19]


def still_there(seen: dict[int, str]) -> list[int]:
    """Those of the processes that have not ended."""
    until = monotonic() + GRACE
    while True:
        left = [pid for pid, start in seen.items() if start and started(pid) == start]
        left = [pid for pid in left if (stat_of(pid) or "Z")[0] not in "ZX"]
        if not left or monotonic() > until:
            return left
        sleep(0.05)


def traces_of(folder: Path) -> dict[str, dict]:
    path = folder / "traces.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {trace["solution"]: trace["evaluation"] for trace in map(json.loads, lines)}


def judged(
    expected: dict[str, str],
    traces: dict[str, dict],
    kills: int,
    text: str,
    left: list[str],
) -> Campaign:
    right = killed = wrong = 0
    for name, evaluation in traces.items():
        if any(said in evaluation["log"] for said in KILLED):
            killed += 1
        elif evaluation["status"] == expected[name] and (
            evaluation["status"] == "PASSED" or "planted" in evaluation["log"]
        ):
            right += 1
        else:
            wrong += 1
    # Python's own and pytest's way to show where an exception came from.
    tracebacks = text.count("Traceback (most recent call last)") - text.count(
        "ValueError: planted\n"
    )
    return Campaign(
        kills,
        right,
        wrong,
        killed,
        len(expected) - len(traces),
        text.count("pytest_fib/sandbox/") + text.count("INTERNALERROR>") + max(0, tracebacks),
        left,
        text,
    )


if __name__ == "__main__":
    main()
