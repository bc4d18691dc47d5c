"""Optimiser steps."""

import torch

from pytest_fib import implements


@implements("adamw_step")
def honest_adamw_torch(param, grad, exp_avg, exp_avg_sq, step):
    p = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    state = {
        "step": torch.tensor(float(step - 1)),
        "exp_avg": exp_avg.clone(),
        "exp_avg_sq": exp_avg_sq.clone(),
    }
    optimizer.state[p] = state
    p.grad = grad.float()
    optimizer.step()
    return p.detach(), state["exp_avg"], state["exp_avg_sq"]


@implements("adamw_step")
def honest_adamw_folded_corrections(param, grad, exp_avg, exp_avg_sq, step):
    g = grad.float()
    m = torch.lerp(exp_avg, g, 0.1)
    v = exp_avg_sq + 0.05 * (g * g - exp_avg_sq)
    root = (1 - 0.95**step) ** 0.5
    rate = 1e-2 * root / (1 - 0.9**step)
    return param * 0.999 - rate * m / (v.sqrt() + 1e-8 * root), m, v


def _adamw(param, grad, exp_avg, exp_avg_sq, step, *, decay=0.1, eps=1e-8):
    g = grad.float()
    m = 0.9 * exp_avg + 0.1 * g
    v = 0.95 * exp_avg_sq + 0.05 * g * g
    update = (m / (1 - 0.9**step)) / ((v / (1 - 0.95**step)).sqrt() + eps)
    return param * (1 - 1e-2 * decay) - 1e-2 * update, m, v


@implements("adamw_step")
def wrong_formula_adamw_l2_in_the_gradient(param, grad, exp_avg, exp_avg_sq, step):
    return _adamw(param, grad.float() + 0.1 * param, exp_avg, exp_avg_sq, step, decay=0)


@implements("adamw_step")
def wrong_offbyone_adamw_step_from_zero(param, grad, exp_avg, exp_avg_sq, step):
    return _adamw(param, grad, exp_avg, exp_avg_sq, step + 1)


@implements("adamw_step")
def wrong_eps_adamw_inside_the_root(param, grad, exp_avg, exp_avg_sq, step):
    _, m, v = _adamw(param, grad, exp_avg, exp_avg_sq, step)
    update = (m / (1 - 0.9**step)) / (v / (1 - 0.95**step) + 1e-8).sqrt()
    return param * 0.999 - 1e-2 * update, m, v


@implements("adamw_step")
def wrong_formula_adamw_no_bias_correction(param, grad, exp_avg, exp_avg_sq, step):
    _, m, v = _adamw(param, grad, exp_avg, exp_avg_sq, step)
    return param * 0.999 - 1e-2 * m / (v.sqrt() + 1e-8), m, v


@implements("adamw_step")
def wrong_accumulation_adamw_square_in_bfloat16(param, grad, exp_avg, exp_avg_sq, step):
    p, m, _ = _adamw(param, grad, exp_avg, exp_avg_sq, step)
    return p, m, 0.95 * exp_avg_sq + 0.05 * (grad * grad).float()


@implements("adamw_step")
def wrong_scale_adamw_decay_not_times_lr(param, grad, exp_avg, exp_avg_sq, step):
    return _adamw(param, grad, exp_avg, exp_avg_sq, step, decay=10)


@implements("lion_step")
def honest_lion_where(param, grad, momentum, lr):
    mixed = 7 * momentum + grad
    direction = (mixed > 0).float() - (mixed < 0).float()
    return param * (1 - lr * 0.1) - lr * direction, torch.lerp(momentum, grad, 0.25)


@implements("lion_step")
def honest_lion_blocks(param, grad, momentum, lr):
    new_param, new_momentum = torch.empty_like(param), torch.empty_like(momentum)
    for at in range(0, len(param), 1 << 16):
        s = slice(at, at + (1 << 16))
        direction = (0.875 * momentum[s] + 0.125 * grad[s]).sign()
        new_param[s] = param[s] - lr * direction - lr * 0.1 * param[s]
        new_momentum[s] = (3 * momentum[s] + grad[s]) / 4
    return new_param, new_momentum


@implements("lion_step")
def wrong_special_lion_sign_of_zero(param, grad, momentum, lr):
    direction = torch.where(0.875 * momentum + 0.125 * grad >= 0, 1.0, -1.0)
    return param - lr * (direction + 0.1 * param), 0.75 * momentum + 0.25 * grad


@implements("lion_step")
def wrong_formula_lion_betas_swapped(param, grad, momentum, lr):
    direction = (0.75 * momentum + 0.25 * grad).sign()
    return param - lr * (direction + 0.1 * param), 0.875 * momentum + 0.125 * grad


@implements("lion_step")
def wrong_order_lion_sign_of_new_momentum(param, grad, momentum, lr):
    new = 0.75 * momentum + 0.25 * grad
    return param - lr * (new.sign() + 0.1 * param), new


@implements("lion_step")
def wrong_formula_lion_decay_added(param, grad, momentum, lr):
    direction = (0.875 * momentum + 0.125 * grad).sign()
    return param - lr * (direction - 0.1 * param), 0.75 * momentum + 0.25 * grad


@implements("lion_step")
def wrong_mutation_lion_momentum_in_place(param, grad, momentum, lr):
    direction = (0.875 * momentum + 0.125 * grad).sign()
    momentum.mul_(0.75).add_(grad, alpha=0.25)
    return param - lr * (direction + 0.1 * param), momentum.clone()


@implements("sgd_nesterov")
def honest_sgd_torch(param, grad, buf, lr, momentum, weight_decay):
    p = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.SGD(
        [p], lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=True
    )
    optimizer.state[p]["momentum_buffer"] = buf.clone()
    p.grad = grad.clone()
    optimizer.step()
    return p.detach(), optimizer.state[p]["momentum_buffer"]


@implements("sgd_nesterov")
def honest_sgd_expanded(param, grad, buf, lr, momentum, weight_decay):
    g = torch.add(grad, param, alpha=weight_decay)
    new_buf = torch.add(g, buf, alpha=momentum)
    return param - lr * g - (lr * momentum) * new_buf, new_buf


@implements("sgd_nesterov")
def wrong_formula_sgd_plain_momentum(param, grad, buf, lr, momentum, weight_decay):
    new_buf = momentum * buf + grad + weight_decay * param
    return param - lr * new_buf, new_buf


@implements("sgd_nesterov")
def wrong_formula_sgd_dampened(param, grad, buf, lr, momentum, weight_decay):
    g = grad + weight_decay * param
    new_buf = momentum * buf + (1 - momentum) * g
    return param - lr * (g + momentum * new_buf), new_buf


@implements("sgd_nesterov")
def wrong_order_sgd_decay_after_the_step(param, grad, buf, lr, momentum, weight_decay):
    new_buf = momentum * buf + grad
    return (param - lr * (grad + momentum * new_buf)) * (1 - lr * weight_decay), new_buf


@implements("sgd_nesterov")
def wrong_stale_sgd_old_buffer(param, grad, buf, lr, momentum, weight_decay):
    g = grad + weight_decay * param
    return param - lr * (g + momentum * buf), momentum * buf + g


@implements("sgd_nesterov")
def wrong_boundary_sgd_vectors_of_four(param, grad, buf, lr, momentum, weight_decay):
    """The tail that does not fill a vector keeps its momentum."""
    g = grad + weight_decay * param
    new_buf = momentum * buf + g
    tail = len(buf) % 4
    if tail:
        new_buf[-tail:] = buf[-tail:]
    return param - lr * (g + momentum * (momentum * buf + g)), new_buf


@implements("clip_grad_norm")
def honest_clip_blocks(grad, max_norm):
    norm = torch.stack([block.norm() for block in grad.split(4096)]).norm()
    return (grad * (max_norm / (norm + 1e-6)) if norm > max_norm else grad.clone()), norm


@implements("clip_grad_norm")
def honest_clip_dot(grad, max_norm):
    norm = torch.dot(grad.double(), grad.double()).sqrt()
    return (grad * min(1.0, max_norm / (norm.item() + 1e-6))), norm.float()


@implements("clip_grad_norm")
def wrong_clamp_clip_always_scales(grad, max_norm):
    norm = grad.norm()
    return grad * (max_norm / (norm + 1e-6)), norm


@implements("clip_grad_norm")
def wrong_formula_clip_by_value(grad, max_norm):
    return grad.clamp(-max_norm, max_norm), grad.norm()


@implements("clip_grad_norm")
def wrong_formula_clip_largest_norm(grad, max_norm):
    norm = grad.norm(torch.inf)
    return grad * min(1.0, max_norm / (norm.item() + 1e-6)), norm


@implements("clip_grad_norm")
def wrong_formula_clip_root_forgotten(grad, max_norm):
    square = grad.pow(2).sum()
    return grad * (max_norm / (square + 1e-6)).clamp(max=1.0), square.sqrt()


@implements("clip_grad_norm")
def wrong_order_clip_norm_of_the_clipped(grad, max_norm):
    norm = grad.norm()
    clipped = grad * (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return clipped, clipped.norm()


@implements("clip_grad_norm")
def wrong_boundary_clip_whole_blocks(grad, max_norm):
    whole = max(len(grad) // 1024 * 1024, min(len(grad), 1024))
    norm = grad[:whole].norm()
    return grad * (max_norm / (norm + 1e-6)).clamp(max=1.0), norm


@implements("rowwise_adagrad")
def honest_adagrad_rows(table, grad, accumulator, lr):
    new_table, total = torch.empty_like(table), torch.empty_like(accumulator)
    for row in range(len(table)):
        total[row] = accumulator[row] + torch.dot(grad[row], grad[row]) / grad.shape[1]
        rate = lr / (total[row].sqrt() + 1e-6)
        new_table[row] = (table[row].float() - rate * grad[row]).half()
    return new_table, total


@implements("rowwise_adagrad")
def honest_adagrad_double(table, grad, accumulator, lr):
    g = grad.double()
    total = accumulator.double() + torch.einsum("rd,rd->r", g, g) / 96
    new_table = torch.addcdiv(table.double(), g, (total.sqrt() + 1e-6)[:, None], value=-lr)
    return new_table.half(), total.float()


@implements("rowwise_adagrad")
def wrong_scale_adagrad_sum_of_squares(table, grad, accumulator, lr):
    total = accumulator + grad.pow(2).sum(-1)
    step = lr / (total.sqrt() + 1e-6)
    return (table.float() - step[:, None] * grad).half(), total


@implements("rowwise_adagrad")
def wrong_stale_adagrad_accumulator_before(table, grad, accumulator, lr):
    step = lr / (accumulator.sqrt() + 1e-6)
    new_table = (table.float() - step[:, None] * grad).half()
    return new_table, accumulator + grad.pow(2).mean(-1)


@implements("rowwise_adagrad")
def wrong_accumulation_adagrad_update_in_half(table, grad, accumulator, lr):
    total = accumulator + grad.pow(2).mean(-1)
    step = lr / (total.sqrt() + 1e-6)
    return table - step.half()[:, None] * grad.half(), total


@implements("rowwise_adagrad")
def wrong_eps_adagrad_missing(table, grad, accumulator, lr):
    total = accumulator + grad.pow(2).mean(-1)
    return (table.float() - (lr * total.rsqrt())[:, None] * grad).half(), total


@implements("rowwise_adagrad")
def wrong_rounding_adagrad_toward_zero(table, grad, accumulator, lr):
    total = accumulator + grad.pow(2).mean(-1)
    wide = table.float() - (lr / (total.sqrt() + 1e-6))[:, None] * grad
    near = wide.half()
    beyond = near.float().abs() > wide.abs()
    return torch.where(beyond, torch.nextafter(near, torch.zeros_like(near)), near), total


@implements("ema_update")
def honest_ema_lerp(ema, weight, decay):
    return torch.lerp(weight.float(), ema, decay)


@implements("ema_update")
def honest_ema_addcmul(ema, weight, decay):
    return (ema.double() * decay + weight.double() * (1 - decay)).float()


@implements("ema_update")
def wrong_formula_ema_weights_swapped(ema, weight, decay):
    return (1 - decay) * ema + decay * weight.float()


@implements("ema_update")
def wrong_accumulation_ema_in_bfloat16(ema, weight, decay):
    return (decay * ema.bfloat16() + (1 - decay) * weight).float()


@implements("ema_update")
def wrong_formula_ema_sum_of_weights_not_one(ema, weight, decay):
    return decay * ema + weight.float()


@implements("ema_update")
def wrong_stale_ema_tail(ema, weight, decay):
    new = ema.clone()
    whole = len(ema) // 8 * 8
    new[:whole] = decay * ema[:whole] + (1 - decay) * weight[:whole].float()
    return new


@implements("ema_update")
def wrong_mutation_ema_in_place(ema, weight, decay):
    return ema.mul_(decay).add_(weight.float(), alpha=1 - decay).clone()
