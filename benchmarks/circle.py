"""A toy server before and after: calls captured, candidates timed on them, the best served.

    python benchmarks/circle.py [--device cuda] [--layers 4] [--steps 200]

Each layer of a step is an addition with RMSNorm, as PyTorch has it, for batches of a few sizes.
Candidates are the project's own kernels. The total time of the same requests is taken before and
after, the least of five.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib import Benchmark, TraceSet, apply, enable_apply, enable_tracing
from pytest_fib.data import load_definition_file
from pytest_fib.discovery import find_implementations
from pytest_fib.dispatch import stats

if TYPE_CHECKING:
    from pytest_fib.data import Definition

ROOT = Path(__file__).parents[1]
NORM = "fused_add_rmsnorm_d4096"
SIZES = (1, 1, 1, 8, 32)


@apply(NORM)
def norm(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = input.float() + residual.float()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
    return (total * scale * weight.float()).half(), total.half()


def candidates(name: str, device: str) -> TraceSet:
    """The definition of this name, and the project's implementations of it."""
    kind = name.rsplit("_", 1)[0]
    loaded = load_definition_file(ROOT / "kernel_defs" / kind / f"{name}.yaml")
    definition: Definition = loaded[0].definition
    found = find_implementations([ROOT / "kernel_impls" / kind])
    right = [each for each in found if device in each.target_hardware and not each.problem]
    return TraceSet([definition], [each.solution(name) for each in right])


def requests(device: str, steps: int, layers: int) -> Any:
    """What serves so many steps."""
    made = torch.Generator().manual_seed(0)
    weight = torch.rand(4096, generator=made).half().to(device)
    inputs = {n: torch.randn(n, 4096, generator=made).half().to(device) for n in set(SIZES)}

    def serve() -> None:
        for step in range(steps):
            x = residual = inputs[SIZES[step % len(SIZES)]]
            for _ in range(layers):
                x, residual = norm(x, residual, weight, 1e-6)
        if device == "cuda":
            torch.cuda.synchronize()

    return serve


def total(serve: Any) -> float:
    """Milliseconds of all requests, the least of five times."""
    times = []
    for _ in range(5):
        start = perf_counter()
        serve()
        times.append(perf_counter() - start)
    return min(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    serve = requests(given.device, given.steps, given.layers)
    with tempfile.TemporaryDirectory() as folder:
        candidates(NORM, given.device).to_path(folder)
        before = total(serve)
        with enable_tracing(folder):
            serve()
        captured = TraceSet.from_path(folder)
        for line in (benchmark := Benchmark(captured, precision="quick")).run_all():
            assert line.evaluation is not None
            print(line.solution, line.workload.axes, line.evaluation.latency_ms)
        print(*benchmark.skipped, sep="\n")
        selection = captured.best(NORM, weights=captured.counts(NORM))
        print(f"fewest implementations: {selection and selection.solutions}")
        with enable_apply(captured) as applied:
            applied.build()
            after = total(serve)
            print(f"served by {stats()[NORM].solutions}")
    calls = given.steps * given.layers
    print(f"{calls} calls: {before:.1f} ms before, {after:.1f} ms after, {before / after:.2f}x")


if __name__ == "__main__":
    main()
