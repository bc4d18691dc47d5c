"""The sandbox's side: holds one program and runs it on the tensors it is told to."""

from __future__ import annotations

import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.build import BuildError, Program, load
from pytest_fib.engine._calling import Invoke, WrongOutput, bind, store
from pytest_fib.engine._memory import moved
from pytest_fib.engine._messages import (
    Blocks,
    Call,
    Collect,
    Count,
    Counted,
    Done,
    Failed,
    Load,
    Prepare,
    TensorRef,
)
from pytest_fib.engine._oracle import OracleUnavailable, run_widened
from pytest_fib.timing import EmptyCaptureError, Graph, flush_ns, series

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_fib.engine._messages import Argument, FailedStatus, Reply, Request
    from pytest_fib.timing import Series

# Bound before any program is loaded, which might replace it.
_synchronize = torch.cuda.synchronize

#: How much of a program's output and traceback is kept, in characters.
LOG_LIMIT = 16_384
#: How much of the one line that says what went wrong.
LINE_LIMIT = 1_000


class Runner:
    """Answers requests. ``tensor`` finds the tensor at a place in the judge's memory."""

    def __init__(self, device: str, tensor: Callable[[TensorRef], torch.Tensor]) -> None:
        self._device = device
        self._tensor = tensor
        self.program: Program | None = None
        self._function: Callable[..., Any] | None = None
        self._series: Series | None = None
        self._prepared: Prepare | None = None
        #: Whether calls of the program can be captured in a graph, once that was tried.
        self._capturable: bool | None = None
        #: Whether captured calls were compared with plain ones; once, since it takes long.
        self._recorded = False

    def answer(self, request: Request) -> Reply:
        """Do what is asked. Whatever the program raises becomes a Failed."""
        status: FailedStatus = "COMPILE_ERROR" if isinstance(request, Load) else "RUNTIME_ERROR"
        try:
            return self._answer(request)
        except WrongOutput as error:
            return Failed(error.status, str(error))
        except EmptyCaptureError as error:
            return Failed(status, str(error))
        except OracleUnavailable as error:
            return Failed(status, _encodable(str(error)), no_oracle=True)
        except BuildError as error:
            return Failed("COMPILE_ERROR", str(error))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        # Foreign code may raise anything, SystemExit and pytest's own outcomes included.
        except BaseException as error:  # noqa: BLE001
            return Failed(status, _one_line(error), _own_traceback(error), broken=self._is_broken())

    def _is_broken(self) -> bool:
        """Whether the CUDA context is beyond use, as it is after an illegal memory access."""
        if self._device == "cpu":
            return False
        try:
            _synchronize()
        except RuntimeError:
            return True
        return False

    def _answer(self, request: Request) -> Reply:
        if isinstance(request, Load):
            return self._load(request.program)
        if isinstance(request, Call):
            return self._call(request)
        if isinstance(request, Prepare):
            return self._prepare(request)
        if isinstance(request, Blocks):
            assert self._series is not None, "calls are prepared before they are timed"
            run = self._series.hot if request.hot else self._series.run
            return Done(samples_ns=tuple(t for _ in range(request.rounds) for t in run()))
        if isinstance(request, Count):
            return self._count(request)
        assert isinstance(request, Collect), "a mapping is not the program's to answer"
        return self._collect(request)

    def _load(self, program: Program) -> Reply:
        if program != self.program:
            self.program = self._function = self._capturable = None
            self.release()
            self._function = load(program)
            self.program = program
        return Done()

    def release(self) -> None:
        """Drop calls that were prepared: graphs keep memory."""
        self._series = self._prepared = None

    def _call(self, request: Call) -> Reply:
        assert self.program is not None, "a program is loaded before it is called"
        for places in filter(None, (request.outputs, request.again)):
            outputs = [self._tensor(ref) for ref in places]
            result = self._bound(request, outputs)()
            store(result, self.program.calling, self.program.outputs, outputs)
        if self._device != "cpu":
            _synchronize()  # all streams of the device, not only the current one
        return Done()

    def _count(self, request: Count) -> Reply:
        from pytest_fib.timing._count import count  # what it imports, most runs don't need

        assert self._function is not None, "a program is loaded before it is called"
        found = count(self._function, [self._value(value) for value in request.inputs])
        return Done(counted=Counted(found.flops, found.moved_bytes, found.seen))

    def _prepare(self, request: Prepare) -> Reply:
        self.release()
        inputs = [self._value(value) for value in request.inputs]
        outputs = [self._tensor(ref) for ref in request.outputs]
        groups = [
            [
                self._moved_call(inputs, outputs, (start + i) * request.stride)
                for i in range(request.size)
            ]
            for start in request.groups
        ]
        self._series = series(
            groups,
            request.repeat,
            self._device,
            check=request.check and not self._recorded,
            capturable=self._capturable,
        )
        self._recorded |= request.check
        self._capturable = isinstance(self._series, Graph)
        self._prepared = request
        flush = 0.0 if self._device == "cpu" else flush_ns()
        return Done(method=self._series.method, flush_ns=flush)

    def _moved_call(self, inputs: list[Any], outputs: list[torch.Tensor], by: int) -> Invoke:
        """The call on tensors that lie ``by`` bytes further on."""
        assert self.program is not None, "a program is loaded before it is called"
        assert self._function is not None
        there = [moved(v, by) if isinstance(v, torch.Tensor) else v for v in inputs]
        calling = self.program.calling
        return bind(self._function, calling, there, [moved(each, by) for each in outputs])

    def _collect(self, asked: Collect) -> Reply:
        assert self._series is not None, "calls are timed before their outputs are collected"
        assert self._prepared is not None
        assert self.program is not None
        request = self._prepared
        for group in asked.groups:
            for i, result in enumerate(self._series.results[group]):
                by = (request.groups[group] + i) * request.stride
                outputs = [self._tensor(ref.moved(by)) for ref in request.outputs]
                store(result, self.program.calling, self.program.outputs, outputs)
        if self._device != "cpu":
            _synchronize()
        return Done()

    def _value(self, value: Argument) -> Any:
        return self._tensor(value) if isinstance(value, TensorRef) else value

    def _bound(self, request: Call, outputs: list[torch.Tensor]) -> Invoke:
        assert self.program is not None
        assert self._function is not None
        values = [self._value(value) for value in request.inputs]
        if request.widened is not None:
            how = request.widened
            return partial(
                run_widened,
                self._function,
                values,
                nudge=how.nudge,
                narrow_operands=how.narrow_operands,
                round_operands=how.round_operands,
            )
        return bind(self._function, self.program.calling, values, outputs)


def _one_line(error: BaseException) -> str:
    """``ValueError: the first line of its message``."""
    first = next(iter(_text(error).splitlines()), "")
    line = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return _encodable(line[:LINE_LIMIT])


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  (its __str__ is foreign code too)
        return "its message can't be read"


def _encodable(text: str) -> str:
    """Without the lone surrogates that Python allows in text and JSON does not."""
    return text.encode(errors="backslashreplace").decode()


def _own_traceback(error: BaseException) -> str:
    """The traceback from the first frame of the program on; ours says nothing about its bug."""
    here = error.__traceback__
    while here is not None and _is_ours(here.tb_frame.f_code.co_filename):
        here = here.tb_next
    lines = traceback.format_exception(type(error), error, here)
    return _encodable("".join(lines)[-LOG_LIMIT:])


def _is_ours(filename: str) -> bool:
    return "/pytest_fib/" in filename or filename.startswith("<frozen importlib")
