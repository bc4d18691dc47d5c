"""Inputs of definitions that say nothing about them, as datasets have them, are valid."""

import pytest

from pytest_fib.data import Definition
from pytest_fib.workloads import plan
from tests.definitions.harness import filled, found
from tests.definitions.validators import validate
from tests.workloads.signatures import SIGNATURES

#: ``benchmarks/validity.py`` draws more.
COUNT = 12


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("budget", [1 << 16, 1 << 21])
def test_what_is_inferred_is_valid(name, budget):
    definition = Definition.model_validate(SIGNATURES[name])
    made = plan(definition)
    assert (made.problem, made.unmade) == (None, {})
    for workload in found(definition, COUNT, budget):
        validate(definition, workload.axes, filled(definition, workload))


@pytest.mark.parametrize("name", [n for n in SIGNATURES if SIGNATURES[n]["constraints"]])
def test_every_var_axis_is_drawn_far_from_its_least_value(name):
    """A paged prefill once had two sequences at the most, since its cache was sized first."""
    definition = Definition.model_validate(SIGNATURES[name])
    workloads = found(definition, 60, 1 << 25)
    smallest = plan(definition).completed({})
    for axis in definition.var_axes:
        assert max(workload.axes[axis] for workload in workloads) > 8 * smallest[axis], axis


def test_extra_keys_change_nothing():
    plain = SIGNATURES["gqa_paged_decode_ps64"]
    extra = {**plain, "captured_by": "an engine", "axes": {**plain["axes"]}, "version": 3}
    extra["inputs"] = {n: {**spec, "optional": True} for n, spec in plain["inputs"].items()}
    assert Definition.model_validate(extra) == Definition.model_validate(plain)
