"""The last element is masked out, so that it is never written."""

import triton
import triton.language as tl

from pytest_fib import implements

BLOCK = 4096


@triton.jit
def _scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n - 1
    values = tl.load(x + at, mask=mask).to(tl.float32)
    tl.store(out + at, (values * factor).to(out.dtype.element_ty), mask=mask)


@implements("scale_*", language="triton", target_hardware=["cuda"], calling="destination")
def run(x, factor, out):
    n = x.numel()
    _scale[(triton.cdiv(n, BLOCK),)](x, out, n, factor, BLOCK=BLOCK)
