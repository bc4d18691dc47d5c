"""``python -m pytest_fib build``: a folder for machines that have no compiler."""

import json
import shutil

import pytest

from pytest_fib.commands import main

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

LOOP = """\
// implements: scale
#include <tvm/ffi/c_api.h>
extern "C" int __tvm_ffi_run(void*, const TVMFFIAny* arguments, int32_t, TVMFFIAny*) {
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(arguments[0].v_obj);
  const DLTensor* y = TVMFFITensorGetDLTensorPtr(arguments[2].v_obj);
  for (long i = 0; i < x->shape[0]; ++i)
    ((float*)y->data)[i] = arguments[1].v_float64 * ((const float*)x->data)[i];
  return 0;
}
"""


@pytest.fixture
def project(scale, monkeypatch):
    """A project with an implementation in C++, the working directory."""
    pytest.importorskip("tvm_ffi")
    scale.write("kernel_impls/toy/loop.cpp", LOOP)
    monkeypatch.chdir(scale.path)
    return scale


def test_what_was_built_runs_where_no_compiler_is(project, capsys, monkeypatch):
    assert main(["build", "--definition", "sca*", "--out", "out"]) == 0
    assert capsys.readouterr().out == "out: 1 built, 0 failed, 0 skipped\n"
    monkeypatch.setenv("CXX", "no-such-compiler")
    chosen = "--fib-implementation=loop", "-k", "correctness"
    project.run(*chosen).assert_outcomes(skipped=1)
    project.run(*chosen, "--fib-prebuilt=out").assert_outcomes(passed=1)
    (library,) = (project.path / "out").glob("*.so")
    library.write_bytes(b"other")
    result = project.run(*chosen, "--fib-prebuilt=out")
    result.stdout.fnmatch_lines(["COMPILE_ERROR: its library in *out was changed since it was *"])


def test_what_fails_is_told_and_the_rest_is_built(project, capsys):
    project.write("kernel_impls/toy/wrong.cpp", LOOP.replace("return 0", "return no"))
    assert main(["build", "--out", "out"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "COMPILE_ERROR scale[wrong] for cpu: wrong.cpp:8: 'no' was not declared in this scope",
        "    8 | return no;",
        "out: 1 built, 1 failed, 0 skipped",
    ]
    builds = json.loads((project.path / "out/manifest.json").read_text())["builds"]
    assert [(each["implementation"], each["status"]) for each in builds] == [
        ("loop", "PASSED"),
        ("wrong", "COMPILE_ERROR"),
    ]
    assert (project.path / "out" / builds[0]["file"]).exists()
    assert "wrong.cpp:8:10: error: 'no' was not declared" in builds[1]["log"]


def test_what_cannot_be_read_fails_and_is_told(project, capsys):
    project.write("kernel_impls/toy/wrong.cpp", LOOP.replace("\n#", "\n// target: sm_9x\n#", 1))
    assert main(["build", "--out", "out"]) == 1
    path = "kernel_impls/toy/wrong.cpp"
    assert capsys.readouterr().out.splitlines() == [
        f"COMPILE_ERROR scale[wrong]: {path}:1: // target: 'sm_9x' is not an architecture, such "
        "as sm_90 or sm_90a",
        "out: 1 built, 1 failed, 0 skipped",
    ]


def test_what_is_for_other_targets_is_told(project, capsys):
    project.write("kernel_impls/toy/hopper.cu", "// implements: scale\n// target: sm_90\n")
    assert main(["build", "--target", "sm_80", "--out", "out"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "SKIPPED scale[hopper]: targets sm_90; this build is for sm_80",
        "out: 1 built, 0 failed, 1 skipped",
    ]
    chosen = "--implementation", "hopper", "--target", "sm_80"
    assert main(["build", *chosen, "--out", "none"]) == 2
    assert "scale[hopper]: targets sm_90; this build is for sm_80" in capsys.readouterr().err
    assert not (project.path / "none").exists()


def test_names_that_nothing_has_are_an_error(project, capsys):
    assert main(["build", "--implementation", "none", "--out", "out"]) == 2
    assert "nothing that is compiled has such a name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--jobs", "0"), "--jobs: 0 is not above 0"),
        (("--timeout", "-1"), "--timeout: -1 is not above 0"),
        (("--impls", "nowhere"), "--impls: there is no folder nowhere"),
    ],
)
def test_what_nothing_can_be_made_of_is_an_error(project, capsys, option, message):
    assert main(["build", *option, "--out", "out"]) == 2
    assert message in capsys.readouterr().err


def test_where_nothing_is_compiled_that_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["build", "--out", "out"]) == 2
    assert "nothing that is compiled (in CUDA, C++, Triton, " in capsys.readouterr().err


def test_a_folder_without_a_manifest_is_an_error(project):
    result = project.run("--fib-prebuilt=nowhere")
    result.stderr.fnmatch_lines(
        ["ERROR: --fib-prebuilt: there is no *nowhere/manifest.json: python -m*"]
    )
