"""Which changes of a reference, or of a kernel, its definition's workloads don't notice.

The source is changed in one place after the other, as people get it wrong: a boundary of a
comparison, a term or a factor left out, a clamp or a mask dropped, one branch taken always, a
constant off by one. Each such mutant is tried on the workloads that a kernel item would have. One
that none of them tells from the reference is the same function on all valid inputs, or differs by
no more than rounding; or it shows what the workloads lack.

    python benchmarks/mutation.py kernel_defs
    python benchmarks/mutation.py kernel_defs/rmsnorm.yaml --seed 3
    python benchmarks/mutation.py my_defs --kernels my_impls --results /tmp/mutants.jsonl

With --kernels, mutants are of the functions ``run`` in files of that directory, in a folder for
each definition. Prints the survivors of each source. With --results they are appended to a file.
"""

from __future__ import annotations

import argparse
import ast
import json
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from _common import print_machine

from pytest_fib.build import load, reference_program
from pytest_fib.data import Evaluation, EvaluationStatus, load_definition_file
from pytest_fib.engine import FunctionChecker
from pytest_fib.plugin import options
from pytest_fib.search import search
from pytest_fib.workloads import example_workloads, why_not_generated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_fib.data import Definition, LoadedDefinition, Outcome, Workload

#: Methods and functions of torch that a mutant leaves out: their first argument is the result.
LEFT_OUT = {
    *("abs", "ceil", "clamp", "clamp_max", "clamp_min", "cumsum", "exp", "expm1", "flip", "floor"),
    *("log", "log1p", "masked_fill", "masked_fill_", "nan_to_num", "neg", "relu", "roll", "round"),
    *("sigmoid", "sign", "softmax", "sqrt", "square", "tanh", "tril", "triu", "trunc"),
}
#: What stands in for a call in a mutant, as templates of its first argument.
INSTEAD = {
    "round": ("({0}).floor()", "({0} + 0.5).floor()", "({0}).trunc()"),
    "floor": ("({0}).trunc()", "({0}).round()"),
    "trunc": ("({0}).floor()",),
    "isnan": ("(({0}) > float('inf'))",),
    "isfinite": ("(~({0}).isnan())",),
    "isinf": ("(({0}) == float('inf'))",),
}
#: Arguments that change nothing that is compared, or that hardly ever give the same shapes.
IDLE = {"as_tuple", "dim", "dtype", "keepdim", "non_blocking", "sorted", "stable"}
#: Calls whose numbers are no dimensions.
OF_NUMBERS = {"clamp", "clamp_min", "clamp_max", "full", "masked_fill", "max", "min", "where"}
MODULES = {"F", "math", "torch", "torch.nn.functional"}
BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
#: Operations whose right side alone is a likely mistake as well.
EITHER = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)
#: Seconds of one check of a mutant: a loop may have no end.
CHECK_SECONDS = 20


@dataclass(eq=False)
class Mutant:
    """A changed source: what was changed in which line, and what a workload showed of it."""

    line: int
    change: str
    source: str
    shown_by: str = ""


def mutants(source: str) -> Iterator[Mutant]:
    """The mutants of a Python source, each different from it and from the others."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    for parent in ast.walk(tree):
        for name, child in ast.iter_fields(parent):
            if name in ("decorator_list", "args") and isinstance(parent, ast.FunctionDef):
                continue
            places = enumerate(child) if isinstance(child, list) else [(None, child)]
            for index, node in list(places):
                if not isinstance(node, (ast.expr, ast.stmt)):
                    continue
                for other in changes(parent, name, node):
                    _put(parent, name, index, other)
                    text = ast.unparse(ast.fix_missing_locations(tree))
                    _put(parent, name, index, node)
                    if text not in seen:
                        seen.add(text)
                        yield Mutant(node.lineno, _shown(node, other), text)


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def _shown(node: ast.AST, other: ast.AST) -> str:
    return f"{ast.unparse(node)}  =>  {ast.unparse(other)}"


def changes(parent: ast.AST, name: str, node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    """What may stand in place of a node, the child ``name`` of its parent."""
    match node:
        case ast.If() | ast.IfExp():
            fields = {each: getattr(node, each) for each in node._fields}
            for value in (True, False):
                yield type(node)(**fields | {"test": ast.Constant(value)})
        case ast.AugAssign() | ast.Assign(targets=[ast.Subscript()]) if name == "body":
            yield ast.copy_location(ast.Pass(), node)
        case ast.Constant(value=value):
            yield from map(ast.Constant, _other_numbers(parent, value))
        case ast.Call():
            yield from _other_calls(node)
        case ast.expr():
            yield from _other_operations(node)


def _other_operations(node: ast.expr) -> Iterator[ast.AST]:
    """A comparison with the other boundary, or one side of an operation."""
    match node:
        case ast.Compare(left=left, ops=[operation], comparators=right):
            if other := BOUNDARIES.get(type(operation)):
                yield ast.Compare(left, [other()], right)
        case ast.BoolOp(values=values):
            yield from values
        case ast.BinOp(left=left, op=operation, right=right):
            yield left
            if isinstance(operation, EITHER):
                yield right
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            yield operand


def _other_numbers(parent: ast.AST, value: object) -> Iterable[object]:
    """A flag turned over, a whole number one more or less, another number twice as large or 0."""
    if isinstance(parent, ast.keyword) and parent.arg in IDLE:
        return ()
    if isinstance(value, bool):
        return (not value,) if isinstance(parent, ast.keyword) else ()
    if isinstance(value, int):
        is_call = isinstance(parent, ast.Call)
        is_dim = is_call and value in (0, -1) and _called(parent) not in OF_NUMBERS
        return () if is_dim else (value + 1, value - 1)
    return (value * 2 if value else 1.0, 0.0) if isinstance(value, float) else ()


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    """A call left out, with fewer or other arguments, or one of another function."""
    name, of_method = _called(node), isinstance(node.func, ast.Attribute)
    of_method = of_method and ast.unparse(node.func.value) not in MODULES
    arguments = [node.func.value, *node.args] if of_method else node.args
    if not arguments or any(isinstance(each, ast.Starred) for each in arguments):
        return
    if name in LEFT_OUT:
        yield arguments[0]
    for template in INSTEAD.get(name, ()):
        yield ast.parse(template.format(ast.unparse(arguments[0])), mode="eval").body
    if name in LIMITED:
        yield from LIMITED[name](node)
    elif name == "where" and len(arguments) == 3:
        yield from arguments[::2] if of_method else arguments[1:]
    elif name in ("max", "min", "maximum", "minimum") and len(arguments) == 2:
        yield from arguments
    elif name in ("argmax", "argmin") and len(arguments) == 2:
        yield _last_of_equal(name, *arguments)


def _last_of_equal(name: str, x: ast.expr, dim: ast.expr) -> ast.AST:
    """The last of equal ones where ``argmax`` has the first."""
    tensor, of = ast.unparse(x), ast.unparse(dim)
    last = f"({tensor}.shape[{of}] - 1 - {tensor}.flip({of}).{name}({of}))"
    return ast.parse(last, mode="eval").body


def _half_clamps(node: ast.Call) -> Iterator[ast.AST]:
    """A clamp without one of its two limits."""
    if len(node.keywords) == 2:
        for keyword in node.keywords:
            yield ast.Call(node.func, node.args, [keyword])
    is_function = ast.unparse(node.func).partition(".")[0] in MODULES
    of, limits = node.args[:is_function], node.args[is_function:]
    if len(limits) == 2:
        least, most = limits
        yield ast.Call(node.func, [*of, ast.Constant(None), most], node.keywords)
        yield ast.Call(node.func, [*of, least, ast.Constant(None)], node.keywords)


def _other_ranges(node: ast.Call) -> Iterator[ast.AST]:
    """A range without its last, or its first, number."""
    start, end, *step = node.args if len(node.args) > 1 else [ast.Constant(0), *node.args]
    one = ast.Constant(1)
    yield ast.Call(node.func, [start, ast.BinOp(end, ast.Sub(), one), *step], [])
    yield ast.Call(node.func, [ast.BinOp(start, ast.Add(), one), end, *step], [])


#: Calls that have two limits.
LIMITED = {"clamp": _half_clamps, "range": _other_ranges}


class Checker(FunctionChecker):
    """Checks one function after the other, and computes what is right of a workload only once."""

    def __init__(self, definition: Definition, root: Path) -> None:
        super().__init__(definition, load(reference_program(definition)), "cpu", root=root)
        self._known: dict[tuple[str, bool], Any] = {}

    def of(self, function: Callable[..., Any] | None = None) -> Checker:
        """This, for a function; by default, the reference."""
        self._function = function or self._reference
        self._returned, self._returned_again = {}, {}
        return self

    def forget(self) -> None:
        """Begin with another workload."""
        self._known = {}

    def expected(self, workload: Workload) -> Any:
        """As of any checker, but computed once."""
        key = workload.uuid, True
        if key not in self._known:
            self._known[key] = super().expected(workload)
        return self._known[key]

    def yardsticks(self, is_near: Callable[[], bool], *, own: bool) -> Iterator[Any]:
        """As of any checker, but each made once."""
        assert self.workload is not None, "it is being evaluated"
        made = self._known.setdefault((self.workload.uuid, False), [])
        yield from list(made)
        for number, outputs in enumerate(super().yardsticks(is_near, own=own)):
            if number >= len(made):
                made.append(outputs)
                yield outputs


@dataclass
class Hunt:
    """The functions of mutants that no workload has shown yet, and the mutants that one has."""

    checker: Checker
    alive: dict[Mutant, Callable[..., Any]]
    shown: list[Mutant] = field(default_factory=list)

    def __call__(self, workload: Workload) -> Outcome:
        """Try all that are left on a workload; the outcome is that of the reference itself."""
        self.checker.forget()
        outcome = self.checker.of()(workload)
        for mutant, function in [*self.alive.items()] if passed(outcome) else ():
            if why := self._why_wrong(function, workload):
                mutant.shown_by = why
                self.shown.append(mutant)
                del self.alive[mutant]
        return outcome

    def _why_wrong(self, function: Callable[..., Any], workload: Workload) -> str:
        try:
            with limited(CHECK_SECONDS):
                outcome = self.checker.of(function)(workload)
        except Exception as error:  # noqa: BLE001  (a mutant may raise anything)
            return type(error).__name__
        return "" if passed(outcome) else getattr(outcome, "status", "fault")


def passed(outcome: Outcome) -> bool:
    return isinstance(outcome, Evaluation) and outcome.status is EvaluationStatus.PASSED


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


def function_of(source: str, place: str) -> Callable[..., Any] | None:
    """The function ``run`` of a source; None where it can't even be read."""
    namespace: dict[str, Any] = {"__name__": place}
    try:
        exec(compile(source, place, "exec"), namespace)
    except Exception:  # noqa: BLE001  (a mutant may raise anything)
        return None
    return namespace.get("run")


def hunt(definition: Definition, root: Path, source: str, options: argparse.Namespace) -> Hunt:
    """What became of all mutants of a source on the workloads of a search."""
    functions = ((each, function_of(each.source, definition.name)) for each in mutants(source))
    found = Hunt(Checker(definition, root), {each: run for each, run in functions if run})
    search(
        definition,
        found,
        failed=lambda outcome: not passed(outcome),
        closeness=lambda outcome: 0.0,
        affordable=lambda workload: found.checker.is_affordable(workload, options.max_bytes),
        listed=example_workloads(definition),
        examples=options.examples,
        small=3 * options.examples,
        seed=options.seed,
        max_bytes=options.max_bytes,
    )
    return found


def sources(files: list[Path], kernels: Path | None) -> Iterator[tuple[LoadedDefinition, str, str]]:
    """The definitions with the names and texts of what is to be changed."""
    loaded = (each for file in files for each in load_definition_file(file))
    for each in loaded:
        definition = each.definition
        is_random = any(map(definition.is_sampled, definition.outputs))
        if why_not_generated(definition) or is_random:
            continue
        if kernels is None:
            yield each, "reference", definition.reference
        for file in sorted(kernels.glob(f"{definition.name}/*.py")) if kernels else ():
            yield each, file.stem, file.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Which changes of a kernel go unnoticed.")
    parser.add_argument("paths", nargs="+", type=Path, help="YAML files or directories of them")
    parser.add_argument("--kernels", type=Path, help="a directory of kernels, in Python")
    parser.add_argument("--only", default="*", help="glob of kernels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=25)
    parser.add_argument("--max-bytes", type=options.size, default=8 << 20)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no source after these")
    parser.add_argument("--results", type=Path, help="a file of survivors to add to")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th file from the i-th")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    files = [f for p in arguments.paths for f in (sorted(p.rglob("*.yaml")) if p.is_dir() else [p])]
    shard, of = map(int, arguments.shard.split("/"))
    start, tried, left = perf_counter(), 0, 0
    for loaded, name, source in sources(files[shard::of], arguments.kernels):
        if not fnmatchcase(name, arguments.only):
            continue
        if perf_counter() - start > arguments.seconds:
            break
        found = hunt(loaded.definition, loaded.path.parent, source, arguments)
        alive = sorted(found.alive, key=lambda mutant: mutant.line)
        count = len(alive) + len(found.shown)
        tried, left = tried + count, left + len(alive)
        print(f"{loaded.definition.name}[{name}]: {count} mutants, {len(alive)} left", flush=True)
        for mutant in alive:
            print(f"    {mutant.line}: {mutant.change}", flush=True)
        if arguments.results:
            facts = {"file": str(loaded.path), "of": name, "mutants": count}
            facts |= {"left": [(mutant.line, mutant.change) for mutant in alive]}
            with arguments.results.open("a", encoding="utf-8") as results:
                results.write(json.dumps(facts) + "\n")
    print(f"\n{tried} mutants, {left} left")
    print_machine("torch")


if __name__ == "__main__":
    sys.exit(main())
