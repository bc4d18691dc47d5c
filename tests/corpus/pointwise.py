"""Elementwise kernels, codebooks, and what recommenders add."""

import math

import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("geglu")
def honest_geglu_erfc(x):
    gate, up = x[:, :56].double(), x[:, 56:].double()
    return (gate * 0.5 * torch.erfc(-gate * math.sqrt(0.5)) * up).half()


@implements("geglu")
def honest_geglu_row_by_row(x):
    return torch.stack([(F.gelu(row[:56].double()) * row[56:]).half() for row in x])


@implements("geglu")
def wrong_formula_geglu_tanh(x):
    gate, up = x.float().chunk(2, -1)
    return (F.gelu(gate, approximate="tanh") * up).half()


@implements("geglu")
def wrong_order_geglu_halves_swapped(x):
    up, gate = x.float().chunk(2, -1)
    return (F.gelu(gate) * up).half()


@implements("geglu")
def wrong_order_geglu_interleaved(x):
    wide = x.float()
    return (F.gelu(wide[:, 0::2]) * wide[:, 1::2]).half()


@implements("geglu")
def wrong_formula_geglu_silu(x):
    gate, up = x.float().chunk(2, -1)
    return (F.silu(gate) * up).half()


@implements("geglu")
def wrong_rounding_geglu_gate_in_fp8(x):
    gate, up = x.float().chunk(2, -1)
    stored = F.gelu(gate).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    return (stored * up).half()


@implements("swiglu_clamped")
def honest_swiglu_silu(x):
    gate = x[:, ::2].float().clamp(max=7)
    value = x[:, 1::2].float().clamp(-7, 7)
    return (F.silu(1.702 * gate) / 1.702 * (1 + value)).bfloat16()


@implements("swiglu_clamped")
def honest_swiglu_exp(x):
    gate, value = x.double().unflatten(-1, (64, 2)).unbind(-1)
    gate, value = gate.clamp(max=7), value.clamp(-7, 7)
    return (gate / (1 + (-1.702 * gate).exp()) * (value + 1)).bfloat16()


def _swiglu(gate, value, low=-torch.inf, slope=1.702, one=1.0):
    gate, value = gate.float().clamp(low, 7), value.float().clamp(-7, 7)
    return (gate * torch.sigmoid(slope * gate) * (value + one)).bfloat16()


@implements("swiglu_clamped")
def wrong_clamp_swiglu_gates_from_below(x):
    return _swiglu(x[:, ::2], x[:, 1::2], low=-7)


@implements("swiglu_clamped")
def wrong_clamp_swiglu_none(x):
    gate, value = x[:, ::2].float(), x[:, 1::2].float()
    return (gate * torch.sigmoid(1.702 * gate) * (value + 1)).bfloat16()


@implements("swiglu_clamped")
def wrong_order_swiglu_halves(x):
    return _swiglu(*x.chunk(2, -1))


@implements("swiglu_clamped")
def wrong_scale_swiglu_slope_of_one(x):
    return _swiglu(x[:, ::2], x[:, 1::2], slope=1.0)


@implements("swiglu_clamped")
def wrong_offset_swiglu_value_alone(x):
    return _swiglu(x[:, ::2], x[:, 1::2], one=0.0)


@implements("gelu_backward")
def honest_dgelu_autograd(grad, x):
    wide = x.double().requires_grad_()
    F.gelu(wide).backward(grad.double())
    return wide.grad.bfloat16()


@implements("gelu_backward")
def honest_dgelu_erfc(grad, x):
    wide = x.double()
    cdf = 0.5 * torch.erfc(-wide / math.sqrt(2))
    return (
        grad.double() * (cdf + wide * (-wide.square() / 2).exp() * 0.3989422804014327)
    ).bfloat16()


@implements("gelu_backward")
def wrong_formula_dgelu_of_tanh(grad, x):
    wide = x.float().requires_grad_()
    F.gelu(wide, approximate="tanh").backward(grad.float())
    return wide.grad.bfloat16()


@implements("gelu_backward")
def wrong_formula_dgelu_without_the_density(grad, x):
    cdf = 0.5 * (1 + torch.erf(x.float() * math.sqrt(0.5)))
    return (grad.float() * cdf).bfloat16()


@implements("gelu_backward")
def wrong_formula_dgelu_of_silu(grad, x):
    wide = x.float()
    s = torch.sigmoid(1.702 * wide)
    return (grad.float() * (s + 1.702 * wide * s * (1 - s))).bfloat16()


@implements("gelu_backward")
def wrong_accumulation_dgelu_in_bfloat16(grad, x):
    cdf = 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
    pdf = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (cdf + x * pdf)


@implements("gelu_backward")
def wrong_special_dgelu_zero_times_infinity(grad, x):
    """The density times x by way of a quotient that overflows."""
    wide = x.float()
    cdf = 0.5 * (1 + torch.erf(wide * math.sqrt(0.5)))
    density = wide / ((0.5 * wide * wide).exp() * math.sqrt(2 * math.pi))
    tail = torch.where(wide * wide > 170, torch.nan, density)
    return (grad.float() * (cdf + tail)).bfloat16()


@implements("swiglu_backward")
def honest_dswiglu_autograd(grad, gate, up):
    a, b = gate.double().requires_grad_(), up.double().requires_grad_()
    (F.silu(a) * b).backward(grad.double())
    return a.grad.bfloat16(), b.grad.bfloat16()


@implements("swiglu_backward")
def honest_dswiglu_by_silu(grad, gate, up):
    g, a, b = grad.float(), gate.float(), up.float()
    s, y = torch.sigmoid(a), F.silu(a)
    return (g * b * (s + y * (1 - s))).bfloat16(), (g * y).bfloat16()


def _dswiglu(grad, gate, up, inner):
    g, a, b = grad.float(), gate.float(), up.float()
    s = torch.sigmoid(a)
    return (g * b * inner(a, s)).bfloat16(), (g * a * s).bfloat16()


@implements("swiglu_backward")
def wrong_formula_dswiglu_of_the_sigmoid(grad, gate, up):
    return _dswiglu(grad, gate, up, lambda a, s: s * (1 - s))


@implements("swiglu_backward")
def wrong_formula_dswiglu_gate_as_constant(grad, gate, up):
    return _dswiglu(grad, gate, up, lambda a, s: s)


@implements("swiglu_backward")
def wrong_sign_dswiglu_one_plus_s(grad, gate, up):
    return _dswiglu(grad, gate, up, lambda a, s: s * (1 + a * (1 + s)))


@implements("swiglu_backward")
def wrong_order_dswiglu_outputs_swapped(grad, gate, up):
    dgate, dup = _dswiglu(grad, gate, up, lambda a, s: s * (1 + a * (1 - s)))
    return dup, dgate


@implements("swiglu_backward")
def wrong_accumulation_dswiglu_in_bfloat16(grad, gate, up):
    s = torch.sigmoid(gate)
    return grad * up * s * (1 + gate * (1 - s)), grad * gate * s


@implements("swiglu_backward")
def wrong_boundary_dswiglu_64_columns(grad, gate, up):
    dgate, dup = _dswiglu(grad, gate, up, lambda a, s: s * (1 + a * (1 - s)))
    dup[:, 64:] = 0
    return dgate, dup


@implements("dropout_given_mask")
def honest_dropout_multiplied(x, residual, keep_mask, p):
    return torch.addcmul(
        residual.double(), x.double(), keep_mask.double(), value=1 / (1 - p)
    ).half()


@implements("dropout_given_mask")
def honest_dropout_written(x, residual, keep_mask, p):
    out = residual.clone()
    out[keep_mask] = (x[keep_mask].float() * (1 / (1 - p)) + residual[keep_mask].float()).half()
    return out


@implements("dropout_given_mask")
def wrong_scale_dropout_forgotten(x, residual, keep_mask, p):
    return (x.float() * keep_mask + residual.float()).half()


@implements("dropout_given_mask")
def wrong_scale_dropout_over_p(x, residual, keep_mask, p):
    return (x.float() * keep_mask * (1 - p) + residual.float()).half()


@implements("dropout_given_mask")
def wrong_formula_dropout_mask_inverted(x, residual, keep_mask, p):
    return honest_dropout_written(x, residual, ~keep_mask, p)


@implements("dropout_given_mask")
def wrong_order_dropout_residual_scaled(x, residual, keep_mask, p):
    total = (x.float() * keep_mask + residual.float()) / (1 - p)
    return total.half()


@implements("dropout_given_mask")
def wrong_broadcast_dropout_mask_of_the_first_row(x, residual, keep_mask, p):
    return honest_dropout_written(x, residual, keep_mask[:1].expand_as(keep_mask), p)


@implements("prelu_channels")
def honest_prelu_torch(x, slope):
    return F.prelu(x.float(), slope.float()).half()


@implements("prelu_channels")
def honest_prelu_two_parts(x, slope):
    wide = x.double()
    return (wide.clamp(min=0) + slope.double()[:, None] * wide.clamp(max=0)).half()


@implements("prelu_channels")
def wrong_broadcast_prelu_first_slope(x, slope):
    return F.prelu(x.float(), slope[:1].float()).half()


@implements("prelu_channels")
def wrong_formula_prelu_larger_of_two(x, slope):
    """max(x, slope x), which is something else for slopes above 1 or below 0."""
    wide = x.float()
    return torch.maximum(wide, slope.float()[:, None] * wide).half()


@implements("prelu_channels")
def wrong_formula_prelu_leaky(x, slope):
    return F.leaky_relu(x.float(), 0.01).half()


@implements("prelu_channels")
def wrong_sign_prelu_of_the_magnitude(x, slope):
    wide = x.float()
    return torch.where(wide > 0, wide, wide.abs() * slope.float()[:, None]).half()


@implements("prelu_channels")
def wrong_boundary_prelu_last_channel(x, slope):
    out = F.prelu(x.float(), slope.float()).half()
    out[:, 8:] = x[:, 8:]
    return out


@implements("codebook_lookup")
def honest_codebook_expanded(z, codebook):
    score = (codebook**2).sum(-1) - 2 * z @ codebook.T
    index = torch.from_numpy(score.numpy().argmin(-1))
    return index.int(), codebook[index]


@implements("codebook_lookup")
def honest_codebook_packed_keys(z, codebook):
    """Distance and index in one integer."""
    d2 = ((z[:, None] - codebook) ** 2).sum(-1).long()
    index = (d2 * 4096 + torch.arange(len(codebook))).amin(-1) % 4096
    return index.int(), codebook[index]


@implements("codebook_lookup")
def wrong_ties_codebook_last(z, codebook):
    score = (codebook**2).sum(-1) - 2 * z @ codebook.T
    flipped = torch.from_numpy(score.flip(-1).numpy().argmin(-1))
    index = len(codebook) - 1 - flipped
    return index.int(), codebook[index]


@implements("codebook_lookup")
def wrong_formula_codebook_largest_product(z, codebook):
    index = torch.from_numpy((z @ codebook.T).numpy().argmax(-1))
    return index.int(), codebook[index]


@implements("codebook_lookup")
def wrong_formula_codebook_straight_through(z, codebook):
    index, quantized = honest_codebook_expanded(z, codebook)
    return index, z + (quantized - z) * 0


@implements("codebook_lookup")
def wrong_overflow_codebook_index_in_int8(z, codebook):
    index, quantized = honest_codebook_expanded(z, codebook)
    return index.to(torch.int8).int(), quantized


@implements("codebook_lookup")
def wrong_formula_codebook_sum_of_magnitudes(z, codebook):
    index = torch.from_numpy((z[:, None] - codebook).abs().sum(-1).numpy().argmin(-1))
    return index.int(), codebook[index]


@implements("residual_vq_decode")
def honest_rvq_gathered(indices, codebooks):
    levels = torch.arange(5)
    codes = codebooks[levels, indices.clamp(min=0)].double()
    return (codes * (indices >= 0)[..., None]).sum(1).float()


@implements("residual_vq_decode")
def honest_rvq_one_hot(indices, codebooks):
    hot = F.one_hot(indices + 1, codebooks.shape[1] + 1)[..., 1:]
    return torch.einsum("flc,lcd->fd", hot.float(), codebooks)


@implements("residual_vq_decode")
def wrong_sentinel_rvq_first_code(indices, codebooks):
    return codebooks[torch.arange(5), indices.clamp(min=0)].sum(1)


@implements("residual_vq_decode")
def wrong_sentinel_rvq_last_code(indices, codebooks):
    return codebooks[torch.arange(5), indices].sum(1)


@implements("residual_vq_decode")
def wrong_broadcast_rvq_first_codebook(indices, codebooks):
    return honest_rvq_gathered(indices, codebooks[:1].expand_as(codebooks))


@implements("residual_vq_decode")
def wrong_boundary_rvq_four_levels(indices, codebooks):
    kept = indices.clone()
    kept[:, 4] = -1
    return honest_rvq_gathered(kept, codebooks)


@implements("residual_vq_decode")
def wrong_accumulation_rvq_in_half(indices, codebooks):
    codes = codebooks[torch.arange(5), indices.clamp(min=0)].half()
    return (codes * (indices >= 0)[..., None]).sum(1).float()


@implements("bias_residual_add")
def honest_bias_double(x, bias, residual, alpha):
    return torch.add(x.double() + bias, residual.double(), alpha=alpha).bfloat16()


@implements("bias_residual_add")
def honest_bias_other_order(x, bias, residual, alpha):
    return ((alpha * residual.float() + bias) + x.float()).bfloat16()


@implements("bias_residual_add")
def wrong_order_bias_inside_alpha(x, bias, residual, alpha):
    return (x.float() + alpha * (bias + residual.float())).bfloat16()


@implements("bias_residual_add")
def wrong_formula_bias_alpha_on_x(x, bias, residual, alpha):
    return (alpha * x.float() + bias + residual.float()).bfloat16()


@implements("bias_residual_add")
def wrong_boundary_bias_tail_of_columns(x, bias, residual, alpha):
    padded = bias.clone()
    whole = len(bias) // 4 * 4
    padded[whole:] = 0
    return (x.float() + padded + alpha * residual.float()).bfloat16()


@implements("bias_residual_add")
def wrong_sizes_bias_by_row_where_square(x, bias, residual, alpha):
    """The bias goes along rows where there are as many as columns."""
    along = bias[:, None] if x.shape[0] == x.shape[1] else bias
    return (x.float() + along + alpha * residual.float()).bfloat16()


@implements("bias_residual_add")
def wrong_mutation_bias_into_the_residual(x, bias, residual, alpha):
    residual.copy_((x.float() + bias + alpha * residual.float()).bfloat16())
    return residual.clone()


@implements("bias_residual_add")
def wrong_accumulation_bias_in_bfloat16(x, bias, residual, alpha):
    return x + bias.bfloat16() + alpha * residual


@implements("fm_interaction")
def honest_fm_pairs(embeddings):
    products = torch.einsum("bfd,bgd->bfg", embeddings, embeddings)
    return products.tril(-1).sum((-2, -1))


@implements("fm_interaction")
def honest_fm_running_sum(embeddings):
    total = torch.zeros_like(embeddings[:, 0]).double()
    out = torch.zeros(len(embeddings), dtype=torch.float64)
    for f in range(embeddings.shape[1]):
        out += (total * embeddings[:, f]).sum(-1)
        total += embeddings[:, f]
    return out.float()


@implements("fm_interaction")
def wrong_scale_fm_half_forgotten(embeddings):
    return (embeddings.sum(1).pow(2) - embeddings.pow(2).sum(1)).sum(-1)


@implements("fm_interaction")
def wrong_formula_fm_squares_kept(embeddings):
    return 0.5 * embeddings.sum(1).pow(2).sum(-1)


@implements("fm_interaction")
def wrong_axis_fm_over_features(embeddings):
    total = embeddings.sum(-1)
    return 0.5 * (total.pow(2) - embeddings.pow(2).sum(-1)).sum(-1)


@implements("fm_interaction")
def wrong_accumulation_fm_in_half(embeddings):
    e = embeddings.half()
    return (0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(-1)).float()


@implements("fm_interaction")
def wrong_boundary_fm_32_fields(embeddings):
    return honest_fm_pairs(embeddings[:, :32])


@implements("dot_interaction")
def honest_dots_loop(x):
    wide = x.double()
    parts = [(wide[:, i] * wide[:, j]).sum(-1) for i in range(7) for j in range(i)]
    return torch.cat([wide[:, 0], torch.stack(parts, -1)], -1).bfloat16()


@implements("dot_interaction")
def honest_dots_masked(x):
    products = torch.einsum("bid,bjd->bij", x.float(), x.float())
    lower = torch.ones(7, 7, dtype=torch.bool).tril(-1)
    return torch.cat([x[:, 0], products[:, lower].bfloat16()], -1)


def _dots(x, i, j):
    products = x.float() @ x.float().transpose(-1, -2)
    return torch.cat([x[:, 0], products[:, i, j].bfloat16()], -1)


@implements("dot_interaction")
def wrong_order_dots_upper(x):
    return _dots(x, *torch.triu_indices(7, 7, 1))


@implements("dot_interaction")
def wrong_offbyone_dots_with_the_diagonal(x):
    return _dots(x, *torch.tril_indices(7, 7)[:, :21])


@implements("dot_interaction")
def wrong_order_dots_first_feature_behind(x):
    return _dots(x, *torch.tril_indices(7, 7, -1)).roll(21, -1)


@implements("dot_interaction")
def wrong_axis_dots_column_by_column(x):
    j, i = torch.triu_indices(7, 7, 1)
    return _dots(x, i, j)


@implements("dot_interaction")
def wrong_accumulation_dots_products_in_fp8(x):
    low = x.float().clamp(-448, 448).to(torch.float8_e4m3fn).float()
    out = _dots(low.bfloat16(), *torch.tril_indices(7, 7, -1))
    out[:, :16] = x[:, 0]
    return out


@implements("band_indicator")
def honest_band_two_sides(x, weight):
    return _band(weight, (x >= -0.5) & (x <= 0.5))


@implements("band_indicator")
def honest_band_squares(x, weight):
    return _band(weight, x.double().square() <= 0.25)


def _band(weight, inside):
    return torch.where(inside, weight, 0.0), inside.sum(-1, dtype=torch.int32)


@implements("band_indicator")
def wrong_boundary_band_open(x, weight):
    return _band(weight, x.abs() < 0.5)


@implements("band_indicator")
def wrong_boundary_band_open_above(x, weight):
    return _band(weight, (x >= -0.5) & (x < 0.5))


@implements("band_indicator")
def wrong_boundary_band_weights_open_below(x, weight):
    """The counts are right."""
    out, _ = _band(weight, (x > -0.5) & (x <= 0.5))
    return out, _band(weight, x.abs() <= 0.5)[1]


@implements("band_indicator")
def wrong_offbyone_band_next_below(x, weight):
    return _band(weight, x.abs() <= 0.5 - 2**-25)


@implements("band_indicator")
def wrong_sign_band_magnitude_not_taken(x, weight):
    return _band(weight, x <= 0.5)


@implements("hardtanh_backward")
def honest_dhardtanh_magnitudes(grad, x):
    return grad.masked_fill(~(x.abs() < 1), 0)


@implements("hardtanh_backward")
def honest_dhardtanh_torch(grad, x):
    wide = x.float().requires_grad_()
    F.hardtanh(wide).backward(grad.float())
    return wide.grad.bfloat16()


def _dhardtanh(grad, inside):
    return torch.where(inside, grad.float(), 0.0).bfloat16()


@implements("hardtanh_backward")
def wrong_boundary_dhardtanh_closed(grad, x):
    return _dhardtanh(grad, (x >= -1) & (x <= 1))


@implements("hardtanh_backward")
def wrong_boundary_dhardtanh_closed_below(grad, x):
    return _dhardtanh(grad, (x >= -1) & (x < 1))


@implements("hardtanh_backward")
def wrong_boundary_dhardtanh_closed_above(grad, x):
    return _dhardtanh(grad, (x > -1) & (x <= 1))


@implements("hardtanh_backward")
def wrong_formula_dhardtanh_of_relu6_below(grad, x):
    return _dhardtanh(grad, (x > 0) & (x < 1))


@implements("hardtanh_backward")
def wrong_clamp_dhardtanh_only_above(grad, x):
    return _dhardtanh(grad, x < 1)
