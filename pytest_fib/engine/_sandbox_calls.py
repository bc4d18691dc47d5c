"""Calls of the candidate and the reference in their sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import nan
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import DefinitionError
from pytest_fib.diagnosis import is_readable
from pytest_fib.engine._cheat_checks import check_earlier_outputs, check_inputs, poison_outputs
from pytest_fib.engine._context import CallTensors, EvaluationContext, EvaluationEnded
from pytest_fib.engine._output_checker import (
    Expected,
    ExpectedCache,
    believed,
    copies,
    yardstick_runs,
)
from pytest_fib.sandbox import (
    POISONS,
    Call,
    Failed,
    Reply,
    TensorRef,
    Widened,
    changed,
    copy_bits,
    fill_with_poison,
)
from pytest_fib.workloads import bits, once

if TYPE_CHECKING:
    from pytest_fib.data import Workload
    from pytest_fib.verdict import Outputs

#: The statuses of calls whose outputs can't be compared.
MISSHAPEN = ("INCORRECT_SHAPE", "INCORRECT_DTYPE")
#: Results of the same inputs: so many elements differ by less than this share of the largest one.
#: Far more than what sums in another order change, far less than what other inputs do.
MOST_ALIKE, NEAR = 0.9, 0.01


class SandboxCalls:
    """Calls through both sandboxes. With ``cache``, expected outputs are put there."""

    def __init__(
        self,
        context: EvaluationContext,
        candidate_tensors: CallTensors,
        reference_tensors: CallTensors,
        cache: ExpectedCache | None = None,
    ) -> None:
        self._context = context
        self._candidate = candidate_tensors
        self._reference = reference_tensors
        self._cache = cache
        self._experiments_failed = False
        #: Expected outputs that an earlier evaluation computed.
        self._kept: Expected | None = None
        #: The inputs that the reference writes to.
        self.scratch: list[str] = []

    def clock(self) -> float:
        return monotonic() - self._context.lock.waited

    @cached_property
    def _candidate_inputs(self) -> dict[str, torch.Tensor]:
        return self._context.candidate.read(self._candidate.input_tensors)

    @cached_property
    def _reference_inputs(self) -> dict[str, torch.Tensor]:
        return self._context.reference.read(self._reference.input_tensors)

    def inputs_after_call(self) -> dict[str, Any]:
        """The reference's inputs. Raises EvaluationEnded if the candidate changed its own."""
        self._check_inputs()
        return {**self._reference_inputs, **self._context.scalars}

    def make_inputs(self, workload: Workload) -> Mapping[str, Any]:
        pristine = self._context.fill_both(self._candidate, self._reference, workload)
        return {**pristine, **self._context.scalars}

    def call_candidate(self, poisons: Sequence[int]) -> list[Outputs]:
        """Call twice in one request, or once; earlier outputs must not change."""
        context, tensors = self._context, self._candidate
        twice = len(poisons) > 1
        outputs: list[Outputs] = [context.candidate.read(tensors.outputs)]
        second = context.candidate.read(tensors.second_outputs)
        stored = {} if twice else copies(second)
        if twice:
            outputs.append(second)
        for each, poison in zip(outputs, poisons, strict=True):
            poison_outputs(each, poison)
        self._ask_candidate(tensors.call(twice=True) if twice else tensors.call_later())
        self._check_inputs()
        calling = context.request.solution.spec.calling or "value"
        context.refuse_if(check_earlier_outputs(second, stored, calling))
        context.synchronize()
        return outputs

    def _ask_candidate(self, call: Call) -> None:
        """Have the candidate called. Raises EvaluationEnded if it fails.

        Or DefinitionError if the reference fails on this workload too: it is at fault then.
        """
        try:
            self._context.ask_candidate(call)
        except EvaluationEnded as error:
            ended = error
        else:
            return
        # After the handler: in this process, a traceback would show what is handled meanwhile.
        if ended.failed.exhausted:
            self.expected(self._context.request.workload)
        else:
            self._call_reference()
        raise ended

    def _check_inputs(self) -> None:
        sides = self._candidate_inputs, self._reference_inputs
        self._context.refuse_if(check_inputs(*sides, self._written_by_reference))

    def _written_by_reference(self) -> list[str]:
        """The inputs that the reference changes, which are restored."""
        inputs = self._reference_inputs
        before = copies(inputs)
        self._call_reference()
        written = changed(inputs, before)
        for name in written:
            copy_bits(inputs[name], before[name])
        self.scratch = written
        return written

    def expected(self, workload: Workload) -> Expected:
        expected = self._kept = self.cached(workload)
        if expected is None:
            expected = self._computed()
            if self._cache is not None:
                self._cache.put(workload, self._context.request.tensors, expected)
        return expected

    def cached(self, workload: Workload) -> Expected | None:
        cache = self._cache
        return None if cache is None else cache.get(workload, self._context.request.tensors)

    def _computed(self) -> Expected:
        context = self._context
        context.load_reference()
        reply = self._ask_reference(self._reference.call_widened(Widened()))
        if isinstance(reply, Failed) and reply.no_oracle:
            return Expected(self._call_reference(), reply.summary)
        context.reference_reply(reply)
        return Expected(context.reference.read(self._reference.widened_outputs))

    def _call_reference(self) -> dict[str, torch.Tensor]:
        """The reference's outputs in its own dtypes. Raises DefinitionError."""
        context = self._context
        context.load_reference()
        context.reference_reply(self._ask_reference(self._reference.call()))
        return context.reference.read(self._reference.outputs)

    def _ask_reference(self, call: Call) -> Reply:
        """Have the reference called; what it does not write is NaN, or a poison of integers.

        NaN is expected of no right kernel then, and widens no bound.
        """
        reference = self._context.reference
        for output in call.outputs:
            tensor = reference.allocator.tensor(output)
            if tensor.is_floating_point() and is_readable(tensor):
                tensor.fill_(nan)
            else:
                fill_with_poison(tensor, POISONS[1])
        return self._context.ask_reference(call)

    def yardsticks(self, is_near: Callable[[], bool], *, own: bool) -> Iterator[list[Outputs]]:
        tensors = self._reference
        if own:
            tensors = replace(tensors, widened_outputs=tensors.outputs)
        # They overwrite the expected outputs, which are restored.
        written = self._context.reference.read(tensors.widened_outputs)
        expected = copies(written)
        own_outputs = copies(self._call_reference())
        if self._kept is not None:
            again = own_outputs if own else self._varied(tensors, Widened())
            self._check_kept(self._kept.outputs, again)
        _put_back(written, expected)
        yield [own_outputs]
        for runs in yardstick_runs(own_outputs, is_near, own=own):
            varied = [(how, self._varied(tensors, Widened(**how))) for how in runs]
            _put_back(written, expected)
            yield [believed(how, outputs) for how, outputs in varied if outputs is not None]

    def _check_kept(self, kept: Outputs, again: Outputs | None) -> None:
        """Raise DefinitionError if these inputs have other expected outputs than an earlier time.

        Yardsticks are compared with what was expected then, so a bound would be as wide as both
        differ.
        """
        for name, right in kept.items():
            if again is None or not _are_alike(again[name], right):
                reference = f"the reference of {self._context.definition.name}"
                raise DefinitionError(
                    f"{reference} gave other values of {name} for the same inputs earlier; "
                    "if it has no state and no randomness, this is pytest-fib's own fault"
                )

    def _varied(self, tensors: CallTensors, how: Widened) -> dict[str, torch.Tensor] | None:
        """Outputs of a variation of the reference; None if there is none.

        Its other decisions may have another shape: then it is no yardstick.
        """
        context = self._context
        reply = self._ask_reference(tensors.call_widened(how))
        if isinstance(reply, Failed) and (reply.no_oracle or reply.status in MISSHAPEN):
            return None
        context.reference_reply(reply)
        return copies(context.reference.read(tensors.widened_outputs))

    def start_afresh(self) -> None:
        """Restart the candidate in a new process."""
        self._context.restart_candidate()

    def candidate_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """Inputs, outputs and the facts of the last call are restored."""
        if self._experiments_failed:
            return None
        context, inputs = self._context, self._candidate_inputs
        outputs = context.candidate.read(self._candidate.outputs)
        whole = {name: bits(once(tensor)) for name, tensor in inputs.items()}
        before, written = copies(whole), copies(outputs)
        _put_back(whole, {name: bits(values[name]) for name in whole if name in values})
        scalars = {n: value for n, value in values.items() if n not in inputs}
        call = replace(self._candidate, inputs={**self._candidate.inputs, **scalars})
        self._experiments_failed = not context.try_candidate(call.call())
        got = None if self._experiments_failed else copies(outputs)
        _put_back(whole, before)
        _put_back(outputs, written)
        return got

    def reference_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """In float64; inputs and expected outputs are restored."""
        outputs = self._reference.widened_outputs
        return self._with_values(values, outputs, lambda call: call.call_widened(Widened()))

    def own_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The same in the reference's own dtypes."""
        return self._with_values(values, self._reference.outputs, lambda call: call.call())

    def _with_values(
        self,
        values: Mapping[str, Any],
        outputs: Mapping[str, TensorRef],
        call_of: Callable[[CallTensors], Call],
    ) -> Outputs | None:
        context = self._context
        inputs = self._reference_inputs
        targets = {name: bits(once(inputs[name])) for name in inputs if name in values}
        # Copies first: the new values of an input may be another input.
        new = {name: bits(values[name]).clone() for name in targets}
        scalars = {n: value for n, value in values.items() if n not in inputs}
        written = context.reference.read(outputs)
        before, expected = copies(targets), copies(written)
        context.load_reference()
        _put_back(targets, new)
        call = replace(self._reference, inputs={**self._reference.inputs, **scalars})
        reply = self._ask_reference(call_of(call))
        new_outputs = None if isinstance(reply, Failed) else copies(written)
        _put_back(targets, before)
        _put_back(written, expected)
        return new_outputs


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are of the same inputs; another order of sums may change them."""
    if not is_readable(other):
        one, other = one.view(torch.uint8), other.view(torch.uint8)
    first, second = one.double(), other.double()
    if not second.numel():
        return True
    near = NEAR * second.where(second.isfinite(), 0.0).abs().max()
    alike = (first == second) | (first.isnan() & second.isnan()) | ((first - second).abs() <= near)
    return float(alike.double().mean()) >= MOST_ALIKE


def _put_back(tensors: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    for name, value in values.items():
        tensors[name].copy_(value)
