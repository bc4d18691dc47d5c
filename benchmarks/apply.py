"""What ``apply`` adds to calling an implementation: on a hit, and disabled.

    python benchmarks/apply.py [--device cuda]

Implementations of 2 to 7 arguments that do nothing. Each row is the least of many short series, in
which the three ways to call take turns, since other work on the machine only adds time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib import TraceSet, apply, disable_apply, enable_apply
from pytest_fib.data import Definition, Evaluation, Solution, Trace, Workload
from pytest_fib.dispatch import stats

if TYPE_CHECKING:
    from collections.abc import Callable

SERIES, CALLS = 400, 1000
IMPORTS = """\
import sys, time
import torch
start = time.perf_counter()
from pytest_fib import apply, enable_apply
print((time.perf_counter() - start) * 1e3, bool({"pytest", "hypothesis"} & set(sys.modules)))
"""


def names(number: int) -> list[str]:
    return [f"a{i}" for i in range(number)]


def trace_set(number: int) -> TraceSet:
    spec = {"shape": ["n", "width"], "dtype": "float32"}
    arguments = ", ".join(names(number))
    source = f"def run({arguments}):\n    return a0\n"
    definition = Definition.model_validate(
        {
            "name": f"nothing_{number}",
            "op_type": "nothing",
            "axes": {"n": "var", "width": 4096},
            "inputs": dict.fromkeys(names(number), spec),
            "outputs": {"y": spec},
            "reference": source,
        }
    )
    solution = Solution.model_validate(
        {
            "name": "kernel",
            "definition": definition.name,
            "author": "benchmark",
            "spec": {
                "language": "python",
                "target_hardware": ["cpu", "cuda"],
                "entry_point": "main.py::run",
                "destination_passing_style": False,
            },
            "sources": [{"path": "main.py", "content": source}],
        }
    )
    facts = {"status": "PASSED", "hardware": "here", "latency_ms": 1.0, "max_relative_error": 0.0}
    trace = Trace(
        definition=definition.name,
        workload=Workload(axes={"n": 8}),
        solution="kernel",
        evaluation=Evaluation.model_validate(facts),
    )
    return TraceSet([definition], [solution], traces=[trace])


def fallback_of(number: int) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(f"def fallback({', '.join(names(number))}):\n    return a0\n", namespace)
    return namespace["fallback"]  # type: ignore[no-any-return]


def series(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    calls = range(CALLS)
    start = perf_counter_ns()
    for _ in calls:
        function(*arguments)
    return (perf_counter_ns() - start) / CALLS


def row(number: int, device: str) -> str:
    arguments = tuple(torch.zeros(8, 4096, device=device) for _ in range(number))
    direct, disabled = fallback_of(number), apply("another")(fallback_of(number))
    hit = apply(f"nothing_{number}")(fallback_of(number))
    off = apply(f"nothing_{number}")(fallback_of(number))
    least = {"direct": 1e9, "disabled": 1e9, "unknown": 1e9, "hit": 1e9}
    for _ in range(SERIES):
        least["direct"] = min(least["direct"], series(direct, arguments))
        least["disabled"] = min(least["disabled"], series(off, arguments))
    with enable_apply(trace_set(number), hardware="here"):
        for _ in range(SERIES):
            least["direct"] = min(least["direct"], series(direct, arguments))
            least["unknown"] = min(least["unknown"], series(disabled, arguments))
            least["hit"] = min(least["hit"], series(hit, arguments))
        assert stats()[f"nothing_{number}"].hits == SERIES * CALLS
    disable_apply()
    over = {name: least[name] - least["direct"] for name in least}
    figures = (over["hit"], over["disabled"], over["unknown"])
    cells = " | ".join(f"{figure / 1e3:.3f}" for figure in figures)
    return f"| {number} | {least['direct'] / 1e3:.3f} | {cells} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    print(
        "| arguments | a direct call, µs | more on a hit | more disabled | not in the trace set |"
    )
    print("|---|---:|---:|---:|---:|")
    start = perf_counter()
    for number in range(2, 8):
        print(row(number, device), flush=True)
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    milliseconds, heavy = ran.stdout.split()
    print(f"\nimporting apply and enable_apply after torch: {float(milliseconds):.1f} ms")
    print(f"pytest or hypothesis imported: {heavy}; {perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
