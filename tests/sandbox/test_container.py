"""Sandboxes in a container of bwrap's: its command line and, where it is, what they see."""

import itertools
import os
import signal
from pathlib import Path

import pytest

from pytest_fib.engine import Judge
from pytest_fib.sandbox import ForkServer, container_command
from pytest_fib.walls import why_no_container

GOOD = "def run(x, factor):\n    return x * factor\n"
WHY_NOT = why_no_container("cpu")
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"a container{WHY_NOT}")


def pairs(command):
    return set(itertools.pairwise(command))


@pytest.fixture(scope="module")
def contained_judge():
    with Judge("cpu", isolation="container") as judge:
        yield judge


@pytest.fixture
def printed(contained_judge, request_for):
    """What a line of an implementation prints in there."""

    def printed(line):
        text = f"import os, socket\nfrom pathlib import Path\ndef run(x, factor):\n    {line}\n"
        evaluation = contained_judge.evaluate(request_for(text + "    return x * factor\n"))
        assert evaluation.status == "PASSED", evaluation.log
        return evaluation.log.replace("--- printed ---", "").split()

    return printed


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_the_folder_can_be_written(device, tmp_path):
    command = container_command(device, tmp_path)
    assert command[0] == "bwrap"
    assert command[-1] == "--"
    assert ("--ro-bind", "/") in pairs(command)
    assert ("--tmpfs", "/tmp") in pairs(command)
    assert command.count("--bind") == 1
    assert ("--bind", str(tmp_path)) in pairs(command)
    assert {"--unshare-net", "--die-with-parent"} <= set(command)


def test_processes_are_hidden_where_cuda_does_not_need_them(tmp_path):
    apart = {"--unshare-pid", "--unshare-ipc"}
    assert apart <= set(container_command("cpu", tmp_path))
    assert not apart & set(container_command("cuda", tmp_path))


@needs_bwrap
def test_verdicts_are_the_same_in_a_container(contained_judge, request_for):
    assert contained_judge.evaluate(request_for(GOOD)).status == "PASSED"
    wrong = contained_judge.evaluate(request_for(GOOD.replace("factor\n", "2\n")))
    assert wrong.status == "INCORRECT_NUMERICAL"
    hangs = "def run(x, factor):\n    while True: pass\n"
    assert contained_judge.evaluate(request_for(hangs, timeout=0.5)).status == "TIMEOUT"
    assert contained_judge.evaluate(request_for(GOOD)).status == "PASSED"


@needs_bwrap
def test_it_has_a_tmp_processes_and_a_network_of_its_own(printed, tmp_path):
    (tmp_path / "secret").touch()
    assert printed(f"print(Path({str(tmp_path / 'secret')!r}).exists())") == ["False"]
    assert len(printed("print(*(p.name for p in Path('/proc').glob('[0-9]*')))")) <= 4
    assert printed("print(*(name for _, name in socket.if_nameindex()))") == ["lo"]
    assert printed("print(os.access('/etc', os.W_OK), os.access('/var/tmp', os.W_OK))") == [
        "False",
        "False",
    ]


@needs_bwrap
@pytest.mark.parametrize("victim", ["bwrap", "fork server", "sandbox"])
def test_whatever_is_killed_in_it_is_replaced(
    contained_judge, request_for, descendants, lives, eventually, victim
):
    assert contained_judge.evaluate(request_for(GOOD)).status == "PASSED"
    fork_server = contained_judge._fork_server
    child = contained_judge._candidate.sandbox._child
    parent = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1])
    pid = {"bwrap": fork_server.pid, "fork server": parent, "sandbox": child.pid}[victim]
    family = descendants(fork_server.pid) if victim != "sandbox" else {child.pid}
    os.kill(pid, signal.SIGKILL)
    assert contained_judge.evaluate(request_for(GOOD, seed=1)).status == "PASSED"
    assert eventually(lambda: not any(map(lives, family)))


@needs_bwrap
def test_closing_leaves_nothing(descendants, lives, eventually):
    fork_server = ForkServer("cpu", {}, contained=True)
    child = fork_server.start()
    family, folder = descendants(fork_server.pid), fork_server._folder.path
    assert child.pid in family
    fork_server.close()
    assert eventually(lambda: not any(map(lives, family)))
    assert not folder.exists()
