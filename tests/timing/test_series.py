"""Groups of calls on the CPU: which are run, how often, and what is kept of them."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_fib.timing import series

CLOCK = "pytest_fib.timing._series.perf_counter_ns"


@pytest.fixture
def made():
    """Groups of calls by name, and the names of the calls that were run."""
    log = []

    def made(*groups):
        def call(name):
            def run():
                log.append(name)
                return f"{name}{log.count(name)}"

            return run

        return [[call(name) for name in group] for group in groups], log

    return made


def test_nothing_is_run_before_it_is_asked_for(made):
    groups, log = made("ab", "c")
    found = series(groups, "cpu")
    assert log == []
    assert found.results == [[None, None], [None]]


def test_a_block_of_each_group_runs_its_calls_in_order(made):
    groups, log = made("ab", "cd", "ef")
    found = series(groups, "cpu")
    assert len(found.run().samples_ns) == 3
    assert "".join(log) == "abcdef"
    found.run()
    assert "".join(log) == 2 * "abcdef"


def test_what_each_call_returned_last_is_kept(made):
    groups, _ = made("ab", "cd")
    found = series(groups, "cpu")
    found.run()
    assert found.results == [["a1", "b1"], ["c1", "d1"]]
    found.run()
    assert found.results == [["a2", "b2"], ["c2", "d2"]]


def test_a_sample_is_the_time_of_one_call(made, monkeypatch):
    now = iter([1000, 1600, 5000, 5060])
    monkeypatch.setattr(CLOCK, lambda: next(now))
    groups, _ = made("ab", "cd")
    timed = series(groups, "cpu").run()
    assert timed.samples_ns == (600 / 2, 60 / 2)
    assert timed.blocks_ns == 660


@pytest.mark.parametrize(("threads", "said"), [(1, "1 thread"), (2, "2 threads")])
def test_the_method_has_the_number_of_threads(made, threads, said):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert series(made("a")[0], "cpu").method == f"cpu, {said}"
    finally:
        torch.set_num_threads(before)


def test_what_a_call_raises_is_raised(made):
    groups, log = made("a")
    groups.append([lambda: 1 // 0])
    with pytest.raises(ZeroDivisionError):
        series(groups, "cpu").run()
    assert log == ["a"]


def test_no_operator_of_torch_is_run_beside_the_calls(made):
    """Calls may have changed what torch does for all: have it fill new tensors, for one."""

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            run.append(func)
            return func(*args, **(kwargs or {}))

    run = []
    groups, log = made("a", "b", "c")
    with Noted():
        series(groups, "cpu").run()
    assert log == ["a", "b", "c"]
    assert run == []
