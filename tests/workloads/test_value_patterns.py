"""What floating inputs hold, in each regime of values, and which regimes there are to draw."""

from itertools import combinations

import pytest
import torch

from pytest_fib.data import INPUTS, LAYOUTS, ON_REQUEST, VALUE_PATTERNS, Definition
from pytest_fib.workloads import (
    TURNS,
    fill_inputs,
    make_workload,
    regime_choices,
    without_plainest,
)

USUAL = [name for name in VALUE_PATTERNS if name not in ON_REQUEST]
DTYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def made(define, dtype, seed=0, names="x", shape=(64, 128), **regime):
    """Inputs of one workload, as float64, by name."""
    inputs = {name: {"shape": ["m", "n"], "dtype": dtype} for name in names}
    definition = define({"m": "var", "n": "var"}, inputs)
    tensors = {name: torch.empty(shape, dtype=getattr(torch, dtype)) for name in names}
    axes = dict(zip("mn", shape, strict=True))
    fill_inputs(tensors, definition, make_workload(definition, axes, seed, regime))
    return {name: tensor.double() for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("values", USUAL)
def test_values_are_finite_in_every_dtype(define, dtype, values):
    assert made(define, dtype, values=values)["x"].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormal_values_are_subnormal_in_their_own_dtype(define, dtype):
    x = made(define, dtype, values="subnormal")["x"]
    assert (x.abs() <= torch.finfo(getattr(torch, dtype)).tiny).all()
    assert (x != 0).double().mean() > 0.5


def test_half_of_the_rows_of_subnormal_values_have_a_norm_below_an_epsilon(define):
    drawn = [made(define, "float16", s, values="subnormal", shape=(8, 48))["x"] for s in range(9)]
    norms = torch.cat(drawn).double().norm(dim=-1)
    assert 20 < int((norms < 1e-6).sum()) < 52
    assert ((norms > 0) & (norms < 1e-6)).any()


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "float16"])
def test_the_square_of_a_product_of_large_values_is_a_number_still(define, dtype):
    x, limits = made(define, dtype, values="large")["x"], torch.finfo(getattr(torch, dtype))
    typical = float(x.abs().median())
    assert limits.max**0.25 / 3 < typical < limits.max**0.25


@pytest.mark.parametrize("values", ["large", "negative", "mixed"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_squares_of_products_of_two_inputs_have_a_sum_and_each_is_large_in_turn(
    define, dtype, values
):
    most = torch.finfo(torch.float32).max
    leading = set()
    for seed in range(6):
        inputs = made(define, dtype, seed, names="xwv", values=values)
        for one, other in combinations(inputs.values(), 2):
            assert (one * other).square().sum() < most
        leading |= {name for name, x in inputs.items() if x.abs().max() > 2.0**31}
    assert leading == set("xwv")


def test_the_square_of_a_large_value_is_none_in_float16(define):
    """In the first row and half of the others; of the rest, the square of a product still is."""
    x, limits = made(define, "float16", values="large")["x"], torch.finfo(torch.float16)
    x = x.double().abs()
    beyond = (x**2 > float(limits.max)).double().mean(-1)
    assert beyond[0] > 0.2
    assert 0 < (beyond == 0).double().mean() < 1
    # Half are larger still, of which exponentials are none in float32.
    assert 88 * 20 < x.max() < limits.max / 2


def test_a_long_sum_of_large_values_is_now_and_then_none_in_float16(define):
    sums = made(define, "float16", values="large", shape=(64, 1024))["x"].sum(-1).abs()
    assert 0.05 < (sums > float(torch.finfo(torch.float16).max)).double().mean() < 0.6


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_values_are_not_all_lost(define, dtype):
    x = made(define, dtype, values="small")["x"]
    assert (x != 0).double().mean() > 0.8
    assert x.abs().max() < 0.1


@pytest.mark.parametrize("dtype", DTYPES)
def test_negative_values_are(define, dtype):
    x = made(define, dtype, values="negative")["x"]
    assert (x <= 0).all()
    assert x.mean() < -0.5


def test_negative_values_are_large_in_some_rows_or_workloads(define):
    largest = [made(define, "float32", seed, values="negative")["x"].amax(1) for seed in range(8)]
    large = torch.cat(largest) < -1e4
    assert 0.1 < large.double().mean() < 0.9


def test_all_of_some_rows_are_far_below_zero_and_their_exponentials_are_no_zeros(define):
    largest = [made(define, "float32", seed, values="negative")["x"].amax(1) for seed in range(8)]
    faint = torch.cat(largest)[torch.cat(largest) > -100].exp() < 2e-7
    assert 0.1 < faint.double().mean() < 0.9


@pytest.mark.parametrize("values", ["one_hot", "outlier"])
def test_each_row_has_its_own_column(define, values):
    x = made(define, "float32", values=values)["x"]
    columns = x.abs().argmax(-1)
    assert len(columns.unique()) > 20
    others = x.abs().scatter(-1, columns[:, None], 0.0).amax(-1)
    assert (x.abs().amax(-1) > 10 * others).all()


def test_mixed_rows_are_each_of_a_regime(define):
    x = made(define, "bfloat16", values="mixed", shape=(200, 64))["x"]
    largest = x.abs().amax(-1)
    for some in (
        (x == 0).all(-1),
        (x == 1).all(-1),
        (largest > 0) & (largest < 0.1),
        largest > 1e8,
        (largest > 1) & (largest < 10) & (x > 0).any(-1),
        (x < 0).all(-1),
        (largest >= 99) & (largest < 1000) & (x.amin(-1) < 99),
        (x > 99).all(-1) & (x < 160).all(-1),
    ):
        assert 10 < int(some.sum()) < 100


def where(special):
    """Which places of a row are special: none, its first, its last, all, or others."""
    n = special.shape[-1]
    count, first, last = special.sum(-1), special[..., 0], special[..., -1]
    return {
        "none": count == 0,
        "first": first & (count == 1),
        "last": last & (count == 1),
        "one": ~first & ~last & (count == 1),
        "all": count == n,
    }


def test_rows_have_nan_first_last_anywhere_everywhere_or_nowhere(define):
    rows = where(made(define, "float32", values="nan")["x"].isnan())
    assert all(there.any() for there in rows.values())
    assert 15 < int(rows["none"].sum()) < 50


def test_half_of_nan_have_all_bits_as_those_of_cuda(define):
    x = made(define, "float32", values="nan", shape=(400, 16))["x"]
    bits = x[x.isnan()].to(torch.float32).view(torch.int32)
    assert 0.3 < (bits == torch.iinfo(torch.int32).max).double().mean() < 0.7


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e5m2"])
def test_rows_have_infinities_of_either_sign_or_both(define, dtype):
    x = made(define, dtype, values="inf", shape=(400, 16))["x"]
    above, below = x == torch.inf, x == -torch.inf
    both = above.any(-1) & below.any(-1)
    assert both.any()
    for one, other in ((above, below), (below, above)):
        rows = where(one)
        alone = {name: there & ~other.any(-1) for name, there in rows.items()}
        assert all(there.any() for there in alone.values())
    assert 130 < int((~above & ~below).all(-1).sum()) < 270


@pytest.mark.parametrize("shape", [(1, 17), (1, 2)])
def test_a_single_row_has_each_case_in_its_turn(define, shape):
    nan = [made(define, "float32", s, values="nan", shape=shape)["x"].isnan() for s in range(4)]
    assert all(where(torch.cat(nan))[name].any() for name in ("first", "last", "all"))
    cases = [made(define, "float32", s, values="inf", shape=shape)["x"] for s in range(TURNS)]
    for start in range(TURNS):
        four = [cases[(start + i) % TURNS] for i in range(4)]
        signs = {(bool((x == torch.inf).any()), bool((x == -torch.inf).any())) for x in four}
        assert {(True, False), (False, True)} <= signs
        assert any(bool((x == -torch.inf).all()) for x in four)
        assert any(bool(x[0, -1].isinf() and not (x == x[0, -1]).all()) for x in four)
    assert sum(bool((x == torch.inf).any() and (x == -torch.inf).any()) for x in cases) >= 1


def test_some_inputs_are_normal_and_some_are_not(define):
    zero = []
    for seed in range(200):
        inputs = made(define, "float32", seed, "abc", values="zeros", inputs="some")
        zero.append(tuple(bool((x == 0).all()) for x in inputs.values()))
    assert {(False, False, False), (True, True, True)}.isdisjoint(zero)
    assert len({*zero}) == 6
    alone = []
    for seed in range(3):
        inputs = made(define, "float32", seed, "abc", values="zeros", inputs="one")
        alone += [name for name, x in inputs.items() if (x == 0).all()]
        assert sum(bool((x != 0).all()) for x in inputs.values()) == 2
    assert {*alone} == {*"abc"}
    all_inputs = made(define, "float32", 0, "abc", values="zeros")
    assert all((x == 0).all() for x in all_inputs.values())


@pytest.mark.parametrize("names", ["qk", "qkv", "qkvw"])
def test_products_of_negative_inputs_and_others_are_far_below_zero(define, names):
    for seed in (0, 2):
        q, k, *_ = made(define, "bfloat16", seed, names, values="negative", inputs="some").values()
        scores = q @ k.T
        assert scores.max() < -30
        assert scores.amin(1).max() < -1e9
    if len(names) > 3:  # scores may have two parts
        signs = [
            x.mean().sign()
            for x in made(define, "bfloat16", 1, names, values="negative", inputs="some").values()
        ]
        assert signs == [-1, -1, 1, 1]


def test_integers_of_some_rows_differ_in_their_last_bits_alone(define):
    most = 2**31 - 1
    rules = {"x": {"kind": "integers", "min": -most, "max": most}}
    inputs = {"x": {"shape": ["n"], "dtype": "int32"}}
    definition, spread = define({"n": "var"}, inputs, rules=rules), []
    for seed in range(8):
        x = torch.empty(100, dtype=torch.int32)
        fill_inputs({"x": x}, definition, make_workload(definition, {"n": 100}, seed))
        spread.append(int(x.long().max() - x.long().min()) if x.abs().max() > 255 else None)
    assert spread.count(None) == 1  # which are small
    assert sum(0 < each < 16 for each in spread if each is not None) == 1
    assert sum(each > most for each in spread if each is not None) >= 5


def declared(inputs, section):
    return Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"n": "var", "t": "var"},
            "inputs": inputs,
            "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
            "reference": f"def run({', '.join(inputs)}): ...",
            "workloads": section,
        }
    )


FLOATING = {"shape": ["n"], "dtype": "float32"}
OFFSETS = {"shape": ["n"], "dtype": "int32"}


@pytest.mark.parametrize(
    ("inputs", "section", "expected"),
    [
        ({"x": FLOATING}, {}, {"values": USUAL}),
        ({"x": FLOATING, "z": FLOATING}, {}, {"values": USUAL, "inputs": [*INPUTS]}),
        ({"x": FLOATING}, {"values": ["normal", "nan"]}, {"values": ["normal", "nan"]}),
        ({"i": OFFSETS}, {"inputs": {"i": {"kind": "permutation"}}}, {}),
        (
            {"x": FLOATING},
            {"inputs": {"x": {"kind": "normal"}}, "layouts": ["offset"]},
            {"layout": [LAYOUTS[0], "offset"]},
        ),
    ],
)
def test_only_regimes_that_change_something_are_drawn(inputs, section, expected):
    assert regime_choices(declared(inputs, section)) == expected


@pytest.mark.parametrize(
    ("regime", "expected"),
    [
        ({"values": "normal", "inputs": "some", "lengths": "random"}, {}),
        ({"values": "zeros", "inputs": "all"}, {"values": "zeros"}),
        ({"values": "zeros", "inputs": "some"}, {"values": "zeros", "inputs": "some"}),
        ({"lengths": "ones", "layout": "contiguous"}, {"lengths": "ones"}),
    ],
)
def test_a_regime_says_what_is_not_plain(regime, expected):
    assert without_plainest(regime) == expected


@pytest.mark.parametrize(("dtype", "least"), [("float16", 2.5), ("bfloat16", 15), ("float32", 15)])
def test_shifted_values_are_far_from_zero_and_close_together(define, dtype, least):
    spreads = set()
    for seed in range(8):
        x = made(define, dtype, seed=seed, values="shifted", shape=(64, 64))["x"].double()
        assert least < float(x.mean()) < 17
        spreads |= {round(float(shares), 2) for shares in x.std(1) / x.mean(1)}
    assert min(spreads) < 0.01
    assert 0.05 < max(spreads) < 0.1


def test_usual_values_and_others_may_be_asked_for(define):
    definition = define({"n": "var"})
    usual = regime_choices(definition)["values"]
    section = definition.workloads.model_copy(update={"values": ["usual", "nan", "zeros"]})
    asking = definition.model_copy(update={"workloads": section})
    assert regime_choices(asking)["values"] == [*usual, "nan"]
