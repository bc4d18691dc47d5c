"""Generators that make whole page tables and routings valid by construction."""

import pytest
import torch

from pytest_fib.workloads import TURNS, fill_inputs, make_workload, plan


def made(definition, axes, seed=0, regime=None):
    """The inputs of one workload, by name."""
    sizes = definition.axis_values(axes)
    tensors = {
        name: torch.empty(spec.shape_at(sizes), dtype=getattr(torch, spec.dtype.value))
        for name, spec in definition.inputs.items()
    }
    fill_inputs(tensors, definition, make_workload(definition, axes, seed, regime))
    return tensors


@pytest.fixture
def prefill(define):
    """Query tokens of some sequences, and their pages of 4 tokens each."""
    return define(
        axes={"len": "var", "total_q": "var", "pages": "var", "batch": "var"},
        inputs={
            "qo_indptr": {"shape": ["len"], "dtype": "int32"},
            "kv_indptr": {"shape": ["len"], "dtype": "int32"},
            "last": {"shape": ["batch"], "dtype": "int32"},
        },
        rules={
            "qo_indptr": {"kind": "indptr", "total": "total_q"},
            "kv_indptr": {
                "kind": "indptr",
                "total": "pages",
                "at_least": "qo_indptr",
                "page_size": 4,
            },
            "last": {
                "kind": "last_page_len",
                "page_size": 4,
                "indptr": "kv_indptr",
                "at_least": "qo_indptr",
            },
        },
    )


@pytest.mark.parametrize(("tokens", "pages", "fits"), [(4, 1, True), (5, 1, False), (8, 2, True)])
def test_one_sequence_may_fill_its_pages(prefill, tokens, pages, fits):
    axes = {"len": 2, "total_q": tokens, "pages": pages, "batch": 1}
    assert (plan(prefill).broken(axes) is None) == fits
    if fits:
        assert made(prefill, axes)["last"].tolist() == [4]


@pytest.mark.parametrize("regime", ["random", "equal", "one_long", "empties", "ones", "tiles"])
def test_the_fewest_pages_are_enough_however_tokens_are_split(prefill, regime):
    for tokens in range(1, 24):
        axes = {"len": 4, "total_q": tokens, "pages": (tokens + 3 * 3) // 4, "batch": 3}
        assert plan(prefill).broken(axes) is None
        assert plan(prefill).broken({**axes, "pages": axes["pages"] - 1}) is not None
        for seed in range(5):
            inputs = made(prefill, axes, seed, {"lengths": regime})
            pages, queries = inputs["kv_indptr"].diff(), inputs["qo_indptr"].diff()
            held = torch.where(pages > 0, (pages - 1) * 4 + inputs["last"], 0)
            assert (held >= queries).all()


@pytest.mark.parametrize(("experts", "units"), [(8, 8), (256, 256), (384, 512)])
def test_no_rounding_decides_which_experts_are_chosen(define, experts, units):
    definition = define(
        axes={"tokens": "var", "experts": experts},
        inputs={
            "logits": {"shape": ["tokens", "experts"], "dtype": "float32"},
            "bias": {"shape": ["experts"], "dtype": "bfloat16"},
        },
        rules={
            "logits": {"kind": "router_logits"},
            "bias": {
                "kind": "integers",
                "min": f"-9 / {units}",
                "max": f"9 / {units}",
                "step": f"1 / {units}",
            },
        },
    )
    drawn = [made(definition, {"tokens": 200}, seed) for seed in range(4)]
    # Now and then all tokens have the same best expert.
    assert any(len(inputs["logits"].argmax(dim=-1).unique()) > 1 for inputs in drawn)
    inputs = drawn[0]
    scores = inputs["logits"].sigmoid() + inputs["bias"].float()
    assert scores.sort(dim=-1).values.diff().min() > 0.4 / (experts * units)
    assert (inputs["bias"].float() * units).unique().tolist() == sorted(
        set((inputs["bias"].float() * units).round().tolist())
    )


@pytest.mark.parametrize(
    ("dtype", "experts", "may_be"),
    [("float32", 512, True), ("bfloat16", 128, True), ("bfloat16", 256, False)],
)
def test_logits_that_are_far_are_beyond_what_exponentials_hold(define, dtype, experts, may_be):
    definition = define(
        axes={"tokens": "var", "experts": experts},
        inputs={"logits": {"shape": ["tokens", "experts"], "dtype": dtype}},
        rules={"logits": {"kind": "router_logits", "far": True}},
    )
    drawn = [made(definition, {"tokens": 9}, seed)["logits"].float() for seed in range(TURNS)]
    assert any(bool((x >= 128).all()) for x in drawn) == may_be
    assert any(bool((x <= -128).all()) for x in drawn) == may_be
    assert all(bool((x.sort(-1).values.diff() > 0).all()) for x in drawn)
    assert sum(bool((x.abs() > 64).any()) for x in drawn) == (TURNS // 8 if may_be else 0)


@pytest.mark.parametrize(
    ("dtype", "experts", "may_be"),
    [
        ("float32", 512, True),
        ("bfloat16", 64, True),
        ("float16", 512, True),
        ("bfloat16", 512, False),
    ],
)
def test_logits_that_are_low_have_sigmoids_beside_which_an_epsilon_counts(
    define, dtype, experts, may_be
):
    definition = define(
        axes={"tokens": "var", "experts": experts},
        inputs={"logits": {"shape": ["tokens", "experts"], "dtype": dtype}},
        rules={"logits": {"kind": "router_logits", "low": True}},
    )
    drawn = [made(definition, {"tokens": 9}, seed)["logits"].float() for seed in range(TURNS)]
    low = [x for x in drawn if bool((x == 128).any())]
    assert len(low) == (TURNS // 8 if may_be else 0)
    assert all(x[0].sigmoid().topk(8).values.sum() < 0.1 for x in low)
    assert all(x[0].sigmoid().topk(1).values < 0.02 for x in low)
    assert all((x == 128).sum(-1).tolist() == [0, 1] * 4 + [0] for x in low)
    assert all(bool((x.sort(-1).values.diff() > 0).all()) for x in drawn)


def test_logits_of_some_rows_are_equal_with_ties_alone(define):
    inputs = {"logits": {"shape": ["tokens", "experts"], "dtype": "float32"}}
    for ties in (False, True):
        definition = define(
            axes={"tokens": "var", "experts": 16},
            inputs=inputs,
            rules={"logits": {"kind": "router_logits", "ties": ties}},
        )
        drawn = [made(definition, {"tokens": 40}, seed)["logits"] for seed in range(TURNS)]
        equal = [int((x == 0).all(-1).sum()) for x in drawn]
        assert sum(map(bool, equal)) == (TURNS // 8 if ties else 0)
        assert max(equal) == (5 if ties else 0)


@pytest.mark.parametrize("experts", [16, 128, 384])
def test_logits_of_16_bits_keep_those_apart_that_may_be_chosen(define, experts):
    definition = define(
        axes={"tokens": "var", "experts": experts},
        inputs={"logits": {"shape": ["tokens", "experts"], "dtype": "bfloat16"}},
        rules={"logits": {"kind": "router_logits"}},
    )
    logits = made(definition, {"tokens": 500}, seed=2)["logits"]
    assert len(logits.argmax(dim=-1).unique()) > 1
    assert (logits.float().topk(11, dim=-1).values.diff() <= -1 / 32).all()


@pytest.mark.parametrize(("dtype", "apart"), [("float32", 0.2 / 256**2), ("bfloat16", 5e-6)])
def test_all_logits_of_a_router_are_negative_now_and_then(define, dtype, apart):
    definition = define(
        axes={"tokens": "var", "experts": 256},
        inputs={"logits": {"shape": ["tokens", "experts"], "dtype": dtype}},
        rules={"logits": {"kind": "router_logits"}},
    )
    drawn = [made(definition, {"tokens": 20}, seed)["logits"].float() for seed in range(4)]
    negative = [logits for logits in drawn if (logits < 0).all()]
    assert len(negative) == 1
    # Of 16 bits, sigmoids of -8 are 3e-4, and those of -8 + 1 / 32 are 1e-5 more.
    assert negative[0].sigmoid().sort(-1).values.diff().min() > apart


def test_what_generators_need_is_not_asked_of_inputs_that_are_there(prefill):
    """Three sequences can't be promised enough room in one page, but one token fits."""
    axes = {"len": 4, "total_q": 1, "pages": 1, "batch": 3}
    assert plan(prefill).broken(axes) is not None
    assert plan(prefill).broken(axes, {"kv_indptr": torch.tensor([0, 0, 1, 1])}) is None
