"""Draws outputs that are chosen at random many times: which rows, and in calls of what shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from pytest_fib.engine._cheat_checks import poison_outputs
from pytest_fib.sandbox import POISONS, nbytes, room_for
from pytest_fib.verdict import (
    CALL_BYTES,
    SamplingPlan,
    SamplingTest,
    Verdict,
    judge_samples,
    plan_sampling,
)
from pytest_fib.workloads import TensorLayout, in_domain, layouts

if TYPE_CHECKING:
    import torch

    from pytest_fib.data import Definition, Workload
    from pytest_fib.engine._context import CallTensors, EvaluationContext

#: The most seconds for drawing. Fewer draws find less, but what they find is as certain.
SECONDS = {"cpu": 5.0, "cuda": 10.0}
#: How many rows are tested: in some, limits may leave a single token.
TESTED_ROWS = 4
#: The most bytes of a call's rows: on the CPU, few enough for several calls in that time.
ROW_BYTES = {"cpu": 16 << 20, "cuda": CALL_BYTES}


@dataclass(frozen=True)
class SamplePlan:
    """How an output is drawn many times: a batch has copies of some of the workload's rows."""

    name: str
    plan: SamplingPlan
    #: The tensors of the batch.
    tensors: dict[str, TensorLayout]

    @classmethod
    def of(cls, definition: Definition, workload: Workload, device: str) -> SamplePlan | None:
        """None if no output is chosen at random, or rows can't form another batch."""
        names = [name for name in definition.outputs if definition.is_sampled(name)]
        shape = definition.outputs[names[0]].shape or () if names else ()
        if definition.is_seeded or len(shape) != 1 or shape[0] not in workload.axes:
            return None
        axis = shape[0]
        domain = definition.workloads.axes.get(axis) if definition.workloads else None
        probs = layouts(definition, workload)["probs"]
        plan = plan_sampling(
            workload.axes[axis],
            nbytes(probs.shape[1:], probs.dtype),
            rows=TESTED_ROWS,
            max_batch=domain.max if domain else None,
            max_bytes=ROW_BYTES[device],
        )
        axes = {**workload.axes, axis: plan.batch}
        batch = workload.model_copy(update={"axes": axes, "regime": {}})
        whole = in_domain(definition, axes)
        return cls(names[0], plan, layouts(definition, batch)) if whole else None

    def most_informative_rows(self, test: SamplingTest) -> SamplePlan:
        """The same plan with the most informative rows, by the test of the workload's inputs."""
        rows = test.most_informative_rows(len(self.plan.rows))
        return replace(self, plan=replace(self.plan, rows=rows))

    def fill(self, batch: torch.Tensor, rows: torch.Tensor) -> None:
        """An input of the batch, from the workload's."""
        is_batched = batch.shape != rows.shape
        batch.copy_(self.plan.expand(rows) if is_batched else rows)

    def verdict(
        self, passed: Verdict, outputs: Sequence[torch.Tensor], inputs: Mapping[str, Any]
    ) -> Verdict:
        """The verdict on the samples of an even number of calls."""
        test = SamplingTest.of(inputs).select(self.plan.rows)
        draws = self.plan.arrange(outputs)
        return judge_samples(passed, self.name, draws, test, rows=self.plan.rows)


def check_samples(
    passed: Verdict,
    context: EvaluationContext,
    candidate_tensors: CallTensors,
    reference_tensors: CallTensors,
) -> Verdict:
    """Draw a few rows many times, if an output is chosen at random; else returns ``passed``."""
    workload = context.request.workload
    plan = SamplePlan.of(context.definition, workload, context.device)
    if plan is None:
        return passed
    with context.lock.shared():
        rows = context.fill_both(candidate_tensors, reference_tensors, workload)
        inputs = {**rows, **context.scalars}
        plan = plan.most_informative_rows(SamplingTest.of(inputs))
        batch = _place_batch(plan, context, candidate_tensors)
        for name, tensor in context.candidate.read(batch.input_tensors).items():
            plan.fill(tensor, rows[name])
    samples = _draw(plan, context, batch)
    with context.lock.shared():
        return plan.verdict(passed, samples, inputs)


def _place_batch(plan: SamplePlan, context: EvaluationContext, tensors: CallTensors) -> CallTensors:
    """Memory for the batch on the candidate's side, which replaces the earlier memory."""
    allocator = context.candidate.allocator
    allocator.begin(sum(map(room_for, plan.tensors.values())))
    refs = {name: allocator.place(tensor) for name, tensor in plan.tensors.items()}
    return replace(
        tensors,
        inputs={name: refs.get(name, value) for name, value in tensors.inputs.items()},
        outputs={name: refs[name] for name in tensors.outputs},
    )


def _draw(plan: SamplePlan, context: EvaluationContext, batch: CallTensors) -> list[torch.Tensor]:
    """The samples of the planned calls, or of an even number of them if time is short.

    The device is released in between: exclusive users would wait for seconds.
    """
    samples: list[torch.Tensor] = []
    seconds_left = SECONDS[context.device]
    while len(samples) < plan.plan.calls and (len(samples) % 2 or seconds_left > 0):
        with context.lock.shared():
            start = monotonic()
            outputs = context.candidate.read(batch.outputs)
            poison_outputs(outputs, POISONS[1])
            context.ask_candidate(batch.call())
            samples.append(outputs[plan.name].clone())
            seconds_left -= monotonic() - start
    return samples
