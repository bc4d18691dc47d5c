"""How far the bounds of ``verdict/_bounds.py`` are from honest kernels, and from wrong ones.

Definitions are computed by every implementation that is shipped and in several other honest ways
(orders of summation, split reductions, online softmax, fused multiply-add, sums in float64, rounded
attention weights), on drawn workloads of all regimes; and by the mutants of tests/mutants/kernels.
Of an honest way the largest error over its bound counts, of all workloads. A mutant is caught where
any workload shows it: of its workloads the largest counts as well, and of the mutants the smallest.

    python benchmarks/calibration.py

Of each kind of operation and dtype the definition is taken whose workloads are smallest. Triton's
kernels run in its interpreter on a CPU, on a fraction of the workloads.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from _calibration_ways import honest
from _common import ROOT, print_machine, print_table

from pytest_fib.build import load, program_of, reference_program
from pytest_fib.data import Definition, EvaluationStatus, load_definition_file
from pytest_fib.discovery import find_implementations
from pytest_fib.engine import OutputChecker, believed
from pytest_fib.sandbox import (
    YARDSTICKS,
    InvalidOutput,
    OracleUnavailable,
    bind,
    run_widened,
    store,
)
from pytest_fib.search import search
from pytest_fib.workloads import fill_inputs, layouts, scalar_inputs, smallest_axes, workload_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_fib.data import Workload
    from pytest_fib.discovery import Implementation
    from pytest_fib.verdict import Verdict
    from pytest_fib.workloads import TensorLayout

Outputs: TypeAlias = "dict[str, torch.Tensor]"
#: How often Triton's interpreter, which is slow, is asked: once in so many workloads.
INTERPRETED = 50
#: From this share of its bound on, an honest way is measured by what yardsticks allow.
ASKED = 0.5


@dataclass(frozen=True)
class Way:
    """A way to compute a definition."""

    name: str
    run: Callable[..., Any]
    calling: str = "value"
    every: int = 1
    wrong: bool = False


@dataclass
class Tally:
    """What was used of the bounds of one definition, by way: the largest."""

    definition: Definition
    honest: list[Way]
    wrong: list[Way]
    workloads: int = 0
    judged: int = 0
    seconds: float = 0.0
    used: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    mutants: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    alarms: list[str] = field(default_factory=list)


class Case:
    """One workload of a definition: its inputs, and what a verdict needs."""

    def __init__(
        self, definition: Definition, workload: Workload, run: Callable[..., Any], device: str
    ) -> None:
        self.definition, self.workload, self._run = definition, workload, run
        self._layouts = layouts(definition, workload)
        tensors = {
            n: _empty(self._layouts[n], device) for n in definition.inputs if n in self._layouts
        }
        fill_inputs(tensors, definition, workload)
        given = tensors | scalar_inputs(definition, workload)
        self._device = device
        self.inputs = [given[name] for name in definition.inputs]
        expected = self._named(run_widened(run, self.inputs))
        self._checker = OutputChecker(definition, workload, given, expected)

    def _named(self, result: Any) -> Outputs:
        values = result if isinstance(result, tuple) else (result,)
        return dict(zip(self.definition.outputs, values, strict=True))

    @cached_property
    def _yardsticks(self) -> list[Outputs]:
        yardsticks = [self._named(self._run(*self.inputs))]
        for how in chain.from_iterable(YARDSTICKS):
            with suppress(OracleUnavailable):
                outputs = self._named(run_widened(self._run, self.inputs, **how))
                yardsticks.append(believed(how, outputs))
        return yardsticks

    def verdict(self, way: Way) -> Verdict | None:
        """None where the way could not even be called as it should."""
        outputs = {n: _empty(self._layouts[n], self._device) for n in self.definition.outputs}
        try:
            with torch.device(self._device):  # ways make tensors without a word of it
                result = bind(way.run, way.calling, self.inputs, list(outputs.values()))()
            store(result, way.calling, list(outputs), list(outputs.values()))
        except InvalidOutput:
            return None
        verdict = self._checker.conclude(self._checker.compare(outputs), outputs)
        # A verdict asks for yardsticks after a failure only, but what they allow counts here too.
        if verdict.passed and (way.wrong or bound_used(verdict) < ASKED):
            return verdict
        compared = self._checker.compare(outputs, self._yardsticks)
        return self._checker.conclude(compared, outputs)


def _empty(layout: TensorLayout, device: str) -> torch.Tensor:
    steps = zip(layout.shape, layout.stride, strict=True)
    extent = 0 if 0 in layout.shape else 1 + sum((n - 1) * step for n, step in steps)
    dtype = getattr(torch, layout.dtype)
    memory = torch.zeros(
        (layout.offset + extent) * dtype.itemsize, dtype=torch.uint8, device=device
    )
    return memory.view(dtype).as_strided(layout.shape, layout.stride, layout.offset)


def main() -> None:
    parser = argparse.ArgumentParser(description="Honest and wrong kernels against the bounds.")
    parser.add_argument("--examples", type=int, default=1000, help="workloads of each definition")
    parser.add_argument("--wrong", type=int, default=50, help="of which mutants are tried on some")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-bytes", type=int, default=256 << 10)
    parser.add_argument("--only", default="*", help="a glob of definitions")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ways", action="store_true", help="a line for each way")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    tallies = [tallied(definition, arguments) for definition in definitions(arguments.only)]
    report(tallies, ways=arguments.ways)
    if any(tally.alarms for tally in tallies):
        sys.exit("\n".join(alarm for tally in tallies for alarm in tally.alarms[:3]))


def definitions(glob: str) -> Iterator[Definition]:
    """Of every kind of operation and dtype the one whose workloads are smallest."""
    found: dict[tuple[str, ...], list[Definition]] = defaultdict(list)
    for path in sorted((ROOT / "kernel_defs").glob("*/*.yaml")):
        for loaded in load_definition_file(path):
            definition = loaded.definition
            if fnmatchcase(definition.name, glob):
                found[(definition.op_type, *kind(definition))].append(definition)
    for alike in found.values():
        yield min(alike, key=lambda each: workload_bytes(each, smallest_axes(each)))


def kind(definition: Definition) -> tuple[str, ...]:
    """What tells definitions of one kind of operation apart: dtypes, and how pages are laid out."""
    dtypes = [spec.dtype.value for spec in definition.outputs.values()]
    return (*dtypes, *(name for name in definition.inputs if name.endswith(("indptr", "_len"))))


def tallied(definition: Definition, arguments: argparse.Namespace) -> Tally:
    """Search as an item does, with every way on every workload."""
    started = time.monotonic()
    tally = Tally(definition, honest_ways(definition, arguments.device), wrong_ways(definition))
    run = load(reference_program(definition))

    def check(workload: Workload) -> float:
        case = Case(definition, workload, run, arguments.device)
        count(tally, case, arguments.wrong)
        return 0.0

    search(
        definition,
        check,
        failed=lambda used: False,
        closeness=float,
        examples=arguments.examples,
        seed=arguments.seed,
        max_bytes=budget(definition, arguments.max_bytes),
    )
    tally.seconds = time.monotonic() - started
    print(f"{definition.name}: {tally.workloads} workloads, {tally.seconds:.0f} s", file=sys.stderr)
    return tally


def budget(definition: Definition, max_bytes: int) -> int:
    """Some room for axes to grow in, where the smallest workload takes most of the memory."""
    smallest = workload_bytes(definition, smallest_axes(definition))
    return max_bytes if 4 * smallest <= max_bytes else smallest + 8 * max_bytes


def honest_ways(definition: Definition, device: str) -> list[Way]:
    """What is shipped, and the variations."""
    ways = [Way(name, run) for name, run in honest(definition).items()]
    for found in implementations("kernel_impls", definition):
        interpreted = found.language == "triton" and device == "cpu"
        if interpreted or found.language == "triton" or device in found.target_hardware:
            every = INTERPRETED if interpreted else 1
            ways.append(Way(found.name, loaded(found, definition), found.calling, every))
    return ways


def wrong_ways(definition: Definition) -> list[Way]:
    """The mutants whose numbers are wrong."""
    ways = []
    for found in implementations("tests/mutants/kernels", definition):
        run: Any = loaded(found, definition)
        if run.expected.status == EvaluationStatus.INCORRECT_NUMERICAL.value:
            ways.append(Way(found.name, run, found.calling, wrong=True))
    return ways


def implementations(folder: str, definition: Definition) -> Iterator[Implementation]:
    for found in find_implementations([ROOT / folder]):
        if fnmatchcase(definition.name, found.definition):
            yield found


def loaded(found: Implementation, definition: Definition) -> Callable[..., Any]:
    return load(program_of(found.solution(definition.name), definition, found.directory))


def count(tally: Tally, case: Case, wrong: int) -> None:
    """Judge every way on one workload."""
    for way in tally.honest:
        if tally.workloads % way.every == 0 and (verdict := case.verdict(way)) is not None:
            tally.judged += 1
            name = f"{way.name}, {(verdict.correctness.extra or {}).get('check')}"
            tally.used[name] = max(tally.used[name], bound_used(verdict))
            if not verdict.passed:
                at = f"{case.workload.axes} {case.workload.regime} seed {case.workload.seed}"
                name = f"{tally.definition.name}, {way.name}"
                what = verdict.diagnosis.sentence if verdict.diagnosis else ""
                tally.alarms.append(f"{name}: {at}: {what}")
    for way in tally.wrong:
        # Those that were not caught are tried on, as an item would.
        if tally.workloads < wrong or tally.mutants[way.name] <= 1:
            verdict = case.verdict(way)
            used = bound_used(verdict) if verdict is not None else 0.0
            tally.mutants[way.name] = max(tally.mutants[way.name], used)
    tally.workloads += 1


def bound_used(verdict: Verdict) -> float:
    """What is wrong by no bound, as a sample that may not be chosen, is wrong by any."""
    used = float((verdict.correctness.extra or {}).get("bound_used", 0.0))
    return used if verdict.passed or used > 1 else math.inf


def report(tallies: list[Tally], *, ways: bool) -> None:
    titles = (
        "definition",
        "dtypes",
        "ways",
        "workloads",
        "verdicts",
        "false alarms",
        "honest",
        "mutants",
        "smallest of them",
    )
    print_table(titles, [row(tally) for tally in tallies])
    if ways:
        for tally in tallies:
            for used in tally.used, tally.mutants:
                shown = {name: round(most, 3) for name, most in used.items()}
                print(f"\n{tally.definition.name}: {shown}")
    alarms, judged = sum(len(t.alarms) for t in tallies), sum(t.judged for t in tallies)
    print(
        f"\n{alarms} false alarms in {judged:,} verdicts, {sum(t.seconds for t in tallies):.0f} s"
    )
    print_machine("torch")


def row(tally: Tally) -> tuple[str, ...]:
    outputs = tally.definition.outputs.values()
    dtypes = ", ".join(dict.fromkeys(spec.dtype.value for spec in outputs))
    least = min(tally.mutants, key=lambda name: tally.mutants[name], default="")
    smallest = f"{tally.mutants[least]:.3g} ({least})" if least else "-"
    return (
        tally.definition.name,
        dtypes,
        str(len(tally.honest)),
        f"{tally.workloads:,}",
        f"{tally.judged:,}",
        str(len(tally.alarms)),
        f"{max(tally.used.values(), default=0.0):.2f}",
        str(len(tally.wrong)),
        smallest,
    )


if __name__ == "__main__":
    main()
