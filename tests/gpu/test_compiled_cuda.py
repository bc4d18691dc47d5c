"""CUDA kernels on a device: the shipped ones are right, wrong ones and cheats are caught."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fib.build import why_not_buildable
from pytest_fib.data import EvaluationRequest, load_definition_file
from pytest_fib.discovery import Implementation, find_implementations
from pytest_fib.workloads import make_workload

ROOT = Path(__file__).parents[2]
RMSNORM = ROOT / "kernel_impls/rmsnorm/rmsnorm_d4096/cuda_row.cu"
LAUNCH = "rmsnorm<<<x.size(0), kThreads, 0, stream>>>"

#: A fake of what events are read with, which claims that hardly any time has passed.
FAKE = """
static cudaError_t fake(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 1e-6f; return cudaSuccess; }
"""
#: What a wrong kernel has in place of a part of the right one.
MUTANTS = {
    "without a barrier": ("  __syncthreads();\n", ""),
    "one read too far": ("values[i] = x[row + at];", "values[i] = x[row + at + 1];"),
    "a cache on the host": (
        LAUNCH,
        "static const void* seen = nullptr; if (seen == from) return; seen = from;\n" + LAUNCH,
    ),
}
CHEATS = {
    "a stream of its own": (
        LAUNCH,
        "static cudaStream_t own = [] { cudaStream_t s;"
        "cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); return s; }();\n"
        + LAUNCH.replace("stream>", "own>"),
    ),
    "a constructor that patches libcudart": (
        "namespace {\n",
        "#include <cstring>\n#include <dlfcn.h>\n#include <sys/mman.h>\n"
        + FAKE
        + """
__attribute__((constructor)) static void patch() {
  for (const char* library : {"libcudart.so.12", "libcudart.so.13"})
    if (void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      if (auto* code = static_cast<unsigned char*>(dlsym(handle, "cudaEventElapsedTime"))) {
        auto page = reinterpret_cast<uintptr_t>(code) & ~uintptr_t{4095};
        mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
        const unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
        auto* target = &fake;
        std::memcpy(code, jump, sizeof jump);
        std::memcpy(code + 2, &target, sizeof target);
      }
}
namespace {
""",
    ),
    "symbols that take the place of libcudart's": (
        "namespace {\n",
        "#include <dlfcn.h>\n"
        + FAKE
        + """
extern "C" __attribute__((visibility("default"))) int cuEventElapsedTime_v2(
    float* ms, void*, void*) { *ms = 1e-6f; return 0; }
__attribute__((constructor)) static void spread() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&fake), &info)) dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL);
}
namespace {
""",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def nvcc(device):
    implementation = Implementation("any", "any", RMSNORM, 1, language="cuda")
    if reason := why_not_buildable(implementation):
        pytest.skip(reason)


@pytest.fixture
def evaluate_cuda(judge):
    """The evaluation of a CUDA implementation, with a part of its source replaced."""

    def evaluate_cuda(implementation, name, axes, replacement=("", ""), **settings):
        folder = ROOT / "kernel_defs"
        files = folder.rglob(f"{name.rpartition('_')[0]}*.yaml")
        loaded = [each for file in files for each in load_definition_file(file)]
        definition = next(each.definition for each in loaded if each.definition.name == name)
        solution = implementation.solution(name)
        if replacement[0]:
            (source,) = solution.sources
            assert replacement[0] in source.content
            changed = source.model_copy(update={"content": source.content.replace(*replacement, 1)})
            solution = solution.model_copy(update={"sources": [changed]})
        workload = make_workload(definition, axes, seed=1)
        return judge.evaluate(
            EvaluationRequest(
                definition=definition, solution=solution, workload=workload, **settings
            )
        )

    return evaluate_cuda


def shipped(path):
    (found,) = (each for each in find_implementations([path.parent]) if each.path == path)
    return replace(found)


@pytest.mark.parametrize("batch", [1, 33])
@pytest.mark.parametrize("name", ["rmsnorm_d4096", "fused_add_rmsnorm_d4096"])
def test_normalisation_is_right(evaluate_cuda, name, batch):
    path = ROOT / f"kernel_impls/{name.removesuffix('_d4096')}/{name}/cuda_row.cu"
    evaluation = evaluate_cuda(shipped(path), name, {"batch": batch})
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.parametrize("n", [1, 1001, 65536])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_scaling_in_three_layers_is_right(evaluate_cuda, dtype, n):
    path = ROOT / "kernel_impls/scale/scale/cuda_layers/solution.yaml"
    evaluation = evaluate_cuda(shipped(path), f"scale_{dtype}", {"n": n})
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_is_caught(evaluate_cuda, name):
    evaluation = evaluate_cuda(
        shipped(RMSNORM), "rmsnorm_d4096", {"batch": 4096}, MUTANTS[name], repeat=4
    )
    assert evaluation.status in ("INCORRECT_NUMERICAL", "RUNTIME_ERROR"), evaluation.log


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_gains_no_time(evaluate_cuda, name):
    subject = shipped(RMSNORM), "rmsnorm_d4096", {"batch": 1024}
    honest = evaluate_cuda(*subject, timing=True)
    assert honest.status == "PASSED", honest.log
    cheat = evaluate_cuda(*subject, CHEATS[name], timing=True)
    refused = cheat.status != "PASSED"
    assert refused or cheat.latency_ms > 0.8 * honest.latency_ms, cheat.log
