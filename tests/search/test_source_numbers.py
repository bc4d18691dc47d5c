"""The numbers in the code that an implementation may run."""

from textwrap import dedent

import pytest

from pytest_fib.search import source_numbers

MODULE = """
    import triton
    from .tiles import TILE
    from . import limits

    BLOCK: int = 192
    UNUSED = 77

    def clamp(x):
        return x.clamp(-7.5, limits.LARGEST)

    @triton.autotune(configs=[triton.Config({"ROWS": 48})], key=["n"])
    @triton.jit
    def kernel(x, ROWS: tl.constexpr): ...

    def run(x):
        '''Wrong beyond 999.'''
        kernel[(1,)](clamp(x), BLOCK, TILE)
        return x[: 3 * 1024], 1 << 20, True, 10**100, 1 << -1, 2

    def other(x):
        return x[:55]
"""
SOURCES = {
    "op.py": dedent(MODULE),
    "tiles.py": "TILE = 2**31 - 1\nWIDE = 11\n",
    "limits.py": "LARGEST = 448.0\n",
    "broken.py": "def run(:",
}


def test_of_python_they_are_those_of_what_a_function_names():
    found = source_numbers(SOURCES, "op.py", "run")
    assert found == [-7.5, 10, 48, 100, 192, 448.0, 3072, 1 << 20, 2**31 - 1]


def test_a_function_within_another_has_its_own():
    text = "def test():\n    def wrong(x):\n        return x[:300]\n    return x[:44]\n"
    assert source_numbers({"t.py": text}, "t.py", "wrong") == [300]


@pytest.mark.parametrize("text", ["def run(:", "x = 1\0"])
def test_what_is_no_python_has_none(text):
    assert source_numbers({"op.py": text}, "op.py", "run") == []


def test_of_other_languages_they_are_those_of_all_files_but_comments_and_texts():
    kernel = """
        #include "tile.cuh"  // 99
        /* 98
           97 */
        constexpr int64_t kMany = 1 << 20;
        __global__ void f(float* x1, int n) {
          if (n > 4096UL && x1[0] < .5f) printf("96 %d", 0x1F);
          x1[n] = 1.5e-3f + 1'000 + 3.f;
        }
    """
    found = source_numbers({"op.cu": kernel, "tile.cuh": "#define TILE 96u\n"}, "op.cu", "f")
    assert found == [0.0015, 0.5, 3.0, 31, 96, 1000, 4096, 1 << 20]
