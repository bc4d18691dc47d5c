"""Other forms of a computation that float32 arithmetic makes different: honest ones pass."""

import numpy as np
import pytest
import torch

from pytest_fib.data import Definition, EvaluationStatus
from pytest_fib.engine import FunctionChecker
from pytest_fib.workloads import make_workload


def check(inputs, outputs, reference, function, cases, rules=None):
    """Whether a function passes: on axes and regimes, with some seeds."""
    tensors = [
        {name: {"shape": shape, "dtype": dtype} for name, (dtype, shape) in specs.items()}
        for specs in (inputs, outputs)
    ]
    definition = Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"m": "var", "n": "var"},
            "inputs": tensors[0],
            "outputs": tensors[1],
            "reference": f"import torch\ndef run({', '.join(inputs)}):\n    return {reference}",
            "workloads": {"inputs": rules or {}},
        }
    )
    checker = FunctionChecker(definition, function, "cpu")
    workloads = [
        make_workload(definition, axes, seed, {"values": values})
        for axes, values in cases
        for seed in range(4)
    ]
    return all(checker(each).status is EvaluationStatus.PASSED for each in workloads)


# ---- sums ----

LONG = [({"m": 1, "n": 89_101}, "normal"), ({"m": 2, "n": 5000}, "ones")]
F32 = {"x": ("float32", ["m", "n"])}, {"y": ("float32", ["m"])}


def in_turn(terms):
    """A sum of float32 numbers, one after the other."""
    return torch.from_numpy(np.cumsum(terms.numpy(), axis=-1, dtype=np.float32)[..., -1])


SUMS = {
    "a sum": ("x.exp().clamp(max=9.0).sum(-1)", lambda x: x.exp().clamp(max=9.0)),
    "a mean": ("(x * x + 0.1).mean(-1)", lambda x: (x * x + 0.1) / x.shape[-1]),
    "a sum of several axes": ("x.exp().sum((0, 1))[None].expand(len(x))", None),
    "a dot product": ("torch.stack([row.dot(row) for row in 0.3 * x])", lambda x: (0.3 * x) ** 2),
    "a loss": (
        "torch.stack([torch.nn.functional.mse_loss(row, 0.1 * row) for row in x])",
        lambda x: (0.9 * x) ** 2 / x.shape[-1],
    ),
}


@pytest.mark.parametrize("what", SUMS)
def test_terms_may_be_added_one_after_the_other(what):
    reference, terms = SUMS[what]

    def every(x):
        return in_turn(x.exp().reshape(1, -1)).expand(len(x))

    def honest(x):
        return in_turn(terms(x)) if terms else every(x)

    assert check(*F32, reference, honest, LONG)
    assert not check(*F32, reference, lambda x: 0.9999 * honest(x), LONG[:1])


def test_cumulative_sums_may_be_made_one_after_the_other():
    outputs = {"y": ("float32", ["m", "n"])}

    def honest(x):
        return torch.from_numpy(np.cumsum(x.exp().numpy(), axis=-1, dtype=np.float32))

    assert check(F32[0], outputs, "x.exp().cumsum(-1)", honest, LONG)
    assert not check(F32[0], outputs, "x.exp().cumsum(-1)", lambda x: honest(x).roll(1, 1), LONG)


# ---- averages of two ----

MEANS = {
    "x": ("float32", ["m"]),
    "mean": ("float32", ["m"]),
    "share": ("float32", None),
}


def averaged(function, share):
    rules = {"share": {"value": share}}
    cases = [({"m": 1, "n": 1}, "mixed"), ({"m": 1, "n": 1}, "wide"), ({"m": 200, "n": 1}, "mixed")]
    outputs = {"y": ("float32", ["m"])}
    return check(MEANS, outputs, "(1 - share) * mean + share * x", function, cases, rules)


@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
def test_an_average_may_be_moved_by_a_share_of_what_is_left(share):
    assert averaged(lambda x, mean, share: mean + share * (x - mean), share)
    assert not averaged(lambda x, mean, share: mean + 0.999 * share * (x - mean), share)


# ---- reciprocals ----

INT8 = {"q": ("int8", ["m", "n"])}
QUANTISED = """(
        (x / torch.where((s := x.abs().amax(-1, keepdim=True) / 127) > 0, s, 1.0))
        .round().clamp(-127, 127).to(torch.int8)
    )"""


@pytest.mark.parametrize("values", ["subnormal", "mixed"])
def test_a_quotient_may_be_a_product_with_a_reciprocal_that_overflows(values):
    cases = [({"m": 40, "n": 50}, values)]

    def quantised(x, product=torch.round):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return product(x * (1 / torch.where(scale > 0, scale, 1.0))).clamp(-127, 127).char()

    assert check(F32[0], INT8, QUANTISED, quantised, cases)
    if values == "mixed":  # of what is subnormal, float32 hardly knows any scale
        assert not check(F32[0], INT8, QUANTISED, lambda x: quantised(x, torch.trunc), cases)


# ---- orders ----


def ranked(scores):
    return scores.sort(dim=-1, descending=True, stable=True).indices


@pytest.mark.parametrize("values", ["small", "subnormal", "mixed"])
def test_what_float32_cannot_tell_apart_may_be_in_any_order(values):
    cases, outputs = [({"m": 9, "n": 40}, values)], {"order": ("int64", ["m", "n"])}
    reference = "x.softmax(-1).sort(dim=-1, descending=True, stable=True).indices"

    def with_exponentials(x):
        weights = (x - x.amax(-1, keepdim=True)).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        return torch.where(weights < 2.0**-126, 0.0, weights)

    assert check(F32[0], outputs, reference, lambda x: ranked(with_exponentials(x)), cases)
    assert check(F32[0], outputs, reference, lambda x: ranked(x.log_softmax(-1).exp()), cases)
    if values == "mixed":  # of the others, all that is left are ties
        assert not check(F32[0], outputs, reference, lambda x: ranked(-x.softmax(-1)), cases)


@pytest.mark.parametrize("values", ["zeros_and_ones", "inf", "one_hot"])
def test_what_is_equal_may_be_in_any_order_unless_the_reference_has_a_stable_one(values):
    cases, outputs = [({"m": 9, "n": 40}, values)], {"order": ("int64", ["m", "n"])}
    any_order = "x.topk(x.shape[1]).indices"
    stable = "x.sort(dim=-1, descending=True, stable=True).indices"

    def last_first(x):
        return x.shape[1] - 1 - ranked(x.flip(-1))

    for function in (ranked, last_first):
        assert check(F32[0], outputs, any_order, function, cases)
    assert not check(F32[0], outputs, any_order, lambda x: ranked(-x), cases)
    assert not check(F32[0], outputs, stable, last_first, cases)


def test_the_gradient_of_softmax_may_take_its_sum_from_the_output():
    """As attention's does; of a single key, both are the same number, and the gradient is 0."""
    inputs = {name: ("float32", ["n", "m"]) for name in ("dout", "v", "k")}

    def gradient(dout, v, k):
        return ((dout @ v.T).diagonal() - (dout * v).sum(-1))[:, None] * k

    products = "(dout[:, None] @ v[..., None])[..., 0]"
    reference = f"((lambda dp: dp - (1.0 * dp).sum(-1, keepdim=True))({products})) * k"
    cases = [({"m": 24, "n": 2048}, values) for values in ("outlier", "normal", "mixed")]
    outputs = {"dk": ("float32", ["n", "m"])}
    assert check(inputs, outputs, reference, gradient, cases)
    assert not check(inputs, outputs, reference, lambda *x: gradient(*x) + 1e-2 * x[2], cases)


def test_outputs_in_float64_are_not_computed_in_float32():
    outputs = {"y": ("float64", ["m"])}
    cases = [({"m": 3, "n": 3000}, values) for values in ("normal", "cancelling", "mixed")]
    for dtype in ("float64", "float32"):
        inputs = {"x": (dtype, ["m", "n"])}
        reference = "x.double().exp().clamp(max=9.0).sum(-1)"
        assert check(inputs, outputs, reference, in_turn_64, cases)
        assert not check(
            inputs,
            outputs,
            reference,
            lambda x: in_turn(SUMS["a sum"][1](x.float())).double(),
            cases,
        )


def in_turn_64(x):
    return torch.from_numpy(np.cumsum(SUMS["a sum"][1](x.double()).numpy(), axis=-1)[..., -1])


def test_softmax_may_be_merged_by_the_logarithms_of_sums_where_that_is_an_output():
    """The larger these are, the less is known of what is left of their differences."""
    inputs = {"x": ("float32", ["m", "n"]), "v": ("bfloat16", ["m", "n"])}
    outputs = {"y": ("bfloat16", ["m", "n"]), "total": ("float32", ["m"])}
    reference = (
        "((768.0 * 256.0 + x).softmax(1)[..., None] * v.float()[:, None]).sum(1).bfloat16(), "
        "(768.0 * 256.0 + x).logsumexp(1)"
    )

    def merged(x, v):
        x, v = x + 768.0 * 256.0, v.float()
        parts = x.split((x.shape[1] + 1) // 2, 1)
        sums = [part.logsumexp(1) for part in parts]
        means = [
            ((part - total[:, None]).exp()[..., None] * v[:, None]).sum(1)
            for part, total in zip(parts, sums, strict=True)
        ]
        both = torch.logaddexp(*sums)
        weights = [(total - both).exp()[:, None] for total in sums]
        y = sum(weight * mean for weight, mean in zip(weights, means, strict=True))
        return y.bfloat16(), both

    cases = [({"m": 12, "n": 64}, "ones"), ({"m": 12, "n": 64}, "normal")]
    shared = reference.replace("(768.0 * 256.0 + x).softmax", "logits.softmax").replace(
        "(768.0 * 256.0 + x).logsumexp", "logits.logsumexp"
    )
    shared = f"(lambda logits: ({shared}))(768.0 * 256.0 + x)"
    assert check(inputs, outputs, shared, merged, cases)
    alone = "((768.0 * 256.0 + x).softmax(1)[..., None] * v.float()[:, None]).sum(1).bfloat16(), "
    assert not check(
        inputs, outputs, f"{alone} x[:, 0]", lambda x, v: (merged(x, v)[0], x[:, 0]), cases
    )
