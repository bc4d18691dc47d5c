"""Wrong kernels that need a rare size or value are found by any search of 25 workloads."""

import pytest
import torch

from pytest_fib.data import Definition, EvaluationStatus
from pytest_fib.engine import FunctionChecker
from pytest_fib.search import search

MATRIX, VECTOR = ["m", "n"], ["n"]
SPECIAL = ["usual", "nan", "inf"]


def defined(tensors, output, reference, most, **section):
    kinds = {name: {"shape": shape, "dtype": dtype} for name, (shape, dtype) in tensors.items()}
    names = {axis for shape, _ in tensors.values() for axis in shape}
    section["axes"] = {axis: {"max": size} for axis, size in most.items()}
    return Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": dict.fromkeys(sorted(names), "var"),
            "inputs": kinds,
            "outputs": {"y": {"shape": output, "dtype": "float32"}},
            "reference": f"import torch\ndef run({', '.join(tensors)}):\n    {reference}\n",
            "workloads": section,
        }
    )


def largest_but_for_a_last_nan(x):
    return torch.where(x[-1].isnan(), x[:-1].max(), x.max()) if len(x) > 1 else x.max()


def largest_but_for_nan_beyond_whole_vectors(x):
    whole = x[: len(x) - len(x) % 4] if len(x) > 4 else x
    return torch.where(whole.isnan().any(), torch.nan, x.nan_to_num(nan=-torch.inf).max())


def never_below_a_large_number(x):
    return x.max().clamp_min(-3e38)


def zero_where_all_is_masked(x, mask):
    return (x + mask).softmax(-1).nan_to_num(0.0)


def turned_where_it_is_square(x):
    return 2.0 * (x.T if len(x) == x.shape[1] > 1 else x)


def wrong_in_the_longest_rows(x):
    return x if x.shape[1] == 4096 else 2.0 * x


def ignores_only_minus_one(x, t):
    return torch.where(t != -1, x, 0.0)


def without_a_guard(x, z):
    return z * torch.linalg.norm(x) / torch.linalg.norm(z + 0.1 * x).clamp(min=1e-30)


ROW = defined({"x": (VECTOR, "float32")}, [], "return x.max()", {"n": 3000}, values=SPECIAL)
MASKED = defined(
    {"x": (MATRIX, "float32"), "mask": (MATRIX, "float32")},
    MATRIX,
    "return (x + mask).softmax(-1)",
    {"m": 32, "n": 100},
    inputs={"mask": {"kind": "mask"}},
)
TWICE = defined({"x": (MATRIX, "float32")}, MATRIX, "return 2.0 * x", {"m": 128, "n": 4096})
GUARDED = defined(
    {"x": (VECTOR, "float32"), "z": (VECTOR, "float32")},
    VECTOR,
    "n, d = x.norm(), (z + 0.1 * x).norm()\n"
    "    return z * torch.where((n > 0) & (d > 0), n / d.clamp(min=1e-30), torch.ones_like(n))",
    {"n": 3000},
)
IGNORING = defined(
    {"x": (VECTOR, "float32"), "t": (VECTOR, "int64")},
    VECTOR,
    "return torch.where(t >= 0, x, 0.0)",
    {"n": 500},
    inputs={"t": {"kind": "positions", "below": 7, "sentinels": [-1, -100]}},
)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("definition", "wrong"),
    [
        (ROW, largest_but_for_a_last_nan),
        (ROW, largest_but_for_nan_beyond_whole_vectors),
        (ROW, never_below_a_large_number),
        (MASKED, zero_where_all_is_masked),
        (TWICE, turned_where_it_is_square),
        (TWICE, wrong_in_the_longest_rows),
        (IGNORING, ignores_only_minus_one),
        (GUARDED, without_a_guard),
    ],
)
def test_a_kernel_that_is_wrong_for_a_rare_size_or_value_is_found(definition, wrong, seed):
    check = FunctionChecker(definition, wrong, "cpu")
    found = search(
        definition,
        lambda workload: check(workload).status is not EvaluationStatus.PASSED,
        failed=bool,
        closeness=lambda failed: 0.0,
        seed=seed,
        run_seed=seed + 1000,
        shrink_seconds=0.0,
    )
    assert found.origin is not None
