"""Min-p sampling by the largest of perturbed logarithms (the Gumbel trick)."""

import torch

from pytest_fib import implements


@implements("min_p_sampling_from_probs_*", description="Gumbel noise on the logarithms kept.")
def run(probs, min_p):
    floor = min_p[:, None] * probs.amax(dim=-1, keepdim=True)
    logarithms = probs.log().masked_fill_(probs < floor, -float("inf"))
    noise = torch.empty_like(logarithms).exponential_()
    noise = -noise.clamp_min_(torch.finfo(noise.dtype).tiny).log_()
    return (logarithms + noise).argmax(dim=-1)
