"""Honest ways to compute the project's definitions, for calibration.py."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_fib.data import Definition

Tensor = torch.Tensor

# --- honest: sums -------------------------------------------------------------------------------


def _split(x: Tensor, parts: int = 16) -> Tensor:
    return torch.stack([part.sum(-1, keepdim=True) for part in x.chunk(parts, -1)]).sum(0)


def _lanes(x: Tensor, lanes: int = 32) -> Tensor:
    """Each lane adds every 32nd element one after the other, then the lanes are added in a tree."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % lanes)).unflatten(-1, (-1, lanes))
    return padded.cumsum(-2)[..., -1, :].sum(-1, keepdim=True)


SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "reversed": lambda x: x.flip(-1).sum(-1, keepdim=True),
    "split": _split,
    "lanes": _lanes,
    "one by one": lambda x: x.cumsum(-1)[..., -1:],
    "wide": lambda x: x.double().sum(-1, keepdim=True).float(),
}

# --- honest: operators --------------------------------------------------------------------------


def rmsnorm(add: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    root = torch.rsqrt(add(wide * wide) / x.shape[-1] + eps)
    return (wide * (root * weight.float())).to(x.dtype)


def rmsnorm_divided(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    root = (add_squares(wide) / x.shape[-1] + eps).sqrt()
    return (wide / root * weight.float()).to(x.dtype)


def rmsnorm_twice_rounded(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As in many model codes: the normalised row is rounded before it is weighted."""
    wide = x.float()
    normalised = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
    return normalised * weight


def rmsnorm_approximate(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The root as the GPU's ``rsqrt.approx``: off by 2**-22."""
    wide = x.float()
    root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * (1 + 2.0**-22)
    return (wide * root * weight.float()).to(x.dtype)


def rmsnorm_scaled_first(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Over the largest of the row first, so that no square is beyond the numbers."""
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True).clamp_min(1e-18)
    ratio = wide / largest
    mean = ratio.pow(2).mean(-1, keepdim=True) + eps / largest / largest
    return (ratio / mean.sqrt() * weight.float()).to(x.dtype)


def add_squares(wide: Tensor) -> Tensor:
    return (wide.flip(-1) ** 2).sum(-1, keepdim=True)


def fused_add(add: Callable[[Tensor], Tensor], x: Tensor, r: Tensor, w: Tensor, eps: float) -> Any:
    total = x.float() + r.float()
    root = torch.rsqrt(add(total * total) / x.shape[-1] + eps)
    return (total * root * w.float()).to(x.dtype), total.to(x.dtype)


def layernorm(
    add: Callable[[Tensor], Tensor], x: Tensor, w: Tensor, b: Tensor, eps: float
) -> Tensor:
    wide = x.float()
    centred = wide - add(wide) / x.shape[-1]
    root = torch.rsqrt(add(centred * centred) / x.shape[-1] + eps)
    return (centred * root * w.float() + b.float()).to(x.dtype)


def layernorm_one_pass(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    """The variance from both sums, of what is left of the row's first number."""
    wide = x.float()
    moved = wide - wide[..., :1]
    mean = moved.mean(-1, keepdim=True)
    variance = (moved.pow(2).mean(-1, keepdim=True) - mean * mean).clamp_min(0)
    return ((moved - mean) * torch.rsqrt(variance + eps) * w.float() + b.float()).to(x.dtype)


def layernorm_welford(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    """Means and squares of 32 lanes, merged two by two (Chan, Golub and LeVeque 1979)."""
    wide = x.float()
    lanes = torch.stack(wide.chunk(32, -1))
    mean = lanes.mean(-1, keepdim=True)
    squares = (lanes - mean).pow(2).sum(-1, keepdim=True)
    count = lanes.shape[-1]
    while len(mean) > 1:
        apart = mean[1::2] - mean[::2]
        squares = squares[::2] + squares[1::2] + apart * apart * (count / 2)
        mean, count = mean[::2] + apart / 2, 2 * count
    root = torch.rsqrt(squares[0] / count + eps)
    return ((wide - mean[0]) * (root * w.float()) + b.float()).to(x.dtype)


def layernorm_folded(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    """As one factor and one offset for each element."""
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    root = torch.rsqrt((wide - mean).pow(2).mean(-1, keepdim=True) + eps)
    factor = root * w.float()
    return (wide.double() * factor.double() + (b.float() - mean * factor).double()).to(x.dtype)


def layernorm_double(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    """The last product and sum in one rounding."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    root = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return ((centred * root).double() * w.double() + b.double()).float().to(x.dtype)


def gemm_split(parts: int, a: Tensor, b: Tensor) -> Tensor:
    pairs = zip(a.chunk(parts, -1), b.chunk(parts, -1), strict=True)
    return sum(p.float() @ q.float().T for p, q in pairs).to(a.dtype)  # type: ignore[union-attr]


def gemm_tiles(size: int, a: Tensor, b: Tensor) -> Tensor:
    out = torch.zeros(a.shape[0], b.shape[0])
    for k in range(0, a.shape[1], size):
        out += a[:, k : k + size].float() @ b[:, k : k + size].float().T
    return out.to(a.dtype)


def gemm_wide(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() @ b.double().T).float().to(a.dtype)


def gemm_reversed(a: Tensor, b: Tensor) -> Tensor:
    return (a.float().flip(-1) @ b.float().flip(-1).T).to(a.dtype)


def gemm_shuffled(a: Tensor, b: Tensor) -> Tensor:
    """Partial sums in the order in which blocks happen to end."""
    generator = torch.Generator("cpu").manual_seed(0)
    order = torch.randperm(-(-a.shape[1] // 8), generator=generator, device="cpu").tolist()
    out = torch.zeros(a.shape[0], b.shape[0])
    for i in order:
        part = slice(8 * i, 8 * i + 8)
        out += a[:, part].float() @ b[:, part].float().T
    return out.to(a.dtype)


def gemm_outer(a: Tensor, b: Tensor) -> Tensor:
    """One product after the other, each with its sum in one rounding."""
    out = torch.zeros(a.shape[0], b.shape[0])
    for p, q in zip(a.T.double(), b.T.double(), strict=True):
        out = (out.double() + p[:, None] * q).float()
    return out.to(a.dtype)


def grouped(
    gemm: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, indptr: Tensor
) -> Tensor:
    out = a.new_empty((a.shape[0], b.shape[1]))
    bounds = indptr.tolist()
    for group, (start, end) in enumerate(pairwise(bounds)):
        out[start:end] = gemm(a[start:end], b[group])
    return out


GEMMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "own": lambda a, b: (a.float() @ b.float().T).to(a.dtype),
    "split": partial(gemm_split, 4),
    "tiles of 16": partial(gemm_tiles, 16),
    "tiles of 8": partial(gemm_tiles, 8),
    "wide": gemm_wide,
    "reversed": gemm_reversed,
    "shuffled": gemm_shuffled,
}


def scale(x: Tensor, factor: float) -> Tensor:
    return x * factor


def silu(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return (up * (gate / (1 + torch.exp(-gate)))).to(x.dtype)


def silu_tanh(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return (gate * (0.5 + 0.5 * torch.tanh(0.5 * gate)) * up).to(x.dtype)


def silu_by(gated: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return (gated(gate) * up).to(x.dtype)


def silu_sigmoid_rounded(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return (gate * torch.sigmoid(gate).to(x.dtype).float() * up).to(x.dtype)


def silu_up_first(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return (gate * up / (1 + torch.exp(-gate))).to(x.dtype)


def silu_twice_rounded(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def rope(q: Tensor, k: Tensor, cache: Tensor, positions: Tensor, way: str = "plain") -> Any:
    cos, sin = cache[positions].unsqueeze(1).chunk(2, -1)
    return tuple(_turned(x, cos, sin, way).to(x.dtype) for x in (q, k))


def _turned(x: Tensor, cos: Tensor, sin: Tensor, way: str) -> Tensor:
    half = cos.shape[-1]
    dtype = torch.float64 if way in ("fused", "wide") else torch.float32
    first, second = x[..., :half].to(dtype), x[..., half : 2 * half].to(dtype)
    rest = x[..., 2 * half :].float()
    if way == "complex":
        turned = torch.complex(first, second) * torch.complex(cos, sin)
        return torch.cat([turned.real, turned.imag, rest], -1)
    if way == "rotated half":
        both, other = torch.cat([first, second], -1), torch.cat([-second, first], -1)
        twice = (torch.cat([part, part], -1) for part in (cos, sin))
        c, s = twice
        return torch.cat([both * c + other * s, rest], -1)
    c, s = cos.to(dtype), sin.to(dtype)
    if way == "fused":  # one of the products is rounded, the other is not
        turned = (first * c - (second * s).float(), (first * s).float() + second * c)
    else:
        turned = (first * c - second * s, first * s + second * c)
    return torch.cat([*(part.float() for part in turned), rest], -1)


def softmaxed(logits: Tensor, ids: Tensor, way: str) -> Tensor:
    if way == "wide":
        return logits.double().softmax(-1).float().gather(-1, ids)
    if way == "logarithm":
        return (logits.gather(-1, ids) - torch.logsumexp(logits, -1, keepdim=True)).exp()
    top = logits.amax(-1, keepdim=True)
    if way == "online":
        return _online_softmax(logits, ids)
    base2 = (logits - top) * math.log2(math.e)
    weights = torch.exp2(base2) if way == "base 2" else torch.exp(logits - top)
    total = weights.flip(-1).sum(-1, keepdim=True)
    return (weights * (1 / total) if way == "multiplied" else weights / total).gather(-1, ids)


def _online_softmax(logits: Tensor, ids: Tensor) -> Tensor:
    """In parts of 8, each with a maximum of its own."""
    top, total = torch.full((*logits.shape[:-1], 1), -math.inf), torch.zeros(())
    for part in logits.split(8, -1):
        higher = torch.maximum(top, part.amax(-1, keepdim=True))
        base = torch.where(higher == -math.inf, 0.0, higher)
        total = total * torch.exp(top - base) + torch.exp(part - base).sum(-1, keepdim=True)
        top = higher
    return torch.exp(logits.gather(-1, ids) - top) / total


def routing(k: int, way: str, logits: Tensor) -> Any:
    ids = logits.topk(k, -1).indices
    return softmaxed(logits, ids, way), ids.int()


def routing_sorted(logits: Tensor, k: int) -> Any:
    """Another order of equal logits."""
    backwards = logits.flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :k]
    ids = logits.shape[-1] - 1 - backwards
    return softmaxed(logits, ids, "divided"), ids.int()


# --- honest: attention --------------------------------------------------------------------------

ATTENTIONS = (
    "plain",
    "wide",
    "scaled first",
    "reversed",
    "online",
    "tiles of 64, weights rounded",
    "split in four",
    "scaled first, base 2",
    "rescaled late",
    "normalised, then rounded",
)


def attention(names: Sequence[str], way: str, *values: Any) -> Any:
    """Any of the attention definitions, by the names of its inputs."""
    given = dict(zip(names, values, strict=True))
    q, keys, contents = _parts(given)
    bounds = given["qo_indptr"].tolist() if "qo_indptr" in given else list(range(len(q) + 1))
    output = torch.zeros((*q.shape[:2], contents.shape[-1]), dtype=contents.dtype)
    lse = torch.full(q.shape[:2], -math.inf)
    for i, (start, end) in enumerate(pairwise(bounds)):
        at = _tokens(given, i)
        if end > start and len(at):
            k, v = keys.flatten(0, -3)[at], contents.flatten(0, -3)[at]
            out, lse[start:end] = attend(way, q[start:end], k, v, given["sm_scale"])
            output[start:end] = out.to(output.dtype)
    return output, lse


def _parts(given: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [n, heads, d], keys and values [..., kv heads, d]."""
    if "q_nope" not in given:
        names = ("k_cache", "v_cache") if "k_cache" in given else ("k", "v")
        return given["q"], given[names[0]], given[names[1]]
    contents = given["ckv_cache"].unsqueeze(-2)
    keys = torch.cat([contents, given["kpe_cache"].unsqueeze(-2)], -1)
    return torch.cat([given["q_nope"], given["q_pe"]], -1), keys, contents


def _tokens(given: dict[str, Any], i: int) -> Tensor:
    """Where the tokens of a sequence lie among those of all."""
    start, end = given["kv_indptr"][i : i + 2].tolist()
    if "kv_indices" not in given:
        return torch.arange(start, end)
    pages = given["kv_indices"][start:end].long()
    size = (given["k_cache"] if "k_cache" in given else given["ckv_cache"]).shape[1]
    at = (pages[:, None] * size + torch.arange(size)).flatten()
    last = given.get("kv_last_page_len")
    return at if last is None or not len(at) else at[: len(at) - size + int(last[i])]


def attend(way: str, q: Tensor, k: Tensor, v: Tensor, scale_by: float) -> tuple[Tensor, Tensor]:
    """q [n, heads, d], k and v [tokens, kv heads, .] -> [n, heads, .] and lse to base 2."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.float() for x in (q, *(x.repeat_interleave(group, 1) for x in (k, v))))
    if way == "wide":
        logits = (torch.einsum("qhd,thd->hqt", q.double(), k.double()) * scale_by).float()
    elif way == "scaled first":
        logits = torch.einsum("qhd,thd->hqt", q * scale_by, k)
    elif way == "scaled first, base 2":
        logits = torch.einsum("qhd,thd->hqt", q * (scale_by * math.log2(math.e)), k) * math.log(2)
    else:
        logits = torch.einsum("qhd,thd->hqt", q, k) * scale_by
    tokens = torch.arange(len(k))
    sees = tokens[len(k) - len(q) :, None]
    logits = logits.masked_fill(tokens > sees, -math.inf)
    if way == "reversed":
        logits, v = logits.flip(-1), v.flip(0)
    if way == "split in four":
        parts = list(zip(logits.chunk(4, -1), v.chunk(4, 0), strict=True))
        return _merged([_online(*part, len(k), None) for part in parts])
    if way == "normalised, then rounded":
        weights = torch.softmax(logits, -1).bfloat16().float()
        lse = torch.logsumexp(logits, -1) * math.log2(math.e)
        return torch.einsum("hqt,thd->qhd", weights, v), lse.T
    tile = {"online": 16, "tiles of 64, weights rounded": 64}.get(way, len(k))
    late = 8.0 if way == "rescaled late" else 0.0
    tile = 16 if late else tile
    rounded = torch.bfloat16 if "rounded" in way else None
    top, total, out = _online(logits, v, tile, rounded, late)
    return _finished(top, total, out)


def _finished(top: Tensor, total: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    return (out / total).transpose(0, 1), (top + total.log2()).squeeze(-1).T


def _merged(parts: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Partial results of a split reduction, as flash decoding has them."""
    tops, totals, outs = (torch.stack(each) for each in zip(*parts, strict=True))
    top = tops.amax(0)
    fade = torch.exp2(tops - top)
    return _finished(top, (totals * fade).sum(0), (outs * fade).sum(0))


def _online(
    logits: Tensor, v: Tensor, tile: int, rounded: torch.dtype | None, late: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Online softmax (Milakov and Gimelshein 2018), in powers of two: top, total, sums.

    Where the maximum grows by no more than ``late``, what was summed is not scaled again.
    """
    base2 = logits * math.log2(math.e)
    top = torch.full((*logits.shape[:2], 1), -math.inf)
    total, out = torch.zeros(top.shape), torch.zeros(*logits.shape[:2], v.shape[-1])
    for start in range(0, logits.shape[-1], tile):
        part = base2[..., start : start + tile]
        higher = torch.maximum(top, part.amax(-1, keepdim=True))
        higher = torch.where(higher - top <= late, top, higher) if late else higher
        base = torch.where(higher == -math.inf, 0.0, higher)
        weights = torch.exp2(part - base)
        fade = torch.exp2(top - base)
        total = total * fade + weights.sum(-1, keepdim=True)
        weights = weights if rounded is None else weights.to(rounded).float()
        out = out * fade + torch.einsum("hqt,thd->hqd", weights, v[start : start + tile])
        top = higher
    return top, total, out


# --- honest: states -----------------------------------------------------------------------------

READS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "plain": lambda x, y: (x * y).sum(-1),
    "reversed": lambda x, y: (x * y).flip(-1).sum(-1),
    "one by one": lambda x, y: (x * y).cumsum(-1)[..., -1],
    "split": lambda x, y: _split(x * y, 4)[..., 0],
    "wide": lambda x, y: (x.double() * y.double()).sum(-1).float(),
    "product": lambda x, y: (x @ y.expand_as(x)[..., :1, :].mT)[..., 0],
}


def mamba(read: str, *inputs: Any) -> Any:
    state, x, dt, a, b, c, d, dt_bias, at = inputs
    share = x.shape[1] // b.shape[1]
    inward, outward = (t.float().repeat_interleave(share, 1)[:, :, None] for t in (b, c))
    step = dt.float() + dt_bias
    if read == "reversed":
        step = torch.logaddexp(step, torch.zeros_like(step))
    else:
        step = torch.nn.functional.softplus(step)
    old = state[at.long()].float()
    if read == "reversed":
        fade = torch.exp2((a * math.log2(math.e)).double() * step[..., None]).float()
    elif read == "split":
        fade = torch.exp2(a * math.log2(math.e) * step[..., None])
    else:
        fade = torch.exp(a * step[..., None])
    taken = (step * x.float())[..., None]
    fused = read == "wide"
    new = _fma(taken, inward, fade.double() * old) if fused else fade * old + taken * inward
    output = READS[read](new, outward) + d * x.float()
    return output.to(x.dtype), new.to(state.dtype)


def _fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """A product and a sum, rounded once."""
    return (x.double() * y.double() + z.double()).float()


def delta(read: str, *inputs: Any) -> Any:
    q, k, v, state, a_log, a, dt_bias, b, scale_by = inputs
    share = v.shape[2] // q.shape[2]
    query, key = (t[:, 0].float().repeat_interleave(share, 1)[:, :, None] for t in (q, k))
    step = torch.nn.functional.softplus(a[:, 0].float() + dt_bias)
    gate = torch.exp(-torch.exp(a_log) * step)[..., None, None]
    beta = torch.sigmoid(b[:, 0].float())[..., None]
    decayed = gate * state
    held = READS[read](decayed, key)
    value = v[:, 0].float()
    update = beta * value - beta * held if read == "one by one" else beta * (value - held)
    if read == "wide":
        new = _fma(update[..., None], key, decayed)
    else:
        new = decayed + update[..., None] * key
    query = query * scale_by if read == "split" else query
    output = READS[read](new, query) * (1.0 if read == "split" else scale_by)
    return output[:, None].to(q.dtype), new


# --- honest: block scales and experts -----------------------------------------------------------

BLOCK = 128


def _spread(scale_of: Tensor, dim: int, size: int = BLOCK) -> Tensor:
    return scale_of.repeat_interleave(size, dim)


def block_scaled(way: str, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    """[m, k] and [n, k] in fp8 -> [m, n] in float32."""
    rows = torch.arange(len(b)) // BLOCK
    if way in PRODUCTS:
        left = a.float() * _spread(a_scale, 1)
        right = b.float() * _spread(_spread(b_scale, 0)[: len(b)], 1)
        return PRODUCTS[way](left, right)
    out = torch.zeros(len(a), len(b))
    if way == "14 bits":
        return _in_14_bits(a, b, a_scale, b_scale)
    blocks = list(range(a_scale.shape[1]))
    for block in blocks[::-1] if way == "blocks backwards" else blocks:
        columns = slice(block * BLOCK, (block + 1) * BLOCK)
        partial_sum = a[:, columns].float() @ b[:, columns].float().T
        both = a_scale[:, block, None] * b_scale[rows, block]
        out += partial_sum * both
    return out


def _in_14_bits(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    """Sums of each 32 products as Hopper's matrix units keep those of fp8, a block in float32."""
    rows = torch.arange(len(b)) // BLOCK
    out = torch.zeros(len(a), len(b))
    for start in range(0, a.shape[1], 32):
        columns = slice(start, start + 32)
        total = (a[:, columns].float() @ b[:, columns].float().T).view(torch.int32)
        both = a_scale[:, start // BLOCK, None] * b_scale[rows, start // BLOCK]
        out += (total & -(1 << 10)).view(torch.float32) * both
    return out


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "own": lambda x, y: x @ y.T,
    "wide": lambda x, y: (x.double() @ y.double().T).float(),
    "reversed": lambda x, y: x.flip(-1) @ y.flip(-1).T,
    "tiles of 32": lambda x, y: sum(
        (p @ q.T for p, q in zip(x.split(32, -1), y.split(32, -1), strict=True)), torch.zeros(())
    ),
}
SCALED = (*PRODUCTS, "blocks", "blocks backwards", "14 bits")


def fp8_gemm(way: str, *inputs: Tensor) -> Tensor:
    return block_scaled(way, *inputs).bfloat16()


def gemv(way: str, a: Tensor, b: Tensor, sfa: Tensor, sfb: Tensor) -> Tensor:
    left, right = (_e2m1(packed) for packed in (a, b))
    scales = [s.float() for s in (sfa, sfb)]
    if way == "blocks":
        sums = (left * right).unflatten(1, (-1, 16)).sum(2)
        return (sums * scales[0] * scales[1]).sum(1, keepdim=True).half()
    terms = (left * _spread(scales[0], 1, 16)) * (right * _spread(scales[1], 1, 16))
    return SUMS[way](terms.transpose(1, 2)).transpose(1, 2).half()


def _e2m1(packed: Tensor) -> Tensor:
    pairs = packed.view(torch.uint8)
    codes = torch.stack((pairs & 15, pairs >> 4), dim=2).flatten(1, 2).long()
    magnitude = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))[codes & 7]
    return torch.where(codes >= 8, -magnitude, magnitude)


def moe(way: str, *inputs: Any) -> Tensor:
    """``way`` is a product, ``weighted first``, ``experts backwards`` or ``middle rounded``."""
    logits, bias, x, x_scale, w1, s1, w2, s2, offset, factor = inputs
    experts, weights = _routed(logits, bias, factor)
    output = torch.zeros(x.shape)
    order = list(range(len(w1)))
    product = way if way in SCALED else "own"
    for local in order[::-1] if way == "experts backwards" else order:
        tokens, slots = torch.nonzero(experts == offset + local, as_tuple=True)
        if not len(tokens):
            continue
        first = block_scaled(product, x[tokens], w1[local], x_scale.T[tokens], s1[local])
        up, gate = first.chunk(2, -1)
        hidden = up * (gate / (1 + torch.exp(-gate)))
        share = weights[tokens, slots, None]
        if way == "weighted first":
            hidden, share = hidden * share, torch.ones_like(share)
        if way == "middle rounded":
            hidden = hidden.bfloat16().float()
        ones = torch.ones(len(hidden), s2.shape[-1])
        added = share * block_scaled(product, hidden, w2[local], ones, s2[local])
        output[tokens] += added.bfloat16() if way == "parts rounded" else added
    return output.bfloat16()


def _routed(logits: Tensor, bias: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """DeepSeek-V3's routing to 8 of the experts in 4 of 8 groups."""
    scores = logits.float().sigmoid()
    groups = (scores + bias.float()).unflatten(1, (8, -1))
    rank = groups.topk(2, -1).values.sum(-1).argsort(-1, descending=True).argsort(-1)
    allowed = groups.masked_fill((rank >= 4)[..., None], -torch.inf).flatten(1)
    experts = allowed.topk(8, -1).indices
    chosen = scores.gather(1, experts)
    return experts, chosen / chosen.sum(-1, keepdim=True) * factor


def _routing_ways(definition: Definition) -> dict[str, Callable[..., Any]]:
    k = definition.const_axes["topk"]
    ways: dict[str, Callable[..., Any]] = {
        way: partial(routing, k, way)
        for way in ("divided", "multiplied", "base 2", "logarithm", "online", "wide")
    }
    return ways | {"other ties": partial(routing_sorted, k=k)}


def honest(definition: Definition) -> dict[str, Callable[..., Any]]:
    """The honest ways to compute a definition; none where it is not known."""
    if definition.op_type == "routing":
        return _routing_ways(definition)
    if definition.op_type in ("gqa_paged", "gqa_ragged", "mla_paged"):
        names = tuple(definition.inputs)
        return {way: partial(attention, names, way) for way in ATTENTIONS}
    return HONEST.get(definition.op_type, {})


HONEST: dict[str, dict[str, Callable[..., Any]]] = {
    "rmsnorm": {
        **{name: partial(rmsnorm, add) for name, add in SUMS.items()},
        "divided": rmsnorm_divided,
        "approximate root": rmsnorm_approximate,
        "scaled first": rmsnorm_scaled_first,
        "twice rounded": rmsnorm_twice_rounded,
    },
    "fused_add_rmsnorm": {
        **{name: partial(fused_add, add) for name, add in SUMS.items()},
        "sum rounded first": lambda x, r, w, eps: (rmsnorm(_lanes, x + r, w, eps), x + r),
    },
    "layernorm": {
        **{name: partial(layernorm, add) for name, add in SUMS.items()},
        "fused": layernorm_double,
        "folded": layernorm_folded,
        "one pass": layernorm_one_pass,
        "Welford": layernorm_welford,
        "torch": lambda x, w, b, eps: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, eps),
    },
    "gemm": {**GEMMS, "outer": gemm_outer},
    "grouped_gemm": {name: partial(grouped, gemm) for name, gemm in GEMMS.items()},
    "scale": {
        "plain": scale,
        "wide": lambda x, f: (x.double() * f).to(x.dtype),
        "float32": lambda x, f: (torch.tensor(f, dtype=torch.float32) * x.float()).to(x.dtype),
        "halves": lambda x, f: ((x.float() * (f / 2)) * 2).to(x.dtype),
        "divided": lambda x, f: (x.float() / (1 / f) if f else x.float() * f).to(x.dtype),
        "added to zero": lambda x, f: torch.zeros(x.shape).add(x.float(), alpha=f).to(x.dtype),
    },
    "silu_and_mul": {
        "divided": silu,
        "tanh": silu_tanh,
        "twice rounded": silu_twice_rounded,
        "sigmoid rounded": silu_sigmoid_rounded,
        "up first": silu_up_first,
        "base 2": partial(silu_by, lambda g: g / (1 + torch.exp2(-g * math.log2(math.e)))),
        "reciprocal": partial(silu_by, lambda g: g * (1 / (1 + torch.exp(-g)))),
        "wide": partial(silu_by, lambda g: torch.nn.functional.silu(g.double())),
    },
    "rope": {
        "plain": rope,
        "fused": partial(rope, way="fused"),
        "complex": partial(rope, way="complex"),
        "rotated half": partial(rope, way="rotated half"),
        "wide": partial(rope, way="wide"),
    },
    "mamba_ssu": {way: partial(mamba, way) for way in READS if way != "product"},
    "gdn": {way: partial(delta, way) for way in READS if way != "product"},
    "fp8_block_scale_gemm": {way: partial(fp8_gemm, way) for way in SCALED},
    "nvfp4_gemv": {way: partial(gemv, way) for way in (*SUMS, "blocks")},
    "moe": {
        way: partial(moe, way)
        for way in (
            *SCALED,
            "weighted first",
            "experts backwards",
            "middle rounded",
            "parts rounded",
        )
    },
}
