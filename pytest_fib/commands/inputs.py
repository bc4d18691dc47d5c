"""``python -m pytest_fib inputs``: how a definition's inputs are made, and workloads drawn."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Workload


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("inputs", help="show how inputs are made, and sample workloads")
    parser.add_argument("definition", metavar="NAME", help="a definition's name, or its file")
    parser.add_argument("--examples", type=int, default=10, metavar="N", help="how many (10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which (0)")
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    from pytest_fib.discovery import find_definition
    from pytest_fib.report import workload_json
    from pytest_fib.workloads import plan, why_not_generated

    try:
        definition = find_definition(given.definition).definition
    except LookupError as error:
        raise ValueError(error.args[0]) from None
    print(definition.name, *plan(definition).explained(), sep="\n  ")
    if reason := why_not_generated(definition):
        raise ValueError(reason)
    print("\nworkloads, as --fib-workload takes them:")
    for workload in _drawn(definition, given.examples, given.seed):
        print(f"  {workload_json(workload)}")
    return 0


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
