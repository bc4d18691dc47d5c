"""What goes wrong inside pytest-fib ends in a line and a record, and nothing else ends with it."""

import pytest

from pytest_fib.data import NOT_EVALUATED, SearchRequest
from pytest_fib.engine import Judge

WRONG_ON_NINE = "def run(x, factor):\n    return x * (factor if len(x) < 9 else 0)\n"


@pytest.fixture
def search_request(definition, solution):
    return SearchRequest(
        definition=definition,
        solution=solution(WRONG_ON_NINE),
        examples=25,
        seed=0,
        max_bytes=1 << 20,
    )


def test_a_fault_of_the_search_is_a_line_and_its_traceback_is_in_the_record(
    judge, search_request, request_for, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("pytest_fib.search._search.workloads", lambda definition, most: 1 // 0)
        result = judge.search(search_request)
    said = result.outcome.diagnosis
    assert said.sentence.startswith(
        "pytest-fib's own fault, no verdict: ZeroDivisionError: integer division or modulo by zero"
        " (_search.py:"
    )
    assert "report it" in said.sentence
    assert (said.pattern, result.was_evaluated, said.details) == (NOT_EVALUATED, False, ())
    assert result.outcome.log.startswith("Traceback")
    assert judge.search(search_request).outcome.status == "INCORRECT_NUMERICAL"


def test_a_failure_that_was_found_outlasts_a_fault_of_shrinking(judge, search_request, monkeypatch):
    monkeypatch.setattr("pytest_fib.search._search.shrunk", lambda *arguments: 1 // 0)
    result = judge.search(search_request)
    assert (result.outcome.status, result.origin) == ("INCORRECT_NUMERICAL", "unfinished")


def test_what_varies_the_reference_and_fails_blames_nobody(request_for, monkeypatch):
    monkeypatch.setattr("pytest_fib.sandbox._rounding.moved_result", lambda *arguments: 1 // 0)
    with Judge("cpu", isolation="none") as judge:
        outcome = judge.evaluate(request_for("def run(x, factor):\n    return x * factor + 1\n"))
    said = outcome.diagnosis.sentence
    assert said.startswith("pytest-fib's own fault, no verdict: VariationError: aten.mul.")
    assert "ZeroDivisionError" in said
    assert "_rounding.py" in outcome.log


def test_a_fault_of_an_evaluation_is_no_failure_of_the_next(judge, request_for, monkeypatch):
    request = request_for("def run(x, factor):\n    return x * factor\n")
    with monkeypatch.context() as patch:
        patch.setattr("pytest_fib.engine._judge.check_correctness", lambda *arguments: 1 // 0)
        outcome = judge.evaluate(request)
    assert "own fault, no verdict: ZeroDivisionError" in outcome.diagnosis.sentence
    assert judge.evaluate(request).status == "PASSED"
