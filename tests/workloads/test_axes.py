"""Domains of axes, the order they are drawn in, and what fits a budget."""

import pytest

from pytest_fib.search import search
from pytest_fib.workloads import Domain, plan, workload_bytes

EVENS, LISTED = Domain(4, 11, 2), Domain(values=(3, 8, 20))


@pytest.mark.parametrize(
    ("domain", "members"),
    [
        (Domain(2, 5), [2, 3, 4, 5]),
        (EVENS, [4, 6, 8, 10]),
        (LISTED, [3, 8, 20]),
        (Domain(3, 2), []),
    ],
)
def test_a_domain_has_members_in_ascending_order(domain, members):
    assert [domain[i] for i in range(len(domain))] == members
    assert [n for n in range(30) if n in domain] == members


@pytest.mark.parametrize(
    ("domain", "n", "nearest"),
    [
        (EVENS, 9, 8),
        (EVENS, 99, 10),
        (EVENS, 1, 4),
        (LISTED, 19, 8),
        (LISTED, 1, 3),
        (Domain(), 7, 7),
        (Domain(), 1 << 40, 1 << 27),
    ],
)
def test_the_nearest_member_is_not_above_unless_there_is_none_below(domain, n, nearest):
    assert domain.nearest(n) == nearest


@pytest.mark.parametrize(
    ("domain", "bounds", "members"),
    [
        (Domain(1, 40), (5, 22, 7), [7, 14, 21]),
        (Domain(4, 40, 4), (1, 40, 6), [12, 24, 36]),
        (LISTED, (4, 99, 4), [8, 20]),
        (EVENS, (12, 20, 1), []),
    ],
)
def test_a_domain_is_narrowed_by_bounds_and_multiples(domain, bounds, members):
    narrowed = domain.narrowed(*bounds)
    assert [narrowed[i] for i in range(len(narrowed))] == members


def test_a_domain_says_what_it_is():
    assert str(LISTED) == "one of 3, 8, 20"
    assert str(EVENS) == "4 to 11 in multiples of 2"
    assert str(Domain(1, 9)) == "1 to 9"


@pytest.fixture
def ragged(define):
    """Sequences of keys, with a large row for each sequence and each key."""
    definition = define(
        axes={"batch": "var", "len": "var", "total": "var", "width": 1000},
        inputs={
            "q": {"shape": ["batch", "width"], "dtype": "float32"},
            "k": {"shape": ["total", "width"], "dtype": "float32"},
            "offsets": {"shape": ["len"], "dtype": "int32"},
        },
        rules={"offsets": {"kind": "indptr", "total": "total"}},
    )
    return definition.model_copy(
        update={
            "constraints": ["len == batch + 1", "total == offsets[-1].item()"],
            "outputs": {"y": definition.inputs["q"]},
        }
    )


def test_what_follows_from_another_axis_comes_after_it_and_totals_last(ragged):
    assert plan(ragged).order == ("batch", "len", "total")
    assert plan(ragged).independent == ("batch", "total")


def test_bytes_left_over_by_one_axis_bound_the_next(ragged):
    made, budget = plan(ragged), 1 << 20
    for batch in (1, 20):
        domain, affordable = made.affordable("total", {"batch": batch, "len": batch + 1}, budget)
        largest = {"batch": batch, "len": batch + 1, "total": domain[affordable - 1]}
        assert workload_bytes(ragged, largest) <= budget
        assert workload_bytes(ragged, {**largest, "total": largest["total"] + 1}) > budget


@pytest.mark.parametrize("seed", range(3))
def test_each_axis_is_large_in_its_turn_though_the_budget_is_small(ragged, seed):
    """Room for 30 rows of any kind: neither sequences nor keys take it all every time."""
    tried = []
    search(
        ragged,
        tried.append,
        failed=bool,
        closeness=lambda outcome: 0.0,
        seed=seed,
        max_bytes=30 * 24_000,
    )
    assert max(workload.axes["batch"] for workload in tried) >= 12
    assert max(workload.axes["total"] for workload in tried) >= 24
