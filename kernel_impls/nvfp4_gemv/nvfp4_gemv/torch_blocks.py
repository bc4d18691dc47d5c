"""NVFP4 matrix-vector product: sums of 16 products each, then their scales."""

import torch

from pytest_fib import implements

BLOCK = 16
E2M1 = [sign * size for sign in (1, -1) for size in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)]


@implements("nvfp4_gemv", description="Exact sums of 16 products each, scaled after that.")
def run(a, b, sfa, sfb):
    # All numbers of a byte pair at once: entry p holds the two that p stands for.
    value = torch.tensor(E2M1, device=a.device)
    pairs = torch.stack((value.repeat(16), value.repeat_interleave(16)), dim=-1)
    c = torch.empty((a.shape[0], 1, a.shape[2]), dtype=torch.float16, device=a.device)
    for i in range(a.shape[2]):
        left, right = (t[:, :, i].view(torch.uint8).int() for t in (a, b))
        products = pairs[left].unflatten(1, (-1, BLOCK // 2)) * pairs[right].unflatten(
            1, (-1, BLOCK // 2)
        )
        sums = products.sum(dim=(2, 3))  # exact: 16 multiples of 1/4 of at most 36 each
        scaled = sums * sfb[:, :, i].float()
        c[:, 0, i] = torch.linalg.vecdot(scaled, sfa[:, :, i].float()).half()
    return c
