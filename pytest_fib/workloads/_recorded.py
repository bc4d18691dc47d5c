"""Inputs that were recorded: tensors in safetensors files beside a workload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fib.data import Definition, SafetensorsInput, Workload, kinds, why_lfs_pointer
from pytest_fib.workloads._plan import plan

if TYPE_CHECKING:
    import torch


class RecordedError(ValueError):
    """A recorded tensor is not there, or is not what its definition says; the message names it."""


def stored_inputs(
    definition: Definition, workload: Workload | None = None
) -> dict[str, SafetensorsInput]:
    """The inputs that come from files: a workload's and, where it has none, the definition's."""
    stored = {
        name: SafetensorsInput(path=rule.path, tensor_key=rule.tensor_key)
        for name, rule in plan(definition).rules.items()
        if isinstance(rule, kinds.Safetensors)
    }
    for name, given in workload.inputs.items() if workload else ():
        if isinstance(given, SafetensorsInput):
            stored[name] = given
    return stored


def missing(stored: Mapping[str, SafetensorsInput], root: Path | None) -> str | None:
    """Why the tensors of inputs can't be read, or None; looks at the files' beginnings only."""
    for name, given in stored.items():
        path = _located(given, root)
        if not path.is_file():
            return f"input {name!r}: {path} does not exist"
        with path.open("rb") as file:
            if why := why_lfs_pointer(file.read(100)):
                return f"input {name!r}: {path} {why}"
    return None


def read_tensor(
    given: SafetensorsInput, files: Mapping[str, Path], like: torch.Tensor
) -> torch.Tensor:
    """One tensor of a file, which is mapped and not read as a whole. Raises RecordedError."""
    from safetensors import SafetensorError, safe_open

    path = files.get(given.path) or Path(given.path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensor: torch.Tensor = file.get_tensor(given.tensor_key)
    except (OSError, SafetensorError) as error:
        raise RecordedError(f"{path}: {given.tensor_key!r} can't be read: {error}") from None
    for what in ("shape", "dtype"):
        wanted, recorded = getattr(like, what), getattr(tensor, what)
        if wanted != recorded:
            raise RecordedError(f"{path}: {given.tensor_key!r} has {what} {recorded}, not {wanted}")
    return tensor


def _located(given: SafetensorsInput, root: Path | None) -> Path:
    path = Path(given.path)
    return path if root is None or path.is_absolute() else root / path
