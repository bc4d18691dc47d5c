"""RMSNorm with one Triton program for as many rows as make a block."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements

#: Elements of a block, unless one row has more.
ELEMENTS = 4096


@triton.jit
def _rmsnorm(x, weight, out, batch, n, x_row, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    mask = (rows < batch) & (columns < n)
    values = tl.load(x + rows * x_row + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=1, keep_dims=True) / n + eps)
    gain = tl.load(weight + columns, mask=columns < n, other=0.0).to(tl.float32)
    result = values * scale * gain
    tl.store(out + rows * n + columns, result.to(out.dtype.element_ty), mask=mask)


@implements(
    "rmsnorm_d*_bfloat16",
    language="triton",
    target_hardware=["cuda"],
    description="Some whole rows per program.",
)
def run(x, weight, eps):
    dtype = x.dtype
    if x.device.type == "cpu":
        # Triton's interpreter cuts bfloat16 off where a GPU rounds.
        x, weight = x.float(), weight.float()
    batch, n = x.shape
    out = torch.empty((batch, n), dtype=x.dtype, device=x.device)
    columns = triton.next_power_of_2(n)
    rows = max(1, ELEMENTS // columns)
    _rmsnorm[(triton.cdiv(batch, rows),)](
        x, weight, out, batch, n, x.stride(0), eps,
        ROWS=rows, COLUMNS=columns, num_warps=8 if columns >= 4096 else 4,
    )  # fmt: skip
    return out.to(dtype)
