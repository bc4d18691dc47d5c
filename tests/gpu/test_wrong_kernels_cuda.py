"""Wrong kernels are caught on CUDA too, where sums are added in other orders and TF32 exists."""

import pytest

from tests.test_wrong_kernels import MUTANTS, assert_caught, facts, outcome


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_and_named(judge, name):
    definition, solution, expected = facts(MUTANTS[name])
    assert_caught(outcome(judge, MUTANTS[name], definition, solution), expected)
