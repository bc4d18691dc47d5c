"""What is drawn stays within what the reference can do; whatever is listed has to be done."""

import pytest

from pytest_fib.data import DefinitionFault, SearchRequest
from pytest_fib.workloads import make_workload

GOOD = "def run(x, factor):\n    return x * factor\n"
#: What a reference does where it has more than one element.
WITHIN = """
import time
import torch

def run(x, factor):
    if len(x) > 1:
        {beyond}
    return x * factor
"""
HANGS, LACKS_MEMORY = "time.sleep(600)", "torch.empty(1 << 50)"


@pytest.fixture
def search(breakable_judge, definition, solution):
    """The result of a search, with another reference, of workloads listed by their sizes."""

    def search(reference, text=GOOD, listed=(), timeout=1.0):
        of = definition.model_copy(update={"reference": reference})
        request = SearchRequest(
            definition=of,
            solution=solution(text),
            listed=[make_workload(of, {"n": n}) for n in listed],
            examples=8,
            small_for_each=0,
            timeout=timeout,
        )
        return breakable_judge.search(request)

    return search


@pytest.mark.parametrize("beyond", [pytest.param(HANGS, marks=pytest.mark.thorough), LACKS_MEMORY])
def test_a_drawn_workload_that_is_too_large_for_the_reference_is_passed_over(search, beyond):
    result = search(WITHIN.format(beyond=beyond))
    assert result.origin is None
    assert result.outcome.status.value == "PASSED"
    assert result.workload.axes["n"] == 1


@pytest.mark.parametrize("beyond", [HANGS, LACKS_MEMORY])
@pytest.mark.thorough
def test_a_listed_workload_that_is_too_large_for_the_reference_is_its_fault(search, beyond):
    result = search(WITHIN.format(beyond=beyond), listed=[1, 2])
    assert isinstance(result.outcome, DefinitionFault)
    assert result.workload.axes["n"] == 2


def test_a_reference_that_hangs_whatever_the_size_is_its_fault(search):
    result = search("import time\ndef run(x, factor):\n    time.sleep(600)\n", timeout=0.5)
    assert isinstance(result.outcome, DefinitionFault)
    assert result.outcome.message.endswith("no answer within 0.5 s (--fib-timeout)")


def test_where_a_reference_has_turned_out_slow_no_larger_workload_is_drawn(search, monkeypatch):
    monkeypatch.setattr("pytest_fib.engine._reference_costs.NOTICEABLE_SECONDS", 0.02)
    result = search(WITHIN.format(beyond="time.sleep(3e-3 * len(x))"))
    assert result.origin is None
    assert result.tried < 8


def test_where_most_workloads_are_too_large_the_outcome_says_so(search, monkeypatch):
    costs = "pytest_fib.engine._reference_costs.ReferenceCosts.are_affordable"
    monkeypatch.setattr(costs, lambda *_: False)
    result = search(GOOD)
    assert result.outcome.status.value == "PASSED"
    assert result.tried == 1
    left_out = result.outcome.correctness.extra["left_out"]
    assert left_out["axes"]["n"] > 1
    said = "the reference would take too much time or memory, here and in 6 more"
    assert left_out["why"] == said


@pytest.mark.thorough
def test_an_implementation_is_late_where_the_reference_is_not(search):
    late = WITHIN.format(beyond=HANGS)
    result = search(GOOD, late)
    assert result.outcome.status.value == "TIMEOUT"


def test_an_implementation_is_not_late_where_the_reference_is_too(search, monkeypatch):
    # On a busy machine the first call of all may take half a second by itself.
    monkeypatch.setattr("pytest_fib.engine._reference_costs.NOTICEABLE_SECONDS", 0.1)
    late = WITHIN.format(beyond=HANGS)
    slow = WITHIN.format(beyond="time.sleep(1)")
    assert search(slow, late).outcome.status.value == "PASSED"


def test_a_large_workload_that_an_implementation_has_no_memory_for_is_left_out(search, monkeypatch):
    monkeypatch.setattr("pytest_fib.engine._reference_costs.PADDED", 1 << 40)
    result = search(GOOD, WITHIN.format(beyond=LACKS_MEMORY))
    assert result.outcome.status.value == "PASSED"
    left_out = result.outcome.correctness.extra["left_out"]
    assert left_out["axes"]["n"] > 1
    assert "can't allocate memory" in left_out["why"]


def test_an_implementation_that_has_no_memory_for_a_small_workload_is_at_fault(search):
    result = search(GOOD, WITHIN.format(beyond=LACKS_MEMORY))
    assert result.outcome.status.value == "RUNTIME_ERROR"
