"""Several processes that want one library at the same time: one builds it, the others wait."""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.conftest import SCALE
from tests.plugin.test_compiled import LOOP, SCALE as LOOPS

pytestmark = pytest.mark.thorough
#: Says to the test that it compiles now, and waits until the test lets it.
COMPILER = """\
#!{python}
import os, socket, sys

if "-c" in sys.argv:
    with socket.create_connection(("127.0.0.1", {port})) as test:
        test.recv(1)
os.execv("{compiler}", ["{compiler}", *sys.argv[1:]])
"""
WAITING = "waiting for another process that builds loops for cpu"
COMMAND = (sys.executable, "-m", "pytest", "-v", "--fib-implementation=loops",
           "--fib-isolation=process", "--fib-cache-dir=builds")  # fmt: skip


@pytest.fixture
def compilations(project, monkeypatch):
    """A listening socket that each compilation connects to.

    The project has one source for two definitions, and nothing that was built.
    """
    pytest.importorskip("tvm_ffi")
    compiler = shutil.which("g++") or pytest.skip("no g++")
    for name in "one", "two":
        text = SCALE.replace("name: scale", f"name: scale_{name}")
        project.define(text, f"kernel_defs/toy/scale_{name}.yaml")
    project.write("kernel_impls/toy/loops.cpp", LOOPS.replace("scale", "scale_*"))
    project.write("kernel_impls/toy/loop.h", LOOP)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        port = listening.getsockname()[1]
        text = COMPILER.format(python=sys.executable, port=port, compiler=compiler)
        script = project.write("compiler", text)
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        yield listening


@contextmanager
def started(project, *options):
    """A run of pytest in a process of its own."""
    with subprocess.Popen(
        [*COMMAND, *options], cwd=project.path, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as run:  # fmt: skip
        try:
            yield run
        finally:
            run.kill()


def until(run, text):
    """Read what a run prints, up to a line with this text."""
    seen = []
    for line in run.stdout:
        seen.append(line)
        if text in line:
            return
    pytest.fail(f"{text!r} was not printed:\n{''.join(seen)}")


def nobody_compiles(compilations):
    compilations.settimeout(0)
    with pytest.raises(BlockingIOError):
        compilations.accept()


def test_of_two_workers_one_builds_and_the_other_waits(project, compilations):
    with started(project, "-n", "2") as run:
        compiling, _ = compilations.accept()
        until(run, WAITING)
        compiling.close()
        until(run, "4 passed")
        assert run.wait(60) == 0
    nobody_compiles(compilations)
    assert len([*(project.path / "builds").glob("*.artifact")]) == 1


def test_a_builder_that_is_killed_holds_up_nobody(project, compilations):
    with started(project) as killed:
        left, _ = compilations.accept()
        with started(project) as run:
            until(run, WAITING)
            killed.kill()
            compiling, _ = compilations.accept()
            left.close()  # a compiler that outlived its run has nowhere to write
            compiling.close()
            until(run, "4 passed")
            assert run.wait(60) == 0
    nobody_compiles(compilations)
    assert len([*(project.path / "builds").glob("*.artifact")]) == 1
