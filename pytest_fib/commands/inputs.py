"""``python -m pytest_fib inputs``: how a definition's inputs are made, and workloads drawn."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_fib.data import Definition, Workload

#: How many elements are shown of an input: from the first, or of its first and its last row each.
SHOWN, SHOWN_OF_ROWS = 8, 5


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("inputs", help="show how inputs are made, and sample workloads")
    parser.add_argument("definition", metavar="NAME", help="a definition's name, or its file")
    parser.add_argument("--examples", type=int, default=10, metavar="N", help="how many (10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which (0)")
    parser.add_argument("--values", action="store_true", help="and what is in each input")
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    from pytest_fib.discovery import find_definition
    from pytest_fib.report import workload_json
    from pytest_fib.workloads import plan, why_not_generated

    try:
        loaded = find_definition(given.definition)
    except LookupError as error:
        raise ValueError(error.args[0]) from None
    definition = loaded.definition
    print(definition.name, *plan(definition).explained(), sep="\n  ")
    if reason := why_not_generated(definition):
        raise ValueError(reason)
    print("\nworkloads, as --fib-workload takes them:")
    for workload in _drawn(definition, given.examples, given.seed):
        print(f"  {workload_json(workload)}")
        if given.values:
            print(*_values(definition, workload, loaded.path.parent), sep="\n")
    return 0


def _values(definition: Definition, workload: Workload, root: Path) -> Iterator[str]:
    """A line for each input: ``ids  int32[64]  -1 to 31, 9 distinct: 5, -1, 0, 31, ...``."""
    import torch

    from pytest_fib.workloads import dtype_name, make_inputs

    inputs = make_inputs(definition, workload, "cpu", root)
    width = max(map(len, inputs), default=0)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            yield f"    {name:<{width}}  {value!r}"
            continue
        shape = ", ".join(map(str, value.shape))
        yield f"    {name:<{width}}  {dtype_name(value.dtype)}[{shape}]{_extent(value)}"


def _extent(tensor: torch.Tensor) -> str:
    """The least and the most number, how many there are, and some; of float4, bytes.

    Nothing of none.
    """
    import torch

    if not tensor.numel():
        return ""
    numbers = tensor.view(torch.uint8) if "float4" in str(tensor.dtype) else tensor
    numbers = numbers.double() if numbers.dtype.is_floating_point else numbers.long()
    known = numbers[~numbers.isnan()]
    nan = " and nan" if 0 < known.numel() < numbers.numel() else ""
    ends = [known.min(), known.max()] if known.numel() else [numbers.min()]
    rows = numbers.reshape(-1, numbers.shape[-1]) if numbers.dim() > 1 else numbers.reshape(1, -1)
    count = f", {torch.unique(known).numel()} distinct" if known.numel() > 1 else ""
    if len(rows) > 1:
        some = f"{_some(rows[0], SHOWN_OF_ROWS)}; last row {_some(rows[-1], SHOWN_OF_ROWS)}"
    else:
        some = _some(rows[0], SHOWN)
    return f"  {' to '.join(_short(end.item()) for end in ends)}{nan}{count}: {some}"


def _some(row: torch.Tensor, most: int) -> str:
    """The first few numbers."""
    shown = ", ".join(map(_short, row[:most].tolist()))
    return f"{shown}, ..." if len(row) > most else shown


def _short(number: float) -> str:
    return f"{number:.4g}" if isinstance(number, float) else str(number)


def _drawn(definition: Definition, examples: int, seed: int) -> list[Workload]:
    """What a correctness item with these options would try."""
    from pytest_fib.search import search

    workloads: list[Workload] = []
    search(
        definition,
        workloads.append,
        failed=lambda _: False,
        closeness=lambda _: 0.0,
        examples=examples,
        seed=seed,
    )
    return workloads
