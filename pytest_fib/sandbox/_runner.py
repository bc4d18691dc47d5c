"""Runs what the judge requests: holds one program, calls it, times it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.build import BuildError, Program, load
from pytest_fib.sandbox._arena import moved
from pytest_fib.sandbox._calling import InvalidOutput, Invoke, bind, store
from pytest_fib.sandbox._foreign_errors import one_line, own_traceback
from pytest_fib.sandbox._messages import (
    Blocks,
    Call,
    Collect,
    CountOperations,
    Done,
    Failed,
    Load,
    Prepare,
    TensorRef,
)
from pytest_fib.sandbox._widen import OracleUnavailable, run_widened
from pytest_fib.timing import EmptyCaptureError, Graph, count_operations, flush_ns, series

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_fib.sandbox._messages import Argument, FailedStatus, Reply, Request
    from pytest_fib.timing import Series

# Bound before any program is loaded, which might replace it.
_synchronize = torch.cuda.synchronize


class Runner:
    """Replies to requests. ``tensor`` gives the tensor of a reference into the judge's arena."""

    def __init__(self, device: str, tensor: Callable[[TensorRef], torch.Tensor]) -> None:
        self._device = device
        self._tensor = tensor
        self.program: Program | None = None
        self._function: Callable[..., Any] | None = None
        self._series: Series | None = None
        self._prepared: Prepare | None = None
        #: Whether calls of the program can be captured in a graph; None until that was tried.
        self._capturable: bool | None = None
        #: Whether a graph was compared with plain calls: once in a process, since it takes long.
        self._checked = False

    def answer(self, request: Request) -> Reply:
        """The reply. Whatever the program raises becomes a Failed."""
        status: FailedStatus = "COMPILE_ERROR" if isinstance(request, Load) else "RUNTIME_ERROR"
        try:
            return self._answer(request)
        except InvalidOutput as error:
            return Failed(error.status, str(error))
        except EmptyCaptureError as error:
            return Failed(status, str(error))
        except OracleUnavailable as error:
            return Failed(status, str(error), no_oracle=True)
        except BuildError as error:
            return Failed("COMPILE_ERROR", str(error))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        # Foreign code may raise anything, SystemExit and pytest's own outcomes included.
        except BaseException as error:  # noqa: BLE001
            return Failed(status, one_line(error), own_traceback(error), broken=self._is_broken())

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
        match request:
            case Load():
                return self._load(request.program)
            case Call():
                return self._call(request)
            case Prepare():
                return self._prepare(request)
            case Blocks():
                return self._time(request)
            case CountOperations():
                arguments = [self._value(value) for value in request.inputs]
                return Done(counts=count_operations(self._loaded[1], arguments))
            case Collect():
                return self._collect(request)
        raise AssertionError(f"{request} is not for a program")

    def _load(self, program: Program) -> Reply:
        if program != self.program:
            self.program = self._function = self._capturable = None
            self.release()
            self._function = load(program)
            self.program = program
        return Done()

    @property
    def _loaded(self) -> tuple[Program, Callable[..., Any]]:
        assert self.program is not None, "a program is loaded before it is called"
        assert self._function is not None
        return self.program, self._function

    def release(self) -> None:
        """Drop prepared calls: graphs hold memory."""
        self._series = self._prepared = None

    def _call(self, request: Call) -> Reply:
        program, function = self._loaded
        for refs in filter(None, (request.outputs, request.second_outputs)):
            # New objects for each call: the program may have changed those of the first.
            inputs = [self._value(value) for value in request.inputs]
            outputs = [self._tensor(ref) for ref in refs]
            if request.widened is None:
                result = bind(function, program.calling, inputs, outputs)()
            else:
                result = run_widened(function, inputs, **vars(request.widened))
            store(result, program.calling, program.outputs, outputs)
        if self._device != "cpu":
            _synchronize()  # all streams of the device, not only the current one
        return Done()

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
            check=request.check and not self._checked,
            capturable=self._capturable,
        )
        self._checked |= request.check
        self._capturable = isinstance(self._series, Graph)
        self._prepared = request
        flush = 0.0 if self._device == "cpu" else flush_ns()
        return Done(method=self._series.method, flush_ns=flush)

    def _moved_call(self, inputs: list[Any], outputs: list[torch.Tensor], by: int) -> Invoke:
        """The call on tensors that lie ``by`` bytes further on."""
        program, function = self._loaded
        moved_inputs = [moved(v, by) if isinstance(v, torch.Tensor) else v for v in inputs]
        moved_outputs = [moved(output, by) for output in outputs]
        return bind(function, program.calling, moved_inputs, moved_outputs)

    def _time(self, request: Blocks) -> Reply:
        assert self._series is not None, "calls are prepared before they are timed"
        run = self._series.hot if request.hot else self._series.run
        return Done(samples_ns=tuple(t for _ in range(request.rounds) for t in run()))

    def _collect(self, request: Collect) -> Reply:
        assert self._series is not None, "calls are timed before their outputs are collected"
        assert self._prepared is not None
        (program, _), prepared = self._loaded, self._prepared
        for group in request.groups:
            for i, result in enumerate(self._series.results[group]):
                by = (prepared.groups[group] + i) * prepared.stride
                outputs = [self._tensor(ref.moved(by)) for ref in prepared.outputs]
                store(result, program.calling, program.outputs, outputs)
        if self._device != "cpu":
            _synchronize()
        return Done()

    def _value(self, value: Argument) -> Any:
        return self._tensor(value) if isinstance(value, TensorRef) else value
