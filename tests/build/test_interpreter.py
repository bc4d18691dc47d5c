"""Triton's interpreter rounds as hardware does, once it is mended."""

import pytest
import torch

from pytest_fib.build import Program, load

SOURCE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def convert(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n).to(y.dtype.element_ty), mask=at < n)


def run(x, y):
    convert[(triton.cdiv(len(x), 4096),)](x, y, len(x), BLOCK=4096)
"""

SPECIALS = [0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3.4e38, -3.4e38]


@pytest.fixture(scope="module", params=["triton", "python"])
def converted(request):
    """What a Triton kernel that converts a vector to another dtype gives, in this process."""
    sources = (("convert.py", SOURCE),)
    program = Program("convert", request.param, "convert.py", "run", "destination", ("y",), sources)

    def convert(x, dtype):
        y = torch.empty(len(x), dtype=dtype)
        run(x, y)
        return y

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        run = load(program)
        yield convert


def test_float32_is_rounded_to_bfloat16_as_torch_does(converted):
    generator = torch.Generator().manual_seed(0)
    values = torch.cat((torch.randn(10_000, generator=generator), torch.tensor(SPECIALS)))
    ours = converted(values, torch.bfloat16)
    theirs = values.bfloat16()
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours[~ours.isnan()], theirs[~theirs.isnan()])


def test_ties_go_to_the_even_neighbour(converted):
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8])
    assert converted(ties, torch.bfloat16).tolist() == [1.0, 1 + 2**-6]


@pytest.mark.parametrize("value", [*SPECIALS, 0.1])
def test_every_bfloat16_is_widened_exactly(converted, value):
    short = torch.tensor([value]).bfloat16()
    wide = converted(short, torch.float32)
    assert wide.item() == short.item() or value != value
