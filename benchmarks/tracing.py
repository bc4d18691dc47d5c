"""What recording adds to a call through ``apply``: of a shape that was seen, and of a new one.

    python benchmarks/tracing.py [--device cuda]

Two inputs, 64 MiB of floats and 1,024 indices; ``dump_non_float`` and ``shape_only``, the defaults.
The least of many series for a call that comes again, the median of 40 for a new shape.
"""

from __future__ import annotations

import argparse
import tempfile
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from pytest_fib import Definition, TraceSet, apply, enable_tracing

if TYPE_CHECKING:
    from collections.abc import Callable

SERIES, CALLS = 300, 1000
DEFINITION = Definition.model_validate(
    {
        "name": "pick",
        "op_type": "gather",
        "axes": {"n": "var", "m": "var"},
        "inputs": {
            "x": {"shape": ["n"], "dtype": "float32"},
            "at": {"shape": ["m"], "dtype": "int64"},
        },
        "outputs": {"y": {"shape": ["m"], "dtype": "float32"}},
        "reference": "def run(x, at):\n    return x[at]\n",
    }
)


def nothing(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x


def series(function: Callable[..., torch.Tensor], x: torch.Tensor, at: torch.Tensor) -> float:
    start = perf_counter_ns()
    for _ in range(CALLS):
        function(x, at)
    return (perf_counter_ns() - start) / CALLS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    traced = apply("pick")(nothing)
    x, at = (
        torch.zeros(16 << 20, device=device),
        torch.zeros(1024, dtype=torch.int64, device=device),
    )
    with tempfile.TemporaryDirectory() as folder:
        with enable_tracing(folder, trace_set=TraceSet([DEFINITION])) as tracer:
            traced(x, at)
            again = min(series(traced, x, at) for _ in range(SERIES))
            direct = min(series(nothing, x, at) for _ in range(SERIES))
            new = []
            for n in range(1, 41):
                shape = x[:-n]
                start = perf_counter_ns()
                traced(shape, at)
                new.append(perf_counter_ns() - start)
        assert (tracer.stats.recorded, tracer.stats.dropped) == (41, 0)
    print(f"a direct call: {direct / 1e3:.3f} µs; more where the shape was seen: ", end="")
    print(f"{(again - direct) / 1e3:.3f} µs; where it is new: {median(new) / 1e3:.1f} µs")


if __name__ == "__main__":
    main()
