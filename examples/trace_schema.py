"""The trace schema, end to end: a definition, solutions, workloads, a benchmark, its traces.

    python examples/trace_schema.py --batch-sizes 1,8,32,128

On a machine without a GPU the solutions in Triton and CUDA are left out; C++ needs a compiler and
`pip install 'pytest-fib[cuda]'`.
"""

import argparse
from pathlib import Path

from pytest_fib import Benchmark, TraceSet
from pytest_fib.data import (
    AxisConst,
    AxisVar,
    BuildSpec,
    Definition,
    RandomInput,
    Solution,
    SourceFile,
    SupportedLanguages,
    TensorSpec,
    Workload,
)

HIDDEN = 512

definition = Definition(
    name=f"rmsnorm_h{HIDDEN}",
    op_type="rmsnorm",
    description="Root mean square normalization of each row.",
    tags=["status:verified"],
    axes={"batch_size": AxisVar(), "hidden_size": AxisConst(value=HIDDEN)},
    inputs={
        "hidden_states": TensorSpec(shape=["batch_size", "hidden_size"], dtype="float32"),
        "weight": TensorSpec(shape=["hidden_size"], dtype="float32"),
    },
    outputs={"output": TensorSpec(shape=["batch_size", "hidden_size"], dtype="float32")},
    reference="""\
import torch

def run(hidden_states, weight):
    x = hidden_states.to(torch.float32)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
""",
)

PYTHON = """\
import torch

def run(hidden_states, weight):
    return torch.nn.functional.rms_norm(hidden_states, weight.shape, weight, 1e-6)
"""

TRITON = """\
import torch
import triton
import triton.language as tl

@triton.jit
def _rmsnorm(x, weight, output, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    values = tl.load(x + row * n + columns, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / n + 1e-6)
    gain = tl.load(weight + columns, mask=mask, other=0.0)
    tl.store(output + row * n + columns, values * scale * gain, mask=mask)

def run(hidden_states, weight):
    batch, n = hidden_states.shape
    output = torch.empty_like(hidden_states)
    _rmsnorm[(batch,)](hidden_states, weight, output, n, BLOCK=triton.next_power_of_2(n))
    return output
"""

CPP = """\
#include <cmath>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView output) {
  const int64_t rows = x.size(0), n = x.size(1);
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* gain = static_cast<const float*>(weight.data_ptr());
  float* out = static_cast<float*>(output.data_ptr());
  for (int64_t row = 0; row < rows; ++row, in += n, out += n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double(in[i]) * in[i];
    const float scale = float(1.0 / std::sqrt(sum / n + 1e-6));
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] * scale * gain[i];
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""

CUDA = """\
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

__global__ void rmsnorm(const float* x, const float* weight, float* output, int n) {
  const float* in = x + size_t(blockIdx.x) * n;
  float* out = output + size_t(blockIdx.x) * n;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum += in[i] * in[i];
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  const float scale = rsqrtf(sum / n + 1e-6f);
  for (int i = threadIdx.x; i < n; i += 32) out[i] = in[i] * scale * weight[i];
}

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView output) {
  DLDevice device = x.device();
  auto stream = static_cast<cudaStream_t>(
      TVMFFIEnvGetStream(device.device_type, device.device_id));
  rmsnorm<<<x.size(0), 32, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<const float*>(weight.data_ptr()),
      static_cast<float*>(output.data_ptr()), int(x.size(1)));
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""


def solution(name: str, language: str, file: str, content: str, hardware: list[str]) -> Solution:
    """A solution of one file; those in C++ and CUDA write into outputs that they are given."""
    return Solution(
        name=f"{name}_h{HIDDEN}",
        definition=definition.name,
        author="example",
        spec=BuildSpec(
            language=SupportedLanguages(language),
            target_hardware=hardware,
            entry_point=f"{file}::run",
            destination_passing_style=language in ("cpp", "cuda"),
        ),
        sources=[SourceFile(path=file, content=content)],
    )


solutions = [
    solution("torch", "python", "main.py", PYTHON, ["cpu", "cuda"]),
    solution("triton", "triton", "main.py", TRITON, ["cuda"]),
    solution("cpp", "cpp", "main.cpp", CPP, ["cpu"]),
    solution("cuda", "cuda", "main.cu", CUDA, ["cuda"]),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-sizes", default="1,8,32,128")
    parser.add_argument("--output", type=Path, default=Path("traces.json"))
    given = parser.parse_args()

    trace_set = TraceSet()
    trace_set.add_definition(definition)
    for each in solutions:
        trace_set.add_solution(each)
    for batch_size in map(int, given.batch_sizes.split(",")):
        inputs = {"hidden_states": RandomInput(), "weight": RandomInput()}
        workload = Workload(axes={"batch_size": batch_size}, inputs=inputs)
        trace_set.add_workload(definition, workload)

    axes = ", ".join(f"{name} ({axis.type})" for name, axis in definition.axes.items())
    print(f"definition {definition.name}: {axes}")
    for each in solutions:
        print(f"solution {each.name}: {each.spec.language.value}")

    benchmark = Benchmark(trace_set, precision="quick")
    for trace in benchmark.run_all():
        evaluation = trace.evaluation
        batch_size = trace.workload.axes["batch_size"]
        line = f"{trace.solution:14} batch_size={batch_size:<5} {evaluation.status.value}"
        if evaluation.latency_ms is not None:
            line += f"  {evaluation.latency_ms * 1e3:8.2f} µs  {evaluation.speedup_factor:.2f}x"
        print(line)
    for line in benchmark.skipped:
        print(f"skipped: {line}")

    trace_set.save(given.output)
    best = trace_set.best(definition.name)
    if best is not None:
        print(f"best: {best.solution}, {best.evaluation.speedup_factor:.2f}x the reference")
    print(f"{len(trace_set)} traces in {given.output}")


if __name__ == "__main__":
    main()
