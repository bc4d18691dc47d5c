"""What a reference compares with is known where it is calculated from numbers, or has a name."""

import pytest

from pytest_fib.data import Definition
from pytest_fib.workloads import plan


def limits(reference):
    """The numbers that a reference's only input is compared with."""
    definition = Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"n": "var"},
            "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
            "outputs": {"y": {"shape": ["n"], "dtype": "bool"}},
            "reference": reference,
        }
    )
    return plan(definition).uses.limits.get("x", set())


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("LIMIT = 1 << 15", 32768),
        ("LIMIT = 2**31 - 1", 2**31 - 1),
        ("LIMIT = -(1 << 23)", -(2**23)),
        ("LIMIT: int = 3 * 1024", 3072),
        ("OTHER, LIMIT = 4096, 1 / 8", 0.125),
        ("BITS = 12\nLIMIT = 2**BITS", 4096),
        ("LIMIT = 100 // 7 % 5 + (6 & 3 | 8 ^ 1) >> 1", (100 // 7 % 5 + (6 & 3 | 8 ^ 1)) >> 1),
    ],
)
def test_a_constant_of_the_module_is_known(module, number):
    assert limits(f"{module}\ndef run(x):\n    return x > LIMIT") == {number}
    body = module.replace("\n", "\n    ")
    assert limits(f"def run(x):\n    {body}\n    return x > LIMIT") == {number}
    assert limits(f"{module}\ndef run(x):\n    return x > 2 * LIMIT") == {2 * number}


@pytest.mark.parametrize(
    "reference",
    [
        "LIMIT = 4\nLIMIT = max(3, 5)\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 4\nLIMIT = 5\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 4\ndef run(x):\n    LIMIT = x.shape[0]\n    return x > LIMIT",
        "LIMIT = 4\ndef run(x):\n    for LIMIT in x.tolist():\n        y = x > LIMIT\n    return y",
        "def run(x):\n    limit = 4\n    limit += x.shape[0]\n    return x > 2 * limit",
        "LIMIT = 4\ndef run(x):\n    return (lambda LIMIT: x > LIMIT)(x.shape[0])",
        "def run(x):\n    size = 64\n    size //= 2\n    half = size\n    return x > 2 * half",
        "def run(x):\n    n = 4\n    n += x.shape[0]\n    limit = 2 * n\n    return x > 3 * limit",
        "LIMIT = 4\nLIMIT += 60\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 4\nif True:\n    LIMIT = 8\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 4\ndef run(x):\n    import math as LIMIT\n    return x > LIMIT",
        "LIMIT = (10**30) ** 4\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 1e308 * 10\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 1 / 0\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 1 << 1000000000\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 1 << -1\ndef run(x):\n    return x > LIMIT",
        "LIMIT = 2.0**2000\ndef run(x):\n    return x > LIMIT",
        "LIMIT = True\ndef run(x):\n    return x > LIMIT",
        "ONE, LIMIT = 1, 2, 3\ndef run(x):\n    return x > LIMIT",
    ],
)
def test_what_may_be_another_value_or_no_number_is_not(reference):
    assert limits(reference) == set()


def test_a_function_has_the_modules_constants_not_those_of_its_caller():
    helper = "LIMIT = 8\ndef above(x):\n    return x > LIMIT\n"
    assert limits(f"{helper}def run(x):\n    LIMIT = 64\n    return above(x) | (LIMIT < 0)") == {8}
