"""Requests and answers travel as bytes to another process, and mean the same there."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fib.data import (
    DefinitionFault,
    Evaluation,
    SearchRequest,
    SearchResult,
    outcome_from_json,
    outcome_to_json,
)
from pytest_fib.executors import LocalExecutor
from pytest_fib.workloads import make_workload
from tests.executors.kernels import SCALE, TEXTS, definition, evaluation, solution

ROOT = Path(__file__).parents[2]
#: The far end: a line of JSON for each request, and one for each answer.
FAR_END = """\
import json, sys
from pathlib import Path
from pytest_fib.data import EvaluationRequest, SearchRequest, TensorFiles, outcome_to_json
from pytest_fib.executors import LocalExecutor

assert "torch" not in sys.modules
files = TensorFiles()
for path in sys.argv[1:]:
    files.add(Path(path))
executor = LocalExecutor("cpu", files=files)
for line in sys.stdin:
    kind, text = json.loads(line)
    if kind == "search":
        answer = executor.search(SearchRequest.from_json(text)).to_json()
    else:
        answer = outcome_to_json(executor.evaluate(EvaluationRequest.from_json(text)))
    print(json.dumps(answer))
executor.close()
"""


def requests(recorded):
    """A hundred: right, wrong, crashing, with a definition at fault, recorded tensors, searches."""
    broken = definition(reference="def run(x, factor):\n    raise KeyError('far away')\n")
    strict = definition(nondeterministic=False, tolerances={"y": {"exact": True}})
    search = {"definition": definition(), "examples": 6}
    quick = [name for name in TEXTS if name not in ("hanging", "slow", "waiting")]
    every = [
        evaluation(name, n, seed)
        for name in quick
        for n, seed in ((1, 0), (5, 1), (120, 2), (7, 3), (150, 4), (9, 5))
    ]
    every += [evaluation("right", n, n, of=strict) for n in range(1, 25)]
    every += [evaluation("wrong", n, n, of=strict, explain=True) for n in range(1, 21)]
    every += [evaluation("right", of=broken), evaluation("wrong", of=broken), recorded]
    every += [recorded.model_copy(update={"solution": solution("wrong")})]
    every += [SearchRequest(solution=solution(name), **search) for name in ("right", "tail")]
    every += [SearchRequest(solution=solution("right"), **{**search, "definition": broken})]
    failed_before = [make_workload(definition(), {"n": 200}, seed=3)]
    return [*every, SearchRequest(solution=solution("tail"), failed_before=failed_before, **search)]


def answers_far_away(asked, file):
    lines = [
        json.dumps(["search" if isinstance(each, SearchRequest) else "evaluate", each.to_json()])
        for each in asked
    ]
    process = subprocess.run(
        [sys.executable, "-c", FAR_END, str(file)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    texts = map(json.loads, process.stdout.splitlines())
    return [
        SearchResult.from_json(text) if isinstance(each, SearchRequest) else outcome_from_json(text)
        for each, text in zip(asked, texts, strict=True)
    ]


def without_time(answer):
    """An answer but for when it was given."""
    if isinstance(answer, SearchResult):
        return answer.model_copy(update={"outcome": without_time(answer.outcome)})
    return answer.model_copy(update={"timestamp": ""}) if isinstance(answer, Evaluation) else answer


def told(answer):
    """All that an answer says, but for what is each process's own: a crash names it."""
    text = without_time(answer).model_dump_json(by_alias=True)
    return re.sub(r"thread 0x[0-9a-f]+|/[^ ]*/pytest-fib-run-\w+/\w+/", "", text)


@pytest.mark.thorough
def test_a_hundred_answers_from_another_process_are_those_given_here(recorded):
    file, files, request = recorded
    asked = requests(request)
    assert len(asked) >= 100
    executor = LocalExecutor("cpu", files=files)
    here = [
        executor.search(each) if isinstance(each, SearchRequest) else executor.evaluate(each)
        for each in asked
    ]
    executor.close()
    far = answers_far_away(asked, file)
    assert list(map(told, far)) == list(map(told, here))
    statuses = {each.status.value for each in far if isinstance(each, Evaluation)}
    assert statuses == {"PASSED", "INCORRECT_NUMERICAL", "INCORRECT_SHAPE", "RUNTIME_ERROR"}
    assert sum(isinstance(each, DefinitionFault) for each in far) == 2
    searches = [each for each in far if isinstance(each, SearchResult)]
    assert [each.origin for each in searches] == [None, "shrunk", "shrunk", "failed before"]
    assert searches[1].workload.axes == {"n": 101}
    assert isinstance(searches[2].outcome, DefinitionFault)


def test_nothing_of_a_request_is_lost_in_json(recorded):
    odd = definition(
        inputs={**SCALE["inputs"], "factor": {"shape": None, "dtype": "float32"}},
        workloads={**SCALE["workloads"], "inputs": {"factor": {"value": math.inf}}},
        tolerances={"y": {"matched_ratio": 0.99, "linear": True}},
    )
    for each in (
        *requests(recorded[2]),
        evaluation("right", of=odd, timing=True, precision="quick", timeout=0.5, draws=True),
    ):
        again = type(each).from_json(each.to_json())
        assert again == each
        assert again.solution.spec.calling == each.solution.spec.calling
        assert again.definition.nondeterministic == each.definition.nondeterministic


def test_an_outcome_may_hold_what_json_has_no_numbers_for():
    outcome = Evaluation.model_validate(
        {
            "status": "INCORRECT_NUMERICAL",
            "correctness": {
                "max_relative_error": math.inf,
                "max_absolute_error": math.nan,
                "extra": {"worst": {"got": -math.inf, "index": [1]}, "rmse": {"y": math.nan}},
            },
        }
    )
    again = outcome_from_json(outcome_to_json(outcome)).correctness
    assert (again.max_relative_error, again.extra["worst"]["got"]) == (math.inf, -math.inf)
    assert math.isnan(again.max_absolute_error)
    assert math.isnan(again.extra["rmse"]["y"])


def test_a_recorded_tensor_that_is_not_here_is_a_fault_of_the_definition(recorded):
    executor = LocalExecutor("cpu", "none")
    fault = executor.evaluate(recorded[2])
    assert isinstance(fault, DefinitionFault)
    assert "blobs/x.safetensors" in fault.message


def test_files_elsewhere_that_hold_other_texts_are_not_run(tmp_path):
    (tmp_path / "module.py").write_text(TEXTS["wrong"])
    executor = LocalExecutor("cpu", "none")
    request = evaluation("right", directory=str(tmp_path))
    assert executor.evaluate(request).status == "PASSED"
    nowhere = request.model_copy(update={"directory": str(tmp_path / "nowhere")})
    assert executor.evaluate(nowhere).status == "PASSED"


def test_importing_the_seam_imports_no_torch():
    code = (
        "import sys, pytest_fib, pytest_fib.executors\n"
        "pytest_fib.EvaluationRequest, pytest_fib.evaluate\n"
        "print({'torch', 'hypothesis'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
