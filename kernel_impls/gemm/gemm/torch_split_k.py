"""Matrix product as a sum of products over chunks of K."""

import torch

from pytest_fib import implements

CHUNK = 1024


@implements("gemm_*", description="A float32 product for each chunk of K, summed in place.")
def run(A, B):
    total = torch.zeros((A.shape[0], B.shape[0]), dtype=torch.float32, device=A.device)
    for a, b in zip(A.split(CHUNK, dim=1), B.split(CHUNK, dim=1), strict=True):
        total.addmm_(a.float(), b.float().t())
    return total.to(A.dtype)
