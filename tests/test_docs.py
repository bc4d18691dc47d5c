"""The examples of the docs are implementations and tests that pass, or at least compile."""

import re
import shutil
from pathlib import Path

import pytest

from pytest_fib.build import why_not_buildable
from pytest_fib.discovery import Implementation

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/languages.md"
_EXAMPLE = re.compile(r"```\w+\n(?:#|//) ([\w./]+)\n(.*?)```", re.DOTALL)
EXAMPLES = dict(_EXAMPLE.findall(PAGE.read_text(encoding="utf-8")))
DOUBLED = """\
name: doubled
op_type: elementwise
axes: {n: var}
inputs:
  x: {shape: [n], dtype: float32}
outputs:
  y: {shape: [n], dtype: float32}
reference: |
  def run(x):
      return x + x
workloads:
  axes: {n: {min: 1, max: 256}}
"""


@pytest.fixture
def documented(project):
    """A project with the definition and one example."""
    project.define(DOUBLED, "kernel_defs/toy/doubled.yaml")

    def documented(path):
        project.write(f"kernel_impls/toy/{path}", EXAMPLES[path])
        return project

    return documented


def test_there_is_an_example_of_each_language():
    assert {*EXAMPLES} == {
        "torch_add.py", "triton_block.py", "loop.cpp", "block.cu", "layers/solution.yaml",
        "tilelang_block.py", "cutedsl_block.py",
    }  # fmt: skip


def test_the_python_example_passes(documented):
    documented("torch_add.py").run().assert_outcomes(passed=1)


def test_the_triton_example_passes(documented):
    pytest.importorskip("triton")
    project = documented("triton_block.py")
    project.run("-k", "correctness").assert_outcomes(passed=1)


def test_the_cpp_example_passes(documented):
    pytest.importorskip("tvm_ffi")
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    documented("loop.cpp").run().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("language", "path"),
    [("cuda", "block.cu"), ("tilelang", "tilelang_block.py"), ("cutedsl", "cutedsl_block.py")],
)
def test_the_examples_for_gpus_compile(documented, language, path):
    if reason := why_not_buildable(Implementation("any", "any", Path(path), 1, language=language)):
        pytest.skip(reason)
    documented(path).run("--fib-target=sm_90", "-k", "compile").assert_outcomes(passed=1)


def test_the_example_of_a_folder_is_a_record(documented):
    project = documented("layers/solution.yaml")
    for name in ("src/binding.cu", "src/launcher.cuh", "include/double.cuh"):
        project.write(f"kernel_impls/toy/layers/{name}", "")
    ids = project.ids("--fib-target=sm_90")
    assert [line.rpartition("[")[2] for line in ids] == [
        "layers-compile-sm_90]",
        "layers-correctness]",
    ]


MYKERNELS = """\
import torch

def scale(x, factor):
    return (x.float() * factor).to(x.dtype)

def rmsnorm(x, weight, eps):
    wide = torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
    return wide.to(x.dtype)
"""


@pytest.mark.parametrize("page", ["README.md", "docs/hand-written-tests.md"])
def test_tests_written_by_hand_pass(project, page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    project.write("mykernels.py", MYKERNELS)
    tests = [block for block in blocks if "\ndef test_" in block]
    for number, block in enumerate(tests):
        project.write(f"test_block_{number}.py", block)
    result = project.run(f"--fib-defs={ROOT / 'kernel_defs'}", "-p", "no:randomly", ".")
    outcomes = result.parseoutcomes()
    assert tests
    assert set(outcomes) <= {"passed", "warnings"}
    assert outcomes["passed"] >= len(tests)
