"""The least that a workload moves."""

import pytest
import torch

from pytest_fib.data import Definition
from pytest_fib.timing import least_traffic


@pytest.fixture
def rows():
    """``y = table[index]``, in float16."""
    return Definition.model_validate(
        {
            "name": "rows",
            "op_type": "gather",
            "axes": {"n": "var", "k": "var", "d": 6},
            "inputs": {
                "table": {"shape": ["n", "d"], "dtype": "float16"},
                "index": {"shape": ["k"], "dtype": "int32"},
                "scale": {"shape": None, "dtype": "float32"},
            },
            "outputs": {"y": {"shape": ["k", "d"], "dtype": "float16"}},
            "reference": "def run(table, index, scale): ...",
            "workloads": {"inputs": {"index": {"kind": "indices", "below": "n"}}},
        }
    )


INPUTS = {
    "table": torch.empty(8, 6, dtype=torch.float16),
    "index": torch.tensor([1, 5, 2], dtype=torch.int32),
}
OUTPUTS = {"y": torch.empty(3, 6, dtype=torch.float16)}
WORKLOAD = ({"n": 8, "k": 3}, INPUTS, OUTPUTS)


def test_inputs_are_read_as_far_as_they_are_used_and_outputs_written_whole(rows):
    read, written = 3 * 12 + 3 * 4, 3 * 12
    assert least_traffic(rows, *WORKLOAD) == read + written == 84


def test_what_the_reference_did_without_is_not_needed(rows):
    read_bytes = {"table": 24, "index": 1000}
    assert least_traffic(rows, *WORKLOAD, read_bytes) == 24 + 12 + 36


def test_what_nobody_saw_being_read_counts_as_the_rules_have_it(rows):
    assert least_traffic(rows, *WORKLOAD, {}) == 36 + 12 + 36
