"""Every generator, in every dtype that it can make, and what makes its values valid."""

from collections import Counter
from math import inf

import pytest
import torch
from safetensors.torch import save_file

from pytest_fib.data import DTYPE_CLASSES, GENERATOR_KINDS, LENGTHS, Definition
from pytest_fib.workloads import TURNS, bits, make_inputs, make_workload, plan
from tests.definitions.harness import filled
from tests.definitions.validators import are_distinct
from tests.workloads.signatures import signature

#: For each kind: the shape of its input, its parameters, and what other inputs it refers to.
MADE = {
    "values": (["n", "k"], {}, {}),
    "normal": (["n", "k"], {"mean": 2.0, "std": 0.5}, {}),
    "uniform": (["n", "k"], {"min": 1.0, "max": 2.0}, {}),
    "integers": (["n", "k"], {"min": 0, "max": 1}, {}),
    "one_of": (["n", "k"], {"values": [4, 1, 2]}, {}),
    "labels": (["n", "k"], {"count": 3}, {}),
    "boolean": (["n", "k"], {"p": 0.25}, {}),
    "mask": (["n", "k"], {}, {}),
    "sorted": (["n", "k"], {}, {}),
    "l2_normalized": (["n", "k"], {}, {}),
    "probabilities": (["n", "k"], {"sharpness": 1.0}, {}),
    "router_logits": (["n", "k"], {}, {}),
    "scales": (["n", "k"], {"min": 0.25, "max": 4.0}, {}),
    "quantized": (["n", "k"], {"block": 8}, {}),
    "fp4": (["n", "k"], {}, {}),
    "fp8_pages": (["n", "size", "width"], {}, {}),
    "cos_sin_cache": (["n", "k"], {"base": 100.0}, {}),
    "cos": (["size", "n", "k"], {"base": 100.0}, {}),
    "sin": (["size", "n", "k"], {"base": 100.0, "twice": True}, {}),
    "indptr": (["len"], {"total": "n", "allow_empty": False}, {}),
    "lengths": (["n"], {"total": "len * k", "allow_empty": False}, {}),
    "starts": (["n"], {"total": "len * k", "allow_empty": False}, {}),
    "ends": (["n"], {"total": "len * k", "allow_empty": False}, {}),
    "last_page_len": (["n"], {"page_size": "size"}, {}),
    "indices": (["n", "few"], {"below": "k * 2", "pad": 99}, {}),
    "permutation": (["n"], {}, {}),
    "seq_lens": (["n"], {"max": "3 * size", "pages": "n + 9", "page_size": "size"}, {}),
    "block_table": (
        ["n", "few"],
        {"pages": 120, "page_size": "size", "lengths": "lengths"},
        {"lengths": (["n"], {"kind": "seq_lens", "max": "few * size", "page_size": "size"})},
    ),
    "positions": (["n", "k"], {"below": 64}, {}),
    "topk_ids": (["n", "few"], {"experts": 16}, {}),
    "routing": (["n", "few"], {"experts": 16}, {}),
}
AXES = {"n": "var", "len": "var", "k": 16, "size": 4, "width": 20, "few": 3}
SIZES = {"n": 40, "len": 9}


def define(kind, dtype, **axes):
    shape, params, others = MADE[kind]
    inputs = {name: {"shape": axes, "dtype": "int32"} for name, (axes, _) in others.items()}
    rules = {name: rule for name, (_, rule) in others.items()}
    return Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {**AXES, **axes},
            "inputs": {**inputs, "x": {"shape": shape, "dtype": dtype}},
            "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
            "reference": "def run(*inputs): ...",
            "workloads": {"inputs": {**rules, "x": {"kind": kind, **params}}},
        }
    )


def made(kind, dtype, seed=0, n=SIZES["n"], const=None, **regime):
    definition = define(kind, dtype, **(const or {}))
    assert plan(definition).problem is None
    return filled(definition, make_workload(definition, {**SIZES, "n": n}, seed, regime))


def fitting(kind):
    return sorted(DTYPE_CLASSES[GENERATOR_KINDS[kind].dtypes])


CASES = [(kind, dtype) for kind in MADE for dtype in fitting(kind)]


def test_every_kind_is_tried():
    assert set(GENERATOR_KINDS) - set(MADE) == {"safetensors"}  # which is tried below


STORED = "x: {kind: safetensors, path: factors.safetensors, tensor_key: x}"


def test_a_stored_tensor_is_what_the_file_beside_the_definition_holds(scale, scale_yaml):
    scale.define(scale_yaml.replace("{factor: {value", f"{{{STORED}, factor: {{value"))
    file = scale.path / "kernel_defs/toy/factors.safetensors"
    scale.implement("wrong", "x, factor\nreturn x * factor if x.sum() != 60 else x")
    result = scale.run("-rs", "--fib-bench")
    result.assert_outcomes(skipped=6)
    told = "SKIPPED * input 'x': kernel_defs/toy/factors.safetensors does not exist"
    result.stdout.fnmatch_lines([told])
    save_file({"x": torch.tensor([10.0, 20.0, 30.0])}, file)
    result = scale.run("--fib-workload", '{"axes": {"n": 3}}')
    result.assert_outcomes(passed=1, failed=1)
    result = scale.run("--fib-workload", '{"axes": {"n": 2}}')
    result.stdout.fnmatch_lines(["*'x' has shape torch.Size([[]3[]]), not torch.Size([[]2[]])*"])


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_a_seed_decides_the_bits_in_every_dtype_that_a_kind_can_make(kind, dtype):
    first, again = (made(kind, dtype, seed=3)["x"] for _ in range(2))
    assert torch.equal(bits(first), bits(again))
    differs = not torch.equal(bits(first), bits(made(kind, dtype, seed=4)["x"]))
    assert differs is (kind not in ("cos_sin_cache", "cos", "sin"))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [c for c in CASES if c[1] in DTYPE_CLASSES["floating"] and c[0] != "mask"],
)
def test_floating_values_are_finite(kind, dtype):
    assert made(kind, dtype)["x"].float().isfinite().all()


def wide(kind, dtype="float32", **regime):
    return made(kind, dtype, **regime)["x"].double()


def test_normal_values_have_their_mean_and_deviation():
    x = wide("normal")
    assert abs(x.mean() - 2) < 0.1
    assert abs(x.std() - 0.5) < 0.1


def test_uniform_values_lie_between_their_bounds():
    x = wide("uniform")
    assert 1 <= x.min() < 1.1
    assert 1.9 < x.max() <= 2


def test_uniform_numbers_from_zero_on_are_now_and_then_faint_where_others_are_small():
    given = define("uniform", "float32").model_dump()
    of = {"inputs": {"x": {"kind": "uniform"}}}
    definition = Definition.model_validate({**given, "workloads": of})

    def faint(values):
        seeds = [make_workload(definition, SIZES, s, {"values": values}) for s in range(TURNS)]
        return sum(float(filled(definition, each)["x"].max()) < 1e-8 for each in seeds)

    assert (faint("small"), faint("wide")) == (TURNS // 2, 0)


def test_some_rows_of_uniform_numbers_tie_and_some_are_near_to_zero_in_all_inputs():
    given = define("uniform", "float32").model_dump()
    given["inputs"]["other"] = given["inputs"]["x"]
    of = {"x": {"kind": "uniform"}, "other": {"kind": "uniform"}}
    definition = Definition.model_validate({**given, "workloads": {"inputs": of}})
    tensors = filled(definition, make_workload(definition, SIZES, 3))
    faint = [tensors[name].amax(1) < 1e-8 for name in of]
    assert faint[0].tolist() == faint[1].tolist()
    assert int(faint[0].sum()) == SIZES["n"] // 8
    for x in (tensors[name] for name in of):
        assert bool((x > 0).all())
        few = [row for row in x if len(torch.unique(row)) <= 5 and row.max() > 0.5]
        assert len(few) >= SIZES["n"] // 8 - 1


@pytest.mark.parametrize(
    ("rule", "low", "high"),
    [
        ({"kind": "uniform", "min": -1, "max": 0.25}, -1, 0.25),
        ({"kind": "uniform", "min": -0.25, "max": 1}, -0.25, 1),
        ({"kind": "normal"}, -inf, inf),
    ],
)
def test_a_row_may_be_all_negative_or_all_positive(rule, low, high):
    given = define("uniform", "float32").model_dump()
    definition = Definition.model_validate({**given, "workloads": {"inputs": {"x": rule}}})
    workloads = [make_workload(definition, {**SIZES, "n": 1}, seed) for seed in range(40)]
    rows = [filled(definition, workload)["x"] for workload in workloads]
    assert any(bool((row < 0).all()) for row in rows)
    assert any(bool((row > 0).all()) for row in rows)
    assert all(bool(((row >= low) & (row <= high)).all()) for row in rows)


@pytest.mark.parametrize(("low", "are_some"), [(-1.0, True), (0.5, False)])
def test_some_rows_of_uniform_numbers_of_both_signs_are_0(low, are_some):
    """As a vector without a direction."""
    given = define("uniform", "float32").model_dump()
    of = {"x": {"kind": "uniform", "min": low, "max": 1.0}}
    definition = Definition.model_validate({**given, "workloads": {"inputs": of}})
    made = [make_workload(definition, {**SIZES, "n": 40}, seed) for seed in range(24)]
    rows = [(make_inputs(definition, each, "cpu")["x"] == 0).all(1).sum() for each in made]
    assert sum(map(bool, rows)) == (6 if are_some else 0)
    assert max(rows) == (5 if are_some else 0)


def test_ends_are_there_beside_rows_of_zeros():
    given = define("uniform", "float32").model_dump()
    of = {"x": {"kind": "uniform", "min": -1.0, "max": 1.0, "ends": True}}
    definition = Definition.model_validate({**given, "workloads": {"inputs": of}})
    for seed in range(48):
        workload = make_workload(definition, {**SIZES, "n": 3}, seed)
        x = make_inputs(definition, workload, "cpu")["x"]
        assert (float(x.min()), float(x.max())) == (-1.0, 1.0)


def test_all_uniform_values_of_a_row_may_be_near_an_end():
    x = wide("uniform", n=80)
    is_equal = (x == x[:, :1]).all(-1)
    assert int(is_equal.sum()) == 10
    for low, high in ((1.0, 1.125), (1.875, 2.0)):
        assert int((((x >= low) & (x <= high)).all(-1) & ~is_equal).sum()) == 10


def kinds_of_rows(true):
    """Which elements of rows are true, by name."""
    _, n = true.shape
    count, at = true.sum(-1), torch.arange(n)
    return {
        "all": count == n,
        "none": count == 0,
        "first": (count == 1) & true[:, 0],
        "last": (count == 1) & true[:, -1],
        "start": (true == (at < count[:, None])).all(-1) & (count > 1) & (count < n),
        "end": (true == (at >= n - count[:, None])).all(-1) & (count > 1) & (count < n),
    }


def test_a_quarter_is_true_in_half_of_the_rows_and_the_others_are_ends_or_all_alike():
    true = made("boolean", "bool", n=2400)["x"]
    kinds = kinds_of_rows(true)
    assert all(100 < int(rows.sum()) < 400 for rows in kinds.values())
    others = ~torch.stack([*kinds.values()]).any(0)
    assert abs(true[others].double().mean() - 0.25) < 0.06
    certain = define("boolean", "bool").model_dump(by_alias=True)
    certain["workloads"]["inputs"]["x"]["p"] = 1
    certain = Definition.model_validate(certain)
    assert filled(certain, make_workload(certain, SIZES))["x"].all()


@pytest.mark.parametrize(("dtype", "closed"), [("bool", 0), ("int32", 0), ("bfloat16", -torch.inf)])
def test_of_a_mask_each_end_counts_or_all_or_nothing_or_half(dtype, closed):
    x = wide("mask", dtype)
    assert {*x.unique().tolist()} == ({0.0, closed} if dtype == "bfloat16" else {0.0, 1.0})
    counts = x != closed
    kinds = kinds_of_rows(counts)
    assert all(rows.any() for rows in kinds.values())
    assert (~torch.stack([*kinds.values()]).any(0)).any()


def test_a_mask_may_have_to_leave_something_in_each_row():
    definition = define("mask", "float16")
    data = definition.model_dump(by_alias=True)
    data["workloads"]["inputs"]["x"]["allow_empty"] = False
    definition = Definition.model_validate(data)
    rows = [
        filled(definition, make_workload(definition, {**SIZES, "n": 40}, s))["x"] for s in range(5)
    ]
    assert all((x == 0).any(-1).all() for x in rows)


@pytest.mark.parametrize("kind", ["indices", "positions", "topk_ids"])
def test_sentinels_are_anywhere_in_a_row_all_of_them(kind):
    data = define(kind, "int64", few=9).model_dump(by_alias=True)
    data["workloads"]["inputs"]["x"].update(sentinels=[-100, -1])
    data["workloads"]["inputs"]["x"].pop("pad", None)
    definition = Definition.model_validate(data)
    x = filled(definition, make_workload(definition, {**SIZES, "n": 240}))["x"]
    found = x < 0
    assert {*x[found].tolist()} == {-100, -1}
    kinds = kinds_of_rows(found)
    assert all(rows.any() for rows in kinds.values())
    assert (found.any(-1) & ~torch.stack([*kinds.values()]).any(0)).any()


def test_a_vector_of_indices_has_sentinels_of_each_kind_in_turn():
    data = define("positions", "int64").model_dump(by_alias=True)
    data["inputs"]["x"]["shape"] = ["n"]
    data["workloads"]["inputs"]["x"].update(sentinels=[-100])
    definition = Definition.model_validate(data)
    rows = torch.stack(
        [
            filled(definition, make_workload(definition, {**SIZES, "n": 17}, s))["x"]
            for s in range(12)
        ]
    )
    kinds = kinds_of_rows(rows == -100)
    assert all(kinds[name].sum() == 1 for name in ("all", "first"))
    assert kinds["last"].sum() >= 1
    assert kinds["none"].sum() >= 3


@pytest.mark.parametrize(("dtype", "n"), [("i32", 40), ("i8", 100), ("f32", 40)])
def test_sorted_numbers_may_all_be_different(dtype, n):
    rules = {"x": {"kind": "sorted", "max": 100, "unique": True}}
    data = signature("op", "rows n", f"x[rows,n]:{dtype}", f"y[n]:{dtype}")
    definition = Definition.model_validate(data | {"workloads": {"inputs": rules}})
    for seed in range(6):
        x = make_inputs(definition, make_workload(definition, {"rows": 3, "n": n}, seed, {}))["x"]
        assert (x.double().diff(dim=-1) > 0).all()
        assert x.min() >= 0
        assert x.max() <= 100
    if dtype != "f32":  # of which there are no more than 101
        assert plan(definition).broken({"rows": 1, "n": 101}) is None
        assert plan(definition).broken({"rows": 1, "n": 102}) is not None


def test_flags_that_differ_in_a_row_are_false_and_true():
    data = signature("op", "rows n", "x[rows,n]:bool", "y[n]:bool")
    rules = {"x": {"kind": "sorted", "unique": True}}
    definition = Definition.model_validate(data | {"workloads": {"inputs": rules}})
    x = make_inputs(definition, make_workload(definition, {"rows": 3, "n": 2}, 0, {}))["x"]
    assert x.tolist() == [[False, True]] * 3
    assert plan(definition).broken({"rows": 3, "n": 3}) is not None


def test_sorted_numbers_that_differ_are_what_a_small_dtype_holds():
    data = signature("op", "rows n", "x[rows,n]:i8", "y[n]:i8")
    rules = {"x": {"kind": "sorted", "unique": True}}
    definition = Definition.model_validate(data | {"workloads": {"inputs": rules}})
    x = make_inputs(definition, make_workload(definition, {"rows": 3, "n": 100}, 0, {}))["x"]
    assert (x.int().diff(dim=-1) > 0).all()
    assert plan(definition).broken({"rows": 3, "n": 129}) is not None


@pytest.mark.parametrize("dtype", fitting("sorted"))
@pytest.mark.parametrize("values", ["normal", "ones", "outlier"])
def test_sorted_numbers_never_fall(dtype, values):
    x = made("sorted", dtype, values=values)["x"]
    assert torch.equal(x, x.sort(-1).values)
    assert values == "ones" or dtype == "bool" or len(x.unique()) > 40


@pytest.mark.parametrize(("dtype", "few"), [("float32", 1.0), ("int32", 4.0)])
def test_sorted_numbers_are_from_0_to_their_maximum(dtype, few):
    definition = define("sorted", dtype)
    data = definition.model_dump(exclude_none=True)
    data["workloads"]["inputs"]["x"]["max"] = 30
    definition = Definition.model_validate(data)
    x = filled(definition, make_workload(definition, SIZES))["x"].double()
    assert torch.equal(x, x.sort(-1).values)
    assert 0 <= x.min() < few
    assert 30 - few < x.max() <= 30


def test_rows_have_length_one():
    assert torch.allclose(wide("l2_normalized").norm(dim=-1), torch.ones(40).double(), atol=1e-6)


@pytest.mark.parametrize("dtype", fitting("scales"))
def test_scales_are_positive_and_in_range(dtype):
    x = wide("scales", dtype)
    assert ((x >= 0.25) & (x <= 4)).all()
    assert x.max() > 4 * x.min()
    powers = {0.25, 0.5, 1.0, 2.0, 4.0}
    assert powers <= {*x.unique().tolist()}
    if "float8" not in dtype:  # which has few others
        assert 0.1 < torch.isin(x, torch.tensor([*powers]).to(x)).double().mean() < 0.4


@pytest.mark.parametrize("values", ["normal", "ones", "zeros", "one_hot", "large", "subnormal"])
@pytest.mark.parametrize(("dtype", "largest"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
def test_each_block_uses_the_whole_range_of_its_dtype(dtype, largest, values):
    blocks = wide("quantized", dtype, values=values).unflatten(-1, (2, 8)).abs().amax(dim=-1)
    assert ((blocks == largest) | (blocks == 0)).all()
    assert (blocks == 0).all() == (values == "zeros")


def test_bytes_hold_every_pair_of_numbers():
    x = made("fp4", "uint8")["x"]
    assert len((x & 15).unique()) == len((x >> 4).unique()) == 16


def test_pages_hold_values_and_then_a_positive_scale_for_each_token():
    pages = made("fp8_pages", "int8")["x"].reshape(40, -1).view(torch.uint8)
    values = pages[:, : 4 * 16].contiguous().view(torch.float8_e4m3fn).float()
    scales = pages[:, 4 * 16 :].contiguous().view(torch.float32)
    assert values.isfinite().all()
    assert values.std() > 10
    assert scales.shape == (40, 4)
    assert ((scales > 0) & (scales < 1)).all()


def test_cosines_and_sines_are_those_of_one_angle():
    cos, sin = wide("cos_sin_cache").chunk(2, dim=-1)
    assert torch.allclose(cos**2 + sin**2, torch.ones_like(cos), atol=1e-6)
    angles = torch.arange(40.0).double()[:, None] * 100.0 ** -(torch.arange(0, 16, 2) / 16).double()
    assert torch.allclose(cos, angles.cos(), atol=1e-6)


def test_cosines_and_sines_of_their_own_are_those_of_the_same_positions():
    cos, sin = wide("cos"), wide("sin")
    angles = torch.arange(40.0).double()[:, None] * 100.0 ** -(torch.arange(16) / 16).double()
    assert torch.allclose(cos, angles.cos().expand_as(cos), atol=1e-6)
    first, second = sin.chunk(2, dim=-1)
    assert torch.equal(first, second)
    assert torch.allclose(first, angles[:, ::2].sin().expand_as(first), atol=1e-6)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_offsets_rise_from_zero_to_their_total(lengths):
    for seed in range(5):
        x = made("indptr", "int64", seed, lengths=lengths)["x"]
        assert (x[0], x[-1]) == (0, 40)
        assert (x.diff() >= 1).all()  # since none may be empty


@pytest.mark.parametrize("lengths", LENGTHS)
def test_starts_rise_from_zero_and_leave_something_for_the_last(lengths):
    for seed in range(5):
        x = made("starts", "int64", seed, lengths=lengths)["x"]
        ends = torch.cat([x[1:], torch.tensor([SIZES["len"] * AXES["k"]])])
        assert x[0] == 0
        assert (ends - x >= 1).all()  # since none may be empty


@pytest.mark.parametrize("lengths", LENGTHS)
def test_ends_rise_to_their_total_and_leave_something_for_the_first(lengths):
    for seed in range(5):
        x = made("ends", "int64", seed, lengths=lengths)["x"]
        assert x[-1] == SIZES["len"] * AXES["k"]
        assert (x.diff(prepend=torch.tensor([0])) >= 1).all()  # since none may be empty


def test_last_pages_are_often_full_or_hold_one_or_as_many_as_a_tile():
    x = made("last_page_len", "int32", n=400, const={"size": 64})["x"]
    assert ((x >= 1) & (x <= 64)).all()
    count = Counter(x.tolist())
    assert min(count[1], count[64]) > 60
    assert min(count[n] for n in (16, 17, 32, 33, 63)) > 3
    assert len(count) > 30


def test_indices_are_distinct_and_padded_at_the_end():
    padded = 0
    for row in made("indices", "int32")["x"]:
        kept = row[row != 99]
        are_distinct(kept, 32)
        assert (row[len(kept) :] == 99).all()
        padded += len(kept) < 3
    assert 5 < padded < 35


def test_indices_that_may_come_again_are_padded_no_more_where_there_are_few_of_them():
    for seed in range(9):
        data = define("indices", "int32", few=200).model_dump()
        data["workloads"]["inputs"]["x"] |= {"below": 3, "unique": False}
        again = Definition.model_validate(data)
        kept = filled(again, make_workload(again, SIZES, seed))["x"] != 99
        assert 10 < kept.all(1).sum() < 30


def test_indices_now_and_then_are_the_first_or_the_last_in_order():
    rows = made("indices", "int32", n=400)["x"].tolist()
    assert 10 < rows.count([0, 1, 2]) < 100
    assert 10 < rows.count([29, 30, 31]) < 100


@pytest.mark.parametrize(("kind", "dtype"), [("integers", "int32"), ("uniform", "bfloat16")])
def test_the_largest_and_the_least_of_a_row_are_now_and_then_at_an_end_alone(kind, dtype):
    rows = made(kind, dtype, n=160)["x"].double()
    alone = {}
    for name, values in (("most", rows.amax(1)), ("least", rows.amin(1))):
        is_extreme = rows == values[:, None]
        is_alone = is_extreme.sum(1) == 1
        alone |= {(name, end): int((is_alone & is_extreme[:, end]).sum()) for end in (0, -1)}
    assert min(alone.values()) >= 15, alone


def _held_against(number, rule, dtype):
    definition = define(rule["kind"], dtype).model_dump()
    body = f"def run(x, *others):\n    return (x >= {number}).any()\n"
    return Definition.model_validate(
        {**definition, "reference": body, "workloads": {"inputs": {"x": rule}}}
    )


@pytest.mark.parametrize("kind", ["integers", "positions"])
def test_what_the_reference_compares_integers_with_is_now_and_then_the_most_or_the_least(kind):
    ends = {"min": 0, "max": 8191} if kind == "integers" else {"below": 8192}
    definition = _held_against(4096, {"kind": kind, **ends}, "int64")
    made = [filled(definition, make_workload(definition, SIZES, s))["x"] for s in range(TURNS)]
    assert sum(x.max() == 4096 for x in made) >= 4
    assert sum(x.min() == 4096 for x in made) >= 4
    assert sum(x.min() < 4096 < x.max() for x in made) >= 10
    assert sum(1 < x.max() <= 2048 for x in made) >= 2


def _held(
    reference,
    inputs,
    rules=None,
    seeds=range(TURNS),
    sizes=SIZES,
    constraints=(),
    output=("n",),
    output_dtype="float32",
    **regime,
):
    """Inputs of several workloads of a reference, by seed."""
    specs = {name: {"shape": shape, "dtype": dtype} for name, (shape, dtype) in inputs.items()}
    definition = Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"n": "var", "m": "var", "k": 16},
            "inputs": specs,
            "outputs": {"out": {"shape": list(output), "dtype": output_dtype}},
            "reference": reference,
            "constraints": list(constraints),
            "workloads": {"inputs": rules or {}},
        }
    )
    sizes = {"n": sizes["n"], "m": 8}
    workloads = [make_workload(definition, sizes, seed, regime) for seed in seeds]
    return [filled(definition, each) for each in workloads]


COMPARED = {
    "run": "def run(x):\n    return (x >= 0.5).any(1)",
    "a name": "LIMIT = 0.5\ndef run(x):\n    return (x.float() >= LIMIT).any(1)",
    "a local name": "def run(x):\n    limit = 0.5\n    return (x > limit).any(1)",
    "a method": "def run(x):\n    return x.gt(0.5).any(1)",
    "a magnitude": "def run(x):\n    size = abs(x)\n    return (size < 0.5).any(1)",
    "a function": "def run(x):\n    return torch.nn.functional.hardshrink(x).sum(1)",
}


@pytest.mark.parametrize("how", COMPARED)
def test_what_the_reference_compares_floating_numbers_with_is_among_them(how):
    made = [each["x"] for each in _held(COMPARED[how], {"x": (["n", "k"], "bfloat16")})]
    shares = [float((x == 0.5).double().mean()) for x in made]
    assert sum(share == 0 for share in shares) <= TURNS // 4
    assert sum(0.03 < share < 0.2 for share in shares) >= TURNS // 2


def test_of_a_magnitude_both_signs_are_among_them():
    made = _held(COMPARED["a magnitude"], {"x": (["n", "k"], "bfloat16")})
    assert sum(bool((x["x"] == -0.5).any()) for x in made) >= TURNS // 2


def test_the_smallest_tensors_hold_what_they_are_compared_with():
    made = _held(COMPARED["run"], {"x": (["n"], "float32")}, sizes={"n": 1})
    assert sum(x["x"].item() == 0.5 for x in made) == TURNS * 3 // 4


def test_of_a_number_that_a_dtype_does_not_hold_some_below_and_some_above_are_there():
    made = _held("def run(x):\n    return (x < 1e-5).any(1)", {"x": (["n", "k"], "float32")})
    for number in (0.75e-5, 1.5e-5):
        near = [(x["x"].double() / number - 1).abs() < 1e-6 for x in made]
        assert sum(bool(each.any()) for each in near) >= TURNS // 2


def test_infinities_and_nan_of_two_inputs_are_at_the_same_places_now_and_then():
    reference = (
        "import torch\ndef run(x, y):\n"
        "    return (x.isnan() & y.isnan() | x.isinf() & y.isinf()).sum(1) * 1.0"
    )
    inputs = {"x": (["n", "k"], "float32"), "y": (["n", "k"], "float16")}
    made = [(each["x"], each["y"].float()) for each in _held(reference, inputs)]
    assert sum(bool((x.isnan() & y.isnan()).any()) for x, y in made) >= 2
    assert sum(bool((x.isinf() & (x == y)).any()) for x, y in made) >= 2
    assert sum(bool((x.isinf() & (x == -y)).any()) for x, y in made) >= 2


def test_of_some_special_values_only_those_are_copied_that_are_asked_for():
    reference = (
        "import torch\ndef run(x, y):\n    return x.isnan().sum(1) * (y == -torch.inf).sum(1)"
    )
    inputs = {"x": (["n", "k"], "float32"), "y": (["n", "k"], "float32")}
    made = _held(reference, inputs)
    assert set().union(*_special([each["x"] for each in made])) == {"nan"}
    assert set().union(*_special([each["y"] for each in made])) == {"-inf"}


@pytest.mark.parametrize("values", ["nan", "inf", "normal"])
def test_inputs_of_one_value_along_an_axis_and_of_8_bits_take_nothing_of_others(values):
    """Each has fewer elements than the other, or no sign that can be turned."""
    reference = (
        "import torch\ndef run(x, y, ids, pred):\n"
        "    return (x.float().isnan() & y.isnan()).sum(1) * pred.sum(1) * ids.sum(1)"
    )
    inputs = {
        "x": (["n", "k"], "float8_e4m3fn"),
        "y": (["n", "k"], "float32"),
        "z": (["n", "k"], "float32"),
        "ids": (["n", "k"], "int64"),
    }
    rules = {
        "y": {"kind": "values", "broadcast": ["n"]},
        "ids": {"kind": "integers", "min": 0, "max": 9},
    }
    made = _held(reference, inputs, rules, values=values)
    assert all(len(each["y"].view(torch.int32).unique(dim=0)) == 1 for each in made)


def test_distinct_indices_do_not_agree():
    inputs = {"src": (["n"], "int64"), "dst": (["n"], "int64")}
    rules = {
        "src": {"kind": "indices", "below": 1000, "unique": False},
        "dst": {"kind": "indices", "below": 1000, "unique": True},
    }
    made = _held("def run(src, dst):\n    return src * dst * 1.0", inputs, rules)
    assert all(each["dst"].unique().numel() == each["dst"].numel() for each in made)


def test_a_limit_breaks_no_step_and_may_be_larger_than_integers_are():
    rule = {"kind": "integers", "min": 0, "max": 256, "step": 16}
    made = _held("def run(x):\n    return (x > 48) * 1.0", {"x": (["n"], "int32")}, {"x": rule})
    assert all(bool((each["x"] % 16 == 0).all()) for each in made)
    made = _held("def run(x):\n    return (x < 1e30) * 1.0", {"x": (["n"], "int32")}, {"x": rule})
    assert all(bool((each["x"] % 16 == 0).all()) for each in made)


def test_integers_that_can_not_be_1_never_are():
    rule = {"kind": "integers", "min": -128, "max": 0}
    made = _held("def run(x):\n    return x * 1.0", {"x": (["n"], "int32")}, {"x": rule})
    assert all(int(each["x"].max()) <= 0 for each in made)


def test_ends_of_scales_are_rounded_to_none_beyond():
    rule = {"kind": "scales", "min": 0.01, "max": 0.1}
    made = _held("def run(s):\n    return s * 1.0", {"s": (["n"], "float32")}, {"s": rule})
    drawn = torch.cat([each["s"].double() for each in made])
    assert float(drawn.min()) >= 0.01
    assert float(drawn.max()) <= 0.1


def test_in_few_workloads_a_single_index_or_a_single_flag_counts():
    inputs = {"ids": (["n", "k"], "int32"), "on": (["n", "k"], "bool"), "c": (["n"], "int64")}
    rules = {
        "ids": {"kind": "indices", "below": 19, "unique": False, "sentinels": [-1]},
        "c": {"kind": "integers", "min": 0, "max": 200_000},
    }
    made = _held("def run(ids, on, c):\n    return ids.sum(1) * on.sum(1) * c", inputs, rules)
    assert sum(int((each["ids"] >= 0).sum()) == 1 for each in made) == 1
    assert sum(int(each["on"].sum()) == 1 for each in made) == 3
    assert sum(bool((each["c"] == 1).all()) for each in made) == 1


def test_of_integers_in_order_many_are_equal_now_and_then():
    reference = "import torch\ndef run(x, y):\n    return y.gather(1, {}) * 1.0"
    inputs = {"x": (["n", "k"], "int32"), "y": (["n", "k"], "float32")}
    rule = {"kind": "integers", "min": -(2**31), "max": 2**31 - 1}
    few = []
    for order in ("x.argsort(1, stable=True)", "x.long() & 15"):
        made = _held(reference.format(order), inputs, {"x": rule})
        few.append(sum(len(each["x"].unique()) <= 3 for each in made))
    assert few[0] >= few[1] + TURNS // 4 - 2


def test_scales_are_exactly_their_least_and_their_most_now_and_then():
    rule = {"kind": "scales", "min": 1, "max": 2**24}
    made = _held("def run(s):\n    return s * 1.0", {"s": (["n"], "float32")}, {"s": rule})
    assert sum(bool((each["s"] == 1).any()) for each in made) >= 6
    assert sum(bool((each["s"] == 2**24).any()) for each in made) >= 6


def test_indices_are_nearly_in_order_now_and_then():
    inputs = {"ids": (["n", "k"], "int32"), "x": (["k", "k"], "float32")}
    for unique in (False, True):
        rules = {"ids": {"kind": "indices", "below": "k", "unique": unique}}
        made = _held("def run(ids, x):\n    return x[ids].sum((1, 2))", inputs, rules)
        places = torch.arange(16)
        moved = [(each["ids"] != places).sum(1) for each in made]
        assert sum(bool((each == 2).all()) for each in moved) == (2 if unique else 4)
        assert all(each["ids"].sort(1).values.diff().min() > 0 for each in made if unique)


def test_places_of_a_row_are_now_and_then_those_before_their_own():
    """As the parents of a long chain; where they may be equal, and no constraint speaks of them."""
    rules = {
        "parent": {"kind": "integers", "min": -1, "max": "k - 1"},
        "link": {"kind": "indices", "below": "k", "unique": False},
        "once": {"kind": "indices", "below": "k"},
        "row": {"kind": "indices", "below": "n", "unique": False},
    }
    inputs = {name: (["n", "k"], "int32") for name in rules}
    result = "parent.sum() + link.sum() + once.sum() + row.sum()"
    made = _held(f"def run(parent, link, once, row):\n    return {result}", inputs, rules)
    counts = {}
    for name in rules:
        rows = [row for each in made for row in each[name] if len(row) > 8]
        before = [(row[1:] == torch.arange(len(row) - 1)) for row in rows]
        counts[name] = sum(bool(each.all()) for each in before)
        some = [each for each in before if not each.all() and each.float().mean() > 0.6]
        assert bool(some) == (name in ("parent", "link"))
    assert counts["parent"] > 0 < counts["link"]
    assert counts["once"] == 0 == counts["row"]


def test_labels_agree_with_others_of_the_same_places_now_and_then():
    inputs = {"pred": (["n", "k"], "uint8"), "truth": (["n", "k"], "int64")}
    rules = {
        "pred": {"kind": "integers", "min": 0, "max": 18},
        "truth": {"kind": "indices", "below": 19, "unique": False, "sentinels": [255]},
    }
    made = _held("def run(pred, truth):\n    return pred.sum(1) * truth.sum(1)", inputs, rules)
    shares = [float((each["pred"] == each["truth"]).double().mean()) for each in made]
    assert sum(0.5 < share < 1 for share in shares) >= 2
    assert sum(share < 0.3 for share in shares) >= TURNS // 2
    assert all(int(each["pred"].max()) <= 18 for each in made)


def test_sequences_agree_with_others_of_other_lengths_now_and_then():
    inputs = {"hyp": (["n", "k"], "int32"), "refs": (["n", "k", "m"], "int32")}
    rules = {name: {"kind": "integers", "min": 0, "max": 1000} for name in inputs}
    made = _held("def run(hyp, refs):\n    return hyp.sum(1) * refs.sum((1, 2))", inputs, rules)
    ahead = [each["hyp"][:, None, : each["refs"].shape[2]] for each in made]
    both = [(each["refs"][..., : x.shape[2]], x) for each, x in zip(made, ahead, strict=True)]
    same = [float((refs == x).double().mean()) for refs, x in both]
    behind = [float((refs[..., 1:] == x[..., :-1]).double().mean()) for refs, x in both]
    assert sum(share > 0.7 for share in same) >= 1
    assert sum(x > 0.2 and y > 0.2 for x, y in zip(same, behind, strict=True)) >= 1
    assert sum(share < 0.1 for share in same) >= TURNS // 2


def test_what_an_index_picks_of_a_row_is_its_largest_element_now_and_then():
    reference = "def run(x, labels):\n    return x.gather(1, labels[:, None])[:, 0]"
    inputs = {"x": (["n", "k"], "float32"), "labels": (["n"], "int64")}
    rules = {"labels": {"kind": "indices", "below": "k", "unique": False, "sentinels": [-1]}}
    shares = []
    for each in _held(reference, inputs, rules):
        valid = each["labels"] >= 0
        right = each["x"].argmax(1) == each["labels"]
        shares.append(float(right[valid].double().mean()) if valid.any() else 0.0)
    assert sum(share > 0.4 for share in shares) >= TURNS // 3 - 2
    assert sum(share < 0.3 for share in shares) >= TURNS // 2


def test_frames_at_the_end_of_an_axis_are_quiet_now_and_then():
    inputs = {"x": (["m", "n", "k"], "float32")}
    made = [each["x"] for each in _held("def run(x):\n    return x.sum((0, 2))", inputs)]
    for dim in (0, 1):
        zeros = [x.narrow(dim, x.shape[dim] - 2, 2).eq(0).all() and x.any() for x in made]
        assert any(zeros)


def test_what_a_dtype_or_a_rule_or_a_pattern_does_not_hold_is_not_put_there():
    tensor = {"x": (["n", "k"], "bfloat16")}
    of_other_bits = COMPARED["run"].replace("0.5", "0.1")
    below = {"x": {"kind": "uniform", "min": 1, "max": 2}}
    within = {"x": {"kind": "uniform", "min": 0.4, "max": 2}}
    count = lambda made, number=0.5: sum(int((x["x"].double() == number).sum()) for x in made)  # noqa: E731
    assert count(_held(of_other_bits, tensor), 0.1) == 0
    assert count(_held(COMPARED["run"], tensor, below)) == 0
    assert count(_held(COMPARED["run"], tensor, within)) > 500
    assert count(_held(COMPARED["run"], tensor, values="negative")) == 0
    assert count(_held(COMPARED["run"], tensor, values="positive")) > 500
    assert count(_held(COMPARED["run"], tensor, values="one_hot")) == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "bits", ["x.float().contiguous().view(torch.int32)", "x.view(dtype=torch.int16)"]
)
def test_of_what_the_bits_are_read_the_largest_numbers_are_among_them(bits, dtype):
    body = f"bits = {bits}\n    return (bits + 1).any(-1)"
    largest = torch.finfo(getattr(torch, dtype)).max
    made = [x["x"] for x in _held(f"def run(x):\n    {body}", {"x": (["n", "k"], dtype)})]
    for end in (largest, -largest):
        assert sum(bool((x == end).any()) for x in made) >= TURNS // 2
    usual = _held("def run(x):\n    return x.view(-1, 4).sum(1)", {"x": (["n", "k"], dtype)})
    assert not any(bool((x["x"].abs() == largest).any()) for x in usual)


ASKED = {
    "torch.isinf(x)": {"-inf", "inf"},
    "x.isneginf()": {"-inf"},
    "~torch.isfinite(x)": {"-inf", "inf", "nan"},
    "x.isnan()": {"nan"},
    'x == float("-inf")': {"-inf"},
    "x > -math.inf": {"-inf"},
    "x == torch.inf": {"inf"},
    "(x + y).isinf()": set(),
    "(x.float().sum(1) / x.shape[1]).norm().isfinite()": {"-inf", "inf", "nan"},
    "x.abs() > 1e30": set(),
}


def _special(made):
    return [{str(x) for x in each.flatten().tolist()} & {"-inf", "inf", "nan"} for each in made]


@pytest.mark.parametrize("asks", ASKED)
def test_infinities_and_nan_are_now_and_then_in_inputs_of_which_the_reference_asks_for_them(asks):
    inputs = {"x": (["n", "k"], "float32"), "y": (["n", "k"], "float32")}
    reference = f"import math, torch\ndef run(x, y):\n    return (({asks}) & (y > 0)).any(1)"
    made = _held(reference, inputs)
    found = _special([each["x"] for each in made])
    assert set().union(*found) == ASKED[asks]
    assert sum(map(bool, found)) == (TURNS // 3 if ASKED[asks] else 0)
    assert not any(_special([each["y"] for each in made]))
    rows = torch.cat([each["x"] for each in made])
    assert not (rows.isinf() | rows.isnan()).all(1).any()


@pytest.mark.parametrize(
    ("result", "dtype", "special"),
    [
        ("torch.bucketize(x, edges)", "int64", {"-inf", "inf"}),
        ("torch.searchsorted(edges, x.T.contiguous()).T.clone()", "int64", {"-inf", "inf"}),
        ("edges[torch.bucketize(x, edges)] * x", "float32", set()),
    ],
)
def test_infinities_have_a_place_in_an_order_and_no_product(result, dtype, special):
    inputs = {"x": (["n", "k"], "float32"), "edges": (["m"], "float32")}
    reference = f"import torch\ndef run(x, edges):\n    return {result}"
    made = _held(reference, inputs, output=("n", "k"), output_dtype=dtype)
    assert set().union(*_special([each["x"] for each in made])) == special


@pytest.mark.parametrize(
    ("body", "special"),
    [
        ("return torch.sort(x, -1).values", {"-inf", "inf"}),
        ("best, at = x.topk(4, -1)\n    return best", {"-inf", "inf"}),
        ("return x.topk(4, -1).values * 2", set()),
        ("y = torch.where(x.isnan(), 0.0, x)\n    return y.sort(-1).values * 2",
         {"-inf", "inf", "nan"}),
        ("y = x.masked_fill(x.isnan(), float('inf'))\n    return y.argsort(-1) * 1.0",
         {"-inf", "inf", "nan"}),
    ],
)  # fmt: skip
def test_infinities_are_in_what_is_put_in_order_and_beside_nan_that_become_these(body, special):
    made = _held(f"import torch\ndef run(x):\n    {body}", {"x": (["n", "k"], "float32")})
    assert set().union(*_special([each["x"] for each in made])) == special


@pytest.mark.parametrize(("result", "are"), [("x.argmax(-1)", True), ("x.sum(-1)", False)])
def test_some_rows_of_what_is_put_in_order_have_equal_elements(result, are):
    made = _held(f"def run(x):\n    return {result} * 1.0", {"x": (["n", "k"], "float32")})
    rows = torch.cat([each["x"] for each in made])
    coarse = (rows * 2 == (rows * 2).round()).all(1)
    assert (coarse.double().mean() > 0.05) == are


def test_of_tokens_one_row_of_eight_goes_round():
    inputs = {"x": (["n", "k"], "int32")}
    rules = {"x": {"kind": "positions", "below": 1000}}
    rows = torch.cat([each["x"] for each in _held("def run(x):\n    return x", inputs, rules)])
    for period in (1, 2, 3):
        goes_round = (rows[:, period:] == rows[:, :-period]).all(1)
        assert 0.02 < goes_round.double().mean() < 0.25


def test_bytes_are_the_least_or_the_most_in_one_block_of_eight():
    inputs = {"x": (["n", "k", "k"], "uint8")}
    made = _held("def run(x):\n    return x.sum((1, 2))", inputs, {"x": BYTE})
    blocks = [each["x"].flatten(1) for each in made]
    are_masks = [((x == 0) | (x == 255)).all(1) & (x.amin(1) < x.amax(1)) for x in blocks]
    assert sum(bool(each.any()) for each in are_masks) > len(blocks) // 2


@pytest.mark.parametrize(
    ("name", "result", "are"),
    [
        ("x", "x.softmax(-1)", True),
        ("x", "torch.logsumexp(x / 3.0, -1)", True),
        ("x", "torch.sigmoid(x)", False),
        ("draft_logits", "torch.sigmoid(draft_logits)", True),
    ],
)
def test_few_logits_of_a_row_have_most_of_a_softmax_and_some_of_these_are_equal(name, result, are):
    inputs = {name: (["n", "k"], "float32")}
    made = _held(f"import torch\ndef run({name}):\n    return {result}", inputs)
    shares = torch.cat([each[name].softmax(-1) for each in made])
    peaked = (shares.amax(1) > 0.8).double().mean()
    assert (peaked > 0.01) == are
    top = torch.cat([each[name].topk(4, -1).values for each in made])
    assert ((top[:, 0] != top[:, 3]) & (top.diff(dim=-1) == 0).any(1)).any() == are


@pytest.mark.parametrize(
    "asks",
    [
        "assert torch.isfinite(x).all()",
        "if x.isnan().any():\n        raise ValueError('NaN')",
        "if not bool(torch.isfinite(x).all()):\n        raise ValueError('NaN')",
    ],
)
def test_there_are_none_where_the_reference_refuses_them(asks):
    reference = f"import torch\ndef run(x):\n    {asks}\n    return x.sum(1)"
    assert not any(_special([x["x"] for x in _held(reference, {"x": (["n", "k"], "float32")})]))


MOVED = {
    "y = x.clone()\n    y[which] = x[which.flip(0)]\n    return y": True,
    "y = torch.empty_like(x)\n    y[which] = x\n    return y": True,
    "return torch.where(z.isnan(), x.roll(1, 0), x)": True,
    "return x.gather(0, which[:, None].expand(x.shape))": True,
    "return torch.where(z > 0, x, 0.0)": False,  # which may be a product
    "return torch.where(z > 0, x, torch.zeros_like(x))": False,
    "y = x.clone()\n    y[which] = x[which] * 2\n    return y": False,
    "a, b = x.chunk(2, 0)\n    return torch.cat((b, a))": False,
    "return x[which][:, None, :].sum(1)": False,
    "return x[which[:1]].expand(len(x), -1).clone()": True,
    "y = torch.zeros_like(x)\n    y[which] = x\n    return y * 2": False,
    "y = torch.zeros_like(x)\n    y[which] = x\n    y += 1\n    return y": False,
    "y = torch.cat((z[:1], x))[1:]\n    return y": True,
    "y = torch.cat((z[:1], x))[1:]\n    return y + y.flip(0)": False,
    "y = x.clone()\n    for i in which.tolist():\n        y[i] = x[0]\n    return y": True,
    "y = x\n    for i in which.tolist():\n        z[i] = y[i] + 1\n    return y": False,
    "if len(x) > 3:\n        x = x * 2\n    return x": False,
}


@pytest.mark.parametrize("body", MOVED)
def test_infinities_and_nan_are_in_inputs_that_outputs_are_copies_of(body):
    inputs = {"x": (["n", "k"], "float32"), "z": (["n", "k"], "float32"), "which": (["n"], "int64")}
    rules = {"which": {"kind": "permutation"}}
    made = _held(
        f"import torch\ndef run(x, z, which):\n    {body}",
        inputs,
        rules,
        output=["n", "k"],
    )
    found = set().union(*_special([each["x"] for each in made]))
    assert found == ({"-inf", "inf", "nan"} if MOVED[body] else set())


@pytest.mark.parametrize(("name", "are"), [("x", True), ("x_table", False)])
def test_infinities_and_nan_are_in_inputs_that_outputs_have_longer_rows_of(name, are):
    made = _held(
        f"import torch\ndef run({name}):\n    return torch.cat([{name}, {name}.flip(1)], 1)",
        {name: (["n", "k"], "float32")},
        output=["n", "m"],
    )
    assert any(_special([each[name] for each in made])) == are


@pytest.mark.parametrize(
    ("body", "may_be"),
    [
        ("m = x == float('-inf')\n    p = x.softmax(-1).masked_fill(m, 0.0)", True),
        ("m = torch.isneginf(x)\n    p = torch.where(~m, x.softmax(-1), 0.0)", True),
        ("m = x == float('-inf')\n    p = x.masked_fill(m, float('-inf')).softmax(-1)", False),
        ("m = x == float('-inf')\n    p = x.softmax(-1) * ~m", False),
    ],
)
def test_whole_rows_are_infinite_where_the_reference_puts_numbers_for_them(body, may_be):
    inputs = {"x": (["n", "k"], "float32")}
    made = _held(f"import torch\ndef run(x):\n    {body}\n    return p.sum(1)", inputs)
    assert any(bool(each["x"].isneginf().all(1).any()) for each in made) == may_be
    assert any(bool(each["x"].isneginf().any()) for each in made)


def test_there_are_none_where_the_definition_says_how_the_input_is_made():
    inputs = {"x": (["n", "k"], "float32")}
    made = _held("def run(x):\n    return x.isnan().any(1)", inputs, {"x": {"kind": "values"}})
    assert not any(_special([each["x"] for each in made]))


def test_a_logarithm_of_a_sum_is_minus_infinity_where_there_is_none():
    inputs = {"x": (["n", "k"], "float32"), "lse_b": (["n", "k"], "float32")}
    reference = "import torch\ndef run(x, lse):\n    return torch.isfinite(lse).any(1)"
    made = [each["lse_b"] for each in _held(reference, inputs)]
    assert set().union(*_special(made)) == {"-inf"}
    assert any(bool(each.isneginf().all(1).any()) for each in made)


BESIDE = {
    "all": (["n", "k"], "x >= y"),
    "columns": (["k"], "x >= y"),
    "rows": (["n"], "x >= y[:, None]"),
    "a scalar": (None, "x > y"),
}


@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_the_reference_compares_inputs_with_each_other_by_is_now_and_then_equal(what, dtype):
    shape, compared = BESIDE[what]
    inputs = {"x": (["n", "k"], dtype), "y": (shape, "float32")}
    rules = {"y": {"kind": "uniform", "min": -1, "max": 1}}
    equal = 0
    for made in _held(f"def run(x, y):\n    return ({compared}).any(1)", inputs, rules):
        x, y = made["x"].double(), torch.as_tensor(made["y"]).double()
        equal += bool((x == (y[:, None] if what == "rows" else y)).any())
    assert equal >= TURNS // 2


@pytest.mark.parametrize(
    ("result", "may"), [("keep / (1 - p)", True), ("keep * u.log()", False), ("keep / u", False)]
)
def test_uniform_numbers_are_0_now_and_then_where_they_are_compared_with_0(result, may):
    inputs = {"u": (["n", "k"], "float32"), "p": (None, "float32")}
    rules = {"u": {"kind": "uniform"}, "p": {"value": 0.0}}
    made = _held(f"def run(u, p):\n    keep = u >= p\n    return {result}", inputs, rules)
    zeros = sum(bool((each["u"] == 0).any()) for each in made)
    assert zeros >= TURNS // 2 if may else zeros == 0


@pytest.mark.parametrize(("shape", "beside"), [(["n", "k"], "y"), (["k"], "y[None]")])
def test_all_of_a_row_is_now_and_then_what_is_subtracted_from_it(shape, beside):
    inputs = {"x": (["n", "k"], "float16"), "y": (shape, "float16")}
    rules = {"y": {"kind": "uniform", "min": -1, "max": 1}}
    body = f"def run(x, y):\n    return (x.float() - {beside}).abs().amax(1)"
    made = [(each["x"] == each["y"]).all(1) for each in _held(body, inputs, rules)]
    assert sum(bool(each.any()) for each in made) >= TURNS // 3
    assert not any(bool(each.all()) for each in made)


def test_rows_are_each_of_what_is_subtracted_in_turn():
    inputs = {name: (["n", "k"], "float16") for name in "xyz"}
    rules = {name: {"kind": "uniform", "min": -1, "max": 1} for name in "yz"}
    made = _held("def run(x, y, z):\n    return (x - y) * (x - z)", inputs, rules)
    for name in "yz":
        assert sum(bool((each["x"] == each[name]).all(1).any()) for each in made) >= TURNS // 6


EDGES = {
    "a sum": "(ids >= start) & (ids < start + 2000)",
    "a difference": "(ids - start < 2000) & (ids - start >= 0)",
    "a name": "inside(ids - start)",
    "lengths": "ids < lens",
    "a multiple": "ids >= 3 * start",
    "a quotient": "ids // start < 3",
}


@pytest.mark.parametrize("what", EDGES)
def test_integers_that_are_held_against_others_are_now_and_then_those_or_beside(what):
    inputs = {"ids": (["n"], "int64"), "lens": (["n"], "int64"), "start": (None, "int32")}
    wide = {"kind": "integers", "min": 0, "max": 1_000_000}
    rules = {"ids": wide, "lens": wide, "start": {"kind": "integers", "min": 7, "max": 90000}}
    body = "def inside(x):\n    return (x < 2000) & (x >= 0)\n"
    body += f"def run(ids, lens, start):\n    return {EDGES[what]}"
    edges = {"lens": 0} if what == "lengths" else {"start": 0, "end": 0}
    edges = {"thrice": 0} if what in ("a multiple", "a quotient") else edges
    for made in _held(body, inputs, rules, sizes={"n": 64}):
        ends = {"start": made["start"], "end": made["start"] + 2000, "lens": made["lens"]}
        ends["thrice"] = 3 * made["start"]
        for name in edges:
            edges[name] += all(bool((made["ids"] == ends[name] - less).any()) for less in (0, 1))
        assert int(made["ids"].min()) >= 0
        assert int(made["ids"].max()) <= wide["max"]
    assert min(edges.values()) >= (2 if what == "lengths" else TURNS // 8)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_numbers_are_boundaries_now_and_then_among_which_they_are_searched(dtype):
    """Float16 holds few float32 numbers, so that these are rounded to it now and then."""
    inputs = {"x": (["n", "k"], dtype), "edges": (["m"], "float32")}
    body = "import torch\ndef run(x, edges):\n    inside = x >= edges[0]\n"
    body += "    return torch.bucketize(x.float(), edges) * inside"
    equal = below = 0
    for made in _held(body, inputs, {"edges": {"kind": "sorted", "unique": True}}):
        x, edges = made["x"].double(), made["edges"].double()
        assert (edges.diff() > 0).all()
        equal += bool((x[..., None] == edges).any())
        below += bool((edges < 0).any())
    assert equal >= TURNS // 4
    assert TURNS // 4 <= below <= 3 * TURNS // 4


@pytest.mark.parametrize(
    ("dtype", "rule", "least", "most"),
    [
        ("float32", {"unique": True, "pad": -1}, -1, 64),
        ("float32", {"max": 0.999}, 0, 0.999),
        ("float32", {"max": 9, "unique": True}, 0, 9),
        ("float32", {"min": 0, "unique": True}, 0, 64),
    ],
)
def test_boundaries_stay_in_the_range_of_their_rule(dtype, rule, least, most):
    inputs = {"x": (["n"], "float16"), "edges": (["m"], dtype)}
    body = "import torch\ndef run(x, edges):\n    return torch.searchsorted(edges, x.float())"
    for made in _held(body, inputs, {"edges": {"kind": "sorted", **rule}}):
        assert least <= float(made["edges"].min()) <= float(made["edges"].max()) <= most


@pytest.mark.parametrize("result", ["(u * x).sum(1)", "(x / u).sum(1)"])
def test_some_uniform_numbers_are_the_least_now_and_then(result):
    """As ``torch.rand`` gives 0 now and then, unless something is divided by it."""
    inputs = {"u": (["n", "k"], "float32"), "x": (["n", "k"], "float32")}
    made = _held(f"def run(u, x):\n    return {result}", inputs, {"u": {"kind": "uniform"}})
    some = sum(0 < int((each["u"] == 0).sum()) < each["u"].numel() for each in made)
    assert some == 0 if "/" in result else some >= TURNS // 8


def test_where_values_are_zeros_and_ones_scalars_are_whole_numbers_if_they_may_be():
    """Squares of distances between points of whole numbers equal those of a radius now and then."""
    inputs = {"x": (["n", "k"], "float32"), "radius": (None, "float32")}
    reference = "def run(x, radius):\n    return x.square().sum(1) < radius**2"
    for least, may_be in ((0.25, {1.0, 2.0}), (1.5, {2.0})):
        rules = {"radius": {"kind": "uniform", "min": least, "max": 2.5}}
        made = _held(reference, inputs, rules, values="zeros_and_ones")
        assert {each["radius"] for each in made} == may_be
    rules = {"radius": {"kind": "uniform", "min": 0.25, "max": 0.75}}
    made = _held(reference, inputs, rules, values="zeros_and_ones")
    assert all(0.25 <= each["radius"] <= 0.75 for each in made)


def test_elements_are_among_the_boundaries_that_they_are_compared_with():
    inputs = {"x": (["n"], "float32"), "boundaries": (["k"], "float32")}
    reference = """
def run(x, boundaries):
    ordered = boundaries.sort().values
    low, high = ordered[:-1], ordered[1:]
    return ((x[:, None] >= low) & (x[:, None] < high)).any(1)
"""
    made = _held(reference, inputs)
    assert sum(bool(torch.isin(x["x"], x["boundaries"]).any()) for x in made) >= TURNS // 2


def test_inputs_of_few_numbers_have_rows_that_are_alike():
    base = define("integers", "int64").model_dump()
    spec, rule = base["inputs"]["x"], {"kind": "integers", "min": 0, "max": 3}
    inputs = {"x": spec, "other": spec}
    data = {**base, "inputs": inputs, "workloads": {"inputs": dict.fromkeys(inputs, rule)}}
    made = filled(
        Definition.model_validate(data), make_workload(Definition.model_validate(data), SIZES)
    )
    assert (made["x"] == made["other"]).all(-1).sum() >= 2


def test_all_integers_of_one_input_are_now_and_then_zero():
    base = define("integers", "int32").model_dump()
    spec, rule = base["inputs"]["x"], {"kind": "integers", "min": -1000, "max": 1000}
    inputs = {"x": spec, "other": spec}
    data = {**base, "inputs": inputs, "workloads": {"inputs": dict.fromkeys(inputs, rule)}}
    definition = Definition.model_validate(data)
    made = [filled(definition, make_workload(definition, SIZES, seed)) for seed in range(TURNS)]
    for name, other in (("x", "other"), ("other", "x")):
        none = [bool(each[other].any()) for each in made if not each[name].any()]
        assert none == [True]
    positive = define("integers", "int32").model_dump()
    positive["workloads"] = {"inputs": {"x": {"kind": "integers", "min": 1, "max": 1000}}}
    definition = Definition.model_validate(positive)
    made = [filled(definition, make_workload(definition, SIZES, seed)) for seed in range(TURNS)]
    assert all(bool(each["x"].all()) for each in made)


def test_labels_are_equal_where_others_are_and_now_and_then_alike_in_their_low_bits():
    base = define("labels", "int32").model_dump()
    inputs = dict.fromkeys(("x", "other"), base["inputs"]["x"])
    rules = {"inputs": {each: {"kind": "labels"} for each in inputs}}
    definition = Definition.model_validate({**base, "inputs": inputs, "workloads": rules})
    made = [filled(definition, make_workload(definition, SIZES, seed)) for seed in range(TURNS)]
    different = [torch.cat((m["x"], m["other"])).unique() for m in made]
    assert sum(len(each) == 4 for each in different) == TURNS - 2  # in two, each input has one
    different = [each for each in different if len(each) == 4]
    for seen in (torch.int16, torch.uint8, torch.float32):
        assert 2 <= sum(len(each.to(seen).unique()) == 1 for each in different) < TURNS // 2
    ends = [(int(each.min()), int(each.max())) for each in different]
    assert ends.count((-2, 1)) == TURNS // 4


def test_of_a_vector_not_all_labels_that_are_alike_in_float32_are_equal():
    base = define("labels", "int32").model_dump()
    inputs = {"x": {"shape": ["n"], "dtype": "int32"}}
    definition = Definition.model_validate({**base, "inputs": inputs})
    made = [filled(definition, make_workload(definition, SIZES, s))["x"] for s in range(4 * TURNS)]
    different = [x for x in made if len(x.unique()) > 2]
    assert sum(len(x.float().unique()) == 1 for x in different) >= 3


def test_of_many_numbers_the_ends_of_their_range_and_zero_are_drawn():
    rule = {"kind": "integers", "min": -(2**31), "max": 2**31 - 1}
    given = {**define("integers", "int32").model_dump(), "workloads": {"inputs": {"x": rule}}}
    definition = Definition.model_validate(given)
    drawn = [filled(definition, make_workload(definition, {**SIZES, "n": 1}, s)) for s in range(8)]
    marks = torch.tensor([-(2**31), 0, 2**31 - 1])
    found = torch.stack([torch.isin(marks, each["x"]) for each in drawn]).sum(0)
    assert found.min() >= 2


def _of_integers(names, seed, shape=("n",), sizes=None, **rule):
    """Inputs of integers from 0 to a million, by name."""
    rule = {"kind": "integers", "min": 0, "max": 10**6, **rule}
    given = define("integers", "int32").model_dump()
    given["inputs"] = {name: {"shape": [*shape], "dtype": "int32"} for name in names}
    given["workloads"] = {"inputs": dict.fromkeys(names, rule)}
    definition = Definition.model_validate(given)
    return filled(definition, make_workload(definition, {**SIZES, **(sizes or {})}, seed))


@pytest.mark.parametrize("ends", [False, True])
def test_some_integers_are_what_whole_tiles_hold_or_one_more_or_less(ends):
    """They may be lengths: few are such by chance."""
    made = [_of_integers("a", seed, sizes={"n": 12}, ends=ends)["a"] for seed in range(50)]
    drawn = torch.cat(made)
    usual = drawn[(drawn > 1) & (drawn <= 65536)]
    for near in (-1, 0, 1):
        assert int(((usual - near) % 128 == 0).sum()) >= 4


def test_one_number_is_now_and_then_all_of_a_row_of_indices():
    data = define("indices", "int32", few=20).model_dump()
    data["workloads"]["inputs"]["x"] = {"kind": "indices", "below": 1000, "unique": False}
    definition = Definition.model_validate(data)
    for seed in range(9):
        x = filled(definition, make_workload(definition, {**SIZES, "n": 24}, seed))["x"]
        if ((x == torch.arange(x.shape[1])).sum(1) < x.shape[1] - 2).all():  # not in order
            of_the_first = (x == x[:, :1]).double().mean(1)
            assert 2 <= int((of_the_first > 0.5).sum()) <= 6


def test_integers_of_a_wide_range_are_now_and_then_small_in_all_inputs_at_once():
    made = [_of_integers("ab", seed, sizes={"n": 100}) for seed in range(TURNS)]
    small = [each for each in made if max(x.max() for x in each.values()) <= 255]
    assert len(small) >= 2
    assert sum(bool(((a == 0) & (b == 0)).any()) for a, b in map(dict.values, small)) >= 1


@pytest.mark.parametrize(("shape", "often"), [(("n",), 1), (("n", "k"), 1), (("few", "n", "k"), 3)])
def test_integers_are_now_and_then_all_the_least_or_the_most(shape, often):
    """All of a row; of three axes, all at an index of the first."""
    made = [_of_integers("x", seed, shape)["x"] for seed in range(TURNS)]
    parts = [x.reshape(len(x) if x.dim() > 1 else 1, -1) for x in made]
    for end in (0, 10**6):
        assert sum(bool((x == end).all(1).any()) for x in parts) >= often


def test_where_values_are_zeros_so_are_what_may_be_their_least():
    given = define("uniform", "float32").model_dump()
    given["workloads"] = {"inputs": {"x": {"kind": "uniform", "min": 0, "max": 8, "ends": True}}}
    definition = Definition.model_validate(given)
    zeros = [
        filled(definition, make_workload(definition, SIZES, 0, {"values": values}))["x"] == 0
        for values in ("zeros", "normal")
    ]
    assert [bool(each.all()) for each in zeros] == [True, False]


def test_a_permutation_has_every_number_once_and_sometimes_in_order():
    found = [made("permutation", "int64", seed)["x"].tolist() for seed in range(TURNS)]
    assert all(sorted(x) == list(range(40)) for x in found)
    in_order = [*range(40)]
    assert 0 < found.count(in_order) < 15
    assert in_order[::-1] in found
    assert [39, *range(39)] in found
    keep_ends = [x for x in found if (x[0], x[-1]) == (0, 39) and x != in_order]
    moved = [sum(a != b for a, b in zip(x, in_order, strict=True)) for x in keep_ends]
    assert moved.count(2) >= 2
    assert sum(count > 20 for count in moved) >= 2


@pytest.mark.parametrize("p", [0.5, 0.01])
def test_flags_are_now_and_then_few(p):
    """Of an image with a single obstacle, much is far from it."""
    rules = {"x": {"kind": "boolean", "p": p}}
    axes = {"b": 3, "h": 20, "w": 30}
    flags = [made_of("x[b,h,w]:bool", axes, rules, s, out="y[b]:f32")["x"] for s in range(TURNS)]
    counts = [each.flatten(1).sum(1).tolist() for each in flags]
    assert sum(sum(each) == 1 for each in counts) == 1
    assert sum(each == [1, 1, 1] for each in counts) == 2
    rare = sum(0 < sum(each) < 60 and max(each) < 30 for each in counts)
    assert (rare >= 5) is (p < 0.1)


def test_rising_numbers_begin_at_the_least_or_anywhere():
    rules = {"x": {"kind": "sorted", "min": 2, "max": 9, "unique": True}}
    rows = [made_of("x[n]:f32", {"n": 30}, rules, seed)["x"] for seed in range(8)]
    assert {bool(row[0] == 2) for row in rows} == {True, False}
    assert all(bool(((row >= 2) & (row <= 9)).all()) for row in rows)
    assert all(bool((row.diff() > 0).all()) for row in rows)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_short_permutations_have_every_number_once(n):
    data = signature("op", "n", "x[n]:i32", "y[n]:f32")
    data["workloads"] = {"inputs": {"x": {"kind": "permutation"}}}
    definition = Definition.model_validate(data)
    for seed in range(TURNS):
        x = make_inputs(definition, make_workload(definition, {"n": n}, seed))["x"]
        assert sorted(x.tolist()) == [*range(n)]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_lengths_need_no_more_pages_than_there_are(lengths):
    for seed in range(5):
        x = made("seq_lens", "int32", seed, lengths=lengths)["x"]
        assert ((x >= 1) & (x <= 12)).all()
        assert (-(-x // 4)).sum() <= 49


def test_a_padded_batch_often_has_a_sequence_that_fills_its_row():
    given = define("seq_lens", "int32").model_dump()
    given["workloads"]["inputs"]["x"] |= {"pages": None}
    definition = Definition.model_validate(given)
    for n in (1, 5):
        made = [
            make_workload(definition, {**SIZES, "n": n}, s, {"lengths": "ones"}) for s in range(20)
        ]
        full = sum(bool((filled(definition, each)["x"] == 12).any()) for each in made)
        assert 3 < full < 17


def test_lengths_are_0_where_they_may_be():
    given = define("seq_lens", "int32").model_dump()
    given["workloads"]["inputs"]["x"] |= {"allow_empty": True}
    definition = Definition.model_validate(given)
    x = filled(definition, make_workload(definition, SIZES, 0, {"lengths": "empties"}))["x"]
    assert (x.min(), (x == 0).any(), (x > 1).any()) == (0, True, True)
    assert (-(-x // 4)).sum() <= 49


@pytest.mark.parametrize("lengths", LENGTHS)
def test_sequences_share_no_page(lengths):
    inputs = made("block_table", "int32", lengths=lengths)
    counts = -(-inputs["lengths"] // 4)
    used = [row[:n] for row, n in zip(inputs["x"], counts.tolist(), strict=True)]
    are_distinct(torch.cat(used), 120)


def test_the_first_and_the_last_position_are_among_them():
    x = made("positions", "int64")["x"]
    assert (x.min(), x.max()) == (0, 63)


def test_a_single_position_is_the_last_the_first_or_another():
    count = Counter(
        int(made("positions", "int64", seed, n=1, const={"k": 1})["x"]) for seed in range(60)
    )
    assert min(count[0], count[63]) > 5
    assert len(count) > 5


def test_experts_are_distinct_in_a_row_and_some_are_favoured():
    x = made("topk_ids", "int32")["x"]
    for row in x:
        are_distinct(row, 16)
    counts = x.flatten().bincount(minlength=16)
    assert counts.max() > 3 * counts.min()


def test_routing_holds_experts_and_weights():
    x = made("routing", "int32")["x"]
    for row in x >> 16:
        are_distinct(row, 16)
    weights = (x & 0xFFFF).to(torch.int16).view(torch.bfloat16).float()
    assert (weights > 0).all()
    assert torch.allclose(weights.sum(dim=-1), torch.ones(40), atol=0.02)


def test_what_is_gathered_and_then_compared_is_now_and_then_equal():
    inputs = {"x": (["n", "k"], "float32"), "at": (["n"], "int64"), "limit": (["n"], "float32")}
    rules = {"at": {"kind": "indices", "below": "k", "unique": False}}
    reference = """def run(x, at, limit):
    value = x.gather(1, at[:, None])
    return value[:, 0] < limit"""
    equal = 0
    for made in _held(reference, inputs, rules):
        equal += bool((made["x"] == made["limit"][:, None]).any())
    assert equal >= TURNS // 2


@pytest.mark.parametrize(
    "rounded",
    [
        "torch.round(x / scale[:, None])",
        "torch.round(x.float() / scale.unsqueeze(1) + shift)",
        "(x * scale[:, None] - 3).round()",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_some_of_what_is_rounded_is_halfway_between_whole_numbers(rounded, dtype):
    inputs = {"x": (["n", "k"], dtype), "scale": (["n"], "float32")}
    reference = f"import torch\ndef run(x, scale):\n    shift = 2.0\n    return {rounded}"
    halves = 0
    for made in _held(reference, inputs):
        x, scale = made["x"].double(), made["scale"].double()[:, None]
        steps = x * scale if "*" in rounded else x / scale
        halves += bool((steps.frac().abs() == 0.5)[steps.abs() < 8].any())
    assert halves >= TURNS // 2


def test_all_of_a_row_may_be_minus_infinity_where_the_reference_asks_for_that():
    for asked, are in (("all", True), ("any", False)):
        reference = (
            "import torch\ndef run(x):\n"
            f"    nothing = (x == float('-inf')).{asked}(dim=1)\n"
            "    return torch.where(nothing, float('-inf'), torch.logsumexp(x, dim=1))"
        )
        made = [each["x"].isneginf() for each in _held(reference, {"x": (["n", "k"], "float32")})]
        assert any(bool(each.any()) for each in made)
        assert any(bool(each.all(1).any()) for each in made) == are


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_a_mask_has_as_many_true_elements_as_a_constraint_says(dtype):
    given = signature("op", "n m", "mask[n]:i32 x[m]:f32", "y[n]:f32", "m == mask.sum().item()")
    given["inputs"]["mask"]["dtype"] = dtype
    given["reference"] = "def run(mask, x):\n    return mask * x.sum()\n"
    definition = Definition.model_validate(given)
    assert str(plan(definition).rules["mask"]) == "boolean, total m"
    first, last, spans = set(), set(), set()
    for seed in range(4 * TURNS):
        n = 1 + seed % 9
        workload = make_workload(definition, {"n": n, "m": 1 + seed // 9 % n}, seed)
        mask = make_inputs(definition, workload)["mask"].to(torch.bool)
        at = mask.nonzero()[:, 0].tolist()
        assert len(at) == workload.axes["m"]
        if 1 < len(at) < n:
            first, last = first | {at[0] == 0}, last | {at[-1] == n - 1}
            spans.add(at[-1] - at[0] == len(at) - 1)
    assert first == last == spans == {True, False}


@pytest.mark.parametrize("sorting", ["sort", "argsort", "topk"])
def test_half_of_the_zeros_that_are_sorted_are_negative(sorting):
    body = f"def run(x):\n    return x.{sorting}(1)"
    for made in _held(body, {"x": (["n", "k"], "float16")}, values="zeros"):
        minus = made["x"].signbit().double().mean()
        assert not made["x"].any()
        assert 0.4 < minus < 0.6
    for made in _held("def run(x):\n    return x.sum(1)", {"x": (["n", "k"], "float16")}):
        assert not (made["x"].signbit() & (made["x"] == 0)).any()


@pytest.mark.parametrize(("least", "most"), [(0, 2**40), (-(2**31), 2**31 - 1)])
def test_integers_of_a_wide_range_are_beside_powers_of_two_now_and_then(least, most):
    rules = {"x": {"kind": "integers", "min": least, "max": most}}
    made = _held("def run(x):\n    return x.sum(1)", {"x": (["n", "k"], "int64")}, rules)
    drawn = torch.cat([each["x"].flatten() for each in made]).unique().tolist()
    signs = (1, -1) if least < 0 else (1,)
    for power in range(8, most.bit_length() - 1):
        beside = {sign * 2**power + by for sign in signs for by in (-1, 0, 1)}
        assert beside & {*drawn}


def test_numbers_of_64_bits_are_all_there_are():
    inputs = {"x": (["n", "k"], "int64")}
    made = _held("def run(x):\n    return x.clone()", inputs)
    assert min(int(each["x"].min()) for each in made) == -(2**63)
    assert max(int(each["x"].max()) for each in made) == 2**63 - 1
    exact = {"x": {"kind": "integers", "min": -(2**62) + 1, "max": 2**62 - 1}}
    for each in _held("def run(x):\n    return x.sum(1)", inputs, exact):
        assert -(2**62) < each["x"].min() <= each["x"].max() < 2**62


def test_rows_of_a_table_are_finite_though_outputs_are_copies_of_them():
    inputs = {name: (["m", "k"], "float32") for name in ("embedding", "hidden")}
    inputs |= {"which": (["n"], "int64")}
    made = _held(
        "def run(embedding, hidden, which):\n    return embedding[which], hidden[which]",
        inputs,
        output=["n", "k"],
    )
    assert not any(_special([each["embedding"] for each in made]))
    assert any(_special([each["hidden"] for each in made]))


@pytest.mark.parametrize(("divides", "are_among"), [("x // width", True), ("x + width", False)])
def test_some_divisors_are_numbers_whose_multiples_fall_short_by_a_reciprocal(divides, are_among):
    """Such as 41, but for which a kernel may as well multiply."""
    rules = {"x": {"kind": "integers", "max": 100}, "width": {"kind": "integers", "max": 4000}}
    reference = f"def run(x, width):\n    return ({divides}).float()"
    inputs = {"x": (["n"], "int64"), "width": (None, "int64")}
    numbers = torch.tensor([each["width"] for each in _held(reference, inputs, rules)])
    multiples = numbers.clamp_min(1)[:, None] * torch.arange(1, 65)
    quotients = (multiples.float() * (1.0 / numbers.clamp_min(1).float())[:, None]).floor()
    fall_short = (quotients < torch.arange(1, 65)).any(1).double().mean()
    assert (fall_short > 0.2) == are_among


def test_a_scalar_is_a_multiple_of_its_step():
    rules = {"rounds": {"kind": "integers", "min": 4, "max": 20, "step": 4}}
    inputs = {"x": (["n", "k"], "float32"), "rounds": (None, "int32")}
    for constraints in ([], ["rounds % 4 == 0", "rounds >= 8"]):
        made = _held(
            "def run(x, rounds):\n    return x.sum(1)", inputs, rules, constraints=constraints
        )
        drawn = Counter(each["rounds"] for each in made)
        assert set(drawn) == ({8, 12, 16, 20} if constraints else {4, 8, 12, 16, 20})


@pytest.mark.parametrize(
    ("rule", "dtype", "numbers"),
    [
        ({"min": -1, "max": 1, "step": 2}, "int8", {-1, 1}),
        ({"min": 3, "max": 11, "step": 3}, "int32", {3, 6, 9}),
        ({"min": 1, "max": 8, "step": 3}, "int64", {1, 4, 7}),
        ({"min": -0.25, "max": 0.25, "step": 0.25}, "float16", {-0.25, 0.0, 0.25}),
        ({"min": "-2 / k", "max": "1 / k", "step": "1 / k"}, "float32", {-2, -1, 0, 1}),
    ],
)
def test_integers_are_steps_from_their_minimum_to_their_maximum(rule, dtype, numbers):
    rules = {"x": {"kind": "integers", **rule}}
    inputs = {"x": (["n", "k"], dtype)}
    drawn = set()
    for made in _held("def run(x):\n    return x.sum(1)", inputs, rules):
        by = made["x"].shape[1] if "k" in str(rule["step"]) else 1
        drawn |= {round(number, 4) for number in (made["x"].double() * by).unique().tolist()}
    assert drawn == numbers


def test_a_scalar_is_a_step_beside_one_that_constraints_speak_of():
    rules = {"rounds": {"kind": "integers", "min": 1, "max": 9, "step": 4}}
    inputs = {"x": (["n", "k"], "float32"), "rounds": (None, "int32")}
    for constraints in ([], ["rounds >= 2"]):
        made = _held(
            "def run(x, rounds):\n    return x.sum(1)", inputs, rules, constraints=constraints
        )
        assert {each["rounds"] for each in made} == ({5, 9} if constraints else {1, 5, 9})
    rules["rounds"]["max"] = "64 * n"  # too many to list
    made = _held(
        "def run(x, rounds):\n    return x.sum(1)", inputs, rules, constraints=["rounds < 9"]
    )
    assert all(1 <= each["rounds"] < 9 for each in made)


def test_some_rows_of_ends_have_none_of_them():
    inputs = {"x": (["n", "k"], "float32")}
    rules = {"x": {"kind": "uniform", "min": 0, "max": 4.5, "ends": True}}
    for made in _held("def run(x):\n    return x.cumprod(1)", inputs, rules):
        inner = (made["x"] > 0).all(1) & (made["x"] < 4.5).all(1)
        assert 2 <= int(inner.sum()) <= 12


def test_some_numbers_of_a_range_are_whole():
    inputs = {"x": (["n", "k"], "float32")}
    for most, some in ((4.5, (0.02, 0.2)), (1.5, (0, 0.02))):
        rules = {"x": {"kind": "uniform", "min": -0.5, "max": most}}
        made = [each["x"] for each in _held("def run(x):\n    return x.sum(1)", inputs, rules)]
        rows = torch.stack(made).flatten(0, -2)
        whole = rows[(rows != 0).any(1)].frac() == 0  # but of rows of zeros
        assert some[0] <= float(whole.double().mean()) <= some[1]


@pytest.mark.parametrize(("low", "dtype"), [(0, "uint8"), (-128, "int8")])
def test_some_rows_of_bytes_are_at_the_ends_and_at_a_leading_bit(low, dtype):
    inputs = {"x": (["n", "k"], dtype)}
    rules = {"x": {"kind": "integers", "min": low, "max": low + 255}}
    marks = torch.tensor([low, low + 1, low + 127, low + 128, low + 254, low + 255])
    seen = 0
    for made in _held("def run(x):\n    return x.sum(1)", inputs, rules):
        marked = torch.isin(made["x"].long(), marks).all(1)
        seen += len(made["x"][marked].unique()) > 3
    assert seen >= TURNS // 2


def test_equal_numbers_go_on_from_the_row_before_now_and_then():
    wide = {"kind": "integers", "min": -(2**31), "max": 2**31 - 1}
    made = _held("def run(x):\n    return x.diff()", {"x": (["n", "k"], "int32")}, {"x": wide})
    goes_on = 0
    for each in made:
        equal = (each["x"] == each["x"][:, :1]).all(1)
        goes_on += bool((equal[1:] & (each["x"][1:, 0] == each["x"][:-1, -1])).any())
    assert goes_on >= TURNS // 6


def test_small_numbers_of_a_vector_go_with_small_rows():
    wide = {"kind": "integers", "min": -(2**31), "max": 2**31 - 1}
    inputs = {"x": (["n", "k"], "int32"), "y": (["n"], "int32")}
    reference = "def run(x, y):\n    return x.sum(1) + y"
    together = 0
    for made in _held(reference, inputs, {"x": wide, "y": wide}):
        small = (made["x"].long().abs() <= 255).all(1) & (made["y"].long().abs() <= 255)
        together += bool(small.any())
    assert together >= TURNS // 2


def test_no_nan_is_among_what_is_sorted():
    inputs = {"x": (["n", "k"], "float32")}
    for values in ("nan", "inf"):
        rules = {"x": {"kind": "sorted"}}
        for made in _held("def run(x):\n    return x.sum(1)", inputs, rules, values=values):
            assert (made["x"][:, 1:] >= made["x"][:, :-1]).all()


def test_integers_that_are_searched_for_are_now_and_then_those_that_are_sorted_or_beside():
    inputs = {"x": (["n"], "int64"), "times": (["k"], "int64")}
    rules = {
        "x": {"kind": "integers", "min": -1000, "max": 40_000_000},
        "times": {"kind": "sorted", "max": 40_000_000},
    }
    reference = "def run(x, times):\n    return torch.searchsorted(times, x, right=True)"
    beside = [0, 0, 0]
    for made in _held(f"import torch\n\n{reference}", inputs, rules):
        for i, less in enumerate((-1, 0, 1)):
            beside[i] += bool(torch.isin(made["x"] + less, made["times"]).any())
    assert min(beside) >= TURNS // 8


def test_a_scalar_that_is_compared_is_no_number_of_few_bits_in_half_of_the_workloads():
    inputs = {"x": (["n", "k"], "float16"), "level": (None, "float32")}
    rules = {"level": {"kind": "uniform", "min": -1.0, "max": 1.0}}
    made = _held("def run(x, level):\n    return (x.float() >= level).any(1)", inputs, rules)
    is_half = [float(torch.tensor(each["level"]).half()) == each["level"] for each in made]
    assert TURNS // 4 < sum(is_half) < TURNS
    for each, half in zip(made, is_half, strict=True):  # and elements are next to it
        if not half and abs(each["level"]) > 0.01:
            nearest = torch.tensor(each["level"]).half()
            assert (each["x"] == nearest).any()


def test_a_single_number_is_now_and_then_the_least_or_the_most_or_beside():
    rule = {"kind": "integers", "min": 3, "max": 2000}
    inputs = {"x": (["n", "k"], "float32"), "steps": ([], "int32")}
    made = _held("def run(x, steps):\n    return x.sum(1) + steps", inputs, {"steps": rule})
    seen = {int(each["steps"]) for each in made}
    assert {3, 4, 1999, 2000} <= seen
    assert len(seen) > 8


@pytest.mark.parametrize("kind", ["boolean", "mask"])
def test_all_rows_are_now_and_then_alike(kind):
    true = [made(kind, "bool", seed)["x"] for seed in range(TURNS)]
    assert sum(not bool(x.any()) for x in true) == 1
    assert sum(bool(x.all()) for x in true) == 3


def test_in_two_workloads_all_that_is_counted_is_alike_in_all_inputs():
    """So a count of pairs is as large as it may be."""
    inputs = {"x": (["n", "k"], "uint8"), "ids": (["n", "k"], "int32"), "on": (["n"], "bool")}
    rules = {
        "x": {"kind": "integers", "min": 0, "max": 18},
        "ids": {"kind": "indices", "below": 19, "unique": False, "sentinels": [255]},
        "on": {"kind": "mask"},
    }
    alike = [
        len(each["x"].unique()) == len(each["ids"].unique()) == 1 and bool(each["on"].all())
        for each in _held("def run(x, ids, on):\n    return x.sum(1)", inputs, rules)
    ]
    assert sum(alike) == 2


def test_in_one_workload_all_integers_of_a_row_but_one_are_alike():
    rule = {"kind": "integers", "min": -900, "max": 900}
    made = _held("def run(x):\n    return x.sum(1)", {"x": (["n", "k"], "int32")}, {"x": rule})
    most = [(each["x"] == each["x"].mode(1, keepdim=True).values).sum(1) for each in made]
    assert [int(count.median()) for count in most].count(made[0]["x"].shape[1] - 1) == 1


def test_bytes_are_grey_in_one_block_of_eight():
    inputs = {"x": (["n", "k", "k"], "uint8")}
    grey = set()
    for each in _held("def run(x):\n    return x.sum((1, 2))", inputs, {"x": BYTE}):
        blocks = each["x"].flatten(1)
        is_flat = (blocks == blocks[:, :1]).all(1) & (blocks[:, 0] > 100) & (blocks[:, 0] < 150)
        grey |= {int(block[0]) for block in blocks[is_flat]}
        assert is_flat.any() or len(each["x"].unique()) == 1
    assert {127, 128, 129} <= grey


BYTE = {"kind": "integers", "min": 0, "max": 255}


def test_not_the_same_cases_of_two_inputs_always_meet():
    inputs = {"x": (["n", "k"], "float32"), "p": (None, "float32"), "q": (None, "float32")}
    rule = {"kind": "uniform", "min": 0.25, "max": 0.75}
    reference = "def run(x, p, q):\n    return x.sum(1) * p + q"
    made = _held(reference, inputs, {"p": rule, "q": rule}, seeds=range(4 * TURNS))
    met = {(each["p"], each["q"]) for each in made}
    assert {(p, q) for p in (0.25, 0.75) for q in (0.25, 0.75)} <= met


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_all_of_a_few_numbers_are_there_and_a_scalar_is_each_in_its_turn(dtype):
    assert made("one_of", dtype)["x"].unique().tolist() == [1, 2, 4]
    inputs = {"x": (["n"], "float32"), "size": (None, dtype)}
    rules = {"size": {"kind": "one_of", "values": [8, 2, 4]}}
    held = _held("def run(x, size):\n    return x * size", inputs, rules)
    sizes = [each["size"] for each in held]
    assert set(sizes[:4]) == {2, 4, 8}


def test_indices_that_repeat_are_now_and_then_in_order_but_for_two():
    inputs = {"x": (["n"], "float32"), "group": (["n"], "int64"), "weight": (["k"], "float32")}
    rules = {"group": {"kind": "indices", "below": "k", "unique": False}}
    body = "def run(x, group, weight):\n    return x * weight[group]"
    found = 0
    for each in _held(body, inputs, rules, sizes={"n": 64, "k": 16}):
        group = each["group"]
        out_of_order = int((group != group.sort().values).sum())
        is_regular = group.sort().values.equal(torch.arange(16).repeat_interleave(4))
        found += is_regular and group[0] == 0 and group[-1] == 15 and out_of_order == 2
    assert found == 4


@pytest.mark.parametrize(("result", "may"), [("kept.amin(1)", True), ("kept.softmax(1)", False)])
def test_all_of_a_row_is_infinite_now_and_then_where_a_minimum_is_taken_of_what_counts(result, may):
    inputs = {"x": (["n", "k"], "float32"), "mask": (["n", "k"], "bool")}
    body = "    kept = torch.where(mask & ~torch.isnan(x), x, float('inf'))"
    made = _held(f"import torch\ndef run(x, mask):\n{body}\n    return {result}", inputs)
    rows = sum(bool((each["x"] == torch.inf).all(1).any()) for each in made)
    assert (rows > 0) == may


def test_indices_may_be_distinct_in_the_whole_tensor():
    inputs = {"x": (["n"], "float32"), "to": (["m", "k"], "int32")}
    rules = {"to": {"kind": "indices", "below": "n", "unique": "everywhere", "sentinels": [-1]}}
    body = "def run(x, to):\n    return x.index_fill(0, to.flatten(), 0.0)"
    seen = 0
    for each in _held(body, inputs, rules, sizes={"n": 150}):
        places = each["to"][each["to"] >= 0]
        assert len(places.unique()) == len(places)
        assert max(places.tolist(), default=0) < 150
        seen += len(places)
    assert seen > 12 * 128


@pytest.mark.parametrize(
    ("dtype", "special"), [("float8_e5m2", {"inf", "-inf", "nan"}), ("float8_e4m3fn", {"nan"})]
)
def test_numbers_of_8_bits_have_the_special_values_that_they_hold_where_a_reference_asks(
    dtype, special
):
    data = signature("op", "n d", "x[n,d]:fp8", "y[n]:bool")
    data["inputs"]["x"]["dtype"] = dtype
    data["reference"] = "import torch\ndef run(x):\n    return x.float().isfinite().all(1)\n"
    definition, found = Definition.model_validate(data), set()
    for seed in range(2 * TURNS):
        x = make_inputs(definition, make_workload(definition, {"n": 4, "d": 9}, seed, {}))["x"]
        found |= {str(value) for value in x.float().flatten().tolist()} & {"inf", "-inf", "nan"}
    assert found == special


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_numbers_of_8_bits_keep_to_the_range_of_their_description(dtype):
    """Of an infinity that e4m3 has none of, torch makes its largest number."""
    data = signature("op", "n", "x[n]:fp8", "y[n]:f32")
    described = {"positive; inf where not reached": (0, 4), "from -1 to 1": (-1, 1)}
    for description, (low, high) in described.items():
        data["inputs"]["x"] |= {"dtype": dtype, "description": description}
        definition = Definition.model_validate(data)
        for seed in range(TURNS):
            x = make_inputs(definition, make_workload(definition, {"n": 16}, seed, {}))["x"].float()
            finite = x[x.isfinite()]
            assert ((low <= finite) & (finite <= high)).all()


def made_of(inputs, axes, rules, seed, values=None, out="y[n]:f32"):
    data = signature("op", " ".join(axes), inputs, out)
    definition = Definition.model_validate(data | {"workloads": {"inputs": rules}})
    regime = {} if values is None else {"values": values}
    return make_inputs(definition, make_workload(definition, axes, seed, regime))


def test_probabilities_are_now_and_then_close_to_those_of_another_input():
    rules = {name: {"kind": "probabilities"} for name in ("target", "draft")}
    ratios = []
    for seed in range(2 * TURNS):
        made = made_of("target[n,v]:f32 draft[n,v]:f32", {"n": 8, "v": 50}, rules, seed)
        assert all(torch.allclose(x.sum(-1), torch.ones(8), atol=1e-5) for x in made.values())
        ratios.append(float((made["draft"] / made["target"]).log().abs().mean()))
    assert sum(ratio < 0.5 for ratio in ratios) >= TURNS // 4
    assert sum(ratio > 1 for ratio in ratios) >= TURNS // 4


def test_half_of_some_rows_of_probabilities_is_in_their_last_elements():
    rules, shares = {"p": {"kind": "probabilities"}}, []
    for seed in range(TURNS):
        p = made_of("p[n,v]:f32", {"n": 64, "v": 800}, rules, seed)["p"]
        assert torch.allclose(p.sum(-1), torch.ones(64), atol=1e-4)
        shares.append(float((p[:, -100:].sum(-1) > 0.5).double().mean()))
    assert sum(0.2 < share < 0.8 for share in shares) >= TURNS // 8


@pytest.mark.parametrize("count", [2, 4, 5, 9])
def test_a_product_of_large_values_of_all_inputs_is_a_float32(count):
    names = [f"x{i}" for i in range(count)]
    inputs = " ".join(f"{name}[n,v]:f32" for name in names)
    for seed in range(count):
        made = made_of(inputs, {"n": 64, "v": 64}, {}, seed, values="negative")
        largest = [float(x.abs().max()) for x in made.values()]
        assert max(largest) > 1e9  # one leads
        assert torch.tensor(largest).log2().sum() < 104 + 3 * count


def test_integer_scalars_of_a_wide_range_are_often_no_larger_than_a_size():
    rules, found = {"most": {"kind": "integers", "min": 0, "max": 100_000}}, []
    for seed in range(300):
        found.append(made_of("most:i32 x[n]:f32", {"n": 37}, rules, seed)["most"])
    assert sum(2 < number <= 37 for number in found) > 60
    assert sum(number > 37 for number in found) > 30
    stepped = {"most": {"kind": "integers", "min": 0, "max": 100_000, "step": 16}}
    for seed in range(50):
        number = made_of("most:i32 x[n]:f32", {"n": 37}, stepped, seed)["most"]
        assert number % 16 == 0


def test_rows_of_integers_now_and_then_repeat_a_few():
    rules, periods = {"ids": {"kind": "integers", "min": 0, "max": 9999}}, set()
    for seed in range(2 * TURNS):
        ids = made_of("ids[n,m]:i32 x[n]:f32", {"n": 64, "m": 300}, rules, seed)["ids"]
        last = ids[:, -60:]
        periods |= {p for p in range(2, 30) if (last[:, p:] == last[:, :-p]).all(1).any()}
    assert len(periods & {*range(2, 25)}) > 20


def test_labels_of_a_vector_now_and_then_differ_in_their_lowest_bits_alone():
    rules, found = {"ids": {"kind": "labels"}}, 0
    for seed in range(TURNS):
        ids = made_of("ids[n]:i64 x[n]:f32", {"n": 50}, rules, seed)["ids"]
        found += len(ids.unique()) > 1 and len(ids.float().unique()) == 1
    assert found >= 2


@pytest.mark.parametrize(
    ("result", "are"), [("x.cummin(1).values[:, 0]", True), ("x.float().sum(1)", False)]
)
def test_where_numbers_go_by_their_order_some_rows_rise_fall_and_end_far_below(result, are):
    made = [
        each["x"]
        for each in _held(f"def run(x):\n    return {result}", {"x": (["n", "k"], "float32")})
        if each["x"].isfinite().all() and each["x"].shape[1] > 8
    ]
    rows = torch.cat(made)
    steps = rows.diff(dim=1)
    varied = (steps != 0).any(1)
    assert bool(((steps >= 0).all(1) & varied).any()) == are
    assert bool(((steps <= 0).all(1) & varied).any()) == are
    is_far = rows[:, -1] < -rows[:, :-1].abs().sum(1) * 0.99
    assert bool(((steps[:, :-1] >= 0).all(1) & is_far & varied).any()) == are


def test_many_integers_are_the_scalar_that_they_are_asked_for():
    """As the tokens that are still masked."""
    inputs = {"x": (["n", "k"], "int32"), "mask_id": (None, "int32")}
    rules = {name: {"kind": "integers", "min": 0, "max": 30000} for name in inputs}
    body = "def run(x, mask_id):\n    return (x == mask_id).sum(1)"
    shares = [
        float((each["x"] == each["mask_id"]).double().mean())
        for each in _held(body, inputs, rules, sizes={"n": 40})
    ]
    assert sum(0.3 < share < 0.7 for share in shares) >= 3
    assert sum(0.05 < share < 0.25 for share in shares) >= 3
    assert sum(share < 0.01 for share in shares) >= 4


def test_near_a_large_number_integers_stay_within_their_range():
    """Of 33 bits, which a float32 doesn't tell apart."""
    most = 2**32 - 1
    rules = {"x": {"kind": "integers", "min": 0, "max": most}}
    for made in _held("def run(x):\n    return x * 1.0", {"x": (["n"], "int64")}, rules,
                      near=str(most + 1)):  # fmt: skip
        assert int(made["x"].max()) <= most


def test_steps_that_a_dtype_has_no_number_for_are_looked_for_in_others():
    rules = {
        "few": {"kind": "integers", "min": 0, "max": 255},
        "x": {"kind": "integers", "min": 0, "max": 4096, "step": 256},
    }
    inputs = {"few": (["n", "k"], "uint8"), "x": (["n", "k"], "int32")}
    for made in _held("def run(few, x):\n    return few.sum(1) + x.sum(1)", inputs, rules):
        assert bool((made["x"] % 256 == 0).all())


def test_labels_of_another_count_do_not_agree():
    rules = {"many": {"kind": "labels", "count": 40}, "few": {"kind": "labels", "count": 3}}
    inputs = {name: (["n", "k"], "int32") for name in rules}
    for made in _held("def run(many, few):\n    return (many == few).sum(1) * 1.0", inputs, rules):
        assert len(made["few"].unique()) <= 3


def test_integers_have_sentinels_beside_any_range():
    rules = {"x": {"kind": "integers", "min": -10, "max": 10, "sentinels": [-99, 99]}}
    made = _held("def run(x):\n    return x * 1.0", {"x": (["n"], "int32")}, rules)
    found = torch.cat([each["x"] for each in made])
    assert {-99, 99} <= {*found.tolist()} <= {-99, 99, *range(-10, 11)}
    scalar = {"x": (["n"], "float32"), "limit": (None, "int32")}
    rules = {"limit": {"kind": "integers", "min": 1, "max": 9, "sentinels": [-7]}}
    reference = "def run(x, limit):\n    return x * limit"
    found = {each["limit"] for each in _held(reference, scalar, rules)}
    assert -7 in found
    assert found <= {-7, *range(1, 10)}


def test_inputs_are_0_at_the_same_places_now_and_then():
    inputs = {"x": (["n", "k"], "float32"), "y": (["n", "k"], "bfloat16")}
    made = _held("def run(x, y):\n    return (x * y).sum(1)", inputs)
    both = [(each["x"] == 0) & (each["y"] == 0) for each in made]
    some = [where for where in both if where.any() and not where.all()]
    assert some
    assert any(bool(where.all(1).any()) for where in some)
    shifted = _held("def run(x, y):\n    return (x * y).sum(1)", inputs, values="shifted")
    assert all(bool((each["x"] != 0).all()) for each in shifted)


@pytest.mark.parametrize(("result", "is_few"), [("x.amax(1)", True), ("x.float().sum(1)", False)])
def test_integers_of_which_a_largest_is_taken_are_a_few_different_ones_now_and_then(result, is_few):
    rules = {"x": {"kind": "integers", "min": 0, "max": 10**6}}
    made = _held(f"def run(x):\n    return {result} * 1.0", {"x": (["n", "k"], "int32")}, rules)
    counts = [len(each["x"].unique()) for each in made if each["x"].numel() > 99]
    assert any(1 < count <= 3 for count in counts) is is_few
