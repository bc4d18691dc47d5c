"""fp8 matrix product a block of columns after the other, scaled after each product."""

import torch

from pytest_fib import implements

BLOCK = 128


@implements("fp8_block_scale_gemm_*", description="A product for each 128 of k, then its scales.")
def run(a, b, a_scale, b_scale):
    rows = torch.arange(len(b), device=b.device) // BLOCK
    c = torch.zeros((len(a), len(b)), dtype=torch.float32, device=a.device)
    for block in range(a_scale.shape[1]):
        columns = slice(block * BLOCK, (block + 1) * BLOCK)
        partial = a[:, columns].float() @ b[:, columns].float().T
        c += partial * (a_scale[:, block, None] * b_scale[rows, block])
    return c.to(torch.bfloat16)
