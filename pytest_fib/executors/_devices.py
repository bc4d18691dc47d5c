"""Evaluations on all devices of this machine: a process for each, which sees no other.

``python -m pytest_fib.executors._devices DEVICE`` is such a process: it reads requests from its
standard input, a line of JSON each, and writes a line for each answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from pytest_fib.data import (
    BuildRequest,
    BuildResult,
    EvaluationRequest,
    Outcome,
    SearchRequest,
    SearchResult,
    TensorFiles,
)
from pytest_fib.executors._answers import FarEnd, JudgeRequest, parts_of
from pytest_fib.executors._archives import RemoteError
from pytest_fib.executors._local import LocalExecutor
from pytest_fib.executors._protocol import Executor
from pytest_fib.executors._remote import RemoteExecutor


class DeviceProcess(RemoteExecutor):
    """Evaluates on one device, in a process of its own that is started on the first request.

    device: ``cpu`` or ``cuda``.
    visible: which CUDA device, as CUDA_VISIBLE_DEVICES spells it.
    files: where recorded tensors lie, by what they hold.

    Where the process ends, the next request has another. That blames no implementation: what runs
    these is a child of the process.
    """

    def __init__(self, device: str, visible: str, files: TensorFiles) -> None:
        self._device, self._visible, self._files = device, visible, files
        self._process: subprocess.Popen[bytes] | None = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            path = os.pathsep.join(folder for folder in sys.path if folder)
            environment = {"CUDA_VISIBLE_DEVICES": self._visible, "PYTHONPATH": path}
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pytest_fib.executors._devices", self._device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **environment},
            )
        return self._process

    def _ask(self, kind: str, request: JudgeRequest) -> bytes:
        tensors = {} if isinstance(request, BuildRequest) else request.tensors
        message = {
            "kind": kind,
            "parts": [part.decode() for part in parts_of(request, here=True)],
            "files": [str(self._files.find(address)) for address in tensors.values()],
        }
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            self.close()
            raise RemoteError(f"the process of device {self._visible} has ended")
        return answer

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()  # it ends with its standard input


class DevicePool(Executor):
    """An executor over several others, each of which takes the next request as it is free."""

    def __init__(self, devices: Sequence[Executor]) -> None:
        self._devices = devices

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        return self._devices[0].evaluate(request)

    def evaluate_all(
        self, requests: Iterable[EvaluationRequest]
    ) -> Iterator[tuple[EvaluationRequest, Outcome]]:
        done: SimpleQueue[tuple[EvaluationRequest, Outcome] | None] = SimpleQueue()
        waiting, lock = iter(requests), Lock()

        def work(device: Executor) -> None:
            try:
                while True:
                    with lock:
                        request = next(waiting, None)
                    if request is None:
                        return
                    done.put((request, device.evaluate(request)))
            finally:
                done.put(None)

        for device in self._devices:
            Thread(target=work, args=(device,), daemon=True).start()
        ended = 0
        while ended < len(self._devices):
            answer = done.get()
            if answer is None:
                ended += 1
            else:
                yield answer

    def search(self, request: SearchRequest) -> SearchResult:
        return self._devices[0].search(request)

    def build(self, request: BuildRequest) -> BuildResult:
        return self._devices[0].build(request)

    def close(self) -> None:
        for device in self._devices:
            device.close()


def on_all_devices(device: str, names: Sequence[str], files: TensorFiles) -> Executor:
    """What evaluates on these devices; on one, in this process."""
    if len(names) <= 1:
        return LocalExecutor(device, files=files)
    return DevicePool([DeviceProcess(device, name, files) for name in names])


def _answer_requests(device: str) -> None:
    """Answer until standard input ends. Anything printed here goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    files = TensorFiles()
    executor = LocalExecutor(device, files=files)
    far_end = FarEnd(executor)
    for line in sys.stdin.buffer:
        message: dict[str, Any] = json.loads(line)
        for path in message["files"]:
            files.add(Path(path))
        own, *shared = message["parts"]
        answer = far_end.answer(message["kind"], json.loads(own), map(str.encode, shared))
        out.write(answer + b"\n")
        out.flush()
    executor.close()


if __name__ == "__main__":
    _answer_requests(sys.argv[1])
