"""Selective state update with one Triton program for each head of a sequence."""

import triton
import triton.language as tl

from pytest_fib import implements


@triton.jit
def _update(
    state, x, dt, A, B, C, D, dt_bias, indices, output, new_state, heads,
    dt_batch, dt_head, dt_dim, A_head, A_dim, A_state, D_head, D_dim, bias_head, bias_dim,
    SHARE: tl.constexpr, DIM: tl.constexpr, DSTATE: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(indices + sequence).to(tl.int64)
    d, n = tl.arange(0, DIM), tl.arange(0, DSTATE)
    row, tile = sequence * heads + head, d[:, None] * DSTATE + n[None, :]

    # dt, A, D and dt_bias may have strides of 0.
    step = tl.load(dt + sequence * dt_batch + head * dt_head + d * dt_dim).to(tl.float32)
    step += tl.load(dt_bias + head * bias_head + d * bias_dim)
    step = tl.maximum(step, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(step)))  # softplus
    decay = tl.load(A + head * A_head + d[:, None] * A_dim + n[None, :] * A_state)
    decay = tl.exp(decay * step[:, None])

    wide = tl.load(x + row * DIM + d).to(tl.float32)
    shared = (sequence * (heads // SHARE) + head // SHARE) * DSTATE + n
    inward, outward = tl.load(B + shared).to(tl.float32), tl.load(C + shared).to(tl.float32)
    old = tl.load(state + (slot * heads + head) * (DIM * DSTATE) + tile).to(tl.float32)
    new = decay * old + (step * wide)[:, None] * inward[None, :]
    tl.store(new_state + row * (DIM * DSTATE) + tile, new.to(new_state.dtype.element_ty))
    result = tl.sum(new * outward[None, :], axis=1)
    result += tl.load(D + head * D_head + d * D_dim) * wide
    tl.store(output + row * DIM + d, result.to(output.dtype.element_ty))


@implements(
    "mamba_ssu_decode_h*_g[0-9]*",
    language="triton",
    target_hardware=["cuda"],
    calling="destination",
    description="One program per head of a sequence.",
)
def run(state, x, dt, A, B, C, D, dt_bias, state_batch_indices, output, new_state):
    assert all(t.is_contiguous() for t in (state, x, B, C))
    batch, heads, dim = x.shape
    _update[(batch, heads)](
        state, x, dt, A, B, C, D, dt_bias, state_batch_indices, output, new_state, heads,
        *dt.stride(), *A.stride(), *D.stride(), *dt_bias.stride(),
        SHARE=heads // B.shape[1], DIM=dim, DSTATE=B.shape[2], num_warps=4,
    )  # fmt: skip
