"""Where foreign code runs: a process of its own or, for debuggers, this one."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from pytest_fib.engine._channel import ChannelBroken, ChannelClosed, ChannelLate
from pytest_fib.engine._messages import Done, Failed, Load, Map, replies, requests
from pytest_fib.engine._runner import LINE_LIMIT, LOG_LIMIT, Runner

if TYPE_CHECKING:
    from pytest_fib.build import Program
    from pytest_fib.engine._memory import Arena, Layout
    from pytest_fib.engine._messages import FailedStatus, Reply, Request
    from pytest_fib.engine._nursery import Child, Nursery

#: Mapping an arena takes milliseconds; a new CUDA context before it, a fraction of a second.
MAP_TIMEOUT = 60.0


class Sandbox(Protocol):
    """Answers requests of the judge."""

    #: Whether it is a process of its own, and so may be asked while another one is.
    apart: bool

    def open(self, program: Program) -> Reply:
        """Get ready to load the program; not counted in any timeout."""

    def ask(self, request: Request, timeout: float) -> Reply:
        """The answer within ``timeout`` seconds; whatever goes wrong inside is a Failed."""

    def holds(self, program: Program) -> bool:
        """Whether that program is loaded."""

    def close(self) -> None:
        """End it."""


class LocalSandbox:
    """Foreign code in this very process: for debuggers and coverage. Nothing stops it."""

    apart = False

    def __init__(self, device: str, layout: Layout) -> None:
        os.environ.update(environment_for(device))
        self._runner = Runner(device, layout.tensor)

    def open(self, program: Program) -> Reply:
        """Nothing to start."""
        return Done()

    def ask(self, request: Request, timeout: float) -> Reply:
        """The answer; a hang hangs, since there is nobody left to end it."""
        assert not isinstance(request, Map), "nothing is mapped within one process"
        return self._runner.answer(request)

    def holds(self, program: Program) -> bool:
        """Whether that program is loaded."""
        return self._runner.program == program

    def close(self) -> None:
        """Nothing to end."""


class ProcessSandbox:
    """A child process for each program: started when one is loaded, ended when another is.

    No state of one implementation can reach the next, since no process sees two of them. One that
    is ``suspect`` is stopped between requests, so that it can neither finish work late nor disturb
    others, and each of its answers is confirmed with the process that forked it. A reference has
    nothing to gain by either, so it is spared the time.
    """

    apart = True

    def __init__(self, nursery: Nursery, layout: Layout, *, suspect: bool) -> None:
        self._nursery = nursery
        self._layout = layout
        self._suspect = suspect
        self._child: Child | None = None
        self._program: Program | None = None
        self._arena: Arena | None = None  # kept alive while it is mapped
        self._serial = 0
        self._stopped = False

    def ask(self, request: Request, timeout: float) -> Reply:
        """The answer; a process that dies, hangs or babbles is ended and named in a Failed."""
        try:
            return self._ask(request, timeout)
        except BaseException:  # an interrupt leaves a request without its answer
            self.close()
            raise

    def _ask(self, request: Request, timeout: float) -> Reply:
        assert self._child is not None, "a sandbox is opened before it is asked"
        reply = self._map() or self._exchange(request, timeout)
        if isinstance(request, Load) and isinstance(reply, Done):
            self._program = request.program
        if isinstance(reply, Failed) and reply.broken:
            self.close()
        return reply

    def open(self, program: Program) -> Reply:
        """Start a process for the program, unless it has one. Takes what time it takes."""
        if self.holds(program):
            return Done()
        self.close()
        self._child = self._nursery.start()
        return self._map() or Done()

    def holds(self, program: Program) -> bool:
        """Whether that program is loaded."""
        return self._child is not None and program == self._program

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._nursery.kill(self._child)
        self._forget()

    def _forget(self) -> None:
        self._child = self._program = self._arena = None
        self._stopped = False

    def _map(self) -> Failed | None:
        arena = self._layout.arena
        if arena is self._arena:
            return None
        reply = self._exchange(Map(arena.size, arena.handle), MAP_TIMEOUT, arena.descriptors())
        if isinstance(reply, Failed):
            return reply
        self._arena = arena
        return None

    def _exchange(
        self, request: Request, timeout: float, descriptors: tuple[int, ...] = ()
    ) -> Reply:
        assert self._child is not None
        child = self._child
        self._serial += 1
        try:
            if child.channel.pending():
                raise ChannelBroken("it spoke without being asked")
            self._resume(child)
            payload = requests().dump_json(request)
            child.channel.send(self._serial, payload, descriptors, timeout)
            serial, answer, _ = child.channel.receive(timeout)
            self._stop(child)
            if serial != self._serial:
                raise ChannelBroken("it answered out of turn")
            if self._suspect and not self._nursery.has(child):
                raise ChannelClosed
            return _trimmed(replies().validate_json(answer), _printed(child))
        except ChannelLate:
            return self._lost(child, "TIMEOUT", f"no answer within {round(timeout, 1):g} s")
        except (ChannelBroken, ValidationError) as error:
            problem = str(error).partition("\n")[0]
            return self._lost(child, "RUNTIME_ERROR", f"the process forged a message: {problem}")
        except (ChannelClosed, ProcessLookupError):
            return self._gone(child)

    def _stop(self, child: Child) -> None:
        if not self._suspect:
            return
        os.killpg(child.pid, signal.SIGSTOP)  # and what it started, unless that got away
        self._stopped = True

    def _resume(self, child: Child) -> None:
        if self._stopped:
            os.killpg(child.pid, signal.SIGCONT)
        self._stopped = False

    def _gone(self, child: Child) -> Failed:
        printed, orphaned = _printed(child), not self._nursery.has(child)
        self._forget()
        code = self._nursery.end(child)
        summary = f"the process {_ended(code)}"
        if orphaned:
            summary = "it killed or disturbed the process that sandboxes come from"
        killed = orphaned or code == -signal.SIGKILL
        return Failed("RUNTIME_ERROR", summary, printed, broken=True, killed=killed)

    def _lost(self, child: Child, status: FailedStatus, summary: str) -> Failed:
        printed = _printed(child)
        self.close()
        return Failed(status, summary, printed, broken=True)


def _printed(child: Child) -> str:
    """What the process printed since the last look, its end if it is long."""
    size = os.fstat(child.output).st_size
    if size == 0:
        return ""
    tail = os.pread(child.output, LOG_LIMIT, max(0, size - LOG_LIMIT))
    os.ftruncate(child.output, 0)
    return tail.decode(errors="replace")


def _ended(code: int | None) -> str:
    if code is None:
        return "closed its channel"
    if code >= 0:
        return f"exited with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def _trimmed(reply: Reply, printed: str) -> Reply:
    """A reply no longer than it needs to be, with what was printed."""
    log = reply.log[-LOG_LIMIT:]
    if printed:
        log = f"{log}\n--- printed ---\n{printed}".lstrip()
    if isinstance(reply, Failed):
        return replace(reply, log=log, summary=reply.summary[:LINE_LIMIT])
    return replace(reply, log=log)


def environment_for(device: str) -> dict[str, str]:
    """Variables that a process needs before it imports torch and triton."""
    if device != "cpu":
        return {}
    # Threads that spin while they wait take the cores from the workers beside this one: with as
    # many workers as cores, a call of 0.1 ms was seen to take 10 to 60.
    policy = os.environ.get("OMP_WAIT_POLICY", "passive")
    return {"TRITON_INTERPRET": "1", "OMP_WAIT_POLICY": policy}
