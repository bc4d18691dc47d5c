"""What a call costs on the host, by the binding it goes through: rmsnorm_d4096 of one row.

Calls follow each other and the device works on them meanwhile; after every 200 of them it is waited
for, off the clock. Each row is the median of 20 such blocks. The kernel takes about 2 µs, so it is
the host that limits. The shipped implementations are called as items call them; ``torch extension``
is the CUDA one behind ``TORCH_EXTENSION_NAME``, and ``torch.add`` a call of torch's own to compare.

TileLang and CuTe DSL are built here, or come from a folder of ``python -m pytest_fib build``.
Without a CUDA device, and on one besides, functions that do nothing are called through each
binding: what is left is the call.

    python benchmarks/call_overhead.py [--prebuilt builds]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from _common import ROOT, print_machine, print_table

from pytest_fib.build import (
    BuildError,
    Compilation,
    Prebuilt,
    Program,
    build,
    gpus,
    load,
    program_of,
)
from pytest_fib.data import load_definition_file
from pytest_fib.discovery import find_implementations
from pytest_fib.sandbox import bind

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS, BLOCKS = 200, 20
FAMILY = "rmsnorm/rmsnorm_d4096"
#: In place of all that follows the kernel in the shipped source.
EXTENSION = """
void run(torch::Tensor x, torch::Tensor weight, double eps, torch::Tensor out) {
  auto at = [](torch::Tensor& tensor) { return static_cast<Vector*>(tensor.data_ptr()); };
  rmsnorm<<<x.size(0), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      at(x), at(weight), static_cast<float>(eps), at(out));
}
}  // namespace
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("run", &run); }
"""
#: What takes the same arguments and does nothing, by binding.
NOTHING = {
    "tvm-ffi": """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
using Tensor = tvm::ffi::TensorView;
void run(Tensor x, Tensor weight, double eps, Tensor out) {}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
""",
    "torch": """
#include <torch/extension.h>
void run(torch::Tensor x, torch::Tensor weight, double eps, torch::Tensor out) {}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("run", &run); }
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a call costs, by binding.")
    parser.add_argument("--prebuilt", type=Path, help="a folder of what was built elsewhere")
    folder = parser.parse_args().prebuilt
    prebuilt = None if folder is None else Prebuilt(folder)
    if prebuilt is not None:
        prebuilt.expose_runtime()
    on_device = gpus.count() > 0
    device = "cuda" if on_device else "cpu"
    given = {**(programs() if on_device else {}), **that_do_nothing()}
    rows = [[name, timed(program, prebuilt, device)] for name, program in given.items()]
    rows.append(["a Python function that does nothing", measured(call_of(nothing, device=device))])
    x = torch.ones(1, 4096, dtype=torch.float16, device=device)
    rows.append(["torch.add", measured(lambda: torch.add(x, x, out=x))])
    print_table(["rmsnorm_d4096, one row, through", "µs for a call"], rows)
    print_machine("torch", "triton", "apache-tvm-ffi")


def nothing(*arguments: object) -> None:
    """A call through no binding at all."""


def that_do_nothing() -> dict[str, Program]:
    return {
        f"{binding}: C++ that does nothing": Program(
            binding, "cpp", "nothing.cpp", "run", "destination", ("out",),
            (("nothing.cpp", text),), compilation=Compilation("cpu", binding),
        )
        for binding, text in NOTHING.items()
    }  # fmt: skip


def timed(program: Program, prebuilt: Prebuilt | None, device: str) -> str:
    """Microseconds for a call, or why it can't be built."""
    with tempfile.TemporaryDirectory() as place:
        try:
            function = loaded(program, Path(place), prebuilt)
        except BuildError as error:
            return str(error).splitlines()[0]
        return measured(call_of(function, program.calling, device))


def programs() -> dict[str, Program]:
    """The shipped implementations, and the CUDA one as a torch extension."""
    definition = load_definition_file(ROOT / f"kernel_defs/{FAMILY}.yaml")[0].definition
    found = {
        each.name: program_of(
            each.solution(definition.name), definition, each.directory, gpus.first()
        )
        for each in find_implementations([ROOT / "kernel_impls" / FAMILY])
    }
    return {**found, "torch extension": as_extension(found["cuda_row"])}


def as_extension(program: Program) -> Program:
    assert program.compilation is not None
    ((path, source),) = program.sources
    kernel = source[: source.index("Vector* rows(")].replace("namespace ffi = tvm::ffi;", "")
    lines = [line for line in kernel.splitlines() if "#include <tvm" not in line]
    headers = ["#include <torch/extension.h>", "#include <c10/cuda/CUDAStream.h>"]
    text = "\n".join((*headers, *lines, EXTENSION))
    compilation = replace(program.compilation, binding="torch")
    return replace(program, sources=((path, text),), directory=None, compilation=compilation)


def loaded(program: Program, folder: Path, prebuilt: Prebuilt | None) -> Callable[..., object]:
    """The function of a program, built first where its language wants that. Raises BuildError."""
    if program.compilation is None:
        return load(program)
    artifact = None if prebuilt is None else prebuilt.find(program)
    if artifact is None:
        return load(program, folder / build(program, folder).file)
    (folder / artifact.built.file).write_bytes(artifact.content)
    return load(program, folder / artifact.built.file)


def call_of(
    function: Callable[..., object], calling: str = "destination", device: str = "cuda"
) -> Callable[[], object]:
    x = torch.randn(1, 4096, dtype=torch.float16, device=device)
    return bind(function, calling, (x, x[0].clone(), 1e-6), (torch.empty_like(x),))


def measured(call: Callable[[], object]) -> str:
    return f"{1e6 * median(seconds(call) for _ in range(BLOCKS)):.2f}"


def seconds(call: Callable[[], object]) -> float:
    """Of a call, when many follow each other."""
    for _ in range(10):
        call()
    wait()
    start = perf_counter()
    for _ in range(CALLS):
        call()
    passed = perf_counter() - start
    wait()
    return passed / CALLS


def wait() -> None:
    """Until the device, where there is one, has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
