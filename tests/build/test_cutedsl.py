"""CuTe DSL's functions become libraries for the arguments that a definition declares."""

from functools import partial

import pytest
import torch

from pytest_fib.build import (
    BuildError,
    Parameter,
    build,
    load,
)

DOUBLE = """\
import cutlass
from cutlass import cute


@cute.kernel
def double(x: cute.Tensor, factor: cutlass.Float32, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    y[row, thread] = factor * x[row, thread]


@cute.jit
def run(x: cute.Tensor, factor: cutlass.Float32, y: cute.Tensor, stream):
    double(x, factor, y).launch(grid=(x.shape[0], 1, 1), block=(128, 1, 1), stream=stream)
"""
MATRIX = (("rows", 128), (0, 1))
PARAMETERS = (
    Parameter("x", "float32", *MATRIX, compact=False),
    Parameter("factor", "float32", None),
    Parameter("y", "float32", *MATRIX),
)


@pytest.fixture
def program(traced_program):
    """A program of CuTe DSL, where it can be compiled."""
    return partial(traced_program, "cutedsl", parameters=PARAMETERS)


@pytest.mark.thorough
def test_a_jit_function_is_loaded_and_checks_its_arguments(program, tmp_path):
    given = program(DOUBLE)
    built = build(given, tmp_path)
    (kernel,) = built.kernels
    assert kernel.registers > 0
    run = load(given, tmp_path / built.file)
    x = torch.ones(3, 128)
    with pytest.raises(ValueError, match="device"):
        run(x, 2.0, torch.empty_like(x))


@pytest.mark.thorough
def test_an_error_is_at_its_line_of_the_source(program, tmp_path):
    with pytest.raises(BuildError, match=r"^double\.py:9: .*faktor"):
        build(program(DOUBLE.replace("factor * x", "faktor * x")), tmp_path)


def test_a_kernel_that_is_marked_itself_is_refused(program, tmp_path):
    text = DOUBLE.replace("double(", "run(").replace(
        "def run(x: cute.Tensor, factor: cutlass.Float32, y: cute.Tensor, stream)",
        "def host(x, factor, y, stream)",
    )
    with pytest.raises(
        BuildError, match=r"^run of double\.py is a cute\.kernel: mark the cute\.jit"
    ):
        build(program(text), tmp_path)


def test_other_parameters_than_the_definition_has_are_named(program, tmp_path):
    text = DOUBLE.replace("y: cute.Tensor, stream)", "y: cute.Tensor, size, stream)")
    with pytest.raises(BuildError, match="has 5 parameters, not one for each of x, factor, y, and"):
        build(program(text), tmp_path)


def test_a_function_that_should_return_is_told_how_to_be_marked(program, tmp_path):
    with pytest.raises(BuildError, match=r'mark it with calling="destination"$'):
        build(program(DOUBLE, calling="value"), tmp_path)
