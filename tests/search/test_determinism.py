"""The same seed draws the same workloads, and these have the same bits, in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import hashlib

from pytest_fib.data import Definition
from pytest_fib.workloads import bits
from tests.definitions.harness import filled, found
from tests.workloads.signatures import SIGNATURES

for name, data in SIGNATURES.items():
    definition = Definition.model_validate(data)
    digest = hashlib.sha256()
    for workload in found(definition, 4, 1 << 18, seed=7):
        digest.update(workload.to_json().encode())
        for value in filled(definition, workload).values():
            scalar = isinstance(value, (bool, int, float))
            digest.update(repr(value).encode() if scalar else bits(value).numpy().tobytes())
    print(name, digest.hexdigest())
"""


def printed(**environment):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()


@pytest.fixture(scope="module")
def lines():
    return printed(PYTHONHASHSEED="1", OMP_NUM_THREADS="1")


def test_bits_are_the_same_in_every_process(lines):
    assert printed(PYTHONHASHSEED="2", OMP_NUM_THREADS="2") == lines


def test_other_signatures_have_other_bits(lines):
    """But for those that differ in what their constraints say and not in what is inferred."""
    assert len({line.split()[1] for line in lines}) > 25
