"""pytest as a whole, with the plugin in it."""

import xml.etree.ElementTree as ET
from itertools import groupby

import pytest

from pytest_fib.walls import wall_names


def test_verbose_shows_each_id_with_its_outcome(toys):
    result = toys.run("-v", "--fib-examples=20")
    result.stdout.fnmatch_lines(
        [
            "kernel_defs/toy/scale.yaml::scale[[]good-correctness] PASSED *",
            "kernel_defs/toy/scale.yaml::scale[[]tail-correctness] FAILED *",
            "kernel_defs/toy/split.yaml::split[[]pair-correctness] PASSED *",
            "kernel_defs/toy/split.yaml::split[[]swapped-correctness] FAILED *",
        ]
    )


def test_quiet_shows_nothing_of_ours(scale, no_clock):
    result = scale.run("-q", "--fib-bench")
    result.assert_outcomes(passed=3)
    assert [line for line in result.outlines if line] == [
        "...                                                                      [100%]",
        result.outlines[-1],
    ]


def test_without_a_terminal_a_run_leaves_its_records(toys):
    arguments = "-p", "no:terminal", "kernel_defs/toy/scale.yaml"
    assert toys.run(*arguments, "--fib-examples=20").ret == pytest.ExitCode.TESTS_FAILED
    assert [trace["solution"] for trace in toys.traces()] == ["good", "tail"]
    assert toys.run(*arguments, "--fib-explain-inputs").ret == pytest.ExitCode.OK


def test_the_first_failure_stops_a_run_with_x(toys):
    toys.run("-x", "--fib-examples=20").assert_outcomes(passed=1, failed=1)


def test_junit_reports_have_the_ids_and_the_message(toys):
    toys.run("--junitxml", "junit.xml", "--fib-examples=20", "kernel_defs/toy/scale.yaml")
    good, tail = ET.parse(toys.path / "junit.xml").getroot().iter("testcase")
    assert (good.get("classname"), good.get("name")) == (
        "kernel_defs.toy.scale.yaml",
        "scale[good-correctness]",
    )
    assert [child.tag for child in good] == ["properties"]
    _, failure = tail
    assert failure.get("message").startswith("INCORRECT_NUMERICAL: y: zeros at n 64..")
    assert "replay:" in failure.text


def test_durations_name_the_items(scale):
    scale.implement("slow", "x, factor\nimport time\ntime.sleep(0.02)\nreturn x * factor")
    scale.run("--durations=0").stdout.fnmatch_lines(
        ["*s call     kernel_defs/toy/scale.yaml::scale[[]slow-correctness]"]
    )


def test_the_mark_is_registered_and_documented(scale):
    scale.run("--strict-markers").assert_outcomes(passed=1)
    scale.run("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.fib(definition, implementation, op_type, language, kind): *"]
    )


def test_other_plugins_see_the_facts_in_the_mark(scale):
    scale.write(
        "conftest.py",
        """\
        def pytest_runtest_setup(item):
            print(sorted(item.get_closest_marker("fib").kwargs.items()))
        """,
    )
    scale.run("-s").stdout.fnmatch_lines(
        [
            "*('definition', 'scale'), ('implementation', 'good'), ('kind', 'correctness'), "
            "('language', 'python'), ('op_type', 'elementwise')*"
        ]
    )


def test_a_conftest_may_skip_or_mark_kernel_items_as_any_other(toys):
    toys.write(
        "conftest.py",
        """\
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                if "swapped" in item.name:
                    item.add_marker(pytest.mark.xfail(reason="known", strict=True))
                if "tail" in item.name:
                    item.add_marker(pytest.mark.skip(reason="not now"))
        """,
    )
    result = toys.run("--fib-examples=20", "-rsx")
    result.assert_outcomes(passed=2, xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * not now", "XFAIL *swapped-correctness] - known"])


def test_failures_are_red_and_passes_green_in_the_table(toys):
    result = toys.run("--color=yes", "--fib-examples=20", "kernel_defs/toy/scale.yaml")
    [good] = [line for line in result.outlines if line.startswith("good ")]
    [tail] = [line for line in result.outlines if line.startswith("tail ")]
    assert "\x1b[32mPASSED\x1b[0m " in good
    assert "\x1b[31m\x1b[1mINCORRECT_NUMERICAL\x1b[0m " in tail


@pytest.mark.parametrize("colour", ["yes", pytest.param("no", marks=pytest.mark.thorough)])
def test_a_run_fits_in_80_columns(toys, monkeypatch, colour):
    monkeypatch.setenv("COLUMNS", "80")
    toys.implement("a_rather_long_name_for_an_implementation", "x, factor\nreturn x * factor")
    toys.implement("skipped", "x, factor\nreturn x", more=', language="tilelang"')
    result = toys.run(
        "--fib-bench", f"--color={colour}", "kernel_defs/toy/scale.yaml", "-k", "not tail"
    )
    result.stdout.fnmatch_lines(["a_rather_long…plementation *python*"])
    start = next(i for i, line in enumerate(result.outlines) if "- scale -" in line)
    plain = [_without_colour(line) for line in result.outlines[start:]]
    assert len(plain) > 8
    assert [line for line in plain if len(line) > 80] == []


def _without_colour(line: str) -> str:
    return "".join(
        part.partition("m")[2] if i else part for i, part in enumerate(line.split("\x1b["))
    )


@pytest.mark.thorough
def test_workers_warn_of_strays_once(scale):
    scale.implement("stray", "x, factor\nreturn x", "scal")
    result = scale.run_apart("-n", "2")
    result.assert_outcomes(passed=1, warnings=1)


def test_the_header_names_the_walls_around_kernels(scale):
    line = f"fib: sandbox: {', '.join(wall_names())}"
    run = scale.run("--fib-isolation=process", "--collect-only")
    run.stdout.fnmatch_lines([line])
    scale.run("--collect-only").stdout.no_fnmatch_line("fib: sandbox: *")


@pytest.mark.thorough
def test_pdb_runs_kernels_in_this_process(scale):
    scale.implement(
        "pid", "x, factor\nimport os\nopen('pid', 'w').write(str(os.getpid()))\nreturn x * factor"
    )
    scale.write("conftest.py", "import os\nopen('own', 'w').write(str(os.getpid()))\n")
    scale.write("pytest.ini", "[pytest]\n")
    scale.run_apart("--pdb", "-k", "pid").assert_outcomes(passed=1)
    assert (scale.path / "pid").read_text() == (scale.path / "own").read_text()


@pytest.mark.thorough
def test_what_is_done_with_one_implementation_follows_each_other(toys):
    """So that it needs one process."""
    options = ("--fib-bench", "-k", "good or pair")
    toys.run(*options)
    alone = [(trace["definition"], trace["solution"]) for trace in toys.traces()]
    toys.run_apart("-n1", *options)
    under_xdist = [(trace["definition"], trace["solution"]) for trace in toys.traces()]
    assert under_xdist == alone
    assert len(alone) > len(set(alone)) == len(list(groupby(alone)))


@pytest.mark.parametrize(
    "way",
    [
        "-p",
        *(pytest.param(way, marks=pytest.mark.thorough) for way in ("PYTEST_PLUGINS", "conftest")),
    ],
)
def test_a_plugin_that_is_installed_may_be_named_as_well(pytester, monkeypatch, way):
    monkeypatch.delenv("PYTEST_PLUGINS", raising=False)
    pytester.makepyfile(
        "def test_one(pytestconfig):\n    assert pytestconfig.getoption('--fib-examples') == 20\n"
    )
    if way == "PYTEST_PLUGINS":
        monkeypatch.setenv(way, "pytest_fib.plugin")
    elif way == "conftest":
        pytester.makeconftest("pytest_plugins = ['pytest_fib.plugin']")
    arguments = ["-p", "pytest_fib.plugin"] if way == "-p" else []
    result = pytester.runpytest_subprocess(*arguments, "--fib-examples=20")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
