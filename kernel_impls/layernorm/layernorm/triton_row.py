"""Layer normalisation with one Triton program for each row."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements


@triton.jit
def _layernorm(x, weight, bias, out, n, x_row, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    values = tl.load(x + row * x_row + columns, mask=mask, other=0.0).to(tl.float32)
    # The mean of squares less the square of the mean would lose what little they differ by.
    centred = tl.where(mask, values - tl.sum(values, axis=0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / n + eps)
    gain = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=mask, other=0.0).to(tl.float32)
    result = centred * scale * gain + shift
    tl.store(out + row * n + columns, result.to(out.dtype.element_ty), mask=mask)


@implements(
    "layernorm_*",
    language="triton",
    target_hardware=["cuda"],
    description="One row per program; it is read once, and its variance taken about its mean.",
)
def run(x, weight, bias, eps):
    dtype = x.dtype
    if dtype == torch.bfloat16 and x.device.type == "cpu":
        # Triton's interpreter cuts bfloat16 off where a GPU rounds.
        x, weight, bias = x.float(), weight.float(), bias.float()
    batch, n = x.shape
    out = torch.empty((batch, n), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(n)
    _layernorm[(batch,)](
        x, weight, bias, out, n, x.stride(0), eps, BLOCK=block, num_warps=8 if block > 1024 else 4
    )
    return out.to(dtype)
