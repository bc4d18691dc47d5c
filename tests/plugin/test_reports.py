"""What other tools are told of kernel items: properties, annotations, a job's summary."""

from xml.etree import ElementTree

import pytest


def facts_in_junit(project, run, *options):
    """The properties of each item, by its name."""
    run("--junitxml=junit.xml", *options)
    return {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in ElementTree.parse(project.path / "junit.xml").iter("testcase")
    }


@pytest.mark.parametrize("more", [(), pytest.param(("-n", "2"), marks=pytest.mark.thorough)])
def test_junit_has_the_facts_of_each_item(toys, more):
    cases = facts_in_junit(toys, toys.run_apart if more else toys.run, "-k", "tail", *more)
    tail = cases["scale[tail-correctness]"]
    assert (tail["definition"], tail["implementation"], tail["op_type"]) == (
        "scale", "tail", "elementwise"
    )  # fmt: skip
    assert (tail["file"], tail["line"]) == ("kernel_impls/toy/tail.py", "4")
    assert (tail["status"], tail["workload"]) == ("INCORRECT_NUMERICAL", "n=65")
    assert float(tail["error_share"]) > 1000
    assert tail["traces"] == "fib-traces.jsonl"


@pytest.mark.thorough
def test_junit_has_times(scale):
    good = facts_in_junit(scale, scale.run, "--fib-bench")["scale[good-bench-n=64]"]
    assert (good["status"], good["workload"]) == ("PASSED", "n=64")
    assert float(good["latency_ms"]) > 0 < float(good["speedup_factor"])


def test_in_a_github_job_failures_are_annotations_at_the_implementation(toys, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(toys.path.parent))
    toys.implement("raises", "x, factor\nraise ValueError('50% a::b, c')")
    result = toys.run("-k", "good or tail or raises")
    folder = f"{toys.path.name}/kernel_impls/toy"
    found = sorted(line for line in result.outlines if line.startswith("::"))
    assert found == [
        f"::error file={folder}/raises.py,line=4,title=scale[raises-correctness]"
        "::RUNTIME_ERROR: ValueError: 50%25 a::b, c",
        f"::error file={folder}/tail.py,line=4,title=scale[tail-correctness]"
        "::INCORRECT_NUMERICAL: y: zeros at n 64..254",
    ]


def test_in_a_github_job_a_failure_by_hand_is_an_annotation_where_it_was_raised(scale, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    scale.write(
        "test_hand.py",
        """\
        from pytest_fib.testing import assert_kernel_close

        def raising(x, factor):
            raise ValueError("no")

        def test_raises(kernel_check):
            kernel_check("scale", raising, axes={"n": 1})

        def test_wrong(kernel_check):
            kernel_check("scale", lambda x, factor: x, axes={"n": 1})

        def test_unknown(kernel_check):
            kernel_check("scal", raising)

        def test_close():
            assert_kernel_close([1.0, 2.0], [1.0, 3.0])

        def test_of_something_else():
            assert [1.0, 2.0] == [1.0, 3.0]
        """,
    )
    result = scale.run("test_hand.py")
    result.assert_outcomes(failed=5)
    result.stdout.no_fnmatch_line("::error*test_of_something_else*")
    result.stdout.fnmatch_lines(
        [
            "::error file=test_hand.py,line=4,title=test_hand.py%3A%3Atest_raises::ValueError: no",
            "::error file=test_hand.py,line=10,*test_wrong::INCORRECT_NUMERICAL: y: *",
            "::error file=test_hand.py,line=13,*test_unknown::LookupError: no definition 'scal'*",
            "::error file=test_hand.py,line=16,*test_close::INCORRECT_NUMERICAL: output: *",
        ]
    )


def test_in_a_github_job_what_is_wrong_with_a_definition_is_an_annotation_in_its_file(
    scale, monkeypatch, scale_yaml
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    scale.define(scale_yaml.replace("shape: [n]", "shape: [m]", 1), "kernel_defs/toy/scale.yaml")
    result = scale.run()
    place = "file=kernel_defs/toy/scale.yaml,line=6,title=kernel_defs/toy/scale.yaml"
    result.stdout.fnmatch_lines([f"::error {place}::ERROR: line 6: inputs.x.*"])


def test_what_other_plugins_take_for_the_place_of_a_failure_is_the_implementation(toys):
    result = toys.run("-k", "tail", "--tb=line")
    place = toys.path / "kernel_impls/toy/tail.py"
    result.stdout.fnmatch_lines([f"{place}:4: INCORRECT_NUMERICAL: y: zeros at n 64..254"])


def test_elsewhere_there_are_no_annotations(toys, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    result = toys.run("-k", "tail")
    result.stdout.no_fnmatch_line("::error*")


def test_the_run_itself_writes_the_summary_of_a_job(toys, monkeypatch):
    summary = toys.path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    toys.write("kernel_impls/toy/unread.py", '@implements("scale")\ndef run(x, factor)\n')
    toys.run("-k", "good or tail or unread", "--fib-github-summary")
    text = summary.read_text()
    assert text.startswith("before\n## Kernels\n\n**1 of 2 evaluations passed**")
    assert "### :x: Not tested\n\n| definition | implementation | what |\n" in text
    assert "| unread | can't be tested: kernel\\_impls/toy/unread.py:2: syntax error" in text
    assert "| scale | good | n=" in text


def test_the_summary_of_a_job_has_expected_failures_apart(toys, monkeypatch):
    summary = toys.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    toys.write(
        "conftest.py",
        "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items:\n        item.add_marker(pytest.mark.xfail)\n",
    )
    toys.run("-k", "tail", "--fib-github-summary").assert_outcomes(xfailed=1)
    text = summary.read_text()
    assert text.startswith("## Kernels\n\n**0 of 1 evaluations passed**, 1 failed as expected on ")
    assert ":x:" not in text
    head = "| definition | implementation | workload | status | what |"
    assert f"### Failed as expected\n\n{head}\n" in text
    assert "| scale | tail | n=" in text


def test_a_summary_without_a_job_is_a_usage_error(toys, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    result = toys.run("--fib-github-summary")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-github-summary: GITHUB_STEP_SUMMARY*is not set"])
