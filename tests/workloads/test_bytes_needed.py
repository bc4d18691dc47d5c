"""How much of each input a workload uses."""

from pathlib import Path

import pytest
import torch

from pytest_fib.data import load_definition_file
from pytest_fib.workloads import bytes_needed, fill_inputs, layouts, make_workload

ROOT = Path(__file__).parents[2]
ROW = 4 * 6  # bytes of a row of six float32


def tensors(**values):
    return {name: torch.as_tensor(value, dtype=torch.int32) for name, value in values.items()}


@pytest.fixture
def pages(define):
    """A cache of pages of 4 tokens, and which of them sequences use."""

    def pages(shape=("num_pages", "page_size", "d"), **more):
        return define(
            axes={
                "batch": "var", "num_pages": "var", "used": "var", "len": "var",
                "page_size": 4, "d": 6, "heads": 2,
            },
            inputs={
                "cache": {"shape": list(shape), "dtype": "float32"},
                "indptr": {"shape": ["len"], "dtype": "int32"},
                "indices": {"shape": ["used"], "dtype": "int32"},
                "last": {"shape": ["batch"], "dtype": "int32"},
            },
            rules={
                "indptr": {"kind": "indptr", "total": "used"},
                "indices": {"kind": "indices", "below": "num_pages"},
                "last": {"kind": "last_page_len", "page_size": "page_size", "indptr": "indptr"},
            } | more,
        )  # fmt: skip

    return pages


PAGED = {"batch": 2, "num_pages": 9, "used": 3, "len": 3}
# The first sequence fills page 5 and one token of page 7, the second three tokens of page 0.
TABLE = tensors(indptr=[0, 2, 3], indices=[5, 7, 0], last=[1, 3])


def test_of_a_paged_cache_the_named_pages_are_used_and_of_the_last_ones_a_part(pages):
    inputs = {"cache": torch.empty(9, 4, 6), **TABLE}
    used = bytes_needed(pages(), PAGED, inputs)
    assert used == {"cache": (4 + 1 + 3) * ROW, "indptr": 12, "indices": 12, "last": 8}


def test_the_tokens_of_a_page_may_lie_behind_its_heads(pages):
    definition = pages(("num_pages", "heads", "page_size", "d"))
    inputs = {"cache": torch.empty(9, 2, 4, 6), **TABLE}
    assert bytes_needed(definition, PAGED, inputs)["cache"] == (4 + 1 + 3) * 2 * ROW


def test_without_lengths_of_last_pages_the_named_ones_are_used_whole(pages):
    definition = pages(last={"kind": "integers"})
    inputs = {"cache": torch.empty(9, 4, 6), **TABLE}
    assert bytes_needed(definition, PAGED, inputs)["cache"] == 3 * 4 * ROW


def test_an_empty_sequence_uses_no_page(pages):
    inputs = {"cache": torch.empty(9, 4, 6), **TABLE, **tensors(indptr=[0, 0, 3])}
    # Pages 5 and 7 whole, three tokens of page 0.
    assert bytes_needed(pages(), PAGED, inputs)["cache"] == (4 + 4 + 3) * ROW


@pytest.fixture
def gather(define):
    """Rows of a table, named by an index of the given rule."""

    def gather(rule, index=("k",), table=("n", "d"), **axes):
        return define(
            axes={"n": "var", "k": "var", "d": 6, "m": 2, **axes},
            inputs={
                "table": {"shape": list(table), "dtype": "float32"},
                "index": {"shape": list(index), "dtype": "int32"},
            },
            rules={"index": rule},
        )

    return gather


@pytest.mark.parametrize(
    ("rule", "index", "rows"),
    [
        ({"kind": "indices", "below": "n", "unique": False}, [3, 3, 0, 3], 2),
        ({"kind": "indices", "below": "n", "pad": -1}, [3, 1, -1, -1], 2),
        ({"kind": "positions", "below": "n"}, [7, 0, 0, 1], 3),
        ({"kind": "topk_ids", "experts": "n"}, [2, 2, 2, 2], 1),
        ({"kind": "routing", "experts": "n"}, [(2 << 16) | 5, (2 << 16) | 9, 1 << 16, 7], 3),
        ({"kind": "permutation"}, [3, 1, 0, 2], 8),
        ({"kind": "indices", "below": 8}, [3, 1, 0, 2], 8),  # whose rows, nothing tells
    ],
)
def test_each_row_that_is_named_counts_once(gather, rule, index, rows):
    inputs = {"table": torch.empty(8, 6), **tensors(index=index)}
    used = bytes_needed(gather(rule), {"n": 8, "k": 4}, inputs)
    assert used == {"table": rows * ROW, "index": 16}


def test_an_index_of_tokens_names_tokens_of_pages(gather):
    rule = {"kind": "indices", "below": "n * m", "pad": -1}
    inputs = {"table": torch.empty(8, 2, 6), **tensors(index=[0, 1, 2, -1])}
    definition = gather(rule, table=("n", "m", "d"))
    assert bytes_needed(definition, {"n": 8, "k": 4}, inputs)["table"] == 3 * ROW


def test_an_axis_of_experts_behind_that_of_tokens_is_read_whole(gather):
    definition = gather({"kind": "topk_ids", "experts": "n"}, table=("k", "n"))
    inputs = {"table": torch.empty(4, 8), **tensors(index=[0, 0, 0, 0])}
    assert bytes_needed(definition, {"n": 8, "k": 4}, inputs)["table"] == 4 * 8 * 4


def test_a_broadcast_tensor_counts_its_elements_once(gather):
    rule = {"kind": "indices", "below": "n"}
    index = tensors(index=[1, 2, 3, 4])
    for table, expected in [
        (torch.empty(1, 1).expand(8, 6), 1),
        (torch.empty(8, 1).expand(8, 6), 4),
        (torch.empty(1, 6).expand(8, 6), 6),
    ]:
        used = bytes_needed(gather(rule), {"n": 8, "k": 4}, {"table": table, **index})
        assert used["table"] == 4 * expected


def test_groups_without_rows_need_no_weights(define):
    definition = define(
        axes={"groups": "var", "len": "var", "rows": "var", "d": 6},
        inputs={
            "a": {"shape": ["rows", "d"], "dtype": "float32"},
            "b": {"shape": ["groups", "d"], "dtype": "float32"},
            "offsets": {"shape": ["len"], "dtype": "int32"},
        },
        rules={"offsets": {"kind": "indptr", "total": "rows"}},
    ).model_copy(update={"constraints": ["len == groups + 1"]})
    inputs = {"a": torch.empty(9, 6), "b": torch.empty(4, 6)}
    used = bytes_needed(
        definition,
        {"groups": 4, "len": 5, "rows": 9},
        {**inputs, **tensors(offsets=[0, 0, 3, 3, 8])},
    )
    assert used == {"a": 8 * ROW, "b": 2 * ROW, "offsets": 20}


@pytest.mark.parametrize("rule", [{"kind": "seq_lens"}, {"kind": "lengths", "total": 6}])
def test_a_padded_batch_is_used_as_far_as_its_sequences_reach(define, rule):
    definition = define(
        axes={"batch": "var", "longest": "var", "d": 6},
        inputs={
            "k": {"shape": ["batch", "longest", "d"], "dtype": "float32"},
            "turns": {"shape": ["longest", "d"], "dtype": "float32"},
            "lens": {"shape": ["batch"], "dtype": "int32"},
        },
        rules={"lens": {**rule, "max": "longest"}},
    )
    inputs = {"k": torch.empty(2, 8, 6), "turns": torch.empty(8, 6), **tensors(lens=[1, 5])}
    used = bytes_needed(definition, {"batch": 2, "longest": 8}, inputs)
    assert used == {"k": 6 * ROW, "turns": 5 * ROW, "lens": 8}


@pytest.mark.parametrize("page_size", ["page_size", 4])
def test_of_a_block_table_lengths_say_what_is_used(define, page_size):
    definition = define(
        axes={"batch": "var", "pages": "var", "most": "var", "page_size": 4, "d": 6},
        inputs={
            "cache": {"shape": ["pages", "page_size", "d"], "dtype": "float32"},
            "lens": {"shape": ["batch"], "dtype": "int32"},
            "table": {"shape": ["batch", "most"], "dtype": "int32"},
        },
        rules={
            "lens": {"kind": "seq_lens", "max": "most * 4", "pages": "pages"},
            "table": {
                "kind": "block_table", "pages": "pages", "page_size": page_size, "lengths": "lens"
            },
        },
    )  # fmt: skip
    table = tensors(lens=[6, 1], table=[[3, 5, 0], [1, 0, 0]])
    used = bytes_needed(
        definition, {"batch": 2, "pages": 9, "most": 3}, {"cache": torch.empty(9, 4, 6), **table}
    )
    tokens = 6 + 1 if page_size == "page_size" else 3 * 4
    assert used == {"cache": tokens * ROW, "lens": 8, "table": 3 * 4}


@pytest.mark.parametrize(
    ("file", "axes", "whole"),
    [
        ("gqa_paged/gqa_paged_decode_ps1", {"batch_size": 4, "num_kv_indices": 60}, 100),
        ("mla_paged/mla_paged_decode_ps1", {"batch_size": 4, "num_kv_indices": 60}, 100),
        ("mamba_ssu/mamba_ssu_decode", {"batch_size": 60}, 100),
        ("rope/rope_h32_kv8_d128_rd128", {"num_tokens": 40}, 100),
    ],
)
def test_the_caches_of_definitions_are_used_in_part(file, axes, whole):
    definition = load_definition_file(ROOT / f"kernel_defs/{file}.yaml")[0].definition
    names = {"num_pages", "state_cache_size", "max_seq_len"} & set(definition.var_axes)
    cached = names.pop()
    axes = {**axes, cached: whole, "len_indptr": 5}
    workload = make_workload(definition, {axis: axes[axis] for axis in definition.var_axes})
    inputs = {
        name: torch.empty_strided(layout.shape, layout.stride, dtype=getattr(torch, layout.dtype))
        for name, layout in layouts(definition, workload).items()
        if name in definition.inputs
    }
    fill_inputs(inputs, definition, workload)
    used = bytes_needed(definition, workload.axes, inputs)
    of_cache = [name for name in inputs if definition.inputs[name].shape[0] == cached]
    assert of_cache
    for name, tensor in inputs.items():
        share = used[name] / tensor.nbytes
        if name in of_cache:
            assert 0.2 < share <= 0.6
        elif 0 not in tensor.stride() and definition.inputs[name].shape[0] != "batch_size":
            assert share == 1
