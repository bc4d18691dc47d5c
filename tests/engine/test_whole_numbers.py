"""Products of zeros and ones are whole numbers: a linear output then has no rounding to allow."""

import pytest
import torch

from pytest_fib.engine import FunctionChecker
from pytest_fib.workloads import bits, make_workload, plan
from tests.definitions.harness import names, shipped

GEMMS = [*names("gemm_n128_k72_*"), "gemm_n256_k7168_bfloat16"]
GROUPED = names("grouped_gemm_n128_k72_*")
SIZES = {
    **{name: {"M": 5} for name in GEMMS},
    **{name: {"num_groups": 3, "total_m": 20} for name in GROUPED},
}


def right(A, B, m_indptr=None):
    if m_indptr is None:
        return (A.double() @ B.double().T).to(A.dtype)
    parts = zip(A.split(m_indptr.diff().tolist()), B, strict=True)
    return torch.cat([right(a, b) for a, b in parts])


def one_ulp_off(*inputs):
    out = right(*inputs)
    bits(out).view(-1)[int(out.argmax())] += 1
    return out


def split_k_in_half_precision(A, B):
    total = torch.zeros(len(A), len(B), dtype=A.dtype)
    for a, b in zip(A.split(512, dim=1), B.split(512, dim=1), strict=True):
        total += right(a, b)
    return total


def evaluation(name, function, values="zeros_and_ones", **axes):
    definition, _ = shipped()[name]
    axes = plan(definition).completed(axes or SIZES[name])
    check = FunctionChecker(definition, function, "cpu")
    return check(make_workload(definition, axes, regime={"values": values}))


@pytest.mark.parametrize("name", SIZES)
def test_one_ulp_of_one_element_is_seen(name):
    assert evaluation(name, right).status == "PASSED"
    failed = evaluation(name, one_ulp_off)
    assert failed.status == "INCORRECT_NUMERICAL"
    assert failed.correctness.extra["elements_wrong"] == {"C": 1}


@pytest.mark.parametrize("name", GEMMS)
def test_one_ulp_is_rounding_where_numbers_are_not_whole(name):
    assert evaluation(name, one_ulp_off, "normal").status == "PASSED"


def test_sums_of_parts_in_half_precision_are_exact():
    """Honest kernels add split products in the dtype of the result: numbers must stay small."""
    name = "gemm_n256_k7168_bfloat16"
    assert evaluation(name, split_k_in_half_precision, M=64).status == "PASSED"
