"""The strategies under Hypothesis' own engine, as tests written by hand use them."""

import pytest
import torch
from hypothesis import example, find, given, settings, strategies as st
from hypothesis.errors import NoSuchExample

from pytest_fib.data import Definition
from pytest_fib.strategies import inputs, workloads
from pytest_fib.workloads import in_domain, make_workload, workload_bytes

RMSNORM = "kernel_defs/rmsnorm/rmsnorm_d4096.yaml"
QUICK = settings(max_examples=20, deadline=None)
#: Some shrinking steps are random; these are enough of them, and the same ones every time.
SURE = settings(max_examples=500, deadline=None, database=None, derandomize=True)


def elementwise(axes, constraints=(), domains=None):
    matrix = {"shape": list(axes), "dtype": "float32"}
    return Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": dict.fromkeys(axes, "var"),
            "constraints": list(constraints),
            "inputs": {"x": matrix, "z": matrix},
            "outputs": {"y": matrix},
            "reference": "def run(x, z): ...",
            "workloads": {"axes": domains or {}},
        }
    )


VECTOR, MATRIX = elementwise("n"), elementwise("mn")


# --- What is drawn ------------------------------------------------------------------------------


@QUICK
@given(workloads("rmsnorm_d4096"), workloads(RMSNORM), workloads(f"{RMSNORM}::rmsnorm_d4096"))
def test_a_name_and_a_file_give_workloads_of_the_definition(named, in_file, named_in_file):
    assert {*named.axes} == {*in_file.axes} == {*named_in_file.axes} == {"batch"}


@QUICK
@given(workloads(elementwise("mn", ["m == 2 * n", "n % 3 == 0"]), max_bytes=1 << 16))
def test_workloads_meet_the_constraints_and_the_budget(workload):
    definition = elementwise("mn", ["m == 2 * n", "n % 3 == 0"])
    assert in_domain(definition, workload.axes)
    assert workload_bytes(definition, workload.axes) <= 1 << 16


@QUICK
@given(st.data(), st.lists(workloads(VECTOR), max_size=3), inputs(MATRIX).map(len))
def test_strategies_can_be_nested_mapped_and_filtered(data, several, count):
    small = workloads(VECTOR).filter(lambda w: w.axes["n"] < 1000)
    assert data.draw(small).axes["n"] < 1000
    assert all({*workload.axes} == {"n"} for workload in several)
    assert count == 2


@QUICK
@example(make_workload(VECTOR, {"n": 7}))
@given(workloads(VECTOR))
def test_an_explicit_example_is_a_workload(workload):
    assert workload.axes["n"] >= 1


@QUICK
@given(inputs("gemm_n128_k72_bfloat16", max_bytes=1 << 20))
def test_inputs_are_tensors_by_name(tensors):
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())
    assert {tensor.device.type for tensor in tensors.values()} == {"cpu"}


@QUICK
@given(inputs("scale_float32"))
def test_scalars_are_among_the_inputs(arguments):
    assert arguments["x"].dtype is torch.float32
    assert isinstance(arguments["factor"], float)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@QUICK
@given(inputs(VECTOR, device="cuda"))
def test_inputs_are_made_on_the_device_that_is_asked_for(tensors):
    assert tensors["x"].is_cuda


# --- Shrinking ----------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [2, 65, 129, 1000, 4097])
def test_a_failure_is_shrunk_to_the_smallest_size(least):
    workload = find(workloads(VECTOR), lambda w: w.axes["n"] >= least, settings=SURE)
    assert workload == make_workload(VECTOR, {"n": least})


def test_a_failure_is_shrunk_to_the_plainest_values_that_fail():
    workload = find(
        workloads(MATRIX),
        lambda w: w.regime.get("values") == "outlier" and w.axes["m"] > 16,
        settings=SURE,
    )
    assert workload == make_workload(MATRIX, {"m": 17, "n": 1}, 0, {"values": "outlier"})


def test_a_failure_of_inputs_is_shrunk_too():
    tensors = find(inputs(VECTOR), lambda t: len(t["x"]) > 64, settings=SURE)
    assert len(tensors["x"]) == 65


def test_one_beside_a_multiple_of_a_tile_is_found():
    workload = find(workloads(VECTOR), lambda w: w.axes["n"] % 128 == 1 and w.axes["n"] > 1)
    assert workload.axes == {"n": 129}


# --- What can't be drawn ------------------------------------------------------------------------


def refusal(error, strategy):
    with pytest.raises(error) as caught:
        find(strategy, lambda workload: True)
    return str(caught.value)


def test_a_strategy_of_an_unknown_name_is_refused_once_it_is_drawn_from():
    message = refusal(LookupError, workloads("rmsnorm_d409"))
    assert message.startswith(
        "no definition 'rmsnorm_d409'; did you mean 'rmsnorm_d4096'? There are:"
    )
    assert message.endswith(" more")


def test_in_a_test_an_unknown_name_is_one_line_without_frames_of_ours(pytester):
    pytester.makepyfile(
        """
        from hypothesis import given
        from pytest_fib.strategies import inputs

        @given(inputs("unknown"))
        def test_it(tensors): ...
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["E*LookupError: no definition 'unknown'*", "*.py:5: LookupError"])
    result.stdout.no_fnmatch_line("*strategies.py*")


def test_a_file_of_several_definitions_asks_which():
    message = refusal(LookupError, inputs("kernel_defs/scale/scale.yaml"))
    assert message == (
        "kernel_defs/scale/scale.yaml has several definitions. "
        "There are: scale_bfloat16, scale_float16, scale_float32"
    )


def test_a_definition_that_nothing_meets_says_why():
    message = refusal(ValueError, workloads(elementwise("n", ["n >= 10", "n <= 5"])))
    assert message == "op: axis 'n' (1 to 134217728): no value meets 'n >= 10' and 'n <= 5'"


def test_what_never_fails_is_no_failure():
    with pytest.raises(NoSuchExample):
        find(workloads(VECTOR), lambda w: w.axes["n"] > 1 << 20, settings=QUICK)


# --- In a pytest run ----------------------------------------------------------------------------

FAILING = """\
from hypothesis import given
from pytest_fib.strategies import inputs, workloads

@given(workloads("scale"))
def test_small(workload):
    print("drawn", workload.to_json())
    assert workload.axes["n"] < 17

@given(inputs("scale"))
def test_inputs(tensors):
    assert len(tensors["x"]) < 17
"""

PASSING = """\
from hypothesis import given, settings
from pytest_fib.strategies import workloads

@settings(max_examples=10, database=None)
@given(workloads("scale"))
def test_all(workload):
    print("drawn", workload.to_json())
"""


@pytest.fixture
def by_hand(request, monkeypatch, project, scale_yaml):
    """A project with a definition and tests written by hand; no kernel items are run.

    What Hypothesis keeps of failures is kept for the process, by the text of a test: each has its
    own. A seed that it is given is kept for the process too, and then no failures are.

    Hypothesis' own profile for CI keeps no failures and ignores the seed: these tests are of the
    profile that users have at their desk.
    """
    project.define(scale_yaml)
    project.write("test_hand.py", FAILING.replace("print(", f"# {request.node.name}\n    print("))
    monkeypatch.setattr("hypothesis.core.global_force_seed", None)
    profile = settings.get_current_profile_name()
    settings.load_profile("default")
    yield project
    settings.load_profile(profile)


def test_a_failure_shows_the_smallest_workload(by_hand):
    result = by_hand.run("test_hand.py", "--hypothesis-seed=1")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*test_small(",
            "*Workload(axes={'n': 17}, *seed=0, regime={}, *",
            '*workload: {"axes":{"n":17},*',
            "*test_inputs(",
        ]
    )


def test_definitions_are_those_of_the_session(by_hand):
    (by_hand.path / "kernel_defs").rename(by_hand.path / "elsewhere")
    by_hand.run("test_hand.py", "--fib-defs=elsewhere").assert_outcomes(failed=2)
    result = by_hand.run("test_hand.py")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*no definition 'scale'*"])


def test_without_the_plugin_definitions_are_those_of_the_current_directory(by_hand):
    result = by_hand.run_apart("test_hand.py", "-k", "small", "-p", "no:fib", "-o", "addopts=")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Workload(axes={'n': 17}, *"])


def test_a_failure_is_kept_in_the_database_of_hypothesis(by_hand):
    by_hand.run("test_hand.py", "-k", "small")
    again = by_hand.run("test_hand.py", "-k", "small", "--hypothesis-show-statistics")
    again.stdout.fnmatch_lines(["*during reuse phase*", "*- Stopped because*"])
    drawn = [line for line in again.outlines if line.startswith("drawn")]
    # Hypothesis may have kept another one beside it, and try that before.
    assert any('"n":17}' in line for line in drawn[:3]), drawn


def test_a_seed_decides_what_is_drawn(by_hand):
    def drawn(seed):
        result = by_hand.run("test_hand.py", f"--hypothesis-seed={seed}", "-s")
        return [line for line in result.outlines if line.startswith("drawn")]

    by_hand.write("test_hand.py", PASSING)
    first, second, other = drawn(1), drawn(1), drawn(2)
    assert len(first) > 5
    assert first == second
    assert first != other
