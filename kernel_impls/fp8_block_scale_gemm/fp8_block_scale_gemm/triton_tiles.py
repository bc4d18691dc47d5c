"""fp8 matrix product with one Triton program for each tile of the result."""

import triton
import triton.language as tl

from pytest_fib import implements

TILE_N, BLOCK = 64, 128


@triton.jit
def _gemm(
    a, b, a_scale, b_scale, c, m, n, a_row, b_row, sa_row, sb_row,
    K: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1).to(tl.int64) * TILE_N + tl.arange(0, TILE_N)
    within = tl.arange(0, BLOCK)
    in_m, in_n = row < m, column < n
    a_at = a + row[:, None] * a_row + within[None, :]
    b_at = b + column[None, :] * b_row + within[:, None]
    sums = tl.zeros((TILE_M, TILE_N), tl.float32)
    for block in range(0, K // BLOCK):
        # float16 holds all e4m3 numbers. Hopper adds products of fp8 with 14 bits only.
        left = tl.load(a_at + block * BLOCK, mask=in_m[:, None], other=0.0).to(tl.float16)
        right = tl.load(b_at + block * BLOCK, mask=in_n[None, :], other=0.0).to(tl.float16)
        left_scale = tl.load(a_scale + row * sa_row + block, mask=in_m, other=0.0)
        right_scale = tl.load(b_scale + column // BLOCK * sb_row + block, mask=in_n, other=0.0)
        sums += tl.dot(left, right) * left_scale[:, None] * right_scale[None, :]
    at = row[:, None] * n + column[None, :]
    tl.store(c + at, sums.to(c.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


@implements(
    "fp8_block_scale_gemm_*",
    language="triton",
    target_hardware=["sm_89", "sm_90", "sm_100", "sm_103", "sm_120"],  # that have fp8
    calling="destination",
    description="One program per tile; products in float16, which holds fp8 exactly.",
)
def run(a, b, a_scale, b_scale, c):
    assert all(t.stride(1) == 1 for t in (a, b, a_scale, b_scale))
    (m, k), n = a.shape, len(b)
    tile_m = 16 if m <= 16 else 64
    _gemm[(triton.cdiv(m, tile_m), triton.cdiv(n, TILE_N))](
        a, b, a_scale, b_scale, c, m, n,
        a.stride(0), b.stride(0), a_scale.stride(0), b_scale.stride(0),
        K=k, TILE_M=tile_m, TILE_N=TILE_N, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
