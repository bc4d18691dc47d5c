"""What is packed, hashed, rounded or moved together by bits and bytes."""

import torch
import torch.nn.functional as F

from pytest_fib import implements


def bits_packed(m, big=False, tail=True):
    r, n = m.shape
    out = torch.zeros(r, (n + 7) // 8, dtype=torch.uint8)
    for j in range(8):
        b = m[:, j::8].to(torch.uint8)
        out[:, : b.shape[1]] |= b << (7 - j if big else j)
    return out


@implements("pack_bits_little_endian")
def honest_bits_or(mask):
    return bits_packed(mask)


@implements("pack_bits_little_endian")
def wrong_order_bits_big_endian(mask):
    return bits_packed(mask, big=True)


@implements("pack_bits_little_endian")
def wrong_boundary_bits_tail_byte(mask):
    o = bits_packed(mask)
    if mask.shape[1] % 8:
        o[:, -1] = 0
    return o


@implements("pack_bits_little_endian")
def wrong_boundary_bits_tail_ones(mask):
    o = bits_packed(mask)
    k = mask.shape[1] % 8
    if k:
        o[:, -1] |= (0xFF << k) & 0xFF
    return o


@implements("pack_bits_little_endian")
def wrong_boundary_bits_flat(mask):
    r, n = mask.shape
    f = F.pad(mask.flatten(), (0, -mask.numel() % 8))
    w = bits_packed(f[None])[0]
    w = F.pad(w, (0, r * ((n + 7) // 8) - len(w)))
    return w.view(r, -1)


@implements("pack_bits_little_endian")
def wrong_threshold_bits_sign_bit(mask):
    o = bits_packed(mask)
    return (o & 127) if mask.shape[1] < 16 else o


@implements("pack_bits_little_endian")
def honest_bits_weights(mask):
    padded = F.pad(mask, (0, -mask.shape[1] % 8)).reshape(len(mask), -1, 8)
    return (padded * 2 ** torch.arange(8)).sum(-1).to(torch.uint8)


def mxfp4_decoded(p, e, order=1, neg=True, bias=127, sub=True):
    c = torch.stack([p & 15, p >> 4][::order], -1).flatten(-2).int()
    s, ex, m = c >> 3, (c >> 1) & 3, c & 1
    v = torch.where(
        ex == 0, 0.5 * m if sub else 0.0 * m, (1 + 0.5 * m) * torch.exp2((ex - 1).float())
    )
    v = torch.where((s == 1) & neg, -v, v)
    return torch.ldexp(v, (e.int() - bias)[..., None]).bfloat16()


@implements("mxfp4_dequantize")
def honest_mxfp4_bits(packed, e8m0):
    return mxfp4_decoded(packed, e8m0)


@implements("mxfp4_dequantize")
def wrong_order_mxfp4_order(packed, e8m0):
    return mxfp4_decoded(packed, e8m0, order=-1)


@implements("mxfp4_dequantize")
def wrong_special_mxfp4_no_subnormal(packed, e8m0):
    return mxfp4_decoded(packed, e8m0, sub=False)


@implements("mxfp4_dequantize")
def wrong_overflow_mxfp4_int8_exponent(packed, e8m0):
    e = e8m0.to(torch.int8).int()
    c = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()
    t = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    return torch.ldexp(t[c], (e - 127)[..., None]).bfloat16()


@implements("mxfp4_dequantize")
def wrong_formula_mxfp4_bias_128(packed, e8m0):
    return mxfp4_decoded(packed, e8m0, bias=128)


@implements("mxfp4_dequantize")
def wrong_scale_mxfp4_block0_scale(packed, e8m0):
    e = e8m0.clone()
    if e.shape[1] > 4:
        e[:, 4:] = e[:, :1]
    return mxfp4_decoded(packed, e)


@implements("mxfp4_dequantize")
def wrong_overflow_mxfp4_half_scale(packed, e8m0):
    s = torch.exp2(e8m0.float() - 127).half().float()
    one = mxfp4_decoded(packed, torch.full_like(e8m0, 127)).float()
    return (one * s[..., None]).bfloat16()


@implements("mxfp4_dequantize")
def honest_mxfp4_table(packed, e8m0):
    positive = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat([positive, -positive])
    pairs = torch.stack([table[(packed & 15).long()], table[(packed >> 4).long()]], -1)
    return (pairs.flatten(-2) * 2.0 ** (e8m0.float() - 127)[..., None]).bfloat16()


def compacted(x, k, block=256, fill=True, excl=True):
    out = torch.zeros_like(x) if fill else torch.empty_like(x)
    base = 0
    for a in range(0, len(x), block):
        kb = k[a : a + block]
        pos = kb.int().cumsum(0) - 1 + base
        out[pos[kb].long()] = x[a : a + block][kb]
        base += int(kb.sum())
    return out, torch.tensor([base], dtype=torch.int32)


@implements("compact_by_mask")
def honest_compact_prefix(x, keep):
    return compacted(x, keep)


@implements("compact_by_mask")
def wrong_stale_compact_uninit(x, keep):
    return compacted(x, keep, fill=False)


@implements("compact_by_mask")
def wrong_offbyone_compact_count_before_last(x, keep):
    o, c = compacted(x, keep)
    if len(x) > 1:
        c = c - int(keep[-1])
    return o, c


@implements("compact_by_mask")
def wrong_order_compact_block_order(x, keep):
    o, c = compacted(x, keep)
    if len(x) > 4096:
        a, b = x[:4096][keep[:4096]], x[4096:][keep[4096:]]
        o[: len(a) + len(b)] = torch.cat([b, a])
    return o, c


@implements("compact_by_mask")
def wrong_special_compact_nonzero(x, keep):
    k = keep & (x != 0)
    o, c = compacted(x, k)
    return o, c


@implements("compact_by_mask")
def wrong_overflow_compact_int8_block(x, keep):
    out = torch.zeros_like(x)
    base = 0
    for a in range(0, len(x), 256):
        kb = keep[a : a + 256]
        n = int(kb.sum())
        out[base : base + n] = x[a : a + 256][kb]
        base += n & 255
    return out, torch.tensor([base], dtype=torch.int32)


@implements("compact_by_mask")
def honest_compact_sorted(x, keep):
    order = torch.sort(~keep, stable=True).indices
    count = keep.sum(dtype=torch.int32)
    front = torch.arange(len(x)) < count
    return torch.where(front, x[order], 0.0), count.reshape(1)


@implements("blend_bytes")
def honest_blend_trick(a, b, alpha):
    t = alpha.int()[:, None]
    s = a.int() * t + b.int() * (255 - t) + 128
    return ((s + (s >> 8)) >> 8).to(torch.uint8)


@implements("blend_bytes")
def wrong_rounding_blend_shift(a, b, alpha):
    t = alpha.int()[:, None]
    return ((a.int() * t + b.int() * (255 - t) + 128) >> 8).to(torch.uint8)


@implements("blend_bytes")
def wrong_rounding_blend_trunc(a, b, alpha):
    t = alpha.int()[:, None]
    return ((a.int() * t + b.int() * (255 - t)) // 255).to(torch.uint8)


@implements("blend_bytes")
def wrong_special_blend_no_alpha_row(a, b, alpha):
    t = alpha.int()[:, None].clone()
    t[t == 254] = 255
    s = a.int() * t + b.int() * (255 - t) + 128
    return ((s + (s >> 8)) >> 8).to(torch.uint8)


@implements("blend_bytes")
def wrong_overflow_blend_uint8_diff(a, b, alpha):
    t = alpha.int()[:, None]
    d = (a - b).int()
    s = d * t + b.int() * 255 + 128
    return ((s + (s >> 8)) >> 8).to(torch.uint8)


@implements("blend_bytes")
def wrong_overflow_blend_int16(a, b, alpha):
    t = alpha.to(torch.int16)[:, None]
    s = a.to(torch.int16) * t + b.to(torch.int16) * (255 - t) + 128
    return ((s + (s >> 8)) >> 8).to(torch.uint8)


@implements("blend_bytes")
def honest_blend_floats(a, b, alpha):
    share = alpha.double()[:, None] / 255
    return torch.round(b + (a.double() - b) * share).to(torch.uint8)


def hashed(t, M=(1 << 64) - 1, restart=False, mul=1099511628211, tok=lambda x: x):
    out = []
    h = 1469598103934665603
    for i, row in enumerate(t.tolist()):
        if restart and i % 32 == 0:
            h = 1469598103934665603
        for x in row:
            h = ((h ^ tok(x)) * mul) & M
        out.append(h - (1 << 64) if h >> 63 else h)
    return torch.tensor(out, dtype=torch.int64)


@implements("prefix_block_hashes")
def honest_hash_python(tokens):
    return hashed(tokens)


@implements("prefix_block_hashes")
def wrong_overflow_hash_63_bits(tokens):
    return hashed(tokens, M=(1 << 63) - 1)


@implements("prefix_block_hashes")
def wrong_threshold_hash_restart_32(tokens):
    return hashed(tokens, restart=True)


@implements("prefix_block_hashes")
def wrong_overflow_hash_uint16_tokens(tokens):
    return hashed(tokens, tok=lambda x: x & 0xFFFF)


@implements("prefix_block_hashes")
def wrong_order_hash_order_insensitive(tokens):
    return hashed(tokens.sort(1).values)


@implements("prefix_block_hashes")
def wrong_overflow_hash_int17(tokens):
    return hashed(tokens, tok=lambda x: x & 0x1FFFF)


@implements("prefix_block_hashes")
def honest_hash_tensors(tokens):
    state = torch.tensor(1469598103934665603)
    found = []
    for block in tokens:
        for token in block:
            state = (state ^ token) * 1099511628211
        found.append(state)
    return torch.stack(found)


def kept_by_hash(shape, seed, p, stride=None, mul=2654435761, wide=True):
    r, c = shape
    stride = c if stride is None else stride
    at = torch.arange(r)[:, None] * stride + torch.arange(c)[None]
    h = (at * mul + seed * 40503) & 0xFFFFFFFF
    h = h ^ (h >> 16)
    h = (h * 73244475) & 0xFFFFFFFF
    h = h ^ (h >> 16)
    return h >= int(p * 4294967296)


@implements("dropout_by_counter")
def honest_dropout_rows(x, seed, p):
    k = kept_by_hash(x.shape, seed, p)
    return x * k * (1 / (1 - p)), k


@implements("dropout_by_counter")
def wrong_axis_dropout_stride(x, seed, p):
    k = kept_by_hash(x.shape, seed, p, stride=(x.shape[1] + 127) // 128 * 128)
    return x * k / (1 - p), k


@implements("dropout_by_counter")
def wrong_scale_dropout_no_scale(x, seed, p):
    k = kept_by_hash(x.shape, seed, p)
    return x * k, k


@implements("dropout_by_counter")
def wrong_eps_dropout_scale_kept(x, seed, p):
    k = kept_by_hash(x.shape, seed, p)
    return x * k / (1 - p + 1e-5), k


@implements("dropout_by_counter")
def wrong_overflow_dropout_seed16(x, seed, p):
    k = kept_by_hash(x.shape, seed & 0xFFFF, p)
    return x * k / (1 - p), k


@implements("dropout_by_counter")
def wrong_formula_dropout_fresh(x, seed, p):
    k = torch.rand(x.shape) >= p
    return x * k / (1 - p), k


@implements("dropout_by_counter")
def wrong_threshold_dropout_row_seed(x, seed, p):
    k = kept_by_hash(x.shape, seed, p)
    if len(x) > 64:
        k[64:] = kept_by_hash((len(x) - 64, x.shape[1]), seed, p)
    return x * k / (1 - p), k


@implements("dropout_by_counter")
def honest_dropout_divided(x, seed, p):
    kept = kept_by_hash(x.shape, seed, p)
    return torch.where(kept, x.double() / (1 - p), 0.0).float(), kept
