"""Kernels of every kind that are wrong in one way each: all are caught, and most are named.

They are looked for as an item does it, in the workloads that it draws, and diagnosed as it does it.
"""

import os
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path

import pytest

from pytest_fib.build import load, program_of
from pytest_fib.data import Evaluation, EvaluationRequest, EvaluationStatus
from pytest_fib.discovery import find_implementations, load_catalogue
from pytest_fib.engine import Judge, diagnose_failure
from pytest_fib.search import search
from pytest_fib.workloads import example_workloads
from tests.sampling import one_in

ROOT = Path(__file__).parent.parent
MUTANTS = {found.name: found for found in find_implementations([ROOT / "tests/mutants/kernels"])}
#: More workloads than items have, since these are small: what is tested here are verdicts.
EXAMPLES, MAX_BYTES, DIAGNOSIS_BYTES = 50, 512 << 10, 4 << 20
#: Three times what items have to shrink and to explain in: names are not to depend on how busy a
#: machine is.
ENOUGH_SECONDS = 60.0
#: Mutants with wrong numbers whose diagnosis names what is wrong with them, of how many. 173 are.
NAMED, WITH_WRONG_NUMBERS = 172, 214
WRONG_NUMBERS = EvaluationStatus.INCORRECT_NUMERICAL


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
            definition=definition,
            solution=solution,
            workload=workload,
            directory=directory,
            explain=explain,
            explain_seconds=ENOUGH_SECONDS,
        )
        return judge.evaluate(request)

    found = search(
        definition,
        evaluate,
        failed=lambda evaluation: evaluation.status.value != "PASSED",
        alike=alike,
        shown_by=shown_by,
        closeness=lambda evaluation: 0.0,
        listed=example_workloads(definition),
        examples=EXAMPLES,
        max_bytes=MAX_BYTES,
        shrink_seconds=ENOUGH_SECONDS,
    )
    explained = partial(evaluate, explain=True)
    return diagnose_failure(definition, found.workload, found.outcome, explained, DIAGNOSIS_BYTES)


def shown_by(evaluation):
    return evaluation.diagnosis and evaluation.diagnosis.shown_by


def alike(first, other):
    is_another = shown_by(other) and not shown_by(first)
    return first.status is other.status and not is_another


def assert_caught(evaluation, expected):
    """That a mutant ends as it should and, where patterns are expected, with one of them."""
    assert evaluation.status.value == expected.status, evaluation.log
    if expected.patterns:
        assert evaluation.diagnosis.pattern in expected.patterns, evaluation.log


@pytest.fixture(scope="session")
def results(tmp_path_factory, worker_id):
    """A folder that all workers of a run share, for what mutants ended as."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "mutants"
    folder.mkdir(exist_ok=True)
    return folder


def ended_as(judge, name, results):
    """What a mutant ends as, and what is expected; looked up where a worker has found it."""
    definition, solution, expected = facts(MUTANTS[name])
    stored = results / f"{name}.json"
    if stored.exists():
        return Evaluation.model_validate_json(stored.read_text()), expected
    evaluation = outcome(judge, MUTANTS[name], definition, solution)
    unfinished = stored.with_suffix(f".{os.getpid()}")
    unfinished.write_text(evaluation.model_dump_json())
    unfinished.rename(stored)
    return evaluation, expected


@pytest.mark.parametrize("name", one_in(12, MUTANTS, slow=["experts_gelu_experts"]))
def test_a_mutant_is_caught_and_named(judge, name, results):
    assert_caught(*ended_as(judge, name, results))


@pytest.mark.thorough
def test_most_mutants_are_named_by_what_is_wrong_with_them(judge, results):
    ended = [ended_as(judge, name, results) for name in MUTANTS]
    wrong = [(found, expected) for found, expected in ended if found.status == WRONG_NUMBERS]
    named = [found for found, expected in wrong if found.diagnosis.pattern in expected.patterns]
    assert len(wrong) >= WITH_WRONG_NUMBERS
    assert len(named) >= NAMED


def test_mutants_are_of_every_kind_of_operation():
    mutated = {facts(mutant)[0].op_type for mutant in MUTANTS.values()}
    assert mutated == {definition.op_type for definition in definitions().values()}
