"""References that choose: experts with the largest logits, and samples of probabilities."""

import pytest
import torch

from pytest_fib.workloads import example_workloads
from tests.definitions.harness import case, filled, found, names, reference, shipped

ROUTING = names("topk_softmax_*")
SAMPLING = names("*_sampling_from_probs_*")
SMALL = names("*_sampling_from_probs_v1000")
DRAWN = 10
#: Relative rounding of a sum over a vocabulary, within which a token may be in or out.
ROUNDING = 1e-4


def drawn(name):
    """The inputs of examples and drawn workloads."""
    definition, _ = shipped()[name]
    listed = example_workloads(definition)
    for workload in found(definition, DRAWN, 4 << 20, listed=listed):
        yield filled(definition, workload)


def assert_routed(name, logits):
    """Assert that experts are distinct and have the largest logits, in order."""
    weights, ids = reference(name)(logits)
    topk = shipped()[name][0].const_axes["topk"]
    ids = ids.long()
    assert ids.shape == weights.shape == (len(logits), topk)
    assert all(len(row.unique()) == topk for row in ids)
    assert torch.equal(logits.gather(-1, ids), logits.sort(-1, descending=True).values[:, :topk])
    wide = logits.double()
    expected = (wide.gather(-1, ids) - wide.logsumexp(-1, keepdim=True)).exp()
    torch.testing.assert_close(weights.double(), expected, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("name", ROUTING)
@pytest.mark.thorough
def test_tokens_go_to_the_experts_with_the_largest_logits(name):
    for inputs in drawn(name):
        assert_routed(name, **inputs)


@pytest.mark.parametrize("name", ROUTING)
@pytest.mark.parametrize("values", ["ones", "zeros_and_ones", "one_hot", "large"])
@pytest.mark.thorough
def test_logits_may_tie_or_be_far_apart(name, values):
    assert_routed(name, **case(name, {"num_tokens": 129}, regime={"values": values}))


def may_be_sampled(inputs):
    """The tokens that each row may choose, at a boundary some more."""
    probs = inputs["probs"].double()
    parameter = list(inputs.values())[1].double()[:, None]
    if "min_p" in inputs:
        kept = probs >= parameter * probs.amax(-1, keepdim=True) * (1 - ROUNDING)
    else:
        ordered, order = probs.sort(dim=-1, descending=True)
        counted = torch.ones_like(ordered) if "top_k" in inputs else ordered
        first = torch.searchsorted(-ordered, -ordered)  # of those that are equally probable
        before = (counted.cumsum(-1) - counted).gather(-1, first)
        kept_in_order = before < parameter * (1 if "top_k" in inputs else 1 + ROUNDING)
        kept = torch.empty_like(kept_in_order).scatter_(-1, order, kept_in_order)
    return kept & (probs > 0)


def assert_sampled(name, inputs):
    """Assert that the distribution and the samples are of tokens that may be sampled."""
    tokens = may_be_sampled(inputs)
    assert not reference(name, "distribution")(*inputs.values())[~tokens].any()
    samples = reference(name)(*inputs.values()).long()
    assert samples.shape == tokens.shape[:1]
    assert tokens.gather(-1, samples[:, None]).all()


@pytest.mark.parametrize("name", SAMPLING)
def test_drawn_workloads_are_sampled_from_what_is_allowed(name):
    for inputs in drawn(name):
        assert_sampled(name, inputs)


def equal_rows(name, probs, parameter, count):
    rows = torch.zeros(count, 1000)
    rows[:, : len(probs)] = torch.tensor(probs)
    dtype = torch.int32 if name.startswith("top_k") else torch.float32
    given = {"probs": rows, name[:5]: torch.full((count,), parameter, dtype=dtype)}
    return case(name, {"batch_size": count}, **given)


BOUNDARIES = {
    "top_k": [1, 2, 1000],
    "top_p": [1e-6, 0.25, 0.5, 1.0],
    "min_p": [0.0, 0.5, 1.0],
}


@pytest.mark.parametrize(
    "probs", [[1.0], [0.5, 0.5], [0.25] * 4, [0.0, 1e-30, 1.0], [0.001] * 1000]
)
@pytest.mark.parametrize("name", SMALL)
def test_ties_zeros_and_boundaries_are_sampled_from_what_is_allowed(name, probs):
    for parameter in BOUNDARIES[name[:5]]:
        assert_sampled(name, equal_rows(name, probs, parameter, count=50))


PROBS = [0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02]
KEPT = {
    ("top_k", 1): 1,
    ("top_k", 2): 3,
    ("top_k", 4): 5,
    ("top_k", 900): 8,
    ("top_p", 0.25): 1,
    ("top_p", 0.6): 3,
    ("top_p", 0.96): 7,
    ("min_p", 0.0): 8,
    ("min_p", 0.3): 5,
    ("min_p", 1.0): 1,
}


@pytest.mark.parametrize(("kind", "parameter"), KEPT)
def test_the_distribution_is_that_of_the_tokens_which_are_kept(kind, parameter):
    """Items test that samples have the distribution which the definition states."""
    name, kept = f"{kind}_sampling_from_probs_v1000", KEPT[kind, parameter]
    inputs = equal_rows(name, PROBS, parameter, count=1)
    expected = torch.tensor(PROBS[:kept], dtype=torch.float64)
    stated = reference(name, "distribution")(*inputs.values())[0]
    torch.testing.assert_close(stated[:kept].double(), expected / expected.sum(), rtol=0, atol=1e-6)
    assert not stated[kept:].any()
