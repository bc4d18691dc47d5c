"""Multi-head latent attention over pages."""

import pytest
import torch

from tests.definitions.attention import paged_scales
from tests.definitions.harness import case, drawn, names

SMALL = names("mla_paged_decode_h16_*")
LARGE = names("mla_paged_decode_h128_*")


def agrees(each):
    given, axes = each.inputs, each.definition.axis_values(each.workload.axes)
    queries = torch.cat((given["q_nope"], given["q_pe"]), dim=-1)
    values = given["ckv_cache"][:, :, None]  # one head for all
    keys = torch.cat((values, given["kpe_cache"][:, :, None]), dim=-1)
    each.agree(*paged_scales(axes, queries, keys, values, given))


@pytest.mark.parametrize("name", SMALL)
def test_latent_attention_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=2 << 20):
        agrees(each)


@pytest.mark.parametrize("name", LARGE)
def test_latent_attention_of_many_heads_agrees(name):
    for each in drawn(name, count=5):
        agrees(each)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("tokens", [[0], [0, 1, 0], [32, 33, 31], [65, 0, 1], [64], [129]])
def test_latent_attention_agrees_however_long_sequences_are(name, tokens):
    size = 64 if name.endswith("ps64") else 1
    pages = [-(-n // size) for n in tokens]
    axes = {"batch_size": len(tokens), "len_indptr": len(tokens) + 1}
    axes |= {"num_kv_indices": sum(pages), "num_pages": sum(pages) + 1}
    given = {"kv_indptr": torch.tensor([0, *pages]).cumsum(0).int()}
    if size > 1:
        last = [(n - 1) % size + 1 for n in tokens]
        given["kv_last_page_len"] = torch.tensor(last, dtype=torch.int32)
    agrees(case(name, axes, **given))


@pytest.mark.parametrize("name", SMALL)
def test_an_empty_sequence_attends_to_nothing(name):
    each = case(name, {"batch_size": 2, "len_indptr": 3, "num_pages": 1, "num_kv_indices": 0})
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert (out["output"] == 0).all(), who
        assert (out["lse"] == -torch.inf).all(), who
