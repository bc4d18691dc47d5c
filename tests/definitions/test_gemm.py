"""Matrix products, plain and grouped."""

import pytest
import torch

from pytest_fib.engine._evidence import Evidence
from pytest_fib.workloads import bits
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


def product(inputs):
    """In float64; zeros and ones make it a whole number."""
    if "m_indptr" not in inputs:
        return inputs["A"].double() @ inputs["B"].double().T
    parts = inputs["A"].double().split(inputs["m_indptr"].diff().tolist())
    return torch.cat([a @ b.double().T for a, b in zip(parts, inputs["B"], strict=True)])


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        *((name, {"M": 5}) for name in (*SMALL, "gemm_n256_k7168_bfloat16")),
        *((name, {"num_groups": 3, "len_indptr": 4, "total_m": 20}) for name in GROUPED),
    ],
)
def test_one_ulp_is_seen_where_a_product_is_of_whole_numbers(name, axes):
    each = case(name, axes, regime={"values": "zeros_and_ones"})
    right = product(each.inputs)
    assert float(right.max()) <= 256  # bfloat16 has all of these
    evidence = Evidence(each.definition, each.workload, each.inputs, {"C": right})
    out = right.to(each.expected["C"].dtype)
    assert evidence.verdict({"C": out}).passed
    for who, found in each.outputs():
        assert evidence.verdict(found).passed, who
    at = int(out.argmax())
    bits(out).view(-1)[at] += 1
    verdict = evidence.verdict({"C": out})
    assert not verdict.passed
    assert verdict.correctness.extra["elements_wrong"] == {"C": 1}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_partial_sums_in_half_precision_are_exact_of_whole_numbers(dtype):
    """As they are where split-k products are added in the dtype of the result."""
    each = case("gemm_n256_k7168_bfloat16", {"M": 64}, regime={"values": "zeros_and_ones"})
    A, B = each.inputs["A"].double(), each.inputs["B"].double()
    total = torch.zeros(64, 256, dtype=dtype)
    for a, b in zip(A.split(512, dim=1), B.split(512, dim=1), strict=True):
        total += (a @ b.T).to(dtype)
    assert torch.equal(total.double(), A @ B.T)


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
