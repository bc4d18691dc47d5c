"""Runs what the judge requests: holds one program, calls it, times it."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.build import COMPILER_LOG_LIMIT, BuildError, Program, build, load
from pytest_fib.sandbox._arena import give_back_unused
from pytest_fib.sandbox._calling import InvalidOutput, Invoke, bind, copies, store
from pytest_fib.sandbox._foreign_errors import limited, one_line, out_of_memory, own_traceback
from pytest_fib.sandbox._host_memory import peak_bytes
from pytest_fib.sandbox._messages import (
    Argument,
    Blocks,
    Build,
    Call,
    Collect,
    CountOperations,
    Done,
    Failed,
    FailedStatus,
    Load,
    Prepare,
    PrepareIdle,
    Reply,
    Request,
    Step,
    TensorRef,
    Widened,
)
from pytest_fib.sandbox._rounding import OracleUnavailable, VariationError
from pytest_fib.sandbox._widen import run_widened
from pytest_fib.timing import (
    EmptyCaptureError,
    Graph,
    Series,
    capturing,
    count_operations,
    flush_ns,
    idle_blocks,
    series,
)
from pytest_fib.workloads import empty_tensor, layouts, make_inputs

if TYPE_CHECKING:
    from pytest_fib.sandbox._last_call import LastCall

# Bound before any program is loaded, which might replace them.
_synchronize, _sleep = torch.cuda.synchronize, torch.cuda._sleep
#: How long a second call waits on the device, in nanoseconds: at least and at most; and the factor
#: of what launching the first call took. A host with other work to do may launch it later.
SHORTEST_DELAY, LONGEST_DELAY, LATER = 300_000, 2_000_000, 4
#: While launching took longer than that, a program that makes streams is called again: the most
#: calls, and the longest delay.
MOST_DELAYED_CALLS, LONGEST_OF_STREAMS = 3, 50_000_000
#: Cycles of a device's clock in a nanosecond; none of today's has more.
CYCLES_PER_NS = 2


class Runner:
    """Replies to requests. ``tensor`` gives the tensor of a reference into the judge's arena."""

    def __init__(
        self,
        device: str,
        tensor: Callable[[TensorRef], torch.Tensor],
        last_call: LastCall | None = None,
        *,
        is_process: bool,
    ) -> None:
        self._device = device
        #: Whether nobody but the program can have raised a KeyboardInterrupt.
        self._is_process = is_process
        #: Told of each call, where a debugger wants to know.
        self._last_call = last_call
        self._tensor = tensor
        self.program: Program | None = None
        self._function: Callable[..., Any]
        self._loaded_bytes = 0
        self._series: Series | None = None
        #: Blocks whose calls hardly do anything.
        self._idle: Series | None = None
        self._prepared: Prepare | None = None
        #: The prepared calls, by their numbers.
        self._calls: dict[int, Invoke] = {}
        #: What the last call returned.
        self._returned: Any = None
        #: Copies what captured calls return to their outputs.
        self._store_captured: Callable[[], object] | None = None
        #: Whether calls of the program can be captured in a graph; None until that was tried.
        self._capturable: bool | None = None
        #: Whether a graph was compared with plain calls: once in a process, since it takes long.
        self._checked = False

    def answer(self, request: Request, file: int | None = None) -> Reply:
        """The reply. Whatever the program raises becomes a Failed.

        ``file`` is a descriptor, of the artifact to write or to load.
        """
        is_building = isinstance(request, (Build, Load))
        status: FailedStatus = "COMPILE_ERROR" if is_building else "RUNTIME_ERROR"
        try:
            return self._answer(request, file)
        except InvalidOutput as error:
            return Failed(error.status, limited(str(error)))
        except BuildError as error:
            log = limited(error.log, COMPILER_LOG_LIMIT)
            return Failed(status, limited(str(error)), log)
        except EmptyCaptureError as error:
            return Failed(status, limited(str(error)))
        except OracleUnavailable as error:
            return Failed(status, limited(str(error)), no_oracle=True)
        # Foreign code may raise anything, SystemExit and pytest's own outcomes included.
        except BaseException as error:
            if issubclass(type(error), KeyboardInterrupt) and not self._is_process:
                raise  # a person's
            if isinstance(request, Build):
                status = "RUNTIME_ERROR"  # of host code, that launches what is compiled
            own_fault = issubclass(type(error), VariationError)
            return Failed(
                status,
                one_line(error),
                traceback.format_exc() if own_fault else own_traceback(error),
                own_fault=own_fault,
                broken=self._is_broken(),
                exhausted=out_of_memory(error),
            )

    def _is_broken(self) -> bool:
        """Whether the CUDA context is beyond use, as it is after an illegal memory access."""
        if self._device == "cpu":
            return False
        try:
            _synchronize()
        except RuntimeError:
            return True
        return False

    def _answer(self, request: Request, file: int | None) -> Reply:
        if isinstance(request, Build):
            return _build(request, file)
        if isinstance(request, Load):
            return self._load(request.program, file)
        if isinstance(request, Step):
            return self._step(request, file)
        return self._answer_with_program(request)

    def _answer_with_program(self, request: Request) -> Reply:
        match request:
            case Call():
                return self._call(request)
            case Prepare():
                return self._prepare(request)
            case PrepareIdle():
                self._idle = idle_blocks(request.groups)
                return Done(method=self._idle.method, flush_ns=flush_ns())
            case Blocks():
                return self._time(self._idle if request.idle else self._series)
            case CountOperations():
                return Done(counts=count_operations(self._function, self._values(request.inputs)))
            case Collect():
                return self._collect()
        raise AssertionError(f"{request} is not for a program")

    def _load(self, program: Program, file: int | None) -> Reply:
        if program != self.program:
            self.program = self._capturable = None
            self.release()
            with TemporaryDirectory() as folder:
                self._function = load(program, _written_out(file, Path(folder)))
            if self._last_call is not None:
                self._function = self._last_call.watching(self._function)
            self.program = program
            self._loaded_bytes = self._peak_bytes()
        return Done()

    @property
    def _loaded(self) -> Program:
        assert self.program is not None, "a program is loaded before it is called"
        return self.program

    def release(self) -> None:
        """Drop prepared calls, and what calls returned: that is memory."""
        self._series = self._idle = self._prepared = None
        self._store_captured = self._returned = None
        self._calls = {}

    def _call(self, request: Call) -> Reply:
        before, earlier = self._peak_bytes(), self._returned
        started = perf_counter_ns()
        self._call_once(request, request.outputs)
        if request.second_outputs:
            self._call_delayed(request, perf_counter_ns() - started)
        if request.earlier_outputs:
            self._store_own_memory(earlier, self._values(request.earlier_outputs))
        done = self._finished()
        give_back_unused()
        peak = self._peak_bytes()
        if request.widened is None or peak - before < peak // 8:  # hardly more than once before
            return done
        return replace(done, peak_bytes=peak - self._loaded_bytes)

    def _call_once(self, request: Call, refs: tuple[TensorRef, ...]) -> list[torch.Tensor]:
        """Call the program, and store what it returns in the outputs, which are returned."""
        # New objects for each call: the program may have changed those of one before.
        inputs, outputs = self._values(request.inputs), self._values(refs)
        if request.widened is None:
            result = self._bound(inputs, outputs)()
        else:
            result = self._widened(inputs, request.widened)
        self._store(result, outputs)
        self._returned = None if request.widened else result
        return outputs

    def _call_delayed(self, request: Call, launch_ns: int) -> None:
        """The second call, which finds the current stream busy until all of it is launched.

        So what other streams do without waiting for the current one is done too early, and what
        the current one doesn't wait for is not done when the outputs are read on it. Without the
        delay, that is chance: half of such kernels passed.
        """
        if self._device == "cpu":
            self._call_once(request, request.second_outputs)
            return
        calls, longest = 1, LONGEST_DELAY
        if self._loaded.makes_streams:
            calls, longest = MOST_DELAYED_CALLS, LONGEST_OF_STREAMS
        for _ in range(calls):
            delay_ns = min(max(LATER * launch_ns, SHORTEST_DELAY), longest)
            started = perf_counter_ns()
            _sleep(CYCLES_PER_NS * delay_ns)  # type: ignore[no-untyped-call]
            outputs = self._call_once(request, request.second_outputs)
            read = [output.clone() for output in outputs]
            launch_ns = perf_counter_ns() - started
            _synchronize()
            if launch_ns < delay_ns:
                break
        for output, values in zip(outputs, read, strict=True):
            output.copy_(values)

    def _widened(self, inputs: list[Any], how: Widened) -> Any:
        """Raises OracleUnavailable for whatever the program raises."""
        try:
            return run_widened(self._function, inputs, **vars(how))
        except (OracleUnavailable, VariationError):
            raise
        except Exception as error:
            raise VariationError(one_line(error)) from error

    def _peak_bytes(self) -> int:
        """The most memory that this process has had so far."""
        if self._device == "cpu":
            return peak_bytes()
        stats = torch.cuda.memory_stats_as_nested_dict()  # empty where there is no context yet
        return int(stats["allocated_bytes"]["all"]["peak"]) if stats else 0

    def _prepare(self, request: Prepare) -> Reply:
        self.release()
        give_back_unused()
        numbers = [range(start, start + request.size) for start in request.groups]
        groups = [[self._moved_call(request, number) for number in group] for group in numbers]
        self._calls = dict(zip(chain(*numbers), chain(*groups), strict=True))
        self._series = series(
            groups,
            self._device,
            check=request.check and not self._checked,
            capturable=self._capturable,
            cold=request.cold,
        )
        self._checked |= request.check
        self._capturable = isinstance(self._series, Graph)
        self._prepared = request
        if self._capturable:
            self._store_captured = self._captured_stores()
        nodes = self._series.nodes if isinstance(self._series, Graph) else 0
        flush = 0.0 if self._device == "cpu" else flush_ns()
        return Done(method=self._series.method, flush_ns=flush, nodes=nodes)

    def _moved_call(self, request: Prepare, number: int) -> Invoke:
        by = number * request.stride
        return self._bound(self._values(request.inputs, by), self._values(request.outputs, by))

    def _time(self, series: Series | None) -> Reply:
        assert series is not None, "calls are prepared before they are timed"
        timed = series.run()
        return Done(samples_ns=timed.samples_ns, blocks_ns=timed.blocks_ns)

    def _step(self, request: Step, file: int | None) -> Reply:
        assert file is not None, "steps are asked for with a socket that says when"
        assert self._prepared is not None, "calls are prepared before they are made one by one"
        refs, stride = self._prepared.outputs, self._prepared.stride
        outputs = [self._values(refs, number * stride) for number in self._calls]
        result = None
        for step, call in enumerate(self._calls.values()):
            os.read(file, 1)
            if step == 0 or not request.idle:
                result = call()
            self._store(result, outputs[step])
            os.write(file, b"\0")
        return Done()

    def _collect(self) -> Reply:
        if self._store_captured is not None:
            self._store_captured()
        else:
            for output, value in self._copies():
                output.copy_(value)
        return self._finished()

    def _captured_stores(self) -> Callable[[], object]:
        """Stores the outputs of all captured calls in a few launches: the judge times that.

        Raises InvalidOutput.
        """
        by_dtype: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for output, value in self._copies():
            outputs, values = by_dtype.setdefault(output.dtype, ([], []))
            outputs.append(output)
            values.append(value.to(output.device))  # a number is the same in each launch
        if not by_dtype:
            return lambda: None
        graph = torch.cuda.CUDAGraph()
        with capturing(graph):
            for outputs, values in by_dtype.values():
                torch._foreach_copy_(outputs, values)
        graph.replay()  # the first launch takes longer
        return graph.replay

    def _copies(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The outputs of the calls that are timed, and what these returned last."""
        assert self._series is not None, "calls are timed before their outputs are collected"
        assert self._prepared is not None
        program, prepared = self._loaded, self._prepared
        for start, results in zip(prepared.groups, self._series.results, strict=True):
            for i, result in enumerate(results, start):
                outputs = self._values(prepared.outputs, i * prepared.stride)
                yield from copies(result, program.calling, program.outputs, outputs)

    def _values(self, arguments: Sequence[Argument], by: int = 0) -> list[Any]:
        """Scalars as they are, and the tensors that lie ``by`` bytes behind the references."""
        return [self._tensor(a.moved(by)) if isinstance(a, TensorRef) else a for a in arguments]

    def _bound(self, inputs: list[Any], outputs: list[torch.Tensor]) -> Invoke:
        return bind(self._function, self._loaded.calling, inputs, outputs)

    def _store(self, result: Any, outputs: list[torch.Tensor]) -> None:
        store(result, self._loaded.calling, self._loaded.outputs, outputs)

    def _store_own_memory(self, result: Any, outputs: list[torch.Tensor]) -> None:
        """As ``_store``, but not for views of the judge's memory, which may have changed since."""
        judges = outputs[0].untyped_storage().data_ptr()
        for output, value in copies(result, self._loaded.calling, self._loaded.outputs, outputs):
            if value.untyped_storage().data_ptr() != judges:
                output.copy_(value)

    def _finished(self) -> Done:
        """Wait until all streams of the device are done, not only the current one."""
        if self._device != "cpu":
            _synchronize()
        return Done()


def _build(request: Build, file: int | None) -> Done:
    assert file is not None, "a build is asked for with a file for what is built"
    with TemporaryDirectory() as folder:
        built = build(request.program, Path(folder), partial(_call_built, request))
        with Path(folder, built.file).open("rb") as artifact, os.fdopen(os.dup(file), "wb") as out:
            shutil.copyfileobj(artifact, out)
    return Done(built=built)


def _call_built(request: Build, function: Callable[..., Any]) -> None:
    """Call a program that is being built with inputs of the request's workload, on the CPU."""
    definition, workload = request.definition, request.workload
    assert definition is not None
    assert workload is not None
    inputs = make_inputs(definition, workload)
    placed = layouts(definition, workload)
    outputs = [empty_tensor(placed[name], "cpu") for name in definition.outputs]
    bind(function, request.program.calling, list(inputs.values()), outputs)()


def _written_out(file: int | None, folder: Path) -> Path | None:
    """The artifact as a file of that folder, since a library is loaded by its path."""
    if file is None:
        return None
    path = folder / "artifact.so"
    path.write_bytes(os.pread(file, os.fstat(file).st_size, 0))
    return path
