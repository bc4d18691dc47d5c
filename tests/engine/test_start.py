"""What sandboxes come from is started before torch is imported, where there are any."""

import os
import subprocess
import sys

import pytest

from pytest_fib.engine import start_fork_server


def test_kernels_in_this_process_need_no_fork_server():
    assert start_fork_server("cpu", "none") is None


def test_a_folder_without_builds_is_an_error_before_anything_is_started(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"manifest\.json"):
        start_fork_server("cpu", "none", prebuilt=tmp_path)


QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.fixture
def environments(monkeypatch):
    """Those of the fork servers that are started, none of which is."""
    asked = []

    class Server:
        def __init__(self, device, environment, *, contained, of_streams):
            asked.append({**environment, "of streams": of_streams.get(QUEUES)})

        def warm(self):
            pass

    monkeypatch.setattr("pytest_fib.engine._start.ForkServer", Server)
    return asked


@pytest.mark.parametrize(
    ("device", "timed", "set_to", "here", "of_sandboxes", "of_streams"),
    [
        ("cuda", False, None, "2", "2", None),
        ("cuda", False, "8", "8", None, None),
        ("cuda", True, None, "2", "2", "8"),
        ("cuda", True, "4", "4", None, None),
        ("cpu", True, None, None, None, None),
    ],
)
def test_cuda_contexts_are_cheap_but_of_timed_streams(
    monkeypatch, environments, device, timed, set_to, here, of_sandboxes, of_streams
):
    """Unless the user says how many hardware queues they have, which sandboxes inherit."""
    monkeypatch.setenv(QUEUES, set_to or "")
    if set_to is None:
        monkeypatch.delenv(QUEUES)
    for _ in range(2):  # what it has set itself, nobody has said
        start_fork_server(device, timed=timed)
        assert os.environ.get(QUEUES) == here
    assert [environment.get(QUEUES) for environment in environments] == [of_sandboxes] * 2
    assert [environment["of streams"] for environment in environments] == [of_streams] * 2


def test_kernels_in_this_process_have_the_queues_of_production(monkeypatch):
    monkeypatch.delenv(QUEUES, raising=False)
    start_fork_server("cuda", "none", timed=False)
    assert QUEUES not in os.environ


@pytest.mark.parametrize(("said", "policy"), [(None, "passive"), ("active", "active")])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_threads_that_wait_leave_cores_to_other_workers(
    monkeypatch, environments, device, said, policy
):
    """Unless the user says how they wait; in this process and in sandboxes."""
    monkeypatch.setenv("OMP_WAIT_POLICY", said or "")
    if said is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    start_fork_server(device)
    assert os.environ["OMP_WAIT_POLICY"] == policy
    assert [environment["OMP_WAIT_POLICY"] for environment in environments] == [policy]


def test_importing_it_imports_no_torch():
    program = "import sys; from pytest_fib.engine import start_fork_server; 'torch' in sys.modules"
    done = subprocess.run([sys.executable, "-c", f"{program} and sys.exit(1)"], check=False)
    assert done.returncode == 0
