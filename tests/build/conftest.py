"""Small C++ programs. They include one header of C's, which takes no time to compile."""

import shutil

import pytest

from pytest_fib.build import Compilation, Program, why_not_buildable
from pytest_fib.discovery import Implementation

#: y = 2 * x, as TVM FFI calls functions.
DOUBLE = """\
#include <tvm/ffi/c_api.h>
#include "factor.h"

extern "C" int __tvm_ffi_run(void*, const TVMFFIAny* arguments, int32_t, TVMFFIAny*) {
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(arguments[0].v_obj);
  const DLTensor* y = TVMFFITensorGetDLTensorPtr(arguments[1].v_obj);
  for (int64_t i = 0; i < x->shape[0]; ++i)
    static_cast<float*>(y->data)[i] = FACTOR * static_cast<const float*>(x->data)[i];
  return 0;
}
"""


@pytest.fixture(scope="session")
def double():
    """A program of two files that doubles a vector, where it can be compiled."""
    pytest.importorskip("tvm_ffi")
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    sources = (("double.cpp", DOUBLE), ("factor.h", "#define FACTOR 2\n"))
    compilation = Compilation("cpu")
    return Program(
        "double", "cpp", "double.cpp", "run", "destination", ("y",), sources, None, compilation
    )


@pytest.fixture
def traced_program(tmp_path):
    """Programs of one file in a language whose functions are compiled, where that can be."""

    def program(language, text, calling="destination", parameters=()):
        implementation = Implementation("any", "any", tmp_path, 1, language=language)
        if reason := why_not_buildable(implementation):
            pytest.skip(reason)
        sources = (("double.py", text),)
        compilation = Compilation("sm_90a", parameters=parameters)
        return Program(
            "double", language, "double.py", "run", calling, ("y",), sources, None, compilation
        )

    return program
