"""The gated activation."""

import pytest
import torch

from tests.definitions.harness import case, drawn, names

# Triton's interpreter says so of a sigmoid that is 0.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")
SILU = names("silu_and_mul_*")


def scale(each):
    """Every factor has been rounded a few times."""
    return 4 * each.expected["out"].double().abs()


@pytest.mark.parametrize("name", SILU)
def test_silu_and_mul_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=1 << 19):
        each.agree(scale(each))


@pytest.mark.parametrize("name", SILU)
@pytest.mark.parametrize("layout", ["contiguous", "row_strided", "offset"])
def test_silu_and_mul_agrees_however_rows_lie(name, layout):
    each = case(name, {"num_tokens": 3}, regime={"layout": layout})
    each.agree(scale(each))


@pytest.mark.parametrize("name", SILU)
def test_silu_and_mul_of_far_gates_is_nothing_or_all(name):
    d = int(name.split("_d")[1].split("_")[0])
    each = case(name, {"num_tokens": 2})
    each.inputs["x"].copy_(torch.tensor([[-1e30], [1e30]]))
    each.inputs["x"][:, d:] = 2.0
    for who, out in each.outputs():
        assert not out["out"][0].any(), who
        assert torch.equal(out["out"][1], each.inputs["x"][1, :d] * 2), who
