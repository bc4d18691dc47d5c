"""Which values the tensors of timed calls have."""

import sys
from types import ModuleType

import pytest
import torch

from pytest_fib.data import BuildSpec, Definition, EvaluationRequest, Solution, SourceFile
from pytest_fib.engine import Judge
from pytest_fib.workloads import make_workload

#: Rows that sum to 1, and values that may be mixed one by one.
MIXED = {
    "name": "mixed",
    "op_type": "toy",
    "axes": {"n": "var", "width": 64},
    "inputs": {
        "rows": {"shape": ["n", "width"], "dtype": "float32"},
        "values": {"shape": ["n", "width"], "dtype": "float16"},
        "length": {"shape": ["n"], "dtype": "int32"},
    },
    "outputs": {"out": {"shape": ["n", "width"], "dtype": "float32"}},
    "reference": "def run(rows, values, length):\n    return rows + values + length[:, None]\n",
    "workloads": {
        "inputs": {"rows": {"kind": "probabilities"}, "length": {"kind": "integers", "max": 9}}
    },
}
#: Notes the inputs of all its calls.
NOTING = """\
import noted
def run(rows, values, length):
    noted.calls.append((rows.clone(), values.clone(), length.clone()))
    return rows + values + length[:, None]
"""


@pytest.fixture
def calls(monkeypatch):
    """The inputs of every call of one timed evaluation: rows, values, lengths."""
    noted = ModuleType("noted")
    noted.calls = []
    monkeypatch.setitem(sys.modules, "noted", noted)
    definition = Definition.model_validate(MIXED)
    request = EvaluationRequest(
        definition=definition,
        solution=Solution(
            name="noting",
            definition="mixed",
            author="tests",
            spec=BuildSpec(
                language="python", target_hardware=["cpu"], entry_point="k.py::run", calling="value"
            ),
            sources=[SourceFile(path="k.py", content=NOTING)],
        ),
        workload=make_workload(definition, {"n": 3}),
        timing=True,
        precision="quick",
    )
    with Judge("cpu", "none") as judge:
        evaluation = judge.evaluate(request)
    assert evaluation.status == "PASSED", evaluation.log
    assert len(noted.calls) > 200
    return noted.calls


def test_every_timed_call_has_values_of_its_own_for_as_much_work(calls):
    timed = calls[-150:]  # those before got ready
    rows, values, lengths = zip(*timed, strict=True)
    assert len({tensor.numpy().tobytes() for tensor in values}) == len(timed)
    assert all(tensor.isfinite().all() for tensor in values)
    # What hangs together is not mixed, and what decides about the work is always the same.
    assert all(torch.allclose(each.sum(1), torch.ones(3)) for each in rows)
    assert len({tensor.numpy().tobytes() for tensor in rows}) > 10
    assert len({tensor.numpy().tobytes() for tensor in lengths}) == 1
