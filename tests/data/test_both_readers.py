"""Records that pytest-fib's readers and FlashInfer's take, and those that one of both refuses.

Each is a good record with one change. What FlashInfer's leading reader says of it was found by
asking that (flashinfer-bench 0.1.2), and is held against the copy of its rules in these tests.
"""

import copy
import json

import pytest
from pydantic import ValidationError

from pytest_fib.data import Definition, Solution, Trace, TraceSet
from tests.data.flashinfer_dataset import (
    TheirDefinition,
    TheirSolution,
    TheirTrace,
    read_as_flashinfer,
)

LEFT_OUT = object()
RECORDS = {
    "definition": {
        "name": "d",
        "op_type": "o",
        "axes": {"n": {"type": "var"}, "w": {"type": "const", "value": 8}},
        "inputs": {
            "x": {"shape": ["n", "w"], "dtype": "float32"},
            "s": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["n", "w"], "dtype": "float32"}},
        "reference": "def run(x, s):\n    return x * s\n",
    },
    "solution": {
        "name": "s",
        "definition": "d",
        "author": "a",
        "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"},
        "sources": [{"path": "main.py", "content": "def run(x, s):\n    return x\n"}],
    },
    "trace": {
        "definition": "d",
        "workload": {
            "axes": {"n": 4},
            "inputs": {"x": {"type": "random"}, "s": {"type": "scalar", "value": 2.0}},
            "uuid": "u",
        },
        "solution": "s",
        "evaluation": {
            "status": "PASSED",
            "environment": {"hardware": "H", "libs": {}},
            "timestamp": "now",
            "log": "",
            "correctness": {"max_relative_error": 0.0, "max_absolute_error": 0.0},
            "performance": {"latency_ms": 1.0, "reference_latency_ms": 2.0, "speedup_factor": 2.0},
        },
    },
}
OURS = {"definition": Definition.from_elsewhere, "solution": Solution.from_elsewhere}
THEIRS = {"definition": TheirDefinition, "solution": TheirSolution, "trace": TheirTrace}

#: Taken by both: unknown keys, other tools' use of ours, and sizes, flags and types in other
#: forms among them.
TAKEN_BY_BOTH = [
    ("definition", "axes/n", {}),
    ("definition", "axes/n", {"description": "d"}),
    ("definition", "axes/w", {"value": 8}),
    ("definition", "axes/w/value", "8"),
    ("definition", "axes/w/value", 8.0),
    ("definition", "axes/w/value", True),
    ("definition", "axes/w/value", 0),
    ("definition", "description", ""),
    ("definition", "workloads", {"anything": 1}),
    ("definition", "tolerances", {"other": 1}),
    ("definition", "nondeterministic", "often"),
    ("definition", "extra", 1),
    ("definition", "outputs", {}),
    ("definition", "inputs/x/shape", []),
    ("definition", "inputs/x/description", None),
    ("definition", "inputs/s/optional", True),
    ("solution", "spec/target_hardware", [""]),
    ("solution", "spec/destination_passing_style", 1),
    ("solution", "spec/destination_passing_style", "true"),
    ("solution", "spec/calling", "tuple"),
    ("solution", "spec/calling", "odd"),
    ("solution", "spec/binding", "torch"),
    ("solution", "spec/binding", None),
    ("solution", "spec/extra", 1),
    ("solution", "description", None),
    ("solution", "spec/supported_major_versions", [9]),
    ("solution", "spec/compile_options", "O3"),
    ("trace", "workload/inputs/x", {}),
    ("trace", "workload/inputs/s", {"value": 2.0}),
    ("trace", "workload/inputs/x", {"path": "p", "tensor_key": "k"}),
    ("trace", "workload/inputs/s/value", "3"),
    ("trace", "workload/inputs/s/value", True),
    ("trace", "workload/axes/n", "4"),
    ("trace", "workload/axes/n", 4.0),
    ("trace", "workload/axes/n", True),
    ("trace", "workload/axes/n", 0),
    ("trace", "workload/seed", None),
    ("trace", "workload/seed", "x"),
    ("trace", "workload/regime", None),
    ("trace", "workload/regime", "odd"),
    ("trace", "workload/regime", {"values": "odd"}),
    ("trace", "workload/extra", 1),
    ("trace", "workload/inputs/x/dtype", "float32"),
    ("trace", "workload/inputs/x", {"type": "safetensors", "path": "/abs", "tensor_key": "k"}),
    ("trace", "workload/inputs/x", {"type": "safetensors", "path": "../up", "tensor_key": "k"}),
    ("trace", "solution", None),
    ("trace", "evaluation", None),
    ("trace", "solution", ""),
    ("trace", "evaluation/correctness", {}),
    ("trace", "evaluation/performance", {}),
    ("trace", "evaluation/environment/libs", LEFT_OUT),
    ("trace", "evaluation/log", LEFT_OUT),
    ("trace", "evaluation/correctness/max_relative_error", "NaN"),
    ("trace", "evaluation/correctness/max_relative_error", "Infinity"),
    ("trace", "evaluation/correctness/extra", {"a": 1}),
    ("trace", "evaluation/performance/latency_ms", "Infinity"),
    ("trace", "evaluation/performance/latency_ms", "1.5"),
    ("trace", "evaluation/diagnosis", "odd"),
    ("trace", "evaluation/extra", 1),
]
#: Taken by us alone; no export has them where FlashInfer's tools look.
TAKEN_BY_US = [
    ("definition", "inputs/x/dtype", "uint8"),
    ("definition", "inputs/x/dtype", "float64"),
    ("definition", "constraints", ["  n > 0"]),
    ("solution", "spec/language", "cutedsl"),
    ("solution", "spec/entry_point", "./main.py::run"),
    ("solution", "sources/0/content", ""),
    ("trace", "workload/uuid", LEFT_OUT),
    ("trace", "workload/uuid", ""),
    ("trace", "evaluation/performance", None),
    ("trace", "evaluation/correctness", None),
    ("trace", "evaluation/environment", LEFT_OUT),
    ("trace", "evaluation/environment/hardware", ""),
    ("trace", "evaluation/timestamp", ""),
    ("trace", "evaluation/timestamp", LEFT_OUT),
    ("trace", "evaluation/correctness/max_relative_error", -1.0),
    ("trace", "evaluation/correctness/max_relative_error", None),
    ("trace", "evaluation/correctness/max_relative_error", "-Infinity"),
    ("trace", "evaluation/performance/latency_ms", -1.0),
    ("trace", "evaluation/performance/latency_ms", "NaN"),
    ("trace", "evaluation/performance/latency_ms", None),
]
#: Taken by them alone: names that are no node ids, nothing to compute from, and what can't be
#: installed or called.
TAKEN_BY_THEM = [
    ("definition", "inputs", {}),
    ("definition", "name", "a/b"),
    ("definition", "name", "a b"),
    ("solution", "spec/entry_point", "main.py::"),
    ("solution", "spec/dependencies", ["torch >="]),
]
#: Taken by neither.
TAKEN_BY_NEITHER = [
    ("definition", "axes/w/value", -1),
    ("definition", "axes/n/type", "vra"),
    ("definition", "inputs/x/dtype", "unknown"),
    ("definition", "inputs/x/shape", ["n", "zz"]),
    ("definition", "inputs/y", {"shape": ["n"], "dtype": "float32"}),
    ("definition", "tags", [""]),
    ("definition", "tags", None),
    ("definition", "constraints", ["n >"]),
    ("definition", "constraints", [""]),
    ("definition", "constraints", None),
    ("definition", "name", ""),
    ("definition", "op_type", ""),
    ("definition", "reference", "def go(x): pass"),
    ("definition", "reference", "def run(:"),
    ("definition", "reference", ""),
    ("definition", "reference", "class A:\n    def run(self): pass\n"),
    ("definition", "reference", "async def run(x, s): return x\n"),
    ("definition", "reference", "run = lambda x, s: x\n"),
    ("definition", "axes", {}),
    ("definition", "inputs/", {"shape": None, "dtype": "int32"}),
    ("solution", "spec/target_hardware", []),
    ("solution", "spec/destination_passing_style", "perhaps"),
    ("solution", "spec/language", "cutlass"),
    ("solution", "spec/language", "CUDA"),
    ("solution", "spec/entry_point", "main.py"),
    ("solution", "spec/entry_point", "main.py::a::b"),
    ("solution", "spec/entry_point", "other.py::run"),
    ("solution", "spec/dependencies", [""]),
    ("solution", "spec/dependencies", None),
    ("solution", "spec/binding", "odd"),
    ("solution", "sources/0/path", "/main.py"),
    ("solution", "sources/0/path", "../main.py"),
    ("solution", "sources", []),
    ("solution", "sources/0/path", ""),
    ("solution", "author", ""),
    ("solution", "name", ""),
    ("solution", "definition", ""),
    (
        "solution",
        "sources",
        [
            {"path": "main.py", "content": "def run(x): pass"},
            {"path": "main.py", "content": "def run(x): pass"},
        ],
    ),
    ("trace", "workload/inputs/s/value", None),
    ("trace", "workload/axes/n", 4.5),
    ("trace", "workload/axes/n", -1),
    ("trace", "workload/inputs/x/type", "odd"),
    ("trace", "workload/inputs/x", {"type": "safetensors", "path": "", "tensor_key": "k"}),
    ("trace", "definition", ""),
    ("trace", "evaluation/environment/libs", None),
    ("trace", "evaluation/environment/libs", {"a": 1}),
    ("trace", "evaluation/log", None),
    ("trace", "evaluation/status", "passed"),
    ("trace", "evaluation/status", "TIMEOUT"),
    ("trace", "evaluation/status", "INCORRECT_NUMERICAL"),
]


def changed(kind, path, value):
    """The good record of a kind with another value at a path."""
    record = copy.deepcopy(RECORDS[kind])
    at, (*way, last) = record, path.split("/")
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at[key]
    if value is LEFT_OUT:
        del at[last]
    else:
        at[last] = value
    return record


def ours(kind, record):
    """Whether pytest-fib reads it from a file of a dataset."""
    try:
        if kind == "trace":
            Trace.from_json(json.dumps(record))
        else:
            OURS[kind](record)
    except ValidationError:
        return False
    return True


def theirs(kind, record):
    """Whether FlashInfer's reader takes it, by the copy of its rules."""
    try:
        THEIRS[kind].model_validate_json(json.dumps(record))
    except (ValidationError, SyntaxError):
        return False
    return True


@pytest.mark.parametrize(
    ("cases", "by_us", "by_them"),
    [
        (TAKEN_BY_BOTH, True, True),
        (TAKEN_BY_US, True, False),
        (TAKEN_BY_THEM, False, True),
        (TAKEN_BY_NEITHER, False, False),
    ],
    ids=["both", "us", "them", "neither"],
)
def test_which_records_each_reader_takes(cases, by_us, by_them):
    other = [
        (*case, "us" if ours(case[0], record) is not by_us else "them")
        for case in cases
        for record in [changed(*case)]
        if (ours(case[0], record), theirs(case[0], record)) != (by_us, by_them)
    ]
    assert other == []


@pytest.mark.parametrize(("kind", "path", "value"), [*TAKEN_BY_BOTH, *TAKEN_BY_US])
def test_no_export_is_refused_and_none_loses_a_record(tmp_path, kind, path, value):
    records = RECORDS | {kind: changed(kind, path, value)}
    definition = Definition.from_elsewhere(records["definition"])
    solution = Solution.from_elsewhere(records["solution"])
    trace = Trace.from_json(json.dumps(records["trace"]))
    made = TraceSet([definition], [solution.model_copy(update={"definition": definition.name})])
    if trace.solution is None or trace.definition != definition.name:
        trace = trace.model_copy(update={"solution": solution.name, "definition": definition.name})
    made.add_trace(trace.model_copy(update={"solution": solution.name}))
    export = made.to_path(tmp_path)
    read_as_flashinfer(tmp_path)
    assert export.written == 3
    assert len(TraceSet.from_path(tmp_path)) == 1
