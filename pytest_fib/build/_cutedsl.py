"""CuTe DSL: a ``cute.jit`` function becomes a library of TVM FFI, for the definition's arguments.

What is loaded needs one library of NVIDIA's besides, and neither Python code of CUTLASS nor nvcc.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from pytest_fib.build import _traced
from pytest_fib.build._artifact import Built, KernelResources
from pytest_fib.build._errors import BuildError
from pytest_fib.build._native import LIBRARY
from pytest_fib.build._runtime import RUNTIME, RUNTIME_VARIABLE, runtime_library
from pytest_fib.build._toolchain import (
    cuobjdump,
    needed_compiler,
    needed_version,
    settings_of,
    version_of,
)

if TYPE_CHECKING:
    from pytest_fib.build._program import Parameter, Program

_OBJECT = "program.o"
#: Bytes that pointers are multiples of, where nothing asks for odd ones.
_ALIGNMENT = 16
#: Its names of dtypes, where these aren't torch's with a capital letter.
_TYPES = {
    "bfloat16": "BFloat16",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "float4_e2m1": "Float4E2M1FNx2",  # two in a byte
    "bool": "Boolean",
}
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")


def versions(program: Program) -> dict[str, str]:
    """CuTe DSL, which has a compiler of its own, what the environment sets of it, the linker."""
    packages = ("nvidia-cutlass-dsl", "apache-tvm-ffi")
    by_package = {package: needed_version(package) for package in packages}
    settings = settings_of("cutedsl")
    return {
        "machine": platform.machine(),
        "c++": version_of(needed_compiler("cpp")),
        **by_package,
        **settings,
    }


def build(program: Program, folder: Path, call: object = None) -> Built:
    """Compile, and link. Raises BuildError."""
    assert program.compilation is not None, "a program that is built says for what"
    target = program.compilation.target
    environment = {"CUTE_DSL_ARCH": target, "CUTE_DSL_DISABLE_FILE_CACHING": "1"}
    with mock.patch.dict(os.environ, environment), _traced.traced(program):
        function = _traced.entry_of(program)
        kind = getattr(function, "_decorator_kind", None)
        if kind == "kernel":
            raise BuildError(
                f"{program.entry_symbol} of {program.entry_file} is a cute.kernel: "
                "mark the cute.jit function that launches it"
            )
        if kind != "jit":
            return _traced.built_as_python(folder)
        _traced.refuse_returning(program)
        _compile(function, program, folder)
    command = [needed_compiler("cpp"), "-shared", "-o", LIBRARY, _OBJECT]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"what was compiled can't be linked: {done.stderr.strip()}", done.stderr)
    return Built(LIBRARY, kernels=tuple(_resources(folder)))


def load(program: Program, artifact: Path | None) -> Any:
    """As ``_traced.load``. Raises BuildError where the runtime library is not there."""
    if artifact is not None and artifact.stat().st_size > 0:
        _load_runtime()
    return _traced.load(program, artifact)


def _load_runtime() -> None:
    path = runtime_library()
    if path is None:
        raise BuildError(
            f"needs {RUNTIME}: pip install 'pytest-fib[cutedsl]', or name the file "
            f"in the environment variable {RUNTIME_VARIABLE}"
        )
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _compile(function: Callable[..., Any], program: Program, folder: Path) -> None:
    """Write the object file, and the cubin that is in it."""
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_stream

    assert program.compilation is not None
    sizes: dict[str, Any] = {}
    parameters = program.compilation.parameters
    arguments = [_argument(parameter, sizes) for parameter in parameters]
    taken = len(inspect.signature(function).parameters)
    if taken not in (len(arguments), len(arguments) + 1):
        names = ", ".join(parameter.name for parameter in parameters)
        raise BuildError(
            f"{program.entry_symbol} of {program.entry_file} has {taken} parameters, not one for "
            f"each of {names}, and then perhaps the stream"
        )
    if taken > len(arguments):
        arguments.append(make_fake_stream(use_tvm_ffi_env_stream=True))
    options = (
        f"--enable-tvm-ffi --gpu-arch {program.compilation.target} --keep-cubin --dump-dir={folder}"
    )
    compiled = cute.compile(function, *arguments, options=options)
    compiled.export_to_c(str(folder / _OBJECT), function_name=program.entry_symbol)


def _argument(parameter: Parameter, sizes: dict[str, Any]) -> Any:
    """A number or a tensor as a definition declares it; ``sizes`` has a symbol for each axis."""
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_tensor

    dtype = getattr(cutlass, _TYPES.get(parameter.dtype, parameter.dtype.capitalize()))
    if parameter.shape is None:
        return dtype(0)
    for axis in parameter.shape:
        if isinstance(axis, str) and axis not in sizes:
            sizes[axis] = cute.sym_int()
    shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in parameter.shape)
    if parameter.compact:
        speeds = tuple(len(shape) - 1 - parameter.order.index(i) for i in range(len(shape)))
        return make_fake_compact_tensor(dtype, shape, stride_order=speeds, assumed_align=_ALIGNMENT)
    fastest = parameter.order[-1]
    stride = tuple(1 if i == fastest else cute.sym_int64() for i in range(len(shape)))
    return make_fake_tensor(dtype, shape, stride)


def _resources(folder: Path) -> list[KernelResources]:
    """What cuobjdump says of the cubin; what spills is in the stack."""
    tool = cuobjdump()
    if tool is None:
        return []
    files = [str(path) for path in folder.glob("*.cubin")]
    command = [tool, "-res-usage", *files]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [
        KernelResources(name, int(registers), int(shared), int(stack))
        for name, registers, stack, shared in _USAGE.findall(text)
    ]
