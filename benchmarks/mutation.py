"""Which changes of a reference its own workloads don't notice.

A definition's reference is changed in one place after the other, as people get it wrong: a boundary
of a comparison, a term or a factor left out, a clamp or a mask dropped, one branch taken always, a
constant off by one. Each such mutant is tried on the workloads that a kernel item would have. One
that none of them tells from the reference is either the same function on all valid inputs, or shows
what the workloads lack.

    python benchmarks/mutation.py kernel_defs
    python benchmarks/mutation.py kernel_defs/rmsnorm.yaml --seed 3 --results /tmp/mutants.jsonl

Prints the survivors and, last, how many there were of how many. Outcomes are appended to the file
as they come; definitions that it holds already are not tried again.
"""

from __future__ import annotations

import argparse
import ast
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from _common import print_machine

from pytest_fib.build import load, reference_program
from pytest_fib.data import Definition, EvaluationStatus, Workload
from pytest_fib.discovery import find_definition
from pytest_fib.engine import FunctionChecker
from pytest_fib.plugin import options
from pytest_fib.search import search
from pytest_fib.workloads import example_workloads, why_not_generated

#: Methods and functions of torch that a mutant leaves out: their result is their first argument.
LEFT_OUT = {
    *("abs", "ceil", "clamp", "clamp_max", "clamp_min", "exp", "expm1", "flip", "floor", "log"),
    *("log1p", "masked_fill", "masked_fill_", "nan_to_num", "neg", "relu", "round", "sigmoid"),
    *("sign", "softmax", "sqrt", "square", "tanh", "trunc", "roll", "tril", "triu", "cumsum"),
}
#: What stands in for a function in a mutant, as a template of its first argument.
INSTEAD = {
    "round": ("({0}).floor()", "({0} + 0.5).floor()", "({0}).trunc()"),
    "floor": ("({0}).trunc()", "({0}).round()"),
    "trunc": ("({0}).floor()",),
    "isnan": ("(({0}) > float('inf'))",),
    "isfinite": ("(~({0}).isnan())",),
    "isinf": ("(({0}) == float('inf'))",),
}
#: Boolean arguments that change nothing that is compared.
IDLE = {"keepdim", "stable", "non_blocking", "sorted", "as_tuple"}
BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
#: Seconds of one check of a mutant; a loop may have no end.
CHECK_SECONDS = 20


@dataclass
class Mutant:
    """A changed reference: what was changed at which line, and whether a workload showed it."""

    line: int
    change: str
    source: str
    shown_by: str = ""


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a reference, each different from it and from the others."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    for parent in ast.walk(tree):
        for name, child in ast.iter_fields(parent):
            places = enumerate(child) if isinstance(child, list) else [(None, child)]
            for index, node in list(places):
                if not isinstance(node, ast.AST) or not hasattr(node, "lineno"):
                    continue
                for other in changes(parent, name, node):
                    _put(parent, name, index, other)
                    text = ast.unparse(ast.fix_missing_locations(tree))
                    _put(parent, name, index, node)
                    if text not in seen:
                        seen.add(text)
                        change = f"{ast.unparse(node)}  =>  {ast.unparse(other)}"
                        yield Mutant(node.lineno, change, text)


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def changes(parent: ast.AST, name: str, node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of a node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in BOUNDARIES:
        yield ast.Compare(node.left, [BOUNDARIES[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.BinOp):
        yield node.left
        if not isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.Sub)):
            yield node.right
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _constants(parent, name, node.value)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        for value in (True, False):
            if not (isinstance(node, ast.While) and value):
                taken = {each: getattr(node, each) for each in node._fields}
                yield type(node)(**taken | {"test": ast.Constant(value)})
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr)) and name == "body":
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(node, ast.Assign) or isinstance(target, ast.Subscript):
            yield ast.copy_location(ast.Pass(), node)


def _constants(parent: ast.AST, name: str, value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        if isinstance(parent, ast.keyword) and parent.arg not in IDLE:
            yield ast.Constant(not value)
    elif isinstance(value, int):
        # Dimensions: another one hardly ever gives the same shape.
        is_dim = isinstance(parent, ast.keyword) and parent.arg in {"dim", "dtype"}
        is_dim |= isinstance(parent, ast.Call) and value in (0, -1) and not _takes_number(parent)
        if not is_dim and not isinstance(parent, ast.Attribute):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2 if value else 1.0)
        yield ast.Constant(0.0)


def _takes_number(call: ast.Call) -> bool:
    named = ast.unparse(call.func).rpartition(".")[2]
    return named in {"clamp", "clamp_min", "clamp_max", "where", "masked_fill", "max", "min", "full"}


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    """A call left out, with other arguments, or another function's."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    is_function = not isinstance(node.func, ast.Attribute) or ast.unparse(node.func.value) in {
        *("torch", "F", "torch.nn.functional", "math"),
    }
    arguments = node.args if is_function else [node.func.value, *node.args]
    if called == "where" and len(arguments) == 3:
        first, *rest = (node.args if is_function else [node.args[0], node.func.value, node.args[1]])
        yield from rest
    if not arguments:
        return
    first = ast.unparse(arguments[0])
    if called in LEFT_OUT:
        yield arguments[0]
    if called == "clamp":
        given = [*(("min", "max")[i : i + 1] for i in range(len(arguments) - 1))]
        del given
        for index in range(1, len(arguments)):
            if len(arguments) + len(node.keywords) > 2:
                kept = list(node.args)
                kept[index - (0 if is_function else 1)] = ast.Constant(None)
                yield ast.Call(node.func, kept, node.keywords)
        if len(node.keywords) > 1:
            for keyword in node.keywords:
                yield ast.Call(node.func, node.args, [k for k in node.keywords if k is not keyword])
    for template in INSTEAD.get(called, ()):
        yield ast.parse(template.format(first), mode="eval").body
    if called == "range":
        *starts, end = node.args if len(node.args) < 3 else node.args[:2]
        rest = node.args[2:]
        less = ast.BinOp(end, ast.Sub(), ast.Constant(1))
        yield ast.Call(node.func, [*starts, less, *rest], [])
        start = starts[0] if starts else ast.Constant(0)
        more = ast.BinOp(start, ast.Add(), ast.Constant(1))
        yield ast.Call(node.func, [more, end, *rest], [])
    if called in {"argmax", "argmin"} and len(arguments) > 1:
        dim = ast.unparse(arguments[1])
        last = f"({first}.shape[{dim}] - 1 - {first}.flip({dim}).{called}({dim}))"
        yield ast.parse(last, mode="eval").body
    if called in {"max", "min", "minimum", "maximum"} and len(arguments) == 2:
        yield from arguments


class Checker(FunctionChecker):
    """Checks mutants one after the other, and computes what is right of a workload only once."""

    def __init__(self, definition: Definition, root: Path) -> None:
        super().__init__(definition, load(reference_program(definition)), "cpu", root=root)
        self._known: dict[str, Any] = {}

    def of(self, function: Any) -> Checker:
        self._function = function
        self._returned, self._returned_again = {}, {}
        return self

    def forget(self) -> None:
        self._known = {}

    def expected(self, workload: Workload) -> Any:
        key = workload.model_dump_json()
        if key not in self._known:
            self._known[key] = super().expected(workload)
        return self._known[key]

    def yardsticks(self, is_near: Any, *, own: bool) -> Iterator[Any]:
        assert self.workload is not None
        key = "yardsticks" + self.workload.model_dump_json()
        made = self._known.setdefault(key, [])
        yield from list(made)
        for number, outputs in enumerate(super().yardsticks(is_near, own=own)):
            if number >= len(made):
                made.append(outputs)
                yield outputs


@dataclass
class Hunt:
    """The mutants of one definition, and which of them workloads have shown."""

    checker: Checker
    alive: dict[Mutant, Any] = field(default_factory=dict)
    shown: list[Mutant] = field(default_factory=list)

    def __call__(self, workload: Workload) -> Any:
        self.checker.forget()
        outcome = self.checker.of(self.checker._reference)(workload)
        passed = getattr(outcome, "status", None) is EvaluationStatus.PASSED
        if not passed:
            print("the reference itself:", workload, str(outcome)[:300], file=sys.stderr)
            return outcome
        for mutant, function in list(self.alive.items()):
            if why := self._why_wrong(function, workload):
                mutant.shown_by = why
                self.shown.append(mutant)
                del self.alive[mutant]
        return outcome

    def _why_wrong(self, function: Any, workload: Workload) -> str:
        try:
            with limited(CHECK_SECONDS):
                outcome = self.checker.of(function)(workload)
        except Exception as error:  # noqa: BLE001  (a mutant may raise anything)
            return f"{type(error).__name__}: {error}"[:120]
        status = getattr(outcome, "status", None)
        return "" if status is EvaluationStatus.PASSED else str(status)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in what takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def hunt(definition: Definition, root: Path, arguments: argparse.Namespace) -> list[Mutant]:
    """All mutants of a definition, after a search with the reference as the candidate."""
    found = Hunt(Checker(definition, root))
    for mutant in mutants(definition.reference):
        try:
            function = load(reference_program(definition.model_copy(update={"reference": mutant.source})))
        except Exception:  # noqa: BLE001  (a mutant may raise anything)
            continue
        found.alive[mutant] = function
    search(
        definition,
        found,
        failed=lambda outcome: getattr(outcome, "status", None) is not EvaluationStatus.PASSED,
        closeness=lambda outcome: 0.0,
        affordable=lambda workload: found.checker.is_affordable(workload, arguments.max_bytes),
        listed=example_workloads(definition),
        examples=arguments.examples,
        small=3 * arguments.examples,
        seed=arguments.seed,
        max_bytes=arguments.max_bytes,
    )
    return [*found.shown, *found.alive]


Mutant.__hash__ = object.__hash__  # type: ignore[assignment]


def main() -> None:
    parser = argparse.ArgumentParser(description="Which changes of a reference go unnoticed.")
    parser.add_argument("paths", nargs="+", type=Path, help="YAML files or directories of them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=25)
    parser.add_argument("--max-bytes", type=options.size, default=8 << 20)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no definition after these")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th definition from the i-th")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    files = [f for p in arguments.paths for f in (sorted(p.rglob("*.yaml")) if p.is_dir() else [p])]
    shard, of = map(int, arguments.shard.split("/"))
    start = perf_counter()
    for file in files[shard::of]:
        if perf_counter() - start > arguments.seconds:
            break
        began = perf_counter()
        try:
            definition = find_definition(file).definition
            if why_not_generated(definition, None) or any(map(definition.is_sampled, definition.outputs)):
                continue
            tried = hunt(definition, file.parent, arguments)
        except Exception as error:
            print(f"{file}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        alive = [m for m in tried if not m.shown_by]
        print(f"{definition.name}: {len(tried)} mutants, {len(alive)} left, {perf_counter() - began:.1f} s", flush=True)
        for mutant in sorted(alive, key=lambda m: m.line):
            print(f"    {mutant.line}: {mutant.change}", flush=True)
        if arguments.results:
            with arguments.results.open("a") as out:
                facts = dict(file=str(file), n=len(tried), alive=[(m.line, m.change) for m in alive])
                out.write(json.dumps(facts) + "\n")
    print_machine("torch")


if __name__ == "__main__":
    main()
