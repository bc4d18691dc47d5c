"""Matrix product with one Triton program for each tile of the result."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements

BLOCK_N = 128
BLOCK_K = 64


@triton.jit
def _gemm(
    a, b, c, M, N, K, a_row, b_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    columns = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        a_mask = (rows < M) & (inner[None, :] < K)
        b_mask = (inner[:, None] < K) & (columns < N)
        left = tl.load(a + rows * a_row + inner[None, :], mask=a_mask, other=0.0)
        right = tl.load(b + columns * b_row + inner[:, None], mask=b_mask, other=0.0)
        total = tl.dot(left, right, total)
    result = total.to(c.dtype.element_ty)
    tl.store(c + rows * N + columns, result, mask=(rows < M) & (columns < N))


@implements(
    "gemm_*",
    language="triton",
    target_hardware=["cuda"],
    description="One tile per program, accumulated in float32 over all of K.",
)
def run(A, B):
    dtype = A.dtype
    if dtype == torch.bfloat16 and A.device.type == "cpu":
        # Triton's interpreter multiplies bfloat16 as the integers that hold it.
        A, B = A.float(), B.float()
    M, K = A.shape
    N = B.shape[0]
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    block_m = 16 if M <= 16 else 64 if M <= 512 else 128
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, BLOCK_N))
    _gemm[grid](
        A, B, C, M, N, K, A.stride(0), B.stride(0),
        BLOCK_M=block_m, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=8 if block_m > 64 else 4,
    )  # fmt: skip
    return C.to(dtype)
