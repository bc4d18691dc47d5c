"""Latent decode with one Triton program for each sequence and 16 of its heads."""

import math

import triton
import triton.language as tl

from pytest_fib import implements

HEADS, TOKENS = 16, 32


@triton.jit
def _decode(
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, output, lse,
    all_heads, scale,
    PAGE: tl.constexpr, CKV: tl.constexpr, KPE: tl.constexpr, HEADS: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    first_page = tl.load(kv_indptr + sequence)
    pages = tl.load(kv_indptr + sequence + 1) - first_page
    length = pages
    if PAGE > 1:
        last = tl.load(kv_last_page_len + sequence)
        length = tl.where(pages > 0, (pages - 1) * PAGE + last, 0)

    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    real = head < all_heads
    row = sequence * all_heads + head
    c, p = tl.arange(0, CKV), tl.arange(0, KPE)
    query_c = tl.load(q_nope + row[:, None] * CKV + c[None, :], mask=real[:, None], other=0.0)
    query_p = tl.load(q_pe + row[:, None] * KPE + p[None, :], mask=real[:, None], other=0.0)

    # Logits are kept in units of log 2, so that exp2 serves.
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    sums = tl.zeros((HEADS, CKV), tl.float32)
    for start in range(0, length, TOKENS):
        token = start + tl.arange(0, TOKENS)
        there = token < length
        page = tl.load(kv_indices + first_page + token // PAGE, mask=there, other=0).to(tl.int64)
        at = (page * PAGE + token % PAGE)[:, None]
        latent = tl.load(ckv_cache + at * CKV + c[None, :], mask=there[:, None], other=0.0)
        places = tl.load(kpe_cache + at * KPE + p[None, :], mask=there[:, None], other=0.0)
        logits = tl.dot(query_p, tl.trans(places), tl.dot(query_c, tl.trans(latent))) * scale
        logits = tl.where(there[None, :], logits, float("-inf"))
        larger = tl.maximum(top, tl.max(logits, axis=1))
        weights = tl.exp2(logits - larger[:, None])
        kept = tl.exp2(top - larger)
        total = total * kept + tl.sum(weights, axis=1)
        # A weight is the sum of two numbers of half its precision: one alone would lose too much.
        high = weights.to(latent.dtype)
        low = (weights - high.to(tl.float32)).to(latent.dtype)
        sums = tl.dot(low, latent, tl.dot(high, latent, sums * kept[:, None]))
        top = larger

    divisor = tl.where(total > 0, total, 1.0)
    at = row[:, None] * CKV + c[None, :]
    tl.store(output + at, (sums / divisor[:, None]).to(output.dtype.element_ty), mask=real[:, None])
    tl.store(lse + row, tl.where(total > 0, top + tl.log2(divisor), float("-inf")), mask=real)


@implements(
    "mla_paged_decode_*_ps1",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="One program per sequence and 16 heads.",
)
def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse):
    caches = (ckv_cache, kpe_cache)
    _launch(q_nope, q_pe, *caches, kv_indptr, kv_indices, kv_indptr, sm_scale, output, lse)


@implements(
    "mla_paged_decode_*_ps64",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="One program per sequence and 16 heads.",
)
def run_pages(
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale,
    output, lse,
):  # fmt: skip
    caches = (ckv_cache, kpe_cache)
    _launch(q_nope, q_pe, *caches, kv_indptr, kv_indices, kv_last_page_len, sm_scale, output, lse)


def _launch(
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale,
    output, lse,
):  # fmt: skip
    assert all(t.is_contiguous() for t in (q_nope, q_pe, ckv_cache, kpe_cache))
    batch, heads, ckv = q_nope.shape
    _decode[(batch, triton.cdiv(heads, HEADS))](
        q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, output, lse,
        heads, sm_scale / math.log(2),
        PAGE=ckv_cache.shape[1], CKV=ckv, KPE=q_pe.shape[2], HEADS=HEADS, TOKENS=TOKENS,
        num_warps=4, num_stages=2,
    )  # fmt: skip
