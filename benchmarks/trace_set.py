"""How long a TraceSet takes to load, what it takes of memory, and how long `best` takes after that.

    python benchmarks/trace_set.py [TRACES ...]

Each number of traces in a process of its own: 100 definitions with 20 implementations each, as one
file of JSON and as a dataset. The memory is the most the process had, less what it had before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

DEFINITIONS, SOLUTIONS = 100, 20


def definition(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "op_type": "scale",
        "axes": {"n": {"type": "var"}, "m": {"type": "var"}},
        "inputs": {"x": {"shape": ["n", "m"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n", "m"], "dtype": "float32"}},
        "reference": "def run(x):\n    return x\n",
    }


def solution(name: str, of: str) -> dict[str, Any]:
    spec = {"language": "python", "target_hardware": ["cuda"], "entry_point": "main.py::run"}
    source = {"path": "main.py", "content": "def run(x):\n    return x\n"}
    return {"name": name, "definition": of, "author": "a", "spec": spec, "sources": [source]}


def trace(of: str, by: str, number: int) -> dict[str, Any]:
    latency = 0.01 + number % 977 / 1000
    return {
        "definition": of,
        "workload": {
            "axes": {"n": number, "m": 8 * number},
            "inputs": {"x": {"type": "random"}},
            "uuid": f"{number:08x}-0000-4000-8000-000000000000",
        },
        "solution": by,
        "evaluation": {
            "status": "PASSED",
            "environment": {
                "hardware": "NVIDIA H200",
                "libs": {"torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0"},
            },
            "timestamp": "2026-05-01T12:00:00.000000+00:00",
            "log": "",
            "correctness": {"max_relative_error": 0.0012345, "max_absolute_error": 0.00023456},
            "performance": {
                "latency_ms": latency,
                "reference_latency_ms": 1.0,
                "speedup_factor": 1.0 / latency,
                "ci_ms": [latency * 0.99, latency * 1.01],
                "method": "graph",
            },
        },
    }


def write_dataset(root: Path, traces: int) -> None:
    each = traces // DEFINITIONS // SOLUTIONS
    for folder in ("definitions", "solutions", "traces"):
        (root / folder).mkdir()
    for d in range(DEFINITIONS):
        name = f"scale_{d}"
        (root / "definitions" / f"{name}.json").write_text(json.dumps(definition(name)))
        with (root / "traces" / f"{name}.jsonl").open("w") as file:
            for s in range(SOLUTIONS):
                by = f"{name}_{s}"
                (root / "solutions" / f"{by}.json").write_text(json.dumps(solution(by, name)))
                file.writelines(json.dumps(trace(name, by, n)) + "\n" for n in range(each))


def peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(path: Path) -> None:
    from pytest_fib import TraceSet

    before = peak_mib()
    start, cpu = perf_counter(), process_time()
    trace_set = TraceSet.load(path)
    load, cpu = perf_counter() - start, process_time() - cpu
    used = peak_mib() - before
    start = perf_counter()
    trace_set.best("scale_7", {"n": 3, "m": 24}, "NVIDIA_H200")
    first = perf_counter() - start
    start = perf_counter()
    for _ in range(10_000):
        trace_set.best("scale_7", {"n": 3, "m": 24}, "NVIDIA_H200")
    best = (perf_counter() - start) / 10_000
    row = f"{len(trace_set):>9,} | {load:7.2f} | {cpu:11.2f} | {used:12.0f}"
    print(f"| {row} | {first * 1e3:19.2f} | {best * 1e6:8.2f} |")


def main(numbers: list[int]) -> None:
    print("|    traces | load, s | s of CPU | more memory, MiB | first best(), ms | best(), µs |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            root = Path(folder, str(number))
            root.mkdir()
            write_dataset(root, number)
            subprocess.run([sys.executable, __file__, "--measure", str(root)], check=True)
            if number <= 100_000:
                from pytest_fib import TraceSet

                TraceSet.from_path(root).save(root / "all.json")
                one = [sys.executable, __file__, "--measure", str(root / "all.json")]
                subprocess.run(one, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]))
    else:
        main([int(number) for number in sys.argv[1:]] or [100_000])
