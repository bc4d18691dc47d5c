"""The workloads of every definition that is shipped are valid, by what its kernels need."""

import pytest

from pytest_fib.workloads import example_workloads, plan, smallest_axes, workload_bytes
from tests.definitions.harness import filled, found, names, shipped
from tests.definitions.validators import VALIDATORS, validate

#: The others of its family differ in sizes only, and have a tenth of its 350 million weights.
LARGEST = names("moe_fp8_block_scale_*_h7168_i2048")
#: Nothing but its rules says that two numbers share a byte along k, which isn't the last dimension.
NOT_INFERRED = ["nvfp4_gemv"]


def assert_valid(definition, count, listed=()):
    """Assert that the listed and the drawn workloads are valid; large ones are drawn once."""
    assert definition.op_type in VALIDATORS
    least = workload_bytes(definition, smallest_axes(definition))
    count = count if least <= 64 << 20 else 1
    for workload in found(definition, count, max(1 << 20, 2 * least), listed=listed):
        validate(definition, workload.axes, filled(definition, workload))


#: Definitions of one file differ in sizes and dtypes only.
FIRST_OF_FILES = {file: name for name, (_, file) in reversed(shipped().items())}.values()


def of_files(every):
    """Parameters: those that are the first of their file are in the quick run."""
    return [
        pytest.param(name, marks=() if name in FIRST_OF_FILES else pytest.mark.thorough)
        for name in every
    ]


@pytest.mark.parametrize("name", of_files(name for name in names("*") if name not in LARGEST))
def test_examples_and_drawn_workloads_are_valid(name):
    definition, _ = shipped()[name]
    listed = example_workloads(definition)
    assert listed
    assert_valid(definition, 10, listed)


@pytest.mark.parametrize("name", [name for name in FIRST_OF_FILES if name not in NOT_INFERRED])
def test_they_are_valid_without_rules_for_them_too(name):
    definition, _ = shipped()[name]
    bare = definition.model_copy(update={"workloads": None})
    inferred = plan(bare)
    assert (inferred.problem, inferred.unmade) == (None, {})
    assert_valid(bare, 4)
