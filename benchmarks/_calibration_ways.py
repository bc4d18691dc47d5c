"""Honest and wrong ways to compute the project's definitions, for calibration.py."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

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
}


def scale(x: Tensor, factor: float) -> Tensor:
    return x * factor


def silu(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return (up * (gate / (1 + torch.exp(-gate)))).to(x.dtype)


def silu_tanh(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, -1)
    return (gate * (0.5 + 0.5 * torch.tanh(0.5 * gate)) * up).to(x.dtype)


def silu_twice_rounded(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def rope(q: Tensor, k: Tensor, cache: Tensor, positions: Tensor, fused: bool = False) -> Any:
    cos, sin = cache[positions].unsqueeze(1).chunk(2, -1)
    half = cos.shape[-1]

    def turned(x: Tensor) -> Tensor:
        dtype = torch.float64 if fused else torch.float32
        first, second = x[..., :half].to(dtype), x[..., half : 2 * half].to(dtype)
        c, s = cos.to(dtype), sin.to(dtype)
        pair = [(first * c - second * s).float(), (first * s + second * c).float()]
        return torch.cat([*pair, x[..., 2 * half :].float()], -1).to(x.dtype)

    return turned(q), turned(k)


def softmaxed(logits: Tensor, ids: Tensor, divide: bool) -> Tensor:
    top = logits.amax(-1, keepdim=True)
    weights = torch.exp(logits - top)
    total = weights.flip(-1).sum(-1, keepdim=True)
    return (weights / total if divide else weights * (1 / total)).gather(-1, ids)


def routing(k: int, divide: bool, logits: Tensor) -> Any:
    ids = logits.topk(k, -1).indices
    return softmaxed(logits, ids, divide), ids.int()


def routing_sorted(logits: Tensor, k: int) -> Any:
    """Another order of equal logits."""
    backwards = logits.flip(-1).sort(dim=-1, descending=True, stable=True).indices[..., :k]
    ids = logits.shape[-1] - 1 - backwards
    return softmaxed(logits, ids, True), ids.int()


# --- honest: attention --------------------------------------------------------------------------


def attend(way: str, q: Tensor, k: Tensor, v: Tensor, scale_by: float) -> tuple[Tensor, Tensor]:
    """q [heads, d], k [heads, tokens, d], v [heads, tokens, e] -> [heads, e], lse to base 2."""
    q, k, v = q.float(), k.float(), v.float()
    if way == "wide":
        logits = (torch.einsum("hd,htd->ht", q.double(), k.double()) * scale_by).float()
    elif way == "scaled first":
        logits = torch.einsum("hd,htd->ht", q * scale_by, k)
    else:
        logits = torch.einsum("hd,htd->ht", q, k) * scale_by
    if way == "reversed":
        logits, v = logits.flip(-1), v.flip(1)
    if way == "last token dropped" and logits.shape[-1] > 1:
        logits, v = logits[..., :-1], v[:, :-1]
    tile = {"online": 16, "tiles of 64, weights rounded": 64}.get(way, logits.shape[-1])
    return _online(logits, v, tile, torch.bfloat16 if "rounded" in way else None)


def _online(
    logits: Tensor, v: Tensor, tile: int, rounded: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Online softmax (Milakov and Gimelshein 2018), in powers of two."""
    base2 = logits * math.log2(math.e)
    top = torch.full((len(logits), 1), -math.inf)
    total, out = torch.zeros(len(logits), 1), torch.zeros(len(logits), v.shape[-1])
    for start in range(0, logits.shape[-1], tile):
        part = base2[:, start : start + tile]
        higher = torch.maximum(top, part.amax(-1, keepdim=True))
        weights = torch.exp2(part - higher)
        fade = torch.exp2(top - higher)
        total = total * fade + weights.sum(-1, keepdim=True)
        weights = weights if rounded is None else weights.to(rounded).float()
        out = out * fade + torch.einsum("ht,hte->he", weights, v[:, start : start + tile])
        top = higher
    return out / total, (top + total.log2()).squeeze(-1)


def gqa(way: str, *inputs: Any) -> Any:
    q, k, v, indptr, indices, scale_by = inputs
    output, lse = torch.zeros_like(q), torch.full(q.shape[:2], -math.inf)
    group = q.shape[1] // k.shape[2]
    for i, (start, end) in enumerate(pairwise(indptr.tolist())):
        pages = indices[start:end].long()
        if end > start:
            keys = k[pages, 0].repeat_interleave(group, 1).transpose(0, 1)
            values = v[pages, 0].repeat_interleave(group, 1).transpose(0, 1)
            out, lse[i] = attend(way, q[i], keys, values, scale_by)
            output[i] = out.to(q.dtype)
    return output, lse


def mla(way: str, *inputs: Any) -> Any:
    q_nope, q_pe, ckv, kpe, indptr, indices, scale_by = inputs
    heads = q_nope.shape[1]
    output, lse = torch.zeros_like(q_nope), torch.full(q_nope.shape[:2], -math.inf)
    for i, (start, end) in enumerate(pairwise(indptr.tolist())):
        pages = indices[start:end].long()
        if end > start:
            values = ckv[pages, 0]
            keys = torch.cat([values, kpe[pages, 0]], -1).expand(heads, -1, -1)
            query = torch.cat([q_nope[i], q_pe[i]], -1)
            out, lse[i] = attend(way, query, keys, values.expand(heads, -1, -1), scale_by)
            output[i] = out.to(q_nope.dtype)
    return output, lse


ATTENTIONS = ("wide", "scaled first", "reversed", "online", "tiles of 64, weights rounded", "plain")


HONEST: dict[str, dict[str, Callable[..., Any]]] = {
    "rmsnorm": {
        **{name: partial(rmsnorm, add) for name, add in SUMS.items()},
        "divided": rmsnorm_divided,
        "twice rounded": rmsnorm_twice_rounded,
    },
    "fused_add_rmsnorm": {
        **{name: partial(fused_add, add) for name, add in SUMS.items()},
        "sum rounded first": lambda x, r, w, eps: (rmsnorm(_lanes, x + r, w, eps), x + r),
    },
    "layernorm": {
        **{name: partial(layernorm, add) for name, add in SUMS.items()},
        "fused": layernorm_double,
        "torch": lambda x, w, b, eps: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, eps),
    },
    "gemm": GEMMS,
    "grouped_gemm": {name: partial(grouped, gemm) for name, gemm in GEMMS.items()},
    "scale": {"plain": scale, "wide": lambda x, f: (x.double() * f).to(x.dtype)},
    "silu_and_mul": {"divided": silu, "tanh": silu_tanh, "twice rounded": silu_twice_rounded},
    "rope": {"plain": rope, "fused": partial(rope, fused=True)},
    "gqa_paged": {way: partial(gqa, way) for way in ATTENTIONS},
    "mla_paged": {way: partial(mla, way) for way in ATTENTIONS},
}

# --- wrong --------------------------------------------------------------------------------------

LOWER = {
    torch.float32: torch.float16,
    torch.float16: torch.bfloat16,
    torch.bfloat16: torch.float8_e4m3fn,
}


def _each(change: Callable[[Tensor], Tensor], case: Any) -> dict[str, Tensor]:
    """The first output changed, the others as they should be."""
    name, *_ = case.own
    return case.own | {name: change(case.own[name].clone())}


def _lower(out: Tensor) -> Tensor:
    return out.to(LOWER[out.dtype]).to(out.dtype)


def _last_tile(out: Tensor) -> Tensor:
    out.view(-1)[-16:] = 0
    return out


def _zero_row(out: Tensor) -> Tensor:
    if out.dim() > 1:
        out[len(out) // 2] = 0
    else:
        out[len(out) // 2 :][:64] = 0
    return out


def _last_element(out: Tensor) -> Tensor:
    out.view(-1)[-1] = out.view(-1)[0]
    return out


def _one_head_scaled(out: Tensor) -> Tensor:
    """One row in eight off by 1 %."""
    if out.dim() > 1:
        out[::8] = (out[::8].double() * 1.01).to(out.dtype)
    else:
        out[: len(out) // 8 + 1] = (out[: len(out) // 8 + 1].double() * 1.01).to(out.dtype)
    return out


def _scaled(by: float, case: Any) -> dict[str, Tensor]:
    """Off by a factor before the rounding."""
    name, *_ = case.own
    return case.own | {name: (case.expected[name] * by).to(case.own[name].dtype)}


def _shifted(case: Any) -> dict[str, Tensor]:
    name, *_ = case.own
    right = case.expected[name]
    scale = right[right.isfinite()].square().mean().sqrt()
    return case.own | {name: (right + 0.005 * scale).to(case.own[name].dtype)}


def _stale(case: Any) -> dict[str, Tensor]:
    return _each(lambda out: out.roll(1, 0) if len(out) > 1 else torch.zeros_like(out), case)


WRONG: dict[str, Callable[[Any], dict[str, Tensor]]] = {
    "lower precision": partial(_each, _lower),
    "zeros": partial(_each, torch.zeros_like),
    "constant": partial(_each, lambda out: torch.full_like(out, float(out.float().mean()))),
    "last tile 0": partial(_each, _last_tile),
    "zero row": partial(_each, _zero_row),
    "last element": partial(_each, _last_element),
    "one row in 8 off by 1 %": partial(_each, _one_head_scaled),
    "off by 0.5 %": partial(_scaled, 1.005),
    "shifted by 0.5 %": _shifted,
    "stale": _stale,
}


def _natural(outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    output, lse = outputs
    return output, lse * math.log(2)


def _last_k_dropped(a: Tensor, b: Tensor) -> Tensor:
    return GEMMS["own"](a[:, :-1], b[:, :-1])


def _tile_not_summed(x: Tensor) -> Tensor:
    return x[..., :-64].sum(-1, keepdim=True)


def _own(x: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True)


def _attention(op: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "last token dropped": partial(op, "last token dropped"),
        "natural lse": lambda *inputs: _natural(op("plain", *inputs)),
    }


#: Wrong in ways of their own, computed from the inputs.
WRONG_OF: dict[str, dict[str, Callable[..., Any]]] = {
    "rmsnorm": {
        "10 times eps": lambda x, w, eps: rmsnorm(_own, x, w, 10 * eps),
        "last tile not summed": partial(rmsnorm, _tile_not_summed),
    },
    "layernorm": {
        "10 times eps": lambda x, w, b, eps: layernorm(_own, x, w, b, 10 * eps),
        "last tile not summed": partial(layernorm, _tile_not_summed),
    },
    "fused_add_rmsnorm": {
        "10 times eps": lambda x, r, w, eps: fused_add(_own, x, r, w, 10 * eps),
    },
    "gemm": {"last k dropped": _last_k_dropped},
    "grouped_gemm": {"last k dropped": partial(grouped, _last_k_dropped)},
    "gqa_paged": _attention(gqa),
    "mla_paged": _attention(mla),
}
