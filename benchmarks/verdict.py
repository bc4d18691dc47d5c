"""What a verdict costs: an output of 64 MiB against its float64 values, beside torch.allclose.

Targets: in bfloat16, at most 0.4 passes of torch.allclose on the CPU and under 2.5 ms on an H200.
With yardsticks, which are asked for only after a failure, it costs about half as much again for
each. Times are the least of several, since other processes only add to them.

    python benchmarks/verdict.py
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from _common import print_machine, print_table

from pytest_fib.verdict import compare_tensor, dtype_bound

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = 64 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description="What a verdict costs.")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    rows = [row(dtype, arguments) for dtype in (torch.bfloat16, torch.float16, torch.float32)]
    titles = ("64 MiB of", "verdict, ms", "with one yardstick", "torch.allclose, ms", "passes")
    print_table(titles, rows)
    print_machine("torch")


def row(dtype: torch.dtype, arguments: argparse.Namespace) -> tuple[str, ...]:
    shape = (BYTES // dtype.itemsize // 4096, 4096)
    right = torch.randn(shape, dtype=torch.float64, device=arguments.device)
    got, other = right.to(dtype), right.to(dtype)
    bound = dtype_bound(dtype)
    ways: list[Callable[[], object]] = [
        lambda: compare_tensor("y", got, right, bound),
        lambda: compare_tensor("y", got, right, bound, [other]),
        lambda: torch.allclose(got, other, rtol=1e-2, atol=1e-2),
    ]
    verdict, widened, pass_of_allclose = (1e3 * seconds(way, arguments) for way in ways)
    figures = (verdict, widened, pass_of_allclose, verdict / pass_of_allclose)
    return (str(dtype).removeprefix("torch."), *(f"{figure:.3g}" for figure in figures))


def seconds(way: Callable[[], object], arguments: argparse.Namespace) -> float:
    def once() -> float:
        start = perf_counter()
        way()
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        return perf_counter() - start

    once()
    return min(once() for _ in range(arguments.repeat))


if __name__ == "__main__":
    main()
