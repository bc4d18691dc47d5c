"""The reference in float64, whatever it was written for."""

from itertools import chain

import pytest
import torch

from pytest_fib.sandbox import (
    YARDSTICKS,
    OracleUnavailable,
    VariationError,
    run_widened,
    widened_dtype,
)

BF16 = torch.tensor([1.0, 1 / 3, -2.5]).bfloat16()

WIDENED = {
    "an input": lambda x: x,
    "float": lambda x: x.float(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "to": lambda x: x.to(torch.float32),
    "to by keyword": lambda x: x.to(dtype=torch.float16),
    "to a device": lambda x: x.to("cpu", torch.float32),
    "type": lambda x: x.type(torch.float32),
    "type by name": lambda x: x.type("torch.HalfTensor"),
    "type by class": lambda x: x.type(torch.FloatTensor),
    "zeros": lambda x: torch.zeros(3, dtype=torch.float16),
    "empty_like": lambda x: torch.empty_like(x, dtype=torch.float32).zero_(),
    "full": lambda x: torch.full((3,), 2.0, dtype=torch.bfloat16),
    "full without a dtype": lambda x: torch.full((3,), 2.0),
    "new_zeros": lambda x: x.new_zeros(3),
    "ones": lambda x: torch.ones(3),
    "arange": lambda x: torch.arange(3, dtype=torch.float32),
    "linspace": lambda x: torch.linspace(0, 1, 3, dtype=torch.float16),
    "tensor": lambda x: torch.tensor([0.1]),
    "tensor of a dtype": lambda x: torch.tensor([0.1], dtype=torch.float32),
    "sum": lambda x: x.sum(dtype=torch.float32),
    "softmax": lambda x: torch.nn.functional.softmax(x, dim=-1, dtype=torch.float32),
    "an integer": lambda x: x.to(torch.int32).float(),
    "float8": lambda x: x.to(torch.float8_e4m3fn).to(torch.float32),
    "bits": lambda x: torch.tensor([16256], dtype=torch.int16).view(torch.bfloat16),
    "its own dtype": lambda x: x.float().to(x.dtype),
    "an output argument": lambda x: torch.add(x, x, out=torch.empty(3, dtype=torch.float32)),
    "a copy into": lambda x: torch.empty(3, dtype=torch.bfloat16).copy_(x),
}


@pytest.mark.parametrize("way", WIDENED)
def test_every_way_to_a_floating_dtype_leads_to_float64(way):
    result = run_widened(WIDENED[way], [BF16])
    assert result.dtype is torch.float64


def test_values_are_those_of_the_narrow_inputs_and_nothing_is_rounded_on_the_way():
    result = run_widened(lambda x: (x.half() / 3).bfloat16() * 3, [BF16])
    assert torch.allclose(result, BF16.double(), rtol=1e-15, atol=0)


def test_every_output_is_widened():
    assert [r.dtype for r in run_widened(lambda x: (x, [x.half()][0]), [BF16])] == [
        torch.float64
    ] * 2
    assert run_widened(lambda x: {"y": x.half()}, [BF16])["y"].dtype is torch.float64


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.bool])
def test_conversions_that_are_part_of_the_meaning_stay(dtype):
    assert run_widened(lambda x: x.to(dtype), [BF16]).dtype is dtype
    assert widened_dtype(dtype) is dtype


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int32, torch.uint8, torch.bool])
def test_packed_and_integer_inputs_are_passed_as_they_are(dtype):
    given = torch.ones(3).to(dtype)
    assert run_widened(lambda x, n: x, [given, 0.1]) is given


@pytest.mark.parametrize("result", [None, 3.0, (None, 2)])
def test_results_without_tensors_are_passed_on(result):
    assert run_widened(lambda x: result, [BF16]) == result


def test_scalars_are_passed_as_they_are():
    assert run_widened(lambda x, factor: x * factor, [BF16, 0.1])[0] == 0.1


def test_the_inputs_are_not_changed():
    given = BF16.clone()
    run_widened(lambda x: x.zero_(), [given])
    assert given.equal(BF16)


def test_the_default_dtype_is_float64_inside_and_as_before_outside():
    def run(x):
        torch.set_default_dtype(torch.float16)
        return torch.zeros(3)

    assert run_widened(run, [BF16]).dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32


def refuses(x):
    assert x.dtype == torch.bfloat16, f"wants bfloat16\nnot {x.dtype}"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (refuses, "AssertionError: wants bfloat16"),
        (lambda x: x.view(torch.int16), "it looks at the bits of a floating tensor"),
        (lambda x: torch.FloatTensor([1.0]), "an output is still torch.float32"),
        (lambda x: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_computed_in_float64_says_why_in_a_line(run, reason):
    with pytest.raises(OracleUnavailable) as caught:
        run_widened(run, [BF16])
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)
    assert torch.get_default_dtype() is torch.float32
    assert torch.zeros(1, dtype=torch.float16).dtype is torch.float16


def test_what_replaces_torchs_functions_later_changes_nothing(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "double", lambda self: self.fill_(3))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_: self.fill_(3))
    assert run_widened(lambda x: x * 2, [BF16])[0] == 2


def test_a_nudge_moves_inputs_by_a_little_and_one_seed_always_alike():
    x = torch.ones(10_000, dtype=torch.float16)
    once, again = (run_widened(lambda x: x, [x], nudge=3) for _ in range(2))
    moved = (once - 1).std().item() / 2**-18
    assert 0.9 < moved < 1.1
    assert once.equal(again)
    assert not once.equal(run_widened(lambda x: x, [x], nudge=4))


DECIDED = {
    "a number": lambda x, y: x <= 0.5,
    "a method": lambda x, y: x.gt(0.5),
    "the magnitude": lambda x, y: x.abs() < 0.5,
    "another input": lambda x, y: x >= y,
    "some of another input": lambda x, y: (x[:, None] == y.sort().values).any(1),
    "what is exact in float32": lambda x, y: x * 2 - 1 > 0,
    "boundaries": lambda x, y: torch.bucketize(x, y.sort().values),
    "sorted boundaries": lambda x, y: torch.searchsorted(y.sort().values, x, right=True),
    "a whole number": lambda x, y: (4 * x).floor(),
    "an integer": lambda x, y: (4 * x).long(),
}
LIMITS = torch.tensor([0.5, -0.5, 0.25, 2.0]).repeat(64)


@pytest.mark.parametrize("nudge", [1, -1])
@pytest.mark.parametrize("decided", DECIDED)
def test_no_nudge_moves_an_input_across_what_it_is_compared_with(decided, nudge):
    run = lambda x, y: DECIDED[decided](x, y).float() * 3  # noqa: E731
    inputs = [LIMITS, LIMITS.clone()]
    assert run_widened(run, inputs, nudge=nudge).equal(run_widened(run, inputs))


COMPUTED = {
    "a quotient": lambda x: x / 3 > 1 / 6,
    "a probability": lambda x: torch.stack((x, x.roll(4))).softmax(0)[0] >= 0.5,
    "computed boundaries": lambda x: torch.bucketize(x * 3, x[:1].exp() * 1.5 / x[:1].exp()),
}


@pytest.mark.parametrize("computed", COMPUTED)
def test_a_nudge_moves_what_is_computed_across_a_number_that_it_is_compared_with(computed):
    run = lambda x: COMPUTED[computed](x + 0).float()  # noqa: E731
    runs = [run_widened(run, [LIMITS], nudge=seed) for seed in (1, -1)]
    assert any(not result.equal(run_widened(run, [LIMITS])) for result in runs)


def test_what_leans_are_distances_from_boundaries_that_are_computed():
    run = lambda x: torch.bucketize(x, torch.linspace(0, 1, 3) / 3 * 3 * x[:1] * 2)  # noqa: E731
    results = [run_widened(run, [LIMITS[:1]], lean=ways) for ways in ((-1, -1), (1, 1))]
    assert len({int(result) for result in results}) == 2


@pytest.mark.parametrize(
    "is_all", [lambda p: p >= 1, lambda p: p == 1.0, lambda p: not p < 1, lambda p: p > 0.5]
)
def test_no_nudge_moves_a_float_across_what_python_compares_it_with(is_all):
    x = torch.ones(3)

    def run(x, p):
        return x * (0.0 if is_all(p) else 1 / (1 - p))

    assert [float(run_widened(run, [x, 1.0], nudge=seed).abs().max()) for seed in (1, -1)] == [0, 0]
    moved = [run_widened(lambda p: torch.tensor([1.0]) * p, [1.0], nudge=s) for s in (-1, 1)]
    assert moved[0] < 1 < moved[1]


def test_no_nudge_tells_equal_numbers_apart():
    """Ranks of what ties are those of one number: no honest kernel gives others."""
    numbers = LIMITS[:16] * 1.0
    for of in (lambda x: x, lambda x: x.view(4, 4)):
        ranks = lambda x, of=of: torch.unique(of(x), return_inverse=True)[1] * 1.0  # noqa: E731
        with pytest.raises(OracleUnavailable, match="equal numbers"):
            run_widened(ranks, [numbers], nudge=1)
    rows = lambda x: torch.unique(x.view(4, 4), dim=0, return_inverse=True)[1] * 1.0  # noqa: E731
    with pytest.raises(OracleUnavailable, match="equal numbers"):
        run_widened(rows, [numbers], nudge=1)
    whole = lambda x: torch.unique((x * 4).long(), return_inverse=True)[1] * 1.0  # noqa: E731
    assert run_widened(whole, [numbers], nudge=1).equal(run_widened(whole, [numbers]))


def test_a_nudge_that_leads_another_way_is_as_it_is():
    """One of the computed is left out, so what follows is compared with fewer."""
    run = lambda x: (x[x / 3 > 1 / 6] >= 0.5).float().sum(0, keepdim=True)  # noqa: E731
    x = torch.full((100,), 0.5)
    assert 0 < run_widened(run, [x], nudge=1) < 100


def test_narrow_operands_move_products_by_what_rounding_their_operands_may():
    weights = torch.full((1, 64), 1 / 3)
    values = torch.ones(64, 2).bfloat16()
    inputs = [values, weights]

    def run(values, weights):
        return torch.matmul(weights.float(), values.float())

    exact, moved = run_widened(run, inputs), run_widened(run, inputs, narrow_operands=True)
    assert torch.allclose(moved - exact, torch.tensor(2**-8 * 64**0.5 / 3).double())


def test_operands_that_need_no_rounding_are_not_moved():
    run = lambda x: torch.einsum("i,i->", x, x)  # noqa: E731
    assert run_widened(run, [BF16], narrow_operands=True) == run_widened(run, [BF16])


def mask_of_what_ties():
    return torch.zeros(4, dtype=torch.bool).scatter(0, torch.ones(4).topk(2).indices, True)


@pytest.mark.parametrize("how", list(chain.from_iterable(YARDSTICKS)))
def test_every_yardstick_runs(how):
    def run(x):
        return (x @ x / 3).round().float() + mask_of_what_ties()

    assert run_widened(run, [BF16], **how).dtype is torch.float64


@pytest.mark.parametrize(
    ("what_breaks", "how"),
    [
        ("_rounding.moved_result", {"moved": 1}),
        ("_rounding.decider", {"lean": (1, 1)}),
        ("_widen._displaced", {"narrow_operands": True}),
    ],
)
def test_what_fails_where_the_reference_does_not_is_our_own_fault(monkeypatch, what_breaks, how):
    monkeypatch.setattr(f"pytest_fib.sandbox.{what_breaks}", lambda *arguments: 1 // 0)
    with pytest.raises(VariationError, match="ZeroDivisionError"):
        run_widened(lambda x: x @ x, [BF16], **how)


def test_what_the_reference_can_not_do_with_a_varied_number_is_its_own():
    pick = lambda x: torch.ones(7)[9 - int((x / 3).floor())]  # noqa: E731
    assert run_widened(pick, [torch.tensor([9.0])]) == 1
    with pytest.raises(OracleUnavailable, match="IndexError"):
        run_widened(pick, [torch.tensor([9.0])], lean=(-1, -1))


def test_a_reference_that_decides_more_often_each_time_is_no_fault():
    calls = []

    def run(x):
        calls.append(x)
        return torch.stack([(x / 3).round() for _ in calls])

    with pytest.raises(OracleUnavailable, match="same decisions"):
        run_widened(run, [torch.tensor([7.5])], lean=(1, 1))


@pytest.mark.parametrize("how", list(chain.from_iterable(YARDSTICKS)))
def test_inputs_may_have_gaps(how):
    def run(x):
        return (x * 3).bfloat16().round() + mask_of_what_ties().any()

    with_gaps = run_widened(run, [BF16.repeat_interleave(2)[::2]], **how)
    assert torch.equal(with_gaps, run_widened(run, [BF16.clone()], **how))


def test_rounded_operands_are_rounded_and_what_the_dtype_holds_is_not():
    def run(a, b):
        return (a * 3) @ b.T

    a, b = (torch.randn(4, 8, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    a, b = a.bfloat16(), b.bfloat16()
    expected = (a.double() * 3).bfloat16().double() @ b.double().T
    assert torch.equal(run_widened(run, [a, b], round_operands=True), expected)
    assert not torch.equal(run_widened(run, [a, b]), expected)
    right = run_widened(lambda a, b: a @ b.T, [a, b])
    assert torch.equal(run_widened(lambda a, b: a @ b.T, [a, b], round_operands=True), right)


def test_operands_beyond_what_the_dtype_holds_are_not_rounded_to_infinity():
    a = torch.full((2, 2), 300.0, dtype=torch.float16)
    made = run_widened(lambda a: (a * a) @ a, [a], round_operands=True)
    assert torch.equal(made, torch.full((2, 2), 2 * 300.0**3, dtype=torch.float64))
