"""Tests written by hand: a function and a fixture that judge as kernel items do."""

import json
import math
import subprocess
import sys
from itertools import groupby
from time import sleep

import pytest
import torch

from pytest_fib.data import Definition, DefinitionError, Workload
from pytest_fib.testing import assert_kernel_close
from tests.conftest import SCALE as SCALE_YAML
from tests.workloads.signatures import signature

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


# What is under test where the tests below are read as an example.
def scale(x, factor):
    return (x.float() * factor).to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 128, 1000])
def test_a_scale_kernel_reads_naturally(dtype, n):
    x = torch.randn(n, dtype=dtype)
    assert_kernel_close(scale(x, 2.5), x.double() * 2.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("n", [1, 128, 1000])
def test_a_scale_kernel_with_a_definition_reads_naturally(kernel_check, dtype, n):
    kernel_check(f"kernel_defs/scale/scale.yaml::scale_{dtype}", scale, axes={"n": n})


# --- assert_kernel_close ------------------------------------------------------------------------


def refusal(actual, expected, **more):
    with pytest.raises(AssertionError) as caught:
        assert_kernel_close(actual, expected, **more)
    return str(caught.value)


def test_a_failure_says_what_where_and_how_much():
    expected = torch.ones(4, 64, dtype=torch.float64)
    actual = expected.float()
    actual[1, 2] = 1.5
    assert refusal(actual, expected, name="out") == (
        "INCORRECT_NUMERICAL: out: wrong in one element; out[1, 2] got 1.5, expected 1,\n"
        "  allowed ±3.8e-06\n"
        "\n"
        "  wrong           1 of 256 elements of out (0.391 %)\n"
        "  largest error   absolute 0.5, relative 0.5; 131000 times the bound\n"
        "\n"
        "  out[1, 2] got 1.5, expected 1, allowed ±3.8e-06"
    )


def test_expected_values_may_be_rounded_already():
    expected = torch.randn(64, 64).half()
    assert_kernel_close(expected.clone(), expected)
    assert "got" in refusal(expected * 1.05, expected)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (torch.ones(3), torch.ones(4), "INCORRECT_SHAPE: output: got [3], expected [4]"),
        (
            torch.ones(3),
            torch.ones(3).half(),
            "INCORRECT_DTYPE: output: got float32, expected float16; compute it in float64, as "
            "with expected.double(), or, where it is to be of the kernel's own, "
            "expected.to(torch.float32)",
        ),
        (
            torch.ones(3).int(),
            torch.ones(3).double(),
            "INCORRECT_DTYPE: output: got int32, expected float64",
        ),
        (
            torch.ones(3),
            torch.ones(3, device="meta"),
            "RUNTIME_ERROR: output is on the wrong device: got cpu, expected meta",
        ),
    ],
)
def test_shape_dtype_and_device_are_compared_first(actual, expected, message):
    assert refusal(actual, expected) == message


def test_tolerances_are_those_given():
    expected = torch.randn(64, 64, dtype=torch.float64)
    assert_kernel_close((expected * 1.09).float(), expected, rtol=0.1)
    assert_kernel_close((expected + 0.09).float(), expected, atol=0.1)
    wrong = expected.float()
    wrong[:2] = 9
    assert_kernel_close(wrong, expected, matched_ratio=0.96)
    refusal(wrong, expected, matched_ratio=0.97)
    refusal((expected * (1 + 1e-6)).float(), expected, exact=True)
    assert_kernel_close(expected.float(), expected, exact=True)


def test_where_an_honest_result_is_off_another_may_be():
    expected = torch.full((1, 64), 1e-9, dtype=torch.float64)
    own = (expected + 1e-6).float()
    actual = (expected - 1e-6).float()
    refusal(actual, expected)
    assert_kernel_close(actual, expected, own=own)


def test_nan_equals_itself():
    expected = torch.tensor([math.nan, 1.0], dtype=torch.float64)
    assert_kernel_close(expected.float(), expected)
    refusal(torch.ones(2), expected)


def test_a_failure_is_where_the_assertion_is_and_shows_no_tensor(project):
    project.write(
        "test_it.py",
        """\
        import torch
        from pytest_fib.testing import assert_kernel_close

        def half(x):
            return x.half()

        def test_wrong():
            x = torch.ones(100)
            assert_kernel_close(half(x), x)

        def test_raising(kernel_check):
            kernel_check("scale", lambda x, factor: half(x, factor))
        """,
    )
    project.define(SCALE_YAML)
    result = project.run("test_it.py")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["test_it.py:9: AssertionError", "test_it.py:12: TypeError"])
    text = result.stdout.str()
    assert "tensor(" not in text.partition("_ test_raising _")[0]
    assert "contextlib" not in text
    assert "pytest_fib/engine" not in text


SHARES_YAML = """\
name: shares
op_type: elementwise
axes: {n: var}
inputs: {x: {shape: [n], dtype: bfloat16}}
outputs: {y: {shape: [n], dtype: bfloat16}}
reference: |
  def run(x):
      return (x.float() / x.float().sum()).to(x.dtype)
workloads: {inputs: {x: {kind: uniform}}}
"""


@pytest.mark.thorough
def test_triton_kernels_are_interpreted_where_there_is_no_gpu(project):
    project.write(
        "test_it.py",
        """\
        import torch
        import triton
        import triton.language as tl

        @triton.jit
        def kernel(x, y, n, BLOCK: tl.constexpr):
            at = tl.arange(0, BLOCK)
            value = tl.load(x + at, mask=at < n, other=0).to(tl.float32)
            tl.store(y + at, value / tl.sum(value), mask=at < n)

        def test_it(kernel_check):
            def shares(x):
                y = torch.empty_like(x)
                kernel[(1,)](x, y, len(x), BLOCK=64)
                return y

            kernel_check("shares", shares, axes={"n": 50})
        """,
    )
    project.define(SHARES_YAML)
    project.run_apart("test_it.py", "--fib-device=cpu").assert_outcomes(passed=1)


# --- kernel_check -------------------------------------------------------------------------------

SCALE = {
    "name": "scale",
    "op_type": "scale",
    "axes": {"n": "var"},
    "inputs": {
        "x": {"shape": ["n"], "dtype": "float16"},
        "factor": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["n"], "dtype": "float16"}},
    "reference": "def run(x, factor):\n    return (x.float() * factor).to(x.dtype)\n",
    "workloads": {"axes": {"n": {"max": 300}}, "inputs": {"factor": {"value": 3.0}}},
}


@pytest.fixture
def definition():
    return Definition.model_validate(SCALE)


def complaint(kernel_check, *arguments, **more):
    with pytest.raises(AssertionError) as caught:
        kernel_check(*arguments, **more)
    return str(caught.value)


def test_a_right_function_passes_on_drawn_workloads(kernel_check, definition):
    calls = []
    kernel_check(definition, lambda x, factor: calls.append(len(x)) or scale(x, factor), examples=9)
    # With three small ones for each; two calls, and after a few workloads one on other values.
    assert 2 * 4 * 9 < len(calls) < 3 * 4 * 9
    assert all(len([*alike]) > 1 for _, alike in groupby(calls))
    assert len(set(calls)) > 3


def test_what_the_reference_writes_to_may_be_written_to(kernel_check, definition):
    reference = "def run(x, factor):\n    return x.mul_(factor).clone()\n"
    writing = definition.model_copy(update={"reference": reference})
    kernel_check(writing, lambda x, factor: x.mul_(factor).clone(), examples=3)


def tail(x, factor):
    y = scale(x, factor)
    y[100:] = 0
    return y


def test_a_wrong_function_is_told_with_the_smallest_workload(kernel_check, definition):
    text = complaint(kernel_check, definition, tail, examples=20)
    line, _, rest = text.partition("\n")
    assert line == "INCORRECT_NUMERICAL: y: zeros at n 100..298"
    assert "\n  pattern         seen at n=299; factor 3; normal values, seed 0\n" in rest
    assert "\n  y[100] got 0, expected " in rest
    assert "\n  workload        n=101; factor 3; normal values, seed 0  (the smallest" in rest
    assert "  implementation  tail  tests/test_testing.py:" in rest
    assert "  wrong           1 of 101 elements of y (0.99 %)\n" in rest
    assert "\nreplay:\n  kernel_check('scale', tail, workload={'axes': {'n': 101}})\n" in rest
    assert rest.endswith(":\n  kernel_check('scale', tail, workload={'axes': {'n': 299}})")


def test_what_was_inferred_of_inputs_is_told(kernel_check, definition):
    dumped = definition.model_dump(exclude={"workloads"})
    dumped["inputs"] = {"x": dumped["inputs"]["x"], "at": {"shape": ["n"], "dtype": "int64"}}
    dumped["reference"] = "def run(x, at):\n    return x[at]\n"
    picking = Definition.model_validate(dumped)
    text = complaint(kernel_check, picking, lambda x, at: x[at] + 1)
    assert "  inferred        at (numbers along an axis that the reference indexes with it)" in text


def test_the_workload_may_be_given(kernel_check, definition):
    kernel_check(definition, tail, axes={"n": 100})
    kernel_check(definition, tail, workload={"axes": {"n": 100}, "regime": {"values": "wide"}})
    kernel_check(definition, tail, workload=Workload(axes={"n": 100}, inputs={}, seed=5))
    text = complaint(kernel_check, definition, tail, axes={"n": 102}, workload={"seed": 4})
    assert "n=102; factor 3; normal values, seed 4\n" in text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, factor: scale(x, factor)[1:], "INCORRECT_SHAPE: y: got [7], expected [8]"),
        (lambda x, factor: x.float(), "INCORRECT_DTYPE: y: got float32, expected float16"),
        (lambda x, factor: x.mul_(factor), "RUNTIME_ERROR: wrote to its input 'x'"),
        (lambda x, factor: (x, x), "RUNTIME_ERROR: returned 2 values for 1 output (y)"),
    ],
)
def test_what_is_no_output_is_told_as_of_kernel_items(kernel_check, definition, function, message):
    text = complaint(kernel_check, definition, function, axes={"n": 8})
    assert text.partition("\n")[0] == message


def test_memory_that_is_returned_again_may_hold_a_constant_but_not_the_next_result(
    kernel_check, definition
):
    buffer = torch.empty(1 << 17, dtype=torch.float16)

    def overwriting(x, factor):
        return buffer[: len(x)].copy_(scale(x, factor))

    text = complaint(kernel_check, definition, overwriting)
    said = "RUNTIME_ERROR: y: overwritten by the next call; return new memory each time"
    assert text.startswith(said)
    known = {}

    def remembering(x, factor):
        return known.setdefault((x.sum().item(), len(x)), scale(x, factor))

    kernel_check(definition, remembering, axes={"n": 100})


def test_what_is_remembered_by_shape_is_wrong_for_other_values(kernel_check, definition):
    known = {}

    def remembering(x, factor):
        return known.setdefault(x.shape, scale(x, factor)).clone()

    for given in ({}, {"axes": {"n": 100}}):
        text = complaint(kernel_check, definition, remembering, **given)
        said = text.replace("\n ", "").partition("\n")[0]
        assert said.startswith("INCORRECT_NUMERICAL: y: ")
        assert "(on a second call of the same shapes with other values)" in said


def test_of_one_element_the_same_twice_is_not_remembered(kernel_check):
    """The only element is always lost, so that calls with other values give the same."""
    masked = {
        "name": "masked",
        "op_type": "other",
        "axes": {"n": "var"},
        "inputs": {
            "x": {"shape": ["n"], "dtype": "int32"},
            "keep": {"shape": ["n"], "dtype": "bool"},
        },
        "outputs": {"total": {"shape": ["n"], "dtype": "int64"}},
        "reference": "def run(x, keep):\n    return (keep * 1).cumsum(0)\n",
        "workloads": {"inputs": {"x": {"kind": "integers", "max": 9}}},
    }
    definition = Definition.model_validate(masked)

    def without_first(x, keep):
        return (keep * 1).cumsum(0) - keep[0] * 1

    workload = {"axes": {"n": 1}, "seed": 56}
    text = complaint(kernel_check, definition, without_first, workload=workload)
    assert "second call" not in text.partition("\n\n")[0]


def test_counts_of_a_few_elements_that_are_the_same_twice_are_not_remembered(kernel_check):
    """Float32 rounds a number to the next power of two, which it had for another one before."""
    counted = {
        "name": "bit_lengths",
        "op_type": "other",
        "axes": {"n": "var", "lengths": 33},
        "inputs": {"x": {"shape": ["n"], "dtype": "int32", "description": "any bits"}},
        "outputs": {"counts": {"shape": ["lengths"], "dtype": "int64"}},
        "reference": (
            "import torch\n"
            "def run(x):\n"
            "    length = torch.frexp(x.double()).exponent.long()\n"
            "    return torch.bincount(length, minlength=33)\n"
        ),
    }
    definition = Definition.model_validate(counted)

    def of_float32(x):
        return torch.bincount(torch.frexp(x.float()).exponent.long(), minlength=33)

    text = complaint(kernel_check, definition, of_float32, workload={"axes": {"n": 1}})
    assert "second call" not in text.partition("\n\n")[0]


def test_what_the_function_raises_comes_through(kernel_check, definition):
    with pytest.raises(ZeroDivisionError):
        kernel_check(definition, lambda x, factor: 1 / 0)


def test_where_the_reference_raises_too_the_function_is_not_at_fault(kernel_check):
    reference = SCALE["reference"].replace("return", "assert len(x) > 1\n    return")
    definition = Definition.model_validate({**SCALE, "reference": reference})
    told = r"^the reference of scale failed: AssertionError, at axes \{'n': 1\}"
    for function in (lambda x, factor: 1 / (len(x) - 1), lambda x, factor: x[1:]):
        with pytest.raises(DefinitionError, match=told):
            kernel_check(definition, function, axes={"n": 1})


def test_a_function_that_is_not_repeatable_fails(kernel_check, definition):
    calls = []

    def shaky(x, factor):
        calls.append(1)
        y = scale(x, factor)
        y[0] *= 1 + len(calls) % 2 * 2.0**-10
        return y

    text = complaint(kernel_check, definition, shaky, axes={"n": 8})
    assert text.startswith(
        "INCORRECT_NUMERICAL: y: two calls on the same inputs gave other bits in 1"
    )
    free = definition.model_copy(update={"nondeterministic": True})
    kernel_check(free, shaky, axes={"n": 8})


def test_a_definition_that_no_workload_can_be_made_of_is_told(kernel_check, definition):
    data = definition.model_dump(by_alias=True)
    never = Definition.model_validate({**data, "constraints": ["n >= 9", "n <= 5"]})
    with pytest.raises(ValueError, match=r"no value meets 'n >= 9' and 'n <= 5'$"):
        kernel_check(never, scale)


def test_other_ways_of_calling(kernel_check, definition):
    def into(x, factor, y):
        y.copy_(x.float() * factor)

    kernel_check(definition, into, calling="destination")
    kernel_check(definition, lambda both: into(both[0], both[1], both[2]), calling="tuple")
    text = complaint(
        kernel_check, definition, lambda x, f, y: None, calling="destination", axes={"n": 8}
    )
    assert text.startswith("INCORRECT_NUMERICAL: y: never written\n")


def test_other_numbers_with_which_the_reference_has_other_shapes_say_nothing(kernel_check):
    given = signature(
        "sums", "edges nodes d=8", "x[edges,d]:f32 index[edges]:i64 size:i32", "out[nodes,d]:f32",
        "size == nodes",
    )  # fmt: skip
    body = "torch.zeros(size, x.shape[1]).index_add(0, index, x)"
    given["reference"] = f"import torch\ndef run(x, index, size):\n    return {body}\n"

    def twice(x, index, size):
        return torch.zeros(size, x.shape[1]).index_add(0, index, 2 * x)

    with pytest.raises(AssertionError, match="2 x expected"):
        kernel_check(Definition.model_validate(given), twice)


def test_a_reference_that_needs_its_own_dtype_is_run_in_that(kernel_check):
    strict = SCALE["reference"].replace(
        "return", "assert str(x.dtype) == 'torch.float16'\n    return"
    )
    definition = Definition.model_validate({**SCALE, "reference": strict})
    kernel_check(definition, scale)
    complaint(kernel_check, definition, tail, axes={"n": 200})


def test_definitions_are_found_by_name_and_file(toys):
    toys.write(
        "test_it.py",
        """\
        import pytest

        def run(x, factor):
            return x * factor

        @pytest.mark.parametrize("which", ["scale", "kernel_defs/toy/scale.yaml"])
        def test_right(kernel_check, which):
            kernel_check(which, run)

        def test_wrong(kernel_check):
            kernel_check("scale", lambda x, factor: x)

        def test_unknown(kernel_check):
            kernel_check("scales", run)
        """,
    )
    result = toys.run("test_it.py", "-q")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*INCORRECT_NUMERICAL: y: equal to the input x everywhere",
            "*  y[[]0] got *, expected *, allowed *",
            "*LookupError: no definition 'scales'; did you mean 'scale'? There are: scale, split",
        ]
    )


def test_the_plugin_does_not_import_it():
    code = (
        "import sys, pytest_fib.plugin; "
        "print({'torch', 'hypothesis', 'pytest_fib.testing'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "set()\n"


# --- it draws what items draw --------------------------------------------------------------------

MASKED_SOFTMAX = """\
name: masked_softmax
op_type: softmax
axes: {rows: var, n: var}
inputs:
  x:    {shape: [rows, n], dtype: float32}
  mask: {shape: [rows, n], dtype: bool}
outputs:
  y: {shape: [rows, n], dtype: float32}
reference: |
  import torch
  def run(x, mask):
      return x.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(1 / x.shape[1])
workloads:
  axes:   {rows: {max: 64}, n: {max: 512}}
  inputs: {mask: {kind: boolean, p: 0.1}}
"""
#: -60000 for -inf: wrong in rows whose true elements are all below that, which few workloads have.
MASKED_WITH_A_NUMBER = "x.masked_fill(~mask, -60000.0).softmax(-1)"


@pytest.fixture
def masked(project):
    project.define(MASKED_SOFTMAX, "kernel_defs/toy/masked_softmax.yaml")
    project.write(
        "test_it.py",
        f"""\
        def run(x, mask):
            run.calls += 1
            return {MASKED_WITH_A_NUMBER}

        def test_it(kernel_check):
            run.calls = 0
            try:
                kernel_check("masked_softmax", run)
            finally:
                print("calls", run.calls)
        """,
    )
    return project


def test_kernel_check_fails_where_an_item_does(masked):
    masked.implement("number", f"x, mask\nreturn {MASKED_WITH_A_NUMBER}", "masked_softmax")
    default = ("--fib-examples=25", "--fib-isolation=none")
    masked.run("--fib-definition=masked_softmax", *default).assert_outcomes(failed=1)
    masked.run("test_it.py", "--fib-examples=1").assert_outcomes(passed=1)  # too few to find it
    result = masked.run("test_it.py", *default)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*INCORRECT_NUMERICAL: y: *"])


def test_kernel_check_obeys_the_options_of_items(masked):
    masked.write(
        "test_it.py",
        """\
        def test_it(kernel_check):
            sizes = []
            def run(x, mask):
                sizes.append(tuple(x.shape))
                return x.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(1 / x.shape[1])
            kernel_check("masked_softmax", run)
            print("calls", len(sizes), "largest", max(n * m for n, m in sizes), sizes)
        """,
    )

    def printed(*options):
        result = masked.run("test_it.py", "-s", *options)
        result.assert_outcomes(passed=1)
        (line,) = [line for line in result.outlines if "largest" in line]
        _, calls, _, largest, sizes = line[line.index("calls") :].split(" ", 4)
        return int(calls), int(largest), sizes

    assert 2 * 4 * 3 <= printed("--fib-examples=3")[0] < 3 * 4 * 3
    assert printed("--fib-examples=12")[0] > 2 * 4 * 8
    assert printed("--fib-examples=12")[1] > 2000
    assert printed("--fib-examples=12", "--fib-max-bytes=20kB")[1] <= 2000
    assert printed("--fib-examples=12", "--fib-seed=1")[2] != printed("--fib-examples=12")[2]


def test_a_workload_whose_tensors_are_all_empty_ends_with_a_verdict(kernel_check):
    data = {**SCALE, "workloads": {"axes": {"n": {"min": 0, "max": 0}}}}
    empty = Definition.model_validate(data)
    slow = []

    def run(x, factor):
        slow.append(sleep(0.11))  # what a search takes note of
        return scale(x, factor)

    kernel_check(empty, run, examples=4)
    assert slow
    text = complaint(kernel_check, empty, lambda x, factor: x.float(), examples=4)
    assert text.startswith("INCORRECT_DTYPE: y: got float32, expected float16")


def test_the_room_of_hand_written_tests_needs_no_plugin():
    code = (
        "import sys, pytest_fib.testing; "
        "print([name for name in sys.modules if name.startswith('pytest_fib.plugin')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (3.0, 3.0),
        ([1.0, 2.0], (1.0, 2.0)),
        (torch.ones(2), [1.0, 1.0]),
        (torch.tensor([1, 2]), [1, 2]),
        (torch.ones(2).numpy(), torch.ones(2).double().numpy()),
    ],
)
def test_numbers_lists_and_arrays_are_compared_too(actual, expected):
    assert_kernel_close(actual, expected)
    with pytest.raises(AssertionError, match=r"^INCORRECT_NUMERICAL: output: "):
        assert_kernel_close(actual, (torch.as_tensor(expected) + 1).tolist())


@pytest.mark.parametrize(
    ("arguments", "more", "error", "message"),
    [
        ((None, 1.0), {}, TypeError, r"actual \(NoneType\) should be a tensor, an array"),
        ((1.0, "x"), {}, TypeError, r"expected \(str\) should be a tensor"),
        (({"y": torch.ones(1)}, 1.0), {}, TypeError, r"actual \(dict\) should be a tensor"),
        (((torch.ones(2), torch.ones(3)), 1.0), {}, TypeError, r"actual \(tuple\) should be"),
        ((1.0, 1.0), {"matched_ratio": 2}, ValueError, "matched_ratio: should be at most 1, not 2"),
        ((1.0, 1.0), {"matched_ratio": 0}, ValueError, "matched_ratio: should be above 0, not 0"),
        ((1.0, 1.0), {"exact": True, "rtol": 1}, ValueError, "tolerance: .*exact can't be"),
        ((1.0, 1.0), {"rtol": -1}, ValueError, "^rtol: should be at least 0, not -1$"),
    ],
)
def test_what_can_not_be_compared_is_told_in_a_line(arguments, more, error, message):
    with pytest.raises(error, match=f"^{message}"):
        assert_kernel_close(*arguments, **more)


def test_where_nothing_may_differ_no_bound_is_told():
    text = refusal(torch.tensor([1, 2]), [1, 3])
    assert "  largest error   absolute 1, relative 0.333; nothing may differ" in text
    text = refusal(torch.tensor([1, 5]), [1, 3], atol=1, rtol=0)
    assert "  largest error   absolute 2, relative 0.667; more than the bound" in text


def test_mistakes_in_the_test_are_told_at_its_own_line(toys):
    toys.write(
        "test_by_hand.py",
        """\
        import pytest


        @pytest.mark.parametrize(
            ("name", "more"),
            [
                ("scales", {}),
                ("scale", {"axes": {"m": 1}}),
                ("scale", {"axes": {}}),
                ("scale", {"workload": {"axs": {}}}),
                ("scale", {"calling": "dest"}),
                (max, {}),
                ("scale", {"function": "scale"}),
            ],
        )
        def test_by_hand(kernel_check, name, more):
            kernel_check(name, **{"function": lambda x, factor: x * factor, **more})
        """,
    )
    result = toys.run("test_by_hand.py")
    result.assert_outcomes(failed=7)
    result.stdout.no_fnmatch_line("*_lookup.py*")
    result.stdout.no_fnmatch_line("*_make.py*")
    result.stdout.no_fnmatch_line("*_calling.py*")
    result.stdout.fnmatch_lines(
        [
            "E * no definition 'scales'; did you mean 'scale'? *",
            "test_by_hand.py:17: LookupError",
            "E * axes: 'm' is not one of n",
            "test_by_hand.py:17: ValueError",
            "E * no value for axis 'n'",
            "E * a workload: 'axs' is not one of axes, seed, regime, inputs",
            "E * calling: 'dest' is not one of value, destination, tuple",
            "E * definition: builtin_function_or_method is not the name of a definition, *",
            "E * function: 'scale' can't be called",
        ]
    )


def test_a_function_is_told_with_its_path_and_a_command_that_python_reads(toys):
    toys.write(
        "tests/test_by_hand.py",
        """\
        def test_by_hand(kernel_check):
            kernel_check("scale", lambda x, factor: x, axes={"n": 1})
        """,
    )
    result = toys.run("tests")
    result.stdout.fnmatch_lines(
        [
            "E * implementation  <lambda>  tests/test_by_hand.py:2",
            """E * kernel_check('scale', ..., workload={'axes': {'n': 1}})""",
        ]
    )


BY_HAND = """\
import pytest

def run(x, factor):
    return x * factor

def wrong(x, factor):
    return x + factor

def raising(x, factor):
    raise ValueError("not yet")

def test_right(kernel_check):
    kernel_check("scale", run)

def test_wrong(kernel_check):
    kernel_check("scale", run)
    kernel_check("scale", wrong)

def test_raising(kernel_check):
    kernel_check("scale", raising)
"""


#: An outer product of its rows, where there is more than one: of 8 bytes each, n x n elements.
OUTER = """\
import torch

def run(x, factor):
    if len(x) > 1:
        torch.empty({size}, dtype=torch.uint8)
    return x * factor
"""
TOO_MUCH = 1 << 50


def test_drawn_workloads_that_the_reference_has_no_memory_for_are_passed_over(kernel_check):
    definition = Definition.model_validate({**SCALE, "reference": OUTER.format(size=TOO_MUCH)})
    kernel_check(definition, scale, examples=5)
    with pytest.raises(DefinitionError, match=r"scale failed: RuntimeError: .*axes \{'n': 7\}"):
        kernel_check(definition, scale, axes={"n": 7})


def test_a_function_without_memory_has_failed_unless_the_reference_takes_much_too(
    kernel_check, monkeypatch
):
    def hungry(x, factor):
        return scale(x, factor) + 0 * len(torch.empty(TOO_MUCH if len(x) > 1 else 1))

    message = complaint(kernel_check, Definition.model_validate(SCALE), hungry, examples=5)
    assert "RUNTIME_ERROR: RuntimeError: " in message
    # Where one takes much, the other may take more than there is.
    much = {**SCALE, "reference": OUTER.format(size=0).replace("empty(0", "ones(128 << 20")}
    monkeypatch.setattr("pytest_fib.engine._reference_costs.MEMORY_FACTOR", 0.1)
    kernel_check(Definition.model_validate(much), hungry, examples=5)


@pytest.mark.parametrize("more", [(), pytest.param(("-n", "2"), marks=pytest.mark.thorough)])
def test_each_check_leaves_a_trace_as_an_item_does(scale, more):
    scale.write("test_it.py", BY_HAND)
    result = (scale.run_apart if more else scale.run)("test_it.py", *more)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["4 trace records in fib-traces.jsonl"])
    found = sorted((t["solution"], t["evaluation"]["status"]) for t in scale.traces())
    assert found == [
        ("raising", "RUNTIME_ERROR"),
        ("run", "PASSED"),
        ("run", "PASSED"),
        ("wrong", "INCORRECT_NUMERICAL"),
    ]
    assert {t["definition_file"] for t in scale.traces()} == {"kernel_defs/toy/scale.yaml"}


def test_a_call_that_the_function_can_not_take_is_told_at_the_test(scale):
    scale.write(
        "test_it.py",
        """\
        def test_few(kernel_check):
            kernel_check("scale", lambda x: x)
        """,
    )
    result = scale.run("test_it.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E  *TypeError: *takes 1 positional argument but 2 were given", "test_it.py:2: TypeError"]
    )
    assert "pytest_fib/" not in result.stdout.str().partition("_ test_few _")[2]
    [trace] = scale.traces()
    assert trace["evaluation"]["status"] == "RUNTIME_ERROR"


def test_checks_obey_the_options_that_items_obey(scale):
    scale.write("test_it.py", BY_HAND)
    sizes = "--fib-workload", '{"axes": {"n": 7}}'
    scale.run("test_it.py", *sizes).assert_outcomes(passed=1, failed=2)
    assert [t["workload"]["axes"] for t in scale.traces()] == [{"n": 7}] * 4
    result = scale.run("test_it.py", "--fib-implementation=good", "-rs")
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(["*selects other implementations than run"])
    scale.run("test_it.py", "--fib-keep-failures").assert_outcomes(passed=1, failed=2)
    [kept] = (scale.path / "kernel_defs/toy/scale.workloads.jsonl").read_text().splitlines()
    assert json.loads(kept)["workload"]["axes"] == {"n": 1}
