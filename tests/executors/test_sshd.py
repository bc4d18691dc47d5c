"""A remote machine by real ssh: an sshd of these tests on a loopback port."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from pytest_fib.executors import (
    RemoteError,
    RemoteOptions,
    SshConnections,
    SshExecutor,
    SshTarget,
    describe,
)
from tests.executors.kernels import evaluation
from tests.executors.test_behaviour import AT_MOST
from tests.executors.test_ssh import counting

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
SSH = shutil.which("ssh")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not (SSH and SSHD), reason="needs ssh and sshd"),
]
CONFIGURATION = """\
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
"""


class Sshd:
    """Where it listens, and whom it let in."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("host_key", "key"):
            self.make_key(name)
        (folder / "sshd_config").write_text(CONFIGURATION.format(folder=folder))
        self.port = free_port()
        self.log = folder / "log"
        command = [SSHD, "-D", "-p", str(self.port), "-f", str(folder / "sshd_config")]
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen([*command, "-E", str(self.log)])
        self.use("key")

    def make_key(self, name):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
        subprocess.run(command, check=True)

    def use(self, key, checking="accept-new"):
        """Have ssh use this key, as a user's configuration would."""
        (self.folder / "bin").mkdir(exist_ok=True)
        program = self.folder / "bin" / "ssh"
        options = (
            f"-i {self.folder / key} -o IdentitiesOnly=yes -o StrictHostKeyChecking={checking} "
            f"-o UserKnownHostsFile={self.folder}/known_{checking}"
        )
        program.write_text(f'#!/bin/sh\nexec {SSH} {options} "$@"\n')
        program.chmod(0o755)

    @property
    def target(self):
        # Kernels may leave files where compilers do.
        python = f"env TORCH_EXTENSIONS_DIR={os.environ['TORCH_EXTENSIONS_DIR']} {sys.executable}"
        return SshTarget.parse(f"ssh://127.0.0.1:{self.port}{self.folder}/far", python)

    @property
    def accepted(self):
        return self.log.read_text().count("Accepted publickey")

    def end_connections(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in map(int, children.split()):
            os.kill(pid, signal.SIGKILL)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def sshd(tmp_path, monkeypatch):
    server = Sshd(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    until = time.monotonic() + AT_MOST
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", server.port)) == 0:
                break
        time.sleep(0.05)
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture
def connections():
    connections = SshConnections()
    yield connections
    connections.close()


def test_executors_share_a_connection_and_outlive_it(sshd, connections, tmp_path_factory):
    marks = tmp_path_factory.getbasetemp() / "marks"
    marks.unlink(missing_ok=True)
    options = RemoteOptions(grace=20.0)
    executors = [SshExecutor(sshd.target, options, connections=connections) for _ in range(2)]
    for executor in executors:
        executor.start()
        assert executor.evaluate(evaluation("right")).status == "PASSED"
    assert sshd.accepted == 1
    request = counting(evaluation("slow"), marks)
    assert executors[0].evaluate(request).status == "PASSED"
    calls = marks.read_text().split()
    marks.unlink()
    end_when(marks.exists, sshd.end_connections)
    assert executors[0].evaluate(request).status == "PASSED"
    assert marks.read_text().split() == calls
    assert executors[1].evaluate(evaluation("wrong")).status == "INCORRECT_NUMERICAL"
    assert sshd.accepted == 2
    for executor in executors:
        executor.close()


def end_when(happened, end):
    def wait():
        while not happened():
            time.sleep(0.01)
        end()

    Thread(target=wait, daemon=True).start()


def test_a_wrong_key_and_an_unknown_host_are_said_in_a_line(sshd, connections):
    sshd.make_key("other")
    sshd.use("other")
    with pytest.raises(RemoteError, match=r"Permission denied \(publickey"):
        describe(connections, sshd.target)
    sshd.use("key", checking="yes")
    with pytest.raises(RemoteError, match="Host key verification failed"):
        describe(connections, sshd.target)
