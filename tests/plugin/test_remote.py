"""Kernels run on remote machines, everything else here."""

import json
import shutil
import subprocess
import sys
from socket import gethostname

import pytest

from tests.executors.conftest import ssh  # noqa: F401

USAGE = pytest.ExitCode.USAGE_ERROR
#: Whoever imports torch here says so.
CONFTEST = """\
import sys

def pytest_unconfigure():
    open("imported", "a").write(f"{'torch' in sys.modules} ")
"""
CPP = """\
// implements: scale
#include <tvm/ffi/c_api.h>
extern "C" int __tvm_ffi_run(void*, const TVMFFIAny* arguments, int32_t, TVMFFIAny*) {
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(arguments[0].v_obj);
  const DLTensor* y = TVMFFITensorGetDLTensorPtr(arguments[2].v_obj);
  for (long i = 0; i < x->shape[0]; ++i)
    ((float*)y->data)[i] = (float)arguments[1].v_float64 * ((float*)x->data)[i];
  return 0;
}
"""


@pytest.fixture
def far(toys, ssh):  # noqa: F811
    """A project whose kernels run on a machine by the name of gpu1."""
    toys.write("pytest.ini", "[pytest]\naddopts = --fib-examples=8 --fib-seed=0\n")
    toys.ssh = ssh
    return toys


def far_options(host="gpu1"):
    return [f"--fib-remote=ssh://{host}", f"--fib-remote-python={sys.executable}"]


def test_items_look_as_if_kernels_ran_here(far):
    far.write("conftest.py", CONFTEST)
    far.implement("boom", "x, factor\nraise ValueError(1)")
    result = far.run_apart(*far_options(), "--fib-definition=scale")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "fib: remote ssh://gpu1: *, CPU, Python 3.*, torch 2.*",
            "fib: sandbox: *",
            f'  File "{far.path}/kernel_impls/toy/boom.py", line 5, in run',
            "*--fib-remote=ssh://gpu1*",
            "--* scale on *-",
            "good * PASSED *",
        ]
    )
    assert (far.path / "imported").read_text() == "False "
    hosts = {record["evaluation"]["environment"]["host"] for record in far.traces()}
    assert len(hosts) == 1
    # The machine's, and the worker's, which imports torch and says whether it could.
    assert len(far.ssh.pids) == 2


@pytest.mark.thorough
def test_workers_take_the_machines_in_turn_and_share_connections(far):
    far.write("conftest.py", CONFTEST)
    result = far.run_apart(*far_options(), "--fib-remote=ssh://gpu2", "-n", "2")
    result.assert_outcomes(passed=4, failed=2)
    assert (far.path / "imported").read_text() == "False " * 3
    # Two for each machine, of which one imports torch, then one for each worker.
    assert len(far.ssh.pids) == 6
    assert len(far.traces()) == 4


@pytest.mark.thorough
def test_what_the_far_machine_lacks_is_skipped(far):
    more = ', dependencies=["nosuchthing"]'
    far.implement("lacking", "x, factor\nreturn x * factor", more=more)
    far.implement("foreign", "x, factor\nreturn x", more=', target_hardware=["cuda"]')
    result = far.run(*far_options(), "-rs", "-k", "lacking or foreign")
    result.assert_outcomes(skipped=2, deselected=6)
    result.stdout.fnmatch_lines(["*needs nosuchthing, which is not installed*"])


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_what_was_built_here_runs_where_no_compiler_is(far):
    pytest.importorskip("tvm_ffi")
    far.write("kernel_impls/toy/loops.cpp", CPP)
    options = [far_options()[0], f"--fib-remote-python=env CXX=none {sys.executable}"]
    options += ["--fib-implementation=loops", "-rs", "-k", "correctness"]
    without = far.run(*options)
    without.assert_outcomes(skipped=1, deselected=1)
    without.stdout.fnmatch_lines(["*needs a C++ compiler*"])
    build = [sys.executable, "-m", "pytest_fib", "build", "--out=built", "--implementation=loops"]
    subprocess.run(build, cwd=far.path, check=True)
    far.run(*options, "--fib-prebuilt=built").assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize(
    ("host", "options", "message"),
    [
        ("unreachable", (), "--fib-remote ssh://unreachable: ssh: connect to host unreachable po*"),
        (
            "h",
            ["--fib-device=cuda"],
            f"--fib-remote ssh://h: there is no CUDA device on {gethostname()}",
        ),
        ("h:x", (), "--fib-remote 'ssh://h:x': Port could not be cast*"),
        ("h", ["--pdb"], "--fib-isolation=none (and --pdb) run kernels in this process, *"),
        ("h", ["--fib-remote=ssh://stranger"], "--fib-remote ssh://stranger: *Permission denied*"),
    ],
)
def test_a_machine_that_cannot_be_used_is_a_usage_error(far, host, options, message):
    result = far.run(*far_options(host), *options)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert not (far.path / "fib-traces.jsonl").exists()


@pytest.mark.thorough
def test_machines_are_connected_to_at_the_same_time(far):
    """Neither answers before the other is asked."""
    python = far.write(
        "python",
        f"""\
        #!/bin/sh
        until [ "$(wc -l < "$SSH_PIDS")" -ge 2 ]; do sleep 0.01; done
        exec {sys.executable} "$@"
        """,
    )
    python.chmod(0o755)
    hosts = ("--fib-remote=ssh://gpu1", "--fib-remote=ssh://gpu2")
    result = far.run(*hosts, f"--fib-remote-python={python}", "--fib-implementation=good")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("raise ImportError('no libcudart\\nhere')", "ImportError: no libcudart here"),
        pytest.param(
            "raise AttributeError('numpy')",
            "AttributeError: numpy",
            marks=pytest.mark.thorough,
        ),
        ("import os; os.abort()", "the process crashed"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_a_usage_error(far, torch, why, workers):
    far.write("broken/torch.py", f"{torch}\n")
    python = f"--fib-remote-python=env PYTHONPATH={far.path}/broken {sys.executable}"
    alone = ("-p", "no:benchmark")  # which would have its say beside workers
    result = far.run_apart("--fib-remote=ssh://gpu1", python, *workers, *alone)
    assert result.ret == USAGE
    message = f"ERROR: --fib-remote ssh://gpu1: torch can't be imported there: {why}"
    assert result.stderr.str().strip().splitlines() == [message]
    result.assert_outcomes()
    assert not (far.path / "fib-traces.jsonl").exists()


def test_a_machine_without_containers_is_a_usage_error(far):
    bwrap = far.ssh.folder / "bin/bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    result = far.run(*far_options(), "--fib-isolation=container")
    assert result.ret == USAGE
    result.stderr.fnmatch_lines(
        [
            "ERROR: --fib-remote ssh://gpu1: --fib-isolation=container: bwrap does not work here: "
            "bwrap: No permissions"
        ]
    )


@pytest.mark.thorough
def test_a_connection_lost_before_the_first_item_is_taken_up_again(far):
    far.write(
        "conftest.py",
        """\
        import os, threading
        from pathlib import Path

        def pytest_collection_finish(session):
            if hasattr(session.config, "workerinput"):
                down = Path(os.environ["SSH_DOWN"])
                down.touch()
                threading.Timer(2.0, down.unlink).start()
        """,
    )
    result = far.run_apart(*far_options(), "-n", "1", "-k", "good")
    result.assert_outcomes(passed=1)


def test_collecting_needs_no_far_machine(far):
    result = far.run(*far_options("unreachable"), "--collect-only")
    assert result.ret == 0
    far.write("pytest.ini", "[pytest]\nfib_remote = ssh://unreachable\n")
    assert far.run("--collect-only").ret == 0
    assert far.run().ret == USAGE


def test_workers_share_the_actors_of_ray(far):
    pytest.importorskip("ray")
    far.write("conftest.py", CONFTEST)
    result = far.run_apart("--fib-ray=local", "-n", "2", "--fib-definition=scale")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["fib: ray *: *, CPU, Python 3.*", "--* scale on *-"])
    assert all(record["evaluation"]["environment"]["host"] for record in far.traces())


def test_a_worker_that_cannot_reach_ray_says_so_in_a_line(far):
    pytest.importorskip("ray")
    far.write(
        "conftest.py",
        """\
        import ray

        def pytest_collection_finish(session):
            if hasattr(session.config, "workerinput"):
                def init(*arguments, **options):
                    raise ConnectionError("the head node is gone")
                ray.init = init
        """,
    )
    result = far.run_apart("--fib-ray=local", "-n", "1", "-k", "good and correctness")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not evaluated: *: the head node is gone*"])
    assert "Traceback" not in result.stdout.str()


def test_ray_that_cannot_be_used_is_a_usage_error(far):
    try:
        import ray  # noqa: F401
    except ImportError:
        message = "ERROR: --fib-ray Ray is not installed: pip install 'pytest-fib[[]ray]'"
    else:
        message = "ERROR: --fib-ray 127.0.0.1:1: no cluster can be reached there: *"
    result = far.run("--fib-ray=127.0.0.1:1")
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([message])


def test_records_of_this_machine_have_no_host(scale):
    scale.run()
    (record,) = scale.traces()
    assert "host" not in json.dumps(record)
