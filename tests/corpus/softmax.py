"""Softmax in its variants."""

import torch

from pytest_fib import implements


@implements("masked_softmax")
def honest_masked_exp(scores, mask, scale):
    top = torch.where(mask, scores * scale, -torch.inf).amax(-1, keepdim=True)
    weights = torch.where(mask, (scores * scale - top).exp(), 0.0)
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


@implements("masked_softmax")
def honest_masked_rows_of_allowed_keys(scores, mask, scale):
    probs = torch.zeros_like(scores)
    for row, allowed in enumerate(mask):
        keys = allowed.nonzero().squeeze(-1)
        probs[row, keys] = torch.softmax(scores[row, keys] * scale, -1)
    return probs


@implements("masked_softmax")
def wrong_special_masked_rows_of_nan(scores, mask, scale):
    return torch.softmax((scores * scale).masked_fill(~mask, -torch.inf), -1)


@implements("masked_softmax")
def wrong_special_masked_rows_uniform(scores, mask, scale):
    return torch.softmax((scores * scale).masked_fill(~mask, -1e9), -1)


@implements("masked_softmax")
def wrong_formula_masked_after_softmax(scores, mask, scale):
    return torch.softmax(scores * scale, -1) * mask


@implements("masked_softmax")
def wrong_special_masked_with_zero(scores, mask, scale):
    probs = torch.softmax(scores * scale * mask, -1)
    return torch.where(mask.any(-1, keepdim=True), probs, 0.0)


@implements("masked_softmax")
def wrong_scale_masked_scale_forgotten(scores, mask, scale):
    probs = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
    return probs.nan_to_num(0.0)


@implements("masked_softmax")
def wrong_axis_masked_over_rows(scores, mask, scale):
    return torch.softmax((scores * scale).masked_fill(~mask, -torch.inf), 0).nan_to_num(0.0)


@implements("causal_softmax")
def honest_causal_row_by_row(scores):
    queries, keys = scores.shape[-2:]
    probs = torch.zeros_like(scores)
    for row in range(queries):
        end = keys - queries + row + 1
        probs[:, row, :end] = torch.softmax(scores[:, row, :end].float(), -1).to(scores.dtype)
    return probs


@implements("causal_softmax")
def honest_causal_tril(scores):
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    wide = torch.where(seen, scores.float(), -torch.inf)
    weights = torch.where(seen, (wide - wide.amax(-1, keepdim=True)).exp(), 0.0)
    return (weights / weights.sum(-1, keepdim=True)).to(scores.dtype)


@implements("causal_softmax")
def wrong_offbyone_causal_from_the_top_left(scores):
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.float().masked_fill(~seen, -torch.inf), -1).to(scores.dtype)


@implements("causal_softmax")
def wrong_offbyone_causal_sees_the_next(scores):
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries + 1)
    return torch.softmax(scores.float().masked_fill(~seen, -torch.inf), -1).to(scores.dtype)


@implements("causal_softmax")
def wrong_accumulation_causal_sum_in_bfloat16(scores):
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    wide = scores.float().masked_fill(~seen, -torch.inf)
    weights = (wide - wide.amax(-1, keepdim=True)).exp().bfloat16()
    total = torch.zeros_like(weights[..., :1])
    for tile in weights.split(32, -1):
        total = total + tile.sum(-1, keepdim=True)
    return weights / total


@implements("causal_softmax")
def wrong_special_causal_maximum_of_all_keys(scores):
    """The row's maximum includes keys it doesn't see, so all that it sees may underflow."""
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    wide = scores.float()
    weights = (wide - wide.amax(-1, keepdim=True)).exp() * seen
    return (weights / weights.sum(-1, keepdim=True)).to(scores.dtype)


@implements("causal_softmax")
def wrong_stale_causal_masked_part_unwritten(scores):
    queries, keys = scores.shape[-2:]
    probs = torch.empty_like(scores)
    for row in range(queries):
        end = keys - queries + row + 1
        probs[:, row, :end] = torch.softmax(scores[:, row, :end].float(), -1).to(scores.dtype)
    return probs


@implements("softmax_backward")
def honest_dsoftmax_distributed(grad, probs):
    gp = grad.float() * probs.float()
    return (gp - probs.float() * gp.sum(-1, keepdim=True)).half()


@implements("softmax_backward")
def honest_dsoftmax_einsum(grad, probs):
    g, p = grad.double(), probs.double()
    inner = torch.einsum("rc,rc->r", g, p)
    return (p * (g - inner[:, None])).half()


@implements("softmax_backward")
def wrong_formula_dsoftmax_sigmoid_gradient(grad, probs):
    g, p = grad.float(), probs.float()
    return (g * p * (1 - p)).half()


@implements("softmax_backward")
def wrong_accumulation_dsoftmax_half_sum(grad, probs):
    """The row's sum is rounded to float16 before it is taken off."""
    inner = (grad * probs).sum(-1, keepdim=True)
    return probs * (grad - inner)


@implements("softmax_backward")
def wrong_formula_dsoftmax_sum_of_grad(grad, probs):
    g, p = grad.float(), probs.float()
    return (p * (g - g.sum(-1, keepdim=True))).half()


@implements("softmax_backward")
def wrong_boundary_dsoftmax_1024_columns(grad, probs):
    g, p = grad.float(), probs.float()
    inner = (g * p)[:, :1024].sum(-1, keepdim=True)
    return (p * (g - inner)).half()


@implements("softmax_backward")
def wrong_axis_dsoftmax_over_rows(grad, probs):
    g, p = grad.float(), probs.float()
    return (p * (g - (g * p).sum(0, keepdim=True))).half()


@implements("softmax_backward")
def wrong_mutation_dsoftmax_in_place(grad, probs):
    g, p = grad.float(), probs.float()
    grad.copy_(p * (g - (g * p).sum(-1, keepdim=True)))
    return grad.clone()


@implements("log_softmax")
def honest_log_softmax_shifted(logits, temperature):
    x = logits.float() / temperature.unsqueeze(-1)
    x = x - x.amax(-1, keepdim=True)
    return x - x.exp().sum(-1, keepdim=True).log()


@implements("log_softmax")
def honest_log_softmax_double(logits, temperature):
    x = logits.double() / temperature.double().unsqueeze(-1)
    return (x - torch.logsumexp(x, -1, keepdim=True)).float()


@implements("log_softmax")
def wrong_broadcast_log_softmax_first_temperature(logits, temperature):
    return torch.log_softmax(logits.float() / temperature[0], -1)


@implements("log_softmax")
def wrong_special_log_softmax_log_of_probability(logits, temperature):
    return torch.softmax(logits.float() / temperature[:, None], -1).log()


@implements("log_softmax")
def wrong_scale_log_softmax_divides_afterwards(logits, temperature):
    return torch.log_softmax(logits.float(), -1) / temperature[:, None]


@implements("log_softmax")
def wrong_accumulation_log_softmax_in_float16(logits, temperature):
    x = logits / temperature.half()[:, None]
    return torch.log_softmax(x, -1).float()


@implements("log_softmax")
def wrong_eps_log_softmax_eps_in_the_log(logits, temperature):
    probs = torch.softmax(logits.float() / temperature[:, None], -1)
    return (probs + 1e-8).log()


@implements("logit_softcap")
def honest_softcap_expm1(logits, cap):
    x = logits.float() / cap
    e = torch.expm1(-2 * x.abs())
    return (cap * x.sign() * -e / (2 + e)).to(logits.dtype)


@implements("logit_softcap")
def honest_softcap_polynomial_near_zero(logits, cap):
    x = logits.double() / cap
    near = x - x**3 / 3 + 2 * x**5 / 15
    capped = torch.where(x.abs() < 0.01, near, 2 * torch.sigmoid(2 * x) - 1)
    return (cap * capped).to(logits.dtype)


@implements("logit_softcap")
def wrong_clamp_softcap_hard(logits, cap):
    return logits.float().clamp(-cap, cap).to(logits.dtype)


@implements("logit_softcap")
def wrong_scale_softcap_not_scaled_back(logits, cap):
    return torch.tanh(logits.float() / cap).to(logits.dtype)


@implements("logit_softcap")
def wrong_accumulation_softcap_steps_in_bfloat16(logits, cap):
    return cap * torch.tanh(logits / cap)


@implements("logit_softcap")
def wrong_special_softcap_exp_overflows(logits, cap):
    x = logits.float() / cap
    e = (2 * x).exp()
    return (cap * (e - 1) / (e + 1)).to(logits.dtype)


@implements("logit_softcap")
def wrong_formula_softcap_softsign(logits, cap):
    x = logits.float() / cap
    return (cap * x / (1 + x.abs())).to(logits.dtype)


@implements("logit_softcap")
def honest_softcap_by_sigmoid(logits, cap):
    """What is below a roundoff of the cap is 0, as in the Triton kernels of serving engines."""
    x = logits.float() / cap
    return (cap * (2 * torch.sigmoid(2 * x) - 1)).to(logits.dtype)
