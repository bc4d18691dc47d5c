"""Rotary embedding with one Triton program for each token."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements


@triton.jit
def _heads(
    x, out, cos, sin, token, x_token, x_head,
    HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr, BLOCK_HALF: tl.constexpr, BLOCK_REST: tl.constexpr,
):  # fmt: skip
    heads = tl.arange(0, BLOCK_HEADS)[:, None]
    columns = tl.arange(0, BLOCK_HALF)[None, :]
    mask = (heads < HEADS) & (columns < HALF)
    source = x + token * x_token + heads * x_head
    target = out + (token * HEADS + heads) * DIM
    first = tl.load(source + columns, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(source + HALF + columns, mask=mask, other=0.0).to(tl.float32)
    left = first * cos - second * sin
    right = second * cos + first * sin
    tl.store(target + columns, left.to(out.dtype.element_ty), mask=mask)
    tl.store(target + HALF + columns, right.to(out.dtype.element_ty), mask=mask)
    if DIM > 2 * HALF:
        rest = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        passed = (heads < HEADS) & (rest < DIM)
        tl.store(target + rest, tl.load(source + rest, mask=passed, other=0.0), mask=passed)


@triton.jit
def _rope(
    q, k, q_out, k_out, cache, positions, q_token, q_head, k_token, k_head, cache_row,
    QO_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
    BLOCK_QO: tl.constexpr, BLOCK_KV: tl.constexpr,
    BLOCK_HALF: tl.constexpr, BLOCK_REST: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token)
    columns = tl.arange(0, BLOCK_HALF)[None, :]
    row = cache + position * cache_row + columns
    cos = tl.load(row, mask=columns < HALF, other=0.0)
    sin = tl.load(row + HALF, mask=columns < HALF, other=0.0)
    _heads(
        q, q_out, cos, sin, token, q_token, q_head,
        QO_HEADS, DIM, HALF, BLOCK_QO, BLOCK_HALF, BLOCK_REST,
    )  # fmt: skip
    _heads(
        k, k_out, cos, sin, token, k_token, k_head,
        KV_HEADS, DIM, HALF, BLOCK_KV, BLOCK_HALF, BLOCK_REST,
    )  # fmt: skip


@implements(
    "rope_*",
    language="triton",
    target_hardware=["cuda"],
    description="All heads of a token, queries and keys, in one program.",
)
def run(q, k, cos_sin_cache, positions):
    dtype = q.dtype
    if dtype == torch.bfloat16 and q.device.type == "cpu":
        # Triton's interpreter cuts bfloat16 off where a GPU rounds.
        q, k = q.float(), k.float()
    q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    k_out = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    tokens, qo_heads, dim = q.shape
    kv_heads, half = k.shape[1], cos_sin_cache.shape[1] // 2
    _rope[(tokens,)](
        q, k, q_out, k_out, cos_sin_cache, positions,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), cos_sin_cache.stride(0),
        QO_HEADS=qo_heads, KV_HEADS=kv_heads, DIM=dim, HALF=half,
        BLOCK_QO=triton.next_power_of_2(qo_heads),
        BLOCK_KV=triton.next_power_of_2(kv_heads),
        BLOCK_HALF=triton.next_power_of_2(half),
        BLOCK_REST=triton.next_power_of_2(max(1, dim - 2 * half)),
    )  # fmt: skip
    return q_out.to(dtype), k_out.to(dtype)
