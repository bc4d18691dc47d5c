"""The outputs of timed calls: some are kept while rounds run, and checked later.

Of a kept round, the calls are checked whose outputs differ most from the reference's, and random
ones. The candidate can't know which rounds are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from random import SystemRandom
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine._cheat_checks import Reading, most_different
from pytest_fib.engine._context import EvaluationContext, EvaluationEnded
from pytest_fib.engine._correctness import output_checker
from pytest_fib.engine._sandbox_calls import SandboxCalls
from pytest_fib.timing import copy_ns
from pytest_fib.verdict import SamplingTest, judge_ranks, ranks

if TYPE_CHECKING:
    from pytest_fib.engine._context import CallTensors
    from pytest_fib.engine._new_values import Mixture, NewValues
    from pytest_fib.engine._timed_side import TimedSide
    from pytest_fib.verdict import Verdict

#: How many samples of a round are checked, if an output is chosen at random; and how many there are
#: whose places in their distributions are noted, which takes no call of the reference.
SAMPLES, RANKED = 32, 256
#: The circumstance of failures in this phase.
WHILE_TIMED = "while it was timed"
#: An addition for outputs. If they are wrong for that reason, they lie in the inputs, or did not
#: exist when the call returned.
CLEARED = ", and read once its inputs were cleared"


class WrongOutputsError(Exception):
    """The outputs of timed calls are wrong."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


@dataclass(frozen=True)
class KeptRound:
    """The inputs of a round's calls and some outputs, by the numbers of their buffers, as words.

    There are ``inputs`` of fewer calls than ``outputs``. Of the ``sampled`` calls, only the places
    of samples in their distributions count.
    """

    mixture: Mixture
    inputs: dict[int, torch.Tensor]
    outputs: dict[int, torch.Tensor]
    sampled: dict[int, torch.Tensor]

    @property
    def bytes(self) -> int:
        words = (*self.inputs.values(), *self.outputs.values(), *self.sampled.values())
        return self.mixture.bits.nbytes + sum(each.nbytes for each in words)


class TimedOutputs:
    """The outputs of timed calls. ``values`` made the inputs in the buffers of both sides.

    Of kept rounds, more than ``most_bytes`` are checked at once, while the device is held.
    ``verdict`` is that of the call that was checked last.
    """

    values: NewValues
    verdict: Verdict

    def __init__(
        self,
        context: EvaluationContext,
        candidate: TimedSide,
        reference: TimedSide,
        random: SystemRandom,
        most_bytes: int,
    ) -> None:
        self._context = context
        self._most_bytes = most_bytes
        self._candidate, self._reference = self._sides = candidate, reference
        self._random = random
        self._kept: list[KeptRound] = []
        #: The ranks of samples that timed calls chose, by output.
        self._ranks: dict[str, list[torch.Tensor]] = {}
        #: Whether inputs are cleared before outputs are read.
        self.inputs_are_cleared = False
        #: How long reading took in each round; cleared by the benchmark phase.
        self.readings: list[Reading] = []

    @property
    def circumstance(self) -> str:
        """The circumstance of wrong outputs of a timed call."""
        return WHILE_TIMED + CLEARED * (self.inputs_are_cleared and not self._is_destination)

    def inputs_may_be_cleared(self) -> bool:
        """Whether the reference's outputs, of calls that were just timed, outlive its inputs."""
        buffers = self._reference.buffers
        self._reference.collect()
        before = buffers.outputs().clone()
        buffers.inputs().zero_()
        self._context.synchronize()
        self._reference.collect()
        return buffers.outputs().equal(before)

    @property
    def _is_destination(self) -> bool:
        return self._context.request.solution.spec.calling == "destination"

    def keep(self) -> None:
        """Keep inputs and outputs of some calls of the last round. Raises WrongOutputsError."""
        candidate, reference = self._candidate.buffers, self._reference.buffers
        inputs = self.inputs_to_check()
        if self.inputs_are_cleared:
            for pool in (candidate, reference):  # both, for equal caches
                pool.inputs()[: candidate.count].zero_()
            self._context.synchronize()
        self.readings.append(self._read_outputs())
        self.keep_outputs(inputs)

    def inputs_to_check(self) -> dict[int, torch.Tensor]:
        """The inputs of some calls, by the numbers of their buffers."""
        inputs = self._candidate.buffers.inputs()
        return {number: inputs[number].clone() for number in self._numbers_to_check()}

    def keep_outputs(self, inputs: dict[int, torch.Tensor]) -> None:
        """Keep the outputs of those calls, and outputs that seem wrong."""
        left = self._candidate.buffers.outputs()
        numbers = {*inputs}
        if self._reference.has_run:  # in this round, which a slow reference may not have
            numbers |= self._numbers_of_wrong_outputs()
        outputs, sampled = (
            {number: left[number].clone() for number in each}
            for each in (numbers, self._numbers_to_rank())
        )
        self._kept.append(KeptRound(self.values.mixture, inputs, outputs, sampled))
        if sum(each.bytes for each in self._kept) > self._most_bytes:
            self.check_kept()

    def _read_outputs(self) -> Reading:
        """Have both sides store what their calls returned.

        The outputs of ``destination`` calls are stored already: late writes get no extra time.
        """
        wall_ns, reference_ns = self._candidate.wall_ns, self._reference.collect()
        if self._is_destination:
            return Reading(wall_ns, 0.0)
        return Reading(wall_ns, self._candidate.collect() - self._usual_reading_ns(reference_ns))

    def check_kept(self) -> None:
        """Check all kept rounds. Raises WrongOutputsError."""
        for kept_round in self._kept:
            # First the calls with known inputs: changed inputs make outputs wrong too.
            for number in sorted(kept_round.outputs, key=lambda n: n not in kept_round.inputs):
                self._check_buffer(kept_round, number)
            for number, words in kept_round.sampled.items():
                self._add_ranks(*self._restored(kept_round, number, words))
        self._kept.clear()

    def _check_buffer(self, kept_round: KeptRound, number: int) -> None:
        tensors = self._restored(kept_round, number, kept_round.outputs[number])
        try:
            self.verdict = self._check_outputs(*tensors)
        except EvaluationEnded as ended:
            raise ended.qualified(WHILE_TIMED) from None
        if not self.verdict.passed:
            raise WrongOutputsError(self.verdict)

    def _restored(
        self, kept_round: KeptRound, number: int, words: torch.Tensor
    ) -> tuple[CallTensors, CallTensors]:
        """Put a call's inputs back on both sides, and what it left on the candidate's."""
        candidate, reference = self._candidate.buffers, self._reference.buffers
        self.values.restore(number, kept_round.mixture)
        inputs = kept_round.inputs.get(number, reference.inputs()[number])
        candidate.inputs()[number].copy_(inputs)
        candidate.outputs()[number].copy_(words)
        return candidate.at(number), reference.at(number)

    def _check_outputs(self, candidate: CallTensors, reference: CallTensors) -> Verdict:
        """The verdict on a call's outputs, by the reference's inputs. Raises EvaluationEnded."""
        context, calls = self._context, SandboxCalls(self._context, candidate, reference)
        inputs = calls.inputs_after_call()
        checker = output_checker(calls, context.definition, context.request.workload, inputs)
        return checker.check(context.candidate.read(candidate.outputs))

    def _add_ranks(self, candidate: CallTensors, reference: CallTensors) -> None:
        """Note the ranks of a call's samples in their distributions."""
        context, names = self._context, self._sampled_outputs
        if names:
            inputs = {**context.reference.read(reference.input_tensors), **context.scalars}
            test = SamplingTest.of(inputs)
            for name, output in context.candidate.read(candidate.outputs).items():
                if name in names:
                    self._ranks.setdefault(name, []).append(ranks(output, test).cpu())

    def check_ranks(self) -> None:
        """Refuse random choices that are not random when they are timed."""
        for name, places in self._ranks.items():
            verdict = judge_ranks(self.verdict, name, torch.cat(places, 1))
            if not verdict.passed:
                raise WrongOutputsError(verdict)

    @cached_property
    def _sampled_outputs(self) -> list[str]:
        """The outputs in which each row is a sample of its own."""
        definition = self._context.definition
        sampled = [name for name in definition.outputs if definition.is_sampled(name)]
        one_dim = [name for name in sampled if len(self._context.layouts[name].shape) == 1]
        return [] if definition.is_seeded else one_dim

    def _usual_reading_ns(self, reference_ns: float) -> float:
        """How long storing the candidate's outputs should take, by the time of the reference's.

        For captured calls, that is a few launches, and one copy more for each call more.
        """
        calls, reference_calls = (len(side.called) for side in self._sides)
        if not all(side.is_captured for side in self._sides):
            return reference_ns * calls / reference_calls
        return reference_ns + (calls - reference_calls) * self._copy_ns

    @cached_property
    def _copy_ns(self) -> float:
        """How long storing the outputs of one more captured call takes."""
        names = self._context.definition.outputs
        layouts = [self._context.layouts[name] for name in names]
        sizes = [(prod(layout.shape), layout.dtype) for layout in layouts]
        return copy_ns(sizes, len(self._candidate.called))

    def _numbers_to_check(self) -> set[int]:
        """The call whose inputs differ most from the reference's, and random ones.

        Random ones are enough for samples, and not made by the reference if there are any such: its
        blocks have fewer calls if these take longer. One bad call could distract from others.
        """
        called = {*self._candidate.called}
        inputs = [side.buffers.inputs().view(torch.int16) for side in self._sides]
        unseen = called - ({*self._reference.called} if self._compared_outputs else set())
        among = sorted(unseen or called)
        at_random = self._random.sample(among, min(self._calls_of(SAMPLES), len(among)))
        return {*at_random, *self._furthest(called, *inputs)}

    def _numbers_to_rank(self) -> list[int]:
        """Random calls whose samples' places in their distributions are noted."""
        called = self._candidate.called if self._sampled_outputs else []
        return self._random.sample(called, min(self._calls_of(RANKED), len(called)))

    def _calls_of(self, samples: int) -> int:
        """How many calls choose so many samples; one if none is chosen at random."""
        rows = [self._context.layouts[name].shape[0] for name in self._sampled_outputs]
        return -(-samples // max(1, min(rows, default=samples)))

    def _numbers_of_wrong_outputs(self) -> set[int]:
        """The calls whose outputs differ most from the reference's."""
        both = {*self._candidate.called} & {*self._reference.called}
        return {
            number
            for name in self._compared_outputs
            for number in self._furthest(
                both, *(side.buffers.outputs_named(name) for side in self._sides)
            )
        }

    @cached_property
    def _compared_outputs(self) -> list[str]:
        """The outputs that are equal on both sides, except for rounding."""
        definition = self._context.definition
        return [name for name in definition.outputs if not definition.is_sampled(name)]

    def _furthest(self, among: set[int], one: torch.Tensor, other: torch.Tensor) -> list[int]:
        """The call for which the sides differ most; empty if none does."""
        number = most_different(one, other, sorted(among), self._random) if among else None
        return [] if number is None else [number]
