"""apply and tracing on CUDA: graphs, streams, torch.compile, shadow verification."""

import threading

import pytest
import torch

from pytest_fib import (
    Definition,
    Evaluation,
    Solution,
    Trace,
    TraceSet,
    TracingConfig,
    Workload,
    apply,
    disable_apply,
    disable_tracing,
    enable_apply,
    enable_tracing,
)
from pytest_fib.dispatch import stats

DEFINITION = Definition.model_validate(
    {
        "name": "scale_rows",
        "op_type": "elementwise",
        "axes": {"n": "var", "width": 64},
        "inputs": {
            "x": {"shape": ["n", "width"], "dtype": "float32"},
            "factor": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["n", "width"], "dtype": "float32"}},
        "reference": "def run(x, factor):\n    return x * factor\n",
    }
)
TRITON = """\
import torch
import triton
import triton.language as tl

@triton.jit
def _scale(x, y, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)

def run(x, factor):
    y = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 1024),)](x, y, factor, x.numel(), BLOCK=1024)
    return y
"""
WRONG = "def run(x, factor):\n    return x * factor + 1\n"


def trace_set(*sources):
    made = TraceSet([DEFINITION])
    for number, source in enumerate(sources):
        spec = {
            "language": "triton" if "triton" in source else "python",
            "target_hardware": ["cuda"],
            "entry_point": "main.py::run",
            "destination_passing_style": False,
        }
        facts = {"name": f"kernel_{number}", "definition": "scale_rows", "author": "tests"}
        files = [{"path": "main.py", "content": source}]
        made.add_solution(Solution.model_validate({**facts, "spec": spec, "sources": files}))
        evaluation = {"status": "PASSED", "hardware": torch.cuda.get_device_name()}
        evaluation |= {"latency_ms": 1.0 + number, "max_relative_error": 0.0}
        made.add_trace(
            Trace(
                definition="scale_rows",
                workload=Workload(axes={"n": 8}),
                solution=f"kernel_{number}",
                evaluation=Evaluation.model_validate({**evaluation, "speedup_factor": 1.0}),
            )
        )
    return made


@apply("scale_rows")
def scale(x, factor):
    return x * factor


@pytest.fixture(autouse=True)
def disabled():
    yield
    disable_apply()
    disable_tracing()


def rows(n=8):
    return torch.rand(n, 64, device="cuda")


def test_a_kernel_in_triton_serves_this_device():
    x = rows()
    with enable_apply(trace_set(TRITON)):
        assert torch.equal(scale(x, 3.0), x * 3.0)
        assert stats()["scale_rows"].solutions == {"kernel_0": 1}


def test_a_first_call_in_a_capture_goes_to_the_fallback_and_later_ones_are_captured():
    x = rows()
    with enable_apply(trace_set(TRITON)):
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first):
            by_fallback = scale(x, 3.0)
        assert stats()["scale_rows"].fallbacks == {"capturing": 1}
        scale(x, 3.0)
        with torch.cuda.graph(second):
            by_kernel = scale(x, 3.0)
        assert stats()["scale_rows"].hits == 2
        x.fill_(2.0)
        first.replay()
        second.replay()
        torch.cuda.synchronize()
    assert torch.equal(by_fallback, x * 3.0)
    assert torch.equal(by_kernel, x * 3.0)


def test_threads_have_streams_of_their_own():
    wrong = []

    def serve():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                x = rows()
                if not torch.equal(scale(x, 3.0), x * 3.0):
                    wrong.append(x)

    with enable_apply(trace_set(TRITON)):
        scale(rows(), 3.0)
        threads = [threading.Thread(target=serve) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stats()["scale_rows"].hits == 201
    assert wrong == []


def test_shadow_calls_find_what_is_wrong():
    x = rows()
    with enable_apply(trace_set(WRONG, TRITON), shadow=1.0) as applied:
        for _ in range(40):
            scale(x, 3.0)
            applied.verify_pending()
        counted = stats()["scale_rows"]
        assert torch.equal(scale(x, 3.0), x * 3.0)
    assert "differs from the fallback" in counted.errors["kernel_0"]
    assert counted.mismatches == 1


def test_compiled_graphs_hold_an_opaque_operator():
    @torch.compile(fullgraph=True)
    def model(x):
        return scale(x, 3.0).relu() + 1

    x = rows()
    with enable_apply(trace_set(TRITON)), torch.no_grad():
        assert torch.equal(model(x), x * 3.0 + 1)
        assert stats()["scale_rows"].hits == 1


def test_calls_are_recorded_as_they_were_and_captures_by_their_sizes(tmp_path):
    TraceSet([DEFINITION]).to_path(tmp_path)
    x, graph = rows(), torch.cuda.CUDAGraph()
    config = TracingConfig(tensor_dump_policy="dump_all")
    with enable_tracing(tmp_path, {"scale_rows": config}) as tracer:
        scale(x, 3.0)
        first = x.clone()
        x.zero_()
        captured = rows(16)
        with torch.cuda.graph(graph):
            scale(captured, 3.0)
    assert (tracer.stats.recorded, tracer.stats.failed) == (2, 0)
    from safetensors.torch import load_file

    by_size = {
        trace.workload.axes["n"]: trace.workload
        for trace in TraceSet.from_path(tmp_path).workloads["scale_rows"]
    }
    stored = load_file(tmp_path / by_size[8].inputs["x"].path)["x"]
    assert torch.equal(stored, first.cpu())
    assert by_size[16].inputs["x"].type == "random"
