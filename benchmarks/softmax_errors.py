"""How much of float32's bounds an honest softmax takes on a GPU, and one with an epsilon.

    python benchmarks/softmax_errors.py

Rows of 1 to 1,000 normal numbers times 1, 5 and 30, in Triton. *Elements* and *rows* are the
largest shares of their bounds, *factor* is what all elements together are off by, in roundoffs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from _common import print_machine, print_table
from triton.language.extra import libdevice

from pytest_fib.verdict import compare_tensor, dtype_bound

WAYS = ("exp", "exp2", "__expf, __fdividef", "reciprocal", "epsilon of 1e-6")


@triton.jit
def softmax(x, y, n: tl.constexpr, block: tl.constexpr, way: tl.constexpr):  # noqa: ANN001, ANN201 (Triton reads annotations)
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * n + at, at < n, -float("inf"))
    if way == 1:
        value *= 1.4426950408889634
    value -= tl.max(value, 0)
    if way == 1:
        power = tl.exp2(value)
    elif way == 2:
        power = libdevice.fast_expf(value)
    else:
        power = tl.exp(value)
    total = tl.sum(power, 0)
    if way == 2:
        out = libdevice.fast_dividef(power, total)
    elif way == 3:
        out = power * (1.0 / total)
    elif way == 4:
        out = power / (total + 1e-6)
    else:
        out = power / total
    tl.store(y + row * n + at, out, at < n)


def shares(way: int) -> tuple[float, float, float]:
    """The largest shares of the bounds of elements and rows, and the largest factor."""
    generator, most = torch.Generator("cuda"), torch.zeros(3)
    for n in (1, 2, 3, 5, 8, 32, 1000):
        for scale in (1.0, 5.0, 30.0):
            rows = max(64, 200_000 // n)
            generator.manual_seed(n)
            x = torch.randn(rows, n, device="cuda", generator=generator) * scale
            got, right = torch.empty_like(x), x.double().softmax(-1)
            softmax[(rows,)](x, got, n, triton.next_power_of_2(n), way)
            found = compare_tensor("y", got, right, dtype_bound(torch.float32))
            factor = ((got - right) * right).sum() / right.square().sum() * 2**24
            each = torch.tensor([found.used, found.rows_used, abs(float(factor))])
            most = torch.maximum(most, each)
    used, rows_used, factor = most.tolist()
    return used, rows_used, factor


def main() -> None:
    found = [(name, *shares(way)) for way, name in enumerate(WAYS)]
    rows = [(name, *(f"{x:.2f}" for x in each)) for name, *each in found]
    print_table(("way", "elements", "rows", "factor"), rows)
    print(f"\n{torch.cuda.get_device_name()}", end="")
    print_machine("torch", "triton")


if __name__ == "__main__":
    main()
