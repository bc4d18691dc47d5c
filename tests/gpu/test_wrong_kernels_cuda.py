"""Wrong kernels are caught on CUDA too, where sums are added in other orders and TF32 exists."""

import pytest

from tests.test_wrong_kernels import MUTANTS, facts, outcome


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_and_told_by_its_name(judge, name):
    definition, solution, expected = facts(MUTANTS[name])
    evaluation = outcome(judge, MUTANTS[name], definition, solution)
    assert evaluation.status.value == expected.status, evaluation.log
    if expected.patterns:
        assert evaluation.correctness.extra["pattern"] in expected.patterns, evaluation.log
