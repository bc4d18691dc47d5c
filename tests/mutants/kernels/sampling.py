"""Sampling, from tokens that may not be chosen."""

import torch
from _wrong import caught

from pytest_fib import implements


def drawn(probs):
    return torch.multinomial(probs, 1).squeeze(-1).long()


@implements("top_k_sampling_from_probs_v1000")
@caught("outside the support")
def top_k_ignored(probs, top_k):
    return drawn(probs)


@implements("top_k_sampling_from_probs_v1000")
@caught("outside the support")
def one_token_off(probs, top_k):
    return drawn(probs.where(probs >= probs.amax(-1, keepdim=True), 0.0)) + 1


@implements("top_p_sampling_from_probs_v1000")
@caught("outside the support")
def top_p_ignored(probs, top_p):
    return drawn(probs)


@implements("top_p_sampling_from_probs_v1000")
@caught("outside the support")
def least_probable(probs, top_p):
    return probs.argmin(-1).long()


@implements("min_p_sampling_from_probs_v1000")
@caught("outside the support")
def min_p_ignored(probs, min_p):
    return drawn(probs)


@implements("min_p_sampling_from_probs_v1000")
@caught("outside the support")
def uniform_choice(probs, min_p):
    return torch.randint(0, probs.shape[1], (len(probs),), device=probs.device).long()


@implements("min_p_sampling_from_probs_v1000")
@caught("outside the support")
def always_the_first(probs, min_p):
    return torch.zeros(len(probs), dtype=torch.int64, device=probs.device)
