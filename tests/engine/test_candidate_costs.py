"""What is drawn stays within what an implementation can do; what hangs is late all the same."""

import pytest

from pytest_fib.data import SearchRequest, SupportedLanguages
from pytest_fib.workloads import make_workload

#: As slow as an interpreter: it takes longer for each element, or block of them.
SLOW = """
import time

def run(x, factor):
    {slow}
    return x * factor
"""
EACH = SLOW.format(slow="time.sleep(2e-5 * len(x))")


@pytest.fixture
def search(breakable_judge, definition, solution):
    """The result of a search for what is wrong with a kernel in Triton, or in another language."""

    def search(text, language="triton", listed=(), examples=8, timeout=10.0):
        given = solution(text)
        spec = given.spec.model_copy(update={"language": SupportedLanguages(language)})
        request = SearchRequest(
            definition=definition,
            solution=given.model_copy(update={"spec": spec}),
            listed=[make_workload(definition, {"n": n}) for n in listed],
            examples=examples,
            small_for_each=0,
            timeout=timeout,
            max_bytes=1 << 20,
        )
        return breakable_judge.search(request)

    return search


def test_where_an_interpreter_is_slow_smaller_workloads_are_tried_and_the_outcome_says_so(search):
    result = search(EACH)
    assert result.outcome.status.value == "PASSED"
    assert result.tried > 4
    left_out = result.outcome.correctness.extra["left_out"]
    assert left_out["axes"]["n"] > 1000
    assert left_out["why"].startswith("the implementation would take too long, here and in ")


@pytest.mark.thorough
def test_what_is_not_interpreted_may_take_longer_but_not_all_of_the_time(search):
    result = search(EACH, language="python")
    assert result.outcome.status.value == "PASSED"
    assert result.tried == 11  # with three near the number in its source
    assert "left_out" not in result.outcome.correctness.extra
    slower = SLOW.format(slow="time.sleep(4e-4 * len(x))")
    result = search(slower, language="python", timeout=4.0)
    assert result.outcome.status.value == "PASSED"
    assert result.outcome.correctness.extra["left_out"]["axes"]["n"] > 1000


def test_what_somebody_asked_for_is_tried_however_slow_its_interpreter_is(search):
    result = search(EACH, listed=[20_000, 40_000], examples=1)
    assert result.tried == 5  # with two near the numbers in its source
    assert "left_out" not in result.outcome.correctness.extra


@pytest.mark.parametrize("beyond", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_an_interpreted_kernel_that_hangs_is_late(search, beyond):
    hangs = SLOW.format(slow=f"time.sleep(600 * (len(x) > {beyond}))")
    assert search(hangs, timeout=1.0).outcome.status.value == "TIMEOUT"


def test_what_times_out_for_its_size_is_left_out(search):
    slow = SLOW.format(slow="time.sleep(600 if len(x) > 9000 else (len(x) > 4500) * 0.5)")
    result = search(slow, language="python", timeout=2.0)
    assert result.outcome.status.value == "PASSED"
    assert result.outcome.correctness.extra["left_out"]["axes"]["n"] >= 9000


@pytest.mark.thorough
def test_what_takes_an_interpreter_longer_than_expected_is_left_out(search):
    slow = SLOW.format(slow="time.sleep(0 if len(x) < 2 else 0.06 if len(x) < 64 else 600)")
    # The first check starts a process as well.
    result = search(slow, listed=[2, 1], timeout=4.0)
    assert result.outcome.status.value == "PASSED"
    assert result.outcome.correctness.extra["left_out"]["axes"]["n"] > 2
