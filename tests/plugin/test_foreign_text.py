"""Text of an implementation is text, wherever a run shows it."""

import re
from xml.etree import ElementTree

import pytest

from pytest_fib.data import read_traces
from pytest_fib.report.github import summary

#: It clears the screen, sets a title, goes back, reorders, and gives an order to GitHub.
NASTY = r"\x1b[2J\x1b]0;owned\x07\x9b1A\b\r\u202e\u2028::set-output name=a::b ##[group]c | <b>`"
#: How that is shown.
SHOWN = NASTY.replace(r"\b\r", r"\x08\x0d").replace("::", r"\x3a:", 1).replace("##[", r"\x23#[")

#: The class, its message over several lines, and what is printed by Python and below it.
RAISING = rf"""
x, factor
import os
print("::add-mask::1\n", "printed {NASTY}", flush=True)
os.write(1, "written {NASTY}\n".encode())
raise type("Error{NASTY}", (Exception,), {{}})("raised {NASTY}\n::error::2")
"""
DOING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]|^\\s*::|##\\[", re.MULTILINE)


def shown_text(text):
    """Text as it is expected: what pytest makes of characters in XML is its own."""
    assert DOING.search(text) is None, DOING.search(text)
    return text


@pytest.mark.parametrize("isolation", [pytest.param("process", marks=pytest.mark.thorough), "none"])
def test_escapes_in_an_exception_and_in_prints_do_nothing_anywhere(scale, isolation):
    scale.implement("nasty", RAISING)
    options = "-v", "-k", "nasty", "--junitxml=junit.xml", "--show-capture=no"
    result = scale.run(*options, f"--fib-isolation={isolation}")
    result.assert_outcomes(failed=1)

    terminal = shown_text(result.stdout.str())
    assert f"RUNTIME_ERROR: Error{SHOWN}: raised {SHOWN}"[:60] in terminal

    [case] = ElementTree.parse(scale.path / "junit.xml").iter("testcase")
    failure = shown_text(case.find("failure").text)
    assert f"raised {SHOWN[:20]}" in failure

    [trace] = read_traces(scale.path / "fib-traces.jsonl")
    log = shown_text(trace.evaluation.log)
    assert f"raised {SHOWN[:20]}" in log
    shown_text(trace.evaluation.diagnosis.text)
    if isolation == "process":  # else prints are pytest's to capture
        assert r"\x3a:add-mask::1" in log
        assert f"printed {SHOWN}" in log
        assert f"written {SHOWN}" in log

    [row] = [line for line in shown_text(summary([trace])).splitlines() if " nasty " in line]
    assert row.count(" | ") == 4


def test_a_forged_summary_is_one_visible_line(scale):
    forging = """
    x, factor
    from pytest_fib.sandbox import _runner
    _runner.one_line = lambda error: "forged\\n::error::a\\x1b[2J"
    raise ValueError
    """
    scale.implement("forging", forging)
    result = scale.run("-k", "forging", "--fib-isolation=process")
    shown_text(result.stdout.str())
    result.stdout.fnmatch_lines([r"RUNTIME_ERROR: forged\n\x3a:error::a\x1b[[]2J"])


def test_what_warnings_and_errors_quote_of_files_does_nothing(scale):
    scale.write("kernel_impls/toy/stray.py", "from pytest_fib import implements\n\n")
    scale.implement("stray", "x\nreturn x", r"no\x1b[2J\u202e")
    broken = 'name: broken\nop_type: "a\\e[2J"\n"key\\e[2J\\n::error::a": 1\n'
    scale.define(broken, "kernel_defs/toy/broken.yaml")
    text = shown_text(scale.run().stdout.str())
    assert r"key\x1b[2J" in text
    (scale.path / "kernel_defs/toy/broken.yaml").unlink()
    text = shown_text(scale.run("-W", "default::pytest_fib.FibWarning").stdout.str())
    assert r"implements 'no\x1b[2J\u202e'" in text


def test_names_of_outputs_are_such_as_can_be_shown(scale, scale_yaml):
    text = scale_yaml.replace("name: scale", "name: other").replace("  y:", '  "y\\e[2J":')
    scale.define(text, "kernel_defs/toy/other.yaml")
    result = scale.run("kernel_defs/toy/other.yaml")
    result.assert_outcomes(errors=1)
    assert r"'y\x1b[2J' can't be shown as it is" in shown_text(result.stdout.str())


def test_the_name_of_a_file_is_a_visible_name_of_an_item(scale):
    scale.implement("a\x1b[2J\nb", "x, factor\nreturn x * factor")
    text = scale.run("-v").stdout.str()
    assert r"scale[a\x1b[2J\nb-correctness] PASSED" in shown_text(text)
