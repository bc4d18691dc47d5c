"""The corpus: definitions and implementations in the files beside this one, and a way to run them.

``<group>.yaml`` holds definitions, one YAML document each; ``<group>.py`` their implementations. A
function named ``honest_...`` is right on every workload that its definition allows, one named
``wrong_<class>_...`` is not, and the class says what kind of mistake it makes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from time import perf_counter

import pytest

from pytest_fib.discovery import find_definition
from pytest_fib.testing import KernelCheck, RunSettings

HERE = Path(__file__).parent
#: How messages begin that blame an implementation for what it does, and not for that it stopped.
CAUGHT = ("INCORRECT", "RUNTIME_ERROR: wrote to its input")


@dataclass(frozen=True)
class Kernel:
    """An implementation: its function, its file, and the definition that it implements."""

    function: str
    group: str
    definition: str

    @property
    def name(self) -> str:
        """What the plugin calls it."""
        return f"{self.group}_{self.function}"

    @property
    def kind(self) -> str:
        """``honest``, or its class of mistake."""
        first, second = self.function.split("_")[:2]
        return second if first == "wrong" else first


@dataclass(frozen=True)
class Outcome:
    """What an item ended with: ``passed``, ``failed`` or ``skipped``, its message, seconds."""

    outcome: str
    message: str
    seconds: float

    def verdict(self, kernel: Kernel) -> str:
        """``right``, ``missed``, ``refused``, ``skipped``, or ``crashed`` by another's fault."""
        if self.outcome == "passed":
            return "right" if kernel.kind == "honest" else "missed"
        if not self.message.startswith(CAUGHT):
            return "skipped" if self.outcome == "skipped" else "crashed"
        return "refused" if kernel.kind == "honest" else "right"

    @property
    def first_line(self) -> str:
        """The message up to its first empty line, as one line."""
        return " ".join(self.message.partition("\n\n")[0].split())


@cache
def definitions() -> dict[str, str]:
    """Each definition's YAML by its name."""
    documents = [
        text
        for file in sorted(HERE.glob("*.yaml"))
        for text in re.split(r"^---\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]
    found = [(re.search(r"^name: (\S+)$", text, re.MULTILINE), text) for text in documents]
    return {match[1]: text for match, text in found if match}


@cache
def kernels() -> list[Kernel]:
    """Every implementation, by file and line."""
    return [
        Kernel(node.name, file.stem, ast.literal_eval(node.decorator_list[0].args[0]))
        for file in sorted(HERE.glob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(("honest_", "wrong_"))
    ]


def write_definitions(folder: Path) -> None:
    """Each definition as a file of its own."""
    for name, text in definitions().items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def run(chosen: list[Kernel], folder: Path, *arguments: str, each=None) -> dict[str, Outcome]:
    """The outcomes of these implementations, by name, of pytest in this process.

    Definitions are written to ``folder``. ``each`` is called with a name and an outcome as soon as
    there is one.
    """
    write_definitions(folder)  # all, lest implementations lack theirs
    recorder = _Recorder(each or (lambda name, outcome: None))
    options = [
        f"--rootdir={folder}",
        f"--config-file={folder / 'pytest.ini'}",
        f"--fib-defs={folder}",
        f"--fib-impls={HERE}",
        f"--fib-traces={folder / 'traces.jsonl'}",
        *[f"--fib-implementation={kernel.name}" for kernel in chosen],
        *["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"],
    ]
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    pytest.main([*options, *arguments], plugins=[recorder])
    return recorder.outcomes


def check(chosen: list[Kernel], folder: Path, examples: int, seed: str, each) -> None:
    """The same without items: in this process, by ``kernel_check``, with no sandbox and no lock.

    ``seed`` is as ``--fib-seed`` has it: ``0``, or ``0:3141``.
    """
    write_definitions(folder)
    first, _, of_the_run = seed.partition(":")
    run = RunSettings(seed=int(first), run_seed=int(of_the_run) if of_the_run else None)
    checker = KernelCheck(lambda name: find_definition(folder / f"{name}.yaml"), run)
    for kernel in chosen:
        function = getattr(import_module(f"tests.corpus.{kernel.group}"), kernel.function)
        start = perf_counter()
        found, message = "passed", ""
        try:
            checker(kernel.definition, function, examples=examples)
        except AssertionError as error:
            found, message = "failed", str(error)
        except (ValueError, RuntimeError, TypeError, ArithmeticError, LookupError) as error:
            found, message = "failed", f"RUNTIME_ERROR: {error!r}"
        each(kernel.name, Outcome(found, message, perf_counter() - start))


class _Recorder:
    """A pytest plugin that keeps each item's outcome."""

    def __init__(self, each) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._each = each

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("[")[2].rpartition("-correctness")[0]
        if report.when == "call" or report.outcome != "passed":
            skipped = isinstance(report.longrepr, tuple)
            text = str(report.longrepr[2]) if skipped else report.longreprtext
            found = Outcome(report.outcome, text, report.duration)
            self.outcomes[name] = found
            self._each(name, found)
