"""Explaining a failure ends with its time, however long a call of the reference takes."""

import pytest

from pytest_fib.data import EXPLAIN_SECONDS, Definition
from pytest_fib.engine import FunctionChecker, search_and_diagnose
from pytest_fib.sandbox import run_widened
from pytest_fib.workloads import make_workload

DRAWN = {"examples": 3, "seed": 0, "run_seed": None, "max_bytes": 1 << 16}
DEFINITION = Definition.model_validate(
    {
        "name": "blended",
        "op_type": "other",
        "axes": {"n": "var", "d": 16},
        "inputs": {
            **{name: {"shape": ["n", "d"], "dtype": "float32"} for name in "abc"},
            **{name: {"shape": None, "dtype": "float32"} for name in ("share", "bias")},
        },
        "outputs": {"y": {"shape": ["n", "d"], "dtype": "float32"}},
        "reference": "def run(a, b, c, share, bias):\n    return a * share + b * c + bias\n",
    }
)


@pytest.fixture
def explain(monkeypatch):
    """The seconds that explaining a failure takes where a call of the reference takes a few."""
    now = [0.0]
    monkeypatch.setattr("pytest_fib.engine._in_process.monotonic", lambda: now[0])

    def explain(of_a_call):
        began = []

        def slow(*arguments, **how):
            now[0] += of_a_call
            return run_widened(*arguments, **how)

        monkeypatch.setattr("pytest_fib.engine._in_process.run_widened", slow)
        checker = FunctionChecker(DEFINITION, lambda a, b, c, share, bias: a.sin(), "cpu")

        def check(workload, *, explain=False, **how):
            if explain and not began:
                began.append(now[0])
            return checker(workload, explain=explain, **how)

        found = search_and_diagnose(DEFINITION, check, clock=lambda: now[0], **DRAWN)
        assert found.outcome.diagnosis.sentence.startswith("y: ")
        return now[0] - began[0]

    return explain


def test_explaining_ends_with_its_time(explain):
    """The check that comes before it, of 13 calls, is not interrupted."""
    assert explain(1e-6) > 200e-6
    assert explain(0.5) <= EXPLAIN_SECONDS + 0.5
    assert explain(EXPLAIN_SECONDS) <= 15 * EXPLAIN_SECONDS


@pytest.mark.parametrize(("of_a_row", "rows"), [(1e-9, 1365), (1e-6, 169), (1e-4, 21), (1e3, 2)])
def test_what_takes_too_long_is_explained_by_a_smaller_workload(of_a_row, rows):
    """A check takes seconds in proportion to the square of its size."""
    checker, now, explained = (
        FunctionChecker(DEFINITION, lambda a, *_: a.sin(), "cpu"),
        [0.0],
        set(),
    )

    def check(workload, *, explain=False, **how):
        now[0] += of_a_row * workload.axes["n"] ** 2
        if explain:
            explained.add(workload.axes["n"])
        return checker(workload, explain=explain, **how)

    search_and_diagnose(DEFINITION, check, clock=lambda: now[0], **{**DRAWN, "max_bytes": 1 << 20})
    assert max(explained) == rows


@pytest.mark.thorough
def test_what_is_far_beyond_its_bound_is_not_shrunk_to_what_may_be_rounding():
    """All of one row is off by little more than is allowed; of many rows, some are missing."""

    def run(a, b, c, share, bias):
        right = a.double() * share + b.double() * c + bias
        if len(a) >= 100:
            return (right * 0).float()
        return (right + 1e-5 * right.abs().mean()).float()

    checker = FunctionChecker(DEFINITION, run, "cpu")
    assert checker(make_workload(DEFINITION, {"n": 1})).status.value == "INCORRECT_NUMERICAL"
    how = {**DRAWN, "examples": 1, "max_bytes": 1 << 20}
    listed = [make_workload(DEFINITION, {"n": 400})]
    found = search_and_diagnose(DEFINITION, checker, listed=listed, **how)
    assert found.workload.axes["n"] >= 100


@pytest.mark.parametrize("right", [0.0, 2.0**-14])
@pytest.mark.parametrize(("much", "least"), [(1.0, 100), (float("inf"), 100), (3e-8, 1)])
def test_what_is_wrong_is_not_shrunk_to_what_rounding_leaves(much, least, right):
    reference = f"def run(a, b, c, share, bias):\n    return a - a + {right}\n"
    definition = DEFINITION.model_copy(update={"reference": reference})

    def run(a, b, c, share, bias):
        return a * 0 + right + (much if len(a) >= 100 else 3e-8)

    checker = FunctionChecker(definition, run, "cpu")
    assert checker(make_workload(definition, {"n": 1})).status.value == "INCORRECT_NUMERICAL"
    how = {**DRAWN, "examples": 1, "max_bytes": 1 << 20}
    listed = [make_workload(definition, {"n": 400})]
    found = search_and_diagnose(definition, checker, listed=listed, **how)
    assert found.workload.axes["n"] == least
