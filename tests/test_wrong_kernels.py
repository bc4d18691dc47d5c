"""Kernels of every kind that are wrong in one way each: all are caught, and most told by name.

They are looked for as an item does it, in the workloads that it draws, and told as it tells them.
"""

from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path

import pytest

from pytest_fib.build import load, program_of
from pytest_fib.engine import EvaluationRequest, Judge, told
from pytest_fib.implementations import find_implementations, load_catalogue
from pytest_fib.workloads import example_workloads
from pytest_fib.workloads.search import search

ROOT = Path(__file__).parent.parent
MUTANTS = {found.name: found for found in find_implementations([ROOT / "tests/mutants/kernels"])}
#: More workloads than items have, since these are small: what is tested here are verdicts.
EXAMPLES, MAX_BYTES, TELLING_BYTES = 50, 256 << 10, 4 << 20
#: At least that share of the mutants is told by the name of what is wrong with them.
NAMED = 0.8


@cache
def definitions():
    files = sorted((ROOT / "kernel_defs").glob("*/*.yaml"))
    every = load_catalogue([files], find_implementations([])).definitions.values()
    return {each.definition.name: each.definition for loaded in every for each in loaded}


def facts(mutant):
    """The first definition that it claims to implement, its Solution, and what it ends with."""
    names = [name for name in definitions() if fnmatchcase(name, mutant.definition)]
    definition = definitions()[names[0]]
    solution = mutant.solution(definition.name)
    function = load(program_of(solution, definition, mutant.directory))
    return definition, solution, function.expected


@pytest.fixture(scope="module")
def judge():
    with Judge("cpu", "none") as judge:
        yield judge


def outcome(judge, mutant, definition, solution):
    """What an item would end with."""

    def evaluate(workload, explain=False):
        directory = str(mutant.directory)
        request = EvaluationRequest(
            definition, solution, workload, directory=directory, explain=explain
        )
        return judge.evaluate(request)

    found = search(
        definition,
        evaluate,
        failed=lambda evaluation: evaluation.status.value != "PASSED",
        closeness=lambda evaluation: 0.0,
        listed=example_workloads(definition),
        examples=EXAMPLES,
        max_bytes=MAX_BYTES,
    )
    explained = partial(evaluate, explain=True)
    return told(definition, found.workload, found.outcome, explained, TELLING_BYTES)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_and_told_by_its_name(judge, name):
    definition, solution, expected = facts(MUTANTS[name])
    evaluation = outcome(judge, MUTANTS[name], definition, solution)
    assert evaluation.status.value == expected.status, evaluation.log
    if expected.patterns:
        assert evaluation.correctness.extra["pattern"] in expected.patterns, evaluation.log


def test_mutants_are_many_and_most_of_them_are_named():
    every = [facts(mutant)[2] for mutant in MUTANTS.values()]
    assert len(every) >= 120
    named = [each for each in every if each.patterns or each.status != "INCORRECT_NUMERICAL"]
    assert len(named) >= NAMED * len(every)


def test_mutants_are_of_every_kind_of_operation():
    mutated = {facts(mutant)[0].op_type for mutant in MUTANTS.values()}
    assert mutated == {definition.op_type for definition in definitions().values()}
