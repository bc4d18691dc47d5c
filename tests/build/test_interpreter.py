"""Triton's interpreter rounds as hardware does, once it is mended."""

import numpy as np
import pytest
import torch

from pytest_fib.build._interpreter import narrowed, widened

SPECIALS = [0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3.4e38, -3.4e38]


def test_float32_is_rounded_to_bfloat16_as_torch_does():
    generator = torch.Generator().manual_seed(0)
    values = torch.cat((torch.randn(10_000, generator=generator), torch.tensor(SPECIALS)))
    ours = torch.from_numpy(narrowed(values.numpy()).view(np.int16)).view(torch.bfloat16)
    theirs = values.bfloat16()
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours[~ours.isnan()], theirs[~theirs.isnan()])


def test_ties_go_to_the_even_neighbour():
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8])
    ours = torch.from_numpy(narrowed(ties.numpy()).view(np.int16)).view(torch.bfloat16)
    assert ours.tolist() == [1.0, 1 + 2**-6]


@pytest.mark.parametrize("value", [*SPECIALS, 0.1])
def test_every_bfloat16_is_widened_exactly(value):
    short = torch.tensor([value]).bfloat16()
    wide = torch.from_numpy(widened(short.view(torch.int16).numpy()).view(np.float32))
    assert wide.item() == short.item() or value != value
