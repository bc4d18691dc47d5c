"""How often a search finds a kernel that is wrong in one call of many, at random.

Beside what calls that are independent of each other make likely: 1 - (1 - 1/M) ** calls, where each
workload is called twice, as often as --fib-repeat says, and once on other values.

    python benchmarks/now_and_then.py
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import TYPE_CHECKING

from _common import ROOT, print_machine, print_table

from pytest_fib.data import (
    EvaluationRequest,
    EvaluationStatus,
    Solution,
    load_definition_file,
)
from pytest_fib.engine import Judge
from pytest_fib.search import search

if TYPE_CHECKING:
    from pytest_fib.data import Outcome, Workload

DEFINITION = "scale_float32"
KERNEL = """
from random import Random

chance = Random({trial})

def run(x, factor):
    return x * factor + (chance.random() < 1 / {wrong_in})
"""
MAX_BYTES = 1 << 20
EXAMPLES = 25


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a flaky kernel is found.")
    parser.add_argument("--searches", type=int, default=40)
    arguments = parser.parse_args()
    rows = []
    with Judge("cpu", "none") as judge:
        for wrong_in, repeat in product((20, 100, 500), (1, 4, 20)):
            texts = [KERNEL.format(trial=n, wrong_in=wrong_in) for n in range(arguments.searches)]
            share = sum(is_found(judge, text, repeat) for text in texts) / arguments.searches
            calls = EXAMPLES * (2 * repeat + 1)
            likely = 1 - (1 - 1 / wrong_in) ** calls
            rows.append((f"1 in {wrong_in}", f"{repeat}", f"{calls}", *percent(likely, share)))
    print_table(("wrong", "--fib-repeat", "calls", "likely, %", "found, %"), rows)
    print_machine("torch", "hypothesis")


def percent(*shares: float) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares]


def is_found(judge: Judge, text: str, repeat: int) -> bool:
    """Whether a search fails; nothing is shrunk."""
    files = (ROOT / "kernel_defs").glob("scale/*.yaml")
    loaded = [each.definition for file in files for each in load_definition_file(file)]
    (definition,) = [each for each in loaded if each.name == DEFINITION]
    solution = Solution.model_validate(
        {
            "name": "now_and_then",
            "definition": DEFINITION,
            "author": "benchmarks",
            "spec": {
                "language": "python",
                "target_hardware": ["cpu"],
                "entry_point": "module.py::run",
                "destination_passing_style": False,
            },
            "sources": [{"path": "module.py", "content": text}],
        }
    )

    def check(workload: Workload) -> Outcome:
        about = {"definition": definition, "solution": solution, "workload": workload}
        return judge.evaluate(EvaluationRequest(**about, repeat=repeat))

    result = search(
        definition,
        check,
        failed=lambda outcome: outcome.status is not EvaluationStatus.PASSED,
        closeness=lambda outcome: 0.0,
        examples=EXAMPLES,
        max_bytes=MAX_BYTES,
        shrink_seconds=0.0,
    )
    return result.origin is not None


if __name__ == "__main__":
    main()
