"""What runs inside a sandbox: reads requests, runs them, answers."""

from __future__ import annotations

import mmap
import os
import resource
import socket
import sys
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine import _cuda
from pytest_fib.engine._channel import Channel, ChannelClosed
from pytest_fib.engine._memory import view
from pytest_fib.engine._messages import Done, Map, replies, requests
from pytest_fib.engine._runner import Runner

if TYPE_CHECKING:
    from pytest_fib.engine._messages import Reply, TensorRef

#: Memory of its own that a sandbox may take on the host, in bytes.
HOST_MEMORY = 16 << 30


def serve(channel: int, output: int, device: str) -> None:
    """Answer requests until the judge is gone. ``output`` is where prints go."""
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, open(descriptor, "w", buffering=1, closefd=False))  # noqa: SIM115, PTH123
    limit_memory()
    _Inside(Channel(socket.socket(fileno=channel)), device).serve()


def limit_memory() -> None:
    """Let a runaway allocation fail in the process that makes it, not on the whole machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = HOST_MEMORY if hard == resource.RLIM_INFINITY else min(HOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


class _Inside:
    def __init__(self, channel: Channel, device: str) -> None:
        self._channel = channel
        self._device = device
        self._arena = torch.empty(0, dtype=torch.uint8)
        self._close_arena = _nothing
        self._runner = Runner(device, self._tensor)

    def serve(self) -> None:
        while True:
            try:
                serial, payload, descriptors = self._channel.receive()
            except ChannelClosed:
                return
            request = requests().validate_json(payload)
            if isinstance(request, Map):
                reply: Reply = self._map(request, descriptors)
            else:
                reply = self._runner.answer(request)
            self._channel.send(serial, replies().dump_json(reply))

    def _map(self, request: Map, descriptors: list[int]) -> Done:
        self._arena = self._arena.new_empty(0)
        self._close_arena()
        if self._device == "cpu":
            memory = mmap.mmap(descriptors[0], request.size)
            os.close(descriptors[0])
            self._arena = torch.frombuffer(memory, dtype=torch.uint8)
        else:
            mapped = _cuda.Mapped(bytes.fromhex(request.handle), request.size)
            self._arena, self._close_arena = mapped.tensor, mapped.close
        return Done()

    def _tensor(self, ref: TensorRef) -> torch.Tensor:
        return view(self._arena, ref)


def _nothing() -> None:
    """Nothing was mapped yet, or the mapping ends with its last tensor."""
