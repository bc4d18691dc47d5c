"""The least that a workload moves."""

import pytest
import torch

from pytest_fib.data import Definition
from pytest_fib.timing import Traffic, traffic


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


TENSORS = {
    "table": torch.empty(8, 6, dtype=torch.float16),
    "index": torch.tensor([1, 5, 2], dtype=torch.int32),
}


def test_inputs_are_read_as_far_as_they_are_used_and_outputs_written_whole(rows):
    moved = traffic(rows, {"n": 8, "k": 3}, TENSORS)
    assert moved == Traffic(read=3 * 12 + 3 * 4, written=3 * 12)
    assert moved.least_bytes == 84


def test_what_the_reference_did_without_is_not_needed(rows):
    seen = {"table": 24, "index": 1000}
    assert traffic(rows, {"n": 8, "k": 3}, TENSORS, seen).read == 24 + 12


def test_what_nobody_saw_being_read_counts_as_the_rules_have_it(rows):
    assert traffic(rows, {"n": 8, "k": 3}, TENSORS, {}).read == 36 + 12
