"""Graph learning: sums, means and softmax over edges."""

from itertools import pairwise

import numpy as np
import torch

from pytest_fib import implements


def _owner(indptr):
    return torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.long().diff())


def _edge_softmax(scores, owner, nodes, *, largest=True, eps=0.0):
    where = owner[:, None].expand_as(scores)
    top = torch.full((nodes, scores.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, where, scores, "amax")[owner] if largest else 0.0
    weights = (scores - top).exp()
    total = torch.zeros(nodes, scores.shape[1]).index_add(0, owner, weights)
    return weights / (total[owner] + eps)


@implements("edge_softmax")
def honest_esoftmax_scatter(scores, indptr):
    return _edge_softmax(scores, _owner(indptr), len(indptr) - 1)


@implements("edge_softmax")
def honest_esoftmax_padded(scores, indptr):
    degree = indptr.diff()
    width = int(degree.max())
    column = torch.arange(width)
    real = column < degree[:, None]
    wide = torch.full((len(degree), width, scores.shape[1]), -torch.inf, dtype=torch.float64)
    wide[real] = scores.double()
    return torch.softmax(wide, 1)[real].float()


@implements("edge_softmax")
def wrong_special_esoftmax_without_the_maximum(scores, indptr):
    return _edge_softmax(scores, _owner(indptr), len(indptr) - 1, largest=False)


@implements("edge_softmax")
def wrong_eps_esoftmax_in_the_sum(scores, indptr):
    return _edge_softmax(scores, _owner(indptr), len(indptr) - 1, eps=1e-3)


@implements("edge_softmax")
def wrong_axis_esoftmax_over_all_edges(scores, indptr):
    return torch.softmax(scores, 0)


@implements("edge_softmax")
def wrong_special_esoftmax_largest_of_all(scores, indptr):
    """One maximum for the whole graph: nodes far below it underflow."""
    weights = (scores - scores.amax(0)).exp()
    total = torch.zeros(len(indptr) - 1, 2).index_add(0, _owner(indptr), weights)
    return weights / total[_owner(indptr)]


@implements("edge_softmax")
def wrong_boundary_esoftmax_last_node(scores, indptr):
    out = honest_esoftmax_scatter(scores, indptr)
    out[int(indptr[-2]) :] = 0
    return out


@implements("edge_softmax")
def wrong_broadcast_esoftmax_heads_share_the_sum(scores, indptr):
    owner = _owner(indptr)
    alone = _edge_softmax(scores[:, :1], owner, len(indptr) - 1)
    return alone.expand(-1, 2).clone()


@implements("gcn_aggregate")
def honest_gcn_dense(x, source, target):
    n = len(x)
    a = torch.eye(n, dtype=torch.float64)
    a.index_put_((target, source), torch.ones(len(source), dtype=torch.float64), accumulate=True)
    root = a.sum(1).rsqrt()
    return (root[:, None] * (a @ (root[:, None] * x.double()))).float()


@implements("gcn_aggregate")
def honest_gcn_sorted(x, source, target):
    degree = torch.ones(len(x)).index_add(0, target, torch.ones(len(target)))
    scaled = x / degree.sqrt()[:, None]
    order = target.argsort(stable=True)
    sums = scaled.clone()
    sums.index_add_(0, target[order], scaled[source[order]])
    return sums / degree.sqrt()[:, None]


def _gcn(x, source, target, degree_of, loops=1.0, power=-0.5):
    degree = torch.bincount(degree_of, minlength=len(x)).float() + loops
    scale = degree**power
    messages = x[source] * (scale[source] * scale[target])[:, None]
    return (loops * x * (scale * scale)[:, None]).index_add(0, target, messages)


@implements("gcn_aggregate")
def wrong_formula_gcn_degrees_of_sources(x, source, target):
    return _gcn(x, source, target, source)


@implements("gcn_aggregate")
def wrong_special_gcn_no_loops(x, source, target):
    return _gcn(x, source, target, target, loops=0.0).nan_to_num(0.0, 0.0, 0.0)


@implements("gcn_aggregate")
def wrong_formula_gcn_edges_reversed(x, source, target):
    return _gcn(x, target, source, source)


@implements("gcn_aggregate")
def wrong_scale_gcn_without_the_root(x, source, target):
    return _gcn(x, source, target, target, power=-1.0)


@implements("gcn_aggregate")
def wrong_formula_gcn_repeated_edges_once(x, source, target):
    pairs = torch.stack([source, target], -1).unique(dim=0)
    return _gcn(x, pairs[:, 0], pairs[:, 1], target)


@implements("gcn_aggregate")
def wrong_overflow_gcn_degrees_in_int4(x, source, target):
    """Degrees are kept in four bits."""
    degree = torch.bincount(target, minlength=len(x)) % 16
    scale = (degree.float() + 1).rsqrt()
    messages = x[source] * (scale[source] * scale[target])[:, None]
    return (x * (scale * scale)[:, None]).index_add(0, target, messages)


@implements("max_aggregate")
def honest_amax_loop(messages, target, like):
    best = [None] * len(like)
    for message, node in zip(messages, target.tolist(), strict=True):
        best[node] = message if best[node] is None else torch.maximum(best[node], message)
    zero = torch.zeros_like(messages[0])
    return torch.stack([zero if each is None else each for each in best])


@implements("max_aggregate")
def honest_amax_include_self(messages, target, like):
    where = target.long()[:, None].expand_as(messages)
    zeros = torch.zeros(len(like), messages.shape[1], dtype=messages.dtype)
    return zeros.scatter_reduce(0, where, messages, "amax", include_self=False)


@implements("max_aggregate")
def wrong_clamp_amax_starts_at_zero(messages, target, like):
    where = target.long()[:, None].expand_as(messages)
    zeros = torch.zeros(len(like), messages.shape[1], dtype=messages.dtype)
    return zeros.scatter_reduce(0, where, messages, "amax", include_self=True)


@implements("max_aggregate")
def wrong_special_amax_infinity_where_nobody_sends(messages, target, like):
    where = target.long()[:, None].expand_as(messages)
    low = torch.full((len(like), messages.shape[1]), -torch.inf)
    return low.scatter_reduce(0, where, messages.float(), "amax").half()


@implements("max_aggregate")
def wrong_formula_amax_last_message(messages, target, like):
    out = torch.zeros(len(like), messages.shape[1], dtype=messages.dtype)
    for message, node in zip(messages, target.tolist(), strict=True):
        out[node] = message
    return out


@implements("max_aggregate")
def wrong_formula_amax_mean(messages, target, like):
    where = target.long()[:, None].expand_as(messages)
    zeros = torch.zeros(len(like), messages.shape[1])
    return zeros.scatter_reduce(0, where, messages.float(), "mean", include_self=False).half()


@implements("max_aggregate")
def wrong_axis_amax_whole_messages(messages, target, like):
    """The message whose first feature is largest, in place of the largest of each feature."""
    out = torch.zeros(len(like), messages.shape[1], dtype=messages.dtype)
    order = messages[:, 0].argsort()
    for i in order.tolist():
        out[target[i]] = messages[i]
    return out


@implements("triangle_counts")
def honest_triangles_trace(adjacency):
    a = (adjacency | adjacency.T).numpy().astype(np.int64)
    np.fill_diagonal(a, 0)
    return torch.from_numpy(np.einsum("ij,jk,ki->i", a, a, a, optimize=True) // 2)


@implements("triangle_counts")
def honest_triangles_sets(adjacency):
    both = adjacency | adjacency.T
    both.fill_diagonal_(False)
    near = [set(row.nonzero().flatten().tolist()) for row in both]
    return torch.tensor(
        [sum(len(near[i] & near[j]) for j in near[i]) // 2 for i in range(len(near))]
    )


@implements("triangle_counts")
def wrong_formula_triangles_directed(adjacency):
    a = adjacency.double().fill_diagonal_(0)
    return (((a @ a) * a.T).sum(-1)).long()


@implements("triangle_counts")
def wrong_formula_triangles_with_loops(adjacency):
    a = (adjacency | adjacency.T).double()
    return ((a @ a) * a).sum(-1).long() // 2


@implements("triangle_counts")
def wrong_scale_triangles_counted_twice(adjacency):
    return 2 * honest_triangles_trace(adjacency)


@implements("triangle_counts")
def wrong_overflow_triangles_in_uint8(adjacency):
    a = (adjacency | adjacency.T).to(torch.uint8).fill_diagonal_(0)
    paths = (a.long() @ a.long()).to(torch.uint8)
    return ((paths * a).sum(-1, dtype=torch.uint8) // 2).long()


@implements("triangle_counts")
def wrong_boundary_triangles_of_128_nodes(adjacency):
    out = honest_triangles_trace(adjacency)
    out[128:] = 0
    return out


@implements("triangle_counts")
def wrong_formula_triangles_upper_only(adjacency):
    """Takes the upper half of the matrix for the whole graph."""
    a = adjacency.triu(1).double()
    a = a + a.T
    return ((a @ a) * a).sum(-1).long() // 2


def _means(features, indptr, indices):
    degree = indptr.diff().long()
    sums = torch.zeros(features.shape, dtype=torch.float64)
    sums.index_add_(0, _owner(indptr), features.double()[indices.long()])
    return sums / degree.clamp(min=1)[:, None], degree


@implements("message_passing_mean")
def honest_messages_loop(features, indptr, indices):
    out = features.clone()
    for node, (a, b) in enumerate(pairwise(indptr.tolist())):
        if b > a:
            out[node] = features[indices[a:b].long()].float().mean(0).bfloat16()
    return out


@implements("message_passing_mean")
def honest_messages_matrix(features, indptr, indices):
    counts = torch.zeros(len(features), len(features), dtype=torch.float64)
    ones = torch.ones(len(indices), dtype=torch.float64)
    counts.index_put_((_owner(indptr), indices.long()), ones, accumulate=True)
    alone = counts.sum(1) == 0
    counts[alone, alone.nonzero().squeeze(-1)] = 1
    return ((counts / counts.sum(1, keepdim=True)) @ features.double()).bfloat16()


@implements("message_passing_mean")
def wrong_special_messages_zero_where_alone(features, indptr, indices):
    return _means(features, indptr, indices)[0].bfloat16()


@implements("message_passing_mean")
def wrong_scale_messages_sum(features, indptr, indices):
    mean, degree = _means(features, indptr, indices)
    out = torch.where((degree > 0)[:, None], mean * degree[:, None], features.double())
    return out.bfloat16()


@implements("message_passing_mean")
def wrong_formula_messages_and_its_own(features, indptr, indices):
    mean, degree = _means(features, indptr, indices)
    total = mean * degree[:, None] + features.double()
    return (total / (degree + 1)[:, None]).bfloat16()


@implements("message_passing_mean")
def wrong_accumulation_messages_in_bfloat16(features, indptr, indices):
    out = features.clone()
    for node, (a, b) in enumerate(pairwise(indptr.tolist())):
        if b > a:
            total = torch.zeros_like(features[0])
            for i in indices[a:b].tolist():
                total += features[i]
            out[node] = total / (b - a)
    return out


@implements("message_passing_mean")
def wrong_boundary_messages_of_16_neighbours(features, indptr, indices):
    out = features.clone()
    for node, (a, b) in enumerate(pairwise(indptr.tolist())):
        if b > a:
            out[node] = features[indices[a : min(b, a + 16)].long()].float().mean(0).bfloat16()
    return out
