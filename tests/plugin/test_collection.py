"""Which items there are, what they are called and how they are selected."""

import os

import pytest

SCALE_IDS = [
    "kernel_defs/toy/scale.yaml::scale[good-correctness]",
    "kernel_defs/toy/scale.yaml::scale[tail-correctness]",
]
SPLIT_IDS = [
    "kernel_defs/toy/split.yaml::split[pair-correctness]",
    "kernel_defs/toy/split.yaml::split[swapped-correctness]",
]
BENCH_IDS = [
    "kernel_defs/toy/scale.yaml::scale[good-bench-n=8]",
    "kernel_defs/toy/scale.yaml::scale[good-bench-n=64]",
    "kernel_defs/toy/scale.yaml::scale[tail-bench-n=8]",
    "kernel_defs/toy/scale.yaml::scale[tail-bench-n=64]",
    "kernel_defs/toy/split.yaml::split[pair-bench-n=8]",
    "kernel_defs/toy/split.yaml::split[swapped-bench-n=8]",
]


def test_a_correctness_item_is_collected_for_each_implementation(toys):
    assert toys.ids() == SCALE_IDS + SPLIT_IDS


def test_bench_items_are_collected_only_when_asked_for(toys):
    ids = toys.ids("--fib-bench")
    assert sorted(ids) == sorted(SCALE_IDS + SPLIT_IDS + BENCH_IDS)
    assert [i for i in ids if "bench" in i] == BENCH_IDS


def test_collect_only_shows_the_tree(toys):
    result = toys.run("--collect-only", "kernel_defs/toy/split.yaml")
    result.stdout.fnmatch_lines(
        [
            "*<DefinitionFile split.yaml>",
            "*<CorrectnessItem split[[]pair-correctness]>",
            "*<CorrectnessItem split[[]swapped-correctness]>",
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["kernel_defs/toy/split.yaml"], SPLIT_IDS),
        (["kernel_defs"], SCALE_IDS + SPLIT_IDS),
        (["kernel_defs/toy/scale.yaml::scale"], SCALE_IDS),
        (["kernel_defs/toy/scale.yaml::scale[tail-correctness]"], SCALE_IDS[1:]),
        (["--fib-definition", "split"], SPLIT_IDS),
        (["--fib-definition", "s*", "--fib-implementation", "[gp]*"], [SCALE_IDS[0], SPLIT_IDS[0]]),
        (
            ["--fib-implementation", "pair", "--fib-implementation", "tail"],
            [SCALE_IDS[1], SPLIT_IDS[0]],
        ),
        (["-k", "scale"], SCALE_IDS),
        (["-k", "swapped or good"], [SCALE_IDS[0], SPLIT_IDS[1]]),
        (["-k", "elementwise and python and correctness"], SCALE_IDS + SPLIT_IDS),
        (["-m", 'fib(kind="correctness", definition="split")'], SPLIT_IDS),
        (["-m", 'fib(implementation="good")'], SCALE_IDS[:1]),
        (["--fib-bench", "-m", 'fib(kind="bench")'], BENCH_IDS),
        (["--fib-bench", "-m", 'fib(kind="bench", op_type="softmax")'], []),
        (["--fib-bench", "-k", "bench and 64"], [BENCH_IDS[1], BENCH_IDS[3]]),
        (["--deselect", "kernel_defs/toy/scale.yaml"], SPLIT_IDS),
        (["--deselect", SCALE_IDS[0]], [SCALE_IDS[1], *SPLIT_IDS]),
    ],
)
def test_a_selection_collects(toys, arguments, expected):
    assert toys.ids(*arguments) == expected


@pytest.mark.thorough
def test_last_failed_runs_what_failed_and_no_more(toys):
    toys.run().assert_outcomes(passed=2, failed=2)
    result = toys.run("--lf")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["run-last-failure: rerun previous 2 failures"])


@pytest.mark.thorough
def test_last_failed_ends_with_a_repaired_implementation(toys):
    toys.run().assert_outcomes(passed=2, failed=2)
    toys.implement("tail", "x, factor\nreturn x * factor")
    toys.run("--lf").assert_outcomes(passed=1, failed=1)
    toys.run("--lf").assert_outcomes(failed=1)


def test_without_the_plugin_nothing_is_collected(toys):
    toys.pytester.makeini("[pytest]\n")
    result = toys.run("-p", "no:fib")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.no_fnmatch_line("*fib:*")


def test_other_yaml_and_other_python_tests_are_left_alone(toys):
    toys.write("config/app.yaml", "name: scale\n")
    toys.write("tests/test_app.py", "def test_app():\n    assert True\n")
    ids = toys.ids()
    assert ids == SCALE_IDS + SPLIT_IDS + ["tests/test_app.py::test_app"]


def test_an_implementation_module_is_never_a_test_module(toys):
    toys.write("kernel_impls/toy/test_like.py", "def test_me():\n    raise AssertionError\n")
    assert toys.ids("kernel_impls", "kernel_defs") == SCALE_IDS + SPLIT_IDS


def test_an_implementation_given_by_path_says_how_to_test_it(toys):
    result = toys.run("kernel_impls/toy/good.py")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["good.py holds implementations; test them with: pytest --fib-implementation good"]
    )


def test_a_module_without_implementations_given_by_path_says_so(toys):
    toys.write("kernel_impls/toy/helpers.py", "SIZE = 3\n")
    toys.run("kernel_impls/toy/helpers.py").stdout.fnmatch_lines(
        ["nothing in helpers.py is marked with @implements"]
    )


def test_a_family_is_several_definitions_of_one_file(project, scale_yaml):
    text = scale_yaml.replace(
        "name: scale", "family: {dtype: [float16, float32]}\nname: scale_${dtype}"
    )
    project.define(text.replace("dtype: float32}\n  factor", 'dtype: "${dtype}"}\n  factor'))
    project.implement("good", "x, factor\nreturn x.float() * factor", "scale_*")
    assert project.ids() == [
        "kernel_defs/toy/scale.yaml::scale_float16[good-correctness]",
        "kernel_defs/toy/scale.yaml::scale_float32[good-correctness]",
    ]


def test_a_function_not_called_run_is_part_of_the_name(project, scale_yaml):
    project.define(scale_yaml)
    project.write(
        "kernel_impls/ops.py",
        """\
        from pytest_fib import implements

        @implements("scale")
        def run(x, factor):
            return x * factor

        @implements("scale")
        def fast(x, factor):
            return x * factor
        """,
    )
    assert project.ids() == [
        "kernel_defs/toy/scale.yaml::scale[ops-correctness]",
        "kernel_defs/toy/scale.yaml::scale[ops_fast-correctness]",
    ]


def test_a_json_solution_is_an_implementation(project, scale_yaml):
    project.define(scale_yaml)
    project.write(
        "kernel_impls/solution.json",
        """\
        {"name": "from_json", "definition": "scale", "author": "someone",
         "spec": {"language": "python", "target_hardware": ["cpu"],
                  "entry_point": "main.py::run", "destination_passing_style": false},
         "sources": [{"path": "main.py", "content": "def run(x, factor): return x * factor"}]}
        """,
    )
    result = project.run("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["kernel_defs/toy/scale.yaml::scale[[]from_json-correctness] PASSED *"]
    )


def test_a_folder_with_a_solution_yaml_is_an_implementation(project, scale_yaml):
    project.define(scale_yaml)
    project.write(
        "kernel_impls/folder/solution.yaml",
        """\
        name: from_folder
        definition: scale
        author: someone
        spec:
          language: python
          target_hardware: [cpu]
          entry_point: main.py::run
          calling: value
        sources: [main.py, helper.py]
        """,
    )
    project.write(
        "kernel_impls/folder/main.py",
        "from helper import times\ndef run(x, factor):\n    return times(x, factor)\n",
    )
    project.write("kernel_impls/folder/helper.py", "def times(a, b):\n    return a * b\n")
    result = project.run("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::scale[[]from_folder-correctness] PASSED *"])


# What is wrong with a definition file.


def bent(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "n: var",
            "n: [var",
            "kernel_defs/toy/scale.yaml:5: bad YAML: did not find expected ',' or ']', "
            "while parsing a flow sequence, which begins on line 4",
        ),
        (
            "workloads:",
            "  workloads:",
            "kernel_defs/toy/scale.yaml:*: reference: not Python: invalid syntax; if workloads: is "
            "a key of the file, indent it as reference is",
        ),
        (
            "x:      {shape: [n]",
            "x:      {shape: [m]",
            "kernel_defs/toy/scale.yaml:6: inputs.x.shape[[]0]: unknown axis 'm'; *",
        ),
        (
            "def run(x, factor)",
            "def ran(x, factor)",
            "kernel_defs/toy/scale.yaml:10: reference: no function 'run' at its top level",
        ),
        (
            "def run(x, factor):",
            "def run(x, factor:",
            "kernel_defs/toy/scale.yaml:11: reference: not Python: '(' was never closed",
        ),
    ],
)
def test_a_malformed_definition_is_an_error_with_its_place(scale, scale_yaml, old, new, message):
    scale.define(bent(scale_yaml, old, new))
    result = scale.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ERROR collecting kernel_defs/toy/scale.yaml*", message])
    result.stdout.no_fnmatch_line("*Traceback*")
    # The summary has room for little, so it says what the file's name does not.
    short = message.removeprefix("kernel_defs/toy/scale.yaml:")[:10]
    result.stdout.fnmatch_lines([f"ERROR kernel_defs/toy/scale.yaml - line {short}*"])


def test_every_mistake_of_a_definition_is_listed(scale, scale_yaml):
    scale.define(scale_yaml.replace("{shape: [n], dtype: float32}", "{shape: [m], dtype: float33}"))
    result = scale.run()
    lines = [line for line in result.outlines if line.startswith("kernel_defs/toy/scale.yaml:")]
    assert [line.split(" is not one of")[0] for line in lines] == [
        "kernel_defs/toy/scale.yaml:6: inputs.x.dtype: 'float33'",
        "kernel_defs/toy/scale.yaml:6: inputs.x.shape[0]: unknown axis 'm'; there are n",
        "kernel_defs/toy/scale.yaml:9: outputs.y.dtype: 'float33'",
        "kernel_defs/toy/scale.yaml:9: outputs.y.shape[0]: unknown axis 'm'; there are n",
    ]


def test_two_definitions_of_one_name_are_an_error_that_names_both_places(scale, scale_yaml):
    scale.define(scale_yaml, "kernel_defs/toy/twin.yaml")
    result = scale.run("--continue-on-collection-errors")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "kernel_defs/toy/twin.yaml:1: name: 'scale' is defined in "
            "kernel_defs/toy/scale.yaml:1 too; rename one of them"
        ]
    )


def test_a_malformed_definition_does_not_stop_the_selection_of_another(toys, scale_yaml):
    toys.define(bent(scale_yaml, "n: var", "n: vra"))
    toys.run("--fib-definition", "split").assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("glob", ["scale_float16", "scale_*", "*16"])
def test_selecting_a_member_of_a_malformed_family_shows_its_mistakes(toys, scale_yaml, glob):
    text = scale_yaml.replace("name: scale", "family: {dtype: [float16]}\nname: scale_${dtype}")
    toys.define(bent(text, "n: var", "n: vra"))
    result = toys.run("--fib-definition", glob)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["kernel_defs/toy/scale.yaml:5: axes.n: should be var, *"])


# What is wrong with an implementation: its item fails, the others run.


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (
            '@implements("scale", description=TEXT)',
            "can't be tested: kernel_impls/toy/bad.py:4: @implements: argument 'description' is "
            "not a literal (TEXT); it is read without running the file, so write the value itself",
        ),
        (
            '@implements("scale", language="tritonn")',
            "can't be tested: kernel_impls/toy/bad.py:4: @implements: language 'tritonn' is not "
            "one of python, triton, cpp, cuda, tilelang, cutedsl",
        ),
        (
            '@implements("scale", langage="triton")',
            "can't be tested: kernel_impls/toy/bad.py:4: @implements: unknown argument 'langage' "
            "(there are: language, target_hardware, dependencies, calling, author, description)",
        ),
        (
            '@implements("scale") )',
            "can't be tested: kernel_impls/toy/bad.py:4: syntax error: unmatched ')'",
        ),
    ],
)
def test_a_wrong_mark_fails_its_item_and_no_other(scale, no_clock, mark, message):
    scale.write(
        "kernel_impls/toy/bad.py",
        "from pytest_fib import implements\nTEXT = 'fast'\n\n"
        f"{mark}\ndef run(x, factor):\n    return x\n",
    )
    result = scale.run("--fib-bench")
    result.assert_outcomes(passed=3, failed=1)
    assert message in result.outlines
    result.stdout.fnmatch_lines(["FAILED kernel_defs/toy/scale.yaml::scale[[]bad-correctness] - *"])


def test_a_file_that_does_not_parse_fails_the_definition_its_folder_names(scale):
    scale.write("kernel_impls/elementwise/scale/bad.py", "from pytest_fib import implements(\n")
    result = scale.run()
    result.assert_outcomes(passed=1, failed=1)
    assert (
        "can't be tested: kernel_impls/elementwise/scale/bad.py:1: syntax error: invalid syntax"
        in result.outlines
    )
    result.stdout.fnmatch_lines(["bad * ERROR  line 1: syntax error: invalid syntax"])


def test_a_file_that_names_no_definition_fails_the_one_its_folder_names(toys):
    text = '@implements("spilt", langage="triton")\ndef run(x): ...\n'
    toys.write("kernel_impls/split/bad.py", text)
    ids = toys.ids("-k", "bad")
    assert [name.partition("::")[2] for name in ids] == ["split[bad-correctness]"]


def test_two_implementations_of_one_name_fail_as_one(scale):
    text = (scale.path / "kernel_impls/toy/good.py").read_text()
    scale.write("kernel_impls/zoo/good.py", text)
    result = scale.run()
    result.assert_outcomes(failed=1)
    assert (
        "can't be tested: two implementations are named 'good': kernel_impls/toy/good.py:4 and "
        "kernel_impls/zoo/good.py:4; rename one of them" in result.outlines
    )


def test_an_implementation_of_an_unknown_definition_is_a_warning_with_the_nearest_name(scale):
    scale.implement("stray", "x, factor\nreturn x", "scal")
    result = scale.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*FibWarning: kernel_impls/toy/stray.py:4: implements 'scal', which no file defines; "
            "did you mean 'scale'?"
        ]
    )
    assert "kernel_impls/toy/stray.py:4" in result.outlines  # where the warning points


def test_sizes_to_time_that_the_kernel_need_not_take_are_an_error_on_their_line(scale, scale_yaml):
    for old, new, why in (
        ("{n: 64}", "{n: 0}", "n = 0 is not in its domain, 1 to 256"),
        ("max: 256", "max: 256, multiple_of: 16", "n = 8 is not in its domain, 16 to 256 *"),
    ):
        scale.define(bent(scale_yaml, old, new))
        result = scale.run()
        result.assert_outcomes(errors=1)
        where = f"kernel_defs/toy/scale.yaml:*: workloads.bench[[]*]: {why}"
        result.stdout.fnmatch_lines([where])


def test_sizes_to_time_may_be_larger_than_those_that_are_drawn(scale, scale_yaml):
    scale.define(bent(scale_yaml, "max: 256", "max: 32"))
    scale.run("--collect-only", "--fib-bench").assert_outcomes()


def test_warnings_of_stray_implementations_can_be_made_errors(scale):
    scale.implement("stray", "x, factor\nreturn x", "scal")
    scale.run("-W", "error::pytest_fib.FibWarning").assert_outcomes(errors=1)


def test_strays_are_not_warned_of_while_a_definition_file_is_broken(toys, scale_yaml):
    toys.define(bent(scale_yaml, "n: var", "n: vra"))
    toys.run("--continue-on-collection-errors").assert_outcomes(
        passed=1, failed=1, errors=1, warnings=0
    )


@pytest.mark.thorough
def test_a_selection_without_paths_collects_kernels_only_under_xdist_too(toys):
    toys.write("test_unrelated.py", "def test_unrelated(): pass")
    result = toys.run_apart("-n2", "-v", "--fib-definition=split", "-k", "pair")
    result.assert_outcomes(passed=1)


def test_a_pipe_is_not_waited_for(scale):
    os.mkfifo(scale.path / "kernel_defs/toy/pipe.yaml")
    result = scale.run("-W", "default::pytest_fib.FibWarning")
    result.assert_outcomes(passed=1, warnings=1)
    why = "pipe.yaml:1: can't be read: it is no regular file"
    result.stdout.fnmatch_lines([f"*: FibWarning: kernel_defs/toy/{why}"])


def test_a_link_that_leads_nowhere_is_a_warning_and_kernels_are_tested(scale):
    scale.path.joinpath("kernel_defs/toy/lost.yaml").symlink_to("gone")
    result = scale.run("-W", "default::pytest_fib.FibWarning")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*: FibWarning: kernel_defs/toy/lost.yaml:1: can't be read: it links to gone, which*"]
    )
