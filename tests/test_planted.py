"""The search finds bugs that show on some workloads only, and ends at the smallest of these."""

import pytest

from pytest_fib.search import search
from pytest_fib.workloads import (
    InfeasibleError,
    in_domain,
    make_workload,
    plan,
    regime_choices,
    without_plainest,
    workload_bytes,
)
from tests.planted.bugs import BUGS
from tests.planted.planting import definition_of
from tests.sampling import one_in

# As the interpreter of Triton has it: small enough for a test. Larger bugs are for the benchmark.
BUDGET = 4 << 20
SMALL = [
    bug
    for bug in BUGS
    if workload_bytes(definition_of(bug.definition), next(bug.needed()).axes) <= BUDGET // 4
]
BY_NAME = {bug.name: bug for bug in BUGS}


@pytest.mark.parametrize("name", one_in(6, [bug.name for bug in SMALL]))
def test_a_planted_bug_is_found_and_shrunk(name):
    bug = BY_NAME[name]
    found = search(
        definition_of(bug.definition),
        bug.check,
        failed=bool,
        closeness=lambda failed: 0.0,
        examples=50,
        max_bytes=BUDGET,
    )
    assert found.origin == "shrunk"
    assert bug.is_small(found.workload), found.workload
    assert bug.is_plain(found.workload), found.workload


@pytest.mark.parametrize("name", one_in(4, BY_NAME))
def test_a_planted_bug_shows_on_the_workload_that_it_is_said_to_need(name):
    bug = BY_NAME[name]
    failing = next(workload for workload in bug.needed() if bug.check(workload))
    assert bug.is_small(failing)
    assert bug.is_plain(failing)


def one_lower(definition, axes):
    """The axes with each of them one lower, where workloads of these can be made."""
    for axis, size in axes.items():
        try:
            found = plan(definition).completed({**axes, axis: size - 1})
        except InfeasibleError:
            continue
        if in_domain(definition, found):
            yield found


def has_lower_axes(bug):
    """Whether any axis that a bug needs may be lower: many need a single row, or a value."""
    return next(one_lower(definition_of(bug.definition), bug.axes), None) is not None


@pytest.mark.parametrize("bug", list(filter(has_lower_axes, BUGS)), ids=lambda bug: bug.name)
def test_a_planted_bug_needs_the_axes_that_it_is_said_to_need(bug):
    """With any of them one lower, and the others as they are, no seed and no regime triggers it."""
    definition = definition_of(bug.definition)
    lengths = regime_choices(definition).get("lengths", ["random"])
    for axes in one_lower(definition, bug.axes):
        for seed in range(20):
            regime = without_plainest({**bug.regime, "lengths": lengths[seed % len(lengths)]})
            workload = make_workload(definition, axes, seed, regime)
            assert not bug.triggered(workload), workload


def test_bugs_are_planted_in_many_kinds_of_operation():
    assert len(BUGS) >= 40
    assert len({definition_of(bug.definition).op_type for bug in BUGS}) >= 15


def test_most_planted_bugs_need_an_axis_that_could_be_lower():
    lowered = [bug for bug in BUGS if [*one_lower(definition_of(bug.definition), bug.axes)]]
    assert len(lowered) >= 69
