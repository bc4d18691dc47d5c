"""What becomes of kernels outside the shipped kinds, whose author had only read the README.

Every definition of tests/corpus with its implementations, as pytest items: the honest ones should
pass, the wrong ones be caught. All of it takes more than an hour on two cores; in pieces, or in
several processes:

    python benchmarks/corpus.py --only 'losses_*' --results /tmp/corpus.jsonl
    python benchmarks/corpus.py --direct --processes 16 --results /tmp/corpus.jsonl

Outcomes are appended to the file after each definition, and what it holds already is not run again.
--only takes names of implementations (``<group>_<function>``) or of definitions; with --show,
messages are printed whole. --direct looks as ``kernel_check`` does it, with no sandbox and no lock:
the same search, sooner. Exits with 1 if anything was missed, refused or crashed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from dataclasses import asdict
from fnmatch import fnmatchcase
from io import StringIO
from itertools import groupby
from pathlib import Path
from statistics import median

import torch
from _common import ROOT, print_machine, print_table

sys.path.insert(0, str(ROOT))  # the corpus is among the tests

from tests.corpus.corpus import Kernel, Outcome, check, kernels, run

TITLES = ("mistake", "kernels", "right", "missed or refused", "skipped or crashed", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description="What becomes of the kernels of tests/corpus.")
    parser.add_argument("--only", action="append", help="glob of kernels or definitions")
    parser.add_argument("--seed", help="as --fib-seed")
    parser.add_argument("--examples", type=int, default=25)
    parser.add_argument("--results", type=Path, help="a file of outcomes to add to")
    parser.add_argument("--direct", action="store_true", help="no items: kernel_check")
    parser.add_argument("--processes", type=int, default=1, help="definitions at a time")
    parser.add_argument("--show", action="store_true", help="print messages whole")
    arguments = parser.parse_args()
    chosen = [each for each in kernels() if matches(each, arguments.only or ["*"])]
    outcomes = evaluate(chosen, arguments)
    tabulate([(each, outcomes[each.name]) for each in chosen if each.name in outcomes])
    print_machine("torch")
    sys.exit(any(outcomes[each.name].verdict(each) != "right" for each in chosen))


def matches(kernel: Kernel, globs: list[str]) -> bool:
    """Whether one of the globs names the kernel or its definition."""
    names = (kernel.name, kernel.definition)
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def evaluate(chosen: list[Kernel], arguments: argparse.Namespace) -> dict[str, Outcome]:
    """The outcomes by name, those known from earlier runs among them."""
    outcomes = known(arguments.results)
    by_name = {each.name: each for each in chosen}
    options = [f"--fib-examples={arguments.examples}"]
    options += [f"--fib-seed={arguments.seed}"] if arguments.seed is not None else []

    def keep(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        line = outcome.message if arguments.show else outcome.first_line
        word = outcome.verdict(by_name[name])
        print(f"{word:8} {outcome.seconds:6.2f} s  {name}  {line}", file=sys.stderr, flush=True)
        if arguments.results:
            with arguments.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": name, **asdict(outcome)}) + "\n")

    left = [each for each in chosen if each.name not in outcomes]
    groups = [list(group) for _, group in groupby(left, key=lambda each: each.definition)]
    with ProcessPoolExecutor(arguments.processes) as pool:
        judged = [pool.submit(judge, group, arguments, options) for group in groups]
        try:
            for each in as_completed(judged):
                for name, outcome in each.result():
                    keep(name, outcome)
        finally:  # what is left isn't waited for where one failed
            pool.shutdown(cancel_futures=True)
    return outcomes


def judge(
    group: list[Kernel], arguments: argparse.Namespace, options: list[str]
) -> list[tuple[str, Outcome]]:
    """What becomes of the kernels of one definition, by name."""
    found: list[tuple[str, Outcome]] = []

    def keep(name: str, outcome: Outcome) -> None:
        found.append((name, outcome))

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        if arguments.direct:
            if arguments.processes > 1:
                torch.set_num_threads(1)  # they share the cores
            check(group, Path(folder), arguments.examples, arguments.seed or "0", keep)
        else:
            run(group, Path(folder), *options, each=keep)
    return found


def known(results: Path | None) -> dict[str, Outcome]:
    """What a file of outcomes holds, the last of each name."""
    if results is None or not results.is_file():
        return {}
    lines = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return {line.pop("name"): Outcome(**line) for line in lines}


def tabulate(found: list[tuple[Kernel, Outcome]]) -> None:
    """The table by class of mistake, and a line for each that did not end as it should."""
    by_kind = defaultdict(list)
    for kernel, outcome in found:
        by_kind[kernel.kind].append((outcome.verdict(kernel), outcome))
    rows = []
    for kind, verdicts in sorted(by_kind.items()):
        words = [word for word, _ in verdicts]
        missed = words.count("missed") + words.count("refused")
        neither = words.count("skipped") + words.count("crashed")
        seconds = median(outcome.seconds for _, outcome in verdicts)
        counts = (len(words), words.count("right"), missed, neither)
        rows.append((kind, *map(str, counts), f"{seconds:.2f}"))
    print_table(TITLES, rows)
    for kernel, outcome in found:
        if (word := outcome.verdict(kernel)) != "right":
            print(f"\n{word}: {kernel.definition}: {kernel.name}\n  {outcome.first_line}")


if __name__ == "__main__":
    main()
