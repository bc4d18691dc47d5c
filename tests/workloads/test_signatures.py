"""Inputs of definitions that say nothing about them, as datasets have them, are valid."""

from functools import cache

import pytest

from pytest_fib.data import Definition
from pytest_fib.workloads import plan
from tests.definitions.harness import filled, found
from tests.definitions.validators import VALIDATORS, validate
from tests.workloads.signatures import SIGNATURES

#: ``benchmarks/validity.py`` draws more.
COUNT = 12
#: Inputs that count sequences.
OFFSETS = ("kv_indptr", "cu_seqlens")


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("budget", [1 << 16, 1 << 21])
def test_what_is_inferred_is_valid(name, budget):
    definition = Definition.model_validate(SIGNATURES[name])
    made = plan(definition)
    assert (made.problem, made.unmade) == (None, {})
    assert definition.op_type in VALIDATORS
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


ATTENTION = [n for n in SIGNATURES if n.startswith(("gqa", "mla", "gdn_prefill"))]


@cache
def drawn_of_a_large_budget(name):
    """By a few searches: not each one gets to the largest of what depends on other sizes."""
    definition = Definition.model_validate(SIGNATURES[name])
    drawn = (found(definition, 25, 1 << 30, seed=seed) for seed in range(3))
    return [workload.axes for workloads in drawn for workload in workloads]


@pytest.mark.parametrize("name", ATTENTION)
def test_references_can_go_through_the_sequences_that_are_drawn(name):
    """But for one workload of a search, where more than 65536 sequences fit."""
    definition = Definition.model_validate(SIGNATURES[name])
    (lengths,) = {definition.inputs[n].shape for n in definition.inputs if n in OFFSETS} or {()}
    drawn = [axes[lengths[0]] for axes in drawn_of_a_large_budget(name)]
    many = [n for n in drawn if n > 4097]
    assert 4096 <= max(n for n in drawn if n not in many) <= 4097
    assert len(many) <= 3
    assert all(n > 65536 for n in many)


def test_references_can_hold_the_scores_of_what_is_drawn():
    drawn = drawn_of_a_large_budget("gqa_paged_prefill_ps64")
    scores = [axes["total_q"] * axes["num_kv_indices"] * 64 * 4 for axes in drawn]
    assert 1 << 20 < 8 * max(scores) <= 1 << 30


def test_a_definition_that_bounds_its_axes_leaves_room_for_scores_too():
    data = SIGNATURES["gqa_ragged_prefill"]
    totals = {"total_q": {"max": 60000}, "total_kv": {"max": 60000}}
    bounded = Definition.model_validate({**data, "workloads": {"axes": totals}})
    drawn = [workload.axes for workload in found(bounded, 60, 1 << 30)]
    assert max(axes["len_indptr"] for axes in drawn) > 60000
    assert max(axes["total_q"] * axes["total_kv"] for axes in drawn) * 4 * 8 <= 1 << 30


def test_extra_keys_change_nothing():
    plain = SIGNATURES["gqa_paged_decode_ps64"]
    extra = {**plain, "captured_by": "an engine", "axes": {**plain["axes"]}, "version": 3}
    extra["inputs"] = {n: {**spec, "optional": True} for n, spec in plain["inputs"].items()}
    assert Definition.model_validate(extra) == Definition.model_validate(plain)
