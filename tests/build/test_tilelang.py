"""TileLang's functions become libraries that check what they are called with."""

from functools import partial

import pytest
import torch

from pytest_fib.build import BuildError, build, load

DOUBLE = """\
import tilelang.language as T

rows = T.dynamic("rows")


@T.prim_func
def run(
    x: T.Tensor((rows, 128), "float32"), factor: T.float32, y: T.Tensor((rows, 128), "float32")
):
    with T.Kernel(rows, threads=128) as row:
        for i in T.Parallel(128):
            y[row, i] = factor * x[row, i]
"""


@pytest.fixture
def program(traced_program):
    """A program of TileLang, where it can be compiled."""
    return partial(traced_program, "tilelang")


@pytest.mark.thorough
def test_a_prim_func_is_loaded_without_tilelang_and_checks_its_arguments(program, tmp_path):
    given = program(DOUBLE)
    built = build(given, tmp_path)
    (kernel,) = built.kernels
    assert kernel.registers > 0
    run = load(given, tmp_path / built.file)
    x = torch.ones(3, 128)
    with pytest.raises(ValueError, match="x is not on a CUDA device"):
        run(x, 2.0, torch.empty_like(x))


@pytest.mark.thorough
def test_shared_memory_that_is_had_at_the_launch_counts(program, tmp_path):
    text = DOUBLE.replace(
        "        for i", '        s = T.alloc_shared((128,), "float32")\n        for i'
    )
    text = text.replace("y[row, i] = factor * x[row, i]", "s[127 - i] = x[row, i]")
    text += "        for i in T.Parallel(128):\n            y[row, i] = factor * s[i]\n"
    (kernel,) = build(program(text), tmp_path).kernels
    assert kernel.shared_bytes == 512


def test_an_error_is_at_its_line_of_the_source(program, tmp_path):
    wrong = program(DOUBLE.replace("factor * x", "faktor * x"))
    with pytest.raises(BuildError, match=r"^double\.py:12: NameError: .*faktor") as caught:
        build(wrong, tmp_path)
    assert caught.value.log.startswith("   12 | y[row, i] = faktor * x[row, i]\n")


def test_parameters_that_share_an_annotation_are_refused(program, tmp_path):
    each = 'T.Tensor((rows, 128), "float32")'
    shared = DOUBLE.replace(each, "matrix").replace("\n\n@", f"\nmatrix = {each}\n\n@")
    with pytest.raises(BuildError, match=r"^x and y of double\.py are annotated with one object"):
        build(program(shared), tmp_path)


def test_a_function_that_should_return_is_told_how_to_be_marked(program, tmp_path):
    with pytest.raises(BuildError, match=r'mark it with calling="destination"$'):
        build(program(DOUBLE, calling="value"), tmp_path)


def test_a_plain_function_is_loaded_as_python_is(program, tmp_path):
    given = program("def run(x):\n    return 2 * x\n", calling="value")
    built = build(given, tmp_path)
    assert load(given, tmp_path / built.file)(3) == 6
