"""Checks a function against a definition's reference in this process, for tests written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from math import prod
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.build import load, reference_program
from pytest_fib.data import (
    EXPLAIN_SECONDS,
    Definition,
    DefinitionError,
    Diagnosis,
    Evaluation,
    Outcome,
    Workload,
)
from pytest_fib.engine._cheat_checks import (
    check_earlier_outputs,
    check_inputs,
    poison_outputs,
)
from pytest_fib.engine._context import EvaluationEnded, conclude
from pytest_fib.engine._correctness import (
    check_same_inputs,
    check_third_call,
    later_call_alone,
)
from pytest_fib.engine._output_checker import Expected, believed, yardstick_runs
from pytest_fib.engine._reference_costs import ReferenceCosts, memory_of
from pytest_fib.sandbox import (
    POISONS,
    Failed,
    InvalidOutput,
    OracleUnavailable,
    VariationError,
    bind,
    changed,
    copies,
    forget_peak,
    limited_memory,
    one_line,
    out_of_memory,
    own_traceback,
    peak_bytes,
    run_widened,
    store,
    widened_dtype,
)
from pytest_fib.workloads import (
    TensorLayout,
    TorchDefaults,
    bits,
    doubled,
    empty_tensor,
    layouts,
    make_inputs,
    once,
    plain_defaults,
    with_other_values,
)

if TYPE_CHECKING:
    from pytest_fib.verdict import Outputs, Verdict


#: After one of so many workloads, a call of the same shapes on other values is checked.
ASKED_AGAIN = 8
#: The circumstance of such a failure, where the outputs of earlier calls may be the reason.
LATER_CALL = "on a second call of the same shapes with other values"
#: How often sizes are doubled for a workload on which outputs aren't the same by chance; its bytes.
DOUBLINGS, LARGER_BYTES = 3, 1 << 22
#: What a function raises that can't do some sizes, or whose outputs aren't what they should be.
REFUSALS = (
    ArithmeticError, AssertionError, AttributeError, EvaluationEnded, LookupError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
#: How many elements are few.
FEW_ELEMENTS = 16
#: Seconds of an evaluation, which nothing stops here: a request's default.
TIMEOUT = 60.0


class FunctionChecker:
    """Evaluates a function on workloads. Exceptions of the function are not caught.

    The back end is plain calls in this process. ``calling`` is as in ``@implements``. Paths of
    recorded tensors are relative to ``root``. Each workload is checked ``repeat`` times. The
    function is called with torch's defaults at the time when this is created.
    """

    def __init__(
        self,
        definition: Definition,
        function: Callable[..., Any],
        device: str,
        *,
        calling: str = "value",
        root: Path | None = None,
        repeat: int = 1,
    ) -> None:
        self.definition = definition
        self._function = function
        self._reference = load(reference_program(definition))
        self._device = device
        self._calling = calling
        self._root = root
        self._repeat = repeat
        self._costs = ReferenceCosts(definition)
        self._defaults = TorchDefaults.now()
        self._layouts: dict[str, TensorLayout] = {}
        self._inputs: dict[str, Any] = {}
        self._pristine: dict[str, Any] = {}
        #: The outputs of the last call in the function's own memory; and those of them that
        #: lie where the call before it returned them.
        self._returned: dict[str, torch.Tensor] = {}
        self._returned_again: dict[str, torch.Tensor] = {}
        #: The last workload.
        self.workload: Workload | None = None

    @plain_defaults()
    def __call__(
        self,
        workload: Workload,
        *,
        draws: bool = False,
        explain: bool = False,
        explain_seconds: float = EXPLAIN_SECONDS,
        afresh: bool = False,
    ) -> Outcome:
        """The outcome on a workload; options are as in an EvaluationRequest.

        Outputs that are chosen at random are not drawn many times. A function can't be loaded
        ``afresh``: it keeps what earlier calls left.
        """
        self.workload = workload
        try:
            with limited_memory() if self._device == "cpu" else nullcontext():
                explain_until = self.clock() + explain_seconds if explain else None
                what = self, self.definition, workload
                verdict = check_same_inputs(*what, repeat=self._repeat, explain_until=explain_until)
                if verdict.passed:
                    verdict = self._with_later_call(workload, verdict, explain_until)
        except EvaluationEnded as ended:
            return ended.evaluation(self._device)
        except DefinitionError as error:
            if error.fault.exhausted:
                return error.fault
            raise
        return conclude(verdict.status, verdict.diagnosis, verdict.correctness, device=self._device)

    def of_exception(self, error: Exception) -> Evaluation:
        sentence = f"{type(error).__name__}: {error}".splitlines()[0]
        return conclude("RUNTIME_ERROR", Diagnosis(sentence=sentence), device=self._device)

    def make_inputs(self, workload: Workload) -> Mapping[str, Any]:
        self._layouts = layouts(self.definition, workload)
        self._inputs = make_inputs(self.definition, workload, self._device, self._root)
        self._pristine = {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in self._inputs.items()
        }
        return self._pristine

    def call_candidate(self, poisons: Sequence[int]) -> list[Outputs]:
        """One call after the other; inputs are restored in between."""
        try:
            return [self._call(poison) for poison in poisons]
        except InvalidOutput as error:
            self._refuse_failing_reference()
            raise EvaluationEnded(Failed(error.status, str(error))) from error
        except EvaluationEnded:
            raise
        except Exception:  # foreign code may raise anything
            self._refuse_failing_reference()
            raise

    def _refuse_failing_reference(self) -> None:
        """Raise DefinitionError if the reference fails on these inputs too: it is at fault then."""
        try:
            self._call_reference()
        except DefinitionError:
            raise
        except Exception as error:  # foreign code may raise anything
            assert self.workload is not None, "it is being evaluated"
            where = f"the reference of {self.definition.name} failed"
            what = f"{one_line(error)}, at axes {self.workload.axes}"
            raise DefinitionError(f"{where}: {what}") from error

    def _with_later_call(
        self, workload: Workload, passed: Verdict, explain_until: float | None
    ) -> Verdict:
        """The verdict with a call on other values, which keeps earlier outputs, and is right.

        Whether it is right is only looked at after one workload of ``ASKED_AGAIN``, as it costs
        another call of the reference. Raises EvaluationEnded.
        """
        returned, is_checked = self._returned_again, workload.seed % ASKED_AGAIN == 0
        if not (returned or is_checked):
            return passed
        stored = {name: value.clone() for name, value in returned.items()}
        if is_checked:
            what = self, self.definition, workload
            later = check_third_call(*what, {}, explain_until=explain_until)
        else:
            self.make_inputs(with_other_values(self.definition, workload))
            self.call_candidate(POISONS[:1])
            later = passed
        if wrong := check_earlier_outputs(returned, stored, self._calling):
            raise EvaluationEnded(Failed("RUNTIME_ERROR", wrong))
        if later.passed:
            return passed
        # Nothing is loaded afresh here. What is remembered by shapes gives the same for both.
        return later_call_alone(
            self,
            self.definition,
            workload,
            later.qualified(LATER_CALL),
            explain_until=explain_until,
            needs_earlier=lambda other: self._remembers(other, workload),
        )

    def _remembers(self, other: Workload, workload: Workload) -> bool:
        """Whether the function's outputs don't change with the values of a workload's sizes.

        Of a few elements, outputs may be the same by chance: not those of larger sizes, unless
        the function can't do these.
        """
        if not self._are_the_same(other, workload):
            return False
        larger = workload
        for _ in range(DOUBLINGS if self._fewest_elements() < FEW_ELEMENTS else 0):
            larger = doubled(self.definition, larger, LARGER_BYTES)
        if larger == workload:
            return True
        try:
            return self._are_the_same(with_other_values(self.definition, larger), larger)
        except REFUSALS:
            return True

    def _fewest_elements(self) -> int:
        """How many elements the last workload's outputs have, or its inputs if these are fewer.

        All are the same by chance where there is little to count, say.
        """
        sides = self.definition.inputs, self.definition.outputs
        known = [[self._layouts[each] for each in side if each in self._layouts] for side in sides]
        return min(sum(prod(layout.shape) for layout in side) for side in known if side)

    def _are_the_same(self, *workloads: Workload) -> bool:
        """Whether the function's outputs for these are the same, bit by bit."""
        made = []
        for workload in workloads:
            self.make_inputs(workload)
            (outputs,) = self.call_candidate(POISONS[:1])
            made.append({name: value.clone() for name, value in outputs.items()})
        one, other = made
        return all(bits(one[name]).equal(bits(other[name])) for name in one)

    def _remember(self, result: Any, outputs: Outputs) -> None:
        """Keep a call's outputs, and note those in the memory of the last call's."""
        tensors = list(outputs.values())
        names = {id(tensor): name for name, tensor in outputs.items()}
        of_arguments = {_memory(tensor) for tensor in (*tensors, *_tensors(self._inputs).values())}
        returned = copies(result, self._calling, list(outputs), tensors)
        own = {names[id(output)]: value for output, value in returned}
        own = {name: value for name, value in own.items() if _memory(value) not in of_arguments}
        before = {_memory(value) for value in self._returned.values()}
        self._returned = own
        self._returned_again = {n: value for n, value in own.items() if _memory(value) in before}

    def _call(self, poison: int) -> Outputs:
        outputs = {
            name: empty_tensor(self._layouts[name], self._device)
            for name in self.definition.outputs
        }
        poison_outputs(outputs, poison)
        arguments, tensors = list(self._inputs.values()), list(outputs.values())
        with self._defaults.applied():
            try:
                result = bind(self._function, self._calling, arguments, tensors)()
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                lines = one_line(error), own_traceback(error)
                self._learn_cost()
                raise EvaluationEnded(Failed("RUNTIME_ERROR", *lines, exhausted=True)) from None
        store(result, self._calling, list(outputs), tensors)
        self._remember(result, outputs)
        sides = _tensors(self._inputs), _tensors(self._pristine)
        if wrong := check_inputs(*sides, self._written_by_reference):
            raise EvaluationEnded(Failed("RUNTIME_ERROR", wrong))
        return outputs

    def _written_by_reference(self) -> list[str]:
        """The inputs that the reference changes; it is called with copies."""
        pristine = _tensors(self._pristine)
        given = {name: tensor.clone() for name, tensor in pristine.items()}
        self._reference(*{**self._pristine, **given}.values())
        return changed(given, pristine)

    def expected(self, workload: Workload) -> Expected:
        """Computed again, without a cache."""
        start, before = monotonic(), forget_peak() if self._device == "cpu" else None
        try:
            return Expected(self._widened(self._pristine))
        except OracleUnavailable as error:
            return Expected(self._call_reference(), str(error))
        finally:
            peak = None if before is None else max(0, peak_bytes() - before)
            self._costs.calls.append((workload.axes, monotonic() - start, peak))

    def _learn_cost(self) -> None:
        """Note the reference's cost, after the function ran out of time or memory."""
        assert self.workload is not None, "it is being evaluated"
        self.expected(self.workload)

    def is_affordable(self, workload: Workload, max_bytes: int) -> bool:
        """Whether the reference is expected to need little time and memory."""
        return self._costs.are_affordable(workload, TIMEOUT, max_bytes)

    def is_too_large(self, workload: Workload, outcome: Outcome, max_bytes: int) -> bool:
        """Whether a workload failed only because it is too large."""
        memory = memory_of(self._device)
        return self._costs.explain(workload, outcome, TIMEOUT, max_bytes, memory)

    def _call_reference(self) -> dict[str, torch.Tensor]:
        """The reference's outputs in its own dtypes. Raises DefinitionError without memory left."""
        try:
            return self._named(self._reference(*self._pristine.values()), _same)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            where = f"the reference of {self.definition.name} failed"
            raise DefinitionError(f"{where}: {one_line(error)}", exhausted=True) from None

    def _widened(self, inputs: Mapping[str, Any], **how: Any) -> dict[str, torch.Tensor]:
        result = run_widened(self._reference, list(inputs.values()), **how)
        return self._named(result, _same if how.get("own") else widened_dtype)

    def yardsticks(self, is_near: Callable[[], bool], *, own: bool) -> Iterator[list[Outputs]]:
        own_outputs = self._call_reference()
        yield [own_outputs]
        for runs in yardstick_runs(own_outputs, is_near, own=own):
            outputs = []
            for how in runs:
                # Other decisions of a variation may have another shape: then it is no yardstick.
                with suppress(OracleUnavailable, DefinitionError):
                    outputs.append(believed(how, self._widened(self._pristine, **how)))
            yield outputs

    def reference_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The reference's outputs in float64, for other values of some inputs.

        None where it can't run with these, or where its outputs have other shapes then.
        """
        try:
            return self._widened(self._with(values))
        except (OracleUnavailable, VariationError, DefinitionError):
            return None

    def own_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The same in the reference's own dtypes."""
        pristine, self._pristine = self._pristine, self._with(values)
        try:
            return self._call_reference()
        except Exception:  # noqa: BLE001  (foreign code may raise anything)
            return None
        finally:
            self._pristine = pristine

    def clock(self) -> float:
        return monotonic()

    def candidate_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """None if the function fails for these values: the verdict is known already."""
        before = self._inputs, self._pristine
        self._pristine = self._with(values)
        self._inputs = {name: self._laid_out(name, x) for name, x in self._pristine.items()}
        try:
            return self._call(POISONS[0])
        except Exception:  # noqa: BLE001  (foreign code may raise anything)
            return None
        finally:
            self._inputs, self._pristine = before

    def _with(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All inputs, with these values for some."""
        inputs = dict(self._pristine)
        for name, value in values.items():
            is_tensor = isinstance(value, torch.Tensor)
            inputs[name] = value.expand(inputs[name].shape) if is_tensor else value
        return inputs

    def _laid_out(self, name: str, value: Any) -> Any:
        """A copy with the memory layout of the input."""
        if not isinstance(value, torch.Tensor):
            return value
        tensor = empty_tensor(self._layouts[name], self._device)
        bits(once(tensor)).copy_(bits(once(value)))
        return tensor

    def _named(
        self, result: Any, dtype_of: Callable[[torch.dtype], torch.dtype]
    ) -> dict[str, torch.Tensor]:
        """The reference's outputs by name. Raises DefinitionError if they don't fit."""
        outputs = {}
        for name in self.definition.outputs:
            layout = self._layouts[name]
            dtype = dtype_of(getattr(torch, layout.dtype))
            outputs[name] = torch.empty(layout.shape, dtype=dtype, device=self._device)
        try:
            store(result, "value", list(outputs), list(outputs.values()))
        except InvalidOutput as error:
            name = self.definition.name
            raise DefinitionError(f"the reference of {name} is wrong: {error}") from error
        return outputs


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _same(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _tensors(values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
