"""Images, boxes and sound."""

import math

import torch
import torch.nn.functional as F

from pytest_fib import implements


def _conv(x, weight, taps, bias):
    wide = F.pad(x.float(), (3, 0))
    n = x.shape[-1]
    parts = [wide[..., t : t + n] * weight.float()[:, w, None] for t, w in taps]
    return sum(parts) + bias.float()[:, None]


@implements("causal_conv1d")
def honest_conv_taps(x, weight, bias):
    out = _conv(x, weight, [(0, 0), (1, 1), (2, 2), (3, 3)], bias)
    return (out * torch.sigmoid(out)).bfloat16()


@implements("causal_conv1d")
def honest_conv_unfolded(x, weight, bias):
    windows = F.pad(x.double(), (3, 0)).unfold(-1, 4, 1)
    out = torch.einsum("bclw,cw->bcl", windows, weight.double()) + bias.double()[:, None]
    return (out / (1 + (-out).exp())).bfloat16()


@implements("causal_conv1d")
def wrong_order_conv_taps_reversed(x, weight, bias):
    return F.silu(_conv(x, weight, [(0, 3), (1, 2), (2, 1), (3, 0)], bias)).bfloat16()


@implements("causal_conv1d")
def wrong_offbyone_conv_not_causal(x, weight, bias):
    wide = F.pad(x.float(), (2, 1))
    out = F.conv1d(wide, weight.float()[:, None], bias.float(), groups=12)
    return F.silu(out).bfloat16()


@implements("causal_conv1d")
def wrong_formula_conv_without_silu(x, weight, bias):
    return _conv(x, weight, [(0, 0), (1, 1), (2, 2), (3, 3)], bias).bfloat16()


@implements("causal_conv1d")
def wrong_boundary_conv_starts_anew_each_tile(x, weight, bias):
    """Tiles of 256 do not see the steps before them."""
    parts = [honest_conv_taps(tile, weight, bias) for tile in x.split(256, -1)]
    return torch.cat(parts, -1)


@implements("causal_conv1d")
def wrong_accumulation_conv_in_bfloat16(x, weight, bias):
    wide = F.pad(x, (3, 0))
    out = bias[:, None].expand_as(x)
    for t in range(4):
        out = out + wide[..., t : t + x.shape[-1]] * weight[:, t, None]
    return F.silu(out)


@implements("causal_conv1d")
def wrong_broadcast_conv_weight_of_the_first_channel(x, weight, bias):
    return honest_conv_taps(x, weight[:1].expand_as(weight), bias)


@implements("max_pool2d")
def honest_pool_by_axes(x):
    wide = F.pad(x, (1, 1, 1, 1), value=-torch.inf)
    rows = wide.unfold(-1, 3, 2).amax(-1)
    return rows.unfold(-2, 3, 2).amax(-1)


@implements("max_pool2d")
def honest_pool_nine_shifts(x):
    h, w = x.shape[-2:]
    wide = F.pad(x, (1, 2, 1, 2), value=-torch.inf)
    out = torch.full((*x.shape[:2], (h + 1) // 2, (w + 1) // 2), -torch.inf)
    for i in range(3):
        for j in range(3):
            out = torch.maximum(out, wide[:, :, i : i + h : 2, j : j + w : 2])
    return out


@implements("max_pool2d")
def wrong_special_pool_border_of_zeros(x):
    return F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, stride=2)


@implements("max_pool2d")
def wrong_formula_pool_two_by_two(x):
    return F.max_pool2d(x, 2, stride=2, ceil_mode=True)


@implements("max_pool2d")
def wrong_offbyone_pool_border_in_front_only(x):
    wide = F.pad(x, (0, 2, 0, 2), value=-torch.inf)
    h, w = x.shape[-2:]
    return F.max_pool2d(wide, 3, stride=2)[:, :, : (h + 1) // 2, : (w + 1) // 2].contiguous()


@implements("max_pool2d")
def wrong_formula_pool_mean(x):
    return F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)


@implements("max_pool2d")
def wrong_boundary_pool_last_row(x):
    """The last row of the image is read only where the height is even."""
    cut = x.clone()
    if x.shape[2] % 2 and x.shape[2] > 1:
        cut[:, :, -1] = -torch.inf
    return F.max_pool2d(cut, 3, stride=2, padding=1)


@implements("avg_pool1d")
def honest_avg_torch(signal):
    pooled = F.avg_pool1d(signal[:, None].double(), 5, 1, 2, count_include_pad=False)
    return pooled[:, 0].float()


@implements("avg_pool1d")
def honest_avg_shifts(signal):
    n = signal.shape[1]
    wide = F.pad(signal, (2, 2))
    total = wide[:, :n] + wide[:, 1 : n + 1] + wide[:, 2 : n + 2]
    total = total + wide[:, 3 : n + 3] + wide[:, 4 : n + 4]
    at = torch.arange(n)
    return total / ((at + 2).clamp(max=n - 1) - (at - 2).clamp(min=0) + 1)


@implements("avg_pool1d")
def wrong_boundary_avg_padding_counted(signal):
    return F.avg_pool1d(signal[:, None], 5, 1, 2)[:, 0]


@implements("avg_pool1d")
def wrong_accumulation_avg_prefix_sums(signal):
    """Differences of prefix sums in float32."""
    n = signal.shape[1]
    sums = F.pad(signal.cumsum(-1), (1, 0))
    at = torch.arange(n)
    low, high = (at - 2).clamp(min=0), (at + 3).clamp(max=n)
    return (sums[:, high] - sums[:, low]) / (high - low)


@implements("avg_pool1d")
def wrong_offbyone_avg_window_behind(signal):
    n = signal.shape[1]
    wide = F.pad(signal, (4, 0)).unfold(-1, 5, 1).sum(-1)
    return wide / torch.arange(1, n + 1).clamp(max=5)


@implements("avg_pool1d")
def wrong_boundary_avg_edges_repeated(signal):
    wide = torch.cat([signal[:, :1].expand(-1, 2), signal, signal[:, -1:].expand(-1, 2)], -1)
    return wide.unfold(-1, 5, 1).mean(-1)


@implements("avg_pool1d")
def wrong_axis_avg_over_rows(signal):
    return honest_avg_shifts(signal.T).T.contiguous()


@implements("bilinear_upsample2x")
def honest_bilinear_torch(x):
    return F.interpolate(x[:, None], scale_factor=2, mode="bilinear", align_corners=False)[:, 0]


@implements("bilinear_upsample2x")
def honest_bilinear_matrices(x):
    def weights(n):
        at = (torch.arange(2 * n, dtype=torch.float64) + 0.5) / 2 - 0.5
        at = at.clamp(0, n - 1)
        return (1 - (at[:, None] - torch.arange(n)).abs()).clamp(min=0)

    h, w = weights(x.shape[1]), weights(x.shape[2])
    return torch.einsum("oh,nhw,pw->nop", h, x.double(), w).float()


@implements("bilinear_upsample2x")
def wrong_formula_bilinear_align_corners(x):
    return F.interpolate(x[:, None], scale_factor=2, mode="bilinear", align_corners=True)[:, 0]


@implements("bilinear_upsample2x")
def wrong_formula_bilinear_nearest(x):
    return F.interpolate(x[:, None], scale_factor=2, mode="nearest")[:, 0]


@implements("bilinear_upsample2x")
def wrong_boundary_bilinear_zeros_outside(x):
    wide = F.pad(x[:, None], (1, 1, 1, 1))
    out = F.interpolate(wide, scale_factor=2, mode="bilinear", align_corners=False)
    return out[:, 0, 2:-2, 2:-2].contiguous()


@implements("bilinear_upsample2x")
def wrong_offbyone_bilinear_half_pixel(x):
    """Source positions without the half pixel."""

    def weights(n):
        at = (torch.arange(2 * n, dtype=torch.float64) / 2).clamp(max=n - 1)
        return (1 - (at[:, None] - torch.arange(n)).abs()).clamp(min=0)

    h, w = weights(x.shape[1]), weights(x.shape[2])
    return torch.einsum("oh,nhw,pw->nop", h, x.double(), w).float()


@implements("bilinear_upsample2x")
def wrong_sizes_bilinear_square(x):
    """The right border is where the lower one is."""
    out = honest_bilinear_torch(x).clone()
    h, w = x.shape[1:]
    if w > h:
        out[:, :, 2 * h - 1] = x[:, :, h - 1].repeat_interleave(2, 1)
    return out


@implements("pixel_shuffle")
def honest_shuffle_torch(x):
    return F.pixel_shuffle(x, 2)


@implements("pixel_shuffle")
def honest_shuffle_strided_writes(x):
    b, _, h, w = x.shape
    out = torch.empty(b, 3, 2 * h, 2 * w, dtype=x.dtype)
    for c in range(3):
        for i in range(2):
            for j in range(2):
                out[:, c, i::2, j::2] = x[:, 4 * c + 2 * i + j]
    return out


@implements("pixel_shuffle")
def wrong_order_shuffle_rows_and_columns(x):
    b, _, h, w = x.shape
    return x.reshape(b, 3, 2, 2, h, w).permute(0, 1, 4, 3, 5, 2).reshape(b, 3, 2 * h, 2 * w)


@implements("pixel_shuffle")
def wrong_order_shuffle_channels_last(x):
    """As depth-to-space elsewhere: blocks first, then channels."""
    b, _, h, w = x.shape
    return x.reshape(b, 2, 2, 3, h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, 3, 2 * h, 2 * w)


@implements("pixel_shuffle")
def wrong_axis_shuffle_only_reshaped(x):
    b, _, h, w = x.shape
    return x.reshape(b, 3, 2 * h, 2 * w).clone()


@implements("pixel_shuffle")
def wrong_sizes_shuffle_height_for_width(x):
    b, _, h, w = x.shape
    mixed = x.reshape(b, 3, 2, 2, w, h).permute(0, 1, 4, 2, 5, 3)
    return mixed.reshape(b, 3, 2 * h, 2 * w)


@implements("pixel_shuffle")
def wrong_stale_shuffle_odd_rows(x):
    out = F.pixel_shuffle(x, 2).clone()
    out[:, :, 1::2] = out[:, :, ::2]
    return out


def _basis(n, dtype=torch.float64):
    k = torch.arange(n, dtype=dtype)
    return torch.cos(math.pi / n * (k + 0.5)[None] * k[:, None])


@implements("dct2_rows")
def honest_dct_by_fft(x):
    """An FFT of the row and its mirror image."""
    both = torch.cat([x, x.flip(-1)], -1).double()
    k = torch.arange(24)
    turned = torch.fft.fft(both)[:, :24] * torch.exp(-1j * math.pi * k / 48)
    scale = torch.full((24,), 0.5 * math.sqrt(2 / 24), dtype=torch.float64)
    scale[0] = 0.5 * math.sqrt(1 / 24)
    return (turned.real * scale).float()


@implements("dct2_rows")
def honest_dct_even_and_odd(x):
    """Even outputs from sums of the halves, odd ones from their differences."""
    first, second = x[:, :12], x[:, 12:].flip(-1)
    basis = _basis(24)[:, :12] * math.sqrt(2 / 24)
    basis[0] /= math.sqrt(2)
    out = torch.empty_like(x)
    out[:, 0::2] = ((first.double() + second) @ basis[0::2].T).float()
    out[:, 1::2] = ((first.double() - second) @ basis[1::2].T).float()
    return out


@implements("dct2_rows")
def wrong_scale_dct_first_coefficient(x):
    return (x.double() @ (_basis(24) * math.sqrt(2 / 24)).T).float()


@implements("dct2_rows")
def wrong_formula_dct_transposed(x):
    """The inverse."""
    basis = _basis(24) * math.sqrt(2 / 24)
    basis[0] /= math.sqrt(2)
    return (x.double() @ basis).float()


@implements("dct2_rows")
def wrong_offbyone_dct_without_the_half(x):
    k = torch.arange(24, dtype=torch.float64)
    basis = torch.cos(math.pi / 24 * k[None] * k[:, None]) * math.sqrt(2 / 24)
    basis[0] /= math.sqrt(2)
    return (x.double() @ basis.T).float()


@implements("dct2_rows")
def wrong_accumulation_dct_basis_in_half(x):
    basis = _basis(24) * math.sqrt(2 / 24)
    basis[0] /= math.sqrt(2)
    return x @ basis.half().float().T


@implements("dct2_rows")
def wrong_scale_dct_not_orthonormal(x):
    return (2 * (x.double() @ _basis(24).T)).float()


@implements("iou_matrix")
def honest_iou_box_by_box(boxes_a, boxes_b):
    def sides(low, high):
        return (high - low).clamp(min=0)

    area_b = sides(boxes_b[:, 0], boxes_b[:, 2]) * sides(boxes_b[:, 1], boxes_b[:, 3])
    rows = []
    for a in boxes_a:
        w = sides(torch.maximum(a[0], boxes_b[:, 0]), torch.minimum(a[2], boxes_b[:, 2]))
        h = sides(torch.maximum(a[1], boxes_b[:, 1]), torch.minimum(a[3], boxes_b[:, 3]))
        union = sides(a[0], a[2]) * sides(a[1], a[3]) + area_b - w * h
        rows.append(torch.where(union > 0, w * h / torch.where(union > 0, union, 1.0), 0.0))
    return torch.stack(rows)


@implements("iou_matrix")
def honest_iou_integers(boxes_a, boxes_b):
    a, b = boxes_a.long()[:, None], boxes_b.long()[None]
    w = (torch.minimum(a[..., 2], b[..., 2]) - torch.maximum(a[..., 0], b[..., 0])).clamp(min=0)
    h = (torch.minimum(a[..., 3], b[..., 3]) - torch.maximum(a[..., 1], b[..., 1])).clamp(min=0)
    area = [
        (t[..., 2] - t[..., 0]).clamp(min=0) * (t[..., 3] - t[..., 1]).clamp(min=0) for t in (a, b)
    ]
    union = area[0] + area[1] - w * h
    return torch.where(union > 0, (w * h).double() / union, 0.0).float()


def _iou(a, b, *, clamp=True, extra=0, shared=True):
    def side(t):
        return t.clamp(min=0) if clamp else t

    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    size = side(high - low + extra)
    inter = size[..., 0] * size[..., 1]
    area = [side(t[:, 2] - t[:, 0] + extra) * side(t[:, 3] - t[:, 1] + extra) for t in (a, b)]
    union = area[0][:, None] + area[1] - (inter if shared else 0)
    return torch.where(union > 0, inter / union.clamp(min=1e-20), 0.0)


@implements("iou_matrix")
def wrong_clamp_iou_negative_sides(boxes_a, boxes_b):
    return _iou(boxes_a, boxes_b, clamp=False)


@implements("iou_matrix")
def wrong_offbyone_iou_pixels_inclusive(boxes_a, boxes_b):
    return _iou(boxes_a, boxes_b, extra=1)


@implements("iou_matrix")
def wrong_formula_iou_intersection_counted_twice(boxes_a, boxes_b):
    return _iou(boxes_a, boxes_b, shared=False)


@implements("iou_matrix")
def wrong_special_iou_no_area(boxes_a, boxes_b):
    low = torch.maximum(boxes_a[:, None, :2], boxes_b[None, :, :2])
    high = torch.minimum(boxes_a[:, None, 2:], boxes_b[None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area = [(t[:, 2:] - t[:, :2]).clamp(min=0).prod(-1) for t in (boxes_a, boxes_b)]
    return inter / (area[0][:, None] + area[1] - inter)


@implements("iou_matrix")
def wrong_eps_iou_in_the_union(boxes_a, boxes_b):
    low = torch.maximum(boxes_a[:, None, :2], boxes_b[None, :, :2])
    high = torch.minimum(boxes_a[:, None, 2:], boxes_b[None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area = [(t[:, 2:] - t[:, :2]).clamp(min=0).prod(-1) for t in (boxes_a, boxes_b)]
    return inter / (area[0][:, None] + area[1] - inter + 1e-3)


@implements("nms_keep_mask")
def honest_nms_lists(xywh):
    kept, mask = [], []
    for x, y, w, h in xywh.tolist():
        suppressed = False
        for a, b, c, d in kept:
            across = max(0, min(x + w, a + c) - max(x, a))
            down = max(0, min(y + h, b + d) - max(y, b))
            suppressed |= 3 * across * down > w * h + c * d
        mask.append(not suppressed)
        if not suppressed:
            kept.append((x, y, w, h))
    return torch.tensor(mask)


def _overlaps(xywh):
    x1, y1, w, h = xywh.double().unbind(-1)
    x2, y2 = x1 + w, y1 + h
    across = (torch.minimum(x2[:, None], x2) - torch.maximum(x1[:, None], x1)).clamp(min=0)
    down = (torch.minimum(y2[:, None], y2) - torch.maximum(y1[:, None], y1)).clamp(min=0)
    inter = across * down
    return inter, (w * h)[:, None] + w * h - inter


def _greedy(over):
    keep = torch.ones(len(over), dtype=torch.bool)
    for i in range(len(over)):
        if keep[i]:
            keep[i + 1 :] &= ~over[i, i + 1 :]
    return keep


@implements("nms_keep_mask")
def honest_nms_forward(xywh):
    inter, union = _overlaps(xywh)
    return _greedy(inter > 0.5 * union)


@implements("nms_keep_mask")
def wrong_formula_nms_all_that_overlap(xywh):
    """Boxes that are suppressed suppress others."""
    inter, union = _overlaps(xywh)
    return ~(inter > 0.5 * union).tril(-1).any(-1)


@implements("nms_keep_mask")
def wrong_ties_nms_half_is_enough(xywh):
    inter, union = _overlaps(xywh)
    return _greedy((inter >= 0.5 * union) & (union > 0))


@implements("nms_keep_mask")
def wrong_formula_nms_over_the_smaller(xywh):
    inter, _ = _overlaps(xywh)
    area = (xywh[:, 2] * xywh[:, 3]).double()
    return _greedy(inter > 0.5 * torch.minimum(area[:, None], area))


@implements("nms_keep_mask")
def wrong_formula_nms_corners(xywh):
    """Takes width and height for the other corner."""
    b = xywh.double()
    low = torch.maximum(b[:, None, :2], b[None, :, :2])
    size = (torch.minimum(b[:, None, 2:], b[None, :, 2:]) - low).clamp(min=0)
    inter = size.prod(-1)
    area = (b[:, 2:] - b[:, :2]).clamp(min=0).prod(-1)
    return _greedy(inter > 0.5 * (area[:, None] + area - inter))


@implements("nms_keep_mask")
def wrong_boundary_nms_within_64(xywh):
    """Blocks of 64 boxes do not see each other."""
    inter, union = _overlaps(xywh)
    block = torch.arange(len(xywh)) // 64
    return _greedy((inter > 0.5 * union) & (block[:, None] == block))


@implements("preemphasis")
def honest_preemphasis_shifted(audio):
    wide = audio.float()
    out = wide.clone()
    out[:, 1:] -= 0.97 * wide[:, :-1]
    return out.half()


@implements("preemphasis")
def honest_preemphasis_conv(audio):
    kernel = torch.tensor([[[-0.97, 1.0]]], dtype=torch.float64)
    return F.conv1d(F.pad(audio.double()[:, None], (1, 0)), kernel)[:, 0].half()


@implements("preemphasis")
def wrong_stale_preemphasis_in_place(audio):
    """Each sample less the one before, which has been changed."""
    out = audio.float()
    powers = 0.97
    for t in range(1, min(out.shape[1], 64)):
        out[:, t] = out[:, t] - powers * out[:, t - 1]
    if out.shape[1] > 64:
        wide = audio.float()
        out[:, 64:] = wide[:, 64:] - powers * wide[:, 63:-1]
    return out.half()


@implements("preemphasis")
def wrong_boundary_preemphasis_first_sample(audio):
    wide = audio.float()
    before = torch.cat([wide[:, :1], wide[:, :-1]], -1)
    return (wide - 0.97 * before).half()


@implements("preemphasis")
def wrong_boundary_preemphasis_tiles(audio):
    """The first sample of each tile of 512 stays."""
    return torch.cat([honest_preemphasis_shifted(tile) for tile in audio.split(512, -1)], -1)


@implements("preemphasis")
def wrong_formula_preemphasis_wraps_around(audio):
    wide = audio.float()
    return (wide - 0.97 * wide.roll(1, -1)).half()


@implements("preemphasis")
def wrong_accumulation_preemphasis_in_half(audio):
    before = F.pad(audio, (1, 0))[:, :-1]
    return audio - torch.tensor(0.97, dtype=torch.float16) * before


@implements("mel_log")
def honest_mel_natural_log(power, filters):
    energy = torch.einsum("btf,fm->btm", power.double(), filters.double()).clamp(min=1e-10)
    floor = energy.flatten(1).amax(-1)[:, None, None] * 1e-8
    return (torch.maximum(energy, floor).log() / math.log(10) / 4 + 1).float()


@implements("mel_log")
def honest_mel_log2_clip_by_clip(power, filters):
    out = []
    for clip in power:
        log = (clip @ filters).clamp(min=1e-10).log2() * math.log10(2)
        out.append(log.clamp(min=float(log.max()) - 8) / 4 + 1)
    return torch.stack(out)


@implements("mel_log")
def wrong_axis_mel_largest_of_the_batch(power, filters):
    log = torch.log10((power @ filters).clamp(min=1e-10))
    return (torch.maximum(log, log.amax() - 8) + 4) / 4


@implements("mel_log")
def wrong_axis_mel_largest_of_each_frame(power, filters):
    log = torch.log10((power @ filters).clamp(min=1e-10))
    return (torch.maximum(log, log.amax(-1, keepdim=True) - 8) + 4) / 4


@implements("mel_log")
def wrong_formula_mel_natural(power, filters):
    log = torch.log((power @ filters).clamp(min=1e-10))
    return (torch.maximum(log, log.amax((-2, -1), keepdim=True) - 8) + 4) / 4


@implements("mel_log")
def wrong_clamp_mel_no_floor(power, filters):
    return (torch.log10((power @ filters).clamp(min=1e-10)) + 4) / 4


@implements("mel_log")
def wrong_accumulation_mel_filters_in_bfloat16(power, filters):
    energy = (power.bfloat16() @ filters.bfloat16()).float()
    log = torch.log10(energy.clamp(min=1e-10))
    return (torch.maximum(log, log.amax((-2, -1), keepdim=True) - 8) + 4) / 4


@implements("mel_log")
def wrong_eps_mel_added(power, filters):
    log = torch.log10(power @ filters + 1e-5)
    return (torch.maximum(log, log.amax((-2, -1), keepdim=True) - 8) + 4) / 4
