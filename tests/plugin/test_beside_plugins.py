"""Kernel items beside other people's plugins: each outcome means what it means elsewhere.

All of them are loaded wherever they are installed, as tox's environment ``plugins`` has them.
"""

import json
import os
import signal
import subprocess
import sys
from time import sleep
from xml.etree import ElementTree

import pytest

from tests.conftest import HANGS

#: Installed by tox -e plugins; tests of them run nowhere else.
PLUGINS = (
    "allure_pytest", "pytest_asyncio", "pytest_benchmark", "pytest_cov", "pytest_html",
    "pytest_instafail", "pytest_jsonreport", "pytest_metadata", "pytest_order", "pytest_randomly",
    "pytest_repeat", "pytest_rerunfailures", "pytest_subtests", "pytest_sugar", "pytest_timeout",
)  # fmt: skip


@pytest.fixture
def outcomes(scale):
    """Implementations that pass, fail, are skipped, and are expected to fail."""
    for name in PLUGINS:
        pytest.importorskip(name)
    scale.implement("tail", "x, factor\ny = x * factor\ny[64:] = 0\nreturn y")
    scale.implement("xfails", "x, factor\nreturn -x * factor")
    scale.implement("elsewhere", "x, factor\nreturn x", more=', target_hardware=["cuda"]')
    scale.write(
        "conftest.py",
        """\
        import pytest


        def pytest_collection_modifyitems(items):
            for item in items:
                if "xfails" in item.name:
                    item.add_marker(pytest.mark.xfail(reason="known"))
        """,
    )
    return scale


STATUSES = {"good": "PASSED", "tail": "INCORRECT_NUMERICAL", "xfails": "XFAIL"}


def test_pass_fail_skip_and_xfail_are_these_in_every_report(outcomes):
    result = outcomes.run_apart(
        *("--html=report.html", "--self-contained-html", "--json-report", "--junitxml=junit.xml"),
        *("--alluredir=allure", "--instafail", "--cov=kernel_impls"),
    )
    result.assert_outcomes(passed=1, failed=1, skipped=1, xfailed=1, deselected=1)
    for name, status in STATUSES.items():
        result.stdout.fnmatch_lines([f"{name} * {status} *"])
    result.stdout.fnmatch_lines(["elsewhere * SKIPPED  targets cuda; *"])

    report = json.loads((outcomes.path / ".report.json").read_text())
    ended = {test["nodeid"].split("[")[1].split("-")[0]: test for test in report["tests"]}
    assert {name: test["outcome"] for name, test in ended.items()} == {
        "good": "passed", "tail": "failed", "xfails": "xfailed", "elsewhere": "skipped"
    }  # fmt: skip
    assert "INCORRECT_NUMERICAL" in ended["tail"]["call"]["longrepr"]

    cases = list(ElementTree.parse(outcomes.path / "junit.xml").iter("testcase"))
    tags = sorted(child.tag for case in cases for child in case if child.tag != "properties")
    assert tags == ["failure", "skipped", "skipped"]

    results = [json.loads(p.read_text()) for p in (outcomes.path / "allure").glob("*-result.json")]
    assert sorted(each["status"] for each in results) == ["failed", "passed", "skipped", "skipped"]
    assert "INCORRECT_NUMERICAL" in (outcomes.path / "report.html").read_text()


def test_sugar_counts_them_once(outcomes):
    result = outcomes.run_apart("--force-sugar", "-k", "good or tail")
    result.stdout.fnmatch_lines(["tail * INCORRECT_NUMERICAL *", "*1 passed", "*1 failed"])


def test_count_repeats_each_item(outcomes):
    result = outcomes.run_apart("--count=2", "-k", "good or tail", "-v", "-n", "2")
    result.assert_outcomes(passed=2, failed=2)
    lines = result.stdout.str()
    assert all(f"scale[good-correctness-{step}-2]" in lines for step in (1, 2))
    assert "pytest 'kernel_defs/toy/scale.yaml::scale[tail-correctness]'" in lines


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "workers"])
def test_of_reruns_the_last_counts(outcomes, workers):
    body = """\
    x, factor
    with open("calls", "a+") as file:
        file.write(".")
        calls = file.tell()
    return x * factor if calls > 2 else x
    """
    outcomes.implement("flaky", body)
    options = "--fib-workload", '{"axes": {"n": 3}}', "-k", "flaky", "--reruns=2"
    result = outcomes.run_apart(*options, *workers)
    table = ["--* scale --*", "*", "flaky * PASSED * after 1 rerun"]
    result.stdout.fnmatch_lines([*table, "*1 passed*1 rerun*"])


def test_a_timeout_fails_the_item_and_no_other(outcomes):
    outcomes.implement("hangs", "x, factor\nwhile True:\n    pass")
    conftest = """\
    import pytest


    def pytest_collection_modifyitems(items):
        for item in items:
            if "hangs" in item.name:
                item.add_marker(pytest.mark.timeout(10))
    """
    outcomes.write("conftest.py", conftest)
    result = outcomes.run_apart("-k", "hangs or good", "--fib-isolation=process")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["hangs * Timeout (>10.0s) from pytest-timeout."])


def test_an_order_that_others_make_is_kept(outcomes):
    conftest = """\
    import pytest


    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(items):
        for item in items:
            item.add_marker(pytest.mark.order(-1 if "good" in item.name else 1))
    """
    outcomes.write("conftest.py", conftest)
    result = outcomes.run_apart("-v", "-k", "good or tail")
    result.stdout.fnmatch_lines(["*tail-correctness* FAILED*", "*good-correctness* PASSED*"])


def test_tests_of_other_plugins_run_beside_kernels(outcomes):
    outcomes.write(
        "test_others.py",
        """\
        import asyncio

        import pytest


        @pytest.mark.asyncio
        async def test_asyncio():
            await asyncio.sleep(0)


        def test_benchmark(benchmark):
            assert benchmark(sum, [1, 2]) == 3


        def test_subtests(subtests, kernel_check):
            for n in (1, 2):
                with subtests.test(n=n):
                    kernel_check("scale", lambda x, factor: x * factor, axes={"n": n})
        """,
    )
    result = outcomes.run_apart("-k", "good or others", "--benchmark-min-time=0.001")
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] >= 4


@pytest.mark.thorough
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_under_xdist_ends_every_process_without_a_traceback(scale, descendants, lives):
    scale.implement("sleeps", "x, factor\nimport time\ntime.sleep(3600)\nreturn x * factor")
    command = [sys.executable, "-m", "pytest", "-n", "2", "--fib-isolation=process"]
    run = subprocess.Popen(
        command,
        cwd=scale.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while len(children := descendants(run.pid)) < 5:  # workers, fork servers, a sandbox
        sleep(0.05)
        assert run.poll() is None
    os.killpg(run.pid, signal.SIGINT)
    output, _ = run.communicate(timeout=HANGS)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "Traceback" not in output
    assert not any(map(lives, children))
