"""Input generators by ``kind``: what ``workloads.inputs`` of a definition may ask for.

Each fills a contiguous tensor in place. Structure (lengths, page tables, indices) is made on the
host, so it is the same on every device; bulk values are made where the tensor lies. A number among
the parameters may be an expression of axes, such as ``num_pages * page_size``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

from pytest_fib.data import SafetensorsInput
from pytest_fib.workloads._lengths import BOUNDARIES, partition
from pytest_fib.workloads._recorded import read_tensor
from pytest_fib.workloads._regimes import VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch

    from pytest_fib.data import TensorSpec

    Fill = Callable[[torch.Tensor, torch.Generator], object]


@dataclass(frozen=True)
class Making:
    """What a generator works with.

    ``inputs`` are the tensors made before; ``params``, the rule as written; ``numbers``, those of
    its parameters that are numbers, computed; ``host`` and ``generator``, random generators on the
    host and on the tensor's device; ``root``, what paths are relative to.
    """

    inputs: Mapping[str, torch.Tensor]
    params: Mapping[str, Any]
    numbers: Mapping[str, float]
    regime: Mapping[str, str]
    host: torch.Generator
    generator: torch.Generator
    root: Path | None = None

    def whole(self, name: str, default: int) -> int:
        """A parameter that is a whole number."""
        return int(self.numbers.get(name, default))

    def lengths_of(self, parameter: str) -> torch.Tensor | None:
        """Sequence lengths from the indptr that a parameter names, on the host."""
        name = self.params.get(parameter)
        return None if name is None else self.inputs[name].cpu().long().diff()


@dataclass(frozen=True)
class Kind:
    """How a generator fills; what it takes is in ``pytest_fib.data.FORMS``.

    ``implies`` gives the constraints on axes without which nothing valid can be made. ``bulk`` are
    values that don't decide what a kernel does with them, only what comes out.
    """

    fill: Callable[[torch.Tensor, Making], None]
    implies: Callable[[TensorSpec, Mapping[str, Any]], list[str]] = lambda spec, params: []
    bulk: bool = False


# --- values -------------------------------------------------------------------------------------


def _fill_floating(tensor: torch.Tensor, generator: torch.Generator, fill: Fill) -> None:
    """Fill by a function that needs arithmetic; 8-bit dtypes have none, so they are rounded to."""
    import torch

    if tensor.element_size() > 1:
        fill(tensor, generator)
        return
    wide = tensor.new_empty(tensor.shape, dtype=torch.float32)
    fill(wide, generator)
    limit = torch.finfo(tensor.dtype).max
    tensor.copy_(wide.clamp_(-limit, limit))


def _values(tensor: torch.Tensor, making: Making) -> None:
    """The regime's values; what a floating input gets where nothing else is said."""
    import torch

    fill, limits = VALUES[making.regime.get("values", "normal")], torch.finfo(tensor.dtype)
    _fill_floating(tensor, making.generator, lambda t, g: fill(t, g, limits))


def _normal(tensor: torch.Tensor, making: Making) -> None:
    """``mean`` (0) and ``std`` (1)."""
    mean, std = making.numbers.get("mean", 0.0), making.numbers.get("std", 1.0)
    _fill_floating(tensor, making.generator, lambda t, g: t.normal_(mean, std, generator=g))


def _uniform(tensor: torch.Tensor, making: Making) -> None:
    """From ``min`` (0) to ``max`` (1); with ``ends``, each of the two often."""
    low, high = making.numbers.get("min", 0.0), making.numbers.get("max", 1.0)
    _fill_floating(tensor, making.generator, lambda t, g: t.uniform_(low, high, generator=g))
    _put_ends(tensor, making, low, high)


def _integers(tensor: torch.Tensor, making: Making) -> None:
    """Whole numbers from ``min`` (0) to ``max`` (1), both included.

    With ``ends``, each of the two often.
    They are multiplied by ``step`` (1), which in a floating tensor may be a fraction.
    """
    low, high = making.whole("min", 0), making.whole("max", 1)
    tensor.random_(low, high + 1, generator=making.generator)
    _put_ends(tensor, making, low, high)
    if "step" in making.numbers:
        tensor.mul_(making.numbers["step"])


def _put_ends(tensor: torch.Tensor, making: Making, low: float, high: float) -> None:
    """With ``ends``, make a quarter of the elements the least there may be, a quarter the most.

    Of three or more, and often of two, one is the least and one the most: random choices are tested
    by the few rows of one workload.
    """
    import torch

    if not making.params.get("ends", False):
        return
    choice = torch.randint(0, 4, tensor.shape, generator=making.host)
    if (n := choice.numel()) > int(torch.randint(1, 3, (), generator=making.host)):
        first = torch.randint(0, n, (), generator=making.host)
        other = (first + torch.randint(1, n, (), generator=making.host)) % n
        choice.view(-1)[torch.stack((first, other))] = torch.tensor([0, 1])
    choice = choice.to(tensor.device)
    tensor.masked_fill_(choice == 0, low).masked_fill_(choice == 1, high)


def _boolean(tensor: torch.Tensor, making: Making) -> None:
    """True with probability ``p`` (0.5)."""
    tensor.bernoulli_(making.numbers.get("p", 0.5), generator=making.generator)


def _l2_normalized(tensor: torch.Tensor, making: Making) -> None:
    """Normal values, scaled to length 1 along the last dimension."""
    import torch

    wide = tensor.new_empty(tensor.shape, dtype=torch.float32).normal_(generator=making.generator)
    tensor.copy_(torch.nn.functional.normalize(wide, dim=-1))


def _probabilities(tensor: torch.Tensor, making: Making) -> None:
    """Rows that sum to 1: softmax of the regime's values times ``sharpness`` (3).

    Ones make them all equal; large values leave one token, and zeros for the others.
    """
    import torch

    wide = tensor.new_empty(tensor.shape, dtype=torch.float32)
    fill = VALUES[making.regime.get("values", "normal")]
    fill(wide, making.generator, torch.finfo(torch.float32))
    tensor.copy_((wide * making.numbers.get("sharpness", 3.0)).softmax(dim=-1))


def _scales(tensor: torch.Tensor, making: Making) -> None:
    """Positive factors, log-uniform from ``min`` (2**-8) to ``max`` (2**-3)."""
    low, high = (log2(making.numbers.get(end, d)) for end, d in (("min", 2**-8), ("max", 2**-3)))
    _fill_floating(
        tensor, making.generator, lambda t, g: t.uniform_(low, high, generator=g).exp2_()
    )


def _quantized(tensor: torch.Tensor, making: Making) -> None:
    """The regime's values in fp8, each ``block`` (128) of a row scaled to the dtype's range.

    Only a block of zeros stays as it is. The last one of a row may be shorter.
    """
    import torch

    limit = torch.finfo(tensor.dtype).max
    wide = tensor.new_empty(tensor.shape, dtype=torch.float32)
    fill = VALUES[making.regime.get("values", "normal")]
    fill(wide, making.generator, torch.finfo(torch.float32))
    for block in torch.split(wide, making.whole("block", 128), dim=-1):
        largest = block.abs().amax(dim=-1, keepdim=True)
        block.div_(largest.where(largest > 0, 1)).mul_(limit)
    tensor.copy_(wide.clamp_(-limit, limit))


def _fp4(tensor: torch.Tensor, making: Making) -> None:
    """Any two e2m1 values in a byte; every bit pattern is a number."""
    import torch

    tensor.view(torch.uint8).random_(0, 256, generator=making.generator)


def _fp8_pages(tensor: torch.Tensor, making: Making) -> None:
    """Pages of bytes (pages, page_size, ..., width): e4m3 values first, then float32 scales > 0.

    Of a page's bytes the last 4 * page_size are one scale for each token; the rest are values.
    """
    import torch

    pages = tensor.view(torch.uint8).reshape(tensor.shape[0], -1)
    bytes_of_scales = 4 * tensor.shape[1]
    values = pages.new_empty((len(pages), pages.shape[1] - bytes_of_scales), dtype=torch.float32)
    values.normal_(0.0, 64.0, generator=making.generator).clamp_(-448, 448)
    scales = pages.new_empty((len(pages), tensor.shape[1]), dtype=torch.float32)
    scales.uniform_(-10.0, -4.0, generator=making.generator).exp2_()
    encoded = values.to(torch.float8_e4m3fn).view(torch.uint8)
    tensor.copy_(
        torch.cat((encoded, scales.view(torch.uint8)), dim=1).view(tensor.dtype).view(tensor.shape)
    )


def _cos_sin_cache(tensor: torch.Tensor, making: Making) -> None:
    """Rows of [cos, sin] of rotary angles, with ``base`` (10000) as in RoPE (Su et al. 2021)."""
    import torch

    angles = _angles(tensor, tensor.shape[1], making)
    tensor.copy_(torch.cat((angles.cos(), angles.sin()), dim=-1))


def _cos(tensor: torch.Tensor, making: Making) -> None:
    """Cosines of rotary angles, a position in each row; those of ``base`` (10000).

    With ``twice``, a row holds those of all frequencies two times, one after the other.
    """
    tensor.copy_(_rows_of_angles(tensor, making).cos())


def _sin(tensor: torch.Tensor, making: Making) -> None:
    """Sines of rotary angles, as ``cos`` has their cosines."""
    tensor.copy_(_rows_of_angles(tensor, making).sin())


def _rows_of_angles(tensor: torch.Tensor, making: Making) -> torch.Tensor:
    twice = making.params.get("twice", False)
    angles = _angles(tensor, tensor.shape[-1] * (1 if twice else 2), making)
    return angles.repeat(1, 2)[:, : tensor.shape[-1]] if twice else angles


def _angles(tensor: torch.Tensor, dim: int, making: Making) -> torch.Tensor:
    """The angles of each position, one for two of ``dim`` dimensions; float64, and 2-D."""
    import torch

    where = tensor.device
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=where) / dim
    frequencies = making.numbers.get("base", 10000.0) ** -exponents
    positions = torch.arange(tensor.shape[-2], dtype=torch.float64, device=where)
    return torch.outer(positions, frequencies)


# --- structure ----------------------------------------------------------------------------------


def _indptr(tensor: torch.Tensor, making: Making) -> None:
    """Offsets of sequences: from 0 to ``total``, never falling.

    ``allow_empty`` (true); ``at_least``, an indptr whose every sequence must fit in ours;
    ``page_size`` (1), how many of its elements one of ours holds; ``parts``, how many sequences
    there are, where no constraint says so.
    """
    import torch

    parts, total = tensor.numel() - 1, making.whole("total", 0)
    least = torch.full((parts,), 0 if making.params.get("allow_empty", True) else 1)
    if (others := making.lengths_of("at_least")) is not None:
        least = torch.maximum(least, -(-others // making.whole("page_size", 1)))
    lengths = partition(total, least, making.regime.get("lengths", "random"), making.host)
    tensor[0] = 0
    tensor[1:] = lengths.cumsum(0)


def _last_page_len(tensor: torch.Tensor, making: Making) -> None:
    """How full each sequence's last page is: 1 to ``page_size``, both and sizes of tiles often.

    ``indptr`` counts the pages of each sequence; with ``at_least``, an indptr of tokens, they hold
    at least those.
    """
    import torch

    size = making.whole("page_size", 1)
    drawn = _fullness(tensor.shape, size, making.host)
    pages, tokens = making.lengths_of("indptr"), making.lengths_of("at_least")
    if pages is not None and tokens is not None:
        needed = (tokens - (pages - 1).clamp_min(0) * size).clamp(1, size)
        drawn[: len(needed)] = torch.maximum(drawn[: len(needed)], needed)
    tensor.copy_(drawn)


def _fullness(shape: torch.Size, size: int, host: torch.Generator) -> torch.Tensor:
    """Tokens in last pages: often 1, all, all but one, or as many as are beside a tile."""
    import torch

    tiles = torch.tensor([n for n in BOUNDARIES if 1 <= n <= size])
    ends = (torch.tensor([n]) for n in (1, max(1, size - 1), size))
    often = (*ends, tiles, tiles)
    drawn = torch.randint(1, size + 1, shape, generator=host)
    choice = torch.randint(0, 6, shape, generator=host)
    for i, some in enumerate(often):
        at = torch.randint(0, len(some), shape, generator=host)
        drawn = torch.where(choice == i, some[at], drawn)
    return drawn


def _indices(tensor: torch.Tensor, making: Making) -> None:
    """Numbers below ``below``; with ``unique`` (true) distinct in a row; a vector is one row.

    Now and then a row of distinct ones is the first or the last there are, in order.
    With ``pad``, rows may end in that value instead.
    """
    import torch

    below, host = making.whole("below", 1), making.host
    rows, n = tensor.shape[:-1].numel(), tensor.shape[-1]
    unique, pad = making.params.get("unique", True), making.numbers.get("pad")
    drawn = torch.zeros((rows, n), dtype=torch.long)
    for row in drawn:
        row[:] = _row(n, below, host, unique=unique)
    if pad is not None:
        kept = torch.randint(0, n + 1, (rows, 1), generator=host)
        kept[torch.rand((rows, 1), generator=host) < 0.5] = n
        drawn = torch.where(torch.arange(n) < kept.clamp_max(below), drawn, int(pad))
    tensor.copy_(drawn.reshape(tensor.shape))


def _row(n: int, below: int, host: torch.Generator, *, unique: bool) -> torch.Tensor:
    import torch

    if not unique:  # from half as many, so that hardly a row has no number twice
        some = torch.randint(0, max(below, 1), ((n + 1) // 2,), generator=host)
        return some[torch.randint(0, max(len(some), 1), (n,), generator=host)]
    row = torch.zeros(n, dtype=torch.long)
    row[: min(n, below)] = _distinct(min(n, below), below, host)
    return row  # what is missing of a row longer than that is padded by the caller


def _distinct(n: int, below: int, host: torch.Generator) -> torch.Tensor:
    """Different numbers: one time in four the first or the last there are, in order.

    So an empty cache gives them out, and so do tests of kernels that would take any of them.
    """
    import torch

    choice = int(torch.randint(0, 8, (), generator=host))
    if choice < 2:
        return torch.arange(n) + choice * (below - n)
    if n * 8 > below:
        return torch.randperm(below, generator=host)[:n]
    drawn: set[int] = set()
    while len(drawn) < n:  # few of many: what came twice is drawn again
        drawn.update(torch.randint(0, below, (n - len(drawn),), generator=host).tolist())
    return torch.tensor(sorted(drawn), dtype=torch.long)[torch.randperm(n, generator=host)]


def _permutation(tensor: torch.Tensor, making: Making) -> None:
    """Every number below the tensor's length once; now and then in order."""
    tensor.copy_(_distinct(tensor.numel(), tensor.numel(), making.host))


def _seq_lens(tensor: torch.Tensor, making: Making) -> None:
    """Lengths from 1 to ``max``; of all of them ``pages`` of ``page_size`` (1) are enough."""
    import torch

    longest, size, n = making.whole("max", 1), making.whole("page_size", 1), tensor.numel()
    most = -(-longest // size)
    pages = min(making.whole("pages", n * most), n * most)
    total = int(torch.randint(n, pages + 1, (), generator=making.host)) if n else 0
    regime = making.regime.get("lengths", "random")
    counts = partition(total, torch.ones(n, dtype=torch.long), regime, making.host)
    lengths = (counts.clamp_max(most) - 1) * size + _fullness(counts.shape, size, making.host)
    tensor.copy_(lengths.clamp(1, longest))


def _block_table(tensor: torch.Tensor, making: Making) -> None:
    """The pages of each sequence, mostly in no order: distinct ones below ``pages``, unused ones 0.

    ``lengths`` names the input of sequence lengths; ``page_size`` (1) is their tokens in a page.
    """
    import torch

    lengths = making.inputs[making.params["lengths"]].cpu().long()
    counts = -(-lengths // making.whole("page_size", 1))
    table = torch.zeros(tensor.shape, dtype=torch.long)
    table[torch.arange(tensor.shape[1]) < counts[:, None]] = _distinct(
        int(counts.sum()), making.whole("pages", 1), making.host
    )
    tensor.copy_(table)


def _positions(tensor: torch.Tensor, making: Making) -> None:
    """Positions below ``below``, the last and the first among them; of a single one, any."""
    import torch

    below = making.whole("below", 1)
    drawn = torch.randint(0, below, (tensor.numel(),), generator=making.host)
    ends = torch.tensor([below - 1, 0])
    if len(drawn) > 1:
        drawn[:2] = ends
    elif (choice := int(torch.randint(0, 3, (), generator=making.host))) < 2:
        drawn[:] = ends[choice]
    drawn = drawn[torch.randperm(len(drawn), generator=making.host)]
    tensor.copy_(drawn.reshape(tensor.shape))


def _topk_ids(tensor: torch.Tensor, making: Making) -> None:
    """Numbers of ``experts``, distinct in a row; some experts are favoured over others."""
    tensor.copy_(_experts(tensor.shape, making))


def _routing(tensor: torch.Tensor, making: Making) -> None:
    """One of ``experts`` in the high 16 bits, its softmax weight in bfloat16 in the low ones."""
    import torch

    weights = torch.rand(tensor.shape, generator=making.host).softmax(dim=-1)
    bits = weights.bfloat16().view(torch.int16).long() & 0xFFFF
    tensor.copy_((_experts(tensor.shape, making) << 16) | bits)


def _router_logits(tensor: torch.Tensor, making: Making) -> None:
    """Logits of a router in which no rounding decides which experts are chosen.

    Now and then all rows rank the experts alike, so that a few experts get all tokens. In float32,
    the n sigmoids of a row lie 1 / (2 n N) or more apart, where N is the least power of two from n
    on; also when multiples of 1 / N, which bfloat16 holds exactly, are added to them as a bias. In
    16 bits, the logits of up to 512 experts lie 1 / 32 or more apart.
    """
    import torch

    ranked = torch.rand(tensor.shape, generator=making.host)
    if torch.rand((), generator=making.host) < 0.25:
        ranked[:] = ranked[:1].clone()
    few_bits = tensor.element_size() < 4
    tensor.copy_((_logits_apart if few_bits else _scores_apart)(ranked.argsort(dim=-1), making))


def _scores_apart(ranks: torch.Tensor, making: Making) -> torch.Tensor:
    """In units of 1 / N: a whole number, and a fraction that tells the experts apart."""
    import torch

    n = ranks.shape[-1]
    jitter = torch.rand(ranks.shape, dtype=torch.float64, generator=making.host)
    return ((ranks + (torch.arange(n) + 0.25 + 0.5 * jitter) / n) / power_of_two(n)).logit()


def _logits_apart(ranks: torch.Tensor, making: Making) -> torch.Tensor:
    """Of equal steps from -8 to 8, the same ones in each row."""
    import torch

    n = ranks.shape[-1]
    steps = max(512, power_of_two(n))
    drawn = torch.randperm(steps, generator=making.host)[:n].sort().values
    return drawn[ranks] * (16 / steps) - 8


def power_of_two(n: int) -> int:
    """The least that is no less than ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def _experts(shape: torch.Size, making: Making) -> torch.Tensor:
    import torch

    experts = making.whole("experts", 1)
    favour = torch.rand(experts, generator=making.host).mul_(2)
    scores = torch.rand((*shape[:-1], experts), generator=making.host) + favour
    return scores.topk(shape[-1], dim=-1).indices


def _safetensors(tensor: torch.Tensor, making: Making) -> None:
    """What a safetensors file beside the definition holds, whatever the seed and the regime."""
    path, key = making.params["path"], making.params["tensor_key"]
    given = SafetensorsInput(path=path, tensor_key=key)
    tensor.copy_(read_tensor(given, making.root, tensor))


def _axis(spec: TensorSpec, dim: int) -> str:
    return spec.shape[dim] if spec.shape else "1"


def _indptr_implies(spec: TensorSpec, params: Mapping[str, Any]) -> list[str]:
    parts, total = f"({_axis(spec, 0)} - 1)", params.get("total", 0)
    implied = [f"{_axis(spec, 0)} >= 2"]
    if "parts" in params:
        implied.append(f"{_axis(spec, 0)} == {params['parts']} + 1")
    if not params.get("allow_empty", True):
        implied.append(f"{total} >= {parts}")
    if params.get("at_least_axis", _axis(spec, 0)) != _axis(spec, 0):
        implied.append(f"{_axis(spec, 0)} == {params['at_least_axis']}")
    if "at_least" in params:
        # Enough whichever way the other's total is split: n sequences of together t elements need
        # at most (t + n * (size - 1)) // size pages, and this is no more than ours.
        size = f"({params.get('page_size', 1)})"
        other = params["at_least_total"]
        implied.append(f"{total} * {size} >= {other} + ({parts} - 1) * ({size} - 1)")
    return implied


def _indices_implies(spec: TensorSpec, params: Mapping[str, Any]) -> list[str]:
    below = params.get("below", 1)
    if params.get("unique", True) and params.get("pad") is None:
        return [f"{_axis(spec, -1)} <= {below}"]
    return [f"{below} >= 1"]


def _seq_lens_implies(spec: TensorSpec, params: Mapping[str, Any]) -> list[str]:
    return [f"{params['pages']} >= {_axis(spec, 0)}"] if "pages" in params else []


def _experts_imply(spec: TensorSpec, params: Mapping[str, Any]) -> list[str]:
    return [f"{_axis(spec, -1)} <= {params.get('experts', 1)}"]


#: By name, as ``FORMS`` has them.
KINDS: dict[str, Kind] = {
    "values": Kind(_values, bulk=True),
    "normal": Kind(_normal, bulk=True),
    "uniform": Kind(_uniform, bulk=True),
    "integers": Kind(_integers),
    "boolean": Kind(_boolean),
    "l2_normalized": Kind(_l2_normalized, bulk=True),
    "probabilities": Kind(_probabilities, bulk=True),
    "router_logits": Kind(_router_logits),
    "scales": Kind(_scales, bulk=True),
    "quantized": Kind(_quantized, bulk=True),
    "fp4": Kind(_fp4, bulk=True),
    "fp8_pages": Kind(_fp8_pages, bulk=True),
    "cos_sin_cache": Kind(_cos_sin_cache),
    "cos": Kind(_cos),
    "sin": Kind(_sin),
    "indptr": Kind(_indptr, implies=_indptr_implies),
    "last_page_len": Kind(_last_page_len),
    "indices": Kind(_indices, implies=_indices_implies),
    "permutation": Kind(_permutation),
    "seq_lens": Kind(_seq_lens, implies=_seq_lens_implies),
    "block_table": Kind(_block_table),
    "positions": Kind(_positions),
    "topk_ids": Kind(_topk_ids, implies=_experts_imply),
    "safetensors": Kind(_safetensors),
    "routing": Kind(_routing, implies=_experts_imply),
}
