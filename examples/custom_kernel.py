"""A kernel of one's own, from its definition to production.

    python examples/custom_kernel.py --batch-sizes 1,32

Defines fused_add_rmsnorm, implements it in PyTorch, Triton, CUDA and TileLang, saves all that in a
TraceSet, tests it, times it with an analysis of its memory traffic, and deploys what is fastest. On
a machine without a GPU, Triton is tested in its interpreter and PyTorch alone is timed.
"""

import argparse
import sys
from pathlib import Path

import pytest
import torch

from pytest_fib import Benchmark, TraceSet, apply, enable_apply
from pytest_fib.data import (
    AxisConst,
    AxisVar,
    BuildSpec,
    Definition,
    Solution,
    SourceFile,
    SupportedLanguages,
    TensorSpec,
    Workload,
)
from pytest_fib.dispatch import stats

HIDDEN = 1024
EPS = 1e-6

rows = TensorSpec(shape=["batch_size", "hidden_size"], dtype="float16")
definition = Definition(
    name=f"fused_add_rmsnorm_h{HIDDEN}",
    op_type="fused_add_rmsnorm",
    description="Adds the residual, then normalizes each row by its root mean square.",
    axes={"batch_size": AxisVar(), "hidden_size": AxisConst(value=HIDDEN)},
    inputs={
        "hidden_states": rows,
        "residual": rows,
        "weight": TensorSpec(shape=["hidden_size"], dtype="float16"),
    },
    outputs={"output": rows, "residual_out": rows},
    reference=f"""\
import torch

def run(hidden_states, residual, weight):
    total = hidden_states.to(torch.float32) + residual.to(torch.float32)
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + {EPS})
    output = total * scale * weight.to(torch.float32)
    return output.to(hidden_states.dtype), total.to(hidden_states.dtype)
""",
)

PYTORCH = f"""\
import torch

def run(hidden_states, residual, weight, output, residual_out):
    total = hidden_states.float().add_(residual)
    residual_out.copy_(total)
    total.mul_(torch.rsqrt(total.square().mean(-1, keepdim=True) + {EPS}))
    output.copy_(total.mul_(weight))
"""

TRITON = f"""\
import triton
import triton.language as tl

@triton.jit
def _kernel(x, residual, weight, output, residual_out, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * n + columns
    mask = columns < n
    total = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(residual_out + at, total.to(tl.float16), mask=mask)
    scale = tl.rsqrt(tl.sum(total * total, axis=0) / n + {EPS})
    gain = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(output + at, (total * scale * gain).to(tl.float16), mask=mask)

def run(hidden_states, residual, weight, output, residual_out):
    batch, n = hidden_states.shape
    _kernel[(batch,)](hidden_states, residual, weight, output, residual_out, n,
                      BLOCK=triton.next_power_of_2(n))
"""

CUDA = f"""\
#include <cuda_fp16.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

using tvm::ffi::TensorView;
constexpr int kThreads = 256, kEach = {HIDDEN} / kThreads;

__global__ void kernel(const __half* x, const __half* residual, const __half* weight,
                       __half* output, __half* residual_out) {{
  __shared__ float sums[kThreads / 32];
  const size_t row = size_t(blockIdx.x) * {HIDDEN};
  float total[kEach], sum = 0;
  for (int i = 0; i < kEach; ++i) {{
    const size_t at = row + i * kThreads + threadIdx.x;
    total[i] = __half2float(x[at]) + __half2float(residual[at]);
    residual_out[at] = __float2half(total[i]);
    sum += total[i] * total[i];
  }}
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < kThreads / 32; ++i) sum += sums[i];
  const float scale = rsqrtf(sum / {HIDDEN} + {EPS}f);
  for (int i = 0; i < kEach; ++i) {{
    const int column = i * kThreads + threadIdx.x;
    output[row + column] = __float2half(total[i] * scale * __half2float(weight[column]));
  }}
}}

void run(TensorView x, TensorView residual, TensorView weight, TensorView output,
         TensorView residual_out) {{
  auto half = [](TensorView& t) {{ return static_cast<__half*>(t.data_ptr()); }};
  DLDevice device = x.device();
  auto stream = static_cast<cudaStream_t>(
      TVMFFIEnvGetStream(device.device_type, device.device_id));
  kernel<<<x.size(0), kThreads, 0, stream>>>(half(x), half(residual), half(weight), half(output),
                                             half(residual_out));
}}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""

TILELANG = f"""\
import tilelang.language as T

batch = T.dynamic("batch")

@T.prim_func
def run(
    hidden_states: T.Tensor((batch, {HIDDEN}), "float16"),
    residual: T.Tensor((batch, {HIDDEN}), "float16"),
    weight: T.Tensor(({HIDDEN},), "float16"),
    output: T.Tensor((batch, {HIDDEN}), "float16"),
    residual_out: T.Tensor((batch, {HIDDEN}), "float16"),
):
    with T.Kernel(batch, threads=256) as row:
        total = T.alloc_fragment(({HIDDEN},), "float32")
        squares = T.alloc_fragment((1, {HIDDEN}), "float32")
        scale = T.alloc_fragment((1,), "float32")
        for i in T.Parallel({HIDDEN}):
            total[i] = T.cast(hidden_states[row, i], "float32")
            total[i] += T.cast(residual[row, i], "float32")
            squares[0, i] = total[i] * total[i]
            residual_out[row, i] = T.cast(total[i], "float16")
        T.reduce_sum(squares, scale, dim=1)
        scale[0] = T.rsqrt(scale[0] / {HIDDEN} + {EPS})
        for i in T.Parallel({HIDDEN}):
            output[row, i] = T.cast(total[i] * scale[0] * T.cast(weight[i], "float32"), "float16")
"""


def solution(name: str, language: str, file: str, content: str, hardware: list[str]) -> Solution:
    """A solution of one file that writes into outputs that it is given."""
    return Solution(
        name=f"{definition.name}_{name}",
        definition=definition.name,
        author="example",
        spec=BuildSpec(
            language=SupportedLanguages(language),
            target_hardware=hardware,
            entry_point=f"{file}::run",
            destination_passing_style=True,
        ),
        sources=[SourceFile(path=file, content=content)],
    )


solutions = [
    solution("pytorch", "python", "main.py", PYTORCH, ["cpu", "cuda"]),
    solution("triton", "triton", "main.py", TRITON, ["cuda"]),
    solution("cuda", "cuda", "main.cu", CUDA, ["cuda"]),
    solution("tilelang", "tilelang", "main.py", TILELANG, ["cuda"]),
]


# What serves calls until something is deployed, and whatever the kernels are not for.
@apply(definition.name)
def fused_add_rmsnorm(hidden_states, residual, weight):
    total = hidden_states.float() + residual.float()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS)
    return (total * scale * weight.float()).half(), total.half()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-sizes", default="1,32,256")
    parser.add_argument("--dataset", type=Path, default=Path("dataset"))
    given = parser.parse_args()

    # Register and save.
    trace_set = TraceSet()
    trace_set.add_definition(definition)
    for each in solutions:
        trace_set.add_solution(each)
    batch_sizes = [int(size) for size in given.batch_sizes.split(",")]
    for batch_size in batch_sizes:
        trace_set.add_workload(definition, Workload(axes={"batch_size": batch_size}))
    trace_set.to_path(given.dataset)

    # Test: each solution on workloads that pytest-fib draws.
    options = ["-q", "-p", "no:cacheprovider", "--fib-examples=5", f"--fib-dataset={given.dataset}"]
    if pytest.main([*options, "--fib-traces=tests.jsonl", "-k", "correctness"]) != 0:
        sys.exit("a kernel is wrong")

    # Time, and see what of it is memory traffic.
    benchmark = Benchmark(trace_set, precision="quick")
    print("solution    batch_size   latency  speed-up  one kernel moves  op by op     GB/s")
    for trace in benchmark.run_all():
        name = trace.solution.removeprefix(f"{definition.name}_")
        figures = trace.evaluation.performance
        if figures is None:
            print(f"{name:10}  {trace.evaluation.status.value}: {trace.evaluation.log}")
            continue
        moved = f"{figures.least_bytes / 1e3:13.1f} kB  {figures.separate_bytes / 1e3:5.0f} kB"
        print(
            f"{name:10}  {trace.workload.axes['batch_size']:10}  {figures.latency_ms * 1e3:5.1f} µs"
            f"  {figures.speedup_factor:7.2f}x  {moved}  {figures.gigabytes_per_second:7.2f}"
        )
    for line in benchmark.skipped:
        print(f"skipped: {line}")
    trace_set.to_path(given.dataset)

    # Deploy: calls go to what was fastest at their size.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, residual = torch.randn(2, batch_sizes[-1], HIDDEN, device=device).half()
    weight = torch.rand(HIDDEN, device=device).half()
    before, _ = fused_add_rmsnorm(x, residual, weight)
    with enable_apply(trace_set):
        after, _ = fused_add_rmsnorm(x, residual, weight)
        served = stats()[definition.name].solutions
    torch.testing.assert_close(after, before, rtol=2e-3, atol=2e-3)
    print(
        f"deployed: {', '.join(served) or 'nothing, the fallback serves'}; same results as before"
    )


if __name__ == "__main__":
    main()
