"""Wrong kernels fail in a whole run too: as items, in sandboxes, Triton's in its interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATTERNS = {
    "gemm_every_sixteenth_wrong": "every k-th",
    "gemm_scale_in_half": "lower precision",
    "gemm_scale_off_by_little": "one factor",
    "gemm_scale_tf32": "lower precision",
    "last_element_masked_out": "unwritten",
    "sizes_scaled_in_whole_blocks_of_256": "copied input",
}


@pytest.mark.thorough
def test_the_mutants_of_a_definition_fail_as_items_for_the_right_reason(tmp_path):
    traces = tmp_path / "traces.jsonl"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--fib-device=cpu",
        "--fib-seed=0",
    ]
    command += ["--fib-impls=tests/mutants/kernels", "--fib-impls=tests/mutants/triton"]
    command += ["--fib-definition=scale_float32", "--fib-max-bytes=1M", f"--fib-traces={traces}"]
    command += ["-k", "not definition and not compile"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert f"{len(PATTERNS)} failed" in run.stdout
    assert "passed" not in run.stdout.splitlines()[-1]
    records = [json.loads(line) for line in traces.read_text(encoding="utf-8").splitlines()]
    evaluations = {record["solution"]: record["evaluation"] for record in records}
    assert {each["status"] for each in evaluations.values()} == {"INCORRECT_NUMERICAL"}
    patterns = {n: e["diagnosis"]["pattern"] for n, e in evaluations.items()}
    assert patterns == PATTERNS
