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
    compiled.run(*options).assert_outcomes(passed=1)
    (entry,) = (compiled.path / "builds").glob("*.artifact")
    entry.write_text("broken")
    compiled.run(*options, "--fib-cache-clear").assert_outcomes(passed=1)
    assert entry.read_bytes() != b"broken"


def test_a_compile_error_is_shown_with_its_line(compiled):
    compiled.write("kernel_impls/toy/loop.h", LOOP.replace("x[i]", "z[i]"))
    result = compiled.run("--fib-implementation=loops", "--fib-cache-dir=builds")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "COMPILE_ERROR: loop.h:2: 'z' was not declared in this scope*",
            "*2 | for (long i = 0; i < n; ++i) y?i? = factor * z?i?;",
        ]
    )


def test_without_a_compiler_it_is_a_skip_that_says_what_to_install(compiled, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = compiled.run("--fib-implementation=loops", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs a C++ compiler; there is no no-such-compiler on PATH"])


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
    compiled.run("--fib-implementation=layers", "--fib-cache-dir=builds").assert_outcomes(passed=1)
