"""One evaluation: the steps from a request to its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch

from pytest_fib.build import program_of, reference_program
from pytest_fib.data import Evaluation, EvaluationStatus
from pytest_fib.engine._calling import dtype_name
from pytest_fib.engine._draws import SECONDS, Draws
from pytest_fib.engine._environment import environment
from pytest_fib.engine._evidence import POISONS, Evidence
from pytest_fib.engine._expected import Expected
from pytest_fib.engine._figures import least_traffic
from pytest_fib.engine._memory import changed, copy_bits, poisoned, room_for
from pytest_fib.engine._messages import (
    Call,
    Count,
    Counted,
    Done,
    Failed,
    Load,
    Prepare,
    TensorRef,
    Widened,
)
from pytest_fib.engine._oracle import YARDSTICKS, widened_dtype
from pytest_fib.engine._request import DefinitionError
from pytest_fib.engine._sets import GAP, Sets
from pytest_fib.engine._timed import Timed
from pytest_fib.workloads import (
    BrokenConstraintError,
    RecordedError,
    TensorLayout,
    bits,
    fill_inputs,
    layouts,
    once,
    scalar_inputs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_fib.data import Correctness, Performance, Workload
    from pytest_fib.engine._expected import Known
    from pytest_fib.engine._lease import Lease
    from pytest_fib.engine._memory import Layout
    from pytest_fib.engine._messages import Argument, Reply, Request
    from pytest_fib.engine._request import EvaluationRequest
    from pytest_fib.engine._sandbox import Sandbox
    from pytest_fib.engine._verdict import Verdict
    from pytest_fib.timing import Ceilings, Traffic

#: A definition's name and reference, and a workload's uuid.
CountKey: TypeAlias = tuple[str, str, str]

#: Up to this size an implementation is called once more, with other values.
SECOND_CALL_BYTES = 8 << 20
SECOND_CALL = "right on a first call, wrong on a second of the same shapes with other values"
#: Such calls run no kernel, or one that does nothing.
NOTHING_TO_TIME = "not timed: its outputs are empty"
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
    #: Where the outputs of a second call lie, of the candidate's.
    again: dict[str, TensorRef] = field(default_factory=dict)
    #: Where the reference's outputs in float64 lie; of integers and the like, as they are.
    wide: dict[str, TensorRef] = field(default_factory=dict)

    def tensors(self) -> dict[str, TensorRef]:
        return {n: ref for n, ref in self.inputs.items() if isinstance(ref, TensorRef)}

    def call(self) -> Call:
        return Call(tuple(self.inputs.values()), tuple(self.outputs.values()))

    def call_twice(self) -> Call:
        return replace(self.call(), again=tuple(self.again.values()))

    def oracle(self, how: Widened) -> Call:
        return Call(tuple(self.inputs.values()), tuple(self.wide.values()), widened=how)

    def count(self) -> Count:
        return Count(tuple(self.inputs.values()))

    def prepare(self, stride: int, groups: tuple[int, ...], size: int, repeat: int) -> Prepare:
        arguments = tuple(self.inputs.values()), tuple(self.outputs.values())
        return Prepare(*arguments, stride, groups, size, repeat)

    def moved(self, by: int) -> Places:
        """Where a set lies that is ``by`` bytes further on; there is one place for the oracle."""
        inputs = {name: ref.moved(by) for name, ref in self.tensors().items()}
        outputs = {name: ref.moved(by) for name, ref in self.outputs.items()}
        return replace(self, inputs={**self.inputs, **inputs}, outputs=outputs)


class _Stop(Exception):
    """The outcome is known before the outputs can be compared."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.summary)
        self.failed = failed


class KilledError(Exception):
    """A sandbox was killed, or what it comes from: by this candidate's hand or another's."""


class Case:
    """Takes one request through its steps; used once.

    Unless it is the ``last_attempt``, a killed sandbox raises KilledError rather than be blamed on
    the candidate. ``counts`` has what references were counted to do, and gains what this counts;
    ``ceilings`` tells the device's.
    """

    def __init__(
        self,
        candidate: Side,
        reference: Side,
        lease: Lease,
        request: EvaluationRequest,
        known: Known,
        *,
        counts: dict[CountKey, Counted | None],
        ceilings: Callable[[], Ceilings],
        last_attempt: bool = True,
    ) -> None:
        self.candidate = candidate
        self.reference = reference
        self._lease = lease
        self.request = request
        self._known = known
        self._last_attempt = last_attempt
        self._counts = counts
        self.ceilings = ceilings
        self._definition = request.definition
        self._axes = request.definition.axis_values(request.workload.axes)
        self._left = request.timeout  # seconds that the candidate may still take
        self._log = ""

    def evaluation(self) -> Evaluation:
        """The outcome. Raises DefinitionError where the definition is at fault, or KilledError."""
        try:
            verdict, performance = self._outcome()
        except _Stop as stop:
            failed = stop.failed
            return self._evaluation(failed.status, f"{failed.summary}\n{failed.log}")
        log = f"{verdict.log}\n{self._log}"
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
            sets = self.sets(self.candidate)
            mine, theirs = sets.first, self.sets(self.reference).first
            verdict = self._checked(mine, theirs, sets.size)
        if verdict.passed and self.request.draws and not self.request.timing:
            verdict = self._drawn(verdict, mine, theirs)
        if not self.request.timing or not verdict.passed:
            return verdict, None
        if not any(tensor.numel() for tensor in _read(self.candidate, mine.outputs).values()):
            return replace(verdict, summary=NOTHING_TO_TIME), None
        with self._lease.exclusive():
            self._load_reference()
            timed, performance = Timed(self).outcome()
        # The record is of this workload's values; those of timed calls are drawn anew each time.
        return (verdict, performance) if timed.passed else (timed, None)

    def _checked(self, mine: Places, theirs: Places, size: int) -> Verdict:
        """The verdict of two calls and, where that is cheap, of a third with other values.

        The third finds everything where the first did: whoever goes by pointer, object or shape
        answers it with what was right before.
        """
        verdict = self._twice(mine, theirs)
        if not verdict.passed or not (self.request.timing or size <= SECOND_CALL_BYTES):
            return verdict
        other = self._other_values(mine, theirs)
        if other.passed:
            return verdict
        return replace(other, summary=f"{other.summary} ({SECOND_CALL})")

    def _twice(self, mine: Places, theirs: Places) -> Verdict:
        """The verdict of two calls on the same inputs, with outputs at other places."""
        self._make_inputs(mine, theirs, self.request.workload)
        self._poison(mine.again, POISONS[1])
        first = self._called(mine.call_twice(), mine, theirs, POISONS[0])
        second = _read(self.candidate, mine.again)
        return self._evidence(theirs, self.request).verdict_of_two(first, lambda: second)

    def _other_values(self, mine: Places, theirs: Places) -> Verdict:
        """The verdict of another call where the first one's inputs and outputs were."""
        seed = self.request.workload.seed ^ OTHER_SEED
        workload = self.request.workload.model_copy(update={"seed": seed})
        earlier = self._known.get(self.request)
        self._make_inputs(mine, theirs, workload)
        outputs = self._called(mine.call(), mine, theirs, POISONS[1])
        evidence = self._evidence(theirs, replace(self.request, workload=workload))
        evidence = replace(
            evidence, poisons=POISONS[1:], previous=earlier.outputs if earlier else {}
        )
        return evidence.verdict(outputs)

    def _drawn(self, passed: Verdict, mine: Places, theirs: Places) -> Verdict:
        """The verdict of many draws of a few rows, where an output is chosen at random."""
        layout = self.candidate.layout
        draws = Draws.of(self._definition, self.request.workload, layout.device)
        if draws is None:
            return passed
        scalars = scalar_inputs(self._definition, self.request.workload)
        with self._lease.shared():
            self._make_inputs(mine, theirs, self.request.workload)
            rows = _read(self.reference, theirs.tensors())
            draws = draws.of_telling_rows({**rows, **scalars})
            layout.begin(sum(room_for(tensor) for tensor in draws.tensors.values()))
            batch = {name: layout.place(tensor) for name, tensor in draws.tensors.items()}
            places = replace(
                mine,
                inputs={name: batch.get(name, value) for name, value in mine.inputs.items()},
                outputs={name: batch[name] for name in mine.outputs},
            )
            for name, tensor in _read(self.candidate, places.tensors()).items():
                draws.fill(tensor, rows[name])
        drawn = self._calls(draws, places)
        with self._lease.shared():
            return draws.verdict(passed, drawn, {**rows, **scalars})

    def _calls(self, draws: Draws, places: Places) -> list[torch.Tensor]:
        """The samples of the planned calls, or of an even number of them that the time allows.

        In between, the device is let go: whoever waits to time something would wait for seconds.
        """
        left, found = SECONDS[self.candidate.layout.device], list[torch.Tensor]()
        while len(found) < draws.plan.calls and (len(found) % 2 or left > 0):
            with self._lease.shared():
                start = monotonic()
                self._poison(places.outputs, POISONS[1])
                self.answered(self._asked(places.call()))
                outputs = _read(self.candidate, places.outputs)
                found.append(outputs[draws.name].clone())
                left -= monotonic() - start
        return found

    def _called(
        self, call: Call, places: Places, theirs: Places, poison: int
    ) -> dict[str, torch.Tensor]:
        """What the candidate writes to outputs that hold a poison before."""
        self._poison(places.outputs, poison)
        self.answered(self._asked(call))
        self._refuse_changed_inputs(places, theirs)
        return _read(self.candidate, places.outputs)

    def _load_candidate(self) -> None:
        directory = None if self.request.directory is None else Path(self.request.directory)
        program = program_of(self.request.solution, self._definition, directory)
        if not self.candidate.sandbox.holds(program):
            # The outputs of another implementation may be the right answers of this one.
            self.candidate.layout.wipe()
            self.answered(self.candidate.sandbox.open(program))
            self.answered(self._asked(Load(program)))

    def _asked(self, request: Request) -> Reply:
        """The candidate's answer, within what is left of its time."""
        start = monotonic()
        reply = self.candidate.sandbox.ask(request, max(self._left, 0.001))
        self._left -= monotonic() - start
        if isinstance(reply, Failed) and reply.status == "TIMEOUT":
            return replace(reply, summary=f"no answer within {self.request.timeout:g} s")
        return reply

    def sets(self, side: Side, count: int = 1) -> Sets:
        """Memory for ``count`` sets of a side's tensors; what lay there before is forgotten.

        Behind them, the outputs of the reference's side in float64, and of the candidate's again.
        """
        definition, workload = self._definition, self.request.workload
        tensors = layouts(definition, workload)
        wide = side is self.reference
        change = _widened if wide else _unchanged
        more = {name: change(tensors[name]) for name in definition.outputs}
        rooms = {name: room_for(tensor) for name, tensor in tensors.items()}
        size = sum(rooms.values())
        stride = size + (GAP if count > 1 else 0)
        behind = sum(room_for(tensor) for tensor in more.values())
        start = side.layout.begin(count * stride + behind)
        places = {name: side.layout.place(tensor) for name, tensor in tensors.items()}
        side.layout.skip(count * stride - size)
        others = {name: side.layout.place(tensor) for name, tensor in more.items()}
        scalars = scalar_inputs(definition, workload)
        first = Places(
            inputs={n: places[n] if n in places else scalars[n] for n in definition.inputs},
            outputs={name: places[name] for name in definition.outputs},
            **{"wide" if wide else "again": others},
        )
        inputs_size = sum(room for name, room in rooms.items() if name not in definition.outputs)
        return Sets(side.layout, start, first, stride, inputs_size, size, count)

    def fill(
        self, mine: Places, workload: Workload, bulk_seed: int | None = None
    ) -> dict[str, torch.Tensor]:
        """Make a workload's values in the candidate's inputs, or others for as much work.

        Raises DefinitionError.
        """
        tensors = _read(self.candidate, mine.tensors())
        root = None if self.request.root is None else Path(self.request.root)
        try:
            fill_inputs(tensors, self._definition, workload, root, bulk_seed)
        except RecordedError as error:
            raise DefinitionError(f"a recorded workload can't be used: {error}") from error
        except BrokenConstraintError as error:
            raise DefinitionError(str(error)) from error
        return tensors

    def _make_inputs(self, mine: Places, theirs: Places, workload: Workload) -> None:
        tensors = self.fill(mine, workload)
        for name, pristine in _read(self.reference, theirs.tensors()).items():
            copy_bits(pristine, tensors[name])
        self.synchronize()

    def _poison(self, outputs: dict[str, TensorRef], pattern: int) -> None:
        for ref in outputs.values():
            poisoned(self.candidate.layout.tensor(ref), pattern)
        self.synchronize()

    def synchronize(self) -> None:
        """Sandboxes are other CUDA contexts: what they read must have been written by then."""
        if self.candidate.layout.device != "cpu":
            torch.cuda.synchronize()

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
        """Where inputs are room for intermediate results, the reference writes to them as well."""
        pristine = _read(self.reference, theirs.tensors())
        given = _read(self.candidate, mine.tensors())
        written = changed(given, pristine)
        if not written:
            return
        allowed = self._written_by_the_reference(theirs)
        for name in written:
            if name not in allowed:
                self.refuse(f"wrote to its input {name!r}")
            copy_bits(given[name], pristine[name])
        self.synchronize()

    def _written_by_the_reference(self, theirs: Places) -> list[str]:
        """The inputs that the reference changes, which are put back."""
        self._load_reference()
        given = _read(self.reference, theirs.tensors())
        before = _copies(given)
        self.referred(self.reference.sandbox.ask(theirs.call(), self.request.timeout))
        written = changed(given, before)
        for name in written:
            copy_bits(given[name], before[name])
        return written

    def _expected(self, theirs: Places, request: EvaluationRequest) -> Expected:
        """What is right: the reference in float64 or, where that can't be, as it is."""
        expected = self._known.get(request)
        if expected is None:
            expected = self._computed(theirs)
            self._known.put(request, expected)
        return expected

    def _computed(self, theirs: Places) -> Expected:
        self._load_reference()
        reply = self.reference.sandbox.ask(theirs.oracle(Widened()), self.request.timeout)
        if isinstance(reply, Failed) and reply.no_oracle:
            self.referred(self.reference.sandbox.ask(theirs.call(), self.request.timeout))
            return Expected(_read(self.reference, theirs.outputs), reply.summary)
        self.referred(reply)
        return Expected(_read(self.reference, theirs.wide))

    def _yardsticks(self, theirs: Places) -> list[dict[str, torch.Tensor]]:
        """The reference's outputs as honest rounding may change them."""
        self._load_reference()
        sandbox, timeout = self.reference.sandbox, self.request.timeout
        self.referred(sandbox.ask(theirs.call(), timeout))
        found = [_read(self.reference, theirs.outputs)]
        # They are written where the oracle's outputs are, which are put back.
        wide = _read(self.reference, theirs.wide)
        kept = _copies(wide)
        for how in YARDSTICKS:
            self.referred(sandbox.ask(theirs.oracle(Widened(**how)), timeout))
            found.append(_copies(wide))
        for name, tensor in kept.items():
            wide[name].copy_(tensor)
        return found

    def _supposed(
        self, theirs: Places, values: Mapping[str, Any]
    ) -> dict[str, torch.Tensor] | None:
        """What the reference makes of other values of inputs; None where it makes nothing."""
        wide = _read(self.reference, theirs.wide)
        kept = _copies(wide)
        scalars = {n: x for n, x in values.items() if not isinstance(x, torch.Tensor)}
        changes = [
            (bits(once(tensor)), bits(values[name]).clone())  # which may be another of them
            for name, tensor in _read(self.reference, theirs.tensors()).items()
            if name in values
        ]
        before = [target.clone() for target, _ in changes]
        reply = self._asked_with(replace(theirs, inputs={**theirs.inputs, **scalars}), changes)
        for (target, _), pristine in zip(changes, before, strict=True):
            target.copy_(pristine)
        found = None if isinstance(reply, Failed) else _copies(wide)
        for output, tensor in kept.items():
            wide[output].copy_(tensor)
        return found

    def _asked_with(
        self, places: Places, changes: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> Reply:
        """The oracle's answer, once ``changes`` are made: tensors and their new values."""
        self._load_reference()
        for target, value in changes:
            target.copy_(value)
        self.synchronize()
        return self.reference.sandbox.ask(places.oracle(Widened()), self.request.timeout)

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

    def work(self, theirs: Places) -> tuple[Traffic, Counted | None]:
        """What has to be moved on these inputs, and what the reference does, where that is known.

        The latter is the same for every implementation, so it is kept.
        """
        definition, workload = self._definition, self.request.workload
        key = (definition.name, definition.reference, workload.uuid)
        if key not in self._counts:
            reply = self.reference.sandbox.ask(theirs.count(), self.request.timeout)
            if isinstance(reply, Failed):
                self._doubt(reply)
            self._counts[key] = reply.counted if isinstance(reply, Done) else None
        counted, tensors = self._counts[key], _read(self.reference, theirs.tensors())
        return least_traffic(definition, workload.axes, tensors, counted), counted

    def refuse(self, summary: str) -> NoReturn:
        """End the evaluation: the candidate did what none may."""
        raise _Stop(Failed("RUNTIME_ERROR", summary, self._log))

    def _evidence(self, theirs: Places, request: EvaluationRequest) -> Evidence:
        return self._evidence_of(self._expected(theirs, request), theirs, request)

    def _evidence_of(
        self, expected: Expected, theirs: Places, request: EvaluationRequest
    ) -> Evidence:
        inputs = _read(self.reference, theirs.tensors())
        explain = request.explain and not request.timing
        return Evidence(
            self._definition,
            request.workload,
            {**inputs, **scalar_inputs(self._definition, request.workload)},
            expected.outputs,
            None if expected.no_oracle else partial(self._yardsticks, theirs),
            no_oracle=expected.no_oracle,
            suppose=partial(self._supposed, theirs) if explain else None,
        )

    def verdict_of(self, mine: Places, theirs: Places) -> Verdict:
        """The verdict on outputs that are there, by what is computed of the inputs beside them."""
        evidence = self._evidence_of(self._computed(theirs), theirs, self.request)
        return evidence.verdict(_read(self.candidate, mine.outputs))


def _read(side: Side, places: dict[str, TensorRef]) -> dict[str, torch.Tensor]:
    return {name: side.layout.tensor(ref) for name, ref in places.items()}


def _copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _unchanged(tensor: TensorLayout) -> TensorLayout:
    return tensor


def _widened(tensor: TensorLayout) -> TensorLayout:
    wide = dtype_name(widened_dtype(getattr(torch, tensor.dtype)))
    return TensorLayout.contiguous(tensor.shape, wide)
