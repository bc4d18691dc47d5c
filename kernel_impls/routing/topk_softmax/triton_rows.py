"""Routing by repeated maxima, with one Triton program for some rows."""

import triton
import triton.language as tl

from pytest_fib import implements

#: Logits of a block, unless one row has more.
ELEMENTS = 1024


@triton.jit
def _topk_softmax(
    logits, weights, ids, tokens, row_step, EXPERTS: tl.constexpr, TOPK: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = rows < tokens
    # Rows past the end take part as copies of the last one.
    rows = tl.minimum(rows, tokens - 1).to(tl.int64)
    columns = tl.arange(0, COLUMNS)[None, :]
    at = logits + rows[:, None] * row_step + columns
    values = tl.load(at, mask=columns < EXPERTS, other=-float("inf")).to(tl.float32)
    largest = tl.max(values, axis=1)
    total = tl.sum(tl.exp(values - largest[:, None]), axis=1)
    for i in range(TOPK):
        chosen, expert = tl.max(values, axis=1, return_indices=True)
        tl.store(weights + rows * TOPK + i, tl.exp(chosen - largest) / total, mask=real)
        tl.store(ids + rows * TOPK + i, expert, mask=real)
        values = tl.where(columns == expert[:, None], -float("inf"), values)


@implements(
    "topk_softmax_*",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="The largest logit is taken and struck out, topk times.",
)
def run(logits, topk_weights, topk_ids):
    tokens, experts = logits.shape
    columns = triton.next_power_of_2(experts)
    rows = max(1, ELEMENTS // columns)
    _topk_softmax[(triton.cdiv(tokens, rows),)](
        logits, topk_weights, topk_ids, tokens, logits.stride(0),
        EXPERTS=experts, TOPK=topk_ids.shape[1], ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
