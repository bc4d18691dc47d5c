"""No honest kernel is called wrong: a small sample of what benchmarks/calibration.py tries."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.thorough
def test_no_honest_way_is_called_wrong():
    run = subprocess.run(
        [sys.executable, "benchmarks/calibration.py", "--examples=6", "--wrong=0", "--seed=1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    alarms, verdicts = re.search(r"\n(\d+) false alarms in ([\d,]+) verdicts", run.stdout).groups()
    assert alarms == "0"
    assert int(verdicts.replace(",", "")) > 1000
