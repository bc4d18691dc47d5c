"""Paged decode with several Triton programs for each sequence and KV head, then a merge."""

import math

import torch
import triton
import triton.language as tl

from pytest_fib import implements

TOKENS = 64
#: Programs for each multiprocessor, so that memory is busy to the end. No more parts than this.
PROGRAMS, MOST_PARTS = 4, 64


@triton.jit
def _part(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sums_out, lse_out, scale,
    PAGE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr,
    HEADS: tl.constexpr, TOKENS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Attention over one part of a sequence: its output and lse, for each part apart."""
    sequence, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part = tl.program_id(2)
    first_page = tl.load(kv_indptr + sequence)
    pages = tl.load(kv_indptr + sequence + 1) - first_page
    length = pages
    if PAGE > 1:
        last = tl.load(kv_last_page_len + sequence)
        length = tl.where(pages > 0, (pages - 1) * PAGE + last, 0)
    share = tl.cdiv(tl.cdiv(length, TOKENS), PARTS) * TOKENS
    begin = part * share
    end = tl.minimum(begin + share, length)

    # Query heads of this KV head, padded to the rows that a matrix product needs.
    head, dim = tl.arange(0, HEADS), tl.arange(0, DIM)
    row = sequence * (KV_HEADS * GROUP) + kv_head * GROUP + head
    real = head < GROUP
    query = tl.load(q + row[:, None] * DIM + dim[None, :], mask=real[:, None], other=0.0)

    # Logits are kept in units of log 2, so that exp2 serves.
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    sums = tl.zeros((HEADS, DIM), tl.float32)
    for start in range(begin, end, TOKENS):
        token = start + tl.arange(0, TOKENS)
        there = token < end
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
    result = (sums / divisor[:, None]).to(sums_out.dtype.element_ty)
    out = row * PARTS + part
    tl.store(sums_out + out[:, None] * DIM + dim[None, :], result, mask=real[:, None])
    tl.store(lse_out + out, tl.where(total > 0, top + tl.log2(divisor), float("-inf")), mask=real)


@triton.jit
def _merge(
    sums_in, lse_in, output, lse,
    DIM: tl.constexpr, PARTS: tl.constexpr, PARTS_PADDED: tl.constexpr,
):  # fmt: skip
    """The parts of one sequence and query head, weighted by their share of the softmax."""
    row = tl.program_id(0).to(tl.int64)
    part, dim = tl.arange(0, PARTS_PADDED), tl.arange(0, DIM)
    there = part < PARTS
    each = tl.load(lse_in + row * PARTS + part, mask=there, other=float("-inf"))
    top = tl.max(each, axis=0)
    # A sequence without tokens has no largest logit, and weights of 0.
    weights = tl.where(each > float("-inf"), tl.exp2(each - top), 0.0)
    total = tl.sum(weights, axis=0)
    at = (row * PARTS + part)[:, None] * DIM + dim[None, :]
    sums = tl.sum(tl.load(sums_in + at, mask=there[:, None], other=0.0) * weights[:, None], axis=0)
    divisor = tl.where(total > 0, total, 1.0)
    tl.store(output + row * DIM + dim, (sums / divisor).to(output.dtype.element_ty))
    tl.store(lse + row, tl.where(total > 0, top + tl.log2(divisor), float("-inf")))


@implements(
    "gqa_paged_decode_*_ps1",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="Sequences are split so that every multiprocessor has work; parts are merged.",
)
def run(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, output, lse):
    _launch(q, k_cache, v_cache, kv_indptr, kv_indices, kv_indptr, sm_scale, output, lse)


@implements(
    "gqa_paged_decode_*_ps64",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="Sequences are split so that every multiprocessor has work; parts are merged.",
)
def run_pages(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, output, lse
):  # fmt: skip
    _launch(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, output, lse)


def _launch(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, output, lse):
    assert all(t.is_contiguous() for t in (q, k_cache, v_cache))
    batch, heads, dim = q.shape
    page_size, kv_heads = k_cache.shape[1:3]
    parts = _parts(q, batch * kv_heads, batch, len(kv_indices) * page_size)
    sums, lses = output, lse
    if parts > 1:
        sums = torch.empty(batch, heads, parts, dim, dtype=torch.float32, device=q.device)
        lses = torch.empty(batch, heads, parts, dtype=torch.float32, device=q.device)
    _part[(batch, kv_heads, parts)](
        q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sums, lses,
        sm_scale / math.log(2),
        PAGE=page_size, KV_HEADS=kv_heads, GROUP=heads // kv_heads, DIM=dim,
        HEADS=max(16, triton.next_power_of_2(heads // kv_heads)), TOKENS=TOKENS, PARTS=parts,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    if parts > 1:
        _merge[(batch * heads,)](
            sums, lses, output, lse,
            DIM=dim, PARTS=parts, PARTS_PADDED=triton.next_power_of_2(parts), num_warps=4,
        )  # fmt: skip


def _parts(q, programs, batch, tokens):
    """How many programs share a sequence: a power of two, since each number is compiled apart.

    Lengths are on the device, and asking for them would take longer than the kernel. So sequences
    count as long as they are on average; parts of short ones are empty.
    """
    processors = 8  # in the interpreter, so that it has parts too
    if q.is_cuda:
        processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    wanted = min(PROGRAMS * processors // programs, tokens // batch // TOKENS, MOST_PARTS)
    return 1 << max(wanted, 1).bit_length() - 1
