"""The sandbox's side: holds one program and runs it on the tensors it is told to."""

from __future__ import annotations

import contextlib
import io
import traceback
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.build import BuildError, Program, load
from pytest_fib.engine._calling import Invoke, WrongOutput, bind, store
from pytest_fib.engine._messages import Argument, Block, Call, Done, Failed, Load, TensorRef
from pytest_fib.timing import time_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_fib.engine._messages import Reply, Request

#: How much of a program's output and traceback is kept, in characters.
LOG_LIMIT = 16_384


class Runner:
    """Answers requests. ``tensor`` finds the tensor at a place in the judge's memory."""

    def __init__(self, device: str, tensor: Callable[[TensorRef], torch.Tensor]) -> None:
        self._device = device
        self._tensor = tensor
        self._program: Program | None = None
        self._function: Callable[..., Any] | None = None

    def answer(self, request: Request) -> Reply:
        """Do what is asked. Whatever the program raises becomes a Failed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            reply = self._guarded(request)
        return _with_output(reply, printed.getvalue())

    def _guarded(self, request: Request) -> Reply:
        status = "COMPILE_ERROR" if isinstance(request, Load) else "RUNTIME_ERROR"
        try:
            return self._load(request.program) if isinstance(request, Load) else self._run(request)
        except WrongOutput as error:
            return Failed(error.status, str(error))
        except BuildError as error:
            return Failed("COMPILE_ERROR", str(error))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        # Foreign code may raise anything, SystemExit and pytest's own outcomes included.
        except BaseException as error:  # noqa: BLE001
            return Failed(status, _one_line(error), _own_traceback(error))

    def _load(self, program: Program) -> Reply:
        if program != self._program:
            self._program = self._function = None
            self._function = load(program)
            self._program = program
        return Done()

    def _run(self, request: Call | Block) -> Reply:
        assert self._program is not None, "a program is loaded before it is called"
        outputs = [self._tensor(ref) for ref in request.outputs]
        invoke = self._bound(request.inputs, outputs)
        if isinstance(request, Block):
            result, samples = time_calls(invoke, request.calls, self._device)
        else:
            result, samples = invoke(), ()
        store(result, self._program.calling, self._program.outputs, outputs)
        if self._device != "cpu":
            torch.cuda.synchronize()
        return Done(samples_ns=samples)

    def _bound(self, inputs: tuple[Argument, ...], outputs: list[torch.Tensor]) -> Invoke:
        assert self._program is not None
        assert self._function is not None
        values = [self._tensor(v) if isinstance(v, TensorRef) else v for v in inputs]
        return bind(self._function, self._program.calling, values, outputs)


def _with_output(reply: Reply, printed: str) -> Reply:
    if not printed:
        return reply
    log = f"{reply.log}\n--- output ---\n{printed}".lstrip()[-LOG_LIMIT:]
    if isinstance(reply, Done):
        return Done(log, reply.samples_ns)
    return Failed(reply.status, reply.summary, log)


def _one_line(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()
    return text.splitlines()[-1] if text else type(error).__name__


def _own_traceback(error: BaseException) -> str:
    """The traceback from the first frame of the program on; ours says nothing about its bug."""
    here = error.__traceback__
    while here is not None and _is_ours(here.tb_frame.f_code.co_filename):
        here = here.tb_next
    lines = traceback.format_exception(type(error), error, here)
    return "".join(lines)[-LOG_LIMIT:]


def _is_ours(filename: str) -> bool:
    return "/pytest_fib/" in filename or filename.startswith("<frozen importlib")
