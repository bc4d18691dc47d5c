"""Scaling with one Triton program for each block of elements."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements

BLOCK = 4096


@triton.jit
def _scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    values = tl.load(x + at, mask=mask).to(tl.float32)
    tl.store(out + at, (values * factor).to(out.dtype.element_ty), mask=mask)


@implements(
    "scale_*", language="triton", target_hardware=["cuda"], description="One block per program."
)
def run(x, factor):
    out = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), factor, BLOCK=BLOCK)
    return out
