"""Sampling from probabilities: which tokens may be chosen, and how often they are."""

import pytest
import torch

from tests.definitions.harness import case, drawn, names, reference

SAMPLING = names("*_sampling_from_probs_*")
SMALL = names("*_sampling_from_probs_v1000")
#: Relative rounding of a sum over a vocabulary, within which a token may be in or out.
ROUNDING = 1e-4


def allowed(each):
    """The tokens that each row may choose, at a boundary some more."""
    probs = each.inputs["probs"].double()
    parameter = list(each.inputs.values())[1].double()[:, None]
    if "min_p" in each.inputs:
        kept = probs >= parameter * probs.amax(-1, keepdim=True) * (1 - ROUNDING)
    else:
        ordered, order = probs.sort(dim=-1, descending=True)
        what = torch.ones_like(ordered) if "top_k" in each.inputs else ordered
        first = torch.searchsorted(-ordered, -ordered)  # of those that are equally probable
        before = (what.cumsum(-1) - what).gather(-1, first)
        kept_in_order = before < parameter * (1 if "top_k" in each.inputs else 1 + ROUNDING)
        kept = torch.empty_like(kept_in_order).scatter_(-1, order, kept_in_order)
    return kept & (probs > 0)


def check(each):
    """Assert that all sample what is allowed."""
    tokens = allowed(each)
    for who, out in [("the reference", each.expected), *each.outputs()]:
        samples = out["samples"].long()
        assert samples.shape == tokens.shape[:1], who
        assert ((samples >= 0) & (samples < tokens.shape[1])).all(), who
        assert tokens.gather(-1, samples[:, None]).all(), who


@pytest.mark.parametrize("name", SAMPLING)
def test_drawn_workloads_are_sampled_from_what_is_allowed(name):
    for each in drawn(name):
        check(each)


def row(name, probs, parameter, count=1):
    """A case of equal rows."""
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
        check(row(name, probs, parameter, count=50))


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


@pytest.mark.parametrize("name", SMALL)
def test_samples_are_as_frequent_as_their_probabilities(name):
    torch.manual_seed(0)
    count = 4000
    for (what, parameter), kept in KEPT.items():
        if what != name[:5]:
            continue
        each = row(name, PROBS, parameter, count)
        wanted = torch.tensor(PROBS[:kept], dtype=torch.float64)
        wanted /= wanted.sum()
        stated = reference(name, "distribution")(*each.inputs.values())[0]
        assert torch.allclose(stated[:kept].double(), wanted, atol=1e-6)
        assert not stated[kept:].any()
        for who, out in each.outputs():
            found = torch.bincount(out["samples"].long(), minlength=kept)
            assert len(found) == kept, who
            # Twice the log likelihood ratio is chi-square distributed; 40 is beyond one in 10**5.
            terms = found * (found.clamp_min(1) / (count * wanted)).log()
            assert 2 * terms.sum() < 40, f"{who}: {found} for {count * wanted}"
