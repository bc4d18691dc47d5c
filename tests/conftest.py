"""A small project of kernels, laid out in pytester's directory, and ways to run pytest there."""

import json
import os
import signal
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from textwrap import dedent
from unittest import mock

import pytest

from pytest_fib import engine, plugin, search, workloads
from pytest_fib.build import gpus
from pytest_fib.engine import start_fork_server
from pytest_fib.executors import LocalExecutor
from pytest_fib.sandbox import ForkServer
from tests.no_clock import timed_by_the_book

# Before torch is imported: see pytest_fib.sandbox.WAIT_POLICY.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# pytester forgets the modules that a run inside this process imported. torch can't be imported a
# second time, and what a test replaces in a module would be in another copy of it than the run's.
for room in (engine, plugin, search, workloads):
    for module in iter_modules(room.__path__, f"{room.__name__}."):
        import_module(module.name)

# The same of what compiles TileLang and CuTe DSL, where these are installed.
for compiler in ("tilelang", "cutlass"):
    if find_spec(compiler) is not None:
        import_module(compiler)

# Counting operations imports triton where torch is built for CUDA. Where there is no device, the
# kernels that tests call in this process are interpreted, and so must be triton's own functions.
with mock.patch.dict(os.environ, {} if gpus.count() else {"TRITON_INTERPRET": "1"}):
    import torch.utils.flop_counter  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]
# Processes that tests start import the package beside these tests, whatever else is installed.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

#: Seconds after which a run inside a test is taken to hang: on a busy machine one takes minutes.
HANGS = 600.0

# A definition with one var axis of up to 256 elements and a scalar.
SCALE = """\
name: scale
op_type: elementwise
axes:
  n: var
inputs:
  x:      {shape: [n], dtype: float32}
  factor: {shape: null, dtype: float32}
outputs:
  y: {shape: [n], dtype: float32}
reference: |
  def run(x, factor):
      return x * factor

workloads:
  axes:   {n: {min: 1, max: 256}}
  inputs: {factor: {value: 3.0}}
  bench:  [{n: 8}, {n: 64}]
"""

# Two outputs, and a const axis.
SPLIT = """\
name: split
op_type: elementwise
axes:
  n: var
  width: 4
inputs:
  x: {shape: [n, width], dtype: float16}
outputs:
  double:   {shape: [n, width], dtype: float16}
  negative: {shape: [n, width], dtype: float16}
reference: |
  def run(x):
      return x + x, -x

workloads:
  axes:  {n: {max: 64}}
  bench: [{n: 8}]
"""


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """What is measured of this machine in a test stays out of the user's cache.

    Tests' folders count as a cache of compilers, so that implementations may leave files there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.getbasetemp()))
        yield


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """What sandboxes of judges on the CPU come from: one of their own would import torch, for 2 s.

    Where a test kills it, the next judge that needs it starts another.
    """
    server = start_fork_server("cpu")
    yield server
    server.close()


class Project:
    """A tree of kernel definitions and implementations to run pytest on."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        # In this process, kernels cost milliseconds; what needs sandboxes asks for them.
        # Definitions by themselves have tests of their own.
        pytester.makeini(
            """\
            [pytest]
            addopts = --fib-examples=8 --fib-seed=0 --fib-isolation=none --fib-device=cpu
                -m 'not fib(kind="definition")'
            filterwarnings = default::pytest_fib.FibWarning
            """
        )

    def define(self, text: str, path: str = "kernel_defs/toy/scale.yaml") -> Path:
        """Write a definition file."""
        return self.write(path, text)

    def implement(self, name: str, body: str, definition: str = "scale", more: str = "") -> Path:
        """Write a module with one implementation whose ``run`` has these arguments and lines."""
        arguments, *lines = dedent(body).strip().splitlines()
        code = "\n".join(f"    {line}" for line in lines)
        text = f'@implements("{definition}"{more})\ndef run({arguments}):\n{code}\n'
        return self.write(
            f"kernel_impls/toy/{name}.py", f"from pytest_fib import implements\n\n{text}"
        )

    def write(self, path: str, text: str) -> Path:
        """Write any file."""
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(text), encoding="utf-8")
        return target

    def run(self, *arguments: str, **options: bool) -> pytest.RunResult:
        """Run pytest in this process; the options are those of ``pytester.inline_run``.

        From 9.2 on it warns of plugins that are imported already, as here.
        """
        ignored = "-Wignore::pytest.PytestAssertRewriteWarning"
        return self.pytester.runpytest_inprocess(ignored, *arguments, **options)

    def run_apart(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in a process of its own."""
        return self.pytester.runpytest_subprocess(*arguments, timeout=HANGS)

    def ids(self, *arguments: str) -> list[str]:
        """The node ids that are collected."""
        result = self.run("--collect-only", "-q", *arguments)
        return [line for line in result.outlines if "::" in line]

    def traces(self, path: str = "fib-traces.jsonl") -> list[dict]:
        """The trace records on disk."""
        text = (self.path / path).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bench items take no longer than a check: for tests that are of what is done with times."""
    monkeypatch.setattr(LocalExecutor, "evaluate", timed_by_the_book(LocalExecutor.evaluate))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process started in the background of a shell ignores interrupts; not this test.

    Nor what it starts: there, a handler of this process becomes the system's default.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """Nothing yet; a directory to write in."""
    return Project(pytester)


@pytest.fixture
def toys(project: Project) -> Project:
    """Two definitions, each with a right and a wrong implementation."""
    project.define(SCALE)
    project.define(SPLIT, "kernel_defs/toy/split.yaml")
    project.implement("good", "x, factor\nreturn x * factor")
    # The block size is 64, and what is beyond the first block is forgotten.
    project.implement("tail", "x, factor\ny = x * factor\ny[64:] = 0\nreturn y")
    project.implement("pair", "x\nreturn x * 2, -x", "split")
    project.implement("swapped", "x\nreturn -x, x * 2", "split")
    return project


@pytest.fixture
def scale(project: Project) -> Project:
    """One definition with one right implementation."""
    project.define(SCALE)
    project.implement("good", "x, factor\nreturn x * factor")
    return project


@pytest.fixture
def scale_yaml() -> str:
    """The text of a definition, to bend."""
    return SCALE
