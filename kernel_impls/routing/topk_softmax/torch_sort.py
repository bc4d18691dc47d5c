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
    topk_ids.copy_(order)
    topk_weights.copy_(logits.float().softmax(dim=-1).gather(-1, order))
