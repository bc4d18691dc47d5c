"""From a failing workload to the smallest axes and the plainest regime that still fail."""

import math

import pytest

from pytest_fib.data import Definition
from pytest_fib.search import search
from pytest_fib.workloads import make_workload, plan


@pytest.fixture
def shrink(define):
    """Have a search shrink a listed workload; gives the result and what was tried after it."""

    def shrink(definition, axes, fails, seed=0, **regime):
        tried = []

        def remember(workload):
            tried.append(workload)
            return fails(workload)

        failing = make_workload(definition, plan(definition).completed(axes), seed, regime)
        found = search(
            definition,
            remember,
            failed=bool,
            closeness=lambda outcome: 0.0,
            listed=[failing],
            shrink_seconds=math.inf,
        )
        assert found.outcome
        return found.workload, tried[1:]

    return shrink


TWO = {"m": "var", "n": "var"}


@pytest.mark.parametrize(
    ("fails", "least"),
    [
        (lambda n: n >= 1000, 1000),
        (lambda n: n > 256, 257),
        (lambda n: n % 7 == 0 and n > 20, 21),
        (lambda n: n % 128 == 0, 128),
        (lambda n: n % 2 == 0, 2),
        (lambda n: n % 16 and n > 16, 17),
        (lambda n: n == 4096, 4096),
    ],
)
def test_an_axis_ends_at_the_least_size_that_fails(define, shrink, fails, least):
    failing = [size for size in (4096, 1792, 4095) if fails(size)]
    assert failing
    for size in failing:
        found, _ = shrink(define(), {"n": size}, lambda w: fails(w.axes["n"]))
        assert found.axes == {"n": least}


def test_two_axes_are_lowered_together_where_neither_can_be_alone(define, shrink):
    definition = define(TWO)
    found, _ = shrink(definition, {"m": 9, "n": 9}, lambda w: w.axes["m"] == w.axes["n"])
    assert found.axes == {"m": 1, "n": 1}


def test_large_workloads_are_tried_last(define, shrink):
    found, tried = shrink(define(TWO), {"m": 5000, "n": 5000}, lambda w: w.axes["n"] >= 40)
    assert found.axes == {"m": 1, "n": 40}
    assert sum(w.axes["m"] > 1 and w.axes["n"] > 32 for w in tried) == 0


def test_an_axis_is_tried_at_each_size_with_the_others_at_their_least(define, shrink):
    """Of one part, only some sizes fail; of several, any that is large enough."""

    def fails(workload):
        parts, n = workload.axes["m"], workload.axes["n"]
        return n % 128 == 1 and n > 128 if parts == 1 else n >= 130

    assert shrink(define(TWO), {"m": 9, "n": 999}, fails)[0].axes == {"m": 1, "n": 129}


def test_two_axes_that_differ_by_little_are_lowered_together(define, shrink):
    found, _ = shrink(
        define(TWO),
        {"m": 88, "n": 103},
        lambda w: 16 < w.axes["m"] < w.axes["n"] < w.axes["m"] + 16,
    )
    assert found.axes == {"m": 17, "n": 18}


def test_what_is_rare_is_found_in_another_regime(define, shrink):
    """Few of the normal rows, which so have to be many, are as all of another regime are."""
    found, _ = shrink(
        define({"m": "var"}, {"x": {"shape": ["m"], "dtype": "float32"}}),
        {"m": 500},
        lambda w: w.regime == {"values": "negative"} or (w.axes["m"] > 20 and w.seed % 3),
        seed=1,
    )
    assert (found.axes, found.regime) == ({"m": 1}, {"values": "negative"})


@pytest.mark.parametrize("chance", [20, 60])
def test_what_is_just_below_the_answer_is_tried_with_most_seeds(define, shrink, chance):
    def fails(workload):
        n = workload.axes["n"]
        return n >= 40 and int(workload.uuid[:6], 16) % (chance if n == 40 else 2) == 0

    found, _ = shrink(define(), {"n": 3000}, fails, seed=12345)
    assert found.axes == {"n": 40}


@pytest.mark.parametrize("size", [1417, 2040])
def test_just_beyond_a_power_of_two_several_seeds_are_tried(define, shrink, size):
    """What is lost there is one element of a row, which only sometimes is the largest."""

    def fails(workload):
        lost = max(workload.axes["n"] - 1024, 0)
        return int(workload.uuid[:6], 16) % 1000 < (200 if lost == 1 else lost)

    found, _ = shrink(define(), {"n": size}, lambda w: w.axes["n"] == size or fails(w))
    assert found.axes == {"n": 1025}


@pytest.mark.parametrize("chance", [2, 5, 15])
def test_smaller_axes_are_tried_with_several_seeds(define, shrink, chance):
    """What fails depends on the seed, and on that alone below n = 50."""

    def fails(workload):
        return workload.axes["n"] > 50 or int(workload.uuid[:6], 16) % chance == 0

    found, _ = shrink(define(), {"n": 3000}, fails, seed=12345)
    assert found.axes == {"n": 1}


def test_a_least_workload_is_not_tried_again(define, shrink):
    found, tried = shrink(define(), {"n": 1}, lambda w: True)
    assert (found.axes, tried) == ({"n": 1}, [])


@pytest.mark.parametrize(
    ("fails", "regime"),
    [
        (lambda r: True, {}),
        (lambda r: r.get("values") in ("zeros", "mixed"), {"values": "zeros"}),
        (
            lambda r: (r.get("values") == "zeros" and "inputs" in r) or r.get("values") == "mixed",
            {"values": "zeros", "inputs": "some"},
        ),
        (lambda r: r.get("values") == "mixed", {"values": "mixed"}),
        (lambda r: "layout" in r, {"layout": "offset"}),
    ],
)
def test_the_plainest_regime_that_fails_is_taken(shrink, fails, regime):
    matrix = {"shape": ["m", "n"], "dtype": "float32"}
    definition = Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": TWO,
            "inputs": {"x": matrix, "z": matrix},
            "outputs": {"y": matrix},
            "reference": "def run(x, z): ...",
            "workloads": {"layouts": ["offset", "row_strided"]},
        }
    )
    found, _ = shrink(
        definition,
        {"m": 30, "n": 30},
        lambda w: w.axes["m"] >= 3 and fails(w.regime),
        values="mixed",
        inputs="some",
        layout="row_strided",
    )
    assert found.axes == {"m": 3, "n": 1}
    assert found.regime == regime


def test_no_more_is_taken_once_nothing_fails_any_more(define, shrink):
    """As when time is over: what was best until then is the answer."""
    left = iter(range(40))
    found, _ = shrink(
        define(), {"n": 5000}, lambda w: w.axes["n"] >= 9 and next(left, None) is not None
    )
    assert 9 <= found.axes["n"] < 5000
