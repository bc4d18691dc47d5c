"""apply loads what was built ahead of time, on machines without a compiler."""

import shutil

import pytest
import torch

from pytest_fib import TraceSet, apply, enable_apply
from pytest_fib.build import (
    Artifact,
    Prebuilt,
    PrebuiltEntry,
    build,
    program_of,
    write_artifact,
    write_manifest,
)
from pytest_fib.data import Definition, Evaluation, Solution, Trace, Workload

DEFINITION = Definition.model_validate(
    {
        "name": "doubled",
        "op_type": "elementwise",
        "axes": {"n": "var"},
        "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
        "reference": "def run(x):\n    return x + x\n",
    }
)


@pytest.fixture
def prebuilt(double, tmp_path, monkeypatch):
    """A trace set whose best solution is in C++, and was built; no compiler is here any more."""
    sources = [{"path": path, "content": text} for path, text in double.sources]
    spec = {"language": "cpp", "target_hardware": ["cpu"], "entry_point": "double.cpp::run"}
    solution = Solution.model_validate(
        {"name": "d", "definition": "doubled", "author": "a", "spec": spec, "sources": sources}
    )
    program = program_of(solution, DEFINITION, None)
    (tmp_path / "build").mkdir()
    built = build(program, tmp_path / "build")
    artifact = Artifact((tmp_path / "build" / built.file).read_bytes(), built)
    digest = write_artifact(tmp_path, "d.so", artifact)
    named = "doubled", "d", "cpp", "cpu", "PASSED", ""
    write_manifest(tmp_path, [PrebuiltEntry(*named, "d.so", digest, Prebuilt.key(program))])
    monkeypatch.setenv("FIB_PREBUILT_PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    evaluation = Evaluation.model_validate(
        {"status": "PASSED", "hardware": "here", "latency_ms": 1.0, "speedup_factor": 2.0}
    )
    workload = Workload(axes={"n": 4})
    trace = Trace(definition="doubled", workload=workload, solution="d", evaluation=evaluation)
    return TraceSet([DEFINITION], [solution], traces=[trace])


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_library_that_was_built_elsewhere_serves_calls(prebuilt):
    @apply("doubled")
    def fallback(x):
        return x * 0

    with enable_apply(prebuilt, hardware="here"):
        assert fallback(torch.ones(4)).tolist() == [2.0] * 4
