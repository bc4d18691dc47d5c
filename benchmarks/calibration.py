"""How far the bounds of ``engine/_bounds.py`` are from honest kernels, and from wrong ones.

Every definition is computed in several honest ways (orders of summation, split reductions, online
softmax, sums in float64 as fused multiply-add comes close to, attention weights rounded to the
inputs' dtype) and in several wrong ones, on drawn workloads of all regimes. Of an honest way the
largest error over its bound counts; a wrong one is caught where any workload shows it, so of its
workloads the largest counts as well, and of the wrong ways the smallest.

    python benchmarks/calibration.py --examples 100
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from _calibration_ways import HONEST, WRONG, WRONG_OF, routing, routing_sorted
from _common import ROOT, print_machine, print_table

from pytest_fib.data import Definition, Workload, load_definition_file
from pytest_fib.engine._oracle import YARDSTICKS, run_widened
from pytest_fib.engine._verdict import Verdict, judge_outputs
from pytest_fib.workloads import fill_inputs, layouts, scalar_inputs
from pytest_fib.workloads.search import search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Outputs: TypeAlias = "dict[str, torch.Tensor]"


@dataclass
class Tally:
    """What was used of the bound, by way: the largest, and where."""

    definition: str
    honest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    wrong: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    widened: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    asked: int = 0
    judged: int = 0
    alarms: list[str] = field(default_factory=list)


class Case:
    """One workload of a definition: its inputs, the oracle and, once asked for, yardsticks."""

    def __init__(self, definition: Definition, workload: Workload, run: Callable[..., Any]) -> None:
        self.definition, self.workload, self._run = definition, workload, run
        tensors = {
            name: torch.empty(layout.shape, dtype=getattr(torch, layout.dtype))
            for name, layout in layouts(definition, workload).items()
            if name in definition.inputs
        }
        fill_inputs(tensors, definition, workload)
        scalars = scalar_inputs(definition, workload)
        self.tensors = tensors
        self.inputs = [(tensors | scalars)[name] for name in definition.inputs]
        self.own = self.named(run(*self.inputs))
        self.expected = self.named(run_widened(run, self.inputs))
        self._yardsticks: list[Outputs] = []

    def named(self, result: Any) -> Outputs:
        """What a call returned, by output."""
        values = result if isinstance(result, tuple) else (result,)
        return dict(zip(self.definition.outputs, values, strict=True))

    def yardsticks(self) -> list[Outputs]:
        """The outputs of the reference that show how far honest rounding may carry."""
        if not self._yardsticks:
            for how in YARDSTICKS:
                self._yardsticks.append(self.named(run_widened(self._run, self.inputs, **how)))
            self._yardsticks.append(self.own)
        return self._yardsticks

    def judge(self, outputs: Outputs, *, widened: bool = False) -> Verdict:
        """The verdict, by the oracle alone or by yardsticks too."""
        own = self.yardsticks() if widened else None
        return judge_outputs(self.definition, outputs, self.expected, own, inputs=self.tensors)


def main() -> None:
    parser = argparse.ArgumentParser(description="Honest and wrong kernels against the bounds.")
    parser.add_argument("--examples", type=int, default=50, help="workloads of each definition")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-bytes", type=int, default=2 << 20)
    parser.add_argument("--defs", type=Path, default=ROOT / "kernel_defs")
    parser.add_argument("--only", default="", help="part of the names of definitions")
    parser.add_argument("--ways", action="store_true", help="a line for each way")
    arguments = parser.parse_args()
    tallies = []
    for definition in definitions(arguments.defs, arguments.only):
        tallies.append(calibrated(definition, arguments))
        print(f"{tallies[-1].definition} {tallies[-1].alarms[:3]}", flush=True)
    report(tallies, ways=arguments.ways)


def definitions(folder: Path, only: str) -> Iterator[Definition]:
    for path in sorted(folder.glob("*/*.yaml")):
        for loaded in load_definition_file(path):
            definition = loaded.definition
            if only in definition.name and ways_of(definition):
                yield definition


def ways_of(definition: Definition) -> Mapping[str, Callable[..., Any]]:
    """The honest ways; attention is here for decoding with one token in a page."""
    paged = "page_size" in definition.axes
    if paged and not ("decode" in definition.name and definition.const_axes["page_size"] == 1):
        return {}
    return HONEST.get(definition.op_type, {}) or routing_ways(definition)


def routing_ways(definition: Definition) -> Mapping[str, Callable[..., Any]]:
    if definition.op_type != "routing":
        return {}
    k = definition.const_axes["topk"]
    return {
        "divided": partial(routing, k, True),
        "multiplied": partial(routing, k, False),
        "other ties": partial(routing_sorted, k=k),
    }


def calibrated(definition: Definition, arguments: argparse.Namespace) -> Tally:
    namespace: dict[str, Any] = {}
    exec(definition.reference, namespace)
    tally = Tally(definition.name)

    def check(workload: Workload) -> float:
        count(tally, Case(definition, workload, namespace["run"]))
        return 0.0

    search(
        definition,
        check,
        failed=lambda used: False,
        closeness=float,
        examples=arguments.examples,
        seed=arguments.seed,
        max_bytes=arguments.max_bytes,
    )
    return tally


def count(tally: Tally, case: Case) -> None:
    for name, way in ways_of(case.definition).items():
        outputs = case.named(way(*case.inputs))
        verdict = case.judge(outputs)
        used = bound_used(verdict)
        tally.judged += 1
        if used > 1:
            tally.asked += 1
            verdict = case.judge(outputs, widened=True)
            used = bound_used(verdict)
            tally.widened[way_of(name, verdict)] = max(tally.widened[way_of(name, verdict)], used)
        else:
            tally.honest[way_of(name, verdict)] = max(tally.honest[way_of(name, verdict)], used)
        if used > 1:
            tally.alarms.append(
                f"{name}: {case.workload.axes} {case.workload.regime}: {verdict.summary}"
            )
    for name, outputs in wrong_outputs(case).items():
        used = bound_used(case.judge(outputs))
        if used > 1:
            used = bound_used(case.judge(outputs, widened=True))
        tally.wrong[name] = max(tally.wrong[name], used)


def wrong_outputs(case: Case) -> dict[str, Outputs]:
    outputs = {name: wrong(case) for name, wrong in WRONG.items()}
    for name, wrong in WRONG_OF.get(case.definition.op_type, {}).items():
        outputs[name] = case.named(wrong(*case.inputs))
    return outputs


def way_of(name: str, verdict: Verdict) -> str:
    return f"{name}, {(verdict.correctness.extra or {})['check']}"


def bound_used(verdict: Verdict) -> float:
    return float((verdict.correctness.extra or {}).get("bound_used", 0.0))


def report(tallies: list[Tally], *, ways: bool) -> None:
    rows = []
    for tally in tallies:
        plain = max(tally.honest.values(), default=math.nan)
        asked = max(tally.widened.values(), default=math.nan)
        missed = min(tally.wrong, key=lambda name: tally.wrong[name])
        share = f"{100 * tally.asked / max(tally.judged, 1):.2g} %"
        least = f"{tally.wrong[missed]:.3g} ({missed})"
        rows.append(
            (tally.definition, f"{plain:.2f}", share, f"{asked:.2f}", least, str(len(tally.alarms)))
        )
    titles = ("definition", "honest", "asked", "widened", "smallest wrong", "false alarms")
    print_table(titles, rows)
    if ways:
        for tally in tallies:
            for kind in ("honest", "widened", "wrong"):
                shown = {name: round(used, 3) for name, used in getattr(tally, kind).items()}
                print(tally.definition, kind, shown)
            print(*tally.alarms[:5], sep="\n")
    print_machine("torch")


if __name__ == "__main__":
    main()
