"""The context of one evaluation, for its phases: both sides, their replies, and the time left."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch

from pytest_fib.build import CPU, Artifact, Program, installed_version
from pytest_fib.data import (
    OUT_OF_MEMORY,
    Correctness,
    Definition,
    DefinitionError,
    Diagnosis,
    Environment,
    Evaluation,
    EvaluationRequest,
    EvaluationStatus,
    Performance,
    Workload,
)
from pytest_fib.engine._artifacts import Artifacts, file_in_memory
from pytest_fib.sandbox import (
    ALIGNMENT,
    Call,
    Done,
    Failed,
    ForkServerError,
    Load,
    TensorRef,
    VariationError,
    Widened,
    copy_bits,
    no_answer_within,
    room_for,
    widened_dtype,
)
from pytest_fib.timing import processor
from pytest_fib.workloads import (
    BrokenConstraintError,
    RecordedError,
    TensorLayout,
    dtype_name,
    fill_inputs,
    layouts,
    scalar_inputs,
)

if TYPE_CHECKING:
    from pytest_fib.engine._device_lock import DeviceLock
    from pytest_fib.engine._reference_costs import ReferenceCosts
    from pytest_fib.sandbox import ArenaAllocator, Argument, Reply, Request, Sandbox

#: Memory between two buffers: an odd number of cache lines, so that equal addresses in buffers of a
#: round size don't all map to the same part of a cache.
GAP = 17 * ALIGNMENT
#: The most seconds of a call that is made to explain a failure.
EXPERIMENT_SECONDS = 10.0
#: Seconds between attempts at an evaluation whose sandboxes found no memory on the device.
ATTEMPT_PAUSES = (0.2, 2.0)
#: The most attempts at an evaluation whose sandboxes are killed, or find no memory.
EVALUATION_ATTEMPTS = 1 + len(ATTEMPT_PAUSES)


class EvaluationEnded(Exception):
    """The outcome is known: the candidate failed, or broke a rule."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.summary)
        self.failed = failed

    def evaluation(self, device: str) -> Evaluation:
        """The outcome."""
        failed = self.failed
        pattern = OUT_OF_MEMORY if failed.exhausted else ""
        diagnosis = Diagnosis(sentence=failed.summary, pattern=pattern)
        return conclude(failed.status, diagnosis, device=device, printed=failed.log)

    def qualified(self, circumstance: str) -> EvaluationEnded:
        """The same, with a circumstance after what happened."""
        summary = f"{self.failed.summary} ({circumstance})"
        return EvaluationEnded(replace(self.failed, summary=summary))


class LostAttemptError(Exception):
    """A sandbox was killed or found no memory, because of this candidate or another process."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.summary)
        self.exhausted = failed.exhausted


@dataclass(frozen=True)
class Side:
    """The candidate's side or the reference's: a sandbox, and the memory that it maps."""

    sandbox: Sandbox
    allocator: ArenaAllocator

    def read(self, refs: Mapping[str, TensorRef]) -> dict[str, torch.Tensor]:
        return self.allocator.tensors(refs)


@dataclass(frozen=True)
class CallTensors:
    """The places of the arguments of one side's calls.

    ``second_outputs`` are those of the candidate's second call. ``widened_outputs`` are those of
    the reference in float64; integers and the like keep their dtype.
    """

    inputs: dict[str, Argument]
    outputs: dict[str, TensorRef]
    second_outputs: dict[str, TensorRef] = field(default_factory=dict)
    widened_outputs: dict[str, TensorRef] = field(default_factory=dict)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return tuple(self.inputs.values())

    @property
    def input_tensors(self) -> dict[str, TensorRef]:
        """The inputs without Python scalars."""
        return {name: ref for name, ref in self.inputs.items() if isinstance(ref, TensorRef)}

    def call(self, *, twice: bool = False) -> Call:
        """Call once, or a second time for the second outputs."""
        second = tuple(self.second_outputs.values()) if twice else ()
        return Call(self.arguments, tuple(self.outputs.values()), second)

    def call_later(self) -> Call:
        """Call once; the second outputs get again what the call for them returned."""
        return replace(self.call(), earlier_outputs=tuple(self.second_outputs.values()))

    def call_widened(self, how: Widened) -> Call:
        outputs = tuple(self.widened_outputs.values())
        return Call(self.arguments, outputs, widened=how)

    def moved(self, by: int) -> CallTensors:
        """The tensors of another buffer; all share the widened outputs."""
        inputs = {name: ref.moved(by) for name, ref in self.input_tensors.items()}
        outputs = {name: ref.moved(by) for name, ref in self.outputs.items()}
        return replace(self, inputs={**self.inputs, **inputs}, outputs=outputs)


@dataclass(frozen=True)
class BufferPool:
    """``count`` buffers of tensors with one layout, each ``stride`` bytes after the one before.

    A buffer is its inputs, ``inputs_size`` bytes, then its outputs.
    """

    allocator: ArenaAllocator
    start: int
    first: CallTensors
    stride: int
    inputs_size: int
    size: int
    count: int

    def at(self, number: int) -> CallTensors:
        return self.first.moved(number * self.stride)

    def inputs(self) -> torch.Tensor:
        """All inputs as whole numbers, shape (count, words)."""
        return self.words[:, : self.inputs_size // 8]

    def outputs(self) -> torch.Tensor:
        """All outputs as whole numbers, shape (count, words)."""
        return self.words[:, self.inputs_size // 8 : self.size // 8]

    @property
    def words(self) -> torch.Tensor:
        """All buffers as whole numbers of 8 bytes, shape (count, words)."""
        end = self.start + self.count * self.stride
        return self.allocator.arena.base[self.start : end].view(torch.int64).view(self.count, -1)

    def outputs_named(self, name: str) -> torch.Tensor:
        """One output of all buffers, shape (count, ...)."""
        first = self.allocator.tensor(self.first.outputs[name])
        step = self.stride // first.element_size()
        return first.as_strided((self.count, *first.shape), (step, *first.stride()))


@dataclass
class EvaluationContext:
    """One evaluation of a request.

    ``files`` has the places of recorded tensors. ``lock`` lets others have the device while this
    doesn't need it. ``costs`` has the costs of the reference's calls. Before the ``last_attempt``,
    a sandbox that is killed or finds no memory on a device raises LostAttemptError; then the
    candidate is blamed. ``printed`` is what the candidate printed in its last call.
    """

    request: EvaluationRequest
    candidate: Side
    reference: Side
    candidate_program: Program
    reference_program: Program
    files: Mapping[str, Path]
    lock: DeviceLock
    artifacts: Artifacts
    costs: ReferenceCosts
    last_attempt: bool = True
    printed: str = ""
    _seconds_left: float = field(init=False)

    def __post_init__(self) -> None:
        self._seconds_left = self.request.timeout

    @property
    def definition(self) -> Definition:
        return self.request.definition

    @property
    def device(self) -> str:
        return self.candidate.allocator.device

    @cached_property
    def layouts(self) -> dict[str, TensorLayout]:
        """The layouts of the workload's tensors: inputs, then outputs."""
        return layouts(self.definition, self.request.workload)

    @cached_property
    def scalars(self) -> Mapping[str, bool | int | float]:
        """The inputs that are Python scalars."""
        return scalar_inputs(self.definition, self.request.workload)

    # The candidate.

    def load_candidate(self) -> None:
        if not self.reference.sandbox.holds(self.reference_program):
            self.reference.sandbox.get_ready()  # meanwhile
        if not self.candidate.sandbox.holds(self.candidate_program):
            # The outputs of another implementation may be the right answers of this one.
            self.candidate.allocator.wipe()
            self._open_candidate()

    def _open_candidate(self) -> None:
        """Start a process for its program, which is built now if necessary."""
        program = self.candidate_program
        with self.lock.released():
            artifact = self._built(program)
            self.candidate_reply(self.candidate.sandbox.open(program))
        self.candidate_reply(self.candidate.sandbox.map())
        with self.lock.released():
            if artifact is None:
                self.ask_candidate(Load(program))
            else:
                with file_in_memory(artifact.content) as file:
                    self.ask_candidate(Load(program), file)
        self.candidate.sandbox.get_ready()  # for the next one

    def _built(self, program: Program) -> Artifact | None:
        """The artifact of a program; None if its language needs no build."""
        if program.compilation is None:
            return None
        artifact = self.artifacts.get(program, self.request.build_timeout)
        if isinstance(artifact, Failed):
            self._end(artifact)
        return artifact

    def ask_candidate(self, request: Request, file: int | None = None) -> Done:
        """The candidate's reply, within its remaining time. Raises EvaluationEnded."""
        self.synchronize()
        self.lock.give_way()
        sandbox = self.candidate.sandbox
        reply = sandbox.ask(request, max(self._seconds_left, 0.001), file)
        self._seconds_left -= sandbox.ran_ns / 1e9
        if isinstance(reply, Failed) and reply.status == "TIMEOUT":
            summary = f"{no_answer_within(self.request.timeout)}{self._why_slow}"
            reply = replace(reply, summary=summary)
        return self.candidate_reply(reply)

    @property
    def _why_slow(self) -> str:
        language = self.candidate_program.language
        if self.device != "cpu" or not CPU.interprets(language):
            return ""
        smaller = "--fib-max-bytes draws smaller workloads"
        return f"; {language.capitalize()}'s interpreter on the CPU is slow ({smaller})"

    def restart_candidate(self) -> None:
        self.candidate.sandbox.close()
        self._open_candidate()

    def try_candidate(self, request: Request) -> bool:
        """Whether the candidate answers; no verdict depends on it, so it may fail or be late."""
        printed, seconds_left = self.printed, self._seconds_left
        self._seconds_left = min(self.request.timeout, EXPERIMENT_SECONDS)
        try:
            self.ask_candidate(request)
        except EvaluationEnded:
            self._seconds_left = self.request.timeout
            if not self.candidate.sandbox.holds(self.candidate_program):
                self.restart_candidate()
            return False
        finally:
            self.printed, self._seconds_left = printed, seconds_left
        return True

    def candidate_reply(self, reply: Reply) -> Done:
        """The reply, if it is one of success. Raises EvaluationEnded if not."""
        if isinstance(reply, Failed):
            self._end(reply)
        self.printed = reply.log
        return reply

    def _end(self, failed: Failed) -> NoReturn:
        self.raise_if_lost(failed)
        if failed.killed:
            note = f"this happened in each of {EVALUATION_ATTEMPTS} attempts"
            failed = replace(failed, log=f"{note}\n{failed.log}".rstrip())
        raise EvaluationEnded(failed)

    def refuse(self, summary: str) -> NoReturn:
        """End the evaluation: the candidate broke a rule."""
        raise EvaluationEnded(Failed("RUNTIME_ERROR", summary, self.printed))

    def refuse_if(self, wrong: str) -> None:
        if wrong:
            self.refuse(wrong)

    # The reference.

    def load_reference(self) -> None:
        """Load the reference. Raises DefinitionError."""
        sandbox, program = self.reference.sandbox, self.reference_program
        if not sandbox.holds(program):
            with self.lock.released():
                self.reference_reply(sandbox.open(program))
            self.reference_reply(sandbox.map())
            with self.lock.released():
                self.reference_reply(self.ask_reference(Load(program)))

    def ask_reference(self, request: Request) -> Reply:
        """The reference's reply, whatever it is; notes the cost of a call."""
        self.synchronize()
        self.lock.give_way()
        reply = self.reference.sandbox.ask(request, self.request.timeout)
        if isinstance(request, Call):
            peak_bytes = (reply.peak_bytes or None) if isinstance(reply, Done) else None
            seconds = self.reference.sandbox.ran_ns / 1e9
            self.costs.calls.append((self.request.workload.axes, seconds, peak_bytes))
        return reply

    def reference_reply(self, reply: Reply, when: str = "") -> Done:
        """The reply, if it is one of success. Raises DefinitionError if not."""
        if isinstance(reply, Failed):
            self.raise_if_lost(reply)
            raise_if_ours(reply)
            where = f"the reference of {self.definition.name} failed{when}"
            exhausted = reply.exhausted or reply.killed or reply.status == "TIMEOUT"
            raise DefinitionError(f"{where}: {reply.summary}", reply.log, exhausted=exhausted)
        return reply

    def raise_if_lost(self, failed: Failed) -> None:
        """Raise for a lost sandbox, except in the last attempt: others may have caused it."""
        may_be_others = failed.killed or (failed.exhausted and self.device != "cpu")
        if may_be_others and not self.last_attempt:
            raise LostAttemptError(failed)
        if failed.by_others:
            raise ForkServerError(f"{failed.summary} in each of {EVALUATION_ATTEMPTS} attempts")

    # Tensors.

    def buffers(self, side: Side, count: int = 1) -> BufferPool:
        """Memory for ``count`` calls of a side, which replaces the earlier memory.

        After the buffers come the candidate's second outputs, or the reference's in float64.
        """
        allocator, layouts = side.allocator, self.layouts
        inputs = self.definition.inputs
        outputs = {name: layouts[name] for name in layouts if name not in inputs}
        is_candidate = side is self.candidate
        more = outputs if is_candidate else {n: _widened(each) for n, each in outputs.items()}
        size, outputs_size = _room(layouts), _room(outputs)
        stride = size + (GAP if count > 1 else 0)
        start = allocator.begin(count * stride + _room(more))
        refs = {name: allocator.place(tensor) for name, tensor in layouts.items()}
        allocator.skip(count * stride - size)
        behind = {name: allocator.place(tensor) for name, tensor in more.items()}
        first = CallTensors(
            inputs={name: refs[name] if name in refs else self.scalars[name] for name in inputs},
            outputs={name: refs[name] for name in outputs},
            second_outputs=behind if is_candidate else {},
            widened_outputs={} if is_candidate else behind,
        )
        return BufferPool(allocator, start, first, stride, size - outputs_size, size, count)

    def fill(
        self, side: Side, tensors: CallTensors, workload: Workload, bulk_seed: int | None = None
    ) -> dict[str, torch.Tensor]:
        """Make a workload's inputs in a side's memory, or other values for the same work.

        Raises DefinitionError.
        """
        inputs = side.read(tensors.input_tensors)
        try:
            fill_inputs(inputs, self.definition, workload, self.files, bulk_seed)
        except RecordedError as error:
            raise DefinitionError(f"a recorded workload can't be used: {error}") from error
        except BrokenConstraintError as error:
            raise DefinitionError(str(error)) from error
        return inputs

    def fill_both(
        self, candidate_tensors: CallTensors, reference_tensors: CallTensors, workload: Workload
    ) -> dict[str, torch.Tensor]:
        """Make a workload's inputs on both sides; returns the reference's."""
        inputs = self.fill(self.candidate, candidate_tensors, workload)
        pristine = self.reference.read(reference_tensors.input_tensors)
        for name, tensor in pristine.items():
            copy_bits(tensor, inputs[name])
        return pristine

    def synchronize(self) -> None:
        """Wait for the device, before a sandbox is asked: it is in another CUDA context.

        What was written must be there when it reads, and what is being copied must be copied before
        it writes.
        """
        if self.device != "cpu":
            torch.cuda.synchronize()


def raise_if_ours(reply: Failed) -> None:
    """Raise VariationError if it was not the reference that failed."""
    if reply.own_fault:
        summary = reply.summary.removeprefix(f"{VariationError.__name__}: ")
        raise VariationError(f"{summary}\n{reply.log}")


def _room(tensors: Mapping[str, TensorLayout]) -> int:
    return sum(map(room_for, tensors.values()))


def _widened(tensor: TensorLayout) -> TensorLayout:
    return TensorLayout.contiguous(tensor.shape, _widened_dtype(tensor.dtype))


@cache
def _widened_dtype(dtype: str) -> str:
    return dtype_name(widened_dtype(getattr(torch, dtype)))


def conclude(
    status: str,
    diagnosis: Diagnosis | None,
    correctness: Correctness | None = None,
    performance: Performance | None = None,
    *,
    device: str,
    printed: str = "",
) -> Evaluation:
    """The record of an evaluation; its log ends with what the candidate printed."""
    if diagnosis is not None:
        details = (*diagnosis.details, *printed.strip("\n").splitlines())
        diagnosis = diagnosis.model_copy(update={"details": details})
    return Evaluation(
        status=EvaluationStatus(status),
        log=(printed if diagnosis is None else diagnosis.text).strip(),
        diagnosis=diagnosis,
        correctness=correctness,
        performance=performance,
        environment=_environment(device),
    )


@cache
def _environment(device: str) -> Environment:
    """The hardware's name and the versions that results depend on."""
    libs = {"torch": torch.__version__, "python": platform.python_version()}
    if triton := installed_version("triton"):
        libs["triton"] = triton
        # Results depend on it, and its default changes in Triton 3.10.
        if fusion := os.environ.get("TRITON_DEFAULT_FP_FUSION"):
            libs["TRITON_DEFAULT_FP_FUSION"] = fusion
    if device == "cpu":
        return Environment(hardware=processor(), libs=libs)
    libs["cuda"] = str(torch.version.cuda)
    return Environment(hardware=torch.cuda.get_device_name(), libs=libs)
