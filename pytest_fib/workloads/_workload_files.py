"""Workloads in files: captured in production, or failures that were recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_fib.data import (
    DataError,
    Definition,
    FixedValue,
    LoadedDefinition,
    RandomInput,
    SafetensorsInput,
    Trace,
    Workload,
    has_lock_within,
    read_traces,
)
from pytest_fib.workloads._plan import plan
from pytest_fib.workloads._tensors import make_inputs, plain_defaults

#: How long a file may be locked by others, in seconds.
LOCK_TIMEOUT = 5.0


@dataclass(frozen=True)
class RecordedWorkload:
    """A workload from a file; ``root`` is what its tensors' paths are relative to."""

    workload: Workload
    root: Path


def recorded_workloads(
    loaded: LoadedDefinition,
    datasets: Sequence[Path],
    broken: Callable[[DataError], None] | None = None,
) -> dict[str, RecordedWorkload]:
    """The recorded workloads of a definition, by the shortest distinct beginning of their uuid.

    They lie in ``<name>.workloads.jsonl`` beside a YAML file, and in a dataset where its layout has
    them. ``broken`` is called with the DataError of a line that can't be read; without it, that is
    raised.
    """
    path, root = workloads_file(loaded, datasets)
    if not path.is_file():
        return {}
    traces = read_traces(path, broken)
    named = (t.workload for t in traces if t.definition == loaded.definition.name)
    recorded_by_uuid = {workload.uuid: RecordedWorkload(workload, root) for workload in named}
    length = _distinct_length(recorded_by_uuid)
    return {uuid[:length]: recorded for uuid, recorded in recorded_by_uuid.items()}


def workloads_file(loaded: LoadedDefinition, datasets: Sequence[Path]) -> tuple[Path, Path]:
    """Where a definition's workloads are recorded, and what paths in there are relative to."""
    name = loaded.definition.name
    for dataset in datasets:
        if loaded.path.is_relative_to(dataset):
            folders = [dataset / "workloads" / loaded.definition.op_type]
            folders.append(folders[0].with_name(loaded.path.parent.name))
            paths = [folder / f"{name}.jsonl" for folder in folders]
            return next(filter(Path.is_file, paths), paths[0]), dataset
    return loaded.path.with_name(f"{name}.workloads.jsonl"), loaded.path.parent


def record_workload(
    workload: Workload, loaded: LoadedDefinition, datasets: Sequence[Path]
) -> Path | None:
    """Record a failing workload, unless it is; the file that it was added to.

    Tensors whose values mean something (offsets, indices, lengths) are stored with it: other tools
    would draw them at random, and a later version of the generators may draw others.
    Raises OSError, also where somebody else keeps the file locked.
    """
    path, root = workloads_file(loaded, datasets)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        # Other workers record failures too, and hold it for milliseconds.
        if not has_lock_within(LOCK_TIMEOUT, file):
            raise TimeoutError(f"{path} is locked by another process")
        known = {trace.workload.uuid for trace in read_traces(path)}
        stored = _with_tensors(workload, loaded.definition, path.with_suffix(""), root)
        if stored.uuid in known:
            return None
        file.write(Trace(definition=loaded.definition.name, workload=stored).to_json_line())
        file.write("\n")
    return path


def _with_tensors(workload: Workload, definition: Definition, folder: Path, root: Path) -> Workload:
    meaningful = [
        name
        for name, given in workload.inputs.items()
        if isinstance(given, RandomInput)
        and not definition.inputs[name].dtype.is_floating
        and not isinstance(plan(definition).rules[name], FixedValue)
    ]
    if not meaningful:
        return workload
    file = folder / f"{workload.uuid}.safetensors"
    _store(file, workload, definition, meaningful, root)
    path = str(file.relative_to(root))
    stored = {name: SafetensorsInput(path=path, tensor_key=name) for name in meaningful}
    return workload.model_copy(update={"inputs": {**workload.inputs, **stored}})


@plain_defaults()
def _store(
    file: Path, workload: Workload, definition: Definition, names: Iterable[str], root: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    inputs = make_inputs(definition, workload, root=root)
    file.parent.mkdir(parents=True, exist_ok=True)
    layout = torch.contiguous_format
    save_file({name: inputs[name].clone(memory_format=layout) for name in names}, file)


def _distinct_length(uuids: Iterable[str]) -> int:
    known = list(uuids)
    longest = max(map(len, known), default=8)
    lengths = (n for n in range(8, longest) if len({uuid[:n] for uuid in known}) == len(known))
    return next(lengths, longest)
