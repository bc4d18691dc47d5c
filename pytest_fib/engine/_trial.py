"""A function against a definition's reference, all in this process: for tests written by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib._defaults import PLAIN, Defaults
from pytest_fib.build import load, reference_program
from pytest_fib.data import Evaluation, EvaluationStatus
from pytest_fib.engine._calling import WrongOutput, bind, store
from pytest_fib.engine._evidence import POISONS, Evidence
from pytest_fib.engine._memory import changed, copy_bits, poisoned
from pytest_fib.engine._oracle import YARDSTICKS, OracleUnavailable, run_widened
from pytest_fib.workloads import fill_inputs, layouts, scalar_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads import TensorLayout


class Trial:
    """Evaluates a function on one workload after another. What the function raises is not caught.

    ``calling`` is as in ``@implements``.
    """

    def __init__(
        self, definition: Definition, function: Callable[..., Any], device: str, calling: str
    ) -> None:
        self.definition = definition
        self._function = function
        self._device = device
        self._calling = calling
        self._theirs = Defaults.now()
        self._reference: Callable[..., Any] = load(reference_program(definition))

    def __call__(self, workload: Workload, *, explain: bool = False) -> Evaluation:
        """The outcome on a workload; ``explain`` is as in an EvaluationRequest."""
        self._theirs = Defaults.now()
        with PLAIN.held():
            return self._evaluated(workload, explain=explain)

    def _evaluated(self, workload: Workload, *, explain: bool) -> Evaluation:
        tensors = self._tensors(workload)
        pristine = {name: tensor.clone() for name, tensor in tensors.items()}
        scalars = scalar_inputs(self.definition, workload)

        def call(poison: int) -> dict[str, torch.Tensor]:
            outputs = self._poisoned(workload, poison)
            self._call({**tensors, **scalars}, outputs)
            for name in changed(tensors, pristine):
                if name not in self._written_by_the_reference({**pristine, **scalars}):
                    raise WrongOutput("RUNTIME_ERROR", f"wrote to its input {name!r}")
                copy_bits(tensors[name], pristine[name])
            return outputs

        try:
            first = call(POISONS[0])
            evidence = self._evidence(workload, {**pristine, **scalars})
            if explain:
                evidence = replace(evidence, suppose=partial(self._supposed, evidence.inputs))
            verdict = evidence.verdict_of_two(first, partial(call, POISONS[1]))
        except WrongOutput as error:
            return Evaluation(status=EvaluationStatus(error.status), log=str(error))
        return Evaluation(status=verdict.status, log=verdict.log, correctness=verdict.correctness)

    def _tensors(self, workload: Workload) -> dict[str, torch.Tensor]:
        made = {
            name: _empty(layout, self._device)
            for name, layout in layouts(self.definition, workload).items()
            if name in self.definition.inputs
        }
        fill_inputs(made, self.definition, workload)
        return made

    def _poisoned(self, workload: Workload, poison: int) -> dict[str, torch.Tensor]:
        """Outputs that hold a poison until they are written."""
        found = layouts(self.definition, workload)
        made = {name: _empty(found[name], self._device) for name in self.definition.outputs}
        for tensor in made.values():
            poisoned(tensor, poison)
        return made

    def _call(self, inputs: Mapping[str, Any], outputs: Mapping[str, torch.Tensor]) -> None:
        arguments = [inputs[name] for name in self.definition.inputs]
        places = list(outputs.values())
        with self._theirs.held():
            result = bind(self._function, self._calling, arguments, places)()
        store(result, self._calling, list(outputs), places)

    def _evidence(self, workload: Workload, inputs: Mapping[str, Any]) -> Evidence:
        arguments = [inputs[name] for name in self.definition.inputs]
        facts = (self.definition, workload, inputs)
        try:
            expected = self._named(run_widened(self._reference, arguments))
        except OracleUnavailable as error:
            own = self._named(self._reference(*arguments))
            return Evidence(*facts, own, no_oracle=str(error))
        return Evidence(*facts, expected, partial(self._yardsticks, arguments))

    def _written_by_the_reference(self, inputs: Mapping[str, Any]) -> list[str]:
        """The inputs that the reference changes; it gets copies."""
        tensors = {n: x for n, x in inputs.items() if isinstance(x, torch.Tensor)}
        own = {name: tensor.clone() for name, tensor in tensors.items()}
        self._reference(*[{**inputs, **own}[name] for name in self.definition.inputs])
        return changed(own, tensors)

    def _yardsticks(self, arguments: list[Any]) -> list[dict[str, torch.Tensor]]:
        own = [self._named(self._reference(*arguments))]
        return own + [
            self._named(run_widened(self._reference, arguments, **how)) for how in YARDSTICKS
        ]

    def _supposed(
        self, inputs: Mapping[str, Any], values: Mapping[str, Any]
    ) -> dict[str, torch.Tensor] | None:
        """What the reference makes of other values of inputs; None where it makes nothing."""
        arguments = dict(inputs)
        for name, value in values.items():
            tensor = isinstance(value, torch.Tensor)
            arguments[name] = value.expand(inputs[name].shape) if tensor else value
        try:
            return self._named(
                run_widened(self._reference, [arguments[n] for n in self.definition.inputs])
            )
        except OracleUnavailable:
            return None

    def _named(self, result: Any) -> dict[str, torch.Tensor]:
        if isinstance(result, dict):
            return {name: result[name] for name in self.definition.outputs}
        values = result if isinstance(result, (tuple, list)) else (result,)
        return dict(zip(self.definition.outputs, values, strict=True))


def _empty(layout: TensorLayout, device: str) -> torch.Tensor:
    steps = zip(layout.shape, layout.stride, strict=True)
    extent = 0 if 0 in layout.shape else 1 + sum((n - 1) * step for n, step in steps)
    memory = torch.empty(layout.offset + extent, dtype=getattr(torch, layout.dtype), device=device)
    return memory.as_strided(layout.shape, layout.stride, layout.offset)
