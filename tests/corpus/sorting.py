"""Sorting, selecting, searching."""

import bisect

import numpy as np
import torch

from pytest_fib import implements


@implements("sort_descending")
def honest_sort_packed(keys):
    """The value and the distance of the place from the end in one integer."""
    n = keys.shape[1]
    packed = keys.long() * 4096 + (n - 1 - torch.arange(n))
    packed = packed.sort(-1, descending=True).values
    order = n - 1 - packed % 4096
    return keys.gather(-1, order), order


@implements("sort_descending")
def honest_sort_numpy(keys):
    order = torch.from_numpy(np.argsort(-keys.numpy(), axis=-1, kind="stable"))
    return torch.take_along_dim(keys, order, -1), order


@implements("sort_descending")
def wrong_ties_sort_ascending_flipped(keys):
    values, order = torch.sort(keys, dim=-1, stable=True)
    return values.flip(-1), order.flip(-1)


@implements("sort_descending")
def wrong_formula_sort_ascending(keys):
    return torch.sort(keys, dim=-1, stable=True)


@implements("sort_descending")
def wrong_overflow_sort_keys_of_eight_bits(keys):
    """A radix sort over one byte that takes the sign for the highest digit's bit."""
    order = torch.argsort(keys & 255, dim=-1, descending=True, stable=True)
    return keys.gather(-1, order), order


@implements("sort_descending")
def wrong_boundary_sort_halves_unmerged(keys):
    parts = [torch.sort(p, dim=-1, descending=True, stable=True) for p in keys.split(512, -1)]
    order = torch.cat([p.indices + 512 * i for i, p in enumerate(parts)], -1)
    return torch.cat([p.values for p in parts], -1), order


@implements("sort_descending")
def wrong_axis_sort_columns(keys):
    return torch.sort(keys, dim=0, descending=True, stable=True)


@implements("topk_values")
def honest_topk_repeated_maximum(x):
    left, values = x.clone(), []
    for _ in range(5):
        top, at = left.max(-1)
        values.append(top)
        left.scatter_(-1, at[:, None], -torch.inf)
    return torch.stack(values, -1)


@implements("topk_values")
def honest_topk_of_tiles(x):
    best = torch.cat([t.topk(min(5, t.shape[-1]), -1).values for t in x.split(256, -1)], -1)
    return best.sort(-1, descending=True).values[:, :5]


@implements("topk_values")
def wrong_sentinel_topk_equal_values_once(x):
    """Takes out every element that equals the maximum."""
    left, values = x.clone(), []
    for _ in range(5):
        top = left.amax(-1)
        values.append(top)
        left = left.masked_fill(left == top[:, None], -torch.inf)
    return torch.stack(values, -1)


@implements("topk_values")
def wrong_special_topk_marks_with_minus_ten_thousand(x):
    left, values = x.clone(), []
    for _ in range(5):
        top, at = left.max(-1)
        values.append(top)
        left.scatter_(-1, at[:, None], -1e4)
    return torch.stack(values, -1)


@implements("topk_values")
def wrong_special_topk_padding_of_zeros(x):
    pad = -x.shape[-1] % 32
    return torch.nn.functional.pad(x, (0, pad)).topk(5, -1).values


@implements("topk_values")
def wrong_boundary_topk_four_of_each_tile(x):
    best = torch.cat([t.topk(min(4, t.shape[-1]), -1).values for t in x.split(128, -1)], -1)
    best = torch.nn.functional.pad(best, (0, 5), value=-torch.inf)
    return best.sort(-1, descending=True).values[:, :5]


@implements("topk_values")
def wrong_formula_topk_unsorted(x):
    where = x.topk(5, -1).indices.sort(-1).values
    return x.gather(-1, where)


@implements("topk_values")
def wrong_rounding_topk_compares_in_half(x):
    where = x.half().topk(5, -1).indices
    return x.gather(-1, where)


@implements("argmax_first")
def honest_argmax_two_levels(logits):
    """The largest of each tile, then the first tile that has it."""
    best = torch.full((len(logits),), -torch.inf)
    token = torch.zeros(len(logits), dtype=torch.int64)
    for i, tile in enumerate(logits.split(64, -1)):
        at = torch.from_numpy(tile.numpy().argmax(-1))
        top = tile.gather(-1, at[:, None]).squeeze(-1)
        token = torch.where(top > best, at + 64 * i, token)
        best = torch.maximum(best, top)
    return token


@implements("argmax_first")
def honest_argmax_stable_sort(logits):
    return torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, 0]


@implements("argmax_first")
def wrong_ties_argmax_last(logits):
    flipped = torch.from_numpy(logits.flip(-1).numpy().argmax(-1))
    return logits.shape[-1] - 1 - flipped


@implements("argmax_first")
def wrong_ties_argmax_last_tile(logits):
    best = torch.full((len(logits),), -torch.inf)
    token = torch.zeros(len(logits), dtype=torch.int64)
    for i, tile in enumerate(logits.split(1024, -1)):
        at = torch.from_numpy(tile.numpy().argmax(-1))
        top = tile.gather(-1, at[:, None]).squeeze(-1)
        token = torch.where(top >= best, at + 1024 * i, token)
        best = torch.maximum(best, top)
    return token


@implements("argmax_first")
def wrong_special_argmax_starts_at_zero(logits):
    """The best so far starts at 0, so a row that is negative has none."""
    best = logits.amax(-1)
    first = torch.from_numpy(logits.numpy().argmax(-1))
    return torch.where(best > 0, first, 0)


@implements("argmax_first")
def wrong_formula_argmax_of_magnitudes(logits):
    return torch.from_numpy(logits.abs().numpy().argmax(-1))


@implements("argmax_first")
def wrong_boundary_argmax_within_the_tile(logits):
    return torch.from_numpy(logits.numpy().argmax(-1)) % 2048


@implements("unique_counts")
def honest_unique_torch(ids):
    counts, distinct = torch.empty_like(ids), torch.empty(len(ids), dtype=torch.int64)
    for row, values in enumerate(ids):
        unique, inverse, count = values.unique(return_inverse=True, return_counts=True)
        counts[row], distinct[row] = count[inverse], len(unique)
    return counts, distinct


@implements("unique_counts")
def honest_unique_bins(ids):
    low = int(ids.min())
    bins = torch.zeros(len(ids), int(ids.max()) - low + 1, dtype=torch.int64)
    bins.scatter_add_(-1, ids - low, torch.ones_like(ids))
    return bins.gather(-1, ids - low), (bins > 0).sum(-1)


@implements("unique_counts")
def wrong_formula_unique_runs_only(ids):
    """Counts runs of neighbours, without sorting first."""
    counts, distinct = torch.empty_like(ids), torch.empty(len(ids), dtype=torch.int64)
    for row, values in enumerate(ids):
        unique, inverse, count = values.unique_consecutive(return_inverse=True, return_counts=True)
        counts[row], distinct[row] = count[inverse], len(unique)
    return counts, distinct


@implements("unique_counts")
def wrong_special_unique_negative_ids_ignored(ids):
    counts, distinct = honest_unique_bins(ids)
    negative = (ids < 0).any(-1)
    has = torch.stack([row[row < 0].unique().numel() * torch.ones(()) for row in ids]).long()
    return counts, torch.where(negative, distinct - has, distinct)


@implements("unique_counts")
def wrong_overflow_unique_counts_in_int8(ids):
    counts, distinct = honest_unique_bins(ids)
    return counts.to(torch.int8).long(), distinct


@implements("unique_counts")
def wrong_axis_unique_over_all_rows(ids):
    _, inverse, count = ids.unique(return_inverse=True, return_counts=True)
    return count[inverse], torch.full((len(ids),), len(count))


@implements("unique_counts")
def wrong_offbyone_unique_boundaries_counted(ids):
    """Counts the changes along the sorted row, one fewer than its values."""
    counts, _ = honest_unique_bins(ids)
    ordered = ids.sort(-1).values
    return counts, (ordered[:, 1:] != ordered[:, :-1]).sum(-1)


@implements("searchsorted_right")
def honest_bucket_torch(edges, x):
    return torch.searchsorted(edges.sort(-1).values, x, right=True).int()


@implements("searchsorted_right")
def honest_bucket_bisect(edges, x):
    out = torch.empty(x.shape, dtype=torch.int32)
    for row, (limits, values) in enumerate(zip(edges.tolist(), x.tolist(), strict=True)):
        ordered = sorted(limits)
        out[row] = torch.tensor([bisect.bisect_right(ordered, v) for v in values])
    return out


@implements("searchsorted_right")
def wrong_ties_bucket_left(edges, x):
    return torch.searchsorted(edges.sort(-1).values, x, right=False).int()


@implements("searchsorted_right")
def wrong_clamp_bucket_last_edge(edges, x):
    found = torch.searchsorted(edges.sort(-1).values, x, right=True)
    return found.clamp(max=edges.shape[-1] - 1).int()


@implements("searchsorted_right")
def wrong_boundary_bucket_seven_halvings(edges, x):
    """Six halvings: enough for 63 edges."""
    ordered = edges.sort(-1).values
    n = edges.shape[1]
    low, high = torch.zeros_like(x), torch.full_like(x, n)
    for _ in range(6):
        middle = (low + high) // 2
        greater = ordered.gather(-1, middle.clamp(max=n - 1).long()) > x
        active = low < high
        high = torch.where(active & greater, middle, high)
        low = torch.where(active & ~greater, middle + 1, low)
    return low


@implements("searchsorted_right")
def wrong_broadcast_bucket_edges_of_the_first_row(edges, x):
    return torch.searchsorted(edges[0].sort().values, x, right=True).int()


@implements("searchsorted_right")
def wrong_offbyone_bucket_index_of_the_edge(edges, x):
    return torch.searchsorted(edges.sort(-1).values, x, right=True).int() - 1


@implements("median_rows")
def honest_median_torch(x):
    return x.median(-1).values


@implements("median_rows")
def honest_median_smallest_of_the_upper(x):
    return x.float().topk(x.shape[-1] // 2 + 1, -1).values[:, -1].half()


@implements("median_rows")
def wrong_offbyone_median_upper(x):
    return x.sort(-1).values[:, x.shape[-1] // 2]


@implements("median_rows")
def wrong_formula_median_mean_of_the_middle(x):
    ordered, n = x.float().sort(-1).values, x.shape[-1]
    return ((ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2).half()


@implements("median_rows")
def wrong_formula_median_mean(x):
    return x.float().mean(-1).half()


@implements("median_rows")
def wrong_special_median_of_bits(x):
    """Compares float16 as integers, in which negative numbers are the wrong way round."""
    return x.view(torch.int16).sort(-1).values[:, (x.shape[-1] - 1) // 2].view(torch.float16)


@implements("median_rows")
def wrong_threshold_median_sampled_in_long_rows(x):
    step = 1 + x.shape[-1] // 8192
    return x[:, ::step].median(-1).values


@implements("top_p_mask")
def honest_nucleus_rank_sums(weights, share):
    """For each token what is before it, without sorting."""
    w = weights.long()
    n = w.shape[1]
    places = torch.arange(n)
    earlier = (w[:, None, :] > w[:, :, None]) | (
        (w[:, None, :] == w[:, :, None]) & (places[None, :] < places[:, None])
    )
    before = (earlier * w[:, None, :]).sum(-1)
    return before * 100 < share.long()[:, None] * w.sum(-1, keepdim=True)


@implements("top_p_mask")
def honest_nucleus_row_by_row(weights, share):
    kept = torch.zeros(weights.shape, dtype=torch.bool)
    for row, (values, percent) in enumerate(zip(weights.tolist(), share.tolist(), strict=True)):
        order = sorted(range(len(values)), key=lambda i: (-values[i], i))
        total, before = sum(values), 0
        for i in order:
            kept[row, i] = before * 100 < percent * total
            before += values[i]
    return kept


@implements("top_p_mask")
def wrong_offbyone_nucleus_without_the_one_that_reaches_p(weights, share):
    w = weights.long()
    ordered, order = w.sort(dim=-1, descending=True, stable=True)
    keep = ordered.cumsum(-1) * 100 <= share.long()[:, None] * w.sum(-1, keepdim=True)
    return torch.zeros_like(keep).scatter(-1, order, keep)


@implements("top_p_mask")
def wrong_ties_nucleus_last_first(weights, share):
    return honest_nucleus_rank_sums(weights.flip(-1), share).flip(-1)


@implements("top_p_mask")
def wrong_order_nucleus_mask_left_sorted(weights, share):
    w = weights.long()
    ordered = w.sort(dim=-1, descending=True, stable=True).values
    before = ordered.cumsum(-1) - ordered
    return before * 100 < share.long()[:, None] * w.sum(-1, keepdim=True)


@implements("top_p_mask")
def wrong_broadcast_nucleus_share_of_the_first_row(weights, share):
    return honest_nucleus_rank_sums(weights, share[:1].expand_as(share))


@implements("top_p_mask")
def wrong_clamp_nucleus_equal_to_p(weights, share):
    """<= where < is asked for, which keeps one more where p is met exactly."""
    w = weights.long()
    ordered, order = w.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    keep = before * 100 <= share.long()[:, None] * w.sum(-1, keepdim=True)
    return torch.zeros_like(keep).scatter(-1, order, keep)
