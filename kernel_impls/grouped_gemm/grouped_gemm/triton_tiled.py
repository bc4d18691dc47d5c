"""Grouped product in one launch: every Triton program finds the group of its tile."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements

BLOCK_N = 128
BLOCK_K = 64


@triton.jit
def _grouped_gemm(
    a, b, c, indptr, groups, N, K, a_row, b_group, b_row,
    GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    numbers = tl.arange(0, GROUPS)
    starts = tl.load(indptr + numbers, mask=numbers < groups, other=0)
    ends = tl.load(indptr + 1 + numbers, mask=numbers < groups, other=0)
    tiles = (ends - starts + BLOCK_M - 1) // BLOCK_M
    upto = tl.cumsum(tiles, axis=0)
    group = tl.sum((upto <= tile).to(tl.int32), axis=0)
    # How many tiles there are is known on the device only; the grid has room for the most.
    if group >= groups:
        return
    own = numbers == group
    first = tl.sum(tl.where(own, upto - tiles, 0), axis=0)
    start = tl.sum(tl.where(own, starts, 0), axis=0)
    end = tl.sum(tl.where(own, ends, 0), axis=0)
    rows = (start + (tile - first) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    columns = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    weight = b + group.to(tl.int64) * b_group
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        a_mask = (rows < end) & (inner[None, :] < K)
        b_mask = (inner[:, None] < K) & (columns < N)
        left = tl.load(a + rows * a_row + inner[None, :], mask=a_mask, other=0.0)
        right = tl.load(weight + columns * b_row + inner[:, None], mask=b_mask, other=0.0)
        total = tl.dot(left, right, total)
    result = total.to(c.dtype.element_ty)
    tl.store(c + rows * N + columns, result, mask=(rows < end) & (columns < N))


@implements(
    "grouped_gemm_*",
    language="triton",
    target_hardware=["cuda"],
    description="One launch for all groups; the offsets never leave the device.",
)
def run(A, B, m_indptr):
    dtype = A.dtype
    if dtype == torch.bfloat16 and A.device.type == "cpu":
        # Triton's interpreter multiplies bfloat16 as the integers that hold it.
        A, B = A.float(), B.float()
    M, K = A.shape
    groups, N, _ = B.shape
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    block_m = 64 if 16 * groups < M else 16
    # Each group may end in a tile that is not full.
    grid = (M // block_m + groups, triton.cdiv(N, BLOCK_N))
    _grouped_gemm[grid](
        A, B, C, m_indptr, groups, N, K, A.stride(0), B.stride(0), B.stride(1),
        GROUPS=triton.next_power_of_2(groups),
        BLOCK_M=block_m, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4,
    )  # fmt: skip
    return C.to(dtype)
