"""Gated delta rule step with one Triton program for some rows of a head's state."""

import triton
import triton.language as tl

from pytest_fib import implements

ROWS = 32


@triton.jit
def _step(
    q, k, v, state, A_log, a, dt_bias, b, output, new_state, scale, heads, key_heads,
    SIZE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = sequence * heads + head
    x = tl.load(a + row).to(tl.float32) + tl.load(dt_bias + head)
    softplus = tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    gate = tl.exp(-tl.exp(tl.load(A_log + head)) * softplus)
    beta = 1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32)))

    column = tl.arange(0, SIZE)
    value_row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    key_row = (sequence * key_heads + head // (heads // key_heads)) * SIZE + column
    key, query = tl.load(k + key_row).to(tl.float32), tl.load(q + key_row).to(tl.float32)
    value = tl.load(v + row * SIZE + value_row).to(tl.float32)
    at = row * (SIZE * SIZE) + value_row[:, None] * SIZE + column[None, :]
    new = tl.load(state + at) * gate
    update = beta * (value - tl.sum(new * key[None, :], axis=1))
    new += update[:, None] * key[None, :]
    tl.store(new_state + at, new)
    result = tl.sum(new * query[None, :], axis=1) * scale
    tl.store(output + row * SIZE + value_row, result.to(output.dtype.element_ty))


@implements(
    "gdn_decode_*_k_last",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="32 rows of a state per program.",
)
def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    assert all(t.is_contiguous() for t in (q, k, v, state, a, b))
    batch, _, heads, size = v.shape
    _step[(batch, heads, size // ROWS)](
        q, k, v, state, A_log, a, dt_bias, b, output, new_state, scale, heads, q.shape[2],
        SIZE=size, ROWS=ROWS, num_warps=4,
    )  # fmt: skip
