"""Gathering, scattering, ragged rows."""

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("embedding_bag_mean")
def honest_bag_torch(table, indices, offsets):
    return F.embedding_bag(indices, table.float(), offsets, mode="mean", include_last_offset=True)


@implements("embedding_bag_mean")
def honest_bag_index_add(table, indices, offsets):
    lengths = offsets.diff()
    bag = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    sums = torch.zeros(len(lengths), table.shape[1], dtype=torch.float64)
    sums.index_add_(0, bag, table[indices].double())
    return (sums / lengths.clamp(min=1)[:, None]).float()


def _bags(table, indices, offsets):
    lengths = offsets.diff()
    bag = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    sums = torch.zeros(len(lengths), table.shape[1])
    return sums.index_add_(0, bag, table[indices].float()), lengths


@implements("embedding_bag_mean")
def wrong_special_bag_empty_is_nan(table, indices, offsets):
    sums, lengths = _bags(table, indices, offsets)
    return sums / lengths[:, None]


@implements("embedding_bag_mean")
def wrong_scale_bag_sum(table, indices, offsets):
    return _bags(table, indices, offsets)[0]


@implements("embedding_bag_mean")
def wrong_accumulation_bag_in_half(table, indices, offsets):
    out = torch.zeros(len(offsets) - 1, table.shape[1], dtype=torch.float16)
    for bag, (a, b) in enumerate(pairwise(offsets.tolist())):
        for i in indices[a:b].tolist():
            out[bag] += table[i]
    return out.float() / offsets.diff().clamp(min=1)[:, None]


@implements("embedding_bag_mean")
def wrong_sizes_bag_equal_lengths(table, indices, offsets):
    """Takes the first bag's length for all."""
    sums, lengths = _bags(table, indices, offsets)
    return sums / lengths[:1].clamp(min=1)


@implements("embedding_bag_mean")
def wrong_stale_bag_last_bag(table, indices, offsets):
    sums, lengths = _bags(table, indices, offsets)
    out = sums / lengths.clamp(min=1)[:, None]
    out[-1] = 0
    return out


@implements("segment_sum")
def honest_segsum_reduce(x, indptr):
    return torch.segment_reduce(x.float(), "sum", offsets=indptr.long(), axis=0)


@implements("segment_sum")
def honest_segsum_matmul(x, indptr):
    lengths = indptr.long().diff()
    owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    out = torch.zeros(len(lengths), x.shape[1], dtype=torch.float64)
    return out.index_add_(0, owner, x.double()).float()


@implements("segment_sum")
def wrong_accumulation_segsum_differences_of_a_prefix(x, indptr):
    prefix = F.pad(x.float().cumsum(0), (0, 0, 1, 0))
    return prefix[indptr[1:].long()] - prefix[indptr[:-1].long()]


@implements("segment_sum")
def wrong_accumulation_segsum_bfloat16(x, indptr):
    bounds = indptr.tolist()
    parts = [x[a:b].sum(0) for a, b in pairwise(bounds)]
    return torch.stack(parts).float()


@implements("segment_sum")
def wrong_special_segsum_empty_takes_a_row(x, indptr):
    """As numpy.add.reduceat: an empty segment yields the row it begins at."""
    bounds = indptr.tolist()
    wide = F.pad(x.float(), (0, 0, 0, 1))
    pairs = pairwise(bounds)
    return torch.stack([wide[a : max(b, a + 1)].sum(0) for a, b in pairs])


@implements("segment_sum")
def wrong_boundary_segsum_at_most_256_rows(x, indptr):
    bounds = indptr.tolist()
    pairs = pairwise(bounds)
    return torch.stack([x[a : min(b, a + 256)].float().sum(0) for a, b in pairs])


@implements("segment_sum")
def wrong_scale_segsum_mean(x, indptr):
    sums = honest_segsum_matmul(x, indptr)
    return sums / indptr.diff().clamp(min=1)[:, None]


@implements("scatter_add_rows")
def honest_scatter_by_sorting(base, src, index):
    out = base.double()
    order = index.argsort(stable=True)
    for i in order[index[order] >= 0].tolist():
        out[index[i]] += src[i].double()
    return out.float()


@implements("scatter_add_rows")
def honest_scatter_one_row_more(base, src, index):
    out = F.pad(base, (0, 0, 0, 1))
    where = torch.where(index < 0, len(base), index)
    return out.index_add(0, where, src)[:-1]


@implements("scatter_add_rows")
def wrong_sentinel_scatter_minus_one_is_the_last(base, src, index):
    return base.index_add(0, index % len(base), src)


@implements("scatter_add_rows")
def wrong_sentinel_scatter_minus_one_is_the_first(base, src, index):
    return base.index_add(0, index.clamp(min=0), src)


@implements("scatter_add_rows")
def wrong_formula_scatter_last_write_wins(base, src, index):
    out, kept = base.clone(), index >= 0
    out[index[kept]] += src[kept]
    return out


@implements("scatter_add_rows")
def wrong_formula_scatter_base_forgotten(base, src, index):
    kept = index >= 0
    return torch.zeros_like(base).index_add(0, index[kept], src[kept])


@implements("scatter_add_rows")
def wrong_mutation_scatter_into_base(base, src, index):
    kept = index >= 0
    return base.index_add_(0, index[kept], src[kept]).clone()


@implements("scatter_add_rows")
def wrong_boundary_scatter_whole_blocks_of_rows(base, src, index):
    whole = max(len(src) // 32 * 32, min(len(src), 32))
    return honest_scatter_one_row_more(base, src[:whole], index[:whole])


@implements("gather_rows")
def honest_gather_one_row_more(weight, ids):
    padded = F.pad(weight, (0, 0, 1, 0))
    return padded.index_select(0, ids + 1)


@implements("gather_rows")
def honest_gather_row_by_row(weight, ids):
    out = torch.zeros(len(ids), weight.shape[1], dtype=weight.dtype)
    for i, row in enumerate(ids.tolist()):
        if row >= 0:
            out[i] = weight[row]
    return out


@implements("gather_rows")
def wrong_sentinel_gather_last_row(weight, ids):
    return weight[ids.long()]


@implements("gather_rows")
def wrong_sentinel_gather_first_row(weight, ids):
    return weight[ids.clamp(min=0).long()]


@implements("gather_rows")
def wrong_sentinel_gather_zero_is_padding(weight, ids):
    rows = weight[ids.clamp(min=0).long()]
    return torch.where((ids > 0)[:, None], rows, torch.zeros_like(rows))


@implements("gather_rows")
def wrong_stale_gather_padding_unwritten(weight, ids):
    out = torch.empty(len(ids), weight.shape[1], dtype=weight.dtype)
    out[ids >= 0] = weight[ids[ids >= 0].long()]
    return out


@implements("gather_rows")
def wrong_boundary_gather_vectors_of_eight(weight, ids):
    """Moves eight columns at a time, and leaves zeros behind the last whole eight."""
    out = torch.zeros(len(ids), weight.shape[1], dtype=weight.dtype)
    whole = weight.shape[1] // 8 * 8
    out[:, :whole] = honest_gather_one_row_more(weight, ids)[:, :whole]
    return out


@implements("gather_rows")
def wrong_overflow_gather_offset_in_int16(weight, ids):
    """The offset of a row wraps at 65,536 elements."""
    wrapped = torch.where(ids < 0, 0, ids.long() * weight.shape[1] % 65536 // weight.shape[1])
    return torch.where((ids >= 0)[:, None], weight[wrapped], 0.0).to(weight.dtype)


@implements("histogram_uniform")
def honest_hist_compare(x):
    edges = torch.arange(33) / 8 - 2
    below = torch.stack([(x < edge).sum() for edge in edges[:-1]] + [(x <= 2).sum()])
    return below.diff()


@implements("histogram_uniform")
def honest_hist_numpy(x):
    counts, _ = np.histogram(x.numpy().astype(np.float64), bins=32, range=(-2, 2))
    return torch.from_numpy(counts.astype(np.int64))


@implements("histogram_uniform")
def wrong_clamp_hist_outside_counted(x):
    where = ((x + 2) * 8).floor().long().clamp(0, 31)
    return torch.bincount(where, minlength=32)


@implements("histogram_uniform")
def wrong_boundary_hist_right_edge_left_out(x):
    inside = x[(x >= -2) & (x < 2)]
    return torch.bincount(((inside + 2) * 8).floor().long(), minlength=32)


@implements("histogram_uniform")
def wrong_rounding_hist_toward_zero(x):
    """Truncates before it shifts, so the bins beside zero are mixed up."""
    inside = x[(x >= -2) & (x <= 2)]
    where = ((inside * 8).trunc() + 16).long().clamp(max=31)
    return torch.bincount(where, minlength=32)


@implements("histogram_uniform")
def wrong_overflow_hist_counts_in_int16(x):
    return honest_hist_numpy(x).to(torch.int16).long()


@implements("histogram_uniform")
def wrong_accumulation_hist_counts_in_half(x):
    return honest_hist_numpy(x).half().long()


@implements("expert_histogram")
def honest_align_one_hot(topk_ids):
    counts = F.one_hot(topk_ids.flatten().long(), 16).sum(0)
    starts = F.pad((counts + (-counts) % 4).cumsum(0), (1, 0))
    return counts.int(), starts.int()


@implements("expert_histogram")
def honest_align_sorted(topk_ids):
    ordered = topk_ids.flatten().sort().values
    ends = torch.searchsorted(ordered, torch.arange(17, dtype=torch.int32))
    counts = ends.diff()
    starts = F.pad(((counts + 3) >> 2 << 2).cumsum(0), (1, 0))
    return counts.int(), starts.int()


@implements("expert_histogram")
def wrong_boundary_align_always_one_block_more(topk_ids):
    counts = torch.bincount(topk_ids.flatten(), minlength=16)
    starts = F.pad(((counts // 4 + 1) * 4).cumsum(0), (1, 0))
    return counts.int(), starts.int()


@implements("expert_histogram")
def wrong_rounding_align_down(topk_ids):
    counts = torch.bincount(topk_ids.flatten(), minlength=16)
    return counts.int(), F.pad((counts // 4 * 4).cumsum(0), (1, 0)).int()


@implements("expert_histogram")
def wrong_order_align_padding_of_the_sum(topk_ids):
    counts = torch.bincount(topk_ids.flatten(), minlength=16)
    return counts.int(), F.pad((counts.cumsum(0) + 3) // 4 * 4, (1, 0)).int()


@implements("expert_histogram")
def wrong_formula_align_first_choice_only(topk_ids):
    return honest_align_sorted(topk_ids[:, :1])


@implements("expert_histogram")
def wrong_overflow_align_counts_in_int8(topk_ids):
    counts = torch.bincount(topk_ids.flatten(), minlength=16).to(torch.uint8).int()
    return counts, F.pad(((counts + 3) // 4 * 4).cumsum(0), (1, 0)).int()


@implements("expert_permutation")
def honest_permute_counting(x, topk_ids):
    flat = topk_ids.flatten().long()
    hot = F.one_hot(flat, 8)
    starts = F.pad(hot.sum(0).cumsum(0), (1, 0))[:-1]
    rank = (hot.cumsum(0) - 1).gather(1, flat[:, None]).squeeze(1)
    where = starts[flat] + rank
    out = torch.empty(len(flat), x.shape[1], dtype=x.dtype)
    out[where] = x.repeat_interleave(topk_ids.shape[1], 0)
    return out, where.view(topk_ids.shape).int()


@implements("expert_permutation")
def honest_permute_unique_keys(x, topk_ids):
    n = topk_ids.numel()
    order = (topk_ids.flatten().long() * n + torch.arange(n)).sort().indices
    return x[order // topk_ids.shape[1]], order.argsort().view(topk_ids.shape).int()


@implements("expert_permutation")
def wrong_order_permute_unstable(x, topk_ids):
    """The last token first within an expert."""
    n = topk_ids.numel()
    order = (topk_ids.flatten().long() * n - torch.arange(n)).sort().indices
    return x[order // topk_ids.shape[1]], order.argsort().view(topk_ids.shape).int()


@implements("expert_permutation")
def wrong_formula_permute_inverse_not_taken(x, topk_ids):
    order = topk_ids.flatten().sort(stable=True).indices
    return x[order // topk_ids.shape[1]], order.view(topk_ids.shape).int()


@implements("expert_permutation")
def wrong_axis_permute_tokens_modulo(x, topk_ids):
    """Takes the choices to lie one row of tokens behind another."""
    order = topk_ids.flatten().sort(stable=True).indices
    return x[order % len(x)], order.argsort().view(topk_ids.shape).int()


@implements("expert_permutation")
def wrong_axis_permute_choices_transposed(x, topk_ids):
    order = topk_ids.T.flatten().sort(stable=True).indices
    where = order.argsort().view(topk_ids.T.shape).T
    return x[order % len(x)], where.int().contiguous()


@implements("expert_permutation")
def wrong_boundary_permute_last_expert_unwritten(x, topk_ids):
    permuted, where = honest_permute_unique_keys(x, topk_ids)
    start = int((topk_ids < 7).sum())
    permuted[start:] = 0
    return permuted, where


def _places(padded, cu_seqlens):
    """Each token's sequence, and its place there."""
    token = torch.arange(int(cu_seqlens[-1]), dtype=torch.int32)
    batch = torch.searchsorted(cu_seqlens, token, right=True) - 1
    return batch, (token - cu_seqlens[batch]).long()


@implements("unpad_tokens")
def honest_unpad_mask(padded, cu_seqlens):
    lengths, width = cu_seqlens.diff(), padded.shape[1]
    missing = max(int(lengths.max()) - width, 0)
    wide = F.pad(padded, (0, 0, 0, missing))
    return wide[torch.arange(width + missing) < lengths[:, None]]


@implements("unpad_tokens")
def honest_unpad_search(padded, cu_seqlens):
    batch, place = _places(padded, cu_seqlens)
    inside = place < padded.shape[1]
    return torch.where(inside[:, None], padded[batch, place * inside], 0.0).half()


@implements("unpad_tokens")
def wrong_clamp_unpad_repeats_the_last(padded, cu_seqlens):
    batch, place = _places(padded, cu_seqlens)
    return padded[batch, place.clamp(max=padded.shape[1] - 1)]


@implements("unpad_tokens")
def wrong_sizes_unpad_equal_lengths(padded, cu_seqlens):
    flat = padded.flatten(0, 1)
    total = int(cu_seqlens[-1])
    return F.pad(flat, (0, 0, 0, max(total - len(flat), 0)))[:total].clone()


@implements("unpad_tokens")
def wrong_offbyone_unpad_row_of_the_next(padded, cu_seqlens):
    """The first token of a sequence is looked for behind the one before."""
    token = torch.arange(int(cu_seqlens[-1]), dtype=torch.int32)
    batch = (torch.searchsorted(cu_seqlens, token) - 1).clamp(min=0)
    place = (token - cu_seqlens[batch]).long()
    inside = place < padded.shape[1]
    return torch.where(inside[:, None], padded[batch, place * inside], 0.0).half()


@implements("unpad_tokens")
def wrong_boundary_unpad_last_token_of_each(padded, cu_seqlens):
    out = honest_unpad_mask(padded, cu_seqlens)
    out[cu_seqlens[1:][cu_seqlens.diff() > 0].long() - 1] = 0
    return out


@implements("unpad_tokens")
def wrong_boundary_unpad_first_128(padded, cu_seqlens):
    out = honest_unpad_mask(padded, cu_seqlens)
    out[_places(padded, cu_seqlens)[1] >= 128] = 0
    return out


@implements("unpad_tokens")
def wrong_stale_unpad_behind_the_padding(padded, cu_seqlens):
    batch, place = _places(padded, cu_seqlens)
    out = torch.empty(len(batch), padded.shape[2], dtype=padded.dtype)
    inside = place < padded.shape[1]
    out[inside] = padded[batch[inside], place[inside]]
    return out


@implements("ragged_max")
def honest_rmax_scatter(values, row_splits):
    owner = torch.repeat_interleave(torch.arange(len(row_splits) - 1), row_splits.diff())
    out = torch.full((len(row_splits) - 1,), -torch.inf)
    return out.scatter_reduce(0, owner, values, "amax")


@implements("ragged_max")
def honest_rmax_tree(values, row_splits):
    bounds, out = row_splits.tolist(), []
    for a, b in pairwise(bounds):
        part = values[a:b]
        while len(part) > 1:
            half = (len(part) + 1) // 2
            part = torch.cat(
                [
                    torch.maximum(part[: len(part) - half], part[half:]),
                    part[len(part) - half : half],
                ]
            )
        out.append(part if len(part) else torch.tensor([-torch.inf]))
    return torch.cat(out)


@implements("ragged_max")
def wrong_special_rmax_zero_where_empty(values, row_splits):
    return torch.segment_reduce(values, "max", offsets=row_splits, initial=0.0)


@implements("ragged_max")
def wrong_special_rmax_lowest_number(values, row_splits):
    return honest_rmax_scatter(values, row_splits).clamp(min=torch.finfo(torch.float32).min)


@implements("ragged_max")
def wrong_formula_rmax_sum(values, row_splits):
    sums = torch.segment_reduce(values, "sum", offsets=row_splits)
    return torch.where(row_splits.diff() == 0, -torch.inf, sums)


@implements("ragged_max")
def wrong_boundary_rmax_last_element(values, row_splits):
    bounds, out = row_splits.tolist(), []
    for a, b in pairwise(bounds):
        part = values[a : max(b - 1, min(a + 1, b))]
        out.append(part.max() if len(part) else torch.tensor(-torch.inf))
    return torch.stack(out)


@implements("ragged_max")
def wrong_sizes_rmax_all_rows_alike(values, row_splits):
    """Takes the total over the rows for each row's length."""
    rows = len(row_splits) - 1
    each = len(values) // rows
    if each == 0:
        return honest_rmax_scatter(values, row_splits)
    return values[: each * rows].view(rows, each).amax(-1)


@implements("pad_ragged")
def honest_pad_gather(values, indptr, fill, like):
    at = indptr[:-1, None].long() + torch.arange(like.shape[1])
    inside = at < indptr[1:, None]
    source = F.pad(values, (0, 1))
    return torch.where(inside, source[at.clamp(max=len(values))], fill).int()


@implements("pad_ragged")
def honest_pad_scatter(values, indptr, fill, like):
    rows, width = like.shape
    owner = torch.repeat_interleave(torch.arange(rows), indptr.long().diff())
    column = torch.arange(len(values)) - indptr.long()[owner]
    kept = column < width
    out = torch.full((rows, width), fill, dtype=torch.int32)
    out[owner[kept], column[kept]] = values[kept]
    return out


@implements("pad_ragged")
def wrong_sentinel_pad_fills_zeros(values, indptr, fill, like):
    return honest_pad_scatter(values, indptr, 0, like)


@implements("pad_ragged")
def wrong_boundary_pad_reads_the_next_row(values, indptr, fill, like):
    """Every place below the total is copied, whoever owns it."""
    at = indptr[:-1, None].long() + torch.arange(like.shape[1])
    source = F.pad(values, (0, 1))
    inside = at < len(values)
    return torch.where(inside, source[at.clamp(max=len(values))], fill).int()


@implements("pad_ragged")
def wrong_order_pad_keeps_the_end(values, indptr, fill, like):
    """What is too long loses its beginning."""
    starts = torch.maximum(indptr[:-1], indptr[1:] - like.shape[1])
    at = starts[:, None].long() + torch.arange(like.shape[1])
    inside = at < indptr[1:, None]
    return torch.where(inside, F.pad(values, (0, 1))[at.clamp(max=len(values))], fill).int()


@implements("pad_ragged")
def wrong_order_pad_on_the_left(values, indptr, fill, like):
    rows, width = like.shape
    out = torch.full((rows, width), fill, dtype=torch.int32)
    bounds = indptr.tolist()
    for row, (a, b) in enumerate(pairwise(bounds)):
        count = min(b - a, width)
        out[row, width - count :] = values[a : a + count]
    return out


@implements("pad_ragged")
def wrong_overflow_pad_values_in_int16(values, indptr, fill, like):
    return honest_pad_scatter(values.to(torch.int16).int(), indptr, fill, like)


def _bag_of_each(ids, starts):
    return torch.searchsorted(starts, torch.arange(len(ids), device=ids.device), right=True) - 1


@implements("bags_from_their_starts")
def honest_starts_index_add(table, ids, starts, weights):
    out = torch.zeros(len(starts), 32, device=table.device)
    out.index_add_(0, _bag_of_each(ids, starts), table[ids].float() * weights[:, None])
    return out.half()


@implements("bags_from_their_starts")
def honest_starts_embedding_bag(table, ids, starts, weights):
    out = F.embedding_bag(ids, table.float(), starts, mode="sum", per_sample_weights=weights)
    return out.half()


@implements("bags_from_their_starts")
def wrong_accumulation_starts_in_half(table, ids, starts, weights):
    out = torch.zeros(len(starts), 32, device=table.device, dtype=torch.float16)
    return out.index_add_(0, _bag_of_each(ids, starts), table[ids] * weights[:, None].half())


@implements("bags_from_their_starts")
def wrong_boundary_starts_last_row_is_lost(table, ids, starts, weights):
    rows = table[ids].float() * weights[:, None]
    rows[-1:] = 0
    out = torch.zeros(len(starts), 32, device=table.device)
    return out.index_add_(0, _bag_of_each(ids, starts), rows).half()


@implements("bags_from_their_starts")
def wrong_formula_starts_mean(table, ids, starts, weights):
    bag = _bag_of_each(ids, starts)
    out = torch.zeros(len(starts), 32, device=table.device)
    out.index_add_(0, bag, table[ids].float() * weights[:, None])
    return (out / torch.bincount(bag, minlength=len(starts)).clamp(min=1)[:, None]).half()


@implements("bags_from_their_starts")
def wrong_sizes_starts_first_of_empty_bags(table, ids, starts, weights):
    out = torch.zeros(len(starts), 32, device=table.device)
    first = torch.searchsorted(starts, starts)[_bag_of_each(ids, starts)]
    return out.index_add_(0, first, table[ids].float() * weights[:, None]).half()
