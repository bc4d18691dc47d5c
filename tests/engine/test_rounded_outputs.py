"""Outputs that are rounded: honest ways to compute them pass, and other ways to round don't."""

import pytest
import torch

from pytest_fib.data import Definition, DefinitionError, EvaluationStatus, Workload
from pytest_fib.engine import FunctionChecker

F8, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
#: Cases that an implementation is tried on: of many values, of few, and of one.
CASES = [
    ({"m": 40}, "normal"),
    ({"m": 16}, "mixed"),
    ({"m": 3}, "zeros_and_ones"),
    ({"m": 1}, "normal"),
]


def define(inputs, outputs, reference, **more):
    """A definition from the dtypes and shapes of its tensors."""

    def tensors(specs):
        return {n: {"shape": shape, "dtype": dtype} for n, (dtype, shape) in specs.items()}

    return Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"m": "var", "n": 128, "groups": 8, "half": 64},
            "inputs": tensors(inputs),
            "outputs": tensors(outputs),
            "reference": f"import torch\ndef run({', '.join(inputs)}):\n{reference}",
            **more,
        }
    )


def verdict(definition, function, cases=CASES):
    """The first status that is not PASSED, on several cases and two seeds."""
    check = FunctionChecker(definition, function, "cpu")
    for axes, values in cases:
        for seed in (0, 1):
            facts = {"axes": axes, "inputs": {}, "uuid": "u", "seed": seed}
            regime = {} if values == "normal" else {"values": values}
            status = check(Workload.model_validate({**facts, "regime": regime})).status
            if status is not EvaluationStatus.PASSED:
                return status
    return EvaluationStatus.PASSED


def truncated(value, dtype):
    """Toward zero."""
    bits = value.to(dtype).view(torch.uint8)
    return torch.where(bits.view(dtype).float().abs() > value.abs(), bits - 1, bits).view(dtype)


def raised(value, dtype):
    """Away from zero."""
    bits = value.to(dtype).view(torch.uint8)
    return torch.where(bits.view(dtype).float().abs() < value.abs(), bits + 1, bits).view(dtype)


def without_bits(value, dtype):
    """Without the last two bits of the mantissa, or the last one of the two that e5m2 has."""
    mask = 0xFC if dtype is F8 else 0xFE
    return (value.to(dtype).view(torch.uint8) & mask).view(dtype)


def flushed(value, dtype):
    """Without subnormal numbers."""
    rounded = value.to(dtype).float()
    return torch.where(rounded.abs() < torch.finfo(dtype).smallest_normal, 0.0, rounded).to(dtype)


def nearest(value, dtype):
    return value.to(dtype)


# ---- float8, one scale for each row ----

PER_ROW = """
    wide = x.to(torch.float32)
    scale = (wide.abs().amax(-1, keepdim=True) / {top}).clamp(min=1e-10)
    return (wide / scale).clamp(-{top}, {top}).to(torch.{dtype}), scale[:, 0]
"""


def per_row(dtype, source):
    name, top = str(dtype).removeprefix("torch."), int(torch.finfo(dtype).max)
    outputs = {"q": (name, ["m", "n"]), "scale": ("float32", ["m"])}
    return define({"x": (source, ["m", "n"])}, outputs, PER_ROW.format(dtype=name, top=top))


def quantise(dtype, divide=lambda x, scale: x / scale, to=nearest):
    top = torch.finfo(dtype).max

    def run(x):
        wide = x.float()
        scale = (wide.abs().amax(-1, keepdim=True) / top).clamp(min=1e-10)
        return to(divide(wide, scale).clamp(-top, top), dtype), scale[:, 0]

    return run


@pytest.mark.parametrize("source", ["bfloat16", "float32"])
@pytest.mark.parametrize("dtype", [F8, E5M2])
@pytest.mark.parametrize(
    "divide",
    [
        lambda x, scale: x / scale,
        lambda x, scale: x * (1 / scale),
        lambda x, scale: (x.double() / scale).float(),
        lambda x, scale: (x * 2) / scale / 2,
    ],
)
def test_honest_ways_to_divide_are_right(dtype, source, divide):
    assert verdict(per_row(dtype, source), quantise(dtype, divide)) is EvaluationStatus.PASSED


@pytest.mark.parametrize("dtype", [F8, E5M2])
@pytest.mark.parametrize("to", [truncated, raised, without_bits])
def test_other_ways_to_round_are_wrong(dtype, to):
    found = verdict(per_row(dtype, "bfloat16"), quantise(dtype, to=to))
    assert found is EvaluationStatus.INCORRECT_NUMERICAL


@pytest.mark.parametrize("dtype", [F8, E5M2])
@pytest.mark.parametrize(
    "divide",
    [
        lambda x, scale: x / scale * 0.95,
        lambda x, scale: x / scale * 0.999,
        lambda x, scale: x / scale.bfloat16(),
        lambda x, scale: (x / scale).bfloat16().float(),
    ],
)
def test_what_is_off_by_less_than_a_step_is_wrong(dtype, divide):
    found = verdict(per_row(dtype, "float32"), quantise(dtype, divide))
    assert found is EvaluationStatus.INCORRECT_NUMERICAL


@pytest.mark.parametrize("dtype", [F8, E5M2])
@pytest.mark.parametrize(("to", "is_right"), [(nearest, True), (flushed, False)])
def test_subnormal_numbers_are_numbers(dtype, to, is_right):
    name, factor = str(dtype), torch.finfo(dtype).smallest_normal
    definition = define(
        {"x": ("bfloat16", ["m", "n"])},
        {"q": (name.removeprefix("torch."), ["m", "n"])},
        f"    return (x.to(torch.float32) * {factor}).to({name})",
    )
    found = verdict(definition, lambda x: to(x.float() * factor, dtype))
    assert (found is EvaluationStatus.PASSED) is is_right


# ---- a product with a float8 result ----


def product(to=nearest, total=lambda a, b: a @ b.T):
    return lambda a, b: to(total(a.float(), b.float()).clamp(-448, 448), F8)


def in_turn(a, b):
    total = torch.zeros(len(a), len(b))
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[:, k]
    return total


@pytest.mark.parametrize(
    ("function", "is_right"),
    [
        (product(), True),
        (product(total=in_turn), True),
        (product(total=lambda a, b: a[:, :50] @ b[:, :50].T + a[:, 50:] @ b[:, 50:].T), True),
        (product(truncated), False),
        (product(total=lambda a, b: (a @ b.T) * 0.97), False),
        (product(total=lambda a, b: a[:, 1:] @ b[:, 1:].T), False),
        (product(total=lambda a, b: (a.bfloat16() @ b.T.bfloat16()).float()), False),
    ],
)
def test_a_product_may_be_summed_in_any_order_and_rounded_in_one_way(function, is_right):
    wide = "(a.to(torch.float32) @ b.to(torch.float32).T)"
    definition = define(
        {"a": ("bfloat16", ["m", "n"]), "b": ("bfloat16", ["half", "n"])},
        {"c": ("float8_e4m3fn", ["m", "half"])},
        f"    return {wide}.clamp(-448, 448).to(torch.float8_e4m3fn)",
    )
    assert (verdict(definition, function) is EvaluationStatus.PASSED) is is_right


# ---- integers ----


def whole(factor, to=torch.round):
    return lambda x: to(x.float() * factor).clamp(-128, 127).to(torch.int8)


def half_away(value):
    return value.sign() * (value.abs() + 0.5).floor()


@pytest.mark.parametrize(
    ("function", "is_right"),
    [
        (whole(16), True),
        (lambda x: (x.float() / 0.0625).round().clamp(-128, 127).to(torch.int8), True),
        (whole(16, half_away), False),  # ties are exact here, and the reference rounds to even
        (whole(16, lambda v: (v + 0.5).floor()), False),
        (whole(16, torch.trunc), False),
        (whole(15.98), False),
    ],
)
def test_exact_ties_fall_as_the_reference_has_them(function, is_right):
    definition = define(
        {"x": ("float16", ["m", "n"])},
        {"q": ("int8", ["m", "n"])},
        "    return torch.round(x.to(torch.float32) * 16).clamp(-128, 127).to(torch.int8)",
    )
    assert (verdict(definition, function) is EvaluationStatus.PASSED) is is_right


INSISTS = """
    assert x.dtype == torch.float16
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return torch.round(x.float() / scale).to(torch.int8)
"""


@pytest.mark.parametrize("to", [torch.round, torch.trunc])
def test_a_reference_that_insists_on_its_dtypes_has_ties_too(to):
    definition = define({"x": ("float16", ["m", "n"])}, {"q": ("int8", ["m", "n"])}, INSISTS)

    def run(x):
        inverse = 1 / (x.float().abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127)
        return to(x.float() * inverse).to(torch.int8)

    assert (verdict(definition, run) is EvaluationStatus.PASSED) is (to is torch.round)


ODD = """
    crossing = torch.where(y > 2.5, x * y / y, 0.0)
    return (x < crossing).sum(-1) % 2 == 1
"""


@pytest.mark.parametrize("beside", [0.0, 1e-3])
def test_of_decisions_that_may_fall_either_way_an_odd_number_may(beside):
    definition = define(
        {"x": ("float32", ["m", "n"]), "y": ("float32", ["m", "n"])}, {"odd": ("bool", ["m"])}, ODD
    )

    def run(x, y):
        crossing = torch.where(y > 2.5, x * (1 / y) * y, beside)
        return (x < crossing).sum(-1) % 2 == 1

    passes = verdict(definition, run, [({"m": 400}, "normal")]) is EvaluationStatus.PASSED
    assert passes is (beside == 0)


# ---- 4-bit floats, packed, with scales that are rounded as well ----

NVFP4 = """
    blocks = x.to(torch.float32).view(-1, 8, 16)
    scale = (blocks.abs().amax(-1) / 6).clamp(max=448).to(torch.float8_e4m3fn)
    d = scale.to(torch.float32)[..., None]
    v = torch.where(d == 0, 0.0, blocks / d)
    a = v.abs()
    codes = (a > .25).int() + (a >= .75) + (a > 1.25) + (a >= 1.75)
    codes = codes + (a > 2.5) + (a >= 3.5) + (a > 5)
    codes = (codes | ((v < 0).int() << 3)).view(-1, 128)
    return (codes[:, 0::2] | (codes[:, 1::2] << 4)).to(torch.uint8), scale
"""
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nvfp4(
    to=nearest, sixth=lambda x: x / 6, divide=lambda x, d: x / d, low_first=True, round_up=False
):
    def run(x):
        blocks = x.float().view(-1, 8, 16)
        scale = to(sixth(blocks.abs().amax(-1)).clamp(max=448), F8)
        d = scale.float()[..., None]
        v = torch.where(d == 0, 0.0, divide(blocks, d))
        edges = (E2M1[1:] + E2M1[:-1]) / 2
        codes = torch.bucketize(v.abs(), edges, right=True)
        if not round_up:  # at an edge, to the even code
            at_edge = (v.abs()[..., None] == edges).any(-1)
            codes -= (at_edge & (codes % 2 == 1)).long()
        codes = (codes | ((v < 0).long() << 3)).view(-1, 128)
        low, high = (codes[:, 0::2], codes[:, 1::2])[:: 1 if low_first else -1]
        return (low | (high << 4)).to(torch.uint8), scale

    return run


@pytest.mark.parametrize(
    ("function", "is_right"),
    [
        (nvfp4(), True),
        (nvfp4(sixth=lambda x: x * (1 / 6), divide=lambda x, d: x * (1 / d)), True),
        (nvfp4(low_first=False), False),
        (nvfp4(round_up=True), False),
        (nvfp4(raised), False),
        (nvfp4(divide=lambda x, d: x / d * 0.98), False),
    ],
)
def test_packed_numbers_and_their_scales_may_fall_apart_at_ties_only(function, is_right):
    outputs = {"q": ("uint8", ["m", "half"]), "scale": ("float8_e4m3fn", ["m", "groups"])}
    definition = define({"x": ("bfloat16", ["m", "n"])}, outputs, NVFP4)
    assert (verdict(definition, function) is EvaluationStatus.PASSED) is is_right


# ---- thresholds, and numbers that are rounded on the way ----


@pytest.mark.parametrize(
    ("function", "is_right"),
    [
        (lambda x: (x > 0.5, x.float().sum(-1) > 0), True),
        (lambda x: (x >= 0.5, x.float().mean(-1) > 0), False),
        (lambda x: (x > 0.5, x.float().mean(-1) > 0.01), False),
    ],
)
def test_a_threshold_is_exact_for_inputs_and_open_where_a_sum_decides(function, is_right):
    definition = define(
        {"x": ("bfloat16", ["m", "n"])},
        {"mask": ("bool", ["m", "n"]), "over": ("bool", ["m"])},
        "    return x > 0.5, x.to(torch.float32).mean(-1) > 0",
        workloads={"inputs": {"x": {"kind": "integers", "min": -1, "max": 1, "step": 0.25}}},
    )
    assert (verdict(definition, function) is EvaluationStatus.PASSED) is is_right


@pytest.mark.parametrize(
    ("round_", "is_right"),
    [(lambda x, s: (x * (1 / s)).round(), True), (lambda x, s: (x / s).trunc(), False)],
)
def test_what_is_rounded_on_the_way_may_be_a_step_off_at_ties(round_, is_right):
    definition = define(
        {"x": ("bfloat16", ["m", "n"])},
        {"y": ("float32", ["m", "n"])},
        "    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127\n"
        "    return (x.float() / scale).round() * scale",
    )

    def run(x):
        scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        return round_(x.float(), scale) * scale

    assert (verdict(definition, run) is EvaluationStatus.PASSED) is is_right


# ---- choices, and single elements ----


@pytest.mark.parametrize("last", [True, False])
def test_of_experts_whose_weights_underflow_any_may_be_chosen(last):
    """The reference ranks weights, most of which are 0 in float32."""
    definition = define(
        {"logits": ("float32", ["m", "n"])},
        {"weights": ("float32", ["m", "groups"]), "ids": ("int32", ["m", "groups"])},
        "    weights, ids = (logits * 80).softmax(-1).topk(8)\n"
        "    return weights, ids.to(torch.int32)",
        tolerances={"ids": {"by": "gathered", "from": "logits"}},
    )

    def run(logits):
        weights = (logits * 80).softmax(-1)
        if last:
            weights, ids = weights.flip(-1).topk(8)
            return weights, (127 - ids).int()
        ids = weights.sort(stable=True, descending=True).indices[:, :8]
        return weights.gather(-1, ids), ids.int()

    def wrong(logits):
        weights, ids = run(logits)
        return weights, ids.roll(1, -1)

    assert verdict(definition, run) is EvaluationStatus.PASSED
    assert verdict(definition, wrong) is EvaluationStatus.INCORRECT_NUMERICAL


def test_a_gradient_that_cancels_in_a_single_element_may_be_off_by_float32s_errors():
    definition = define(
        {"x": ("float32", ["m", "one"]), "dy": ("float32", ["m", "one"])},
        {"dx": ("float32", ["m", "one"])},
        "    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)\n"
        "    n = x * r\n"
        "    return r * (dy - n * (dy * n).mean(-1, keepdim=True))",
        axes={"m": "var", "one": 1},
    )

    def fused(x, dy):
        r = (x.square().mean(-1, keepdim=True) + 1e-6).pow(-0.5)
        return r * dy - x * (r * r * r) * (dy * x).mean(-1, keepdim=True)

    def split(x, dy):
        n = x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)
        return (dy - n * n * dy) * (n / x)

    single = [({"m": 1}, "normal")] * 12
    for function in (fused, split):
        assert verdict(definition, function, single) is EvaluationStatus.PASSED
    found = verdict(definition, lambda x, dy: fused(x, dy) * 1.5 + dy * 1e-5, single)
    assert found is EvaluationStatus.INCORRECT_NUMERICAL


# ---- the definition's own error ----


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("    return x.float().sum(-1, keepdim=True)", r"y: got \[3, 1\], expected \[3\]"),
        ("    return x.float().sum(-1).double()", "y: got float64, expected float32"),
        ("    return x.float().sum(-1).int()", "y: got int32, expected float32"),
    ],
)
def test_a_reference_of_another_shape_or_dtype_is_the_definitions_error(reference, error):
    definition = define({"x": ("float16", ["m", "n"])}, {"y": ("float32", ["m"])}, reference)
    scope = {"torch": torch}
    exec(f"def run(x):\n{reference}", scope)
    with pytest.raises(DefinitionError, match=error):
        verdict(definition, scope["run"], [({"m": 3}, "normal")])


def test_an_implementation_of_another_dtype_than_the_reference_is_wrong_itself():
    definition = define(
        {"x": ("float16", ["m", "n"])}, {"y": ("float32", ["m"])}, "    return x.float().sum(-1)"
    )
    found = verdict(definition, lambda x: x.sum(-1), [({"m": 3}, "normal")])
    assert found is EvaluationStatus.INCORRECT_DTYPE
