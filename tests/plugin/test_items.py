"""What a correctness item and a bench item say of an implementation."""

import json
import re
import shlex
from importlib.metadata import version

import pytest

GOOD = "kernel_defs/toy/scale.yaml::scale[good-correctness]"


def failure(result: pytest.RunResult, title: str) -> str:
    """The text of one failure in the output, without its heading."""
    lines = result.outlines
    start = next(i for i, line in enumerate(lines) if line.strip("_ ") == title) + 1
    end = next(i for i in range(start, len(lines)) if lines[i][:3] in ("___", "---", "==="))
    return "\n".join(lines[start:end])


def test_a_failure_says_what_where_how_much_and_how_to_see_it_again(toys):
    result = toys.run("kernel_defs/toy/split.yaml", "--fib-seed=4")
    first, _, rest = failure(result, "split[swapped-correctness]").partition("\n\n")
    assert first in {  # both are as wrong: which comes first depends on versions
        f"INCORRECT_NUMERICAL: {one}: holds the expected values of {other} everywhere\n"
        f"  ({other} is wrong too)"
        for one, other in (("double", "negative"), ("negative", "double"))
    }
    assert rest == (
        "  implementation  swapped  kernel_impls/toy/swapped.py:4\n"
        "  workload        n=1; normal values, seed 0  (the smallest that fails)\n"
        "  wrong           4 of 4 elements of double (100 %)\n"
        "  wrong           4 of 4 elements of negative (100 %)\n"
        "  largest error   absolute 3.38, relative 3; 3480 times the bound of negative\n"
        "  pattern         seen at n=63; normal values, seed 0\n"
        "\n"
        "  double[0, 3] got -1.12598, expected 2.25195, allowed ±0.0036\n"
        "  double[0, 1] got 0.705078, expected -1.41016, allowed ±0.0028\n"
        "  double[0, 2] got 0.654297, expected -1.30859, allowed ±0.0027\n"
        "  double[0, 0] got 0.0109787, expected -0.0219574, allowed ±0.0015\n"
        "\n"
        "replay:\n"
        "  pytest 'kernel_defs/toy/split.yaml::split[swapped-correctness]'"
        """ --fib-workload '{"axes": {"n": 1}}'\n"""
        "\n"
        "replay of the pattern:\n"
        "  pytest 'kernel_defs/toy/split.yaml::split[swapped-correctness]'"
        """ --fib-workload '{"axes": {"n": 63}}'"""
    )


def replays(text: str) -> list[list[str]]:
    """The replay commands that a failure's text ends with."""
    after = text.partition("\nreplay:\n")[2]
    return [shlex.split(line) for line in after.splitlines() if line.startswith("  pytest ")]


@pytest.mark.parametrize("seed", range(4))
def test_shrinking_ends_at_the_smallest_axis_that_fails(toys, seed):
    result = toys.run("-k", "tail", "--fib-examples=20", f"--fib-seed={seed}")
    text = failure(result, "scale[tail-correctness]")
    assert text.startswith("INCORRECT_NUMERICAL: y: zeros at n 64..254\n")
    assert "\n  pattern         seen at n=255; factor 3; normal values, seed 0\n" in text
    assert "\n  y[64] got 0, expected " in text
    assert "  workload        n=65; factor 3; normal values, seed 0  (the smallest" in text
    assert "  wrong           1 of 65 elements of y (1.54 %)\n" in text


def test_the_replay_command_tests_just_that_workload(toys):
    text = failure(toys.run("-k", "tail", "--fib-examples=20"), "scale[tail-correctness]")
    for command, n in zip(replays(text), (65, 255), strict=True):
        assert command[0] == "pytest"
        result = toys.run(*command[1:])
        result.assert_outcomes(failed=1)
        [trace] = toys.traces()
        assert trace["workload"]["axes"] == {"n": n}
        assert f"  workload        n={n}; factor 3; normal values, seed 0\n" in failure(
            result, "scale[tail-correctness]"
        )


def test_the_replay_command_names_the_directories_it_needs(toys):
    (toys.path / "kernel_defs").rename(toys.path / "defs")
    (toys.path / "kernel_impls").rename(toys.path / "impls")
    result = toys.run("--fib-defs", "defs", "--fib-impls", "impls", "-k", "swapped")
    command = replays(failure(result, "split[swapped-correctness]"))[0]
    assert command[2:4] == ["--fib-defs=defs", "--fib-impls=impls"]
    toys.run(*command[1:]).assert_outcomes(failed=1)


def test_a_kernel_that_is_wrong_now_and_then_is_found_by_more_calls(scale):
    wrong = "calls.append(1)\nreturn x * factor * (len(calls) % 20 != 0)"
    scale.implement("flaky", f"x, factor, calls=[]\n{wrong}")
    workload = ("--fib-workload", '{"axes": {"n": 8}}')
    scale.run("-k", "flaky", *workload).assert_outcomes(passed=1)
    result = scale.run("-k", "flaky", *workload, "--fib-repeat=20")
    text = failure(result, "scale[flaky-correctness]")
    assert "(right on a first call; this is repeat 9 of 19)" in " ".join(text.split())
    command = replays(text)[0]
    assert command[2] == "--fib-repeat=20"
    scale.run(*command[1:]).assert_outcomes(failed=1)


def test_a_replay_takes_the_values_it_is_given(scale):
    workload = {"axes": {"n": 4}, "inputs": {"factor": {"type": "scalar", "value": 0.5}}}
    scale.run("--fib-workload", json.dumps(workload)).assert_outcomes(passed=1)
    [trace] = scale.traces()
    assert trace["workload"]["inputs"]["factor"] == {"type": "scalar", "value": 0.5}


def test_a_scalar_that_was_given_is_shown_and_replayed(scale):
    scale.implement("bad", "x, factor\nreturn x * factor if factor != 0.5 else x")
    workload = {"axes": {"n": 4}, "inputs": {"factor": {"type": "scalar", "value": 0.5}}}
    result = scale.run("-k", "bad", "--fib-workload", json.dumps(workload))
    text = failure(result, "scale[bad-correctness]")
    assert "  workload        n=4; factor 0.5; normal values, seed 0\n" in text
    [command] = replays(text)
    assert json.loads(command[-1]) == workload
    scale.run(*command[1:]).assert_outcomes(failed=1)


def test_what_a_third_call_shows_is_replayed_with_its_values_and_scalars(scale, scale_yaml):
    """Of a kernel that is wrong if the sum is positive; a scalar stays what it was."""
    scale.define(scale_yaml.replace("{value: 3.0}", "{kind: uniform, min: 2, max: 9}"))
    scale.implement("bad", "x, factor\nreturn x * factor * (1 + (x.sum() > 0))")
    for seed in range(20):
        workload = json.dumps({"axes": {"n": 2}, "seed": seed})
        result = scale.run("-k", "bad", "--fib-workload", workload)
        if "of the third call" in result.stdout.str():
            break
    text = failure(result, "scale[bad-correctness]")
    replayed, of_pattern = replays(text)
    assert replayed[-1] == workload
    given = json.loads(of_pattern[-1])
    factor = given["inputs"]["factor"]["value"]
    assert f"  workload        n=2; factor {factor:.6g}; normal values, seed {seed}\n" in text
    shown = f"n=2; factor {factor:.6g}; normal values, seed {given['seed']}\n"
    assert f"  pattern         seen at {shown}" in text
    again = failure(scale.run(*of_pattern[1:]), "scale[bad-correctness]")
    assert f"  workload        {shown}" in again
    assert "third call" not in again
    assert again.partition("\n")[0] == text.partition("\n")[0]


def implement_with_state(project, body):
    """Write an implementation whose list ``kept`` outlives its calls."""
    path = project.implement("keeps", f"x, factor\n{body}")
    path.write_text(path.read_text().replace("@implements", "kept = []\n\n\n@implements"))


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_what_only_earlier_calls_lead_to_is_replayed_with_these(scale, scale_yaml, isolation):
    """The first factor is kept for all calls: each workload by itself is right."""
    scale.define(scale_yaml.replace("{value: 3.0}", "{kind: uniform, min: 1, max: 9}"))
    implement_with_state(scale, "kept.append(factor)\nreturn x * kept[0]")
    result = scale.run("--fib-implementation=keeps", f"--fib-isolation={isolation}")
    result.assert_outcomes(failed=1)
    text = " ".join(" ".join(result.outlines).split())
    assert "(only after calls on other inputs; right in a new process)" in text
    (replay,) = [line for line in result.outlines if line.startswith("  pytest ")]
    assert "--fib-workload" not in replay
    assert "--fib-seed=0" in replay  # as the ini file says
    again = scale.run(*shlex.split(replay)[1:], f"--fib-isolation={isolation}")
    again.assert_outcomes(failed=1)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_what_a_first_call_leaves_is_told_also_where_larger_workloads_fail_for_it(scale, isolation):
    """What is kept is of no shape: in the same process every other workload fails at once."""
    implement_with_state(scale, "kept.append(x.sum())\nreturn x * factor + kept[0] - x.sum()")
    result = scale.run("--fib-implementation=keeps", f"--fib-isolation={isolation}")
    result.assert_outcomes(failed=1)
    text = " ".join(" ".join(result.outlines).split())
    assert "(right on a first call, wrong on a second of the same shapes with other values)" in text
    assert "replay of the pattern" not in text


def test_a_failure_does_not_tell_a_seed_that_others_are_still_drawn_from(scale, scale_yaml):
    """Other kernels may read the output of a run while they run."""
    scale.pytester.makeini("[pytest]\naddopts = --fib-isolation=none --fib-device=cpu")
    scale.define(scale_yaml.replace("{value: 3.0}", "{kind: uniform, min: 1, max: 9}"))
    implement_with_state(scale, "kept.append(factor)\nreturn x * kept[0]")
    result = scale.run("--fib-implementation=keeps")
    result.assert_outcomes(failed=1)
    (at_end,) = [
        line for line in result.outlines if line.endswith(" draws the same workloads again")
    ]
    seed = at_end.partition(" ")[0].rpartition(":")[2]
    assert [line for line in result.outlines if seed in line] == [at_end]


def test_a_replay_that_does_not_fit_the_definition_says_why(toys):
    result = toys.run("-k", "pair", "--fib-workload", '{"axes": {"m": 4}}')
    assert failure(result, "split[pair-correctness]") == (
        "--fib-workload does not fit split: axes: 'm' is not one of n, width"
    )
    result = toys.run("-k", "pair", "--fib-workload", '{"axes": {}}')
    assert failure(result, "split[pair-correctness]") == (
        "--fib-workload does not fit split: no value for axis 'n'"
    )


def test_an_earlier_failure_is_tried_first(toys):
    toys.run("-k", "tail", "--fib-examples=20").assert_outcomes(failed=1)
    # One workload more than the earlier one would pass: n=1, which the smallest budget allows.
    result = toys.run("-k", "tail", "--fib-examples=1", "--fib-seed=1")
    text = failure(result, "scale[tail-correctness]")
    assert "n=65; factor 3; normal values, seed 0  (failed before)\n" in text


def test_an_earlier_failure_is_forgotten_once_it_passes(toys):
    toys.run("-k", "tail", "--fib-examples=20").assert_outcomes(failed=1)
    toys.implement("tail", "x, factor\nreturn x * factor")
    toys.run("-k", "tail").assert_outcomes(passed=1)
    toys.implement("tail", "x, factor\ny = x * factor\ny[64:] = 0\nreturn y")
    result = toys.run("-k", "tail", "--fib-examples=20")
    assert "(the smallest that" in failure(result, "scale[tail-correctness]")


def test_an_earlier_failure_is_not_tried_where_the_definition_rules_it_out(toys, scale_yaml):
    toys.run("-k", "tail", "--fib-examples=20").assert_outcomes(failed=1)
    toys.define(scale_yaml.replace("max: 256", "max: 32"))
    toys.run("-k", "tail", "--fib-examples=20").assert_outcomes(passed=1)


@pytest.mark.parametrize("added", ["abs(x).max().item() < 0", "factor * n < 100"])
def test_an_earlier_failure_that_breaks_a_newer_constraint_is_not_tried(toys, scale_yaml, added):
    toys.run("-k", "tail", "--fib-examples=20").assert_outcomes(failed=1)
    toys.define(f"{scale_yaml}constraints: [{added}]\n")
    # The drawn workload of one element is right, if it can be made.
    result = toys.run("-k", "tail", "--fib-examples=1")
    assert "failed before" not in result.stdout.str()
    assert "n=65" not in result.stdout.str()


def test_an_earlier_failure_does_not_outlive_its_axis(toys, scale_yaml):
    toys.run("-k", "tail", "--fib-examples=20").assert_outcomes(failed=1)
    toys.define(scale_yaml.replace("n: var", "m: var").replace("[n]", "[m]").replace("{n:", "{m:"))
    text = failure(toys.run("-k", "tail", "--fib-examples=20"), "scale[tail-correctness]")
    assert "  workload        m=65; factor 3; normal values, seed 0  (the smallest" in text


@pytest.mark.thorough
def test_without_the_cache_no_failure_is_stored_and_nothing_breaks(toys):
    for _ in range(2):
        result = toys.run("-p", "no:cacheprovider", "-k", "tail", "--fib-examples=20")
        text = failure(result, "scale[tail-correctness]")
        assert "(the smallest that fails)" in " ".join(text.split())


def test_a_listed_example_is_always_tested(scale, scale_yaml):
    scale.define(scale_yaml.replace("bench:", "examples: [{n: 211}]\n  bench:"))
    scale.implement("good", "x, factor\nreturn x * factor if len(x) != 211 else x")
    result = scale.run("--fib-examples=4")
    text = failure(result, "scale[good-correctness]")
    assert "n=211; factor 3; normal values, seed 0  (listed in the\n" in text


def test_a_listed_example_that_fails_is_shrunk(toys, scale_yaml):
    toys.define(scale_yaml.replace("bench:", "examples: [{n: 211}]\n  bench:"))
    text = failure(toys.run("-k", "tail", "--fib-examples=20"), "scale[tail-correctness]")
    assert "  workload        n=65; factor 3; normal values, seed 0  (the smallest" in text


@pytest.mark.parametrize(
    ("body", "first_line"),
    [
        (
            "x, factor\nreturn x.double() * factor",
            "INCORRECT_DTYPE: y: got float64, expected float32",
        ),
        ("x, factor\nreturn (x * factor)[None]", "INCORRECT_SHAPE: y: got [1, 1], expected [1]"),
        ("x, factor\nreturn x / 0 * factor", "INCORRECT_NUMERICAL: y: infinit*"),
        ("x, factor\nraise ValueError('too hot')", "RUNTIME_ERROR: ValueError: too hot"),
        (
            "x, factor\nreturn None",
            "RUNTIME_ERROR: y is None, not a torch.Tensor; is a return missing?",
        ),
        ("x, factor\nreturn x, x", "RUNTIME_ERROR: returned 2 values for 1 output (y)"),
        ("x, factor\nreturn x.mul_(factor)", "RUNTIME_ERROR: wrote to its input 'x'"),
        (
            "x\nreturn x",
            "RUNTIME_ERROR: TypeError: run() takes 1 positional argument but 2 were given",
        ),
    ],
)
def test_an_implementation_that_goes_wrong_is_told_in_one_line(scale, body, first_line):
    scale.implement("bad", body)
    result = scale.run("-k", "bad", "--fib-seed=1")
    result.assert_outcomes(failed=1)
    first = failure(result, "scale[bad-correctness]").splitlines()[0]
    pytest.LineMatcher([first]).fnmatch_lines([first_line.replace("[", "[[]")])


def test_an_error_in_a_kernel_shows_its_own_part_of_the_traceback(scale):
    scale.implement("bad", "x, factor\n\nreturn x[7:9][1]")
    text = failure(scale.run("-k", "bad"), "scale[bad-correctness]")
    assert f'  File "{scale.path}/kernel_impls/toy/bad.py", line 6, in run\n' in text
    assert "pytest_fib/" not in text


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("import fast_kernels.rows", 'dependencies=["fast_kernels"]'),
        ("raise RuntimeError('Found no NVIDIA driver on your system')", 'target_hardware=["cuda"]'),
    ],
)
def test_of_what_only_this_machine_lacks_it_is_said_how_to_skip_it(scale, body, hint):
    scale.implement("lacks", f"x, factor\n{body}\nreturn x * factor")
    result = scale.run("--fib-device=cpu", "-k", "lacks")
    result.assert_outcomes(failed=1)
    [shown] = [line for line in result.outlines if line.startswith("  hint ")]
    assert shown.startswith(f"  hint            with {hint} in its mark it is skipped")


@pytest.mark.parametrize(
    ("mark", "raised"),
    [
        (', target_hardware=["cpu"]', "RuntimeError('CUDA')"),
        ("", "RuntimeError('barracuda')"),
        ("", "ImportError('no cannon')"),
    ],
)
def test_what_a_mark_can_not_change_gets_no_hint(scale, mark, raised):
    scale.implement("lacks", f"x, factor\nraise {raised}", more=mark)
    result = scale.run("-k", "lacks")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("  hint *")


def test_parameters_in_another_order_than_the_inputs_are_shown(scale):
    scale.implement("swapped", "factor, x\nreturn x * 2")
    scale.implement("renamed", "x, by\nreturn x + by")
    result = scale.run("-k", "swapped or renamed")
    shown = [line for line in result.outlines if line.startswith("  parameters")]
    assert shown == ["  parameters      factor, x, but are passed x, factor in this order"]


def test_an_implementation_that_can_not_be_imported_fails_alone(scale):
    scale.write(
        "kernel_impls/toy/broken.py",
        """\
        import no_such_module

        @implements("scale")
        def run(x, factor):
            return x * factor
        """,
    )
    result = scale.run()
    result.assert_outcomes(passed=1, failed=1)
    text = failure(result, "scale[broken-correctness]")
    assert text.startswith("COMPILE_ERROR: ModuleNotFoundError: No module named 'no_such_module'\n")


@pytest.mark.parametrize("kind", ["correctness", "bench-n=8"])
def test_a_reference_that_raises_blames_the_definition_and_no_implementation(
    scale, scale_yaml, kind
):
    scale.define(scale_yaml.replace("return x * factor", "return x * faktor"))
    result = scale.run("--fib-bench")
    result.assert_outcomes(failed=3)
    lines = failure(result, f"scale[good-{kind}]").splitlines()
    why = "NameError: name 'faktor' is not defined"
    assert lines[0] == f"DEFINITION ERROR: the reference of scale failed: {why}"
    assert lines[2] == "  definition      kernel_defs/toy/scale.yaml:1"
    assert not any("implementation" in line or "During handling" in line for line in lines)
    assert scale.traces() == []


def test_each_way_of_calling_is_understood(scale):
    scale.implement("into", "x, factor, y\ny.copy_(x * factor)", more=', calling="destination"')
    scale.implement(
        "packed",
        "arguments\nx, factor, y = arguments\ny.copy_(x * factor)",
        more=', calling="tuple"',
    )
    scale.implement("named", "x, factor\nreturn {'y': x * factor}")
    scale.run().assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            ', dependencies=["no-such-thing>=2"]',
            "needs no-such-thing, which is not installed: pip install 'no-such-thing>=2'",
        ),
        (
            ', dependencies=["torch", "tilelang"]',
            "needs tilelang, which is not installed: pip install 'pytest-fib[tilelang]'",
        ),
        (
            ', dependencies=[" numpy", "torch>=99; python_version >= \'3\'"]',
            f"needs torch>=99, {version('torch')} is installed",
        ),
        (', target_hardware=["cuda"]', "targets cuda; this run is on the CPU"),
    ],
)
def test_what_can_not_run_here_is_skipped_with_the_reason(scale, more, reason):
    scale.implement("other", "x, factor\nreturn x * factor", more=more)
    result = scale.run("-rs", "--fib-device", "cpu")
    result.assert_outcomes(passed=1, skipped=1)
    assert f"SKIPPED [1] kernel_defs/toy/scale.yaml: {reason}" in result.outlines


def test_tilelang_runs_on_cuda_unless_the_mark_says_otherwise(scale):
    scale.implement("other", "x, factor, y\npass", more=', language="tilelang"')
    result = scale.run("-rs", "-k", "other and correctness", "--fib-device", "cpu")
    reason = "targets cuda; this run is on the CPU"
    assert f"SKIPPED [1] kernel_defs/toy/scale.yaml: {reason}" in result.outlines


def test_a_dependency_may_be_named_as_a_distribution_or_as_a_module(scale):
    more = (
        ', dependencies=["PyYAML", "yaml", "pytest-xdist>=3", "torch==2.*", "no; os_name == \'x\'"]'
    )
    scale.implement("other", "x, factor\nreturn x * factor", more=more)
    scale.run("--fib-device", "cpu").assert_outcomes(passed=2)


def test_inputs_that_can_not_be_made_are_a_skip_with_the_reason(scale, scale_yaml):
    scale.define(
        scale_yaml.replace("x:      {shape: [n], dtype: float32}", "x: {shape: [n], dtype: int32}")
    )
    result = scale.run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * nothing says what x (int32 tensor) means*; *"])


def test_triton_in_its_interpreter_is_checked_and_not_timed(scale):
    scale.implement("block", "x, factor\nreturn x * factor", more=', language="triton"')
    chosen = ("-k", "block and not compile", "-rs")
    result = scale.run(*chosen, "--fib-bench", "--fib-device", "cpu")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        ["SKIPPED * Triton's interpreter on the CPU can't be timed meaningfully"]
    )


def test_a_bench_item_of_a_wrong_implementation_fails_without_a_time(toys):
    result = toys.run("-k", "swapped", "--fib-bench", "-m", 'fib(kind="bench")')
    result.assert_outcomes(failed=1)
    text = failure(result, "split[swapped-bench-n=8]")
    assert text.startswith("INCORRECT_NUMERICAL: ")
    replay = replays(text)[0]
    assert replay[1:3] == ["kernel_defs/toy/split.yaml::split[swapped-bench-n=8]", "--fib-bench"]
    [trace] = toys.traces()
    assert trace["evaluation"]["performance"] is None


def test_an_error_of_our_own_is_not_passed_off_as_the_kernels(scale):
    scale.write(
        "conftest.py",
        """\
        def pytest_runtest_call(item):
            raise LookupError("from a hook")
        """,
    )
    result = scale.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * LookupError: from a hook"])


STRICT = "return x * factor"
OWN = "assert str(x.dtype) == 'torch.float32'\n      return x * factor"


def test_an_oracle_that_is_not_float64_is_said_in_record_table_and_failure(scale, scale_yaml):
    scale.define(scale_yaml.replace(STRICT, OWN))
    scale.implement("bad", "x, factor\nreturn x + factor")
    result = scale.run("-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["  expected        in the reference's own precision: AssertionError"]
    )
    said = "expected values are in the reference's own precision, not float64:"
    result.stdout.fnmatch_lines([said, "  AssertionError"])
    for trace in scale.traces():
        assert trace["evaluation"]["correctness"]["extra"]["no_oracle"] == "AssertionError"
        assert trace["evaluation"]["correctness"]["extra"]["oracle"] == "own precision"
    assert "own precision" not in scale.run("-k", "good").stdout.str()


def test_random_choices_are_drawn_many_times_at_the_end_of_a_search(project, monkeypatch):
    monkeypatch.setattr("pytest_fib.engine._sample_plan.SECONDS", {"cpu": 0.2})
    project.define(SAMPLING, "kernel_defs/toy/pick.yaml")
    draw = "return torch.multinomial(probs{}, 1).squeeze(-1).int()"
    for name, change in (("right", ""), ("uniform", ".gt(0).float()")):
        body = f"probs\nimport torch\n{draw.format(change)}"
        project.implement(name, body, "pick")
    result = project.run("--fib-examples=3")
    result.assert_outcomes(passed=1, failed=1)
    text = failure(result, "pick[uniform-correctness]")
    # by the draws of one row, or of a call with many rows
    assert re.match(r"INCORRECT_NUMERICAL: samples: (row |\d+ of \d+ draws lie in )", text), text
    [passed] = [t["evaluation"] for t in project.traces() if t["solution"] == "right"]
    assert passed["correctness"]["extra"]["draws"] > 100
    replay = replays(text)[0]
    project.run(*replay[1:]).assert_outcomes(failed=1)


def test_a_fault_of_the_plugin_is_one_line_with_a_record_and_the_others_go_on(scale, monkeypatch):
    monkeypatch.setattr(
        "pytest_fib.plugin._items.CorrectnessItem._failed_before",
        lambda item: 1 // 0 if item.implementation.name == "good" else [],
    )
    scale.implement("fine", "x, factor\nreturn x * factor")
    result = scale.run("-k", "good or fine", "--fib-examples=2")
    result.assert_outcomes(passed=1, failed=1)
    text = failure(result, "scale[good-correctness]")
    first, _, rest = text.partition("\n")
    assert first.startswith("RUNTIME_ERROR: pytest-fib's own fault, no verdict: ZeroDivision")
    assert "Traceback" not in rest
    [trace] = [t for t in scale.traces() if t["solution"] == "good"]
    assert trace["evaluation"]["log"].startswith("Traceback")


def test_an_axis_of_one_size_within_the_budget_is_warned_of(scale):
    """A failure, not a fault of the plugin, where filterwarnings makes errors of warnings."""
    little = ("-k", "good", "--fib-examples=1", "--fib-max-bytes=25")
    result = scale.run(*little)
    result.assert_outcomes(passed=1, warnings=1)
    said = "only n=1 fits in 25 B (--fib-max-bytes): other sizes are not tested"
    result.stdout.fnmatch_lines([f"*{said.replace('[', '[[]')}*"])
    result = scale.run(*little, "-W", "error::pytest_fib.FibWarning")
    result.assert_outcomes(failed=1)
    text = failure(result, "scale[good-correctness]")
    assert text.startswith("scale[good-correctness]: only n=1")
    assert "makes an error" in text.splitlines()[0]
    assert "own fault" not in text
    scale.run("-k", "good", "--fib-examples=1").assert_outcomes(passed=1)


SAMPLING = """\
name: pick
op_type: sampling
axes: {batch: var, vocab: 50}
inputs:
  probs: {shape: [batch, vocab], dtype: float32}
outputs:
  samples: {shape: [batch], dtype: int32}
reference: |
  import torch
  def run(probs):
      return torch.multinomial(probs, 1).squeeze(-1).int()
workloads:
  axes: {batch: {max: 512}}
  inputs: {probs: {kind: probabilities}}
  examples: [{batch: 3}]
tolerances: {samples: {by: samples}}
"""


def test_a_failure_that_python_ignores_fails_the_item_all_the_same(scale):
    # As of a signal handler that runs while garbage is collected.
    body = """\
    x, factor
    import gc, pytest
    fails = lambda *_: pytest.fail("too late")
    gc.callbacks.append(fails)
    gc.collect()
    gc.callbacks.remove(fails)
    return x * factor
    """
    scale.implement("late", body)
    result = scale.run("-k", "late")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["late * too late", "FAILED *late-correctness* too late"])


@pytest.mark.parametrize("width", [60, 140])
def test_a_failure_is_as_wide_as_the_terminal(scale, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    scale.implement("adds_what_it_scales", "x, factor\nreturn x + factor")
    result = scale.run("-k", "adds_what")
    text, _, _ = failure(result, "scale[adds_what_it_scales-correctness]").partition("replay:")
    place = "  implementation  adds_what_it_scales"
    assert f"{place}  kernel_impls" in text if width == 140 else f"{place}\n" in text
    assert max(map(len, text.splitlines())) <= width
