"""Normalisations and their gradients."""

import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("group_norm")
def honest_gn_torch(x, weight, bias, eps):
    return F.group_norm(x.float(), 4, weight.float(), bias.float(), eps).half()


@implements("group_norm")
def honest_gn_folded(x, weight, bias, eps):
    """One factor and one offset for each channel of each image, statistics in float64."""
    groups = x.double().reshape(len(x), 4, -1)
    mean, variance = groups.mean(-1), groups.var(-1, correction=0)
    inverse = (variance + eps).rsqrt().repeat_interleave(6, 1)
    factor = inverse * weight.double()
    offset = bias.double() - mean.repeat_interleave(6, 1) * factor
    return (x.double() * factor[..., None, None] + offset[..., None, None]).half()


@implements("group_norm")
def wrong_axis_gn_interleaved_groups(x, weight, bias, eps):
    b, c, h, w = x.shape
    shuffled = x.float().reshape(b, 6, 4, h, w).transpose(1, 2).reshape(b, c, h, w)
    normal = F.group_norm(shuffled, 4, eps=eps)
    normal = normal.reshape(b, 4, 6, h, w).transpose(1, 2).reshape(b, c, h, w)
    return (normal * weight.float()[:, None, None] + bias.float()[:, None, None]).half()


@implements("group_norm")
def wrong_formula_gn_unbiased_variance(x, weight, bias, eps):
    groups = x.float().reshape(len(x), 4, -1)
    variance = groups.var(-1, keepdim=True)
    normal = ((groups - groups.mean(-1, keepdim=True)) * (variance + eps).rsqrt()).reshape(x.shape)
    return (normal * weight.float()[:, None, None] + bias.float()[:, None, None]).half()


@implements("group_norm")
def wrong_accumulation_gn_mean_of_squares_in_half(x, weight, bias, eps):
    groups = x.reshape(len(x), 4, -1)
    mean = groups.mean(-1, keepdim=True)
    variance = (groups * groups).mean(-1, keepdim=True) - mean * mean
    normal = ((groups - mean) * (variance.float().clamp(min=0) + eps).rsqrt()).reshape(x.shape)
    return (normal * weight.float()[:, None, None] + bias.float()[:, None, None]).half()


@implements("group_norm")
def wrong_eps_gn_none(x, weight, bias, eps):
    return F.group_norm(x.float(), 4, weight.float(), bias.float(), 0.0).half()


@implements("group_norm")
def wrong_sizes_gn_square_images(x, weight, bias, eps):
    """Counts height twice."""
    groups = x.float().reshape(len(x), 4, -1)
    count = 6 * x.shape[2] * x.shape[2]
    mean = groups.sum(-1, keepdim=True) / count
    variance = (groups - mean).pow(2).sum(-1, keepdim=True) / count
    normal = ((groups - mean) * (variance + eps).rsqrt()).reshape(x.shape)
    return (normal * weight.float()[:, None, None] + bias.float()[:, None, None]).half()


@implements("group_norm")
def wrong_broadcast_gn_weight_of_group(x, weight, bias, eps):
    w = weight.float().reshape(4, 6)[:, 0].repeat_interleave(6)
    return F.group_norm(x.float(), 4, w, bias.float(), eps).half()


@implements("batch_norm_inference")
def honest_bn_torch(x, running_mean, running_var, weight, bias, eps):
    return F.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)


@implements("batch_norm_inference")
def honest_bn_by_channel(x, running_mean, running_var, weight, bias, eps):
    out = torch.empty_like(x)
    for c in range(x.shape[1]):
        normal = (x[:, c] - running_mean[c]) * (running_var[c] + eps).rsqrt()
        out[:, c] = normal * weight[c] + bias[c]
    return out


@implements("batch_norm_inference")
def wrong_formula_bn_batch_statistics(x, running_mean, running_var, weight, bias, eps):
    mean = x.mean((0, 2))
    variance = x.var((0, 2), correction=0)
    factor = weight * (variance + eps).rsqrt()
    return (x - mean[:, None]) * factor[:, None] + bias[:, None]


@implements("batch_norm_inference")
def wrong_eps_bn_outside_the_root(x, running_mean, running_var, weight, bias, eps):
    factor = weight / (running_var.sqrt() + eps)
    return (x - running_mean[:, None]) * factor[:, None] + bias[:, None]


@implements("batch_norm_inference")
def wrong_formula_bn_divides_by_variance(x, running_mean, running_var, weight, bias, eps):
    factor = weight / (running_var + eps)
    return (x - running_mean[:, None]) * factor[:, None] + bias[:, None]


@implements("batch_norm_inference")
def wrong_eps_bn_usual_eps(x, running_mean, running_var, weight, bias, eps):
    return F.batch_norm(x, running_mean, running_var, weight, bias, eps=1e-5)


@implements("batch_norm_inference")
def wrong_boundary_bn_tail_unnormalised(x, running_mean, running_var, weight, bias, eps):
    length = x.shape[-1]
    whole = length - length % 4 if length >= 4 else length
    out = x.clone()
    factor = weight / torch.sqrt(running_var + eps)
    out[..., :whole] = (x[..., :whole] - running_mean[:, None]) * factor[:, None] + bias[:, None]
    return out


@implements("batch_norm_inference")
def wrong_broadcast_bn_along_length(x, running_mean, running_var, weight, bias, eps):
    """Along the wrong axis where it is as long as there are channels."""
    factor = weight / torch.sqrt(running_var + eps)
    if x.shape[-1] == x.shape[1]:
        return (x - running_mean) * factor + bias
    return (x - running_mean[:, None]) * factor[:, None] + bias[:, None]


@implements("instance_norm")
def honest_in_torch(x, eps):
    flat = x.float().flatten(2)
    return F.layer_norm(flat, flat.shape[-1:], eps=eps).reshape(x.shape).bfloat16()


@implements("instance_norm")
def honest_in_welford_of_rows(x, eps):
    """Statistics of image rows, combined as Chan, Golub and LeVeque do."""
    wide = x.double()
    mean = wide.mean(-1, keepdim=True)
    spread = (wide - mean).pow(2).mean(-1)
    mean = mean.squeeze(-1)
    whole = mean.mean(-1, keepdim=True)
    variance = spread.mean(-1, keepdim=True) + (mean - whole).pow(2).mean(-1, keepdim=True)
    return ((wide - whole[..., None]) / (variance[..., None] + eps).sqrt()).bfloat16()


@implements("instance_norm")
def wrong_axis_in_over_channels_too(x, eps):
    return F.layer_norm(x.float(), x.shape[1:], eps=eps).bfloat16()


@implements("instance_norm")
def wrong_axis_in_over_width_only(x, eps):
    return F.layer_norm(x.float(), x.shape[-1:], eps=eps).bfloat16()


@implements("instance_norm")
def wrong_accumulation_in_mean_in_bfloat16(x, eps):
    mean = x.mean((-2, -1), keepdim=True)
    centred = x - mean
    variance = centred.float().pow(2).mean((-2, -1), keepdim=True)
    return (centred * (variance + eps).rsqrt()).bfloat16()


@implements("instance_norm")
def wrong_formula_in_unbiased(x, eps):
    wide = x.float()
    variance, mean = torch.var_mean(wide, (-2, -1), keepdim=True)
    return ((wide - mean) * (variance + eps).rsqrt()).bfloat16()


@implements("instance_norm")
def wrong_clamp_in_variance_difference(x, eps):
    """Mean of squares less the square of the mean, which cancels and may be negative."""
    wide = x.float()
    mean = wide.mean((-2, -1), keepdim=True)
    variance = wide.pow(2).mean((-2, -1), keepdim=True) - mean.pow(2)
    return ((wide - mean) * (variance + eps).rsqrt()).bfloat16()


@implements("instance_norm")
def wrong_eps_in_missing(x, eps):
    wide = x.float()
    variance, mean = torch.var_mean(wide, (-2, -1), correction=0, keepdim=True)
    return ((wide - mean) * variance.rsqrt()).bfloat16()


@implements("weight_norm")
def honest_wn_normalize(v, g):
    return v / v.norm(dim=-1, keepdim=True) * g.unsqueeze(-1)


@implements("weight_norm")
def honest_wn_scaled_by_largest(v, g):
    top = v.abs().amax(-1, keepdim=True)
    unit = v / top
    return unit * (g.unsqueeze(-1) * unit.pow(2).sum(-1, keepdim=True).rsqrt())


@implements("weight_norm")
def wrong_axis_wn_columns(v, g):
    return v / v.norm(dim=0) * g.unsqueeze(-1)


@implements("weight_norm")
def wrong_axis_wn_whole_tensor(v, g):
    return v / v.norm() * g.unsqueeze(-1)


@implements("weight_norm")
def wrong_formula_wn_g_multiplies_v(v, g):
    return v * g.unsqueeze(-1)


@implements("weight_norm")
def wrong_scale_wn_root_mean_square(v, g):
    return v * v.pow(2).mean(-1, keepdim=True).rsqrt() * g.unsqueeze(-1)


@implements("weight_norm")
def wrong_formula_wn_absolute_g(v, g):
    return v / v.norm(dim=-1, keepdim=True) * g.abs().unsqueeze(-1)


@implements("weight_norm")
def wrong_mutation_wn_in_place(v, g):
    return v.mul_((g / v.norm(dim=-1)).unsqueeze(-1)).clone()


@implements("rmsnorm_backward")
def honest_drms_coefficients(grad, x, weight, eps):
    g, wide, w = grad.double(), x.double(), weight.double()
    mean_square = wide.pow(2).mean(-1, keepdim=True) + eps
    inverse = mean_square.rsqrt()
    inner = (g * w * wide).sum(-1, keepdim=True)
    dx = inverse * g * w - wide * inverse**3 * inner / x.shape[-1]
    return dx.to(x.dtype), (g * wide * inverse).sum(0).float()


@implements("rmsnorm_backward")
def honest_drms_blocks_of_rows(grad, x, weight, eps):
    parts, outs = [], []
    w = weight.float()
    for g, wide in zip(grad.float().split(64), x.float().split(64), strict=True):
        inverse = 1 / torch.sqrt((wide * wide).sum(-1, keepdim=True) / x.shape[-1] + eps)
        normal = wide * inverse
        gw = g * w
        outs.append(inverse * gw - inverse * normal * (gw * normal).mean(-1, keepdim=True))
        parts.append((g * normal).sum(0))
    return torch.cat(outs).to(x.dtype), torch.stack(parts).sum(0)


@implements("rmsnorm_backward")
def wrong_formula_drms_statistics_constant(grad, x, weight, eps):
    wide = x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    dx = grad.float() * weight.float() * inverse
    return dx.to(x.dtype), (grad.float() * wide * inverse).sum(0)


@implements("rmsnorm_backward")
def wrong_scale_drms_sum_in_place_of_mean(grad, x, weight, eps):
    g, wide = grad.float(), x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    normal = wide * inverse
    gw = g * weight.float()
    dx = inverse * (gw - normal * (gw * normal).sum(-1, keepdim=True))
    return dx.to(x.dtype), (g * normal).sum(0)


@implements("rmsnorm_backward")
def wrong_accumulation_drms_dweight_in_bfloat16(grad, x, weight, eps):
    g, wide = grad.float(), x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    normal = wide * inverse
    gw = g * weight.float()
    dx = inverse * (gw - normal * (gw * normal).mean(-1, keepdim=True))
    total = torch.zeros_like(weight)
    for block in (g * normal).split(32):
        total += block.sum(0).bfloat16()
    return dx.to(x.dtype), total.float()


@implements("rmsnorm_backward")
def wrong_formula_drms_dweight_times_weight(grad, x, weight, eps):
    g, wide = grad.float(), x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    normal = wide * inverse
    gw = g * weight.float()
    dx = inverse * (gw - normal * (gw * normal).mean(-1, keepdim=True))
    return dx.to(x.dtype), (gw * normal).sum(0)


@implements("rmsnorm_backward")
def wrong_boundary_drms_dweight_last_partial_block(grad, x, weight, eps):
    g, wide = grad.float(), x.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    normal = wide * inverse
    gw = g * weight.float()
    dx = inverse * (gw - normal * (gw * normal).mean(-1, keepdim=True))
    rows = max(len(x) // 32 * 32, min(len(x), 32))
    return dx.to(x.dtype), (g * normal)[:rows].sum(0)


@implements("layernorm_backward")
def honest_dln_autograd(grad, x, weight):
    wide = x.float().requires_grad_()
    F.layer_norm(wide, x.shape[-1:], weight).backward(grad.float())
    return wide.grad.half()


@implements("layernorm_backward")
def honest_dln_double(grad, x, weight):
    wide, gw = x.double(), grad.double() * weight.double()
    centred = wide - wide.mean(-1, keepdim=True)
    sigma = (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    along = (gw * centred).mean(-1, keepdim=True) / sigma**3
    return ((gw - gw.mean(-1, keepdim=True)) / sigma - centred * along).half()


@implements("layernorm_backward")
def wrong_formula_dln_mean_not_taken_off(grad, x, weight):
    wide = x.float()
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    inverse = (variance + 1e-5).rsqrt()
    normal = (wide - mean) * inverse
    gw = grad.float() * weight
    return (inverse * (gw - normal * (gw * normal).mean(-1, keepdim=True))).half()


@implements("layernorm_backward")
def wrong_formula_dln_weight_forgotten(grad, x, weight):
    wide = x.float()
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    inverse = (variance + 1e-5).rsqrt()
    normal = (wide - mean) * inverse
    g = grad.float()
    along = (g * normal).mean(-1, keepdim=True)
    return (inverse * (g - g.mean(-1, keepdim=True) - normal * along)).half()


@implements("layernorm_backward")
def wrong_eps_dln_smaller(grad, x, weight):
    wide = x.float().requires_grad_()
    F.layer_norm(wide, x.shape[-1:], weight, eps=1e-6).backward(grad.float())
    return wide.grad.half()


@implements("layernorm_backward")
def wrong_boundary_dln_means_over_512(grad, x, weight):
    """Divides by the padded width of the tile."""
    wide = x.float()
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    inverse = (variance + 1e-5).rsqrt()
    normal = (wide - mean) * inverse
    gw = grad.float() * weight
    first = gw.sum(-1, keepdim=True) / 512
    along = (gw * normal).sum(-1, keepdim=True) / 512
    return (inverse * (gw - first - normal * along)).half()


@implements("layernorm_backward")
def wrong_accumulation_dln_in_half(grad, x, weight):
    centred = x - x.mean(-1, keepdim=True)
    inverse = ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt()
    normal = centred * inverse
    gw = grad * weight.half()
    along = (gw * normal).mean(-1, keepdim=True)
    return inverse * (gw - gw.mean(-1, keepdim=True) - normal * along)


@implements("l2_normalize")
def honest_l2_torch(embedding):
    return F.normalize(embedding.float(), dim=-1, eps=1e-6).half()


@implements("l2_normalize")
def honest_l2_double_einsum(embedding):
    wide = embedding.double()
    square = torch.einsum("bd,bd->b", wide, wide)
    return (wide * square.clamp(min=1e-12).rsqrt()[:, None]).half()


@implements("l2_normalize")
def wrong_overflow_l2_squares_in_half(embedding):
    square = (embedding * embedding).sum(-1, keepdim=True)
    return (embedding.float() / square.float().sqrt().clamp(min=1e-6)).half()


@implements("l2_normalize")
def wrong_eps_l2_added(embedding):
    wide = embedding.float()
    return (wide / (wide.norm(dim=-1, keepdim=True) + 1e-2)).half()


@implements("l2_normalize")
def wrong_special_l2_zero_rows(embedding):
    wide = embedding.float()
    return (wide / wide.norm(dim=-1, keepdim=True)).half()


@implements("l2_normalize")
def wrong_axis_l2_columns(embedding):
    return F.normalize(embedding.float(), dim=0, eps=1e-6).half()


@implements("l2_normalize")
def wrong_formula_l2_by_l1(embedding):
    return F.normalize(embedding.float(), p=1, dim=-1, eps=1e-6).half()


@implements("l2_normalize")
def wrong_threshold_l2_long_rows_by_1024(embedding):
    wide = embedding.float()
    square = wide[:, :1024].pow(2).sum(-1, keepdim=True)
    return (wide / square.sqrt().clamp(min=1e-6)).half()


@implements("qk_norm_heads")
def honest_qkn_torch(q, weight, eps):
    return F.rms_norm(q.float(), q.shape[-1:], weight.float(), eps).bfloat16()


@implements("qk_norm_heads")
def honest_qkn_two_halves(q, weight, eps):
    wide = q.float()
    square = (wide[..., :32] ** 2).sum(-1) + (wide[..., 32:] ** 2).sum(-1)
    inverse = 1 / torch.sqrt(square / 64 + eps)
    return (wide * (inverse[..., None] * weight.float())).bfloat16()


@implements("qk_norm_heads")
def wrong_axis_qkn_all_heads_together(q, weight, eps):
    wide = q.float()
    inverse = wide.pow(2).mean((-2, -1), keepdim=True).add(eps).rsqrt()
    return (wide * inverse * weight.float()).bfloat16()


@implements("qk_norm_heads")
def honest_qkn_rounded_before_the_weight(q, weight, eps):
    """As most models' code has it: a second rounding, which is what bfloat16 steps cost."""
    wide = q.float()
    normal = (wide * wide.pow(2).mean(-1, keepdim=True).add(eps).rsqrt()).bfloat16()
    return normal * weight


@implements("qk_norm_heads")
def wrong_eps_qkn_missing(q, weight, eps):
    wide = q.float()
    return (wide * wide.pow(2).mean(-1, keepdim=True).rsqrt() * weight.float()).bfloat16()


@implements("qk_norm_heads")
def wrong_formula_qkn_one_plus_weight(q, weight, eps):
    wide = q.float()
    inverse = wide.pow(2).mean(-1, keepdim=True).add(eps).rsqrt()
    return (wide * inverse * (1 + weight.float())).bfloat16()


@implements("qk_norm_heads")
def wrong_formula_qkn_mean_taken_off(q, weight, eps):
    return F.layer_norm(q.float(), q.shape[-1:], weight.float(), eps=eps).bfloat16()


@implements("qk_norm_heads")
def wrong_boundary_qkn_last_head_unwritten(q, weight, eps):
    out = torch.zeros_like(q)
    done = F.rms_norm(q.float(), q.shape[-1:], weight.float(), eps).bfloat16()
    out[:, :4] = done[:, :4]
    return out
