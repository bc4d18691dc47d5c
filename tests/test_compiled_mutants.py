"""Wrong kernels and cheats in CUDA compile: on a device they are caught for what they do."""

from pathlib import Path

import pytest

from pytest_fib.build import Hardware, build, program_of, why_not_buildable
from pytest_fib.discovery import Implementation
from tests.mutants.compiled import CHEATS, MUTANTS, RMSNORM

H200 = Hardware("cuda", (9, 0), "NVIDIA H200")
ALL = {**MUTANTS, **{name: (RMSNORM, *replacement) for name, replacement in CHEATS.items()}}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALL)
def test_what_is_to_be_caught_compiles(name, tmp_path):
    implementation = Implementation("any", "any", Path("any.cu"), 1, language="cuda")
    if reason := why_not_buildable(implementation):
        pytest.skip(reason)
    shipped, *replacement = ALL[name]
    program = program_of(shipped.solution(*replacement), shipped.of(), None, H200)
    built = build(program, tmp_path)
    assert built.kernels
