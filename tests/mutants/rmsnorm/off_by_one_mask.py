"""The last column of each row is masked out, so that it is never written."""

import triton
import triton.language as tl

from pytest_fib import implements


@triton.jit
def _rmsnorm(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n - 1
    values = tl.load(x + row * n + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / n + eps)
    gain = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    result = values * scale * gain
    tl.store(out + row * n + columns, result.to(out.dtype.element_ty), mask=mask)


@implements("rmsnorm_d4096", language="triton", target_hardware=["cuda"], calling="destination")
def run(x, weight, eps, out):
    batch, n = x.shape
    _rmsnorm[(batch,)](x, weight, out, n, eps, BLOCK=triton.next_power_of_2(n))
