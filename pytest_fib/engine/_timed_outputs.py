"""What timed calls left: some of it is kept while rounds run, and checked later.

Of a round that is kept, those calls are checked whose outputs differ most from the reference's, and
some at random. Nobody knows beforehand which rounds these are.
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
from pytest_fib.engine._sandbox_calls import SandboxCalls
from pytest_fib.timing import copy_ns
from pytest_fib.verdict import SamplingTest, is_seeded, judge_ranks, ranks

if TYPE_CHECKING:
    from pytest_fib.engine._context import CallTensors
    from pytest_fib.engine._new_values import Mixture, NewValues
    from pytest_fib.engine._timed_side import TimedSide
    from pytest_fib.verdict import Verdict

#: How many samples of a round are looked at, where an output is chosen at random.
SAMPLES = 32
#: The circumstance of failures in this phase.
WHILE_TIMED = "while it was timed"
#: The same of outputs: where they are wrong for that reason, they lie in the inputs, or did not
#: exist when the call returned.
CLEARED = ", and read once its inputs were cleared"
#: Bytes of what is kept of rounds until it is checked: else that is done while the device is held.
KEPT_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}


class WrongOutputsError(Exception):
    """Timed calls left outputs that are wrong."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


@dataclass(frozen=True)
class KeptRound:
    """What a round's calls got, and what some left, by the numbers of their buffers, as words.

    ``inputs`` are those of fewer calls than ``outputs``.
    """

    mixture: Mixture
    inputs: dict[int, torch.Tensor]
    outputs: dict[int, torch.Tensor]

    @property
    def bytes(self) -> int:
        words = (*self.inputs.values(), *self.outputs.values())
        return self.mixture.bits.nbytes + sum(each.nbytes for each in words)


class TimedOutputs:
    """The outputs of timed calls. ``values`` made the inputs in the buffers of both sides.

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
    ) -> None:
        self._context = context
        self._candidate, self._reference = self._sides = candidate, reference
        self._random = random
        self._kept: list[KeptRound] = []
        #: Of samples that timed calls chose, by the output.
        self._ranks: dict[str, list[torch.Tensor]] = {}
        #: Whether calls' inputs are gone when outputs are read.
        self._inputs_are_cleared = False
        #: How long reading took, since whoever uses this has cleared it.
        self.readings: list[Reading] = []

    @property
    def circumstance(self) -> str:
        """What the wrong outputs of a timed call are said to be."""
        return WHILE_TIMED + CLEARED * (self._inputs_are_cleared and not self._is_destination)

    def clear_inputs_before_reading(self) -> None:
        """Do so from now on, unless outputs of the reference lie in its inputs."""
        buffers = self._reference.buffers
        self._reference.collect()
        before = buffers.outputs().clone()
        buffers.inputs().zero_()
        self._context.synchronize()
        self._reference.collect()
        self._inputs_are_cleared = buffers.outputs().equal(before)

    @property
    def _is_destination(self) -> bool:
        return self._context.request.solution.spec.calling == "destination"

    def keep(self) -> None:
        """Keep what some calls of the last round got and left. Raises WrongOutputsError."""
        candidate, reference = self._candidate.buffers, self._reference.buffers
        inputs = self.inputs_to_check()
        if self._inputs_are_cleared:
            for pool in (candidate, reference):  # both, so that caches hold as little of either
                pool.inputs()[: candidate.count].zero_()
            self._context.synchronize()
        self.readings.append(self._read_outputs())
        self.keep_outputs(inputs)

    def inputs_to_check(self) -> dict[int, torch.Tensor]:
        """What some calls got, by the numbers of their buffers."""
        inputs = self._candidate.buffers.inputs()
        return {number: inputs[number].clone() for number in self._numbers_to_check()}

    def keep_outputs(self, inputs: dict[int, torch.Tensor]) -> None:
        """Keep what those calls left, and those whose outputs seem wrong."""
        left = self._candidate.buffers.outputs()
        numbers = {*inputs} | self._numbers_of_wrong_outputs()
        outputs = {number: left[number].clone() for number in numbers}
        self._kept.append(KeptRound(self.values.mixture, inputs, outputs))
        if sum(each.bytes for each in self._kept) > KEPT_BYTES[self._context.device]:
            self.check_kept()

    def _read_outputs(self) -> Reading:
        """Have both sides store what their calls returned.

        The outputs of ``destination`` calls are there; who still works on them gets no time for it.
        """
        wall_ns, reference_ns = self._candidate.wall_ns, self._reference.collect()
        if self._is_destination:
            return Reading(wall_ns, 0.0)
        return Reading(wall_ns, self._candidate.collect() - self._usual_reading_ns(reference_ns))

    def check_kept(self) -> None:
        """Check what was kept. Raises WrongOutputsError."""
        for kept_round in self._kept:
            # First those whose inputs are known: what was written there spoils outputs, too.
            for number in sorted(kept_round.outputs, key=lambda n: n not in kept_round.inputs):
                self._check_buffer(kept_round, number)
        self._kept.clear()

    def _check_buffer(self, kept_round: KeptRound, number: int) -> None:
        candidate, reference = self._candidate.buffers, self._reference.buffers
        self.values.restore(number, kept_round.mixture)
        inputs = kept_round.inputs.get(number, reference.inputs()[number])
        candidate.inputs()[number].copy_(inputs)
        candidate.outputs()[number].copy_(kept_round.outputs[number])
        tensors = candidate.at(number), reference.at(number)
        try:
            self.verdict = SandboxCalls(self._context, *tensors).check_buffer()
        except EvaluationEnded as ended:
            raise ended.qualified(WHILE_TIMED) from None
        if not self.verdict.passed:
            raise WrongOutputsError(self.verdict)
        self._add_ranks(*tensors)

    def _add_ranks(self, candidate: CallTensors, reference: CallTensors) -> None:
        """Note where samples of a call lie in their distributions."""
        context, names = self._context, self._sampled_outputs
        if names:
            inputs = {**context.reference.read(reference.input_tensors), **context.scalars}
            test = SamplingTest.of(inputs)
            for name, output in context.candidate.read(candidate.outputs).items():
                if name in names:
                    self._ranks.setdefault(name, []).append(ranks(output, test).cpu())

    def check_ranks(self) -> None:
        """Against random choices that are not so random once they are timed."""
        for name, places in self._ranks.items():
            verdict = judge_ranks(self.verdict, name, torch.cat(places, 1))
            if not verdict.passed:
                raise WrongOutputsError(verdict)

    @cached_property
    def _sampled_outputs(self) -> list[str]:
        """Those of which each row is a sample by itself."""
        definition = self._context.definition
        sampled = [name for name in definition.outputs if definition.is_sampled(name)]
        one_dim = [name for name in sampled if len(self._context.layouts[name].shape) == 1]
        return [] if is_seeded(definition) else one_dim

    def _usual_reading_ns(self, reference_ns: float) -> float:
        """How long storing what the candidate's calls returned should take, if the reference's did.

        Of captured calls it is a few launches, and as many copies more as there are calls more.
        """
        calls, reference_calls = (len(side.called) for side in self._sides)
        if not all(side.is_captured for side in self._sides):
            return reference_ns * calls / reference_calls
        return reference_ns + (calls - reference_calls) * self._copy_ns

    @cached_property
    def _copy_ns(self) -> float:
        """How long it takes to store the outputs of a captured call more."""
        names = self._context.definition.outputs
        layouts = [self._context.layouts[name] for name in names]
        sizes = [(prod(layout.shape), layout.dtype) for layout in layouts]
        return copy_ns(sizes, len(self._candidate.called))

    def _numbers_to_check(self) -> set[int]:
        """The one whose inputs are not as they should be, and one at random; of samples, enough.

        That is one which the reference did not make, as its blocks have fewer calls where these
        take longer; else any, since one call may be far off to draw looks from others.
        """
        called = {*self._candidate.called}
        inputs = [side.buffers.inputs().view(torch.int16) for side in self._sides]
        unseen = called - ({*self._reference.called} if self._compared_outputs else set())
        among = sorted(unseen or called)
        rows = [self._context.layouts[name].shape[0] for name in self._sampled_outputs]
        number = -(-SAMPLES // max(1, min(rows, default=SAMPLES)))
        at_random = self._random.sample(among, min(number, len(among)))
        return {*at_random, *self._furthest(called, *inputs)}

    def _numbers_of_wrong_outputs(self) -> set[int]:
        """Those whose outputs are the furthest from what the reference left."""
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
        """The outputs that are the same on both sides, but for rounding."""
        definition = self._context.definition
        return [name for name in definition.outputs if not definition.is_sampled(name)]

    def _furthest(self, among: set[int], one: torch.Tensor, other: torch.Tensor) -> list[int]:
        """The call for which the sides differ most; none where they don't."""
        number = most_different(one, other, sorted(among), self._random) if among else None
        return [] if number is None else [number]
