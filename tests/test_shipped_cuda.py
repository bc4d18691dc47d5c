"""What shipped CUDA kernels do without a device: say what they can't work on."""

from pathlib import Path

import pytest
import torch

from pytest_fib.build import Hardware, build, load, program_of, why_not_buildable
from pytest_fib.discovery import Implementation
from pytest_fib.sandbox import bind
from pytest_fib.workloads import empty_tensor, layouts, make_inputs, make_workload
from tests.mutants.compiled import DECODE, FUSED, GEMV, RMSNORM, SCALE

H200 = Hardware("cuda", (9, 0), "NVIDIA H200")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "shipped", [RMSNORM, FUSED, SCALE, DECODE, GEMV], ids=lambda s: s.definition
)
def test_tensors_on_the_cpu_are_refused(shipped, tmp_path):
    implementation = Implementation("any", "any", Path("any.cu"), 1, language="cuda")
    if reason := why_not_buildable(implementation):
        pytest.skip(reason)
    definition = shipped.of()
    program = program_of(shipped.solution(), definition, None, H200)
    function = load(program, tmp_path / build(program, tmp_path).file)
    workload = make_workload(definition, dict(shipped.axes), seed=1)
    inputs = make_inputs(definition, workload, "cpu")
    places = layouts(definition, workload)
    outputs = [torch.zeros_like(empty_tensor(places[name], "cpu")) for name in definition.outputs]
    with pytest.raises(ValueError, match="not on a CUDA device"):
        bind(function, program.calling, list(inputs.values()), outputs)()
