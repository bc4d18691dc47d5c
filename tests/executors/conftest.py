"""Executors of each kind, and what ssh reaches without a network."""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread

import pytest
import torch
from safetensors.torch import save_file

from pytest_fib.data import SafetensorsInput, TensorFiles, Workload
from tests.executors.kernels import evaluation

#: Takes ssh's place: runs the command here, in the relay's own process.
SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do
    [ "$1" = -O ] && exit 0
    shift
done
host=$2
shift 2
case $host in
    unreachable) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255;;
    *) [ -e "$SSH_DOWN" ] && echo "ssh: no route to $host" >&2 && exit 255;;
esac
case $host in
    stranger) echo "nobody@$host: Permission denied (publickey)." >&2; exit 255;;
    chatty) echo "Welcome to $host!";;
esac
echo $$ >> "$SSH_PIDS"
exec sh -c "$*"
"""


class Ssh:
    """The stand-in; ``pids`` are the processes that connections were."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pids, self._down = folder / "pids", folder / "down"
        program = folder / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(SSH)
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "SSH_PIDS": str(self._pids),
            "SSH_DOWN": str(self._down),
            "XDG_CACHE_HOME": str(folder / "far"),
        }
        self.python = sys.executable

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self._pids.read_text().split()]

    def kill_when(self, happened):
        """End the newest connection as soon as something has happened."""

        def kill():
            while not happened():
                time.sleep(0.01)
            os.kill(self.pids[-1], signal.SIGKILL)

        Thread(target=kill, daemon=True).start()

    def take_down(self):
        """Nothing is reached any longer."""
        self._down.touch()

    def bring_up(self):
        self._down.unlink()


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A remote machine that is this one, with a folder of its own for what is kept there."""
    stand_in = Ssh(tmp_path)
    for name, value in stand_in.environment.items():
        monkeypatch.setenv(name, value)
    return stand_in


@pytest.fixture
def recorded(tmp_path):
    """A file of tensors, and a request that names it by its content."""
    file = tmp_path / "here" / "x.safetensors"
    file.parent.mkdir()
    save_file({"x": torch.linspace(-1, 1, 15).view(5, 3)}, file)
    request = evaluation("right")
    stored = SafetensorsInput(path="blobs/x.safetensors", tensor_key="x")
    inputs = {**request.workload.inputs, "x": stored}
    workload = Workload(axes=request.workload.axes, inputs=inputs)
    files = TensorFiles()
    tensors = {stored.path: files.add(file)}
    changes = {"workload": workload, "tensors": tensors}
    return file, files, request.model_copy(update=changes)
