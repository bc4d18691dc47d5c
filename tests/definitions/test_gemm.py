"""Matrix products, plain and grouped."""

import pytest
import torch

from tests.definitions.harness import case, drawn, names

SMALL = names("gemm_n128_k72_*")
LARGE = [name for name in names("gemm_*") if name not in SMALL]
GROUPED = names("grouped_gemm_n128_k72_*")
GROUPED_LARGE = names("grouped_gemm_n4096_*")


def scale(inputs):
    """The sum of the magnitudes that a sum of products adds."""
    return inputs["A"].double().abs() @ inputs["B"].double().abs().T


def grouped_scale(inputs):
    """The same, for each group."""
    A, B = inputs["A"].double().abs(), inputs["B"].double().abs()
    parts = A.split(inputs["m_indptr"].diff().tolist())
    return torch.cat([a @ b.T for a, b in zip(parts, B, strict=True)])


@pytest.mark.parametrize("name", SMALL)
def test_gemm_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=1 << 20):
        each.agree(scale(each.inputs))


# Their weights alone fill the budget, and the interpreter takes seconds for one token.
@pytest.mark.parametrize("name", LARGE)
def test_gemm_of_large_weights_agrees(name):
    for each in drawn(name, count=1):
        each.agree(scale(each.inputs))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("m", [1, 16, 17, 64, 65, 513])
def test_gemm_agrees_where_tiles_end(name, m):
    each = case(name, {"M": m}, regime={"layout": "row_strided"})
    each.agree(scale(each.inputs))


@pytest.mark.parametrize("name", SMALL)
def test_gemm_of_whole_numbers_is_exact(name):
    each = case(name, {"M": 40}, regime={"values": "zeros_and_ones"})
    for who, out in each.outputs():
        assert torch.equal(out["C"], each.expected["C"]), who


@pytest.mark.parametrize("name", GROUPED)
def test_grouped_gemm_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=1 << 19):
        each.agree(grouped_scale(each.inputs))


@pytest.mark.parametrize("name", GROUPED_LARGE)
def test_grouped_gemm_of_large_weights_agrees(name):
    for each in drawn(name, count=1):
        each.agree(grouped_scale(each.inputs))


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize(
    "lengths",
    [
        [0, 1],
        [0, 0, 5, 0],
        [1] * 9,
        [16, 0, 17, 15],
        [64, 65, 63],
        [200, 0, 0, 1],
        [0, 33, 0, 32, 31],
    ],
)
def test_grouped_gemm_agrees_however_rows_are_split(name, lengths):
    indptr = torch.tensor([0, *lengths]).cumsum(0).int()
    axes = {"num_groups": len(lengths), "total_m": sum(lengths)}
    each = case(name, axes, m_indptr=indptr)
    each.agree(grouped_scale(each.inputs))


@pytest.mark.parametrize("name", GROUPED)
def test_grouped_gemm_of_nothing_is_nothing(name):
    indptr = torch.zeros(4, dtype=torch.int32)
    each = case(name, {"num_groups": 3, "total_m": 0}, m_indptr=indptr)
    for who, out in each.outputs():
        assert out["C"].shape == (0, 128), who
