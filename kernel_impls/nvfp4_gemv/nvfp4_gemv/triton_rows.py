"""NVFP4 matrix-vector product with one Triton program for some rows of one matrix."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements

ROWS, BLOCKS = 16, 16


@triton.jit
def _e2m1(code):
    """The number that 4 bits stand for: a sign, two bits of exponent, one of mantissa."""
    exponent, mantissa = (code >> 1) & 3, code & 1
    # Exponent 0 has no hidden 1: 0 or 1/2. The others are (2 + mantissa) * 2 ** (exponent - 2).
    normal = ((2 + mantissa) << exponent).to(tl.float32) * 0.25
    size = tl.where(exponent == 0, mantissa.to(tl.float32) * 0.5, normal)
    return tl.where(code >= 8, -size, size)


@triton.jit
def _e4m3(code):
    """The number that a byte stands for: a sign, four bits of exponent, three of mantissa."""
    # Half precision has the same fields, and an exponent that stands for 2 ** 8 times less.
    half = ((code & 127) << 7).to(tl.int16).to(tl.float16, bitcast=True)
    size = tl.where((code & 127) == 127, float("nan"), half.to(tl.float32) * 256)
    return tl.where(code >= 128, -size, size)


@triton.jit
def _gemv(
    a, b, sfa, sfb, c, m, batch, blocks,
    a_m, a_l, b_l, sfa_m, sfa_l, sfb_l,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    matrix = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_m = row < m
    sums = tl.zeros((ROWS, BLOCKS), tl.float32)
    for start in range(0, blocks, BLOCKS):
        block = start + tl.arange(0, BLOCKS)
        in_k = block < blocks
        pair = block[:, None] * 8 + tl.arange(0, 8)[None, :]  # 8 bytes hold a block of 16
        at = row[:, None, None] * a_m + pair[None, :, :] + matrix * a_l
        both = in_m[:, None, None] & in_k[None, :, None]
        left = tl.load(a + at, mask=both, other=0).to(tl.int32)
        right = tl.load(b + pair + matrix * b_l, mask=in_k[:, None], other=0).to(tl.int32)[None]
        products = _e2m1(left & 15) * _e2m1(right & 15) + _e2m1(left >> 4) * _e2m1(right >> 4)
        both = in_m[:, None] & in_k[None, :]
        at = row[:, None] * sfa_m + block[None, :] + matrix * sfa_l
        left_scale = tl.load(sfa + at, mask=both, other=0).to(tl.int32)
        right_scale = tl.load(sfb + block + matrix * sfb_l, mask=in_k, other=0).to(tl.int32)
        sums += tl.sum(products, axis=2) * _e4m3(left_scale) * _e4m3(right_scale)[None, :]
    result = tl.sum(sums, axis=1)
    tl.store(c + row * batch + matrix, result.to(c.dtype.element_ty), mask=in_m)


@implements(
    "nvfp4_gemv",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="16 rows per program; e2m1 and e4m3 by arithmetic, for devices that have neither.",
)
def run(a, b, sfa, sfb, c):
    assert all(t.stride(1) == 1 for t in (a, b, sfa, sfb))
    m, blocks, batch = sfa.shape
    a, b, sfa, sfb = (t.view(torch.uint8) for t in (a, b, sfa, sfb))
    _gemv[(triton.cdiv(m, ROWS), batch)](
        a, b, sfa, sfb, c, m, batch, blocks,
        a.stride(0), a.stride(2), b.stride(2), sfa.stride(0), sfa.stride(2), sfb.stride(2),
        ROWS=ROWS, BLOCKS=BLOCKS, num_warps=4,
    )  # fmt: skip
