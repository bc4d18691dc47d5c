"""Random choices, made many times: which rows, in calls of what shape, and what they amount to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_fib.engine._evidence import RANDOMNESS, failing, noted
from pytest_fib.engine._memory import nbytes
from pytest_fib.engine._sampling import CALL_BYTES, SamplingTest, judge_samples, plan_sampling
from pytest_fib.workloads import in_domain, layouts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from pytest_fib.data import Definition, Workload
    from pytest_fib.engine._sampling import SamplingPlan
    from pytest_fib.engine._verdict import Verdict
    from pytest_fib.workloads import TensorLayout

#: Seconds that drawing takes at most; fewer draws see less, and mean no less.
SECONDS = {"cpu": 5.0, "cuda": 10.0}
#: Rows that are tested: of some, limits leave a single token.
ROWS = 4
#: Bytes of a call's rows: on the CPU, few enough for several calls in that time.
MOST_BYTES = {"cpu": 16 << 20, "cuda": CALL_BYTES}


@dataclass(frozen=True)
class Draws:
    """How an output is drawn many times: with copies of some of the workload's rows as a batch."""

    name: str
    plan: SamplingPlan
    #: Every tensor of the batch.
    tensors: dict[str, TensorLayout]

    @classmethod
    def of(cls, definition: Definition, workload: Workload, device: str) -> Draws | None:
        """None where no output is chosen at random, or rows can't be put into another batch."""
        names = [name for name in definition.outputs if definition.is_sampled(name)]
        shape = definition.outputs[names[0]].shape or () if names else ()
        seeded = any(word in given for given in definition.inputs for word in RANDOMNESS)
        if seeded or len(shape) != 1 or shape[0] not in workload.axes:
            return None
        axis = shape[0]
        domain = definition.workloads.axes.get(axis) if definition.workloads else None
        probs = layouts(definition, workload)["probs"]
        plan = plan_sampling(
            workload.axes[axis],
            nbytes(probs.shape[1:], probs.dtype),
            rows=ROWS,
            max_batch=domain.max if domain else None,
            max_bytes=MOST_BYTES[device],
        )
        axes = {**workload.axes, axis: plan.batch}
        batch = workload.model_copy(update={"axes": axes, "regime": {}})
        whole = in_domain(definition, axes)
        return cls(names[0], plan, layouts(definition, batch)) if whole else None

    def of_telling_rows(self, inputs: Mapping[str, Any]) -> Draws:
        """The same of the rows that tell most, by the workload's inputs."""
        rows = SamplingTest.of(inputs).telling(len(self.plan.rows))
        return replace(self, plan=replace(self.plan, rows=rows))

    def fill(self, batch: torch.Tensor, rows: torch.Tensor) -> None:
        """An input of the batch, from the workload's."""
        grown = batch.shape != rows.shape
        batch.copy_(self.plan.expand(rows) if grown else rows)

    def verdict(
        self, passed: Verdict, outputs: Sequence[torch.Tensor], inputs: Mapping[str, Any]
    ) -> Verdict:
        """What the samples of an even number of calls say of a call that was right by itself."""
        test = SamplingTest.of(inputs).select(self.plan.rows)
        draws = self.plan.arrange(outputs)
        found = judge_samples(draws, test, rows=self.plan.rows)
        facts = {"draws": draws[0].numel(), "smallest_p": found.smallest_p, "tests": found.tests}
        if found.passed:
            return noted(passed, **facts)
        more = [f"each row was drawn {draws[0].numel()} times", *found.details[:4]]
        return noted(failing(passed, found.kind, f"{self.name}: {found.summary}", more), **facts)
