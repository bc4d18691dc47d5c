"""Ragged prefill with one Triton program for each KV head and tile of a sequence's queries."""

import math

import triton
import triton.language as tl

from pytest_fib import implements

ROWS, TOKENS = 64, 64


@triton.jit
def _prefill(
    q, k, v, qo_indptr, kv_indptr, tile_ends, output, lse, scale, batch,
    q_row, q_head, k_row, k_head, v_row, v_head,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, BATCH: tl.constexpr,
    QUERIES: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    number, kv_head = tl.program_id(0), tl.program_id(1)
    if number >= tl.load(tile_ends + batch - 1):
        return
    one = tl.arange(0, BATCH)
    ends = tl.load(tile_ends + one, mask=one < batch, other=2147483647)
    sequence = tl.sum((ends <= number).to(tl.int32), axis=0)  # so many end before this tile

    q_begin = tl.load(qo_indptr + sequence).to(tl.int64)
    q_len = (tl.load(qo_indptr + sequence + 1) - q_begin).to(tl.int32)
    kv_begin = tl.load(kv_indptr + sequence).to(tl.int64)
    kv_len = (tl.load(kv_indptr + sequence + 1) - kv_begin).to(tl.int32)
    tile = number - tl.load(tile_ends + sequence) + (q_len + QUERIES - 1) // QUERIES

    # A row is a query of one of the heads that share the KV head.
    row, dim = tl.arange(0, ROWS), tl.arange(0, DIM)
    offset, head = tile * QUERIES + row // GROUP, kv_head * GROUP + row % GROUP
    real = (row < QUERIES * GROUP) & (offset < q_len)
    at = (q_begin + offset) * q_row + head * q_head
    query = tl.load(q + at[:, None] + dim[None, :], mask=real[:, None], other=0.0)
    sees = offset + kv_len - q_len + 1  # keys of a query; all kv_len of them for the last
    k_at = k + kv_begin * k_row + kv_head * k_head
    v_at = v + kv_begin * v_row + kv_head * v_head

    # Logits are kept in units of log 2, so that exp2 serves. Each query sees the first key, so that
    # the largest logit is finite after the first chunk.
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DIM), tl.float32)
    for start in range(0, tl.minimum(kv_len, (tile + 1) * QUERIES + kv_len - q_len), TOKENS):
        token = start + tl.arange(0, TOKENS)
        there = token < kv_len
        far = token.to(tl.int64)[:, None]
        keys = tl.load(k_at + far * k_row + dim[None, :], mask=there[:, None], other=0.0)
        values = tl.load(v_at + far * v_row + dim[None, :], mask=there[:, None], other=0.0)
        logits = tl.dot(query, tl.trans(keys)) * scale
        seen = (token[None, :] < sees[:, None]) & there[None, :]
        logits = tl.where(seen, logits, float("-inf"))
        larger = tl.maximum(top, tl.max(logits, axis=1))
        weights = tl.exp2(logits - larger[:, None])
        kept = tl.exp2(top - larger)
        total = total * kept + tl.sum(weights, axis=1)
        # A weight is the sum of two numbers of half its precision: one alone would lose too much.
        high = weights.to(values.dtype)
        low = (weights - high.to(tl.float32)).to(values.dtype)
        sums = tl.dot(low, values, tl.dot(high, values, sums * kept[:, None]))
        top = larger

    out_row = (q_begin + offset) * (KV_HEADS * GROUP) + head
    at = out_row[:, None] * DIM + dim[None, :]
    tl.store(output + at, (sums / total[:, None]).to(output.dtype.element_ty), mask=real[:, None])
    tl.store(lse + out_row, top + tl.log2(total), mask=real)


@implements(
    "gqa_ragged_prefill_*",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="One program per KV head and 64 rows: some queries of a sequence by their heads.",
)
def run(q, k, v, qo_indptr, kv_indptr, sm_scale, output, lse):
    assert q.stride(2) == k.stride(2) == v.stride(2) == 1
    total_q, heads, dim = q.shape
    kv_heads, batch = k.shape[1], len(qo_indptr) - 1
    queries = ROWS // (heads // kv_heads)
    # Only the device knows how many tiles there are: each sequence may have one beyond its share.
    tile_ends = ((qo_indptr.diff() + queries - 1) // queries).cumsum(0, dtype=qo_indptr.dtype)
    _prefill[(triton.cdiv(total_q, queries) + batch, kv_heads)](
        q, k, v, qo_indptr, kv_indptr, tile_ends, output, lse, sm_scale / math.log(2), batch,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        KV_HEADS=kv_heads, GROUP=heads // kv_heads, DIM=dim, BATCH=triton.next_power_of_2(batch),
        QUERIES=queries, ROWS=ROWS, TOKENS=TOKENS, num_warps=4,
    )  # fmt: skip
