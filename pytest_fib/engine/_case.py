"""One evaluation: the steps from a request to its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

import torch

from pytest_fib.build import program_of, reference_program
from pytest_fib.data import Evaluation, EvaluationStatus
from pytest_fib.engine._calling import dtype_name
from pytest_fib.engine._environment import environment
from pytest_fib.engine._memory import nbytes, room_for
from pytest_fib.engine._messages import Call, Done, Failed, Load, Prepare, TensorRef, Widened
from pytest_fib.engine._oracle import YARDSTICKS, widened_dtype
from pytest_fib.engine._request import DefinitionError
from pytest_fib.engine._sets import GAP, Sets
from pytest_fib.engine._timed import Timed
from pytest_fib.engine._verdict import Verdict, in_support, judge_outputs
from pytest_fib.workloads import (
    RecordedError,
    TensorLayout,
    bits,
    fill_inputs,
    layouts,
    once,
    scalar_inputs,
)

if TYPE_CHECKING:
    from pytest_fib.data import Correctness, Performance, Workload
    from pytest_fib.engine._lease import Lease
    from pytest_fib.engine._memory import Layout
    from pytest_fib.engine._messages import Argument, Reply
    from pytest_fib.engine._request import EvaluationRequest
    from pytest_fib.engine._sandbox import Sandbox

#: What outputs hold before each of the two calls, byte by byte. The first is NaN in the floating
#: dtypes; the second is a finite number, so that neither passes where the other would.
POISONS = (0xFF, 0x55)
#: Up to this size an implementation is called a second time, with other values.
SECOND_CALL_BYTES = 8 << 20
SECOND_CALL = "right on a first call, wrong on a second of the same shapes with other values"
#: Makes another seed of a seed.
OTHER_SEED = 0x5EED0


@dataclass(frozen=True)
class Side:
    """The candidate's side or the reference's: a sandbox, and the memory it may see."""

    sandbox: Sandbox
    layout: Layout


@dataclass(frozen=True)
class Places:
    """Where one side's arguments lie."""

    inputs: dict[str, Argument]
    outputs: dict[str, TensorRef]
    #: Where the reference's outputs in float64 lie; of integers and the like, as they are.
    wide: dict[str, TensorRef] = field(default_factory=dict)

    def tensors(self) -> dict[str, TensorRef]:
        return {n: ref for n, ref in self.inputs.items() if isinstance(ref, TensorRef)}

    def call(self) -> Call:
        return Call(tuple(self.inputs.values()), tuple(self.outputs.values()))

    def oracle(self, how: Widened) -> Call:
        return Call(tuple(self.inputs.values()), tuple(self.wide.values()), how)

    def prepare(self, stride: int, groups: tuple[int, ...], size: int, repeat: int) -> Prepare:
        arguments = tuple(self.inputs.values()), tuple(self.outputs.values())
        return Prepare(*arguments, stride, groups, size, repeat)

    def moved(self, by: int) -> Places:
        """Where a set lies that is ``by`` bytes further on; there is one place for the oracle."""
        return replace(
            self,
            inputs={
                n: v.moved(by) if isinstance(v, TensorRef) else v for n, v in self.inputs.items()
            },
            outputs={name: ref.moved(by) for name, ref in self.outputs.items()},
        )


class _Stop(Exception):
    """The outcome is known before the outputs can be compared."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.summary)
        self.failed = failed


@dataclass(frozen=True)
class _Expected:
    """The right outputs, and why they are not in float64, where they are not."""

    outputs: dict[str, torch.Tensor]
    no_oracle: str | None = None


class KilledError(Exception):
    """A sandbox was killed, or what it comes from: by this candidate's hand or another's."""


class Case:
    """Takes one request through its steps; used once.

    Unless it is the ``last_attempt``, a killed sandbox raises KilledError rather than be blamed on
    the candidate.
    """

    def __init__(
        self,
        candidate: Side,
        reference: Side,
        lease: Lease,
        request: EvaluationRequest,
        *,
        last_attempt: bool = True,
    ) -> None:
        self.candidate = candidate
        self.reference = reference
        self._lease = lease
        self.request = request
        self._last_attempt = last_attempt
        self._definition = request.definition
        self._axes = request.definition.axis_values(request.workload.axes)
        self._deadline = 0.0  # set when the candidate is about to be loaded
        self._log = ""

    def evaluation(self) -> Evaluation:
        """The outcome. Raises DefinitionError where the definition is at fault, or KilledError."""
        try:
            verdict, performance = self._outcome()
        except _Stop as stop:
            failed = stop.failed
            return self._evaluation(failed.status, f"{failed.summary}\n{failed.log}")
        log = f"{verdict.summary}\n{self._log}"
        return self._evaluation(verdict.status, log, verdict.correctness, performance)

    def _evaluation(
        self,
        status: str,
        log: str,
        correctness: Correctness | None = None,
        performance: Performance | None = None,
    ) -> Evaluation:
        return Evaluation(
            status=EvaluationStatus(status),
            log=log.strip(),
            correctness=correctness,
            performance=performance,
            environment=environment(self.candidate.layout.device),
        )

    def _outcome(self) -> tuple[Verdict, Performance | None]:
        with self._lease.shared():
            self._load_candidate()
            verdict = self._checked()
        if not self.request.timing or not verdict.passed:
            return verdict, None
        with self._lease.exclusive():
            return Timed(self).outcome()

    def _checked(self) -> Verdict:
        """The verdict of a call and, where that is cheap, of another with other values.

        The second finds everything where the first did: whoever goes by pointer, object or shape
        answers it with what was right before.
        """
        sets = self.sets(self.candidate)
        mine, theirs = sets.first, self.sets(self.reference, wide=True).first
        verdict = self._round(mine, theirs, self.request.workload, POISONS[0])
        if not verdict.passed or not (self.request.timing or sets.size <= SECOND_CALL_BYTES):
            return verdict
        other = self.request.workload.model_copy(
            update={"seed": self.request.workload.seed ^ OTHER_SEED}
        )
        second = self._round(mine, theirs, other, POISONS[1])
        if second.passed:
            return verdict
        return replace(second, summary=f"{second.summary} ({SECOND_CALL})")

    def _round(self, mine: Places, theirs: Places, workload: Workload, poison: int) -> Verdict:
        self._make_inputs(mine, theirs, workload)
        self._poison(mine, poison)
        self._run_candidate(mine.call())
        self._refuse_changed_inputs(mine, theirs)
        verdict = self._verdict(mine, theirs, self._expected(theirs))
        unwritten = "" if verdict.passed else self._unwritten(mine, theirs, poison)
        return replace(verdict, summary=verdict.summary + unwritten)

    def _unwritten(self, mine: Places, theirs: Places, poison: int) -> str:
        """Which outputs hold the poison where something else is expected."""
        notes = []
        for name, ref in mine.outputs.items():
            shape = (-1, nbytes((1,), ref.dtype))
            got = self.candidate.layout.bytes(ref).view(shape)
            expected = self.reference.layout.bytes(theirs.outputs[name]).view(shape)
            left = (got == poison).all(1) & (expected != poison).any(1)
            if count := int(left.sum()):
                elements = f"{count} of {len(left)} elements of {name}"
                notes.append(f"; {elements} still hold what was there before the call")
        return "".join(notes)

    def _load_candidate(self) -> None:
        directory = None if self.request.directory is None else Path(self.request.directory)
        program = program_of(self.request.solution, self._definition, directory)
        loaded = self.candidate.sandbox.holds(program)
        if not loaded:
            # The outputs of another implementation may be the right answers of this one.
            self.candidate.layout.wipe()
            self.answered(self.candidate.sandbox.open(program))
        self._deadline = monotonic() + self.request.timeout
        if not loaded:
            self.answered(self.candidate.sandbox.ask(Load(program), self._remaining()))

    def _remaining(self) -> float:
        return max(self._deadline - monotonic(), 0.001)

    def sets(self, side: Side, count: int = 1, *, wide: bool = False) -> Sets:
        """Memory for ``count`` sets of a side's tensors; what lay there before is forgotten."""
        definition, workload = self._definition, self.request.workload
        tensors = layouts(definition, workload)
        rooms = {name: room_for(tensor) for name, tensor in tensors.items()}
        oracle = {name: _widened(tensors[name]) for name in definition.outputs if wide}
        size = sum(rooms.values())
        stride = size + (GAP if count > 1 else 0)
        behind = sum(room_for(tensor) for tensor in oracle.values())
        start = side.layout.begin(count * stride + behind)
        places = {name: side.layout.place(tensor) for name, tensor in tensors.items()}
        side.layout.skip(count * stride - size)
        scalars = scalar_inputs(definition, workload)
        first = Places(
            inputs={n: places[n] if n in places else scalars[n] for n in definition.inputs},
            outputs={name: places[name] for name in definition.outputs},
            wide={name: side.layout.place(tensor) for name, tensor in oracle.items()},
        )
        inputs_size = sum(room for name, room in rooms.items() if name not in definition.outputs)
        return Sets(side.layout, start, first, stride, inputs_size, size, count)

    def fill(self, mine: Places, workload: Workload) -> dict[str, torch.Tensor]:
        """Make a workload's values in the candidate's inputs. Raises DefinitionError."""
        tensors = _read(self.candidate, mine.tensors())
        root = None if self.request.root is None else Path(self.request.root)
        try:
            fill_inputs(tensors, self._definition, workload, root)
        except RecordedError as error:
            raise DefinitionError(f"a recorded workload can't be used: {error}") from error
        return tensors

    def _make_inputs(self, mine: Places, theirs: Places, workload: Workload) -> None:
        tensors = self.fill(mine, workload)
        for name, pristine in _read(self.reference, theirs.tensors()).items():
            once(bits(pristine)).copy_(once(bits(tensors[name])))
        self.synchronize()

    def _poison(self, places: Places, pattern: int) -> None:
        for ref in places.outputs.values():
            self.candidate.layout.bytes(ref).fill_(pattern)
        self.synchronize()

    def synchronize(self) -> None:
        """Sandboxes are other CUDA contexts: what they read must have been written by then."""
        if self.candidate.layout.device != "cpu":
            torch.cuda.synchronize()

    def _run_candidate(self, call: Call) -> None:
        self.answered(self.candidate.sandbox.ask(call, self._remaining()))

    def answered(self, reply: Reply) -> Done:
        """The candidate's reply; ends the evaluation where it is a failure."""
        if isinstance(reply, Failed):
            self._doubt(reply)
            raise _Stop(reply)
        self._log = reply.log
        return reply

    def _doubt(self, failed: Failed) -> None:
        if failed.killed and not self._last_attempt:
            raise KilledError(failed.summary)

    def _refuse_changed_inputs(self, mine: Places, theirs: Places) -> None:
        pristine = _read(self.reference, theirs.tensors())
        for name, tensor in _read(self.candidate, mine.tensors()).items():
            if not bits(tensor).equal(bits(pristine[name])):
                self.refuse(f"wrote to its input {name!r}")

    def _expected(self, theirs: Places) -> _Expected:
        """What is right: the reference in float64 or, where that can't be, as it is."""
        self._load_reference()
        reply = self.reference.sandbox.ask(theirs.oracle(Widened()), self.request.timeout)
        if isinstance(reply, Failed) and reply.no_oracle:
            self.referred(self.reference.sandbox.ask(theirs.call(), self.request.timeout))
            return _Expected(_read(self.reference, theirs.outputs), reply.summary)
        self.referred(reply)
        return _Expected(_read(self.reference, theirs.wide))

    def _yardsticks(self, theirs: Places) -> list[dict[str, torch.Tensor]]:
        """The reference's outputs as honest rounding may change them; the oracle's are kept."""
        sandbox, timeout = self.reference.sandbox, self.request.timeout
        self.referred(sandbox.ask(theirs.call(), timeout))
        found = [_read(self.reference, theirs.outputs)]
        for how in YARDSTICKS:
            self.referred(sandbox.ask(theirs.oracle(Widened(**how)), timeout))
            wide = _read(self.reference, theirs.wide)
            found.append({name: tensor.clone() for name, tensor in wide.items()})
        return found

    def _load_reference(self) -> None:
        sandbox, timeout = self.reference.sandbox, self.request.timeout
        program = reference_program(self._definition)
        if not sandbox.holds(program):
            self.referred(sandbox.open(program))
            self.referred(sandbox.ask(Load(program), timeout))

    def referred(self, reply: Reply, when: str = "") -> Done:
        """The reference's reply. Raises DefinitionError where it is a failure."""
        if isinstance(reply, Failed):
            self._doubt(reply)
            where = f"the reference of {self._definition.name} failed{when} at axes {self._axes}"
            raise DefinitionError(f"{where}: {reply.summary}\n{reply.log}".strip())
        return reply

    def refuse(self, summary: str) -> NoReturn:
        """End the evaluation: the candidate did what none may."""
        raise _Stop(Failed("RUNTIME_ERROR", summary, self._log))

    def verdict_of(self, mine: Places, theirs: Places, workload: Workload) -> Verdict:
        """The verdict on outputs that are there, of a call on that workload."""
        return self._verdict(mine, theirs, self._expected(theirs))

    def _verdict(self, mine: Places, theirs: Places, expected: _Expected) -> Verdict:
        """The verdict by the oracle alone and, where that is a failure, by what rounding may do."""
        got, inputs = _read(self.candidate, mine.outputs), _read(self.reference, theirs.tensors())
        regime = self.request.workload.regime
        exact = regime.get("values") == "zeros_and_ones" and "inputs" not in regime
        judged = partial(judge_outputs, self._definition, got, exact=exact, inputs=inputs)
        verdict = judged(expected.outputs)
        if not verdict.passed and expected.no_oracle is None:
            # Yardsticks are written where the oracle's outputs are, so those are set aside.
            kept = {name: tensor.clone() for name, tensor in expected.outputs.items()}
            verdict = judged(kept, self._yardsticks(theirs))
        if verdict.passed:
            given = {**inputs, **scalar_inputs(self._definition, self.request.workload)}
            verdict = in_support(self._definition, verdict, got, given)
        return verdict


def _read(side: Side, places: dict[str, TensorRef]) -> dict[str, torch.Tensor]:
    return {name: side.layout.tensor(ref) for name, ref in places.items()}


def _widened(tensor: TensorLayout) -> TensorLayout:
    wide = dtype_name(widened_dtype(getattr(torch, tensor.dtype)))
    return TensorLayout.contiguous(tensor.shape, wide)
