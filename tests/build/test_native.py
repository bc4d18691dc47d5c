"""C++ and CUDA programs are compiled, loaded and called; what compilers say is read."""

import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_fib.build import BuildError, KernelResources, build, load, why_not_callable

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


@pytest.mark.parametrize("flag", [None, "-I", "-isystem"])
def test_headers_of_other_folders_are_known_with_what_they_held(double, tmp_path, flag):
    library, folder = tmp_path / "library", tmp_path / "build"
    library.mkdir()
    folder.mkdir()
    (library / "factor.h").write_text("#define FACTOR 3\n")
    how = {"cflags": (flag, str(library))} if flag else {"include_paths": (str(library),)}
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


@pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").exists(), reason="no headers of Python"
)
def test_what_an_extension_has_in_place_of_its_entry_is_named(double, tmp_path):
    compilation = replace(double.compilation, binding="torch")
    program = replace(double, sources=(("double.cpp", EXTENSION),), compilation=compilation)
    with pytest.raises(BuildError, match=r"no function 'go', but 'run': one of them may be"):
        loaded(replace(program, entry_symbol="go"), tmp_path)


def test_an_entry_that_is_not_exported_is_an_error(double, tmp_path):
    with pytest.raises(BuildError, match=r"double\.cpp exports no function 'go'"):
        loaded(replace(double, entry_symbol="go"), tmp_path)


def test_what_is_exported_is_known_once_it_is_built(double, tmp_path):
    built = build(double, tmp_path)
    assert built.exports == ("run",)
    assert why_not_callable(double, built) is None
    assert why_not_callable(replace(double, entry_symbol="go"), built) == (
        "double.cpp exports no function 'go', but 'run': one of them may be the entry"
    )
    assert why_not_callable(double, replace(built, exports=())) == (
        "double.cpp exports no function 'run': end it with "
        "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, <a function>);"
    )
    torch = replace(double, compilation=replace(double.compilation, binding="torch"))
    assert why_not_callable(torch, replace(built, exports=("fib_extension",))) is None
    assert why_not_callable(torch, replace(built, exports=("mine",))) == (
        "the extension has another name: write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"
    )


def test_a_header_that_is_not_among_the_sources_is_said_to_be_there(double, tmp_path):
    project, folder = tmp_path / "kernels/mine", tmp_path / "build"
    folder.mkdir()
    project.mkdir(parents=True)
    (project / "factor.h").touch()
    (tmp_path / "kernels/up.h").touch()
    program = replace(double, sources=double.sources[:1], directory=str(project))
    with pytest.raises(BuildError, match=r"; factor\.h is there, but not among the sources$"):
        build(program, folder)
    text = double.sources[0][1].replace("factor.h", "../up.h")
    with pytest.raises(BuildError, match="; it is outside of the folder that is compiled: have "):
        build(replace(program, sources=(("double.cpp", text),)), folder)
    text = text.replace("../up.h", "torch/extension.h")
    with pytest.raises(BuildError, match=r"; a torch extension has the binding 'torch'$"):
        build(replace(program, sources=(("double.cpp", text),)), folder)


def test_a_static_library_is_known_with_what_it_held(double, tmp_path):
    (tmp_path / "other.c").write_text("int other() { return 0; }\n")
    for command in ("gcc -fPIC -c other.c -o other.o", "ar rcs libother.a other.o"):
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    folder = tmp_path / "build"
    folder.mkdir()
    text = double.sources[0][1].replace("return 0;", "return other();")
    sources = (("double.cpp", 'extern "C" int other();\n' + text), double.sources[1])
    compilation = replace(double.compilation, ld_flags=(f"-L{tmp_path}", "-lother"))
    built = build(replace(double, sources=sources, compilation=compilation), folder)
    assert str(tmp_path / "libother.a") in dict(built.headers)
    assert built.file == "program.so"


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
        "In file included from /usr/include/y.h:1,\n                 from kernel.cu:1:\n"
        "/usr/lib/x.h: In instantiation of 'f'\nkernel.cu:3:7:   required from here\n"
        "/usr/lib/x.h:9:1: error: no match\n",
        "kernel.cu:3: no match",
    ),
    (
        "kernel.cu(1): warning #177-D: never referenced\n\n/usr/lib/x.h(9): error: no instance\n"
        '          detected during instantiation of "f" at line 3 of kernel.cu\n',
        "kernel.cu:3: no instance",
    ),
    (
        "/usr/bin/ld: 1.o: in function `three(int)':\n"
        "x.cpp:(.text+0x10): multiple definition of `three(int)'; 0.o:y.cpp:(.text+0xb0): "
        "first defined here\ncollect2: error: ld returned 1 exit status\n",
        "kernel.cu:3: multiple definition of `three(int)'",
    ),
    (
        "g++: internal compiler error: File size limit exceeded signal terminated program as\n"
        "Please submit a full bug report.\n",
        "kernel.cu: g++: internal compiler error: "
        "File size limit exceeded signal terminated program as",
    ),
    (
        "nvlink error   : Undefined reference to '_Z5threei' in '0.o'\n"
        "nvlink fatal   : merge_elf failed\n",
        "kernel.cu:3: Undefined reference to 'three' in '0.o'",
    ),
    (
        "ptxas error   : Entry function 'k' uses too much shared data (0x20000 bytes)\n",
        "kernel.cu: Entry function 'k' uses too much shared data (0x20000 bytes)",
    ),
    (
        "ptxas error   : File uses too much global constant data (0x13880 bytes, 0x10000 max)\n",
        "kernel.cu: File uses too much global constant data (0x13880 bytes, 0x10000 max)",
    ),
    (
        "ptxas error   : Entry function '_ZN3abc5threeEPf' uses too much shared data\n",
        "kernel.cu:3: Entry function 'abc::three' uses too much shared data",
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


def test_device_code_is_linked_for_the_target_too(pretended, tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    program = pretended("", 0)
    calls = f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n: > program.so\n'
    (tmp_path / "bin/nvcc").write_text(calls)
    build(program, folder)
    _compiling, linking = (tmp_path / "calls").read_text().splitlines()
    assert " -shared " in linking
    assert "-gencode=arch=compute_90a,code=sm_90a" in linking


def test_an_error_after_many_warnings_is_found_and_kept(pretended, tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    warnings = "kernel.cu(1): warning #177-D: never referenced\n" * 10_000
    with pytest.raises(BuildError, match=r"^kernel\.cu:2: no$") as caught:
        build(pretended(f"{warnings}kernel.cu(2): error: no\n", 1), folder)
    assert caught.value.log.endswith("kernel.cu(2): error: no\n")
    assert len(caught.value.log) < len(warnings)


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
        KernelResources("k", 32, 1024, 12),
        KernelResources("l", 8),
    )
