"""Losses: cross entropy and its relatives."""

import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("cross_entropy")
def honest_ce_torch(logits, target):
    return F.cross_entropy(logits, target, reduction="sum") / (target >= 0).sum().clamp(min=1)


@implements("cross_entropy")
def honest_ce_online(logits, target):
    top = torch.full_like(logits[:, 0], -torch.inf)
    total = torch.zeros_like(top)
    for tile in logits.split(128, dim=-1):
        new = torch.maximum(top, tile.amax(-1))
        total = total * (top - new).exp() + (tile - new[:, None]).exp().sum(-1)
        top = new
    rows = (target >= 0).nonzero().squeeze(-1)
    each = (top[rows] - logits[rows, target[rows]]) + total[rows].log()
    return each.sum() / max(len(rows), 1)


@implements("cross_entropy")
def wrong_special_ce_without_the_maximum(logits, target):
    counts = target != -100
    picked = logits.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    each = torch.where(counts, logits.exp().sum(-1).log() - picked, 0.0)
    return each.sum() / counts.sum().clamp(min=1)


@implements("cross_entropy")
def wrong_sentinel_ce_counts_ignored_rows(logits, target):
    return F.cross_entropy(logits, target.clamp(min=0))


@implements("cross_entropy")
def wrong_scale_ce_divides_by_all_rows(logits, target):
    return F.cross_entropy(logits, target, reduction="sum") / len(target)


@implements("cross_entropy")
def wrong_special_ce_nan_where_no_row_counts(logits, target):
    return F.cross_entropy(logits, target)


@implements("cross_entropy")
def wrong_accumulation_ce_in_bfloat16(logits, target):
    each = F.cross_entropy(logits.bfloat16(), target, reduction="sum")
    return each.float() / (target >= 0).sum().clamp(min=1)


@implements("cross_entropy")
def wrong_boundary_ce_whole_tiles_only(logits, target):
    classes = logits.shape[-1]
    whole = classes // 64 * 64 if classes > 64 else classes
    picked = logits.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    each = (torch.logsumexp(logits[:, :whole], -1) - picked) * (target >= 0)
    return each.sum() / (target >= 0).sum().clamp(min=1)


@implements("label_smoothing_loss")
def honest_ls_torch(logits, labels, smoothing):
    return F.cross_entropy(logits.float(), labels, label_smoothing=smoothing, reduction="none")


@implements("label_smoothing_loss")
def honest_ls_one_pass(logits, labels, smoothing):
    wide = logits.float()
    top = wide.amax(-1, keepdim=True)
    wide = wide - top
    lse = wide.exp().sum(-1).log()
    picked = wide[torch.arange(len(labels)), labels]
    return lse - (1 - smoothing) * picked - smoothing * wide.mean(-1)


@implements("label_smoothing_loss")
def wrong_accumulation_ls_in_bfloat16(logits, labels, smoothing):
    logp = torch.log_softmax(logits, -1)
    nll = -logp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return ((1 - smoothing) * nll - smoothing * logp.mean(-1)).float()


@implements("label_smoothing_loss")
def wrong_scale_ls_sum_in_place_of_mean(logits, labels, smoothing):
    logp = torch.log_softmax(logits.float(), -1)
    nll = -logp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (1 - smoothing) * nll - smoothing * logp.sum(-1)


@implements("label_smoothing_loss")
def wrong_formula_ls_spreads_over_other_classes(logits, labels, smoothing):
    logp = torch.log_softmax(logits.float(), -1)
    nll = -logp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    others = -(logp.sum(-1) + nll) / max(logits.shape[-1] - 1, 1)
    return (1 - smoothing) * nll + smoothing * others


@implements("label_smoothing_loss")
def wrong_formula_ls_forgets_one_minus_smoothing(logits, labels, smoothing):
    logp = torch.log_softmax(logits.float(), -1)
    nll = -logp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return nll - smoothing * logp.mean(-1)


@implements("label_smoothing_loss")
def wrong_threshold_ls_no_smoothing_for_large_vocab(logits, labels, smoothing):
    wide = logits.float()
    if logits.shape[-1] > 4096:  # the path for large vocabularies
        return F.cross_entropy(wide, labels, reduction="none")
    return F.cross_entropy(wide, labels, label_smoothing=smoothing, reduction="none")


@implements("huber_loss")
def honest_huber_clamped(prediction, target, delta):
    error = (prediction - target).abs()
    inner = error.clamp(max=delta)
    return (inner * (error - 0.5 * inner)).mean()


@implements("huber_loss")
def honest_huber_blocks(prediction, target, delta):
    total = torch.zeros((), dtype=torch.float32)
    for p, t in zip(prediction.split(1024), target.split(1024), strict=True):
        total = total + F.huber_loss(p, t, delta=delta, reduction="sum")
    return total / len(prediction)


@implements("huber_loss")
def wrong_formula_huber_smooth_l1(prediction, target, delta):
    return F.smooth_l1_loss(prediction, target, beta=delta)


@implements("huber_loss")
def wrong_formula_huber_linear_part_not_joined(prediction, target, delta):
    error = (prediction - target).abs()
    return torch.where(error <= delta, 0.5 * error * error, delta * error).mean()


@implements("huber_loss")
def wrong_formula_huber_signed_error(prediction, target, delta):
    error = prediction - target
    each = torch.where(error <= delta, 0.5 * error * error, delta * (error - 0.5 * delta))
    return each.mean()


@implements("huber_loss")
def wrong_scale_huber_sum(prediction, target, delta):
    return F.huber_loss(prediction, target, delta=delta, reduction="sum")


@implements("huber_loss")
def wrong_boundary_huber_means_of_blocks(prediction, target, delta):
    """Averages the means of blocks, of which the last has fewer elements."""
    error = (prediction - target).abs()
    inner = error.clamp(max=delta)
    each = inner * (error - 0.5 * inner)
    return torch.stack([block.mean() for block in each.split(256)]).mean()


@implements("kl_divergence")
def honest_kl_torch(teacher, student):
    logp = torch.log_softmax(teacher.float(), -1)
    logq = torch.log_softmax(student.float(), -1)
    return F.kl_div(logq, logp, log_target=True, reduction="none").sum(-1)


@implements("kl_divergence")
def honest_kl_float64_sums(teacher, student):
    p, q = teacher.double(), student.double()
    weights = p.softmax(-1)
    means = (weights * (p - q)).sum(-1)
    return (means - torch.logsumexp(p, -1) + torch.logsumexp(q, -1)).float()


@implements("kl_divergence")
def wrong_formula_kl_reversed(teacher, student):
    logp = torch.log_softmax(teacher.float(), -1)
    logq = torch.log_softmax(student.float(), -1)
    return (logq.exp() * (logq - logp)).sum(-1)


@implements("kl_divergence")
def wrong_formula_kl_without_normalisers(teacher, student):
    p, q = teacher.float(), student.float()
    return (p.softmax(-1) * (p - q)).sum(-1)


@implements("kl_divergence")
def wrong_special_kl_log_of_softmax(teacher, student):
    """Probabilities that underflow become log(0), times 0."""
    p, q = teacher.float().softmax(-1), student.float().softmax(-1)
    return (p * (p.log() - q.log())).sum(-1)


@implements("kl_divergence")
def wrong_accumulation_kl_in_float16(teacher, student):
    logp = torch.log_softmax(teacher, -1)
    logq = torch.log_softmax(student, -1)
    return (logp.exp() * (logp - logq)).sum(-1).float()


@implements("kl_divergence")
def wrong_eps_kl_adds_eps_to_probabilities(teacher, student):
    p, q = teacher.float().softmax(-1), student.float().softmax(-1)
    return (p * ((p + 1e-6).log() - (q + 1e-6).log())).sum(-1)


@implements("kl_divergence")
def wrong_scale_kl_mean_over_vocab(teacher, student):
    logp = torch.log_softmax(teacher.float(), -1)
    logq = torch.log_softmax(student.float(), -1)
    return (logp.exp() * (logp - logq)).mean(-1)


@implements("info_nce")
def honest_nce_scale_later(image, text, temperature):
    scores = (image @ text.T) / image.norm(dim=-1)[:, None] / text.norm(dim=-1)[None]
    scores = scores / temperature
    return torch.logsumexp(scores - scores.diagonal()[:, None], -1)


@implements("info_nce")
def honest_nce_cross_entropy(image, text, temperature):
    scores = F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T / temperature
    return F.cross_entropy(scores, torch.arange(len(image)), reduction="none")


@implements("info_nce")
def wrong_axis_nce_over_columns(image, text, temperature):
    scores = F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T / temperature
    return torch.logsumexp(scores, 0) - scores.diagonal()


@implements("info_nce")
def wrong_scale_nce_multiplies_by_temperature(image, text, temperature):
    scores = F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T * temperature
    return torch.logsumexp(scores, -1) - scores.diagonal()


@implements("info_nce")
def wrong_axis_nce_normalises_over_pairs(image, text, temperature):
    scores = F.normalize(image, dim=0) @ F.normalize(text, dim=0).T / temperature
    return torch.logsumexp(scores, -1) - scores.diagonal()


@implements("info_nce")
def wrong_formula_nce_leaves_out_the_positive(image, text, temperature):
    scores = F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T / temperature
    others = scores.clone().fill_diagonal_(-1e4)
    return torch.logsumexp(others, -1) - scores.diagonal()


@implements("info_nce")
def wrong_accumulation_nce_bfloat16_similarities(image, text, temperature):
    a, b = F.normalize(image, dim=-1).bfloat16(), F.normalize(text, dim=-1).bfloat16()
    scores = (a @ b.T).float() / temperature
    return torch.logsumexp(scores, -1) - scores.diagonal()


@implements("info_nce")
def wrong_threshold_nce_first_512_negatives(image, text, temperature):
    scores = F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T / temperature
    return torch.logsumexp(scores[:, :512], -1) - scores.diagonal()


@implements("bce_with_logits")
def honest_bce_torch(logits, truth, pos_weight):
    each = F.binary_cross_entropy_with_logits(
        logits.float(), truth.float(), pos_weight=pos_weight, reduction="none"
    )
    return each.sum(-1)


@implements("bce_with_logits")
def honest_bce_stable_by_hand(logits, truth, pos_weight):
    x = logits.float()
    soft = (-x.abs()).exp().log1p()
    positive = soft + (-x).clamp(min=0)
    negative = soft + x.clamp(min=0)
    weights = truth.float() * pos_weight
    return (weights * positive + (~truth).float() * negative).sum(-1)


@implements("bce_with_logits")
def wrong_special_bce_log_of_sigmoid(logits, truth, pos_weight):
    p = torch.sigmoid(logits.float())
    return torch.where(truth, -pos_weight * p.log(), -(1 - p).log()).sum(-1)


@implements("bce_with_logits")
def wrong_clamp_bce_probabilities_clamped(logits, truth, pos_weight):
    p = torch.sigmoid(logits.float()).clamp(1e-6, 1 - 1e-6)
    return torch.where(truth, -pos_weight * p.log(), -(1 - p).log()).sum(-1)


@implements("bce_with_logits")
def wrong_broadcast_bce_weights_both_sides(logits, truth, pos_weight):
    each = F.binary_cross_entropy_with_logits(logits.float(), truth.float(), reduction="none")
    return (each * pos_weight).sum(-1)


@implements("bce_with_logits")
def wrong_scale_bce_mean(logits, truth, pos_weight):
    each = F.binary_cross_entropy_with_logits(
        logits.float(), truth.float(), pos_weight=pos_weight, reduction="none"
    )
    return each.mean(-1)


@implements("bce_with_logits")
def wrong_boundary_bce_16_labels(logits, truth, pos_weight):
    each = F.binary_cross_entropy_with_logits(
        logits.float(), truth.float(), pos_weight=pos_weight, reduction="none"
    )
    return each[:, :16].sum(-1)


@implements("bce_with_logits")
def wrong_accumulation_bce_in_bfloat16(logits, truth, pos_weight):
    each = torch.where(truth, pos_weight.bfloat16() * F.softplus(-logits), F.softplus(logits))
    return each.sum(-1).float()
