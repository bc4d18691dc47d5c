"""The reference of every definition computes what it is meant to, by an independent computation.

That implementations agree with their reference is what the items of ``kernel_defs`` test.
"""

from collections import defaultdict

import pytest
import torch

from pytest_fib.workloads import example_workloads, smallest_axes, workload_bytes
from tests.definitions.harness import case, filled, found, names, reference, shipped
from tests.definitions.independent import outputs_of

#: Op types whose outputs may be one of several: test_choices.py has their references.
CHOOSING = ("routing", "sampling")
#: Definitions of one file differ in sizes only: of those whose inputs take more, one is tested.
LARGE = 64 << 20
DRAWN = 6


def least_bytes(name):
    definition, _ = shipped()[name]
    return workload_bytes(definition, smallest_axes(definition))


def small_ones():
    """The small definitions of every file, or its smallest."""
    by_file = defaultdict(list)
    for name, (definition, file) in shipped().items():
        if definition.op_type not in CHOOSING:
            by_file[file].append(name)
    assert len(by_file) >= 20
    for every in by_file.values():
        yield from [n for n in every if least_bytes(n) <= LARGE] or [min(every, key=least_bytes)]


def assert_right(name, inputs):
    """Assert that the reference's outputs are right but for rounding.

    They are rounded once to their dtype, and by float32 on the way, by as much as the largest.
    """
    definition, _ = shipped()[name]
    outputs = reference(name)(*inputs.values())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    expected = outputs_of(definition, inputs)
    for (output, spec), actual in zip(definition.outputs.items(), outputs, strict=True):
        assert str(actual.dtype) == f"torch.{spec.dtype.value}", output
        right = expected[output]
        largest = right.where(right.isfinite(), 0).abs().max().item() if right.numel() else 0.0
        rtol, atol = torch.finfo(actual.dtype).eps, 1e-5 * largest
        torch.testing.assert_close(actual.double(), right, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", [*small_ones()])
def test_a_reference_computes_what_is_meant(name):
    definition, _ = shipped()[name]
    least, listed = least_bytes(name), example_workloads(definition)
    count = 1 if least > LARGE else DRAWN
    for workload in found(definition, count, max(1 << 20, 2 * least), listed=listed):
        # Sizes, lengths and layouts as drawn, but values of which only rounding is expected.
        kept = {what: n for what, n in workload.regime.items() if what in ("lengths", "layout")}
        usual = workload.model_copy(update={"regime": kept})
        assert_right(name, filled(definition, usual))


# References of attention go through long sequences in blocks of 512 query tokens.
@pytest.mark.parametrize(
    ("name", "page_size"),
    [
        ("gqa_ragged_prefill_causal_h32_kv4_d128", None),
        ("gqa_paged_prefill_causal_h32_kv4_d128_ps1", 1),
        ("gqa_paged_prefill_causal_h32_kv4_d128_ps64", 64),
    ],
)
def test_attention_is_right_beyond_a_block_of_queries(name, page_size):
    tokens, queries = [600, 20], [530, 20]
    given = {"qo_indptr": indptr(queries)}
    axes = {"len_indptr": 3, "total_q": sum(queries)}
    if page_size is None:
        axes["total_kv"], given["kv_indptr"] = sum(tokens), indptr(tokens)
    else:
        pages = [-(-n // page_size) for n in tokens]
        axes |= {"num_kv_indices": sum(pages), "num_pages": sum(pages) + 1}
        given["kv_indptr"] = indptr(pages)
    if page_size == 64:
        given["kv_last_page_len"] = torch.tensor([(n - 1) % 64 + 1 for n in (*tokens, 1)]).int()
    assert_right(name, case(name, axes, **given))


def indptr(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


@pytest.mark.parametrize("name", names("mamba_ssu_decode_*"))
def test_values_of_a_state_space_need_not_be_broadcast(name):
    axes = {"batch_size": 3, "state_cache_size": 4}
    inputs = case(name, axes)
    for what in ("dt", "A", "D", "dt_bias"):
        x = inputs[what].contiguous()
        inputs[what] = x * torch.linspace(0.5, 1.0, x.shape[-1]).to(x.dtype)
    assert_right(name, inputs)


def test_a_group_of_experts_is_left_out_although_all_scores_are_negative():
    """With zeros in the place of what is left out, the wrong experts would win."""
    name = names("moe_fp8_block_scale_*_h256_i128")[0]
    bias = torch.full((32,), -2.0, dtype=torch.bfloat16)
    assert_right(name, case(name, {"seq_len": 9}, routing_bias=bias))


def test_numbers_of_nvfp4_are_each_decoded_in_their_place():
    """Row i of the identity picks number i of the vector, which has all 16 of them."""
    scale = torch.ones(1, 4, 1)
    scale[0, 2] = 8.0
    inputs = case(
        "nvfp4_gemv",
        {"m": 64, "k": 64, "l": 1},
        a=packed(torch.eye(64).long() * 2),  # code 2 is 1.0
        b=packed(torch.arange(16).repeat(4)[None]),
        sfa=torch.ones(64, 4, 1).to(torch.float8_e4m3fn),
        sfb=scale.to(torch.float8_e4m3fn),
    )
    sizes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    expected = torch.cat((sizes, -sizes)).repeat(4)
    expected[32:48] *= 8
    out = reference("nvfp4_gemv")(*inputs.values())
    assert torch.equal(out.flatten(), expected.half())


def packed(codes):
    """Codes [rows, k] as bytes [rows, k / 2, 1]: the first of a pair in the low half."""
    low, high = codes[:, ::2], codes[:, 1::2]
    bytes_ = (low | high << 4).to(torch.uint8)
    return bytes_[:, :, None].view(torch.float4_e2m1fn_x2)
