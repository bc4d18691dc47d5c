"""Paged decode with one Triton program for each sequence and KV head."""

import math

import triton
import triton.language as tl

from pytest_fib import implements

TOKENS = 64


@triton.jit
def _decode(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, output, lse, scale,
    PAGE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr,
    HEADS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    sequence, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first_page = tl.load(kv_indptr + sequence)
    pages = tl.load(kv_indptr + sequence + 1) - first_page
    length = pages
    if PAGE > 1:
        last = tl.load(kv_last_page_len + sequence)
        length = tl.where(pages > 0, (pages - 1) * PAGE + last, 0)

    # Query heads of this KV head, padded to the rows that a matrix product needs.
    head, dim = tl.arange(0, HEADS), tl.arange(0, DIM)
    row = sequence * (KV_HEADS * GROUP) + kv_head * GROUP + head
    real = head < GROUP
    query = tl.load(q + row[:, None] * DIM + dim[None, :], mask=real[:, None], other=0.0)

    # Logits are kept in units of log 2, so that exp2 serves.
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    sums = tl.zeros((HEADS, DIM), tl.float32)
    for start in range(0, length, TOKENS):
        token = start + tl.arange(0, TOKENS)
        there = token < length
        page = tl.load(kv_indices + first_page + token // PAGE, mask=there, other=0).to(tl.int64)
        at = ((page * PAGE + token % PAGE) * KV_HEADS + kv_head) * DIM
        keys = tl.load(k_cache + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        values = tl.load(v_cache + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        logits = tl.dot(query, tl.trans(keys)) * scale
        logits = tl.where(there[None, :], logits, float("-inf"))
        larger = tl.maximum(top, tl.max(logits, axis=1))
        weights = tl.exp2(logits - larger[:, None])
        kept = tl.exp2(top - larger)
        total = total * kept + tl.sum(weights, axis=1)
        # A weight is the sum of two numbers of half its precision: one alone would lose too much.
        high = weights.to(values.dtype)
        low = (weights - high.to(tl.float32)).to(values.dtype)
        sums = tl.dot(low, values, tl.dot(high, values, sums * kept[:, None]))
        top = larger

    divisor = tl.where(total > 0, total, 1.0)
    at = row[:, None] * DIM + dim[None, :]
    tl.store(output + at, (sums / divisor[:, None]).to(output.dtype.element_ty), mask=real[:, None])
    tl.store(lse + row, tl.where(total > 0, top + tl.log2(divisor), float("-inf")), mask=real)


@implements(
    "gqa_paged_decode_*_ps1",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="One program per sequence and KV head.",
)
def run(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, output, lse):
    _launch(q, k_cache, v_cache, kv_indptr, kv_indices, kv_indptr, sm_scale, output, lse)


@implements(
    "gqa_paged_decode_*_ps64",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="One program per sequence and KV head.",
)
def run_pages(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, output, lse
):  # fmt: skip
    _launch(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, output, lse)


def _launch(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, output, lse):
    assert all(t.is_contiguous() for t in (q, k_cache, v_cache))
    batch, heads, dim = q.shape
    page_size, kv_heads = k_cache.shape[1:3]
    _decode[(batch, kv_heads)](
        q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, output, lse,
        sm_scale / math.log(2),
        PAGE=page_size, KV_HEADS=kv_heads, GROUP=heads // kv_heads, DIM=dim,
        HEADS=max(16, triton.next_power_of_2(heads // kv_heads)), TOKENS=TOKENS, num_warps=4,
    )  # fmt: skip
