"""``python -m pytest_fib import``: kernels of a dataset become files of this project."""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TraceSet


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "import",
        help="copy definitions, solutions and workloads from a dataset into this project",
        epilog="Files that exist are kept. To write a dataset: export.",
    )
    parser.add_argument("dataset", type=Path, help="a folder in FlashInfer Trace's layout")
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help="definitions (all)")
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    """Write files; say which. Raises ValueError where the dataset lacks it, and OSError."""
    from pytest_fib.data import TraceSet, shortened

    trace_set = TraceSet.load(given.dataset)
    available = sorted(trace_set.definitions)
    for name in given.names or available:
        if name not in available:
            has = shortened(available)
            raise ValueError(f"no definition {name!r} in {given.dataset}; it has {has}")
        _import(trace_set, trace_set.definitions[name])
    return 0


def _import(trace_set: TraceSet, definition: Definition) -> None:
    folder = Path("kernel_defs", definition.op_type)
    _write(folder / f"{definition.name}.yaml", _as_yaml(definition))
    implementations = Path("kernel_impls", definition.op_type, definition.name)
    for solution in trace_set.solutions[definition.name]:
        text = solution.model_dump_json(indent=1, by_alias=True)
        _write(implementations / f"{solution.name}.json", text + "\n")
    recorded = trace_set.workloads[definition.name]
    if recorded:
        lines = "".join(f"{trace.to_json_line()}\n" for trace in recorded)
        _write(folder / f"{definition.name}.workloads.jsonl", lines)
    from pytest_fib.workloads import stored_inputs

    for trace in recorded:
        for stored in stored_inputs(definition, trace.workload).values():
            _copy(trace_set.file(stored.path), folder / stored.path)


def _write(path: Path, text: str) -> None:
    if path.exists():
        print(f"{path} exists and is kept")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def _copy(source: Path, target: Path) -> None:
    """Copy a file of tensors; where the dataset lacks it, its workloads are skips."""
    if source.is_file() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _as_yaml(definition: Definition) -> str:
    """A definition file as one would write it: short axes, the reference as a block."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Texts of several lines as blocks."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    data = definition.to_flashinfer()
    data["axes"] = {name: _short_axis(axis) for name, axis in data["axes"].items()}
    data["reference"] = "\n".join(line.rstrip() for line in data["reference"].split("\n"))
    shown: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, default_flow_style=None, width=100)
    return shown


def _short_axis(axis: dict[str, Any]) -> Any:
    if axis.get("description"):
        return axis
    return "var" if axis["type"] == "var" else axis["value"]
