"""One evaluation: the steps from a request to its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fib.build import program_of, reference_program
from pytest_fib.data import Evaluation, EvaluationStatus, Performance
from pytest_fib.engine._environment import environment
from pytest_fib.engine._memory import aligned, nbytes
from pytest_fib.engine._messages import Block, Call, Done, Failed, Load, TensorRef
from pytest_fib.engine._request import DefinitionError
from pytest_fib.engine._verdict import judge_outputs
from pytest_fib.timing import least_bytes, measure
from pytest_fib.workloads import fill_input, scalar_inputs, torch_dtype

if TYPE_CHECKING:
    import torch

    from pytest_fib.engine._memory import Layout
    from pytest_fib.engine._messages import Argument, Reply
    from pytest_fib.engine._request import EvaluationRequest
    from pytest_fib.engine._sandbox import Sandbox
    from pytest_fib.engine._verdict import Verdict
    from pytest_fib.timing import Timing

#: What an unwritten output holds, byte by byte: NaN in every floating dtype up to float64.
POISON = 0xFF


@dataclass(frozen=True)
class Side:
    """The candidate's side or the reference's: a sandbox, and the memory it may see."""

    sandbox: Sandbox
    layout: Layout


@dataclass(frozen=True)
class _Places:
    """Where one side's arguments lie."""

    inputs: dict[str, Argument]
    outputs: dict[str, TensorRef]

    def tensors(self) -> dict[str, TensorRef]:
        return {n: ref for n, ref in self.inputs.items() if isinstance(ref, TensorRef)}

    def call(self) -> Call:
        return Call(tuple(self.inputs.values()), tuple(self.outputs.values()))

    def block(self, calls: int) -> Block:
        return Block(tuple(self.inputs.values()), tuple(self.outputs.values()), calls)


class _Stop(Exception):
    """The outcome is known before the outputs can be compared."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.summary)
        self.failed = failed


class Case:
    """Takes one request through its steps; used once."""

    def __init__(self, candidate: Side, reference: Side, request: EvaluationRequest) -> None:
        self._candidate = candidate
        self._reference = reference
        self._request = request
        self._definition = request.definition
        self._axes = request.definition.axis_values(request.workload.axes)
        self._log = ""

    def evaluation(self) -> Evaluation:
        """The outcome. Raises DefinitionError where the definition is at fault."""
        try:
            return self._compared()
        except _Stop as stop:
            failed = stop.failed
            log = f"{failed.summary}\n{failed.log}".strip()
            return Evaluation(
                status=EvaluationStatus(failed.status),
                log=log,
                environment=environment(self._candidate.layout.device),
            )

    def _compared(self) -> Evaluation:
        self._load_candidate()
        mine, theirs = self._places(self._candidate), self._places(self._reference)
        self._make_inputs(mine, theirs)
        self._poison(self._candidate, mine)
        self._run_candidate(mine.call())
        self._refuse_changed_inputs(mine, theirs)
        self._run_reference(theirs)
        verdict = self._verdict(mine, theirs)
        performance = None
        if self._request.timing and verdict.status is EvaluationStatus.PASSED:
            self._poison(self._candidate, mine)
            performance = self._timed(mine, theirs)
            verdict = self._verdict(mine, theirs)
            if verdict.status is not EvaluationStatus.PASSED:
                performance = None
        return Evaluation(
            status=verdict.status,
            log=f"{verdict.summary}\n{self._log}".strip(),
            correctness=verdict.correctness,
            performance=performance,
            environment=environment(self._candidate.layout.device),
        )

    def _load_candidate(self) -> None:
        directory = None if self._request.directory is None else Path(self._request.directory)
        program = program_of(self._request.solution, self._definition, directory)
        self._answered(self._candidate.sandbox.ask(Load(program), self._request.timeout))

    def _places(self, side: Side) -> _Places:
        specs = self._definition.inputs | self._definition.outputs
        shapes = {
            name: (spec.shape_at(self._axes), torch_dtype(spec.dtype))
            for name, spec in specs.items()
            if not (spec.is_scalar and name in self._definition.inputs)
        }
        side.layout.begin(sum(aligned(nbytes(*tensor)) for tensor in shapes.values()))
        scalars = scalar_inputs(self._definition, self._request.workload)
        places = {name: side.layout.place(*tensor) for name, tensor in shapes.items()}
        return _Places(
            inputs={n: places[n] if n in places else scalars[n] for n in self._definition.inputs},
            outputs={name: places[name] for name in self._definition.outputs},
        )

    def _make_inputs(self, mine: _Places, theirs: _Places) -> None:
        for name, ref in mine.tensors().items():
            tensor = self._candidate.layout.tensor(ref)
            fill_input(tensor, name, self._definition, self._request.workload)
            self._reference.layout.tensor(theirs.tensors()[name]).copy_(tensor)

    def _poison(self, side: Side, places: _Places) -> None:
        for ref in places.outputs.values():
            side.layout.bytes(ref).fill_(POISON)

    def _run_candidate(self, call: Call) -> None:
        self._answered(self._candidate.sandbox.ask(call, self._request.timeout))

    def _answered(self, reply: Reply) -> Done:
        if isinstance(reply, Failed):
            raise _Stop(reply)
        self._log = reply.log
        return reply

    def _refuse_changed_inputs(self, mine: _Places, theirs: _Places) -> None:
        for name, ref in mine.tensors().items():
            pristine = self._reference.layout.bytes(theirs.tensors()[name])
            if not self._candidate.layout.bytes(ref).equal(pristine):
                raise _Stop(Failed("RUNTIME_ERROR", f"wrote to its input {name!r}", self._log))

    def _run_reference(self, theirs: _Places) -> None:
        sandbox, timeout = self._reference.sandbox, self._request.timeout
        for request in (Load(reference_program(self._definition)), theirs.call()):
            reply = sandbox.ask(request, timeout)
            if isinstance(reply, Failed):
                where = f"the reference of {self._definition.name} failed at axes {self._axes}"
                raise DefinitionError(f"{where}: {reply.summary}\n{reply.log}".strip())

    def _verdict(self, mine: _Places, theirs: _Places) -> Verdict:
        return judge_outputs(
            self._definition,
            _read(self._candidate, mine.outputs),
            _read(self._reference, theirs.outputs),
        )

    def _timed(self, mine: _Places, theirs: _Places) -> Performance:
        device = self._candidate.layout.device
        latency = measure(partial(self._block, self._candidate, mine), device)
        reference = measure(partial(self._block, self._reference, theirs), device)
        return self._performance(latency, reference)

    def _block(self, side: Side, places: _Places, calls: int) -> tuple[float, ...]:
        reply = side.sandbox.ask(places.block(calls), self._request.timeout)
        if isinstance(reply, Failed) and side is self._reference:
            raise DefinitionError(f"the reference failed while it was timed: {reply.summary}")
        return self._answered(reply).samples_ns

    def _performance(self, latency: Timing, reference: Timing) -> Performance:
        moved = least_bytes(self._definition, self._request.workload.axes)
        return Performance(
            latency_ms=latency.median_ms,
            reference_latency_ms=reference.median_ms,
            speedup_factor=reference.median_ms / latency.median_ms,
            method=latency.method,
            samples=len(latency.samples_ns),
            least_bytes=moved,
            gigabytes_per_second=moved / latency.median_ms / 1e6,
        )


def _read(side: Side, outputs: dict[str, TensorRef]) -> dict[str, torch.Tensor]:
    return {name: side.layout.tensor(ref) for name, ref in outputs.items()}
