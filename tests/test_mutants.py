"""Implementations that are wrong on purpose: each is caught, and told in words that say why."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Those that are wrong by mistake; tests/engine/test_cheats.py has those that mean to deceive.
FOLDERS = ("rmsnorm", "fused_add_rmsnorm", "scale")
INCORRECT = "INCORRECT_NUMERICAL: out: "

# What the first line of each failure matches, and a pattern of something that must follow it.
CAUGHT = {
    "rmsnorm_d4096": {
        "off_by_one_mask": (
            INCORRECT + "never written at the last one of 4096 along",
            r"wrong +1 of 4096 elements of out \(",
        ),
        "wrong_eps": (INCORRECT + "as if eps were 10 times as large", "batch=1; small values"),
        "wrong_dtype": ("INCORRECT_DTYPE: out: got float32, expected float16", "batch=1;"),
        "wrong_shape": ("INCORRECT_SHAPE: out: got [[]4096], expected [[]1, 4096]", "batch=1;"),
        "raises": (
            "RUNTIME_ERROR: ValueError: a batch of 3 rows is too large",
            r'batch=3;(.*\n)+.*/raises\.py", line \d+, in run\n',
        ),
        "nan": (
            INCORRECT + "NaN everywhere, where numbers are expected",
            "batch=1; zeros values",
        ),
        "zero_row": (
            INCORRECT + "zeros at the last one of 49 along batch*",
            r"40\d\d of 4096 elements of out",
        ),
    },
    "fused_add_rmsnorm_d4096": {
        "swapped_outputs": (
            INCORRECT + "swapped with residual_out",
            r"elements of out \(.*\n +wrong .* elements of residual_out \(",
        ),
        "writes_its_input": ("RUNTIME_ERROR: wrote to its input 'residual'", "batch=1;"),
        "one_output": (
            "RUNTIME_ERROR: returned 1 value* for 2 outputs (out, residual_out)",
            "batch=1;",
        ),
    },
    **{
        f"scale_{dtype}": {
            "off_by_one_mask": (INCORRECT + "never written in the very last element", "n=1;"),
            "dropped_tail": (INCORRECT + "equal to the input x at the last * of * along n", "n=1;"),
        }
        for dtype in ("float16", "bfloat16", "float32")
    },
}


@pytest.fixture
def run(tmp_path):
    """Run pytest on the project's definitions; gives what each failure says, and the records."""

    def run(*arguments):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--fib-defs",
            "kernel_defs",
        ]
        files = ["--junitxml", str(tmp_path / "x.xml"), "--fib-traces", str(tmp_path / "t.jsonl")]
        subprocess.run([*command, *files, *arguments], cwd=ROOT, check=False, capture_output=True)
        texts = {
            case.get("name").removesuffix("-correctness]"): case.findtext("failure")
            for case in ET.parse(tmp_path / "x.xml").getroot().iter("testcase")
        }
        lines = (tmp_path / "t.jsonl").read_text().splitlines()
        return texts, [json.loads(line) for line in lines]

    return run


@pytest.mark.parametrize("op", ["rmsnorm_d4096", "fused_add_rmsnorm_d4096", "scale_*"])
def test_every_mutant_is_caught_and_told_in_words_that_say_why(run, op):
    folders = [f"--fib-impls=tests/mutants/{name}" for name in FOLDERS]
    texts, traces = run(*folders, "--fib-definition", op)
    expected = {
        f"{definition}[{mutant}": patterns
        for definition, mutants in CAUGHT.items()
        if fnmatchcase(definition, op)
        for mutant, patterns in mutants.items()
    }
    assert texts.keys() == expected.keys()
    for name, (first, more) in expected.items():
        line, _, rest = texts[name].partition("\n")
        assert fnmatchcase(line, first), name
        assert re.search(more, rest, re.MULTILINE), name
        mutant = name.partition("[")[2]
        assert re.search(
            rf"\n  implementation  {mutant}  tests/mutants/\w+/{mutant}\.py:\d+\n", rest
        )
        assert re.search(
            rf"\nreplay:\n  pytest '.*{mutant}-correctness\]' --fib-defs=.* --fib-workload '", rest
        )
    statuses = {f"{t['definition']}[{t['solution']}": t["evaluation"]["status"] for t in traces}
    assert statuses == {name: first.partition(":")[0] for name, (first, _) in expected.items()}


def test_each_mutant_is_expected_by_some_test():
    files = {path.stem for name in FOLDERS for path in (ROOT / "tests/mutants" / name).glob("*.py")}
    assert files == {mutant for mutants in CAUGHT.values() for mutant in mutants}
