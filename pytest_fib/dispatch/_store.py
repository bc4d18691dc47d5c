"""Captured workloads in a dataset: tensors first, then the line that names them.

Several processes may write one dataset: a line is appended under a lock, and a workload that is
there already isn't written again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Workload

#: How long a file may be locked by others, in seconds: they may read all of it.
STORE_LOCK_TIMEOUT = 60.0
_ID = re.compile(rb'"uuid": ?"([^"]+)"')


def store_workload(
    root: Path,
    definition: Definition,
    axes: Mapping[str, int],
    tensors: Mapping[str, Any],
    scalars: Mapping[str, Any],
) -> Workload:
    """Add a workload to a dataset; its id follows from its axes and what its tensors hold.

    ``tensors`` are those to keep, on the CPU; inputs that are neither there nor ``scalars`` are
    random. Raises OSError.
    """
    from pytest_fib.data import Trace, file_name

    workload = workload_of(definition, axes, scalars)
    if tensors:
        workload = _with_tensors(root, definition, workload, tensors)
    path = root / "workloads" / file_name(definition.op_type) / f"{definition.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    line = Trace(definition=definition.name, workload=workload).to_json_line()
    _append(path, line, workload.uuid)
    return workload


def workload_of(
    definition: Definition, axes: Mapping[str, int], scalars: Mapping[str, Any]
) -> Workload:
    """A call without its tensors."""
    from pytest_fib.data import RandomInput, ScalarInput, Workload

    inputs: dict[str, Any] = {
        name: ScalarInput(value=scalars[name]) if name in scalars else RandomInput()
        for name in definition.inputs
    }
    sizes = {name: axes[name] for name in definition.var_axes if name in axes}
    return Workload(axes=sizes, inputs=inputs)


def _with_tensors(
    root: Path, definition: Definition, workload: Workload, tensors: Mapping[str, Any]
) -> Workload:
    from safetensors.torch import save

    from pytest_fib.data import SafetensorsInput, file_name, write_whole

    uuid = _content_id(workload.uuid, tensors)
    folder = root / "blob" / "workloads" / file_name(definition.op_type) / definition.name
    file = folder / f"{definition.name}_{uuid}.safetensors"
    if not file.exists():
        content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
        write_whole(file, [content])  # here, so that a full disk is an OSError of Python's
    path = str(file.relative_to(root))
    stored = {name: SafetensorsInput(path=path, tensor_key=name) for name in tensors}
    inputs = {**workload.inputs, **stored}
    return workload.model_copy(update={"inputs": inputs, "uuid": uuid})


def _content_id(of: str, tensors: Mapping[str, Any]) -> str:
    import torch

    digest = hashlib.sha256(of.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        digest.update(memoryview(flat.numpy()))
    return str(UUID(bytes=digest.digest()[:16]))


#: The ids in files that this process wrote last, with which file that was and how large.
_known: dict[Path, tuple[tuple[int, int], set[bytes]]] = {}


def _append(path: Path, line: str, uuid: str) -> None:
    """Append a line, unless one with this id is there; drop a last line that was cut off.

    Raises OSError, also where somebody else keeps the file locked.
    """
    from pytest_fib.data import has_lock_within

    with path.open("a+b") as file:
        if not has_lock_within(STORE_LOCK_TIMEOUT, file):
            raise TimeoutError(f"{path} is locked by another process")
        state, ids = _known.get(path, ((0, 0), set()))
        if _state(file) != state:  # else nobody else has written
            ids = _ids_of_whole_lines(file)
        if uuid.encode() not in ids:
            file.write(line.encode() + b"\n")
            file.flush()
            ids.add(uuid.encode())
        _known[path] = _state(file), ids


def _state(file: IO[bytes]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size


def _ids_of_whole_lines(file: IO[bytes]) -> set[bytes]:
    file.seek(0)
    text = file.read()
    if text and not text.endswith(b"\n"):
        file.truncate(text.rfind(b"\n") + 1)
    return set(_ID.findall(text, 0, text.rfind(b"\n") + 1))
