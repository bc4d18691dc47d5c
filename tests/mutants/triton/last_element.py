"""A Triton kernel of scaling whose mask leaves out the last element."""

import triton
import triton.language as tl

from pytest_fib import implements


@triton.jit
def _scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n - 1
    tl.store(out + at, tl.load(x + at, mask=mask) * factor, mask=mask)


@implements("scale_float32", language="triton", target_hardware=["cuda"], calling="destination")
def masked_out(x, factor, out):
    n = x.numel()
    _scale[(triton.cdiv(n, 4096),)](x, out, n, factor, BLOCK=4096)
