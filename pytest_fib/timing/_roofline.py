"""The least time that a kernel can take on a device, and how close it comes to that.

The model is that of Williams, Waterman and Patterson, "Roofline" (CACM 52, 2009): a kernel takes at
least as long as its bytes at the memory's rate, and as its operations at the processors' rate. The
rates, a device's ceilings, are measured once, then read from a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeAlias

import torch

from pytest_fib.data import Definition, cache_directory, write_json
from pytest_fib.timing._device import last_cache_bytes, nvidia_driver, processor
from pytest_fib.timing._series import flush, l2_bytes
from pytest_fib.workloads import bytes_needed

#: Up to this many times the size of the caches, a time with warm caches says nothing about memory.
CACHE_MARGIN = 3
#: Bytes that are copied on the CPU: far more than its caches hold.
CPU_COPY = 128 << 20
#: Sizes of a buffer that is copied on CUDA, in sizes of the L2 cache; the better rate counts. Small
#: ones suffer least from what a launch costs, large ones from what stays in the cache.
CACHES = (4, 16)
#: Rows and columns of the matrices that are multiplied.
CPU_MATRIX, CUDA_MATRIX = 1024, 8192
#: Blocks of which the best counts, and calls in a block on CUDA.
BLOCKS, CALLS = 5, 4
_Call: TypeAlias = Callable[[], object]
_TimedEvent: Callable[..., Any] = torch.cuda.Event


@dataclass(frozen=True)
class OperationCounts:
    """The work of a function's operations, each run as a kernel of its own.

    ``flops`` are those of matrix products; ``moved_bytes``, what all operations read and wrote.
    ``read_bytes`` has, for each argument, how many of its bytes were read: None for a scalar, and
    for a tensor that no operation was seen to read, as when Python reads it whole.
    """

    flops: int
    moved_bytes: int
    read_bytes: tuple[int | None, ...]


def least_traffic(
    definition: Definition,
    axes: Mapping[str, int],
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    read_bytes: Mapping[str, int] | None = None,
) -> int:
    """Bytes that any kernel has to move: the used parts of inputs, and all outputs.

    ``axes`` as in a Workload; ``inputs`` are filled. ``read_bytes`` are those of each input that
    the reference read: what it did without, as the weights of experts without tokens, isn't needed.
    """
    needed = bytes_needed(definition, axes, inputs)
    read = sum(min(size, (read_bytes or {}).get(name, size)) for name, size in needed.items())
    return read + sum(tensor.nbytes for tensor in outputs.values())


@dataclass(frozen=True)
class Ceilings:
    """The best rates that a device was measured to reach.

    ``bytes_per_second``, read and written together, of copies and of a read; ``flops_per_second``
    of matrix products, by torch's name of their operands' dtype. On CUDA, float32 is computed in
    TF32. ``cache_bytes`` is the size of the last cache before the memory.
    """

    bytes_per_second: float
    flops_per_second: Mapping[str, float]
    cache_bytes: int

    def flops_of(self, dtype: str) -> float | None:
        """The rate of a dtype, or of the next wider one that was measured."""
        known = self.flops_per_second
        return next((known[name] for name in _as_fast_as(dtype) if name in known), None)


def _as_fast_as(dtype: str) -> tuple[str, ...]:
    """The dtype, then those whose rate may stand for its own, fastest first."""
    if dtype.startswith("float4"):
        return (dtype, "float8_e4m3fn", "bfloat16", "float32")
    if dtype.startswith("float8"):
        return ("float8_e4m3fn", "bfloat16", "float32")
    return (dtype, "float32")


@dataclass(frozen=True)
class Roofline:
    """How a time compares with the ceilings.

    ``ceiling_share`` is the share of the binding ceiling's rate that was reached. It is None where
    no ceiling is known to bind, ``teraflops_per_second`` where nobody knows the operations.
    """

    gigabytes_per_second: float
    teraflops_per_second: float | None
    bound_by: Literal["memory", "compute"] | None
    ceiling_share: float | None


def roofline(
    least_bytes: int,
    flops: int | None,
    dtype: str,
    ceilings: Ceilings,
    seconds: float,
    *,
    cold: bool = True,
) -> Roofline:
    """How ``seconds`` compare, of a kernel that moves ``least_bytes`` and computes ``flops``.

    With warm caches (not ``cold``) memory binds only what is too large for them. ``flops`` are the
    reference's, and a kernel may do with fewer (half in causal attention).
    """
    memory = least_bytes / ceilings.bytes_per_second
    if not cold and least_bytes <= CACHE_MARGIN * ceilings.cache_bytes:
        memory = 0.0
    rate = ceilings.flops_of(dtype)
    compute = flops / rate if flops and rate else 0.0
    fastest = max(memory, compute)
    return Roofline(
        gigabytes_per_second=least_bytes / seconds / 1e9,
        teraflops_per_second=None if flops is None else flops / seconds / 1e12,
        bound_by=None if fastest == 0 else "memory" if memory >= compute else "compute",
        ceiling_share=fastest / seconds if fastest else None,
    )


def compute_dtype(definition: Definition) -> str:
    """torch's name of the narrowest floating dtype among inputs of two dimensions or more.

    Matrix units may compute in it, whatever the reference widens it to.
    """
    specs = [spec for spec in definition.inputs.values() if spec.dtype.is_floating]
    matrices = [spec for spec in specs if len(spec.shape or ()) > 1] or specs
    narrowest = min(matrices, key=lambda spec: spec.dtype.itemsize_bits, default=None)
    return "float32" if narrowest is None else narrowest.dtype.value


class DeviceCeilings:
    """The ceilings of this process' device, ``cpu`` or ``cuda``.

    Measuring takes under half a second with the device to itself, on the CPU with ``threads``
    threads (by default torch's number). The file is in the user's cache directory, one for each
    device, driver and version of torch; where it can't be written, each process measures. It is
    read once, here: later, code that is timed could have written it.
    """

    def __init__(self, device: str, threads: int | None = None) -> None:
        self._device = device
        self._facts = _facts(device, threads or torch.get_num_threads())
        self._file: Path | None = None
        self._known: Ceilings | None = None
        with contextlib.suppress(OSError):  # no home, or one that can't be read
            self._file = _file_for(self._facts, device)
            self._known = _read(self._file, _cache_bytes(device))

    def known(self) -> Ceilings:
        """The ceilings, measured now if they were not read."""
        if self._known is None:
            self._known = _measured(self._facts, self._device)
            if self._file is not None:
                with contextlib.suppress(OSError):  # full, or read-only
                    write_json(self._file, {"device": self._facts, "ceilings": asdict(self._known)})
        return self._known


def _file_for(facts: Mapping[str, Any], device: str) -> Path:
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return cache_directory() / "ceilings" / f"{device}-{name}.json"


def _read(file: Path, cache_bytes: int) -> Ceilings | None:
    """The ceilings in the file; None where there is none, or it holds something else."""
    try:
        ceilings = json.loads(file.read_text(encoding="utf-8"))["ceilings"]
        memory, compute = ceilings["bytes_per_second"], ceilings["flops_per_second"]
        rates = [memory, *compute.values()]
        if all(type(rate) is float and 0 < rate < inf for rate in rates):
            return Ceilings(memory, compute, cache_bytes)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _cache_bytes(device: str) -> int:
    """The size of the last cache before the memory."""
    return last_cache_bytes() if device == "cpu" else l2_bytes()


def _facts(device: str, threads: int) -> dict[str, Any]:
    """The facts that ceilings depend on."""
    if device == "cpu":
        return {"model": processor(), "threads": threads, "torch": torch.__version__}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "model": properties.name,
        "uuid": str(properties.uuid),
        "driver": nvidia_driver(),
        "torch": torch.__version__,
    }


def _measured(facts: Mapping[str, Any], device: str) -> Ceilings:
    if device != "cpu":
        return _cuda_ceilings()
    before = torch.get_num_threads()
    torch.set_num_threads(facts["threads"])
    try:
        return _cpu_ceilings()
    finally:
        torch.set_num_threads(before)


def _cpu_ceilings() -> Ceilings:
    source, target = torch.ones(CPU_COPY // 4), torch.ones(CPU_COPY // 4)
    left, right = torch.ones(2, CPU_MATRIX, CPU_MATRIX)
    product = torch.empty_like(left)
    memory = (
        2 * CPU_COPY / _best(lambda: target.copy_(source), _wall_seconds),
        CPU_COPY / _best(source.sum, _wall_seconds),
    )
    compute = _best(lambda: torch.mm(left, right, out=product), _wall_seconds)
    return Ceilings(max(memory), {"float32": 2 * CPU_MATRIX**3 / compute}, _cache_bytes("cpu"))


def _best(call: _Call, seconds: Callable[[_Call], float]) -> float:
    """Seconds of one call in the fastest of ``BLOCKS`` blocks, after one to warm up."""
    seconds(call)
    return min(seconds(call) for _ in range(BLOCKS))


def _wall_seconds(call: _Call) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _cuda_ceilings() -> Ceilings:
    cache = _cache_bytes("cuda")
    memory = max(rate for times in CACHES for rate in _memory_rates(times * cache))
    operations = 2 * CUDA_MATRIX**3
    compute = {
        dtype: operations / _best(product, _cuda_seconds) for dtype, product in _cuda_products()
    }
    torch.cuda.empty_cache()  # what sandboxes may need
    return Ceilings(memory, compute, cache)


def _memory_rates(size: int) -> Iterator[float]:
    """Bytes per second of two ways to copy, and of a read."""
    source = torch.randn(size // 4, device="cuda")
    target = torch.zeros_like(source)
    yield 2 * size / _best(lambda: target.copy_(source), _cuda_seconds)
    yield 2 * size / _best(lambda: torch.neg(source, out=target), _cuda_seconds)
    yield size / _best(source.amax, _cuda_seconds)


def _cuda_seconds(call: _Call) -> float:
    """Seconds of one call: alone, or the mean over a few in a row, whichever is less.

    As when kernels are timed, no line of the cache has to be written back before. Alone, what the
    call leaves in the cache is not part of its time; in a row, calls share the cost of the launch.
    """
    return min(_cuda_block_seconds(call, number) for number in (1, CALLS))


def _cuda_block_seconds(call: _Call, number: int) -> float:
    start, end = _TimedEvent(enable_timing=True), _TimedEvent(enable_timing=True)
    flush()
    start.record()
    for _ in range(number):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / number


def _cuda_products() -> Iterator[tuple[str, _Call]]:
    """Products of square matrices by dtype, of those that the device can multiply."""
    shape = (CUDA_MATRIX, CUDA_MATRIX)
    for dtype in ("bfloat16", "float16", "float32"):
        # Random values: zeros take less power, and so run at higher clocks.
        left, right = torch.randn(2, *shape, device="cuda").to(getattr(torch, dtype))
        product = torch.empty_like(left)
        with _tf32():
            yield dtype, lambda a=left, b=right, c=product: torch.mm(a, b, out=c)  # type: ignore[misc]
    # As torch does: from Ada on.
    if hasattr(torch, "_scaled_mm") and torch.cuda.get_device_capability() >= (8, 9):
        left, right = torch.randn(2, *shape, device="cuda").to(torch.float8_e4m3fn)
        scale = torch.ones((), device="cuda")
        yield (
            "float8_e4m3fn",
            lambda: torch._scaled_mm(
                left, right.T, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
            ),
        )


@contextlib.contextmanager
def _tf32() -> Iterator[None]:
    """Products of float32 on the units that round their operands, as fast as there is."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
