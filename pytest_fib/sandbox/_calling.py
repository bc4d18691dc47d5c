"""The three ways to call an implementation, and what it returns copied to the judge's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from traceback import walk_tb
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from pytest_fib.workloads import dtype_name, extent

if TYPE_CHECKING:
    from pytest_fib.sandbox._messages import FailedStatus

Invoke: TypeAlias = "Callable[[], Any]"


class InvalidOutput(Exception):
    """The returned values can't be the outputs. ``status`` is an EvaluationStatus."""

    def __init__(self, status: FailedStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def bind(
    function: Callable[..., Any], calling: str, inputs: Sequence[Any], outputs: Sequence[Any]
) -> Invoke:
    """The call as a function without arguments: the same one whether it is checked or timed."""
    if calling == "destination":
        return lambda: function(*inputs, *outputs)
    if calling == "tuple":
        return lambda: function((*inputs, *outputs))
    return lambda: function(*inputs)


def was_calling(traceback: TracebackType | None) -> bool:
    """Whether an exception came of the call itself, as of a wrong number of arguments."""
    frames = [frame for frame, _ in walk_tb(traceback)]
    return bool(frames) and frames[-1].f_code.co_filename == bind.__code__.co_filename


def store(result: Any, calling: str, names: Sequence[str], outputs: Sequence[torch.Tensor]) -> None:
    """Copy what a call returned to the output tensors. Raises InvalidOutput."""
    for output, value in copies(result, calling, names, outputs):
        output.copy_(value)


def copies(
    result: Any, calling: str, names: Sequence[str], outputs: Sequence[torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The output tensors that a call has not written itself, and what goes there.

    Raises InvalidOutput.
    """
    if calling == "destination" and result is not None:
        _refuse_new(result, names, outputs)
    if calling == "destination" or (calling == "tuple" and result is None):
        return []
    return [
        (output, _checked(name, value, output))
        for name, value, output in zip(names, _in_order(result, names), outputs, strict=True)
        if value is not output
    ]


def _refuse_new(result: Any, names: Sequence[str], outputs: Sequence[torch.Tensor]) -> None:
    """Refuse a tensor that was returned where outputs are written, unless it is one of these."""
    values = result.values() if isinstance(result, dict) else result
    for value in values if isinstance(result, (dict, tuple, list)) else (result,):
        if isinstance(value, torch.Tensor) and not any(_lies_in(value, each) for each in outputs):
            message = (
                "returned a tensor, but with calling='destination' outputs are written into the "
                f"last arguments ({', '.join(names)}): write there, as in {names[0]}.copy_(...), "
                "or leave calling='destination' out"
            )
            raise InvalidOutput("RUNTIME_ERROR", message)


def _lies_in(value: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether a tensor is an output, or a view of it. Inputs lie in the same storage."""
    offset = value.data_ptr() - output.data_ptr()
    return offset == 0 or 0 < offset < extent(output.shape, output.stride()) * output.itemsize


def _in_order(result: Any, names: Sequence[str]) -> Sequence[Any]:
    if isinstance(result, dict):
        if set(result) != set(names):
            raise InvalidOutput("RUNTIME_ERROR", f"returned {list(result)}, not {list(names)}")
        return [result[name] for name in names]
    values = result if isinstance(result, (tuple, list)) else (result,)
    if len(values) != len(names):
        outputs = f"{len(names)} output{'s' * (len(names) != 1)} ({', '.join(names)})"
        raise InvalidOutput("RUNTIME_ERROR", f"returned {len(values)} values for {outputs}")
    return values


def _checked(name: str, value: Any, output: torch.Tensor) -> torch.Tensor:
    if isinstance(value, (bool, int, float)) and output.shape == ():
        return torch.tensor(value, dtype=output.dtype)
    # A subclass could compute when it is read, after the clock has stopped.
    if type(value) is not torch.Tensor:
        kind = "None" if value is None else f"a {type(value).__name__}"
        remedy = "; is a return missing?" if value is None else ""
        raise InvalidOutput("RUNTIME_ERROR", f"{name} is {kind}, not a torch.Tensor{remedy}")
    if value.shape != output.shape:
        difference = f"got {list(value.shape)}, expected {list(output.shape)}"
        raise InvalidOutput("INCORRECT_SHAPE", f"{name}: {difference}")
    if value.dtype != output.dtype:
        difference = f"got {dtype_name(value.dtype)}, expected {dtype_name(output.dtype)}"
        raise InvalidOutput("INCORRECT_DTYPE", f"{name}: {difference}")
    if value.device != output.device:
        difference = f"got {value.device}, expected {output.device}"
        raise InvalidOutput("RUNTIME_ERROR", f"{name} is on the wrong device: {difference}")
    return value
