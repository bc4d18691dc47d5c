"""The ``@implements`` decorator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pytest_fib.data import Calling

Function = TypeVar("Function", bound="Callable[..., object]")

#: Arguments of :func:`implements` besides the definition, with the types a scan accepts.
ARGUMENTS: dict[str, type] = {
    "language": str,
    "target_hardware": list,
    "dependencies": list,
    "calling": str,
    "author": str,
    "description": str,
}


def implements(
    definition: str,
    *,
    language: str | None = None,
    target_hardware: Sequence[str] = ("cpu", "cuda"),
    dependencies: Sequence[str] = (),
    calling: Calling = "value",
    author: str = "",
    description: str = "",
) -> Callable[[Function], Function]:
    """Mark a function as an implementation of ``definition`` (a name, or a glob for a family).

    The function stays as it is. pytest-fib reads the mark from the source without importing the
    file, so every argument must be a literal. Without a ``language`` it is ``triton`` where the
    function launches a kernel of its file that is marked ``@triton.jit``, and else ``python``.

    ``calling`` says how it is called: ``value`` takes the inputs in the definition's order and
    returns the outputs (a tensor, a tuple in order, or a dict by name); ``destination`` takes the
    inputs, then the output tensors to write; ``tuple`` takes one tuple of inputs, then outputs.
    """

    def mark(function: Function) -> Function:
        return function

    return mark
