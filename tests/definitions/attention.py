"""How much of attention float32 may lose: what the tests allow implementations to differ by."""

from math import log

import torch

from tests.definitions.validators_attention import tokens_of_pages


def scales(q, keys, values, sees, sm_scale):
    """The scales of rounding errors in the output [n, heads, dim] and the lse [n, heads].

    Of n queries [n, heads, dim], keys [t, kv heads, dim] and values, where query i sees the first
    ``sees[i]`` of t. A logit is a sum that loses as much as its terms are large; the output moves
    by that where it weighs values that differ, not at all where one value has all the weight.
    """
    group = q.shape[1] // keys.shape[1] if keys.shape[1] else 1
    q = q.double()
    keys, values = (x.double().repeat_interleave(group, dim=1) for x in (keys, values))
    out, lse = torch.zeros(*q.shape[:2], values.shape[2]), torch.zeros(q.shape[:2])
    for i, n in enumerate(sees.tolist()):
        if n == 0:
            continue
        k, v = keys[:n], values[:n]
        weights = (torch.einsum("hd,thd->ht", q[i], k) * sm_scale).softmax(dim=-1)
        lost = torch.einsum("hd,thd->ht", q[i].abs(), k.abs()) * sm_scale * weights
        centre = torch.einsum("ht,thd->hd", weights, v)
        out[i] = torch.einsum("ht,thd->hd", weights, v.abs())
        out[i] += torch.einsum("ht,thd->hd", lost, (v - centre).abs())
        lse[i] = lost.sum(dim=-1) / log(2) + log(n, 2) + 1
    return out, lse


def paged_scales(axes, queries, k_cache, v_cache, given):
    """The same for sequences in a paged cache; one query each, where there is no qo_indptr."""
    kv_indptr, last = given["kv_indptr"], given.get("kv_last_page_len")
    lengths = tokens_of_pages(axes, kv_indptr, last)
    q_bounds = given.get("qo_indptr", torch.arange(len(queries) + 1)).tolist()
    found = []
    for i, length in enumerate(lengths.tolist()):
        pages = given["kv_indices"][kv_indptr[i] : kv_indptr[i + 1]].long()
        keys, values = (cache[pages].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        n = q_bounds[i + 1] - q_bounds[i]
        rows = queries[q_bounds[i] : q_bounds[i + 1]]
        sees = torch.arange(n) + length - n + 1
        found.append(scales(rows, keys, values, sees, given["sm_scale"]))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))
