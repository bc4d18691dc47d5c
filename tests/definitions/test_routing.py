"""Softmax routing to the experts with the largest logits."""

import pytest
import torch

from tests.definitions.harness import agree, case, drawn, names

ROUTING = names("topk_softmax_*")


def routes(each):
    """Assert that experts are distinct, with the largest logits in order; ties in any order."""
    logits, (weights, ids) = each.inputs["logits"], each.expected.values()
    for who, out in each.outputs():
        found = out["topk_ids"].long()
        assert found.shape == ids.shape, who
        assert ((found >= 0) & (found < logits.shape[-1])).all(), who
        assert all(row.unique().numel() == row.numel() for row in found), who
        assert torch.equal(logits.gather(-1, found), logits.gather(-1, ids.long())), who
        # A logit of -100 rounds by 100 roundoffs, but its weight is nothing beside the others.
        agree(out["topk_weights"], weights, torch.tensor(1.0), who)


@pytest.mark.parametrize("name", ROUTING)
def test_routing_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=1 << 18):
        routes(each)


@pytest.mark.parametrize("name", ROUTING)
@pytest.mark.parametrize("values", ["ones", "zeros", "zeros_and_ones", "one_hot", "large"])
@pytest.mark.parametrize("tokens", [1, 129])
def test_routing_agrees_where_logits_tie_or_are_far_apart(name, values, tokens):
    routes(case(name, {"num_tokens": tokens}, regime={"values": values, "layout": "row_strided"}))


def test_all_experts_may_be_chosen():
    each = case("topk_softmax_e8_k8", {"num_tokens": 5})
    for who, out in each.outputs():
        assert torch.equal(out["topk_ids"].sort().values, torch.arange(8).expand(5, 8).int()), who
        assert torch.allclose(out["topk_weights"].sum(-1), torch.ones(5)), who
