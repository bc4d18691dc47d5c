"""Compiled implementations in a project, by pytest's command line."""

import shutil

import pytest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

SCALE = """\
// implements: scale
#include <tvm/ffi/c_api.h>
#include "loop.h"
extern "C" int __tvm_ffi_run(void*, const TVMFFIAny* arguments, int32_t, TVMFFIAny*) {
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(arguments[0].v_obj);
  const DLTensor* y = TVMFFITensorGetDLTensorPtr(arguments[2].v_obj);
  return loop(x->shape[0], (float*)x->data, (float*)y->data, arguments[1].v_float64);
}
"""
LOOP = """\
inline int loop(long n, const float* x, float* y, float factor) {
  for (long i = 0; i < n; ++i) y[i] = factor * x[i];
  return 0;
}
"""


@pytest.fixture
def compiled(scale):
    """A file beside the definition's implementations, and a header that it includes."""
    pytest.importorskip("tvm_ffi")
    scale.write("kernel_impls/toy/loops.cpp", SCALE)
    scale.write("kernel_impls/toy/loop.h", LOOP)
    return scale


def test_a_single_file_is_an_implementation_like_any_other(compiled):
    options = "--fib-implementation=loops", "--fib-cache-dir=builds", "-v"
    compiled.run(*options).assert_outcomes(passed=2)
    (trace,) = compiled.traces()
    assert trace["evaluation"]["compiled"]["binary_bytes"] > 1000
    (entry,) = (compiled.path / "builds").glob("*.artifact")
    entry.write_text("broken")
    compiled.run(*options, "--fib-cache-clear").assert_outcomes(passed=2)
    assert entry.read_bytes() != b"broken"


def test_a_compile_error_is_shown_with_its_line(compiled):
    compiled.write("kernel_impls/toy/loop.h", LOOP.replace("x[i]", "z[i]"))
    result = compiled.run("--fib-implementation=loops", "--fib-cache-dir=builds", "-rs")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "COMPILE_ERROR: loop.h:2: 'z' was not declared*",
            "*2 | for (long i = 0; i < n; ++i) y?i? = factor * z?i?;",
            "loops * cpu * COMPILE_ERROR  loop.h:2: 'z' was not declared*",
            "SKIPPED * does not compile: scale?loops-compile-cpu? failed",
        ]
    )
    (trace,) = compiled.traces()
    assert trace["evaluation"]["compiled"]["target"] == "cpu"
    assert "loop.h:2:48: error:" in trace["evaluation"]["log"]


def test_of_a_long_log_the_beginning_is_shown_and_all_is_recorded(compiled):
    compiled.write("kernel_impls/toy/loop.h", "".join(f"gone{i} x{i};\n" for i in range(200)))
    result = compiled.run("--fib-implementation=loops", "--fib-cache-dir=builds")
    result.stdout.fnmatch_lines(
        ["COMPILE_ERROR: loop.h:1: 'gone0' does not name a type", "... * more lines are in the *"]
    )
    result.stdout.no_fnmatch_line("*'gone199' does not name a type*")
    (trace,) = compiled.traces()
    assert "'gone199' does not name a type" in trace["evaluation"]["log"]


def test_without_its_compile_item_the_correctness_item_shows_the_error(compiled):
    compiled.write("kernel_impls/toy/loop.h", LOOP.replace("x[i]", "z[i]"))
    result = compiled.run("-k", "loops and correctness", "--fib-cache-dir=builds")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["COMPILE_ERROR: loop.h:2: 'z' was not declared in this scope*"])


def test_without_a_compiler_it_is_a_skip_that_says_what_to_install(compiled, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = compiled.run("--fib-implementation=loops", "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*needs a C++ compiler; there is no no-such-compiler on PATH*"])


def test_a_solution_folder_may_hold_three_layers(compiled):
    compiled.write(
        "kernel_impls/toy/layers/solution.yaml",
        """\
        name: layers
        definition: scale
        author: someone
        spec:
          language: cpp
          target_hardware: [cpu]
          entry_point: src/binding.cpp::run
          include_paths: [include]
          compile_options: {cflags: [-DUSE_LOOP]}
        sources: [src/binding.cpp, include/loop.h]
        """,
    )
    text = SCALE.replace("// implements: scale", "#ifdef USE_LOOP") + "#endif\n"
    compiled.write("kernel_impls/toy/layers/src/binding.cpp", text)
    compiled.write("kernel_impls/toy/layers/include/loop.h", LOOP)
    compiled.run("--fib-implementation=layers", "--fib-cache-dir=builds").assert_outcomes(passed=2)


#: What nvcc prints for a kernel of which some registers did not fit.
PTXAS = """\
ptxas info    : Compiling entry function 'scale_kernel' for 'sm_90a'
    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 2048 bytes smem
"""


@pytest.fixture
def cuda(compiled, monkeypatch):
    """A CUDA file, and a compiler that accepts it but for newer devices."""
    compiled.write("kernel_impls/toy/kernel.cu", "// implements: scale\n")
    nvcc = compiled.write(
        "cuda/bin/nvcc",
        """\
        #!/bin/sh
        case "$*" in *sm_100*) echo "nvcc fatal   : Unsupported gpu architecture"; exit 1;; esac
        cat "$PTXAS"
        echo binary > program.so
        """,
    )
    nvcc.chmod(0o755)
    monkeypatch.setenv("PTXAS", str(compiled.write("ptxas", PTXAS)))
    monkeypatch.setenv("CUDA_HOME", str(compiled.path / "cuda"))
    return compiled


def test_cuda_is_compiled_for_each_target_without_a_device(cuda):
    result = cuda.run("--fib-implementation=kernel", "--fib-cache-dir=builds")
    result.assert_outcomes(passed=2, skipped=2, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*FibWarning: scale?kernel-compile-sm_80?: scale_kernel spills 16 bytes of registers",
            "implementation *compiled for *status *registers *shared *spills *size",
            "kernel *sm_80 *PASSED *32 *2.05 kB *16 *7.00 B",
            "kernel *sm_90 *PASSED *32 *2.05 kB *16 *7.00 B",
            "kernel *sm_100 *SKIPPED *this nvcc does not support it",
        ]
    )


def test_targets_are_chosen_on_the_command_line_and_by_the_implementation(cuda):
    cuda.write("kernel_impls/toy/kernel.cu", "// implements: scale\n// target: sm_90\n")
    chosen = "-k", "compile and not loops"
    assert [line.rpartition("[")[2] for line in cuda.ids(*chosen)] == ["kernel-compile-sm_90]"]
    cuda.write("kernel_impls/toy/kernel.cu", "// implements: scale\n")
    ids = cuda.ids(*chosen, "--fib-target=sm_80", "--fib-target=sm_120")
    targets = [line.rpartition("-")[2] for line in ids]
    assert targets == ["sm_80]", "sm_120]"]
