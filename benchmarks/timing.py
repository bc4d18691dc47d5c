"""Whether times can be trusted: the same kernel twice, in fresh processes, beside other methods.

- *A/A*: one kernel as the reference and as the implementation; the p95 of how far the speed-up is
  from 1, and how often it is called FASTER or SLOWER. Targets: 1 %, 5 %.
- *Fresh processes*: the same kernel in 12 of them, (max - min) / median. Targets: 1 % from 20 µs
  up, 2 % below.
- *Injected*: a kernel with 2 % more work is called SLOWER. Target: 95 %.
- *Honest*: how many evaluations end without times, beside whatever else runs on the machine; of
  kernels that do as much as the reference, four times that, and a quarter; on the CPU, short ones
  too. Target: none of 1,000.
- *Methods*: CUPTI's kernel durations, ncu's gpu__time_duration, do_bench, do_bench_cudagraph,
  events with a flush. Target: within 3 % or 0.3 µs of the first two.
- *Copy*: the share of the measured ceiling that a copy of 4 times the L2 cache reaches. Target:
  85 to 100 %.
- *Cost*: of the evaluations above. Targets: 60 ms of the device, 80 ms in all.

    python benchmarks/timing.py [--device cpu] [--pairs 200] [--only aa] [--precision quick]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from _common import print_machine, print_table

from pytest_fib.data import (
    BuildSpec,
    Definition,
    EvaluationRequest,
    Solution,
    SourceFile,
    SupportedLanguages,
)
from pytest_fib.engine import Judge
from pytest_fib.workloads import make_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_fib.data import Evaluation, Performance

FRESH = 12
PAIRS_OF_A_JUDGE = 25

RMSNORM = """\
import torch, triton
import triton.language as tl

MORE = {more}

@triton.jit
def kernel(x, weight, out, rows, N: tl.constexpr):
    row = (tl.program_id(0) % rows).to(tl.int64)
    columns = tl.arange(0, N)
    value = tl.load(x + row * N + columns).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / N + 1e-6)
    weights = tl.load(weight + columns).to(tl.float32)
    tl.store(out + row * N + columns, (value * scale * weights).to(tl.bfloat16))

def run(x, weight):
    out = torch.empty_like(x)
    rows = x.shape[0]
    kernel[(rows + int(rows * MORE),)](x, weight, out, rows, 4096, num_warps=8)
    return out
"""
RMSNORM_CPU = """\
import torch

MORE = {more}

def run(x, weight):
    wide = x.float()
    out = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight.float()
    extra = int(x.shape[0] * MORE)
    wide[:extra] * torch.rsqrt(wide[:extra].square().mean(-1, keepdim=True) + 1e-6)
    return out.to(x.dtype)
"""
SCALE_CPU = """\
MORE = {more}

def run(x):
    out = x * 2
    for _ in range(int(MORE)):
        x * 2
    return out
"""
GEMM = "import torch\n\ndef run(a, b):\n    return a @ b.T\n"
COPY = "import torch\n\ndef run(x):\n    return x.clone()\n"


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel at one size. ``text`` takes how much more work it does, as a share."""

    name: str
    text: str
    inputs: dict[str, list[str]]
    axes: dict[str, int]
    language: str = "triton"

    def definition(self, more: float = 0.0) -> Definition:
        """Its definition, with the kernel itself as the reference."""
        first = next(iter(self.inputs.values()))
        shape = [first[0], self.inputs["b"][0]] if "b" in self.inputs else first
        axes = {name: {"type": "var"} for names in self.inputs.values() for name in names}
        specs = {n: {"shape": s, "dtype": "bfloat16"} for n, s in self.inputs.items()}
        return Definition.model_validate(
            {
                "name": self.name,
                "op_type": "benchmark",
                "axes": axes,
                "inputs": specs,
                "outputs": {"out": {"shape": shape, "dtype": "bfloat16"}},
                "reference": self.source(more),
            }
        )

    def source(self, more: float = 0.0) -> str:
        """The module's text."""
        return self.text.replace("{more}", str(more))

    def evaluated(
        self,
        judge: Judge,
        seed: int,
        more: float = 0.0,
        reference_more: float = 0.0,
        precision: str = "default",
    ) -> Evaluation:
        """Itself as the implementation beside itself as the reference."""
        spec = BuildSpec(
            language=SupportedLanguages(self.language),
            target_hardware=["cpu", "cuda"],
            entry_point="module.py::run",
            calling="value",
        )
        source = SourceFile(path="module.py", content=self.source(more))
        solution = Solution(
            name="same", definition=self.name, author="benchmark", spec=spec, sources=[source]
        )
        definition = self.definition(reference_more)
        workload = make_workload(definition, self.axes, seed)
        return judge.evaluate(
            EvaluationRequest(
                definition=definition,
                solution=solution,
                workload=workload,
                timing=True,
                precision=precision,
            )
        )

    def timed(self, judge: Judge, seed: int = 0, more: float = 0.0) -> Performance:
        """The times of that; ends the program where there are none."""
        evaluation = self.evaluated(judge, seed, more)
        if evaluation.performance is None:
            sys.exit(f"{self.name}: {evaluation.status.value}: {evaluation.log}")
        return evaluation.performance

    def tensors(self) -> list[torch.Tensor]:
        """Inputs of its own, in the order of its arguments."""
        shapes = ([self.axes[axis] for axis in axes] for axes in self.inputs.values())
        return [torch.randn(shape, device="cuda").bfloat16() for shape in shapes]

    def function(self) -> Any:
        """The function, in this process. Triton reads its source from a file."""
        path = Path(f"/tmp/pytest_fib_benchmark_{self.name}.py")
        path.write_text(self.source(), encoding="utf-8")
        scope: dict[str, Any] = {}
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
        return scope["run"]


def rmsnorm(batch: int, device: str) -> Kernel:
    """RMSNorm of rows of 4096."""
    inputs = {"x": ["batch", "hidden"], "weight": ["hidden"]}
    axes = {"batch": batch, "hidden": 4096}
    if device == "cpu":
        return Kernel(f"rmsnorm_{batch}", RMSNORM_CPU, inputs, axes, "python")
    return Kernel(f"rmsnorm_{batch}", RMSNORM, inputs, axes)


def scale(n: int) -> Kernel:
    """Twice a vector, on the CPU."""
    return Kernel(f"scale_{n}", SCALE_CPU, {"x": ["n"]}, {"n": n}, "python")


def gemm(size: int) -> Kernel:
    """A square product."""
    inputs = {"a": ["m", "k"], "b": ["n", "k"]}
    return Kernel(f"gemm_{size}", GEMM, inputs, dict.fromkeys("mkn", size), "python")


def kernels(device: str) -> list[Kernel]:
    """What is timed."""
    if device == "cpu":
        return [*(rmsnorm(batch, device) for batch in (1, 32, 256)), gemm(256)]
    return [*(rmsnorm(batch, device) for batch in (1, 32, 1024, 16384)), gemm(2048)]


def main() -> None:
    sections: dict[str, Callable[[str, int], None]] = {
        "aa": same_twice,
        "fresh": fresh,
        "injected": injected,
        "honest": honest,
        "methods": methods,
        "copy": copy,
    }
    parser = argparse.ArgumentParser(description="Whether times can be trusted.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--only", choices=sections, action="append", help="one of the figures")
    parser.add_argument("--precision", default="default", help="of honest kernels")
    parser.add_argument("--one", action="store_true", help="print the latencies once, as JSON")
    arguments = parser.parse_args()
    if arguments.one:
        with Judge(arguments.device) as judge:
            print(json.dumps([kernel.timed(judge).latency_ms for kernel in kernels(judge.device)]))
        return
    sections["honest"] = partial(honest, precision=arguments.precision)
    for name, section in sections.items():
        if name in (arguments.only or sections):
            section(arguments.device, arguments.pairs)
            print()
    print_machine("torch", "triton")


def pairs(kernel: Kernel, device: str, number: int, more: float = 0.0) -> Iterator[Any]:
    """That many evaluations, in processes that are new every so often, with seconds of each."""
    for start in range(0, number, PAIRS_OF_A_JUDGE):
        with Judge(device) as judge:
            kernel.timed(judge, more=more)  # starts processes, builds
            for seed in range(start, min(start + PAIRS_OF_A_JUDGE, number)):
                begin = perf_counter()
                performance = kernel.timed(judge, seed, more)
                yield performance, perf_counter() - begin


def same_twice(device: str, number: int) -> None:
    """A/A, and what it costs."""
    rows, costs = [], []
    for kernel in kernels(device):
        found = list(pairs(kernel, device, number))
        ratios = np.array([p.speedup_factor for p, _ in found])
        latencies = np.array([p.latency_ms for p, _ in found])
        away = np.abs(ratios - 1)
        called = [facts(p)["comparison"] for p, _ in found]
        rows.append(
            (
                kernel.name,
                micro(float(np.median(latencies))),
                share(float(np.quantile(away, 0.95))),
                share(float(away.max())),
                share(sum(c in ("FASTER", "SLOWER") for c in called) / number),
                share(sum(c == "SAME" for c in called) / number),
                share(sum(facts(p)["noisy"] for p, _ in found) / number),
                share(float(np.quantile(np.abs(latencies / np.median(latencies) - 1), 0.95))),
            )
        )
        device_ms = [facts(p)["device_time_ms"] for p, _ in found]
        walls = [seconds for _, seconds in found]
        costs.append((kernel.name, f"{median(device_ms):.1f} ms", f"{median(walls) * 1e3:.0f} ms"))
    titles = ("latency", "p95 of ratio", "most", "called", "SAME", "noisy", "p95 of latency")
    print_table((f"A/A, {number} pairs, {device.upper()}", *titles), rows)
    print()
    print_table(("cost of one", "device time", "evaluation"), costs)


def fresh(device: str, number: int) -> None:
    """The same kernels in processes of their own."""
    command = [sys.executable, __file__, "--one", "--device", device]
    outputs = [subprocess.run(command, check=True, capture_output=True) for _ in range(FRESH)]
    runs = np.array([json.loads(output.stdout) for output in outputs])
    rows = []
    for kernel, times in zip(kernels(device), runs.T, strict=True):
        middle = float(np.median(times))
        rows.append((kernel.name, micro(middle), share(float(np.ptp(times)) / middle)))
    print_table((f"{FRESH} fresh processes", "latency", "(max - min) / median"), rows)


def injected(device: str, number: int) -> None:
    """What 2 % more work is called."""
    rows = []
    for kernel in (rmsnorm(256 if device == "cpu" else rows, device) for rows in (4096, 16384)):
        found = [p for p, _ in pairs(kernel, device, number // 2, more=0.02)]
        slower = sum(facts(p)["comparison"] == "SLOWER" for p in found) / len(found)
        ratio = median(1 / p.speedup_factor for p in found)
        rows.append((kernel.name, share(slower), share(ratio - 1)))
    print_table((f"2 % more work, {number // 2} times", "called SLOWER", "found slower by"), rows)


def honest(device: str, number: int, precision: str = "default") -> None:
    """Evaluations that end without times, and why."""
    rows, reasons = [], Counter[str]()
    works = ((0.0, 0.0), (3.0, 0.0), (0.0, 3.0))
    short = [scale(64), scale(4096)] if device == "cpu" else []
    for kernel in [*short, *kernels(device)]:
        if kernel.text == GEMM:
            continue  # does as much in any case
        evaluations = []
        for start in range(0, number, PAIRS_OF_A_JUDGE):
            with Judge(device) as judge:
                evaluations += [
                    kernel.evaluated(judge, seed, *works[seed % len(works)], precision)
                    for seed in range(start, min(start + PAIRS_OF_A_JUDGE, number))
                ]
        times = [e.performance for e in evaluations if e.performance is not None]
        reasons.update(e.log.partition("\n")[0] for e in evaluations if e.performance is None)
        unaccounted = np.quantile([facts(each)["unaccounted"] for each in times], 0.95)
        refused = str(number - len(times))
        rows.append((kernel.name, str(number), refused, share(float(unaccounted))))
    print_table(("honest kernels", "evaluations", "refused", "p95 of unaccounted"), rows)
    for reason, count in reasons.items():
        print(f"{count} times: {reason}")


def methods(device: str, number: int) -> None:
    """Ours beside others'."""
    if device == "cpu":
        return
    from pytest_fib.timing import cupti

    profiled = ncu()
    rows = []
    with Judge(device) as judge:
        for kernel in kernels(device):
            ours = kernel.timed(judge)
            rows.append(
                (
                    kernel.name,
                    micro(ours.latency_ms),
                    micro(in_blocks(kernel, ours)) if cupti.available() else "-",
                    micro(cupti_durations(kernel)) if cupti.available() else "-",
                    micro(profiled[kernel.name]) if kernel.name in profiled else "-",
                    *(micro(t) for t in by_triton(kernel)),
                    micro(by_events(kernel)),
                    micro(cupti_span(kernel)) if cupti.available() else "-",
                )
            )
    others = ("do_bench", "do_bench_cudagraph", "events + flush", "CUPTI span")
    titles = ("ours", "CUPTI in our blocks", "CUPTI, one call", "ncu")
    print_table(("method", *titles, *others), rows)


def in_blocks(kernel: Kernel, ours: Performance) -> float:
    """Milliseconds: the mean duration of the kernels in blocks like ours, by CUPTI's records."""
    from pytest_fib.timing import Graph, cupti, flush

    run, calls = kernel.function(), facts(ours)["calls_per_block"]
    groups = [
        [partial(run, *kernel.tensors()) for _ in range(calls)]
        for _ in range(facts(ours)["placements"])
    ]
    run(*kernel.tensors())
    graph = Graph(groups)
    with cupti.recording() as flushes:
        flush()
    with cupti.recording() as records:
        graph.run()
    of_flushes = {record.name for record in flushes}
    durations = [r.end - r.start for r in records if r.name not in of_flushes]
    return sum(durations) / (calls * len(groups)) / 1e6


def cupti_durations(kernel: Kernel) -> float:
    """Milliseconds: the median duration of the kernel by CUPTI's records, with a cold L2 cache."""
    return median(sum(r.end - r.start for r in records) for records in recorded(kernel)) / 1e6


def cupti_span(kernel: Kernel) -> float:
    """Milliseconds from the start of a call's first kernel to the end of its last."""
    spans = (max(r.end for r in rs) - min(r.start for r in rs) for rs in recorded(kernel))
    return median(spans) / 1e6


@cache
def recorded(kernel: Kernel, repeat: int = 20) -> list[list[Any]]:
    """What CUPTI recorded of calls on tensors of their own, each after a flush."""
    from pytest_fib.timing import cupti, flush

    run, found = kernel.function(), []
    tensors = [kernel.tensors() for _ in range(min(repeat, 8))]
    run(*tensors[0])
    for number in range(repeat):
        flush()
        with cupti.recording() as records:
            run(*tensors[number % len(tensors)])
        found.append(records)
    return found


def by_triton(kernel: Kernel) -> tuple[float, float]:
    """Milliseconds by Triton's two functions."""
    import triton.testing

    run, tensors = kernel.function(), kernel.tensors()
    graph = torch.cuda.Stream()
    with torch.cuda.stream(graph):
        captured = triton.testing.do_bench_cudagraph(lambda: run(*tensors), return_mode="median")
    return triton.testing.do_bench(lambda: run(*tensors), return_mode="median"), captured


def by_events(kernel: Kernel, repeat: int = 100) -> float:
    """Milliseconds between two events around a call that follows a flush."""
    from pytest_fib.timing import flush

    run, tensors = kernel.function(), kernel.tensors()
    pairs = []
    for _ in range(repeat):
        flush()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run(*tensors)
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return median(start.elapsed_time(end) for start, end in pairs)


PROFILED = """\
import sys
sys.path.insert(0, {folder!r})
import timing
made = [(kernel.function(), kernel.tensors()) for kernel in timing.kernels("cuda")]
for run, tensors in made:
    for _ in range(3):
        run(*tensors)
timing.torch.cuda.synchronize()
timing.torch.cuda.nvtx.range_push("measured")
for run, tensors in made:
    for _ in range({repeat}):
        run(*tensors)
timing.torch.cuda.synchronize()
"""


def ncu(repeat: int = 5) -> dict[str, float]:
    """Milliseconds by Nsight Compute, which flushes caches before each kernel; by kernel name."""
    if shutil.which("ncu") is None:
        return {}
    script = Path("/tmp/pytest_fib_profiled.py")
    text = PROFILED.format(folder=str(Path(__file__).parent), repeat=repeat)
    script.write_text(text, encoding="utf-8")
    options = ["--nvtx", "--nvtx-include", "measured/", "--clock-control", "none"]
    options += ["--metrics", "gpu__time_duration.sum", "--csv"]
    command = ["ncu", *options, sys.executable, str(script)]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rows = [line.split('","') for line in output.splitlines() if "gpu__time_duration" in line]
    factors = {"ns": 1e-6, "us": 1e-3, "ms": 1.0}
    times = [float(row[-1].strip('"').replace(",", "")) * factors[row[-2]] for row in rows]
    each = [times[i : i + repeat] for i in range(0, len(times), repeat)]
    names = [kernel.name for kernel in kernels("cuda")]
    return dict(zip(names, map(median, each), strict=True)) if each else {}


def copy(device: str, number: int) -> None:
    """A copy of four times the L2 cache, or 256 MiB."""
    from pytest_fib.timing import DeviceCeilings

    size = 256 << 20
    if device != "cpu":
        size = 4 * torch.cuda.get_device_properties(0).L2_cache_size
    kernel = Kernel("copy", COPY, {"x": ["n"]}, {"n": size // 2}, "python")

    ceiling = DeviceCeilings(device).known().bytes_per_second
    with Judge(device) as judge:
        rates = [2 * size / kernel.timed(judge, seed).latency_ms * 1e3 for seed in range(5)]
    shares = [share(rate / ceiling) for rate in (min(rates), max(rates))]
    rows = [(f"{size >> 20} MiB", f"{ceiling / 1e9:.0f} GB/s", *shares)]
    print_table(("copy", "ceiling", "least share of it", "most"), rows)


def facts(performance: Performance) -> dict[str, Any]:
    """What the schema does not have."""
    return performance.model_extra or {}


def micro(milliseconds: float | None) -> str:
    """Microseconds, from milliseconds."""
    return "-" if milliseconds is None else f"{milliseconds * 1e3:.2f} µs"


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.2f} %"


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()
