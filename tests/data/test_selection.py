"""The fewest implementations that serve captured calls nearly as fast as all of them."""

import itertools
import math
import random

import pytest

from pytest_fib.data import Trace, TraceSet
from tests.data.test_trace_set import H200, definition, solution, trace, workload


def trace_set(times, counts=None, **more):
    """``times`` has the milliseconds of each solution at each size."""
    made = TraceSet([definition()], [solution(name) for name in times])
    for n in sorted({n for of in times.values() for n in of}):
        made.add_workload("scale", workload(n), (counts or {}).get(n, 1))
    for name, of in times.items():
        for n, ms in of.items():
            made.add_trace(trace(name, n, ms, **more))
    return made


def chosen(made, **arguments):
    return made.best("scale", weights=made.counts("scale"), **arguments)


def test_calls_decide_which_shapes_matter():
    times = {"wide": {8: 1.0, 64: 2.0}, "narrow": {8: 0.5, 64: 9.0}}
    rarely = chosen(trace_set(times, {8: 1, 64: 1000}))
    assert rarely.solutions == ("wide",)
    often = chosen(trace_set(times, {8: 1000, 64: 10}))
    assert often.solutions == ("narrow", "wide")
    assert [served.calls for served in often.served.values()] == [1000, 10]
    assert often.total_ms == often.best_ms == 1000 * 0.5 + 10 * 2.0
    assert often.reference_ms == 1010 * 8.0
    assert often.saving == pytest.approx(1 - 520 / 8080)


def test_where_nobody_counted_each_workload_is_one_call():
    selection = chosen(trace_set({"fast": {8: 1.0, 64: 3.0}}, {8: 0, 64: 0}))
    assert (selection.calls, selection.total_ms) == (2, 4.0)


def test_a_shape_that_others_fail_at_needs_its_own():
    made = trace_set({"fast": {8: 1.0}, "slow": {8: 5.0, 64: 5.0}}, {8: 1000, 64: 1})
    assert chosen(made).solutions == ("fast", "slow")
    made.add_workload("scale", workload(512), 7)
    assert chosen(made).unmeasured == 7
    made.add_trace(trace("fast", 8, status="TIMEOUT"))
    assert chosen(made).solutions == ("slow",)


def test_nothing_measured_is_no_selection():
    made = TraceSet([definition()], [solution("fast")], [("scale", workload(8))])
    assert chosen(made) is None
    assert made.best("scale", weights={}) is None


def test_mistakes_are_named():
    made = trace_set({"fast": {8: 1.0}})
    with pytest.raises(ValueError, match="scale: unknown workload 'who'"):
        made.best("scale", weights={"who": 1})
    made.add_trace(trace("fast", 8, 2.0, hardware="NVIDIA A100"))
    with pytest.raises(ValueError, match="timed on NVIDIA A100, NVIDIA H200: which hardware"):
        chosen(made)
    assert chosen(made, hardware="nvidia_h200").total_ms == 1.0


def test_the_order_of_records_changes_nothing():
    times = {name: {n: 1.0 + n % 3 for n in range(1, 9)} for name in "abcd"}
    made = trace_set(times)
    turned = TraceSet([definition()], [solution(name) for name in "dcba"])
    for n in range(8, 0, -1):
        turned.add_workload("scale", workload(n), 1)
    for each in reversed(made.traces["scale"]):
        turned.add_trace(Trace.from_json(each.to_json_line()))
    assert chosen(made) == chosen(turned)
    assert chosen(made).solutions == ("a",)


@pytest.mark.parametrize("seed", range(12))
def test_no_smaller_set_would_do_and_none_of_that_size_is_cheaper(seed):
    draw = random.Random(seed)
    sizes, names = range(1, 8), [f"s{i}" for i in range(7)]
    times = {"everywhere": {n: 10.0 * draw.random() + 5 for n in sizes}}
    for name in names:
        times[name] = {n: 10.0 * draw.random() for n in sizes if draw.random() < 0.6}
    times = {name: of for name, of in times.items() if of}
    counts = {n: draw.randint(1, 100) for n in sizes}
    selection = chosen(trace_set(times, counts))

    def total(names):
        at = [[times[name][n] for name in names if n in times[name]] for n in sizes]
        return (
            sum(counts[n] * min(of) for n, of in zip(sizes, at, strict=True))
            if all(at)
            else math.inf
        )

    limit = 1.01 * total(times)
    fitting = [
        total(names)
        for names in itertools.combinations(times, len(selection.solutions))
        if total(names) <= limit
    ]
    smaller = itertools.combinations(times, len(selection.solutions) - 1)
    assert not any(total(names) <= limit for names in smaller)
    assert selection.total_ms == pytest.approx(min(fitting))


def test_what_was_chosen_is_what_is_deployed():
    made = trace_set({"wide": {8: 1.0, 64: 2.0}, "narrow": {8: 0.999, 64: 9.0}})
    deployed = made.filter(solution=chosen(made).solutions)
    assert deployed.ranked("scale", H200) == {(8,): ("wide",), (64,): ("wide",)}
