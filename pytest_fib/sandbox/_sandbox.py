"""Where foreign code runs: in a process of its own or, for debuggers, in this one."""

from __future__ import annotations

import os
import select
import signal
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pytest_fib.build import COMPILER_LOG_LIMIT
from pytest_fib.data import NOT_EVALUATED, OWN_FAULT, visible, visible_line
from pytest_fib.sandbox._channel import ChannelBroken, ChannelClosed, ChannelLate
from pytest_fib.sandbox._foreign_errors import LINE_LIMIT, LOG_LIMIT, own_stacks
from pytest_fib.sandbox._fork_server_client import Child, ForkServer, environment_for, how_it_ended
from pytest_fib.sandbox._messages import (
    Blocks,
    Build,
    Collect,
    Done,
    Failed,
    FailedStatus,
    Load,
    Map,
    Prepare,
    PrepareIdle,
    Reply,
    Request,
    Step,
    decode_reply,
    encode_request,
    is_short,
)
from pytest_fib.sandbox._runner import Runner
from pytest_fib.sandbox._stopping import has_stopped, wait_until_stopped
from pytest_fib.sandbox._waiting import waited_ns
from pytest_fib.walls import wall_names

if TYPE_CHECKING:
    from pytest_fib.build import Program
    from pytest_fib.sandbox._arena import Arena, ArenaAllocator
    from pytest_fib.sandbox._last_call import LastCall
    from pytest_fib.sandbox._spare import SpareProcess

#: Mapping an arena takes milliseconds; a new CUDA context before it, a fraction of a second.
MAP_TIMEOUT = 60.0
#: Seconds between two looks whether others wait for the device, while a process works on it.
TURN = 0.01
#: How long a process may take to write where its threads are.
STACKS_TIMEOUT = 2.0


class LocalSandbox:
    """Foreign code in this very process: for debuggers and coverage. Nothing stops it."""

    is_process = False

    def __init__(
        self, device: str, allocator: ArenaAllocator, last_call: LastCall | None = None
    ) -> None:
        os.environ.update(environment_for(device))
        self._runner = Runner(device, allocator.tensor, last_call, is_process=False)
        self.ran_ns = self.waited_ns = 0

    def open(self, program: Program) -> Reply:
        """Nothing to start."""
        return Done()

    def get_ready(self) -> None:
        """Nothing to prepare."""

    def map(self) -> Reply:
        """Nothing to map: all memory is this process' own."""
        return Done()

    def ask(self, request: Request, timeout: float, file: int | None = None) -> Reply:
        """The reply; nothing ends a request that hangs."""
        assert not isinstance(request, Map), "nothing is mapped within one process"
        waited_before = waited_ns()
        start = perf_counter_ns()
        reply = self._runner.answer(request, file)
        self.ran_ns = perf_counter_ns() - start
        self.waited_ns = waited_ns() - waited_before
        return _fit_to_show(reply)

    def pin(self, cores: set[int]) -> None:
        """It runs where this thread does."""

    def holds(self, program: Program) -> bool:
        return self._runner.program == program

    def close(self) -> None:
        """Forget the program: loaded again, it starts from nothing."""
        self._runner.program = None
        self._runner.release()


class Turns(Protocol):
    """What shares a device, among many processes or for one exclusively: the engine's lock."""

    @property
    def is_shared(self) -> bool:
        """Whether this process uses it beside others."""

    def working(self, process: ProcessSandbox) -> AbstractContextManager[None]:
        """While a process works on it, which may be paused then."""

    def pause_if_wanted(self) -> float:
        """Pause all that works on it while waiting exclusive users have it; returns the seconds."""


class ProcessSandbox:
    """A child process for each program: started when one is loaded, ended when another is.

    No state of one implementation can reach the next, since no process sees two of them. It is
    stopped between requests, so that it can neither finish work late nor disturb others. Each reply
    of an ``untrusted`` one is confirmed with the process that forked it; a reference has nothing to
    gain by killing that, so it is spared the time. One that only builds has no ``allocator``. While
    it works, others may have the device to themselves in ``turns``: then it is stopped. Where there
    is a ``spare`` process, that is taken.
    """

    is_process = True  # so it may be asked while another one is

    def __init__(
        self,
        fork_server: ForkServer,
        allocator: ArenaAllocator | None,
        *,
        untrusted: bool,
        turns: Turns | None = None,
        spare: SpareProcess | None = None,
    ) -> None:
        self._fork_server = fork_server
        self._turns = turns
        self._spare = spare
        #: Whether its process was a spare one, that may still be at its first request.
        self._was_spare = False
        self._allocator = allocator
        self._untrusted = untrusted
        self._child: Child | None = None
        self._program: Program | None = None
        #: The variables that it has beside those of the fork server.
        self._environment: dict[str, str] = {}
        self._arena: Arena | None = None  # kept alive while it is mapped
        self._serial = 0
        self._stopped = False
        #: Seconds of the last request for which the process was paused.
        self._paused = 0.0
        #: How long the process could run for its last reply, by this process' clock.
        self.ran_ns = 0
        #: How long this process and that one waited for cores during the last blocks.
        self.waited_ns = 0

    def ask(self, request: Request, timeout: float, file: int | None = None) -> Reply:
        """The reply within ``timeout`` seconds; ``file`` is sent along, if it is given.

        Failed where the process dies, hangs or sends what is no reply; it is ended then.
        """
        try:
            return self._ask(request, timeout, () if file is None else (file,))
        except BaseException:  # an interrupt leaves a request without its reply
            self.close()
            raise

    def _ask(self, request: Request, timeout: float, descriptors: tuple[int, ...]) -> Reply:
        reply = self._map() or self._exchange(request, timeout, descriptors)
        if isinstance(request, Load) and isinstance(reply, Done):
            self._program = request.program
        if isinstance(reply, Failed) and reply.broken:
            self.close()
        return reply

    def open(self, program: Program) -> Reply:
        """Start a process for the program, unless it has one; not counted in any timeout."""
        if self.holds(program):
            return Done()
        self.close()
        self._environment = {**self._fork_server.of_streams} if program.makes_streams else {}
        # A spare process has its context already.
        spare = None if self._environment else self._spare
        self._child = None if spare is None else spare.take()
        # It may have been paused.
        self._was_spare = self._stopped = self._child is not None
        if self._child is None:
            self._child = self._fork_server.start()
        return Done()

    def get_ready(self) -> None:
        """Start a spare process for the next program, where there may be one and is none."""
        if self._spare is not None:
            self._spare.begin()

    def map(self) -> Reply:
        """Have its memory mapped now: on CUDA that makes a context, for which the device works."""
        try:
            return self._map() or Done()
        except BaseException:
            self.close()
            raise

    def pin(self, cores: set[int]) -> None:
        """Run the main thread on these cores only."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self._child.pid, cores)

    def holds(self, program: Program) -> bool:
        return self._child is not None and program == self._program

    def close(self) -> None:
        if self._child is not None:
            try:
                self._fork_server.kill(self._child)
            finally:
                self._forget()

    def _forget(self) -> None:
        """To be called once the process is gone: CUDA forbids to free memory that it has mapped."""
        self._child = self._program = self._arena = None
        self._stopped = self._was_spare = False

    def _map(self) -> Failed | None:
        arena = None if self._allocator is None else self._allocator.arena
        if arena is None or arena is self._arena:
            return None
        if self._was_spare and isinstance(reply := self._first_reply(), Failed):
            return reply
        request = Map(arena.size, arena.handle, self._environment)
        reply = self._exchange(request, MAP_TIMEOUT, arena.descriptors)
        if isinstance(reply, Failed):
            return reply
        self._arena = arena
        return None

    def _first_reply(self) -> Reply:
        """That of a process that was a spare one, to what it was asked as such."""
        self._was_spare = False
        return self._exchange(None, MAP_TIMEOUT)

    def _exchange(
        self, request: Request | None, timeout: float, descriptors: tuple[int, ...] = ()
    ) -> Reply:
        """The reply; without a request, to what the process was asked as a spare one."""
        child = self._child
        assert child is not None, "a sandbox is opened before it is asked"
        self._serial = 0 if request is None else self._serial + 1
        try:
            return self._reply(child, request, timeout, descriptors)
        except ChannelLate:
            option = "--fib-build-timeout" if isinstance(request, Build) else "--fib-timeout"
            return self._late(child, no_answer_within(round(timeout, 1), option))
        except TimeoutError:
            after = f"still runs {timeout:g} s after it was stopped (--fib-timeout)"
            return self._failed(child, "TIMEOUT", after)
        except ChannelBroken as error:
            return self._failed(child, "RUNTIME_ERROR", f"the process forged a message: {error}")
        except (ChannelClosed, ProcessLookupError):
            # Before its program is loaded, nothing that ends it is the program's doing.
            unused = (request is None or isinstance(request, Map)) and self._program is None
            return self._ended(child, unused=unused)

    def _reply(
        self, child: Child, request: Request | None, timeout: float, descriptors: tuple[int, ...]
    ) -> Reply:
        if request is not None and child.channel.pending():
            raise ChannelBroken("a message without a request")
        is_timed = isinstance(request, Blocks)
        waited_before = waited_ns(child.pid) if is_timed else 0
        serial, reply = self._timed_exchange(child, request, timeout, descriptors)
        if serial != self._serial:
            raise ChannelBroken("a reply out of turn")
        if self._untrusted and not self._fork_server.has(child):
            raise ChannelClosed
        if isinstance(request, (Prepare, PrepareIdle, Blocks, Collect, Step)):
            self._wait_until_stopped(child, timeout)
        if is_timed:
            self.waited_ns = max(0, waited_ns(child.pid) - waited_before)  # none if it is gone
        return _fit_to_show(_decoded(reply), _printed(child))

    def _timed_exchange(
        self, child: Child, request: Request | None, timeout: float, descriptors: tuple[int, ...]
    ) -> tuple[int, bytes]:
        """Let the process run until it replies: the serial number and the message."""
        payload = b"" if request is None else encode_request(request)
        short = request is not None and is_short(request)
        if short:  # it fits the socket, and is there when the process wakes up
            child.channel.send(self._serial, payload, (), timeout)
        start = perf_counter_ns()
        self._resume(child)
        if payload and not short:
            child.channel.send(self._serial, payload, descriptors, timeout)
        self._paused = 0.0
        try:
            if self._turns is not None and self._turns.is_shared:
                self._wait_in(self._turns, child, monotonic() + timeout)
            serial, reply, _ = child.channel.receive(timeout)
            self._stop(child)
        finally:
            self.ran_ns = perf_counter_ns() - start - round(1e9 * self._paused)
        return serial, reply

    def _wait_in(self, turns: Turns, child: Child, until: float) -> None:
        """Wait for a reply; no timeout counts the time for which the process is paused."""
        with turns.working(self):
            while True:
                left = until + self._paused - monotonic()
                # Asked in any case: if this process was stopped, the reply may have come meanwhile.
                if child.channel.has_news_within(max(0.0, min(TURN, left))):
                    return
                if left <= 0:
                    raise ChannelLate
                self._paused += turns.pause_if_wanted()

    def pause(self) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                # Who stopped itself is not continued: its hang would end by chance.
                if not has_stopped(self._child.pid):
                    self._stop(self._child)

    def resume(self) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._resume(self._child)

    def _stop(self, child: Child) -> None:
        """Pause the process. Both sides are paused, so that asking either takes as long."""
        os.killpg(child.pid, signal.SIGSTOP)  # and what it started, but for other sessions
        self._stopped = True

    def _wait_until_stopped(self, child: Child, timeout: float) -> None:
        """The other side is timed next, and what works on would make it slow.

        Or values come next that it is to see later, and a system call may read them all.
        On the CPU both ran until then: on a busy machine it takes a while to stop. What is timed on
        a GPU is not done by a system call, and where both sides share a core with the judge, the
        time until one gets to know that it was stopped would only blur the clock. Raises
        TimeoutError.
        """
        if self._allocator is None or self._allocator.device == "cpu":
            self.ran_ns += round(1e9 * wait_until_stopped(child.pid, timeout))
        elif self._untrusted:
            wait_until_stopped(child.pid, timeout)

    def _resume(self, child: Child) -> None:
        if self._stopped:
            os.killpg(child.pid, signal.SIGCONT)
        self._stopped = False

    def _ended(self, child: Child, *, unused: bool) -> Failed:
        printed, orphaned = _printed(child), not self._fork_server.has(child)
        try:
            code = self._fork_server.end(child)
        finally:
            self._forget()
        summary = f"the process {how_it_ended(code)}"
        killed = orphaned or unused or code == -signal.SIGKILL
        # Landlock keeps foreign code from that where it scopes signals.
        by_others = orphaned and (not self._untrusted or "landlock" in wall_names())
        if by_others:
            summary = "the process that starts sandboxes was killed"
        elif orphaned:
            summary = "it killed or disturbed the process that starts sandboxes"
        return Failed(
            "RUNTIME_ERROR", summary, printed, broken=True, killed=killed, by_others=by_others
        )

    def _late(self, child: Child, summary: str) -> Failed:
        """End a process that takes too long, once it has said where all of its threads are."""
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGABRT)
        if child.pidfd is not None:
            select.select([child.pidfd], [], [], STACKS_TIMEOUT)
        return self._failed(child, "TIMEOUT", summary)

    def _failed(self, child: Child, status: FailedStatus, summary: str) -> Failed:
        printed = _printed(child)
        self.close()
        return Failed(status, summary, printed, broken=True)


Sandbox: TypeAlias = LocalSandbox | ProcessSandbox


def no_answer_within(seconds: float, option: str = "--fib-timeout") -> str:
    """That there was no answer in time."""
    return f"no answer within {seconds:g} s ({option})"


def _decoded(payload: bytes) -> Reply:
    """The reply of a message. Raises ChannelBroken."""
    try:
        return decode_reply(payload)
    except ValueError as error:
        raise ChannelBroken(str(error).partition("\n")[0]) from error


def _printed(child: Child) -> str:
    """The process' output since the last read; only the end if it is long."""
    size = os.fstat(child.output).st_size
    if size == 0:
        return ""
    tail = os.pread(child.output, LOG_LIMIT, max(0, size - LOG_LIMIT))
    os.ftruncate(child.output, 0)
    return own_stacks(visible(tail.decode(errors="replace")))


def _fit_to_show(reply: Reply, printed: str = "") -> Reply:
    """A reply with what was printed in its log; all text cut to its limits, and visible.

    Here, on the judge's side: a sandbox may forge its replies. So nobody who shows a summary, a log
    or a record has to care.
    """
    if isinstance(reply, Done) and not (reply.log or reply.method or printed):
        return reply
    is_of_compiler = isinstance(reply, Failed) and reply.status == "COMPILE_ERROR"
    log = visible(reply.log[-(COMPILER_LOG_LIMIT if is_of_compiler else LOG_LIMIT) :])
    if printed:
        log = f"{log}\n--- printed ---\n{printed}".lstrip("\n")
    if isinstance(reply, Done):
        return replace(reply, log=log, method=visible_line(reply.method[:LINE_LIMIT]))
    return replace(reply, log=log, summary=_told(visible_line(reply.summary[:LINE_LIMIT])))


def _told(summary: str) -> str:
    """A summary that isn't taken for the judge's own words, by which nobody is blamed."""
    judges_own = summary.lstrip().casefold().startswith((NOT_EVALUATED, OWN_FAULT))
    return f"it says: {summary}" if judges_own else summary
