"""Samplers of a large vocabulary, drawn from on the device."""

import pytest

from tests.engine.test_sample_plan import MUTANTS, request_for, sampler, sampling

VOCABULARY = 128_256


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_sampler_is_found_by_its_draws(judge, name):
    limit, change, more, pattern = MUTANTS[name]
    definition = sampling(limit, VOCABULARY)
    evaluation = judge.evaluate(request_for(definition, sampler(definition, change, more)))
    assert evaluation.status == ("INCORRECT_NUMERICAL" if pattern else "PASSED"), evaluation.log
    assert (evaluation.diagnosis and evaluation.diagnosis.pattern) == pattern, evaluation.log
    extra = evaluation.correctness.extra or {}
    assert extra.get("draws", 0) <= 200_000
