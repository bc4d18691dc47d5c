"""Routing by sorting every row and cutting it off."""

import torch

from pytest_fib import implements


@implements(
    "topk_softmax_*",
    calling="destination",
    description="A stable sort; the first expert wins among equal ones.",
)
def run(logits, topk_weights, topk_ids):
    order = logits.argsort(dim=-1, descending=True, stable=True)[:, : topk_ids.shape[-1]]
    largest = logits.gather(-1, order[:, :1])
    total = torch.exp(logits - largest).sum(dim=-1, keepdim=True)
    topk_ids.copy_(order)
    topk_weights.copy_(torch.exp(logits.gather(-1, order) - largest) / total)
