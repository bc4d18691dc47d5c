"""What it costs to run foreign code in processes of its own, and what is left behind.

- *A new sandbox*: until a process that replaces a dead one is ready, with the memory mapped and on
  CUDA a context; and until it has answered its first call. Targets: 0.1 s CPU, 0.5 s CUDA.
- *Isolation*: what an evaluation takes longer for it, where the same implementation was evaluated
  before: time spent asking sandboxes, less the same without processes. Target: under 3 ms.
- *1,000 evaluations*: what the judge holds before and after. Target: no growth.
- *Faults*: 200 implementations of which a random third crash, hang, exhaust memory, spoil the CUDA
  context or exit; all verdicts right, and under 0.5 s lost for each beyond the timeout of a hang.

    python benchmarks/sandbox.py [--device cuda] [--only faults]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

# As in sandboxes, for a fair comparison; read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import _faults
import torch
from _common import ROOT, print_machine, print_table

from pytest_fib.data import (
    BuildSpec,
    Definition,
    EvaluationRequest,
    Solution,
    SourceFile,
    SupportedLanguages,
    load_definition_file,
)
from pytest_fib.discovery import find_implementations
from pytest_fib.engine import Judge
from pytest_fib.workloads import make_workload

if TYPE_CHECKING:
    from collections.abc import Callable

DEFINITION = "scale_float32"
RIGHT = "def run(x, factor):\n    return x * factor\n"
CRASH = "import os\ndef run(x, factor):\n    os._exit(1)\n"
HANG = 1.0


def main() -> None:
    sections = {"new": new, "isolation": isolation, "growth": growth, "faults": faults}
    parser = argparse.ArgumentParser(description="What sandboxes cost.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", choices=sections, help="one of the figures")
    arguments = parser.parse_args()
    for name, section in sections.items():
        if arguments.only in (None, name):
            section(arguments.device)
            print()
    print_machine("torch", "triton")


def new(device: str, repeat: int = 20) -> None:
    """Crash a sandbox, and time the next one."""
    ready, answered = [], []
    with Judge(device) as judge:
        sandbox = judge._candidate.sandbox
        for _ in range(repeat + 1):
            judge.evaluate(request(CRASH))
            spans = watched(sandbox, ("open", "ask"))
            judge.evaluate(request(RIGHT))
            ready.append(spans["open"][0])
            answered.append(sum(spans["open"] + spans["ask"][:2]))
    rows = [
        ("ready", milliseconds(median(ready[1:]))),
        ("first call answered", milliseconds(median(answered[1:]))),
    ]
    print_table((f"a new sandbox, ms, median of {repeat}", device.upper()), rows)


def isolation(device: str, repeat: int = 30) -> None:
    """Time asking, with processes and without."""
    rows = []
    with Judge(device) as apart, Judge(device, isolation="none") as here:
        for size in (4 << 10, 1 << 20, 16 << 20, 64 << 20):
            pairs = [
                [asking(j, size // 4, seed) for j in (apart, here)] for seed in range(repeat + 2)
            ]
            # The first start sandboxes, or map more memory.
            columns = [*zip(*pairs[2:], strict=True), [a - b for a, b in pairs[2:]]]
            rows.append((shown(size), *(milliseconds(median(column)) for column in columns)))
    titles = ("input", "with processes", "without", "isolation")
    print_table((f"{titles[0]} (ms, median of {repeat}, {device.upper()})", *titles[1:]), rows)


def asking(judge: Judge, n: int, seed: int) -> float:
    """Seconds that an evaluation spent asking its sandboxes."""
    spans = [watched(s.sandbox, ("open", "ask")) for s in (judge._candidate, judge._reference)]
    judge.evaluate(request(RIGHT, n, seed))
    return sum(sum(times) for each in spans for times in each.values())


def growth(device: str, count: int = 1000) -> None:
    """On workloads of many sizes; every 20th implementation crashes, others are right or fail."""
    texts = [RIGHT, "def run(x, factor):\n    1 / 0\n"]
    with Judge(device) as judge:

        def evaluate(number: int) -> None:
            for i in range(number):
                text = CRASH if i % 20 == 10 else texts[i // 20 % 2]
                judge.evaluate(request(text, 1 + 2000 * (i % 500), seed=i))

        judge.evaluate(request(RIGHT, 1_000_000))
        evaluate(40)  # ends as the others do, with one that fails
        before = held(device)
        evaluate(count)
        after = held(device)
    rows = [(name, str(before[name]), str(after[name])) for name in before]
    print_table((f"{count:,} evaluations ({device.upper()})", "before", "after"), rows)


def held(device: str) -> dict[str, int]:
    """What this process and its children hold."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    figures = {
        "memory of the judge, MiB": int(resident.split()[1]) >> 10,
        "files open": len(list(Path("/proc/self/fd").iterdir())),
        "processes": len(family(os.getpid())),
        "files in /dev/shm": len(list(Path("/dev/shm").iterdir())),
        "System V semaphores": Path("/proc/sysvipc/sem").read_text(encoding="ascii").count("\n")
        - 1,
    }
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        figures["memory of the device in use, MiB"] = (total - free) >> 20
    return figures


def family(root: int) -> set[int]:
    """The processes that come from one."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and (path / "stat").exists():
            stat = (path / "stat").read_text(encoding="utf-8", errors="replace")
            parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
    found: set[int] = set()
    fresh = {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


def faults(device: str, count: int = 200) -> None:
    """The same implementations through a judge, and through pytest with two workers."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        made = _faults.write_implementations(here / "impls", count, seed=1, device=device)
        faulty = [each for each in made if each.fault]
        seconds, wrong = through_judge(here, made, device)
        wall, wrong_in_run = through_pytest(here, made, device)
    lost = {each: seconds[each.name] - (HANG if each.fault == "hang" else 0.0) for each in faulty}
    right = median(seconds[each.name] for each in made if not each.fault)
    rows = [
        ("implementations, faulty", f"{len(made)}, {len(faulty)}"),
        ("verdicts wrong: judge, pytest -n 2", f"{wrong}, {wrong_in_run}"),
        ("a right one, s, median", f"{right:.3f}"),
        ("a faulty one beyond its hang, s, median", f"{median(lost.values()):.3f}"),
        ("a faulty one beyond its hang, s, most", f"{max(lost.values()):.3f}"),
        ("pytest -n 2, s in all", f"{wall:.1f}"),
        ("- of which two workers wait for hangs", f"{hanging(made) * HANG / 2:.1f}"),
    ]
    print_table(("faults", device.upper()), rows)


def hanging(made: list[_faults.Written]) -> int:
    return sum(each.fault == "hang" for each in made)


def through_judge(
    folder: Path, made: list[_faults.Written], device: str
) -> tuple[dict[str, float], int]:
    """Seconds of each evaluation by name, and how many verdicts were wrong."""
    found = {found.name: found for found in find_implementations([folder / "impls"])}
    seconds, wrong = {}, 0
    with Judge(device) as judge:

        def evaluated(each: _faults.Written, timeout: float) -> str:
            solution = found[each.name].solution(DEFINITION)
            workload = make_workload(definition(), {"n": 1000})
            impls = str(folder / "impls")
            asked = EvaluationRequest(
                definition=definition(),
                solution=solution,
                workload=workload,
                directory=impls,
                timeout=timeout,
            )
            return judge.evaluate(asked).status.value

        for each in made:  # Triton compiles once for them all
            if each.fault in ("", "context"):
                evaluated(each, 120.0)
                if each.fault:
                    break
        for each in made:
            start = perf_counter()
            status = evaluated(each, HANG)
            seconds[each.name] = perf_counter() - start
            wrong += told(each, status)
    return seconds, wrong


def through_pytest(folder: Path, made: list[_faults.Written], device: str) -> tuple[float, int]:
    """Seconds of a whole run, and how many verdicts were wrong or missing."""
    import subprocess

    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    shutil.copytree(ROOT / "kernel_defs/scale", folder / "defs")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--fib-device", device]
    command += ["--fib-defs", "defs", "--fib-impls", "impls", "--fib-definition", DEFINITION]
    command += ["--fib-workload", '{"axes": {"n": 1000}}', f"--fib-timeout={HANG}"]
    start = perf_counter()
    subprocess.run(
        [*command, "--fib-traces", "traces"], cwd=folder, stdout=subprocess.DEVNULL, check=False
    )
    wall = perf_counter() - start
    traces = map(json.loads, (folder / "traces").read_text(encoding="utf-8").splitlines())
    statuses = {trace["solution"]: trace["evaluation"]["status"] for trace in traces}
    return wall, sum(told(each, statuses.get(each.name, "nothing")) for each in made)


def told(each: _faults.Written, status: str) -> int:
    """1 for a wrong verdict, which is printed."""
    if status == each.status:
        return 0
    print(f"{each.name} ({each.fault or 'right'}): {status}, expected {each.status}")
    return 1


def request(text: str, n: int = 1000, seed: int = 0) -> EvaluationRequest:
    """An implementation of one function, in the text of its module."""
    spec = BuildSpec(
        language=SupportedLanguages("python"),
        target_hardware=["cpu", "cuda"],
        entry_point="module.py::run",
        calling="value",
    )
    source = SourceFile(path="module.py", content=text)
    solution = Solution(
        name="made", definition=DEFINITION, author="benchmark", spec=spec, sources=[source]
    )
    return EvaluationRequest(
        definition=definition(),
        solution=solution,
        workload=make_workload(definition(), {"n": n}, seed),
    )


def definition() -> Definition:
    loaded = load_definition_file(ROOT / "kernel_defs/scale/scale.yaml")
    return next(d.definition for d in loaded if d.definition.name == DEFINITION)


def watched(sandbox: Any, names: tuple[str, ...]) -> dict[str, list[float]]:
    """Seconds of each call of these methods from now on."""
    spans: dict[str, list[float]] = defaultdict(list)
    for name in names:
        setattr(sandbox, name, clocked(getattr(type(sandbox), name), sandbox, spans[name]))
    return spans


def clocked(method: Callable[..., Any], sandbox: Any, spans: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        start = perf_counter()
        try:
            return method(sandbox, *arguments)
        finally:
            spans.append(perf_counter() - start)

    return call


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def shown(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"


if __name__ == "__main__":
    main()
