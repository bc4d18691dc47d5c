"""How many planted bugs the search finds, after how many workloads, and how small it gets them.

Each bug of tests/planted is a right kernel that is wrong on some workloads. Targets: of 40 at least
38 are found with the default number of examples, whatever the seed, and each is shrunk to axes and
a regime no larger than it needs. The examples that definitions list are left out: they would find
some of the bugs without a search.

    python benchmarks/search.py --seconds 3000

A line for each search goes to stderr as it ends. After --seconds none is begun: the table has those
that were made, and the bugs are in an order that is always the same but follows no kind.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from hashlib import sha256
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from _common import ROOT, print_machine, print_table

from pytest_fib.plugin import options
from pytest_fib.search import search
from pytest_fib.workloads import DEFAULT_BUDGETS, workload_bytes

sys.path.insert(0, str(ROOT))  # the bugs are among the tests

from tests.planted.bugs import BUGS
from tests.planted.planting import definition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_fib.data import Workload
    from tests.planted.planting import Planted


@dataclass(frozen=True)
class Hunt:
    """One search for one bug: workloads until it was found, or None, and what became of it."""

    bug: Planted
    found_after: int | None
    checked: int
    small: bool
    plain: bool
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description="How many planted bugs the search finds.")
    parser.add_argument("bugs", nargs="*", help="names of bugs (default: all)")
    parser.add_argument("--examples", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-bytes", type=options.size, default=DEFAULT_BUDGETS["cpu"])
    parser.add_argument("--seconds", type=float, default=240, help="begin no search after these")
    arguments = parser.parse_args()
    bugs = [bug for bug in BUGS if fits(bug, arguments.max_bytes)]
    bugs = [bug for bug in bugs if bug.name in (arguments.bugs or [bug.name])]
    bugs.sort(key=lambda bug: sha256(bug.name.encode()).digest())
    rows, imperfect, start = [], [], perf_counter()
    for seed in range(arguments.seeds):
        hunts = []
        for bug in bugs:
            if perf_counter() - start < arguments.seconds:
                hunts.append(hunt(bug, seed, arguments))
                tell(hunts[-1], f"seed {seed}, {len(hunts)} of {len(bugs)}")
        if hunts:
            rows.append(row(seed, hunts))
            imperfect += list(problems(seed, hunts))
    titles = ("seed", "bugs", "found", "small", "plain", "found after", "checked", "seconds, most")
    print_table(titles, rows)
    print(*imperfect, sep="\n")
    print_machine("torch", "hypothesis")


def fits(bug: Planted, max_bytes: int) -> bool:
    smallest = next(bug.needed())
    return workload_bytes(definition_of(bug.definition), smallest.axes) <= max_bytes


def hunt(bug: Planted, seed: int, arguments: argparse.Namespace) -> Hunt:
    verdicts: list[bool] = []

    def check(workload: Workload) -> bool:
        verdicts.append(bug.check(workload))
        return verdicts[-1]

    start = perf_counter()
    found = search(
        definition_of(bug.definition),
        check,
        failed=bool,
        closeness=lambda failed: 0.0,
        examples=arguments.examples,
        seed=seed,
        max_bytes=arguments.max_bytes,
    )
    return Hunt(
        bug=bug,
        found_after=verdicts.index(True) + 1 if found.origin else None,
        checked=len(verdicts),
        small=bug.is_small(found.workload),
        plain=bug.is_plain(found.workload),
        seconds=perf_counter() - start,
    )


def tell(hunt: Hunt, which: str) -> None:
    found = f"found after {hunt.found_after}" if hunt.found_after else "not found"
    line = f"{which}: {hunt.bug.name}: {found}, {hunt.checked} checked, {hunt.seconds:.2f} s"
    print(line, file=sys.stderr, flush=True)


def row(seed: int, hunts: list[Hunt]) -> tuple[str, ...]:
    found = [hunt for hunt in hunts if hunt.found_after is not None]
    figures = (
        len(hunts),
        len(found),
        sum(hunt.small for hunt in found),
        sum(hunt.plain for hunt in found),
        median([hunt.found_after or 0 for hunt in found] or [0]),
        median(hunt.checked for hunt in hunts),
        max(hunt.seconds for hunt in hunts),
    )
    return (str(seed), *(f"{figure:.4g}" for figure in figures))


def problems(seed: int, hunts: list[Hunt]) -> Iterator[str]:
    for hunt in hunts:
        if hunt.found_after is None:
            yield f"seed {seed}: {hunt.bug.name} was not found"
        elif not (hunt.small and hunt.plain):
            yield f"seed {seed}: {hunt.bug.name} could be smaller or plainer"


if __name__ == "__main__":
    main()
