"""Options, ini values, and what is refused before any test runs."""

import subprocess
import sys
from argparse import ArgumentTypeError

import pytest

from pytest_fib.plugin import options

USAGE = pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("512M", 512 << 20), ("4G", 4 << 30), ("1.5GiB", 3 << 29), ("2 kb", 2048)],
)
def test_a_size_is_bytes_with_a_binary_suffix(text, expected):
    assert options.size(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1..5G", "-1", "4X", ".", "1e3"])
def test_what_is_no_size_is_refused_by_name(text):
    with pytest.raises(ArgumentTypeError) as caught:
        options.size(text)
    assert str(caught.value) == f"{text!r} is not a size such as 512M or 4G"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--fib-max-bytes", "big"],
            "argument --fib-max-bytes: 'big' is not a size such as 512M or 4G",
        ),
        (["--fib-examples", "0"], "argument --fib-examples: 0 is less than 1"),
        (["--fib-examples", "many"], "argument --fib-examples: 'many' is not a number"),
        (["--fib-repeat", "0"], "argument --fib-repeat: 0 is less than 1"),
        (
            ["--fib-seed", "x"],
            "argument --fib-seed: 'x' is not a seed such as 7, or two such as 0:3141592653",
        ),
        (
            ["--fib-seed", "1:"],
            "argument --fib-seed: '1:' is not a seed such as 7, or two such as 0:3141592653",
        ),
        (["--fib-timeout", "-1"], "argument --fib-timeout: -1 is less than 0"),
        (["--fib-device", "tpu"], "argument --fib-device: invalid choice: 'tpu'"),
    ],
)
def test_a_bad_value_is_a_usage_error(scale, arguments, message):
    result = scale.run(*arguments)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"*{message}*"])


@pytest.mark.parametrize("word", ["--fib-definitions=scale", "--fib-definitions"])
def test_a_misspelt_option_is_told_the_nearest(scale, word):
    result = scale.run(word)
    assert result.ret == USAGE
    message = "ERROR: unknown option --fib-definitions; did you mean --fib-definition?"
    result.stderr.fnmatch_lines([message])


def test_an_option_of_another_plugin_may_begin_like_ours(scale):
    conftest = "def pytest_addoption(parser):\n    parser.addoption('--fib-zebra')\n"
    scale.write("conftest.py", conftest)
    assert scale.run("--fib-zebra=1", "--collect-only").ret == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--fib-definition", "scal"],
            "ERROR: --fib-definition scal matches nothing; did you mean scale? "
            "there are: scale, split",
        ),
        (
            ["--fib-definition", "scale", "--fib-definition", "conv2d"],
            "ERROR: --fib-definition conv2d matches nothing; there are: scale, split",
        ),
        (
            ["--fib-implementation", "swaped"],
            "ERROR: --fib-implementation swaped matches nothing; did you mean swapped? "
            "there are: good, pair, swapped, tail",
        ),
        (
            ["--fib-definition", "scale", "--fib-implementation", "pair"],
            "ERROR: --fib-implementation pair matches nothing; there are: good, tail",
        ),
        (["--fib-defs", "nowhere"], "ERROR: --fib-defs nowhere: no such directory"),
        (["--fib-impls", "nowhere"], "ERROR: --fib-impls nowhere: no such directory"),
        (
            ["--fib-dataset", "kernel_defs"],
            "ERROR: --fib-dataset kernel_defs: it has no folder definitions",
        ),
        (["--fib-select", "nowhere"], "ERROR: --fib-select=nowhere: No such file or directory"),
        (["--fib-ray="], "*argument --fib-ray: is empty; it should be an address, auto or local"),
        (["--fib-cache-dir="], "*argument --fib-cache-dir: is empty; it should be a path"),
        (
            ["--fib-remote-python="],
            "*argument --fib-remote-python: is empty; it should be a command",
        ),
        (
            ["--fib-cache-dir=.", "--fib-cache-clear"],
            "ERROR: --fib-cache-clear: {path} is not removed: * in it is not a build",
        ),
        (["--fib-max-bytes=0"], "*argument --fib-max-bytes: '0' is less than one byte"),
        (
            ["--fib-impls", "kernel_defs", "--fib-definition", "scale"],
            "ERROR: nothing in kernel_defs implements scale",
        ),
        (["--fib-traces", "."], "ERROR: --fib-traces {path}: is a directory"),
        (
            ["--fib-traces", "pytest.ini/t.jsonl"],
            "ERROR: --fib-traces {path}/pytest.ini/t.jsonl: can't be created: "
            "{path}/pytest.ini is a file",
        ),
        (
            ["--fib-cache-dir", "pytest.ini"],
            "ERROR: --fib-cache-dir {path}/pytest.ini: is a file",
        ),
        (
            ["--fib-timeout=inf"],
            "*argument --fib-timeout: inf should be above 0 and at most 1000000*",
        ),
        (
            ["--fib-build-timeout=0"],
            "*--fib-build-timeout: 0 should be above 0 and at most 1000000*",
        ),
        (
            ["--fib-target=h100"],
            "ERROR: --fib-target: 'h100' is no architecture that is known; there are: sm_70, *",
        ),
        (["--fib-target=sm_99"], "ERROR: --fib-target: 'sm_99' is no architecture *"),
        (["--fib-workload", "{"], "ERROR: --fib-workload: not JSON: Expecting property name*"),
        (
            ["--fib-workload", "3"],
            'ERROR: --fib-workload: not a mapping such as {"axes": {"batch": 7}}',
        ),
        (
            ["--fib-workload", '{"axis": {"n": 3}}'],
            "ERROR: --fib-workload: a workload: 'axis' is not one of axes, seed, regime, inputs",
        ),
        (
            ["--fib-workload", '{"axes": {"n": "3"}}'],
            "ERROR: --fib-workload: axes.n: should be a whole number, not '3'",
        ),
        (
            ["--fib-workload", '{"axes": {"n": 3}, "regime": {"values": "nice"}}'],
            "ERROR: --fib-workload: regime.values: 'nice' is not one of normal, ones, *",
        ),
    ],
)
def test_a_slip_is_told_before_any_test_runs(toys, arguments, message):
    toys.write("pytest.ini", "[pytest]\n")
    result = toys.run(*arguments)
    assert result.ret == USAGE
    assert result.outlines == []
    pattern = message.replace("{path}", str(toys.path)) if "{path}" in message else message
    result.stderr.fnmatch_lines([pattern.replace("[", "[[]")])


def test_a_definition_without_any_directory_says_how_to_name_one(project):
    result = project.run("--fib-definition", "scale")
    assert result.ret == USAGE
    result.stderr.fnmatch_lines(
        [
            "ERROR: no definition directory: kernel_defs does not exist; "
            "set fib_defs in the ini file or give --fib-defs DIR"
        ]
    )


def test_cuda_asked_for_and_absent_is_a_usage_error(scale, monkeypatch):
    monkeypatch.setattr("pytest_fib.build.gpus.count", lambda: 0)
    monkeypatch.setattr("pytest_fib.build.gpus._on_the_driver", lambda: 0)
    result = scale.run("--fib-device", "cuda")
    assert result.ret == USAGE
    result.stderr.fnmatch_lines(
        ["ERROR: --fib-device cuda: there is no CUDA device on this machine"]
    )


def test_a_long_list_of_names_is_cut_short(project, scale_yaml):
    for i in range(15):
        project.define(
            scale_yaml.replace("name: scale", f"name: op{i:02}"), f"kernel_defs/{i}.yaml"
        )
    result = project.run("--fib-definition", "scale")
    result.stderr.fnmatch_lines(["*there are: op00, op01, *, op11 and 3 more"])


def test_directories_come_from_the_command_line(project, scale_yaml):
    project.define(scale_yaml, "here/scale.yaml")
    (project.path / "kernel_impls").mkdir()
    project.write(
        "there/one.py", '@implements("scale")\ndef run(x, factor):\n    return x * factor\n'
    )
    ids = ["here/scale.yaml::scale[one-correctness]"]
    assert project.ids("--fib-defs", "here", "--fib-impls", "there") == ids
    assert (
        project.ids("--fib-defs", "here", "--fib-impls", "kernel_impls", "--fib-impls", "there")
        == ids
    )


def test_directories_come_from_the_ini_file(project, scale_yaml):
    project.define(scale_yaml, "here/scale.yaml")
    project.write(
        "there/one.py", '@implements("scale")\ndef run(x, factor):\n    return x * factor\n'
    )
    project.write("pytest.ini", "[pytest]\nfib_defs = here\nfib_impls = elsewhere there\n")
    assert project.ids("-k", "one") == ["here/scale.yaml::scale[one-correctness]"]


def test_a_command_line_directory_is_relative_to_where_pytest_was_started(
    project, scale_yaml, monkeypatch
):
    project.define(scale_yaml, "sub/defs/scale.yaml")
    project.write(
        "sub/impls/one.py", '@implements("scale")\ndef run(x, factor):\n    return x * factor\n'
    )
    monkeypatch.chdir(project.path / "sub")
    arguments = ["--fib-defs", "defs", "--fib-impls", "impls", "--rootdir", str(project.path)]
    assert project.ids(*arguments) == ["sub/defs/scale.yaml::scale[one-correctness]"]


def test_a_selection_without_paths_collects_kernels_only(toys):
    toys.write("test_app.py", "raise RuntimeError('not to be imported')\n")
    assert toys.ids("--fib-definition", "scale") == [
        "kernel_defs/toy/scale.yaml::scale[good-correctness]",
        "kernel_defs/toy/scale.yaml::scale[tail-correctness]",
    ]


def test_examples_limit_how_many_workloads_are_tried(watched):
    """With three small ones for each."""
    assert len(set(watched("--fib-examples", "4"))) <= 16
    assert len(set(watched("--fib-examples", "40"))) > 16


def test_the_budget_is_held_by_every_workload(watched):
    # x, y and a float64 copy of each: 24 bytes an element.
    sizes = watched("--fib-examples", "40", "--fib-max-bytes", "24K")
    assert max(sizes) == 1024


@pytest.fixture
def watched(project, scale_yaml):
    """Runs an implementation that notes how many elements it is called with."""
    project.define(scale_yaml.replace("max: 256", "max: 65536"))
    project.implement(
        "watch",
        """\
        x, factor
        with open("sizes.txt", "a") as file:
            file.write(f"{len(x)} ")
        return x * factor
        """,
    )

    def run(*arguments):
        project.write("sizes.txt", "")
        project.run(*arguments).assert_outcomes(passed=1)
        return [int(n) for n in (project.path / "sizes.txt").read_text().split()]

    return run


def test_a_budget_that_nothing_fits_in_is_a_skip_that_says_so(scale):
    result = scale.run("--fib-max-bytes", "16", "--fib-bench", "-rs")
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(
        ["SKIPPED * needs 24 B; the budget is 16 B (--fib-max-bytes)", "SKIPPED * needs 192 B; *"]
    )


def test_a_budget_that_leaves_one_size_is_warned_of(scale):
    """Else a mistake at every other size would pass without a word."""
    result = scale.run("--fib-max-bytes", "24")
    result.assert_outcomes(passed=1, deselected=1, warnings=1)
    said = "*FibWarning: scale?good-correctness?: only n=1 fits in 24 B (--fib-max-bytes)*"
    result.stdout.fnmatch_lines([said])
    assert "only n=1" not in str(scale.run("--fib-max-bytes", "48").stdout)


def test_help_shows_the_options_in_a_group_of_their_own(pytester):
    result = pytester.runpytest_inprocess("--help")
    result.stdout.fnmatch_lines(["kernel tests (pytest-fib):", "*--fib-definition=GLOB*"])


def test_the_plugin_imports_nothing_heavy():
    heavy = {"torch", "triton", "hypothesis", "pydantic", "yaml", "numpy"}
    code = f"import sys, pytest_fib.plugin; print(*sys.modules.keys() & {heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_project_without_kernels_loads_only_the_entry_point(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            loaded = {name for name in sys.modules if name.startswith("pytest_fib.")}
            assert loaded == {
                "pytest_fib._lazy", "pytest_fib.plugin", "pytest_fib.plugin._options"
            }
            assert not sys.modules.keys() & {"torch", "triton", "pydantic", "yaml"}
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:xdist")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("fib:*")
    assert not (pytester.path / "fib-traces.jsonl").exists()


def test_collecting_imports_neither_torch_nor_an_implementation(scale):
    scale.write(
        "kernel_impls/toy/loud.py",
        """\
        print("imported")
        raise RuntimeError("imported")

        @implements("scale")
        def run(x, factor):
            return x
        """,
    )
    scale.write(
        "conftest.py",
        """\
        import sys

        def pytest_collection_finish():
            print("heavy:", sorted(sys.modules.keys() & {"torch", "triton", "loud"}))
        """,
    )
    result = scale.run_apart("--collect-only", "-q", "--fib-bench", "-s")
    result.stdout.fnmatch_lines(
        ["kernel_defs/toy/scale.yaml::scale[[]loud-correctness]", "heavy: [[]]"]
    )
    result.stdout.no_fnmatch_line("imported")


def test_a_container_without_bwrap_is_refused_with_what_to_install(scale, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = scale.run("--fib-isolation=container")
    result.stderr.fnmatch_lines(
        ["ERROR: --fib-isolation=container needs bwrap (bubblewrap), which is not on PATH: *"]
    )


def test_a_bwrap_that_does_not_work_is_refused_with_what_it_says(scale, monkeypatch, tmp_path):
    bwrap = tmp_path / "bin/bwrap"
    bwrap.parent.mkdir()
    # As in a container whose /proc has parts that are covered.
    problem = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
    bwrap.write_text(
        f'#!/bin/sh\ncase "$*" in *"--proc /proc"*) echo "{problem}" >&2; exit 1; esac\n',
        encoding="utf-8",
    )
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", str(bwrap.parent))
    result = scale.run("--fib-isolation=container", "--fib-device=cpu")
    result.stderr.fnmatch_lines(
        [f"ERROR: --fib-isolation=container: bwrap does not work here: {problem}"]
    )
