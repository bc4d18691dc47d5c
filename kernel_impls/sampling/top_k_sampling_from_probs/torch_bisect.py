"""Top-k sampling from a threshold that bisection finds, without a sort."""

import torch

from pytest_fib import implements


@implements(
    "top_k_sampling_from_probs_*",
    description="Bisects the bits of the k-th probability; then a race of exponential clocks.",
)
def run(probs, top_k):
    # Floating numbers that are not negative are in the order of their bits.
    order = (probs + 0.0).view(torch.int32)
    low = torch.zeros_like(order[:, :1])
    high = order.amax(dim=-1, keepdim=True)
    for _ in range(31):
        middle = low + (high - low) // 2
        enough = torch.count_nonzero(order > middle, dim=-1)[:, None] < top_k[:, None]
        high = torch.where(enough, middle, high)
        low = torch.where(enough, low, torch.minimum(middle + 1, high))
    kept = torch.where(order >= high, probs, 0.0)
    clocks = torch.empty_like(kept).exponential_().clamp_min_(torch.finfo(kept.dtype).tiny)
    return (kept / clocks).argmax(dim=-1)
