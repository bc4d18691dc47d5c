"""How many files of the package one passing evaluation goes through, and how often it changes.

Counts the calls of the package's functions in the judge's process with ``sys.setprofile``: the
files that they lie in, and how often a call or a return is in another file than the one before it.
A reader who follows one evaluation opens as many files, and turns as many pages.

    python benchmarks/files_entered.py
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import pytest_fib
from pytest_fib.data import load_definition_file
from pytest_fib.discovery import find_implementations
from pytest_fib.engine import Judge
from pytest_fib.workloads import make_workload

sys.path.insert(0, str(Path(__file__).parent))
from _common import ROOT, print_machine, print_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

DEFINITION = "rmsnorm_d4096"
PACKAGE = str(Path(pytest_fib.__file__).parent)


class Pages:
    """The files that calls go through."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.changes = 0
        self._now = ""
        self._importing = 0

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """A profile function."""
        name = frame.f_code.co_filename
        if event not in ("call", "return") or not name.startswith(PACKAGE):
            return
        if frame.f_code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
            return
        if self._importing:  # a class that is defined, a table that is made
            return
        self.files[name] = self.files.get(name, 0) + (event == "call")
        self.changes += name != self._now
        self._now = name

    def of(self, call: Callable[[], object]) -> list[str]:
        """The row of a table: what a call goes through."""
        sys.setprofile(self.see)
        call()
        sys.setprofile(None)
        return [str(len(self.files)), str(self.changes), str(sum(self.files.values()))]


def main() -> None:
    torch.set_num_threads(1)
    (loaded,) = load_definition_file(ROOT / f"kernel_defs/rmsnorm/{DEFINITION}.yaml")
    found = find_implementations([ROOT / f"kernel_impls/rmsnorm/{DEFINITION}"])
    implementation = next(each for each in found if each.language == "python")
    definition, solution = loaded.definition, implementation.solution(DEFINITION)

    rows = []
    pages = {}
    with Judge("cpu") as judge:
        for name, batch, timing in (
            ("the first of a judge", 3, False),
            ("a second workload", 5, False),
            ("a timed one", 7, True),
        ):
            workload = make_workload(definition, {"batch": batch})
            request = pytest_fib.EvaluationRequest(
                definition=definition, solution=solution, workload=workload, timing=timing
            )
            pages[name] = Pages()
            rows.append([name, *pages[name].of(partial(judge.evaluate, request))])
    print_table(["evaluation", "files", "changes", "calls"], rows)
    if "--files" in sys.argv:
        for name, seen in pages.items():
            print(f"\n{name}")
            for file, calls in sorted(seen.files.items(), key=lambda pair: -pair[1]):
                print(f"{calls:8} {Path(file).relative_to(PACKAGE)}")
    print_machine("torch")


if __name__ == "__main__":
    main()
