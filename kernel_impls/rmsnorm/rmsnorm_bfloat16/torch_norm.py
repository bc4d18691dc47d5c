"""RMSNorm from the length of each row, written into the output it is given."""

import torch

from pytest_fib import implements


@implements(
    "rmsnorm_d*_bfloat16", calling="destination", description="x over its scaled Euclidean norm."
)
def run(x, weight, eps, out):
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    root_mean_square = torch.sqrt(length.square_().div_(x.shape[-1]).add_(eps))
    out.copy_(torch.div(x, root_mean_square).mul_(weight))
