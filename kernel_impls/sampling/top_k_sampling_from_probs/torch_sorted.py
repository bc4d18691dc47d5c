"""Top-k sampling among tokens in order of their probabilities, by inverting their distribution."""

import torch

from pytest_fib import implements


@implements(
    "top_k_sampling_from_probs_*",
    description="Sorted; a uniform number is looked up in the cumulated probabilities.",
)
def run(probs, top_k):
    descending, tokens = probs.sort(dim=-1, descending=True)
    last = descending.gather(-1, top_k[:, None].long() - 1)
    kept = (descending >= last) & (descending > 0)
    cumulated = torch.where(kept, descending, 0.0).cumsum(dim=-1)
    goal = torch.rand_like(last) * cumulated[:, -1:]
    chosen = torch.searchsorted(cumulated, goal, right=True)
    # Where the goal was rounded up to the total, no token is beyond it.
    chosen = torch.minimum(chosen, kept.sum(dim=-1, keepdim=True) - 1)
    return tokens.gather(-1, chosen).squeeze(-1)
