"""Ragged prefill with one Triton program for each head and tile of a sequence's queries."""

import math

import triton
import triton.language as tl

from pytest_fib import implements

QUERIES, TOKENS = 64, 64


@triton.jit
def _prefill(
    q, k, v, qo_indptr, kv_indptr, output, lse, scale, batch,
    q_row, q_head, k_row, k_head, v_row, v_head,
    ALL_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, BATCH: tl.constexpr,
    QUERIES: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    # Which sequence a tile is of follows from the lengths, which only the device knows.
    number, head = tl.program_id(0), tl.program_id(1)
    one = tl.arange(0, BATCH)
    begins = tl.load(qo_indptr + one, mask=one < batch, other=0)
    ends = tl.load(qo_indptr + one + 1, mask=one < batch, other=0)
    tiles = (ends - begins + QUERIES - 1) // QUERIES
    before = tl.cumsum(tiles, axis=0) - tiles
    ours = (before <= number) & (number < before + tiles)
    if tl.sum(ours.to(tl.int32), axis=0) == 0:
        return
    sequence = tl.sum(tl.where(ours, one, 0), axis=0)
    tile = number - tl.sum(tl.where(ours, before, 0), axis=0)

    q_begin = tl.load(qo_indptr + sequence).to(tl.int64)
    q_len = (tl.load(qo_indptr + sequence + 1) - q_begin).to(tl.int32)
    kv_begin = tl.load(kv_indptr + sequence).to(tl.int64)
    kv_len = (tl.load(kv_indptr + sequence + 1) - kv_begin).to(tl.int32)

    offset, dim = tile * QUERIES + tl.arange(0, QUERIES), tl.arange(0, DIM)
    real = offset < q_len
    row = q_begin + offset
    at = row[:, None] * q_row + head * q_head + dim[None, :]
    query = tl.load(q + at, mask=real[:, None], other=0.0)
    sees = offset + kv_len - q_len + 1  # keys of a query; all kv_len of them for the last
    k_at = k + kv_begin * k_row + (head // GROUP) * k_head
    v_at = v + kv_begin * v_row + (head // GROUP) * v_head

    # Logits are kept in units of log 2, so that exp2 serves. Each query sees the first key, so that
    # the largest logit is finite after the first chunk.
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    sums = tl.zeros((QUERIES, DIM), tl.float32)
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

    out_row = row * ALL_HEADS + head
    at = out_row[:, None] * DIM + dim[None, :]
    tl.store(output + at, (sums / total[:, None]).to(output.dtype.element_ty), mask=real[:, None])
    tl.store(lse + out_row, top + tl.log2(total), mask=real)


@implements(
    "gqa_ragged_prefill_*",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="One program per head and 64 queries of a sequence.",
)
def run(q, k, v, qo_indptr, kv_indptr, sm_scale, output, lse):
    assert q.stride(2) == k.stride(2) == v.stride(2) == 1
    total_q, heads, dim = q.shape
    batch = len(qo_indptr) - 1
    # Each sequence may have one tile more than its share: an upper bound without a look at them.
    tiles = triton.cdiv(total_q, QUERIES) + batch
    _prefill[(tiles, heads)](
        q, k, v, qo_indptr, kv_indptr, output, lse, sm_scale / math.log(2), batch,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        ALL_HEADS=heads, GROUP=heads // k.shape[1], DIM=dim, BATCH=triton.next_power_of_2(batch),
        QUERIES=QUERIES, TOKENS=TOKENS, num_warps=4,
    )  # fmt: skip
