"""TileLang: a ``prim_func`` becomes CUDA source, which nvcc compiles to a library of TVM FFI.

So it is loaded without TileLang, and nvcc says what its kernels take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_fib.build import _native
from pytest_fib.build._errors import BuildError
from pytest_fib.build._toolchain import needed_version
from pytest_fib.build._traced import built_as_python, entry_of, load, refuse_returning, traced

if TYPE_CHECKING:
    from pytest_fib.build._artifact import Built
    from pytest_fib.build._program import Program

__all__ = ["build", "load", "versions"]

SOURCE = "kernel.cu"
#: What stands before the entry, besides what TileLang writes.
_CHECKS = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace {

void check(const tvm::ffi::TensorView& given, const char* name, DLDataType dtype, int rank) {
  if (given.device().device_type != kDLCUDA)
    TVM_FFI_THROW(ValueError) << name << " is not on a CUDA device";
  const DLDataType found = given.dtype();
  if (found.code != dtype.code || found.bits != dtype.bits || found.lanes != dtype.lanes)
    TVM_FFI_THROW(TypeError) << name << " has another dtype than the kernel was written for";
  if (given.ndim() != rank)
    TVM_FFI_THROW(ValueError) << name << " has " << given.ndim() << " dimensions, not " << rank;
  if (!given.IsContiguous())
    TVM_FFI_THROW(ValueError) << name << " is not contiguous";
}

void check_size(const tvm::ffi::TensorView& given, const char* name, int dimension, int64_t size) {
  if (given.size(dimension) != size)
    TVM_FFI_THROW(ValueError) << "dimension " << dimension << " of " << name << " is "
                              << given.size(dimension) << ", not " << size;
}
"""


def versions(program: Program) -> dict[str, str]:
    """Versions of TileLang, and of all that compiles the source it writes."""
    own = {"tilelang": needed_version("tilelang")}
    return _native.versions(replace(program, language="cuda")) | own


def build(program: Program, folder: Path, call: object = None) -> Built:
    """Write CUDA source, and compile that. Raises BuildError."""
    assert program.compilation is not None, "a program that is built says for what"
    with traced(program):
        from tilelang import tvm

        function = entry_of(program)
        if not isinstance(function, tvm.tirx.PrimFunc):
            return built_as_python(folder)
        refuse_returning(program)
        _refuse_sharing(function, program)
        source, shared_bytes = _cuda_source(function, program)
    compilation = program.compilation
    flags = (*_include_flags(), *compilation.cuda_cflags)
    cuda = replace(
        program,
        language="cuda",
        sources=((SOURCE, source),),
        compilation=replace(compilation, cuda_cflags=flags),
    )
    built = _native.build(cuda, folder)
    kernels = (
        replace(kernel, shared_bytes=kernel.shared_bytes + shared_bytes.get(kernel.name, 0))
        for kernel in built.kernels
    )
    return replace(built, headers=tuple(_others(built.headers)), kernels=tuple(kernels))


def _others(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The headers that did not come with TileLang, whose version is known."""
    import tilelang

    own = Path(tilelang.__file__).parent
    return (header for header in headers if not Path(header[0]).resolve().is_relative_to(own))


def _refuse_sharing(function: Any, program: Program) -> None:
    """Raise BuildError for parameters with one annotation, which are one tensor to TileLang."""
    names: dict[Any, list[str]] = {}
    for parameter, buffer in function.buffer_map.items():
        names.setdefault(buffer.data, []).append(parameter.name.removesuffix("_handle"))
    for shared in names.values():
        if len(shared) > 1:
            raise BuildError(
                f"{' and '.join(shared)} of {program.entry_file} are annotated with one object, "
                "which makes them the same tensor: write T.Tensor(...) for each"
            )


def _include_flags() -> list[str]:
    """As headers of the system: they come with TileLang, whose version is known."""
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH

    return ["-w", "-isystem", TILELANG_TEMPLATE_PATH, "-isystem", CUTLASS_INCLUDE_DIR]


def _cuda_source(function: Any, program: Program) -> tuple[str, dict[str, int]]:
    """Kernels, the function that launches them, and the entry that is exported.

    And the bytes of shared memory that each kernel is launched with, of which nvcc doesn't know.
    """
    import tilelang
    from tilelang import tvm

    assert program.compilation is not None
    target = tvm.target.Target({"kind": "cuda", "arch": program.compilation.target})
    with target:
        lowered = tilelang.lower(function, target=target)
    launcher = _launcher(
        tvm.IRModule({function.attrs["global_symbol"]: function}),
        lowered.kernel_source,
        target,
        lowered.device_mod,
        lowered.host_mod,
    )
    entry = _entry(function, launcher, program.entry_symbol)
    return f"{launcher.lib_code}\n{_CHECKS}\n{entry}", launcher.shared_bytes


def _launcher(*arguments: Any) -> Any:
    from tilelang.jit.adapter.wrapper import TLCUDASourceWrapper

    class Launcher(TLCUDASourceWrapper):  # type: ignore[misc]
        """Without leave to begin before the kernels ahead in the stream have ended.

        TileLang gives it to all kernels, those included that never wait for what they read.
        """

        shared_bytes: ClassVar[dict[str, int]] = {}

        def get_kernel_launch_code(self, name: str, *launch: Any) -> str:
            grid, block, shared, arguments, cluster = launch
            if str(shared).isdigit():
                self.shared_bytes[name] = int(shared)
            if cluster is not None or name in self.pdl_sync_map:
                text: str = super().get_kernel_launch_code(name, *launch)
                return text
            return f"\t{name}<<<{grid}, {block}, {shared}, stream>>>({arguments});\n"

        def c_type(self, dtype: Any) -> str:
            """How C++ spells an element type."""
            spelled: str = self._lookup_type(dtype)
            return spelled

    return Launcher(*arguments)


def _entry(function: Any, launcher: Any, symbol: str) -> str:
    """The C++ function that takes tensors and numbers, checks them, and launches."""
    given, checks, passed = [], [], []
    sizes: dict[str, str] = {}
    for i, parameter in enumerate(function.params):
        name = f"a{i}"
        if parameter in function.buffer_map:
            buffer = function.buffer_map[parameter]
            given.append(f"tvm::ffi::TensorView {name}")
            checks += _tensor_checks(name, buffer, sizes)
            passed.append(f"static_cast<{launcher.c_type(buffer.dtype)}*>({name}.data_ptr())")
        else:
            kind = "double" if "float" in str(parameter.dtype) else "int64_t"
            given.append(f"{kind} {name}")
            passed.append(f"static_cast<{launcher.c_type(parameter.dtype)}>({name})")
    names = {parameter.name for parameter in function.params}
    for axis, dtype in launcher.get_dynamic_symbolic_set(function):
        if axis not in names | sizes.keys():
            raise BuildError(f"{axis} is the size of no argument: tensors are contiguous")
        if axis not in names:
            passed.append(f"static_cast<{launcher.c_type(dtype)}>({sizes[axis]})")
    lines = [
        f"void entry({', '.join(given)}) {{",
        *checks,
        "DLDevice device = a0.device();",
        "void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);",
        f"if (init() || call({', '.join(passed)}, static_cast<cudaStream_t>(stream)))",
        "  TVM_FFI_THROW(RuntimeError) << get_last_error();",
        "}",
    ]
    return "\n".join(
        [*lines, "}  // namespace", f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({symbol}, entry);"]
    )


def _tensor_checks(name: str, buffer: Any, sizes: dict[str, str]) -> list[str]:
    """Statements that check one tensor; ``sizes`` learns where to read an axis' size."""
    import tvm_ffi

    dtype = tvm_ffi.dtype(str(buffer.dtype))
    fields = f"DLDataType{{{dtype.type_code}, {dtype.bits}, {dtype.lanes}}}"
    lines = [f'check({name}, "{buffer.name}", {fields}, {len(buffer.shape)});']
    for dimension, size in enumerate(buffer.shape):
        read = f"{name}.size({dimension})"
        expected = str(size) if str(size).isdigit() else sizes.setdefault(str(size), read)
        if expected != read:
            lines.append(f'check_size({name}, "{buffer.name}", {dimension}, {expected});')
    return lines
