"""C++ and CUDA programs are compiled, loaded and called; what compilers say is read."""

import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_fib.build import BuildError, KernelResources, build, load

#: What PYBIND11_MODULE comes to, without the seconds that compiling torch's headers takes.
EXTENSION = """\
#include <Python.h>
#define JOINED(a, b) a##b
#define INIT(name) JOINED(PyInit_, name)

static PyObject* run(PyObject*, PyObject* x) { return PyNumber_Add(x, x); }
static PyMethodDef methods[] = {{"run", run, METH_O, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "doubled", nullptr, -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""


def loaded(program, folder):
    built = build(program, folder)
    return load(program, folder / built.file)


def test_a_program_of_two_files_is_compiled_and_called(double, tmp_path):
    x, y = torch.arange(4.0), torch.empty(4)
    loaded(double, tmp_path)(x, y)
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize("by_flag", [False, True])
def test_headers_of_other_folders_are_known_with_what_they_held(double, tmp_path, by_flag):
    library, folder = tmp_path / "library", tmp_path / "build"
    library.mkdir()
    folder.mkdir()
    (library / "factor.h").write_text("#define FACTOR 3\n")
    how = {"cflags": (f"-I{library}",)} if by_flag else {"include_paths": (str(library),)}
    compilation = replace(double.compilation, **how)
    built = build(replace(double, sources=double.sources[:1], compilation=compilation), folder)
    ((path, digest),) = built.headers
    assert Path(path) == library / "factor.h"
    assert len(digest) == 64


@pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").exists(), reason="no headers of Python"
)
def test_a_torch_extension_is_compiled_and_called(double, tmp_path):
    compilation = replace(double.compilation, binding="torch")
    sources = (("double.cpp", EXTENSION),)
    program = replace(double, sources=sources, compilation=compilation, calling="value")
    assert loaded(program, tmp_path)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_an_entry_that_is_not_exported_is_an_error(double, tmp_path):
    with pytest.raises(BuildError, match=r"double\.cpp exports no function 'go'"):
        loaded(replace(double, entry_symbol="go"), tmp_path)


def test_a_symbol_that_nobody_defines_is_an_error(double, tmp_path):
    text = double.sources[0][1].replace("return 0;", "return missing();")
    text = text.replace('#include "factor.h"', '#include "factor.h"\nint missing();')
    program = replace(double, sources=(("double.cpp", text), double.sources[1]))
    with pytest.raises(BuildError, match=r"^double\.cpp:3: undefined reference to `missing\(\)'"):
        build(program, tmp_path)


def test_the_first_error_is_at_a_line_of_the_source_with_that_line(double, tmp_path):
    wrong = double.sources[0][1].replace("FACTOR *", "FAKTOR *")
    program = replace(double, sources=(("parts/double.cpp", wrong), ("parts/factor.h", "")))
    with pytest.raises(BuildError, match=r"^parts/double\.cpp:8: 'FAKTOR' was not") as caught:
        build(program, tmp_path)
    line = (
        "    8 | static_cast<float*>(y->data)[i] = FAKTOR * static_cast<const float*>(x->data)[i];"
    )
    assert caught.value.log.startswith(f"{line}\n")
    assert str(tmp_path) not in caught.value.log


#: What compilers print, and where the first error is then said to be.
LOGS = [
    (
        'kernel.cu(2): error: identifier "x" is undefined\n',
        'kernel.cu:2: identifier "x" is undefined',
    ),
    ("kernel.cuh(1): error #20: no\nkernel.cu(2): error: later\n", "kernel.cuh:1: no"),
    (
        "/usr/lib/x.h(9): error: no instance\n          detected during:\n"
        '            instantiation of "f" at line 3 of kernel.cu\n',
        "kernel.cu:3: no instance",
    ),
    (
        "kernel.cu:3:7:   required from here\n/usr/lib/x.h:9:1: error: no match\n",
        "kernel.cu:3: no match",
    ),
    (
        "ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes)\n",
        "Entry function 'k' uses too much shared data (0x20000 bytes)",
    ),
    (
        "ptxas error   : Entry function '_ZN3abc5threeEPf' uses too much shared data\n",
        "kernel.cu:3: Entry function '_ZN3abc5threeEPf' uses too much shared data",
    ),
    (
        "ptxas kernel.ptx, line 27; error   : Instruction 'two' not supported\n",
        "kernel.cu:2: Instruction 'two' not supported",
    ),
    (
        "nvcc fatal   : Unsupported gpu architecture 'compute_10'\n",
        "nvcc fatal   : Unsupported gpu architecture 'compute_10'",
    ),
    ("", "/compiler ended with code 1"),
]


@pytest.fixture
def pretended(double, tmp_path, monkeypatch):
    """A CUDA program whose compiler prints some text, and succeeds or not."""

    def pretended(text, code):
        nvcc = tmp_path / "bin" / "nvcc"
        nvcc.parent.mkdir()
        (tmp_path / "log").write_text(text)
        end = f"exit {code}" if code else 'touch "program.so"'
        nvcc.write_text(f'#!/bin/sh\ncat "{tmp_path}/log"\n{end}\n')
        nvcc.chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        sources = (("kernel.cu", "one\ntwo\nthree ()\n"), ("kernel.cuh", "only\n"))
        compilation = replace(double.compilation, target="sm_90a")
        return replace(double, language="cuda", sources=sources, compilation=compilation)

    return pretended


@pytest.mark.parametrize(("log", "expected"), LOGS)
def test_every_compiler_is_understood(pretended, tmp_path, log, expected):
    folder = tmp_path / "build"
    folder.mkdir()
    with pytest.raises(BuildError) as caught:
        build(pretended(log, 1), folder)
    expected = expected.replace("/compiler", f"{tmp_path}/bin/nvcc")
    assert str(caught.value) == expected
    assert caught.value.log.endswith(log)


def test_what_kernels_take_is_read_from_ptxas(pretended, tmp_path):
    log = (
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1kPf\n"
        "    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
        "ptxas info    : Used 32 registers, used 1 barriers, 16 bytes stack, 1024 bytes smem\n"
        "ptxas info    : Compiling entry function '_Z1lPf' for 'sm_90a'\n"
        "ptxas info    : Used 8 registers\n"
    )
    folder = tmp_path / "build"
    folder.mkdir()
    built = build(pretended(log, 0), folder)
    assert built.kernels == (
        KernelResources("_Z1kPf", 32, 1024, 12),
        KernelResources("_Z1lPf", 8),
    )
