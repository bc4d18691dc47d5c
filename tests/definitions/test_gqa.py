"""Grouped-query attention: decode and prefill over pages, and prefill over ragged sequences."""

import pytest
import torch

from tests.definitions.attention import paged_scales, scales
from tests.definitions.harness import case, drawn, names

DECODE = names("gqa_paged_decode_*")
PREFILL = names("gqa_paged_prefill_*")
RAGGED = names("gqa_ragged_prefill_*")
# A budget of float32's interpreter: a few dozen tokens.
SMALL = 2 << 20


def agrees(each):
    given, axes = each.inputs, each.definition.axis_values(each.workload.axes)
    if each.definition.op_type == "gqa_ragged":
        each.agree(*ragged_scales(**given))
    else:
        each.agree(*paged_scales(axes, given["q"], given["k_cache"], given["v_cache"], given))


def ragged_scales(q, k, v, qo_indptr, kv_indptr, sm_scale):
    q_bounds, kv_bounds = qo_indptr.tolist(), kv_indptr.tolist()
    found = []
    for i in range(len(q_bounds) - 1):
        queries, keys = slice(*q_bounds[i : i + 2]), slice(*kv_bounds[i : i + 2])
        n, length = queries.stop - queries.start, keys.stop - keys.start
        sees = torch.arange(n) + length - n + 1
        found.append(scales(q[queries], k[keys], v[keys], sees, sm_scale))
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


@pytest.mark.parametrize("name", [*DECODE, *PREFILL, *RAGGED])
def test_attention_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=SMALL):
        agrees(each)


def indptr(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def paged(name, tokens, queries=None, regime=None):
    """A case of these numbers of tokens, and for a prefill of queries, of each sequence."""
    size = 64 if name.endswith("ps64") else 1
    pages = [-(-n // size) for n in tokens]
    axes = {"len_indptr": len(tokens) + 1, "num_kv_indices": sum(pages)}
    axes["num_pages"] = max(1, sum(pages) + len(tokens) % 2)
    given = {"kv_indptr": indptr(pages)}
    if queries is not None:
        axes["total_q"], given["qo_indptr"] = sum(queries), indptr(queries)
    if queries is None or size > 1:
        axes["batch_size"] = len(tokens)
    if size > 1:
        last = [(n - 1) % size + 1 for n in tokens]  # of an empty one, any
        given["kv_last_page_len"] = torch.tensor(last, dtype=torch.int32)
    return case(name, axes, regime=regime, **given)


@pytest.mark.parametrize("name", DECODE)
@pytest.mark.parametrize(
    "tokens", [[0], [0, 0, 0], [1], [0, 1, 0], [64, 65, 63], [129, 0, 1], [1, 1, 1, 200]]
)
def test_decode_agrees_however_long_sequences_are(name, tokens):
    agrees(paged(name, tokens))


@pytest.mark.parametrize("name", DECODE)
def test_an_empty_sequence_attends_to_nothing(name):
    each = paged(name, [0, 3, 0])
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert (out["output"][[0, 2]] == 0).all(), who
        assert (out["lse"][[0, 2]] == -torch.inf).all(), who
        assert out["lse"][1].isfinite().all(), who


@pytest.mark.parametrize("name", DECODE)
def test_one_token_is_its_value(name):
    each = paged(name, [1], regime={"values": "large"})
    cache, page = each.inputs["v_cache"], each.inputs["kv_indices"][0]
    value = cache[page, 0].repeat_interleave(32 // cache.shape[2], dim=0)
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert torch.equal(out["output"][0], value), who


@pytest.mark.parametrize("name", DECODE)
def test_equal_logits_have_a_logarithm_of_their_number(name):
    each = paged(name, [1, 2, 64, 128], regime={"values": "zeros"})
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        expected = torch.tensor([0.0, 1.0, 6.0, 7.0])[:, None].expand(4, 32)
        assert torch.allclose(out["lse"], expected, atol=1e-5), who


SPLITS = [
    ([1], [1]),
    ([0, 1, 0], [0, 1, 0]),
    ([7], [7]),
    ([64], [64]),
    ([65], [65]),
    ([130], [2]),
    ([3, 0, 70, 64], [3, 0, 1, 63]),
    ([1, 1, 1, 1, 1], [1, 1, 0, 1, 1]),
    ([66, 66], [65, 1]),
]


@pytest.mark.parametrize("name", PREFILL)
@pytest.mark.parametrize(("tokens", "queries"), SPLITS)
def test_paged_prefill_agrees_however_tokens_are_split(name, tokens, queries):
    agrees(paged(name, tokens, queries))


def ragged(name, tokens, queries, regime=None):
    axes = {"len_indptr": len(tokens) + 1, "total_q": sum(queries), "total_kv": sum(tokens)}
    given = {"qo_indptr": indptr(queries), "kv_indptr": indptr(tokens)}
    return case(name, axes, regime=regime, **given)


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize(("tokens", "queries"), SPLITS)
@pytest.mark.parametrize("layout", ["contiguous", "row_strided"])
def test_ragged_prefill_agrees_however_tokens_are_split(name, tokens, queries, layout):
    agrees(ragged(name, tokens, queries, {"layout": layout}))


def test_the_first_of_as_many_queries_as_keys_sees_one_key():
    each = ragged("gqa_ragged_prefill_causal_h32_kv8_d128", [5], [5])
    first = each.inputs["v"][0].repeat_interleave(4, dim=0)
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert torch.equal(out["output"][0], first), who


def test_long_sequences_are_attended_to_in_blocks():
    each = ragged("gqa_ragged_prefill_causal_h32_kv4_d128", [700, 20], [600, 20])
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (each.inputs[n].float().transpose(0, 1) for n in "qkv")
    mask = torch.ones(600, 700).tril(100).bool()
    expected = attention(q[:, :600], k[:, :700], v[:, :700], attn_mask=mask, enable_gqa=True)
    for who, out in {"reference": each.expected, **dict(each.outputs("torch_*"))}.items():
        got = out["output"][:600].transpose(0, 1).float()
        assert torch.allclose(got, expected, rtol=2**-7, atol=1e-5), who
