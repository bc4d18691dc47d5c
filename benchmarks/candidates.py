"""Many implementations of one definition, as somebody or something that searches makes them.

Writes right and wrong ones of ``rmsnorm_d4096``, each a file, and runs pytest on all of them: the
search for workloads that show a mistake, and four timed workloads of each that has none. On CUDA
they are in Triton, on the CPU in PyTorch.

    python benchmarks/candidates.py                         # 150 right, 50 wrong, -n 8
    python benchmarks/candidates.py --right 15 --wrong 5 -n 2
    python benchmarks/candidates.py --no-bench

The table has seconds for each implementation, how many of the right ones passed and of the wrong
ones failed, and how often the reference was loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from _common import ROOT, print_machine, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFINITION = "rmsnorm_d4096"
TRITON = """\
import torch
import triton
import triton.language as tl

from pytest_fib import implements


@triton.jit
def rmsnorm(x, weight, out, batch, eps, N: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * N
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(FIRST, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(x + columns, mask=columns < {limit}, other=0.0).to(tl.float32)
        total += {term}
    scale = {scale}
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        values = tl.load(x + columns, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + row * N + columns, ({result}).to(tl.float16), mask=mask)


@implements("rmsnorm_d4096")
def run(x, weight, eps):
    batch = x.shape[0]
    out = torch.empty_like(x)
    rmsnorm[({rows},)](x, weight, out, batch, eps, N=4096, BLOCK={block}, FIRST={first},
                       num_warps={warps})
    return out
"""
TORCH = """\
import torch

from pytest_fib import implements


@implements("rmsnorm_d4096")
def run(x, weight, eps):
    batch, N = x.shape
    out = torch.empty_like(x)
    total = torch.zeros(batch, 1, dtype=torch.float32)
    for columns in range({first}, N, {block}):
        values = x[:, columns : min(columns + {block}, {limit})].float()
        total += ({term}).sum(1, keepdim=True)
    scale = {scale}
    for start in range(0, batch, {warps} * 64):
        rows = slice(start, start + {warps} * 64)
        values, gain = x[rows].float(), weight.float()
        scales = scale[rows]
        out[rows] = ({result}).half()
    {rows}
    return out
"""
#: What is filled in where nothing is wrong; by the language.
RIGHT = {
    "triton": {
        "limit": "N",
        "term": "values * values",
        "scale": "tl.rsqrt(tl.sum(total) / N + eps)",
        "result": "values * scale * gain",
        "rows": "batch",
        "first": "0",
    },
    "torch": {
        "limit": "N",
        "term": "values * values",
        "scale": "torch.rsqrt(total / N + eps)",
        "result": "values * scales * gain",
        "rows": "",
        "first": "0",
    },
}
#: What is filled in otherwise, each a mistake.
WRONG = {
    "triton": (
        {"limit": "N - 1"},
        {"term": "tl.abs(values)"},
        {"scale": "tl.rsqrt(tl.sum(total) / N) + eps"},
        {"scale": "tl.rsqrt(tl.sum(total) / (N - 64) + eps)"},
        {"scale": "tl.rsqrt(tl.sum(total) / N + 1e-3)"},
        {"result": "values * scale"},
        {"result": "values * scale * (1 + gain)"},
        {"result": "tl.minimum(values * scale * gain, 4.0)"},
        {"rows": "max(batch - 1, 1)"},
        {"rows": "min(batch, 1024)"},
        {"first": "BLOCK"},
        {"term": "values"},
    ),
    "torch": (
        {"limit": "N - 1"},
        {"term": "values.abs()"},
        {"scale": "torch.rsqrt(total / N) + eps"},
        {"scale": "torch.rsqrt(total / (N - 64) + eps)"},
        {"scale": "torch.rsqrt(total / N + 1e-3)"},
        {"result": "values * scales"},
        {"result": "values * scales * (1 + gain)"},
        {"result": "(values * scales * gain).clamp(max=4.0)"},
        {"rows": "out[1:][-1:] = 0"},
        {"rows": "out[1024:] = 0"},
        {"first": "1"},
        {"term": "values"},
    ),
}
BLOCKS = (512, 1024, 2048, 4096)
WARPS = (1, 2, 4, 8, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--right", type=int, default=150)
    parser.add_argument("--wrong", type=int, default=50)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("-n", type=int, default=8, help="workers")
    parser.add_argument("--examples", type=int, default=25)
    parser.add_argument("--no-bench", action="store_true", help="without timing")
    given = parser.parse_args()
    language = "triton" if given.device == "cuda" else "torch"
    with tempfile.TemporaryDirectory(prefix="candidates-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "kernel_defs/rmsnorm", folder / "kernel_defs")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        write(folder / "kernel_impls", given.right, given.wrong, language)
        options = [f"--fib-examples={given.examples}", f"--fib-device={given.device}"]
        options += [] if given.no_bench else ["--fib-bench"]
        options += ["-n", str(given.n)] if given.n > 1 else []
        show(folder, options, given)


def write(folder: Path, right: int, wrong: int, language: str) -> None:
    """Write so many implementations; the same source comes with a comment that differs."""
    folder.mkdir()
    template = {"triton": TRITON, "torch": TORCH}[language]
    sizes = list(product(BLOCKS, WARPS))
    for name, count, changes in (("right", right, ({},)), ("wrong", wrong, WRONG[language])):
        for number in range(count):
            change: dict[str, str] = changes[number % len(changes)]
            block, warps = sizes[number // len(changes) % len(sizes)]
            text = template.format(**RIGHT[language] | change, block=block, warps=warps)
            path = folder / f"{name}_{number}.py"
            path.write_text(f"# the {number}th\n{text}", encoding="utf-8")


def show(folder: Path, options: Sequence[str], given: argparse.Namespace) -> None:
    """Run pytest, and print what became of it."""
    traces = folder / "traces.jsonl"
    command = [sys.executable, "-m", "pytest", "-q", "--fib-definition", DEFINITION, *options]
    command.append(f"--fib-traces={traces}")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    start = perf_counter()
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    wall = perf_counter() - start
    statuses, timed = read(traces)
    print(ended.stdout.rpartition("\n")[0].rpartition("\n")[2] or ended.stdout[-2000:])
    count = given.right + given.wrong
    wrongly = [name for name in sorted(statuses) if is_wrongly_judged(name, statuses[name])]
    rows = [
        ("seconds in all", f"{wall:.1f}"),
        ("seconds for each implementation", f"{wall / count:.2f}"),
        ("implementations with a verdict", f"{len(statuses)} of {count}"),
        ("timed workloads", str(timed)),
        ("wrong verdicts", ", ".join(wrongly) or "none"),
    ]
    print_table((f"{given.right} right, {given.wrong} wrong, -n {given.n}", given.device), rows)
    print_machine("torch", "triton", "pytest-xdist")


def is_wrongly_judged(name: str, statuses: set[str]) -> bool:
    """Whether a right implementation failed, or a wrong one passed everywhere."""
    return (statuses == {"PASSED"}) != name.startswith("right")


def read(traces: Path) -> tuple[dict[str, set[str]], int]:
    """The statuses of each implementation, by its file; and how many workloads were timed."""
    statuses: dict[str, set[str]] = defaultdict(set)
    timed = 0
    for record in records(traces):
        evaluation = record["evaluation"]
        statuses[record["solution"]].add(evaluation["status"])
        timed += evaluation["performance"] is not None
    return statuses, timed


def records(traces: Path) -> Iterator[dict[str, dict[str, str]]]:
    """What was recorded."""
    if traces.is_file():
        yield from map(json.loads, traces.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
