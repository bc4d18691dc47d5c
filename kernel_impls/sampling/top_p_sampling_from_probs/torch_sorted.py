"""Top-p sampling among tokens from the least probable on, by inverting their distribution."""

import torch

from pytest_fib import implements


@implements(
    "top_p_sampling_from_probs_*",
    description="Sorted; a uniform number is looked up in the cumulated probabilities.",
)
def run(probs, top_p):
    ascending, tokens = probs.sort(dim=-1)
    cumulated = ascending.cumsum(dim=-1)
    total = cumulated[:, -1:]
    # Without those that the more probable ones make up top_p without.
    dropped = (total - cumulated >= top_p[:, None]).sum(dim=-1, keepdim=True)
    last = ascending.gather(-1, dropped)  # of others that are as probable, all are kept
    below = torch.where(ascending < last, cumulated, 0.0).amax(dim=-1, keepdim=True)
    goal = below + torch.rand_like(below) * (total - below)
    # Where the goal was rounded up to the total, no token is beyond it.
    chosen = torch.searchsorted(cumulated, goal, right=True).clamp_max_(probs.shape[-1] - 1)
    return tokens.gather(-1, chosen).squeeze(-1)
